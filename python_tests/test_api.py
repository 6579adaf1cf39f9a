"""API: module interface, memory, ACL, cluster, clients."""

import threading
from contextlib import contextmanager
from subprocess import DEVNULL

import pytest
import redis

from harness import Client, Refused, Server, Way, process, wait_until
from harness.events import stream
from harness.resp import Connection

PLAIN = Way("plain", 3)
EV = "{r}:events"
# One good call of each command on a room, in an order in which all of them work.
CALLS = {
    "open": "LEASE.OPEN # u1 SESSION a",
    "renew": "LEASE.RENEW # a 1 1 STATE failed META x",
    "mrenew": "LEASE.MRENEW # a 1 2",
    "get": "LEASE.GET # a",
    "send": "LEASE.SEND # a 1 m1 x",
    "replay": "LEASE.REPLAY # a 1 * 0",
    "snapshot": "LEASE.SNAPSHOT # a 1",
    "ack": "LEASE.ACK # a 1 1",
    "roster": "LEASE.ROSTER # ENDED",
    "count": "LEASE.COUNT #",
    "inspect": "LEASE.INSPECT #",
    "policy": "LEASE.POLICY #",
    "setpolicy": "LEASE.SETPOLICY # ttl-ms 5000",
    "leave": "LEASE.LEAVE # a 1",
    "kick": "LEASE.KICK # USER u1",
    "reap": "LEASE.REAP #",
    "grant": "LEASE.GRANT # u1 WRITE",
    "grants": "LEASE.GRANTS #",
    "revoke": "LEASE.REVOKE # u2",
    "post": "LEASE.POST # u1 posted x",
    "mark": "LEASE.MARK # u1 default QUEUED 1",
    "lag": "LEASE.LAG #",
    "hold": "LEASE.HOLD # h",
    "holds": "LEASE.HOLDS #",
    "stats": "LEASE.STATS #",
    "trim": "LEASE.TRIM #",
    "unhold": "LEASE.UNHOLD # h",
}
ROOMLESS = {"clock": "LEASE.CLOCK GET", "help": "LEASE.HELP"}
READS = {"get", "roster", "count", "inspect", "policy", "grants", "replay", "snapshot", "lag", "holds", "stats"}
DENYOOM = {"open", "setpolicy", "grant", "send", "post"}
DANGEROUS = {"setpolicy", "kick", "clock", "grant", "revoke", "hold", "unhold", "trim", "post"}
EVENTS = ["opened", "state", "updated", "removed", "granted", "grant-revoked"]  # what all the calls leave behind


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
        self.process = self.launched([process.EXECUTABLE, self.config, "--loadmodule", *words], stdout=DEVNULL)
        wait_until(self.answers, 30)
        self.call = self.connect()


class Bare(Server):
    """A server that runs before the module is in it."""

    def load_line(self):
        return ""

    def load(self, *arguments):
        return self.call("MODULE", "LOAD", *super().load_line().split()[1:], *arguments)


class ByCommand(Bare):
    def start(self):
        super().start()
        self.load()


@pytest.mark.no_restart("the module is not in the configuration file")
def test_api_01_refused_at_load(start, request):
    """API-01 MODULE UNLOAD with a live timer: a module that was not taken in leaves nothing in the server, however often it is tried."""
    server = Bare(clock=None)
    request.node.servers.append(server)

    def memory_after(tries):
        for _ in range(tries):
            with pytest.raises(Refused, match="Error loading the extension"):
                server.load("ttl-ms", "x")
        return server.info("memory")["used_memory"]

    warm = memory_after(10)
    assert memory_after(100) - warm < 65536
    assert server.load() == b"OK"


