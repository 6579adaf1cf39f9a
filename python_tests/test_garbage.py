"""Bad input: a clear error, nothing changed, the server alive.

`r` is a room with an active, a bound, a lingering and an ended lease; whatever is wrong with a command, they stay as they are.
"""

import random
import re
from contextlib import contextmanager

import pytest

from harness import Refused

# Texts that must not pass for a number; the last is a digit, but not one of ours.
NO_NUMBERS = (
    "",
    "-1",
    "-0",
    "+5",
    "05",
    "00",
    " 5",
    "5 ",
    "5\n",
    "1e3",
    "1.0",
    "0x10",
    "five",
    "5five",
    "\x00",
    "5\x00",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1" * 400,
    "-9223372036854775808",
    "\u0663",
)

# Every place where a command takes a number.
NUMBERED = (
    "OPEN r u TTL #",
    "OPEN r u UNTIL #",
    "OPEN r u DEVICE d TTL # NX",
    "RENEW r a # 5",
    "RENEW r a 1 #",
    "RENEW r a 1 5 TTL #",
    "RENEW r a 1 5 OBSERVED #",
    "RENEW r a 1 # STATE closed",
    "MRENEW r a # 5",
    "MRENEW r a 1 #",
    "MRENEW r a 1 5 bound # 5",
    "MRENEW r TOKENS bound 1 # s3cret",
    "LEAVE r a #",
    "LEAVE r a 1 LINGER #",
    "REAP r COUNT #",
    "ROSTER r CURSOR #",
    "ROSTER r COUNT #",
    "INSPECT r CURSOR #",
    "INSPECT r COUNT #",
    "CLOCK SET #",
    "CLOCK ADVANCE #",
    "SETPOLICY r ttl-ms #",
    "SETPOLICY r disconnect-ms #",
    "SETPOLICY r failed-ms #",
    "SETPOLICY r tombstone-ms #",
    "SETPOLICY r precision-ms #",
    "SETPOLICY r max-leases #",
    "SETPOLICY r events-maxlen #",
    "SETPOLICY r tombstone-ms 5 max-leases #",
    "GRANT r u READ UNTIL #",
    "GRANT r u READ VERSION #",
    "REVOKE r u VERSION #",
    "GRANTS r CURSOR #",
    "GRANTS r COUNT #",
    "SETPOLICY r retain-count #",
    "SETPOLICY r retain-ms #",
    "SETPOLICY r dedup-ms #",
    "SEND r a # m9 x",
    "REPLAY r a # * 0",
    "REPLAY r a 1 * #",
    "REPLAY r a 1 * 0 COUNT #",
    "SNAPSHOT r a #",
    "SNAPSHOT r a 1 COUNT #",
    "ACK r a # 1",
    "ACK r a 1 #",
    "MARK r u1 default QUEUED #",
    "MARK r u1 default WRITTEN #",
    "LAG r CURSOR #",
    "LAG r COUNT #",
)

