"""What docs/upgrade.md says: modules that meet what a newer one has written (ours with a version raised), and the ways in and out."""

import re
import shlex

import pytest

from golden import crc64
from harness import Client, Server, Way, wait_until
from harness.process import MODULE, ROOT
from harness.resp import Refused

PAGE = (ROOT / "docs/upgrade.md").read_text()
PLAIN = Way("plain", 3)
TYPE_ID = bytes.fromhex("8195e6ac7aba2898")  # leaseroom, but for its encoding
SNAPSHOT, NEWER_SNAPSHOT = b"\x66\x01", b"\x67\x01"  # version and kind of a snapshot's header
NEWER_EFFECTS = b"\x03"
UNCHECKED = bytes(8)  # the checksum of an RDB file that has none


def raised(saved):
    """The one room's snapshot: its version stands right behind the type and the lengths."""
    type_id = saved.index(TYPE_ID)
    at = saved.index(SNAPSHOT, type_id, type_id + 24)
    return saved[:at] + NEWER_SNAPSHOT + saved[at + len(SNAPSHOT) :]


def test_restore_refuses_a_newer_snapshot(server):
    client = Client(server, PLAIN)
    client("LEASE.OPEN r u1 SESSION a")
    newer = crc64.sealed(raised(client.raw("DUMP r"))[:-8])
    with client.nothing_changes():
        assert client.refusal("RESTORE", "x", 0, newer) == "ERR"
    assert "a room was not loaded: a snapshot of an unknown version" in server.log()


def test_no_start_on_a_newer_snapshot(server):
    server.call("LEASE.OPEN r u1 SESSION a")
    server.stop("save")
    saved = server.path / "dump.rdb"
    saved.write_bytes(raised(saved.read_bytes())[:-8] + UNCHECKED)
    with pytest.raises(AssertionError, match="the server ended"):
        server.start()
    assert "a room was not loaded: a snapshot of an unknown version" in server.log()


def append_newer_effects(server):
    server.call("LEASE.OPEN r u1 SESSION a")
    server.stop()
    (aof,) = (server.path / "appendonlydir").glob("*.incr.aof")
    with aof.open("ab") as end:
        end.write(b"*3\r\n$11\r\nLEASE.APPLY\r\n$1\r\nr\r\n$1\r\n" + NEWER_EFFECTS + b"\r\n")


@pytest.mark.server(redis={"appendonly": "yes"})
def test_newer_effects_of_an_aof_are_left_out(server):
    append_newer_effects(server)
    server.start()
    assert server.call("LEASE.COUNT r") == [1, 1]
    assert "effects were not applied: effects of an unknown version" in server.log()
    assert "== CRITICAL ==" in server.log()


@pytest.mark.server(redis={"appendonly": "yes", "propagation-error-behavior": "panic"})
def test_newer_effects_end_a_server_that_is_to_panic(server):
    append_newer_effects(server)
    with pytest.raises(AssertionError, match="the server ended"):
        server.start()
    assert "effects were not applied: effects of an unknown version" in server.log()


@pytest.mark.parametrize("there", ("nothing", "another type"))
def test_a_replica_without_the_room_says_so(server, there):
    """What its primary revokes must not get lost without a sign; once it has synced anew it is a copy again."""
    primary, replica = server.call, server.replica()
    primary("LEASE.OPEN r u1 SESSION a")
    replica.in_step()
    replica.call("CONFIG SET replica-read-only no")
    replica.call("DEL r")
    if there == "another type":
        replica.call("SET r text")
    before = replica.info("stats")["unexpected_error_replies"]
    primary("LEASE.REVOKE r u1")
    replica.in_step()
    assert replica.lease_info()["effects_not_applied"] == replica.info("stats")["unexpected_error_replies"] - before == 1
    assert "effects were not applied: their room is not here. This node differs from its primary" in replica.log()
    replica.call("REPLICAOF NO ONE")
    replica.call("REPLICAOF", "127.0.0.1", server.port)
    replica.in_step()
    assert replica.call("LEASE.GET r a") == primary("LEASE.GET r a")
    primary("LEASE.GRANT r u1 WRITE")
    replica.in_step()
    assert replica.lease_info()["effects_not_applied"] == 1


def test_no_unload(server):
    """Not even before there was a room."""
    with pytest.raises(Refused, match="the module exports one or more module-side data types"):
        server.call("MODULE UNLOAD lease")


