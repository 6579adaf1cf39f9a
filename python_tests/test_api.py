"""API: module interface, memory, ACL, cluster, clients."""

import re

import pytest
import redis

from harness import Client, Refused, Server, Way, wait_until
from harness.events import stream
from harness.process import EXECUTABLE, MODULE
from harness.replies import normal
from harness.resp import Connection

PLAIN = Way("plain", 3)
EV = "{r}:events"
COMMANDS = ("open", "renew", "mrenew", "leave", "kick", "reap", "get", "roster", "count", "inspect", "policy", "setpolicy", "clock", "help")
READS = {"get", "roster", "count", "inspect", "policy"}
DENYOOM = {"open", "setpolicy"}
DANGEROUS = {"setpolicy", "kick", "clock"}
ROOMLESS = {"clock", "help"}
# One good call of each command on a room.
CALLS = {
    "open": "LEASE.OPEN # u1 SESSION a", "renew": "LEASE.RENEW # a 1 1 STATE failed", "mrenew": "LEASE.MRENEW # a 1 2", "get": "LEASE.GET # a",
    "roster": "LEASE.ROSTER #", "count": "LEASE.COUNT #", "inspect": "LEASE.INSPECT #", "policy": "LEASE.POLICY #",
    "setpolicy": "LEASE.SETPOLICY # ttl-ms 5000", "leave": "LEASE.LEAVE # a 1", "kick": "LEASE.KICK # USER u1", "reap": "LEASE.REAP #",
    "clock": "LEASE.CLOCK GET", "help": "LEASE.HELP"}


def on(server, way=PLAIN):
    return Client(server, way)


# -------------------------------------------------------------------- the module in the server

@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1, "reap-slice-us": 50}, redis={"loading-process-events-interval-bytes": 1024})
def test_api_01_unload(server):
    """API-01 MODULE UNLOAD with a live timer: refused with and without rooms, while reaping and while loading."""
    client = on(server)
    for _ in range(2):
        with pytest.raises(Refused, match="data types"):
            server.call("MODULE UNLOAD lease")
        client("LEASE.OPEN r u1 SESSION a")
    client.pipeline(*(f"LEASE.OPEN r v{number} TTL 100" for number in range(2000)))
    wait_until(lambda: server.lease_info()["reap_backlog"] > 0)
    while server.lease_info()["active_leases"] > 1:
        assert isinstance(client.pipeline("MODULE UNLOAD lease")[0], Refused)
    assert len([1 for event in client.events("r") if event["type"] == "removed"]) == 2000
    assert client("LEASE.RENEW r a 1 1")[0] == b"renewed"

    server.call("EVAL", "for i = 1, 1000 do redis.call('SET', 'filler' .. i, string.rep('x', 100)) end", 0)
    server.set(key_load_delay=500)
    server.stop("save")
    client = loading(server)
    assert client.refusal("MODULE UNLOAD lease") in ("LOADING", "ERR")
    wait_until(server.answers)
    server.call = server.connect()
    server.call("CONFIG SET key-load-delay 0")
    assert on(server)("LEASE.RENEW r a 1 2")[0] == b"renewed"


class Bare(Connection):
    """A connection to a server that is still loading: redis-py takes LOADING for a broken connection."""

    def read(self, timeout=60):
        try:
            return super().read(timeout)
        except redis.exceptions.BusyLoadingError:
            return Refused("LOADING")


def loading(server):
    """Starts the server and talks to it before it has loaded its data."""
    server.start_unready() if hasattr(server, "start_unready") else None
    return on(server)


# -------------------------------------------------------------------- memory

@pytest.mark.server(redis={"maxclients": 100}, lease={"events-maxlen": 1})
@pytest.mark.parametrize("kind", ("server-made", "long", "tombstones"))
def test_api_03_memory(server, kind):
    """API-03 Memory accounting: MEMORY USAGE tells what used_memory shows, within a quarter."""
    client = on(server)
    used = lambda: server.info("memory")["used_memory"] - server.call("MEMORY", "USAGE", EV, "SAMPLES", 0)
    client("LEASE.OPEN r u SESSION s")
    room = lambda: client.raw("MEMORY USAGE r SAMPLES 0")
    before, told = used(), room()
    for batch in range(10):
        other = client.another()
        opens = [["LEASE.OPEN", "r", f"user-{batch}-{number}", *(["SESSION", "s" * 100 + f"{batch}-{number}", "META", "m" * 300, "TOKEN", "t"] if kind == "long" else [])]
                 for number in range(1000)]
        other.pipeline(*opens)
        other.connection.close()
    if kind == "tombstones":
        before, told = used(), room()
        client.advance(30000)
    wait_until(lambda: server.info("clients")["connected_clients"] <= 2)
    grown, accounted = used() - before, room() - told
    assert abs(grown - accounted) < (max(grown, 200000) if kind != "tombstones" else room()) * 0.25, f"used_memory {grown}, MEMORY USAGE {accounted}"
