"""A room's message log: its entries, and what holds for all of them."""

from .conform import is_number, names_of, reader
from .contract import Message
from .events import gen_order, numbered, stream

NUMBERS = names_of(Message, is_number)
read_message = reader(Message)


def read(connection, room):
    """All messages, oldest first: (seq, dict), `epoch` and `at` as int, all else as bytes."""
    return [message(*entry) for entry in connection("XRANGE", stream(room, "log"), "-", "+")]


def message(id, fields):
    seq, part = id.decode().split("-")
    assert part == "0", f"message {id} is no number"
    return int(seq), read_message(numbered(fields, NUMBERS), mapped=False)


def in_order(entries):
    """No number is missing or there twice, none goes to the same message twice, no time and no gen goes back."""
    ids = [(found["user"], found["id"]) for _, found in entries]
    assert len(set(ids)) == len(ids), f"two numbers for one of {sorted(one for one in ids if ids.count(one) > 1)}"
    for (before, former), (seq, found) in zip(entries, entries[1:]):
        assert seq == before + 1, f"the log goes from {before} to {seq}"
        assert found["at"] >= former["at"], f"the time of message {seq} lies before that of the one ahead of it"
        assert gen_order(found["gen"].decode()) >= gen_order(former["gen"].decode()), (
            f"the gen of message {seq} is older than that of the one ahead of it"
        )
