"""LOAD: a million leases, a storm of reconnects, one huge room among small ones, one kind of traffic beside another.

Times are printed, and held to bounds that only a server which has lost its way breaks: other programs share the machine. What is
asserted is that nothing is lost.
"""

import threading
import time

import pytest
import redis

from crowd import fill
from harness import Client, Connection, Refused, Way, wait_until
from harness.machine import p99

PLAIN = Way("plain", 3)
MILLION = 1000000
LASTING = 600000

load = pytest.mark.load
on_the_real_clock = pytest.mark.server(clock=None, lease={"events-maxlen": 100, "tombstone-ms": 60000})
one_way = pytest.mark.ways("plain-resp3")
no_restart = pytest.mark.no_restart("a matter of running time only")


def megabytes(server):
    return server.info("memory")["used_memory"] / 1e6


class Timed(threading.Thread):
    """Sends a command over and over on a connection of its own, `every` seconds; in the end it tells how long replies took."""

    def __init__(self, server, command, every=0.001):
        super().__init__(daemon=True)
        self.connection, self.command, self.every = Connection(server.port), command, every
        self.took, self.refused, self.ended = [], [], threading.Event()
        self.start()

    def run(self):
        number = 0
        while not self.ended.wait(self.every):
            number += 1
            begin = time.perf_counter()
            try:
                reply, = self.connection.pipeline([self.command(number)])
            except redis.ConnectionError:  # the test has failed, and its server is gone
                return
            self.took.append((time.perf_counter() - begin) * 1000)
            if isinstance(reply, Refused):
                self.refused.append(reply.text)

    def end(self):
        self.ended.set()
        self.join()
        self.connection.close()
        assert not self.refused, self.refused[:3]
        return self.took


def figures(took):
    return f"p50 {sorted(took)[len(took) // 2]:.2f}, p99 {p99(took):.2f}, worst {max(took):.2f} ms of {len(took)}"


def ping(number):
    return ["PING"]


def renew(session):
    return lambda number: ["LEASE.RENEW", "watched", session, 1, number]


def watch(server):
    """What PING and RENEW of a small room take from now on."""
    server.call("LEASE.OPEN", "watched", "u1", "SESSION", "w", "TTL", LASTING)
    return {"PING": Timed(server, ping), "RENEW": Timed(server, renew("w"))}


def told(watched):
    for name, timed in watched.items():
        print(f"  {name}: {figures(timed.end())}")


def ended(server, reason, count, seconds):
    wait_until(lambda: server.lease_info()[f"ended_{reason}"] >= count, seconds, f"{count} have ended")
    assert server.lease_info()[f"ended_{reason}"] == count


# -------------------------------------------------------------------- a million

