"""NUM: numbers at their edges."""

import re

import pytest

from harness.events import stream

NOW = 5000000  # later than the greatest ttl, so that a ttl taken for a moment would have passed
TTL_MIN, TTL_MAX, MAX = 1000, 3600000, 2**63 - 1
NEVER = (-1, MAX + 1, 2**64 - 1)
OUTSIDE = (0, 1, TTL_MIN - 1, TTL_MAX + 1, MAX)
INSIDE = (TTL_MIN, TTL_MAX)

from_now = pytest.mark.server(clock=NOW)


# -------------------------------------------------------------------- NUM-01


@from_now
def test_num_01_ttl_of_a_new_lease(client):
    """NUM-01 TTL at its edges: OPEN TTL."""
    with client.nothing_changes():
        for ttl in NEVER + OUTSIDE:
            assert client.refusal(f"LEASE.OPEN r u1 TTL {ttl}") == "ERR"
    for epoch, ttl in enumerate(INSIDE, 1):
        opened = client(f"LEASE.OPEN r u1 TTL {ttl}")
        assert [opened[name] for name in ("epoch", "ttl_ms", "heartbeat_ms", "left_ms", "expires_at")] == [epoch, ttl, ttl // 3, ttl, NOW + ttl]
    assert len(client.events("r")) == 3  # two opened, one superseded: the refused ones left nothing


@from_now
def test_num_01_ttl_of_a_heartbeat(client):
    """NUM-01 TTL at its edges: RENEW TTL."""
    client("LEASE.OPEN r u1 SESSION a")
    client.advance(1)
    with client.nothing_changes():
        for ttl in NEVER + OUTSIDE:
            assert client.refusal(f"LEASE.RENEW r a 1 1 TTL {ttl}") == "ERR"
    for seq, ttl in enumerate(INSIDE, 1):  # no refused one has used up a seq
        assert client(f"LEASE.RENEW r a 1 {seq} TTL {ttl}") == [b"renewed", ttl, NOW + 1 + ttl]


@from_now
def test_num_01_linger(client):
    """NUM-01 TTL at its edges: LINGER never prolongs."""
    client("LEASE.OPEN r u1 SESSION a")
    with client.nothing_changes():
        for span in NEVER:
            assert client.refusal(f"LEASE.LEAVE r a 1 LINGER {span}") == "ERR"
    assert client("LEASE.LEAVE r a 1 LINGER 0") == b"left"
    for epoch, span in enumerate((1, TTL_MIN - 1, TTL_MAX, TTL_MAX + 1, MAX), 2):
        now = client.now()
        client(f"LEASE.OPEN r u1 SESSION s{epoch}")
        assert client(f"LEASE.LEAVE r s{epoch} {epoch} LINGER {span}") == b"lingering"
        lease = client(f"LEASE.GET r s{epoch}")
        assert (lease["left_ms"], lease["expires_at"]) == (min(span, 30000), now + min(span, 30000))
        client.advance(min(span, 30000))
        assert client.events("r")[-1]["due"] == now + min(span, 30000)


@from_now
@pytest.mark.parametrize("until", NEVER + (0, 1, TTL_MIN - 1, TTL_MAX, TTL_MAX + 1, NOW))
def test_num_01_until_has_passed(client, until):
    """NUM-01 TTL at its edges: UNTIL that is no moment ahead."""
    client("LEASE.OPEN r u2")
    with client.nothing_changes():
        assert client.refusal(f"LEASE.OPEN r u1 UNTIL {until}") == "ERR"
    assert client("LEASE.OPEN r u1")["epoch"] == 1


@from_now
@pytest.mark.parametrize("until", (NOW + 1, MAX))
def test_num_01_until_ahead(client, until):
    """NUM-01 TTL at its edges: UNTIL."""
    opened = client(f"LEASE.OPEN r u1 SESSION a UNTIL {until}")
    expires_at = min(until, NOW + 30000)
    assert (opened["left_ms"], opened["expires_at"]) == (expires_at - NOW, expires_at)
    assert client("LEASE.RENEW r a 1 1") == [b"renewed", expires_at - NOW, expires_at]
    client.advance(expires_at - NOW)
    assert client.events("r")[-1]["due"] == expires_at


@from_now
def test_num_01_ttl_as_a_setting(client):
    """NUM-01 TTL at its edges: the setting `ttl-ms`."""
    client("LEASE.OPEN r u1")
    with client.nothing_changes():
        for ttl in NEVER + OUTSIDE:
            assert client.refusal(f"LEASE.SETPOLICY r ttl-ms {ttl}") == "ERR"
            assert client.refusal(f"CONFIG SET lease.ttl-ms {ttl}") == "ERR"
    assert client.server.call("CONFIG GET lease.ttl-ms")[b"lease.ttl-ms"] == b"30000"
    for number, ttl in enumerate(INSIDE, 2):
        client(f"CONFIG SET lease.ttl-ms {ttl}")
        assert client(f"LEASE.OPEN r u{number}")["ttl_ms"] == ttl
    for number, ttl in enumerate(INSIDE, 4):
        assert client(f"LEASE.SETPOLICY r ttl-ms {ttl}") == b"OK"
        assert client(f"LEASE.OPEN r u{number}")["ttl_ms"] == ttl


# -------------------------------------------------------------------- NUM-02

ODD = 2**53 + 1  # the first integer that a double cannot hold

OPEN_AND_RENEW = """
local opened = redis.call('LEASE.OPEN', KEYS[1], 'u1', 'SESSION', ARGV[1])
return redis.call('LEASE.RENEW', KEYS[1], ARGV[1], ARGV[2], ARGV[3])
"""


@pytest.mark.ways("plain-resp2", "plain-resp3")
def test_num_02_big_integers_through_lua(client):
    """NUM-02 Big integers through Lua."""
    assert client("EVAL", OPEN_AND_RENEW, 1, "r", "a", 1, ODD) == [b"renewed", 30000, 30000]
    assert client("LEASE.GET r a")["seq"] == ODD
    assert client(f"LEASE.RENEW r a 1 {ODD}")[0] == b"duplicate"
    assert client(f"LEASE.RENEW r a 1 {ODD + 1}")[0] == b"renewed"


# -------------------------------------------------------------------- NUM-03


def test_num_03_at_and_above_two_to_the_63rd(client):
    """NUM-03 At and above 2^63."""
    client("LEASE.OPEN r u1 SESSION a")
    client("LEASE.OPEN r u2 SESSION b")
    assert client(f"LEASE.RENEW r a 1 {MAX} OBSERVED {MAX}") == [b"renewed", 30000, 30000]
    assert client(f"LEASE.RENEW r a 1 {MAX}")[0] == b"duplicate"
    with client.nothing_changes():
        for number in NEVER:
            assert client.refusal(f"LEASE.RENEW r a 1 {number}") == "ERR"
            assert client.refusal(f"LEASE.RENEW r a {number} 1") == "ERR"
            assert client.refusal(f"LEASE.RENEW r b 1 1 OBSERVED {number}") == "ERR"
            assert client.refusal(f"LEASE.MRENEW r b 1 1 a 1 {number}") == "ERR"
    assert client("LEASE.RENEW r a 1 1 STATE closed")[0] == b"duplicate"
    client("LEASE.LEAVE r a 1")

    lease = client.server.call("LEASE.GET r a")  # not by EVAL: Lua would round what it passes on
    assert (lease[b"seq"], lease[b"observed_at"]) == (MAX, MAX)
    assert all(value >= 0 for value in lease.values() if isinstance(value, int))
    assert client.events("r")[-1]["seq"] == MAX
    assert b"-" not in b"".join(
        value for _, fields in client.raw("XRANGE", stream("r"), "-", "+") for name, value in zip(fields[::2], fields[1::2]) if name != b"gen"
    )
    assert not re.search(rb"[:\[,]\s*-\d", client.raw("LEASE.INSPECT r SESSION a"))


@from_now
def test_num_03_messages_at_the_greatest(client):
    """NUM-03 At and above 2^63: the greatest number as position, version, end and window; nothing wraps."""
    client("LEASE.OPEN r u1 SESSION a")
    client(f"LEASE.SETPOLICY r retain-count {MAX} retain-ms {MAX} dedup-ms {MAX}")
    client(f"CONFIG SET lease.cursor-ms {MAX}")
    assert client("LEASE.SEND r a 1 m1 x")["seq"] == 1
    assert client("LEASE.ACK r a 1 1") == 1
    assert client(f"LEASE.GRANT r u2 READ UNTIL {MAX} VERSION {MAX}") == b"ok"
    with client.nothing_changes():
        assert client.refusal(f"LEASE.SEND r a {MAX} m2 x") == "STALE unknown"
        assert client.refusal(f"LEASE.ACK r a 1 {MAX}") == client.refusal(f"LEASE.MARK r u1 default QUEUED {MAX}") == "ERR"
        assert client("LEASE.SEND r a 1 m1 x")["status"] == b"duplicate"
        assert client(f"LEASE.GRANT r u2 WRITE VERSION {MAX}") == b"stale"
        read = client.server.call(f"LEASE.REPLAY r a 1 * {MAX}")  # not by EVAL: Lua would round what it passes on
        assert (read[b"reason"], read[b"next"], read[b"current"]) == (b"future", MAX, 1)
        assert client("LEASE.TRIM r") == 0
    client.advance(20000)
    assert [seq for seq, _ in client.messages("r")] == [1]
    shown = client.server.call("LEASE.STATS r"), client.server.call("LEASE.LAG r"), client.server.call("LEASE.GRANTS r")
    assert not re.search(r"[^0-9]-\d", repr(shown))  # but for the gen's, no sign
    client("CONFIG SET lease.cursor-ms 604800000")
