"""LOAD: a million leases, a storm of reconnects, one huge room among small ones, one kind of traffic beside another.

Other programs share the machine: how long others wait stands in the table at the end of the run, beside the machine's load, and is
held, generously, to what PING waits beside a flood of SETs in the same test. What does not depend on the machine is asserted as
it is: nothing is lost, each lease ends once, memory comes back. Events are counted inside the server, which is then emptied: to check each
of a million leases after the scenario would take longer than all the rest.
"""

import os
import signal
import time
from contextlib import contextmanager

import pytest

from crowd import fill, told
from harness import wait_until
from harness.generator import Generator, Probes, load
from harness.machine import p99

pytestmark = [pytest.mark.load, pytest.mark.ways("plain-resp3"), pytest.mark.no_restart("a matter of running time only")]

MILLION = 1000000
LASTING = 3600000
PIPELINED = {"connections": 4, "pipeline": 32}
SETS = {"leases": 100000, "rooms": 1000, "lap": 1000}
UNTRIMMED = {"events-maxlen": 0, "tombstone-ms": 20000}


class Others:
    """Clients in a process of their own, and what they wait for replies while something goes on."""

    def __init__(self, server, figure):
        self.server, self.figure = server, figure

    @contextmanager
    def wait(self, *kinds, while_):
        """Yields the waits by kind, which are known when it is over."""
        waits = {}
        probes = Probes(self.server, *kinds)
        yield waits
        waits |= probes.end()
        for kind, seen in waits.items():
            self.figure(f"{kind.upper()} while {while_}", tell(seen))

    def beside_sets(self, loads, **options):
        """What PING waits beside SETs, which no load of the module's could undercut. Two loads keep the server as busy as its own work does."""
        with self.wait("ping", while_="SETs come") as waits:
            under_way = [Generator("set", self.server.port, **SETS, **options) for _ in range(loads)]
            for generator in under_way:
                generator.end()
        self.server.call("FLUSHALL SYNC")
        self.server.call("LEASE.OPEN watched u SESSION probe TTL", LASTING)
        return waits["ping"]


@pytest.fixture
def others(server, figure):
    return Others(server, figure)


def tell(waits):
    ms = {name: waits[f"{name}_us"] / 1000 for name in ("p50", "p99", "max", "woken_p99")}
    return "p50 {p50:.2f}, p99 {p99:.2f}, worst {max:.1f} ms; the machine woke them {woken_p99:.2f} ms late".format(**ms)


def in_proportion(waits, base):
    """Most replies nobody interrupts, so their median is held to a few slices; of the others a standstill would show."""
    for name, slack_us in (("p50_us", 5000), ("p99_us", 300000), ("max_us", 1000000)):
        assert waits[name] <= 10 * base[name] + slack_us, (name, waits, base)


def megabytes(server):
    return server.info("memory")["used_memory"] / 1e6


def rooms(count):
    """As the load generator names them."""
    return [f"room-{number:06}" for number in range(count)]


def streams(names):
    return [f"{{{name}}}:events" for name in names]


def each_ended_once(server, names, leases):
    """Each room's events tell so many sessions opened, and each of them removed once; then its events go."""
    assert {told(server, name) for name in names} == {(leases, leases)}
    server.call("DEL", *streams(names))
    wait_until(lambda: server.info("memory")["lazyfree_pending_objects"] == 0, 60)  # Valkey frees what is large in the background


# -------------------------------------------------------------------- a million

HALLS = rooms(100)


