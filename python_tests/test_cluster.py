"""API-07, API-08: rooms in a cluster, while their slots stay and while they move."""

import itertools

import pytest

from harness import Refused, rooms, wait_until, ways
from harness.cluster import Cluster, asking, keys_of, sent_elsewhere
from harness.events import gen_order, read, stream
from harness.replies import normal
from harness.resp import words
from test_api import CALLS, call

pytestmark = pytest.mark.no_restart("a restarted node waits for its cluster")

ROOM = "r"
EV, LOG = "{r}:events", "{r}:log"
ORDERS = list(itertools.permutations((ROOM, EV, LOG)))
MOVING = {"TRYAGAIN", "ASK", "MOVED"}
LIFE = [  # what a room may hold: each kind of record
    "LEASE.SETPOLICY r tombstone-ms 500000",
    "LEASE.HOLD r audit",
    "LEASE.OPEN r u1 SESSION a TTL 60000",
    "LEASE.OPEN r u1 DEVICE d SESSION b TOKEN t",
    "LEASE.OPEN r u2 SESSION c META m",
    "LEASE.RENEW r a 1 7 STATE connected",
    "LEASE.LEAVE r c 1",
    "LEASE.OPEN r u2 SESSION d",
    "LEASE.GRANT r u1 WRITE UNTIL 500000 VERSION 4",
    "LEASE.REVOKE r u3 DEVICE x VERSION 2",
    "LEASE.SEND r a 1 m1 one",
    "LEASE.POST r u2 m2 two",
    "LEASE.SEND r a 1 m3 three",
    "LEASE.ACK r a 1 2",
    "LEASE.MARK r u1 d QUEUED 3",
]
ASKED = [  # what changes nothing, and shows what a room or its streams hold
    "LEASE.OPEN r u1 SESSION a",
    "LEASE.RENEW r a 1 7",
    "LEASE.SEND r a 1 m1 one",
    "LEASE.POST r u2 m2 two",
    "LEASE.REPLAY r a 1 * 1",
    "LEASE.SNAPSHOT r a 1",
    "LEASE.GET r b",
    "LEASE.ROSTER r ENDED",
    "LEASE.STATS r",
    "LEASE.LAG r",
    "LEASE.GRANTS r",
    "LEASE.HOLDS r",
]


@pytest.fixture
def cluster(start):
    return Cluster(start)


def answers(ask, commands=ASKED):
    """The replies by command; of a refusal its code."""
    return {command: answer(ask, command) for command in commands}


def answer(ask, command):
    try:
        return normal(words(command), ask(command))
    except Refused as refused:
        return refused.code


def asked(node):
    return lambda command: asking(node, command)


def follow(source, target):
    """A client that goes where the source of a slot that moves sends it."""

    def ask(command):
        try:
            return source.call(command)
        except Refused as refused:
            if sent_elsewhere(refused) is None:
                raise
            assert sent_elsewhere(refused) == target.port
            return asking(target, command)

    return ask


def a_room(cluster, life=LIFE):
    """A room with this life; its node."""
    owner = cluster.owner(ROOM)
    for command in life:
        owner.call(command)
    return owner


def streams(node):
    return node.call("DUMP", EV), node.call("DUMP", LOG)


# -------------------------------------------------------------------- API-07


@pytest.mark.parametrize("scope", ("room", "tag"))
def test_api_07_streams_share_the_slot(start, scope):
    """API-07 Streams share the slot (1): room, events and log in one; the log is always the room's."""
    cluster = Cluster(start, lease={"events-scope": scope})
    for room in (ROOM, "x{t}y"):
        events = "{t}:lease:events" if scope == "tag" and "{" in room else stream(room)
        node = cluster.owner(room)
        node.call("LEASE.OPEN", room, "u1", "SESSION", "a")
        node.call("LEASE.SEND", room, "a", 1, "m1", "x")
        keys = room, events, stream(room, "log")
        assert len({cluster.slot(key) for key in keys}) == 1
        assert [node.call("XLEN", key) for key in keys[1:]] == [1, 1]
        if scope == "tag":
            node.aside.add((0, room.encode()))


