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
    client("LEASE.REVOKE r u13 VERSION 4")
    client("LEASE.REVOKE r u3 DEVICE tablet")


def fill_messages(client):
    """Five messages, of which the log keeps three; a cursor of each kind; two holds."""
    client("LEASE.SETPOLICY r retain-count 3 dedup-ms 1000000")
    for number in (1, 2, 3):
        client(f"LEASE.SEND r active 1 m{number} x")
    client("LEASE.POST r bot m1 posted")
    client("LEASE.SEND", "r", ODD, 1, ODD, ODD)
    client("LEASE.TRIM r")
    client("LEASE.ACK r active 1 2")
    client("LEASE.MARK r u2 default QUEUED 5")
    client("LEASE.MARK r u3 phone WRITTEN 4")
    client("LEASE.ACK", "r", ODD, 1, 5)
    client("LEASE.HOLD r case7")
    client("LEASE.HOLD", "r", ODD)


def told(room):
    """What no load may change, as JSON has it: leases without their deadlines, settings of the room's own, access, what is known of messages."""
    leases = {plain(session): {name: plain(value) for name, value in lease.items() if name not in rooms.DEADLINE or lease["state"] == b"ended"}
              for session, lease in room["leases"].items()}
    return {"leases": leases, "count": room["count"], "policy": plain([row for row in room["policy"] if row[2]]), "grants": plain(room["grants"]),
            "holders": plain([holder for _, holder in sorted(room["holders"].items())]), "holds": plain(room["holds"]),
            "messages": {name: room["stats"][name] for name in ("log_seq", "dedupe")}}


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
    server = Server(clock=START, redis={"appendonly": "yes", "aof-use-rdb-preamble": "no"})
    try:
        client = Client(server, Way("plain", 3))
        fill(client)
        assert client.now() == NOW
        (_, room), = rooms.scan(server).items()
        (folder / "told.json").write_text(json.dumps(told(room), indent=1, sort_keys=True) + "\n")
        (folder / "room.dump").write_bytes(client.raw("DUMP r"))
        shutil.copytree(server.path / "appendonlydir", folder / "effects" / "appendonlydir")
        server.rewrite_aof("no")
        shutil.copytree(server.path / "appendonlydir", folder / "rewrite" / "appendonlydir")
        client.raw("SAVE")
        shutil.copy(server.path / "dump.rdb", folder / "dump.rdb")
    finally:
        server.discard()


if __name__ == "__main__":
    main(*sys.argv[1:])
