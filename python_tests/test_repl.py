"""REPL: replicas, failover, pauses."""

import time

import pytest
import redis

from harness import Client, Refused, Way, aftermath, wait_until

PLAIN = Way("plain", 3)
NOWHERE = "127.0.0.1 1"  # a primary that never answers
EV = "{r}:events"
READS = (
    "LEASE.GET r a",
    "LEASE.ROSTER r",
    "LEASE.ROSTER r ENDED",
    "LEASE.COUNT r",
    "LEASE.INSPECT r",
    "LEASE.INSPECT r SESSION a",
    "LEASE.POLICY r",
    "LEASE.GRANTS r",
    "LEASE.REPLAY r b 1 * 0",
    "LEASE.SNAPSHOT r b 1",
    "LEASE.LAG r",
    "LEASE.HOLDS r",
    "LEASE.STATS r",
)
WRITES = (
    "OPEN r u2",
    "RENEW r b 1 1",
    "MRENEW r b 1 1",
    "LEAVE r b 1",
    "KICK r USER u2",
    "REAP r",
    "SETPOLICY r ttl-ms 5000",
    "GRANT r u2 READ",
    "REVOKE r u2",
    "SEND r b 1 m2 x",
    "POST r u2 m2 x",
    "ACK r b 1 1",
    "MARK r u2 default QUEUED 1",
    "HOLD r h",
    "UNHOLD r kept",
    "TRIM r",
)


def on(server, way=PLAIN):
    return Client(server, way)


def online_replica(server, **options):
    """A replica that its primary sends writes to: until its first acknowledgement, up to a second, they are only kept for it."""
    replica = server.replica(**options)
    server.call("PUBLISH nobody hears")
    replica.in_step()
    return replica


def cut(replica):
    """The replica keeps its data and role and hears no more of its primary."""
    replica.call("REPLICAOF " + NOWHERE)
    wait_until(lambda: replica.info("replication")["master_link_status"] == "down")


def promote(replica):
    replica.call("REPLICAOF NO ONE")
    replica.primary = None


def follow(old, new):
    """The old primary becomes a replica of the new one."""
    old.call("REPLICAOF", "127.0.0.1", new.port)
    old.primary = new
    new.replicas.append(old)


def handed_over(old, new):
    """A failover is over: nodes in step, digests equal, and all that must hold after a scenario holds on the new primary."""
    old.in_step()
    aftermath.check(new, restart=False)


# -------------------------------------------------------------------- who may turn time into state


@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1})
@pytest.mark.parametrize("heard_by", ("aof", "replica"))
@pytest.mark.ways("plain-resp2", "plain-resp3")
def test_repl_01_the_reaper_during_a_pause(client, heard_by):
    """REPL-01 The reaper during CLIENT PAUSE WRITE: it waits, reads hide what is due, afterwards each lease is removed once."""
    server = client.server
    if heard_by == "aof":
        server.rewrite_aof("yes")

        def written():
            return server.info("persistence")["aof_current_size"]

        readers = [client]
    else:
        readers = [client, on(online_replica(server), client.way)]

        def written():
            return server.info("replication")["master_repl_offset"]

    client.pipeline(*(f"LEASE.OPEN r u{number} SESSION s{number} TTL 1000" for number in range(100)))
    client.raw("CLIENT PAUSE 10000 WRITE")
    if heard_by == "replica":
        wait_until(lambda: readers[1]("LEASE.COUNT r") == [100, 100])
    assert client("LEASE.COUNT r") == [100, 100]
    before = written()
    wait_until(lambda: all(reader("LEASE.COUNT r") == [0, 0] for reader in readers))  # each by its own clock
    past = time.monotonic() + 0.3  # long enough for a reaper that did not mind the pause
    while time.monotonic() < past:
        for reader in readers:
            assert reader("LEASE.COUNT r") == [0, 0]
            assert reader("LEASE.ROSTER r")["leases"] == []
            lease = reader("LEASE.GET r s7")
            assert (lease["state"], lease["reason"], lease["left_ms"]) == (b"ended", b"expired", 0)
        assert client.raw("XLEN", EV) == 100
        assert written() == before
    client.raw("CLIENT UNPAUSE")
    wait_until(lambda: client.raw("XLEN", EV) == 200)
    assert sorted(session for kind, session, *_ in client.history("r") if kind == "removed") == sorted(b"s%d" % number for number in range(100))
    assert server.lease_info()["pauses_honoured"] >= 1


