"""A room's event stream: its name, its entries, and the ledger that tells which leases they leave active."""

import re

from .conform import is_literal, is_number, names_of, reader
from .contract import AnyEvent

NUMBERS = names_of(AnyEvent, is_number)
TEXTS = names_of(AnyEvent, lambda kind: is_literal(kind, str)) | {"gen"}
read_event = reader(AnyEvent)
DIGITS = re.compile(rb"0|[1-9]\d*")


def stream(room, name="events"):
    """The stream of a room, as bytes: it shares the room's slot."""
    room = room.encode() if isinstance(room, str) else room
    tagged = re.search(rb"\{([^}]*)\}", room, re.S)
    return (room if tagged and tagged[1] else b"{" + room + b"}") + b":" + name.encode()


def read(connection, room):
    """All entries, oldest first, as dicts: `id`, numbers as int, words as text, ids and meta as bytes."""
    return [entry(*one) for one in connection("XRANGE", stream(room), "-", "+")]


def newest(connection, room, count):
    """The last `count` entries, oldest first."""
    return [entry(*one) for one in reversed(connection("XREVRANGE", stream(room), "+", "-", "COUNT", count))]


def entry(id, fields):
    found = read_event(numbered(fields, NUMBERS), mapped=False)
    return {"id": id.decode()} | {name: value.decode() if name in TEXTS else value for name, value in found.items()}


def numbered(fields, names):
    """The fields of a stream entry, with those of these names as int."""
    return [
        part
        for name, value in zip(fields[::2], fields[1::2], strict=True)
        for part in (name, int(value) if name.decode() in names and DIGITS.fullmatch(value) else value)
    ]


def gen_order(gen):
    return int(gen.split("-")[0])


class Ledger:
    """Walks the events of one room and holds every lease to one ending. `leases`: (session, epoch) -> (user, gen) of those without one."""

    def __init__(self, entries, jumps_allowed):
        self.leases, self.user_leases, self.jumps_allowed = {}, {}, jumps_allowed
        self.seen, self.before, self.at = set(), None, 0
        # A stream that was trimmed cannot account for what came before its first entry.
        self.whole = not entries or entries[0]["n"] == 1
        for event in entries:
            self.numbered(event)
            getattr(self, event["type"].replace("-", "_"), lambda _: None)(event)
            if "user_leases" in event:
                self.user_leases[event["user"]] = event["user_leases"]
            self.before = event

    def numbered(self, event):
        assert event["id"] == f"{event['n']}-0", event
        at, self.at = self.at, event.get("at", self.at)  # some go without where the policy's precision withholds it
        assert self.at >= at, f"the time of {event['id']} lies before that of the event ahead of it"
        if self.before is None:
            return
        step = event["n"] - self.before["n"]
        jumped = event["gen"] != self.before["gen"] or self.jumps_allowed
        assert step == 1 or step > 1 and jumped, f"n went from {self.before['n']} to {event['n']} within gen {event['gen']}"

    def opened(self, event):
        lease = (event["session"], event["epoch"])
        assert lease not in self.seen, f"{lease} opened twice"
        self.seen.add(lease)
        self.leases[lease] = (event["user"], event["gen"])

    def removed(self, event):
        lease = (event["session"], event["epoch"])
        assert lease in self.leases or not self.whole, f"{lease} removed by {event['id']}, but it was not active"
        self.leases.pop(lease, None)

    def closed(self, event):
        """Ends what was opened up to its gen; on Redis 7.0 it may come after the next room's first events."""
        ended = [lease for lease, (_, gen) in self.leases.items() if gen_order(gen) <= gen_order(event["gen"])]
        assert len(ended) == event["active"] or not self.whole, f"closed tells {event['active']} active, the events {len(ended)}"
        for lease in ended:
            del self.leases[lease]