@load
@one_way
@on_the_real_clock
@no_restart
def test_load_a_million_leases_due_at_once(client):
    """LOAD A million leases, all due at once after a stall: each ends once, and others are answered meanwhile."""
    server, before = client.server, megabytes(client.server)
    due = client.now() + 150000
    for number in range(100):
        fill(server, f"room{number}", MILLION // 100, "TTL", LASTING, "UNTIL", due)
    assert server.lease_info()["active_leases"] == MILLION
    full = megabytes(server)
    print(f"\na million leases in 100 rooms: {full - before:.0f} MB, {(full - before):.0f} bytes each")
    server.call("DEBUG", "SLEEP", max(0, due - client.now()) / 1000 + 1)
    begin, watched = time.monotonic(), watch(server)
    wait_until(lambda: sum(event["n"] for number in range(100) for event in client.events(f"room{number}", newest=1)) >= 2 * MILLION, 300)
    print(f"all removed {time.monotonic() - begin:.1f} s after the stall")
    told(watched)
    ended(server, "expired", MILLION, 10)
    info = server.lease_info()
    print(f"  expiry age: p50 {info['expiry_age_ms_p50']}, p99 {info['expiry_age_ms_p99']}, max {info['expiry_age_ms_max']} ms; slice p99 {info['slice_us_p99']} us")
    assert (info["active_leases"], info["events_lost"]) == (1, 0)
    wait_until(lambda: server.lease_info()["tombstones"] == 0, 200, "all tombstones are forgotten")
    print(f"  memory {before:.0f} MB before, {full:.0f} full, {megabytes(server):.0f} after the last tombstone")
    assert megabytes(server) - before < (full - before) / 10


# -------------------------------------------------------------------- OPS-04

@load
@one_way
@no_restart
@pytest.mark.parametrize("old", ("superseded", "expired"))
@pytest.mark.server(clock=None, lease={"events-maxlen": 100})
def test_ops_04_reconnect_storm(client, old):
    """OPS-04 Reconnect storm: 50,000 users come back over 200 connections within 5 s; old leases are superseded, or expired before."""
    server, users, connections = client.server, 50000, 200
    rooms = [f"room{number}" for number in range(50)]
    until = ["UNTIL", client.now() + 30000] if old == "expired" else []
    for room in rooms:
        fill(server, room, users // len(rooms), "TTL", LASTING, *until)
    if old == "expired":
        wait_until(lambda: server.lease_info()["ended_expired"] == users, 90)
    links = [Connection(server.port) for _ in range(connections)]
    share = users // connections
    watched, begin, replies = watch(server), time.monotonic(), []
    for user in range(share):  # each connection waits for its reply: many pipelines at once would only measure how the server takes turns
        for number, link in enumerate(links):
            link.send([["LEASE.OPEN", rooms[number * len(rooms) // connections], f"u{(number * share + user) % (users // len(rooms))}", "TTL", LASTING]])
        replies += [link.read() for link in links]
    took = time.monotonic() - begin
    print(f"\n{users} OPENs over {connections} connections ({old}): {took:.1f} s")
    told(watched)
    assert not [reply for reply in replies if isinstance(reply, Refused)]
    assert {reply[b"epoch"] for reply in replies} == {2}
    assert all((reply[b"replaced"] is not None) == (old == "superseded") for reply in replies)
    info = server.lease_info()
    assert (info["active_leases"], info[f"ended_{old}"]) == (users + 1, users)
    print("  " + ", ".join(f"{name} {info[name]}" for name in sorted(info) if name.startswith("reconnect_delay")))
    for link in links:
        link.close()


# -------------------------------------------------------------------- one huge room

@load
@one_way
@on_the_real_clock
@no_restart
def test_load_a_huge_room_among_small_ones(client):
    """LOAD One room of 200,000 among 10,000 small ones: small rooms are answered and expire in time while the huge one is listed, renewed and expires."""
    server, huge, small = client.server, 200000, 10000
    due = client.now() + 90000
    fill(server, "huge", huge, "TTL", LASTING, "UNTIL", due)
    for number in range(small):
        fill(server, f"small{number}", 2, "TTL", LASTING, "UNTIL", due)
    print(f"\n{huge} in one room, 2 in each of {small}")
    watched = watch(server)
    lists, cursor = 0, None
    while cursor != 0:
        page = client("LEASE.ROSTER", "huge", "COUNT", 1000, "CURSOR", cursor or 0)
        if heartbeats := [word for lease in page["leases"] for word in (lease["session"], lease["epoch"], lease["seq"] + 1)]:
            client("LEASE.MRENEW", "huge", *heartbeats)
        cursor, lists = int(page["cursor"]), lists + 1
    print(f"  while all of it was listed and renewed in {lists} pages:")
    told(watched)
    assert client.now() < due, "too slow a machine: the leases are due before they are listed"
    wait_until(lambda: client.now() >= due - 500, 90)
    watched = {"PING": Timed(server, ping), "RENEW": Timed(server, lambda number: ["LEASE.RENEW", "watched", "w", 1, 1000000 + number])}
    ended(server, "expired", huge + 2 * small, 120)
    print("  while all expired at once:")
    told(watched)
    ages = [event["lag_ms"] for number in range(0, small, 10) for event in client.events(f"small{number}") if event["type"] == "removed"]
    assert len(ages) == 2 * small // 10
    last = client.events("huge", newest=1)[0]
    print(f"  expiry age of small rooms: {figures(ages)}; the last of the huge room {last['lag_ms']} ms")
    assert sorted(ages)[len(ages) // 2] <= last["lag_ms"], "small rooms wait for the huge one"


# -------------------------------------------------------------------- traffic beside traffic

def flood(server, command, connections=4):
    """Keeps the server busy with pipelines of a command; ends when told, and tells how many it sent."""
    over, sent = threading.Event(), [0] * connections

    def run(place):
        link, number = Connection(server.port), 0
        while not over.is_set():
            link.pipeline([command(place, number + step) for step in range(100)])
            number += 100
            sent[place] = number
        link.close()
    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(connections)]
    for thread in threads:
        thread.start()

    def end():
        over.set()
        for thread in threads:
            thread.join()
        return sum(sent)
    return end


@load
@one_way
@on_the_real_clock
@no_restart
def test_load_heartbeats_do_not_starve_messages(client):
    """LOAD A flood of heartbeats delays SEND by its share of the server, not more."""
    server = client.server
    fill(server, "busy", 400, "TTL", LASTING)
    fill(server, "watched", 1, "TTL", LASTING)
    send = lambda base: lambda number: ["LEASE.SEND", "watched", "s0", 1, f"{base}-{number}", "hello"]
    quiet = Timed(server, send("quiet"))
    time.sleep(2)
    quiet = quiet.end()
    end, begin = flood(server, lambda place, number: ["LEASE.RENEW", "busy", f"s{place * 100 + number % 100}", 1, number + 1]), time.monotonic()
    probe, loud = Timed(server, ping), Timed(server, send("loud"))
    time.sleep(5)
    loud, probe, sent = loud.end(), probe.end(), end()
    print(f"\nSEND alone: {figures(quiet)}\n  beside {sent / (time.monotonic() - begin):.0f} heartbeats a second: {figures(loud)}\n  PING there: {figures(probe)}")
    assert [seq for seq, _ in client.messages("watched")] == list(range(1, len(quiet) + len(loud) + 1))
    assert p99(loud) <= 3 * p99(probe) + 50


@load
@one_way
@on_the_real_clock
@no_restart
def test_load_messages_do_not_delay_expiry(client):
    """LOAD A flood of messages does not delay expiry, and the other way round none of them is lost."""
    server = client.server
    client("LEASE.SETPOLICY busy retain-count 1000")
    fill(server, "busy", 4, "TTL", LASTING)
    end, begin = flood(server, lambda place, number: ["LEASE.SEND", "busy", f"s{place}", 1, f"m{place}-{number}", "x" * 100]), time.monotonic()
    client("LEASE.SETPOLICY r events-maxlen 0")
    client.pipeline(*(f"LEASE.OPEN r u{number} TTL {1000 + 4 * number}" for number in range(1000)))
    wait_until(lambda: server.lease_info()["ended_expired"] == 1000, 30)
    sent = end()
    ages = [event["lag_ms"] for event in client.events("r") if event["type"] == "removed"]
    assert len(ages) == 1000
    print(f"\nexpiry age beside {sent / (time.monotonic() - begin):.0f} messages a second: {figures(ages)}")
    assert client("LEASE.STATS busy")["log_seq"] == sent
    assert p99(ages) <= 500
