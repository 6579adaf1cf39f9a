"""Delivery claims: what servers and clients say they have of the messages, and the room's own counters."""

import pytest

from harness import Client

TWO_WAYS = pytest.mark.ways("plain-resp2", "plain-resp3")
WEEK = 604800000
TOMBSTONE, EMPTY_ROOM = 600000, 3600000


def post(client, count, room="r"):
    """So many messages of someone who has no lease."""
    replies = client.pipeline(*(["LEASE.POST", room, "bot", f"m{n}", "x"] for n in range(1, count + 1)))
    assert {reply["status"] for reply in replies} == {b"accepted"}


def lag(client, *options):
    """LAG in short: (user, device): (queued, written, acked)."""
    page = client("LEASE.LAG", "r", *options)
    current = client("LEASE.STATS r")["log_seq"]
    for holder in page["holders"]:
        assert [holder[f"{claim}_lag"] for claim in CLAIMS] == [current - holder[claim] for claim in CLAIMS]
    return {(holder["user"].decode(), holder["device"].decode()): tuple(holder[claim] for claim in CLAIMS) for holder in page["holders"]}


CLAIMS = ("queued", "written", "acked")


def test_fix_03_three_claims(client):
    """FIX-3 Reconnect with sequence 41 when the room is at 47 (section 4): three claims, each moving forward only, none for the others."""
    client("LEASE.OPEN r u1 DEVICE d SESSION a")
    post(client, 5)
    assert client("LEASE.MARK r u1 d QUEUED 5") == 5
    assert client("LEASE.MARK r u1 d written 3") == 3
    assert client("LEASE.ACK r a 1 2") == 2
    assert lag(client) == {("u1", "d"): (5, 3, 2)}
    with client.nothing_changes():
        assert client("LEASE.MARK r u1 d queued 4") == 5
        assert client("LEASE.MARK r u1 d WRITTEN 3") == 3
        assert client("LEASE.ACK r a 1 1") == 2
        assert client("LEASE.ACK r a 1 0") == 2
        assert client("LEASE.MARK r u1 d Queued 0") == 5
    assert client("LEASE.ACK r a 1 5") == 5  # what the others say is no bound
    assert lag(client) == {("u1", "d"): (5, 3, 5)}
    assert client("LEASE.OPEN r u1 DEVICE d SESSION b")["acked"] == 5
    assert client("LEASE.OPEN r u1 DEVICE d SESSION b")["acked"] == 5
    assert client("LEASE.OPEN r u1 SESSION c")["acked"] == 0  # another device
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "superseded"), ("opened", b"b", 2), ("opened", b"c", 1)]


def test_fix_03_claims_that_are_refused(client):
    """FIX-3 Reconnect with sequence 41 when the room is at 47 (section 4): nothing beyond `current`, nobody unknown, no other word."""
    client("LEASE.OPEN r u1 SESSION a TOKEN s3cret")
    post(client, 5)
    client("LEASE.MARK r u1 default QUEUED 1")
    refused = (
        ("ERR", "MARK r u1 default QUEUED 6"),
        ("ERR", "MARK r u1 default WRITTEN 9223372036854775807"),
        ("ERR", "MARK r u1 default QUEUED 9223372036854775808"),
        ("ERR", "MARK r u1 default ACKED 3"),
        ("ERR", "MARK r u1 default QUEUED -1"),
        ("ERR", "MARK r u1 default QUEUED 05"),
        ("ERR", "MARK r u1 default 3 QUEUED"),
        ("ERR", "MARK r u2 default QUEUED 1"),
        ("ERR", "MARK r u1 other QUEUED 1"),
        ("ERR", "MARK r bot default QUEUED 1"),
        ("ERR", "MARK r u2 default QUEUED 0"),
        ("ERR", "MARK r  default QUEUED 1"),
        ("ERR", "MARK r u1  QUEUED 1"),
        ("ERR", "MARK missing u1 default QUEUED 0"),
        ("ERR", "ACK r a 1 6 TOKEN s3cret"),
        ("ERR", "ACK r a 1 x TOKEN s3cret"),
        ("DENIED token", "ACK r a 1 3"),
        ("DENIED token", "ACK r a 1 3 TOKEN guess"),
        ("STALE unknown", "ACK r nobody 1 3"),
        ("STALE unknown", "ACK r a 2 3 TOKEN s3cret"),
        ("STALE unknown", "ACK missing a 1 3"),
        ("LIMIT id", f"MARK r {'x' * 256} default QUEUED 1"),
        ("LIMIT id", f"MARK r u1 {'x' * 256} QUEUED 1"),
        ("ERR", "LAG r COUNT 0"),
        ("ERR", "LAG r COUNT 10001"),
    )
    with client.nothing_changes():
        for refusal, command in refused:
            assert client.refusal("LEASE." + command) == refusal, command
    assert lag(client) == {("u1", "default"): (1, 0, 0)}


