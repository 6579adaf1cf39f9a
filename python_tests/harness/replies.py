"""Replies read by their types: a map is a dict, whatever the protocol made of it; field names become text, values stay bytes."""

from .conform import reader
from .contract import REPLIES

READERS = {name: reader(kind) for name, kind in REPLIES.items()}


def name_of(command):
    name = command[0]
    return name.upper() if isinstance(name, str) else name.decode("latin1").upper()


def normal(command, reply, mapped=None):
    """The reply to `command` (a list of arguments) with its maps as dicts; `mapped` as for `conform.reader`. Fails on what the contract
    does not know."""
    name = name_of(command)
    if isinstance(reply, Exception) or name not in READERS:
        return reply
    found = READERS[name](reply, mapped)
    if isinstance(found, dict) and "entries" in found:
        found["entries"] = [tuple(entry) for entry in found["entries"]]
    return found
