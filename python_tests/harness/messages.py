"""A room's message log: its entries, and what holds for all of them."""

import re

from .events import gen_order, stream

NUMBERS = {"epoch", "at"}
POSTED = {"id", "user", "at", "gen", "payload"}
SENT = POSTED | {"device", "session", "epoch"}


def read(connection, room):
    """All messages, oldest first: (seq, dict), `epoch` and `at` as int, all else as bytes."""
    return [message(*entry) for entry in connection("XRANGE", stream(room, "log"), "-", "+")]


def message(id, fields):
    seq, part = id.decode().split("-")
    assert part == "0", f"message {id} is no number"
    names = [name.decode() for name in fields[::2]]
    assert len(set(names)) == len(names), f"a field twice in message {id}"
    found = dict(zip(names, fields[1::2], strict=True))
    for name in NUMBERS & found.keys():
        assert re.fullmatch(rb"0|[1-9]\d*", found[name]), f"{name} of message {id} is {found[name]}"
        found[name] = int(found[name])
    return int(seq), found


def in_order(entries):
    """No number is missing or there twice, none goes to the same message twice, no time and no gen goes back."""
    ids = [(found["user"], found["id"]) for _, found in entries]
    assert len(set(ids)) == len(ids), f"two numbers for one of {sorted(one for one in ids if ids.count(one) > 1)}"
    for seq, found in entries:
        assert found.keys() in (SENT, POSTED), f"message {seq} has {sorted(found)}"
    for (before, former), (seq, found) in zip(entries, entries[1:]):
        assert seq == before + 1, f"the log goes from {before} to {seq}"
        assert found["at"] >= former["at"], f"the time of message {seq} lies before that of the one ahead of it"
        assert gen_order(found["gen"].decode()) >= gen_order(former["gen"].decode()), f"the gen of message {seq} is older than that of the one ahead of it"
