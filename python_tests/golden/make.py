"""Writes the golden files of an encoding version, once: `cd python_tests && python -m golden.make v1`, on the oldest server supported.

They are never written again: a module that cannot read them any more has lost somebody's rooms.
"""

import json
import pathlib
import shutil
import sys

from harness import Client, Server, Way, rooms

START = 1894006800000
NOW = START + 1000  # when the room has been filled
WINDOW = 1000000
ODD = b"\xff\xfe\x00\x80\xc3\x28"


def fill(client):
    """Room r with something in every place of the encoding; a second passes."""
    now = client.now()
    client("LEASE.SETPOLICY r disconnect-ms 25000 max-leases 50 require-token no")
    client("LEASE.OPEN r u1 SESSION expired TTL 1000")
    client("LEASE.OPEN r u2 SESSION active META x")
    client("LEASE.RENEW r active 1 3 STATE connected OBSERVED 5")
    client("LEASE.OPEN r u3 DEVICE phone SESSION bound TOKEN s3cret TTL 60000")
    client("LEASE.OPEN", "r", "u4", "SESSION", "capped", "UNTIL", now + 3000000)
    client("LEASE.OPEN r u5 SESSION shortened")
    client("LEASE.RENEW r shortened 1 1 STATE disconnected")
    client("LEASE.OPEN r u6 SESSION lingering")
    client("LEASE.LEAVE r lingering 1 LINGER 20000")
    client("LEASE.OPEN r u7 SESSION left META last")
    client("LEASE.LEAVE r left 1")
    client("LEASE.OPEN r u8 SESSION kicked")
    client("LEASE.KICK r USER u8")
    client("LEASE.OPEN r u10 SESSION superseded")
    client("LEASE.OPEN r u10 SESSION current")
    client("LEASE.OPEN r u11")
    client("LEASE.OPEN", "r", ODD, "DEVICE", ODD, "SESSION", ODD, "META", ODD)
    client("LEASE.RENEW", "r", ODD, 1, 9223372036854775807, "META", "")
    fill_access(client, now + 3000000)
    fill_messages(client)
    client.advance(1000)


def fill_access(client, until):
    client("LEASE.GRANT", "r", "u12", "WRITE", "UNTIL", until, "TOKEN", "s3cret", "VERSION", 3)
    client("LEASE.GRANT", "r", ODD, "READ")
    client("LEASE.GRANT", "r", "u14", "READ", "UNTIL", client.now() + 500, "VERSION", 7)
    client("LEASE.REVOKE r u13 VERSION 4")
    client("LEASE.REVOKE r u3 DEVICE tablet")


def fill_messages(client):
    """Five messages, of which the log keeps three, and two windows end; a cursor of each kind; two holds."""
    for number, window in ((1, 500), (2, WINDOW), (3, 500)):
        client(f"LEASE.SETPOLICY r retain-count 3 dedup-ms {window}")
        client(f"LEASE.SEND r active 1 m{number} x")
    client(f"LEASE.SETPOLICY r dedup-ms {WINDOW}")
    client("LEASE.POST r bot m1 posted")
    client("LEASE.SEND", "r", ODD, 1, ODD, ODD)
    client("LEASE.TRIM r")
    client("LEASE.ACK r active 1 2")
    client("LEASE.MARK r u2 default QUEUED 5")
    client("LEASE.MARK r u3 phone WRITTEN 4")
    client("LEASE.ACK", "r", ODD, 1, 5)
    client("LEASE.HOLD r case7")
    client("LEASE.HOLD", "r", ODD)


