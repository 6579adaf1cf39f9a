"""When what goes wrong: every kind of fault once in a round. A fault is a method of one of the classes of faults."""

import contextlib
import random
import signal
import time

from harness.resp import Refused

from .history import now


class Schedule:
    """The order of a round, the faults' own choices and the calm between them are the seed's."""

    def __init__(self, faults, only=None):
        self.faults, self.nodes, self.chance = faults, faults.nodes, faults.chance
        self.kinds = only or sorted(name for name in vars(type(faults)) if not name.startswith("_"))
        self.round = []

    def calm(self):
        time.sleep(self.chance.uniform(0.3, 1.5))

    def strike(self):
        """The next fault. Then all is connected; usually the replicas catch up before another one, sometimes it hits them on the way."""
        if not self.round:
            self.round = self.chance.sample(self.kinds, len(self.kinds))
        kind = self.round.pop()
        self.nodes.history.note("fault", name=kind, phase="begin", at=now())
        getattr(self.faults, kind)()
        self.nodes.heal()
        if self.chance.random() < 0.8:
            self.nodes.in_step()
        self.nodes.history.note("fault", name=kind, phase="end", at=now())


class Faults:
    """What faults of any stage are made of."""

    def __init__(self, nodes, seed):
        self.nodes, self.chance = nodes, random.Random(seed)

    def _wait(self, least, most):
        time.sleep(self.chance.uniform(least, most))

    def _pause_writes(self, name):
        ms = self.chance.randrange(200, 2500)
        self.nodes.tell(name, "CLIENT", "PAUSE", ms, "WRITE")
        time.sleep(ms / 1000)

    def _rewrite(self):
        for name in self.nodes.servers:
            with contextlib.suppress(Refused):  # one may be under way
                self.nodes.tell(name, self.chance.choice(["BGSAVE", "BGREWRITEAOF"]))

    @contextlib.contextmanager
    def _stopped(self, name):
        process = self.nodes.servers[name].process
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)
