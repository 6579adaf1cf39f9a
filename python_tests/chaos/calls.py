"""Calls as the rules see them: what was asked, for whom, and what came of it."""

import collections

BEATEN = ("renewed", "duplicate", "noted", "shortened")


def session_of(call):
    """(room, session, epoch) that a command of a session names; None for others."""
    if call["op"] in ("RENEW", "LEAVE", "SEND", "ACK", "REPLAY", "SNAPSHOT"):
        return call["room"], call["args"][0], call["args"][1]
    return None


def holder_of(call):
    """(room, user, device) of an OPEN."""
    return call["room"], call["args"][0], call["args"][2]


def opened_session(call):
    return call["args"][4]


class Act:
    """One thing a session was allowed or refused: a command of its own, or an item of MRENEW."""

    def __init__(self, call, session, verdict, seq=None):
        self.call, self.session, self.verdict, self.seq = call, session, verdict, seq
        self.sent, self.done = call["sent"], call["done"]

    @property
    def allowed(self):
        return self.verdict == "ok"

    def __str__(self):
        return f"{self.call['op']} by {self.call['who']} on {self.call['node']} at {self.sent:.0f}"


def acts(calls):
    """Everything sessions were allowed or refused, OPEN left out."""
    for call in calls:
        if call["op"] == "MRENEW" and "reply" in call:
            items = zip(*[iter(call["args"])] * 3)
            for (name, epoch, seq), (status, value) in zip(items, call["reply"]):
                verdict = "ok" if status in BEATEN else f"{status.upper()} {value}"
                yield Act(call, (call["room"], name, epoch), verdict, seq if status in BEATEN else None)
        elif (session := session_of(call)) and "lost" not in call:
            seq = call["args"][2] if call["op"] == "RENEW" and "reply" in call else None
            if call["op"] != "LEAVE":
                yield Act(call, session, call.get("error", "ok"), seq)


class Run:
    """A history, sorted for the rules."""

    def __init__(self, records):
        by_kind = collections.defaultdict(list)
        for record in records:
            by_kind[record["kind"]].append(record)
        self.calls = sorted((call for call in by_kind["call"] if "node" in call), key=lambda call: call["sent"])
        self.events, self.alarms = by_kind["event"], by_kind["alarm"]
        self.rooms = {}
        self.digests = {}
        for final in by_kind["final"]:
            self.rooms |= final.get("rooms", {})
            self.digests |= final.get("digests", {})
        self.users = {}  # of (room, session)
        for call in self.calls:
            if call["op"] == "OPEN":
                self.users[call["room"], opened_session(call)] = call["args"][0]
        self.acts = list(acts(self.calls))

    def replies(self, *ops):
        return [call for call in self.calls if call["op"] in ops and "reply" in call]

    def survived(self, kind):
        """(room, session, epoch) -> event, of one type, as the rooms' streams have them at the end."""
        return {(name, event["session"], event["epoch"]): event for name, room in self.rooms.items() for event in room["events"] if event["type"] == kind}
