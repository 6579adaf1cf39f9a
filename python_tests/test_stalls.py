"""STALL: the server waits, sleeps or is held; the wall clock moves meanwhile. Nothing aborts, and the reaper catches up.

An AOF and a replica are there, so that a write at the wrong time would abort the server.
"""

import os
import signal
import time
from contextlib import contextmanager

import pytest

from harness import Client, Refused, Way, aftermath, wait_until
from test_time import HOUR, wall_clock  # noqa: F401  a fixture

PLAIN = Way("plain", 3)
DUE, KEPT = 200, 200
TTL_MS = 1000
FOREVER = 100 * HOUR  # the servers measure their own patience by the wall clock, and give up a replica that is late


@contextmanager
def paused(server, replica):
    server.call("CLIENT PAUSE 360000000 WRITE")
    yield
    server.call("CLIENT UNPAUSE")


@contextmanager
def stopped(node, server):
    """A process that is there and does not run; `server` has something to tell it."""
    os.kill(node.process.pid, signal.SIGSTOP)
    server.call("SET something new")
    yield
    os.kill(node.process.pid, signal.SIGCONT)


@contextmanager
def shutting_down(server, replica):
    """SHUTDOWN waits for a replica that does not answer, and is called off."""
    waiting = server.connect()
    with stopped(replica, server):
        waiting.send([["SHUTDOWN", "NOSAVE"]])
        yield
        assert server.call("SHUTDOWN ABORT") == b"OK"
    assert isinstance(waiting.read(), Refused)


@contextmanager
def failing_over(server, replica):
    """FAILOVER waits for a replica that does not answer, and is called off."""
    with stopped(replica, server):
        server.call("FAILOVER", "TO", "127.0.0.1", replica.port, "TIMEOUT", FOREVER * 1000)
        yield
        assert server.call("FAILOVER ABORT") == b"OK"


@contextmanager
def running_a_script(server, replica):
    busy = server.connect()
    server.call("CONFIG SET lua-time-limit 50")
    busy.send([["EVAL", "while true do end", 0]])
    yield
    wait_until(lambda: server.call("SCRIPT KILL") == b"OK")
    busy.read()


@contextmanager
def sleeping(server, replica):
    asleep = server.connect()
    asleep.send([["DEBUG", "SLEEP", (TTL_MS + 500) / 1000]])
    yield
    assert asleep.read() == b"OK"


@contextmanager
def held_by_a_signal(server, replica):
    os.kill(server.process.pid, signal.SIGSTOP)
    yield
    os.kill(server.process.pid, signal.SIGCONT)


STALLS = (paused, shutting_down, failing_over, running_a_script, sleeping, held_by_a_signal)


def started(start, **redis):
    server = start(clock=None, redis={"appendonly": "yes", "shutdown-timeout": FOREVER, "repl-timeout": FOREVER} | redis)
    replica = server.replica(redis={"repl-timeout": FOREVER})
    server.call("PUBLISH nobody hears")
    replica.in_step()
    return server, replica, Client(server, PLAIN)


def ends_of(client):
    return [session for kind, session, *_ in client.history("r") if kind == "removed"]


@pytest.mark.parametrize("hours", (0, *(pytest.param(hours, marks=pytest.mark.load) for hours in (-6, 6))))
@pytest.mark.parametrize("stall", STALLS, ids=lambda stall: stall.__name__)
@pytest.mark.no_restart("the test is about a server that goes on")
def test_stall_and_catch_up(wall_clock, start, figure, stall, hours):  # noqa: F811
    """STALL Waiting, sleeping, held: who is due meanwhile ends once, soon afterwards, and nobody else does."""
    server, replica, client = started(start)
    opened = client.pipeline(
        *(f"LEASE.OPEN r u{number} SESSION due{number} TTL {TTL_MS}" for number in range(DUE)),
        *(f"LEASE.OPEN r v{number} SESSION kept{number} TTL 60000" for number in range(KEPT)),
    )
    with stall(server, replica):
        wall_clock.step(hours * HOUR)
        time.sleep((TTL_MS + 300) / 1000)  # on the real clock the deadline is the only event there is
    begin = time.monotonic()
    client = Client(server, PLAIN)
    wait_until(lambda: client.raw("XLEN {r}:events") >= 2 * DUE + KEPT, 10, "all that were due are removed")
    caught_up = (time.monotonic() - begin) * 1000
    assert sorted(ends_of(client)) == sorted(b"due%d" % number for number in range(DUE))
    assert client("LEASE.COUNT r") == [KEPT, KEPT]
    renewed = client.pipeline(*(["LEASE.RENEW", "r", f"kept{number}", reply["epoch"], 1] for number, reply in enumerate(opened[DUE:])))
    assert {(status, left_ms) for status, left_ms, _ in renewed} == {(b"renewed", 60000)}
    replica.in_step()
    aftermath.replicas_agree(server)
    figure("all that were due had ended", f"{caught_up:.0f} ms after the stall, pauses honoured {server.lease_info()['pauses_honoured']}")


@pytest.mark.no_restart("the test restarts by itself")
def test_stall_shutdown_goes_through(start):
    """STALL SHUTDOWN waits for a stopped replica while leases fall due, and ends well: they end after the next start."""
    server, replica, client = started(start, **{"shutdown-timeout": 3})
    client.pipeline(*(f"LEASE.OPEN r u{number} SESSION due{number} TTL {TTL_MS}" for number in range(DUE)))
    with stopped(replica, server):
        server.call.send([["SHUTDOWN", "NOSAVE"]])
        assert server.process.wait(60) == 0
    server.close_connections()
    assert not aftermath.ALARMS.search(server.log()), server.log()[-3000:]
    server.start()
    client = Client(server, PLAIN)
    assert ends_of(client) == []
    wait_until(lambda: client.raw("XLEN {r}:events") == 2 * DUE, 10, "all are removed")
    assert len(set(ends_of(client))) == DUE
