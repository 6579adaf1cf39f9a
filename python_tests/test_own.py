"""OWN: who holds the lease."""

import os
import random
import signal
import statistics
import subprocess
import sys
import time

import pytest

from harness import Client, rooms, wait_until

TOMBSTONE, EMPTY_ROOM = 600000, 3600000


def test_own_01_late_leave_of_the_old_connection(client):
    """OWN-01 Late LEAVE of the old connection."""
    e1 = client("LEASE.OPEN r u1 DEVICE d1 SESSION a")["epoch"]
    client.advance(1000)
    b = client("LEASE.OPEN r u1 DEVICE d1 SESSION b")
    assert b["replaced"] == b"a"
    client.advance(2000)
    with client.nothing_changes():
        assert client(f"LEASE.LEAVE r a {e1}") == b"gone"
    assert [lease["session"] for lease in client("LEASE.ROSTER r")["leases"]] == [b"b"]
    opened_a, removed_a, opened_b = client.events("r")
    assert (opened_a["type"], opened_a["session"], opened_a["epoch"]) == ("opened", b"a", e1)
    assert (removed_a["type"], removed_a["session"], removed_a["epoch"]) == ("removed", b"a", e1)
    assert (removed_a["reason"], removed_a["replaced_by"]) == ("superseded", b["epoch"])
    assert (opened_b["type"], opened_b["session"], opened_b["epoch"]) == ("opened", b"b", b["epoch"])
    assert opened_b["replaced"] == b"a"


def test_own_02_renew_in_the_last_millisecond(client):
    """OWN-02 Extending a lease that has run out: at t=1999."""
    start = client("LEASE.OPEN r u1 SESSION a TTL 2000")["now"]
    (renewed,) = client.held(1999, "LEASE.RENEW r a 1 1")
    assert renewed == [b"renewed", 2000, start + 3999]
    assert client.history("r") == [("opened", b"a", 1)]


@pytest.mark.parametrize("ms", (2000, 2001))
def test_own_02_renew_at_or_after_the_deadline(client, ms):
    """OWN-02 Extending a lease that has run out: at t=2000 and 2001."""
    start = client("LEASE.OPEN r u1 SESSION a TTL 2000")["now"]
    refused, count, roster, lease, events = client.held(
        ms, "LEASE.RENEW r a 1 1", "LEASE.COUNT r", "LEASE.ROSTER r", "LEASE.GET r a", "XLEN {r}:events"
    )
    assert refused.head == "STALE expired"
    assert (count, roster["leases"]) == ([0, 0], [])
    assert (lease["state"], lease["reason"], lease["ended_at"]) == (b"ended", b"expired", start + 2000)
    assert events == 1  # hidden, not yet removed
    client.advance(0)
    _, removed = client.events("r")
    assert (removed["type"], removed["reason"], removed["due"]) == ("removed", "expired", start + 2000)


def test_own_03_a_partitioned_holder_comes_back(client):
    """OWN-03 A partitioned holder comes back after the takeover."""
    e1 = client("LEASE.OPEN r u1 SESSION a TTL 5000")["epoch"]
    client.advance(5001)
    b = client("LEASE.OPEN r u1 SESSION b")
    assert b["replaced"] is None
    with client.nothing_changes():
        assert client.refusal(f"LEASE.RENEW r a {e1} 9") == "STALE expired"
        assert client.refusal(f"LEASE.SEND r a {e1} m9 x") == "STALE expired"
    sent = client(f"LEASE.SEND r b {b['epoch']} m9 y")  # another payload: the refused m9 left no record
    assert (sent["status"], sent["seq"]) == (b"accepted", 1)
    assert client("LEASE.GET r b")["expires_at"] == b["expires_at"]


def test_own_04_queued_expiry_fires_after_the_takeover(client):
    """OWN-04 The queued expiry of e1 fires after e2 opened."""
    client("LEASE.OPEN r u1 SESSION a TTL 3000")
    (b,) = client.held(3001, "LEASE.OPEN r u1 SESSION b")
    assert (b["epoch"], b["replaced"]) == (2, None)
    client.advance(0)
    lease = client("LEASE.GET r b")
    assert (lease["state"], lease["epoch"], lease["expires_at"]) == (b"active", 2, b["expires_at"])
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "expired"), ("opened", b"b", 2)]