# Too few, too many, unknown, doubled, incomplete.
MALFORMED = {
    "OPEN": (
        "",
        "r",
        "r u DEVICE",
        "r u DEVICE d DEVICE d",
        "r u SESSION",
        "r u SESSION s SESSION s",
        "r u TTL",
        "r u TTL 5000 ttl 5000",
        "r u UNTIL",
        "r u TOKEN",
        "r u GRANT-TOKEN",
        "r u META",
        "r u META x meta y",
        "r u NX NX",
        "r u extra",
        "r u NX extra",
        "r u STATE connected",
        "r u COUNT 5",
        "r u TTL 999",
        "r u TTL 0",
        "r u TTL 3600001",
        "r u TTL 9223372036854775807",
        "r u UNTIL 0",
    ),
    "RENEW": (
        "",
        "r",
        "r a",
        "r a 1",
        "r a 1 5 STATE",
        "r a 1 5 STATE nonsense",
        "r a 1 5 STATE connected STATE connected",
        "r a 1 5 META",
        "r a 1 5 META x META x",
        "r a 1 5 TTL",
        "r a 1 5 TTL 999",
        "r a 1 5 TTL 3600001",
        "r a 1 5 TTL 5000 TTL 5000",
        "r a 1 5 OBSERVED",
        "r a 1 5 TOKEN",
        "r a 1 5 TOKEN x TOKEN x",
        "r a 1 5 extra",
        "r a 1 5 NX",
        "r a 1 5 STATE connected extra",
    ),
    "MRENEW": (
        "",
        "r",
        "r a",
        "r a 1",
        "r a 1 5 bound",
        "r a 1 5 bound 1",
        "r TOKENS",
        "r TOKENS a 1 5",
        "r TOKENS a 1 5 x bound",
        "r a 1 5 TOKENS",
        "r TOKENS a 1 5 x bound 1 5",
    ),
    "LEAVE": ("", "r", "r a", "r a 1 LINGER", "r a 1 LINGER 5 LINGER 5", "r a 1 TOKEN", "r a 1 extra", "r a 1 LINGER 5 extra"),
    "KICK": (
        "",
        "r",
        "r USER",
        "r u1",
        "r u1 d",
        "r USER u1 DEVICE",
        "r USER u1 USER u1",
        "r USER u1 extra",
        "r SESSION a",
        "r USER u1 DEVICE default extra",
    ),
    "REAP": ("", "r COUNT", "r COUNT 0", "r COUNT 5 COUNT 5", "r extra", "r COUNT 5 extra"),
    "GET": ("", "r", "r a extra"),
    "ROSTER": ("", "r USER", "r USER u1 USER u1", "r CURSOR", "r COUNT", "r COUNT 0", "r COUNT 10001", "r ENDED ENDED", "r extra"),
    "COUNT": ("", "r extra"),
    "INSPECT": ("", "r SESSION", "r SESSION a SESSION a", "r CURSOR", "r COUNT", "r COUNT 0", "r COUNT 10001", "r extra", "r USER", "r ENDED ENDED"),
    "POLICY": ("", "r extra"),
    "SETPOLICY": (
        "",
        "r",
        "r ttl-ms",
        "r ttl-ms 5000 tombstone-ms",
        "r ttl-ms 5000 ttl-ms 5000",
        "r ttl-ms 5000 TTL-MS default",
        "r nonsense 5",
        "r ttl-min-ms 5",
        "r ttl-max-ms 5",
        "r max-id-bytes 5",
        "r events-scope tag",
        "r recovery-grace-ms 0",
        "r require-token maybe",
        "r access closed",
        "r default-access granted",
        "r log-renewals 2",
        "r announce-messages 1",
        "r cursor-ms 5",
        "r max-payload-bytes 5",
        "r ttl-ms 0",
        "r ttl-ms 999",
        "r ttl-ms 3600001",
        "r precision-ms yes",
    ),
    "GRANT": (
        "",
        "r",
        "r u1",
        "r u1 ADMIN",
        "r u1 READ UNTIL",
        "r u1 READ UNTIL 0",
        "r u1 READ TOKEN",
        "r u1 READ TOKEN x TOKEN x",
        "r u1 READ VERSION",
        "r u1 READ VERSION 5 VERSION 5",
        "r u1 READ WRITE",
        "r u1 READ extra",
        "r u1 UNTIL 2000000 READ",
        "r u1 READ DEVICE d",
    ),
    "REVOKE": ("", "r", "r u1 DEVICE", "r u1 DEVICE d DEVICE d", "r u1 VERSION", "r u1 VERSION 5 VERSION 5", "r u1 extra", "r u1 USER u1"),
    "GRANTS": ("", "r USER", "r USER u1 USER u1", "r CURSOR", "r COUNT", "r COUNT 0", "r COUNT 10001", "r ENDED", "r extra"),
    "SEND": (
        "",
        "r",
        "r a",
        "r a 1",
        "r a 1 m9",
        "r a 1 m9 x TOKEN",
        "r a 1 m9 x TOKEN x TOKEN x",
        "r a 1 m9 x extra",
        "r a 1 m9 x NX",
        "r a 1 m9 x META x",
    ),
    "POST": ("", "r", "r u1", "r u1 m9", "r u1 m9 x extra", "r u1 m9 x TOKEN x", "r u1 m9 x DEVICE d"),
    "REPLAY": (
        "",
        "r",
        "r a",
        "r a 1",
        "r a 1 *",
        "r a 1 * 0 COUNT",
        "r a 1 * 0 COUNT 0",
        "r a 1 * 0 COUNT 10001",
        "r a 1 * 0 COUNT 5 COUNT 5",
        "r a 1 * 0 TOKEN",
        "r a 1 * 0 TOKEN x TOKEN x",
        "r a 1 * 0 extra",
        "r a 1 * 0 CURSOR 0",
    ),
    "SNAPSHOT": (
        "",
        "r",
        "r a",
        "r a 1 COUNT",
        "r a 1 COUNT 0",
        "r a 1 COUNT 10001",
        "r a 1 COUNT 5 COUNT 5",
        "r a 1 TOKEN",
        "r a 1 extra",
        "r a 1 CURSOR 0",
    ),
    "ACK": ("", "r", "r a", "r a 1", "r a 1 2", "r a 1 9223372036854775807", "r a 1 1 TOKEN", "r a 1 1 TOKEN x TOKEN x", "r a 1 1 extra"),
    "MARK": (
        "",
        "r",
        "r u1",
        "r u1 default",
        "r u1 default QUEUED",
        "r u1 default READ 1",
        "r u1 default ACKED 1",
        "r u1 default QUEUED 2",
        "r nobody default QUEUED 1",
        "r u1 other QUEUED 1",
        "r u1 default QUEUED 1 extra",
    ),
    "LAG": ("", "r CURSOR", "r COUNT", "r COUNT 0", "r COUNT 10001", "r COUNT 5 COUNT 5", "r USER u1", "r extra"),
    "HOLD": ("", "r", "r h extra"),
    "UNHOLD": ("", "r", "r h extra"),
    "HOLDS": ("", "r extra"),
    "TRIM": ("", "r extra", "r COUNT 5"),
    "STATS": ("", "r extra"),
    "CLOCK": ("", "GET extra", "SET", "SET 5 5", "ADVANCE", "ADVANCE 5 5", "STOP", "ADVANCE 9223372036854775807"),
}

