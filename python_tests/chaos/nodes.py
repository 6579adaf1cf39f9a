"""Three servers: who is the primary, how far each replica is known to be, and the steps that faults are made of.

A new *line* begins whenever another process counts as primary, or the same one after a restart. It is noted with `known_until`: what was
acknowledged before that moment the new primary is known to have, for it had reached an offset that was read later.
"""

import threading
import time

from harness import Server, wait_until
from harness.resp import Connection, Refused

from .caller import GONE, Caller
from .history import now
from .proxy import Link
from .scene import LEASE
from .stage import Stage

SETTINGS = {
    "repl-ping-replica-period": 1,
    "repl-timeout": 5,
    "repl-backlog-size": "1mb",
    "repl-diskless-sync": "yes",
    "stop-writes-on-bgsave-error": "no",
}
PERSISTENCE = {
    "always": {"appendonly": "yes", "appendfsync": "always"},
    "everysec": {"appendonly": "yes", "appendfsync": "everysec"},
    "rdb": {"save": "1 1"},
}
# An AOF flush may be put off by so much while another one runs.
PUT_OFF_MS = 3000


class Nodes(Stage):
    def __init__(self, history, persistence):
        super().__init__(history)
        self.persistence, self.links, self.lives = persistence, {name: Link() for name in "abc"}, {}
        try:
            for name in self.links:
                self.servers[name] = Server(clock=None, lease=LEASE, redis=SETTINGS | PERSISTENCE[persistence])
                self.lives[name] = 0
        except BaseException:
            self.discard()
            raise
        self.lock, self.synced, self.marks = threading.Lock(), {}, []
        self.begin_line(next(iter(self.links)), now())
        for name in self.replicas():
            self.follow(name)

    def replicas(self):
        return [name for name in self.servers if name != self.primary]

    def home(self, room):
        return self.primary

    def groups(self):
        return {self.primary: self.replicas()}

    def caller(self, who, timeout):
        return Caller(self, self.history, who, timeout)

    # ---------------------------------------------------------------- lines

    def begin_line(self, name, known_until):
        """From now on `name` counts as primary. Noted before it is told so."""
        with self.lock:
            self.primary, self.synced, self.marks = name, {}, []
            self.history.note("line", node=name, at=now(), known_until=known_until)

    def candidate(self):
        """The replica that is known to be furthest, of those in step with this line at some time; None if there is none."""
        with self.lock:
            return max(self.synced, key=self.synced.get, default=None)

    def promote(self, name):
        with self.lock:
            known_until = self.synced[name]
        self.begin_line(name, known_until)
        self.links[name].heal()
        self.tell(name, "REPLICAOF NO ONE")

    def follow(self, name):
        """Makes `name` a replica of the primary, by its link; so it stays over restarts."""
        self.links[name].target = self.port(self.primary)
        self.servers[name].set(replicaof=f"127.0.0.1 {self.links[name].port}")
        if self.servers[name].running():
            self.tell(name, "REPLICAOF", "127.0.0.1", self.links[name].port)

    def all_follow(self):
        for name in self.replicas():
            self.follow(name)

    # ---------------------------------------------------------------- processes

    def ends(self, name):
        with self.lock:
            self.lives[name] += 1
            self.synced.pop(name, None)

    def kill(self, name):
        self.ends(name)
        self.servers[name].stop("kill")
        self.down[name] = {"always": now(), "everysec": now() - PUT_OFF_MS, "rdb": 0}[self.persistence]

    def shut_down(self, name):
        """SHUTDOWN, which first waits for its replicas; what is on its way is not ours to await."""
        self.down[name] = 0
        waiting = Connection(self.port(name))
        waiting.send([["SHUTDOWN"]])
        return waiting

    def is_shut_down(self, name):
        self.servers[name].process.wait(30)
        self.ends(name)
        self.servers[name].close_connections()
        self.down[name] = now()

    def restart_primary(self):
        """The primary, which we ended, comes back with what its disk has."""
        self.servers[self.primary].set(replicaof="no one")
        self.begin_line(self.primary, self.down[self.primary])
        self.start(self.primary)

    def restart_replica(self, name):
        self.follow(name)
        self.start(name)

    def settle(self):
        """Until no single fault can undo what was: all nodes have it, on their disks too."""
        self.in_step()
        if self.persistence == "everysec":
            time.sleep(PUT_OFF_MS / 1000)
        for name in self.servers:
            wait_until(lambda name=name: self.saved(name), 30, "all is on disk")

    def saved(self, name):
        try:
            return self.tell(name, "SAVE", timeout=10)
        except Refused:  # a save in the background is under way
            return None

    # ---------------------------------------------------------------- watching

    def watch(self, stopping):
        """Keeps `synced`: the time until which each replica is known to have all that was acknowledged."""
        while not stopping.is_set():
            self.look()
            stopping.wait(0.05)

    def look(self):
        with self.lock:
            primary, lives, marks = self.primary, dict(self.lives), self.marks
        sent = now()
        try:
            info = self.info(primary)
        except (*GONE, Refused):
            return
        if info["role"] == "master":
            marks.append((sent, info["master_replid"], int(info["master_repl_offset"])))
            del marks[:-200]
        for name in self.servers:
            if name == primary:
                continue
            try:
                info = self.info(name)
            except (*GONE, Refused):
                continue
            if info.get("master_link_status") != "up":
                continue
            reached = [at for at, replid, offset in marks if (replid, True) == (info["master_replid"], offset <= int(info["slave_repl_offset"]))]
            with self.lock:
                if reached and marks is self.marks and lives[name] == self.lives[name]:
                    self.synced[name] = reached[-1]

    def in_step(self, seconds=60):
        """Waits until both replicas have what the primary has now."""
        since = now()
        wait_until(lambda: len(self.synced) == 2 and min(list(self.synced.values())) > since, seconds, "the replicas are in step")

    def heal(self):
        for link in self.links.values():
            link.heal()

    def discard(self):
        super().discard()
        for link in self.links.values():
            link.close()