def test_fix_03_whom_a_room_knows(client):
    """FIX-3 Reconnect with sequence 41 when the room is at 47 (section 4): a lease, its tombstone, a grant or a cursor make a holder known."""
    client("LEASE.OPEN r u1 SESSION a")
    client("LEASE.OPEN r u2 SESSION b")
    client("LEASE.GRANT", "r", "u3", "READ", "UNTIL", TOMBSTONE + 30000)
    post(client, 3)
    client("LEASE.LEAVE r a 1")
    client.advance(30000)
    assert client("LEASE.MARK r u1 default QUEUED 1") == 1
    client.advance(TOMBSTONE - 1)
    assert client("LEASE.MARK r u3 any QUEUED 3") == 3
    assert client("LEASE.MARK r u2 default QUEUED 0") == 0  # known and yet without a cursor
    client.advance(1)
    assert client("LEASE.MARK r u1 default QUEUED 2") == 2  # by its cursor alone
    assert client.refusal("LEASE.MARK r u2 default QUEUED 1") == "ERR"
    assert client.refusal("LEASE.MARK r u3 other QUEUED 1") == "ERR"
    assert client("LEASE.MARK r u3 any WRITTEN 1") == 1
    assert lag(client) == {("u1", "default"): (2, 0, 0), ("u3", "any"): (3, 1, 0)}


def test_fix_03_revoked(client):
    """FIX-3 Reconnect with sequence 41 when the room is at 47 (SEC-01): who is revoked confirms nothing; a reader does."""
    client("LEASE.SETPOLICY r access granted")
    client("LEASE.GRANT r u1 READ")
    client("LEASE.GRANT r bot WRITE")
    client("LEASE.OPEN r u1 SESSION a")
    post(client, 3)
    assert client("LEASE.ACK r a 1 2") == 2
    client("LEASE.REVOKE r u1")
    with client.nothing_changes():
        assert client.refusal("LEASE.ACK r a 1 3") == "DENIED revoked"
    assert lag(client) == {("u1", "default"): (0, 0, 2)}
    client("LEASE.GRANT r u1 READ")
    assert client("LEASE.OPEN r u1 SESSION b")["acked"] == 2
    client("LEASE.GRANT r u1 READ UNTIL 5000")
    (late,) = client.held(5000, "LEASE.ACK r b 2 3")
    assert late.head == "STALE expired"


@TWO_WAYS
def test_fix_03_sixty_four_devices(client):
    """FIX-3 Reconnect with sequence 41 when the room is at 47 (section 10): at most 64 devices a user have cursors, for MARK and ACK alike."""
    client("LEASE.GRANT r u1 READ")
    client("LEASE.GRANT r u2 READ")
    client("LEASE.OPEN r u1 DEVICE d70 SESSION a TTL 3600000")
    post(client, 5)
    client("CONFIG SET lease.cursor-ms 1000")
    for number in range(32):
        assert client(f"LEASE.MARK r u1 d{number} QUEUED 1") == 1
    client("CONFIG SET lease.cursor-ms 5000")
    for number in range(32, 64):
        assert client(f"LEASE.MARK r u1 d{number} WRITTEN 1") == 1
    with client.nothing_changes():
        for command in ("MARK r u1 d64 QUEUED 1", "MARK r u1 d70 WRITTEN 5", "ACK r a 1 1"):
            assert client.refusal("LEASE." + command) == "LIMIT items"
        assert client("LEASE.MARK r u1 d64 QUEUED 0") == 0
        assert client("LEASE.ACK r a 1 0") == 0
    assert client("LEASE.MARK r u1 d63 WRITTEN 2") == 2
    assert client("LEASE.MARK r u1 d63 QUEUED 2") == 2
    assert client("LEASE.MARK r u2 d0 QUEUED 2") == 2
    assert client("LEASE.STATS r")["cursors"] == 65
    client.advance(1000)
    assert client("LEASE.STATS r")["cursors"] == 33
    assert client("LEASE.ACK r a 1 3") == 3
    assert lag(client)["u1", "d70"] == (0, 0, 3)