# One good call of each command on a room.
GOOD = (
    "OPEN # u9",
    "RENEW # a 1 5",
    "RENEW # a 1 5 STATE closed",
    "MRENEW # a 1 5",
    "LEAVE # a 1",
    "KICK # USER u1",
    "REAP #",
    "GET # a",
    "ROSTER #",
    "COUNT #",
    "INSPECT #",
    "POLICY #",
    "SETPOLICY # ttl-ms 5000",
    "GRANT # u1 READ",
    "REVOKE # u9",
    "GRANTS #",
    "SEND # a 1 m9 x",
    "POST # u9 m9 x",
    "REPLAY # a 1 * 0",
    "SNAPSHOT # a 1",
    "ACK # a 1 0",
    "MARK # u1 default QUEUED 0",
    "LAG #",
    "HOLD # h9",
    "UNHOLD # h",
    "HOLDS #",
    "TRIM #",
    "STATS #",
)
MAKERS = {"OPEN", "SETPOLICY", "GRANT", "REVOKE", "POST", "HOLD"}  # of a room that is not there


def filled(text, value):
    """The arguments of a command whose `#` stands for `value`."""
    first, *rest = [value if word == "#" else word for word in text.split(" ") if word]
    return ["LEASE." + first, *rest]


@pytest.fixture
def room(client):
    client("LEASE.CLOCK SET 1000000")
    client("LEASE.OPEN r u1 SESSION a META x")
    client("LEASE.RENEW r a 1 3 STATE connected")
    client("LEASE.OPEN r u2 SESSION bound TOKEN s3cret")
    client("LEASE.OPEN r u3 SESSION lingering")
    client("LEASE.LEAVE r lingering 1 LINGER 20000")
    client("LEASE.OPEN r u4 SESSION ended")
    client("LEASE.LEAVE r ended 1")
    client("LEASE.SEND r a 1 m1 x")
    client("LEASE.HOLD r h")


@contextmanager
def untouched(client):
    """Nothing a reader, the events or the digest could show changes; the server answers."""
    digest = client.raw("DEBUG DIGEST")
    with client.nothing_changes():
        yield
    assert client.raw("DEBUG DIGEST") == digest
    assert client.raw("PING") == b"PONG"


