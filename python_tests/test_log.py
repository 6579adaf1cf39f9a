"""LOG: the message log, its readers, and what becomes of it. What is sent, what is kept, and events have files of their own."""

import pytest

from harness import Client, Refused, wait_until
from talk import LONG_LIFE, a_room_at, accepted, send, seqs

LOG, EV = "{r}:log", "{r}:events"
TOP = "18446744073709551615-18446744073709551615"
ONE_WAY = pytest.mark.ways("plain-resp3")
TWO_WAYS = pytest.mark.ways("plain-resp2", "plain-resp3")


def replay(client, gen, after, *options, session="a", epoch=1):
    """What REPLAY answers: (ok, seqs) or (resync, reason). Where it stands has to fit."""
    reply = client("LEASE.REPLAY", "r", session, epoch, gen, after, *options)
    seqs = [seq for seq, _ in reply["entries"]]
    if reply["status"] == b"ok":
        assert (reply["reason"], reply["next"]) == (None, seqs[-1] if seqs else after)
        return "ok", seqs
    assert (seqs, reply["next"]) == ([], after)
    return reply["status"].decode(), reply["reason"].decode()


# -------------------------------------------------------------------- one of the three is lost


@pytest.mark.parametrize("first", ("OPEN", "POST"))
def test_log_01_the_room_is_lost(client, first):
    """LOG-01 One of room, LOG and EV is lost: step 1, the log goes on, retries of what it holds are known, and it is held."""
    former = a_room_at(client, 47)
    client.advance(5000)
    client.raw("DEL r")
    if first == "POST":
        assert client.sent("LEASE.POST r u1 m47 p47")["seq"] == 47
    opened = client("LEASE.OPEN r u1 SESSION b")
    assert opened["gen"] != former
    assert (opened["epoch"], opened["log_seq"], opened["log_oldest"], opened["acked"]) == (1, 47, 1, 0)
    with client.nothing_changes():
        again = client.sent("LEASE.SEND r b 1 m47 p47")
        assert again == {"status": b"duplicate", "seq": 47, "gen": opened["gen"], "at": 0}  # the first `at`, the gen of now
        assert [seq for _, seq in send(client, range(1, 48), "b")] == list(range(1, 48))
        assert client.refusal("LEASE.SEND r b 1 m7 other") == "CONFLICT message"
    assert client("LEASE.HOLDS r") == [b"orphan"]
    assert client("LEASE.STATS r")["dedupe"] == 47
    assert client("LEASE.SEND r b 1 m48 p48")["seq"] == 48
    assert seqs(client) == list(range(1, 49))
    assert {found["gen"] for _, found in client.messages("r")[:47]} == {former}
    assert client.messages("r")[47][1]["gen"] == opened["gen"]


def test_log_01_the_log_is_lost(client):
    """LOG-01 One of room, LOG and EV is lost: step 2, what was accepted stays known, its readers are told."""
    gen = a_room_at(client, 47)
    client.raw("DEL", LOG)
    assert replay(client, gen, 47) == ("ok", [])
    assert replay(client, gen, 46) == ("resync", "trimmed")
    assert send(client, [48]) == accepted([48])
    opened = client("LEASE.OPEN r u2 SESSION b")
    assert (opened["log_seq"], opened["log_oldest"], opened["gen"]) == (48, 48, gen)
    assert replay(client, gen, 41) == ("resync", "trimmed")
    assert replay(client, gen, 47) == ("ok", [48])
    assert send(client, [41, 47]) == [("duplicate", 41), ("duplicate", 47)]
    assert client("LEASE.HOLDS r") == []


@pytest.mark.parametrize("how", ("DEL", "XTRIM"))
def test_log_01_the_newest_messages_are_lost(client, how):
    """LOG-01 One of room, LOG and EV is lost: no number is given again, whatever became of the log before the room met it."""
    a_room_at(client, 3)
    client.raw(*(["DEL", LOG] if how == "DEL" else ["XTRIM", LOG, "MAXLEN", 0]))
    client.raw("DEL r")
    opened = client("LEASE.OPEN r u1 SESSION b")
    remembered = 0 if how == "DEL" else 3  # an empty stream still knows its last id
    assert (opened["log_seq"], opened["log_oldest"]) == (remembered, 0)
    assert client("LEASE.HOLDS r") == []  # an empty log brings none
    assert client.sent("LEASE.SEND r b 1 m1 p1")["seq"] == remembered + 1


