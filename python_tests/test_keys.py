"""KEYS: the keyspace acts on a room."""

import time

import pytest

from harness import Client, Listener, wait_until

EV = "{r}:events"
TOMBSTONE = 600000


def roster(client, room):
    """Sessions present, with epoch and deadline."""
    return {lease["session"]: (lease["epoch"], lease["expires_at"]) for lease in client("LEASE.ROSTER", room)["leases"]}


def gen(client, room):
    return client("LEASE.ROSTER", room)["gen"]


def closed(client, room):
    """The room's `closed` events, once there is one: on Redis 7.0 it may come a moment later."""
    return wait_until(lambda: [event for event in client.events(room) if event["type"] == "closed"])


def rising(client, room):
    numbers = [event["n"] for event in client.events(room)]
    return numbers == sorted(set(numbers))


# -------------------------------------------------------------------- a room under another name


def test_keys_01_rename_over_another_room(client):
    """KEYS-01 RENAME, also over another room: over another room."""
    client.server.aside |= {(0, b"r"), (0, b"r2")}
    first = client("LEASE.OPEN r u1 SESSION a TTL 2000")["gen"]
    client("LEASE.OPEN r u2 SESSION b TTL 2000")
    second = client("LEASE.OPEN r2 u1 SESSION c")["gen"]
    client("LEASE.OPEN r2 u3 SESSION d")
    client.advance(500)
    client.raw("RENAME r r2")
    (ended,) = closed(client, "r2")
    assert (ended["active"], ended["gen"], ended["n"]) == (2, second.decode(), 3)
    assert roster(client, "r2") == {b"a": (1, 2000), b"b": (1, 2000)}
    assert gen(client, "r2") not in (first, second)
    assert client("LEASE.RENEW r2 a 1 1") == [b"renewed", 2000, 2500]
    assert client("LEASE.GET r2 c") is None
    client.advance(2000)
    assert client.history("r2") == [
        ("opened", b"c", 1),
        ("opened", b"d", 1),
        ("closed",),
        ("removed", b"b", 1, "expired"),
        ("removed", b"a", 1, "expired"),
    ]
    assert rising(client, "r2")
    assert client.events("r2")[-1]["gen"].encode() == gen(client, "r2")

    assert client.history("r") == [("opened", b"a", 1), ("opened", b"b", 1)]  # its readers hear nothing
    assert client.refusal("LEASE.RENEW r a 1 2") == "STALE unknown"
    opened = client("LEASE.OPEN r u1")
    assert (opened["epoch"], opened["event_n"]) == (1, 3)
    assert opened["gen"] != first
    assert client("LEASE.OPEN r2 u1")["epoch"] == 2


# Each takes room r in db 0 to a new place: the commands, the place, and by how much the epochs rise at least.
JOURNEYS = {
    "RENAME": (["RENAME r r2"], 0, "r2", 1),
    "RENAMENX": (["RENAMENX r r2"], 0, "r2", 1),
    "MOVE": (["MOVE r 1"], 1, "r", 1),
    "COPY": (["COPY r r2 DB 1", "DEL r"], 1, "r2", 1),
    "RESTORE": (["RESTORE r2 0 DUMP", "DEL r"], 0, "r2", 1025),
}