def test_api_07_stray_braces(cluster):
    """API-07 Streams share the slot (2): a key whose streams would be in another slot is refused by every command."""
    for room in ("a}b", "{}x", "{t}", "{t}y}", "x:events", "x:log"):
        node = cluster.owner(room)
        for command in CALLS:
            assert answer(node.call, call(command, room)) == "ERR", (room, command)
    assert [node.call("DBSIZE") for node in cluster.nodes] == [0, 0, 0]


# -------------------------------------------------------------------- API-08


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_api_08_a_moved_room_is_as_before(cluster, order):
    """API-08 Slot migration: whatever goes first, all of a room is as before; whoever asks meanwhile is answered as before or sent on."""
    source = a_room(cluster)
    target = cluster.pair(ROOM)[1]
    expected, before, held = answers(source.call), rooms.scan(source), streams(source)
    assert not MOVING & {str(reply) for reply in expected.values()}
    slot = cluster.slot(ROOM)
    cluster.begin(slot, source, target)
    for key in (None, *order):
        if key:
            cluster.migrate(source, target, key)
        for command, reply in answers(follow(source, target)).items():
            assert reply == expected[command] or reply == "TRYAGAIN", (key, command)
    assert answers(asked(target)) == expected
    cluster.finish(slot, target)
    assert (answers(target.call), rooms.scan(target), streams(target)) == (expected, before, held)
    assert source.call("DBSIZE") == 0
    assert {node.lease_info()["events_lost"] for node in cluster.nodes} == {0}


def test_api_08_in_scripts_and_transactions(cluster, way):
    """API-08 Slot migration: the same from within MULTI and EVAL."""
    source = a_room(cluster)
    target, slot = cluster.pair(ROOM)[1], cluster.slot(ROOM)
    commands = ASKED + ["LEASE.POST r u2 new x", "LEASE.OPEN r u7"]
    cluster.begin(slot, source, target)
    cluster.migrate(source, target, LOG)
    there = dict(zip(commands, said(source, way, commands)))
    assert {command for command, reply in there.items() if reply == "TRYAGAIN"} == {
        command for command in commands if command.split()[0][6:] in ("OPEN", "REPLAY", "SNAPSHOT", "STATS") or "new" in command
    }
    cluster.migrate(source, target, ROOM)
    # The events are still at the source.
    assert said(target, way, ["LEASE.OPEN r u7", "LEASE.KICK r USER u1"], first=["ASKING"]) == ["TRYAGAIN", "TRYAGAIN"]
    assert said(target, way, ["LEASE.REPLAY r a 1 * 1"], first=["ASKING"])[0]["status"] == b"ok"
    cluster.migrate(source, target, EV)
    assert "TRYAGAIN" not in said(target, way, commands, first=["ASKING"])
    cluster.finish(slot, target)


def said(node, way, commands, first=()):
    """The replies to commands that go this way, of a refusal its code; a script names the key it uses."""
    connection, replies = node.connect(way.protocol), []
    for command in commands:
        parts = way.wrap(words(command))
        if parts[0][0] == "EVAL":
            parts = [["EVAL", ways.SCRIPT.replace("ARGV", "ARGV, 1"), 1, ROOM, *words(command)]]
        *_, reply = connection.pipeline([first, *parts] if first else parts)
        reply = reply[0] if way.name == "multi" and isinstance(reply, list) else reply
        replies.append(reply.code if isinstance(reply, Refused) else normal(words(command), reply))
    return replies


TAGGED = "x{t}", "{t}:lease:events", "x{t}:log"


