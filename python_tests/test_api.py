"""API: module interface, memory, ACL, cluster, clients."""

import subprocess
import threading
from contextlib import contextmanager

import pytest
import redis

from harness import Client, Refused, Server, Way, wait_until
from harness import process
from harness.events import stream
from harness.replies import normal
from harness.resp import Connection

PLAIN = Way("plain", 3)
EV = "{r}:events"
# One good call of each command on a room, in an order in which all of them work.
CALLS = {
    "open": "LEASE.OPEN # u1 SESSION a", "renew": "LEASE.RENEW # a 1 1 STATE failed META x", "mrenew": "LEASE.MRENEW # a 1 2", "get": "LEASE.GET # a",
    "roster": "LEASE.ROSTER # ENDED", "count": "LEASE.COUNT #", "inspect": "LEASE.INSPECT #", "policy": "LEASE.POLICY #",
    "setpolicy": "LEASE.SETPOLICY # ttl-ms 5000", "leave": "LEASE.LEAVE # a 1", "kick": "LEASE.KICK # USER u1", "reap": "LEASE.REAP #",
    "grant": "LEASE.GRANT # u1 WRITE", "grants": "LEASE.GRANTS #", "revoke": "LEASE.REVOKE # u2"}
ROOMLESS = {"clock": "LEASE.CLOCK GET", "help": "LEASE.HELP"}
READS = {"get", "roster", "count", "inspect", "policy", "grants"}
DENYOOM = {"open", "setpolicy", "grant"}
DANGEROUS = {"setpolicy", "kick", "clock", "grant", "revoke"}


def on(server, way=PLAIN):
    return Client(server, way)


def call(name, room):
    return [room if word == "#" else word for word in CALLS[name].split()]


# -------------------------------------------------------------------- the module in the server

@contextmanager
def slow_load(server):
    """A connection to the server while it loads its data; it answers between the keys, which take a millisecond each."""
    server.set(key_load_delay=1000, loading_process_events_interval_bytes=1024)
    starter = threading.Thread(target=server.start)
    starter.start()

    def loading():
        try:
            connection = Connection(server.port)
            return connection if b"loading:1" in connection("INFO persistence") else None
        except (redis.ConnectionError, OSError):
            return None
    connection = wait_until(loading)
    yield connection
    connection.close()
    starter.join()
    server.set(key_load_delay=0)


def fillers(server, number):
    server.call("EVAL", "for i = 1, ARGV[1] do redis.call('SET', 'filler' .. i, string.rep('x', 100)) end", 0, number)


@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1, "reap-slice-us": 50})
def test_api_01_unload(server):
    """API-01 MODULE UNLOAD with a live timer: refused with and without rooms, while reaping and while loading."""
    client = on(server)

    def refused():
        with pytest.raises(Refused, match="Error unloading module"):
            server.call("MODULE UNLOAD lease")
    refused()
    client("LEASE.OPEN r u1 SESSION a")
    refused()
    client.pipeline(*(f"LEASE.OPEN r u2 DEVICE {number} TTL {500 + number // 2}" for number in range(3000)))
    wait_until(lambda: 0 < server.lease_info()["ended_expired"] < 3000)
    refused()
    wait_until(lambda: client("LEASE.COUNT r") == [1, 1])
    wait_until(lambda: len(client.events("r")) == 6001)
    fillers(server, 500)
    server.stop("save")
    with slow_load(server) as connection:
        with pytest.raises((redis.exceptions.BusyLoadingError, Refused)):
            connection("MODULE UNLOAD lease")
    refused()
    assert on(server)("LEASE.RENEW r a 1 1")[0] == b"renewed"


class ByCommandLine(Server):
    def load_line(self):
        return ""

    def start(self):
        words = super().load_line().split()[1:]
        self.process = subprocess.Popen([process.EXECUTABLE, self.config, "--loadmodule", *words], stdout=subprocess.DEVNULL, cwd=self.path)
        wait_until(self.answers, 30)
        self.call = self.connect()


