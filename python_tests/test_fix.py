"""FIX: worked fixtures, exact to the millisecond."""

import pytest

NINE = 1894006800000  # 2030-01-07T09:00:00Z


def test_fix_01_a_lease_from_nine_to_43_seconds_past(client):
    """FIX-1 A lease from 09:00:00 to 09:00:43."""
    assert client("LEASE.CLOCK", "SET", NINE) == NINE
    opened = client("LEASE.OPEN class u1 SESSION a TTL 30000")
    gen = opened.pop("gen")
    assert opened == {
        "session": b"a",
        "epoch": 1,
        "user_leases": 1,
        "ttl_ms": 30000,
        "heartbeat_ms": 10000,
        "left_ms": 30000,
        "expires_at": NINE + 30000,
        "now": NINE,
        "replaced": None,
        "log_seq": 0,
        "log_oldest": 0,
        "event_n": 1,
        "acked": 0,
    }

    client.advance(10000)
    assert client("LEASE.RENEW class a 1 1") == [b"renewed", 30000, NINE + 40000]
    assert client("LEASE.RENEW class a 1 1") == [b"duplicate", 30000, NINE + 40000]

    client.advance(31000)
    assert client.events("class")[1] == {
        "id": "2-0",
        "v": 1,
        "type": "removed",
        "room": b"class",
        "n": 2,
        "gen": gen.decode(),
        "log_seq": 0,
        "session": b"a",
        "user": b"u1",
        "device": b"default",
        "epoch": 1,
        "seq": 1,
        "user_leases": 0,
        "at": NINE + 41000,
        "reason": "expired",
        "due": NINE + 40000,
        "lag_ms": 1000,
    }
    assert client("LEASE.COUNT class") == [0, 0]
    ended = client("LEASE.GET class a")
    assert (ended["reason"], ended["ended_at"]) == (b"expired", NINE + 40000)

    client.advance(1000)
    with client.nothing_changes():
        assert client.refusal("LEASE.RENEW class a 1 2") == "STALE expired"

    client.advance(1000)
    opened = client("LEASE.OPEN class u1 SESSION b TTL 30000")
    assert (opened["epoch"], opened["replaced"], opened["expires_at"], opened["gen"]) == (2, None, NINE + 73000, gen)

    with client.nothing_changes():  # the queued removal of epoch 1
        assert client("LEASE.LEAVE class a 1") == b"gone"
        assert client("LEASE.REAP class") == 0
    assert client("LEASE.GET class b")["expires_at"] == NINE + 73000
    assert client.history("class") == [("opened", b"a", 1), ("removed", b"a", 1, "expired"), ("opened", b"b", 2)]
    assert [(event["n"], event["id"]) for event in client.events("class")] == [(1, "1-0"), (2, "2-0"), (3, "3-0")]


def at(client, ms, held, *commands):
    """The replies to commands sent once `ms` have passed, before the reaper could run or after."""
    if held:
        return client.held(ms, *commands)
    client.advance(ms)
    return client.pipeline(*commands)


HEARTBEAT = ("LEASE.RENEW r a 1 1", "LEASE.COUNT r", "LEASE.ROSTER r", "LEASE.GET r a")


@pytest.mark.parametrize("held", (True, False), ids=("held", "reaped"))
def test_fix_02_heartbeat_at_29_seconds(client, held):
    """FIX-2 Heartbeat at 29, 30 and 31 seconds: step 1, in time."""
    start = client("LEASE.OPEN r u1 SESSION a TTL 30000")["now"]
    renewed, count, roster, lease = at(client, 29000, held, *HEARTBEAT)
    assert renewed == [b"renewed", 30000, start + 59000]
    assert count == [1, 1]
    assert [lease["session"] for lease in roster["leases"]] == [b"a"]
    assert (lease["state"], lease["expires_at"], lease["seq"]) == (b"active", start + 59000, 1)
    assert client.history("r") == [("opened", b"a", 1)]


@pytest.mark.parametrize("held", (True, False), ids=("held", "reaped"))
@pytest.mark.parametrize("ms", (30000, 31000))
def test_fix_02_heartbeat_too_late(client, ms, held):
    """FIX-2 Heartbeat at 29, 30 and 31 seconds: step 1, too late, and step 2, the reconnect."""
    start = client("LEASE.OPEN r u1 SESSION a TTL 30000")["now"]
    refused, count, roster, lease = at(client, ms, held, *HEARTBEAT)
    assert refused.head == "STALE expired"
    assert count == [0, 0]
    assert roster["leases"] == []
    assert (lease["state"], lease["reason"], lease["ended_at"], lease["left_ms"]) == (b"ended", b"expired", start + 30000, 0)
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "expired")]

    assert client("LEASE.OPEN r u1 SESSION b TTL 30000")["epoch"] == 2
    with client.nothing_changes():  # the old tab
        assert client.refusal("LEASE.RENEW r a 1 2") == "STALE expired"
        assert client.refusal("LEASE.RENEW r a 2 2") == "STALE unknown"
        assert client.refusal("LEASE.RENEW r b 1 2") == "STALE superseded 2"
    assert client("LEASE.GET r b")["expires_at"] == start + ms + 30000