@pytest.mark.parametrize("journey", JOURNEYS)
def test_keys_01_a_room_elsewhere(client, journey):
    """KEYS-01 RENAME, also over another room (KEYS-02): leases, tombstones, epochs, policy, message ids, cursors and holds go along, gen and streams are new."""
    commands, db, room, rise = JOURNEYS[journey]
    client.server.aside |= {(0, b"r"), (db, room.encode())}
    there = Client(client.server, client.way, db=db)
    client("LEASE.SETPOLICY r tombstone-ms 50000")
    former = client("LEASE.OPEN r u1 SESSION a META x TTL 5000 TOKEN s3cret")["gen"]
    client("LEASE.OPEN r u2 SESSION b")
    client("LEASE.OPEN r u2 SESSION c TTL 8000")
    client("LEASE.RENEW r a 1 7 STATE disconnected TOKEN s3cret")
    client("LEASE.SEND r c 2 m1 x")
    client("LEASE.ACK r c 2 1")
    client("LEASE.HOLD r case7")
    client.advance(1000)
    behind = client("LEASE.LAG r")
    shown = [client("LEASE.GET", "r", session) for session in "abc"]
    for command in commands:
        client.server.connect()(*(client.raw("DUMP r") if word == "DUMP" else word for word in command.split()))

    assert [there("LEASE.GET", room, session) for session in "abc"] == shown
    assert gen(there, room) != former
    assert [field for field in there("LEASE.POLICY", room) if field[2]] == [[b"tombstone-ms", 50000, 1]]
    assert there.refusal("LEASE.RENEW", room, "a", 1, 8) == "DENIED token"
    assert there("LEASE.RENEW", room, "a", 1, 7, "TOKEN", "s3cret")[0] == b"duplicate"
    assert there.refusal("LEASE.RENEW", room, "b", 1, 1) == "STALE superseded 2"
    assert there("LEASE.RENEW", room, "c", 2, 1) == [b"renewed", 8000, 9000]
    assert (there("LEASE.LAG", room), there("LEASE.HOLDS", room)) == (behind, [b"case7"])
    assert there.refusal("LEASE.SEND", room, "c", 2, "m1", "y") == "CONFLICT message"
    sent = [there("LEASE.SEND", room, "c", 2, id, "x") for id in ("m1", "m2")]
    assert [(one["status"], one["seq"], one["at"]) for one in sent] == [(b"duplicate", 1, 0), (b"accepted", 2, 1000)]
    assert [seq for seq, _ in there.messages(room)][-1:] == [2]
    opened = there("LEASE.OPEN", room, "u2", "SESSION", "d")
    assert (opened["epoch"] >= 2 + rise, opened["replaced"], opened["log_seq"], opened["acked"]) == (True, b"c", 2, 1)
    client.advance(4000)
    assert there.history(room)[-1] == ("removed", b"a", 1, "expired")
    assert rising(there, room)
    assert "removed" not in [event["type"] for event in client.events("r") if event.get("session") == b"a"]
    if db == 0 or room != "r":
        assert client.raw("EXISTS r") == 0


def ids(client, room):
    return [(seq, message["id"]) for seq, message in client.messages(room)]


def test_keys_01_rename_over_another_log(client):
    """KEYS-01 RENAME, also over another room: messages; seq goes on above both logs, no position of r leads into r2's old messages."""
    client.server.aside |= {(0, b"r"), (0, b"r2")}
    former = client("LEASE.OPEN r u1 SESSION a")["gen"]
    client("LEASE.OPEN r2 u9 SESSION c")
    for number in (1, 2, 3):
        client(f"LEASE.SEND r a 1 m{number} x")
    for number in range(1, 6):
        client(f"LEASE.SEND r2 c 1 other{number} x")
    client.raw("RENAME r r2")
    assert client.sent("LEASE.SEND r2 a 1 m2 x")["seq"] == 2
    for after in (0, 1, 3, 5):
        read = client("LEASE.REPLAY", "r2", "a", 1, former, after)
        assert (read["status"], read["reason"], read["current"], read["entries"]) == (b"resync", b"diverged", 5, [])
    for user, id, seq in (("u9", "other4", 4), ("u1", "m3", 3)):
        retried = client("LEASE.POST", "r2", user, id, "x")
        assert (retried["status"], retried["seq"]) == (b"duplicate", seq)
    assert client("LEASE.SEND r2 a 1 m4 x")["seq"] == 6
    assert ids(client, "r2") == [(1, b"other1"), (2, b"other2"), (3, b"other3"), (4, b"other4"), (5, b"other5"), (6, b"m4")]
    assert client("LEASE.HOLDS r2") == [b"orphan"]

    opened = client("LEASE.OPEN r u1 SESSION d")
    assert (opened["log_seq"], opened["log_oldest"]) == (3, 1)
    assert client("LEASE.HOLDS r") == [b"orphan"]
    assert client.sent("LEASE.SEND r d 1 m2 x")["seq"] == 2
    assert client("LEASE.SEND r d 1 m5 x")["seq"] == 4
    assert ids(client, "r") == [(1, b"m1"), (2, b"m2"), (3, b"m3"), (4, b"m5")]


def test_keys_01_rename_to_itself(client):
    """KEYS-01 RENAME, also over another room: a room renamed to itself has gone nowhere."""
    client("LEASE.OPEN r u1 SESSION a TTL 2000")
    with client.nothing_changes():
        assert client.raw("RENAMENX r r") == 0
    client.raw("RENAME r r")
    client.advance(2000)
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "expired")]


