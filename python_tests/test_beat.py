"""BEAT: heartbeats, order, snapshots."""

import random
import socket

import pytest

from crowd import fill
from harness import wait_until
from harness.events import entry, stream

# -------------------------------------------------------------------- BEAT-01


def test_beat_01_disconnected_is_not_departure(client):
    """BEAT-01 "disconnected" is not departure; nor is a page refresh: steps 1 and 2."""
    client("LEASE.SETPOLICY r disconnect-ms 5000")
    start = client("LEASE.OPEN r u1 SESSION a")["now"]
    assert client("LEASE.RENEW r a 1 1 STATE disconnected") == [b"shortened", 5000, start + 5000]
    client.advance(50)
    assert client("LEASE.RENEW r a 1 2") == [b"renewed", 30000, start + 30050]
    client("LEASE.SETPOLICY r disconnect-ms 90000")
    assert client("LEASE.RENEW r a 1 3 STATE disconnected") == [b"shortened", 30000, start + 30050]
    opened, state = client.events("r")
    assert opened["type"] == "opened"
    assert (state["type"], state["state"], state["expires_at"]) == ("state", "disconnected", start + 5000)


@pytest.fixture
def lingering(client):
    """A lease that lingers for 4000 ms, 1000 of them gone; the time at which it began to."""
    start = client("LEASE.OPEN r u1 SESSION a")["now"]
    assert client("LEASE.LEAVE r a 1 LINGER 4000") == b"lingering"
    client.advance(1000)
    with client.nothing_changes():
        assert client.refusal("LEASE.RENEW r a 1 4") == "STALE left"
        assert client("LEASE.LEAVE r a 1 LINGER 60000") == b"lingering"
    lease = client("LEASE.GET r a")
    assert (lease["state"], lease["reason"], lease["left_ms"], lease["expires_at"]) == (b"lingering", None, 3000, start + 4000)
    assert client("LEASE.COUNT r") == [1, 1]
    return start


def test_beat_01_a_page_refresh(client, lingering):
    """BEAT-01 "disconnected" is not departure; nor is a page refresh: step 3."""
    client.advance(2000)
    opened = client("LEASE.OPEN r u1 SESSION b")
    assert (opened["replaced"], opened["user_leases"]) == (b"a", 1)
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "superseded"), ("opened", b"b", 2)]
    assert [event["user_leases"] for event in client.events("r")] == [1, 1, 1]


def test_beat_01_nobody_comes_back(client, lingering):
    """BEAT-01 "disconnected" is not departure; nor is a page refresh: step 4, the time to linger runs out."""
    client.advance(2999)
    assert client("LEASE.COUNT r") == [1, 1]
    client.advance(1)
    removed = client.events("r")[-1]
    assert [removed[name] for name in ("type", "reason", "due", "lag_ms", "user_leases")] == ["removed", "left", lingering + 4000, 0, 0]


def test_beat_01_away_while_lingering(client, lingering):
    """BEAT-01 "disconnected" is not departure; nor is a page refresh: step 4, LEAVE while lingering."""
    assert client("LEASE.LEAVE r a 1") == b"left"
    removed = client.events("r")[-1]
    assert (removed["type"], removed["reason"], removed["at"]) == ("removed", "left", lingering + 1000)
    assert "due" not in removed
    client.advance(10000)
    assert len(client.events("r")) == 2


# -------------------------------------------------------------------- BEAT-02


def test_beat_02_a_new_device_on_every_reconnect(client):
    """BEAT-02 A new device id on every reconnect."""
    start = client.now()
    for number in (1, 2, 3, 4):
        client("LEASE.OPEN", "r", "u1", "DEVICE", f"x{number}", "SESSION", f"s{number}")
        client.advance(1000)
    for step in range(120):
        if step % 20 == 0:
            assert client("LEASE.RENEW", "r", "s4", 1, step + 1)[0] == b"renewed"
        client.advance(500)
        assert client("LEASE.COUNT r")[1] == 1
    assert [tuple(event[name] for name in ("type", "device", "reason", "due", "at", "user_leases")) for event in client.events("r")[4:]] == [
        ("removed", b"x1", "expired", start + 30000, start + 30000, 3),
        ("removed", b"x2", "expired", start + 31000, start + 31000, 2),
        ("removed", b"x3", "expired", start + 32000, start + 32000, 1),
    ]


# -------------------------------------------------------------------- BEAT-03


