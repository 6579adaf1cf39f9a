"""docs/security.md: each user of its table may do what it is there for, and nothing beyond."""

import contextlib
import re
import subprocess
import sys

import pytest
import redis
from redis.cluster import LoadBalancingStrategy

from harness import Refused
from harness.cluster import Cluster
from harness.resp import words
from test_docs import ROOT
from test_fan_out import WORKER
from test_watch import watching

ROLES = {name: rule for rule, name in re.findall(r"> (ACL SETUSER (\w+) on .*)", (ROOT / "docs/security.md").read_text()) if name != "app"}

# In this order: later commands need what earlier ones did. Some are refused, for other reasons than rights.
MAY = {
    "gateway": """
        LEASE.OPEN class ann SESSION tab
        LEASE.RENEW class tab 1 1
        LEASE.MRENEW class tab 1 2
        LEASE.SEND class tab 1 m1 hello
        LEASE.REPLAY class tab 1 * 0
        LEASE.SNAPSHOT class tab 1
        LEASE.ACK class tab 1 1
        LEASE.MARK class ann default WRITTEN 1
        LEASE.GET class tab
        LEASE.ROSTER class
        LEASE.COUNT class
        LEASE.LEAVE class tab 1
        XREAD STREAMS {class}:events {class}:log 0 0
        XRANGE {class}:log - +
        """,
    "auth": """
        LEASE.GRANT class ann WRITE VERSION 1
        LEASE.REVOKE class ann VERSION 2
        LEASE.GRANTS class
        WAIT 0 1
        """,
    "moderator": """
        LEASE.SETPOLICY class max-leases 50
        LEASE.POLICY class
        LEASE.POST class staff m2 hello
        LEASE.ROSTER class
        LEASE.HOLD class case7
        LEASE.UNHOLD class case7
        LEASE.KICK class USER ann
        """,
    "worker": """
        XGROUP CREATE {class}:events group 0
        XREADGROUP GROUP group me COUNT 1 STREAMS {class}:events >
        XACK {class}:events group 1-0
        XAUTOCLAIM {class}:events group me 0 0
        XREAD STREAMS {class}:events 0
        XREVRANGE {class}:log + - COUNT 1
        LEASE.ROSTER class
        LEASE.GET class tab
        """,
    "fanout": """
        XGROUP CREATE {class}:log group 0
        XREADGROUP GROUP group me COUNT 1 STREAMS {class}:log >
        XAUTOCLAIM {class}:log group me 0 0
        LEASE.GRANTS class
        WATCH {class}:queue:ann class
        LEASE.MARK class ann default QUEUED 0
        XREVRANGE {class}:queue:ann + - COUNT 1
        XRANGE {class}:log - +
        UNWATCH
        XADD {class}:queue:ann * seq 1
        XACK {class}:log group 1-0
        """,
    "inspector": """
        INFO lease
        LEASE.INSPECT class
        LEASE.GET class tab
        LEASE.ROSTER class
        LEASE.COUNT class
        LEASE.GRANTS class
        LEASE.STATS class
        LEASE.LAG class
        LEASE.HOLDS class
        LEASE.POLICY class
        LEASE.HELP
        XREAD STREAMS {class}:events 0
        XRANGE {class}:events - +
        XREVRANGE {class}:events + -
        """,
    "operator": """
        INFO lease
        MODULE LIST
        LATENCY HISTORY lease-reaper
        SCAN 0 TYPE leaseroom
        TYPE {class}:log
        MEMORY USAGE class
        MEMORY USAGE {class}:log SAMPLES 0
        XINFO STREAM {class}:log
        XREVRANGE {class}:events + - COUNT 1
        LEASE.STATS class
        LEASE.COUNT class
        LEASE.POLICY class
        LEASE.SETPOLICY class retain-count 100
        LEASE.HOLD class mine
        LEASE.HOLDS class
        LEASE.UNHOLD class mine
        LEASE.TRIM class
        RENAME {class}:log {class}:log-aside
        RENAME {class}:events {class}:events-aside
        """,
}
# Nobody, but for those whose list above has the LEASE command for that room.
NOBODY = """
    LEASE.OPEN class x
    LEASE.OPEN staff x
    LEASE.COUNT staff
    LEASE.GRANT class x WRITE
    LEASE.REVOKE class x
    LEASE.KICK class USER x
    LEASE.SETPOLICY class max-leases 1
    LEASE.POST class x m x
    LEASE.MARK class x default QUEUED 1
    LEASE.HOLD class x
    LEASE.UNHOLD class orphan
    LEASE.TRIM class
    LEASE.REAP class
    LEASE.CLOCK GET
    LEASE.APPLY class x
    XADD class * a b
    XADD classnew * a b
    XADD {class}:log * a b
    XADD {class}:events * a b
    XADD class{a}:log * a b
    XADD class{a}:events * a b
    XTRIM {class}:log MAXLEN 0
    XDEL {class}:log 1-0
    XSETID {class}:log 99-0
    XGROUP DESTROY {class}:events group
    XGROUP SETID {class}:events group 0
    XGROUP DELCONSUMER {class}:events group me
    XGROUP DESTROY {class}:log group
    XGROUP SETID {class}:log group 0
    XGROUP CREATE class group 0 MKSTREAM
    XGROUP CREATE classnew group 0 MKSTREAM
    XGROUP CREATE {class}:events-new group 0 MKSTREAM
    XGROUP CREATE {staff}:events group 0 MKSTREAM
    RENAME class classnew
    RENAME classnew class
    RENAME {class}:log class
    RENAME {class}:log {staff}:log
    RENAME {class}:queue:ann {class}:log
    DEL class
    DEL {class}:log
    UNLINK {class}:events
    SET class x
    EXPIRE class 1
    RESTORE class 0 x
    COPY class classnew
    GET {class}:queue:ann
    XRANGE {class}:queue:ann - +
    KEYS *
    FLUSHDB
    SWAPDB 0 1
    CONFIG GET *
    CONFIG SET maxmemory 0
    ACL LIST
    CLIENT LIST
    CLIENT PAUSE 1
    REPLICAOF NO ONE
    MODULE UNLOAD lease
    MEMORY PURGE
    LATENCY RESET
    MONITOR
    DEBUG SLEEP 0
    """
