"""LOG: what stays of messages, events and dedupe records, how long, and what a hold keeps."""

import random

import pytest

from harness import Client, wait_until

LOG, EV = "{r}:log", "{r}:events"
NODE = 100  # entries of one node of a stream, by default
LONG_LIFE, EMPTY_ROOM = 3600000, 3600000
TWO_WAYS = pytest.mark.ways("plain-resp2", "plain-resp3")


def post(client, numbers, room="r"):
    """Messages m<n> of a bot: the seqs they were accepted with."""
    replies = client.pipeline(*(["LEASE.POST", room, "bot", f"m{n}", "x"] for n in numbers))
    assert {reply["status"] for reply in replies} <= {b"accepted"}
    return [reply["seq"] for reply in replies]


def seqs(client, room="r"):
    return [seq for seq, _ in client.messages(room)]


def length(client, *streams):
    return [client.raw("XLEN", stream) for stream in streams]


def usec(server, command):
    """What the command has cost the server since RESETSTAT."""
    return int(server.info("commandstats")[f"cmdstat_{command}"].split("usec=")[1].split(",")[0])


# -------------------------------------------------------------------- LOG-06

FLOOD = """
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do
    redis.call('LEASE.POST', KEYS[1], 'u', 'm' .. number, 'payload of a message')
end
return {redis.call('XLEN', '{' .. KEYS[1] .. '}:log'), redis.call('XLEN', '{' .. KEYS[1] .. '}:events')}
"""