@pytest.mark.no_restart("the module is not in the configuration file at first")
@pytest.mark.parametrize("how", ("MODULE LOAD", "MODULE LOADEX"))
def test_api_01_into_a_running_server(start, request, how):
    """API-01 MODULE UNLOAD with a live timer: a misspelt setting is refused, told in the log, and leaves the server as it was."""
    server = Bare(clock=None)
    request.node.servers.append(server)
    words = [*how.split(), str(process.MODULE), *(["ARGS"] if how.endswith("EX") else [])]
    server.call("SET plain 1")
    for arguments, reason in (
        (("ttl", "20000"), "unknown argument ttl"),
        (("lease.ttl-ms", "20000"), "unknown argument lease.ttl-ms; `lease.` stands before a setting in the server's file alone"),
        (("ttl-ms", "20s"), "ttl-ms: value is not an integer or out of range"),
        (("ttl-ms",), "ttl-ms has no value"),
        (("ttl-ms", "500"), "ttl-ms must lie within ttl-min-ms and ttl-max-ms"),
        (("events-scope", "all"), "events-scope: value must be room, tag or node"),
        (("default-access", "no"), "default-access: value must be open or granted"),
    ):
        with pytest.raises(Refused, match="Error loading the extension"):
            server.call(*words, *arguments)
        assert f"not loaded: {reason}" in server.log()
    assert b"lease" not in {module[b"name"] for module in server.call("MODULE LIST")}
    assert server.call(*words, "ttl-ms", "20000") == b"OK"
    server.call("CONFIG REWRITE")
    server.call("LEASE.OPEN r u1 SESSION a")
    server.stop("save")
    server.start()
    assert (server.call("GET plain"), server.call("LEASE.OPEN r u1 SESSION b")[b"ttl_ms"]) == (b"1", 20000)


@pytest.mark.parametrize(
    "kind, options",
    ((Server, {}), (ByCommandLine, {}), (ByCommand, {}), (Server, {"cluster-enabled": "yes"})),
    ids=("config-file", "command-line", "command", "cluster-node"),
)
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
    fillers(server, 500)
    client.pipeline(*(f"LEASE.OPEN r{number} u SESSION a TTL 300" for number in range(50)))
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


class Account:
    """Holds MEMORY USAGE of room r to what `used_memory` has grown by, within a quarter."""

    def __init__(self, client):
        self.client = client
        client("LEASE.OPEN other u")
        client.server.lease_info()  # what the module keeps for itself is there once a room is, and it has been asked
        self.empty = self.used()

    def used(self):
        self.client.raw("DEL", EV, "{r}:log")
        return self.client.server.info("memory")["used_memory"]

    def fill(self, commands):
        """Many commands by a connection that is gone afterwards, buffers and all; then the room's memory."""
        filling = self.client.another()
        for batch in range(10):
            filling.pipeline(*commands[batch::10])
        filling.connection.close()
        wait_until(lambda: self.client.server.info("clients")["connected_clients"] <= 3)
        return self.agrees()

    def agrees(self):
        grown = self.used() - self.empty
        told = self.client.raw("MEMORY USAGE r SAMPLES 0")
        assert abs(grown - told) < grown / 4, f"used_memory {grown}, MEMORY USAGE {told}"
        return grown


@pytest.mark.server(lease={"events-maxlen": 1})
@pytest.mark.parametrize("options", ((), ("META", "m" * 300, "TOKEN", "t")), ids=("plain", "meta"))
def test_api_03_memory(server, options):
    """API-03 Memory accounting: MEMORY USAGE of leases, then of tombstones, is what used_memory shows, within a quarter."""
    client = on(server)
    account = Account(client)
    full = account.fill([["LEASE.OPEN", "r", f"user-{number}", *options] for number in range(10000)])
    client.advance(30000)
    account.agrees()
    client.advance(600000)
    assert account.used() - account.empty < full / 4


