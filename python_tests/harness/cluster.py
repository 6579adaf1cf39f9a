"""Primaries of one cluster, and slots that move between them key by key, step by step or by redis-cli."""

import re
import shutil
import subprocess

from .events import stream
from .process import free_port, wait_until
from .resp import Refused

SLOTS = 16384


class Cluster:
    """`start` is the fixture: it ends the nodes with the test. The options are those of each node."""

    def __init__(self, start, nodes=3, redis=None, **options):
        self.settings = {"cluster-enabled": "yes", "cluster-node-timeout": "15000", **(redis or {})}
        self.nodes = [start(redis=self.settings | {"cluster-port": free_port()}, **options) for _ in range(nodes)]
        for place, node in enumerate(self.nodes):
            # Epochs apart from the start: else the nodes argue about them for a while.
            node.call("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
            node.call("CLUSTER", "ADDSLOTSRANGE", SLOTS * place // nodes, SLOTS * (place + 1) // nodes - 1)
            self.introduce(node)
        wait_until(lambda: all(self.knows_all(node) for node in self.nodes), 60, "the nodes have met")

    def introduce(self, node):
        first = self.nodes[0]
        if node is not first:
            bus = first.call("CONFIG GET cluster-port")[b"cluster-port"]
            node.call("CLUSTER", "MEET", "127.0.0.1", first.port, bus)

    def knows_all(self, node):
        info = node.call("CLUSTER INFO")
        return b"cluster_state:ok" in info and b"cluster_known_nodes:%d" % len(self.nodes) in info

    def replica_of(self, start, primary, **options):
        """A further node, which follows this one."""
        node = start(redis=self.settings | {"cluster-port": free_port()}, **options)
        self.nodes.append(node)
        self.introduce(node)
        wait_until(lambda: all(self.knows_all(node) for node in self.nodes), 60, "the nodes have met")
        node.call("CLUSTER", "REPLICATE", name(primary))
        node.primary = primary
        wait_until(lambda: node.info("replication").get("master_link_status") == "up", 60, "the replica is in step")
        return node

    # ---------------------------------------------------------------- who has what

    def owner(self, key):
        """The node that answers for a key's slot, as the first one sees it."""
        slot = self.slot(key)
        for start, end, primary, *_ in self.nodes[0].call("CLUSTER SLOTS"):
            if start <= slot <= end:
                return next(node for node in self.nodes if node.port == primary[1])
        raise AssertionError(f"nobody has slot {slot}")

    def slot(self, key):
        return self.nodes[0].call("CLUSTER", "KEYSLOT", key)

    def pair(self, room):
        """The owner of a room, and another primary."""
        source = self.owner(room)
        return source, next(node for node in self.nodes if node is not source and not node.primary)

    def advance(self, ms):
        """Lets `ms` pass on every node."""
        for node in self.nodes:
            node.call("LEASE.CLOCK", "ADVANCE", ms)

    # ---------------------------------------------------------------- a slot moves, step by step

    def begin(self, slot, source, target):
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", name(source))
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", name(target))

    def migrate(self, source, target, *keys):
        """Those of the keys that are there."""
        assert source.call("MIGRATE", "127.0.0.1", target.port, "", 0, 10000, "KEYS", *keys) in (b"OK", b"NOKEY")

    def finish(self, slot, target):
        """The target first, as redis-cli does it."""
        for node in [target, *(node for node in self.nodes if node is not target and not node.primary)]:
            node.call("CLUSTER", "SETSLOT", slot, "NODE", name(target))
        wait_until(lambda: all(self.sees(node, slot, target) for node in self.nodes), 30, "all know who has the slot")

    def sees(self, node, slot, owner):
        return any(start <= slot <= end and primary[1] == owner.port for start, end, primary, *_ in node.call("CLUSTER SLOTS"))

    def move(self, room, keys=None):
        """A room's slot goes to another node, its keys in this order; that node."""
        source, target = self.pair(room)
        slot = self.slot(room)
        self.begin(slot, source, target)
        for key in keys or keys_of(room):
            self.migrate(source, target, key)
        self.finish(slot, target)
        return target

    # ---------------------------------------------------------------- a slot moves as a whole

    def moves_atomically(self):
        return any(b"MIGRATESLOTS" in line for line in self.nodes[0].call("CLUSTER HELP"))

    def migrate_slots(self, first, last, source, target):
        """Valkey's own way."""
        self.begin_migrate_slots(first, last, source, target)
        self.await_slots(last, source, target)

    def begin_migrate_slots(self, first, last, source, target):
        source.call("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", first, last, "NODE", name(target))

    def await_slots(self, last, source, target):
        def moved():
            newest, *_ = source.call("CLUSTER GETSLOTMIGRATIONS")
            assert newest[b"state"] not in (b"failed", b"cancelled"), newest
            return all(self.sees(node, last, target) for node in self.nodes)

        wait_until(moved, 60, "all know that the slots have moved")

    # ---------------------------------------------------------------- redis-cli

    def reshard(self, source, target, slots):
        """`redis-cli --cluster reshard`, in the background: its process."""
        executable = shutil.which("redis-cli") or shutil.which("valkey-cli")
        assert executable, "neither redis-cli nor valkey-cli is installed"
        return subprocess.Popen(
            [
                executable,
                "--cluster",
                "reshard",
                f"127.0.0.1:{source.port}",
                "--cluster-from",
                name(source),
                "--cluster-to",
                name(target),
                "--cluster-slots",
                str(slots),
                "--cluster-yes",
                "--cluster-pipeline",
                "1",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def name(node):
    return node.call("CLUSTER MYID").decode()


def keys_of(room):
    return [room, stream(room), stream(room, "log")]


def asking(node, *command):
    """What a node answers to a client that was sent there by ASK; raises `Refused`."""
    _, reply = node.call.pipeline(["ASKING", command[0] if len(command) == 1 else command])
    if isinstance(reply, Refused):
        raise reply
    return reply


def sent_elsewhere(refused):
    """The port an ASK or MOVED names."""
    found = re.fullmatch(r"(?:ASK|MOVED) \d+ .*:(\d+)", refused.text)
    return int(found.group(1)) if found else None
