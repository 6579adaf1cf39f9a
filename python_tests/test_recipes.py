"""What the recipes say and a transcript of one server cannot show."""

import os
import signal

import pytest

from harness.events import stream
from test_repl import cut, online_replica, promote


def test_a_revocation_is_waited_for(server):
    """docs/recipes/revocation.md: WAIT counts the replicas that have it, on the connection of the REVOKE, as often as it is asked."""
    replica = server.replica()
    # Not the server's own connection: Redis 7.0 crashes when SHUTDOWN comes on one that has waited.
    first, second = server.connect(), server.connect()
    first("LEASE.OPEN r u1 SESSION a")
    replica.in_step()
    os.kill(replica.process.pid, signal.SIGSTOP)
    try:
        assert first("LEASE.REVOKE r u1 VERSION 7") == [b"ok", 1]
        assert first("WAIT 1 50") == 0
        assert first("LEASE.REVOKE r u1 VERSION 7") == [b"stale", 0]
        assert first("WAIT 1 50") == 0, "what is stale writes nothing, but the connection's last write is still the first"
        assert second("LEASE.REVOKE r u1 VERSION 8") == [b"ok", 0]
        assert second("WAIT 1 50") == 0
    finally:
        os.kill(replica.process.pid, signal.SIGCONT)
    assert first("WAIT 1 10000") == second("WAIT 1 10000") == 1
    (grant,) = replica.call("LEASE.GRANTS r USER u1")[b"grants"]
    assert (grant[b"revoked"], grant[b"version"]) == (1, 8)


def post(call, payload):
    return call("LEASE.POST", "r", "ben", payload, payload)[b"seq"]


class Reader:
    """Follows a room as docs/recipes/recovery.md says: `has` are the payloads it shows, `position` is (gen, next)."""

    def __init__(self, call):
        self.call, self.has, self.resyncs = call, [], []
        self.start()

    def start(self):
        page = self.call("LEASE.SNAPSHOT r a 1")
        self.has = [message[b"payload"] for _, message in page[b"entries"]]
        self.position = page[b"gen"], page[b"current"]

    def read(self):
        """Step 4: an entry of XREAD is the next one, or REPLAY is called."""
        gen, last = self.position
        for id, fields in self.call("XREAD", "STREAMS", stream("r", "log"), f"{last}-0").get(stream("r", "log"), ()):
            message = dict(zip(fields[::2], fields[1::2]))
            if (int(id.split(b"-")[0]), message[b"gen"]) != (last + 1, gen):
                return self.replay()
            last += 1
            self.has.append(message[b"payload"])
            self.position = gen, last

    def replay(self):
        page = self.call("LEASE.REPLAY", "r", "a", 1, *self.position)
        if page[b"status"] == b"resync":
            self.resyncs.append(page[b"reason"])
            return self.start()
        self.has += [message[b"payload"] for _, message in page[b"entries"]]
        self.position = page[b"gen"], page[b"next"]


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "replicated"])
def test_a_reader_learns_of_a_failover(server, lost):
    """docs/recipes/recovery.md, step 4: a message was accepted and read, and the next primary never saw it. Numbers alone do not tell."""
    server.call("LEASE.OPEN r ann SESSION a")
    for payload in b"one", b"two":
        post(server.call, payload)
    replica = online_replica(server)
    reader = Reader(server.call)
    if lost:
        cut(replica)
    post(server.call, b"three")
    reader.read()
    assert reader.has == [b"one", b"two", b"three"]
    if not lost:
        replica.in_step()
    server.stop("kill")
    promote(replica)
    for payload in (b"other", b"four") if lost else (b"four",):
        newest = post(replica.call, payload)
    assert newest == reader.position[1] + 1 == 4, "the next number, in either case"
    reader.call = replica.call
    reader.read()
    assert reader.has == [b"one", b"two", b"other" if lost else b"three", b"four"]
    assert reader.resyncs == [b"diverged"] * lost
    post(replica.call, b"five")
    reader.read()
    assert reader.has[3:] == [b"four", b"five"] and reader.resyncs == [b"diverged"] * lost
