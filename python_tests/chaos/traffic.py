"""Those who write: devices that come and go, a gateway, a bot, a moderator, and the probes by which availability is measured."""

import collections
import random
import threading
import time

from harness.resp import Refused

from .caller import Caller

ROOMS = ["plain", "{tag}granted", "quiet", "{tag}busy"]
GRANTED = {"{tag}granted"}
USERS = [f"user{number}" for number in range(8)]
DEVICES = ["phone", "laptop"]
TTL_MS = 5000


class Actor(threading.Thread):
    """Does `step` until told to stop, then `finish`."""

    pause = 0.01

    def __init__(self, nodes, history, stopping, seed, who, timeout=1.0):
        super().__init__(name=who, daemon=True)
        self.call = Caller(nodes, history, who, timeout)
        self.nodes, self.history, self.who, self.stopping = nodes, history, who, stopping
        self.chance = random.Random(f"{seed} {who}")
        self.numbers = iter(range(1 << 40))

    def run(self):
        try:
            while not self.stopping.is_set():
                self.step()
                time.sleep(self.chance.uniform(0, 2 * self.pause))
            self.finish()
        except Exception as error:  # the run goes on, but has failed
            self.history.note("alarm", text=f"{self.who}: {type(error).__name__}: {error}")
            raise

    def finish(self):
        pass

    def fresh(self, word):
        return f"{self.who}-{word}{next(self.numbers)}"


class Session:
    def __init__(self, room, user, device, name):
        self.room, self.user, self.device, self.name = room, user, device, name
        self.epoch, self.seq = None, 0

    @property
    def id(self):
        return self.room, self.name, self.epoch

    def opening(self, ttl=TTL_MS):
        return "OPEN", self.room, self.user, "DEVICE", self.device, "SESSION", self.name, "TTL", ttl

    def renewal(self):
        self.seq += 1
        return "RENEW", self.room, self.name, self.epoch, self.seq


def opened(caller, session, ttl=TTL_MS, tries=5):
    """The session with its epoch, or None if it was not let in."""
    reply = caller.insist(*session.opening(ttl), tries=tries)
    if reply is None or isinstance(reply, Refused):
        return None
    session.epoch = reply["epoch"]
    return session


class Devices(Actor):
    """Connections of any user, so that several of these contend for one holder. Ended sessions are tried again, as clients do that have not heard."""

    def __init__(self, *args):
        super().__init__(*args)
        self.live, self.ended = [], collections.deque(maxlen=50)
        self.sent = collections.deque(maxlen=50)

    def step(self):
        if self.chance.random() < 0.02:
            self.call.leave()  # asks anew who the primary is
        if len(self.live) < 6:
            self.open()
            return
        session = self.chance.choice(self.live)
        act = self.chance.choices([self.renew, self.send, self.leave, self.acknowledge, self.open_again, self.resend, self.beyond],
                                  [50, 20, 4, 6, 2, 6, 6])[0]
        act(session)

    def open(self):
        session = Session(self.chance.choice(ROOMS), self.chance.choice(USERS), self.chance.choice(DEVICES), self.fresh("s"))
        if opened(self.call, session):
            self.live.append(session)
        else:
            time.sleep(0.02)

    def renew(self, session):
        command = session.renewal()
        reply = self.call.insist(*command, tries=3)
        self.heard(session, reply)

    def send(self, session):
        id = self.fresh("m")
        self.sent.append((session.room, session.user, id))
        self.heard(session, self.call.insist("SEND", session.room, session.name, session.epoch, id, "of " + id, tries=3))

    def resend(self, session):
        """An old message once more: by whoever is there of its user, or for it."""
        if self.sent:
            room, user, id = self.chance.choice(self.sent)
            if (room, user) == (session.room, session.user):
                self.call("SEND", room, session.name, session.epoch, id, "of " + id)
            else:
                self.call("POST", room, user, id, "of " + id)

    def leave(self, session):
        linger = ["LINGER", 500] if self.chance.random() < 0.3 else []
        self.call.insist("LEAVE", session.room, session.name, session.epoch, *linger, tries=3)
        self.forget(session)

    def acknowledge(self, session):
        self.call("ACK", session.room, session.name, session.epoch, self.chance.randrange(1, 30))

    def open_again(self, session):
        self.heard(session, self.call(*session.opening()))

    def beyond(self, _):
        """A request of a session that has ended."""
        if self.ended:
            session = self.chance.choice(self.ended)
            if self.chance.random() < 0.5:
                self.call(*session.renewal())
            else:
                self.call("SEND", session.room, session.name, session.epoch, self.fresh("late"), "late")

    def heard(self, session, reply):
        if isinstance(reply, Refused) and reply.code in ("STALE", "DENIED"):
            self.forget(session)

    def forget(self, session):
        if session in self.live:
            self.live.remove(session)
        self.ended.append(session)


