"""Sees every reply on a connection, and holds those to the module's commands to the contract: in MULTI/EXEC and in scripts too."""

import re

from .conform import GREATEST, Unlike
from .contract import INSTRUCTIONS, REFUSALS
from .replies import name_of, normal

SCRIPT = "return redis.pcall(unpack(ARGV))"  # passes one command on
LUAS_GREATEST = -(2**63)
SERVERS_OWN = "TRYAGAIN Multiple keys request during rehashing of slot"


class Witness:
    def __init__(self, protocol):
        self.protocol, self.queued = protocol, None

    def __call__(self, command, reply):
        name = name_of(command)
        if name == "MULTI":
            self.queued = []
        elif self.queued is None:
            self.hold(command, reply)
        elif name in ("EXEC", "DISCARD", "RESET"):
            queued, self.queued = self.queued, None
            if name == "EXEC" and isinstance(reply, list):
                for one, part in zip(queued, reply, strict=True):
                    self.hold(one, part)
        elif isinstance(reply, Exception):
            self.hold(command, reply)
        else:
            self.queued.append(command)

    def hold(self, command, reply):
        mapped = self.protocol == 3
        if name_of(command) == "EVAL" and command[1] == SCRIPT:
            command, reply, mapped = command[3:], from_lua(reply), False  # scripts speak RESP2
        if not name_of(command).startswith("LEASE."):
            return
        try:
            if isinstance(reply, Exception):
                known(reply.text)
            normal(command, reply, mapped)
        except Unlike as why:
            raise Unlike(f"{command} was answered {reply!r}: {why}") from None


def from_lua(reply):
    """Lua makes doubles of numbers, and of the greatest integer, by that, the least."""
    if isinstance(reply, list):
        return [from_lua(part) for part in reply]
    return GREATEST if reply == LUAS_GREATEST else reply


def known(text):
    """An error with a code of the module's reads as the contract says; any other is the server's own."""
    head, colon, sentence = text.partition(":")
    if head.split(" ")[0] not in INSTRUCTIONS or text == SERVERS_OWN:
        return
    if re.sub(r"\d+$", "#", head) not in REFUSALS or not re.match(r" \S", sentence):
        raise Unlike("no error of the contract")
