"""Those who look after rooms: a moderator decides who may be there, a keeper what is kept. Each is the only one to do so."""

import collections

from .scene import GRANTED, RETAINED, ROOMS, SHORT, USERS
from .traffic import Actor


class Moderator(Actor):
    """Revokes and grants, with versions, each until it is acknowledged; sometimes it kicks."""

    pause = 0.1

    def __init__(self, *args):
        super().__init__(*args)
        self.version, self.out, self.world = 0, collections.deque(), None

    def step(self):
        if self.world != self.nodes.world:  # where nothing is known of what was granted
            self.world = self.nodes.world
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
        self.out.clear()
        for room in GRANTED:
            for user in USERS + ["probe-b", "reader-a", "reader-b", "reader-everywhere"]:
                self.grant(room, user)

    def grant(self, room, user):
        self.version += 1
        self.call.insist("GRANT", room, user, "WRITE", "VERSION", self.version, tries=1000)


class Keeper(Actor):
    """Holds the log of the short room for a while, lets go, trims, and has it keep more or less."""

    pause = 0.2
    held = False

    def step(self):
        if self.chance.random() < 0.4:
            self.insist("TRIM")
        elif self.chance.random() < 0.5:
            self.insist("SETPOLICY", "retain-count", self.chance.choice(RETAINED))
        else:
            self.held = not self.held
            self.insist("HOLD" if self.held else "UNHOLD", "export")

    def insist(self, op, *args):
        self.call.insist(op, SHORT, *args, tries=1000)
