"""What a run plays on: servers by name, of which some are primaries; what every kind of stage has."""

from harness import wait_until
from harness.aftermath import ALARMS
from harness.resp import Connection, Refused

from . import final
from .caller import GONE
from .history import now
from .scene import ROOMS, settings


class Stage:
    """A kind of stage also says who its `groups` are, which node is `home` to a room, how to `heal`, be `in_step`, `settle` and `watch`."""

    def __init__(self, history):
        self.history, self.servers = history, {}
        self.down = {}  # those that we ended, and until when their disk has all that was acknowledged
        self.world = 0  # rises whenever all was lost by design

    def port(self, name):
        return self.servers[name].port

    def tell(self, name, *command, timeout=2):
        """The reply to one command on a connection of its own."""
        connection = Connection(self.port(name), timeout=timeout)
        try:
            return connection(*command)
        finally:
            connection.close()

    def info(self, name, section="replication"):
        lines = self.tell(name, "INFO", section, timeout=0.5).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def told(self, name, field):
        """One field of that; None while the node does not answer."""
        try:
            return self.info(name).get(field)
        except (*GONE, Refused):
            return None

    # ---------------------------------------------------------------- rooms

    def begin_world(self):
        """Rooms begin of which nothing is left of before."""
        self.history.note("world", at=now())
        self.world += 1
        for room in ROOMS:
            self.tell(self.home(room), "LEASE.SETPOLICY", room, *settings(room))

    def note_rooms(self, **more):
        connections = {room: Connection(self.port(self.home(room))) for room in ROOMS}
        self.history.note("final", rooms=final.rooms(connections), **more)
        for connection in connections.values():
            connection.close()

    def digests(self):
        """Of every primary and its replicas, which all stand at one offset."""
        return {primary: self.digests_of(primary, replicas) for primary, replicas in self.groups().items()}

    def digests_of(self, primary, replicas):
        group = [primary, *replicas]

        def caught_up():
            found = [self.info(name) for name in group]
            return len({info.get("slave_repl_offset", info["master_repl_offset"]) for info in found}) == 1

        self.tell(primary, "CLIENT PAUSE 60000 WRITE")
        wait_until(caught_up, 30, "all nodes stand at one offset")
        digests = {name: self.tell(name, "DEBUG DIGEST", timeout=30) for name in group}
        self.tell(primary, "CLIENT UNPAUSE")
        return digests

    # ---------------------------------------------------------------- processes

    def start(self, name):
        self.servers[name].start()
        del self.down[name]

    def ended_by_itself(self):
        """A server that nobody ended and that is not there, with what it said last."""
        for name, server in self.servers.items():
            if name not in self.down and not server.running():
                return f"{name} ended with {server.process.returncode}:\n{alarm_in(server) or server.log()[-4000:]}"
        return None

    def alarms(self):
        for name, server in self.servers.items():
            if alarm := alarm_in(server):
                yield f"{name}: {alarm}"

    def discard(self):
        for server in self.servers.values():
            server.discard()


def alarm_in(server):
    """Where its log first tells of a fault of its own; None if it does not."""
    log = server.log()
    alarm = ALARMS.search(log)
    return alarm and log[max(0, alarm.start() - 500) : alarm.end() + 4000]
