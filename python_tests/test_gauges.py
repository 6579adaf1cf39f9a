"""`INFO lease`: its gauges when they are hard to tell. After each scenario they are held to a full scan by the harness itself."""

import random

import pytest

from harness import Way
from harness.rooms import scan

PLAIN = Way("plain", 3)
ONE_WAY = pytest.mark.ways("plain-resp3")


def parsed(info):
    return {name: int(value) for name, value in (line.split(":") for line in info.decode().splitlines() if ":" in line)}


def gauges_when(client, ms):
    """The gauges once `ms` have passed and before the reaper has run."""
    (info,) = client.held(ms, "INFO lease")
    told = parsed(info)
    return [told[f"lease_{name}"] for name in ("active_leases", "users", "reap_backlog", "tombstones", "rooms")]


def test_gauges_before_the_reaper_has_run(client):
    """An overdue lease is backlog and no longer active; a user goes with the last of its leases in a room."""
    client("LEASE.OPEN r u DEVICE d SESSION a TTL 1000")
    client("LEASE.OPEN r u DEVICE e SESSION b TTL 2000")
    client("LEASE.OPEN r v SESSION c TTL 3000")
    client("LEASE.OPEN q v SESSION c TTL 3000")
    assert gauges_when(client, 999) == [4, 3, 0, 0, 2]
    assert gauges_when(client, 1) == [3, 3, 1, 0, 2]
    assert gauges_when(client, 1000) == [2, 2, 1, 1, 2]
    assert gauges_when(client, 999) == [2, 2, 0, 2, 2]
    assert gauges_when(client, 1) == [0, 0, 2, 2, 2]


@pytest.mark.server(lease={"tombstone-ms": 1000})
def test_tombstones_count_while_a_read_shows_them(client):
    client("LEASE.OPEN r u SESSION a")
    client("LEASE.LEAVE r a 1")
    assert gauges_when(client, 999) == [0, 0, 0, 1, 1]
    assert gauges_when(client, 1) == [0, 0, 0, 0, 1]


def test_dedupe_records_count_while_an_id_is_known(client):
    client("LEASE.SETPOLICY r dedup-ms 1000 retain-count 1")
    for id in ("m1", "m2"):
        client(f"LEASE.POST r u {id} x")
    client("LEASE.TRIM r")
    for ms, known in ((999, 2), (1, 1)):
        info, stats = client.held(ms, "INFO lease", "LEASE.STATS r")
        assert parsed(info)["lease_dedupe_records"] == stats["dedupe"] == known


@ONE_WAY
def test_orphan_rooms(client):
    """Rooms whose log came from another one; no longer once that hold is taken away or the room is gone."""
    for room in "rq":
        client(f"LEASE.POST {room} u m x")
    client.raw("DEL r q")
    assert client.server.lease_info()["orphan_rooms"] == 0
    for orphans, command in ((1, "LEASE.OPEN r u"), (2, "LEASE.HOLD q h"), (2, "LEASE.HOLD r orphan"), (1, "LEASE.UNHOLD q orphan"), (0, "DEL r")):
        client(command)
        assert client.server.lease_info()["orphan_rooms"] == orphans, command


@pytest.mark.server(lease={"tombstone-ms": 1500, "retain-ms": 2000, "dedup-ms": 1000})
@ONE_WAY
@pytest.mark.parametrize("seed", range(5))
def test_gauges_equal_a_scan_at_any_moment(client, seed):
    """A long history in two databases, looked at in between by INFO and by every read there is."""
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(40):
        for _ in range(chance.randrange(12)):
            client.raw("SELECT", chance.randrange(2))
            client.pipeline(something(chance))
        if chance.random() < 0.2:
            client.raw("SWAPDB 0 1")
        compare(client, chance.randrange(2500))
    client.raw("SELECT 0")
    client.server.aside |= {(db, b"r%d" % room) for db in range(2) for room in range(4)}  # SWAPDB took the rooms along


def something(chance):
    room, user, device, session = (f"{kind}{chance.randrange(4)}" for kind in ("r", "u", "d", "s"))
    return chance.choice(
        (
            f"LEASE.OPEN {room} {user} DEVICE {device} TTL {chance.randrange(1000, 4000)}",
            f"LEASE.OPEN {room} {user} DEVICE {device} SESSION {session} TTL {chance.randrange(1000, 4000)}",
            f"LEASE.RENEW {room} {session} 1 {chance.randrange(5)} TTL {chance.randrange(1000, 4000)}",
            f"LEASE.LEAVE {room} {session} 1",
            f"LEASE.LEAVE {room} {session} 1 LINGER {chance.randrange(2000)}",
            f"LEASE.KICK {room} USER {user}",
            f"LEASE.POST {room} {user} m{chance.randrange(20)} x",
            f"LEASE.SEND {room} {session} 1 m{chance.randrange(20)} x",
            f"LEASE.UNHOLD {room} orphan",
            f"DEL {room}",
        )
    )


