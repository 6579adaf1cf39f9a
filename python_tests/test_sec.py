"""SEC: grants, revocations, privacy."""

import json
import random
import threading

import pytest

from golden import crc64
from harness import Client, Refused, Way, rooms, wait_until
from harness.resp import words

PLAIN = Way("plain", 3)
TOMBSTONE, EMPTY_ROOM = 600000, 3600000
REVOKED = "DENIED revoked"


def on(server):
    return Client(server, PLAIN)


def denied(client, *commands):
    """All answered `DENIED revoked`, without any effect."""
    with client.nothing_changes():
        for command in commands:
            assert client.refusal(command) == REVOKED, command


def in_step(replica, server):
    replica.in_step()
    assert replica.call("DEBUG DIGEST") == server.call("DEBUG DIGEST")


# -------------------------------------------------------------------- SEC-01


def test_sec_01_revoked_between_heartbeat_and_send(client):
    """SEC-01 Revoked between heartbeat and send: steps 1 and 2."""
    client("LEASE.SETPOLICY r access granted")
    assert client("LEASE.GRANT r u1 WRITE") == b"ok"
    epoch = client("LEASE.OPEN r u1 SESSION a")["epoch"]
    assert client(f"LEASE.RENEW r a {epoch} 5")[0] == b"renewed"
    assert client(f"LEASE.SEND r a {epoch} m1 x")["seq"] == 1
    assert client("LEASE.REVOKE r u1") == [b"ok", 1]
    denied(
        client,
        f"LEASE.SEND r a {epoch} m9 x",
        f"LEASE.RENEW r a {epoch} 6",
        f"LEASE.RENEW r a {epoch} 6 META x",
        f"LEASE.REPLAY r a {epoch} * 0",
        f"LEASE.SNAPSHOT r a {epoch}",
        f"LEASE.ACK r a {epoch} 1",
        f"LEASE.SEND r a {epoch} m1 x",
        "LEASE.OPEN r u1",
        "LEASE.OPEN r u1 SESSION a",
        "LEASE.OPEN r u1 DEVICE other",
        "LEASE.POST r u1 m9 x",
        "LEASE.POST r u1 m1 x",
    )
    with client.nothing_changes():
        assert client(f"LEASE.MRENEW r a {epoch} 6") == [[b"denied", b"revoked"]]
        assert client(f"LEASE.LEAVE r a {epoch}") == b"gone"
        assert client(f"LEASE.RENEW r a {epoch} 6 STATE closed")[0] == b"gone"
    granted, opened, removed, revoked = client.events("r")
    assert (granted["type"], granted["user"], granted["level"], "until" in granted) == ("granted", b"u1", "WRITE", False)
    assert (opened["type"], removed["type"], removed["reason"], removed["user_leases"]) == ("opened", "removed", "revoked", 0)
    assert (revoked["type"], revoked["user"], "device" in revoked) == ("grant-revoked", b"u1", False)

    client("LEASE.GRANT r u1 WRITE")
    posted = client("LEASE.POST r u1 m9 another-payload")  # the refused m9 has no seq and no record
    assert (posted["status"], posted["seq"]) == (b"accepted", 2)
    assert [(seq, message["id"], message["payload"]) for seq, message in client.messages("r")] == [(1, b"m1", b"x"), (2, b"m9", b"another-payload")]


def test_sec_01_one_step_for_all_devices(client):
    """SEC-01 Revoked between heartbeat and send: removals before `grant-revoked`, and what is overdue is left to the reaper."""
    client("LEASE.OPEN r u1 DEVICE x SESSION overdue TTL 1000")
    client("LEASE.OPEN r u1 DEVICE d SESSION a")
    client("LEASE.OPEN r u1 DEVICE e SESSION b")
    client("LEASE.LEAVE r b 1 LINGER 20000")
    client("LEASE.OPEN r u2 SESSION other")
    assert client.held(1000, "LEASE.REVOKE r u1") == [[b"ok", 2]]
    client.advance(0)
    assert [(event["type"], event.get("session"), event.get("reason"), event.get("user_leases")) for event in client.events("r")[4:]] == [
        ("removed", b"a", "revoked", 1),
        ("removed", b"b", "revoked", 1),
        ("grant-revoked", None, None, None),
        ("removed", b"overdue", "expired", 0),
    ]
    assert client("LEASE.COUNT r") == [1, 1]
    assert client("LEASE.GET r a")["reason"] == b"revoked"


