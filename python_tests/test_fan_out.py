"""The fan-out worker of the examples: whatever happens to it, every queue gets every message exactly once, in order."""

import itertools
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from harness import wait_until
from harness.events import stream

HERE = pathlib.Path(__file__).resolve().parent
WORKER, MORTAL = HERE.parent / "examples/fan_out.py", HERE / "mortal.py"
USERS = [b"ann", b"\xffodd {}"]
DRAIN = ("--drain", "--claim-after-ms", "0")
# What a worker sends if it has something to do.
STEPS = {"XGROUP", "XREADGROUP", "XAUTOCLAIM", "LEASE.GRANTS", "WATCH", "LEASE.MARK", "XREVRANGE", "XRANGE", "MULTI", "XACK"}


@pytest.fixture
def workers(server):
    """Starts workers, which end with the test: workers(*options, fate=("before", 3))."""
    for user in USERS:
        server.call("LEASE.GRANT", "r", user, "READ")
    started = []

    def start(*options, fate=()):
        mortal = [MORTAL, *map(str, fate)] if fate else []
        command = [sys.executable, *mortal, WORKER, "r", "--url", f"redis://127.0.0.1:{server.port}", *options]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for worker in started:
        worker.kill()
        worker.communicate()


def ended(worker):
    """The last command of a worker that was killed; empty if it came to its end by itself."""
    last, error = worker.communicate(timeout=60)
    assert worker.returncode == (-signal.SIGKILL if last else 0), error
    return last.strip()


def post(server, count):
    """Messages of a bot, each with its seq as payload; the newest seq."""
    newest = server.call("LEASE.STATS r")[b"log_seq"]
    replies = server.call.pipeline([["LEASE.POST", "r", "bot", f"m{seq}", seq] for seq in range(newest + 1, newest + count + 1)])
    assert [reply[b"seq"] for reply in replies] == list(range(newest + 1, newest + count + 1))
    return newest + count


def queues(server):
    """What each user's queue has: payloads of messages, which are their seqs, and gaps as pairs."""
    read = server.call.pipeline([["XRANGE", queue(user), "-", "+"] for user in USERS])
    entries = [[dict(zip(fields[::2], fields[1::2])) for _, fields in entries] for entries in read]
    assert all(entry[b"seq"] == entry[b"payload"] for queue in entries for entry in queue if b"seq" in entry)
    return [[int(e[b"seq"]) if b"seq" in e else (int(e[b"gap_from"]), int(e[b"gap_to"])) for e in queue] for queue in entries]


def queue(user):
    return stream("r", "queue:") + user


def delivered(server, *entries):
    """Every queue has these entries and no others, the cursors stand at the newest message, and no entry of the group is pending."""
    assert queues(server) == [list(entries)] * len(USERS)
    cursors = {holder[b"user"]: holder[b"queued_lag"] for holder in server.call("LEASE.LAG r")[b"holders"]}
    assert cursors == dict.fromkeys(USERS, 0)
    assert pending(server) == 0


def pending(server):
    (group,) = server.call("XINFO", "GROUPS", stream("r", "log"))
    return group[b"pending"]


@pytest.mark.parametrize("fate", ["before", "torn", "after"])
def test_killed_at_every_command(server, workers, fate):
    """A worker is killed at its nth command, the one that takes over at its own nth; a third, named as one of them, must find all that they
    left, though no further message comes."""
    seen = set()
    for nth in itertools.count(1):
        newest = post(server, 1)
        last, second = (ended(workers(*DRAIN, "--consumer", name, fate=(fate, nth))) for name in ("a", "b"))
        seen |= {last, second}
        assert ended(workers(*DRAIN, "--consumer", "ab"[nth % 2])) == ""
        delivered(server, *range(1, newest + 1))
        if not last:
            break
    assert seen >= STEPS