@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1})
def test_repl_02_a_demoted_primary(server):
    """REPL-02 A demoted primary keeps expiring: it writes nothing any more, the new one's leases live on."""
    a, b = server, online_replica(server)
    client = on(b)
    on(a)("LEASE.OPEN r u1 SESSION kept TTL 1000")
    on(a)("LEASE.OPEN r u2 SESSION silent TTL 1000")
    b.in_step()
    promote(b)
    stop = time.monotonic() + 2
    a.call("REPLICAOF " + NOWHERE)
    digest, written = a.call("DEBUG DIGEST"), a.info("replication")["master_repl_offset"]
    a.call.send([["DEBUG", "SLEEP", "1.2"]])
    seq = 0
    while time.monotonic() < stop:
        seq += 1
        assert client(f"LEASE.RENEW r kept 1 {seq}")[0] == b"renewed"
        client.raw("BLPOP nothing 0.05")
    assert client(f"LEASE.RENEW r kept 1 {seq + 1} TTL 60000")[0] == b"renewed"
    assert a.call.read() == b"OK"
    old = on(a)
    assert old("LEASE.COUNT r") == [0, 0]  # past their deadline here, but that is not for it to decide
    assert old.history("r") == [("opened", b"kept", 1), ("opened", b"silent", 1)]
    assert (a.call("DEBUG DIGEST"), a.info("replication")["master_repl_offset"]) == (digest, written)
    follow(a, b)
    handed_over(a, b)
    assert client.history("r")[2:] == [("removed", b"silent", 1, "expired")]
    assert old.history("r") == client.history("r")


@pytest.mark.server(clock=0)
def test_repl_03_a_replica_past_the_deadline(client):
    """REPL-03 Replica read after the deadline, before the removal arrives: hidden there too, and nothing moves."""
    client("LEASE.OPEN r u1 SESSION a TTL 5000")
    client("LEASE.OPEN r u2 SESSION b TTL 9000")
    client("LEASE.OPEN r u3 SESSION c TTL 5000")
    client("LEASE.LEAVE r c 1 LINGER 4000")
    replica = online_replica(client.server)
    reader = on(replica, client.way)
    digest, offset = replica.call("DEBUG DIGEST"), replica.info("replication")["slave_repl_offset"]
    replica.call("LEASE.CLOCK ADVANCE 5000")
    lease = reader("LEASE.GET r a")
    assert [lease[name] for name in ("state", "reason", "left_ms", "ended_at", "expires_at")] == [b"ended", b"expired", 0, 5000, 5000]
    lingered = reader("LEASE.GET r c")
    assert [lingered[name] for name in ("state", "reason", "ended_at")] == [b"ended", b"left", 4000]
    assert reader("LEASE.COUNT r") == [1, 1]
    assert [lease["session"] for lease in reader("LEASE.ROSTER r")["leases"]] == [b"b"]
    assert reader("LEASE.GET r b")["left_ms"] == 4000
    assert sorted(lease["session"] for lease in reader("LEASE.ROSTER r ENDED")["leases"]) == [b"a", b"b", b"c"]
    assert b'"expired"' in reader("LEASE.INSPECT r SESSION a")
    assert (replica.call("DEBUG DIGEST"), replica.info("replication")["slave_repl_offset"]) == (digest, offset)
    client.advance(5000)
    replica.in_step()
    assert reader.history("r")[3:] == [("removed", b"c", 1, "left"), ("removed", b"a", 1, "expired")]
    assert reader("LEASE.GET r a") == lease