@pytest.mark.parametrize("order", list(itertools.permutations(TAGGED)), ids="-".join)
def test_api_08_with_the_stream_of_a_tag(start, order):
    """API-08 Slot migration: with `events-scope tag` the shared stream is one of the room's keys."""
    cluster = Cluster(start, lease={"events-scope": "tag"})
    life, questions = ([command.replace(" r", " x{t}", 1) for command in commands] for commands in (LIFE, ASKED))
    source, target = cluster.pair("x{t}")
    for command in life:
        source.call(command)
    for node in source, target:
        node.aside.add((0, b"x{t}"))
    expected = answers(source.call, questions)
    slot = cluster.slot("x{t}")
    cluster.begin(slot, source, target)
    for key in order:
        cluster.migrate(source, target, key)
        for command, reply in answers(follow(source, target), questions).items():
            assert reply == expected[command] or reply == "TRYAGAIN", (key, command)
    cluster.finish(slot, target)
    assert answers(target.call, questions) == expected
    before = target.call("XLEN", TAGGED[1])
    target.call("LEASE.OPEN x{t} u9")
    assert target.call("XLEN", TAGGED[1]) == before + 1


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_api_08_time_waits_for_the_streams(cluster, order):
    """API-08 Slot migration: what falls due is removed by the owner, once, when room and streams are together; nothing else tells of it."""
    source = a_room(cluster)
    target = cluster.pair(ROOM)[1]
    slot = cluster.slot(ROOM)
    cluster.begin(slot, source, target)
    for key in order:
        cluster.migrate(source, target, key)
        cluster.advance(10000)  # d and b fall due on the way, at 30000
        cluster.advance(200)
    assert [source.call("EXISTS", key) for key in order if answer(source.call, f"EXISTS {key}") not in MOVING] == []
    removed = [event["session"] for event in events_at(target) if event["type"] == "removed"]
    assert removed == [b"c"], "the target does not own the slot yet"
    cluster.finish(slot, target)
    cluster.advance(200)
    last = [(event["type"], event.get("session"), event.get("reason")) for event in read(target.call, ROOM)[-2:]]
    assert last == [("removed", b"b", "expired"), ("removed", b"d", "expired")]
    assert not any(event["type"] == "closed" for event in read(target.call, ROOM))
    assert {node.lease_info()["events_lost"] for node in cluster.nodes} == {0}


def test_api_08_the_target_does_nothing_before_it_owns_the_slot(cluster):
    """API-08 Slot migration: nor does it forget, end grants or let cursors go; once it owns the slot it catches up."""
    source = a_room(
        cluster, ["LEASE.SETPOLICY r tombstone-ms 5000", "LEASE.OPEN r u1 SESSION a", "LEASE.OPEN r u1 SESSION b", "LEASE.GRANT r u2 READ UNTIL 5000"]
    )
    target, slot = cluster.pair(ROOM)[1], cluster.slot(ROOM)
    cluster.begin(slot, source, target)
    cluster.migrate(source, target, *keys_of(ROOM))
    digest = target.call("DEBUG DIGEST-VALUE r")
    for ms in 6000, 30000:
        target.call("LEASE.CLOCK", "ADVANCE", ms)
        target.call("LEASE.CLOCK ADVANCE 200")
        assert target.call("DEBUG DIGEST-VALUE r") == digest
    assert (target.lease_info()["reap_backlog"], target.lease_info()["ended_expired"]) == (1, 0)
    cluster.finish(slot, target)
    cluster.advance(200)
    assert (target.lease_info()["reap_backlog"], target.lease_info()["ended_expired"]) == (0, 1)
    assert target.call("DEBUG DIGEST-VALUE r") != digest


def events_at(target):
    """The events as a node shows them that has not got their slot yet."""
    return read(lambda *command: asking(target, *command), ROOM)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_api_08_writes_on_the_way(cluster, order):
    """API-08 Slot migration: a writer that follows ASK and tries again loses nothing and doubles nothing."""
    source = a_room(cluster)
    target = cluster.pair(ROOM)[1]
    slot = cluster.slot(ROOM)
    cluster.begin(slot, source, target)
    ask, waiting = follow(source, target), []
    for number, key in enumerate((None, *order)):
        if key:
            cluster.migrate(source, target, key)
        # In this order: what comes later is not tried before what it follows.
        waiting += [f"LEASE.SEND r a 1 w{number} x", f"LEASE.OPEN r w{number}", f"LEASE.RENEW r a 1 {10 + number}", f"LEASE.KICK r USER w{number}"]
        while waiting and answer(ask, waiting[0]) != "TRYAGAIN":
            del waiting[0]
    assert waiting == [], "all keys are there: nothing is left to wait for"
    cluster.finish(slot, target)
    messages = [dict(zip(fields[::2], fields[1::2]))[b"id"] for _, fields in target.call("XRANGE", LOG, "-", "+")]
    assert sorted(messages[3:]) == [b"w%d" % number for number in range(4)]
    events = [(event["type"], event["user"]) for event in read(target.call, ROOM) if event.get("user", b"").startswith(b"w")]
    assert sorted(events) == sorted((kind, b"w%d" % number) for kind in ("opened", "removed") for number in range(4))


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_api_08_no_room_begins_in_a_slot_that_moves(cluster, order):
    """API-08 Slot migration: a room made too early would meet streams that are still to come; no BUSYKEY."""
    source = a_room(cluster)
    target = cluster.pair(ROOM)[1]
    source.call("DEL r")
    cluster.advance(0)
    slot = cluster.slot(ROOM)
    cluster.begin(slot, source, target)
    for key in order:
        for command in "LEASE.OPEN r new", "LEASE.POST r new m x", "LEASE.HOLD r h", "LEASE.SETPOLICY r ttl-ms 5000", "LEASE.GRANT r u READ":
            assert answer(source.call, command) in MOVING and answer(asked(target), command) in MOVING
        cluster.migrate(source, target, key)
    cluster.finish(slot, target)
    opened = normal(["LEASE.OPEN"], target.call("LEASE.OPEN r new"))
    assert (opened["event_n"], opened["log_seq"]) == (read(target.call, ROOM)[-1]["n"], 3)


