"""GROWTH: a day of churn leaves nothing behind; what goes, goes when the contract says."""

import random

import pytest

MINUTE, HOUR = 60000, 3600000
USERS = 60
# Windows that a day sees the end of many times over; the others are the defaults.
SETTINGS = {"retain-ms": 10 * MINUTE, "cursor-ms": HOUR, "events-maxlen": 100}


class Day:
    """People come and go in a hall that is always open, and in calls that last a minute. Every reconnect is a device never seen before."""

    def __init__(self, client, seed):
        self.client, self.dice = client, random.Random(seed)
        self.minute, self.lasting = 0, {}  # sessions that still send heartbeats: seq by (session, epoch)

    def __call__(self):
        """One minute, in which each user of the hall comes anew."""
        self.minute += 1
        now = self.client.now()
        self.beat()
        people = [f"user-{number}" for number in range(USERS)]
        opened = self.client.pipeline(*(f"LEASE.OPEN hall {user} DEVICE tab-{self.minute} TTL 90000 META {user}" for user in people))
        sessions = [(reply["session"].decode(), reply["epoch"]) for reply in opened]
        self.lasting |= {session: 0 for session in sessions if self.dice.random() < 0.5}
        commands = [f"LEASE.SEND hall {session} {epoch} m-{self.minute} hello" for session, epoch in sessions[::3]]
        commands += [f"LEASE.ACK hall {session} {epoch} 1" for session, epoch in sessions[::2]]
        commands += [f"LEASE.MARK hall {user} tab-{self.minute} QUEUED 1" for user in people[1::4]]
        commands += [f"LEASE.GRANT hall guest-{self.minute}-{number} READ UNTIL {now + self.dice.randrange(1, 30) * MINUTE}" for number in range(5)]
        commands += [f"LEASE.LEAVE hall {session} {epoch} LINGER 5000" for session, epoch in sessions[1::5]]
        # A mark, and the grant that lifts it ten minutes later.
        commands += [f"LEASE.REVOKE hall guest-{self.minute}-0 DEVICE d", f"LEASE.GRANT hall guest-{self.minute - 10}-0 READ UNTIL {now + MINUTE}"]
        commands += self.call(f"call-{self.minute}", now)
        refused = [(command, reply) for command, reply in zip(commands, self.client.pipeline(*commands)) if isinstance(reply, Exception)]
        assert not refused, refused[:3]
        self.client.advance(MINUTE)

    def beat(self):
        """Half of those who are here stay on for another minute, the others fall silent."""
        self.lasting = {session: seq + 1 for session, seq in self.lasting.items() if self.dice.random() < 0.5}
        self.client.pipeline(*(f"LEASE.RENEW hall {session} {epoch} {seq}" for (session, epoch), seq in self.lasting.items()))

    def call(self, room, now):
        yield from (f"LEASE.OPEN {room} user-{number} TTL 30000" for number in range(3))
        yield from (f"LEASE.POST {room} bot m-{number} hello" for number in range(3))
        yield f"LEASE.MARK {room} user-1 default WRITTEN 3"
        yield f"LEASE.GRANT {room} user-2 READ UNTIL {now + MINUTE}"
        yield f"LEASE.KICK {room} USER user-0"


def level(client):
    """What is there: memory in kB, and how many of everything."""
    server, stats = client.server, client("LEASE.STATS hall") or {}
    info = server.lease_info()
    names = [name for name in client.raw("KEYS *") if not name.endswith((b":events", b":log"))]
    used = sum(client("MEMORY", "USAGE", name, "SAMPLES", 0) for name in names)
    memory = server.info("memory")
    return {
        "used_memory": memory["used_memory"] // 1024,
        "dataset": memory["used_memory_dataset"] // 1024,
        "rooms_memory": used // 1024,
        "rooms": info["rooms"],
        "leases": info["active_leases"],
        "tombstones": info["tombstones"],
        "dedupe": info["dedupe_records"],
        "cursors": stats.get("cursors", 0),
        "keys": client.raw("DBSIZE"),
    }


def churn(client, hours):
    """The level after each hour."""
    day, levels = Day(client, hours), []
    for _hour in range(hours):
        for _ in range(60):
            day()
        levels.append(level(client))
        expire_streams(client)
    return levels