@pytest.mark.parametrize("numbers", (513, 3000))
@TWO_WAYS
def test_log_01_a_large_log_is_rebuilt(client, numbers):
    """LOG-01 One of room, LOG and EV is lost: dedupe records of a large log are rebuilt in slices; until then SEND and POST wait."""
    a_room_at(client, numbers)
    _, opened, *waiting = client.transaction(
        "DEL r",
        f"LEASE.OPEN r u1 SESSION b TTL {LONG_LIFE}",
        "LEASE.SEND r b 1 new x",
        "LEASE.RENEW r b 1 1",
        "LEASE.ACK r b 1 5",
        f"LEASE.REPLAY r b 1 * {numbers - 1}",
        f"LEASE.POST r u1 m{numbers} p{numbers}",
    )
    assert opened["log_seq"] == numbers
    refused, renewed, acked, replayed, posted = waiting
    assert refused.code == "TRYAGAIN"
    assert (renewed[0], acked, [seq for seq, _ in replayed["entries"]]) == (b"renewed", 5, [numbers])
    assert isinstance(posted, Refused) and posted.code == "TRYAGAIN" or posted["seq"] == numbers
    assert client.sent("LEASE.SEND r b 1 m1 p1")["seq"] == 1
    assert client("LEASE.STATS r")["dedupe"] == numbers
    with client.nothing_changes():
        assert send(client, range(1, numbers + 1), "b") == [("duplicate", n) for n in range(1, numbers + 1)]
    assert send(client, [numbers + 1], "b") == accepted([numbers + 1])


@TWO_WAYS
def test_log_01_no_trim_before_all_is_known(client):
    """LOG-01 One of room, LOG and EV is lost: TRIM waits like SEND, for it would take what the room does not know yet for new when it comes again."""
    a_room_at(client, 3000)
    *_, trimmed = client.transaction("DEL r", "LEASE.SETPOLICY r retain-count 1", "LEASE.UNHOLD r orphan", "LEASE.TRIM r")
    assert trimmed.code == "TRYAGAIN"
    assert client.raw("XLEN", LOG) == 3000
    assert client.sent("LEASE.POST r u1 m1 p1")["seq"] == 1
    assert client("LEASE.TRIM r") > 2000
    assert client.sent("LEASE.POST r u1 m2 p2")["seq"] == 2


