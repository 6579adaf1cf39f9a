"""Writes the types of the contract down as JSON Schema, into docs/schema: replies.json, event.json. A test runs it and compares."""

import json
import pathlib
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Literal, get_args, get_origin, get_type_hints

from harness.conform import GREATEST, alternatives
from harness.contract import REPLIES, AnyEvent, Bytes, Gen, Id, Inspection, Number, Position, Positive

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "docs/schema"
WIDTH = 130
DIALECT = "https://json-schema.org/draft/2020-12/schema"
BASE64 = {
    "description": "Bytes that are not UTF-8.",
    "type": "object",
    "properties": {"base64": {"type": "string", "contentEncoding": "base64", "pattern": "^[A-Za-z0-9+/]+={0,2}$"}},
    "required": ["base64"],
    "additionalProperties": False,
}
SCALARS = {
    Number: ("number", {"description": "Points in time are unix ms.", "type": "integer", "minimum": 0, "maximum": GREATEST}),
    Positive: ("positive", {"type": "integer", "minimum": 1, "maximum": GREATEST}),
    Bytes: ("bytes", {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/base64"}]}),
    Id: ("id", {"description": "Never empty.", "anyOf": [{"type": "string", "minLength": 1}, {"$ref": "#/$defs/base64"}]}),
    Gen: ("gen", {"type": "string", "pattern": "^(0|[1-9][0-9]*)-[0-9a-f]{8}$"}),
    Position: ("position", {"description": "An id in a stream.", "type": "string", "pattern": "^[0-9]+-[0-9]+$"}),
    Inspection: ("inspection", {"description": "JSON by inspect.json.", "type": "string", "contentMediaType": "application/json"}),
}
# Within stream entries numbers are text.
IN_ENTRIES = SCALARS | {
    Number: (
        "number",
        {"description": "A decimal integer, 0 … 2^63-1; points in time are unix ms.", "type": "string", "pattern": "^(0|[1-9][0-9]{0,18})$"},
    ),
    Positive: ("positive", {"type": "string", "pattern": "^[1-9][0-9]{0,18}$"}),
}


class Writer:
    """Schemas of types; the named ones are collected in `defs`."""

    def __init__(self, scalars):
        self.scalars, self.defs = scalars, {"base64": BASE64}

    def __call__(self, hint):
        words, others = [], []
        for option in alternatives(hint):
            if option is types.NoneType:
                words.append(None)
            elif get_origin(option) is Literal:
                words += [str(word) if self.scalars is IN_ENTRIES else word for word in get_args(option)]
            else:
                others.append(self.one(option))
        if words:
            others.append({"enum": words} if len(words) > 1 else {"type": "null"} if words == [None] else {"const": words[0]})
        return others[0] if len(others) == 1 else {"anyOf": others}

    def one(self, hint):
        if hint in self.scalars:
            return self.named(*self.scalars[hint])
        if is_dataclass(hint):
            return self.named(hint.__name__, self.record(hint))
        parts = [self(part) for part in get_args(hint)]
        if get_origin(hint) is list:
            return {"type": "array", "items": parts[0]}
        return {"type": "array", "prefixItems": parts, "minItems": len(parts), "items": False}

    def record(self, kind):
        hints = get_type_hints(kind)
        return {
            "description": kind.__doc__,
            "type": "object",
            "properties": {field.name: self(hints[field.name]) for field in fields(kind)},
            "required": [field.name for field in fields(kind) if field.default is MISSING],
            "additionalProperties": False,
        }

    def named(self, name, schema):
        self.defs[name] = schema
        return {"$ref": f"#/$defs/{name}"}


def replies():
    write = Writer(SCALARS)
    commands = {name: write(kind) for name, kind in REPLIES.items()}
    return {
        "$schema": DIALECT,
        "title": "Replies of the module's commands, version 1",
        "description": "A reply as JSON: each under its command's name in $defs. Maps are objects (in RESP2 they are arrays of field and value, "
        'in turn); byte strings are strings, or {"base64": …} where they are not UTF-8; nil is null.',
        "$defs": commands | write.defs,
    }


def event():
    write = Writer(IN_ENTRIES)
    kinds = [write(kind) for kind in alternatives(AnyEvent)]
    return {
        "$schema": DIALECT,
        "title": "An entry of an event stream, version 1",
        "description": 'A stream entry as an object: each field a string, or {"base64": …} for bytes that are not UTF-8. Fields that do not '
        "apply are absent.",
        "anyOf": kinds,
        "$defs": write.defs,
    }


WRITTEN = {"replies": replies, "event": event}


def written(name):
    return text(WRITTEN[name]()) + "\n"


def text(part, indent=""):
    """JSON for people: what fits stands in one line."""
    line = json.dumps(part, ensure_ascii=False)
    if len(indent + line) <= WIDTH or not isinstance(part, (dict, list)):
        return line
    deeper = indent + "  "
    if isinstance(part, list):
        members, ends = [text(value, deeper) for value in part], "[]"
    else:
        members, ends = [f"{json.dumps(name)}: {text(value, deeper)}" for name, value in part.items()], "{}"
    return ends[0] + ",".join(f"\n{deeper}{member}" for member in members) + f"\n{indent}" + ends[1]


if __name__ == "__main__":
    for name in WRITTEN:
        (FOLDER / f"{name}.json").write_text(written(name))
