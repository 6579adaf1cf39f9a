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
    assert sent(client) == [
        (kind, ODD, ODD + tail, ODD, ODD)
        for kind, tail in (
            ("opened", b""),
            ("updated", b""),
            ("removed", b""),
            ("opened", b"2"),
            ("removed", b"2"),
            ("opened", b"3"),
            ("removed", b"3"),
            ("opened", b"4"),
            ("removed", b"4"),
        )
    ]
    assert client.events(ODD)[1]["meta"] == ODD + ODD
    assert ODD[:2] not in (client.server.path / "server.log").read_bytes()


def test_bytes_01_messages_cursors_and_holds(client):
    """BYTES-01 Ids that are not UTF-8: message ids, payloads, names of holds, devices of MARK, users of POST and GRANT."""
    gen = client("LEASE.OPEN", ODD, ODD, "DEVICE", ODD, "SESSION", ODD, "TOKEN", ODD)["gen"]
    client("LEASE.SETPOLICY", ODD, "announce-messages", "yes")
    assert client("LEASE.SEND", ODD, ODD, 1, ODD, ODD, "TOKEN", ODD)["status"] == b"accepted"
    assert client("LEASE.SEND", ODD, ODD, 1, ODD, ODD, "TOKEN", ODD)["status"] == b"duplicate"
    assert client.refusal("LEASE.SEND", ODD, ODD, 1, ODD, ODD[:2], "TOKEN", ODD) == "CONFLICT message"
    assert client("LEASE.SEND", ODD, ODD, 1, ODD[:2], "", "TOKEN", ODD)["seq"] == 2  # an id that ends at the NUL is another, an empty payload is fine
    assert client("LEASE.POST", ODD, ODD, ODD + b"2", ODD)["seq"] == 3
    sent = {"device": ODD, "session": ODD, "epoch": 1, "user": ODD, "at": 0, "gen": gen}
    posted = {"user": ODD, "at": 0, "gen": gen, "id": ODD + b"2", "payload": ODD}
    log = [(1, sent | {"id": ODD, "payload": ODD}), (2, sent | {"id": ODD[:2], "payload": b""}), (3, posted)]
    assert client("LEASE.REPLAY", ODD, ODD, 1, gen, 0, "TOKEN", ODD)["entries"] == log
    assert client("LEASE.SNAPSHOT", ODD, ODD, 1, "TOKEN", ODD)["entries"] == log
    assert client.messages(ODD) == log
    assert [(event["user"], event["seq"]) for event in client.events(ODD)[1:]] == [(ODD, 1), (ODD, 2), (ODD, 3)]

    assert client("LEASE.ACK", ODD, ODD, 1, 2, "TOKEN", ODD) == 2
    assert client("LEASE.MARK", ODD, ODD, ODD, "QUEUED", 3) == 3
    assert client.refusal("LEASE.MARK", ODD, ODD, ODD[:2], "QUEUED", 3) == "ERR"
    client("LEASE.GRANT", ODD, ODD + b"3", "READ")
    assert client("LEASE.MARK", ODD, ODD + b"3", ODD[:2], "WRITTEN", 1) == 1
    assert sorted((one["user"], one["device"], one["queued"], one["written"], one["acked"]) for one in client("LEASE.LAG", ODD)["holders"]) == [
        (ODD, ODD, 3, 0, 2),
        (ODD + b"3", ODD[:2], 0, 1, 0),
    ]
    assert [client("LEASE.HOLD", ODD, name) for name in (ODD, ODD[:2], ODD)] == [1, 1, 0]
    assert sorted(client("LEASE.HOLDS", ODD)) == [ODD[:2], ODD]
    assert [client("LEASE.UNHOLD", ODD, name) for name in (ODD[:2], ODD[:2])] == [1, 0]
    assert client("LEASE.HOLDS", ODD) == [ODD]
    assert client("LEASE.STATS", ODD)["log_seq"] == 3
    assert ODD[:2] not in (client.server.path / "server.log").read_bytes()