def all_refused(client, commands, heads):
    replies = client.pipeline(*commands)
    for command, reply in zip(commands, replies, strict=True):
        assert isinstance(reply, Refused), f"{command} was not refused: {reply!r}"
        assert reply.code in heads and re.fullmatch(r"[A-Z]+ ?.*", reply.text), f"{command}: {reply.text}"


@pytest.mark.parametrize("name", MALFORMED)
def test_garbage_too_few_too_many_malformed(client, room, name):
    """Bad input: every command with too few, too many and malformed arguments."""
    with untouched(client):
        all_refused(client, [["LEASE." + name, *rest.split()] for rest in MALFORMED[name]], {"ERR"})


def test_garbage_numbers(client, room):
    """Bad input (NUM-01): no other spelling of a number passes, anywhere."""
    with untouched(client):
        all_refused(client, [filled(text, number) for text in NUMBERED for number in NO_NUMBERS], {"ERR"})


def test_garbage_ids_over_the_limit(client, room):
    """Bad input: ids of 255 bytes are good, of 256 bytes LIMIT id where one would be stored."""
    long = "i" * 256
    with untouched(client):
        all_refused(
            client,
            [
                ["LEASE.OPEN", "r", long],
                ["LEASE.OPEN", "r", "u", "DEVICE", long],
                ["LEASE.OPEN", "r", "u", "SESSION", long],
                ["LEASE.GRANT", "r", long, "READ"],
                ["LEASE.REVOKE", "r", long],
                ["LEASE.REVOKE", "r", "u", "DEVICE", long],
                ["LEASE.SEND", "r", "a", 1, long, "x"],
                ["LEASE.POST", "r", long, "m", "x"],
                ["LEASE.POST", "r", "u", long, "x"],
                ["LEASE.MARK", "r", "u1", long, "QUEUED", 1],
                ["LEASE.HOLD", "r", long],
            ],
            {"LIMIT"},
        )
    good = "i" * 255
    assert client("LEASE.OPEN", good, good, "DEVICE", good, "SESSION", good)["session"] == good.encode()
    assert client("LEASE.RENEW", good, good, 1, 1)[0] == b"renewed"


def test_garbage_two_faults_at_once(client, room):
    """Bad input: syntax is looked at first, whatever else is wrong; the type of the key comes next."""
    client("SET text x")
    with untouched(client):
        all_refused(
            client,
            [
                ["LEASE.RENEW", "text", "a", "x", 1],
                ["LEASE.RENEW", "missing", "nobody", 1, "x"],
                ["LEASE.OPEN", "text", "u", "NX", "NX"],
                ["LEASE.RENEW", "r", "bound", 1, 1, "STATE", "nonsense"],
                ["LEASE.SETPOLICY", "text", "nonsense", 1],
                ["LEASE.SEND", "text", "a", 1, "", "x"],
                ["LEASE.REPLAY", "text", "a", 1, "*", "x"],
                ["LEASE.MARK", "text", "u", "d", "READ", 1],
            ],
            {"ERR"},
        )
        all_refused(
            client,
            [
                ["LEASE.RENEW", "text", "nobody", 9, 1],
                ["LEASE.SEND", "text", "nobody", 9, "m", "x"],
                ["LEASE.ACK", "text", "nobody", 9, 9],
                ["LEASE.OPEN", "text", "u", "SESSION", "a"],
            ],
            {"WRONGTYPE"},
        )


@pytest.mark.parametrize(
    "made_by", ("SET # x", "RPUSH # x", "HSET # x y", "SADD # x", "ZADD # 1 x", "XADD # 1-0 x y"), ids=lambda made_by: made_by.split()[0]
)
@pytest.mark.ways("plain-resp2", "multi-resp3", "eval-resp3")
def test_garbage_a_key_of_another_type(client, room, made_by):
    """Bad input (OWN-12): a key of another type, for every command."""
    client.raw(made_by.replace("#", "other"))
    with untouched(client):
        all_refused(client, [filled(text, "other") for text in GOOD], {"WRONGTYPE"})
    assert client.raw("TYPE other") != b"leaseroom"


