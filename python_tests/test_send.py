"""LOG: SEND and POST; what is refused leaves nothing, what is repeated is known."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import Client, Refused
from talk import a_room_at, seqs

# -------------------------------------------------------------------- refused, and then sent again

# What stands in the way of SEND and POST of m3, the refusal, and what clears the way.
CAUSES = {
    "memory": (["CONFIG SET maxmemory 1"], "OOM", ["CONFIG SET maxmemory 0"]),
    "revoked": (["LEASE.REVOKE r u1"], "DENIED revoked", ["LEASE.GRANT r u1 WRITE", "LEASE.OPEN r u1 SESSION b"]),
    "read only": (["LEASE.GRANT r u1 READ", "LEASE.SETPOLICY r access granted"], "DENIED readonly", ["LEASE.GRANT r u1 WRITE"]),
    "no grant": (["LEASE.SETPOLICY r access granted"], "DENIED nogrant", ["LEASE.GRANT r u1 WRITE"]),
    "string": (["RENAME {r}:log aside", "SET {r}:log x"], "LOGSTATE", ["DEL {r}:log", "RENAME aside {r}:log"]),
    "foreign entry": (["COPY {r}:log aside", "XADD {r}:log 99-0 x y"], "LOGSTATE", ["COPY aside {r}:log REPLACE", "DEL aside"]),
    "payload": (["CONFIG SET lease.max-payload-bytes 1"], "LIMIT payload", ["CONFIG SET lease.max-payload-bytes 2"]),
    "id": (["CONFIG SET lease.max-id-bytes 1"], "LIMIT id", ["CONFIG SET lease.max-id-bytes 255"]),
}


@pytest.mark.parametrize("verb", ("SEND", "POST"))
@pytest.mark.parametrize("cause", CAUSES)
def test_log_08_a_refused_message_leaves_nothing(client, cause, verb):
    """LOG-08 A refused SEND leaves nothing."""
    hinder, refusal, clear = CAUSES[cause]
    a_room_at(client, 2)
    for command in hinder:
        client(command)
    command = "LEASE.POST r u1 m3 p3" if verb == "POST" else "LEASE.SEND r a 1 m3 p3"
    size = client.raw("MEMORY USAGE r SAMPLES 0")
    with client.nothing_changes():
        assert client.refusal(command) == refusal
    assert client.raw("MEMORY USAGE r SAMPLES 0") == size
    for one in clear:
        client(one)
    # Who was revoked comes back with a new session.
    command = command.replace("a 1", "b 2") if cause == "revoked" else command
    assert client("LEASE.STATS r")["dedupe"] == 2
    told = client(command)
    assert (told["status"], told["seq"]) == (b"accepted", 3)
    assert client(command)["status"] == b"duplicate"
    assert seqs(client) == [1, 2, 3]


def test_log_08_an_old_epoch(client):
    """LOG-08 A refused SEND leaves nothing: of a session that is over, or with what is not its epoch or token."""
    a_room_at(client, 2)
    client("LEASE.OPEN r u1 SESSION b TOKEN s3cret")
    for command, refusal in (
        ("a 1 m3 p3", "STALE superseded 2"),
        ("b 1 m3 p3 TOKEN s3cret", "STALE superseded 2"),
        ("b 3 m3 p3 TOKEN s3cret", "STALE unknown"),
        ("nobody 1 m3 p3", "STALE unknown"),
        ("b 2 m3 p3", "DENIED token"),
        ("b 2 m3 p3 TOKEN guess", "DENIED token"),
    ):
        with client.nothing_changes():
            assert client.refusal("LEASE.SEND r " + command) == refusal
    assert client("LEASE.SEND r b 2 m3 p3 TOKEN s3cret")["seq"] == 3
    ended, renewed = client.held(30000, "LEASE.SEND r b 2 m4 p4 TOKEN s3cret", "LEASE.SEND r b 2 m3 p3 TOKEN s3cret")
    assert (ended.head, renewed.head) == ("STALE expired", "STALE expired")
    client.advance(0)
    assert seqs(client) == [1, 2, 3]


@pytest.mark.parametrize(
    "command",
    ("SEND r a 1 m1 x", "POST r u1 m1 " + "x" * 65537, "POST r u1 " + "m" * 256 + " x", "POST r u1  x", "POST r  m1 x"),
    ids=("session", "payload", "long-id", "no-id", "no-user"),
)
def test_log_08_no_room_for_a_refused_message(client, command):
    """LOG-08 A refused SEND leaves nothing: not a room either."""
    with client.nothing_changes():
        client.refusal("LEASE." + command)
    assert client.raw("DBSIZE") == 0
    client.raw("CONFIG SET lease.default-access granted")
    with client.nothing_changes():
        assert client.refusal("LEASE.POST r u1 m1 x") == "DENIED nogrant"
    assert client.raw("DBSIZE") == 0


# -------------------------------------------------------------------- the same id again


def test_log_09_fifty_retries_at_once(client):
    """LOG-09 Fifty retries at the same instant."""
    client("LEASE.OPEN r u1 SESSION a")
    barrier = threading.Barrier(50)

    def retry(number):
        caller = client.another()
        commands = {
            0: ["LEASE.SEND r a 1 m1 x"],
            1: [f"LEASE.OPEN r u1 DEVICE d{number} SESSION s{number}", f"LEASE.SEND r s{number} 1 m1 x"],  # it has reconnected
            2: ["LEASE.POST r u1 m1 x"],
        }[number % 3]
        barrier.wait()
        return caller.pipeline(*commands)[-1]

    with ThreadPoolExecutor(50) as pool:
        replies = list(pool.map(retry, range(50)))
    assert sorted(reply["status"] for reply in replies) == [b"accepted"] + [b"duplicate"] * 49
    assert {reply["seq"] for reply in replies} == {1}
    assert seqs(client) == [1]
    info = client.server.lease_info()
    assert (info["messages_accepted"], info["messages_duplicate"]) == (1, 49)


@pytest.mark.server(clock=None, redis={"appendonly": "yes", "appendfsync": "always"})
@pytest.mark.ways("plain-resp3", "multi-resp2", "eval-resp3")
def test_log_09_the_server_dies_in_between(server, way):
    """LOG-09 Fifty retries at the same instant (invariant 8): a crash leaves message and record, or none of both; all is sent again."""
    dice, cut = random.Random(str(way)), 0
    for number in range(10):
        burst = [(f"u{n % 7}", f"m{number}-{n}") for n in range(1000)]
        sender = Client(server, way).connection
        sender.send(part for user, id in burst for part in way.wrap(["LEASE.POST", "r", user, id, "x"]))
        time.sleep(dice.random() / 150)  # the moment of the crash is the chance this test takes, nothing is awaited
        server.process.kill()
        server.process.wait()
        server.close_connections()
        server.start()
        client = Client(server, way)
        kept = client.messages("r")
        assert [seq for seq, _ in kept] == list(range(1, len(kept) + 1))
        cut += 1000 * number < len(kept) < 1000 * (number + 1)
        seqs = {(found["user"].decode(), found["id"].decode()): seq for seq, found in kept}
        replies = client.pipeline(*(["LEASE.POST", "r", user, id, "x"] for user, id in burst))
        for (user, id), told in zip(burst, replies):
            if isinstance(told, Refused):
                told = client.sent("LEASE.POST", "r", user, id, "x")
            assert (told["status"], told["seq"]) == ((b"duplicate", seqs[user, id]) if (user, id) in seqs else (b"accepted", told["seq"]))
        assert len(client.messages("r")) == 1000 * (number + 1)
    assert cut, "no crash came in between"


def test_log_10_same_id_other_content_or_sender(client):
    """LOG-10 Same id, other content or sender."""
    for user, device, session in (("u1", "d1", "a"), ("u1", "d2", "c"), ("u2", "d1", "b")):
        client("LEASE.OPEN", "r", user, "DEVICE", device, "SESSION", session)
    first = client("LEASE.SEND r a 1 m1 A")
    assert (first["status"], first["seq"], first["at"]) == (b"accepted", 1, 0)
    client.advance(1000)
    with client.nothing_changes():
        assert client.refusal("LEASE.SEND r a 1 m1 B") == "CONFLICT message"
        assert client.refusal("LEASE.SEND r c 1 m1 B") == "CONFLICT message"
        assert client.refusal("LEASE.POST r u1 m1 B") == "CONFLICT message"
        for command in ("LEASE.SEND r a 1 m1 A", "LEASE.SEND r c 1 m1 A", "LEASE.POST r u1 m1 A"):
            assert client(command) == first | {"status": b"duplicate"}
    other = client("LEASE.SEND r b 1 m1 C")
    assert (other["status"], other["seq"], other["at"]) == (b"accepted", 2, 1000)
    assert client("LEASE.POST r u3 m1 A")["seq"] == 3
    assert client("LEASE.POST r u1 M1 A")["seq"] == 4
    gen = first["gen"]
    sent = {"user": b"u1", "device": b"d1", "session": b"a", "epoch": 1, "gen": gen}
    assert (
        client.messages("r")
        == client("LEASE.REPLAY r b 1 * 0")["entries"]
        == [
            (1, sent | {"id": b"m1", "at": 0, "payload": b"A"}),
            (2, sent | {"id": b"m1", "user": b"u2", "session": b"b", "at": 1000, "payload": b"C"}),
            (3, {"id": b"m1", "user": b"u3", "at": 1000, "gen": gen, "payload": b"A"}),
            (4, {"id": b"M1", "user": b"u1", "at": 1000, "gen": gen, "payload": b"A"}),
        ]
    )


def test_log_10_pairs_that_look_alike(client):
    """LOG-10 Same id, other content or sender: user and id are compared as two, payloads whole."""
    pairs = (("a", "bc"), ("ab", "c"), ("a:b", "c"), ("a", "b:c"), ("a\0", "b"), ("a", "\0b"))
    for seq, (user, id) in enumerate(pairs, 1):
        assert client("LEASE.POST", "r", user, id, "x" * 1000)["seq"] == seq
    for seq, (user, id) in enumerate(pairs, 1):
        assert client("LEASE.POST", "r", user, id, "x" * 1000)["seq"] == seq
        for payload in ("x" * 999, "x" * 999 + "y", "y" + "x" * 999, ""):
            assert client.refusal("LEASE.POST", "r", user, id, payload) == "CONFLICT message"
    assert client("LEASE.POST", "r", "u", "empty", "")["seq"] == 7
    assert client("LEASE.POST", "r", "u", "empty", "")["status"] == b"duplicate"
