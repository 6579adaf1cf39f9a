"""OPS: gauges, settings."""

import random

import pytest

from harness import Client, Refused, Way, aftermath, rooms, wait_until
from harness.events import stream

PLAIN = Way("plain", 3)
NAMES = ("r0", "r1", "r2", "x{t}y")
DATABASES = range(3)

NUMBERS = {  # setting: default, the least it takes, another good value
    "ttl-ms": (30000, 1000, 5000),
    "ttl-min-ms": (1000, 1, 500),
    "ttl-max-ms": (3600000, 1000, 7200000),
    "disconnect-ms": (10000, 0, 7000),
    "failed-ms": (5000, 0, 4000),
    "tombstone-ms": (600000, 0, 1000),
    "precision-ms": (0, 0, 60000),
    "max-leases": (0, 0, 7),
    "max-id-bytes": (255, 0, 64),
    "max-meta-bytes": (4096, 0, 100),
    "recovery-grace-ms": (-1, -1, 5000),
    "reap-slice-us": (500, 1, 2000),
    "events-maxlen": (10000, 0, 50),
    "shared-events-maxlen": (1000000, 0, 500),
    "empty-room-ms": (3600000, 0, 1000),
    "retain-count": (10000, 0, 7),
    "retain-ms": (0, 0, 60000),
    "dedup-ms": (600000, 0, 90000),
    "max-payload-bytes": (65536, 0, 100),
    "cursor-ms": (604800000, 1, 5000),
}
WORDS = {"require-token": "no", "log-renewals": "no", "announce-messages": "no"}
PER_ROOM = {
    "ttl-ms",
    "disconnect-ms",
    "failed-ms",
    "tombstone-ms",
    "precision-ms",
    "max-leases",
    "events-maxlen",
    "require-token",
    "log-renewals",
    "retain-count",
    "retain-ms",
    "dedup-ms",
    "announce-messages",
}


def on(server, **options):
    return Client(server, PLAIN, **options)


def config(client, setting):
    return client.server.call("CONFIG", "GET", f"lease.{setting}")[f"lease.{setting}".encode()]


# -------------------------------------------------------------------- gauges