def test_garbage_refused_room_keys(client, room):
    """Bad input (API-07, step 2): keys that a stream has or could have are no rooms, for every command."""
    keys = ("", "{t}", "{}", "{t}y}", "{a}b{c}", "x:events", "x:log", ":events", "{r}:events", "{r}:log")
    with untouched(client):
        all_refused(client, [filled(text, key) for text in GOOD for key in keys], {"ERR"})


def test_garbage_stray_braces(client):
    """Bad input (API-07, step 2): outside a cluster a stray brace is no harm, and each such room has streams of its own."""
    rooms = ("a}b", "{}x", "{", "}", "a{b", "}{", "{a", "a}")
    for room in rooms:
        client("LEASE.OPEN", room, "u", "SESSION", "a")
        client("LEASE.SEND", room, "a", 1, "m", "x")
        assert client.history(room) == [("opened", b"a", 1)], room
        assert [seq for seq, _ in client.messages(room)] == [1], room
    assert client.raw("DBSIZE") == 3 * len(rooms)


def test_garbage_no_room_springs_up(client):
    """Bad input: reads, refused commands and those that find nothing make no room."""
    with untouched(client):
        client.pipeline(*(filled(text, "missing") for text in GOOD if text.split()[0] not in MAKERS))
        client.pipeline(*(["LEASE." + name, *rest.replace("r", "missing", 1).split()] for name in MALFORMED for rest in MALFORMED[name]))
    assert client.raw("DBSIZE") == 0


@pytest.mark.ways("plain-resp3", "multi-resp2", "eval-resp2")
def test_garbage_effects_from_a_client(client, room):
    """Bad input: the command that carries effects to replicas and the AOF is none for clients."""
    payloads = (b"", b"\x00", b"\x01", b"\xff" * 64, b"opened")
    with untouched(client):
        for command in (
            ["LEASE.APPLY"],
            ["LEASE.APPLY", "r"],
            *(["LEASE.APPLY", "r", payload] for payload in payloads),
            *(["LEASE.APPLY", "r", payload, payload] for payload in payloads),
        ):
            assert isinstance(client.pipeline(command)[0], Refused), command


WORDS = [word for text in NUMBERED for word in text.split()[1:]] + [
    "NX",
    "ENDED",
    "USER",
    "DEVICE",
    "SESSION",
    "TOKEN",
    "TOKENS",
    "META",
    "STATE",
    "UNTIL",
    "closed",
    "failed",
    "disconnected",
    "u1",
    "u2",
    "u3",
    "s3cret",
    "lingering",
    "ended",
    "text",
    "other",
    "0",
    "1",
    "2",
    "1000",
    "5000",
    "2000000",
    "9223372036854775807",
    *NO_NUMBERS,
    "READ",
    "WRITE",
    "VERSION",
    "QUEUED",
    "WRITTEN",
    "*",
    "m1",
    "h",
    "orphan",
    "access",
    "granted",
    b"\xff\xfe\x00",
    "\r\n",
    "{r}:events",
    "default",
    "yes",
    "no",
]
CODES = {"ERR", "WRONGTYPE", "STALE", "DENIED", "HELD", "CONFLICT", "LIMIT", "LOGSTATE", "TRYAGAIN", "EXECABORT"}


@pytest.mark.parametrize("seed", range(3))
def test_garbage_at_random(client, room, seed):
    """Bad input: commands thrown together; each is answered, in a known way, and the rooms stay consistent."""
    dice = random.Random(f"{seed} {client.way}")
    client("SET text x")
    names = [name for name in MALFORMED if name != "CLOCK"]
    for _ in range(20):
        commands = [
            ["LEASE." + dice.choice(names), dice.choice(("r", "r", "r", "other", "text")), *dice.choices(WORDS, k=dice.randrange(8))]
            for _ in range(50)
        ]
        for command, reply in zip(commands, client.pipeline(*commands, "PING"), strict=False):
            assert not isinstance(reply, Refused) or reply.code in CODES, f"seed {seed}: {command}: {reply.text}"
        client.advance(dice.randrange(20000))
