"""Three primaries of a cluster with a replica each. Every write is on disk before it is answered and roles change hands in good order,
so nothing that was acknowledged may be lost; to the rules the whole cluster is one node."""

import random

from harness import Server, wait_until
from harness.cluster import Cluster, sent_elsewhere
from harness.resp import Connection, Refused

from .caller import Caller
from .history import now
from .nodes import PERSISTENCE, SETTINGS
from .scene import LEASE, ROOMS
from .stage import Stage

HOPS = 8


class Shards(Stage):
    primary = "cluster"

    def __init__(self, history):
        super().__init__(history)
        try:
            # Whoever is killed comes back in time; its replica waits to be told.
            self.cluster = Cluster(self.add, clock=None, redis=SETTINGS | PERSISTENCE["always"] | {"cluster-replica-no-failover": "yes"}, lease=LEASE)
            primaries = list(self.servers)
            for name in primaries:
                self.cluster.replica_of(self.add, self.servers[name], clock=None, lease=LEASE)
        except BaseException:
            self.discard()
            raise
        self.shards = [list(pair) for pair in zip(primaries, list(self.servers)[len(primaries) :])]  # the primary first
        self.homes = {}  # of slots: their shards; we alone move them
        for room in ROOMS:
            owner = self.cluster.owner(room)
            self.homes[self.cluster.slot(room)] = next(shard for shard in self.shards if self.servers[shard[0]] is owner)
        self.slots = {room: self.cluster.slot(room) for room in ROOMS}
        self.begin_line()

    def add(self, **options):
        server = Server(**options)
        self.servers["abcdef"[len(self.servers)]] = server
        return server

    def begin_line(self):
        """Some node is another than before, or was restarted: leases may have got their grace."""
        self.history.note("line", node=self.primary, at=now(), known_until=now())

    def home(self, room):
        return self.homes[self.slots[room]][0]

    def groups(self):
        return {primary: replicas for primary, *replicas in self.shards}

    def caller(self, who, timeout):
        return Roaming(self, self.history, who, timeout)

    def kill(self, name):
        self.servers[name].stop("kill")
        self.down[name] = now()

    def restart(self, name):
        self.begin_line()
        self.start(name)

    def fail_over(self, shard):
        """In good order, by the replica's wish."""
        primary, replica = shard
        self.begin_line()
        try:
            self.tell(replica, "CLUSTER FAILOVER")
            wait_until(lambda: self.told(replica, "role") == "master", 15, "the replica is the primary")
        except (Refused, AssertionError):  # it has lost its primary for the moment, or time was short
            if self.info(replica)["role"] != "master":
                return
        finally:
            self.begin_line()
        shard.reverse()
        self.servers[primary].primary, self.servers[replica].primary = self.servers[replica], None

    def heal(self):
        """Nothing is cut here."""

    def in_step(self):
        def linked():
            return all(self.told(replica, "master_link_status") == "up" for _, replica in self.shards)

        wait_until(linked, 60, "the replicas are in step")

    settle = in_step

    def watch(self, stopping):
        """Nothing may be lost, so there is nothing to watch."""


class Roaming(Caller):
    """A cluster client: it goes where it is sent, and remembers."""

    def __init__(self, *args):
        super().__init__(*args)
        self.node, self.ports, self.connections = self.nodes.primary, {}, {}

    def connect(self):
        """When it is known where to."""

    def exchange(self, room, command):
        port = self.ports.get(room) or self.nodes.port(random.choice(list(self.nodes.servers)))
        asking = []
        for _ in range(HOPS):
            if port not in self.connections:
                self.connections[port] = Connection(port, timeout=self.timeout)
            *_, reply = self.connections[port].pipeline([*asking, command])
            to = sent_elsewhere(reply) if isinstance(reply, Refused) else None
            if to is None:
                return reply
            port, asking = to, [["ASKING"]] if reply.code == "ASK" else []
            if reply.code == "MOVED":
                self.ports[room] = port
        return Refused("TRYAGAIN: sent from node to node")

    def leave(self):
        for connection in self.connections.values():
            connection.close()
        self.ports, self.connections = {}, {}
