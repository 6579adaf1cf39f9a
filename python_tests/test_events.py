"""LOG: the event stream, its notifications, `closed`; messages as far as events and notifications tell of them."""

import os
import time

import pytest

from harness import Client, Listener, Way, wait_until
from harness.events import entry

EV = "{r}:events"
TOP = "18446744073709551615-18446744073709551615"
OPENED = ("opened", "session", "user", "device", "epoch", "at", "expires_at")


# -------------------------------------------------------------------- what an entry has


def fields(client, newest=1):
    """The newest events without what the room itself gives every entry."""
    found = client.events("r", newest=newest)
    for event in found:
        assert (event.pop("v"), event.pop("room"), event.pop("log_seq")) == (1, b"r", client("LEASE.STATS r")["log_seq"])
        assert event.pop("id") == f"{event.pop('n')}-0"
        assert event.pop("gen").encode() == client("LEASE.ROSTER r")["gen"]
    return found


def test_log_13_an_entry_has_what_applies(client):
    """LOG-13 Nobody turned notifications on: each type of event with all of its fields."""
    client.advance(1000)
    client("LEASE.OPEN r u1 DEVICE d SESSION a META x TTL 5000")
    lease = {"session": b"a", "user": b"u1", "device": b"d", "epoch": 1, "user_leases": 1}
    assert fields(client) == [lease | {"type": "opened", "seq": 0, "at": 1000, "expires_at": 6000, "meta": b"x"}]
    client.advance(1000)
    client("LEASE.RENEW r a 1 1 STATE connected OBSERVED 77")
    lease["observed_at"] = 77
    assert fields(client) == [lease | {"type": "state", "seq": 1, "at": 2000, "state": "connected", "expires_at": 7000}]
    client("LEASE.RENEW r a 1 2 META y STATE failed TTL 4000")
    assert fields(client, 2) == [
        lease | {"type": "state", "seq": 2, "at": 2000, "state": "failed", "expires_at": 7000},
        lease | {"type": "updated", "seq": 2, "at": 2000, "meta": b"y"},
    ]
    client("LEASE.OPEN r u1 DEVICE d SESSION b")
    assert fields(client, 2) == [
        lease | {"type": "removed", "seq": 2, "at": 2000, "reason": "superseded", "replaced_by": 2},
        {
            "type": "opened",
            "session": b"b",
            "user": b"u1",
            "device": b"d",
            "epoch": 2,
            "user_leases": 1,
            "seq": 0,
            "at": 2000,
            "expires_at": 32000,
            "replaced": b"a",
        },
    ]
    client("LEASE.LEAVE r b 2 LINGER 500")
    client.advance(700)
    left = {"type": "removed", "session": b"b", "user": b"u1", "device": b"d", "epoch": 2, "user_leases": 0, "seq": 0}
    assert fields(client) == [left | {"at": 2700, "reason": "left", "due": 2500, "lag_ms": 200}]
    client("LEASE.OPEN r u1 DEVICE d SESSION c")
    assert client("LEASE.KICK r USER u1") == 1
    assert fields(client) == [left | {"session": b"c", "epoch": 3, "at": 2700, "reason": "kicked"}]
    client("LEASE.GRANT r u1 READ UNTIL 9000")
    assert fields(client) == [{"type": "granted", "user": b"u1", "at": 2700, "level": "READ", "until": 9000}]
    client("LEASE.REVOKE r u1 DEVICE d")
    assert fields(client) == [{"type": "grant-revoked", "user": b"u1", "device": b"d", "at": 2700}]


def test_log_13_renewals_are_told_on_demand(client):
    """LOG-13 Nobody turned notifications on: `renewed` for every accepted heartbeat, with log-renewals only."""
    client("LEASE.OPEN r u1 SESSION a")
    client("LEASE.RENEW r a 1 1")
    assert client.history("r") == [("opened", b"a", 1)]
    client("LEASE.SETPOLICY r log-renewals yes")
    client.advance(1000)
    client("LEASE.RENEW r a 1 2")
    client("LEASE.RENEW r a 1 2")
    client("LEASE.MRENEW r a 1 3 nobody 1 1 a 1 3")
    assert [(event["type"], event["seq"], event["at"], event["user_leases"]) for event in client.events("r")[1:]] == [
        ("renewed", 2, 1000, 1),
        ("renewed", 3, 1000, 1),
    ]