def test_bytes_01_inspect_tells_what_is_no_text(client):
    """BYTES-01 Ids that are not UTF-8: INSPECT shows them as base64, text as text."""
    client("LEASE.OPEN", ODD, ODD, "DEVICE", "d\u00e9", "SESSION", ODD, "META", b'"\\\n\x00\x1f')
    shown = json.loads(client("LEASE.INSPECT", ODD))
    wrapped = {"base64": base64.b64encode(ODD).decode()}
    (lease,) = shown["leases"]
    assert (shown["schema"], shown["room"]) == ("lease/1", wrapped)
    assert [lease[name] for name in ("session", "user", "device", "meta")] == [wrapped, wrapped, "d\u00e9", '"\\\n\x00\x1f']
    assert json.loads(client("LEASE.INSPECT", ODD, "SESSION", ODD))["lease"] == lease


def test_bytes_01_dump_and_full_sync(client):
    """BYTES-01 Ids that are not UTF-8: DUMP, RESTORE and a full sync bring every byte; RDB and AOF are in the check of every test."""
    client("LEASE.OPEN", ODD, ODD, "DEVICE", ODD, "SESSION", ODD, "META", ODD)
    client("LEASE.SEND", ODD, ODD, 1, ODD, ODD)
    client("LEASE.ACK", ODD, ODD, 1, 1)
    client("LEASE.HOLD", ODD, ODD)
    twin = ODD + b"twin"
    client.server.aside.add((0, twin))
    assert client("RESTORE", twin, 0, client("DUMP", ODD)) == b"OK"
    lease = client("LEASE.GET", ODD, ODD)
    assert client("LEASE.GET", twin, ODD) == lease
    replica = Client(client.server.replica(), Way("plain", 3))
    for room in (ODD, twin):
        assert replica("LEASE.GET", room, ODD) == lease
        assert replica("LEASE.HOLDS", room) == [ODD]
        (holder,) = replica("LEASE.LAG", room)["holders"]
        assert (holder["user"], holder["device"], holder["acked"]) == (ODD, ODD, 1)
        assert client("LEASE.SEND", room, ODD, 1, ODD, ODD)["status"] == b"duplicate"
    assert replica.messages(ODD) == client.messages(ODD)
    client("LEASE.RENEW", ODD, ODD, 1, 1, "META", ODD + ODD)  # and as an effect
    client.server.replicas[0].in_step()
    assert replica("LEASE.GET", ODD, ODD)["meta"] == ODD + ODD


def test_bytes_01_every_single_byte(client):
    """BYTES-01 Ids that are not UTF-8: each of the 256 bytes is an id, a device, a meta, a message id and a payload of its own."""
    for number in range(256):
        byte = bytes([number])
        assert client("LEASE.OPEN", "r", byte, "DEVICE", byte, "SESSION", byte, "META", byte)["epoch"] == 1
        assert client("LEASE.SEND", "r", byte, 1, byte, byte)["seq"] == number + 1
    for number in range(256):
        byte = bytes([number])
        lease = client("LEASE.GET", "r", byte)
        assert [lease[name] for name in ("session", "user", "device", "meta")] == [byte] * 4
    assert client("LEASE.COUNT r") == [256, 256]
    assert [(message["id"], message["payload"]) for _, message in client.messages("r")] == [(bytes([number]),) * 2 for number in range(256)]