class Gateway(Actor):
    """Beats for many sessions of one room at once."""

    pause = 0.1

    def __init__(self, *args):
        super().__init__(*args)
        self.room = self.chance.choice([room for room in ROOMS if room not in GRANTED])
        self.sessions = []

    def step(self):
        while len(self.sessions) < 10 and not self.stopping.is_set():
            session = opened(self.call, Session(self.room, f"{self.who}-guest{len(self.sessions)}", "default", self.fresh("s")))
            if session is None:
                return
            self.sessions.append(session)
        items = [word for session in self.sessions for word in session.renewal()[2:]]
        reply = self.call.insist("MRENEW", self.room, *items, tries=3)
        if isinstance(reply, list):
            self.sessions = [session for session, (status, _) in zip(self.sessions, reply) if status not in (b"stale", b"denied")]


class Bot(Actor):
    """Posts, resends what got no reply, and marks what was delivered to whom."""

    pause = 0.03

    def step(self):
        room, id = self.chance.choice(ROOMS[:1] + ROOMS[2:]), self.fresh("p")
        reply = self.call.insist("POST", room, self.who, id, "of " + id)
        if isinstance(reply, dict):
            self.call("MARK", room, self.chance.choice(USERS), self.chance.choice(DEVICES), self.chance.choice(["QUEUED", "WRITTEN"]), reply["seq"])


class Moderator(Actor):
    """Revokes and grants, with versions, each until it is acknowledged; sometimes it kicks. The only one to do so."""

    pause = 0.1

    def __init__(self, *args):
        super().__init__(*args)
        self.version, self.out = 0, collections.deque()

    def step(self):
        if self.version == 0:
            self.begin()
        if len(self.out) > 4 or self.out and self.chance.random() < 0.5:
            self.grant(*self.out.popleft())
            return
        room, user = self.chance.choice(ROOMS), self.chance.choice(USERS)
        if self.chance.random() < 0.1:
            self.call("KICK", room, "USER", user)
        elif (room, user) not in self.out:
            self.version += 1
            self.call.insist("REVOKE", room, user, "VERSION", self.version, tries=1000)
            self.out.append((room, user))

    def begin(self):
        for room in GRANTED:
            for user in USERS + ["probe-b", "reader-a", "reader-b", "reader-everywhere"]:
                self.grant(room, user)

    def grant(self, room, user):
        self.version += 1
        self.call.insist("GRANT", room, user, "WRITE", "VERSION", self.version, tries=1000)


class Probe(Actor):
    """A heartbeat every 20 ms with little patience: what a user has of the service."""

    pause = 0.01

    def __init__(self, *args, room):
        super().__init__(*args, 0.25)
        self.room, self.session = room, None

    def step(self):
        if self.session is None:
            self.session = opened(self.call, Session(self.room, self.who, "default", self.fresh("s")), 10000, tries=1)
            return
        reply = self.call(*self.session.renewal())
        if isinstance(reply, Refused) and reply.code in ("STALE", "DENIED"):
            self.session = None