class Chaos:
    """A client that does anything at any time to a few rooms in a few databases."""

    def __init__(self, server, seed):
        self.server, self.dice, self.session = server, random.Random(seed), 0
        self.connect()
        self.server.aside |= {(db, name.encode()) for db in DATABASES for name in NAMES}

    def connect(self):
        self.clients = [on(self.server, db=db) for db in DATABASES]

    def some(self, *choices):
        return self.dice.choice(choices)

    def lease_commands(self):
        """One command of ours, with words that fit now and then."""
        room, user, device = self.some(*NAMES), self.some("u1", "u2", "u3"), self.some("d1", "d2")
        session = f"s{self.dice.randrange(max(1, self.session - 30), self.session + 2)}"
        epoch, seq = self.some(1, 2, 3, 1025, 1026), self.dice.randrange(1, 50)
        kind = self.dice.randrange(14)
        if kind > 9:
            return [self.message_command(room, user, device, session, epoch)]
        if kind < 4:
            self.session += 1
            options = self.some("", " NX", " TTL 1000", " META x", " TOKEN t")
            return [f"LEASE.OPEN {room} {user} DEVICE {device} SESSION s{self.session}{options}"]
        if kind == 4:
            return [f"LEASE.OPEN {room} {user} DEVICE {device} SESSION {session}"]
        if kind == 5:
            return [f"LEASE.RENEW {room} {session} {epoch} {seq} STATE {self.some('connected', 'disconnected', 'failed', 'closed')}"]
        if kind == 6:
            return [f"LEASE.LEAVE {room} {session} {epoch}{self.some('', ' LINGER 500')}"] * 2
        if kind == 7:
            return [f"LEASE.KICK {room} {self.some(f'USER {user}', f'DEVICE {device}')}"]
        if kind == 8:
            return [f"LEASE.REAP {room}"]
        return [f"LEASE.SETPOLICY {room} max-leases {self.some(0, 2, 'default')} tombstone-ms {self.some(0, 2000, 'default')}"]

    def message_command(self, room, user, device, session, epoch):
        id, payload = f"m{self.dice.randrange(60)}", self.some("x", "x", "y")
        return self.some(
            f"LEASE.SEND {room} {session} {epoch} {id} {payload}",
            f"LEASE.POST {room} {user} {id} {payload}",
            f"LEASE.POST {room} {user} {id} {payload}",
            f"LEASE.ACK {room} {session} {epoch} {self.dice.randrange(9)}",
            f"LEASE.MARK {room} {user} {device} QUEUED {self.dice.randrange(9)}",
            f"LEASE.HOLD {room} h{self.dice.randrange(2)}",
            f"LEASE.UNHOLD {room} h{self.dice.randrange(2)}",
            f"LEASE.UNHOLD {room} orphan",
            f"LEASE.TRIM {room}",
            f"LEASE.GRANT {room} {user} WRITE",
            f"LEASE.REVOKE {room} {user}",
            f"LEASE.GRANT {room} {user} WRITE",
            f"LEASE.SETPOLICY {room} retain-count {self.some(0, 3, 'default')} retain-ms {self.some(0, 2000)} dedup-ms {self.some(0, 5000, 'default')}",
        )

    def key_command(self):
        a, b, db = self.some(*NAMES), self.some(*NAMES), self.some(*DATABASES)
        return self.some(
            f"RENAME {a} {b}",
            f"RENAMENX {a} {b}",
            f"COPY {a} {b} DB {db} REPLACE",
            f"MOVE {a} {db}",
            f"DEL {a}",
            f"UNLINK {a}",
            f"SET {a} x",
            f"PEXPIRE {a} 1",
            "FLUSHDB",
            "FLUSHDB ASYNC",
            f"SWAPDB {db} {self.some(*DATABASES)}",
            "FLUSHALL ASYNC",
            f"SET {a} x",
            f"DEL {a} {b}",
            ["DEL", stream(a, "log")],
        )

    def step(self):
        client = self.some(*self.clients)
        if self.dice.random() < 0.06:
            client.pipeline(self.key_command())
        elif self.dice.random() < 0.1:
            self.server.advance(self.some(1, 100, 1000, 5000, 40000))
        else:
            client.pipeline(*self.lease_commands())

    def disturb(self):
        """Now and then the data is loaded anew."""
        kind = self.dice.randrange(4)
        if kind == 0:
            self.server.call("DEBUG RELOAD")
        elif kind < 3:
            self.server.rewrite_aof(self.some("yes", "no"))
            self.server.restart()
            self.connect()


@pytest.mark.parametrize("steps", (2500, pytest.param(100000, marks=pytest.mark.load)))
@pytest.mark.parametrize("seed", (1, 2, 3))
def test_ops_01_gauges(server, seed, steps):
    """OPS-01 Gauges drift: whatever happens to rooms and keys, they equal a full scan."""
    chaos, present, known = Chaos(server, seed), 0, 0
    for step in range(1, steps + 1):
        chaos.step()
        if step % 250 == 0:
            gauges_right(server, f"seed {seed}, step {step}")
            present += server.lease_info()["active_leases"]
            known += server.lease_info()["dedupe_records"]
            chaos.disturb()
            gauges_right(server, f"seed {seed}, step {step}, after a load")
    assert present > 0 and known > 0


def gauges_right(server, when):
    for db in DATABASES:  # keys with a Redis TTL are gone first
        caller = on(server, db=db)
        wait_until(lambda: all(caller.raw("PTTL", name) < 0 for name in NAMES))
    found, info = rooms.scan(server), server.lease_info()
    present = [[lease for lease in room["leases"].values() if lease["state"] != b"ended"] for room in found.values()]
    gauges = {
        "rooms": len(found),
        "active_leases": sum(map(len, present)),
        "users": sum(len({lease["user"] for lease in leases}) for leases in present),
        "tombstones": sum(len(room["leases"]) for room in found.values()) - sum(map(len, present)),
        "reap_backlog": 0,
        "dedupe_records": sum(room["stats"]["dedupe"] for room in found.values()),
        "orphan_rooms": sum(b"orphan" in room["holds"] for room in found.values()),
    }
    shown = {name: info[name] for name in gauges}
    assert shown == gauges, f"{when}: INFO {shown}, scan {gauges}"