def test_bytes_01_empty_ids(client):
    """BYTES-01 Ids that are not UTF-8: empty ids and tokens are refused, empty metas are fine."""
    client("LEASE.OPEN r u1 SESSION a META x")
    with client.nothing_changes():
        for command in (
            ["OPEN", "", "u"],
            ["OPEN", "r", ""],
            ["OPEN", "r", "u", "DEVICE", ""],
            ["OPEN", "r", "u", "SESSION", ""],
            ["OPEN", "r", "u", "TOKEN", ""],
            ["RENEW", "r", "", 1, 1],
            ["RENEW", "", "a", 1, 1],
            ["MRENEW", "r", "", 1, 1],
            ["LEAVE", "r", "", 1],
            ["KICK", "r", "USER", ""],
            ["KICK", "r", "DEVICE", ""],
            ["GET", "r", ""],
            ["ROSTER", "r", "USER", ""],
            ["INSPECT", "r", "SESSION", ""],
            ["COUNT", ""],
            ["REAP", ""],
            ["SEND", "r", "", 1, "m", "p"],
            ["SEND", "r", "a", 1, "", "p"],
            ["POST", "r", "", "m", "p"],
            ["POST", "r", "u", "", "p"],
            ["REPLAY", "r", "", 1, "*", 0],
            ["SNAPSHOT", "r", "", 1],
            ["ACK", "r", "", 1, 0],
            ["MARK", "r", "", "d", "QUEUED", 0],
            ["MARK", "r", "u1", "", "QUEUED", 0],
            ["HOLD", "r", ""],
            ["UNHOLD", "r", ""],
            ["GRANT", "r", "", "READ"],
            ["REVOKE", "r", ""],
            ["REVOKE", "r", "u1", "DEVICE", ""],
            ["GRANTS", "r", "USER", ""],
            ["SEND", "", "a", 1, "m", "p"],
            ["POST", "", "u", "m", "p"],
            ["HOLDS", ""],
            ["TRIM", ""],
            ["STATS", ""],
            ["LAG", ""],
        ):
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
def test_bytes_02_what_goes_by_two_ids(client, by):
    """BYTES-02 Composite keys with a bare separator: dedupe records by user and message id, cursors and marks by user and device, streams by room."""
    pairs = ((b"a", b"b" + by + b"c"), (b"a" + by + b"b", b"c"))
    for seq, (user, second) in enumerate(pairs, 1):
        client("LEASE.OPEN", "r", user, "DEVICE", second, "SESSION", b"of " + user)
        sent = client("LEASE.SEND", "r", b"of " + user, 1, second, b"%d" % seq)  # payloads of their own: a shared record would be a conflict
        assert (sent["status"], sent["seq"]) == (b"accepted", seq)
        assert client("LEASE.MARK", "r", user, second, "WRITTEN", seq) == seq
    assert sorted((one["user"], one["device"], one["written"]) for one in client("LEASE.LAG r")["holders"]) == sorted(
        (user, device, seq) for seq, (user, device) in enumerate(pairs, 1)
    )
    (user, device), (other, _) = pairs
    assert client("LEASE.REVOKE", "r", user, "DEVICE", device) == [b"ok", 1]
    assert client.refusal("LEASE.ACK", "r", b"of " + user, 1, 1) == "DENIED revoked"
    assert client("LEASE.ACK", "r", b"of " + other, 1, 1) == 1
    assert client("LEASE.REVOKE", "r", user) == [b"ok", 0]
    assert client("LEASE.SEND", "r", b"of " + other, 1, "more", "x")["seq"] == 3

    for room, name in ((b"x", b"y" + by + b"z"), (b"x" + by + b"y", b"z")):
        assert client("LEASE.POST", room, "u", name, "x")["seq"] == 1
        client("LEASE.HOLD", room, name)
        assert [(seq, message["id"]) for seq, message in client.messages(room)] == [(1, name)]
        assert client("LEASE.HOLDS", room) == [name]


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
    command = [
        "LEASE.OPEN",
        "r",
        id if kind == "user" else "u",
        "DEVICE",
        id if kind == "device" else "d",
        "TTL",
        2000,
        "SESSION",
        id if kind == "session" else "s",
    ]
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
            (removed,) = client.events("r", newest=1)
            assert (removed["type"], removed["reason"], removed[kind]) == ("removed", "expired", id)
            assert client("LEASE.ROSTER r ENDED COUNT 10000")["leases"][-1][kind] == id
            client.advance(600000)  # its tombstone goes, so that the session may come again


STORED = ("SEND r s 1 # x", "POST r # m x", "POST r u # x", "GRANT r # READ", "REVOKE r #", "REVOKE r u DEVICE #", "MARK r u # QUEUED 1", "HOLD r #")


def stored(client):
    """All ids that reads show beside those of leases."""
    found = {id for _, message in client.messages("r") for id in (message["id"], message["user"])} | set(client("LEASE.HOLDS r"))
    found |= {id for holder in client("LEASE.LAG r")["holders"] for id in (holder["user"], holder["device"])}
    return found | {id for one in client("LEASE.GRANTS r")["grants"] for id in (one["user"], *one["devices"])}


