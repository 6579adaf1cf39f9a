"""What goes wrong with a cluster: slots move, and nodes are killed, stopped and paused meanwhile.

Two things are left out. A source that dies within a MIGRATE may come back with a key that the target has and has written to by then; so it dies
between two. A failover while a slot moves: on Redis the replica knows nothing of the move, and 8.2 aborts (`delKeysInSlot` while it
is paused for the failover).
"""

import random
import threading
import time

import redis

from harness.resp import Refused

from .schedule import Faults

PATIENCE = 90


class SlotFaults(Faults):
    """Those of three primaries with a replica each."""

    def _shard(self):
        return self.chance.choice(self.nodes.shards)

    def _move(self, hit=lambda move: None):
        """A slot goes from one shard to another; `hit` strikes meanwhile."""
        move = Move(self.nodes, self.chance)
        move.start()
        self._wait(0, 0.5)
        hit(move)
        move.join()
        if move.failure:
            raise move.failure

    def _kill(self, name):
        self.nodes.kill(name)
        self._wait(0, 1)
        self.nodes.restart(name)

    def _stop(self, name):
        with self._stopped(name):
            self._wait(0.2, 2.5)

    def move(self):
        self._move()

    def move_and_kill_source(self):
        def kill(move):
            with move.between_keys:
                self.nodes.kill(move.source[0])
            self._wait(0, 1)
            self.nodes.restart(move.source[0])

        self._move(kill)

    def move_and_kill_target(self):
        self._move(lambda move: self._kill(move.target[0]))

    def move_and_kill_replica(self):
        self._move(lambda move: self._kill(self.chance.choice([move.source, move.target])[1]))

    def move_and_stop_source(self):
        self._move(lambda move: self._stop(move.source[0]))

    def move_and_stop_target(self):
        self._move(lambda move: self._stop(move.target[0]))

    def move_and_pause_writes(self):
        self._move(lambda move: self._pause_writes(self.chance.choice([move.source, move.target])[0]))

    def move_and_rewrite(self):
        self._move(lambda move: self._rewrite())

    def kill_primary_and_restart(self):
        self._kill(self._shard()[0])

    def kill_replica(self):
        self._kill(self._shard()[1])

    def stop_primary(self):
        self._stop(self._shard()[0])

    def pause_writes(self):
        self._pause_writes(self._shard()[0])

    def failover(self):
        self.nodes.in_step()
        self.nodes.fail_over(self._shard())


class Move(threading.Thread):
    """A slot on its way, key by key or as a whole where the server can; begun again until it has arrived, whatever happens to the nodes."""

    def __init__(self, nodes, chance):
        super().__init__(daemon=True)
        self.nodes, self.cluster, self.failure = nodes, nodes.cluster, None
        self.slot = chance.choice(sorted(nodes.homes))
        self.source = nodes.homes[self.slot]
        self.target = chance.choice([shard for shard in nodes.shards if shard is not self.source])
        self.as_a_whole = self.cluster.moves_atomically() and chance.random() < 0.5
        self.chance, self.between_keys = random.Random(chance.random()), threading.Lock()

    def run(self):
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self.go_on()
                self.nodes.homes[self.slot] = self.target
                return
            except (OSError, redis.RedisError, Refused, AssertionError, ValueError) as failure:
                if time.monotonic() > end:
                    self.failure = RuntimeError(f"slot {self.slot} did not arrive: {type(failure).__name__}: {failure}")
                    return
                time.sleep(0.1)

    def go_on(self):
        source, target = (self.nodes.servers[shard[0]] for shard in (self.source, self.target))
        if not self.cluster.sees(target, self.slot, target):
            if self.as_a_whole:
                return self.cluster.migrate_slots(self.slot, self.slot, source, target)
            self.key_by_key(source, target)
        self.cluster.finish(self.slot, target)

    def key_by_key(self, source, target):
        self.cluster.begin(self.slot, source, target)
        while keys := source.call("CLUSTER", "GETKEYSINSLOT", self.slot, 10):
            with self.between_keys:
                # A target that died may have a key of which it told nothing: nobody has written there.
                source.call("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "REPLACE", "KEYS", self.chance.choice(keys))
            time.sleep(self.chance.uniform(0, 0.1))