@pytest.mark.server(redis={"appendonly": "yes", "appendfsync": "always"})
def test_repl_04_a_batch_over_live_and_expired_leases(client):
    """REPL-04 A batch over live and expired leases: only what was accepted travels."""
    replica = online_replica(client.server)
    client("LEASE.OPEN r u1 SESSION alive")
    client("LEASE.OPEN r u2 SESSION overdue TTL 1000")
    client("LEASE.OPEN r u3 SESSION bound TOKEN s3cret")
    written = aof(client.server)
    (reply,) = client.held(1000, "LEASE.MRENEW r alive 1 1 overdue 1 1 stranger 1 1 bound 1 1")
    assert reply == [[b"renewed", 30000], [b"stale", b"expired"], [b"stale", b"unknown"], [b"denied", b"token"]]
    travelled = aof(client.server)[len(written) :]
    assert b"stranger" not in travelled and b"bound" not in travelled
    client.advance(0)
    replica.in_step()
    reader = on(replica)
    for read in (client, reader):
        assert (read("LEASE.GET r alive")["seq"], read("LEASE.GET r alive")["left_ms"]) == (1, 30000)
        assert read("LEASE.GET r overdue")["reason"] == b"expired"
        assert read("LEASE.GET r bound")["seq"] == 0
    assert replica.call("DEBUG DIGEST") == client.raw("DEBUG DIGEST")


def aof(server):
    return b"".join(path.read_bytes() for path in sorted((server.path / "appendonlydir").glob("*.aof")))


def test_repl_04_malformed_and_too_many(client):
    """REPL-04 A batch over live and expired leases: one malformed item refuses all, 1024 pass, 1025 do not."""
    client("LEASE.OPEN r u1 SESSION a")
    with client.nothing_changes():
        assert client.refusal("LEASE.MRENEW r a 1 1 a 1 x") == "ERR"
        assert client.refusal("LEASE.MRENEW", "r", *["a", 1, 1] * 1025) == "LIMIT items"
    items = [word for seq in range(1, 1025) for word in ("a", 1, seq)]
    assert client("LEASE.MRENEW", "r", *items) == [[b"renewed", 30000]] * 1024
    assert client("LEASE.GET r a")["seq"] == 1024


@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1}, redis={"appendonly": "yes", "appendfsync": "always"})
@pytest.mark.ways("plain-resp2", "plain-resp3")
def test_repl_05_reads_on_the_primary_write_nothing(client):
    """REPL-05 A read that writes: not one byte to replica or AOF from reads of an overdue lease, on the primary."""
    server = client.server
    online_replica(server)
    read_from(client)
    client("LEASE.OPEN r u1 SESSION a TTL 100")
    client.raw("CLIENT PAUSE 60000 WRITE")  # so that it stays overdue
    wait_until(lambda: client("LEASE.COUNT r") == [1, 1])

    def state():
        return (
            server.info("replication")["master_repl_offset"],
            aof(server),
            server.call("DEBUG DIGEST"),
            server.info("persistence")["rdb_changes_since_last_save"],
            client.raw("XLEN", EV),
        )

    before = state()
    for command in READS:
        assert not isinstance(client.pipeline(command)[0], Refused), command
    assert state() == before
    client.raw("CLIENT UNPAUSE")
    wait_until(lambda: client.raw("XLEN", EV) == 4)


def read_from(client):
    """What the reads of `READS` are about, beside the lease of session a."""
    client("LEASE.OPEN r u2 SESSION b")
    client("LEASE.SEND r b 1 m1 x")
    client("LEASE.MARK r u2 default WRITTEN 1")
    client("LEASE.HOLD r kept")
    client("LEASE.GRANT r u3 READ UNTIL 9000000000000")