class ByCommand(Server):
    def load_line(self):
        return ""

    def start(self):
        super().start()
        self.call("MODULE", "LOAD", *super().load_line().split()[1:])


@pytest.mark.parametrize("kind, options", (
    (Server, {}), (ByCommandLine, {}), (ByCommand, {}), (Server, {"cluster-enabled": "yes"})),
    ids=("config-file", "command-line", "command", "cluster-node"))
@pytest.mark.no_restart("not every way of loading is in the configuration file")
def test_api_02_starting_the_timer(start, request, kind, options):
    """API-02 Starting the timer: however the module came in, leases run out by themselves, once."""
    server = kind(clock=None, lease={"ttl-min-ms": 1}, redis=options)
    request.node.servers.append(server)
    if options:
        server.call("CLUSTER ADDSLOTSRANGE 0 16383")
        wait_until(lambda: b"cluster_state:ok" in server.call("CLUSTER INFO"))
    client = on(server)
    for room in ("r", "x{t}y"):
        client("LEASE.OPEN", room, "u1", "SESSION", "a", "TTL", 50)
    for room in ("r", "x{t}y"):
        wait_until(lambda: client.raw("XLEN", stream(room)) == 2, 5)
        opened, removed = client.events(room)
        assert (removed["reason"], removed["due"]) == ("expired", opened["expires_at"])
        assert 0 <= removed["lag_ms"] < 500


@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1, "recovery-grace-ms": 0})
def test_api_02_with_data_to_load(server):
    """API-02 Starting the timer: with an RDB to load it does nothing until that is done, then it catches up."""
    client = on(server)
    client.pipeline(*(f"LEASE.OPEN r{number} u SESSION a TTL 100" for number in range(50)))
    fillers(server, 500)
    server.stop("save")
    with slow_load(server) as connection:
        for _ in range(20):
            info = connection("INFO persistence lease")
            if b"loading:1" in info:
                assert b"lease_ended_expired:0" in info
    client = on(server)
    for number in range(50):
        wait_until(lambda: client.raw("XLEN", stream(f"r{number}")) == 2, 5)
    assert server.lease_info()["ended_expired"] == 50


@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1})
def test_api_02_on_a_replica(server):
    """API-02 Starting the timer: on a replica it waits for its turn."""
    replica = server.replica()
    server.call("CLIENT PAUSE 60000 WRITE")
    replica.call("REPLICAOF NO ONE")
    replica.primary = None
    client = on(replica)
    client("LEASE.OPEN r u SESSION a TTL 50")
    wait_until(lambda: len(client.events("r")) == 2, 5)
    server.call("CLIENT UNPAUSE")


# -------------------------------------------------------------------- memory

@pytest.mark.server(lease={"events-maxlen": 1})
@pytest.mark.parametrize("options", ((), ("META", "m" * 300, "TOKEN", "t")), ids=("plain", "meta"))
def test_api_03_memory(server, options):
    """API-03 Memory accounting: MEMORY USAGE of leases, then of tombstones, is what used_memory shows, within a quarter."""
    client = on(server)
    client("LEASE.OPEN other u")
    server.lease_info()  # what the module keeps for itself is there once a room is, and it has been asked
    empty = server.info("memory")["used_memory"]

    def agree():
        client.raw("DEL", EV)
        grown, told = server.info("memory")["used_memory"] - empty, client.raw("MEMORY USAGE r SAMPLES 0")
        assert abs(grown - told) < grown / 4, f"used_memory {grown}, MEMORY USAGE {told}"
        return grown
    filling = client.another()
    for batch in range(10):
        filling.pipeline(*(["LEASE.OPEN", "r", f"user-{batch}-{number}", *options] for number in range(1000)))
    filling.connection.close()
    wait_until(lambda: server.info("clients")["connected_clients"] <= 3)
    full = agree()
    client.advance(30000)
    agree()
    client.advance(600000)
    client.raw("DEL", EV)
    assert server.info("memory")["used_memory"] - empty < full / 4


# -------------------------------------------------------------------- who learns of a change