class Reader:
    """Follows a room by epochs: takes each page of a roster, then the events after the first page's event_n."""

    def __init__(self):
        self.holders = {}  # (user, device): (epoch, session, or None once the lease has ended)

    def take(self, told, session):
        holder = told["user"], told["device"]
        if told["epoch"] >= self.holders.get(holder, (0,))[0]:
            self.holders[holder] = (told["epoch"], session)

    def follow(self, event):
        if event["type"] in ("opened", "removed"):
            self.take(event, event["session"] if event["type"] == "opened" else None)

    def present(self):
        return {holder: lease for holder, lease in self.holders.items() if lease[1] is not None}


class Others:
    """What happens to the room meanwhile, one thing at a time."""

    def __init__(self, client, dice):
        self.client, self.dice, self.leases = client, dice, []

    def act(self):
        chance = self.dice.random()
        if chance < 0.5:
            user, device, ttl = self.dice.randrange(12), self.dice.randrange(3), self.dice.choice((1000, 5000, 30000))
            opened = self.client(f"LEASE.OPEN r u{user} DEVICE d{device} TTL {ttl}")
            self.leases.append((opened["session"], opened["epoch"]))
        elif chance < 0.9 and self.leases:
            self.client("LEASE.LEAVE", "r", *self.leases.pop(self.dice.randrange(len(self.leases))))
        else:
            self.client.advance(self.dice.randrange(300))


def pages(client, count):
    cursor = None
    while cursor != 0:
        page = client("LEASE.ROSTER", "r", "COUNT", count, "CURSOR", cursor or 0)
        cursor = int(page["cursor"])
        yield page


@pytest.mark.parametrize("rounds", (200, pytest.param(1700, marks=pytest.mark.load)))  # in six ways: 10,000
def test_beat_03_roster_plus_changes(client, way, rounds):
    """BEAT-03 Roster plus changes without a gap: step 1."""
    client("LEASE.SETPOLICY r tombstone-ms 1000")
    dice = random.Random(f"{way} {rounds}")
    others = Others(client, dice)
    for number in range(rounds):
        reader, event_n = Reader(), None
        for page in pages(client, 5):
            event_n = page["event_n"] if event_n is None else event_n
            for lease in page["leases"]:
                reader.take(lease, lease["session"])
            others.act()
            others.act()
        for event in client.connection("XRANGE", stream("r"), f"({event_n}-0", "+"):
            reader.follow(entry(*event))
        (now_present,) = pages(client, 10000)
        assert reader.present() == {(lease["user"], lease["device"]): (lease["epoch"], lease["session"]) for lease in now_present["leases"]}, (
            f"round {number}"
        )


class Talking(Others):
    """They send messages besides. `sent`: (seq, id, payload) of each accepted one, in order."""

    def __init__(self, client, dice):
        super().__init__(client, dice)
        self.sent = []
        client("LEASE.OPEN r sender SESSION sender TTL 3600000")

    def act(self):
        if self.dice.random() < 0.5:
            return super().act()
        words = f"m{len(self.sent)}", f"p{self.dice.randrange(1000)}"
        reply = self.client("LEASE.SEND", "r", "sender", 1, *words)
        self.sent.append((reply["seq"], *(word.encode() for word in words)))


def replay(client, gen, after, act):
    """All messages behind `after` in small pages, something happening between two."""
    while True:
        page = client("LEASE.REPLAY", "r", "reader", 1, gen, after, "COUNT", 2)
        assert (page["status"], page["next"] - after) == (b"ok", len(page["entries"]))
        yield from page["entries"]
        after = page["next"]
        if after == page["current"]:
            return
        act()


def told(entries):
    return [(seq, entry["id"], entry["payload"]) for seq, entry in entries]


@pytest.mark.parametrize("rounds", (200, pytest.param(1700, marks=pytest.mark.load)))
def test_beat_03_snapshot_plus_changes(client, way, rounds):
    """BEAT-03 Roster plus changes without a gap: step 2, SNAPSHOT with the events and messages after it."""
    client("LEASE.SETPOLICY r tombstone-ms 1000")
    client("LEASE.OPEN r reader SESSION reader TTL 3600000")
    dice = random.Random(f"{way} {rounds}")
    others = Talking(client, dice)
    for number in range(1, rounds + 1):
        for session in ("reader", "sender"):
            client("LEASE.RENEW", "r", session, 1, number)
        shot, reader = client("LEASE.SNAPSHOT r reader 1 COUNT 5"), Reader()
        assert (shot["current"], shot["cursor"]) == (len(others.sent), 0)
        for lease in shot["leases"]:
            reader.take(lease, lease["session"])
        for _ in range(dice.randrange(12)):
            others.act()
        messages = told(shot["entries"]) + told(replay(client, shot["gen"], shot["current"], others.act))
        assert messages == others.sent[max(0, shot["current"] - 5) :], f"round {number}"
        for event in client.connection("XRANGE", stream("r"), f"({shot['event_n']}-0", "+"):
            reader.follow(entry(*event))
        (now_present,) = pages(client, 10000)
        assert reader.present() == {(lease["user"], lease["device"]): (lease["epoch"], lease["session"]) for lease in now_present["leases"]}, (
            f"round {number}"
        )
    assert len(others.sent) > rounds


