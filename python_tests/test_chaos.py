"""The checker of `make chaos` can fail: a good history passes, and each of these bad ones breaks the rule it should and no other."""

from copy import deepcopy

import pytest

from chaos import report, rules
from chaos.line import Line

GEN, LATER = "1000-a", "5000-b"
JUMPED = 1 << 21


def call(op, args, *, at=1000, node="a", who="w", room="r", **fate):
    return {"kind": "call", "op": op, "args": args, "sent": at, "done": at + 10, "node": node, "who": who, "room": room} | fate


def opening(session, epoch, user="u", gen=GEN, **more):
    return call("OPEN", [user, "DEVICE", "d", "SESSION", session, "TTL", 5000], reply={"epoch": epoch, "ttl_ms": 5000, "gen": gen}, **more)


def renewal(session, epoch, seq, *options, status="renewed", **more):
    fate = {} if "error" in more else {"reply": [status, 5000, 0]}
    return call("RENEW", [session, epoch, seq, *options], **fate, **more)


def sending(id, seq, session="s1", epoch=1, **more):
    return call("SEND", [session, epoch, id, "x"], reply={"status": "accepted", "seq": seq}, **more)


def reader(op, *args, at, **more):
    """By a reader, with whichever of the two sessions is live."""
    return call(op, [*(["s1", 1] if at < 2000 else ["s2", 2]), *args], at=at, who="reader", **more)


def replay(after, seqs, gen=GEN, status="ok", oldest=1, current=3, reason=None, **more):
    entries = [[seq, "u", f"m{seq}"] for seq in seqs]
    told = {"status": status, "reason": reason, "gen": gen, "oldest": oldest, "next": after + len(seqs), "current": current, "entries": entries}
    return reader("REPLAY", gen, after, "COUNT", 10, reply=told, **more)


def event(n, kind, session, epoch, at, gen=GEN, **more):
    return {
        "id": f"{n}-0",
        "n": n,
        "type": kind,
        "session": session,
        "epoch": epoch,
        "user": "u",
        "device": "d",
        "gen": gen,
        "at": at,
        "seq": 9,
    } | more


def message(seq, gen=GEN, id=None):
    return [seq, {"id": id or f"m{seq}", "user": "u", "at": 1000 + seq, "gen": gen, "payload": "x"}]


def handed(event, who="consumer"):
    return {"kind": "event", "who": who, "room": "r", "id": event["id"], "n": event["n"], "gen": event["gen"], "at": event["at"]}


def line(at, node="b", known_until=0):
    return {"kind": "line", "at": at, "node": node, "known_until": known_until}


def history(calls=(), events=None, messages=None, leases=None, **more):
    """Two sessions of one holder, three messages, a reader and a follower; all well unless it is changed."""
    good = [
        opening("s1", 1, at=1000),
        renewal("s1", 1, 1, at=1200),
        sending("m1", 1, at=1300),
        sending("m2", 2, at=1320),
        sending("m3", 3, at=1340),
        reader("SNAPSHOT", at=1350, reply={"gen": GEN, "current": 1, "entries": [[1, "u", "m1"]]}),
        replay(1, [2, 3], at=1400),
        opening("s2", 2, at=2000),
    ]
    events = events or [event(1, "opened", "s1", 1, 1005), event(2, "removed", "s1", 1, 2005, reason="superseded"), event(3, "opened", "s2", 2, 2005)]
    room = {
        "events": events,
        "messages": messages or [message(1), message(2), message(3)],
        "cursors": {},
        "versions": {},
        "holds": [],
        "policy": {},
        "leases": leases or {"s2": {"epoch": 2, "state": "active", "seq": 0}},
    } | more
    final = {"kind": "final", "at": 99999, "concluded": True, "rooms": {"r": room}, "digests": {"a": {"a": "1", "b": "1"}}}
    return [line(0, "a"), {"kind": "world", "at": 0}, *good, *calls, *map(handed, events), final]


def broken(records):
    return {violation.split(":")[0] for violation in rules.check(records)}


def test_a_good_history():
    assert rules.check(history()) == []