def test_sec_01_one_device(client):
    """SEC-01 Revoked between heartbeat and send: REVOKE of one device leaves the others and the grant."""
    client("LEASE.SETPOLICY r access granted")
    client("LEASE.GRANT r u1 READ VERSION 3")
    client("LEASE.OPEN r u1 DEVICE phone SESSION a")
    client("LEASE.OPEN r u1 DEVICE tab SESSION b")
    assert client("LEASE.REVOKE r u1 DEVICE phone") == [b"ok", 1]
    denied(client, "LEASE.RENEW r a 1 1", "LEASE.OPEN r u1 DEVICE phone")
    assert client("LEASE.RENEW r b 1 1")[0] == b"renewed"
    assert client("LEASE.GRANTS r USER u1")["grants"] == [
        {"user": b"u1", "level": b"READ", "until": None, "version": 3, "token": 0, "revoked": 0, "devices": [b"phone"]}
    ]
    assert client.events("r")[-1]["device"] == b"phone"
    assert client("LEASE.GRANT r u1 READ") == b"ok"
    assert client("LEASE.OPEN r u1 DEVICE phone")["epoch"] == 2
    assert client("LEASE.GRANTS r USER u1")["grants"][0]["devices"] == []


def test_sec_01_one_device_is_silent(client):
    """SEC-01 Revoked between heartbeat and send: a device's mark stops what it sends, not what is posted for its user."""
    client("LEASE.OPEN r u1 DEVICE phone SESSION a")
    client("LEASE.OPEN r u1 DEVICE tab SESSION b")
    client("LEASE.REVOKE r u1 DEVICE phone")
    denied(client, "LEASE.SEND r a 1 m1 x", "LEASE.REPLAY r a 1 * 0", "LEASE.SNAPSHOT r a 1", "LEASE.ACK r a 1 0")
    assert client("LEASE.SEND r b 1 m1 x")["seq"] == 1
    assert client("LEASE.POST r u1 m2 x")["seq"] == 2


def test_sec_01_a_reader_may_be_there(client):
    """SEC-01 Revoked between heartbeat and send: step 3, presence and reading need READ only."""
    client("LEASE.SETPOLICY r access granted")
    client("LEASE.GRANT r u1 WRITE")
    client("LEASE.POST r u1 m1 x")
    client("LEASE.GRANT r u2 READ")
    assert client("LEASE.OPEN r u2 SESSION a")["epoch"] == 1
    assert client("LEASE.RENEW r a 1 1")[0] == b"renewed"
    with client.nothing_changes():
        assert client.refusal("LEASE.SEND r a 1 m2 x") == client.refusal("LEASE.POST r u2 m2 x") == "DENIED readonly"
        read = client("LEASE.REPLAY r a 1 * 0")
        assert (read["status"], [entry["id"] for _, entry in read["entries"]]) == (b"ok", [b"m1"])
        assert client("LEASE.SNAPSHOT r a 1")["entries"] == read["entries"]
    assert client("LEASE.ACK r a 1 1") == 1


def test_sec_01_a_grant_that_ends(client):
    """SEC-01 Revoked between heartbeat and send: step 4, the grant's end caps the lease and is exact."""
    client("LEASE.SETPOLICY r access granted")
    end = client.now() + 1000
    assert client.refusal("LEASE.GRANT", "r", "u3", "WRITE", "UNTIL", client.now()) == "ERR"
    assert client("LEASE.GRANT", "r", "u3", "WRITE", "UNTIL", end) == b"ok"
    assert client("LEASE.OPEN r u3 SESSION a")["expires_at"] == end
    renewed, sent = client.held(999, "LEASE.RENEW r a 1 1", "LEASE.SEND r a 1 m1 x")
    assert (renewed, sent["status"]) == ([b"renewed", 1, end], b"accepted")
    *refused, listed = client.held(
        1,
        "LEASE.RENEW r a 1 2",
        "LEASE.SEND r a 1 m2 x",
        "LEASE.REPLAY r a 1 * 0",
        "LEASE.OPEN r u3 SESSION a",
        "LEASE.OPEN r u3",
        "LEASE.POST r u3 m2 x",
        "LEASE.GRANTS r",
    )
    assert [reply.head for reply in refused] == ["STALE expired"] * 3 + ["DENIED nogrant"] * 3
    assert listed["grants"] == []
    client.advance(0)
    removed = client.events("r")[-1]
    assert (removed["reason"], removed["due"], removed["lag_ms"]) == ("expired", end, 0)
    with client.nothing_changes():
        assert client.refusal("LEASE.OPEN r u3") == "DENIED nogrant"


