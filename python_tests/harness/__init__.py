"""How to write a test with this harness.

    @pytest.mark.server(clock=1000, lease={"ttl-min-ms": 1}, redis={"maxmemory": "50mb"})
    def test_own_07_only_if_vacant(client):
        '''OWN-07 Only if vacant.'''
        a = client("LEASE.OPEN r u1 SESSION a")
        assert client.refusal("LEASE.OPEN r u1 SESSION b NX") == "HELD 30000"
        opened, = client.held(30000, "LEASE.OPEN r u1 SESSION b NX")
        assert opened["replaced"] is None
        assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "expired"), ("opened", b"b", 2)]

`client` runs the test six times: plain, each command in a MULTI/EXEC, each through EVAL; in RESP2 and RESP3.
`@pytest.mark.ways("plain-resp3")` limits that. Only LEASE.* commands take the way, and LEASE.CLOCK does not.

A command is one text, split at its spaces, or its arguments (str, bytes, int, float): `client("LEASE.GET", room, b"\\xff")`.
Every reply to a LEASE.* command, on whatever connection, is held to harness.contract, and so is every event and message that is read here.
Replies are bytes, ints, lists, None; map replies (ROSTER's leases too) are dicts with text fields in either protocol.
    client(command)            the reply; raises Refused (.text, .head, .code)
    client.refusal(command)    head of the error, as `STALE superseded 7`; fails if the command is accepted
    client.sent(command)       the reply to a SEND or POST, repeated while it is answered TRYAGAIN
    client.pipeline(c, c, …)   replies to one write; refusals stand as values
    client.held(ms, c, …)      time passes and the commands run before the reaper: one MULTI/EXEC
    client.transaction(c, …)   all commands in one MULTI/EXEC
    client.advance(ms)         time passes and the reaper runs, on replicas too; the time now (also client.now())
    client.events(room)        EV as dicts (numbers int, words str, ids bytes), newest=n: the last n;
                               client.history(room): (type, session, epoch[, reason])
    client.messages(room)      LOG as (seq, dict), epoch and at as int, all else as bytes
    client.nothing_changes()   context: rooms, deadlines, events, messages, keys and the count of changes stay as they are
    client.raw(command)        the reply as the protocol brought it; client.another(): a second connection

`server` (client.server) is a Server on the manual clock at 0; mark `server(clock=None)` for the real one, `start(**options)` for more.
    server.call(command)       a plain RESP3 connection; server.in_db(n): of another database;
                               server.connect(protocol, db=, username=, password=): a new one
    server.replica()           a replica, in step; replica.in_step() awaits the primary's last write
    server.restart(how, **s)   how: nosave, save, kill; settings from now on; the manual clock stands where it stood; `client` is then
                               stale, take Client(server, way). Also stop(how), start(), set(**settings), rewrite_aof(preamble), log()
    server.info(section), server.lease_info()   INFO as dict; wait_until(condition) for what no event announces
    Listener(server)           notifications: listener() is every (room, event) so far

After every test that passed, `aftermath.check` runs for each primary still up; reload and restart in plain-resp3 only.
`@pytest.mark.no_restart("why")` leaves them out; `server.aside.add((db, b"room"))` excuses a room whose events or log cannot account for it.
"""

from . import aftermath, rooms, ways
from .client import Client
from .listener import Listener
from .process import Server, wait_until
from .resp import Connection, Refused
from .ways import Way

__all__ = ["Client", "Connection", "Listener", "Refused", "Server", "Way", "aftermath", "rooms", "wait_until", "ways"]
