"""SEC: grants and revocations; what is secret is in test_secrets.py."""

import threading

import pytest

from harness import Client, Refused, Way, rooms, wait_until
from test_retention import usec

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
        took.append(max(usec(server, "lease.kick"), usec(server, "lease.revoke")))
    assert client("LEASE.KICK r USER u DEVICE d1") == client("LEASE.KICK r USER u DEVICE none") == client("LEASE.KICK r USER v DEVICE d9") == 0
    assert client("LEASE.COUNT r") == [19990, 1]
    assert min(took) < 300, f"µs: {took}"  # to look at all takes 500 at the least


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