def test_own_05_retried_open_and_late_retry(client):
    """OWN-05 Retried OPEN, then a late retry of a dead session."""
    first = client("LEASE.OPEN r u1 SESSION a")
    client.advance(1000)
    with client.nothing_changes():
        for again in ("LEASE.OPEN r u1 SESSION a", "LEASE.OPEN r u1 SESSION a NX"):
            retry = client(again)
            assert (retry["epoch"], retry["expires_at"]) == (first["epoch"], first["expires_at"])
            assert (retry["left_ms"], retry["replaced"], retry["event_n"]) == (first["left_ms"] - 1000, None, 1)
    b = client("LEASE.OPEN r u1 SESSION b")
    assert (b["epoch"], b["replaced"]) == (2, b"a")
    with client.nothing_changes():
        assert client("LEASE.OPEN r u1 SESSION b")["replaced"] == b"a"  # as first told
        assert client.refusal("LEASE.OPEN r u1 SESSION a") == "STALE superseded 2"
        assert client.refusal("LEASE.OPEN r u2 SESSION b") == "CONFLICT session"
    assert client("LEASE.GET r b")["state"] == b"active"
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "superseded"), ("opened", b"b", 2)]


@pytest.mark.server(lease={"events-maxlen": 100})
def test_own_06_two_tabs_duel_over_one_identity(client):
    """OWN-06 Two badly written tabs duel over one identity."""
    client("LEASE.OPEN other watcher SESSION w TTL 3600000")
    seqs = iter(range(1, 10000))

    def neighbour():
        begin = time.perf_counter()
        assert client(f"LEASE.RENEW other w 1 {next(seqs)}")[0] == b"renewed"
        return time.perf_counter() - begin

    calm = [neighbour() for _ in range(200)]
    epochs, during, baseline = [], [], 0
    tabs = (client, client.another())
    for turn in range(500):
        tab, mine = tabs[turn % 2], turn - 2
        if mine >= 0:
            assert tab.refusal(f"LEASE.RENEW r s{mine} {epochs[mine]} 1") == f"STALE superseded {epochs[-1]}"
        epochs.append(tab(f"LEASE.OPEN r u1 DEVICE d1 SESSION s{turn} TTL 3600000")["epoch"])
        assert [lease["epoch"] for lease in client("LEASE.ROSTER r")["leases"]] == [epochs[-1]]
        assert [told["user_leases"] for told in client.events("r", newest=2)] == [1, 1][: turn + 1]
        during.append(neighbour())
        baseline = baseline or memory(client)
    assert epochs == sorted(set(epochs))
    assert client.server.lease_info()["ended_superseded"] == 499
    assert client("XLEN {r}:events") <= 200  # at most one stream node above events-maxlen
    assert statistics.median(during) < 3 * statistics.median(calm) + 0.001

    peak = memory(client)
    client.advance(TOMBSTONE)
    assert client.server.lease_info()["tombstones"] == 0
    assert memory(client) - baseline < (peak - baseline) / 10


def memory(client):
    return client("MEMORY USAGE r SAMPLES 0")


def test_own_07_only_if_vacant(client):
    """OWN-07 Only if vacant."""
    a = client("LEASE.OPEN r u1 SESSION a")
    with client.nothing_changes():
        assert client.refusal("LEASE.OPEN r u1 SESSION b NX") == "HELD 30000"
    assert client("LEASE.GET r a")["expires_at"] == a["expires_at"]
    (b,) = client.held(30000, "LEASE.OPEN r u1 SESSION b NX")
    assert (b["epoch"], b["replaced"]) == (2, None)  # the refusal used up no epoch
    client.advance(0)
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "expired"), ("opened", b"b", 2)]


def test_own_08_several_devices_one_tab_closes(client):
    """OWN-08 Several devices, one tab closes."""
    opened = [client(f"LEASE.OPEN r u1 DEVICE d{number}") for number in (1, 2, 3)]
    assert [one["user_leases"] for one in opened] == [1, 2, 3]
    counts = []
    for one in opened:
        assert client("LEASE.LEAVE", "r", one["session"], one["epoch"]) == b"left"
        counts.append(client("LEASE.COUNT r"))
    assert counts == [[2, 1], [1, 1], [0, 0]]
    removed = client.events("r")[3:]
    assert [(event["type"], event["reason"], event["user_leases"]) for event in removed] == [("removed", "left", left) for left in (2, 1, 0)]