def test_keys_01_restore_replace_takes_the_highest_epoch(client):
    """KEYS-01 RENAME, also over another room (invariant 1): RESTORE REPLACE never takes epochs back."""
    client.server.aside.add((0, b"r"))
    client("LEASE.OPEN r u1 SESSION a")
    old = client.raw("DUMP r")
    highest = 0
    for session in "bcd":
        highest = client("LEASE.OPEN", "r", "u1", "SESSION", session)["epoch"]
    assert client.raw("RESTORE", "r", 0, old, "REPLACE") == b"OK"
    assert roster(client, "r") == {b"a": (1, 30000)}
    assert client("LEASE.OPEN r u1 SESSION e")["epoch"] > highest + 1024
    client.raw("RESTORE", "r", 0, old, "REPLACE")  # and over a room that came so itself
    assert client("LEASE.OPEN r u1 SESSION f")["epoch"] > highest + 2 * 1024


def test_keys_01_swapdb(client):
    """KEYS-01 RENAME, also over another room (section 7): SWAPDB takes rooms and streams along, nothing of a room changes."""
    other = Client(client.server, client.way, db=1)
    client("LEASE.OPEN r u1 SESSION a TTL 2000")
    other("LEASE.OPEN r u1 SESSION b TTL 3000")
    client("LEASE.SEND r a 1 m1 x")
    gens = gen(client, "r"), gen(other, "r")
    client.raw("SWAPDB 0 1")
    assert other("LEASE.SEND r a 1 m1 x")["status"] == b"duplicate"
    assert [one("LEASE.SEND", "r", session, 1, "m2", "x")["seq"] for one, session in ((client, "b"), (other, "a"))] == [1, 2]
    assert (gen(other, "r"), gen(client, "r")) == gens
    assert (roster(other, "r"), roster(client, "r")) == ({b"a": (1, 2000)}, {b"b": (1, 3000)})
    client.advance(2500)
    assert other.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "expired")]
    client.advance(500)
    assert client.history("r") == [("opened", b"b", 1), ("removed", b"b", 1, "expired")]


@pytest.mark.parametrize("command", ("MOVE k 1", "COPY k k DB 1"))
@pytest.mark.parametrize("kind", ("room", "string"))
def test_keys_01_the_callers_database(server, command, kind):
    """KEYS-01 RENAME, also over another room: who moves or copies a key, a room or not, stays in the database selected."""
    server.aside |= {(0, b"k"), (1, b"k")}
    server.call("LEASE.OPEN k u1" if kind == "room" else "SET k x")
    assert server.call(command) == 1
    assert b" db=0 " in server.call("CLIENT INFO")


# -------------------------------------------------------------------- two rooms out of one


@pytest.mark.parametrize(
    "target, db, over", (("r2", 0, False), ("r", 1, False), ("r2", 0, True), ("r", 1, True)), ids=("beside", "other-db", "over", "over-in-other-db")
)
def test_keys_02_copy(client, target, db, over):
    """KEYS-02 COPY: a deep copy with streams of its own name, to this or another database, with REPLACE."""
    client.server.aside |= {(0, b"r"), (db, target.encode())}
    copy = Client(client.server, client.way, db=db)
    if over:
        copy("LEASE.OPEN", target, "u9", "SESSION", "x")
    before = copy.history(target)
    former = client("LEASE.OPEN r u1 SESSION a META m")["gen"]
    client("LEASE.OPEN r u2 SESSION b TTL 5000")
    assert client.server.connect()("COPY", "r", target, "DB", db, *(["REPLACE"] if over else [])) == 1
    if over:
        assert [event["active"] for event in closed(copy, target)] == [1]
        before = before + [("closed",)]
    assert roster(copy, target) == roster(client, "r") == {b"a": (1, 30000), b"b": (1, 5000)}
    assert gen(client, "r") == former != gen(copy, target)

    assert client("LEASE.LEAVE r a 1") == b"left"
    assert copy("LEASE.GET", target, "a")["state"] == b"active"
    assert copy("LEASE.RENEW", target, "a", 1, 1, "META", "other")[0] == b"renewed"
    assert copy("LEASE.RENEW", target, "b", 1, 1) == [b"renewed", 5000, 5000]
    assert client("LEASE.GET r a")["meta"] == b"m"
    client("LEASE.SETPOLICY r ttl-ms 4000")
    assert [field for field in copy("LEASE.POLICY", target) if field[2]] == []
    client.advance(5000)
    assert client.history("r") == [("opened", b"a", 1), ("opened", b"b", 1), ("removed", b"a", 1, "left"), ("removed", b"b", 1, "expired")]
    assert copy.history(target) == [*before, ("updated", b"a", 1), ("removed", b"b", 1, "expired")]
    assert rising(copy, target)
    client.raw("DEL r")
    assert copy("LEASE.GET", target, "a")["state"] == b"active"


