"""Calls as the rules see them: what was asked, for whom, and what came of it."""

import collections

from harness.events import gen_order

from .line import Line

# The servers read the clock once a command, and take small steps of the wall clock not over.
CLOCK_MS = 100
OF_A_SESSION = ("RENEW", "LEAVE", "SEND", "ACK", "REPLAY", "SNAPSHOT")
BEATEN = ("renewed", "duplicate", "noted", "shortened")
OVER = ("left", "lingering", "ended")


def holder_of(call):
    """(room, user, device) of an OPEN."""
    return call["room"], call["args"][0], call["args"][2]


def opened_session(call):
    return call["args"][4]


def option(call, name):
    """What follows the option's name; None without it."""
    args = call["args"]
    return args[args.index(name) + 1] if name in args else None


class Act:
    """One thing a session was allowed or refused: a command of its own, or an item of MRENEW. `verdict`: ok, how it ended, or the refusal."""

    def __init__(self, call, session, verdict, token):
        self.call, self.session, self.verdict, self.token = call, session, verdict, token
        self.sent, self.done = call["sent"], call["done"]

    @property
    def allowed(self):
        return self.verdict == "ok" or self.verdict in BEATEN

    def __str__(self):
        return f"{self.call['op']} by {self.call['who']} on {self.call['node']} at {self.sent:.0f}"


def acts(calls):
    """Everything sessions were allowed or refused, OPEN left out."""
    for call in calls:
        if call["op"] == "MRENEW" and "reply" in call:
            words = iter(call["args"])
            tokens = call["args"][0] == "TOKENS" and next(words)
            for status, value in call["reply"]:
                name, epoch, _, token = next(words), next(words), next(words), tokens and next(words) or None
                yield Act(call, (call["room"], name, epoch), status if status in BEATEN else f"{status.upper()} {value}", token)
        elif call["op"] in OF_A_SESSION and "lost" not in call:
            session, token = (call["room"], *call["args"][:2]), option(call, "TOKEN")
            said = {"RENEW": lambda reply: reply[0], "LEAVE": lambda reply: reply}.get(call["op"], lambda _: "ok")
            yield Act(call, session, call["error"] if "error" in call else said(call["reply"]), token)


def worlds(records):
    """The history as runs: whenever everything was evicted, another one begins, of which the former knows nothing."""
    begins = [place for place, record in enumerate(records) if record["kind"] == "world"]
    former = None
    for begin, end in zip(begins, [*begins[1:], len(records)]):
        former = Run(records, begin, end, former)
        yield former


class Run:
    """One world of a history, sorted for the rules."""

    def __init__(self, records, begin, end, former):
        by_kind = collections.defaultdict(list)
        for record in records[begin:end]:
            by_kind[record["kind"]].append(record)
        self.former, self.line, self.events, self.alarms, self.cuts = former, Line(records), by_kind["event"], by_kind["alarm"], by_kind["cut"]
        final = by_kind["final"][-1] if by_kind["final"] else {}
        self.rooms, self.digests = final.get("rooms", {}), final.get("digests", {})
        # Whether all had come to rest, and whether somebody read the events up to there.
        self.concluded = final.get("concluded", False)
        self.followed = self.concluded and bool(self.events)
        calls = sorted((record for record in records if record["kind"] == "call" and "node" in record), key=lambda call: call["sent"])
        # What spans two worlds says nothing of either.
        self.calls = [call for call in calls if records[begin]["at"] <= call["sent"] and call["done"] <= final.get("at", float("inf"))]
        self.users, self.tokens = {}, {}  # of (room, session)
        for call in calls:
            if call["op"] == "OPEN":
                session = call["room"], opened_session(call)
                self.users[session], self.tokens[session] = call["args"][0], option(call, "TOKEN")
        self.acts = list(acts(self.calls))
        self.closed = {name: [event for event in room["events"] if event["type"] == "closed"] for name, room in self.rooms.items()}

    def replies(self, *ops):
        return [call for call in self.calls if call["op"] in ops and "reply" in call]

    def survived(self, kind):
        """(room, session, epoch) -> event, of one type, as the rooms' streams have them at the end."""
        return {
            (name, event["session"], event["epoch"]): event for name, room in self.rooms.items() for event in room["events"] if event["type"] == kind
        }

    def life(self, room, gen):
        """How often the room's key had gone before this gen began."""
        return sum(gen_order(event["gen"]) < gen_order(gen) for event in self.closed.get(room, []))

    def forgotten(self, call, by=float("inf")):
        """Whether the room's key may have gone since this was acknowledged, and all that only the room knew with it."""
        return any(call["sent"] <= event["at"] + CLOCK_MS and event["at"] <= by + CLOCK_MS for event in self.closed.get(call["room"], []))

    def oldest(self, room):
        """The first message that is there at the end, or would be."""
        return self.rooms[room]["messages"][0][0] if self.rooms[room]["messages"] else self.cut_until(room) + 1

    def cut_until(self, room):
        return max((cut["newest"] for cut in self.cuts if cut["room"] == room), default=0)

    def was_cut(self, room, since, until):
        return any(cut["room"] == room and since <= cut["at"] and cut["since"] <= until for cut in self.cuts)

    def acknowledged_messages(self, room):
        """seq and (user, id) of those that cannot be lost."""
        for call in self.replies("SEND", "POST"):
            if call["room"] == room and not self.line.may_be_lost(call):
                yield call["reply"]["seq"], message_of(call, self)


def message_of(call, run):
    """(user, message id) of a SEND or POST."""
    name, *rest = call["args"]
    return (name, rest[0]) if call["op"] == "POST" else (run.users.get((call["room"], name)), rest[1])
