"""One connection through redis-py, with replies as bytes and refusals as values, each held to the contract.

redis-py strips some error codes from the text and may raise or return an error, depending on where it stands. Here an
error is always a `Refused` holding the text as the server sent it; whoever sent the command decides whether to raise it.
"""

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection as Socket
from redis.retry import Retry

from .witness import Witness


class Refused(Exception):
    """An error reply: `code` is its first word, `head` what stands before the colon."""

    def __init__(self, text):
        super().__init__(text)
        self.text = text
        self.head = text.split(":")[0]
        self.code = self.head.split(" ")[0]


def words(command):
    """The arguments of a command: a text is split at its spaces, any other sequence is taken as it is."""
    return command.split(" ") if isinstance(command, str) else list(command)


class Connection:
    def __init__(self, port, protocol=3, db=0, username=None, password=None, timeout=60):
        # Whoever connects says whether to try again.
        self.socket = Socket(
            host="127.0.0.1",
            port=port,
            protocol=protocol,
            db=db,
            username=username,
            password=password,
            socket_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            driver_info=None,
        )
        self.socket.connect()
        self.protocol, self.timeout, self.witness = protocol, timeout, Witness(protocol)

    def __call__(self, *command):
        """The reply to one command, written as one text or as its arguments; raises `Refused`."""
        (reply,) = self.pipeline([command[0] if len(command) == 1 else command])
        if isinstance(reply, Refused):
            raise reply
        return reply

    def pipeline(self, commands):
        """The replies to many commands sent in one write; a refusal stands in its place as a value."""
        commands = [words(command) for command in commands]
        self.send(commands)
        replies = [self.read() for _ in commands]
        for command, reply in zip(commands, replies):
            self.witness(command, reply)
        return replies

    def send(self, commands):
        self.socket.send_packed_command(self.socket.pack_commands(commands))

    def read(self, timeout=None):
        try:
            return as_values(self.socket.read_response(timeout=timeout or self.timeout, push_request=True))
        except redis.ResponseError as error:
            return as_values(error)

    def close(self):
        self.socket.disconnect()


def as_values(reply):
    if isinstance(reply, redis.ResponseError):
        code = getattr(reply, "status_code", None)
        return Refused(f"{code} {reply}" if code else str(reply))
    if isinstance(reply, list):
        return [as_values(part) for part in reply]
    return reply