# -------------------------------------------------------------------- BEAT-04, 05


def test_beat_04_leave_and_join_inside_one_supersede(client):
    """BEAT-04 Leave and join inside one supersede."""
    client("LEASE.OPEN r u1 SESSION a")
    client.transaction("SET x 1", "LEASE.OPEN r u1 SESSION b")
    opened_a, removed, opened = client.events("r")
    assert (opened["n"], removed["n"]) == (opened_a["n"] + 2, opened_a["n"] + 1)
    assert [removed[name] for name in ("type", "session", "epoch", "reason")] == ["removed", b"a", 1, "superseded"]
    assert [opened[name] for name in ("type", "session", "epoch")] == ["opened", b"b", 2]
    for order in ((removed, opened), (opened, removed)):
        reader = Reader()
        for event in (opened_a, *order):
            reader.follow(event)
        assert reader.present() == {(b"u1", b"default"): (2, b"b")}


def test_beat_05_the_sequence_starts_anew_with_the_epoch(client):
    """BEAT-05 The sequence starts anew with the epoch."""
    client("LEASE.OPEN r u1 SESSION a")
    assert client("LEASE.RENEW r a 1 500")[0] == b"renewed"
    start = client("LEASE.OPEN r u1 SESSION b")["now"]
    assert client("LEASE.RENEW r b 2 1") == [b"renewed", 30000, start + 30000]
    client.advance(1000)
    with client.nothing_changes():
        for command in ("LEASE.RENEW r b 2 1", "LEASE.RENEW r b 2 0", "LEASE.RENEW r b 2 1 STATE failed META z TTL 60000"):
            assert client(command) == [b"duplicate", 29000, start + 30000]
    lease = client("LEASE.GET r b")
    assert [lease[name] for name in ("signal", "meta", "ttl_ms", "seq")] == [None, None, 30000, 1]
    assert client("LEASE.RENEW r b 2 2 STATE connected") == [b"renewed", 30000, start + 31000]
    assert [event["type"] for event in client.events("r")] == ["opened", "removed", "opened", "state"]


# -------------------------------------------------------------------- BEAT-06

SECRETS = (b"s3cret-of-b", b"wild-guess", b"key-of-carol")


def test_beat_06_departure_with_a_used_number(client):
    """BEAT-06 Departure with a used number; forged departure: step 1."""
    client("LEASE.OPEN r alice SESSION a")
    assert client("LEASE.RENEW r a 1 10")[0] == b"renewed"
    assert client("LEASE.LEAVE r a 1") == b"left"


def forge(client):
    """Steps 2 to 4: a session bound to a token, and those who do not have it."""
    client("LEASE.OPEN r alice SESSION a")
    opened = client("LEASE.OPEN r alice SESSION b TOKEN s3cret-of-b")
    assert opened["epoch"] == 2
    with client.nothing_changes():
        assert client.refusal("LEASE.LEAVE r b 2") == "DENIED token"
        assert client.refusal("LEASE.LEAVE r b 2 TOKEN wild-guess") == "DENIED token"
        assert client.refusal("LEASE.RENEW r b 2 1") == "DENIED token"
        assert client.refusal("LEASE.OPEN r alice SESSION b") == "DENIED token"
        assert client("LEASE.MRENEW r b 2 2") == [[b"denied", b"token"]]
        assert client("LEASE.MRENEW r TOKENS b 2 2 wild-guess") == [[b"denied", b"token"]]
        assert client("LEASE.OPEN r alice SESSION b TOKEN s3cret-of-b")["epoch"] == 2
        assert client.refusal("LEASE.OPEN r alice SESSION c TTL 0 TOKEN s3cret-of-b") == "ERR"
        assert client.refusal("LEASE.RENEW missing b 2 1 TOKEN s3cret-of-b") == "STALE unknown"
    assert client("LEASE.RENEW r b 2 1 TOKEN s3cret-of-b")[0] == b"renewed"
    assert client("LEASE.MRENEW r TOKENS b 2 2 s3cret-of-b") == [[b"renewed", 30000]]
    for words in ("SEND r b 2 m1 x", "REPLAY r b 2 * 0", "SNAPSHOT r b 2", "ACK r b 2 1"):
        with client.nothing_changes():
            for token in ("", " TOKEN wild-guess"):
                assert client.refusal(f"LEASE.{words}{token}") == "DENIED token"
        client(f"LEASE.{words} TOKEN s3cret-of-b")


