"""Those who speak for sessions: devices that come and go, a gateway, a bot, and the probes by which availability is measured."""

import collections
import random
import threading
import time

from harness.resp import Refused

from .scene import DEVICES, GRANTED, ROOMS, TTL_MS, USERS

STATES = ["new", "connecting", "checking", "connected", "completed", "disconnected", "failed", "closed"]


class Actor(threading.Thread):
    """Does `step` until told to stop, then `finish`."""

    pause = 0.01

    def __init__(self, nodes, history, stopping, seed, who, timeout=1.0):
        super().__init__(name=who, daemon=True)
        self.call = nodes.caller(who, timeout)
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
    """What its client knows of it. With a token every command of it tells that."""

    def __init__(self, room, user, device, name, token=None):
        self.room, self.user, self.device, self.name = room, user, device, name
        self.token, self.epoch, self.seq = token, None, 0

    @property
    def secret(self):
        return ["TOKEN", self.token] if self.token else []

    def opening(self, ttl=TTL_MS):
        return "OPEN", self.room, self.user, "DEVICE", self.device, "SESSION", self.name, "TTL", ttl, *self.secret

    def saying(self, op, *args):
        return op, self.room, self.name, self.epoch, *args, *self.secret

    def beat(self):
        self.seq += 1
        return self.seq

    def renewal(self, *report):
        return self.saying("RENEW", self.beat(), *report)


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
        act = self.chance.choices(
            [self.renew, self.report, self.send, self.leave, self.acknowledge, self.open_again, self.resend, self.beyond, self.intrude],
            [40, 10, 20, 4, 6, 2, 6, 6, 6],
        )[0]
        act(session)

    def open(self):
        name = self.fresh("s")
        token = f"token of {name}" if self.chance.random() < 0.5 else None
        session = Session(self.chance.choice(ROOMS), self.chance.choice(USERS), self.chance.choice(DEVICES), name, token)
        if opened(self.call, session):
            self.live.append(session)
        else:
            time.sleep(0.02)

    def renew(self, session):
        self.heard(session, self.call.insist(*session.renewal(), tries=3))

    def report(self, session):
        """The state of its connection."""
        state = self.chance.choices(STATES, [2, 2, 2, 4, 2, 4, 4, 1])[0]
        self.heard(session, self.call.insist(*session.renewal("STATE", state), tries=3))
        if state == "closed":
            self.forget(session)

    def send(self, session):
        id = self.fresh("m")
        self.sent.append((session.room, session.user, id))
        self.heard(session, self.call.insist(*session.saying("SEND", id, "of " + id), tries=3))

    def resend(self, session):
        """An old message once more: by whoever is there of its user, or for it."""
        if self.sent:
            room, user, id = self.chance.choice(self.sent)
            if (room, user) == (session.room, session.user):
                self.call(*session.saying("SEND", id, "of " + id))
            else:
                self.call("POST", room, user, id, "of " + id)

    def leave(self, session):
        linger = ["LINGER", 500] if self.chance.random() < 0.5 else []
        self.call.insist(*session.saying("LEAVE", *linger), tries=3)
        self.forget(session)

    def acknowledge(self, session):
        self.call(*session.saying("ACK", self.chance.randrange(1, 30)))

    def open_again(self, session):
        self.heard(session, self.call(*session.opening()))

    def beyond(self, _):
        """A request of a session that has ended, or lingers."""
        if self.ended:
            session = self.chance.choice(self.ended)
            self.call(*(session.renewal() if self.chance.random() < 0.5 else session.saying("SEND", self.fresh("late"), "late")))

    def intrude(self, session):
        """Someone knows a session's name, but not its token."""
        if session.token:
            op, *args = self.chance.choice([("RENEW", session.seq + 100), ("SEND", self.fresh("stolen"), "stolen"), ("ACK", 1), ("LEAVE",)])
            wrong = self.chance.choice([[], ["TOKEN", "another"], ["TOKEN", session.token + "!"]])
            self.call(op, session.room, session.name, session.epoch, *args, *wrong)

    def heard(self, session, reply):
        if isinstance(reply, Refused) and reply.code in ("STALE", "DENIED"):
            self.forget(session)

    def forget(self, session):
        if session in self.live:
            self.live.remove(session)
        self.ended.append(session)


class Gateway(Actor):
    """Beats for many sessions of one room at once, with tokens or without; sometimes one of these is wrong."""

    pause = 0.1

    def __init__(self, *args):
        super().__init__(*args)
        self.room = self.chance.choice([room for room in ROOMS if room not in GRANTED])
        self.token = self.chance.choice([None, "secret"])
        self.sessions = []

    def step(self):
        while len(self.sessions) < 10 and not self.stopping.is_set():
            session = opened(self.call, Session(self.room, f"{self.who}-guest{len(self.sessions)}", "default", self.fresh("s"), self.token))
            if session is None:
                return
            self.sessions.append(session)
        reply = self.call.insist("MRENEW", self.room, *(self.with_tokens() if self.token else self.without()), tries=3)
        if isinstance(reply, list):
            self.sessions = [
                session for session, (status, why) in zip(self.sessions, reply) if status not in (b"stale", b"denied") or why == b"token"
            ]

    def without(self):
        return [word for session in self.sessions for word in (session.name, session.epoch, session.beat())]

    def with_tokens(self):
        tokens = [self.token] * len(self.sessions)
        if self.chance.random() < 0.1:
            tokens[self.chance.randrange(len(tokens))] = self.chance.choice(["wrong", ""])
        return ["TOKENS", *(word for session, token in zip(self.sessions, tokens) for word in (session.name, session.epoch, session.beat(), token))]


class Bot(Actor):
    """Posts, resends what got no reply, and marks what was delivered to whom."""

    pause = 0.03

    def step(self):
        room, id = self.chance.choice(ROOMS[:1] + ROOMS[2:]), self.fresh("p")
        reply = self.call.insist("POST", room, self.who, id, "of " + id)
        if isinstance(reply, dict):
            self.call("MARK", room, self.chance.choice(USERS), self.chance.choice(DEVICES), self.chance.choice(["QUEUED", "WRITTEN"]), reply["seq"])


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
