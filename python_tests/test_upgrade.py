"""What docs/upgrade.md says of a module that meets what a newer one has written. The newer one is ours with a version raised."""

import pytest

from golden import crc64
from harness import Client, Way
from harness.resp import Refused

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
    client = Client(server, Way("plain", 3))
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


def test_no_unload_once_used(server):
    server.call("LEASE.OPEN r u1")
    with pytest.raises(Refused):
        server.call("MODULE UNLOAD lease")