def show_a_key(client):
    """A grant with a token, and who has it or not."""
    client("LEASE.SETPOLICY g access granted")
    client("LEASE.GRANT g carol READ TOKEN key-of-carol")
    assert client.refusal("LEASE.OPEN g carol GRANT-TOKEN wild-guess") == "DENIED token"
    assert client("LEASE.OPEN g carol GRANT-TOKEN key-of-carol")["epoch"] == 1


def test_beat_06_forged_departure(client):
    """BEAT-06 Departure with a used number; forged departure: steps 2 to 4."""
    forge(client)
    assert client("LEASE.LEAVE r b 2 TOKEN s3cret-of-b") == b"left"
    assert client.history("r")[2:] == [("opened", b"b", 2), ("removed", b"b", 2, "left")]


def secret(haystack, shows=b"LEASE."):
    """The haystack is what it should be, and none of the tokens is in it."""
    assert shows.lower() in haystack.lower()
    for token in SECRETS:
        assert token not in haystack, f"{token} is readable"


class Replication:
    """What a replica would be sent, as it comes over the wire."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.sendall(b"SYNC\r\n")
        self.read_to(b"$")  # the snapshot begins; the server has noted where the stream goes on

    def read_to(self, end):
        read = b""
        while end not in read:
            part = self.socket.recv(1 << 20)
            assert part, f"the stream ended before {end}: {read[-200:]}"
            read += part
        return read


@pytest.mark.server(
    redis={"appendonly": "yes", "appendfsync": "always", "rdbcompression": "no", "slowlog-log-slower-than": 0, "slowlog-max-len": 10000}
)
def test_beat_06_tokens_stay_secret(client, way):
    """BEAT-06 Departure with a used number; forged departure: the tokens, of grants too, are nowhere to be read."""
    server = client.server
    replication = Replication(server.port)
    monitor = server.connect(protocol=2)
    monitor("MONITOR")
    show_a_key(client)
    forge(client)
    server.call("SET end of-the-forgery")
    monitored = b""
    while b"of-the-forgery" not in monitored:
        monitored += b"\n" + monitor.read()
    if way.name != "eval":  # a script's own arguments are not the module's to hide
        secret(monitored)
        secret(repr(server.call("SLOWLOG GET 10000")).encode())
    secret(replication.read_to(b"of-the-forgery"))
    secret(server.call("DUMP r"), shows=b"alice")
    server.call("SAVE")
    secret((server.path / "dump.rdb").read_bytes(), shows=b"alice")
    for preamble in ("yes", "no"):
        secret(append_only(server), shows=b"alice")
        server.rewrite_aof(preamble)
    secret(append_only(server))


def append_only(server):
    return b"".join(part.read_bytes() for part in sorted((server.path / "appendonlydir").iterdir()))


# -------------------------------------------------------------------- BEAT-07, 08


def test_beat_07_an_update_is_not_a_leave_and_a_join(client):
    """BEAT-07 An update is not a leave and a join."""
    client("LEASE.OPEN r u1 SESSION a META A")
    opened = client("LEASE.GET r a")
    client.advance(1000)
    assert client("LEASE.RENEW r a 1 1 META B")[0] == b"renewed"
    assert client("LEASE.LEAVE r a 1") == b"left"
    with client.nothing_changes():
        assert client.refusal("LEASE.RENEW r a 1 2 META C") == "STALE left"
    lease = client("LEASE.GET r a")
    assert (lease["epoch"], lease["opened_at"], lease["meta"]) == (1, opened["opened_at"], b"B")
    assert [(event["type"], event.get("meta")) for event in client.events("r")] == [("opened", b"A"), ("updated", b"B"), ("removed", None)]


def test_beat_08_a_throttled_tab_wakes_with_a_burst(client):
    """BEAT-08 A throttled tab wakes with a burst."""
    history = []
    for cycle in range(1, 11):
        assert client(f"LEASE.OPEN r u1 SESSION s{cycle} TTL 30000")["epoch"] == cycle
        client.advance(60000)
        refused = client.server.lease_info().get("rejected_stale_expired", 0)
        with client.nothing_changes():
            burst = client.pipeline(*(f"LEASE.RENEW r s{cycle} {cycle} {seq}" for seq in range(1, 7)))
        assert [reply.head for reply in burst] == ["STALE expired"] * 6
        assert client.server.lease_info()["rejected_stale_expired"] == refused + 6
        history += [("opened", b"s%d" % cycle, cycle), ("removed", b"s%d" % cycle, cycle, "expired")]
        assert client.history("r") == history
    assert client("LEASE.COUNT r") == [0, 0]


# -------------------------------------------------------------------- BEAT-09, 10


def changed_between_slices(client, room, size):
    """Changes two leases of a room full of due ones, once the first is removed; whether the reaper was still at work."""
    fill(client.server, room, size, "TTL", 600000, "UNTIL", client.now() + 1000 + size // 10)
    last, before_last = size - 1, size - 2
    wait_until(lambda: client("XLEN", stream(room)) > size, 30, "the first lease is removed")
    written, gone, opened = client.transaction(
        ["XLEN", stream(room)], f"LEASE.LEAVE {room} s{last} 1", f"LEASE.OPEN {room} u{before_last} SESSION new TTL 600000"
    )
    assert gone == b"gone"
    assert opened["epoch"] == 2
    wait_until(lambda: client("XLEN", stream(room)) == 2 * size + 1, 60, "all are removed")
    removed = [event for event in client.events(room) if event["type"] == "removed"]
    assert sorted(event["session"] for event in removed) == sorted(b"s%d" % number for number in range(size))
    assert {event["reason"] for event in removed} == {"expired"}
    lease = client(f"LEASE.GET {room} new")
    assert (lease["state"], lease["expires_at"]) == (b"active", opened["expires_at"])
    return written < 2 * size - 2


@pytest.mark.server(clock=None, lease={"events-maxlen": 0, "reap-slice-us": 1})
@pytest.mark.ways("plain-resp3", "multi-resp2", "eval-resp3")
@pytest.mark.parametrize("size", (2000, pytest.param(50000, marks=(pytest.mark.load, pytest.mark.no_restart("the smaller run has them")))))
def test_beat_09_changes_between_two_slices(client, size):
    """BEAT-09 Changes between two reaper slices."""
    assert any(changed_between_slices(client, f"r{turn}", size) for turn in range(5)), "the reaper was always done: nothing was tried"


def test_beat_10_endless_renewal(client):
    """BEAT-10 Endless renewal."""
    until = client.now() + 60000
    assert client(f"LEASE.OPEN r u1 SESSION a UNTIL {until}")["expires_at"] == until - 30000
    for seq in range(1, 6):
        now = client.advance(10000)
        expires_at = min(now + 30000, until)
        assert client(f"LEASE.RENEW r a 1 {seq}") == [b"renewed", expires_at - now, expires_at]
    for seq in range(6, 13):
        client.advance(10000)
        assert client.refusal(f"LEASE.RENEW r a 1 {seq}") == "STALE expired"
    opened, removed = client.events("r")
    assert [removed[name] for name in ("type", "session", "reason", "due")] == ["removed", b"a", "expired", until]
    assert client("LEASE.OPEN r u1 SESSION b")["epoch"] == 2


# -------------------------------------------------------------------- BEAT-11


def test_beat_11_only_heartbeats_keep_a_lease(client):
    """BEAT-11 Only heartbeats keep a lease."""
    start = client("LEASE.OPEN r u1 SESSION a TTL 120000")["now"]
    for number in range(1, 12):
        client.advance(10000)
        assert client(f"LEASE.SEND r a 1 m{number} x")["status"] == b"accepted"
    (in_time,) = client.held(9999, "LEASE.SEND r a 1 m12 x")
    assert (in_time["status"], in_time["seq"], in_time["at"]) == (b"accepted", 12, start + 119999)
    assert [reply.head for reply in client.held(1, "LEASE.SEND r a 1 m13 x")] == ["STALE expired"]
    client.advance(1000)
    with client.nothing_changes():
        assert client.refusal("LEASE.SEND r a 1 m13 x") == "STALE expired"
    posted = client("LEASE.POST r u1 m99 x")
    assert (posted["status"], posted["seq"], posted["at"]) == (b"accepted", 13, start + 121000)
    assert client("LEASE.COUNT r") == [0, 0]
    (removed,) = [event for event in client.events("r") if event["type"] == "removed"]
    assert (removed["due"], removed["log_seq"]) == (start + 120000, 12)
    assert [seq for seq, _ in client.messages("r")] == list(range(1, 14))
