"""Reads a value from the server by its type of the contract, or tells where it is unlike it.

`reader(type)` compiles `read(value, mapped)`: what was read, with records as dicts of text fields. `mapped` says how records must have
come: True as maps, False as flat arrays, None as either.
"""

import json
import re
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Literal, Union, get_args, get_origin, get_type_hints

from .contract import Bytes, Gen, Id, Inspection, Number, Position, Positive

GREATEST = 2**63 - 1


class Unlike(AssertionError):
    """A value is not of its type."""


CHECKS = {
    Number: lambda value: type(value) is int and 0 <= value <= GREATEST,
    Positive: lambda value: type(value) is int and 1 <= value <= GREATEST,
    Bytes: lambda value: type(value) is bytes,
    Id: lambda value: type(value) is bytes and value != b"",
    Gen: lambda value: type(value) is bytes and re.fullmatch(rb"(?:0|[1-9]\d*)-[0-9a-f]{8}", value),
    Position: lambda value: type(value) is bytes and re.fullmatch(rb"\d+-\d+", value),
    Inspection: lambda value: type(value) is bytes and json.loads(value)["schema"] == "lease/1",
    types.NoneType: lambda value: value is None,
}


def reader(hint):
    if is_dataclass(hint):
        return record_reader(hint)
    options = alternatives(hint)
    if all(map(check_of, options)):
        return scalar_reader(hint, [check_of(option) for option in options])
    if len(options) > 1:
        return alternatives_reader([reader(option) for option in options])
    return list_reader(get_args(hint)) if get_origin(hint) is list else tuple_reader(get_args(hint))


def alternatives(hint):
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def check_of(hint):
    """Whether a value is of a type without parts; None if the type has some."""
    if get_origin(hint) is not Literal:
        return CHECKS.get(hint)
    words = {(bytes, word.encode()) if isinstance(word, str) else (int, word) for word in get_args(hint)}
    return lambda value: type(value) in (bytes, int) and (type(value), value) in words


def scalar_reader(hint, checks):
    def read(value, mapped):
        for check in checks:
            if check(value):
                return value
        raise Unlike(f"{value!r} is not {getattr(hint, '__name__', hint)}")

    return read


def alternatives_reader(readers):
    def read(value, mapped):
        unlike = []
        for one in readers:
            try:
                return one(value, mapped)
            except Unlike as why:
                unlike.append(str(why))
        raise Unlike("\nand ".join(unlike))

    return read


def list_reader(hints):
    (member,) = map(reader, hints)

    def read(value, mapped):
        if type(value) is not list:
            raise Unlike(f"{value!r} is not an array")
        return [member(part, mapped) for part in value]

    return read


def tuple_reader(hints):
    members = [reader(hint) for hint in hints]

    def read(value, mapped):
        if type(value) is not list or len(value) != len(members):
            raise Unlike(f"{value!r} is not an array of {len(members)}")
        return [member(part, mapped) for member, part in zip(members, value)]

    return read


def record_reader(kind):
    hints = get_type_hints(kind)
    parts = {field.name.encode(): (field.name, reader(hints[field.name])) for field in fields(kind)}
    required = {field.name for field in fields(kind) if field.default is MISSING}

    def read(value, mapped):
        found = {}
        for key, part in pairs(value, mapped):
            name, read_part = parts.get(key, (None, None))
            if name is None or name in found:
                raise Unlike(f"{kind.__name__} has {key!r} {'twice' if name else 'too much'}")
            try:
                found[name] = read_part(part, mapped)
            except Unlike as why:
                raise Unlike(f"{kind.__name__}.{name}: {why}") from None
        if required - found.keys():
            raise Unlike(f"{kind.__name__} lacks {sorted(required - found.keys())}")
        return found

    return read


def pairs(value, mapped):
    """Fields and values of a map, or of a flat array."""
    if type(value) is dict and mapped is not False:
        return value.items()
    if type(value) is list and not len(value) % 2 and mapped is not True:
        return zip(value[::2], value[1::2])
    raise Unlike(f"{value!r} is not a {({True: 'map', False: 'flat array', None: 'map or flat array'})[mapped]}")


def names_of(hint, wanted):
    """The fields with a type that is wanted, in any of a type's records."""
    return {name for option in alternatives(hint) for name, part in get_type_hints(option).items() if wanted(part)}


def is_number(hint):
    return hint in (Number, Positive) or is_literal(hint, int)


def is_literal(hint, kind):
    return get_origin(hint) is Literal and type(get_args(hint)[0]) is kind
