"""TIME: clocks that step, stand still or lie."""

import pathlib
import shutil
import struct
import subprocess
import time

import pytest

from harness import Client, aftermath, wait_until
from harness.machine import Machine

HOUR = 3600
GREATEST = 2**63 - 1


# -------------------------------------------------------------------- TIME-01


class WallClock:
    """Steps the wall clock of servers started from now on, and of no one else: a library in front of theirs adds `step` seconds."""

    def __init__(self, folder, monkeypatch):
        library, self.file = folder / "wall_clock.so", folder / "step"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", library, pathlib.Path(__file__).with_name("wall_clock.c")], check=True
        )
        self.step(0)
        monkeypatch.setenv("LD_PRELOAD", str(library))
        monkeypatch.setenv("WALL_CLOCK_STEP", str(self.file))

    def step(self, seconds):
        with self.file.open("r+b" if self.file.exists() else "wb") as file:  # in place: servers have it mapped
            file.write(struct.pack("q", seconds))
        self.stepped_ms = seconds * 1000

    def now(self):
        """In unix ms, as the servers see it."""
        return time.time() * 1000 + self.stepped_ms


@pytest.fixture
def wall_clock(tmp_path, monkeypatch):
    if not shutil.which("cc"):
        pytest.skip("no C compiler to build the library that steps a server's wall clock")
    return WallClock(tmp_path, monkeypatch)


@pytest.fixture
def stepped(wall_clock, start, way):
    """A client of a server whose wall clock can be stepped."""
    return Client(start(clock=None, lease={"ttl-min-ms": 1, "tombstone-ms": 1500}), way)


def elapsed_ms(begin):
    return (time.monotonic() - begin) * 1000


def ends_in_time(client, session, ttl):
    """The lease's removal: it reads as ended after `ttl` ms of elapsed time from now on, and is removed soon after."""
    begin = time.monotonic()
    wait_until(lambda: client.raw("LEASE.COUNT r") == [0, 0], ttl / 1000 + 10, "the lease has ended")
    assert ttl - 20 <= elapsed_ms(begin) <= ttl + 100
    wait_until(lambda: client.history("r")[-1][:2] == ("removed", session), what="the lease is removed")
    removed = client.events("r")[-1]
    assert removed["reason"] == "expired"
    assert 0 <= removed["lag_ms"] <= elapsed_ms(begin) - ttl + 20
    return removed


THREE_WAYS = ("plain-resp3", "multi-resp2", "eval-resp3")


@pytest.mark.ways(*THREE_WAYS)
@pytest.mark.parametrize("ttl", (2000, pytest.param(60000, marks=pytest.mark.load)))
def test_time_01_the_wall_clock_moves_back(wall_clock, stepped, ttl):
    """TIME-01 The wall clock moves back; a client clock lies."""
    client = stepped
    wall_clock.step(HOUR)
    opened = client(f"LEASE.OPEN r u1 SESSION a TTL {ttl}")
    assert abs(opened["expires_at"] - (wall_clock.now() + ttl)) < 200
    wall_clock.step(0)
    assert opened["now"] - wall_clock.now() > HOUR * 900
    for seq, observed_at in enumerate((0, GREATEST), 1):
        status, left_ms, expires_at = client(f"LEASE.RENEW r a 1 {seq} OBSERVED {observed_at}")
        assert (status, left_ms) == (b"renewed", ttl)
        assert abs(expires_at - (wall_clock.now() + ttl)) < 200
        assert client.server.call("LEASE.GET r a")[b"observed_at"] == observed_at  # not by EVAL: Lua would round it
    removed = ends_in_time(client, b"a", ttl)
    assert removed["at"] >= client.events("r")[0]["at"]


@pytest.mark.ways("plain-resp3")
def test_time_01_timers_do_not_stall(wall_clock, stepped):
    """TIME-01 The wall clock moves back; a client clock lies: the removal comes within the bound although the server's timers stall."""
    late, machine = [], Machine()
    for number in range(10):
        wall_clock.step(HOUR)
        stepped(f"LEASE.OPEN r u1 SESSION s{number} TTL {200 + 13 * number}")
        wall_clock.step(0)
        late.append(ends_in_time(stepped, b"s%d" % number, 200 + 13 * number)["lag_ms"])
    assert max(late) <= 50 + machine.lag()