# What some others may, but not these.
NOT = {
    "gateway": "XREADGROUP GROUP group me STREAMS {class}:log >\nINFO\nEVAL return 0",
    "auth": "LEASE.ROSTER class\nXRANGE {class}:events - +\nINFO",
    "moderator": "LEASE.GET class tab\nXRANGE {class}:log - +\nINFO",
    "worker": "XREAD STREAMS {class}:log 0\nXREAD STREAMS class{a}:log 0\nXREADGROUP GROUP group me STREAMS {class}:log >\nLEASE.GRANTS class\nSCAN 0",
    "fanout": "XRANGE {class}:events - +\nXREADGROUP GROUP group me STREAMS {class}:events >\nWATCH {class}:log\nLEASE.ROSTER class\nSCAN 0",
    "inspector": "XRANGE {class}:log - +\nXRANGE class{a}:log - +\nXGROUP CREATE {class}:events new 0\nMEMORY USAGE class\nSCAN 0\nEVAL return 0 0",
    "operator": "LEASE.ROSTER class\nLEASE.GRANTS class\nXGROUP CREATE {class}:events new 0\nXINFO STREAM class{a}:queue:ann",
}


def commands(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


@pytest.fixture
def as_role(server):
    for rule in ROLES.values():
        server.call(rule)
    server.call.pipeline(["LEASE.POST class bot m0 x", "XADD {class}:queue:ann * seq 0", "LEASE.OPEN class ben SESSION other"])

    def connect(role):
        return server.connect(username=role, password="secret")

    return connect


def forbidden(connection, command):
    """Whether the server refuses it for the user's rights."""
    (reply,) = connection.pipeline([words(command)])
    return isinstance(reply, Refused) and reply.code == "NOPERM"


def test_the_lists_have_all_roles_and_commands(server):
    assert set(ROLES) == set(MAY) == set(NOT)
    named = {words(command)[0] for text in (*MAY.values(), NOBODY) for command in commands(text)}
    assert {name.decode().upper() for name in server.call("COMMAND LIST FILTERBY MODULE lease")} == {
        name for name in named if name.startswith("LEASE.")
    }


@pytest.mark.parametrize("role", MAY)
def test_a_role_may(server, as_role, role):
    server.aside.add((0, b"class"))  # the operator puts its streams aside
    connection = as_role(role)
    assert connection("PING") == b"PONG"
    assert [command for command in commands(MAY[role]) if forbidden(connection, command)] == []


@pytest.mark.parametrize("role", MAY)
def test_a_role_may_not(as_role, role):
    connection, own = as_role(role), {tuple(words(command)[:2]) for command in commands(MAY[role])}
    tried = commands(NOT[role]) + [command for command in commands(NOBODY) if not (command.startswith("LEASE.") and tuple(words(command)[:2]) in own)]
    assert [command for command in tried if not forbidden(connection, command)] == []


def test_mkstream_of_a_worker_harms_no_room(server, as_role):
    """It may begin an empty stream; the room that comes does not mind."""
    as_role("worker")("XGROUP CREATE {classnew}:events group 0 MKSTREAM")
    as_role("fanout")("XGROUP CREATE {classnew}:log group 0 MKSTREAM")
    server.call("LEASE.OPEN classnew ann SESSION tab")
    server.call("LEASE.POST classnew ann m1 x")
    assert server.call("LEASE.HOLDS classnew") == []
    assert [id for id, _ in server.call("XRANGE {classnew}:log - +")] == [b"1-0"]
    assert [id for id, _ in server.call("XRANGE {classnew}:events - +")] == [b"1-0"]


def test_the_fan_out_worker_as_fanout(server, as_role):
    server.call("LEASE.GRANT class ann READ")
    server.call("DEL {class}:queue:ann")
    url = f"redis://fanout:secret@127.0.0.1:{server.port}"
    done = subprocess.run([sys.executable, WORKER, "class", "--url", url, "--drain"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert server.call("XLEN {class}:queue:ann") == 1


@pytest.mark.server(clock=None)
def test_make_watch_as_inspector(server, as_role):
    with watching(server, "class", login="inspector:secret@") as terminal:
        terminal.shows("class: 1 leases, 1 users")
        terminal.shows("opened        ben default other")


def test_scripts_of_the_runbooks_as_operator(as_role):
    """A script may what its user may."""
    operator = as_role("operator")
    script = "return redis.call('LEASE.HOLDS', redis.call('SCAN', 0, 'COUNT', 1000, 'TYPE', 'leaseroom')[2][1])"
    assert operator("EVAL", script, 0) == []
    with pytest.raises(Refused, match="permission|can't run this command"):
        operator("EVAL", "return redis.call('DEL', 'class')", 0)


@pytest.mark.no_restart("a restarted node waits for its cluster")
def test_redis_py_in_a_cluster_as_gateway(start):
    """What the page says to add for it, and each of these it needs."""
    (node,) = Cluster(start, 1).nodes
    node.call(ROLES["gateway"])

    def connected(**options):
        return contextlib.closing(redis.RedisCluster(host="127.0.0.1", port=node.port, username="gateway", password="secret", **options))

    for missing in ("+cluster|slots", "+command"):
        with pytest.raises((redis.exceptions.RedisClusterException, redis.exceptions.NoPermissionError)), connected() as client:
            client.execute_command("LEASE.OPEN", "class", "ann")
        node.call("ACL", "SETUSER", "gateway", missing)
    with connected() as client:
        client.execute_command("LEASE.OPEN", "class", "ann")
    with pytest.raises(redis.exceptions.RedisClusterException):
        connected(load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN_REPLICAS)
    node.call("ACL SETUSER gateway +readonly")
    with connected(load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN_REPLICAS) as client:
        assert client.execute_command("LEASE.COUNT", "class") == [1, 1]


@pytest.mark.server(redis={"slowlog-log-slower-than": 0})
def test_a_token_without_its_word_is_shown(server):
    """The page says so; with it, it is not."""
    for command, shown in (
        ("LEASE.LEAVE r a 1 TOKE s3cret", True),
        ("LEASE.LEAVE r a 1 TOKEN=s3cret", True),
        ("LEASE.LEAVE r a 1 TOKEN s3cret", False),
    ):
        server.call("SLOWLOG RESET")
        server.call.pipeline([command])
        assert (b"s3cret" in repr(server.call("SLOWLOG GET")).encode()) == shown, command
