"""The ledger of events and the check of the log, on which every other test relies, must be able to fail."""

import pytest

from harness.events import Ledger, stream
from harness.messages import in_order, message


def event(n, kind, session=b"a", epoch=1, gen="5-1", **more):
    return {"id": f"{n}-0", "n": n, "type": kind, "gen": gen, "session": session, "user": b"u1", "epoch": epoch, "at": 1000 + n} | more


OPENED, REMOVED = event(1, "opened"), event(2, "removed", reason="left")


def closed(n, active, gen="5-1"):
    return {"id": f"{n}-0", "n": n, "type": "closed", "gen": gen, "active": active, "at": 1000 + n}


@pytest.mark.parametrize(
    "events, live",
    [
        ([], []),
        ([OPENED], [(b"a", 1)]),
        ([OPENED, REMOVED], []),
        ([OPENED, closed(2, 1)], []),
        ([OPENED, event(2, "opened", b"b", gen="6-0"), closed(3, 1)], [(b"b", 1)]),  # as Redis 7.0 may order them
        ([OPENED, event(1 << 20, "opened", b"b", 2, gen="6-0")], [(b"a", 1), (b"b", 2)]),
        ([event(7, "removed"), event(8, "opened", b"b")], [(b"b", 1)]),  # trimmed
    ],
)
def test_ledger_accepts(events, live):
    assert list(Ledger(events, jumps_allowed=False).leases) == live


@pytest.mark.parametrize(
    "events",
    [
        [event(1, "removed")],
        [OPENED, REMOVED, event(3, "removed")],
        [OPENED, event(2, "opened")],
        [OPENED, event(2, "removed", epoch=2)],
        [OPENED, event(3, "removed")],
        [OPENED, event(1, "removed")],
        [OPENED, REMOVED | {"id": "2-1"}],
        [OPENED, REMOVED | {"at": 0}],
        [OPENED, closed(2, 2)],
        [OPENED, event(2, "opened", b"b", gen="6-0"), closed(3, 2)],
    ],
    ids=[
        "never opened",
        "removed twice",
        "opened twice",
        "another epoch",
        "n jumps",
        "n stands",
        "another id",
        "back in time",
        "closed too many",
        "closed a later gen",
    ],
)
def test_ledger_refuses(events):
    with pytest.raises(AssertionError):
        Ledger(events, jumps_allowed=False)


@pytest.mark.parametrize(
    "room, name", [("r", b"{r}:events"), ("a{t}b", b"a{t}b:events"), ("a{}b", b"{a{}b}:events"), ("a}b", b"{a}b}:events"), ("a{b", b"{a{b}:events")]
)
def test_stream_name(room, name):
    assert stream(room) == name


def said(seq, id=None, at=1, gen=b"5-1", **more):
    return seq, {"id": id or b"m%d" % seq, "user": b"u1", "at": at, "gen": gen, "payload": b""} | more


SENT = {"device": b"d", "session": b"a", "epoch": 1}


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [said(7)],
        [said(7), said(8, **SENT)],
        [said(1), said(2, at=1), said(3, at=9, gen=b"5-1")],
        [said(1), said(2, gen=b"6-0")],
        [said(1, b"m"), said(2, b"m", user=b"u2")],
    ],
)
def test_log_accepts(entries):
    in_order(entries)


@pytest.mark.parametrize(
    "entries",
    [
        [said(1), said(3)],
        [said(1), said(1, b"x")],
        [said(2), said(1)],
        [said(1, b"m"), said(2, b"m")],
        [said(1, at=2), said(2, at=1)],
        [said(1, gen=b"6-0"), said(2)],
    ],
    ids=["a hole", "a number twice", "descending", "one id twice", "back in time", "an older gen"],
)
def test_log_refuses(entries):
    with pytest.raises(AssertionError):
        in_order(entries)


POSTED = {b"id": b"m1", b"user": b"u1", b"at": b"1", b"gen": b"5-00000001", b"payload": b""}


def test_log_entries_accepted():
    for sender in {}, {b"device": b"d", b"session": b"a", b"epoch": b"1"}:
        assert message(b"7-0", flat(POSTED | sender)) == (
            7,
            {name.decode(): value for name, value in (POSTED | sender).items()} | {"at": 1} | ({"epoch": 1} if sender else {}),
        )


@pytest.mark.parametrize(
    "id, fields",
    [(b"1-1", POSTED), (b"1-0", POSTED | {b"at": b"01"}), (b"1-0", POSTED | {b"device": b"d"}), (b"1-0", POSTED | {b"other": b"x"}), (b"1-0", {})],
    ids=["no number", "no time", "half a sender", "a field too many", "nothing"],
)
def test_log_entries_refused(id, fields):
    with pytest.raises(AssertionError):
        message(id, flat(fields))


def flat(fields):
    return [part for pair in fields.items() for part in pair]