def compare(client, ms):
    """One transaction: all rooms before and after time has passed, INFO, and how much a REAP then finds."""
    rooms = [(db, f"r{room}") for db in range(2) for room in range(4)]
    roster = [(["SELECT", db], ["LEASE.ROSTER", room, "ENDED", "COUNT", 10000]) for db, room in rooms]
    count = [(["SELECT", db], ["EXISTS", room], ["LEASE.COUNT", room], ["LEASE.STATS", room], ["LEASE.HOLDS", room]) for db, room in rooms]
    reap = [(["SELECT", db], ["LEASE.REAP", room, "COUNT", 10000]) for db, room in rooms]
    before, after = ([reply for step in part for reply in step] for part in (roster, roster))
    replies = iter(client.transaction(*before, ["LEASE.CLOCK", "ADVANCE", ms], "INFO lease", *sum(count, ()), *after, *sum(reap, ())))
    was = [shown(next(replies) and next(replies)) for _ in rooms]
    next(replies)
    info = parsed(next(replies))
    exist, counts, stats, holds = zip(*[(next(replies) and next(replies), *(next(replies) for _ in range(3))) for _ in rooms])
    now = [shown(next(replies) and next(replies)) for _ in rooms]
    reaped = sum(next(replies) and next(replies) for _ in rooms)
    ended = sum(
        lease not in earlier or earlier[lease] == b"ended" for earlier, later in zip(was, now) for lease, state in later.items() if state == b"ended"
    )
    assert (
        info
        | {
            "lease_active_leases": sum(leases for leases, _ in counts),
            "lease_users": sum(users for _, users in counts),
            "lease_rooms": sum(exist),
            "lease_orphan_rooms": sum(b"orphan" in of_room for of_room in holds),
            "lease_tombstones": ended,
            "lease_dedupe_records": sum(of_room["dedupe"] for of_room in stats if of_room),
            "lease_reap_backlog": reaped,
        }
        == info
    )


def shown(page):
    return {(lease["session"], lease["epoch"]): lease["state"] for lease in page["leases"]}


@pytest.mark.parametrize("preamble", ("yes", "no"))
def test_gauges_of_a_room_loaded_in_parts(server, preamble):
    """A saved room comes in parts of some thousand records."""
    server.call.pipeline([f"LEASE.OPEN r u{number} SESSION s{number}".split() for number in range(2500)])
    server.call.pipeline([f"LEASE.LEAVE r s{number} 1".split() for number in range(1200)])
    server.rewrite_aof(preamble)
    server.restart()
    assert present(server) == (1300, 1300, 0, 1)
    assert server.lease_info()["tombstones"] == 1200


@ONE_WAY
def test_gauges_of_a_replica(client):
    """A replica removes nothing by itself, and its index is not put right by a reaper."""
    replica = client.server.replica()
    for number in range(10):
        client(f"LEASE.OPEN r{number} u SESSION a TTL 30000")
    client.advance(20000)
    for number in range(10):
        client(f"LEASE.RENEW r{number} a 1 1")
    replica.in_step()
    replica.call("LEASE.CLOCK SET 40000")
    assert present(replica) == (10, 10, 0, 10)
    client("LEASE.SETPOLICY r0 failed-ms 15000")
    client("LEASE.RENEW r0 a 1 2 STATE failed")  # due earlier than that look had found
    replica.in_step()
    assert present(replica) == (9, 9, 1, 10)
    replica.call("LEASE.CLOCK SET 49999")
    assert present(replica) == (9, 9, 1, 10)
    replica.call("LEASE.CLOCK SET 50000")
    assert present(replica) == (0, 0, 10, 10)
    client.advance(30000)
    replica.in_step()
    assert present(replica) == (0, 0, 0, 10)
    assert replica.lease_info()["tombstones"] == 10


@pytest.mark.server(lease={"tombstone-ms": 5000, "dedup-ms": 1000, "retain-count": 5})
@ONE_WAY
@pytest.mark.parametrize("seed", range(3))
def test_gauges_of_a_replica_that_is_ahead(client, seed):
    """Random traffic at the primary, while the replica's clock runs before the primary's: INFO is what its own reads show."""
    print("seed", seed)
    chance = random.Random(seed)
    replica, overdue = client.server.replica(), 0
    client.server.aside |= {(0, b"r%d" % room) for room in range(4)}  # a session forgotten or deleted may come again
    for _ in range(15):
        for _ in range(12):
            client.pipeline(something(chance))
        replica.in_step()
        now = client.now()
        replica.call("LEASE.CLOCK", "SET", now + chance.randrange(1000, 4000))
        found, info = scan(replica), replica.lease_info()
        live, ended = by_state(found)
        lapsed = ended & by_state(scan(client.server))[0]
        assert (
            info
            | {
                "rooms": len(found),
                "active_leases": len(live),
                "users": len({(room, user) for room, user, *_ in live}),
                "reap_backlog": len(lapsed),
                "tombstones": len(ended - lapsed),
                "dedupe_records": sum(room["stats"]["dedupe"] for room in found.values()),
                "orphan_rooms": sum(b"orphan" in room["holds"] for room in found.values()),
            }
            == info
        )
        overdue += len(lapsed)
        client.advance(replica.now() - now)
    assert overdue > 20


def by_state(found):
    """Of all rooms: live leases, ended ones."""
    leases = [
        (lease["state"] == b"ended", (room, lease["user"], lease["session"], lease["epoch"]))
        for room, shown in found.items()
        for lease in shown["leases"].values()
    ]
    return ({lease for ended, lease in leases if not ended}, {lease for ended, lease in leases if ended})


def present(server):
    info = server.lease_info()
    return tuple(info[name] for name in ("active_leases", "users", "reap_backlog", "rooms"))