def test_ops_01_gauges_over_a_failover(server):
    """OPS-01 Gauges drift: on a replica and after its promotion."""
    replica = server.replica()
    chaos = Chaos(server, 4)
    for _ in range(600):
        chaos.step()
    replica.in_step()
    for name in ("active_leases", "users", "rooms", "tombstones", "dedupe_records", "orphan_rooms"):
        assert replica.lease_info()[name] == server.lease_info()[name], name
    replica.call("REPLICAOF NO ONE")
    replica.primary = None
    replica.aside |= server.aside
    gauges_right(replica, "promoted")
    chaos = Chaos(replica, 5)
    for _ in range(600):
        chaos.step()
    aftermath.check(replica, restart=False)


# -------------------------------------------------------------------- settings


def test_ops_02_defaults(server):
    """OPS-02 CONFIG REWRITE and restart: the defaults, by CONFIG GET and by POLICY."""
    client = on(server)
    shown = {name: config(client, name) for name in NUMBERS | WORDS}
    assert shown == {name: str(default).encode() for name, (default, *_) in NUMBERS.items()} | {name: word.encode() for name, word in WORDS.items()}
    policy = {name.decode(): (value, own) for name, value, own in client("LEASE.POLICY r")}
    assert policy == {name: (NUMBERS[name][0] if name in NUMBERS else WORDS[name].encode(), 0) for name in PER_ROOM} | {"access": (b"open", 0)}
    assert (config(client, "events-scope"), config(client, "default-access")) == (b"room", b"open")


def test_ops_02_default_access(server):
    """OPS-02 CONFIG REWRITE and restart: `default-access` is a room's `access`, and survives both."""
    client = on(server)
    client.raw("CONFIG SET lease.default-access granted")
    client.raw("CONFIG REWRITE")
    server.restart()
    client = on(server)
    assert config(client, "default-access") == b"granted"
    assert [b"access", b"granted", 0] in client("LEASE.POLICY r")
    assert client.refusal("LEASE.OPEN r u") == "DENIED nogrant"
    assert client("LEASE.SETPOLICY r access open") == b"OK"
    assert client("LEASE.OPEN r u")["epoch"] == 1
    assert client.refusal("CONFIG SET lease.default-access closed") == "ERR"


def test_ops_02_rewrite_and_restart(server):
    """OPS-02 CONFIG REWRITE and restart: what was set is there after a restart."""
    client = on(server)
    for name, (_, _, other) in NUMBERS.items():
        client.raw("CONFIG", "SET", f"lease.{name}", other)
    for name in WORDS:
        client.raw("CONFIG", "SET", f"lease.{name}", "yes")
    client.raw("CONFIG REWRITE")
    server.restart("nosave")
    client = on(server)
    assert {name: config(client, name) for name in NUMBERS} == {name: str(other).encode() for name, (_, _, other) in NUMBERS.items()}
    assert [config(client, name) for name in WORDS] == [b"yes"] * len(WORDS)
    assert client.refusal("LEASE.OPEN r u") == "DENIED token"
    assert client("LEASE.OPEN r u TOKEN t")["ttl_ms"] == 5000
    assert client.refusal("LEASE.POST r u m1 " + "p" * 101) == "LIMIT payload"
    for number in range(30):
        client(f"LEASE.POST r u m{number} x")
    client("LEASE.TRIM r")
    assert (len(client.messages("r")), client.events("r")[-1]["type"]) == (7, "message")
    client.raw("CONFIG SET lease.precision-ms 0")