def test_log_13_messages_are_announced_on_demand(client):
    """LOG-13 Nobody turned notifications on: `message` for every accepted one, with announce-messages only; duplicates are no event."""
    client.advance(1000)
    client("LEASE.OPEN r u1 DEVICE d SESSION a")
    client("LEASE.SEND r a 1 m1 x")
    client("LEASE.POST r bot m1 x")
    assert client.history("r") == [("opened", b"a", 1)]
    client("LEASE.SETPOLICY r announce-messages yes")
    client("LEASE.SEND r a 1 m2 x")
    assert fields(client) == [{"type": "message", "session": b"a", "user": b"u1", "device": b"d", "epoch": 1, "user_leases": 1, "seq": 3, "at": 1000}]
    client("LEASE.POST r bot m2 x")
    assert fields(client) == [{"type": "message", "user": b"bot", "seq": 4, "at": 1000}]
    client("LEASE.SEND r a 1 m2 x")
    client("LEASE.POST r bot m1 x")
    client.refusal("LEASE.POST r bot m1 y")
    assert [(event["n"], event["type"], event["log_seq"]) for event in client.events("r")] == [(1, "opened", 0), (2, "message", 3), (3, "message", 4)]
    client("LEASE.SETPOLICY r precision-ms 60000")
    client("LEASE.SEND r a 1 m3 x")
    assert client.events("r")[-1]["seq"] == 5  # a message's, not a heartbeat's
    client("LEASE.SETPOLICY r precision-ms default")


def test_log_13_each_event_tells_the_newest_message(client):
    """LOG-13 Nobody turned notifications on: `log_seq` is where deliveries to a removed session end."""
    posts = iter(range(1, 100))
    for command in (
        "OPEN r u1 SESSION a",
        "RENEW r a 1 1 STATE failed",
        "RENEW r a 1 2 META x",
        "GRANT r u2 READ",
        "REVOKE r u2",
        "OPEN r u1 SESSION b TTL 1000",
        "KICK r USER u1",
    ):
        client("LEASE." + command)
        client(f"LEASE.POST r u m{next(posts)} x")
    client("LEASE.OPEN r u1 SESSION c TTL 1000")
    client("LEASE.POST r u last x")
    client.advance(1000)
    assert [(event["type"], event["log_seq"]) for event in client.events("r")] == [
        ("opened", 0),
        ("state", 1),
        ("updated", 2),
        ("granted", 3),
        ("grant-revoked", 4),
        ("removed", 5),
        ("opened", 5),
        ("removed", 6),
        ("opened", 7),
        ("removed", 8),
    ]
    client.raw("DEL r")
    wait_until(lambda: client.events("r")[-1]["type"] == "closed")
    assert client.events("r")[-1]["log_seq"] == 8


# -------------------------------------------------------------------- notifications


def test_log_13_no_notifications(client):
    """LOG-13 Nobody turned notifications on: the stream is complete without them, after a restart too."""
    listener = Listener(client.server, flags=None)
    assert client.server.call("CONFIG GET notify-keyspace-events") == {b"notify-keyspace-events": b""}
    for number in range(5):
        client("LEASE.OPEN", "r", f"u{number}", "SESSION", f"s{number}", "TTL", 1000 + number)
    client("LEASE.SEND r s0 1 m1 x")
    client.advance(2000)
    assert listener() == []
    assert client.history("r")[5:] == [("removed", b"s%d" % number, 1, "expired") for number in range(5)]


