"""What goes wrong: each fault is a method of `Faults`, and leaves the nodes whole again, if not yet connected or in step."""

import contextlib
import random
import signal
import time

from harness import wait_until
from harness.resp import Connection, Refused

from .history import now
from .nodes import GONE

SETTINGS = {
    "lease.reap-slice-us": [1, 50, 500, 20000], "lease.tombstone-ms": [0, 1000, 600000], "lease.dedup-ms": [600000, 700000],
    "lease.cursor-ms": [604800000, 800000000], "lease.ttl-ms": [5000, 60000], "lease.announce-messages": ["yes", "no"], "hz": [1, 10, 100],
    "lease.log-renewals": ["no", "yes"], "aof-use-rdb-preamble": ["yes", "no"], "repl-diskless-load": ["disabled", "swapdb"],
    "repl-diskless-sync": ["yes", "no"], "lease.empty-room-ms": [3600000, 1000], "activedefrag": ["no", "yes"],
}


class Schedule:
    """Every kind of fault once in a round, in an order of its own; the faults' own choices are the seed's too."""

    def __init__(self, nodes, history, seed, only=None):
        self.nodes, self.history, self.chance = nodes, history, random.Random(seed)
        self.faults = Faults(nodes, self.chance)
        self.kinds = only or sorted(name for name in vars(Faults) if not name.startswith("_"))
        self.round = []

    def calm(self):
        time.sleep(self.chance.uniform(0.3, 1.5))

    def strike(self):
        """The next fault. Then all is connected; usually the replicas catch up before another one, sometimes it hits them on the way."""
        if not self.round:
            self.round = self.chance.sample(self.kinds, len(self.kinds))
        kind = self.round.pop()
        self.history.note("fault", name=kind, phase="begin", at=now())
        getattr(self.faults, kind)()
        self.nodes.heal()
        if self.chance.random() < 0.8:
            self.nodes.in_step()
        self.history.note("fault", name=kind, phase="end", at=now())


