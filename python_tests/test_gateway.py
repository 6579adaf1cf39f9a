"""The gateway of the examples: who is connected is present, and what becomes of each session that is refused."""

import pathlib
import socket
import struct
import subprocess
import sys

import pytest

from harness import wait_until
from harness.process import free_port

GATEWAY = pathlib.Path(__file__).resolve().parents[1] / "examples/python/gateway.py"
TTL_MS = 1000


@pytest.fixture
def connect(server):
    """Connections to a gateway, which ends with the test: connect("ann")."""
    port, sockets = free_port(), []
    url = f"redis://127.0.0.1:{server.port}"
    gateway = subprocess.Popen([sys.executable, GATEWAY, "r", "--url", url, "--port", str(port), "--ttl-ms", str(TTL_MS)])

    def listens():
        assert gateway.poll() is None
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def connect(user):
        sockets.append(socket.create_connection(("127.0.0.1", port), timeout=20))
        sockets[-1].sendall(user + b"\n")
        return sockets[-1]

    wait_until(listens)
    yield connect
    gateway.kill()
    gateway.wait()
    for each in sockets:
        each.close()


def lease(server, user, **fields):
    """Waits until the user's live lease has these fields."""

    def right():
        for found in server.call("LEASE.ROSTER", "r", "USER", user)[b"leases"]:
            if all(found[name.encode()] == value for name, value in fields.items()):
                return found

    return wait_until(right, 20, f"{user} with {fields}")


def told(connection):
    """What the gateway says before it closes the connection."""
    with connection.makefile("rb") as lines:
        return lines.read()


def test_who_is_connected_is_present(server, connect):
    ann = connect(b"ann")
    lease(server, b"ann", epoch=1)
    wait_until(lambda: server.lease_info()["renewed"] > 2, 20, "it beats")
    ann.close()
    lease(server, b"ann", epoch=1, signal=b"disconnected")


def test_a_socket_that_breaks(server, connect):
    ann = connect(b"ann")
    lease(server, b"ann", epoch=1)
    ann.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close sends RST
    ann.close()
    lease(server, b"ann", epoch=1, signal=b"disconnected")


def test_what_becomes_of_refused_sessions(server, connect):
    """Expired and unknown ones are opened again; of all others the client is told, and is out."""
    ann, ben, kim = connect(b"ann"), connect(b"ben"), connect(b"kim")
    for user in b"ann", b"ben", b"kim":
        lease(server, user)
    server.advance(TTL_MS)
    for user in b"ann", b"ben", b"kim":
        lease(server, user, state=b"active", epoch=2)
    again = connect(b"ann")
    assert told(ann) == b"superseded\n"
    server.call("LEASE.KICK r USER ben")
    assert told(ben) == b"kicked\n"
    server.call("LEASE.REVOKE r kim")
    assert told(kim) == b"revoked\n"
    assert told(connect(b"kim")) == b"DENIED revoked\n"
    server.call("DEL r")
    lease(server, b"ann", epoch=1)
    again.close()