def test_log_13_one_notification_a_change(client):
    """LOG-13 Nobody turned notifications on: with `KEd` one per change on the room key, none when nothing changed."""
    listener = Listener(client.server)
    steps = (
        ("OPEN r u1 SESSION a", ["opened"]),
        ("OPEN r u1 SESSION a", []),
        ("OPEN r u1 SESSION b NX", []),
        ("OPEN r u2 SESSION a", []),
        ("SEND r a 1 m1 x", ["message"]),
        ("SEND r a 1 m1 x", []),
        ("SEND r a 1 m1 y", []),
        ("SEND r a 2 m2 x", []),
        ("POST r u9 m1 x", ["message"]),
        ("POST r u9 m1 x", []),
        ("ACK r a 1 1", []),
        ("MARK r u1 default QUEUED 2", []),
        ("HOLD r h", []),
        ("TRIM r", []),
        ("UNHOLD r h", []),
        ("TRIM r", []),
        ("REPLAY r a 1 * 0", []),
        ("SNAPSHOT r a 1", []),
        ("LAG r", []),
        ("HOLDS r", []),
        ("STATS r", []),
        ("SETPOLICY r announce-messages yes", []),
        ("SEND r a 1 m3 x", ["message"]),
        ("SETPOLICY r announce-messages default", []),
        ("RENEW r a 1 1", []),
        ("RENEW r a 1 1", []),
        ("RENEW r a 9 9", []),
        ("MRENEW r a 1 2", []),
        ("RENEW r a 1 3 STATE failed", ["state"]),
        ("RENEW r a 1 4 STATE failed", []),
        ("RENEW r a 1 5 META x", ["updated"]),
        ("RENEW r a 1 6 META x", []),
        ("RENEW r a 1 7 STATE connected META y", ["state", "updated"]),
        ("OPEN r u1 SESSION b", ["superseded", "opened"]),
        ("LEAVE r a 1", []),
        ("LEAVE r b 2 LINGER 5000", []),
        ("LEAVE r b 2", ["left"]),
        ("LEAVE r b 2", []),
        ("OPEN r u3 SESSION c", ["opened"]),
        ("RENEW r c 1 1 STATE closed", ["left"]),
        ("KICK r USER u1", []),
        ("OPEN r u4 DEVICE d SESSION d", ["opened"]),
        ("OPEN r u4 DEVICE e SESSION e", ["opened"]),
        ("KICK r USER u4", ["kicked", "kicked"]),
        ("GRANT r u8 READ", ["granted"]),
        ("GRANT r u8 READ VERSION 3", []),
        ("GRANT r u8 WRITE VERSION 3", []),
        ("OPEN r u8 SESSION h", ["opened"]),
        ("REVOKE r u8", ["revoked", "grant-revoked"]),
        ("REVOKE r u8", []),
        ("REVOKE r u8 DEVICE d", ["grant-revoked"]),
        ("OPEN r u8", []),
        ("GRANT r u8 READ", ["granted"]),
        ("GRANTS r", []),
        ("REAP r", []),
        ("SETPOLICY r tombstone-ms 5000", []),
        ("GET r a", []),
        ("ROSTER r", []),
        ("COUNT r", []),
        ("INSPECT r", []),
    )
    for command, heard in steps:
        client.pipeline("LEASE." + command)
        assert listener() == [(b"r", "lease." + event) for event in heard], command

    client("LEASE.OPEN r u5 SESSION f TTL 1000")
    client("LEASE.OPEN r u6 SESSION g")
    client("LEASE.LEAVE r g 1 LINGER 2000")
    listener()
    client.advance(1000)
    assert listener() == [(b"r", "lease.expired")]
    assert client("LEASE.GET r f")["reason"] == b"expired"
    client.advance(1000)
    assert listener() == [(b"r", "lease.left")]
    client.raw("DEL r")
    assert wait_until(listener) == [(b"r", "lease.closed")]


@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1})
@pytest.mark.parametrize("existing", (True, False), ids=("existing", "missing"))
@pytest.mark.ways("plain-resp2", "plain-resp3")
def test_log_12_a_timers_event_wakes_blocked_readers(client, existing):
    """LOG-12 A timer's event wakes blocked readers: on an event stream that is there, and on one that is not."""
    client("LEASE.OPEN r u1 SESSION a TTL 200")
    if not existing:
        client.raw("DEL", EV)
    start = time.monotonic()
    woken = client.raw("XREAD", "BLOCK", 2000, "STREAMS", EV, "$")
    assert time.monotonic() - start < 1
    ((_, ((id, found),)),) = woken.items() if isinstance(woken, dict) else woken
    event = entry(id, found)
    assert (event["type"], event["reason"], event["session"], event["n"]) == ("removed", "expired", b"a", 2)


# -------------------------------------------------------------------- trimming, and readers behind it


def follow(client, position, present):
    """What every reader does: sessions present, after the events behind `position`; where `n` jumps the roster tells."""
    for event in client.events("r"):
        if event["n"] <= position:
            continue
        if event["n"] != position + 1:
            page = client("LEASE.ROSTER r")
            return {lease["session"] for lease in page["leases"]}, "roster"
        position = event["n"]
        (present.add if event["type"] == "opened" else present.discard)(event["session"])
    return present, "events"