@pytest.mark.server(lease={"events-maxlen": 1, "retain-count": 1, "cursor-ms": 600000})
def test_api_03_memory_of_access_and_messages(server):
    """API-03 Memory accounting: the same of dedupe records, of grants, of cursors in turn, and of all together."""
    client = on(server)
    account, sizes = Account(client), [0]
    for command in ("LEASE.POST r user-{0} message-{0} x", "LEASE.GRANT r user-{0} READ UNTIL 600000", "LEASE.MARK r user-{0} default QUEUED 1"):
        sizes.append(account.fill([command.format(number) for number in range(10000)]))
        assert sizes[-1] > sizes[-2] + 10000 * 16
    client.advance(600000)
    info = server.lease_info()
    assert (info["dedupe_records"], client("LEASE.GRANTS r")["grants"], client("LEASE.LAG r")["holders"]) == (0, [], [])
    assert account.used() - account.empty < sizes[-1] / 4


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
        ("OPEN r u2 SESSION b", 1),
        ("OPEN r u2 SESSION b", 0),
        ("RENEW r a 1 1", 0),
        ("RENEW r a 1 1", 0),
        ("MRENEW r a 1 2 b 1 1", 0),
        ("RENEW r a 1 3 META x", 1),
        ("RENEW r a 1 4 META x", 0),
        ("RENEW r a 1 5 STATE failed", 1),
        ("RENEW r a 1 1 META y", 0),
        ("RENEW r a 9 9", 0),
        ("LEAVE r b 1", 1),
        ("LEAVE r b 1", 0),
        ("SETPOLICY r ttl-ms 5000", 1),
        ("GET r a", 0),
        ("ROSTER r", 0),
        ("REAP r", 0),
        ("KICK r USER nobody", 0),
        ("OPEN r u3 SESSION c", 1),
        ("KICK r USER u3", 1),
        ("GRANT r u4 READ", 1),
        ("GRANT r u4 READ", 0),
        ("REVOKE r u4", 1),
        ("REVOKE r u4", 0),
        ("OPEN r u4", 0),
        ("GRANT r u4 READ", 1),
    ):
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
    """API-05 Out of memory: what would take memory is refused whole, all that renews or ends a lease or claims delivery works, events included."""
    for name in "abcde":
        client("LEASE.OPEN", "r", f"u{name}", "SESSION", name)
    client("LEASE.RENEW r a 1 1")
    client("LEASE.HOLD r h")
    for number in (1, 2, 3):
        client(f"LEASE.SEND r a 1 m{number} x")
    client("LEASE.SETPOLICY r retain-count 1")
    client.raw("CONFIG SET maxmemory 1")
    with client.nothing_changes():
        for command in (
            "OPEN r new SESSION new",
            "OPEN new new",
            "OPEN r ua SESSION again",
            "SETPOLICY r ttl-ms 5000",
            "GRANT r ua READ",
            "GRANT new ua READ",
            "RENEW r a 1 2 META x",
            "RENEW r a 1 2 STATE failed META x",
            "SEND r a 1 m4 x",
            "POST r ua m4 x",
            "POST new ua m4 x",
        ):
            assert client.refusal("LEASE." + command) == "OOM", command
        with pytest.raises(Refused, match="OOM"):
            client.transaction("LEASE.OPEN r new SESSION new")
    assert client("LEASE.RENEW r a 1 2")[0] == b"renewed"
    assert client("LEASE.RENEW r b 1 1 STATE connected OBSERVED 5 TTL 60000")[0] == b"renewed"
    assert client("LEASE.MRENEW r a 1 3") == [[b"renewed", 30000]]
    assert client("LEASE.RENEW r c 1 1 STATE closed META x")[0] == b"ended"
    assert client("LEASE.KICK r USER ud") == 1
    assert client("LEASE.REVOKE r ud") == [b"ok", 0]
    assert client("LEASE.RENEW r e 1 1 STATE disconnected")[0] == b"shortened"
    assert [
        client(command)
        for command in (
            "LEASE.ACK r a 1 2",
            "LEASE.MARK r ub default QUEUED 3",
            "LEASE.HOLD r h2",
            "LEASE.UNHOLD r h2",
            "LEASE.TRIM r",
            "LEASE.UNHOLD r h",
        )
    ] == [2, 3, 1, 1, 0, 1]
    client("LEASE.TRIM r")
    assert [seq for seq, _ in client.messages("r")] == [3]
    assert client("LEASE.REPLAY r a 1 * 2")["next"] == client("LEASE.SNAPSHOT r a 1")["current"] == 3
    assert client.raw("EVAL", "redis.call('LEASE.CLOCK', 'ADVANCE', 10000) return redis.call('LEASE.REAP', 'r')", 0) == 1
    client.advance(20000)
    assert client.history("r")[5:] == [
        ("state", b"b", 1),
        ("removed", b"c", 1, "left"),
        ("removed", b"d", 1, "kicked"),
        ("grant-revoked",),
        ("state", b"e", 1),
        ("removed", b"e", 1, "expired"),
        ("removed", b"a", 1, "expired"),
    ]
    client.raw("CONFIG SET maxmemory 0")
    assert client("LEASE.OPEN r new SESSION new")["epoch"] == 1
    assert client("LEASE.RENEW r b 1 2 META x")[0] == b"renewed"
    assert client("LEASE.SEND r b 1 m4 x")["seq"] == 4
    assert client("LEASE.POST r ua m4 x")["seq"] == 5  # not the message of ub, though of the same id
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
    assert [event["type"] for event in client.events("room:1")] == EVENTS

    rooms = [b"room:1", b"room:2"]
    for odd in ("room:1}{room:2", "room:1{room:2}", "room:1}x", "room:1{", "room:1{}", "room:1:events:x", "room:1\x00room:2", "room:1 room:2"):
        narrow("LEASE.OPEN", odd, "u", "SESSION", "a")
        narrow("LEASE.SEND", odd, "a", 1, "m", "x")
        rooms.append(odd.encode())
    logs = {stream(room, "log") for room in rooms if room != b"room:2"}
    assert set(client.raw("KEYS *")) == {key for room in rooms for key in (room, stream(room))} | logs