@pytest.mark.ways(*THREE_WAYS)
def test_time_01_the_wall_clock_moves_forward(wall_clock, stepped):
    """TIME-01 The wall clock moves back; a client clock lies: nor does it shorten anything to move forward."""
    client = stepped
    client("LEASE.OPEN r u1 SESSION a TTL 2000")
    wall_clock.step(HOUR)
    lease = client("LEASE.GET r a")
    assert lease["state"] == b"active"
    assert abs(lease["expires_at"] - (wall_clock.now() + lease["left_ms"])) < 200
    ends_in_time(client, b"a", lease["left_ms"])
    wall_clock.step(2 * HOUR)
    assert client("LEASE.GET r a")["reason"] == b"expired"  # nor a tombstone's window
    begin = time.monotonic()
    wait_until(lambda: client("LEASE.GET r a") is None, 10, "the tombstone's time is over")
    assert 1200 < elapsed_ms(begin) < 1700


# -------------------------------------------------------------------- TIME-02


@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1, "tombstone-ms": 1})
@pytest.mark.ways(*THREE_WAYS[:1])
def test_time_02_nothing_due_for_an_hour(client):
    """TIME-02 A clock that stands still: a server whose rooms have nothing to do until they go for being empty has nothing to do either."""
    for number in range(10):
        client(f"LEASE.OPEN r{number} u1 TTL {200 + number * 10}")
    wait_until(lambda: client.server.lease_info()["tombstones"] == client.server.lease_info()["active_leases"] == 0)
    assert client.server.lease_info()["rooms"] == 10
    assert busy_s(client.server, 1) < 0.1


def busy_s(server, seconds):
    """Of the processor, while nobody asks for anything."""
    before = server.info("cpu")
    time.sleep(seconds)  # the time that must not be used
    after = server.info("cpu")
    return sum(float(after[name]) - float(before[name]) for name in ("used_cpu_sys", "used_cpu_user"))


@pytest.mark.ways(*THREE_WAYS)
@pytest.mark.parametrize("seconds", (2, pytest.param(30, marks=pytest.mark.load)))
def test_time_02_a_clock_that_stands_still(client, seconds):
    """TIME-02 A clock that stands still."""
    client.advance(5000)
    for number in range(100):
        client(f"LEASE.OPEN r u{number} TTL 1000")
    with client.nothing_changes():
        slices = client.server.lease_info()["reap_slices"]
        busy = busy_s(client.server, seconds)
        assert client.server.lease_info()["reap_slices"] - slices <= 2
        assert client.refusal("LEASE.CLOCK SET 4999") == "ERR"
        assert client("LEASE.CLOCK GET") == 5000
    assert client("LEASE.COUNT r") == [100, 100]
    assert busy < seconds * 0.05
    client.advance(1000)
    assert client("LEASE.COUNT r") == [0, 0]


# -------------------------------------------------------------------- TIME-03

# Opens a lease of 20 ms, works for a while, then looks three times: how GET, COUNT and RENEW judge it, 1 for alive.
AROUND_THE_DEADLINE = """
redis.call('LEASE.OPEN', KEYS[1], ARGV[1], 'SESSION', ARGV[1], 'TTL', 20)
local seen, finish, turns = {}, redis.call('LEASE.CLOCK', 'GET') + ARGV[2], 0
while redis.call('LEASE.CLOCK', 'GET') < finish and turns < 1000000 do turns = turns + 1 end
for seq = 1, 3 do
    local lease, state = redis.call('LEASE.GET', KEYS[1], ARGV[1])
    for field = 1, #lease, 2 do
        if lease[field] == 'state' then state = lease[field + 1] end
    end
    local renewed = redis.pcall('LEASE.RENEW', KEYS[1], ARGV[1], 1, seq)
    seen[#seen + 1] = state == 'active' and 1 or 0
    seen[#seen + 1] = renewed.err and 0 or 1
    seen[#seen + 1] = redis.call('LEASE.COUNT', KEYS[1])[1]
end
return seen
"""

replicated = pytest.mark.server(clock=None, lease={"ttl-min-ms": 1})
HUNDRED_OR_THOUSAND = pytest.mark.parametrize("times", (100, pytest.param(1000, marks=pytest.mark.load)))