def test_sec_01_access_turned_to_granted(client):
    """SEC-01 Revoked between heartbeat and send: deadlines follow a change of grant or access down at once, up with a heartbeat."""
    now = client.now()
    client("LEASE.GRANT", "r", "u1", "READ", "UNTIL", now + 5000)
    assert client("LEASE.OPEN r u1 SESSION a")["expires_at"] == now + 30000
    client("LEASE.SETPOLICY r access granted")
    assert client("LEASE.GET r a")["expires_at"] == now + 5000
    client("LEASE.GRANT", "r", "u1", "READ", "UNTIL", now + 3000)
    assert client("LEASE.GET r a")["expires_at"] == now + 3000
    client("LEASE.GRANT", "r", "u1", "READ", "UNTIL", now + 9000)
    assert client("LEASE.GET r a")["expires_at"] == now + 3000
    assert client("LEASE.RENEW r a 1 1") == [b"renewed", 9000, now + 9000]
    client("LEASE.SETPOLICY r access open")
    assert client("LEASE.RENEW r a 1 2") == [b"renewed", 30000, now + 30000]


def test_sec_01_a_grant_ends_before_anyone_notices(client):
    """SEC-01 Revoked between heartbeat and send: a lease that outlives its grant is refused from that millisecond on."""
    end = client.now() + 1000
    client("LEASE.GRANT", "r", "u1", "READ", "UNTIL", end)
    client("LEASE.OPEN r u1 SESSION a")
    _, late = client.held(1000, "LEASE.SETPOLICY r access granted", "LEASE.RENEW r a 1 1")
    assert late.head == "DENIED nogrant"
    client.advance(0)
    with client.nothing_changes():
        assert client.refusal("LEASE.RENEW r a 1 1") == "DENIED nogrant"


def config_access(client, access):
    client.raw("CONFIG SET lease.default-access " + access)


def test_sec_01_the_nodes_access_turned_to_granted(client):
    """SEC-01 Revoked between heartbeat and send: deadlines of rooms that follow the node's access go down with it at once, each time; others stay."""
    now = client.now()
    ends = {}
    for room, access, told in (("r", None, 5000), ("other", None, 5000), ("own", "granted", 5000), ("open", "open", 30000)):
        client("LEASE.GRANT", room, "u1", "READ", "UNTIL", now + 5000)
        client("LEASE.OPEN", room, "u1", "SESSION", "a")
        client("LEASE.GRANT", room, "u3", "READ")
        client("LEASE.OPEN", room, "u2", "SESSION", "b")
        client("LEASE.OPEN", room, "u3", "SESSION", "c")
        if access:
            client("LEASE.SETPOLICY", room, "access", access)
        ends[room] = now + told
    events = client.history("r")

    def expires_at(room, session="a"):
        return client("LEASE.GET", room, session)["expires_at"]

    client.server.lease_info()
    config_access(client, "granted")
    assert {room: expires_at(room) for room in ends} == ends
    assert (expires_at("r", "b"), expires_at("r", "c")) == (now + 30000, now + 30000)
    with client.nothing_changes():
        client.advance(0)
        assert client.history("r") == events

    config_access(client, "open")
    assert client("LEASE.RENEW r a 1 1") == [b"renewed", 30000, now + 30000]
    client("LEASE.SETPOLICY other access open")
    config_access(client, "granted")
    assert expires_at("r") == now + 5000
    client("LEASE.SETPOLICY open access default")
    assert expires_at("open") == now + 5000
    client.advance(5000)
    assert client.history("r") == events + [("removed", b"a", 1, "expired")]
    assert client("LEASE.COUNT other") == [2, 2]


@pytest.mark.server(lease={"max-leases": 0})
def test_sec_01_the_nodes_access_in_a_big_room(server):
    """SEC-01 Revoked between heartbeat and send: a room with more leases than one step looks at is brought down whole, once, on a replica too."""
    client, replica = on(server), server.replica()
    client.pipeline(*(f"LEASE.GRANT r u{number} READ UNTIL {5000 + number}" for number in range(0, 3000, 3)))
    client.pipeline(*(f"LEASE.OPEN r u{number} SESSION s{number}" for number in range(3000)))
    for access in ("granted", "open", "granted"):
        client.connection.pipeline([["MULTI"], ["CONFIG", "SET", "lease.default-access", access], ["INFO", "lease"], ["EXEC"]])
    for node in (server, replica):
        node is server or in_step(replica, server)
        leases = on(node)("LEASE.ROSTER r COUNT 10000")["leases"]
        assert {lease["session"]: lease["expires_at"] for lease in leases} == {
            b"s%d" % number: 30000 if number % 3 else 5000 + number for number in range(3000)
        }
    with client.nothing_changes():
        config_access(client, "granted")
    config_access(client, "open")  # as it is after a restart, which would bring the deadlines down anew


