"""The ways a scenario's commands are sent: plain, each in its own MULTI/EXEC, each through EVAL; in RESP2 and RESP3.

Only the module's commands take the way, and LEASE.CLOCK does not: inside a transaction it would not run the reaper.
"""

from dataclasses import dataclass

from .resp import Refused, words
from .witness import SCRIPT, from_lua


@dataclass(frozen=True)
class Way:
    name: str
    protocol: int

    def __str__(self):
        return f"{self.name}-resp{self.protocol}"

    def takes(self, command):
        name = command[0] if isinstance(command[0], str) else command[0].decode("latin1")
        return name.upper().startswith("LEASE.") and name.upper() != "LEASE.CLOCK"

    def script(self, command):
        return ["EVAL", SCRIPT, 0, *command] if self.name == "eval" else command

    def wrap(self, command):
        """The commands to send for one command."""
        if not self.takes(command):
            return [command]
        if self.name == "multi":
            return [["MULTI"], command, ["EXEC"]]
        return [self.script(command)]

    def unwrap(self, command, replies):
        """The one reply among those to what `wrap` sent. A command refused while queueing spoils its transaction."""
        if len(replies) == 1:
            return from_lua(replies[0]) if self.name == "eval" else replies[0]
        _, queued, executed = replies
        return queued if isinstance(queued, Refused) else executed[0]

    def send(self, connection, commands):
        """Sends the commands in one write; their replies in order."""
        commands = [words(command) for command in commands]
        wrapped = [self.wrap(command) for command in commands]
        replies = iter(connection.pipeline([part for parts in wrapped for part in parts]))
        return [self.unwrap(command, [next(replies) for _ in parts]) for command, parts in zip(commands, wrapped)]

    def transaction(self, connection, commands):
        """All commands in one MULTI/EXEC; their replies in order."""
        commands = [self.script(words(command)) for command in commands]
        *queued, executed = connection.pipeline([["MULTI"], *commands, ["EXEC"]])
        for reply in queued:
            if isinstance(reply, Refused):
                raise reply
        if isinstance(executed, Refused):
            raise executed
        return executed


ALL = [Way(name, protocol) for name in ("plain", "multi", "eval") for protocol in (2, 3)]
