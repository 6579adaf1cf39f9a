"""BYTES: ids and blobs are opaque bytes, compared exactly."""

import base64
import json

import pytest

from harness import Client, Way
from harness.events import stream

ODD = b"\xff\xfe\x00\x80\xc3\x28"
SIZES = (1, 255, 256, 65535, 65536, 1 << 20)


def sent(client, room=ODD):
    """The room's events by what they tell of its ids."""
    return [(event["type"], event["room"], event["session"], event["user"], event["device"]) for event in client.events(room)]


def test_bytes_01_every_command_takes_any_byte(client):
    """BYTES-01 Ids that are not UTF-8: an exact round trip through every command."""
    opened = client("LEASE.OPEN", ODD, ODD, "DEVICE", ODD, "SESSION", ODD, "META", ODD, "TOKEN", ODD)
    assert (opened["session"], opened["epoch"]) == (ODD, 1)
    assert client("LEASE.RENEW", ODD, ODD, 1, 1, "META", ODD + ODD, "TOKEN", ODD)[0] == b"renewed"
    assert client.refusal("LEASE.RENEW", ODD, ODD, 1, 2, "TOKEN", ODD[:2]) == "DENIED token"
    assert client("LEASE.MRENEW", ODD, "TOKENS", ODD, 1, 2, ODD) == [[b"renewed", 30000]]
    lease = client("LEASE.GET", ODD, ODD)
    assert [lease[name] for name in ("session", "user", "device", "meta", "seq")] == [ODD, ODD, ODD, ODD + ODD, 2]
    assert client("LEASE.ROSTER", ODD, "USER", ODD)["leases"] == [lease]
    assert client("LEASE.ROSTER", ODD, "USER", ODD[:2])["leases"] == []
    assert client("LEASE.GET", ODD, ODD[:2]) is None  # nothing is cut at its NUL
    assert client("LEASE.COUNT", ODD) == [1, 1]
    assert client("LEASE.OPEN", ODD, ODD, "DEVICE", ODD, "SESSION", ODD + b"2")["replaced"] == ODD
    assert client("LEASE.LEAVE", ODD, ODD + b"2", 2) == b"left"
    assert client("LEASE.OPEN", ODD, ODD, "DEVICE", ODD, "SESSION", ODD + b"3")["epoch"] == 3
    assert client("LEASE.KICK", ODD, "USER", ODD, "DEVICE", ODD) == 1
    client("LEASE.OPEN", ODD, ODD, "DEVICE", ODD, "SESSION", ODD + b"4")
    client.advance(30000)
    assert client("LEASE.REAP", ODD) == 0
    assert client("LEASE.GET", ODD, ODD + b"4")["reason"] == b"expired"
    assert sent(client) == [(kind, ODD, ODD + tail, ODD, ODD) for kind, tail in (
        ("opened", b""), ("updated", b""), ("removed", b""), ("opened", b"2"), ("removed", b"2"), ("opened", b"3"), ("removed", b"3"),
        ("opened", b"4"), ("removed", b"4"))]
    assert client.events(ODD)[1]["meta"] == ODD + ODD
    assert ODD[:2] not in (client.server.path / "server.log").read_bytes()


def test_bytes_01_inspect_tells_what_is_no_text(client):
    """BYTES-01 Ids that are not UTF-8: INSPECT shows them as base64, text as text."""
    client("LEASE.OPEN", ODD, ODD, "DEVICE", "d\u00e9", "SESSION", ODD, "META", b'"\\\n\x00\x1f')
    shown = json.loads(client("LEASE.INSPECT", ODD))
    wrapped = {"base64": base64.b64encode(ODD).decode()}
    lease, = shown["leases"]
    assert (shown["schema"], shown["room"]) == ("lease/1", wrapped)
    assert [lease[name] for name in ("session", "user", "device", "meta")] == [wrapped, wrapped, "d\u00e9", '"\\\n\x00\x1f']
    assert json.loads(client("LEASE.INSPECT", ODD, "SESSION", ODD))["lease"] == lease