# -------------------------------------------------------------------- into running servers


class Plain(Server):
    """A server that does not load the module by itself."""

    def load_line(self):
        return ""


@pytest.fixture
def pair():
    """Starts a primary and its replica, with data and an AOF, without the module: pair(settings of both)."""
    nodes = []

    def pair(**settings):
        redis = {"appendonly": "yes"} | {name.replace("_", "-"): value for name, value in settings.items()}
        nodes.append(Plain(clock=None, redis=redis))
        nodes.append(Plain(clock=None, redis=redis, primary=nodes[0]))
        nodes[0].call("SET plain kept")
        nodes[1].in_step()
        return nodes

    yield pair
    for node in nodes:
        node.discard()


def load(node):
    assert "`MODULE LOAD /path/to/libredis_lease.so ttl-ms 20000`" in PAGE
    node.call("MODULE", "LOAD", str(MODULE), "ttl-ms", 20000)


def aof_written(node):
    """A server whose AOF is being written anew may refuse SHUTDOWN."""
    wait_until(lambda: not node.info("persistence")["aof_rewrite_in_progress"], 30, "the AOF is written")


def restart(node, edit=str):
    """The configuration file is edited right before."""
    aof_written(node)
    node.config.write_text(edit(node.config.read_text()))
    node.restart("save")


def with_module(config):
    return f"{config}\nloadmodule {MODULE} ttl-ms 20000\n"


def fail_over(primary, replica):
    """The files say the same: after a restart each node has its new part."""
    primary.call("FAILOVER")
    wait_until(lambda: primary.info("replication")["role"] == "slave" and replica.info("replication")["role"] == "master", 30)
    primary.primary, replica.primary = replica, None
    primary.in_step()
    for node in primary, replica:
        node.call("CONFIG REWRITE")


def in_service(primary, replica):
    """What clients write from the last step on is on both nodes, and stays there through restarts and a promotion."""
    assert [node.lease_info()["rooms"] for node in (primary, replica)] == [0, 0]
    for command in "OPEN r ann SESSION a", "POST r ann m1 hello", "OPEN r bob SESSION b", "REVOKE r bob":
        primary.call(f"LEASE.{command}")
    for _ in range(2):
        replica.in_step()
        assert replica.call("DEBUG DIGEST") == primary.call("DEBUG DIGEST")
        restart(primary)
        restart(replica)
    assert not [node for node in (primary, replica) if "== CRITICAL ==" in node.log() or node.lease_info()["effects_not_applied"]]
    replica.in_step()
    fail_over(primary, replica)
    client = Client(replica, PLAIN)
    assert [client(f"LEASE.GET r {session}")["state"] for session in "ab"] == [b"active", b"ended"]
    assert client("LEASE.GET r a")["ttl_ms"] == 20000
    assert client.refusal("LEASE.OPEN r bob") == "DENIED revoked"
    assert client("LEASE.POST r ann m1 hello")["status"] == b"duplicate"
    assert client.raw("GET plain") == b"kept"


def test_into_running_servers(pair):
    primary, replica = pair()
    for node in replica, primary:
        assert node.call("CONFIG GET enable-module-command") == {b"enable-module-command": b"yes"}
        load(node)
        node.call("CONFIG REWRITE")
    in_service(primary, replica)


def test_into_running_servers_that_load_no_modules(pair):
    primary, replica = pair(enable_module_command="no")
    with pytest.raises(Refused):
        load(replica)
    replica.config.write_text(with_module(replica.config.read_text()))
    replica.call("CONFIG REWRITE")
    assert "loadmodule" not in replica.config.read_text(), "that is why each line is added right before its restart"
    restart(replica, with_module)
    replica.in_step()
    fail_over(primary, replica)
    restart(primary, with_module)
    in_service(replica, primary)