@pytest.mark.parametrize("over", (False, True), ids=("beside", "over"))
def test_keys_02_copy_of_what_is_known_of_messages(client, over):
    """KEYS-02 COPY: ids of messages, cursors and holds are copied, the log is not; nothing is shared."""
    client.server.aside |= {(0, b"r"), (0, b"r2")}
    former = client("LEASE.OPEN r u1 SESSION a")["gen"]
    for number in (1, 2):
        client(f"LEASE.SEND r a 1 m{number} x")
    client("LEASE.MARK r u1 default QUEUED 2")
    client("LEASE.ACK r a 1 1")
    client("LEASE.HOLD r case7")
    if over:
        for number in (1, 2, 3):
            client(f"LEASE.POST r2 u9 old{number} x")
    assert client.server.connect()("COPY", "r", "r2", *(["REPLACE"] if over else [])) == 1
    log = [(seq, b"old%d" % seq) for seq in (1, 2, 3)] if over else []
    newest = len(log) or 2
    assert client.sent("LEASE.SEND r2 a 1 m1 x")["status"] == b"duplicate"
    assert ids(client, "r2") == log
    assert sorted(client("LEASE.HOLDS r2")) == [b"case7"] + [b"orphan"] * over
    (behind,) = client("LEASE.LAG r2")["holders"]
    assert [behind[name] for name in ("queued", "written", "acked", "acked_lag")] == [2, 0, 1, newest - 1]
    assert client("LEASE.REPLAY", "r2", "a", 1, former, 2)["reason"] == b"diverged"

    assert client("LEASE.SEND r2 a 1 m3 y")["seq"] == newest + 1
    assert client("LEASE.SEND r a 1 m3 x")["seq"] == 3
    assert client("LEASE.ACK r a 1 3") == 3
    assert client("LEASE.UNHOLD r case7") == 1
    assert client("LEASE.LAG r2")["holders"][0]["acked"] == 1
    assert b"case7" in client("LEASE.HOLDS r2")
    assert ids(client, "r") == [(1, b"m1"), (2, b"m2"), (3, b"m3")]
    assert ids(client, "r2") == log + [(newest + 1, b"m3")]


def test_keys_02_copy_onto_what_is_there(client):
    """KEYS-02 COPY: without REPLACE nothing happens to either."""
    client("LEASE.OPEN r u1 SESSION a")
    client("LEASE.OPEN r2 u1 SESSION b")
    with client.nothing_changes():
        assert client.raw("COPY r r2") == 0


# -------------------------------------------------------------------- rooms that go