def test_repl_05_reads_on_a_replica_write_nothing(client):
    """REPL-05 A read that writes: nor on a read-only replica, where all reads are allowed and no write is."""
    read_from(client)
    client("LEASE.OPEN r u1 SESSION a TTL 1000")
    replica = online_replica(client.server, redis={"appendonly": "yes", "appendfsync": "always"})
    replica.call("LEASE.CLOCK ADVANCE 1000")
    reader = on(replica, client.way)

    def state():
        return (replica.info("replication")["slave_repl_offset"], aof(replica), replica.call("DEBUG DIGEST"))

    before = state()
    for command in (*READS, "LEASE.HELP", "LEASE.CLOCK GET"):
        assert not isinstance(reader.pipeline(command)[0], Refused), command
    for command in WRITES:
        assert reader.refusal("LEASE." + command) == "READONLY", command
    assert state() == before
    client.advance(1000)


# -------------------------------------------------------------------- failover


@pytest.mark.server(lease={"recovery-grace-ms": 0})
def test_repl_06_a_lagging_replica(server):
    """REPL-06 A lagging replica and the ttl: it removes nothing itself, applies late heartbeats, and ends the lease once, promoted."""
    a, b = on(server), on(online_replica(server))
    a("LEASE.OPEN r u1 SESSION a TTL 10000")
    a("LEASE.OPEN r u2 SESSION capped TTL 10000 UNTIL 13000")
    b.server.in_step()
    b.raw("LEASE.CLOCK SET 12000")  # 12 s have passed there, 5 s here
    a.raw("LEASE.CLOCK SET 5000")
    assert b("LEASE.COUNT r") == [0, 0]
    assert b.history("r") == [("opened", b"a", 1), ("opened", b"capped", 1)]
    for session in ("a", "capped"):
        assert a(f"LEASE.RENEW r {session} 1 1")[0] == b"renewed"
    b.server.in_step()
    assert b.raw("DEBUG DIGEST") == a.raw("DEBUG DIGEST")
    assert [b(f"LEASE.GET r {session}")["left_ms"] for session in ("a", "capped")] == [10000, 1000]

    cut(b.server)
    promote(b.server)
    assert b("LEASE.GET r capped")["expires_at"] == 13000
    b.advance(1000)
    assert b.history("r")[2:] == [("removed", b"capped", 1, "expired")]
    b.advance(8999)
    assert b("LEASE.GET r a")["state"] == b"active"
    b.advance(1)
    b.advance(60000)
    assert b.history("r")[3:] == [("removed", b"a", 1, "expired")]
    aftermath.check(b.server, restart=False)


def test_repl_07_refused_for_a_moment(server):
    """REPL-07 Refused for a moment in a failover: the same heartbeat again on the new primary is renewed, or a duplicate."""
    a, b = on(server), on(online_replica(server))
    a("LEASE.OPEN r u1 SESSION a")
    a("LEASE.RENEW r a 1 1")
    b.server.in_step()
    cut(b.server)
    a("LEASE.RENEW r a 1 2")  # never arrives there
    promote(b.server)
    follow(a.server, b.server)
    for seq in (1, 2, 3):
        assert a.refusal(f"LEASE.RENEW r a 1 {seq}") == "READONLY"
    assert [b(f"LEASE.RENEW r a 1 {seq}")[0] for seq in (1, 2, 3)] == [b"duplicate", b"renewed", b"renewed"]
    handed_over(a.server, b.server)