class CachingClient:
    """Reads room r with CLIENT TRACKING; calling it tells whether the room was invalidated since, and reads it again."""

    def __init__(self, server):
        self.heard, self.reader = server.connect(protocol=2), server.connect(protocol=2)
        id = self.heard("CLIENT ID")
        self.heard("SUBSCRIBE __redis__:invalidate")
        self.reader("CLIENT", "TRACKING", "ON", "REDIRECT", id)
        self()

    def __call__(self):
        self.heard.send([["PING"]])
        messages = []
        while (reply := self.heard.read())[0] != b"pong":
            messages.append(reply[2])
        self.reader("LEASE.GET r a")
        return messages


def test_api_04_client_side_caching(client):
    """API-04 WATCH and client-side caching: one invalidation a change, those by time included; none for heartbeats and duplicates."""
    client("LEASE.OPEN r u1 SESSION a")
    changed = CachingClient(client.server)
    for command, invalidated in (
            ("OPEN r u2 SESSION b", 1), ("OPEN r u2 SESSION b", 0), ("RENEW r a 1 1", 0), ("RENEW r a 1 1", 0), ("MRENEW r a 1 2 b 1 1", 0),
            ("RENEW r a 1 3 META x", 1), ("RENEW r a 1 4 META x", 0), ("RENEW r a 1 5 STATE failed", 1), ("RENEW r a 1 1 META y", 0),
            ("RENEW r a 9 9", 0), ("LEAVE r b 1", 1), ("LEAVE r b 1", 0), ("SETPOLICY r ttl-ms 5000", 1), ("GET r a", 0), ("ROSTER r", 0),
            ("REAP r", 0), ("KICK r USER nobody", 0), ("OPEN r u3 SESSION c", 1), ("KICK r USER u3", 1)):
        client.pipeline("LEASE." + command)
        assert changed() == [[b"r"]] * invalidated, command
    client("LEASE.OPEN r u4 SESSION d")
    assert changed() == [[b"r"]]
    client.advance(5000)
    assert changed() == [[b"r"]]
    client.advance(0)
    assert changed() == []


def test_api_04_watch(client):
    """API-04 WATCH and client-side caching: a removal by the reaper fails the transaction that watches, a heartbeat does not."""
    client("LEASE.OPEN r u1 SESSION a")
    watcher = client.server.connect(protocol=2)

    def succeeds_after(change):
        watcher("WATCH r")
        change()
        return watcher.pipeline(["MULTI", "SET x y", "EXEC"])[2] is not None
    assert succeeds_after(lambda: client("LEASE.RENEW r a 1 1"))
    assert succeeds_after(lambda: client("LEASE.RENEW r a 1 1"))
    assert succeeds_after(lambda: client("LEASE.GET r a"))
    assert not succeeds_after(lambda: client("LEASE.OPEN r u2 TTL 60000"))
    assert not succeeds_after(lambda: client.advance(30000))
    assert client("LEASE.GET r a")["reason"] == b"expired"
    assert succeeds_after(lambda: client.advance(10))