@pytest.mark.server(lease={"ttl-ms": 7000, "tombstone-ms": 2000, "require-token": "yes", "max-leases": 3})
def test_ops_02_load_arguments(server):
    """OPS-02 CONFIG REWRITE and restart: settings as load arguments."""
    client = on(server)
    assert [config(client, name) for name in ("ttl-ms", "tombstone-ms", "require-token", "max-leases")] == [b"7000", b"2000", b"yes", b"3"]
    assert client("LEASE.OPEN r u TOKEN t")["ttl_ms"] == 7000
    client.raw("CONFIG SET lease.require-token no")


@pytest.mark.parametrize(
    "argument",
    (
        "ttl-ms x",
        "ttl-ms 0",
        "no-such-setting 5",
        "ttl-ms",
        "ttl-min-ms 5000 ttl-max-ms 4000",
        "events-scope nowhere",
        "require-token maybe",
        "clock",
        "clock manual -1",
    ),
)
def test_ops_02_bad_load_arguments(start, argument):
    """OPS-02 CONFIG REWRITE and restart: a module with a bad argument is not loaded."""
    name, _, value = argument.partition(" ")
    with pytest.raises(AssertionError, match="the server ended"):
        start(clock=None, lease={name: value})


def test_ops_02_bad_values(server):
    """OPS-02 CONFIG REWRITE and restart: bad values, wrong types and edges are refused, several at once whole."""
    client = on(server)
    before = {name: config(client, name) for name in NUMBERS | WORDS}
    bad = ("", "x", "1.5", "1e3", "9223372036854775808", "-2")
    pairs = [(name, value) for name in NUMBERS for value in bad]
    pairs += [(name, least - 1) for name, (_, least, _) in NUMBERS.items()]
    pairs += [(name, value) for name in WORDS for value in ("maybe", "2", "")]
    pairs += [("ttl-ms", 3600001), ("ttl-min-ms", 3600001), ("events-scope", "tag")]
    for name, value in pairs:
        assert isinstance(client.pipeline(["CONFIG", "SET", f"lease.{name}", value])[0], Refused), (name, value)
    for together in (("ttl-ms", 5000, "failed-ms", "x"), ("failed-ms", 1, "ttl-ms", 999), ("ttl-min-ms", 4000, "ttl-max-ms", 3000)):
        words = [f"lease.{word}" if index % 2 == 0 else word for index, word in enumerate(together)]
        assert isinstance(client.pipeline(["CONFIG", "SET", *words])[0], Refused), together
    assert {name: config(client, name) for name in NUMBERS | WORDS} == before
    client.raw("CONFIG SET lease.ttl-ms 5000000 lease.ttl-min-ms 4000000 lease.ttl-max-ms 6000000")  # right together only
    assert client("LEASE.OPEN r u")["ttl_ms"] == 5000000
    client.raw("CONFIG SET lease.ttl-ms 30000 lease.ttl-min-ms 1000 lease.ttl-max-ms 3600000")


def test_ops_02_policy(client):
    """OPS-02 CONFIG REWRITE and restart: SETPOLICY is whole or nothing, `default` follows CONFIG again, live leases keep their ttl."""
    client("LEASE.OPEN r u1 SESSION a")
    assert client("LEASE.SETPOLICY r ttl-ms 5000 max-leases 7") == b"OK"
    with client.nothing_changes():
        assert client.refusal("LEASE.SETPOLICY r ttl-ms 6000 tombstone-ms x") == "ERR"
    rows = {name: (value, own) for name, value, own in client("LEASE.POLICY r")}
    assert (rows[b"ttl-ms"], rows[b"max-leases"], rows[b"tombstone-ms"]) == ((5000, 1), (7, 1), (600000, 0))
    assert client("LEASE.GET r a")["ttl_ms"] == 30000
    assert client("LEASE.RENEW r a 1 1")[1] == 30000
    assert client("LEASE.OPEN r u2")["ttl_ms"] == 5000
    client.raw("CONFIG SET lease.ttl-ms 9000")
    assert client("LEASE.OPEN r u3")["ttl_ms"] == 5000
    assert client("LEASE.SETPOLICY r TTL-MS DEFAULT max-leases default") == b"OK"
    assert all(own == 0 for _, _, own in client("LEASE.POLICY r"))
    assert client("LEASE.OPEN r u4")["ttl_ms"] == 9000
    client.raw("CONFIG SET lease.ttl-ms 30000")