@pytest.mark.server(clock=None)
def test_repl_07_failover_under_heartbeats(server):
    """REPL-07 Refused for a moment in a failover: with FAILOVER, while heartbeats come without a break."""
    a, b = server, online_replica(server)
    on(a)("LEASE.OPEN r u1 SESSION a")
    b.in_step()
    nodes, said, statuses = [a, b], set(), []
    for seq in range(1, 61):
        if seq == 20:
            a.call("FAILOVER", "TO", "127.0.0.1", b.port)
        for _ in range(1000):
            try:
                statuses.append(on(nodes[0])(f"LEASE.RENEW r a 1 {seq}")[0])
                break
            except Refused as refused:
                said.add(refused.code)
            except redis.ConnectionError as gone:  # LOADING is one of these to the library
                said.add(str(gone).split()[0])
            nodes.reverse()
    assert len(statuses) == 60 and set(statuses) <= {b"renewed", b"duplicate"}
    assert "READONLY" in said and not said & {"STALE", "DENIED", "ERR"}
    wait_until(lambda: b.info("replication")["role"] == "master" and a.info("replication")["role"] == "slave")
    a.primary, b.primary = b, None
    b.replicas.append(a)
    handed_over(a, b)
    assert on(b)("LEASE.GET r a")["seq"] == 60


def test_repl_08_an_acknowledged_open_is_lost(server):
    """REPL-08 An acknowledged OPEN is lost: its epoch is not given out again, its session is unknown."""
    a, b = on(server), on(online_replica(server))
    first = a("LEASE.OPEN r u1 SESSION a")
    b.server.in_step()
    cut(b.server)
    lost = a("LEASE.OPEN r u1 SESSION b")
    promote(b.server)
    gen = b("LEASE.ROSTER r")["gen"]
    assert gen != first["gen"]  # shown before the first write
    c = b("LEASE.OPEN r u1 SESSION c")
    assert c["epoch"] >= first["epoch"] + 1024 + 1 > lost["epoch"]
    assert (c["gen"], c["replaced"]) == (gen, b"a")
    with b.nothing_changes():
        assert b.refusal("LEASE.RENEW", "r", "b", lost["epoch"], 1) == "STALE unknown"
        assert b.refusal("LEASE.SEND", "r", "b", lost["epoch"], "m1", "x") == "STALE unknown"
        assert b("LEASE.LEAVE", "r", "b", lost["epoch"]) == b"gone"
    assert b("LEASE.GET r c")["expires_at"] == c["expires_at"]
    assert b("LEASE.SEND", "r", "c", c["epoch"], "m1", "x")["seq"] == 1
    removed = b.events("r")[1]
    assert removed["type"] == "removed" and removed["n"] - 1 in (1 << 20, (1 << 20) + 1)
    follow(a.server, b.server)
    handed_over(a.server, b.server)
    assert a("LEASE.GET r b") is None


def test_repl_08_an_acknowledged_message_is_lost(server):
    """REPL-08 An acknowledged OPEN is lost (invariant 6): likewise a message; who has applied it learns so, all others read on."""
    a, b = on(server), on(online_replica(server))
    gen = a("LEASE.OPEN r u1 SESSION a")["gen"]
    for number in (1, 2):
        a(f"LEASE.SEND r a 1 m{number} x")
    b.server.in_step()
    cut(b.server)
    assert a("LEASE.SEND r a 1 lost x")["seq"] == 3
    promote(b.server)
    assert b("LEASE.SEND r a 1 m2 x")["seq"] == 2
    assert b("LEASE.SEND r a 1 other x")["seq"] == 3
    read = b("LEASE.REPLAY", "r", "a", 1, gen, 2)
    assert (read["status"], [entry["id"] for _, entry in read["entries"]]) == (b"ok", [b"other"])
    assert read["gen"] != gen
    read = b("LEASE.REPLAY", "r", "a", 1, gen, 3)
    assert (read["status"], read["reason"], read["next"], read["entries"]) == (b"resync", b"diverged", 3, [])
    retried = b("LEASE.SEND r a 1 lost x")
    assert (retried["status"], retried["seq"]) == (b"accepted", 4)
    follow(a.server, b.server)
    handed_over(a.server, b.server)
    assert [entry["id"] for _, entry in a("LEASE.SNAPSHOT r a 1")["entries"]] == [b"m1", b"m2", b"other", b"lost"]