@pytest.mark.server(redis={"stream-node-max-entries": 1})
@pytest.mark.parametrize("first, way_to_know", ((2, "events"), (3, "events"), (4, "roster")))
def test_log_04_trimmed_at_a_removal(client, first, way_to_know):
    """LOG-04 Trimmed exactly at a removal event: the reader before it gets it, or sees by `n` that it is gone."""
    client("LEASE.OPEN r u1 SESSION a")
    client("LEASE.OPEN r u2 SESSION b")
    client("LEASE.LEAVE r a 1")  # event 3, the reader stands at 2
    client("LEASE.OPEN r u3 SESSION c")
    client("LEASE.OPEN r u4 SESSION d")
    client("LEASE.SETPOLICY", "r", "events-maxlen", 6 - first + 1)
    client("LEASE.OPEN r u5 SESSION e")
    assert client.events("r")[0]["n"] == first
    assert follow(client, 2, {b"a", b"b"}) == ({b"b", b"c", b"d", b"e"}, way_to_know)


@pytest.mark.server(redis={"stream-node-max-entries": 1})
@pytest.mark.ways("plain-resp2", "plain-resp3")
def test_log_05_a_consumer_group_over_trimmed_entries(client):
    """LOG-05 Consumer group over trimmed entries: what is pending and gone is acknowledged, the roster tells the state."""
    for number in range(6):
        client("LEASE.OPEN", "r", f"u{number}", "SESSION", f"s{number}")
    client.raw("XGROUP CREATE {r}:events g 0")
    read = client.raw("XREADGROUP GROUP g one STREAMS {r}:events >")
    assert len(entries(read)) == 6
    client("LEASE.LEAVE r s0 1")
    client("LEASE.SETPOLICY r events-maxlen 2")
    client("LEASE.LEAVE r s1 1")
    pending = entries(client.raw("XREADGROUP GROUP g one STREAMS {r}:events 0"))
    assert [id for id, found in pending if not found] == [b"%d-0" % n for n in range(1, 7)]
    client.raw("XACK", EV, "g", *(id for id, _ in pending))
    assert client.raw("XAUTOCLAIM {r}:events g two 0 0")[1:] == [[], []]
    assert {lease["session"] for lease in client("LEASE.ROSTER r")["leases"]} == {b"s2", b"s3", b"s4", b"s5"}
    following = entries(client.raw("XREADGROUP GROUP g one STREAMS {r}:events >"))
    assert [entry(*one)["n"] for one in following] == [7, 8]


def entries(reply):
    """The entries of the one stream in a reply of XREAD or XREADGROUP."""
    ((_, found),) = reply.items() if isinstance(reply, dict) else reply
    return found[0] if isinstance(reply, dict) and found and isinstance(found[0][0], list) else found


@pytest.mark.ways("plain-resp3", "eval-resp2")
def test_log_06_events_maxlen(client):
    """LOG-06 A log that is never trimmed: EV keeps at least events-maxlen entries and at most one node more; 0 keeps all."""
    client("LEASE.SETPOLICY r events-maxlen 100")
    for number in range(250):
        epoch = client(f"LEASE.OPEN r u1 SESSION s{number}")["epoch"]
        assert client.raw("XLEN", EV) <= 200
    assert client.raw("XLEN", EV) >= 100
    assert client.events("r", newest=1)[0]["n"] == client("LEASE.ROSTER r")["event_n"] == 499
    client("LEASE.SETPOLICY r events-maxlen 0")
    before = client.raw("XLEN", EV)
    for number in range(epoch + 1, epoch + 151):
        client(f"LEASE.OPEN r u1 SESSION s{number}")
    assert client.raw("XLEN", EV) == before + 300


# -------------------------------------------------------------------- a stream that is not what the module wrote


def test_log_01_a_deleted_stream(client):
    """LOG-01 One of room, LOG and EV is lost: step 3, `n` and ids keep rising after EV was deleted or trimmed by hand."""
    client("LEASE.OPEN r u1 SESSION a")
    client.raw("DEL", EV)
    client("LEASE.OPEN r u2 SESSION b")
    client.raw("XTRIM", EV, "MAXLEN", 0)
    client("LEASE.LEAVE r a 1")
    assert [(event["id"], event["n"], event["type"]) for event in client.events("r")] == [("3-0", 3, "removed")]
    assert client("LEASE.ROSTER r")["event_n"] == 3