@pytest.mark.server(lease={"cursor-ms": 5000})
def test_time_04_cursors_end(client):
    """TIME-04 Units: one lifetime a holder, from the last move of any claim, to the ms; what moves nothing prolongs nothing."""
    client("LEASE.OPEN r u1 SESSION a TTL 3600000")
    client("LEASE.OPEN r u2 SESSION b TTL 3600000")
    post(client, 9)
    client("LEASE.MARK r u1 default QUEUED 3")
    client("LEASE.ACK r b 1 3")
    client.advance(4000)
    assert client("LEASE.ACK r a 1 1") == 1
    assert client("LEASE.MARK r u2 default QUEUED 0") == 0
    assert client("LEASE.ACK r b 1 2") == 3
    client("CONFIG SET lease.cursor-ms 60000")  # of those to come
    before, after = client.held(999, "LEASE.LAG r", "LEASE.STATS r")
    assert ([holder["user"] for holder in before["holders"]], after["cursors"]) == (
        [b"u1", b"u2"] if before["holders"][0]["user"] == b"u1" else [b"u2", b"u1"],
        2,
    )
    listed, stats, opened, again = client.held(1, "LEASE.LAG r", "LEASE.STATS r", "LEASE.OPEN r u2 SESSION b", "LEASE.ACK r b 1 0")
    assert ([holder["user"] for holder in listed["holders"]], stats["cursors"], opened["acked"], again) == ([b"u1"], 1, 0, 0)
    client.advance(0)
    assert lag(client) == {("u1", "default"): (3, 0, 1)}
    client.advance(3999)
    assert lag(client) == {("u1", "default"): (3, 0, 1)}
    assert client("LEASE.ACK r b 1 2") == 2  # a new one
    client.advance(1)
    assert lag(client) == {("u2", "default"): (0, 0, 2)}


@pytest.mark.server(lease={"retain-ms": 1000})
@TWO_WAYS
def test_time_04_a_room_of_cursors(client):
    """TIME-04 Units (section 7): a cursor keeps its room; once it is gone the room goes after empty-room-ms, an empty log with it."""
    client("LEASE.OPEN r u1 SESSION a")
    post(client, 1)
    client("LEASE.ACK r a 1 1")
    client("LEASE.LEAVE r a 1")
    client.advance(WEEK - 1)
    assert client("LEASE.STATS r")["cursors"] == 1
    client.advance(1)
    assert client("LEASE.STATS r")["cursors"] == 0
    client.advance(EMPTY_ROOM - 1)
    assert client.raw("EXISTS r") == 1
    client.advance(1)
    assert client.raw("EXISTS r {r}:log") == 0


@TWO_WAYS
def test_api_10_lag_in_pages(client):
    """API-10 RESP2 and RESP3 shapes: LAG comes in pages, like SCAN; who is there throughout comes at least once."""
    post(client, 3)
    assert client("LEASE.LAG missing") == {"cursor": 0, "holders": []}
    assert client("LEASE.LAG r") == {"cursor": 0, "holders": []}
    for number in range(150):
        client(f"LEASE.GRANT r u{number} READ")
        client(f"LEASE.MARK r u{number} d QUEUED {number % 3 + 1}")
    first = client("LEASE.LAG r")
    assert len(first["holders"]) == 100
    assert first["cursor"] != 0
    found, cursor, pages = [], 0, 0
    while True:
        page = client("LEASE.LAG", "r", "CURSOR", cursor, "COUNT", 40)
        assert len(page["holders"]) <= 40
        found += [(holder["user"], holder["queued"]) for holder in page["holders"]]
        cursor, pages = page["cursor"], pages + 1
        if pages == 2:
            client("LEASE.GRANT r late READ")
            client("LEASE.MARK r late d QUEUED 1")
        if cursor == 0:
            break
    assert {one for one in found if one[0] != b"late"} == {(b"u%d" % n, n % 3 + 1) for n in range(150)}
    assert len(found) <= 151