# A gateway: opens a thousand leases, says so, and waits for its death.
GATEWAY = """
import sys, redis
pipeline = redis.Redis(port=int(sys.argv[1])).pipeline(transaction=False)
for n in range(1000):
    pipeline.execute_command("LEASE.OPEN", "r%d" % (n % 10), "u%d" % n, "SESSION", "a%d" % n, "TTL", 5000)
pipeline.execute()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.server(clock=None)
@pytest.mark.ways("plain-resp3", "multi-resp2", "eval-resp3")
def test_own_09_a_gateway_dies_without_goodbye(client):
    """OWN-09 A gateway dies without goodbye."""
    gateway = subprocess.Popen([sys.executable, "-c", GATEWAY, str(client.server.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert gateway.stdout.readline() == b"open\n"
    finally:
        os.kill(gateway.pid, signal.SIGKILL)
        gateway.communicate()
    places = [f"r{number}" for number in range(10)]
    assert sum(client("LEASE.COUNT", room)[0] for room in places) == 1000
    wait_until(lambda: client.server.lease_info()["ended_expired"] == 1000, 15, "all leases have expired")
    removed = [event for room in places for event in client.events(room) if event["type"] == "removed"]
    assert sorted(event["session"] for event in removed) == sorted(b"a%d" % number for number in range(1000))
    assert {event["reason"] for event in removed} == {"expired"}
    assert all(event["at"] >= event["due"] and event["lag_ms"] >= 0 for event in removed)
    former = {event["user"]: event["epoch"] for event in removed}
    for number in range(1000):
        assert client(f"LEASE.OPEN r{number % 10} u{number} SESSION b{number}")["epoch"] > former[b"u%d" % number]


def test_own_10_one_gateways_zero_leaves_the_room_open(client):
    """OWN-10 One gateway's zero does not close the room: steps 1 to 3, its messages keep it however long nobody is there."""
    a, b = client, client.another()
    epochs = [a("LEASE.OPEN r u1 SESSION a1")["epoch"]]
    a("LEASE.OPEN r u2 SESSION a2")
    other = b("LEASE.OPEN r u3 SESSION b3")
    assert a("LEASE.SEND r a1 1 m1 x")["seq"] == 1
    assert [a("LEASE.LEAVE r a1 1"), a("LEASE.LEAVE r a2 1")] == [b"left", b"left"]
    assert client("LEASE.COUNT r") == [1, 1]
    assert client("LEASE.GET r b3")["expires_at"] == other["expires_at"]
    assert b("LEASE.LEAVE r b3 1") == b"left"
    assert client("EXISTS r") == 1
    for number in (2, 3):
        again = client(f"LEASE.OPEN r u1 SESSION c{number}")
        epochs.append(again["epoch"])
        assert again["gen"] == other["gen"]
        assert client(f"LEASE.SEND r c{number} {again['epoch']} m{number} x")["seq"] == number
        assert client(f"LEASE.LEAVE r c{number} {again['epoch']}") == b"left"
        client.advance(TOMBSTONE + EMPTY_ROOM + 1)
        assert client("EXISTS r") == 1
    assert epochs == sorted(set(epochs))
    assert [seq for seq, _ in client.messages("r")] == [1, 2, 3]


def test_own_10_a_room_left_alone_begins_again(client):
    """OWN-10 One gateway's zero does not close the room: step 4, a room without anything to keep."""
    pairs = set()
    for session in ("a", "b", "c"):
        opened = client(f"LEASE.OPEN r u1 SESSION {session}")
        pairs.add((opened["gen"], opened["epoch"]))
        assert client.raw("PTTL {r}:events") == -1  # a new use lifts the event stream's expiry
        assert client(f"LEASE.LEAVE r {session} {opened['epoch']}") == b"left"
        client.advance(TOMBSTONE + EMPTY_ROOM - 1)
        assert client("EXISTS r") == 1
        client.advance(2)
        assert client("EXISTS r") == 0
        assert 0 < client.raw("PTTL {r}:events") <= EMPTY_ROOM
        assert client.refusal(f"LEASE.RENEW r {session} {opened['epoch']} 1") == "STALE unknown"
    assert len({gen for gen, _ in pairs}) == len(pairs) == 3
    client("LEASE.OPEN r u1 SESSION d")
    assert client.refusal("LEASE.RENEW r a 1 1") == "STALE unknown"


