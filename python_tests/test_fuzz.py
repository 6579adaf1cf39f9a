"""FUZZ: any arguments, in any context; `make fuzz` gives it more time.

Commands are made from what the server itself says of their arguments, then damaged. Each is answered once and in step, in a known
way; replica, reload and restart agree afterwards, as after every test.
"""

import os
import random
import time

import pytest
import redis

from harness import Client, Refused, Way, aftermath, wait_until, ways
from test_ops import PER_ROOM

SECONDS = float(os.environ.get("FUZZ_SECONDS", 4))
SEED = int(os.environ.get("FUZZ_SEED", 1))

ROOMS = ("r", "r", "r", "x{t}y", "\xff\x00room")
IDS = (
    "a",
    "b",
    "c",
    "u1",
    "u2",
    "default",
    "phone",
    "0f8fad5b-d9cb-469f-a165-70867728950e",
    "exactly fifteen",
    "orphan",
    b"\xff\xfe\x00\x80",
    "i" * 255,
)
SECRETS = ("s3cret", "wrong")
NUMBERS = (0, 1, 1, 1, 2, 3, 5, 1000, 5000, 30000, 3600000, 2**31, 2**32, 2**48 - 1, 2**48, 2**62, 2**63 - 2, 2**63 - 1)
SETTINGS = (*sorted(PER_ROOM), "access")
VALUES = ("default", "default", "0", "1", "5000", "600000", "yes", "no", "granted", "open", str(2**63 - 1))
STATES = ("new", "connecting", "checking", "connected", "completed", "disconnected", "failed", "closed")
WORDS = {
    "session": IDS,
    "user": IDS,
    "device": IDS,
    "message-id": IDS,
    "name": IDS,
    "token": SECRETS,
    "grant-token": SECRETS,
    "field": SETTINGS,
    "value": VALUES,
    "state": STATES,
    "gen": ("*", "*", "0-00000000", "nonsense"),
    "meta": ("", "x", b"\xff\x00", "m" * 4097),
    "payload": ("", "x", b"\xff" * 70000),
}
HOSTILE = (
    "",
    "-1",
    "+5",
    "05",
    "1e3",
    " 1",
    "9223372036854775808",
    "18446744073709551616",
    b"\xff\xfe\x00",
    "\r\n",
    "$5\r\n",
    "{r}:events",
    "NX",
    "TOKENS",
    "TOKEN",
    "COUNT",
    "i" * 256,
    "x" * 70000,
    "\x00",
    "%n%s",
    "default",
    "*",
)
CODES = {"ERR", "WRONGTYPE", "STALE", "DENIED", "HELD", "CONFLICT", "LIMIT", "LOGSTATE", "TRYAGAIN", "EXECABORT"}
# Not at random: a clock at its end would end the run; help is the same whatever comes.
LEFT_OUT = {"lease.clock", "lease.help"}
# What befalls a room from outside.
ACCIDENTS = (
    "DEL r",
    "DEL r:log {r}:log",
    "DEL {r}:events",
    "SET {r}:events x",
    "SET {r}:log x",
    "XADD {r}:log 77777-0 a b",
    "XADD {r}:events 99999999-0 a b",
    "XADD {r}:log * a b",
    "RENAME r x",
    "RENAME x r",
    "COPY r x{t}y REPLACE",
    "MOVE r 1",
    "XTRIM {r}:log MAXLEN 1",
    "PEXPIRE r 60000",
    "PERSIST r",
    "DEBUG RELOAD",
    "FLUSHDB",
    "CONFIG SET lease.default-access granted",
    "CONFIG SET lease.default-access open",
    "CONFIG SET lease.empty-room-ms 0",
    "CONFIG SET lease.cursor-ms 1000",
)


