"""What the recipes say and a transcript of one server cannot show."""

import os
import signal


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