def test_bytes_01_dump_and_full_sync(client):
    """BYTES-01 Ids that are not UTF-8: DUMP, RESTORE and a full sync bring every byte; RDB and AOF are in the check of every test."""
    client("LEASE.OPEN", ODD, ODD, "DEVICE", ODD, "SESSION", ODD, "META", ODD)
    twin = ODD + b"twin"
    client.server.aside.add((0, twin))
    assert client("RESTORE", twin, 0, client("DUMP", ODD)) == b"OK"
    lease = client("LEASE.GET", ODD, ODD)
    assert client("LEASE.GET", twin, ODD) == lease
    replica = Client(client.server.replica(), Way("plain", 3))
    for room in (ODD, twin):
        assert replica("LEASE.GET", room, ODD) == lease
    client("LEASE.RENEW", ODD, ODD, 1, 1, "META", ODD + ODD)  # and as an effect
    client.server.replicas[0].in_step()
    assert replica("LEASE.GET", ODD, ODD)["meta"] == ODD + ODD


def test_bytes_01_every_single_byte(client):
    """BYTES-01 Ids that are not UTF-8: each of the 256 bytes is an id, a device and a meta of its own."""
    for number in range(256):
        byte = bytes([number])
        assert client("LEASE.OPEN", "r", byte, "DEVICE", byte, "SESSION", byte, "META", byte)["epoch"] == 1
    for number in range(256):
        byte = bytes([number])
        lease = client("LEASE.GET", "r", byte)
        assert [lease[name] for name in ("session", "user", "device", "meta")] == [byte] * 4
    assert client("LEASE.COUNT r") == [256, 256]


def test_bytes_01_empty_ids(client):
    """BYTES-01 Ids that are not UTF-8: empty ids and tokens are refused, empty metas are fine."""
    client("LEASE.OPEN r u1 SESSION a META x")
    with client.nothing_changes():
        for command in (["OPEN", "", "u"], ["OPEN", "r", ""], ["OPEN", "r", "u", "DEVICE", ""], ["OPEN", "r", "u", "SESSION", ""],
                        ["OPEN", "r", "u", "TOKEN", ""], ["RENEW", "r", "", 1, 1], ["RENEW", "", "a", 1, 1], ["MRENEW", "r", "", 1, 1],
                        ["LEAVE", "r", "", 1], ["KICK", "r", "USER", ""], ["KICK", "r", "DEVICE", ""], ["GET", "r", ""],
                        ["ROSTER", "r", "USER", ""], ["INSPECT", "r", "SESSION", ""], ["COUNT", ""], ["REAP", ""]):
            assert client.refusal("LEASE." + command[0], *command[1:]) == "ERR", command
    assert client("LEASE.RENEW", "r", "a", 1, 1, "META", "")[0] == b"renewed"
    client("LEASE.OPEN", "r", "u2", "SESSION", "b", "META", "")
    assert [client("LEASE.GET r " + session)["meta"] for session in "ab"] == [b"", b""]


SEPARATORS = (b":", b"\x00", b"/", b"|", b",", b"")


@pytest.mark.parametrize("by", SEPARATORS, ids=lambda by: by.hex() or "none")
@pytest.mark.ways("plain-resp3", "eval-resp2")
def test_bytes_02_holders_with_a_bare_separator(client, by):
    """BYTES-02 Composite keys with a bare separator: (a, b:c) and (a:b, c) are two holders."""
    holders = {b"s1": (b"a", b"b" + by + b"c"), b"s2": (b"a" + by + b"b", b"c")}
    for session, (user, device) in holders.items():
        opened = client("LEASE.OPEN", "r", user, "DEVICE", device, "SESSION", session)
        assert (opened["epoch"], opened["replaced"], opened["user_leases"]) == (1, None, 1)
    assert client("LEASE.COUNT r") == [2, 2]
    assert client("LEASE.LEAVE r s1 1") == b"left"
    assert client("LEASE.GET r s2")["state"] == b"active"
    user, device = holders[b"s1"]
    assert client("LEASE.OPEN", "r", user, "DEVICE", device, "SESSION", "s3")["epoch"] == 2
    assert client("LEASE.KICK", "r", "USER", user, "DEVICE", device) == 1
    lease = client("LEASE.GET r s2")
    assert (lease["state"], lease["epoch"], (lease["user"], lease["device"])) == (b"active", 1, holders[b"s2"])
    assert client("LEASE.COUNT r") == [1, 1]