class Grammar:
    """Arguments of every command, drawn from COMMAND DOCS."""

    def __init__(self, server, dice):
        self.dice = dice
        names = [name.decode() for name in server.call("COMMAND LIST FILTERBY MODULE lease")]
        docs = server.call("COMMAND", "DOCS", *sorted(set(names) - LEFT_OUT))
        self.arguments = {name.decode(): about[b"arguments"] for name, about in docs.items()}
        self.names = sorted(self.arguments)
        assert len(self.names) >= 28, self.names

    def command(self):
        name = self.dice.choice(self.names)
        return self.damaged([name, *self.all(self.arguments[name])])

    def all(self, arguments):
        parts = []
        for argument in arguments:
            flags = argument.get(b"flags", ())
            if b"optional" in flags and self.dice.random() < 0.6:
                continue
            for _ in range(self.dice.randrange(1, 4) if b"multiple" in flags else 1):
                parts += self.one(argument)
        return parts

    def one(self, argument):
        kind, token = argument[b"type"], argument.get(b"token")
        if kind == b"oneof":
            return self.one(self.dice.choice(argument[b"arguments"]))
        words = [] if token is None else [self.dice.choice((token, token.lower()))]
        if kind == b"block":
            return words + self.all(argument[b"arguments"])
        return words if kind == b"pure-token" else [*words, self.word(argument)]

    def word(self, argument):
        name = argument[b"name"].decode()
        if argument[b"type"] == b"key":
            return self.dice.choice(ROOMS)
        if argument[b"type"] in (b"integer", b"unix-time"):
            return self.dice.choice(NUMBERS)
        return self.dice.choice(WORDS.get(name, IDS))

    def damaged(self, words):
        """Most stay as they are."""
        while self.dice.random() < 0.25:
            at = self.dice.randrange(1, len(words) + 1)
            kind = self.dice.randrange(5)
            if kind == 0:
                del words[at : at + 1]
            elif kind == 1:
                words[at:at] = [self.dice.choice(HOSTILE)]
            elif kind == 2:
                words[at : at + 1] = [self.dice.choice(HOSTILE)]
            elif kind == 3:
                words += words[at:]
            else:
                self.dice.shuffle(rest := words[2:])
                words[2:] = rest
        return words


def answered(client, commands, nonce):
    """Every command has its one reply, in a known way, and what was asked next is answered next."""
    *replies, echo = client.pipeline(*commands, ["ECHO", nonce])
    assert echo == nonce.encode(), f"out of step: {echo!r} behind {commands}"
    for command, reply in zip(commands, replies, strict=True):
        assert not isinstance(reply, Refused) or reply.code in CODES, f"{command}: {reply.text}"
        assert not isinstance(reply, Refused) or not reply.text.startswith("ERR internal"), command
        if client.way.name != "eval":  # Lua makes doubles of numbers, and of the largest a negative one
            sane(command, reply)


def sane(command, reply):
    """No reply tells a negative number, wherever in it."""
    if isinstance(reply, int):
        assert reply >= 0, f"{command}: {reply}"
    elif isinstance(reply, dict):
        for part in reply.values():
            sane(command, part)
    elif isinstance(reply, (list, tuple)):
        for part in reply:
            sane(command, part)


def test_fuzz_arguments(start, way):
    """FUZZ Any arguments: every command, plain, in MULTI and through EVAL, while rooms and streams are lost, moved and replaced."""
    server, dice = start(), random.Random(f"{SEED} {way}")
    grammar, replica = Grammar(server, dice), server.replica()
    client, rounds, end = Client(server, way), 0, time.monotonic() + SECONDS / len(ways.ALL)
    while time.monotonic() < end or rounds < 20:
        rounds += 1
        answered(client, [grammar.command() for _ in range(50)], f"nonce {rounds}")
        client.advance(dice.choice((0, 1, 999, 5000, 30000, 700000)))
        if dice.random() < 0.2:
            accident = dice.choice(ACCIDENTS)
            answered(client, [accident], f"after {accident}")
        if rounds % 20 == 0:
            aftermath.replicas_agree(server)
    print(f"\nseed {SEED}, {way}: {rounds * 50} commands")
    # Nothing tells these rooms' whole story: streams were taken away and others put in their places.
    server.call("FLUSHALL")
    server.call("CONFIG SET lease.default-access open")
    replica.in_step()


# -------------------------------------------------------------------- what no client may send


def effects_of(server):
    """Effects as the module itself has sent them, from the AOF."""
    aof = b"".join(path.read_bytes() for path in sorted((server.path / "appendonlydir").glob("*.incr.aof")))
    head = b"LEASE.APPLY\r\n$1\r\nr\r\n$"
    for part in aof.split(head)[1:]:
        length, rest = part.split(b"\r\n", 1)
        yield rest[: int(length)]


FUNCTION = """#!lua name=apply
redis.register_function('forward', function(keys, args) return redis.pcall(unpack(args)) end)
"""
NO_WRITES = "Write commands are not allowed from read-only scripts"
APPLIED = "LEASE.APPLY is the module's own"