@pytest.mark.ways("plain-resp2", "plain-resp3")
def test_api_05_out_of_memory(client):
    """API-05 Out of memory: what would take memory is refused whole, all that renews or ends a lease works, events included."""
    for name in "abcde":
        client("LEASE.OPEN", "r", f"u{name}", "SESSION", name)
    client("LEASE.RENEW r a 1 1")
    client.raw("CONFIG SET maxmemory 1")
    with client.nothing_changes():
        for command in ("OPEN r new SESSION new", "OPEN new new", "OPEN r ua SESSION again", "SETPOLICY r ttl-ms 5000", "GRANT r ua READ", "GRANT new ua READ",
                        "RENEW r a 1 2 META x",
                        "RENEW r a 1 2 STATE failed META x"):
            assert client.refusal("LEASE." + command) == "OOM", command
        with pytest.raises(Refused, match="OOM"):
            client.transaction("LEASE.OPEN r new SESSION new")
    assert client("LEASE.RENEW r a 1 2")[0] == b"renewed"
    assert client("LEASE.RENEW r b 1 1 STATE connected OBSERVED 5 TTL 60000")[0] == b"renewed"
    assert client("LEASE.MRENEW r a 1 3") == [[b"renewed", 30000]]
    assert client("LEASE.LEAVE r c 1") == b"left"
    assert client("LEASE.KICK r USER ud") == 1
    assert client("LEASE.REVOKE r ud") == [b"ok", 0]
    assert client("LEASE.RENEW r e 1 1 STATE disconnected")[0] == b"shortened"
    assert client.raw("EVAL", "redis.call('LEASE.CLOCK', 'ADVANCE', 10000) return redis.call('LEASE.REAP', 'r')", 0) == 1
    client.advance(20000)
    assert client.history("r")[5:] == [
        ("state", b"b", 1), ("removed", b"c", 1, "left"), ("removed", b"d", 1, "kicked"), ("grant-revoked",), ("state", b"e", 1), ("removed", b"e", 1, "expired"),
        ("removed", b"a", 1, "expired")]
    client.raw("CONFIG SET maxmemory 0")
    assert client("LEASE.OPEN r new SESSION new")["epoch"] == 1
    assert client("LEASE.RENEW r b 1 2 META x")[0] == b"renewed"
    assert client("LEASE.SETPOLICY r ttl-ms 5000") == b"OK"
    assert client("LEASE.GRANT r ud READ") == b"ok"


# -------------------------------------------------------------------- ACL

def as_user(server, *rules):
    server.call("ACL", "SETUSER", "someone", "reset", "on", ">pass", *rules)
    return Client(server, PLAIN, username="someone", password="pass")


def test_api_06_keys(server):
    """API-06 ACL: a user of `~room:1*` reaches those rooms, with what the module itself writes beside them, and no other."""
    client, narrow = on(server), as_user(server, "~room:1*", "+@all")
    client("LEASE.OPEN room:2 u1 SESSION a")
    with client.nothing_changes():
        for name in CALLS:
            assert narrow.refusal(*call(name, "room:2")) == "NOPERM", name
            assert b"has no permissions" in client.raw("ACL", "DRYRUN", "someone", *call(name, "room:2")), name
    for name in CALLS:
        assert client.raw("ACL", "DRYRUN", "someone", *call(name, "room:1")) == b"OK"
        narrow(*call(name, "room:1"))
    assert [event["type"] for event in client.events("room:1")] == ["opened", "state", "updated", "removed", "granted", "grant-revoked"]

    rooms = [b"room:1", b"room:2"]
    for odd in ("room:1}{room:2", "room:1{room:2}", "room:1}x", "room:1{", "room:1{}", "room:1:events:x", "room:1\x00room:2", "room:1 room:2"):
        narrow("LEASE.OPEN", odd, "u", "SESSION", "a")
        rooms.append(odd.encode())
    assert set(client.raw("KEYS *")) == {key for room in rooms for key in (room, stream(room))}


def test_api_06_reading(server):
    """API-06 ACL: a user of `%R~room:1*` reads, and writes nothing."""
    client, reader = on(server), as_user(server, "%R~room:1*", "+@all")
    client("LEASE.OPEN room:1 u1 SESSION a")
    with client.nothing_changes():
        for name in CALLS:
            if name in READS:
                reader(*call(name, "room:1"))
            else:
                assert reader.refusal(*call(name, "room:1")) == "NOPERM", name


def test_api_06_dangerous(server):
    """API-06 ACL: SETPOLICY, GRANT, REVOKE, KICK and CLOCK are @dangerous, the others are not; all are in @lease where that can be."""
    client = on(server)
    if server.info("server")["redis_version"].startswith("7.0."):
        pytest.skip("Redis 7.0 lets a module choose no ACL categories")
    mild = as_user(server, "~*", "+@all", "-@dangerous")
    for name in CALLS:
        if name not in DANGEROUS:
            mild(*call(name, "r"))
    with client.nothing_changes():
        for name in DANGEROUS - ROOMLESS.keys():
            assert mild.refusal(*call(name, "r")) == "NOPERM", name
        assert mild.refusal("LEASE.CLOCK ADVANCE 1000") == "NOPERM"
    every = {f"lease.{name}".encode() for name in CALLS | ROOMLESS}
    assert every & set(client.raw("ACL CAT dangerous")) == {f"lease.{name}".encode() for name in DANGEROUS}
    if b"lease" in client.raw("ACL CAT"):
        assert set(client.raw("ACL CAT lease")) >= every