@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1}, redis={"appendonly": "yes", "appendfsync": "always"})
@pytest.mark.ways("plain-resp3", "multi-resp2", "eval-resp3")
def test_own_11_crash_between_the_two_halves_of_a_removal(server, way):
    """OWN-11 Crash between the two halves of a removal: OPEN, REAP, KICK and the reaper's own, 50 rounds."""
    dice = random.Random(str(way))
    for number in range(50):
        places = [f"round{number}:{place}" for place in (1, 2, 3)]
        sender = Client(server, way).connection
        sender.send(part for command in burst(places) for part in way.wrap(command.split(" ")))
        time.sleep(dice.random() / 100)  # the moment of the crash is the chance this test takes, nothing is awaited
        server.process.kill()
        server.process.wait()
        server.close_connections()
        server.start()
        client = Client(server, way)
        wait_until(lambda: not any(client("LEASE.COUNT", room)[0] for room in places), what="all have expired")
        client.pipeline(*(["LEASE.REAP", room] for room in places))
        for room in places:
            assert told(client, room) == shown(client, room), f"{room} after its crash"
    wait_until(lambda: server.lease_info()["active_leases"] + server.lease_info()["reap_backlog"] == 0, what="nothing is under way")


def burst(places):
    """Many commands on a user's three rooms: an OPEN supersedes what has not run out by then."""
    for turn in range(200):
        for room in places:
            yield f"LEASE.OPEN {room} u1 DEVICE d{turn % 5} SESSION s{turn} TTL {1 + turn % 20}"
        yield f"LEASE.REAP {places[turn % 3]}"
        if turn % 7 == 0:
            yield f"LEASE.KICK {places[turn % 3]} USER u1"


def told(client, room):
    """Endings by session, as the events tell them: each lease opened has exactly one."""
    events = client.events(room)
    removed = [(event["session"], (event["epoch"], event["reason"])) for event in events if event["type"] == "removed"]
    assert sorted(session for session, _ in removed) == sorted(event["session"] for event in events if event["type"] == "opened")
    return dict(removed)


def shown(client, room):
    """Endings by session, as the roster shows them."""
    found, _ = rooms.leases(client, room)
    return {session: (lease["epoch"], lease["reason"].decode()) for session, lease in found.items()}


class Refusals:
    """Sends commands that must be refused, change nothing, and move each its own counter."""

    def __init__(self, client):
        self.client = client

    def __call__(self, head, command):
        counter = "rejected_" + "_".join(head.lower().split()[:2])
        before = self.client.server.lease_info()[counter]
        with self.client.nothing_changes():
            assert self.client.refusal(command) == head
        assert self.client.server.lease_info()[counter] == before + 1, counter


@pytest.fixture
def refused(client):
    return Refusals(client)


def test_own_12_unknown_sessions(client, refused):
    """OWN-12 Every refusal has its own code: step 1."""
    refused("STALE unknown", "LEASE.RENEW missing a 1 1")
    assert client("EXISTS missing") == 0
    client("LEASE.OPEN r u1 SESSION a")
    refused("STALE unknown", "LEASE.RENEW r nobody 1 1")
    refused("STALE unknown", "LEASE.RENEW r a 2 1")
    client("SET text x")
    with client.nothing_changes():
        assert client.refusal("LEASE.RENEW text a 1 1") == "WRONGTYPE"


def test_own_12_ended_sessions(client, refused):
    """OWN-12 Every refusal has its own code: step 2."""
    client("LEASE.OPEN r u1 SESSION expired TTL 1000")
    client.advance(1000)
    client("LEASE.OPEN r u2 SESSION left")
    client("LEASE.LEAVE r left 1")
    client("LEASE.OPEN r u3 SESSION lingering")
    client("LEASE.LEAVE r lingering 1 LINGER 5000")
    client("LEASE.OPEN r u4 SESSION kicked")
    client("LEASE.KICK r USER u4")
    client("LEASE.OPEN r u5 SESSION superseded")
    assert client("LEASE.OPEN r u5 SESSION current")["epoch"] == 2

    refused("STALE expired", "LEASE.RENEW r expired 1 1")
    refused("STALE left", "LEASE.RENEW r left 1 1")
    refused("STALE left", "LEASE.RENEW r lingering 1 1")
    refused("STALE kicked", "LEASE.RENEW r kicked 1 1")
    refused("STALE superseded 2", "LEASE.RENEW r superseded 1 1")
    refused("STALE superseded 2", "LEASE.RENEW r current 1 1")
    assert client("LEASE.RENEW r current 2 1")[0] == b"renewed"