def test_api_06_reading(server):
    """API-06 ACL: a user of `%R~room:1*` reads, and writes nothing."""
    client, reader = on(server), as_user(server, "%R~room:1*", "+@all")
    client("LEASE.OPEN room:1 u1 SESSION a")
    client("LEASE.SEND room:1 a 1 m1 x")
    with client.nothing_changes():
        for name in CALLS:
            if name in READS:
                reader(*call(name, "room:1"))
            else:
                assert reader.refusal(*call(name, "room:1")) == "NOPERM", name


def test_api_06_dangerous(server):
    """API-06 ACL: SETPOLICY, GRANT, REVOKE, KICK, HOLD, UNHOLD, TRIM, POST and CLOCK are @dangerous, the others are not; all are in @lease where that can be."""
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
    # ACL CAT <category> leaves module commands out on Redis 7.4.
    assert every & set(client.raw("COMMAND LIST FILTERBY ACLCAT dangerous")) == {f"lease.{name}".encode() for name in DANGEROUS}
    if b"lease" in client.raw("ACL CAT"):
        assert set(client.raw("COMMAND LIST FILTERBY ACLCAT lease")) >= every


# -------------------------------------------------------------------- what the server knows of the commands


def test_api_09_metadata(server):
    """API-09 Routing metadata: flags, key positions and documentation of every command."""
    client = on(server)
    for name in CALLS | ROOMLESS:
        (info,) = client.raw("COMMAND", "INFO", f"lease.{name}")
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
        (spec,) = specs
        assert (b"RO" in spec[b"flags"]) == (name in READS), name
        assert client.raw("COMMAND", "GETKEYS", *call(name, "some{where}room")) == [b"some{where}room"]
    for name in ("renew", "get", "count", "ack", "mark"):
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
            assert [event["type"] for event in on(server).events(room)] == EVENTS
            keys = (room, stream(room), stream(room, "log"))
            assert len({server.call("CLUSTER", "KEYSLOT", key) for key in keys}) == 1 and server.call("EXISTS", *keys) == 3
    finally:
        cluster.close()