def test_sec_01_the_grants_token(client):
    """SEC-01 Revoked between heartbeat and send: each OPEN, a retry too, presents the grant's token; only where grants apply."""
    client("LEASE.GRANT r u1 WRITE TOKEN s3cret")
    assert client("LEASE.OPEN r u1 SESSION a")["epoch"] == 1
    client("LEASE.SETPOLICY r access granted")
    with client.nothing_changes():
        for command in ("OPEN r u1", "OPEN r u1 GRANT-TOKEN guess", "OPEN r u1 TOKEN s3cret", "OPEN r u1 SESSION a"):
            assert client.refusal("LEASE." + command) == "DENIED token", command
        assert client("LEASE.OPEN r u1 SESSION a GRANT-TOKEN s3cret")["epoch"] == 1
        assert client("LEASE.GRANTS r")["grants"][0]["token"] == 1
    assert client("LEASE.OPEN r u1 SESSION b GRANT-TOKEN s3cret")["epoch"] == 2
    client("LEASE.GRANT r u1 WRITE")  # replaces the whole grant
    assert client("LEASE.OPEN r u1 SESSION c")["epoch"] == 3


# -------------------------------------------------------------------- SEC-02


@pytest.mark.parametrize("access", ("open", "granted"))
def test_sec_02_late_deliveries(client, access):
    """SEC-02 Straight back with the revoked grant: steps 1, 2 and 5, the replica's digest after each."""
    replica = client.server.replica()
    client("LEASE.SETPOLICY", "r", "access", access)
    client("LEASE.GRANT r u1 WRITE VERSION 5")
    former = client("LEASE.OPEN r u1 SESSION a")["epoch"]
    assert client("LEASE.REVOKE r u1 VERSION 7") == [b"ok", 1]
    in_step(replica, client.server)
    back = ("LEASE.OPEN r u1", "LEASE.OPEN r u1 DEVICE other", "LEASE.OPEN r u1 SESSION a", "LEASE.POST r u1 m1 x", f"LEASE.SEND r a {former} m1 x")
    denied(client, *back)
    with client.nothing_changes():
        for late in ("WRITE VERSION 6", "WRITE VERSION 7", "READ UNTIL 9000000 VERSION 5"):
            assert client("LEASE.GRANT r u1 " + late) == b"stale", late
        assert client("LEASE.REVOKE r u1 VERSION 7") == client("LEASE.REVOKE r u1 DEVICE d VERSION 6") == [b"stale", 0]
    denied(client, *back)
    in_step(replica, client.server)
    assert client("LEASE.GRANT r u1 READ VERSION 8") == b"ok"
    in_step(replica, client.server)
    assert client.refusal(f"LEASE.RENEW r a {former} 1") == "STALE revoked"
    assert client("LEASE.OPEN r u1 SESSION b")["epoch"] > former
    in_step(replica, client.server)


@pytest.mark.server(redis={"appendonly": "yes", "appendfsync": "always"})
def test_sec_02_marks_outlive_loads_and_rooms_that_empty(server):
    """SEC-02 Straight back with the revoked grant: step 3, after loads, the end of tombstones, and empty-room-ms."""
    client = on(server)
    former = client("LEASE.OPEN r u1 SESSION a")["epoch"]
    client("LEASE.REVOKE r u1 VERSION 7")
    client("LEASE.REVOKE r u2 DEVICE phone")
    back = ("LEASE.OPEN r u1", "LEASE.OPEN r u2 DEVICE phone", "LEASE.POST r u1 m1 x")
    denied(client, *back)
    server.call("DEBUG RELOAD")
    denied(client, *back)
    server.restart()
    client = on(server)
    denied(client, *back)
    client.advance(TOMBSTONE)
    client.advance(EMPTY_ROOM + 1)
    assert server.lease_info()["tombstones"] == 0
    denied(client, *back)
    assert client("LEASE.GRANT r u1 READ VERSION 7") == b"stale"
    assert client("LEASE.GRANT r u1 READ VERSION 8") == b"ok"
    assert client("LEASE.OPEN r u1")["epoch"] > former


def test_sec_02_after_a_failover(server):
    """SEC-02 Straight back with the revoked grant: step 3, on a promoted replica."""
    client, replica = on(server), server.replica()
    former = client("LEASE.OPEN r u1 SESSION a")["epoch"]
    client("LEASE.REVOKE r u1 VERSION 7")
    replica.in_step()
    replica.call("REPLICAOF NO ONE")
    replica.primary = None
    promoted = on(replica)
    denied(promoted, "LEASE.OPEN r u1", f"LEASE.RENEW r a {former} 1", f"LEASE.SEND r a {former} m1 x", "LEASE.POST r u1 m1 x")
    assert promoted("LEASE.GRANT r u1 WRITE VERSION 7") == b"stale"
    assert promoted("LEASE.GRANT r u1 WRITE VERSION 8") == b"ok"
    assert promoted("LEASE.OPEN r u1")["epoch"] > former