def test_own_12_token_and_used_seq(client, refused):
    """OWN-12 Every refusal has its own code: steps 3 and 4 as far as tokens and seqs go."""
    client("LEASE.OPEN r u1 SESSION a TOKEN s3cret TTL 1000")
    refused("DENIED token", "LEASE.RENEW r a 1 1")
    refused("DENIED token", "LEASE.RENEW r a 1 1 TOKEN guess")
    refused("DENIED token", "LEASE.RENEW r a 7 1 TOKEN guess")  # the token is looked at before the epoch
    assert client("LEASE.RENEW r a 1 5 TOKEN s3cret")[0] == b"renewed"
    duplicates = client.server.lease_info()["duplicate"]
    with client.nothing_changes():
        assert client("LEASE.RENEW r a 1 5 TOKEN s3cret")[0] == b"duplicate"
    assert client.server.lease_info()["duplicate"] == duplicates + 1
    client.advance(1000)
    refused("DENIED token", "LEASE.RENEW r a 1 6 TOKEN guess")
    refused("STALE expired", "LEASE.RENEW r a 1 6 TOKEN s3cret")


def test_own_12_revoked_and_without_grant(client, refused):
    """OWN-12 Every refusal has its own code: steps 3 and 4 as far as grants go."""
    client("LEASE.OPEN r u1 SESSION superseded TOKEN s3cret")
    client("LEASE.OPEN r u1 SESSION a TOKEN s3cret")
    client("LEASE.OPEN r u2 SESSION b TTL 1000")
    client("LEASE.OPEN r u3 SESSION c")
    client("LEASE.REVOKE r u1")
    refused("DENIED revoked", "LEASE.RENEW r a 2 1 TOKEN s3cret")
    refused("DENIED revoked", "LEASE.RENEW r superseded 1 1 TOKEN s3cret")
    refused("DENIED revoked", "LEASE.RENEW r a 9 1 TOKEN s3cret")  # the mark is looked at before the epoch
    refused("DENIED token", "LEASE.RENEW r a 2 1 TOKEN guess")
    refused("DENIED revoked", "LEASE.OPEN r u1")
    client("LEASE.GRANT r u1 READ")
    refused("STALE revoked", "LEASE.RENEW r a 2 1 TOKEN s3cret")
    refused("STALE superseded 2", "LEASE.RENEW r superseded 1 1 TOKEN s3cret")

    client("LEASE.SETPOLICY r access granted")
    refused("DENIED nogrant", "LEASE.RENEW r b 1 1")
    refused("STALE unknown", "LEASE.RENEW r b 2 1")
    refused("DENIED nogrant", "LEASE.OPEN r u4")
    client.advance(1000)
    refused("STALE expired", "LEASE.RENEW r b 1 1")
    assert client("LEASE.LEAVE r c 1") == b"left"  # without a grant too


# What a session may send beside heartbeats; `#` stands for session and epoch.
WORDS = ("LEASE.SEND r # m9 x", "LEASE.REPLAY r # * 0", "LEASE.SNAPSHOT r #", "LEASE.ACK r # 0")


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words.split()[0])
def test_own_12_every_word_of_a_session(client, refused, words):
    """OWN-12 Every refusal has its own code: steps 1 to 4 for all that a session may send."""

    def refuse(head, session, epoch, token=""):
        refused(head, words.replace("#", f"{session} {epoch}") + token)

    refuse("STALE unknown", "nobody", 1)
    client("LEASE.SETPOLICY r access granted")
    for user in ("u1", "u2", "u3", "u4", "u5", "u6"):
        client(f"LEASE.GRANT r {user} WRITE")
    client("LEASE.OPEN r u1 SESSION expired TTL 1000 TOKEN s3cret")
    client("LEASE.OPEN r u2 SESSION lingering")
    client("LEASE.LEAVE r lingering 1 LINGER 5000")
    client("LEASE.OPEN r u3 SESSION kicked")
    client("LEASE.KICK r USER u3")
    client("LEASE.OPEN r u4 SESSION superseded TOKEN s3cret")
    client("LEASE.OPEN r u4 SESSION current TOKEN s3cret")
    client("LEASE.OPEN r u5 SESSION late TTL 2000")
    client.advance(1000)
    refuse("STALE unknown", "nobody", 1)
    refuse("STALE unknown", "current", 3, " TOKEN s3cret")
    refuse("DENIED token", "current", 3, " TOKEN guess")
    refuse("STALE superseded 2", "current", 1, " TOKEN s3cret")
    refuse("STALE superseded 2", "superseded", 1, " TOKEN s3cret")
    refuse("STALE expired", "expired", 1, " TOKEN s3cret")
    refuse("DENIED token", "expired", 1)
    refuse("STALE left", "lingering", 1)
    refuse("STALE kicked", "kicked", 1)
    client("LEASE.REVOKE r u4")
    refuse("DENIED revoked", "current", 2, " TOKEN s3cret")
    refuse("DENIED revoked", "superseded", 1, " TOKEN s3cret")
    refuse("DENIED token", "current", 2)
    client("LEASE.GRANT r u4 WRITE")
    refuse("STALE revoked", "current", 2, " TOKEN s3cret")

    end = client.now() + 500
    client("LEASE.OPEN r u6 SESSION ungranted")
    client(f"LEASE.GRANT r u5 WRITE UNTIL {end}")  # caps the lease
    client.advance(500)
    refuse("STALE expired", "late", 1)