SPOILED = {"exhausted": ["XADD", EV, TOP, "x", "y"], "foreign": ["XADD", EV, "99-0", "x", "y"], "string": ["SET", EV, "x"], "list": None}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_log_11_events_that_cannot_be_written(client, spoiled):
    """LOG-11 No id left; foreign entries ahead: OPEN waits for an operator, all that ends or renews a lease works."""
    for number in range(4):
        client("LEASE.OPEN", "r", f"u{number}", "SESSION", f"s{number}", "TTL", 5000 * (number + 1))
    if spoiled == "list":
        client.raw("DEL", EV)
        client.raw("RPUSH", EV, "x")
    else:
        client.raw(*SPOILED[spoiled])
    refused = ("LEASE.OPEN r u9 SESSION x", "LEASE.OPEN r u0 SESSION y", "LEASE.GRANT r u1 READ")
    rooms = client("LEASE.ROSTER r"), client.raw("TYPE", EV)
    for command in refused:
        assert client.refusal(command) == "LOGSTATE"
    assert (client("LEASE.ROSTER r"), client.raw("TYPE", EV)) == rooms
    assert client("LEASE.GET r x") is None
    assert client("LEASE.OPEN r u0 SESSION s0")["epoch"] == 1  # a retry writes no event
    assert client("LEASE.RENEW r s1 1 1")[0] == b"renewed"
    assert client("LEASE.RENEW r s1 1 2 STATE disconnected")[0] == b"shortened"

    lost = client.server.lease_info()["events_lost"]
    assert lost == 1  # the change of state
    assert client("LEASE.LEAVE r s3 1") == b"left"
    client.advance(5000)
    client.advance(0)
    assert client("LEASE.REAP r") == 0
    assert (client("LEASE.GET r s0")["reason"], client("LEASE.GET r s3")["reason"]) == (b"expired", b"left")
    assert client.server.lease_info()["events_lost"] == lost + 2

    assert client("LEASE.GRANTS r")["grants"] == []
    assert client("LEASE.REVOKE r u9") == [b"ok", 0]
    assert client.server.lease_info()["events_lost"] == lost + 3

    client.raw("RENAME", EV, "aside")
    assert client("LEASE.OPEN r u0 SESSION z")["epoch"] == 2  # the refused ones used no epoch
    (event,) = client.events("r")
    assert (event["type"], event["session"]) == ("opened", b"z")
    assert event["n"] > 4 + lost + 3  # past what was lost
    assert client("LEASE.COUNT r") == [3, 3]


@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1})
@pytest.mark.ways("plain-resp3")
def test_log_11_the_reaper_does_not_spin(client):
    """LOG-11 No id left; foreign entries ahead: step 2 by the timer, which has nothing to do again and again."""
    client("LEASE.OPEN r u1 SESSION a TTL 50")
    client.raw(*SPOILED["exhausted"])
    wait_until(lambda: client.server.lease_info()["active_leases"] == 0)
    used = cpu_seconds(client.server)
    assert client.raw("BLPOP no-such-list 0.5") is None
    assert cpu_seconds(client.server) - used < 0.2
    assert client.server.lease_info()["events_lost"] == 1
    client.raw("DEL", EV)


def cpu_seconds(server):
    with open(f"/proc/{server.process.pid}/stat") as stat:
        return sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


# -------------------------------------------------------------------- closed

CLOSERS = {
    "DEL": ["DEL r"],
    "UNLINK": ["UNLINK r"],
    "SET": ["SET r x", "DEL r"],
    "RENAME": ["SET other x", "RENAME other r", "DEL r"],
    "COPY": ["SET other x", "COPY other r REPLACE", "DEL r other"],
    "GETDEL-by-EVAL": [["EVAL", "return redis.call('DEL', 'r')", 0]],
    "PEXPIRE": ["PEXPIRE r 1"],
    "PEXPIREAT-past": ["PEXPIREAT r 1"],
    "eviction": ["PEXPIRE r 100000000", "CONFIG SET maxmemory-policy volatile-random maxmemory 1", "SET no memory", "CONFIG SET maxmemory 0"],
}