class Million:
    """A million leases in a hundred rooms, and the memory they take."""

    def __init__(self, server, figure, ttl_ms):
        self.server, self.figure = server, figure
        self.before = megabytes(server)
        load(server, "open", leases=MILLION, rooms=len(HALLS), ttl_ms=ttl_ms, **PIPELINED)
        info = server.lease_info()
        assert info["ended_expired"] == 0, "too slow a machine: leases are due before all are opened"
        self.full = megabytes(server)
        used = sum(server.call.pipeline(["MEMORY", "USAGE", name, "SAMPLES", 0] for name in HALLS))
        figure("a million leases in 100 rooms", f"{used / MILLION:.0f} bytes each")
        assert used / MILLION <= 160

    def wait_until_ended(self):
        """By their events: INFO would look at all that is due."""
        for name in streams(HALLS):
            wait_until(lambda: self.server.call("XLEN", name) == 2 * MILLION // len(HALLS), 300)

    def wait_until_forgotten(self):
        """By the rooms' size: INFO leaves out what is over, whether it is gone or not."""
        for name in HALLS:
            wait_until(lambda: self.server.call("MEMORY", "USAGE", name, "SAMPLES", 0) < 10000, 300)

    def have_left_nothing(self):
        """Each has ended once. The memory is free again, though all rooms are there."""
        each_ended_once(self.server, HALLS, MILLION // len(HALLS))
        info, after = self.server.lease_info(), megabytes(self.server)
        assert (info["ended_expired"], info["reap_backlog"], info["events_lost"], info["tombstones"]) == (MILLION, 0, 0, 0)
        self.figure("memory", f"{self.before:.0f} MB before, {self.full:.0f} with all leases and their events, {after:.0f} after")
        assert info["rooms"] >= len(HALLS)
        assert after - self.before <= (self.full - self.before) / 50
        self.server.call("FLUSHALL SYNC")


@pytest.mark.server(clock=None, lease=UNTRIMMED)
def test_load_a_million_leases_due_after_a_stall(client, others, figure):
    """LOAD The server stands still until a million leases are due: each ends once, and others are answered meanwhile."""
    server, ttl_ms = client.server, 60000
    base = others.beside_sets(2, seconds=4, **PIPELINED)
    million, filled = Million(server, figure, ttl_ms), time.monotonic()
    os.kill(server.process.pid, signal.SIGSTOP)
    time.sleep(filled + ttl_ms / 1000 - time.monotonic())
    os.kill(server.process.pid, signal.SIGCONT)
    begin = time.monotonic()
    with others.wait("ping", "renew", while_="all of them end") as ending:
        million.wait_until_ended()
    figure("all had ended", f"{time.monotonic() - begin:.1f} s after the stall")
    info = server.lease_info()
    figure("expiry age", "p50 {expiry_age_ms_p50}, p99 {expiry_age_ms_p99}, max {expiry_age_ms_max} ms".format(**info))
    figure("the reaper's slices", "p50 {slice_us_p50}, p99 {slice_us_p99}, max {slice_us_max} µs".format(**info))
    assert info["slice_us_p50"] <= 700  # 500, and a step; most slices nobody interrupts
    with others.wait("ping", while_="they are forgotten") as forgetting:
        million.wait_until_forgotten()
    million.have_left_nothing()
    for waits in (*ending.values(), *forgetting.values()):
        in_proportion(waits, base)


@pytest.mark.server(clock=0, lease=UNTRIMMED)
def test_load_a_million_leases_due_after_a_jump_of_the_clock(client, figure):
    """LOAD The manual clock jumps to where a million leases are due: each has ended once when it replies."""
    server, ttl_ms = client.server, 90000
    million, begin = Million(server, figure, ttl_ms), time.monotonic()
    client.advance(ttl_ms)
    figure("all had ended", f"{time.monotonic() - begin:.1f} s after the jump")
    client.advance(UNTRIMMED["tombstone-ms"])
    million.have_left_nothing()


# -------------------------------------------------------------------- OPS-04

USERS, CONNECTIONS, COMING_S = 50000, 200, 5


@pytest.mark.parametrize("old", ("superseded", "expired"))
@pytest.mark.server(clock=None, lease=UNTRIMMED | {"tombstone-ms": 600000})
def test_ops_04_reconnect_storm(client, others, figure, old):
    """OPS-04 Reconnect storm: 50,000 users come back over 200 connections within 5 s; old leases are superseded, or have expired before."""
    server, names = client.server, rooms(CONNECTIONS)
    storm = {"connections": CONNECTIONS, "pipeline": 1, "per_s": USERS // COMING_S}
    base = others.beside_sets(1, seconds=COMING_S, **storm)
    size = {"leases": USERS, "rooms": len(names), "ttl_ms": LASTING if old == "superseded" else 1000}
    load(server, "open", **size, **PIPELINED)
    if old == "expired":
        wait_until(lambda: server.lease_info()["ended_expired"] == USERS, 60)
    with others.wait("ping", "renew", while_=f"50,000 come back, {old}") as waits:
        came = load(server, "supersede" if old == "superseded" else "reopen", **size | {"ttl_ms": LASTING}, **storm)
    figure("they came back", f"in {came['seconds']:.1f} s, the server busy for {came['cpu']:.1f} s of them")
    info = server.lease_info()
    assert (info["active_leases"], info[f"ended_{old}"], info["opened"]) == (USERS + 1, USERS, 2 * USERS + 1)
    if old == "expired":
        figure("reconnect delay", "p50 {reconnect_expired_ms_p50}, p99 {reconnect_expired_ms_p99} ms".format(**info))
    assert {told(server, name) for name in names} == {(2 * USERS // len(names), USERS // len(names))}
    for seen in waits.values():
        in_proportion(seen, base)
    server.call("FLUSHALL SYNC")


# -------------------------------------------------------------------- one huge room

HUGE, SMALL = 200000, 10000


@pytest.mark.server(clock=None, lease=UNTRIMMED)
def test_load_a_huge_room_among_small_ones(client, others, figure):
    """LOAD One room of 200,000 among 10,000 small ones: small rooms are answered and expire in time while the huge one is listed, renewed and expires."""
    server, small = client.server, [f"small{number}" for number in range(SMALL)]
    base = others.beside_sets(2, seconds=4, **PIPELINED)
    due = client.now() + 60000
    fill(server, "huge", HUGE, "TTL", LASTING, "UNTIL", due)
    for name in small:
        fill(server, name, 2, "TTL", LASTING, "UNTIL", due)
    cursor = None
    with others.wait("ping", "renew", while_="200,000 are listed, renewed") as listing:
        while cursor != 0:
            page = client("LEASE.ROSTER", "huge", "COUNT", 1000, "CURSOR", cursor or 0)
            if heartbeats := [word for lease in page["leases"] for word in (lease["session"], lease["epoch"], lease["seq"] + 1)]:
                client("LEASE.MRENEW", "huge", *heartbeats)
            cursor = int(page["cursor"])
    assert client.now() < due, "too slow a machine: the leases are due before they are listed"
    wait_until(lambda: client.now() >= due - 200, 60)
    with others.wait("ping", "renew", while_="all expire at once") as ending:
        wait_until(lambda: client.raw("XLEN {huge}:events") == 2 * HUGE, 120)
    ages = [event["lag_ms"] for name in small[::10] for event in client.events(name) if event["type"] == "removed"]
    last = client.events("huge", newest=1)[0]["lag_ms"]
    figure("expiry age", f"p99 {p99(ages):.0f} ms in small rooms; the last of the huge one {last} ms")
    assert max(ages) <= last / 2, "small rooms wait for the huge one"
    each_ended_once(server, ["huge"], HUGE)
    each_ended_once(server, small, 2)
    for waits in (*listing.values(), *ending.values()):
        in_proportion(waits, base)
    server.call("FLUSHALL SYNC")


# -------------------------------------------------------------------- traffic beside traffic

FLOOD_S = 6
SPEAKERS = {"leases": 10000, "rooms": 100}


def flood(server, kind, lap=1000):
    return Generator(kind, server.port, **SPEAKERS, **PIPELINED, seconds=FLOOD_S, lap=lap)


def rate(came):
    return came["commands"] / came["seconds"]


@pytest.mark.server(clock=None)
def test_load_heartbeats_do_not_starve_messages(client, others, figure):
    """LOAD A flood of heartbeats delays SEND by its share of the server, not more."""
    server = client.server
    base = others.beside_sets(2, seconds=FLOOD_S, **PIPELINED)
    load(server, "open", **SPEAKERS, ttl_ms=LASTING, **PIPELINED)
    with others.wait("ping", "send", while_="heartbeats come") as waits:
        heartbeats = flood(server, "renew").end()
    messages = flood(server, "send").end()
    both = [flood(server, kind, lap=alone["next_lap"]) for kind, alone in (("renew", heartbeats), ("send", messages))]
    shares = [rate(beside.end()) / rate(alone) for beside, alone in zip(both, (heartbeats, messages))]
    figure(
        "heartbeats and messages a second",
        f"{rate(heartbeats):.0f} and {rate(messages):.0f} alone, {shares[0]:.0%} and {shares[1]:.0%} of that at once",
    )
    for seen in waits.values():
        in_proportion(seen, base)
    assert shares[1] >= 0.2
    server.call("FLUSHALL SYNC")


@pytest.mark.server(clock=None)
def test_load_messages_do_not_delay_expiry(client, figure):
    """LOAD A flood of messages does not delay expiry more than one of SETs, and none of them is lost."""
    server, ages = client.server, {}
    load(server, "open", **SPEAKERS, ttl_ms=LASTING, **PIPELINED)
    for kind in ("set", "send"):
        client.pipeline(*(f"LEASE.OPEN {kind} u{number} TTL {1000 + 4 * number}" for number in range(1000)))
        came = flood(server, kind).end()
        ages[kind] = [event["lag_ms"] for event in client.events(kind) if event["type"] == "removed"]
        figure(f"expiry age beside {kind.upper()}", f"p99 {p99(ages[kind]):.0f}, worst {max(ages[kind])} ms; {rate(came):.0f} a second")
        assert len(ages[kind]) == 1000
    assert sum(client("LEASE.STATS", name)["log_seq"] for name in rooms(SPEAKERS["rooms"])) == came["commands"]
    assert p99(ages["send"]) <= 3 * p99(ages["set"]) + 50
    server.call("FLUSHALL SYNC")