@pytest.mark.parametrize("flush", ("FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB", "FLUSHDB ASYNC"))
@pytest.mark.ways("plain-resp3", "multi-resp2", "eval-resp3")
def test_keys_03_flush(client, flush):
    """KEYS-03 FLUSHALL with rooms in several databases: no late event, no `closed`, gauges 0, memory freed; FLUSHDB one database."""
    clients = [Client(client.server, client.way, db=db) for db in range(4)]
    gens = []
    for caller in clients:
        for number in range(500):
            gens.append(caller("LEASE.OPEN", f"r{number % 5}", f"u{number}", "META", "x" * 500, "TTL", 2000)["gen"])
        caller("LEASE.POST r0 u0 m1 x")
    listener = Listener(client.server, db=2)
    flushed = clients if flush.startswith("FLUSHALL") else clients[2:3]
    size = sum(caller.raw("MEMORY", "USAGE", key, "SAMPLES", 0) for caller in flushed for key in caller.raw("KEYS *"))
    client.server.lease_info()  # once, for it keeps what it needs to answer
    full = client.server.info("memory")["used_memory"]
    clients[2].raw(flush)
    info = client.server.lease_info()
    kept = 4 - len(flushed)
    assert (info["active_leases"], info["rooms"], info["users"], info["dedupe_records"]) == (500 * kept, 5 * kept, 500 * kept, kept)
    wait_until(lambda: client.server.info("memory")["used_memory"] < full - size * 0.75, what="the memory is freed")
    client.advance(2000)
    assert [caller.raw("DBSIZE") for caller in flushed] == [0] * len(flushed)
    assert listener() == []
    for caller in clients:
        opened = caller("LEASE.OPEN r0 u0 SESSION z")
        events = caller.events("r0")
        assert opened["log_seq"] == (0 if caller in flushed else 1)
        if caller in flushed:
            assert opened["gen"] not in gens
            assert opened["epoch"] == 1
            assert [event["type"] for event in events] == ["opened"]
        else:
            assert opened["gen"] in gens
            assert [event["type"] for event in events] == ["opened"] * 100 + ["removed"] * 100 + ["opened"]


@pytest.mark.parametrize("flush", ("FLUSHALL", "FLUSHDB"))
def test_keys_03_deleted_and_flushed_at_once(client, flush):
    """KEYS-03 FLUSHALL with rooms in several databases: one deleted in the same transaction is not told of afterwards."""
    client("LEASE.OPEN r u1 SESSION a")
    client.transaction("DEL r", flush)
    client.advance(10)
    assert client.raw("DBSIZE") == 0


def test_keys_04_expire_on_the_room_key(client):
    """KEYS-04 EXPIRE on the room key: one `closed`, then a new room of which no old session is part, and the log goes on."""
    for number in range(5):
        former = client("LEASE.OPEN", "r", f"u{number}", "SESSION", f"s{number}")["gen"]
    for number in range(1, 8):
        client(f"LEASE.SEND r s1 1 m{number} x")
    listener = Listener(client.server)
    client.raw("PEXPIRE r 100")
    assert client("LEASE.COUNT r") == [5, 5]
    (ended,) = wait_until(lambda: not client.raw("EXISTS r") and closed(client, "r"))
    assert (ended["active"], ended["gen"], ended["log_seq"]) == (5, former.decode(), 7)
    assert listener() == [(b"r", "lease.closed")]
    info = client.server.lease_info()
    assert [info[name] for name in ("active_leases", "users", "rooms", "dedupe_records")] == [0, 0, 0, 0]

    assert client.refusal("LEASE.RENEW r s0 1 1") == "STALE unknown"
    assert client("LEASE.LEAVE r s0 1") == b"gone"
    assert client.raw("EXISTS r") == 0
    client.advance(30000)  # no timer entry is left behind
    assert [event["type"] for event in client.events("r")] == ["opened"] * 5 + ["closed"]
    opened = client("LEASE.OPEN r u1 SESSION z")
    assert [opened[name] for name in ("log_seq", "log_oldest", "event_n")] == [7, 1, 7]
    assert opened["gen"] != former
    an_orphan(client)


def an_orphan(client):
    """KEYS-04, step 3: the new room has met a log of seven messages, which nothing trims until its hold is taken away."""
    assert client("LEASE.HOLDS r") == [b"orphan"]
    assert client.server.lease_info()["orphan_rooms"] == 1
    retried, new = client.sent("LEASE.SEND r z 1 m5 x"), client.sent("LEASE.SEND r z 1 m8 x")
    assert [(one["status"], one["seq"]) for one in (retried, new)] == [(b"duplicate", 5), (b"accepted", 8)]
    client("LEASE.SETPOLICY r retain-count 2 events-maxlen 5")
    assert client("LEASE.TRIM r") == 0
    assert client("LEASE.SEND r z 1 m9 x")["seq"] == 9
    assert [seq for seq, _ in client.messages("r")] == list(range(1, 10))
    assert client("LEASE.UNHOLD r orphan") == 1
    assert client.server.lease_info()["orphan_rooms"] == 0
    client("LEASE.TRIM r")
    assert [seq for seq, _ in client.messages("r")] == [8, 9]
    assert len(client.events("r")) == 5