@pytest.mark.parametrize("command", STORED)
@pytest.mark.ways("plain-resp2", "multi-resp3", "eval-resp3")
def test_bytes_03_long_ids_of_all_kinds(client, command):
    """BYTES-03 Very long ids, huge metadata: the same for ids of messages, users and devices of grants and cursors, names of holds."""
    client("LEASE.OPEN r s SESSION s TTL 3600000")
    client("LEASE.SEND r s 1 m0 x")
    client("LEASE.GRANT r u READ")
    for limit in (255, 65535, 1 << 20):
        client.raw("CONFIG", "SET", "lease.max-id-bytes", limit)
        for size in SIZES:
            id = b"i" * size
            words = [id if word == "#" else word for word in f"LEASE.{command}".split()]
            if size > limit:
                with client.nothing_changes():
                    assert client.refusal(*words) == "LIMIT id"
            else:
                client(*words)
                assert id in stored(client)


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
        assert client.refusal("LEASE.SEND", "r", long, 1, "m", "x") == client.refusal("LEASE.ACK", "r", long, 1, 0) == "STALE unknown"
        assert client.refusal("LEASE.REPLAY", "r", long, 1, "*", 0) == client.refusal("LEASE.SNAPSHOT", "r", long, 1) == "STALE unknown"
        assert client("LEASE.GRANTS", "r", "USER", long)["grants"] == []
        assert client("LEASE.UNHOLD", "r", long) == 0


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


@pytest.mark.parametrize("command", (("SEND", "r", "a", 1), ("POST", "r", "u1")), ids=("SEND", "POST"))
@pytest.mark.ways("plain-resp2", "multi-resp3", "eval-resp3")
def test_bytes_03_payloads(client, command):
    """BYTES-03 Very long ids, huge metadata: payloads of 0, 65536, 65537 bytes and 64 MiB, and with the limit raised."""
    client("LEASE.OPEN r u1 SESSION a")
    name, *words = command
    seq = 0
    for limit, sizes in ((65536, (0, 1, 65536)), (1 << 20, (65537, 1 << 20))):
        client.raw("CONFIG", "SET", "lease.max-payload-bytes", limit)
        for size in sizes:
            seq += 1
            assert client("LEASE." + name, *words, f"m{seq}", b"p" * size)["seq"] == seq
            ((_, entry),) = client("LEASE.REPLAY", "r", "a", 1, "*", seq - 1)["entries"]
            assert entry["payload"] == b"p" * size
            assert client("LEASE." + name, *words, f"m{seq}", b"p" * size)["status"] == b"duplicate"
        with client.nothing_changes():
            for size in (limit + 1, 1 << 26):
                assert client.refusal("LEASE." + name, *words, "more", b"p" * size) == "LIMIT payload"
    assert client("LEASE." + name, *words, "more", "x")["seq"] == seq + 1  # the refused ones left neither a record nor a number