@pytest.mark.parametrize("by", SEPARATORS, ids=lambda by: by.hex() or "none")
@pytest.mark.ways("plain-resp3", "eval-resp2")
def test_bytes_02_rooms_with_a_bare_separator(client, by):
    """BYTES-02 Composite keys with a bare separator: (x, y:z) and (x:y, z) are two sessions, with a stream each."""
    places = ((b"x", b"y" + by + b"z"), (b"x" + by + b"y", b"z"))
    for room, session in places:
        client("LEASE.OPEN", room, "u", "SESSION", session, "TTL", 5000)
    (first, left), (second, stays) = places
    assert client("LEASE.LEAVE", first, left, 1) == b"left"
    assert client("LEASE.GET", first, left)["reason"] == b"left"
    assert client("LEASE.GET", second, stays)["state"] == b"active"
    assert (client("LEASE.GET", first, stays), client("LEASE.GET", second, left)) == (None, None)
    client.advance(5000)
    assert client.history(first) == [("opened", left, 1), ("removed", left, 1, "left")]
    assert client.history(second) == [("opened", stays, 1), ("removed", stays, 1, "expired")]


def holder(kind, id):
    """OPEN with an id of this kind; the session it has."""
    command = ["LEASE.OPEN", "r", id if kind == "user" else "u", "DEVICE", id if kind == "device" else "d", "TTL", 2000,
               "SESSION", id if kind == "session" else "s"]
    return command, command[-1]


@pytest.mark.parametrize("kind", ("user", "device", "session"))
@pytest.mark.ways("plain-resp2", "multi-resp3", "eval-resp3")
def test_bytes_03_long_ids(client, kind):
    """BYTES-03 Very long ids, huge metadata: up to max-id-bytes all works, above it LIMIT id and no effect."""
    for limit in (255, 65535, 1 << 20):
        client.raw("CONFIG", "SET", "lease.max-id-bytes", limit)
        for size in SIZES:
            id = b"i" * size
            command, session = holder(kind, id)
            if size > limit:
                with client.nothing_changes():
                    assert client.refusal(*command) == "LIMIT id"
                continue
            epoch = client(*command)["epoch"]
            assert client("LEASE.RENEW", "r", session, epoch, 1)[0] == b"renewed"
            assert client("LEASE.GET", "r", session)[kind] == id
            client.advance(2000)
            removed, = client.events("r", newest=1)
            assert (removed["type"], removed["reason"], removed[kind]) == ("removed", "expired", id)
            assert client("LEASE.ROSTER r ENDED COUNT 10000")["leases"][-1][kind] == id
            client.advance(600000)  # its tombstone goes, so that the session may come again


def test_bytes_03_an_id_over_the_limit_is_unknown(client):
    """BYTES-03 Very long ids, huge metadata: where nothing would be stored, a longer id is simply unknown."""
    client("LEASE.OPEN r u1 SESSION a")
    long = "i" * 256
    with client.nothing_changes():
        assert client.refusal("LEASE.OPEN", long, "u1") == "LIMIT id"
        assert client.refusal("LEASE.RENEW", "r", long, 1, 1) == "STALE unknown"
        assert client("LEASE.MRENEW", "r", long, 1, 1) == [[b"stale", b"unknown"]]
        assert client("LEASE.LEAVE", "r", long, 1) == b"gone"
        assert client("LEASE.GET", "r", long) is None
        assert client("LEASE.INSPECT", "r", "SESSION", long) is None
        assert client("LEASE.ROSTER", "r", "USER", long)["leases"] == []
        assert client("LEASE.KICK", "r", "USER", long) == 0
        assert client("LEASE.KICK", "r", "DEVICE", long) == 0