def test_api_08_a_move_that_is_given_up(cluster):
    """API-08 Slot migration: what comes back to a node that kept the slot is another history, and has lost nothing."""
    source = a_room(cluster)
    target = cluster.pair(ROOM)[1]
    before = rooms.scan(source)[0, b"r"]
    slot = cluster.slot(ROOM)
    cluster.begin(slot, source, target)
    cluster.migrate(source, target, LOG)
    cluster.migrate(source, target, ROOM)
    cluster.advance(0)
    source.call("CLUSTER", "SETSLOT", slot, "STABLE")
    for key in ROOM, LOG:
        cluster.migrate(target, source, key)
    target.call("CLUSTER", "SETSLOT", slot, "STABLE")
    after = rooms.scan(source)[0, b"r"]
    assert gen_order(after["gen"]) > gen_order(before["gen"])
    assert {**after, "gen": 0, "event_n": 0, "stats": 0, "holds": 0} == {**before, "gen": 0, "event_n": 0, "stats": 0, "holds": 0}
    assert answer(source.call, "LEASE.SEND r a 1 m1 one")["seq"] == 1
    assert not any(event["type"] == "closed" for event in read(source.call, ROOM))
    source.aside.add((0, b"r"))


def test_api_08_a_stream_that_stays_away(cluster):
    """API-08 Slot migration: while the slot is moving a stream that has left is not made anew; once the move is given up it counts as deleted."""
    source = a_room(cluster, [*LIFE, "LEASE.UNHOLD r audit", "LEASE.SETPOLICY r dedup-ms 0"])
    target = cluster.pair(ROOM)[1]
    slot = cluster.slot(ROOM)
    cluster.begin(slot, source, target)
    cluster.migrate(source, target, LOG)
    cluster.advance(1000)
    for command in "LEASE.SEND r a 1 m4 x", "LEASE.REPLAY r a 1 * 0", "LEASE.SNAPSHOT r a 1", "LEASE.TRIM r", "LEASE.OPEN r u9", "LEASE.STATS r":
        assert answer(source.call, command) == "TRYAGAIN", command
    assert answer(source.call, "LEASE.RENEW r a 1 8")[0] == b"renewed"
    assert answer(source.call, "LEASE.SEND r a 1 m1 one")["status"] == b"duplicate", "its records have not ended: its messages are not gone"
    source.call("CLUSTER", "SETSLOT", slot, "STABLE")
    target.call("CLUSTER", "SETSLOT", slot, "STABLE")
    assert answer(source.call, "LEASE.SEND r a 1 m4 x")["seq"] == 4
    assert answer(source.call, "LEASE.REPLAY r a 1 * 0")["reason"] == b"trimmed"
    target.aside.add((0, b"r"))


def test_api_08_the_target_reads_its_aof(start):
    """API-08 Slot migration: a room that came with its slot is no orphan after a load."""
    cluster = Cluster(start, redis={"appendonly": "yes"})
    a_room(cluster)
    target = cluster.move(ROOM, [LOG, EV, ROOM])
    before = rooms.scan(target)[0, b"r"]
    target.call("DEBUG LOADAOF")
    after = rooms.scan(target)[0, b"r"]
    assert (after["holds"], after["leases"], after["stats"]["log_seq"]) == (before["holds"], before["leases"], 3)
    assert answer(target.call, f"LEASE.REPLAY r a 1 {before['gen']} 2")["status"] == b"ok"