@pytest.mark.server(clock=None)
@pytest.mark.parametrize("interrupted", ("DEBUG RELOAD", "RENAME", "nothing"))
@ONE_WAY
def test_log_01_rebuilding_goes_on(client, interrupted):
    """LOG-01 One of room, LOG and EV is lost: rebuilding is not forgotten in a load, nor under another name, and needs no command."""
    numbers = 5000
    a_room_at(client, numbers)
    interruption = {"DEBUG RELOAD": ["DEBUG RELOAD"], "RENAME": ["RENAME {r}:log {s}:log", "RENAME r s"], "nothing": []}[interrupted]
    room = "s" if interrupted == "RENAME" else "r"
    client.server.aside.add((0, b"s"))
    _, refused, *_ = client.pipeline("DEL r", "LEASE.POST r u1 new x", *interruption)  # in one write: no timer fires within
    assert refused.code == "TRYAGAIN"
    wait_until(lambda: client("LEASE.STATS", room)["dedupe"] == numbers, what="all records are there")
    for n in (1, numbers // 2, numbers):
        assert client.sent(f"LEASE.POST {room} u1 m{n} p{n}")["seq"] == n
    assert client.sent(f"LEASE.POST {room} u1 new x")["seq"] == numbers + 1


@TWO_WAYS
def test_log_01_rebuilt_on_a_replica(client):
    """LOG-01 One of room, LOG and EV is lost: what the primary rebuilt its replica knows too when it takes over."""
    replica = client.server.replica()
    a_room_at(client, 600)
    client.raw("DEL r")
    assert client.sent("LEASE.POST r u1 m600 p600")["seq"] == 600
    assert client.sent("LEASE.POST r u1 m601 p601")["seq"] == 601
    replica.in_step()
    assert replica.call("DEBUG DIGEST") == client.server.call("DEBUG DIGEST")
    replica.call("REPLICAOF NO ONE")
    promoted = Client(replica, client.way)
    replica.primary = None
    for n in (1, 300, 601):
        reply = promoted.sent(f"LEASE.POST r u1 m{n} p{n}")
        assert (reply["status"], reply["seq"]) == (b"duplicate", n)
    assert promoted.sent("LEASE.POST r u1 m602 p602")["seq"] == 602


@TWO_WAYS
def test_log_01_time_does_not_go_back(client):
    """LOG-01 One of room, LOG and EV is lost: a room that meets a log written by a later clock goes on from its `at`."""
    client.advance(9000)
    a_room_at(client, 1)
    client.raw("DEL r")
    server = client.server
    server.stop("save")
    server.set_clock(2000)
    server.start()
    client = Client(server, client.way)
    server.aside.add((0, b"r"))  # its `closed` was written at 9000
    client("LEASE.OPEN r u1 SESSION b")
    assert client.sent("LEASE.SEND r b 1 m2 p2")["at"] == 9000
    assert client.messages("r")[1][1]["at"] == 9000


# -------------------------------------------------------------------- where a reader stands


def test_log_02_a_position_from_another_history(client):
    """LOG-02 A position from another history."""
    g1 = a_room_at(client, 45)
    assert replay(client, g1, 41) == ("ok", [42, 43, 44, 45])
    client.raw("DEL", "r", LOG)
    g2 = a_room_at(client, 50, "b")
    assert g2 != g1
    for gen, after, reason in (
        (g1, 41, "diverged"),
        (g1, 60, "diverged"),
        (g1, 0, "diverged"),
        (g2, 60, "future"),
        (g2, 51, "future"),
        ("nonsense", 0, "diverged"),
        ("", 0, "diverged"),
        (g2 + b"0", 0, "diverged"),
        ("**", 0, "diverged"),
        ("*", 51, "future"),
    ):
        with client.nothing_changes():
            assert replay(client, gen, after, session="b") == ("resync", reason), (gen, after)
    assert replay(client, "*", 41, session="b") == ("ok", list(range(42, 51)))
    assert replay(client, g2, 50, session="b") == ("ok", [])


@TWO_WAYS
def test_log_02_earlier_gens_of_one_history(client):
    """LOG-02 A position from another history: a load goes on with the history, up to where each gen had come."""
    gens, last = [a_room_at(client, 5)], [5]
    for number in range(6, 9):
        client.server.call("DEBUG RELOAD")
        gens.append(client("LEASE.ROSTER r")["gen"])
        assert send(client, [number]) == accepted([number])
        last.append(number)
    assert len(set(gens)) == 4
    for gen, end in zip(gens, last):
        assert replay(client, gen, 3) == ("ok", [4, 5, 6, 7, 8])
        assert replay(client, gen, end) == ("ok", list(range(end + 1, 9)))
        assert replay(client, gen, end + 1) == ("resync", "future" if end == 8 else "diverged")


@TWO_WAYS
def test_log_02_a_gen_without_messages(client):
    """LOG-02 A position from another history: a gen in which nothing was said is known too."""
    a_room_at(client, 5)
    client.server.call("DEBUG RELOAD")
    quiet = client("LEASE.OPEN r u2")["gen"]
    assert replay(client, quiet, 5) == ("ok", [])
    client.server.call("DEBUG RELOAD")
    assert client("LEASE.ROSTER r")["gen"] != quiet
    assert replay(client, quiet, 5) == ("ok", [])
    assert send(client, [6]) == accepted([6])
    assert replay(client, quiet, 5) == ("ok", [6])
    assert replay(client, quiet, 6) == ("resync", "diverged")


@TWO_WAYS
def test_log_02_sixty_four_gens_are_kept(client):
    """LOG-02 A position from another history: of the room's gens the last 64 are kept."""
    gens = [a_room_at(client, 1)]
    for number in range(2, 72):
        client.server.call("DEBUG RELOAD")
        assert send(client, [number]) == accepted([number])
        gens.append(client("LEASE.ROSTER r")["gen"])
    known = [replay(client, gen, 1)[0] == "ok" for gen in gens]
    assert known in ([False] * (71 - kept) + [True] * kept for kept in (64, 65))  # with the present one or beside it


@pytest.mark.parametrize("how", ("RENAME", "RENAME-with-log", "COPY", "RESTORE"))
@TWO_WAYS
def test_log_02_a_room_that_met_another_log(client, how):
    """LOG-02 A position from another history (section 7): what meets streams it did not write forgets its gens; numbers go on from the greater."""
    former = a_room_at(client, 5)
    client.raw("RENAME r s")  # its log stays where it was
    client.server.aside |= {(0, b"r"), (0, b"s")}
    other = client("LEASE.OPEN", "r", "u2", "SESSION", "c", "TTL", LONG_LIFE)
    assert other["log_seq"] == 5
    assert client.sent("LEASE.SEND r c 1 m6 p6")["seq"] == 6
    dump = client.raw("DUMP s")
    client.raw("DEL r")
    if how == "RENAME-with-log":
        client.raw("RENAME {r}:log {s}:log")
        client.raw("RENAME {s}:log {r}:log")
    client.server.connect()(*{"COPY": ["COPY", "s", "r"], "RESTORE": ["RESTORE", "r", 0, dump]}.get(how, ["RENAME", "s", "r"]))
    assert client("LEASE.HOLDS r") == [b"orphan"]
    assert client("LEASE.STATS r")["log_seq"] == 6
    assert replay(client, former, 5) == ("resync", "diverged")
    assert client.sent("LEASE.POST r u2 m6 p6")["status"] == b"duplicate"  # rebuilt from the log
    assert client.sent("LEASE.SEND r a 1 m5 p5")["seq"] == 5  # its own
    assert send(client, [7]) == accepted([7])


def test_log_03_a_quiet_room_all_trimmed(client):
    """LOG-03 A quiet room, all trimmed."""
    gen = a_room_at(client, 47)
    client("LEASE.SETPOLICY r retain-ms 1000")
    client.advance(1001)
    client("LEASE.TRIM r")
    assert client.raw("XLEN", LOG) == 0
    reply = client("LEASE.REPLAY", "r", "a", 1, gen, 47)
    assert reply == {"status": b"ok", "reason": None, "gen": gen, "oldest": 0, "current": 47, "next": 47, "entries": []}
    assert replay(client, gen, 46) == ("resync", "trimmed")
    assert replay(client, gen, 0) == ("resync", "trimmed")
    assert replay(client, gen, 48) == ("resync", "future")
    assert replay(client, "*", 47) == ("ok", [])
    shown = client("LEASE.SNAPSHOT r a 1")
    assert (shown["current"], shown["oldest"], shown["entries"]) == (47, 0, [])
    opened = client("LEASE.OPEN r u2 SESSION b")
    assert (opened["log_seq"], opened["log_oldest"]) == (47, 0)
    assert send(client, [48]) == accepted([48])
    assert replay(client, gen, 47) == ("ok", [48])


def test_log_03_a_hole(client):
    """LOG-03 A quiet room, all trimmed (section 10): a hole made by hand is a resync, wherever it lies behind the reader's position."""
    gen = a_room_at(client, 20)
    client.server.aside.add((0, b"r"))
    client.raw("XDEL", LOG, "10-0")
    assert replay(client, gen, 10) == ("ok", list(range(11, 21)))
    for after, options in ((9, []), (5, []), (0, []), (9, ["COUNT", 1]), (5, ["COUNT", 5])):
        assert replay(client, gen, after, *options) == ("resync", "trimmed"), (after, options)
    # A page that ends ahead of it may still be told.
    assert replay(client, gen, 7, "COUNT", 2) in (("ok", [8, 9]), ("resync", "trimmed"))
    client.raw("XDEL", LOG, "20-0")
    assert replay(client, gen, 10) == ("resync", "trimmed")
    assert replay(client, gen, 20) == ("ok", [])


def test_log_03_a_hole_beside_a_foreign_entry(client):
    """LOG-03 A quiet room, all trimmed (section 10): entries that are no messages make up for none."""
    gen = a_room_at(client, 20)
    client.server.aside.add((0, b"r"))
    client.raw("XADD", LOG, "20-7", "x", "y")
    assert replay(client, gen, 5) == ("ok", list(range(6, 21)))
    client.raw("XDEL", LOG, "10-0")
    assert replay(client, gen, 5) == ("resync", "trimmed")
    assert replay(client, gen, 10) == ("ok", list(range(11, 21)))
    client.raw("XDEL", LOG, "20-0")
    assert replay(client, gen, 10) == ("resync", "trimmed")
    assert [seq for seq, _ in client("LEASE.SNAPSHOT r a 1 COUNT 5")["entries"]] == [15, 16, 17, 18, 19]
    assert replay(client, gen, 20) == ("ok", [])
    assert send(client, [21]) == accepted([21])
    assert replay(client, gen, 20) == ("ok", [21])


def test_log_03_pages(client):
    """LOG-03 A quiet room, all trimmed: `next` leads through the whole log, a hundred at a time unless told otherwise."""
    gen = a_room_at(client, 230)
    assert replay(client, gen, 0) == ("ok", list(range(1, 101)))
    found, position = [], 0
    while position < 230:
        page = client("LEASE.REPLAY", "r", "a", 1, gen, position, "COUNT", 37)
        assert (page["oldest"], page["current"], len(page["entries"])) == (1, 230, min(37, 230 - position))
        found += page["entries"]
        position = page["next"]
    assert found == client.messages("r") == client("LEASE.REPLAY", "r", "a", 1, gen, 0, "COUNT", 10000)["entries"]
    assert client("LEASE.SNAPSHOT r a 1")["entries"] == found[-50:]
    assert client("LEASE.SNAPSHOT r a 1 COUNT 7")["entries"] == found[-7:]
    for count in (0, 10001, "x"):
        for command in (["LEASE.REPLAY", "r", "a", 1, gen, 0], ["LEASE.SNAPSHOT", "r", "a", 1]):
            assert client.refusal(*command, "COUNT", count) == "ERR"


@pytest.mark.server(redis={"stream-node-max-entries": 1})
@TWO_WAYS
def test_log_05_a_consumer_group_over_trimmed_messages(client):
    """LOG-05 Consumer group over trimmed entries: on LOG with retention; what is pending and gone is acknowledged, SNAPSHOT tells the state."""
    a_room_at(client, 6)
    client.raw("XGROUP CREATE {r}:log g 0")
    assert len(entries(client.raw("XREADGROUP GROUP g one STREAMS {r}:log >"))) == 6
    client("LEASE.SETPOLICY r retain-count 2")
    assert send(client, [7]) == accepted([7])
    client("LEASE.TRIM r")
    pending = entries(client.raw("XREADGROUP GROUP g one STREAMS {r}:log 0"))
    assert [id for id, found in pending if not found] == [b"%d-0" % n for n in range(1, 6)]
    _, claimed, gone = client.raw("XAUTOCLAIM {r}:log g two 0 0")
    assert ([id for id, _ in claimed], gone) == ([b"6-0"], [b"%d-0" % n for n in range(1, 6)])
    client.raw("XACK", LOG, "g", "6-0")
    assert [id for id, _ in entries(client.raw("XREADGROUP GROUP g two STREAMS {r}:log >"))] == [b"7-0"]
    assert [seq for seq, _ in client("LEASE.SNAPSHOT r a 1")["entries"]] == [6, 7]


def entries(reply):
    """The entries of the one stream in a reply of XREADGROUP."""
    ((_, found),) = reply.items() if isinstance(reply, dict) else reply
    return found[0] if isinstance(reply, dict) and found and isinstance(found[0][0], list) else found


# -------------------------------------------------------------------- streams that cannot be written


@pytest.mark.parametrize("spoiled", (["XADD", EV, TOP, "x", "y"], ["SET", EV, "x"]), ids=("exhausted", "string"))
@pytest.mark.parametrize("announced", ("no", "yes"))
def test_log_11_messages_while_events_cannot_be_written(client, spoiled, announced):
    """LOG-11 No id left; foreign entries ahead: step 1, SEND and POST look only at the log."""
    a_room_at(client, 2)
    client("LEASE.SETPOLICY", "r", "announce-messages", announced)
    client.raw(*spoiled)
    lost = client.server.lease_info()["events_lost"]
    assert client.refusal("LEASE.OPEN r u2") == "LOGSTATE"
    assert send(client, [3]) == accepted([3])
    assert client("LEASE.POST r u2 m1 x")["seq"] == 4
    assert send(client, [3]) == [("duplicate", 3)]
    assert client("LEASE.ACK r a 1 4") == 4
    assert client.server.lease_info()["events_lost"] == lost + (2 if announced == "yes" else 0)
    client.raw("RENAME", EV, "aside")
    assert client("LEASE.OPEN r u2")["log_seq"] == 4


FOREIGN = {
    "ahead": ["XADD", LOG, "99-0", "x", "y"],
    "next": ["XADD", LOG, "48-0", "x", "y"],
    "exhausted": ["XADD", LOG, TOP, "x", "y"],
    "string": ["SET", LOG, "x"],
    "list": None,
}


@pytest.mark.parametrize("foreign", FOREIGN)
def test_log_11_foreign_entries_in_the_log(client, foreign):
    """LOG-11 No id left; foreign entries ahead: step 3, the log waits for an operator, presence does not."""
    gen = a_room_at(client, 47)
    if foreign == "list":
        client.raw("DEL", LOG)
        client.raw("RPUSH", LOG, "x")
    else:
        client.raw(*FOREIGN[foreign])
    with client.nothing_changes():
        assert client.refusal("LEASE.SEND r a 1 m48 p48") == "LOGSTATE"
        assert client.refusal("LEASE.POST r u1 m48 p48") == "LOGSTATE"
        assert send(client, [1, 47]) == [("duplicate", 1), ("duplicate", 47)]  # answered before
        assert client.refusal("LEASE.SEND r a 1 m47 other") == "CONFLICT message"
        if foreign in ("string", "list"):
            assert client.refusal("LEASE.REPLAY", "r", "a", 1, gen, 41) == "LOGSTATE"
            assert client.refusal("LEASE.SNAPSHOT r a 1") == "LOGSTATE"
    assert client("LEASE.OPEN r u2 SESSION b")["log_seq"] == 47
    assert client("LEASE.RENEW r a 1 1")[0] == b"renewed"
    assert client("LEASE.STATS r")["log_seq"] == 47
    assert client("LEASE.ACK r a 1 47") == 47
    client.raw("RENAME", LOG, "aside")
    assert send(client, [48]) == accepted([48])
    assert replay(client, gen, 41) == ("resync", "trimmed")
    assert replay(client, gen, 47) == ("ok", [48])
    assert send(client, [47]) == [("duplicate", 47)]


@pytest.mark.parametrize("top", (TOP, f"{2**63}-0", f"{2**62 + 1}-0"))
def test_log_11_a_room_that_meets_a_foreign_top(client, top):
    """LOG-11 No id left; foreign entries ahead (section 10): one foreign XADD does not exhaust the name of a room to come."""
    client.raw("XADD", LOG, top, "x", "y")
    assert client.refusal("LEASE.POST r u1 m1 x") == "LOGSTATE"
    client("LEASE.OPEN r u1 SESSION a")
    assert client.refusal("LEASE.SEND r a 1 m1 x") == "LOGSTATE"
    client.raw("RENAME", LOG, "aside")
    assert client.sent("LEASE.SEND r a 1 m1 x")["seq"] < 2**62


def test_log_11_entries_that_are_no_messages(client):
    """LOG-11 No id left; foreign entries ahead: what someone put into a log the room then meets stands in nobody's way."""
    client.server.aside.add((0, b"r"))
    client.raw("XADD", LOG, "3-0", "x", "y")
    client.raw("XADD", LOG, "4-0", "id", "m1", "user", "u1")
    client.raw("XADD", LOG, "5-0", "id", "m1", "user", "u1", "at", "x", "payload", "p")
    client.raw("XADD", LOG, "6-3", "id", "m2", "user", "u1", "payload", "p")
    assert client("LEASE.OPEN r u1 SESSION a")["log_seq"] == 6
    told = client.sent("LEASE.SEND r a 1 m7 x")
    assert (told["status"], told["seq"]) == (b"accepted", 7)
    assert client("LEASE.REPLAY r a 1 * 6")["entries"][0][0] == 7
    assert client.refusal("LEASE.SEND r a 1 m7 y") == "CONFLICT message"


# -------------------------------------------------------------------- readers of the log


@TWO_WAYS
@pytest.mark.parametrize("existing", (True, False), ids=("existing", "missing"))
def test_log_12_a_message_wakes_blocked_readers(client, existing):
    """LOG-12 A timer's event wakes blocked readers: a message wakes those of the log, one that is not there yet too."""
    client("LEASE.OPEN r u1 SESSION a")
    before = 2 if existing else 0
    send(client, range(1, before + 1))
    reader = client.server.connect(protocol=2)
    reader.send([["XREAD", "BLOCK", 10000, "STREAMS", LOG, "$"]])
    wait_until(lambda: client.server.info("clients")["blocked_clients"] == 1)
    assert send(client, [before + 1]) == accepted([before + 1])
    ((_, ((id, _),)),) = reader.read()
    assert id == b"%d-0" % (before + 1)