@pytest.mark.server(redis={"appendonly": "yes", "appendfsync": "always"})
def test_sec_02_no_load_revives_what_was_overdue(server):
    """SEC-02 Straight back with the revoked grant: a lease overdue at the REVOKE gets no grace from the load that follows."""
    client = on(server)
    client("LEASE.OPEN r u1 SESSION a TTL 1000")
    client("LEASE.OPEN r u2 SESSION b TTL 1000")
    assert client.held(1000, "LEASE.REVOKE r u1", "CLIENT PAUSE 60000 WRITE")[0] == [b"ok", 0]  # the reaper has no chance
    server.stop("kill")
    server.start()
    client = on(server)
    assert client("LEASE.GET r b")["state"] == b"active"
    assert client("LEASE.GET r a")["reason"] == b"expired"
    denied(client, "LEASE.RENEW r a 1 1", "LEASE.OPEN r u1")


@pytest.mark.server(clock=None)
def test_sec_02_a_hundred_opens_race_one_revoke(server):
    """SEC-02 Straight back with the revoked grant: step 4, no lease and no message of the user once REVOKE has answered."""
    client, failures, opened, done = on(server), [], [], threading.Event()

    def keep_opening(number):
        try:
            mine, turn = on(server), 0
            while not done.is_set():
                turn += 1
                reply, posted = mine.pipeline(["LEASE.OPEN", "r", "u1", "DEVICE", f"d{number}"], ["LEASE.POST", "r", "u1", f"m{number}-{turn}", "x"])
                for refused in (one for one in (reply, posted) if isinstance(one, Refused)):
                    assert refused.head == REVOKED, refused.text
                if not isinstance(reply, Refused):
                    opened.append(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=keep_opening, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(set(opened)) >= 50 or failures)
    status, ended = client("LEASE.REVOKE r u1")
    assert client("LEASE.COUNT r") == [0, 0]
    sent = client("LEASE.STATS r")["log_seq"]
    done.set()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert (status, client("LEASE.COUNT r"), client("LEASE.STATS r")["log_seq"]) == (b"ok", [0, 0], sent)
    assert sent > 0
    assert ended >= 50
    assert client.events("r", newest=1)[0]["type"] == "grant-revoked"


# -------------------------------------------------------------------- GRANTS


def test_sec_02_pages_of_grants(client):
    """SEC-02 Straight back with the revoked grant: GRANTS shows each user once over all pages, and hides what is over."""
    for number in range(25):
        client("LEASE.GRANT", "r", f"u{number}", "READ", "VERSION", number)
    client("LEASE.GRANT", "r", "brief", "WRITE", "UNTIL", client.now() + 1000, "VERSION", 1)
    client("LEASE.REVOKE r u3")
    found, cursor, pages = [], 0, 0
    while pages == 0 or cursor:
        page = client("LEASE.GRANTS", "r", "COUNT", 7, "CURSOR", cursor)
        assert len(page["grants"]) <= 7
        found, cursor, pages = found + page["grants"], page["cursor"], pages + 1
    assert sorted(one["user"] for one in found) == sorted([b"brief", *(b"u%d" % number for number in range(25))])
    assert pages == 4
    assert rooms.grants(client, "r") == {one["user"]: one for one in found}
    assert rooms.grants(client, "r")[b"u3"] == {"user": b"u3", "level": None, "until": None, "version": 3, "token": 0, "revoked": 1, "devices": []}
    client.advance(1000)
    assert b"brief" not in rooms.grants(client, "r")
    assert client("LEASE.GRANT r brief WRITE VERSION 1") == b"stale"  # the version outlives the grant
    assert client("LEASE.GRANTS r USER brief")["grants"] == []


def test_sec_02_an_unchanged_grant_is_no_event(client):
    """SEC-02 Straight back with the revoked grant: a GRANT or REVOKE that says nothing new, or only a newer version, writes none."""
    for command in ("GRANT r u1 READ", "REVOKE r u2", "REVOKE r u3 DEVICE d"):
        client("LEASE." + command)
        told = client.events("r")
        client("LEASE." + command)
        client(f"LEASE.{command} VERSION 5")
        assert client.events("r") == told, command
    assert {user: one["version"] for user, one in rooms.grants(client, "r").items()} == {b"u1": 5, b"u2": 5, b"u3": 5}


