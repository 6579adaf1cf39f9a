"""What a scenario talks to: one connection, one way of calling, and the words of the scenarios."""

from contextlib import contextmanager

from . import events, messages, rooms
from .contract import INSTRUCTIONS
from .process import wait_until
from .replies import normal
from .resp import Refused, words


class Client:
    def __init__(self, server, way, **options):
        self.server, self.way = server, way
        self.connection = server.connect(way.protocol, **options)

    def __call__(self, *command):
        """The reply to one command, given as one text or as its arguments; raises `Refused`."""
        (reply,) = self.pipeline(command[0] if len(command) == 1 else command)
        if isinstance(reply, Refused):
            raise reply
        return reply

    def refusal(self, *command):
        """The head of the error a command is answered with: `STALE superseded 7`, `HELD 12000`; of others the code alone."""
        try:
            reply = self(*command)
        except Refused as refused:
            if refused.code not in INSTRUCTIONS:
                return refused.text.split(" ")[0].rstrip(":")
            return refused.head
        raise AssertionError(f"{command} was not refused: {reply!r}")

    def sent(self, *command):
        """The reply to a SEND or POST, repeated while a room that met a log rebuilds its dedupe records."""

        def reply():
            try:
                return self(*command)
            except Refused as refused:
                if refused.code != "TRYAGAIN":
                    raise

        return wait_until(reply, what="the room has rebuilt its dedupe records")

    def pipeline(self, *commands):
        """The replies to commands sent in one write, each the client's way; a refusal stands as a value."""
        commands = [words(command) for command in commands]
        return [normal(*pair) for pair in zip(commands, self.way.send(self.connection, commands))]

    def transaction(self, *commands):
        """The replies to commands that stand in one MULTI/EXEC; a refusal stands as a value."""
        commands = [words(command) for command in commands]
        return [normal(*pair) for pair in zip(commands, self.way.transaction(self.connection, commands))]

    def held(self, ms, *commands):
        """Lets `ms` pass and sends the commands before the reaper can run: all in one MULTI/EXEC. Replies as in `transaction`."""
        replies = self.transaction(["LEASE.CLOCK", "ADVANCE", ms], *commands)
        self.server.replicas_follow()
        return replies[1:]

    def raw(self, *command):
        """The reply as the protocol brought it, sent plain."""
        return self.connection(*command)

    def advance(self, ms):
        """Lets `ms` pass, the reaper run to its end, on replicas too; the time now."""
        return self.server.advance(ms)

    def now(self):
        return self.server.now()

    def another(self, way=None):
        """A second connection to the same server."""
        return Client(self.server, way or self.way)

    def events(self, room, newest=None):
        """The room's events, oldest first, see `harness.events.entry`; all, or the `newest` so many."""
        return events.newest(self.connection, room, newest) if newest else events.read(self.connection, room)

    def messages(self, room):
        """The room's messages, oldest first: (seq, dict), see `harness.messages.read`."""
        return messages.read(self.connection, room)

    def history(self, room):
        """The room's events in short: (type, session, epoch), and the reason where there is one."""
        return [tuple(event[name] for name in ("type", "session", "epoch", "reason") if name in event) for event in self.events(room)]

    @contextmanager
    def nothing_changes(self):
        """Holds the commands within to leaving rooms, deadlines, events, messages, keys and the count of changes as they are."""
        before = rooms.everything(self.server)
        yield
        assert rooms.everything(self.server) == before
