"""DISK: persistence, restart, bad payloads."""

import pathlib
import random
import re
import shutil

import pytest

from golden import crc64, make
from harness import Client, Refused, Way, rooms, wait_until

PLAIN = Way("plain", 3)
AOF = {"appendonly": "yes", "appendfsync": "always"}
GOLDEN = pathlib.Path(__file__).parent / "golden"


def on(server):
    return Client(server, PLAIN)


def down_for(server, ms, how="nosave"):
    """The server is away while `ms` pass."""
    server.stop(how)
    server.set_clock(server.clock + ms)
    server.start()
    return on(server)


def removed(client, room="r"):
    return [(event["session"], event["reason"]) for event in client.events(room) if event["type"] == "removed"]


# -------------------------------------------------------------------- restarts


@pytest.mark.parametrize("grace", (-1, 0, 5000))
@pytest.mark.parametrize("away", (20000, 40000))
def test_disk_01_aof_replay(start, away, grace):
    """DISK-01 AOF replay revives or immortalises: it does neither, and two replays give one digest."""
    server = start(redis=AOF, lease={"recovery-grace-ms": grace})
    client = on(server)
    for command in (
        "OPEN r u1 SESSION a",
        "OPEN r u2 SESSION b",
        "LEAVE r b 1",
        "OPEN r u3 SESSION c",
        "OPEN r u3 SESSION c2 TTL 3000000",
        "OPEN r u4 SESSION d",
        "KICK r USER u4",
    ):
        client("LEASE." + command)
    client.advance(10000)
    assert client("LEASE.RENEW r a 1 1") == [b"renewed", 30000, 40000]
    client = down_for(server, away, "kill")
    digest = server.call("DEBUG DIGEST")
    lease = client("LEASE.GET r a")
    assert lease["state"] == b"active" and 0 < lease["left_ms"] <= 30000
    assert grace != -1 or lease["left_ms"] == 30000
    client = down_for(server, 1000, "kill")
    assert server.call("DEBUG DIGEST") == digest
    assert [client(f"LEASE.GET r {session}")["reason"] for session in "bcd"] == [b"left", b"superseded", b"kicked"]
    assert client("LEASE.COUNT r") == [2, 2]
    client.advance(29999 if grace == -1 else 0)
    assert grace != -1 or client("LEASE.GET r a")["state"] == b"active"
    client.advance(30000)
    assert removed(client)[3:] == [(b"a", "expired")]
    assert client("LEASE.RENEW r c2 2 1")[0] == b"renewed"


@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1, "tombstone-ms": 1000, "dedup-ms": 1000, "retain-ms": 3000})
def test_disk_02_the_index_after_a_load(server):
    """DISK-02 The expiry index after a load: from cold, all leases are removed, tombstones, messages and dedupe records age out, with no room touched."""
    client = on(server)
    client.pipeline(*(f"LEASE.OPEN r{number % 50} u{number % 7} DEVICE {number} SESSION s{number} TTL {2000 + number}" for number in range(1000)))
    client.pipeline(*(f"LEASE.SEND r{number % 50} s{number} 1 m{number} x" for number in range(0, 1000, 3)))
    client.pipeline(*(f"LEASE.LEAVE r{number % 50} s{number} 1" for number in range(0, 1000, 10)))
    server.restart("save")
    assert 0 < server.lease_info()["active_leases"] <= 900
    assert server.lease_info()["dedupe_records"] == 334
    wait_until(lambda: server.lease_info()["ended_expired"] == 900, 10)
    wait_until(lambda: server.lease_info()["tombstones"] == 0, 10)
    wait_until(lambda: server.lease_info()["dedupe_records"] == 0, 10)
    assert [on(server).messages(f"r{room}") for room in range(50)] == [[]] * 50
    ended = [session for room in range(50) for session, _ in removed(on(server), f"r{room}")]
    assert sorted(ended) == sorted(b"s%d" % number for number in range(1000))


