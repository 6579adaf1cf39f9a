"""DISK-06 Well-formed but impossible: payloads written by hand as `core::snapshot` lays them out, with the right checksum.

Each differs in one respect from one that is a room. tests/impossible.rs and tests/impossible_log.rs have many more, without a server.
"""

import pytest

from golden import crc64
from harness.resp import Refused
from test_disk import PROBES, on

NOW = 1893456000000  # what the manual clock begins with
VERSION, HEADER, LEASES, MESSAGES, CURSORS = 102, 1, 2, 4, 5
NEWEST, HIGHEST, GREATEST = 9, 9, 2**63 - 1


def number(value):
    """LEB128."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def text(value):
    return number(len(value)) + value


def numbers(*values):
    return b"".join(map(number, values))


def part(kind, *contents):
    return bytes([VERSION, kind]) + b"".join(contents)


def header(parts):
    random, no_settings, no_gens, no_readings, no_rebuild, no_holds = bytes([1, 2, 3, 4]), *[b"\0"] * 5
    clocks = numbers(NOW, 0, HIGHEST, 3, 0, NOW, NOW, 7)
    log = numbers(NEWEST, 0, NOW, NOW) + no_gens + no_readings + no_rebuild + b"\0" + no_holds
    return part(HEADER, numbers(parts, NOW), random, clocks, no_settings, log)


def lease(session=b"active", user=b"u1", epoch=5, above=0, end=NOW + 30000):
    ids = b"".join(map(text, (session, user, b"default")))
    connected, active, no_extras = b"\1\4", b"\0", b"\0"
    return ids + numbers(epoch, above, 0, NOW, NOW, 30000, 0) + connected + active + number(end) + no_extras


def message(key=b"k", seq=NEWEST):
    return key * 16 + b"d" * 12 + numbers(seq, NOW, NOW + 600000) + b"\1"


def cursor(queued=NEWEST):
    return text(b"u1") + text(b"default") + numbers(queued, 0, 0, NOW + 600000)


def payload(client, leases=(), messages=(), cursors=()):
    client("LEASE.OPEN shape u1 SESSION s")
    dump = client.raw("DUMP shape")
    kind_and_module, footer = dump[:10], dump[-10:-8]
    parts = [header(3), part(LEASES, *leases), part(MESSAGES, *messages), part(CURSORS, *cursors)]
    a_string, end = b"\5", b"\0"
    return crc64.sealed(kind_and_module + b"".join(a_string + length(one) + one for one in parts) + end + footer)


def length(value):
    """Of a string in an RDB file: of 6 or 14 bits."""
    size = len(value)
    return bytes([size]) if size < 64 else bytes([0x40 | size >> 8, size & 0xFF])


IMPOSSIBLE = {
    "two leases of one holder": {"leases": [lease(), lease(b"other", epoch=6)]},
    "one session twice": {"leases": [lease(), lease(user=b"u2", epoch=6)]},
    "epoch 0": {"leases": [lease(epoch=0)]},
    "an epoch above the room's highest": {"leases": [lease(epoch=HIGHEST + 1)]},
    "a deadline of 2^64-1": {"leases": [lease(end=2**64 - 1)]},
    "no user": {"leases": [lease(user=b"")]},
    "a cursor beyond the counter": {"cursors": [cursor(NEWEST + 1)]},
    "one holder's cursor twice": {"cursors": [cursor(), cursor()]},
    "two records for one (user, id)": {"messages": [message(), message(seq=1)]},
    "a message that was never numbered": {"messages": [message(seq=NEWEST + 1)]},
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_disk_06_refused(server, what):
    client = on(server)
    bytes_of_it = payload(client, **IMPOSSIBLE[what])
    with pytest.raises(Refused, match="^ERR Bad data format$"):
        client.raw("RESTORE", "x", 0, bytes_of_it)
    assert client.raw("EXISTS x") == 0
    opened = client("LEASE.OPEN x u1 SESSION active")
    with pytest.raises(Refused, match="^ERR Bad data format$"):
        client.raw("RESTORE", "x", 0, bytes_of_it, "REPLACE")
    assert client("LEASE.GET x active")["epoch"] == opened["epoch"], "what it would have replaced stays"


def test_disk_06_what_they_are_made_from(server):
    """Without the one difference it is a room, and bears every command."""
    client = on(server)
    possible = payload(client, leases=[lease(), lease(b"other", b"u2", 6)], messages=[message(), message(b"l", 1)], cursors=[cursor()])
    assert client.raw("RESTORE", "x", 0, possible) == b"OK"
    assert client("LEASE.GET x other")["epoch"] == 6
    assert client("LEASE.RENEW x active 5 1")[0] == b"renewed"
    client.pipeline(*(probe.replace("#", "x") for probe in PROBES))
    client.raw("DEL x twin {x}:events {x}:log {twin}:events {twin}:log")


def test_disk_06_the_last_numbers(server):
    """Possible, at the very end of what can be counted: RESTORE leaves deadlines as they are, and the next heartbeat sets one by the ttl."""
    client = on(server)
    assert client.raw("RESTORE", "x", 0, payload(client, leases=[lease(end=GREATEST)])) == b"OK"
    assert client("LEASE.COUNT x") == [1, 1]
    assert client("LEASE.RENEW x active 5 1")[:2] == [b"renewed", 30000]
    client("LEASE.CLOCK ADVANCE 30000")
    assert client("LEASE.COUNT x") == [0, 0]