def test_api_08_there_and_back(cluster):
    """API-08 Slot migration: a slot that moves twice is where it was, and its rooms are."""
    source = a_room(cluster)
    expected = answers(source.call)
    target = cluster.move(ROOM)
    assert answers(target.call) == expected
    assert cluster.move(ROOM, [LOG, ROOM, EV]) is source
    assert answers(source.call) == expected


@pytest.fixture
def atomic(cluster):
    """A cluster whose server moves slots as a whole."""
    if not cluster.moves_atomically():
        pytest.skip("this server has no CLUSTER MIGRATESLOTS")
    return cluster


def test_api_08_an_atomic_move(atomic):
    """API-08 Slot migration: a slot that moves as a whole changes nothing."""
    source = a_room(atomic)
    target, slot = atomic.pair(ROOM)[1], atomic.slot(ROOM)
    expected, before, held = answers(source.call), rooms.scan(source), streams(source)
    atomic.migrate_slots(slot, slot, source, target)
    assert (answers(target.call), rooms.scan(target), streams(target)) == (expected, before, held)
    wait_until(lambda: source.call("DBSIZE") == 0, what="the source has let go")
    assert source.lease_info()["rooms"] == source.lease_info()["events_lost"] == 0
    atomic.migrate_slots(slot, slot, target, source)
    assert answers(source.call) == expected


def test_api_08_an_atomic_move_before_the_first_write(atomic):
    """API-08 Slot migration: the same of a room of a node that was loaded anew: no epoch comes twice."""
    source = a_room(atomic)
    target, slot = atomic.pair(ROOM)[1], atomic.slot(ROOM)
    gen = rooms.scan(source)[0, b"r"]["gen"]
    source.call("DEBUG RELOAD")
    atomic.migrate_slots(slot, slot, source, target)
    assert gen_order(rooms.scan(target)[0, b"r"]["gen"]) > gen_order(gen)
    assert normal(["LEASE.OPEN"], target.call("LEASE.OPEN r u1"))["epoch"] > 1024


def on_its_way(atomic, *before):
    """A room whose slot the target knows and the source has not let go: (source, target, slot). The source is told something `before`."""
    source = a_room(atomic)
    for command in before:
        source.call(command)
    target, slot = atomic.pair(ROOM)[1], atomic.slot(ROOM)
    source.call("DEBUG SLOTMIGRATION PREVENT-PAUSE 1")
    atomic.begin_migrate_slots(slot, slot, source, target)
    wait_until(lambda: target.lease_info()["active_leases"] == 3, what="the room has arrived")
    return source, target, slot


def test_api_08_time_during_an_atomic_move(atomic):
    """API-08 Slot migration: a room that has arrived before its slot waits for what the owner decides."""
    source, target, slot = on_its_way(atomic)
    for node in target, source:  # the clock of the target goes before
        node.call("LEASE.CLOCK ADVANCE 40000")
        node.call("LEASE.CLOCK ADVANCE 200")
    assert target.lease_info()["ended_expired"] == 0
    source.call("LEASE.SEND r a 1 m4 four")
    source.call("LEASE.RENEW r a 1 8")
    expected, before = answers(source.call, ASKED[1:]), rooms.scan(source)
    source.call("DEBUG SLOTMIGRATION PREVENT-PAUSE 0")
    atomic.await_slots(slot, source, target)
    assert (answers(target.call, ASKED[1:]), rooms.scan(target)) == (expected, before)
    assert [event.get("reason") for event in read(target.call, ROOM) if event["type"] == "removed"] == ["left", "expired", "expired"]


def test_api_08_the_first_write_during_an_atomic_move(atomic):
    """API-08 Slot migration: the source was loaded anew, and begins the room's history while it moves: the target begins no other."""
    source, target, slot = on_its_way(atomic, "DEBUG RELOAD")
    source.call("LEASE.SEND r a 1 m4 four")
    before = rooms.scan(source)
    source.call("DEBUG SLOTMIGRATION PREVENT-PAUSE 0")
    atomic.await_slots(slot, source, target)
    assert rooms.scan(target) == before


