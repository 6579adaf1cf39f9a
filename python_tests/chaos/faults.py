"""What goes wrong with a primary and two replicas. Each fault leaves the nodes whole again, if not yet connected or in step."""

import contextlib

from harness import wait_until
from harness.events import stream
from harness.replies import normal
from harness.resp import Connection, Refused

from .caller import GONE
from .history import now
from .scene import FLEETING, SHORT
from .schedule import Faults

SETTINGS = {
    "lease.reap-slice-us": [1, 50, 500, 20000],
    "lease.tombstone-ms": [0, 1000, 600000],
    "lease.dedup-ms": [600000, 700000],
    "lease.cursor-ms": [604800000, 800000000],
    "lease.ttl-ms": [5000, 60000],
    "lease.announce-messages": ["yes", "no"],
    "hz": [1, 10, 100],
    "lease.log-renewals": ["no", "yes"],
    "aof-use-rdb-preamble": ["yes", "no"],
    "repl-diskless-load": ["disabled", "swapdb"],
    "repl-diskless-sync": ["yes", "no"],
    "lease.empty-room-ms": [3600000, 1000],
    "activedefrag": ["no", "yes"],
}


class LineFaults(Faults):
    """Those of a primary with two replicas."""

    def _any_replica(self):
        return self.chance.choice(self.nodes.replicas())

    def _candidate(self):
        if self.nodes.candidate() is None:
            self.nodes.heal()
            self.nodes.in_step()
        return self.nodes.candidate()

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

    def kill_while_saving(self):
        """A child of the server writes a snapshot or a new AOF, slowly."""
        primary = self.nodes.primary
        self.nodes.tell(primary, "CONFIG", "SET", "rdb-key-save-delay", 50000)
        with contextlib.suppress(Refused):  # one may be under way
            self.nodes.tell(primary, self.chance.choice(["BGSAVE", "BGREWRITEAOF"]))
        self._wait(0, 1)
        self.kill_primary_and_restart()

    def shutdown_waits(self):
        """SHUTDOWN while a replica is stopped: called off, or carried out once the replica goes on or patience is at its end."""
        primary, replica = self.nodes.primary, self._any_replica()
        self.nodes.tell(primary, "CONFIG", "SET", "shutdown-timeout", self.chance.choice([1, 10]))
        with self._stopped(replica):
            waiting = self.nodes.shut_down(primary)
            self._wait(0.2, 2)
            if called_off := self.chance.random() < 0.3:
                try:
                    self.nodes.tell(primary, "SHUTDOWN ABORT")
                    del self.nodes.down[primary]
                except (*GONE, Refused):  # it is too late
                    called_off = False
        if not called_off:
            self.nodes.is_shut_down(primary)
            self._wait(0, 0.5)
            self.nodes.restart_primary()
        waiting.close()

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
        if self._begin_failover(candidate, ["TIMEOUT", 3000]):
            self._end_failover(candidate)

    def failover_to_a_stopped_replica(self):
        """Called off by us or by its timeout, forced, or carried out once the replica goes on."""
        candidate = self._candidate()
        options = self.chance.choice([[], [], ["TIMEOUT", 1000], ["TIMEOUT", 500, "FORCE"]])
        with self._stopped(candidate):
            begun = self._begin_failover(candidate, options)
            self._wait(0.3, 2.5)
            if self.chance.random() < 0.3:
                with contextlib.suppress(Refused):  # it may be over
                    self.nodes.tell(self.nodes.primary, "FAILOVER ABORT")
        if begun:
            self._end_failover(candidate, forced="FORCE" in options)

    def _begin_failover(self, candidate, options):
        try:
            return self.nodes.tell(self.nodes.primary, "FAILOVER", "TO", "127.0.0.1", self.nodes.port(candidate), *options)
        except Refused:  # the replica has just lost its link
            return None

    def _end_failover(self, candidate, forced=False):
        def over():
            return self.nodes.told(candidate, "role") == "master" or self.nodes.told(self.nodes.primary, "master_failover_state") == "no-failover"

        wait_until(over, 20, "the failover is over")
        if self.nodes.info(candidate)["role"] == "master":
            # Nothing may be lost, unless the replica was not waited for.
            self.nodes.begin_line(candidate, self.nodes.synced[candidate] if forced else now())
            self.nodes.servers[candidate].set(replicaof="no one")
            self.nodes.all_follow()
        elif forced:  # the primary was a replica already, and came back
            self.nodes.begin_line(self.nodes.primary, now())

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
        self._pause_writes(self.nodes.primary)

    def debug_sleep(self):
        self.nodes.tell(self.nodes.primary, "DEBUG", "SLEEP", round(self.chance.uniform(0.1, 1.5), 3))

    def debug_reload(self):
        """A load on the spot: a new history, nothing lost."""
        self.nodes.begin_line(self.nodes.primary, now() + 60000)
        self.nodes.tell(self.nodes.primary, "DEBUG RELOAD", timeout=30)

    def rewrite(self):
        self._rewrite()
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
        with self._short_of_memory("noeviction", "volatile-lru", "volatile-ttl"):
            self._wait(0.2, 1.5)

    def eviction_of_a_room(self):
        """Of one room the key goes, not its streams."""
        self._evict(FLEETING)
        self.nodes.settle()

    def eviction_of_a_log(self):
        """Of another its messages go, and all else stays."""
        since = now()
        self._evict(stream(SHORT, "log"))
        command = "LEASE.STATS", SHORT
        newest = normal(command, self.nodes.tell(self.nodes.primary, *command))["log_seq"]
        self.nodes.history.note("cut", room=SHORT, since=since, at=now(), newest=newest)
        self.nodes.settle()

    def _evict(self, key):
        """The server takes what has a time to live: nothing but this key."""
        wait_until(lambda: self.nodes.tell(self.nodes.primary, "PEXPIRE", key, 3600000), 10, "the key is there")
        evicted = self._evicted()
        with self._short_of_memory("volatile-lru", "volatile-lfu", "volatile-ttl", "volatile-random"):
            wait_until(lambda: self._evicted() > evicted, 10, "it is evicted")
            self._wait(0, 0.5)

    def eviction_of_all(self):
        """The server takes every key, and another world begins. What there was is noted before."""
        primary = self.nodes.primary
        self.nodes.note_rooms(at=now())
        with self._short_of_memory("allkeys-lru", "allkeys-lfu", "allkeys-random"):
            wait_until(lambda: self.nodes.tell(primary, "DBSIZE") == 0, 10, "everything is evicted")
        self.nodes.begin_world()
        self.nodes.settle()

    def _evicted(self):
        return int(self.nodes.info(self.nodes.primary, "stats")["evicted_keys"])

    @contextlib.contextmanager
    def _short_of_memory(self, *policies):
        primary = self.nodes.primary
        self.nodes.tell(primary, "CONFIG", "SET", "maxmemory-policy", self.chance.choice(policies))
        self.nodes.tell(primary, "CONFIG", "SET", "maxmemory", 1)
        yield
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