def fall_silent(client):
    """Nobody comes any more. Guests whose marks nobody has lifted keep the hall, until they are granted access and that ends."""
    for _ in range(122):  # the longest: a cursor's hour, and the hour that the room it leaves empty stays
        client.advance(MINUTE)
    silent = level(client)
    assert {name: silent[name] for name in ("rooms", "leases", "tombstones", "dedupe", "cursors")} == {
        "rooms": 1,
        "leases": 0,
        "tombstones": 0,
        "dedupe": 0,
        "cursors": 0,
    }
    marked = client("LEASE.GRANTS hall COUNT 1000")["grants"]
    assert [record["devices"] for record in marked] == [[b"d"]] * 10
    client.pipeline(*(["LEASE.GRANT", "hall", record["user"], "READ", "UNTIL", client.now() + 1] for record in marked))
    client.advance(1)
    client.advance(HOUR - 1)
    assert client.server.lease_info()["rooms"] == 1
    client.advance(1)
    expire_streams(client)
    gone = level(client)
    assert gone["keys"] == 0
    return gone


@pytest.mark.load
@pytest.mark.ways("plain-resp3")
@pytest.mark.server(lease=SETTINGS, redis={"slowlog-log-slower-than": -1})
@pytest.mark.no_restart("an empty server has nothing to load")
def test_growth_a_day_of_churn(client, figure):
    """GROWTH A day of churn: memory keeps its level, and a long day leaves no more behind than a short one."""
    churn(client, 2)  # buffers of a connection and the like are there for good after that
    short = fall_silent(client)
    hours = churn(client, 24)
    for hour in (2, 8, 24):
        figure(
            f"after {hour} h",
            "used_memory {used_memory}, rooms {rooms_memory} kB; {leases} leases, {tombstones} tombstones, {keys} keys".format(**hours[hour - 1]),
        )
    for name in hours[0]:
        early, late = max(hour[name] for hour in hours[2:8]), max(hour[name] for hour in hours[-6:])
        assert late <= early * 1.1 + 16, f"{name} grows: {early} in the third to eighth hour, {late} in the last six"
    assert fall_silent(client)["dataset"] <= short["dataset"] + 32


def expire_streams(client):
    """Event streams of rooms that are gone run out by Redis' own clock, which nobody can set: their time is taken for over."""
    for name in client.raw("KEYS *:events"):
        if client.raw("PTTL", name) > 0:
            client.raw("DEL", name)


@pytest.mark.server(lease={"tombstone-ms": 1000, "dedup-ms": 5000, "retain-ms": 3000, "cursor-ms": 9000, "empty-room-ms": 20000})
def test_growth_each_thing_goes_in_its_time(client):
    """GROWTH Each thing goes in its time: to the millisecond, in this order, and the room's key last."""

    def left():
        stats, info = client("LEASE.STATS r"), client.server.lease_info()
        return stats and (
            stats["leases"],
            info["tombstones"],
            client.raw("EXISTS {r}:log") and client.raw("XLEN {r}:log"),
            info["dedupe_records"],
            len(client("LEASE.GRANTS r")["grants"]),
            stats["cursors"],
        )

    epoch = client("LEASE.OPEN r u1 DEVICE d1 SESSION a TTL 1500")["epoch"]
    client("LEASE.SEND", "r", "a", epoch, "m1", "x")
    client("LEASE.ACK", "r", "a", epoch, 1)
    client("LEASE.GRANT r u2 READ UNTIL 7000")
    everything = [1, 0, 1, 1, 1, 1]
    for at, place, value in ((1500, 0, 0), (2500, 1, 0), (3000, 2, 0), (5000, 3, 0), (7000, 4, 0), (9000, 5, 0)):
        client.advance(at - 1 - client.now())
        assert left() == tuple(everything), f"1 ms before {at}"
        client.advance(1)
        everything[place] = value
        if at == 1500:
            everything[1] = 1
        assert left() == tuple(everything), f"at {at}"
    client.advance(19999)
    assert client.raw("EXISTS r") == 1
    client.advance(1)
    assert client.raw("EXISTS r {r}:log") == 0 and 0 < client.raw("PTTL {r}:events") <= 20000


@pytest.mark.server(lease={"tombstone-ms": 0, "dedup-ms": 0, "empty-room-ms": 0})
def test_growth_a_mark_goes_by_a_grant_only(client):
    """GROWTH Each thing goes in its time: a mark keeps its room for good, until a grant lifts it and has ended."""
    client("LEASE.OPEN r u1 TTL 1000")
    client("LEASE.REVOKE r u1")
    client.advance(10 * 365 * 24 * HOUR)
    assert client.refusal("LEASE.OPEN r u1") == "DENIED revoked"
    client("LEASE.GRANT", "r", "u1", "READ", "UNTIL", client.now() + 1000)
    client.advance(999)
    assert client.raw("EXISTS r") == 1
    client.advance(1)
    assert client.raw("EXISTS r") == 0