def each_ends_once(client, rooms):
    """All leases expire, each with one event, and the replica agrees."""
    wait_until(lambda: all(client("LEASE.COUNT", room) == [0, 0] for room in rooms), what="all leases have expired")
    wait_until(lambda: client.server.lease_info()["reap_backlog"] == 0, what="all are removed")
    for room in rooms:
        assert [event["reason"] for event in client.events(room) if event["type"] == "removed"] == ["expired"]
    (replica,) = client.server.replicas
    replica.in_step()
    assert replica.call("DEBUG DIGEST") == client.server.call("DEBUG DIGEST")


@replicated
@HUNDRED_OR_THOUSAND
@pytest.mark.ways("plain-resp3")
def test_time_03_time_inside_scripts(client, times):
    """TIME-03 Time inside scripts and transactions: scripts."""
    client.server.replica()
    rooms = [f"r{number}" for number in range(times)]
    ends = set()
    for number, room in enumerate(rooms):
        busy_ms = 50 if number % 10 == 0 else 18 + number % 5
        seen = client("EVAL", AROUND_THE_DEADLINE, 1, room, "u1", busy_ms)
        assert seen == sorted(seen, reverse=True), f"gone, then active again: {seen}"
        assert busy_ms < 50 or not any(seen), "alive after its deadline"
        ends.add(seen[-1])
    assert ends == {0, 1}, "the deadline was on one side only: nothing was tried"
    each_ends_once(client, rooms)


@replicated
@HUNDRED_OR_THOUSAND
@pytest.mark.ways("plain-resp2", "plain-resp3")
def test_time_03_time_inside_transactions(client, times):
    """TIME-03 Time inside scripts and transactions: MULTI."""
    client.server.replica()
    rooms = [f"r{number}" for number in range(times)]
    for number, room in enumerate(rooms):
        busy_ms = 50 if number % 10 == 0 else 18 + number % 50 / 10
        _, _, renewed, lease, count = client.transaction(
            f"LEASE.OPEN {room} u1 SESSION a TTL 20",
            f"DEBUG SLEEP {busy_ms / 1000}",
            f"LEASE.RENEW {room} a 1 1",
            f"LEASE.GET {room} a",
            f"LEASE.COUNT {room}",
        )
        if isinstance(renewed, Exception):
            assert (renewed.head, lease["state"], lease["reason"], count) == ("STALE expired", b"ended", b"expired", [0, 0])
        else:
            assert busy_ms < 50
            assert (renewed[0], renewed[1], lease["state"], count) == (b"renewed", 20, b"active", [1, 1])
    each_ends_once(client, rooms)


# -------------------------------------------------------------------- TIME-04


@pytest.mark.parametrize("held", (True, False), ids=("held", "reaped"))
def test_time_04_units(client, held):
    """TIME-04 Units: the windows of a lease."""
    client("LEASE.SETPOLICY r tombstone-ms 2000")
    assert client("LEASE.OPEN r u1 SESSION a TTL 5000")["left_ms"] == 5000
    assert client("LEASE.LEAVE r a 1") == b"left"
    for ms, known in ((1999, True), (1, False)):
        if held:
            (lease,) = client.held(ms, "LEASE.GET r a")
        else:
            client.advance(ms)
            lease = client("LEASE.GET r a")
        assert (lease is not None) == known
    assert client("LEASE.OPEN r u1")["epoch"] == 2


@pytest.mark.parametrize("held", (True, False), ids=("held", "reaped"))
def test_time_04_windows_of_a_message(client, held):
    """TIME-04 Units: a message is known for dedup-ms, and as long as it is retained."""
    client("LEASE.SETPOLICY r tombstone-ms 2000 dedup-ms 3000 retain-ms 4000")
    client("LEASE.OPEN r u1 SESSION a TTL 5000")
    assert client("LEASE.SEND r a 1 m1 x")["at"] == 0
    assert client("LEASE.LEAVE r a 1") == b"left"
    client("LEASE.OPEN r u1 SESSION b")
    for ms, status, seq, kept in (
        (2999, b"duplicate", 1, [b"1-0"]),
        (1, b"duplicate", 1, [b"1-0"]),
        (999, b"duplicate", 1, [b"1-0"]),
        (1, b"accepted", 2, [b"2-0"]),
    ):
        commands = ["LEASE.TRIM r", "LEASE.SEND r b 2 m1 x", "XRANGE {r}:log - +"]
        if held:
            _, sent, log = client.held(ms, *commands)
        else:
            client.advance(ms)
            _, sent, log = client.pipeline(*commands)
        assert ((sent["status"], sent["seq"]), [id for id, _ in log]) == ((status, seq), kept)