def test_ops_02_a_ttl_outside_later_bounds_is_clamped(client):
    """OPS-02 CONFIG REWRITE and restart (section 3): a ttl of the room or of CONFIG is clamped when the bounds change later."""
    client("LEASE.SETPOLICY r ttl-ms 5000")
    client.raw("CONFIG SET lease.ttl-min-ms 8000")
    assert client("LEASE.OPEN r u1")["ttl_ms"] == 8000
    client.raw("CONFIG SET lease.ttl-max-ms 20000")
    assert client("LEASE.OPEN other u1")["ttl_ms"] == 20000
    client.raw("CONFIG SET lease.ttl-min-ms 1000")
    assert client("LEASE.OPEN r u2")["ttl_ms"] == 5000


# -------------------------------------------------------------------- zero


def setting_zero(client, name):
    """Sets it to 0, in the room where it can be and in CONFIG where not."""
    if name in PER_ROOM:
        return client.pipeline(f"LEASE.SETPOLICY r {name} 0")[0]
    return client.pipeline(["CONFIG", "SET", f"lease.{name}", 0])[0]


@pytest.mark.parametrize("name", ("ttl-ms", "ttl-min-ms", "ttl-max-ms", "reap-slice-us", "cursor-ms"))
def test_ops_03_no_zero(client, name):
    """OPS-03 Zero as a setting: `ttl-*`, `cursor-ms` and `reap-slice-us` are at least 1."""
    client("LEASE.OPEN r u1 SESSION a")
    with client.nothing_changes():
        assert isinstance(setting_zero(client, name), Refused)
        assert isinstance(client.pipeline(["CONFIG", "SET", f"lease.{name}", 0])[0], Refused)


@pytest.mark.parametrize("state, name", (("disconnected", "disconnect-ms"), ("failed", "failed-ms")))
def test_ops_03_at_once(client, state, name):
    """OPS-03 Zero as a setting: a time of 0 means at once."""
    setting_zero_of_room = client(f"LEASE.SETPOLICY r {name} 0")
    assert setting_zero_of_room == b"OK"
    client("LEASE.OPEN r u1 SESSION a")
    client.advance(1000)
    assert client(f"LEASE.RENEW r a 1 1 STATE {state}") == [b"shortened", 0, 1000]
    client.advance(0)
    assert client.history("r") == [("opened", b"a", 1), ("state", b"a", 1), ("removed", b"a", 1, "expired")]
    assert client.events("r")[2]["due"] == 1000


def test_ops_03_no_tombstones(client):
    """OPS-03 Zero as a setting: tombstone-ms 0 forgets an ended lease at once, and its epoch never."""
    client("LEASE.SETPOLICY r tombstone-ms 0")
    client("LEASE.OPEN r u1 SESSION a")
    assert client("LEASE.LEAVE r a 1") == b"left"
    assert client("LEASE.GET r a") is None
    assert client.refusal("LEASE.RENEW r a 1 1") == "STALE unknown"
    assert client("LEASE.OPEN r u1 SESSION b")["epoch"] == 2
    assert client("LEASE.OPEN r u1 SESSION c") | {"gen": 0} == client("LEASE.OPEN r u1 SESSION c") | {"gen": 0}
    assert client("LEASE.GET r b") is None
    client.advance(30000)
    assert client("LEASE.GET r c") is None
    assert client("LEASE.ROSTER r ENDED")["leases"] == []
    assert client("LEASE.OPEN r u1 SESSION d")["epoch"] == 4
    assert [kind for kind, *_ in client.history("r")].count("removed") == 3