@pytest.mark.ways("plain-resp3", "eval-resp3")
def test_bytes_03_refusals_leave_memory_flat(client):
    """BYTES-03 Very long ids, huge metadata: a thousand refused tries cost nothing."""
    client("LEASE.OPEN r u1 SESSION a")
    long = b"i" * 65536
    tries = [
        ["LEASE.OPEN", "r", long],
        ["LEASE.OPEN", "r", "u", "DEVICE", long],
        ["LEASE.OPEN", "r", "u", "SESSION", long],
        ["LEASE.OPEN", "r", "u", "META", long],
        ["LEASE.RENEW", "r", "a", 1, 1, "META", long],
        ["LEASE.SEND", "r", "a", 1, long, "x"],
        ["LEASE.SEND", "r", "a", 1, "m", long + b"x"],
        ["LEASE.POST", "r", long, "m", "x"],
        ["LEASE.POST", "r", "u1", "m", long + b"x"],
        ["LEASE.HOLD", "r", long],
        ["LEASE.MARK", "r", "u1", long, "QUEUED", 0],
        ["LEASE.GRANT", "r", long, "READ"],
    ]

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
        ["OPEN", "r", "u", INJECTED],
        ["OPEN", "r", INJECTED, "SESSION", "a"],
        ["OPEN", "r", INJECTED, "TTL", INJECTED],
        ["OPEN", INJECTED + ":events", "u"],
        ["OPEN", INJECTED + "text", "u"],
        ["OPEN", "r", "u", "TTL", "1000", INJECTED],
        ["OPEN", "r", "u1", "DEVICE", INJECTED, "SESSION", "a"],
        ["OPEN", "r", "u", "META", INJECTED * 4096],
        ["RENEW", "r", INJECTED, 1, 1],
        ["RENEW", "r", "a", INJECTED, 1],
        ["RENEW", "r", "a", 1, INJECTED],
        ["RENEW", "r", "a", 1, 1, "STATE", INJECTED],
        ["RENEW", INJECTED, "a", 1, 1],
        ["MRENEW", "r", "a", 1, INJECTED],
        ["LEAVE", "r", "a", INJECTED],
        ["LEAVE", "r", "a", 1, "LINGER", INJECTED],
        ["KICK", "r", INJECTED, "u1"],
        ["REAP", "r", "COUNT", INJECTED],
        ["GET", INJECTED + ":log", "a"],
        ["GET", INJECTED + "text", "a"],
        ["ROSTER", "r", INJECTED],
        ["ROSTER", "r", "CURSOR", INJECTED],
        ["COUNT", INJECTED + "text"],
        ["INSPECT", "r", INJECTED],
        ["POLICY", INJECTED + "text"],
        ["SEND", "r", "a", INJECTED, "m", "p"],
        ["SEND", "r", INJECTED, 1, INJECTED, INJECTED],
        ["SEND", "r", "a", 1, INJECTED * 16, "p"],
        ["SEND", "r", "a", 1, INJECTED, INJECTED * 4096],
        ["SEND", "r", "a", 1, "m", "p", INJECTED, INJECTED],
        ["SEND", INJECTED + "text", "a", 1, "m", "p"],
        ["POST", "r", INJECTED * 16, "m", "p"],
        ["POST", "r", "u1", INJECTED, INJECTED * 4096],
        ["POST", INJECTED + ":log", "u1", "m", "p"],
        ["REPLAY", "r", "a", INJECTED, "*", 0],
        ["REPLAY", "r", "a", 1, INJECTED, INJECTED],
        ["REPLAY", "r", "a", 1, "*", 0, "COUNT", INJECTED],
        ["SNAPSHOT", "r", INJECTED, 1],
        ["SNAPSHOT", "r", "a", 1, INJECTED],
        ["ACK", "r", "a", 1, INJECTED],
        ["ACK", "r", INJECTED, 1, 0],
        ["MARK", "r", "u1", INJECTED, INJECTED, 0],
        ["MARK", "r", "u1", "default", "QUEUED", INJECTED],
        ["MARK", "r", INJECTED, INJECTED, "QUEUED", 0],
        ["LAG", "r", INJECTED],
        ["HOLD", "r", INJECTED * 16],
        ["HOLD", INJECTED + "text", "h"],
        ["GRANT", "r", "u1", INJECTED],
        ["GRANT", "r", INJECTED, "READ", "VERSION", INJECTED],
        ["REVOKE", "r", INJECTED, INJECTED, "x"],
        ["GRANTS", "r", INJECTED],
        ["STATS", INJECTED + "text"],
        ["HOLDS", INJECTED + "text"],
        ["TRIM", INJECTED + "text"],
        ["SETPOLICY", "r", INJECTED, 1],
        ["SETPOLICY", "r", "ttl-ms", INJECTED],
        ["CLOCK", INJECTED],
        ["CLOCK", "SET", INJECTED],
    ]
    with client.nothing_changes():
        for command in failing:
            refused, echo = client.pipeline(["LEASE." + command[0], *command[1:]], "ECHO behind")
            assert echo == b"behind", command
            assert "canary" not in refused.text and "\n" not in refused.text, command
    assert client.events(INJECTED) == []
    assert client("LEASE.OPEN", INJECTED, INJECTED, "SESSION", INJECTED)["session"] == INJECTED.encode()  # but as an id it is as good as any
    assert client("EXISTS", stream(INJECTED)) == 1
    assert client("LEASE.SEND", INJECTED, INJECTED, 1, INJECTED, INJECTED)["seq"] == 1
    ((_, message),) = client("LEASE.REPLAY", INJECTED, INJECTED, 1, "*", 0)["entries"]
    assert (message["id"], message["payload"]) == (INJECTED.encode(),) * 2