def test_primary_first_loses_rooms(pair):
    """Why replicas come first, and how one that got the module too late is brought back."""
    primary, replica = pair()
    load(primary)
    primary.call("LEASE.OPEN r ann SESSION the-session")
    primary.call("LEASE.RENEW r the-session 1 1")
    replica.in_step()
    assert replica.call("EXISTS r") == 0
    log = replica.log()
    assert "== CRITICAL ==" in log and "unknown command 'LEASE.APPLY'" in log and "the-session" in log
    load(replica)
    primary.call("LEASE.REVOKE r ann")
    replica.in_step()
    assert replica.lease_info()["effects_not_applied"] == 1
    replica.call("REPLICAOF NO ONE")
    replica.call("REPLICAOF", "127.0.0.1", primary.port)
    replica.in_step()
    assert replica.call("DEBUG DIGEST") == primary.call("DEBUG DIGEST")
    fail_over(primary, replica)
    assert Client(replica, PLAIN).refusal("LEASE.OPEN r ann") == "DENIED revoked"


# -------------------------------------------------------------------- out again

LEFT = {
    "settings": "Module Configuration detected without loadmodule directive or no ApplyConfig call: aborting",
    "users": "Error loading ACL rule '+lease.open' for the user named 'gateway'",
    "rooms": "The RDB file contains module data I can't load: no matching module type 'leaseroom'",
    "effects": "nknown command 'LEASE.APPLY'",
}


def ends_with(node, text):
    node.process.wait(30)
    assert text in node.log(), node.log()[-3000:]
    assert text in PAGE


@pytest.mark.parametrize("left", LEFT)
def test_no_start_without_the_module(start, left):
    node = start(clock=None, redis={"appendonly": "yes" if left == "effects" else "no"})
    if left == "settings":
        node.set(**{"lease.ttl-ms": "20000"})
    elif left == "users":
        node.call("ACL SETUSER gateway on +lease.open")
        node.call("CONFIG REWRITE")
    else:
        node.call("LEASE.OPEN r ann")
    if left == "effects":
        node.call("UNLINK r")
    node.stop("save")
    node.config.write_text(re.sub("(?m)^loadmodule .*$", "", node.config.read_text()))
    with pytest.raises(AssertionError, match="the server ended"):
        node.start()
    ends_with(node, LEFT[left])


def test_a_full_sync_ends_a_replica_without_the_module(pair):
    primary, replica = pair()
    load(primary)
    replica.call("REPLICAOF NO ONE")
    primary.call("LEASE.OPEN r ann")
    replica.call("REPLICAOF", "127.0.0.1", primary.port)
    ends_with(replica, LEFT["rooms"])


def delete_rooms(call):
    """Step 2, as the page says it; how many calls it took."""
    (line,) = re.findall("^ *redis-cli (EVAL .*)$", PAGE, re.M)
    *words, cursor = shlex.split(line)
    calls = 0
    while calls == 0 or cursor != b"0":
        cursor = call(*words, cursor)
        calls += 1
    return calls


def without_module(config):
    lines = [line for line in config.splitlines() if not line.startswith(("loadmodule ", "lease."))]
    return "".join((re.sub(r" [+-](lease\.[a-z]+|@lease)", "", line) if line.startswith("user ") else line) + "\n" for line in lines)


def test_out_again(pair):
    """Both nodes start without the module and have all that there was but the rooms."""
    primary, replica = pair()
    for node in replica, primary:
        load(node)
        node.call("CONFIG SET lease.tombstone-ms 7000")
        node.call("ACL SETUSER gateway on ~* +get +lease.open -lease.kick (~* +lease.get)")
        node.call("CONFIG REWRITE")
    for db in 0, 3:
        call = primary.in_db(db)
        call.pipeline([["LEASE.OPEN", f"r{number}", "ann"] for number in range(1500)])
        call("LEASE.POST r1 ann m1 hello")
        call("SET plain kept")
    assert [delete_rooms(primary.in_db(db)) > 1 for db in (0, 3)] == [True, True]
    replica.in_step()
    for node in primary, replica:
        assert node.lease_info()["rooms"] == 0
        node.call("BGREWRITEAOF")
        aof_written(node)
        node.call("SAVE")
    restart(replica, without_module)
    replica.in_step()
    fail_over(primary, replica)
    restart(primary, without_module)
    primary.in_step()
    for node in primary, replica:
        assert "lease" not in str(node.call("MODULE LIST")) and "lease" not in str(node.call("ACL LIST"))
        assert node.call("ACL DRYRUN gateway GET plain") == b"OK"
        assert [node.in_db(db)("GET plain") for db in (0, 3)] == [b"kept"] * 2
        assert [node.in_db(db)("XLEN {r1}:log") for db in (0, 3)] == [1] * 2
        assert "== CRITICAL ==" not in node.log()