class Faults:
    def __init__(self, nodes, chance):
        self.nodes, self.chance = nodes, chance

    def _wait(self, least, most):
        time.sleep(self.chance.uniform(least, most))

    def _any_replica(self):
        return self.chance.choice(self.nodes.replicas())

    def _candidate(self):
        if self.nodes.candidate() is None:
            self.nodes.heal()
            self.nodes.in_step()
        return self.nodes.candidate()

    @contextlib.contextmanager
    def _stopped(self, name):
        process = self.nodes.servers[name].process
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def _take_over(self, candidate):
        """A new primary, which the others follow, but for the old one: that goes on as it was, for whoever still talks to it."""
        old = self.nodes.primary
        self.nodes.promote(candidate)
        for name in self.nodes.replicas():
            if name != old:
                self.nodes.follow(name)
        return old

    # ---------------------------------------------------------------- processes

    def kill_primary_and_restart(self):
        self.nodes.kill(self.nodes.primary)
        self._wait(0, 1)
        self.nodes.restart_primary()

    def kill_primary_and_promote(self):
        candidate, old = self._candidate(), self.nodes.primary
        self.nodes.kill(old)
        self._wait(0, 0.5)
        self._take_over(candidate)
        self._wait(0, 2)
        self.nodes.restart_replica(old)

    def kill_replica(self):
        name = self._any_replica()
        self.nodes.kill(name)
        self._wait(0, 1)
        self.nodes.restart_replica(name)

    def stop_primary(self):
        with self._stopped(self.nodes.primary):
            self._wait(0.2, 3)

    def stop_primary_and_promote(self):
        candidate = self._candidate()
        with self._stopped(self.nodes.primary):
            self._wait(0, 1)
            old = self._take_over(candidate)
            self._wait(0, 1)
        self._wait(0, 1)  # it wakes up as a primary
        self.nodes.follow(old)

    def stop_replica(self):
        with self._stopped(self._any_replica()):
            self._wait(0.2, 3)

    # ---------------------------------------------------------------- changes of roles

    def promote_by_hand(self):
        old = self._take_over(self._candidate())
        self._wait(0, 1)
        self.nodes.follow(old)

    def failover(self):
        candidate = self._candidate()
        self.nodes.tell(self.nodes.primary, "FAILOVER", "TO", "127.0.0.1", self.nodes.port(candidate), "TIMEOUT", 3000)
        def over():
            try:
                return self.nodes.info(candidate)["role"] == "master" or self.nodes.info(self.nodes.primary)["master_failover_state"] == "no-failover"
            except (*GONE, Refused):
                return False
        wait_until(over, 20, "the failover is over")
        if self.nodes.info(candidate)["role"] == "master":
            self.nodes.begin_line(candidate, now())  # nothing may be lost
            self.nodes.servers[candidate].set(replicaof="no one")
            self.nodes.all_follow()

    # ---------------------------------------------------------------- networks

    def partition_of_replicas(self):
        for name in self.chance.sample(self.nodes.replicas(), self.chance.choice([1, 2])):
            self.chance.choice([self.nodes.links[name].cut, self.nodes.links[name].stall])()
        self._wait(0.3, 3)

    def partition_and_promote(self):
        candidate = self._candidate()
        for name in self.nodes.replicas():
            self.chance.choice([self.nodes.links[name].cut, self.nodes.links[name].stall])()
        self._wait(0.2, 1.5)
        old = self._take_over(candidate)
        self._wait(0, 1)
        self.nodes.heal()
        self.nodes.follow(old)

    def full_resync(self):
        self.nodes.tell(self.nodes.primary, "DEBUG CHANGE-REPL-ID")
        for name in self.nodes.replicas():
            self.nodes.links[name].cut()
        self._wait(0.1, 0.5)

    # ---------------------------------------------------------------- the server's own pauses

    def pause_writes(self):
        ms = self.chance.randrange(200, 2500)
        self.nodes.tell(self.nodes.primary, "CLIENT", "PAUSE", ms, "WRITE")
        time.sleep(ms / 1000)

    def debug_sleep(self):
        self.nodes.tell(self.nodes.primary, "DEBUG", "SLEEP", round(self.chance.uniform(0.1, 1.5), 3))

    def debug_reload(self):
        """A load on the spot: a new history, nothing lost."""
        self.nodes.begin_line(self.nodes.primary, now() + 60000)
        self.nodes.tell(self.nodes.primary, "DEBUG RELOAD", timeout=30)

    def rewrite(self):
        for name in self.nodes.servers:
            with contextlib.suppress(Refused):  # one may be under way
                self.nodes.tell(name, self.chance.choice(["BGSAVE", "BGREWRITEAOF"]))
        self._wait(0.1, 0.5)

    # ---------------------------------------------------------------- settings and memory

    def settings_change(self):
        name = self.chance.choice(sorted(SETTINGS))
        value = self.chance.choice(SETTINGS[name])
        for node in self.nodes.servers:
            with contextlib.suppress(Refused):  # not every build has them all
                self.nodes.tell(node, "CONFIG", "SET", name, value)
        self._wait(0.2, 1)

    def memory_is_short(self):
        primary = self.nodes.primary
        self.nodes.tell(primary, "CONFIG", "SET", "maxmemory-policy", self.chance.choice(["noeviction", "volatile-lru", "volatile-ttl"]))
        self.nodes.tell(primary, "CONFIG", "SET", "maxmemory", 1)
        self._wait(0.2, 1.5)
        self.nodes.tell(primary, "CONFIG", "SET", "maxmemory", 0)

    def flush_of_another_db(self):
        """Rooms of the same names in database 5 come and go."""
        connection = Connection(self.nodes.port(self.nodes.primary), db=5, timeout=5)
        for _ in range(3):
            connection.pipeline([["LEASE.OPEN", "plain", f"other{number}", "TTL", 1000] for number in range(50)])
            connection.pipeline([["LEASE.POST", "plain", "other", f"m{number}", "x"] for number in range(50)])
            self._wait(0, 0.5)
            connection(self.chance.choice(["FLUSHDB", "FLUSHDB ASYNC", "FLUSHDB SYNC"]))
        connection.close()
