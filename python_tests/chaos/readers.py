"""Those who read: positions in the message log that survive failovers, a consumer group on the events, and one who keeps its place in them itself."""

import time

from harness import events
from harness.resp import Connection, Refused

from .caller import GONE
from .scene import ROOMS
from .traffic import Actor, Session, opened

GROUP = "chaos"


class Reader(Actor):
    """Follows every room by (gen, after): REPLAY, and SNAPSHOT when told to. One that is `everywhere` also asks replicas."""

    pause = 0.04

    def __init__(self, *args, everywhere=False):
        super().__init__(*args)
        self.everywhere, self.sessions, self.positions = everywhere, {}, {}

    def step(self):
        if self.everywhere and self.chance.random() < 0.2:
            self.call.move(self.chance.choice(list(self.nodes.servers)))
        self.read(self.chance.choice(ROOMS))

    def read(self, room):
        """One page, or a snapshot. True if that was all there is."""
        session = self.session(room)
        if session is None:
            time.sleep(0.02)
            return False
        if self.chance.random() < 0.2:
            self.heard(room, self.call(*session.renewal()))
        if room not in self.positions:
            reply = self.heard(room, self.call(*session.saying("SNAPSHOT", "COUNT", self.chance.randrange(1, 20))))
            if reply:
                self.positions[room] = reply["gen"], reply["current"]
            return False
        reply = self.heard(room, self.call(*session.saying("REPLAY", *self.positions[room], "COUNT", self.chance.randrange(5, 200))))
        if not reply:
            return False
        if reply["status"] == b"resync":
            del self.positions[room]
            return False
        self.positions[room] = reply["gen"], reply["next"]
        if self.chance.random() < 0.2:
            self.call(*session.saying("ACK", reply["next"]))
        return reply["next"] == reply["current"]

    def session(self, room):
        if room not in self.sessions:
            session = opened(self.call, Session(room, self.who, "default", self.fresh("s"), f"token of {self.who}"), 10000, tries=1)
            if session is None:
                return None
            self.sessions[room] = session
        return self.sessions[room]

    def heard(self, room, reply):
        if not isinstance(reply, Refused):
            return reply
        # Elsewhere a session may not be known yet: that says nothing.
        if reply.code in ("STALE", "DENIED") and self.call.node == self.nodes.primary:
            self.sessions.pop(room, None)
        return None

    def finish(self):
        """Up to the end, from the last primary."""
        self.call.leave()
        for room in ROOMS:
            end = time.monotonic() + 30
            while not self.read(room):
                if time.monotonic() > end:
                    self.history.note("alarm", text=f"{self.who} did not get to the end of {room}")
                    break


class Follower(Actor):
    """Reads all event streams."""

    def __init__(self, *args):
        super().__init__(*args)
        self.streams = {events.stream(room): room for room in ROOMS}
        self.connection = None

    def connect(self):
        self.connection = Connection(self.nodes.port(self.nodes.primary), protocol=2, timeout=2)

    def handed(self, stream, entries):
        for id, fields in entries:
            entry = dict(zip(fields[::2], fields[1::2]))
            self.history.note("event", who=self.who, room=self.streams[stream], id=id, n=int(entry[b"n"]), gen=entry[b"gen"], at=int(entry[b"at"]))

    def finish(self):
        """What came last; no more will."""
        while self.connection is None or self.take():
            self.step()

    def leave(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class Listener(Follower):
    """Keeps its place by itself, as a gateway does: XREAD from the last id it was handed, whoever the primary is."""

    def __init__(self, *args):
        super().__init__(*args)
        self.world = None

    def step(self):
        if self.world != self.nodes.world:  # the streams begin anew
            self.world, self.places = self.nodes.world, dict.fromkeys(self.streams, "0")
        try:
            if self.connection is None or self.chance.random() < 0.05:
                self.leave()
                self.connect()
            self.take(100)
        except (*GONE, Refused):
            self.leave()
            time.sleep(0.02)

    def take(self, block_ms=None):
        waiting = [] if block_ms is None else ["BLOCK", block_ms]
        found = self.connection("XREAD", "COUNT", 200, *waiting, "STREAMS", *self.streams, *self.places.values())
        for stream, entries in found or []:
            self.handed(stream, entries)
            self.places[stream] = entries[-1][0]
        return bool(found)


class Consumer(Follower):
    """One consumer of a group. What it was handed and did not confirm it reads again after every break."""

    def step(self):
        try:
            if self.connection is None:
                self.connect()
                while self.take(after="0"):
                    pass
            self.take(100)
        except GONE:
            self.leave()
        except Refused as refused:
            if refused.code == "NOGROUP":
                self.enter()
            else:
                self.leave()
                time.sleep(0.02)

    def enter(self):
        for stream in self.streams:
            try:
                self.connection("XGROUP", "CREATE", stream, GROUP, "0")
            except Refused:
                pass  # it is there already, or the stream is not there yet
            except GONE:
                return self.leave()
        time.sleep(0.05)

    def take(self, block_ms=None, after=">"):
        waiting = [] if block_ms is None else ["BLOCK", block_ms]
        found = self.connection(
            "XREADGROUP", "GROUP", GROUP, self.who, "COUNT", 200, *waiting, "STREAMS", *self.streams, *[after] * len(self.streams)
        )
        taken = False
        for stream, entries in found or []:
            self.handed(stream, entries)
            if entries:
                self.connection("XACK", stream, GROUP, *[id for id, _ in entries])
                taken = True
        return taken