@pytest.mark.parametrize("ms", (30000, 31000))
def test_fix_02_refused_renew_removes_nothing(client, ms):
    """FIX-2 Heartbeat at 29, 30 and 31 seconds: the refused RENEW leaves the removal to the reaper."""
    client("LEASE.OPEN r u1 SESSION a TTL 30000")
    refused, events = client.held(ms, "LEASE.RENEW r a 1 1", "XLEN {r}:events")
    assert refused.head == "STALE expired"
    assert events == 1
    client.advance(0)
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "expired")]


def test_fix_02_race_of_renew_and_reap(client):
    """FIX-2 Heartbeat at 29, 30 and 31 seconds: step 3, the newer deadline survives."""
    start = client("LEASE.OPEN r u1 SESSION a TTL 30000")["now"]
    renewed, _, reaped = client.held(29999, "LEASE.RENEW r a 1 1", "LEASE.CLOCK ADVANCE 1", "LEASE.REAP r")
    assert renewed == [b"renewed", 30000, start + 59999]
    assert reaped == 0
    assert client("LEASE.GET r a")["expires_at"] == start + 59999
    assert client.history("r") == [("opened", b"a", 1)]


def behind(client):
    """FIX-3, steps 1 to 3: u1 has confirmed message 41 and lost its lease, the room is at 47; the reply to its OPEN."""
    client("LEASE.OPEN chat u1 SESSION a")
    client("LEASE.OPEN chat u2 SESSION w")
    for number in range(1, 42):
        sent = client(f"LEASE.SEND chat w 1 m{number} p{number}")
        assert (sent["status"], sent["seq"]) == (b"accepted", number)
    assert client("LEASE.ACK chat a 1 41") == 41
    client.advance(20000)
    assert client("LEASE.RENEW chat w 1 1")[0] == b"renewed"
    client.advance(10000)
    removed = client.events("chat")[-1]
    assert [removed[name] for name in ("type", "session", "epoch", "reason", "log_seq")] == ["removed", b"a", 1, "expired", 41]
    assert len(client.messages("chat")) == 41  # which changed no message
    for number in range(42, 48):
        assert client(f"LEASE.SEND chat w 1 m{number} p{number}")["seq"] == number
    return client("LEASE.OPEN chat u1 SESSION b")


def replayed(client, gen, after, *options):
    """Status, reason, `next` and the seqs of a REPLAY for session b."""
    reply = client("LEASE.REPLAY", "chat", "b", 2, gen, after, *options)
    return reply["status"], reply["reason"], reply["next"], [seq for seq, _ in reply["entries"]]


def test_fix_03_reconnect_behind_the_room(client):
    """FIX-3 Reconnect with sequence 41 when the room is at 47: steps 1 to 6."""
    opened = behind(client)
    gen = opened["gen"]
    assert [opened[name] for name in ("epoch", "log_seq", "log_oldest", "acked")] == [2, 47, 1, 41]
    reply = client("LEASE.REPLAY", "chat", "b", 2, gen, 41)
    entries = reply.pop("entries")
    assert reply == {"status": b"ok", "reason": None, "gen": gen, "oldest": 1, "current": 47, "next": 47}
    assert entries == [
        (
            seq,
            {"id": b"m%d" % seq, "user": b"u2", "device": b"default", "session": b"w", "epoch": 1, "at": 30000, "gen": gen, "payload": b"p%d" % seq},
        )
        for seq in range(42, 48)
    ]

    assert replayed(client, gen, 41, "COUNT", 4) == (b"ok", None, 45, [42, 43, 44, 45])
    assert replayed(client, gen, 45, "COUNT", 4) == (b"ok", None, 47, [46, 47])
    assert replayed(client, gen, 47, "COUNT", 4) == (b"ok", None, 47, [])

    with client.nothing_changes():  # the retry
        retried = client("LEASE.SEND chat w 1 m47 p47")
    assert retried == {"status": b"duplicate", "seq": 47, "gen": gen, "at": 30000}
    assert [seq for seq, _ in client.messages("chat")] == list(range(1, 48))