def test_own_12_without_a_grant(client, refused):
    """OWN-12 Every refusal has its own code: steps 3 and 4, no grant and one for reading only."""
    client("LEASE.OPEN r u1 SESSION a TTL 1000")
    client("LEASE.GRANT r u2 READ")
    client("LEASE.OPEN r u2 SESSION b TTL 1000")
    client("LEASE.SETPOLICY r access granted")
    for words in WORDS:
        refused("DENIED nogrant", words.replace("#", "a 1"))
        refused("STALE unknown", words.replace("#", "a 2"))
    refused("DENIED readonly", "LEASE.SEND r b 1 m1 x")
    refused("STALE unknown", "LEASE.SEND r b 2 m1 x")
    refused("DENIED readonly", "LEASE.POST r u2 m1 x")
    refused("DENIED nogrant", "LEASE.POST r u1 m1 x")
    for words in WORDS[1:]:
        client(words.replace("#", "b 1"))
    client.advance(1000)
    for session in ("a 1", "b 1"):
        refused("STALE expired", WORDS[0].replace("#", session))


def test_own_12_messages(client, refused):
    """OWN-12 Every refusal has its own code: a message id used for another payload, limits, a log that is none, a position ahead."""
    client("LEASE.OPEN r u1 SESSION a")
    assert client("LEASE.SEND r a 1 m1 x")["seq"] == 1
    refused("CONFLICT message", "LEASE.SEND r a 1 m1 y")
    refused("CONFLICT message", "LEASE.POST r u1 m1 y")
    refused("LIMIT id", "LEASE.SEND r a 1 " + "i" * 256 + " x")
    refused("LIMIT id", "LEASE.POST r u1 " + "i" * 256 + " x")
    refused("LIMIT payload", "LEASE.SEND r a 1 m2 " + "p" * 65537)
    refused("ERR", "LEASE.ACK r a 1 2")
    client.raw("SET {r}:log x")
    refused("LOGSTATE", "LEASE.SEND r a 1 m2 x")
    with client.nothing_changes():  # answered before the log is looked at
        assert client("LEASE.SEND r a 1 m1 x")["status"] == b"duplicate"
    client.raw("DEL {r}:log")


def test_own_12_departure_of_what_is_gone(client):
    """OWN-12 Every refusal has its own code: step 5."""
    client("LEASE.OPEN r u1 SESSION ended TTL 1000")
    client.advance(1000)
    client("LEASE.OPEN r u2 SESSION superseded")
    client("LEASE.OPEN r u2 SESSION current")
    client("LEASE.OPEN r u3 SESSION bound TOKEN s3cret")
    client("LEASE.OPEN r u4 SESSION revoked")
    client("LEASE.REVOKE r u4")
    with client.nothing_changes():
        for session, epoch in (("nobody", 1), ("revoked", 1), ("ended", 1), ("superseded", 1), ("current", 1), ("current", 3)):
            assert client(f"LEASE.LEAVE r {session} {epoch}") == b"gone"
            status, left_ms, _ = client(f"LEASE.RENEW r {session} {epoch} 1 STATE closed")
            assert (status, left_ms) == (b"gone", 0)
        assert client("LEASE.RENEW r nobody 1 1 STATE closed") == [b"gone", 0, 0]
        for option in ("META", b"x" * 5000), ("TTL", 5), ("TTL", 2**62):
            assert client("LEASE.RENEW", "r", "ended", 1, 1, "STATE", "closed", *option)[0] == b"gone"
        assert client.refusal("LEASE.LEAVE r bound 1 TOKEN guess") == "DENIED token"
        assert client.refusal("LEASE.RENEW r bound 1 1 STATE closed TOKEN guess") == "DENIED token"