def come_and_gone(client):
    """In a second before: a room q, whose cursor, grant, hold and record end; the next q meets its log, and goes too."""
    client.raw("CONFIG SET lease.cursor-ms 1")
    client("LEASE.SETPOLICY q retain-count 1 dedup-ms 0")
    client("LEASE.GRANT", "q", "u1", "READ", "UNTIL", client.now() + 1)
    for number in (1, 2):
        client(f"LEASE.POST q bot m{number} x")
    client("LEASE.MARK q u1 default QUEUED 1")
    client("LEASE.TRIM q")
    client.advance(1000)
    client.raw("CONFIG SET lease.cursor-ms 604800000")
    client.raw("DEL q")
    client("LEASE.HOLD q case6")
    for hold in ("case6", "orphan"):
        assert client(f"LEASE.UNHOLD q {hold}") == 1
    client.raw("DEL q {q}:log {q}:events")


def come_to_an_end(client):
    """After all: a lease that is closed and forgotten, a deadline cut by a grant; a gen ends, which is returned with its last message."""
    client("LEASE.SETPOLICY r tombstone-ms 0")
    epoch = client("LEASE.OPEN r u15 SESSION forgotten")["epoch"]
    assert client(f"LEASE.RENEW r forgotten {epoch} 1 STATE closed OBSERVED 5")[0] == b"ended"
    client("LEASE.SETPOLICY r tombstone-ms default")
    client("LEASE.GRANT", "r", "u2", "WRITE", "UNTIL", client.now() + 10000)
    for access in ("granted", "default"):
        client(f"LEASE.SETPOLICY r access {access}")
    position = client("LEASE.SNAPSHOT r active 1")
    client.raw("DEBUG RELOAD")
    assert client("LEASE.POST r bot m4 x")["gen"] != position["gen"]
    return [position["gen"], position["current"]]


def moved(client):
    """DUMP of the room as it arrives under a name, twice: nothing is written yet, and records of its log are still to be made."""
    *_, dump = client.connection.pipeline(
        [["MULTI"], ["COPY", "{r}:log", "{t}:log"], ["RENAME", "r", "t"], ["LEASE.HOLD", "t", "case8"], ["RENAME", "t", "u"], ["DUMP", "u"], ["EXEC"]]
    )[-1]
    return dump


def told(room):
    """What no load may change, as JSON has it: leases without their deadlines, settings of the room's own, access, what is known of messages."""
    leases = {
        plain(session): {name: plain(value) for name, value in lease.items() if name not in rooms.DEADLINE or lease["state"] == b"ended"}
        for session, lease in room["leases"].items()
    }
    return {
        "leases": leases,
        "count": room["count"],
        "policy": plain([row for row in room["policy"] if row[2]]),
        "grants": plain(room["grants"]),
        "holders": plain([holder for _, holder in sorted(room["holders"].items())]),
        "holds": plain(room["holds"]),
        "messages": {name: room["stats"][name] for name in ("log_seq", "dedupe")},
    }


def plain(value):
    """Bytes as text, in lists and dicts too."""
    if isinstance(value, dict):
        return {plain(name): plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return value.decode("latin1") if isinstance(value, bytes) else value


def read_told(folder):
    return json.loads((folder / "told.json").read_text())


def main(version):
    folder = pathlib.Path(__file__).parent / version
    folder.mkdir()  # fails if there is one
    server = Server(clock=START - 1000, redis={"appendonly": "yes", "aof-use-rdb-preamble": "no"})
    try:
        client = Client(server, Way("plain", 3))
        come_and_gone(client)
        fill(client)
        gen = come_to_an_end(client)
        assert client.now() == NOW
        ((_, room),) = rooms.scan(server).items()
        (folder / "told.json").write_text(json.dumps(told(room) | {"gen": plain(gen)}, indent=1, sort_keys=True) + "\n")
        (folder / "room.dump").write_bytes(client.raw("DUMP r"))
        shutil.copytree(server.path / "appendonlydir", folder / "effects" / "appendonlydir")
        server.rewrite_aof("no")
        shutil.copytree(server.path / "appendonlydir", folder / "rewrite" / "appendonlydir")
        client.raw("SAVE")
        shutil.copy(server.path / "dump.rdb", folder / "dump.rdb")
        (folder / "moved.dump").write_bytes(moved(client))
    finally:
        server.discard()


if __name__ == "__main__":
    main(*sys.argv[1:])