def test_fix_03_behind_what_is_kept(client):
    """FIX-3 Reconnect with sequence 41 when the room is at 47: steps 7 and 8, most of the log is trimmed."""
    gen = behind(client)["gen"]
    client("LEASE.SETPOLICY chat retain-count 3")
    client("LEASE.TRIM chat")
    assert [seq for seq, _ in client.messages("chat")] == [45, 46, 47]
    for after in (41, 43):
        assert replayed(client, gen, after) == (b"resync", b"trimmed", after, [])
    assert replayed(client, gen, 44) == (b"ok", None, 47, [45, 46, 47])
    assert replayed(client, gen, 47) == (b"ok", None, 47, [])
    assert replayed(client, gen, 48) == (b"resync", b"future", 48, [])

    shot = client("LEASE.SNAPSHOT chat b 2")
    assert [shot[name] for name in ("gen", "oldest", "current", "event_n", "now", "cursor")] == [gen, 45, 47, 4, 30000, 0]
    assert [(seq, entry["id"]) for seq, entry in shot["entries"]] == [(45, b"m45"), (46, b"m46"), (47, b"m47")]
    assert sorted(lease["session"] for lease in shot["leases"]) == [b"b", b"w"]
    client("LEASE.SEND chat w 1 m48 p48")
    client("LEASE.OPEN chat u3 SESSION c")
    assert replayed(client, gen, shot["current"]) == (b"ok", None, 48, [48])
    assert [event["session"] for event in client.events("chat") if event["n"] > shot["event_n"]] == [b"c"]


def test_fix_04_a_second_reap_finds_nothing(client):
    """FIX-4 Duplicate clean-up runs: step 1."""
    client("LEASE.OPEN r u1 SESSION a")
    assert client.held(30000, "LEASE.REAP r", "LEASE.REAP r") == [1, 0]
    client.advance(0)
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "expired")]


def test_fix_04_a_successor_reaps_the_rest(client):
    """FIX-4 Duplicate clean-up runs: step 2."""
    sessions = [b"a", b"b", b"c", b"d", b"e"]
    for number, session in enumerate(sessions):
        client("LEASE.OPEN", "r", f"u{number}", "SESSION", session)
    assert client.held(30000, "LEASE.REAP r COUNT 2", "LEASE.REAP r", "LEASE.REAP r") == [2, 3, 0]
    client.advance(0)
    assert client.history("r")[5:] == [("removed", session, 1, "expired") for session in sessions]


def test_fix_05_a_laptop_sleeps_two_minutes(client):
    """FIX-5 A laptop sleeps two minutes."""
    opened = client("LEASE.OPEN r u1 SESSION a TTL 30000")
    assert client("LEASE.SEND r a 1 m1 x")["seq"] == 1
    client.advance(120000)
    with client.nothing_changes():
        late = client.pipeline(*(f"LEASE.RENEW r a 1 {seq} OBSERVED {opened['now']}" for seq in range(1, 13)), "LEASE.SEND r a 1 m2 y")
    assert [refused.head for refused in late] == ["STALE expired"] * 13
    again = client("LEASE.OPEN r u1 SESSION b")
    assert again["epoch"] > opened["epoch"]
    assert (again["replaced"], again["log_seq"]) == (None, 1)
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "expired"), ("opened", b"b", again["epoch"])]


def test_fix_06_leave_after_the_lease_was_reaped(client):
    """FIX-6 Leave after the lease was reaped."""
    client("LEASE.OPEN r u1 SESSION a")
    client.advance(30000)
    with client.nothing_changes():
        for command in ("r a 1", "r a 1", "r a 1 LINGER 5000", "r nobody 7", "missing-room x 1"):
            assert client("LEASE.LEAVE " + command) == b"gone"
    assert client("LEASE.GET r a")["reason"] == b"expired"
    assert client("EXISTS missing-room") == 0
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "expired")]


def test_fix_07_delayed_words_of_epoch_1(client):
    """FIX-7 Delayed epoch-1 message after epoch 2."""
    client("LEASE.OPEN r u1 SESSION a")
    opened = client("LEASE.OPEN r u1 SESSION b")
    assert (opened["epoch"], opened["replaced"], opened["user_leases"]) == (2, b"a", 1)
    client.advance(1000)
    with client.nothing_changes():
        for late in ("SEND r a 1 m1 old", "RENEW r a 1 9 STATE failed META z", "ACK r a 1 0", "REPLAY r a 1 * 0", "SNAPSHOT r a 1"):
            assert client.refusal("LEASE." + late) == "STALE superseded 2", late
    sent = client("LEASE.SEND r b 2 m1 new")  # the refused one left neither a number nor a record
    assert (sent["status"], sent["seq"]) == (b"accepted", 1)
    lease = client("LEASE.GET r b")
    assert (lease["expires_at"], lease["signal"], lease["meta"], lease["seq"]) == (opened["expires_at"], None, None, 0)