def test_keys_04_deleted(client):
    """KEYS-04 EXPIRE on the room key: the same when it is deleted."""
    client("LEASE.OPEN r u1 SESSION a")
    for number in range(1, 8):
        client(f"LEASE.SEND r a 1 m{number} x")
    client.raw("DEL r")
    closed(client, "r")
    client("LEASE.OPEN r u1 SESSION z")
    client("LEASE.OPEN r u2 SESSION y")
    client("LEASE.LEAVE r y 1")
    an_orphan(client)


def test_keys_04_a_key_ttl_is_the_users(client):
    """KEYS-04 EXPIRE on the room key: no command of the module lifts or sets it."""
    client("LEASE.OPEN r u1 SESSION a")
    client.raw("PEXPIRE r 100000")
    for command in (
        "RENEW r a 1 1",
        "OPEN r u2",
        "SETPOLICY r ttl-ms 5000",
        "SEND r a 1 m1 x",
        "POST r u2 m1 x",
        "ACK r a 1 1",
        "MARK r u2 default WRITTEN 1",
        "HOLD r h",
        "UNHOLD r h",
        "TRIM r",
        "LEAVE r a 1",
        "KICK r USER u2",
    ):
        client("LEASE." + command)
        assert 0 < client.raw("PTTL r") <= 100000, command


FILL = "for i = 1, tonumber(ARGV[2]) do redis.call('LEASE.OPEN', KEYS[1], 'u' .. i, 'SESSION', 's' .. i, 'TTL', ARGV[1]) end"


def fill(client, room, leases, ttl):
    client.raw("EVAL", FILL, 1, room, ttl, leases)


@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1, "reap-slice-us": 100, "events-maxlen": 100})
@pytest.mark.parametrize("leases", (20000, pytest.param(1000000, marks=pytest.mark.load)))
@pytest.mark.ways("plain-resp3")
@pytest.mark.no_restart("the rooms are gone")
def test_keys_05_unlink_of_a_huge_room(client, leases):
    """KEYS-05 UNLINK of a huge room: while the reaper works on it, then FLUSHALL ASYNC again and again."""
    fill(client, "r", leases, leases // 50)
    wait_until(lambda: client.server.lease_info()["ended_expired"] > 0, 60)
    start = time.perf_counter()
    client.raw("UNLINK r")
    client.raw("PING")
    assert time.perf_counter() - start < 0.1
    (ended,) = closed(client, "r")
    reaped = client.server.lease_info()["ended_expired"]
    assert ended["active"] == leases - reaped > 0
    for _ in range(20):
        fill(client, "r", leases // 100, 1)
        client.raw("FLUSHALL ASYNC")
    assert client.server.lease_info()["active_leases"] == 0
    client("LEASE.OPEN r u1 SESSION a TTL 1")
    wait_until(lambda: len(client.events("r")) == 2)


def test_keys_02_a_copy_that_goes_before_anyone_looked(client):
    """KEYS-02 COPY: over a room whose stream is ahead, deleted at once: both are told of, one after the other."""
    client("LEASE.OPEN a u SESSION x")
    for session in "yz":
        client(f"LEASE.OPEN r v DEVICE {session} SESSION {session}")
    client.raw("COPY a r REPLACE")
    wait_until(lambda: len(client.events("r")) == 3)
    client.raw("DEL r")
    wait_until(lambda: len(client.events("r")) == 4)
    told = [(event["n"], event["type"], event.get("active")) for event in client.events("r")[2:]]
    assert told == [(3, "closed", 2), (4, "closed", 1)]


@pytest.mark.ways("plain-resp3")
@pytest.mark.server(clock=None, redis={"hz": "100"})
@pytest.mark.no_restart("its rooms are gone")
def test_keys_04_a_room_expires_with_its_streams(client):
    """KEYS-04 EXPIRE on the room key: the server walks its expiring keys meanwhile, and the streams are due as well."""
    for room in range(1500):
        name = f"room{room}"
        client.raw("LEASE.OPEN", name, "u", "SESSION", "a")
        client.raw("LEASE.POST", name, "u", "m", "x")
        for key in name, f"{{{name}}}:events", f"{{{name}}}:log":
            client.raw("PEXPIRE", key, 2)
    wait_until(lambda: not client.raw("KEYS", "room*"))
    client.server.aside |= {(0, name) for name in client.raw("KEYS", "*")}
    assert client.raw("PING") in (b"PONG", "PONG")