@pytest.mark.parametrize("how", CLOSERS)
@pytest.mark.ways("plain-resp3", "eval-resp2")
def test_log_13_closed(client, how):
    """LOG-13 Nobody turned notifications on (KEYS-04): however the key goes, one `closed` for all that was active, no `removed`."""
    for number in range(5):
        gen = client("LEASE.OPEN", "r", f"u{number}", "SESSION", f"s{number}", "TTL", 5000)["gen"]
    client("LEASE.LEAVE r s0 1")
    listener = Listener(client.server)
    client.connection.pipeline(CLOSERS[how])
    wait_until(lambda: not client.raw("EXISTS r") and client.events("r")[-1]["type"] == "closed")
    assert [event for event in listener() if event[1] == "lease.closed"] == [(b"r", "lease.closed")]
    closed = client.events("r")[6]
    at = closed.pop("at")
    assert closed == {"id": "7-0", "v": 1, "type": "closed", "room": b"r", "n": 7, "gen": gen.decode(), "log_seq": 0, "active": 4}
    assert at == client.now()
    client.advance(10000)  # no timer is left behind
    assert len(client.events("r")) == 7
    assert client.server.lease_info()["active_leases"] == 0

    opened = client("LEASE.OPEN r u1 SESSION z")
    assert (opened["epoch"], opened["event_n"]) == (1, 8)
    assert opened["gen"] != gen
    assert client.refusal("LEASE.RENEW r s2 1 1") == "STALE unknown"


def test_log_13_closed_counts_what_is_overdue(client):
    """LOG-13 Nobody turned notifications on: what is past its deadline and not removed yet goes with `closed` as well."""
    client("LEASE.OPEN r u1 SESSION a TTL 1000")
    client("LEASE.OPEN r u2 SESSION b")
    client.held(1000, "DEL r")
    closed = wait_until(lambda: [event for event in client.events("r") if event["type"] == "closed"])
    assert [event["active"] for event in closed] == [2]
    assert client.history("r")[:2] == [("opened", b"a", 1), ("opened", b"b", 1)]
    assert len(client.events("r")) == 3


def test_log_13_closed_and_opened_in_one_transaction(client):
    """LOG-13 Nobody turned notifications on: a room deleted and opened again at once; `closed` belongs to the former gen."""
    former = client("LEASE.OPEN r u1 SESSION a")["gen"]
    _, opened = client.transaction("DEL r", "LEASE.OPEN r u1 SESSION a2")
    (closed,) = wait_until(lambda: [event for event in client.events("r") if event["type"] == "closed"])
    assert (closed["gen"], closed["active"]) == (former.decode(), 1)
    assert opened["gen"] != former
    assert sorted((event["n"], event["id"]) for event in client.events("r")) == [(1, "1-0"), (2, "2-0"), (3, "3-0")]
    assert client("LEASE.COUNT r") == [1, 1]


def test_log_13_no_closed(client):
    """LOG-13 Nobody turned notifications on: none for FLUSHDB, RENAME, MOVE and an empty room's end."""
    for name, command in (("f", "FLUSHDB"), ("n", "RENAME n elsewhere"), ("m", "MOVE m 1")):
        client("LEASE.OPEN", name, "u", "SESSION", "a")
        client.server.connect()(*command.split())
        client.advance(10)
        assert "closed" not in [event["type"] for event in client.events(name)], command
    client.server.aside |= {(0, b"elsewhere"), (1, b"m")}
    client("LEASE.OPEN e u SESSION a")
    client("LEASE.LEAVE e a 1")
    client.advance(600000 + 3600000 + 1)
    assert client.raw("EXISTS e") == 0
    assert client.history("e") == [("opened", b"a", 1), ("removed", b"a", 1, "left")]


# -------------------------------------------------------------------- events-scope


def shared(client, stream):
    """Entries of a shared stream: (room, n, type, session), in order."""
    found = [entry(*one) for one in client.raw("XRANGE", stream, "-", "+")]
    assert all(int(event["id"].split("-")[0]) > 1600000000000 for event in found)  # ids are times of the server, whatever our clock
    return [(event["room"], event["n"], event["type"], event.get("session")) for event in found]