# -------------------------------------------------------------------- what the server knows of the commands

def test_api_09_metadata(server):
    """API-09 Routing metadata: flags, key positions and documentation of every command."""
    client = on(server)
    for name in CALLS | ROOMLESS:
        info, = client.raw("COMMAND", "INFO", f"lease.{name}")
        flags, keys, specs = set(info[2]), info[3:6], info[8]
        assert (b"readonly" in flags, b"denyoom" in flags) == (name in READS, name in DENYOOM), name
        assert (b"write" in flags) == (name in CALLS.keys() - READS), name
        docs = client.raw("COMMAND", "DOCS", f"lease.{name}")[f"lease.{name}".encode()]
        assert all(docs[field] for field in (b"summary", b"since", b"group", b"complexity")), name
        if name in ROOMLESS:
            assert (keys, specs) == ([0, 0, 0], [])
            continue
        assert keys == [1, 1, 1]
        assert docs[b"arguments"][0][b"type"] == b"key"
        spec, = specs
        assert (b"RO" in spec[b"flags"]) == (name in READS), name
        assert client.raw("COMMAND", "GETKEYS", *call(name, "some{where}room")) == [b"some{where}room"]
    for name in ("renew", "get", "count"):
        assert b"fast" in client.raw("COMMAND", "INFO", f"lease.{name}")[0][2], name


def test_api_09_replicas_follow(client):
    """API-09 Routing metadata: the replica's digest after each command."""
    replica = client.server.replica()
    for name in CALLS:
        client(*call(name, "r"))
        replica.in_step()
        assert replica.call("DEBUG DIGEST") == client.raw("DEBUG DIGEST"), name


@pytest.mark.no_restart("a restarted node waits for its cluster")
def test_api_09_cluster_client(start):
    """API-09 Routing metadata: a cluster client finds the room's node by what COMMAND tells."""
    server = start(redis={"cluster-enabled": "yes"})
    server.call("CLUSTER ADDSLOTSRANGE 0 16383")
    wait_until(lambda: b"cluster_state:ok" in server.call("CLUSTER INFO"))
    cluster = redis.RedisCluster(host="127.0.0.1", port=server.port)
    try:
        for room in ("r", "x{t}y"):
            for name in CALLS:
                cluster.execute_command(*call(name, room))
            assert [event["type"] for event in on(server).events(room)] == ["opened", "state", "updated", "removed", "granted", "grant-revoked"]
    finally:
        cluster.close()


# -------------------------------------------------------------------- shapes of replies

def shape(reply):
    """What a reply is made of: of a map its fields with theirs, of a list its members."""
    if isinstance(reply, dict):
        return {field.decode() if isinstance(field, bytes) else field: shape(value) for field, value in reply.items()}
    if isinstance(reply, list):
        return [shape(part) for part in reply]
    return type(reply).__name__


INT, BYTES, NIL = "int", "bytes", "NoneType"
OPENED = {"session": BYTES, "epoch": INT, "user_leases": INT, "ttl_ms": INT, "heartbeat_ms": INT, "left_ms": INT, "expires_at": INT, "now": INT,
          "replaced": NIL, "gen": BYTES, "log_seq": INT, "log_oldest": INT, "event_n": INT, "acked": INT}
LEASE = {"session": BYTES, "user": BYTES, "device": BYTES, "epoch": INT, "seq": INT, "state": BYTES, "reason": NIL, "signal": NIL, "ttl_ms": INT,
         "left_ms": INT, "expires_at": INT, "opened_at": INT, "heartbeat_at": INT, "observed_at": NIL, "ended_at": NIL, "replaced_by": NIL, "meta": NIL}