def test_ops_01_stats(client):
    """OPS-01 Gauges drift: STATS tells the room's own counters and the largest lag of each claim."""
    assert client("LEASE.STATS missing") is None
    client("LEASE.OPEN r u1 SESSION a")
    client("LEASE.OPEN r u1 DEVICE d SESSION b")
    client("LEASE.OPEN r u2 SESSION c TTL 1000")
    post(client, 7)
    client("LEASE.POST r bot m7 x")
    client("LEASE.MARK r u1 default QUEUED 6")
    client("LEASE.MARK r u1 default WRITTEN 5")
    client("LEASE.MARK r u2 default QUEUED 4")
    client("LEASE.ACK r b 1 7")
    client("LEASE.HOLD r case7")
    gen = client("LEASE.ROSTER r")["gen"]
    told = {
        "gen": gen,
        "leases": 3,
        "users": 2,
        "tombstones": 0,
        "event_n": 3,
        "events_lost": 0,
        "log_seq": 7,
        "log_oldest": 1,
        "dedupe": 7,
        "holds": 1,
        "cursors": 3,
        "queued_lag": 7,
        "written_lag": 7,
        "acked_lag": 7,
    }
    assert client("LEASE.STATS r") == told
    (overdue,) = client.held(1000, "LEASE.STATS r")
    assert (overdue["leases"], overdue["users"]) == (2, 1)
    client.advance(0)
    client("LEASE.UNHOLD r case7")
    client("LEASE.SETPOLICY r retain-count 2")
    client("LEASE.TRIM r")
    client("LEASE.SETPOLICY r retain-count default")
    client("LEASE.MARK r u1 d QUEUED 1")
    client("LEASE.MARK r u1 d WRITTEN 7")
    assert client("LEASE.STATS r") == told | {"leases": 2, "users": 1, "tombstones": 1, "event_n": 4, "log_oldest": 6, "holds": 0, "queued_lag": 6}


@TWO_WAYS
def test_beat_11_claims_and_leases_are_apart(client):
    """BEAT-11 Only heartbeats keep a lease (invariant 7): claims move no deadline and write no event, and no end of a lease moves a claim."""
    expires = client("LEASE.OPEN r u1 SESSION a")["expires_at"]
    post(client, 3)
    client.advance(1000)
    client("LEASE.ACK r a 1 1")
    client("LEASE.MARK r u1 default QUEUED 2")
    assert client("LEASE.GET r a")["expires_at"] == expires
    client("LEASE.OPEN r u1 SESSION b")
    client("LEASE.LEAVE r b 2")
    client("LEASE.KICK r USER u1")
    client("LEASE.REVOKE r u1")
    assert lag(client) == {("u1", "default"): (2, 0, 1)}
    assert [event["type"] for event in client.events("r")] == ["opened", "removed", "opened", "removed", "grant-revoked"]


@TWO_WAYS
def test_repl_05_claims_on_a_replica(client):
    """REPL-05 A read that writes: a replica tells the claims and their lags, hides those whose time is over, and takes none itself."""
    replica = client.server.replica()
    client("LEASE.OPEN r u1 SESSION a TTL 3600000")
    post(client, 5)
    client("CONFIG SET lease.cursor-ms 5000")
    client("LEASE.MARK r u1 default QUEUED 5")
    client("LEASE.ACK r a 1 3")
    client("LEASE.HOLD r case7")
    replica.in_step()
    reader = Client(replica, client.way)
    for command in ("LEASE.LAG r", "LEASE.STATS r", "LEASE.HOLDS r"):
        assert reader(command) == client(command)
    assert reader.refusal("LEASE.ACK r a 1 4") == "READONLY"
    assert reader.refusal("LEASE.MARK r u1 default QUEUED 5") == "READONLY"
    replica.call("LEASE.CLOCK ADVANCE 5000")
    assert reader("LEASE.LAG r")["holders"] == []
    assert reader("LEASE.STATS r")["cursors"] == 0
    assert lag(client) == {("u1", "default"): (5, 0, 3)}
    client.advance(5000)
