"""API-08 under traffic: slots go back and forth while cluster clients open, renew, send and read."""

import threading
import time

import pytest
import redis

from harness import wait_until
from harness.cluster import Cluster
from harness.events import read, stream
from harness.messages import read as messages

pytestmark = [pytest.mark.no_restart("a restarted node waits for its cluster"), pytest.mark.load]

SLOTS = 24
SECONDS = 20
WORKERS = 3
LONG_MS, SHORT_MS = 600000, 200


class Worker(threading.Thread):
    """One cluster client with rooms of its own: what it was told is what must be there."""

    def __init__(self, port, rooms, stop):
        super().__init__()
        self.client = redis.RedisCluster(host="127.0.0.1", port=port, protocol=3, socket_timeout=30)
        self.rooms, self.stop, self.failure = {room: {} for room in rooms}, stop, None
        self.calls = self.again = 0

    def call(self, *command):
        """The reply; TRYAGAIN is tried again, MOVED and ASK are followed by the client."""
        while True:
            self.calls += 1
            try:
                return self.client.execute_command(*command)
            except redis.ResponseError as error:
                if not str(error).startswith("TRYAGAIN"):
                    raise AssertionError(f"{command}: {error}") from error
                self.again += 1
                time.sleep(0.002)

    def run(self):
        try:
            for room, known in self.rooms.items():
                opened = self.call("LEASE.OPEN", room, "u", "SESSION", "s", "TTL", LONG_MS)
                known.update(gen=opened[b"gen"], epoch=opened[b"epoch"], seq=0, sent={}, after=0, opened=0)
            while not self.stop.is_set():
                for room, known in self.rooms.items():
                    self.visit(room, known)
        except Exception as failure:  # told by the test
            self.failure = failure
            self.stop.set()

    def visit(self, room, known):
        """A heartbeat, a message twice, a lease that expires or is ended, and what the log has since the last visit."""
        known["seq"] += 1
        status, *_ = self.call("LEASE.RENEW", room, "s", known["epoch"], known["seq"])
        assert status == b"renewed", (room, status)
        name = f"m{known['seq']}"
        first, again = (self.call("LEASE.SEND", room, "s", known["epoch"], name, "x") for _ in range(2))
        assert (first[b"status"], again[b"status"], again[b"seq"]) == (b"accepted", b"duplicate", first[b"seq"])
        assert first[b"gen"] == known["gen"], f"{room} began another history"
        known["sent"][name.encode()] = first[b"seq"]
        holder = f"v{known['seq'] % 3}"
        epoch = self.call("LEASE.OPEN", room, holder, "TTL", SHORT_MS)[b"epoch"]
        assert epoch > known.get(holder, 0), "an epoch went back"
        known[holder] = epoch
        known["opened"] += 1
        if holder == "v0":
            self.call("LEASE.KICK", room, "USER", holder)
        replay = self.call("LEASE.REPLAY", room, "s", known["epoch"], known["gen"], known["after"])
        assert replay[b"status"] == b"ok", (room, replay)
        seqs = [seq for seq, _ in replay[b"entries"]]
        assert seqs == list(range(known["after"] + 1, known["after"] + 1 + len(seqs)))
        known["after"] = replay[b"next"]


def rooms_in(slots, count):
    """Names of rooms whose slots are among the first so many."""
    found, number = [], 0
    while len(found) < count:
        name = f"room{number}"
        number += 1
        if redis.crc.key_slot(name.encode()) < slots:
            found.append(name)
    return found


def by_cli(cluster, source, target):
    reshard = cluster.reshard(source, target, SLOTS)
    said, _ = reshard.communicate(timeout=120)
    assert reshard.returncode == 0, said[-2000:]


def as_a_whole(cluster, source, target):
    cluster.migrate_slots(0, SLOTS - 1, source, target)


@pytest.mark.parametrize("move", (by_cli, as_a_whole))
def test_api_08_reshard_under_traffic(start, move):
    """API-08 Slot migration: nothing lost, doubled or told twice; clients see TRYAGAIN at most."""
    cluster = Cluster(start, clock=None, lease={"ttl-min-ms": 1})
    if move is as_a_whole and not cluster.moves_atomically():
        pytest.skip("this server has no CLUSTER MIGRATESLOTS")
    names, stop = rooms_in(SLOTS, 4 * WORKERS), threading.Event()
    workers = [Worker(cluster.nodes[0].port, names[place::WORKERS], stop) for place in range(WORKERS)]
    for worker in workers:
        worker.start()
    end, moves = time.monotonic() + SECONDS, 0
    while time.monotonic() < end and not stop.is_set():
        source, target = cluster.nodes[moves % 2], cluster.nodes[1 - moves % 2]
        move(cluster, source, target)
        moves += 1
    stop.set()
    for worker in workers:
        worker.join()
        assert worker.failure is None, worker.failure
    time.sleep(2 * SHORT_MS / 1000)  # the last short leases end by themselves
    holder = cluster.nodes[moves % 2]
    known = {room: facts for worker in workers for room, facts in worker.rooms.items()}
    for room, facts in known.items():
        agrees(holder, room, facts)
    wait_until(lambda: [node.call("DBSIZE") for node in cluster.nodes if node is not holder] == [0, 0], what="the others have let go")
    assert {node.lease_info()["events_lost"] for node in cluster.nodes} == {0}
    calls, again = sum(worker.calls for worker in workers), sum(worker.again for worker in workers)
    print(f"\n{moves} moves of {SLOTS} slots, {calls} calls, {again} of them to be tried again, {len(known)} rooms")
    assert moves >= 2 and calls > 100


def agrees(node, room, facts):
    """Log and events tell what the worker was told, once each."""
    log = [(entry["id"], seq) for seq, entry in messages(node.call, room)]
    assert sorted(log) == sorted(facts["sent"].items()), f"{room}: the log differs from what was accepted"
    events = read(node.call, room)
    assert [event["n"] for event in events] == list(range(1, len(events) + 1)), f"{room}: a gap in its events"
    kinds = [event["type"] for event in events]
    assert (kinds.count("opened"), kinds.count("removed"), kinds.count("closed")) == (facts["opened"] + 1, facts["opened"], 0)
    ended = [(event["session"], event["epoch"]) for event in events if event["type"] == "removed"]
    assert len(set(ended)) == len(ended), f"{room}: a lease was removed twice"
    assert node.call("EXISTS", room, stream(room), stream(room, "log")) == 3