def test_repl_08_a_restored_room_has_its_grace(server):
    """REPL-08 An acknowledged OPEN is lost (section 7): a promotion also gives its grace to a room that came by RESTORE."""
    a, b = on(server), on(online_replica(server))
    a("LEASE.OPEN r u1 SESSION a")
    a.raw("RESTORE", "r2", 0, a.raw("DUMP r"))
    a("LEASE.OPEN r2 u2 SESSION b")
    server.aside |= {(0, b"r"), (0, b"r2")}
    a.advance(20000)
    b.server.in_step()
    promote(b.server)
    b.server.aside = server.aside
    assert [b("LEASE.GET", "r2", session)["left_ms"] for session in "ab"] == [30000, 30000]


def test_repl_08_two_losses_in_a_row(start):
    """REPL-08 An acknowledged OPEN is lost (invariant 1): also by a primary that had begun a history no other node knows of."""
    server = start(clock=None)
    a, b = on(server), on(online_replica(server))
    a("LEASE.OPEN r u1 SESSION a")
    b.server.in_step()
    a.raw("DEBUG RELOAD")
    cut(b.server)
    lost = a("LEASE.OPEN r u1 SESSION b")
    wait_until(lambda: a("LEASE.ROSTER r")["now"] > lost["now"] + 100, what="some time has passed")
    promote(b.server)
    assert b("LEASE.OPEN r u1 SESSION c")["epoch"] > lost["epoch"]
    follow(a.server, b.server)
    handed_over(a.server, b.server)


def test_repl_08_moved_right_after_a_promotion(client):
    """REPL-08 An acknowledged OPEN is lost: a room renamed before the new primary has looked at it has risen all the same."""
    first = client("LEASE.OPEN r u1 SESSION a")
    client.raw("REPLICAOF 127.0.0.1 1")
    client.raw("REPLICAOF NO ONE")
    client.raw("RENAME r r2")
    client.server.aside |= {(0, b"r"), (0, b"r2")}
    assert client("LEASE.OPEN r2 u2 SESSION b")["epoch"] > first["epoch"] + 1024


def test_repl_08_restored_over_a_history_not_yet_written(server):
    """REPL-08 An acknowledged OPEN is lost: what RESTORE REPLACE takes over is the same on all nodes, the next epoch above all of it."""
    a, b = on(server), on(online_replica(server))
    a("LEASE.OPEN other u SESSION o")
    saved = a.raw("DUMP other")
    for session in "abc":
        a("LEASE.OPEN r u1 SESSION", session)
    a.raw("DEBUG RELOAD")
    told = a("LEASE.ROSTER r")["gen"]
    a.raw("RESTORE", "r", 0, saved, "REPLACE")
    server.aside |= {(0, b"r"), (0, b"other")}
    b.server.in_step()
    assert a.raw("DEBUG DIGEST") == b.raw("DEBUG DIGEST")
    opened = a("LEASE.OPEN r u1 SESSION d")
    assert opened["epoch"] > 3 + 1024 and opened["gen"] != told


@pytest.mark.parametrize("grace, kept, shortened", (("-1", 30000, 4000), ("0", 2000, 2000), ("5000", 5000, 4000)))
def test_repl_08_deadlines_of_a_new_primary(server, grace, kept, shortened):
    """REPL-08 An acknowledged OPEN is lost (section 7): a promotion gives each lease its grace, the shortened their span, UNTIL holds."""
    a, b = on(server), on(online_replica(server))
    b.raw("CONFIG", "SET", "lease.recovery-grace-ms", grace)
    a("LEASE.SETPOLICY r disconnect-ms 4000")
    a("LEASE.OPEN r u1 SESSION plain")
    a("LEASE.OPEN r u2 SESSION capped UNTIL 29000")
    a.advance(26000)
    a("LEASE.OPEN r u3 SESSION shortened")
    a("LEASE.RENEW r shortened 1 1 STATE disconnected")
    a("LEASE.OPEN r u4 SESSION lingering")
    a("LEASE.LEAVE r lingering 1 LINGER 4000")
    a.advance(2000)
    b.server.in_step()
    cut(b.server)
    promote(b.server)
    assert [b(f"LEASE.GET r {session}")["left_ms"] for session in ("plain", "capped", "shortened", "lingering")] == [kept, 1000, shortened, shortened]
    b.advance(30000)
    assert sorted(b.history("r")[5:]) == [
        ("removed", b"capped", 1, "expired"),
        ("removed", b"lingering", 1, "left"),
        ("removed", b"plain", 1, "expired"),
        ("removed", b"shortened", 1, "expired"),
    ]
    aftermath.check(b.server, restart=False)