ROSTER = {"cursor": INT, "now": INT, "gen": BYTES, "event_n": INT, "leases": []}
GRANT = {"user": BYTES, "level": BYTES, "until": INT, "version": INT, "token": INT, "revoked": INT, "devices": []}


def flat(fields):
    """A map as RESP2 has it."""
    return [part for field, kind in fields.items() for part in (BYTES, flat(kind) if isinstance(kind, dict) else kind)]


def either(fields):
    """The shape in RESP2 and in RESP3."""
    return flat(fields), fields


def test_api_10_shapes(server):
    """API-10 RESP2 and RESP3 shapes: no room, one lease, many; maps or flat arrays of the same fields, pinned."""
    both = server.connect(2), server.connect(3)

    def shapes(command):
        return tuple(shape(connection(command)) for connection in both)
    nothing = (NIL, NIL)
    assert shapes("LEASE.GET r a") == shapes("LEASE.INSPECT r") == nothing
    assert shapes("LEASE.ROSTER r") == either(ROSTER | {"gen": NIL})
    assert (shape(both[0]("LEASE.OPEN one u SESSION a")), shape(both[1]("LEASE.OPEN one u2 SESSION b"))) == either(OPENED)
    assert shapes("LEASE.GET one a") == either(LEASE)
    assert shapes("LEASE.GET one nobody") == nothing
    for session in "ab":
        both[0](f"LEASE.RENEW one {session} 1 1 STATE connected META x OBSERVED 5")
    full = LEASE | {"signal": BYTES, "meta": BYTES, "observed_at": INT}
    assert shapes("LEASE.GET one a") == either(full)
    assert shapes("LEASE.ROSTER one") == (flat(ROSTER)[:-1] + [[flat(full)] * 2], ROSTER | {"leases": [full] * 2})
    assert both[0]("LEASE.OPEN one u SESSION c")[17] == both[1]("LEASE.OPEN one u SESSION c")[b"replaced"] == b"a"
    assert shapes("LEASE.GRANTS one") == either({"cursor": INT, "grants": []})
    both[0]("LEASE.GRANT one u READ UNTIL 9000000000000 VERSION 1")
    assert shapes("LEASE.GRANTS one") == (flat({"cursor": INT, "grants": []})[:-1] + [[flat(GRANT)]], {"cursor": INT, "grants": [GRANT]})
    ended = full | {"reason": BYTES, "ended_at": INT, "replaced_by": INT}
    assert shapes("LEASE.GET one a") == either(ended)
    assert shapes("LEASE.INSPECT one") == shapes("LEASE.INSPECT one SESSION a") == (BYTES, BYTES)
    for command in ("LEASE.COUNT one", "LEASE.POLICY one", "LEASE.MRENEW one a 1 1 b 1 1", "LEASE.RENEW one b 1 1", "LEASE.HELP"):
        assert both[0](command) == both[1](command), command
    assert all(shape(row) in ([BYTES, INT, INT], [BYTES, BYTES, INT]) for row in both[0]("LEASE.POLICY one"))
    assert shape(both[0]("LEASE.MRENEW one b 1 1 a 1 1")) == [[BYTES, INT], [BYTES, BYTES]]
    assert shape(both[0]("LEASE.RENEW one b 1 1")) == [BYTES, INT, INT]


def test_api_10_the_same_content(client):
    """API-10 RESP2 and RESP3 shapes: an empty room and one of many leases read the same in either protocol and in a script."""
    client("LEASE.SETPOLICY empty tombstone-ms 5000")
    for number in range(150):
        client("LEASE.OPEN", "many", f"u{number % 20}", "DEVICE", f"d{number}", "SESSION", f"s{number}")
    plain = client.server.connect(3)
    for command in ("LEASE.ROSTER empty", "LEASE.COUNT empty", "LEASE.INSPECT empty", "LEASE.POLICY empty", "LEASE.GET empty a", "LEASE.ROSTER many",
                    "LEASE.ROSTER many COUNT 7 USER u3", "LEASE.COUNT many", "LEASE.INSPECT many COUNT 10000", "LEASE.GET many s7"):
        assert client(command) == normal(command.split(), plain(command)), command