def test_stopped_at_every_command(server, workers):
    """A worker stands still before its nth command while another one takes its entries and delivers them; then it goes on where it was."""
    seen = set()
    for nth in itertools.count(1):
        newest = post(server, 1)
        slow = workers(*DRAIN, "--consumer", "slow", fate=("stopped", nth))
        _, status = os.waitpid(slow.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            assert status == 0
            break
        assert ended(workers(*DRAIN, "--consumer", "quick")) == ""
        slow.send_signal(signal.SIGCONT)
        output, error = slow.communicate(timeout=60)
        assert slow.returncode == 0, error
        seen.add(output.strip())
        delivered(server, *range(1, newest + 1))
    assert seen >= STEPS


def test_side_by_side(server, workers):
    """Workers that wait for messages share them and steal them from each other, in more than one page."""
    started = [workers("--claim-after-ms", "0", "--consumer", name) for name in ("a", "b", "c")]
    wait_until(lambda: server.info("clients")["blocked_clients"] == 3, 30, "all wait")
    for _ in range(10):
        newest = post(server, 30)
    wait_until(lambda: queues(server)[-1][-1:] == [newest] and pending(server) == 0, 60, "all is delivered")
    assert [worker.poll() for worker in started] == [None] * 3
    delivered(server, *range(1, newest + 1))


def test_behind_by_pages(server, workers):
    """Page by page: what came while no worker ran, and to one who joins all that the log has."""
    newest = post(server, 250)
    server.call("LEASE.REVOKE", "r", USERS[0])
    assert ended(workers("--drain")) == ""
    assert queues(server) == [[], list(range(1, newest + 1))]
    server.call("LEASE.GRANT", "r", USERS[0], "READ")
    newest = post(server, 1)
    assert ended(workers("--drain")) == ""
    delivered(server, *range(1, newest + 1))


def test_resumes_at_once(server, workers):
    """A worker does not wait for what it has read itself under its name."""
    newest = post(server, 3)
    read_and_die(server, "a")
    assert ended(workers("--drain", "--consumer", "b")) == ""
    assert queues(server) == [[], []]
    assert ended(workers("--drain", "--consumer", "a")) == ""
    delivered(server, *range(1, newest + 1))


def read_and_die(server, consumer):
    server.call("XGROUP", "CREATE", stream("r", "log"), "fan-out", 0)
    server.call("XREADGROUP", "GROUP", "fan-out", consumer, "STREAMS", stream("r", "log"), ">")


def test_gap(server, workers):
    """Where messages are gone from the log, before a queue's first or between two, the queue says so."""
    server.call("LEASE.SETPOLICY r retain-count 2")
    post(server, 5)
    server.call("LEASE.TRIM r")
    assert ended(workers("--drain")) == ""
    delivered(server, (1, 3), 4, 5)
    post(server, 5)
    server.call("LEASE.TRIM r")
    assert ended(workers("--drain")) == ""
    delivered(server, (1, 3), 4, 5, (6, 8), 9, 10)


@pytest.mark.parametrize("consumer", ["a", "b"])
def test_gap_of_all_that_was_read(server, workers, consumer):
    """Messages that a worker had read when it died, and that are trimmed since: the next one finds only their ids."""
    server.call("LEASE.SETPOLICY r retain-ms 1000")
    newest = post(server, 3)
    read_and_die(server, "a")
    server.advance(1000)
    server.call("LEASE.TRIM r")
    assert server.call("XLEN", stream("r", "log")) == 0
    assert ended(workers(*DRAIN, "--consumer", consumer)) == ""
    delivered(server, (1, newest))


def test_revoked_in_between(server, workers):
    """A member who is revoked after its cursor was read gets neither message nor mark; granted access again, it gets everything once."""
    post(server, 2)
    worker = workers("--drain", fate=("stopped", "MULTI"))
    os.waitpid(worker.pid, os.WUNTRACED)
    server.call("LEASE.REVOKE", "r", USERS[0])
    worker.send_signal(signal.SIGCONT)
    worker.communicate(timeout=60)
    assert worker.returncode == 1
    assert queues(server) == [[], []]
    assert ended(workers("--drain")) == ""
    assert queues(server) == [[], [1, 2]]
    server.call("LEASE.GRANT", "r", USERS[0], "READ")
    post(server, 1)
    assert ended(workers("--drain")) == ""
    delivered(server, 1, 2, 3)


def test_cursor_that_ended(server, workers):
    """A room that was quiet for longer than cursors last: nothing is queued a second time, not even if a member has consumed all but the
    last entry."""
    server.call("CONFIG SET lease.cursor-ms 1000")
    post(server, 3)
    assert ended(workers("--drain")) == ""
    server.call("XTRIM", queue(USERS[0]), "MAXLEN", 1)
    server.advance(1000)
    assert server.call("LEASE.LAG r")[b"holders"] == []
    post(server, 1)
    assert ended(workers("--drain")) == ""
    assert queues(server) == [[3, 4], [1, 2, 3, 4]]


def test_room_that_began_anew(server, workers):
    """The messages of a new room are queued after those of the old one, though their seqs are the same."""
    post(server, 3)
    assert ended(workers("--drain")) == ""
    server.call("DEL", "r", stream("r", "log"), stream("r"))
    for user in USERS:
        server.call("LEASE.GRANT", "r", user, "READ")
    post(server, 3)
    assert ended(workers("--drain")) == ""
    delivered(server, 1, 2, 3, 1, 2, 3)


def test_wrong_server(server, workers):
    """Where LEASE.GRANTS cannot be asked nothing is made, and the worker ends at once instead of waiting for ever."""
    server.call("ACL SETUSER default -lease.grants")
    worker = workers()
    _, error = worker.communicate(timeout=60)
    assert worker.returncode == 1 and "'lease.grants' command" in error
    assert server.call("EXISTS", stream("r", "log")) == 0
    server.call("ACL SETUSER default +lease.grants")


def test_queue_of_another_type(server, workers):
    """A queue that cannot be written is not marked as written; once it can be, nothing is missing."""
    post(server, 2)
    server.call("SET", queue(USERS[0]), "no stream")
    worker = workers("--drain", "--consumer", "a")
    _, error = worker.communicate(timeout=60)
    assert worker.returncode == 1 and "WRONGTYPE" in error
    assert server.call("LEASE.LAG r")[b"holders"] == []
    server.call("DEL", queue(USERS[0]))
    assert ended(workers("--drain", "--consumer", "a")) == ""
    delivered(server, 1, 2)