@pytest.mark.server(lease={"empty-room-ms": 0, "tombstone-ms": 0})
def test_ops_03_no_empty_rooms(client):
    """OPS-03 Zero as a setting: empty-room-ms 0 removes a room with its last lease, without `closed`."""
    first = client("LEASE.OPEN r u1 SESSION a")["gen"]
    client("LEASE.LEAVE r a 1")
    client.advance(0)
    assert client.raw("EXISTS r") == 0
    assert client("LEASE.OPEN r u1 SESSION b")["gen"] != first
    client.advance(30000)
    assert client.raw("EXISTS r") == 0
    assert "closed" not in [event["type"] for event in client.events("r")]


@pytest.mark.parametrize("name", ("max-leases", "events-maxlen", "precision-ms"))
def test_ops_03_no_limit(client, name):
    """OPS-03 Zero as a setting: no limit, or exact."""
    client("LEASE.SETPOLICY r require-token no")
    assert setting_zero(client, name) == b"OK"
    for number in range(30):
        client("LEASE.OPEN", "r", f"u{number}", "SESSION", f"s{number}", "TTL", 1001)
    assert client("LEASE.COUNT r") == [30, 30]
    assert (client("LEASE.TRIM r"), client.raw("XLEN {r}:events")) == (0, 30)
    assert client("LEASE.GET r s7")["expires_at"] == 1001
    reaped, count = client.held(1001, "LEASE.REAP r", "LEASE.COUNT r")
    assert (reaped, count) == (30, [0, 0])


@pytest.mark.server(lease={"events-scope": "node", "shared-events-maxlen": 0, "events-maxlen": 1})
@pytest.mark.ways("plain-resp3")
def test_ops_03_no_limit_of_a_shared_stream(client):
    """OPS-03 Zero as a setting: shared-events-maxlen 0 keeps every event."""
    client.server.aside.add((0, b"r"))
    for number in range(300):
        client(f"LEASE.OPEN r u SESSION s{number}")
    client("LEASE.TRIM r")
    assert client.raw("XLEN lease:events") == 599


def test_ops_03_no_ids(client):
    """OPS-03 Zero as a setting: max-id-bytes 0 lets nobody in; who is there stays and renews."""
    client("LEASE.OPEN r u1 SESSION a")
    client.raw("CONFIG SET lease.max-id-bytes 0")
    with client.nothing_changes():
        assert client.refusal("LEASE.OPEN r u2") == "LIMIT id"
        assert client.refusal("LEASE.OPEN r u1") == "LIMIT id"
    assert client("LEASE.RENEW r a 1 1")[0] == b"renewed"
    client.raw("CONFIG SET lease.max-id-bytes 255")


def test_ops_03_no_meta(client):
    """OPS-03 Zero as a setting: max-meta-bytes 0 lets empty metas pass only."""
    client.raw("CONFIG SET lease.max-meta-bytes 0")
    with client.nothing_changes():
        assert client.refusal("LEASE.OPEN r u META x") == "LIMIT meta"
    assert client("LEASE.OPEN", "r", "u", "SESSION", "a", "META", "")["epoch"] == 1
    assert client("LEASE.GET r a")["meta"] == b""


@pytest.mark.parametrize("name", ("retain-count", "retain-ms"))
def test_ops_03_messages_without_limit(client, name):
    """OPS-03 Zero as a setting: a message goes by the other limit only, by neither if both are 0."""
    other, limit = {"retain-count": ("retain-ms", 5000), "retain-ms": ("retain-count", 20)}[name]
    client("LEASE.SETPOLICY r retain-count 0 retain-ms 0")
    for number in range(1, 31):
        client(f"LEASE.POST r u m{number} x")
        client.advance(200)
    assert client("LEASE.TRIM r") == 0
    client.advance(10**9)
    assert (client("LEASE.TRIM r"), len(client.messages("r"))) == (0, 30)
    client("LEASE.POST r u m31 x")
    client(f"LEASE.SETPOLICY r {other} {limit}")
    client("LEASE.TRIM r")
    assert [seq for seq, _ in client.messages("r")] == ([31] if other == "retain-ms" else list(range(12, 32)))