def test_api_10_no_room(client):
    """API-10 RESP2 and RESP3 shapes: what each command answers where there is no room."""
    with client.nothing_changes():
        assert client("LEASE.GET r a") is client("LEASE.INSPECT r") is client("LEASE.INSPECT r SESSION a") is None
        assert client("LEASE.COUNT r") == [0, 0]
        assert client("LEASE.ROSTER r") == {"cursor": 0, "now": 0, "gen": None, "event_n": 0, "leases": []}
        policy = client("LEASE.POLICY r")
        assert [b"ttl-ms", 30000, 0] in policy and all(own == 0 for _, _, own in policy)
        assert client("LEASE.GRANTS r") == {"cursor": 0, "grants": []}
        assert client("LEASE.KICK r USER u") == client("LEASE.REAP r") == 0
        assert client("LEASE.LEAVE r a 1") == client("LEASE.LEAVE r a 1 LINGER 5") == b"gone"
        assert client("LEASE.RENEW r a 1 1 STATE closed") == [b"gone", 0, 0]
        assert client.refusal("LEASE.RENEW r a 1 1") == "STALE unknown"
        assert client("LEASE.MRENEW r a 1 1") == [[b"stale", b"unknown"]]


# -------------------------------------------------------------------- clients that resend

def cut_off(server, *command):
    """The command is executed and its reply never arrives."""
    connection = Connection(server.port)
    calls = server.info("commandstats").get(f"cmdstat_{command[0].lower()}", "")
    connection.send([list(command)])
    wait_until(lambda: server.info("commandstats").get(f"cmdstat_{command[0].lower()}", "") != calls)
    connection.close()


def test_api_11_the_client_resends(client):
    """API-11 The client resends after reconnecting: at once, and a minute later; no second event."""
    resent = client.another()
    steps = (
        (["LEASE.OPEN", "r", "u1", "SESSION", "a", "META", "x"], lambda reply: reply["epoch"] == 1 and reply["event_n"] == 1),
        (["LEASE.RENEW", "r", "a", "1", "1", "STATE", "failed", "META", "y"], lambda reply: reply[0] == b"duplicate"),
        (["LEASE.MRENEW", "r", "a", "1", "2"], lambda reply: reply == [[b"duplicate", 30000]]),
        (["LEASE.LEAVE", "r", "a", "1"], lambda reply: reply == b"gone"),
        (["LEASE.KICK", "r", "USER", "u1"], lambda reply: reply == 0),
        (["LEASE.GRANT", "r", "u2", "READ", "TOKEN", "s3cret"], lambda reply: reply == b"ok"),
        (["LEASE.REVOKE", "r", "u2"], lambda reply: reply == [b"ok", 0]),
        (["LEASE.GRANT", "r", "u3", "READ", "VERSION", "5"], lambda reply: reply == b"stale"),
        (["LEASE.REVOKE", "r", "u3", "VERSION", "6"], lambda reply: reply == [b"stale", 0]))
    for command, right in steps:
        cut_off(client.server, *command)
        with client.nothing_changes():
            reply = resent(*command)
        assert right(reply), f"{command}: {reply}"
    assert client.history("r") == [("opened", b"a", 1), ("state", b"a", 1), ("updated", b"a", 1), ("removed", b"a", 1, "left"),
                                   ("granted",), ("grant-revoked",), ("granted",), ("grant-revoked",)]


def test_api_11_resent_a_minute_later(client):
    """API-11 The client resends after reconnecting: when the lease has run out meanwhile, it learns so, and nothing happens."""
    client("LEASE.OPEN r u1 SESSION a")
    client("LEASE.RENEW r a 1 1")
    client.advance(60000)
    with client.nothing_changes():
        assert client.refusal("LEASE.OPEN r u1 SESSION a") == "STALE expired"
        assert client.refusal("LEASE.RENEW r a 1 1") == "STALE expired"
        assert client("LEASE.MRENEW r a 1 1") == [[b"stale", b"expired"]]
        assert client("LEASE.LEAVE r a 1") == b"gone"
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "expired")]