# -------------------------------------------------------------------- SEC-03

USER, DEVICE, MESSAGE, META, PAYLOAD, HOLD, TOKEN = (f"canary-{kind}" for kind in ("user", "device", "message", "meta", "payload", "hold", "token"))
LONG = "canary-" * 10000


def failing(client):
    """Every way to be refused, with canaries in all places."""
    client.pipeline(
        "SET text x",
        "LEASE.SETPOLICY full max-leases 0",
        f"LEASE.OPEN full {USER} SESSION f",
        "LEASE.SETPOLICY full max-leases 1",
        f"LEASE.POST spoilt {USER} {MESSAGE} {PAYLOAD}",
        "SET {spoilt}:log x",
        "SET {spoilt}:events x",
        "LEASE.SETPOLICY closed access granted",
    )
    return client.pipeline(
        f"LEASE.OPEN r {USER} DEVICE {DEVICE} {LONG}",
        f"LEASE.OPEN r {LONG}",
        f"LEASE.OPEN r other SESSION a TOKEN {TOKEN}",
        f"LEASE.OPEN r {USER} META {LONG}",
        f"LEASE.OPEN r {USER} DEVICE {DEVICE} NX TOKEN {TOKEN}",
        f"LEASE.OPEN text {USER}",
        f"LEASE.OPEN full {DEVICE}",
        f"LEASE.OPEN spoilt {USER}",
        f"LEASE.OPEN closed {USER}",
        f"LEASE.OPEN r {USER} TTL {TOKEN}",
        f"LEASE.RENEW r a 1 1 META {META} TOKEN {USER}",
        f"LEASE.RENEW r a 1 1 STATE {META}",
        f"LEASE.RENEW r {USER} 1 1",
        f"LEASE.MRENEW r TOKENS a 1 1 {TOKEN} {USER}",
        f"LEASE.LEAVE r a {USER}",
        f"LEASE.KICK r {USER} {DEVICE}",
        f"LEASE.SEND r a 1 {MESSAGE} {PAYLOAD} TOKEN {USER}",
        f"LEASE.SEND r a 1 {MESSAGE} other TOKEN {TOKEN}",
        f"LEASE.SEND r a 1 {LONG} {PAYLOAD}",
        f"LEASE.SEND r a 1 {MESSAGE} {LONG}",
        f"LEASE.SEND r a {MESSAGE} {MESSAGE} {PAYLOAD}",
        f"LEASE.SEND r a 1 {MESSAGE} {PAYLOAD} {PAYLOAD}",
        f"LEASE.POST r {USER} {MESSAGE} other",
        f"LEASE.POST spoilt {USER} {MESSAGE}2 {PAYLOAD}",
        f"LEASE.POST closed {USER} {MESSAGE} {PAYLOAD}",
        f"LEASE.REPLAY r a 1 * {MESSAGE}",
        f"LEASE.REPLAY r {USER} 1 * 0",
        f"LEASE.SNAPSHOT r a 1 {USER} {DEVICE}",
        f"LEASE.ACK r a 1 {MESSAGE}",
        f"LEASE.MARK r {USER} {DEVICE} {HOLD} 1",
        f"LEASE.MARK r {HOLD} {DEVICE} QUEUED 1",
        f"LEASE.MARK r {USER} {DEVICE} QUEUED 99",
        f"LEASE.HOLD r {LONG}",
        f"LEASE.HOLD text {HOLD}",
        f"LEASE.GRANT r {USER} {META}",
        f"LEASE.GRANT r {USER} READ UNTIL {TOKEN}",
        f"LEASE.GRANT r {USER} READ {TOKEN} {TOKEN}",
        f"LEASE.REVOKE r {USER} {DEVICE} {DEVICE}",
        f"LEASE.GRANTS r USER {LONG} {USER}",
        f"LEASE.ROSTER r {USER}",
        f"LEASE.GET text {USER}",
        f"LEASE.INSPECT r {USER} {USER}",
        f"LEASE.SETPOLICY r {META} {META}",
        f"LEASE.CLOCK SET {META}",
        f"LEASE.APPLY r {PAYLOAD}",
    )