def test_time_04_memory_after_all_windows(client):
    """TIME-04 Units: after all windows memory is back, but for a tenth of what they took."""
    client("LEASE.SETPOLICY r tombstone-ms 2000 dedup-ms 3000 retain-ms 4000")
    empty = memory(client)
    client.pipeline(*(f"LEASE.OPEN r u{number} SESSION s{number} TTL 5000" for number in range(500)))
    client.pipeline(*(f"LEASE.SEND r s{number} 1 m{number} x" for number in range(500)))
    full = memory(client)
    assert client.server.lease_info()["dedupe_records"] == 500
    client.advance(6999)
    client("LEASE.TRIM r")
    info = client.server.lease_info()
    assert (info["tombstones"], info["dedupe_records"], client.raw("XLEN {r}:log")) == (500, 0, 0)
    client.advance(1)
    assert client.server.lease_info()["tombstones"] == 0
    assert memory(client) - empty < (full - empty) / 10


def memory(client):
    return client("MEMORY USAGE r SAMPLES 0")


# -------------------------------------------------------------------- TIME-05

DOWN_MS = 1500
PLAIN, SHORTENED, LINGERING, LIMITED = b"plain", b"shortened", b"lingering", b"limited"

# What is left after 6000 of 10000 ms and a pause of 1500, by recovery-grace-ms.
LEFT = {
    0: {PLAIN: 2500, SHORTENED: 500, LINGERING: 500, LIMITED: 1500},
    3000: {PLAIN: 3000, SHORTENED: 2000, LINGERING: 2000, LIMITED: 1500},
    -1: {PLAIN: 10000, SHORTENED: 2000, LINGERING: 2000, LIMITED: 1500},
}

recovering = pytest.mark.parametrize(
    "grace", [pytest.param(grace, marks=pytest.mark.server(lease={"recovery-grace-ms": grace, "disconnect-ms": 2000})) for grace in LEFT]
)


def six_seconds_in(client):
    """Four leases of 10000 ms, 6000 of them gone; one is limited to 3000 more, one shortened to 2000, one lingers that long."""
    until = client.now() + 9000
    for session in LEFT[0]:
        client("LEASE.OPEN", "r", b"user of " + session, "SESSION", session, "TTL", 10000, *(["UNTIL", until] if session == LIMITED else []))
    client.advance(6000)
    assert client("LEASE.RENEW r shortened 1 1 STATE disconnected")[:2] == [b"shortened", 2000]
    assert client("LEASE.LEAVE r lingering 1 LINGER 2000") == b"lingering"


def left_as_told(server, client, left):
    """The leases have what is left to them, and left silent end once, when it is over."""
    roster = {lease["session"]: lease for lease in client("LEASE.ROSTER r")["leases"]}
    assert {session: lease["left_ms"] for session, lease in roster.items()} == left
    now = server.now()
    server.advance(20000)
    removed = {event["session"]: event for event in client.events("r") if event["type"] == "removed"}
    assert {session: event["due"] - now for session, event in removed.items()} == left
    assert {session: event["reason"] for session, event in removed.items()} == dict.fromkeys(left, "expired") | {LINGERING: "left"}
    assert len(client.events("r")) == 9  # four opened, one state, four removed


@recovering
def test_time_05_remaining_time_over_a_restart(server, way, grace):
    """TIME-05 Remaining time over a restart: SHUTDOWN SAVE and start."""
    six_seconds_in(Client(server, way))
    server.stop("save")
    server.set_clock(server.clock + DOWN_MS)
    server.start()
    left_as_told(server, Client(server, way), LEFT[grace])


@recovering
@pytest.mark.ways(*THREE_WAYS)
def test_time_05_remaining_time_over_a_failover(server, way, grace):
    """TIME-05 Remaining time over a restart: the primary is lost, its replica promoted."""
    replica = server.replica()
    six_seconds_in(Client(server, way))
    replica.in_step()
    server.stop("kill")
    replica.call("LEASE.CLOCK", "ADVANCE", DOWN_MS)
    replica.call("REPLICAOF NO ONE")
    replica.set(replicaof="no one")
    left_as_told(replica, Client(replica, way), LEFT[grace])
    aftermath.check(replica)