@pytest.mark.server(lease={"retain-count": 100, "events-maxlen": 100, "announce-messages": "yes", "dedup-ms": 0})
@pytest.mark.parametrize("rooms, messages", ((5, 1000), pytest.param(1000, 10000, marks=pytest.mark.load)))
@pytest.mark.ways("plain-resp3", "eval-resp2")
def test_log_06_a_log_that_is_never_trimmed(client, rooms, messages):
    """LOG-06 A log that is never trimmed; a hold: step 1, a message and an event each, as many as there are."""
    used = []
    for quarter in range(4):
        for number in range(rooms):
            flooded = client.server.call("EVAL", FLOOD, 1, f"r{number}", quarter * messages // 4 + 1, (quarter + 1) * messages // 4)
            assert all(100 <= kept <= 100 + NODE for kept in flooded), flooded
        used.append(sum(client.raw("MEMORY", "USAGE", key, "SAMPLES", 0) for key in client.raw("KEYS *")))
    assert used[3] < used[0] * 2, f"memory grows with every message: {used}"
    for number in range(rooms):
        room, streams = f"r{number}", [f"{{r{number}}}:{name}" for name in ("log", "events")]
        before = length(client, *streams)
        assert client("LEASE.TRIM", room) == sum(before) - 200
        assert length(client, *streams) == [100, 100]
        assert client("LEASE.TRIM", room) == 0
        stats = client("LEASE.STATS", room)
        assert (stats["log_seq"], stats["log_oldest"], stats["dedupe"]) == (messages, messages - 99, 100)
        assert client.events(room)[-1]["seq"] == stats["event_n"] == messages


@pytest.mark.server(lease={"retain-count": 100, "events-maxlen": 100, "announce-messages": "yes"})
def test_log_06_a_hold(client):
    """LOG-06 A log that is never trimmed; a hold: steps 2 and 3, nothing goes while there is one."""
    post(client, range(1, 121))
    client("LEASE.TRIM r")
    assert client("LEASE.HOLD r case7") == 1
    with client.nothing_changes():
        assert client("LEASE.HOLD r case7") == 0
    assert client("LEASE.HOLDS r") == [b"case7"]
    skipped = client.server.lease_info()["trims_skipped_by_hold"]
    post(client, range(121, 621))
    with client.nothing_changes():
        assert client("LEASE.TRIM r") == 0
    assert client.server.lease_info()["trims_skipped_by_hold"] > skipped
    client.advance(1000)
    assert length(client, LOG, EV) == [600, 600]
    assert seqs(client) == [event["seq"] for event in client.events("r")] == list(range(21, 621))

    assert client("LEASE.HOLD r other") == 1
    assert client("LEASE.UNHOLD r case7") == 1
    with client.nothing_changes():
        assert client("LEASE.UNHOLD r case7") == 0
        assert client("LEASE.TRIM r") == 0
    assert length(client, LOG, EV) == [600, 600]
    # In one transaction, for the timer trims as well.
    assert client.transaction("LEASE.UNHOLD r other", "LEASE.TRIM r", "LEASE.TRIM r") == [1, 1000, 0]
    assert length(client, LOG, EV) == [100, 100]
    assert client("LEASE.HOLDS r") == []


@TWO_WAYS
def test_log_06_the_hold_of_an_orphan(client):
    """LOG-06 A log that is never trimmed; a hold: a room that met a log keeps it until its `orphan` hold is taken away."""
    post(client, range(1, 11))
    client.raw("DEL r")
    client("LEASE.SETPOLICY r retain-count 3")
    assert client("LEASE.HOLDS r") == [b"orphan"]
    assert client("LEASE.TRIM r") == 0
    assert client.sent("LEASE.POST r bot m11 x")["seq"] == 11
    assert seqs(client) == list(range(1, 12))
    assert client.transaction("LEASE.UNHOLD r orphan", "LEASE.TRIM r") == [1, 8]
    assert seqs(client) == [9, 10, 11]
    assert client("LEASE.HOLD r orphan") == 1  # a name like any other


@TWO_WAYS
def test_log_06_a_hold_keeps_its_room(client):
    """LOG-06 A log that is never trimmed; a hold: HOLD makes a room, which lasts as long as the hold; TRIM, UNHOLD and HOLDS make none."""
    assert (client("LEASE.TRIM r"), client("LEASE.UNHOLD r case7"), client("LEASE.HOLDS r")) == (0, 0, [])
    assert client.raw("DBSIZE") == 0
    assert client("LEASE.HOLD r case7") == 1
    client.advance(10 * EMPTY_ROOM)
    assert client("LEASE.HOLDS r") == [b"case7"]
    assert client("LEASE.UNHOLD r case7") == 1
    client.advance(EMPTY_ROOM - 1)
    assert client.raw("EXISTS r") == 1
    client.advance(1)
    assert client.raw("EXISTS r") == 0


@pytest.mark.server(lease={"retain-ms": 100 * EMPTY_ROOM})
@TWO_WAYS
def test_log_06_messages_keep_their_room(client):
    """LOG-06 A log that is never trimmed; a hold (section 7): a room lasts as long as it retains a message; then its log goes with it."""
    client("LEASE.OPEN r u1 SESSION a")
    client("LEASE.LEAVE r a 1")
    assert post(client, [1]) == [1]
    client.advance(100 * EMPTY_ROOM - 1)
    client("LEASE.TRIM r")
    assert seqs(client) == [1]
    client.advance(1)
    client("LEASE.TRIM r")
    assert (seqs(client), client.raw("EXISTS r")) == ([], 1)
    client.advance(EMPTY_ROOM - 1)
    assert client.raw("EXISTS r") == 1
    client.advance(1)
    assert client.raw("EXISTS r {r}:log") == 0
    assert 0 < client.raw("PTTL", EV) <= EMPTY_ROOM
    assert client("LEASE.OPEN r u1 SESSION b")["log_seq"] == 0


@pytest.mark.parametrize("announced", ("yes", "no"))
@TWO_WAYS
def test_log_06_sends_trim(client, announced):
    """LOG-06 A log that is never trimmed; a hold: SEND trims what its policy does not keep, at most one node of the stream over; events apart."""
    client("LEASE.OPEN", "r", "u1", "SESSION", "a", "TTL", LONG_LIFE)
    client("LEASE.SETPOLICY", "r", "retain-count", 5, "announce-messages", announced)
    for number in range(1, 351):
        assert client(f"LEASE.SEND r a 1 m{number} x")["seq"] == number
        assert min(5, number) <= client.raw("XLEN", LOG) <= 5 + NODE
    assert length(client, EV) == [351 if announced == "yes" else 1]
    client("LEASE.TRIM r")
    assert seqs(client) == list(range(346, 351))
    assert length(client, EV) == [351 if announced == "yes" else 1]
    client("LEASE.SETPOLICY r retain-count 0")  # no limit
    post(client, range(1, 301))
    assert length(client, LOG) == [305]
    assert client("LEASE.TRIM r") == 0


@pytest.mark.parametrize("held", (True, False), ids=("held", "timer"))
def test_log_06_messages_of_an_age(client, held):
    """LOG-06 A log that is never trimmed; a hold: retain-ms counts from each message's own time; TRIM is exact to the ms."""
    client("LEASE.SETPOLICY r retain-ms 1000")
    for _ in range(3):
        post(client, [1 + 2 * client.now() // 300, 2 + 2 * client.now() // 300])
        client.advance(300)

    def after(ms):
        if held:
            client.held(ms, "LEASE.TRIM r")
        else:
            client.advance(ms)
            client("LEASE.TRIM r")
        return seqs(client)

    assert after(99) == [1, 2, 3, 4, 5, 6]
    assert after(1) == [3, 4, 5, 6]
    assert after(299) == [3, 4, 5, 6]
    assert after(1) == [5, 6]
    client("LEASE.SETPOLICY r retain-count 1")
    assert after(299) == [6]
    assert after(1) == []
    assert client("LEASE.STATS r")["log_oldest"] == 0


@pytest.mark.parametrize("seed", range(3))
@TWO_WAYS
def test_log_06_holes_and_messages_of_one_moment(client, seed):
    """LOG-06 A log that is never trimmed; a hold: by age exactly those go that are old enough, wherever messages were taken out by hand."""
    dice, ats = random.Random(seed), {}
    client("LEASE.SETPOLICY r retain-ms 1000 retain-count 0")
    client.server.aside.add((0, b"r"))
    for _ in range(20):
        for _ in range(dice.randrange(1, 30)):
            ats |= dict.fromkeys(post(client, range(len(ats), len(ats) + dice.randrange(1, 9))), client.now())
            client.advance(dice.choice((0, 1, 40)))
        holes = dice.sample(list(ats), len(ats) // 4)
        client.raw("XDEL", LOG, *holes)
        before = seqs(client)
        (trimmed,) = client.held(dice.randrange(1100), "LEASE.TRIM r")
        kept = [seq for seq in before if ats[seq] + 1000 > client.now()]
        assert (seqs(client), trimmed) == (kept, len(before) - len(kept))


@pytest.mark.ways("plain-resp3")
@pytest.mark.server(lease={"retain-count": 0})
@pytest.mark.no_restart("a matter of running time only")
def test_log_06_trimming_by_age_looks_at_few(client):
    """LOG-06 A log that is never trimmed; a hold: TRIM by age costs little more than the server's XTRIM, which takes whole nodes."""
    server, excess = client.server, []
    for round in range(5):
        server.call("EVAL", FLOOD, 1, f"r{round}", 1, 20000)
        server.call("CONFIG RESETSTAT")
        *_, trimmed = client.held(1000, f"LEASE.SETPOLICY r{round} retain-ms 1000", f"LEASE.TRIM r{round}")
        assert trimmed == 20000
        excess.append(usec(server, "lease.trim") - usec(server, "xtrim"))
    assert min(excess) < 1000, f"µs more than XTRIM: {excess}"  # to look at each of them would take 8 ms


@pytest.mark.server(redis={"stream-node-max-entries": 1})
@pytest.mark.parametrize("how", ("policy", "CONFIG"))
@TWO_WAYS
def test_log_06_the_timer_trims(client, how):
    """LOG-06 A log that is never trimmed; a hold: messages whose time is over go without any command, from a quiet room too."""
    post(client, [1])
    if how == "policy":
        client("LEASE.SETPOLICY r retain-ms 1000")
    else:
        client.raw("CONFIG SET lease.retain-ms 1000")
    client.advance(400)
    post(client, [2, 3])
    client.advance(599)
    assert seqs(client) == [1, 2, 3]
    client.advance(1)
    assert seqs(client) == [2, 3]
    client.advance(10000)
    assert seqs(client) == []
    assert post(client, [4]) == [4]


@pytest.mark.server(redis={"stream-node-max-entries": 1})
@pytest.mark.no_restart("the log is not the module's own")
@TWO_WAYS
def test_log_06_messages_that_tell_no_time(client):
    """LOG-06 A log that is never trimmed; a hold: imported messages without `at` are as old as the next that has one."""

    def left():
        return [int(id.split(b"-")[0]) for id, _ in client.raw("XRANGE", LOG, "-", "+")]

    for number, at in ((1, ()), (2, ("at", 0)), (3, ("at", 1000)), (4, ()), (5, ())):
        client.raw("XADD", LOG, f"{number}-0", "id", f"m{number}", "user", "bot", *at, "payload", "x")
    client.advance(1500)
    client("LEASE.SETPOLICY r retain-ms 1000")
    assert client("LEASE.POST r bot m1 x")["status"] == b"duplicate"
    client("LEASE.UNHOLD r orphan")
    client.advance(0)
    assert left() == [3, 4, 5]
    client.advance(499)
    assert left() == [3, 4, 5]
    client.advance(1)
    assert left() == [4, 5]
    assert post(client, [6]) == [6]
    client.advance(999)
    assert left() == [4, 5, 6]
    client.advance(1)
    assert left() == []


@pytest.mark.server(redis={"stream-node-max-entries": 1})
@pytest.mark.no_restart("the log is not the module's own")
@TWO_WAYS
def test_log_06_messages_that_tell_no_moment(client):
    """LOG-06 A log that is never trimmed; a hold: an imported `at` that is no moment is none, and later messages tell their own."""
    for number, at in enumerate((500, "yesterday", "1e3", -5, 2**63 - 1, 2**64, 2000), 1):
        client.raw("XADD", LOG, f"{number}-0", "id", f"m{number}", "user", "bot", "at", at, "payload", "x")
    client.advance(2000)
    client("LEASE.SETPOLICY r retain-ms 1000")
    assert client.sent("LEASE.POST r bot new x")["at"] == 2000
    client("LEASE.UNHOLD r orphan")
    client.advance(0)
    assert length(client, LOG) == [7]
    client.advance(1000)
    assert length(client, LOG) == [0]


@pytest.mark.no_restart("the log is not the module's own")
@TWO_WAYS
def test_log_06_a_long_log_that_tells_no_time(client):
    """LOG-06 A log that is never trimmed; a hold: messages without `at`, however many, go with what the room wrote after them, and no
    command reads them all to learn that none tells."""
    messages = 100000
    client.raw("EVAL", f"for i = 1, {messages} do redis.call('XADD', KEYS[1], i .. '-0', 'payload', 'x') end", 1, LOG)
    client("LEASE.SETPOLICY r retain-count 0 retain-ms 1000")
    client("LEASE.OPEN r u1 SESSION a")
    client("LEASE.UNHOLD r orphan")
    costs = []
    for _ in range(5):
        client.raw("CONFIG RESETSTAT")
        client("LEASE.STATS r")
        costs.append(usec(client.server, "lease.stats"))
    assert min(costs) < 2000, f"µs: {costs}"  # to look at each of them would take 10 ms
    client.advance(5000)
    assert length(client, LOG) == [messages]
    assert client.sent("LEASE.POST r bot m1 x")["seq"] == messages + 1
    client.advance(999)
    assert length(client, LOG) == [messages + 1]
    client.advance(1)
    assert length(client, LOG) == [0]


@pytest.mark.server(clock=None, redis={"stream-node-max-entries": 1})
@pytest.mark.ways("plain-resp3")
def test_log_06_the_real_timer_trims_in_slices(client):
    """LOG-06 A log that is never trimmed; a hold: the same by the real clock, while others are served."""
    client("LEASE.SETPOLICY r retain-count 0 retain-ms 500 dedup-ms 0")
    post(client, range(1, 20001))
    wait_until(lambda: length(client, LOG) == [0], what="all messages are gone")
    stats = client("LEASE.STATS r")
    assert (stats["log_seq"], stats["log_oldest"], stats["dedupe"]) == (20000, 0, 0)


# -------------------------------------------------------------------- LOG-07


def retry(client, number):
    """What a SEND of u1's message answers."""
    return answer(client(f"LEASE.SEND r a 1 m{number} x"))


def answer(reply):
    return reply["status"].decode(), reply["seq"]


@pytest.fixture
def trimmed(client):
    """A room that has retained 7..11 of the messages 1..11, accepted at 0 with a window of 60000."""
    client("LEASE.SETPOLICY r dedup-ms 60000 retain-count 5")
    client("LEASE.OPEN", "r", "u1", "SESSION", "a", "TTL", 600000)
    assert [retry(client, number) for number in range(1, 12)] == [("accepted", number) for number in range(1, 12)]
    client("LEASE.TRIM r")
    assert seqs(client) == [7, 8, 9, 10, 11]
    return client


@pytest.mark.parametrize("held", (True, False), ids=("held", "timer"))
def test_log_07_retry_after_the_original_was_trimmed(client, trimmed, held):
    """LOG-07 Retry after the original was trimmed."""
    with client.nothing_changes():
        assert retry(client, 1) == ("duplicate", 1)
        assert client("LEASE.POST r u1 m1 x")["seq"] == 1
        assert client.refusal("LEASE.SEND r a 1 m1 y") == "CONFLICT message"
    assert retry(client, 12) == ("accepted", 12)

    def after(ms):
        if held:
            return answer(client.held(ms, "LEASE.SEND r a 1 m1 x")[0])
        client.advance(ms)
        return retry(client, 1)

    assert after(59999) == ("duplicate", 1)
    assert after(1) == ("accepted", 13)
    assert after(0) == ("duplicate", 13)


def test_log_07_what_is_retained_stays_known(client, trimmed):
    """LOG-07 Retry after the original was trimmed: a record lasts as long as its message, whatever the window."""
    assert client("LEASE.STATS r")["dedupe"] == 11
    client.advance(60000)
    assert client("LEASE.STATS r")["dedupe"] == 5
    assert retry(client, 7) == ("duplicate", 7)
    assert client.refusal("LEASE.SEND r a 1 m11 y") == "CONFLICT message"
    client("LEASE.SETPOLICY r retain-count 3")
    client("LEASE.TRIM r")
    assert client("LEASE.STATS r")["dedupe"] == 3
    assert retry(client, 9) == ("duplicate", 9)
    assert retry(client, 7) == ("accepted", 12)
    client("LEASE.SETPOLICY r retain-ms 60000 retain-count 0")  # it was said at 60000, so it goes at 120000
    client("LEASE.TRIM r")
    assert (seqs(client), client("LEASE.STATS r")["dedupe"]) == ([12], 1)
    client.advance(59999)
    assert retry(client, 7) == ("duplicate", 12)
    client.advance(1)
    assert retry(client, 7) == ("accepted", 13)


def test_log_07_a_window_is_fixed_when_it_begins(client, trimmed):
    """LOG-07 Retry after the original was trimmed (section 10): a change of dedup-ms is for messages to come."""
    client("LEASE.SETPOLICY r dedup-ms 1000 retain-count 1")
    assert retry(client, 12) == ("accepted", 12)
    client("LEASE.SETPOLICY r dedup-ms 600000")
    assert retry(client, 13) == ("accepted", 13)
    client("LEASE.TRIM r")
    client.advance(999)
    assert retry(client, 12) == ("duplicate", 12)
    client.advance(1)
    assert retry(client, 12) == ("accepted", 14)
    client.advance(58999)
    assert retry(client, 1) == ("duplicate", 1)
    client.advance(1)
    assert retry(client, 1) == ("accepted", 15)
    assert retry(client, 13) == ("duplicate", 13)


@pytest.mark.server(lease={"dedup-ms": 0})
def test_log_07_without_a_window(client):
    """LOG-07 Retry after the original was trimmed: with dedup-ms 0 a message is known as long as it is retained."""
    client("LEASE.OPEN r u1 SESSION a")
    client("LEASE.SETPOLICY r retain-count 2")
    for number in (1, 2, 3):
        assert retry(client, number) == ("accepted", number)
    client("LEASE.TRIM r")
    assert retry(client, 2) == ("duplicate", 2)
    assert retry(client, 1) == ("accepted", 4)


@pytest.mark.server(lease={"dedup-ms": 5000})
@TWO_WAYS
def test_log_07_a_rebuilt_window(client):
    """LOG-07 Retry after the original was trimmed: of a log that the room met, from each message's own time; what it had trimmed is forgotten."""
    client("LEASE.SETPOLICY r retain-count 2")
    post(client, [1])
    client.advance(1000)
    post(client, [2, 3])
    client("LEASE.TRIM r")
    client.raw("DEL r")
    client("LEASE.SETPOLICY r retain-count 1")
    assert answer(client.sent("LEASE.POST r bot m2 x")) == ("duplicate", 2)
    client("LEASE.UNHOLD r orphan")
    client("LEASE.TRIM r")
    assert seqs(client) == [3]
    client.advance(4999)
    assert answer(client("LEASE.POST r bot m2 x")) == ("duplicate", 2)
    client.advance(1)
    assert answer(client("LEASE.POST r bot m2 x")) == ("accepted", 4)
    assert answer(client("LEASE.POST r bot m1 x")) == ("accepted", 5)


@pytest.mark.server(redis={"appendonly": "yes", "appendfsync": "always"})
@pytest.mark.parametrize("load", ("DEBUG RELOAD", "DEBUG LOADAOF", "kill"))
@TWO_WAYS
def test_log_07_windows_over_a_load(client, trimmed, load):
    """LOG-07 Retry after the original was trimmed: a load neither lengthens nor shortens a window, nor revives what was trimmed."""
    client.advance(30000)
    if load == "kill":
        client.server.restart("kill")
        client = Client(client.server, client.way)
    else:
        client.server.call(load)
    assert seqs(client) == [7, 8, 9, 10, 11]
    assert client("LEASE.STATS r")["dedupe"] == 11
    client.advance(29999)
    assert retry(client, 1) == ("duplicate", 1)
    client.advance(1)
    assert client("LEASE.STATS r")["dedupe"] == 5
    assert retry(client, 7) == ("duplicate", 7)
    assert retry(client, 1) == ("accepted", 12)
