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
    client.advance(1000)


def told(room):
    """What no load may change, as JSON has it: leases without their deadlines, and settings of the room's own."""
    leases = {plain(session): {name: plain(value) for name, value in lease.items() if name not in rooms.DEADLINE or lease["state"] == b"ended"}
              for session, lease in room["leases"].items()}
    return {"leases": leases, "count": room["count"], "policy": [list(map(plain, row)) for row in room["policy"] if row[2]]}


def plain(value):
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