def after(client, stream, room):
    """The page of ROSTER, and what the stream holds behind the position it tells."""
    page = client("LEASE.ROSTER", room)
    return page, client.raw("XRANGE", stream, b"(" + page["event_id"], "+")


@pytest.mark.server(lease={"events-scope": "tag"})
def test_log_13_scope_tag(client):
    """LOG-13 Nobody turned notifications on: with events-scope tag one stream a hash tag; rooms without one keep their own."""
    client.server.aside |= {(0, b"x{t}y"), (0, b"{t}z"), (0, b"r")}
    for room in ("x{t}y", "{t}z", "r"):
        client("LEASE.OPEN", room, "u", "SESSION", "a", "TTL", 5000)
    page, behind = after(client, "{t}:lease:events", "x{t}y")
    assert (page["event_n"], behind) == (1, [])
    client("LEASE.LEAVE {t}z a 1")
    client.advance(5000)
    assert shared(client, "{t}:lease:events") == [
        (b"x{t}y", 1, "opened", b"a"),
        (b"{t}z", 1, "opened", b"a"),
        (b"{t}z", 2, "removed", b"a"),
        (b"x{t}y", 2, "removed", b"a"),
    ]
    assert len(client.raw("XRANGE", "{t}:lease:events", b"(" + page["event_id"], "+")) == 2
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "expired")]
    assert client.raw("EXISTS x{t}y:events {t}z:events {r}:lease:events lease:events") == 0
    client.raw("DEL x{t}y")
    wait_until(lambda: shared(client, "{t}:lease:events")[-1] == (b"x{t}y", 3, "closed", None))


@pytest.mark.server(lease={"events-scope": "node"})
def test_log_13_scope_node(client):
    """LOG-13 Nobody turned notifications on: with events-scope node one stream a database."""
    other = Client(client.server, client.way, db=1)
    client.server.aside |= {(0, b"r"), (0, b"x{t}y"), (1, b"r")}
    for caller, room in ((client, "r"), (client, "x{t}y"), (other, "r")):
        caller("LEASE.OPEN", room, "u", "SESSION", "a", "TTL", 5000)
    page, behind = after(client, "lease:events", "r")
    assert (page["event_n"], behind) == (1, [])
    client.advance(5000)
    assert shared(client, "lease:events") == [
        (b"r", 1, "opened", b"a"),
        (b"x{t}y", 1, "opened", b"a"),
        (b"r", 2, "removed", b"a"),
        (b"x{t}y", 2, "removed", b"a"),
    ]
    assert shared(other, "lease:events") == [(b"r", 1, "opened", b"a"), (b"r", 2, "removed", b"a")]
    assert len(client.raw("KEYS *")) == 3


@pytest.mark.server(lease={"events-scope": "node", "shared-events-maxlen": 100, "events-maxlen": 1})
@pytest.mark.ways("plain-resp3")
def test_log_13_shared_streams_have_their_own_limit(client):
    """LOG-13 Nobody turned notifications on (LOG-06): a shared stream is held to shared-events-maxlen, at most one node over."""
    for number in range(300):
        client.server.aside.add((0, b"r%d" % (number % 10)))
        client("LEASE.OPEN", f"r{number % 10}", "u", "SESSION", f"s{number}")
    assert 100 <= client.raw("XLEN lease:events") <= 200


@pytest.mark.no_restart("a restarted node waits for its cluster")
def test_log_13_scope_node_in_a_cluster(start):
    """LOG-13 Nobody turned notifications on (API-07): no shared stream of a node in a cluster; the module is not loaded."""
    with pytest.raises(AssertionError, match="events-scope"):
        start(lease={"events-scope": "node"}, redis={"cluster-enabled": "yes"})
    server = start(lease={"events-scope": "tag"}, redis={"cluster-enabled": "yes"})
    server.call("CLUSTER ADDSLOTSRANGE 0 16383")
    wait_until(lambda: b"cluster_state:ok" in server.call("CLUSTER INFO"))
    client = Client(server, Way("plain", 3))
    server.aside.add((0, b"x{t}y"))
    client("LEASE.OPEN x{t}y u SESSION a")
    slots = {client.raw("CLUSTER", "KEYSLOT", key) for key in client.raw("KEYS *")}
    assert slots == {client.raw("CLUSTER KEYSLOT x{t}y")}
    assert client.raw("EXISTS {t}:lease:events") == 1