def test_ops_03_no_window_of_ids(client):
    """OPS-03 Zero as a setting: dedup-ms 0 knows a message's id while the message is there, and no longer."""
    client("LEASE.SETPOLICY r dedup-ms 0 retain-count 1")
    assert client("LEASE.POST r u m1 x")["seq"] == 1
    client.advance(1000)
    with client.nothing_changes():
        assert client("LEASE.POST r u m1 x")["status"] == b"duplicate"
        assert client.refusal("LEASE.POST r u m1 y") == "CONFLICT message"
    client("LEASE.POST r u m2 x")
    client("LEASE.TRIM r")
    assert [client(f"LEASE.POST r u {id} x")["status"] for id in ("m2", "m1")] == [b"duplicate", b"accepted"]
    assert client.server.lease_info()["dedupe_records"] == client("LEASE.STATS r")["dedupe"]


def test_ops_03_no_payload(client):
    """OPS-03 Zero as a setting: max-payload-bytes 0 lets empty payloads pass only."""
    client("LEASE.OPEN r u SESSION a")
    client.raw("CONFIG SET lease.max-payload-bytes 0")
    with client.nothing_changes():
        assert client.refusal("LEASE.SEND r a 1 m1 x") == client.refusal("LEASE.POST r u m1 x") == "LIMIT payload"
    assert client("LEASE.SEND", "r", "a", 1, "m1", "")["seq"] == 1
    assert client("LEASE.POST", "r", "u", "m1", "")["status"] == b"duplicate"


@pytest.mark.parametrize("name", sorted(name for name, (_, least, _) in NUMBERS.items() if least <= 0 and name != "max-id-bytes"))
def test_ops_03_no_other_check_is_off(client, name):
    """OPS-03 Zero as a setting: no zero switches off another check; reads and REAP stay right."""
    client("LEASE.SETPOLICY r require-token no")
    assert setting_zero(client, name) == b"OK"
    client.raw("CONFIG SET lease.max-id-bytes 10")
    client("LEASE.OPEN r u1 SESSION bound TOKEN s3cret TTL 2000")
    assert client.refusal("LEASE.OPEN r elevenbytes") == "LIMIT id"
    assert client.refusal("LEASE.OPEN r u TTL 999") == "ERR"
    assert client.refusal("LEASE.RENEW r bound 1 1") == "DENIED token"
    assert client.refusal("LEASE.RENEW r bound 2 1 TOKEN s3cret") == "STALE unknown"
    assert client.refusal("LEASE.OPEN r u1 SESSION other NX") == "HELD 2000"
    assert client.refusal("LEASE.OPEN r u2 SESSION bound TOKEN s3cret") == "CONFLICT session"
    assert client("LEASE.RENEW r bound 1 1 TOKEN s3cret") == [b"renewed", 2000, 2000]
    assert client("LEASE.RENEW r bound 1 1 TOKEN s3cret")[0] == b"duplicate"
    assert client.refusal("LEASE.SEND", "r", "bound", 1, "elevenbytes", "", "TOKEN", "s3cret") == "LIMIT id"
    assert client.refusal("LEASE.SEND", "r", "bound", 1, "m1", "") == "DENIED token"
    assert client.refusal("LEASE.SEND", "r", "bound", 2, "m1", "", "TOKEN", "s3cret") == "STALE unknown"
    assert client("LEASE.SEND", "r", "bound", 1, "m1", "", "TOKEN", "s3cret")["seq"] == 1
    assert client("LEASE.SEND", "r", "bound", 1, "m1", "", "TOKEN", "s3cret")["status"] == b"duplicate"
    assert client.refusal("LEASE.ACK r bound 1 2 TOKEN s3cret") == "ERR"
    reaped, count, roster = client.held(2000, "LEASE.REAP r", "LEASE.COUNT r", "LEASE.ROSTER r")
    assert (reaped, count, roster["leases"]) == (1, [0, 0], [])
    client.raw("CONFIG SET lease.max-id-bytes 255")