def contexts(connection):
    """The ways a client has of getting a command carried out: name, and what sends it."""

    def multi(command):
        _, queued, executed = connection.pipeline([["MULTI"], command, ["EXEC"]])
        return queued if isinstance(queued, Refused) else executed[0]

    yield "plain", lambda command: connection.pipeline([command])[0]
    yield "MULTI", multi
    yield "EVAL", lambda command: connection.pipeline([["EVAL", ways.SCRIPT, 0, *command]])[0]
    yield "EVAL with keys", lambda command: connection.pipeline([["EVAL", "return redis.call('LEASE.APPLY', KEYS[1], ARGV[1])", 1, *command[1:]]])[0]
    yield "EVAL_RO", lambda command: connection.pipeline([["EVAL_RO", ways.SCRIPT, 0, *command]])[0]
    yield "FUNCTION", lambda command: connection.pipeline([["FCALL", "forward", 0, *command]])[0]
    yield "EVAL in MULTI", lambda command: multi(["EVAL", ways.SCRIPT, 0, *command])


@pytest.fixture
def told(start):
    """A primary with a room, effects that would change it, and its replica."""
    server = start(redis={"appendonly": "yes", "appendfsync": "always"})
    client = Client(server, Way("plain", 3))
    for session in ("a", "b"):
        client(f"LEASE.OPEN r u1 SESSION {session}")
    client("LEASE.SEND r b 2 m1 x")
    client("LEASE.REVOKE r u2")
    effects = list(effects_of(server))
    assert len(effects) >= 4
    server.call("FUNCTION", "LOAD", FUNCTION)
    server.call("ACL SETUSER everything on nopass +@all ~* &*")
    client("DEL r {r}:events {r}:log")
    client("LEASE.OPEN r u9 SESSION z")
    return server, effects


def refused_everywhere(node, connection, effects, reason=APPLIED):
    """In every context; for the reason that the module gives, unless the server had one of its own before."""
    digest = node.call("DEBUG DIGEST")
    for name, send in contexts(connection):
        for payload in effects:
            reply = send(["LEASE.APPLY", "r", payload])
            assert isinstance(reply, Refused), f"{name}: {reply!r}"
            assert (NO_WRITES if name == "EVAL_RO" else reason) in reply.text, f"{name}: {reply.text}"
    assert node.call("DEBUG DIGEST") == digest


def test_fuzz_apply_from_no_client_of_a_primary(told):
    """FUZZ LEASE.APPLY is the module's own: no client of a primary can send it, in whatever context, with all permissions."""
    server, effects = told
    for connection in (server.connect(), server.connect(protocol=2), server.connect(username="everything", password="any")):
        refused_everywhere(server, connection, effects)


@pytest.mark.parametrize("read_only, reason", (("no", APPLIED), ("yes", "READONLY")), ids=("writable", "read-only"))
def test_fuzz_apply_from_no_client_of_a_replica(told, read_only, reason):
    """FUZZ LEASE.APPLY is the module's own: nor can one of a replica, even of one that takes writes."""
    server, effects = told
    replica = server.replica(redis={"replica-read-only": read_only})
    refused_everywhere(replica, replica.connect(), effects, reason)


def test_fuzz_apply_from_no_replica(told):
    """FUZZ LEASE.APPLY is the module's own: nor one that has asked to be fed as a replica is."""
    server, effects = told
    digest = server.call("DEBUG DIGEST")
    link = server.connect()
    link.send([["REPLCONF", "listening-port", "1"], ["PSYNC", "?", "-1"], *(["LEASE.APPLY", "r", payload] for payload in effects)])
    assert link.read() == b"OK"
    # What it sends is never answered; that it was looked at shows in the count of refusals.
    wait_until(lambda: server.lease_info()["rejected_err"] >= len(effects), what="the server has refused them")
    assert server.call("DEBUG DIGEST") == digest
    link.close()


def test_fuzz_apply_from_no_client_while_loading(told):
    """FUZZ LEASE.APPLY is the module's own: nor while the server loads, when effects do come from the AOF."""
    server, effects = told
    server.call("DEBUG POPULATE 4000 filler 100")
    server.call("CONFIG SET loading-process-events-interval-bytes 1024 key-load-delay 500")
    digest = server.call("DEBUG DIGEST")
    loading = server.connect()
    loading.send([["DEBUG", "RELOAD"]])
    wait_until(lambda: answer(server.connect(), "DBSIZE") == "LOADING", what="the server loads")
    for number, (name, _) in enumerate(contexts(None)):
        _, send = list(contexts(server.connect()))[number]
        assert answer(send, ["LEASE.APPLY", "r", effects[0]]) == "LOADING", name
    assert loading.read() == b"OK"
    assert server.call("DEBUG DIGEST") == digest


def answer(send, command):
    """The library takes a server that loads for one that is gone, and hangs up."""
    try:
        return send(command)
    except redis.BusyLoadingError:
        return "LOADING"