@pytest.mark.server(redis={"loglevel": "debug", "slowlog-log-slower-than": 0})
@pytest.mark.ways("plain-resp3", "multi-resp2", "eval-resp3")
def test_sec_03_canaries(client):
    """SEC-03 Ids in logs, errors, rosters: step 1, none is in the module's log lines, in INFO or in an error."""
    client.server.aside.add((0, b"spoilt"))
    client(f"LEASE.OPEN r {USER} DEVICE {DEVICE} SESSION a META {META} TOKEN {TOKEN} TTL 600000")
    client(f"LEASE.SEND r a 1 {MESSAGE} {PAYLOAD} TOKEN {TOKEN}")
    client(f"LEASE.HOLD r {HOLD}")
    client(f"LEASE.ACK r a 1 1 TOKEN {TOKEN}")
    replies = failing(client)
    said = [reply.text for reply in replies if isinstance(reply, Refused)]
    assert len(said) == len(replies)
    assert {text.split(":")[0].split()[0] for text in said} >= {"ERR", "WRONGTYPE", "DENIED", "HELD", "CONFLICT", "LIMIT", "LOGSTATE", "STALE"}

    dump, dice = client.raw("DUMP r"), random.Random(3)
    for _ in range(300):
        damaged = bytearray(dump[:-8])
        damaged[dice.randrange(10, len(damaged))] ^= 1 << dice.randrange(8)
        client.pipeline(
            ["RESTORE", "damaged", 0, crc64.sealed(bytes(damaged))], "LEASE.CLOCK ADVANCE 0", "DEL damaged {damaged}:events {damaged}:log"
        )
    client.advance(600000)
    log = [line for line in client.server.log().splitlines() if "<lease>" in line]
    assert log, "the module has said nothing: nothing was tried"
    for told in (*said, *log, client.raw("INFO lease").decode()):
        assert "canary" not in told
    client.raw("DEL {spoilt}:events {spoilt}:log")


def with_tokens(client):
    """Every command there is with a token behind its word wherever one may stand, most of them refused for it; and what people type first."""
    for name in sorted(client.raw("COMMAND LIST FILTERBY MODULE lease")):
        ((_, arity, *_),) = client.raw("COMMAND INFO", name)
        size = max(abs(arity), 4)
        for place in range(1, size - 1) if arity < 0 or arity == size else ():
            for word in ("TOKEN", "grant-Token"):
                yield [name, *["x"] * (place - 1), word, TOKEN, *["x"] * (size - place - 2)]
    for command in (
        f"RENEW r a 1 1 TOKEN {TOKEN} token {TOKEN}",
        f"LEAVE r a 1 META TOKEN {TOKEN}",
        f"POST r TOKEN {TOKEN} x",
        f"MARK r TOKEN {TOKEN} QUEUED 0",
        f"MRENEW r a 1 1 TOKEN {TOKEN}",
        f"MRENEW r a 1 1 {TOKEN}",
        f"MRENEW r a 1 1 a 1 {TOKEN}",
        f"MRENEW r token a 1 1 {TOKEN}",
        f"MRENEW r tokens a 1 1 {TOKEN}",
        f"MRENEW r TOKENS a 1 1 {TOKEN} b 1 1 {TOKEN}",
        f"MRENEW r TOKENS a 1 1 {TOKEN} b 1 {TOKEN}",
        f"MRENEW r TOKENS a 1 {TOKEN} 1",
        f"MRENEW {{r}}:log a 1 {TOKEN}",
    ):
        yield words("LEASE." + command)


@pytest.mark.server(redis={"slowlog-log-slower-than": 0, "slowlog-max-len": 10000})
@pytest.mark.ways("plain-resp2", "multi-resp3")
def test_sec_03_tokens_are_redacted(client):
    """SEC-03 Ids in logs, errors, rosters: no token shows in MONITOR and SLOWLOG, in whichever command and however it is answered."""
    server = client.server
    if b"commandlog" in server.call("COMMAND LIST"):
        server.call("CONFIG SET commandlog-request-larger-than 0 commandlog-reply-larger-than 0")
    client("LEASE.OPEN r u1 SESSION a")
    monitor = server.connect(protocol=2)
    monitor("MONITOR")
    sent = list(with_tokens(client))
    for command in sent:
        client.pipeline(command)
    server.call("SET end of-the-tokens")
    monitored = []
    while not monitored or b"of-the-tokens" not in monitored[-1]:
        monitored.append(monitor.read())
    shown = [*monitored, *(repr(entry).encode() for log in logs_of_commands(server) for entry in log)]
    # Not the module's XADD: what stood in the place of a user or an id is one from then on.
    assert [line for line in shown if TOKEN.encode() in line and b"XADD" not in line] == []
    assert len([line for line in monitored if b"(redacted)" in line]) == len(sent)
    assert [line.split(b'"')[5:-1:2] for line in monitored if b'"LEASE.MRENEW"' in line][-4:] == [
        [b"TOKENS", b"a", b"1", b"1", b"(redacted)", b"b", b"1", b"1", b"(redacted)"],
        [b"(redacted)"] * 8,
        [b"(redacted)"] * 5,
        [b"(redacted)"] * 3,
    ]