@pytest.mark.parametrize("grace, lasts", ((0, 0), (-1, 30000), (5000, 5000)))
def test_disk_03_run_out_while_down(start, grace, lasts):
    """DISK-03 Leases that ran out while the server was down: one removal each, when the grace is over."""
    server = start(lease={"recovery-grace-ms": grace})
    client = on(server)
    client.pipeline(*(f"LEASE.OPEN r u{number} SESSION s{number}" for number in range(100)))
    client = down_for(server, 60000, "save")
    client.advance(lasts // 2)
    client = down_for(server, 1000, "save")
    if lasts:
        client.advance(lasts - 1)
        assert client("LEASE.COUNT r") == [100, 100]
        client.advance(1)
    assert client("LEASE.COUNT r") == [0, 0]
    client.advance(0)
    ended = [event for event in client.events("r") if event["type"] == "removed"]
    assert sorted(event["session"] for event in ended) == sorted(b"s%d" % number for number in range(100))
    assert {event["reason"] for event in ended} == {"expired"}
    assert {event["due"] for event in ended} == {30000 if grace == 0 else client.now()}
    client = down_for(server, 1000, "save")
    client.advance(0)
    assert len(removed(client)) == 100


def everything_filled(client):
    """A room with something in every place, and two leases about to run out, one of them lingering."""
    make.fill(client)
    client("LEASE.OPEN r u9 SESSION overdue TTL 1000")
    client("LEASE.OPEN r u9 DEVICE d SESSION gone TTL 1000")
    client("LEASE.LEAVE r gone 1 LINGER 900")


@pytest.mark.server(clock=10000000, redis={"save": "3600 1"})
@pytest.mark.parametrize("preamble", (None, "no"), ids=("rdb", "aof"))
def test_disk_03_saved_by_a_later_clock(server, preamble):
    """DISK-03 Leases that ran out while the server was down: by a clock that stood further on; the silent ones end all the same."""
    server.call("LEASE.OPEN r u1 SESSION a")
    server.call("LEASE.OPEN r u2 SESSION b")
    if preamble:
        server.rewrite_aof(preamble)
    server.stop("nosave" if preamble else "save")
    server.set_clock(0)
    server.start()
    server.advance(30001)
    assert server.lease_info()["ended_expired"] == 2


@pytest.mark.parametrize("preamble", ("no", "yes"))
def test_disk_04_rewrite(start, preamble):
    """DISK-04 AOF rewrite without RDB preamble (and with one): every structure filled, some leases overdue in the child."""
    server = start(redis=AOF | {"aof-use-rdb-preamble": preamble})
    client = on(server)
    everything_filled(client)
    client.advance(500)
    client.held(500, "BGREWRITEAOF", "LEASE.COUNT r")
    wait_until(lambda: not server.info("persistence")["aof_rewrite_in_progress"])
    assert server.info("persistence")["aof_last_bgrewrite_status"] == "ok"
    client.advance(0)
    before, log = rooms.scan(server), client.messages("r")
    assert [seq for seq, _ in log] == [3, 4, 5]
    gen, highest = before[0, b"r"]["gen"], max(lease["epoch"] for lease in before[0, b"r"]["leases"].values())
    assert removed(client)[-2:] == [(b"gone", "left"), (b"overdue", "expired")]
    client = down_for(server, 0, "kill")
    after = rooms.scan(server)
    for name, room in before.items():
        assert steady(after[name]) == steady(room)
    assert client.refusal("LEASE.RENEW r bound 1 1") == "DENIED token"
    assert client("LEASE.RENEW r bound 1 1 TOKEN s3cret")[0] == b"renewed"
    assert client("LEASE.OPEN r nobody-yet")["epoch"] > highest + 1024
    messages_go_on(client, gen, log)
    client.advance(60000)
    assert sorted(removed(client)).count((b"overdue", "expired")) == 1


def messages_go_on(client, gen, log):
    """Ids are known, of messages that are trimmed and of those whose window is over, readers of the gen before read on, holds keep, access is as it was."""
    assert client.messages("r") == log
    for number in (2, 3):
        assert client.refusal(f"LEASE.SEND r active 1 m{number} y") == "CONFLICT message"
        retried = client(f"LEASE.SEND r active 1 m{number} x")
        assert (retried["status"], retried["seq"]) == (b"duplicate", number)
    assert client("LEASE.POST r bot m1 posted")["seq"] == 4
    read = client("LEASE.REPLAY", "r", "active", 1, gen, 3)
    assert (read["status"], read["next"], [seq for seq, _ in read["entries"]]) == (b"ok", 5, [4, 5])
    assert client.refusal("LEASE.ACK r active 1 6") == "ERR"
    assert [client(command) for command in ("LEASE.ACK r active 1 1", "LEASE.MARK r u2 default QUEUED 1", "LEASE.MARK r u3 phone WRITTEN 1")] == [
        2,
        5,
        4,
    ]
    assert client("LEASE.SEND r active 1 m4 x")["seq"] == 6
    assert client("LEASE.TRIM r") == 0
    assert client("LEASE.GRANT r u12 READ VERSION 3") == b"stale"
    assert client.refusal("LEASE.OPEN r u13") == client.refusal("LEASE.OPEN r u3 DEVICE tablet") == "DENIED revoked"


@pytest.mark.parametrize("preamble", ("no", "yes"))
def test_disk_04_a_big_room(start, preamble):
    """DISK-04 AOF rewrite without RDB preamble (and with one): a room too big to be written at once; gauges count it once."""
    server = start(redis=AOF | {"aof-use-rdb-preamble": preamble})
    client = on(server)
    client.pipeline(
        *(f"LEASE.OPEN r u{number % 9} DEVICE {number} SESSION s{number} META x TTL {1000 if number % 3 else 60000}" for number in range(1500))
    )
    client.pipeline(*(f"LEASE.POST r u{number % 7} m{number} {number}" for number in range(5000)))
    client.pipeline(*(f"LEASE.GRANT r granted{number} READ VERSION {number}" for number in range(1500)))
    client.pipeline(*(f"LEASE.MARK r granted{number} default QUEUED {number + 1}" for number in range(1500)))
    client.pipeline(*(f"LEASE.HOLD r case{number}" for number in range(100)))
    client.advance(1000)
    server.rewrite_aof(preamble)
    before, gauges = rooms.scan(server), server.lease_info()
    client = down_for(server, 0, "kill")
    assert {name: steady(room) for name, room in rooms.scan(server).items()} == {name: steady(room) for name, room in before.items()}
    for name in ("active_leases", "users", "rooms", "tombstones", "dedupe_records"):
        assert server.lease_info()[name] == gauges[name], name
    retried = client.pipeline(*(f"LEASE.POST r u{number % 7} m{number} {number}" for number in range(5000)))
    assert [(one["status"], one["seq"]) for one in retried] == [(b"duplicate", seq) for seq in range(1, 5001)]
    client.advance(60000)
    assert server.lease_info()["active_leases"] == 0
    assert len(set(removed(client))) == 1500


def steady(room):
    """What no load may change."""
    known = {name: room[name] for name in ("policy", "count", "grants", "holders", "holds")}
    known |= {name: room["stats"][name] for name in ("log_seq", "log_oldest", "dedupe")}
    return known | {
        "leases": {session: {name: value for name, value in lease.items() if name not in rooms.DEADLINE} for session, lease in room["leases"].items()}
    }


# -------------------------------------------------------------------- payloads


def mutated(dump, dice):
    """A DUMP payload with a fault in it and a checksum that fits."""
    body = bytearray(dump[:-10])
    kind = dice.randrange(6)
    at = dice.randrange(10, len(body))
    if kind == 0:
        body[at] ^= 1 << dice.randrange(8)
    elif kind == 1:
        body[at] = dice.choice((0, 1, 0x7F, 0x80, 0x81, 0xBF, 0xC0, 0xFF))
    elif kind == 2:
        del body[at:]
    elif kind == 3:
        del body[at : at + dice.randrange(1, 16)]
    elif kind == 4:
        body[at:at] = dice.randbytes(dice.randrange(1, 16))
    else:
        for _ in range(dice.randrange(2, 8)):
            body[dice.randrange(10, len(body))] = dice.randrange(256)
    return crc64.sealed(bytes(body) + dump[-10:-8])


PROBES = (
    "LEASE.ROSTER # ENDED COUNT 10000",
    "LEASE.COUNT #",
    "LEASE.INSPECT #",
    "LEASE.POLICY #",
    "LEASE.OPEN # u1",
    "LEASE.OPEN # u9 SESSION new",
    "LEASE.RENEW # active 1 99",
    "LEASE.RENEW # new 1 1 STATE failed META x",
    "LEASE.SEND # active 1 m3 x",
    "LEASE.SEND # new 1 m9 x",
    "LEASE.POST # bot m9 x",
    "LEASE.REPLAY # active 1 * 0",
    "LEASE.SNAPSHOT # active 1",
    "LEASE.ACK # active 1 1",
    "LEASE.MARK # u2 default WRITTEN 1",
    "LEASE.LAG #",
    "LEASE.HOLDS #",
    "LEASE.UNHOLD # case7",
    "LEASE.TRIM #",
    "LEASE.STATS #",
    "LEASE.GRANTS #",
    "LEASE.GRANT # u13 READ VERSION 9",
    "LEASE.REVOKE # u12",
    "LEASE.LEAVE # new 1",
    "LEASE.KICK # USER u3",
    "LEASE.REAP #",
    "MEMORY USAGE #",
    "OBJECT ENCODING #",
    "COPY # twin REPLACE",
)


def restored(client, payload):
    """Whether the payload made a room; a refused one leaves no key, a room bears every command and can be dumped again."""
    reply, exists = client.pipeline(["RESTORE", "x", 0, payload], "EXISTS x")
    if isinstance(reply, Refused):
        assert (reply.text, exists) == ("ERR Bad data format", 0), payload.hex()
        return False
    client.pipeline(*(probe.replace("#", "x") for probe in PROBES))
    assert client.raw("RESTORE", "y", 0, client.raw("DUMP x")) == b"OK", payload.hex()
    client.pipeline("LEASE.CLOCK ADVANCE 1", "LEASE.REAP y")
    client.raw("DEL x y twin {x}:events {y}:events {twin}:events {x}:log {y}:log {twin}:log")
    return True


@pytest.mark.parametrize("variants", (1000, pytest.param(25000, marks=pytest.mark.load)))
@pytest.mark.parametrize("seed", (1, 2))
def test_disk_05_arbitrary_bytes(server, seed, variants):
    """DISK-05 RESTORE of arbitrary bytes: a clean error and no key, or a valid room; never a crash, nothing leaks."""
    client, dice = on(server), random.Random(seed)
    make.fill(client)
    dump = client.raw("DUMP r")

    def memory_after(number):
        rooms_made = sum(restored(client, mutated(dump, dice)) for _ in range(number))
        assert 0 < rooms_made < number
        return server.info("memory")["used_memory"]

    warm = memory_after(variants)
    assert memory_after(variants) - warm < 65536
    info = server.lease_info()
    assert (info["rooms"], info["active_leases"] + info["tombstones"]) == (1, len(client("LEASE.ROSTER r ENDED COUNT 10000")["leases"]))


def test_disk_05_cut_short(server):
    """DISK-05 RESTORE of arbitrary bytes: no prefix of a payload is a room."""
    client = on(server)
    make.fill(client)
    dump = client.raw("DUMP r")
    for length in range(9, len(dump) - 10):
        reply, exists = client.pipeline(["RESTORE", "x", 0, crc64.sealed(dump[:length] + dump[-10:-8])], "EXISTS x")
        assert isinstance(reply, Refused) and exists == 0, length


def test_disk_07_a_newer_encoding(server):
    """DISK-07 Encoding versions: a newer one is refused by its number, with no key."""
    client = on(server)
    make.fill(client)
    dump = client.raw("DUMP r")
    version = int.from_bytes(dump[2:10], "big") & 1023  # the module id: nine letters of six bits, then the version
    assert dump[:2] == b"\x07\x81" and version >= 1
    newer = dump[:2] + (int.from_bytes(dump[2:10], "big") + 1).to_bytes(8, "big") + dump[10:-8]
    with client.nothing_changes():
        assert client.refusal("RESTORE", "x", 0, crc64.sealed(newer)) == "ERR"
    assert re.search(rf"<lease>.*\b{version + 1}\b", server.log()), "the log tells which version came"


def golden_files():
    """What each version of the encoding left: RDBs, AOFs, payloads of DUMP."""
    return sorted(str(path.relative_to(GOLDEN)) for path in GOLDEN.glob("v*/*") if path.name != "told.json")


@pytest.mark.parametrize("name", golden_files())
def test_disk_07_golden_files(server, name):
    """DISK-07 Encoding versions: what each released encoding wrote loads without loss."""
    golden = GOLDEN / name
    server.aside.add((0, b"r"))
    server.stop()
    if golden.suffix == ".rdb":
        shutil.copy(golden, server.path)
    elif golden.is_dir():
        shutil.copytree(golden / "appendonlydir", server.path / "appendonlydir")
        server.set(appendonly="yes")
    server.set_clock(make.NOW)
    server.start()
    client = on(server)
    alone = golden.suffix == ".dump"  # without the log it was about
    if alone:
        assert client.raw("RESTORE", "r", 0, golden.read_bytes()) == b"OK"
    ((_, room),) = rooms.scan(server).items()
    told = make.read_told(golden.parent)  # what there was to tell in its time
    gen = told.pop("gen", None)
    steady = told.keys() - ({"holds", "messages"} if alone else set())
    assert {name: make.told(room)[name] for name in steady} == {name: told[name] for name in steady}
    if gen:
        knows_its_messages(client, gen, alone)
    assert client.refusal("LEASE.RENEW r bound 1 1") == "DENIED token"
    assert client("LEASE.RENEW r bound 1 1 TOKEN s3cret")[0] == b"renewed"
    assert client("LEASE.OPEN r nobody-yet")["epoch"] > 1024
    client.advance(3600000)
    assert client("LEASE.COUNT r") == [0, 0]


def knows_its_messages(client, gen, alone):
    """Retries are told, in their window and while the message is there; so are readers of an earlier gen."""
    retries = {"LEASE.SEND r active 1 m2 x": 2, "LEASE.POST r bot m1 posted": 4} | ({} if alone else {"LEASE.SEND r active 1 m3 x": 3})
    for command, seq in retries.items():
        retry = client(command)
        assert (retry["status"], retry["seq"]) == (b"duplicate", seq)
    assert client.refusal("LEASE.SEND r active 1 m2 other") == "CONFLICT message"
    if not alone:
        replay = client("LEASE.REPLAY", "r", "active", 1, *gen)
        assert [(seq, entry["id"]) for seq, entry in replay["entries"]] == [(6, b"m4")]
    fresh = client("LEASE.SEND r active 1 m1 x")
    assert (fresh["status"], fresh["seq"]) == (b"accepted", 7)


# -------------------------------------------------------------------- without the module


@pytest.mark.parametrize("store", ("rdb", "aof", "aof-preamble"))
def test_disk_08_without_the_module(server, store):
    """DISK-08 The server starts without the module: nothing of it is in a data set that holds no room."""
    client = on(server)
    everything_filled(client)
    client.raw("FLUSHALL")
    client.raw("SET kept x")
    if store == "rdb":
        server.stop("save")
    else:
        server.rewrite_aof("no" if store == "aof" else "yes")
        server.stop()
    server.config.write_text(re.sub(r"(?m)^loadmodule.*\n", "", server.config.read_text()))
    server.start()
    with pytest.raises(Refused, match="unknown command"):
        server.call("LEASE.COUNT r")
    assert server.call("KEYS *") == [b"kept"]
    server.discard()
