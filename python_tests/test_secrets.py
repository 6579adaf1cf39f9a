"""SEC-03 Ids in logs, errors, rosters: what tells of users and tokens nowhere, and of movements only as precisely as the policy says."""

import json
import random

import pytest

from golden import crc64
from harness import Refused, Way
from harness.resp import words

PLAIN = Way("plain", 3)

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