@pytest.mark.server(lease={"events-maxlen": 0}, redis={"repl-diskless-sync": "yes"})
@pytest.mark.parametrize("leases", (2000, pytest.param(100000, marks=pytest.mark.load)))
def test_repl_09_diskless_load(server, leases):
    """REPL-09 Diskless load into a side database: an aborted sync leaves leases and index as they were, a whole one brings all."""
    primary = on(server)
    fill(primary, leases)
    primary.raw("EVAL", "for i = 1, 300 do redis.call('SET', 'filler' .. i, i) end", 0)
    replica = online_replica(server, redis={"repl-diskless-load": "swapdb"})
    reader = on(replica)
    before = reader("LEASE.COUNT r1")
    assert before == [leases // 10, 7]
    digest = replica.call("DEBUG DIGEST")

    server.call("CONFIG SET rdb-key-save-delay 3000")  # µs a key: the transfer takes a second
    cut(replica)
    primary("LEASE.OPEN r1 late SESSION late")
    server.call("CONFIG SET repl-backlog-size 16384")
    server.call("DEBUG CHANGE-REPL-ID")  # so that it must be a full one
    replica.call("REPLICAOF", "127.0.0.1", server.port)
    wait_until(lambda: replica.info("replication")["master_sync_in_progress"])
    assert reader("LEASE.COUNT r1") == before
    cut(replica)  # midway
    assert replica.call("DEBUG DIGEST") == digest

    server.call("CONFIG SET rdb-key-save-delay 0")
    replica.call("REPLICAOF", "127.0.0.1", server.port)
    replica.in_step()
    assert replica.call("DEBUG DIGEST") == server.call("DEBUG DIGEST")
    assert reader("LEASE.GET r1 late")["state"] == b"active"
    cut(replica)
    promote(replica)
    reader.advance(30000)
    aftermath.check(replica, restart=False)
    for room in range(10):
        removed = [event["session"] for event in reader.events(f"r{room}") if event["type"] == "removed"]
        assert len(removed) == len(set(removed)) == leases // 10 + (room == 1)


@pytest.mark.server(redis={"repl-diskless-sync": "yes"})
def test_repl_09_an_aborted_sync_and_then_promotion(server):
    """REPL-09 Diskless load into a side database: a replica whose sync was cut off is promoted, and its index works."""
    primary = on(server)
    fill(primary, 1000)
    primary.raw("EVAL", "for i = 1, 300 do redis.call('SET', 'filler' .. i, i) end", 0)
    replica = online_replica(server, redis={"repl-diskless-load": "swapdb"})
    server.call("CONFIG SET rdb-key-save-delay 3000")
    cut(replica)
    server.call("DEBUG CHANGE-REPL-ID")
    replica.call("REPLICAOF", "127.0.0.1", server.port)
    wait_until(lambda: replica.info("replication")["master_sync_in_progress"])
    promote(replica)
    reader = on(replica)
    assert sum(reader(f"LEASE.COUNT r{room}")[0] for room in range(10)) == 1000
    reader.advance(30000)
    assert replica.lease_info()["ended_expired"] == 1000
    server.call("CONFIG SET rdb-key-save-delay 0")
    aftermath.check(replica, restart=False)


def fill(client, leases):
    client.pipeline(*(f"LEASE.OPEN r{number % 10} u{number % 70} DEVICE {number} SESSION s{number}" for number in range(leases)))