def logs_of_commands(server):
    yield server.call("SLOWLOG GET -1")
    if b"commandlog" in server.call("COMMAND LIST"):
        yield from (server.call("COMMANDLOG GET -1", kind) for kind in ("large-request", "large-reply"))


STEP = 60000
# When the heartbeats of each room come, and when others look; after `start`.
TURNS = (({"first": 7001, "second": 13313}, 20000), ({"first": 41000, "second": 40999}, 61500))


def seen(client, room):
    """All that a reader learns of the room, without the names that differ."""
    shot = client(f"LEASE.SNAPSHOT {room} reader 1")
    told = [
        client(f"LEASE.GET {room} a"),
        client(f"LEASE.ROSTER {room} ENDED"),
        shot,
        json.loads(client(f"LEASE.INSPECT {room}")),
        json.loads(client(f"LEASE.INSPECT {room} SESSION a")),
        client.events(room),
    ]
    return json.dumps(told, default=lambda value: value.decode()).replace(shot["gen"].decode(), "gen").replace(room, "room")


@pytest.mark.server(clock=10 * STEP)
def test_sec_03_coarse_times(client):
    """SEC-03 Ids in logs, errors, rosters: step 2, two rooms in which heartbeats came at other moments of a step look the same."""
    start, seq = client.now(), {"first": 5, "second": 70}
    for room in seq:
        client(f"LEASE.SETPOLICY {room} precision-ms {STEP} log-renewals yes announce-messages yes disconnect-ms 125000")
        client(f"LEASE.OPEN {room} reader SESSION reader TTL 3600000")
        client(f"LEASE.OPEN {room} u1 SESSION a TTL 130000 META x")
        client(f"LEASE.SEND {room} a 1 m1 x")
    for heartbeats, look in TURNS:
        for room in sorted(heartbeats, key=heartbeats.get):
            now = client.advance(start + heartbeats[room] - client.now())
            assert client(f"LEASE.RENEW {room} a 1 {seq[room]} OBSERVED {now - 17}") == [b"renewed", 130000, now + 130000]
            seq[room] += 1
        client.advance(start + look - client.now())
        assert seen(client, "first") == seen(client, "second")
    for room in seq:  # a change of state and of meta shows, its moment does not
        assert client(f"LEASE.RENEW {room} a 1 {seq[room]} STATE disconnected META y")[0] == b"shortened"
        client.advance(7)
    assert seen(client, "first") == seen(client, "second")
    lease = client("LEASE.GET first a")
    assert [lease[name] for name in ("heartbeat_at", "observed_at", "expires_at", "seq")] == [start + STEP, start, start + 2 * STEP, None]
    assert lease["left_ms"] == lease["expires_at"] - client.now()
    client.advance(start + 175000 - client.now())
    for room in seq:
        removed = client.events(room)[-1]
        assert (removed["type"], removed["due"], "lag_ms" in removed, "seq" in removed) == ("removed", start + 2 * STEP, False, False)
        assert client(f"LEASE.GET {room} a")["ended_at"] == start + 2 * STEP


DEVICES = """
for number = 1, 20000 do
    redis.call('LEASE.OPEN', KEYS[1], 'u', 'DEVICE', 'd' .. number, 'TTL', 3600000)
end
"""


@pytest.mark.ways("plain-resp3")
@pytest.mark.no_restart("a matter of running time only")
def test_sec_02_one_device_of_many(client):
    """SEC-02 Revocation: KICK and REVOKE of a holder look at that holder alone, however many devices its user has."""
    server, took = client.server, []
    server.call("EVAL", DEVICES, 1, "r")
    for number in range(1, 6):
        server.call("CONFIG RESETSTAT")
        assert client(f"LEASE.KICK r USER u DEVICE d{number}") == 1
        assert client(f"LEASE.REVOKE r u DEVICE d{number + 5}") == [b"ok", 1]
        stats = server.info("commandstats")
        took.append(max(int(stats[f"cmdstat_lease.{name}"].split("usec=")[1].split(",")[0]) for name in ("kick", "revoke")))
    assert client("LEASE.KICK r USER u DEVICE d1") == client("LEASE.KICK r USER u DEVICE none") == client("LEASE.KICK r USER v DEVICE d9") == 0
    assert client("LEASE.COUNT r") == [19990, 1]
    assert min(took) < 300, f"µs: {took}"  # to look at all takes 500 at the least