REVOKED = call("REVOKE", ["v", "VERSION", 1], at=3000, reply=["ok", 0])
BOUND = call("OPEN", ["u", "DEVICE", "d", "SESSION", "s2", "TTL", 5000, "TOKEN", "t"], at=2100, error="TRYAGAIN")
FAILED = renewal("s2", 2, 0, "STATE", "failed", at=2500, status="shortened")
HELD = call("HOLD", ["export"], at=3000, reply=1)
# The room's key was evicted; its streams stayed.
GONE = {
    "events": [
        event(1, "opened", "s1", 1, 1005),
        event(2, "removed", "s1", 1, 2005),
        event(3, "opened", "s2", 2, 2005),
        {"id": "4-0", "n": 4, "type": "closed", "gen": GEN, "at": 3000, "active": 1},
    ],
    "leases": {"s2": {"epoch": 2, "state": "ended", "seq": 0}},
}
BAD = {
    "a server that died": ([{"kind": "alarm", "text": "a ended with -6"}], {}, "nothing_unexpected"),
    "an error nobody expects": ([call("OPEN", ["u", "DEVICE", "d", "SESSION", "s1", "TTL", 1], at=3000, error="LOGSTATE")], {}, "nothing_unexpected"),
    "an epoch again": (
        [opening("s3", 2, at=3000, user="v"), opening("s4", 2, at=4000, user="v")],
        {
            "events": [
                event(1, "opened", "s1", 1, 1005),
                event(2, "removed", "s1", 1, 2005),
                event(3, "opened", "s2", 2, 2005),
                event(4, "opened", "s3", 2, 3005, user="v"),
                event(5, "removed", "s3", 2, 4004, user="v"),
                event(6, "opened", "s4", 2, 4005, user="v"),
            ],
            "leases": {"s2": {"epoch": 2, "state": "active", "seq": 0}, "s4": {"epoch": 2, "state": "active", "seq": 0}},
        },
        {"epochs_rise", "one_ending_a_lease"},
    ),
    "an epoch again, of one that was lost": (
        [opening("s3", 9, at=2200), line(2300), opening("s4", 8, at=2400, node="b")],
        {
            "events": [
                event(1, "opened", "s1", 1, 1005),
                event(2, "removed", "s1", 1, 2005),
                event(3, "opened", "s2", 2, 2005),
                event(JUMPED, "removed", "s2", 2, 2404, LATER),
                event(JUMPED + 1, "opened", "s4", 8, 2404, LATER),
            ],
            "leases": {"s4": {"epoch": 8, "state": "active", "seq": 0}},
        },
        "epochs_rise",
    ),
    "a session that is gone": ([opening("s3", 9, at=3000, user="v")], {}, "acknowledged_is_kept"),
    "a heartbeat that is gone": ([renewal("s1", 1, 10, at=1500)], {}, "acknowledged_is_kept"),
    "a message that is gone": ([sending("m4", 4, at=1500)], {}, "acknowledged_is_kept"),
    "a second number for a message": ([sending("m2", 3, at=1500)], {}, {"acknowledged_is_kept", "one_answer_a_message"}),
    "the number of another message": ([sending("m9", 3, at=1500)], {}, {"acknowledged_is_kept", "one_answer_a_message"}),
    "a message known to the new primary that is gone": ([sending("m4", 4, at=1500), line(1600, known_until=1550)], {}, "acknowledged_is_kept"),
    "a departure that is gone": ([call("LEAVE", ["s2", 2], at=3000, reply="left")], {}, "acknowledged_is_kept"),
    "a cursor that went back": ([call("MARK", ["u", "d", "QUEUED", 3], at=3000, reply=3)], {"cursors": {"u d queued": 2}}, "acknowledged_is_kept"),
    "a revocation that is gone": ([call("REVOKE", ["v", "VERSION", 7], at=3000, reply=["ok", 0])], {"versions": {"v": 6}}, "acknowledged_is_kept"),
    "a second removal": (
        [],
        {
            "events": [
                event(1, "opened", "s1", 1, 1005),
                event(2, "removed", "s1", 1, 2005),
                event(3, "opened", "s2", 2, 2005),
                event(4, "removed", "s1", 1, 9000),
            ]
        },
        "one_ending_a_lease",
    ),
    "no removal": ([], {"leases": {"nobody": {"epoch": 5, "state": "active", "seq": 0}}}, "one_ending_a_lease"),
    "a jump within a gen": (
        [],
        {"events": [event(1, "opened", "s1", 1, 1005), event(2, "removed", "s1", 1, 2005), event(4, "opened", "s2", 2, 2005)]},
        "one_ending_a_lease",
    ),
    "a gen without a jump": (
        [],
        {"events": [event(1, "opened", "s1", 1, 1005), event(2, "removed", "s1", 1, 2005, LATER), event(3, "opened", "s2", 2, 2005, LATER)]},
        {"one_ending_a_lease", "gens_begin_with_a_line"},
    ),
    "a history nobody began": (
        [],
        {"events": [event(1, "opened", "s1", 1, 1005), event(2, "removed", "s1", 1, 2005), event(JUMPED, "opened", "s2", 2, 2005, LATER)]},
        "gens_begin_with_a_line",
    ),
    "a message twice": (
        [],
        {"messages": [message(1), message(2), message(3), message(4, id="m1")]},
        {"one_seq_a_message", "acknowledged_is_kept", "readers_miss_nothing"},
    ),
    "a hole in the log": ([], {"messages": [message(1), message(3)]}, {"one_seq_a_message", "acknowledged_is_kept", "readers_miss_nothing"}),
    "a heartbeat of a removed session": ([renewal("s1", 1, 2, at=2500)], {}, "ended_stays_ended"),
    "a session that was told it is over": (
        [renewal("s2", 2, 1, at=2500, error="STALE left"), sending("m3", 3, "s2", 2, at=2700)],
        {},
        "ended_stays_ended",
    ),
    "a session that came back by itself": ([renewal("s2", 2, 1, at=8000, error="STALE expired"), replay(3, [], at=8500)], {}, "ended_stays_ended"),
    "an item of a batch of a removed session": (
        [call("MRENEW", ["s2", 2, 0, "s1", 1, 3], at=2500, reply=[["renewed", 5000], ["duplicate", 5000]])],
        {},
        "ended_stays_ended",
    ),
    "expired before its time": ([renewal("s2", 2, 1, at=6000, error="STALE expired")], {}, "nobody_expires_early"),
    "a revoked user let in": (
        [REVOKED, call("POST", ["v", "m3", "x"], at=3100, reply={"seq": 3})],
        {"versions": {"v": 1}},
        {"revoked_stay_out", "acknowledged_is_kept", "one_answer_a_message"},
    ),
    "a revoked user let in, though the new primary knows": (
        [REVOKED, line(3100, known_until=3050), opening("s3", 1, user="v", at=3200, node="b")],
        {"versions": {"v": 1}},
        {"revoked_stay_out", "acknowledged_is_kept"},
    ),
    "a page with a hole": ([replay(3, [5], at=3000)], {}, "readers_miss_nothing"),
    "a reader who was not told of a loss": (
        [line(1500), replay(3, [4], gen=LATER, at=1600, node="b")],
        {"messages": [message(1), message(2), message(3, LATER, "other"), message(4, LATER)]},
        "readers_miss_nothing",
    ),
    "a session used without its token": ([BOUND, renewal("s2", 2, 0, at=2200)], {}, "tokens_are_asked_for"),
    "a session ended with another token": (
        [BOUND, call("LEAVE", ["s2", 2, "TOKEN", "x"], at=2200, reply="left")],
        {},
        {"tokens_are_asked_for", "acknowledged_is_kept"},
    ),
    "a token of a batch that was not compared": (
        [BOUND, call("MRENEW", ["TOKENS", "s2", 2, 0, ""], at=2200, reply=[["renewed", 5000]])],
        {},
        "tokens_are_asked_for",
    ),
    "the right token refused": ([BOUND, renewal("s2", 2, 1, "TOKEN", "t", at=2200, error="DENIED token")], {}, "tokens_are_asked_for"),
    "a lingering session let in": (
        [call("LEAVE", ["s2", 2, "LINGER", 500], at=2100, reply="lingering"), renewal("s2", 2, 0, at=2300)],
        {},
        {"ended_stays_ended", "acknowledged_is_kept"},
    ),
    "a closed connection that stays": ([renewal("s2", 2, 0, "STATE", "closed", at=2100, status="ended")], {}, "acknowledged_is_kept"),
    "expired before its span": ([FAILED, renewal("s2", 2, 1, at=3300, error="STALE expired")], {}, "nobody_expires_early"),
    "a hold that is gone": ([HELD], {}, "settings_are_kept"),
    "a hold that came back": ([call("UNHOLD", ["export"], at=2900, reply=1)], {"holds": ["export"]}, "settings_are_kept"),
    "a setting that is gone": ([call("SETPOLICY", ["retain-count", 9], at=3000, reply="OK")], {"policy": {"retain-count": 10}}, "settings_are_kept"),
    "a held log trimmed": ([HELD, call("TRIM", [], at=3100, reply=1)], {"holds": ["export"]}, "holds_hold"),
    "a held log that others see trimmed": ([HELD, replay(3, [], at=3100), replay(3, [], oldest=2, at=3200)], {"holds": ["export"]}, "holds_hold"),
    "a room that went without a word": ([], {"leases": {"s3": {"epoch": 1, "state": "active", "seq": 0}}}, "one_ending_a_lease"),
    "a session that outlived its room": ([renewal("s2", 2, 0, at=4000)], GONE | {"holds": ["orphan"]}, "ended_stays_ended"),
    "an orphan nobody holds": ([], GONE, "orphans_are_held"),
    "a reader sent away for nothing": ([replay(2, [], status="resync", reason="trimmed", at=3000)], {}, "resyncs_have_a_reason"),
    "a reader told of a history nobody began": ([replay(3, [], status="resync", reason="diverged", at=3000)], {}, "resyncs_have_a_reason"),
    "a log that goes back to where none was to be kept": ([], {"messages": [message(3)]}, "one_seq_a_message"),
    "a reader who is behind at the end": (
        [sending("m4", 4, at=1500)],
        {"messages": [message(1), message(2), message(3), message(4)]},
        "readers_miss_nothing",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history(name):
    calls, changes, rule = BAD[name]
    records = history(sorted(calls, key=lambda record: record.get("at", record.get("sent", 0))), **changes)
    assert broken(records) == ({rule} if isinstance(rule, str) else rule)


def test_what_a_report_shortens():
    """A span after it said so a session may be gone, if it was not heard meanwhile."""
    gone = renewal("s2", 2, 1, at=3600, error="STALE expired")
    assert rules.check(history([FAILED, gone])) == []
    assert broken(history([FAILED, renewal("s2", 2, 0, at=2900), gone])) == {"nobody_expires_early"}


def short(records):
    """The same history in the room that keeps few messages."""
    for record in records:
        if record.get("room") == "r":
            record["room"] = "short"
        if record["kind"] == "final":
            record["rooms"] = {"short": record["rooms"]["r"]}
    return records


TOLD = [
    replay(3, [], status="resync", reason="trimmed", oldest=5, current=12, at=3000),
    reader("SNAPSHOT", at=3100, reply={"gen": GEN, "oldest": 5, "current": 12, "entries": [[12, "u", "m12"]]}),
]
KEPT = {"messages": [message(seq) for seq in range(5, 13)]}


def test_a_trimmed_log():
    assert rules.check(short(history(deepcopy(TOLD), **KEPT))) == []


@pytest.mark.parametrize(
    "calls, changes, rule",
    [
        ([sending("m2", 4, at=1500), *TOLD], KEPT, "one_answer_a_message"),
        ([sending("m9", 3, at=1500), *TOLD], KEPT, {"one_answer_a_message", "readers_miss_nothing"}),
        (TOLD, {"messages": KEPT["messages"][1:]}, "one_seq_a_message"),
        ([], KEPT, "readers_miss_nothing"),
        (TOLD[:1], KEPT, "readers_miss_nothing"),
    ],
)
def test_a_bad_history_of_a_trimmed_log(calls, changes, rule):
    assert broken(short(history(deepcopy(calls), **changes))) == ({rule} if isinstance(rule, str) else rule)


@pytest.mark.parametrize("newest, fewer, broken_rules", [(5, 7, set()), (4, 7, {"one_seq_a_message"}), (5, 6, {"one_seq_a_message"})])
def test_an_evicted_log(newest, fewer, broken_rules):
    """Less may be there than was to be kept, but nothing of what came after."""
    records = short(history(deepcopy(TOLD), messages=KEPT["messages"][-fewer:]))
    records.insert(-1, {"kind": "cut", "room": "short", "since": 2900, "at": 2950, "newest": newest})
    assert broken(records) == broken_rules


def test_a_held_log_is_evicted():
    trimmed = [call("HOLD", ["export"], at=2500, reply=1), *(replay(3, [], oldest=oldest, at=at) for oldest, at in ((1, 2800), (2, 3000)))]
    records = short(history(trimmed, holds=["export"]))
    assert broken(records) == {"holds_hold"}
    records.insert(-1, {"kind": "cut", "room": "short", "since": 2900, "at": 2950, "newest": 1})
    assert broken(records) == set()


def two_worlds(*calls):
    """Everything was evicted at 10000, and nothing began after."""
    first = history()
    first[-1] |= {"at": 9000, "concluded": False}
    return [*first, {"kind": "world", "at": 10000}, *calls, {"kind": "final", "at": 99999, "concluded": True, "rooms": {}, "digests": {}}]


def test_another_world():
    assert rules.check(two_worlds(renewal("s2", 2, 0, at=11000, error="STALE unknown"))) == []
    assert broken(two_worlds(renewal("s2", 2, 0, at=11000))) == {"nobody_is_remembered"}
    anew, allowed = opening("s2", 2, gen=LATER, at=11100), renewal("s2", 2, 0, at=11300)
    for unknown_at, breaks in (11000, False), (11200, True):
        unknown = renewal("s2", 2, 0, at=unknown_at, error="STALE unknown")
        assert ("ended_stays_ended" in broken(two_worlds(unknown, anew, allowed))) == breaks


def test_digests_that_differ():
    records = history()
    records[-1]["digests"]["a"]["b"] = "2"
    assert broken(records) == {"nodes_agree"}


def test_an_event_that_was_not_handed_out():
    records = [record for record in history() if record.get("kind") != "event" or record["n"] != 2]
    assert broken(records) == {"consumers_get_all_events"}


def test_the_last_event_was_not_handed_out():
    records = history()
    listened = [handed(event, "listener") for event in records[-1]["rooms"]["r"]["events"][:2]]
    assert broken(records + listened) == {"listeners_are_told_of_gaps"}


def test_a_lost_event_without_a_jump():
    """The listener had event 1 from a lost primary; its successor goes on with 2 in the same gen."""
    records = history(events=[event(2, "opened", "s1", 1, 1005), event(3, "removed", "s1", 1, 2005), event(4, "opened", "s2", 2, 2005)])
    listened = [handed(one, "listener") for one in (event(1, "opened", "x", 1, 1000), *records[-1]["rooms"]["r"]["events"])]
    assert broken(records + listened) == {"listeners_are_told_of_gaps"}


@pytest.mark.parametrize("known_until", [0, 1400])
def test_what_may_be_lost_is_forgiven(known_until):
    """A message, a revocation and a session that a dead primary had not replicated; whoever had read them was told."""
    lost = [sending("m9", 4, at=1500), call("REVOKE", ["v", "VERSION", 1], at=1510, reply=["ok", 0]), opening("s9", 3, at=1520, user="v")]
    after = [
        line(1600, known_until=known_until),
        call("POST", ["v", "m4", "x"], at=2100, node="b", reply={"seq": 4}),
        replay(3, [], status="resync", reason="diverged", current=4, at=2200, node="b"),
        reader("SNAPSHOT", at=2300, node="b", reply={"gen": LATER, "current": 4, "entries": [[4, "v", "m4"]]}),
    ]
    posted = [4, {"id": "m4", "user": "v", "at": 2105, "gen": LATER, "payload": "x"}]
    before = [record for record in history(lost + after, messages=[message(1), message(2), message(3), posted])]
    opened_later = next(record for record in before if record["kind"] == "call" and record["args"][4:5] == ["s2"])
    opened_later["node"] = "b"
    assert rules.check(before) == []


def test_a_deposed_node_counts_for_nothing():
    judge = Line([line(0, "a"), line(2000, "b", known_until=1500)])
    assert judge.on(call("ACK", [], at=1000)) and not judge.on(call("ACK", [], at=2100)) and not judge.on(call("ACK", [], at=1995))
    assert judge.on(call("ACK", [], at=2100, node="b"))
    assert not judge.may_be_lost(call("ACK", [], at=1000)) and judge.may_be_lost(call("ACK", [], at=1600))
    assert not judge.may_be_lost(call("ACK", [], at=1600), by=1900)


def test_availability():
    beats = [renewal("p", 1, number, at=number * 100, who="probe-a") for number in range(1, 31)]
    for beat in beats[9:15]:
        del beat["reply"]
    fault = [{"kind": "fault", "name": "kill", "phase": phase, "at": at} for phase, at in (("begin", 950), ("end", 1750))]
    rows = {line.split()[0]: line.split() for line in report.availability([*beats, *fault])}
    assert rows["kill"] == ["kill", "1", "10", "40.00", "%", "660", "660"]