def test_api_08_an_atomic_move_that_is_given_up(atomic):
    """API-08 Slot migration: the target drops what it got, and nobody is told."""
    source, target, _ = on_its_way(atomic)
    expected, before = answers(source.call), rooms.scan(source)
    source.call("CLUSTER CANCELSLOTMIGRATIONS")
    wait_until(lambda: target.lease_info()["rooms"] == 0, what="the target has dropped it")
    target.call("LEASE.CLOCK ADVANCE 40000")
    assert (answers(source.call), rooms.scan(source)) == (expected, before)
    assert target.call("DBSIZE") == target.lease_info()["events_lost"] == target.lease_info()["ended_expired"] == 0


def test_api_08_a_large_room_by_an_atomic_move(start, atomic):
    """API-08 Slot migration: a room of many parts, for the target's replica too."""
    source = a_room(atomic, [f"LEASE.OPEN r user{number} SESSION s{number} META {number}" for number in range(1500)])
    source.call.pipeline([f"LEASE.POST r user{number} m{number} x" for number in range(1500)])
    target, slot = atomic.pair(ROOM)[1], atomic.slot(ROOM)
    replica = atomic.replica_of(start, target)
    before, digest = rooms.scan(source), source.call("DEBUG DIGEST-VALUE r")
    atomic.migrate_slots(slot, slot, source, target)
    assert (rooms.scan(target), target.call("DEBUG DIGEST-VALUE r")) == (before, digest)
    replica.in_step()
    assert replica.call("DEBUG DIGEST") == target.call("DEBUG DIGEST")


def test_api_08_a_restored_room_begins_anew(cluster):
    """API-08 Slot migration: what RESTORE brings into a slot of the node's own is another history, as outside a cluster."""
    source = a_room(cluster)
    before = rooms.scan(source)[0, b"r"]
    payload = source.call("DUMP r")
    source.call("DEL r")
    cluster.advance(0)
    source.call("RESTORE", ROOM, 0, payload)
    source.aside.add((0, b"r"))
    after = rooms.scan(source)[0, b"r"]
    assert gen_order(after["gen"]) > gen_order(before["gen"])
    assert b"orphan" in after["holds"]


def test_api_08_a_history_that_no_write_has_carried(cluster):
    """API-08 Slot migration: the room of a node that was loaded anew moves before its first write: no epoch comes twice."""
    source = a_room(cluster)
    target = cluster.pair(ROOM)[1]
    before = rooms.scan(source)[0, b"r"]
    source.call("DEBUG RELOAD")
    slot = cluster.slot(ROOM)
    cluster.begin(slot, source, target)
    cluster.migrate(source, target, *keys_of(ROOM))
    cluster.finish(slot, target)
    after = rooms.scan(target)[0, b"r"]
    assert gen_order(after["gen"]) > gen_order(before["gen"])
    assert b"orphan" not in after["holds"]
    opened = normal(["LEASE.OPEN"], target.call("LEASE.OPEN r u1"))
    assert opened["epoch"] > 1024
    # Its readers go on where they are.
    assert normal(["LEASE.REPLAY"], target.call("LEASE.REPLAY", ROOM, opened["session"], opened["epoch"], before["gen"], 2))["status"] == b"ok"


def test_api_08_a_replica_of_the_target(start):
    """API-08 Slot migration: the target's replica has what the target has, and takes over from it without an orphan."""
    cluster = Cluster(start)
    source = a_room(cluster)
    target = cluster.pair(ROOM)[1]
    replica = cluster.replica_of(start, target)
    assert cluster.move(ROOM, [LOG, ROOM, EV]) is target
    target.call("LEASE.SEND r a 1 m4 four")
    replica.in_step()
    assert replica.call("DEBUG DIGEST") == target.call("DEBUG DIGEST")
    assert source.call("DBSIZE") == 0
    replica.call("CLUSTER FAILOVER TAKEOVER")
    replica.primary = None
    after = rooms.scan(replica)[0, b"r"]
    assert (after["holds"], after["stats"]["log_seq"]) == ([b"audit"], 4)