def test_bytes_03_metas(client):
    """BYTES-03 Very long ids, huge metadata: META of 0, 4096 and 4097 bytes, and with the limit raised."""
    client("LEASE.OPEN r u1 SESSION a")
    seq = 0
    for limit, sizes in ((4096, (0, 1, 4096)), (1 << 20, (4097, 1 << 20))):
        client.raw("CONFIG", "SET", "lease.max-meta-bytes", limit)
        for size in sizes:
            seq += 1
            assert client("LEASE.RENEW", "r", "a", 1, seq, "META", b"m" * size)[0] == b"renewed"
            assert client("LEASE.GET r a")["meta"] == b"m" * size
            assert client.events("r", newest=1)[0]["meta"] == b"m" * size
            client("LEASE.OPEN", "r", f"other{size}", "META", b"m" * size)
        with client.nothing_changes():
            assert client.refusal("LEASE.OPEN", "r", "u2", "META", b"m" * (limit + 1)) == "LIMIT meta"
            assert client.refusal("LEASE.RENEW", "r", "a", 1, seq + 1, "META", b"m" * (limit + 1)) == "LIMIT meta"
    client("LEASE.RENEW", "r", "a", 1, seq + 1)  # the refused heartbeats used no seq
    assert client("LEASE.GET r a")["seq"] == seq + 1


@pytest.mark.ways("plain-resp3", "eval-resp3")
def test_bytes_03_refusals_leave_memory_flat(client):
    """BYTES-03 Very long ids, huge metadata: a thousand refused tries cost nothing."""
    client("LEASE.OPEN r u1 SESSION a")
    long = b"i" * 65536
    tries = [["LEASE.OPEN", "r", long], ["LEASE.OPEN", "r", "u", "DEVICE", long], ["LEASE.OPEN", "r", "u", "SESSION", long],
             ["LEASE.OPEN", "r", "u", "META", long], ["LEASE.RENEW", "r", "a", 1, 1, "META", long]]

    def refused(rounds):
        other = client.another()
        for _ in range(rounds):
            assert {reply.code for reply in other.pipeline(*tries)} == {"LIMIT"}
        other.connection.close()
        return client.server.info("memory")["used_memory"]
    before = refused(5)
    assert refused(200) - before < 65536


INJECTED = "canary\r\n+OK\r\n:1\r\n"


def test_bytes_04_line_breaks_in_replies(client):
    """BYTES-04 Line breaks in replies: one reply a command, and no error repeats an argument."""
    client("LEASE.OPEN r u1 SESSION a")
    client("SET", INJECTED + "text", "x")
    failing = [
        ["OPEN", "r", "u", INJECTED], ["OPEN", "r", INJECTED, "SESSION", "a"], ["OPEN", "r", INJECTED, "TTL", INJECTED],
        ["OPEN", INJECTED + ":events", "u"], ["OPEN", INJECTED + "text", "u"], ["OPEN", "r", "u", "TTL", "1000", INJECTED],
        ["OPEN", "r", "u1", "DEVICE", INJECTED, "SESSION", "a"], ["OPEN", "r", "u", "META", INJECTED * 4096],
        ["RENEW", "r", INJECTED, 1, 1], ["RENEW", "r", "a", INJECTED, 1], ["RENEW", "r", "a", 1, INJECTED],
        ["RENEW", "r", "a", 1, 1, "STATE", INJECTED], ["RENEW", INJECTED, "a", 1, 1], ["MRENEW", "r", "a", 1, INJECTED],
        ["LEAVE", "r", "a", INJECTED], ["LEAVE", "r", "a", 1, "LINGER", INJECTED], ["KICK", "r", INJECTED, "u1"],
        ["REAP", "r", "COUNT", INJECTED], ["GET", INJECTED + ":log", "a"], ["GET", INJECTED + "text", "a"], ["ROSTER", "r", INJECTED],
        ["ROSTER", "r", "CURSOR", INJECTED], ["COUNT", INJECTED + "text"], ["INSPECT", "r", INJECTED], ["POLICY", INJECTED + "text"],
        ["SETPOLICY", "r", INJECTED, 1], ["SETPOLICY", "r", "ttl-ms", INJECTED], ["CLOCK", INJECTED], ["CLOCK", "SET", INJECTED]]
    with client.nothing_changes():
        for command in failing:
            refused, echo = client.pipeline(["LEASE." + command[0], *command[1:]], "ECHO behind")
            assert echo == b"behind", command
            assert "canary" not in refused.text and "\n" not in refused.text, command
    assert client.events(INJECTED) == []
    assert client("LEASE.OPEN", INJECTED, INJECTED, "SESSION", INJECTED)["session"] == INJECTED.encode()  # but as an id it is as good as any
    assert client("EXISTS", stream(INJECTED)) == 1
