"""API: what replies look like, and what a resent command is told."""

from harness import wait_until
from harness.replies import normal
from harness.resp import Connection

# -------------------------------------------------------------------- shapes of replies


def shape(reply):
    """What a reply is made of: of a map its fields with theirs, of a list its members."""
    if isinstance(reply, dict):
        return {field.decode() if isinstance(field, bytes) else field: shape(value) for field, value in reply.items()}
    if isinstance(reply, list):
        return [shape(part) for part in reply]
    return type(reply).__name__


INT, BYTES, NIL = "int", "bytes", "NoneType"
OPENED = {
    "session": BYTES,
    "epoch": INT,
    "user_leases": INT,
    "ttl_ms": INT,
    "heartbeat_ms": INT,
    "left_ms": INT,
    "expires_at": INT,
    "now": INT,
    "replaced": NIL,
    "gen": BYTES,
    "log_seq": INT,
    "log_oldest": INT,
    "event_n": INT,
    "acked": INT,
}
LEASE = {
    "session": BYTES,
    "user": BYTES,
    "device": BYTES,
    "epoch": INT,
    "seq": INT,
    "state": BYTES,
    "reason": NIL,
    "signal": NIL,
    "ttl_ms": INT,
    "left_ms": INT,
    "expires_at": INT,
    "opened_at": INT,
    "heartbeat_at": INT,
    "observed_at": NIL,
    "ended_at": NIL,
    "replaced_by": NIL,
    "meta": NIL,
}
ROSTER = {"cursor": INT, "now": INT, "gen": BYTES, "event_n": INT, "leases": []}
MESSAGE = {"id": BYTES, "user": BYTES, "device": BYTES, "session": BYTES, "epoch": INT, "at": INT, "gen": BYTES, "payload": BYTES}
POSTED = {"id": BYTES, "user": BYTES, "at": INT, "gen": BYTES, "payload": BYTES}
SENT = {"status": BYTES, "seq": INT, "gen": BYTES, "at": INT}
REPLAY = {"status": BYTES, "reason": NIL, "gen": BYTES, "oldest": INT, "current": INT, "next": INT, "entries": []}
SNAPSHOT = {"gen": BYTES, "oldest": INT, "current": INT, "event_n": INT, "now": INT, "cursor": INT, "leases": [], "entries": []}
HOLDER = {"user": BYTES, "device": BYTES, "queued": INT, "written": INT, "acked": INT, "queued_lag": INT, "written_lag": INT, "acked_lag": INT}
STATS = {"gen": BYTES} | dict.fromkeys(
    (
        "leases",
        "users",
        "tombstones",
        "event_n",
        "events_lost",
        "log_seq",
        "log_oldest",
        "dedupe",
        "holds",
        "cursors",
        "queued_lag",
        "written_lag",
        "acked_lag",
    ),
    INT,
)
GRANT = {"user": BYTES, "level": BYTES, "until": INT, "version": INT, "token": INT, "revoked": INT, "devices": []}


def flat(fields):
    """A map as RESP2 has it."""
    return [part for field, kind in fields.items() for part in (BYTES, inside(kind))]


def inside(kind):
    """As it stands within a reply of RESP2."""
    if isinstance(kind, list):
        return [inside(part) for part in kind]
    return flat(kind) if isinstance(kind, dict) else kind


def either(fields):
    """The shape in RESP2 and in RESP3."""
    return flat(fields), fields


def test_api_10_shapes(server):
    """API-10 RESP2 and RESP3 shapes: no room, one lease, many; maps or flat arrays of the same fields, pinned."""
    both = server.connect(2), server.connect(3)

    def shapes(command):
        return tuple(shape(connection(command)) for connection in both)

    nothing = (NIL, NIL)
    assert shapes("LEASE.GET r a") == shapes("LEASE.INSPECT r") == nothing
    assert shapes("LEASE.ROSTER r") == either(ROSTER | {"gen": NIL})
    assert (shape(both[0]("LEASE.OPEN one u SESSION a")), shape(both[1]("LEASE.OPEN one u2 SESSION b"))) == either(OPENED)
    assert shapes("LEASE.GET one a") == either(LEASE)
    assert shapes("LEASE.GET one nobody") == nothing
    for session in "ab":
        both[0](f"LEASE.RENEW one {session} 1 1 STATE connected META x OBSERVED 5")
    full = LEASE | {"signal": BYTES, "meta": BYTES, "observed_at": INT}
    assert shapes("LEASE.GET one a") == either(full)
    assert shapes("LEASE.ROSTER one") == either(ROSTER | {"leases": [full] * 2})
    assert both[0]("LEASE.OPEN one u SESSION c")[17] == both[1]("LEASE.OPEN one u SESSION c")[b"replaced"] == b"a"
    assert shapes("LEASE.GRANTS one") == either({"cursor": INT, "grants": []})
    both[0]("LEASE.GRANT one u READ UNTIL 9000000000000 VERSION 1")
    assert shapes("LEASE.GRANTS one") == either({"cursor": INT, "grants": [GRANT]})
    ended = full | {"reason": BYTES, "ended_at": INT, "replaced_by": INT}
    assert shapes("LEASE.GET one a") == either(ended)
    assert shapes("LEASE.INSPECT one") == shapes("LEASE.INSPECT one SESSION a") == (BYTES, BYTES)
    for command in ("LEASE.COUNT one", "LEASE.POLICY one", "LEASE.MRENEW one a 1 1 b 1 1", "LEASE.RENEW one b 1 1", "LEASE.HELP"):
        assert both[0](command) == both[1](command), command
    assert all(shape(row) in ([BYTES, INT, INT], [BYTES, BYTES, INT]) for row in both[0]("LEASE.POLICY one"))
    assert shape(both[0]("LEASE.MRENEW one b 1 1 a 1 1")) == [[BYTES, INT], [BYTES, BYTES]]
    assert shape(both[0]("LEASE.RENEW one b 1 1")) == [BYTES, INT, INT]


def test_api_10_shapes_of_messages(server):
    """API-10 RESP2 and RESP3 shapes: SEND, POST, REPLAY, SNAPSHOT, cursors, holds and STATS; no message, one, many."""
    both = server.connect(2), server.connect(3)

    def shapes(*commands):
        return tuple(shape(connection(command)) for connection, command in zip(both, commands * 2))

    assert shapes("LEASE.STATS r") == (NIL, NIL)
    assert shapes("LEASE.HOLDS r") == ([], [])
    assert shapes("LEASE.LAG r") == either({"cursor": INT, "holders": []})
    both[0]("LEASE.OPEN r u SESSION a")
    assert shapes("LEASE.STATS r") == either(STATS)
    assert shapes("LEASE.REPLAY r a 1 * 0") == either(REPLAY)
    assert shapes("LEASE.REPLAY r a 1 * 7") == shapes("LEASE.REPLAY r a 1 nonsense 0") == either(REPLAY | {"reason": BYTES})
    assert shapes("LEASE.SNAPSHOT r a 1") == either(SNAPSHOT | {"leases": [LEASE]})
    assert shapes("LEASE.SEND r a 1 m1 x", "LEASE.SEND r a 1 m2 x") == shapes("LEASE.SEND r a 1 m2 x") == either(SENT)
    assert shapes("LEASE.POST r u m3 x", "LEASE.POST r u m4 x") == shapes("LEASE.POST r u m3 x") == either(SENT)
    assert shapes("LEASE.REPLAY r a 1 * 3") == either(REPLAY | {"entries": [[INT, POSTED]]})
    every = [[INT, MESSAGE], [INT, MESSAGE], [INT, POSTED], [INT, POSTED]]
    assert shapes("LEASE.REPLAY r a 1 * 0") == either(REPLAY | {"entries": every})
    assert shapes("LEASE.SNAPSHOT r a 1") == either(SNAPSHOT | {"leases": [LEASE], "entries": every})
    assert shapes("LEASE.ACK r a 1 1") == shapes("LEASE.MARK r u default QUEUED 1") == shapes("LEASE.MARK r u default WRITTEN 1") == (INT, INT)
    assert shapes("LEASE.HOLD r h") == shapes("LEASE.UNHOLD r h") == shapes("LEASE.TRIM r") == (INT, INT)
    both[0]("LEASE.HOLD r h1")
    assert shapes("LEASE.HOLDS r") == ([BYTES], [BYTES])
    both[0]("LEASE.HOLD r h2")
    assert shapes("LEASE.HOLDS r") == ([BYTES] * 2, [BYTES] * 2)
    assert shapes("LEASE.LAG r") == either({"cursor": INT, "holders": [HOLDER]})
    assert shapes("LEASE.STATS r") == either(STATS)


def test_api_10_the_same_content(client):
    """API-10 RESP2 and RESP3 shapes: an empty room and one of many leases read the same in either protocol and in a script."""
    client("LEASE.SETPOLICY empty tombstone-ms 5000")
    for number in range(150):
        client("LEASE.OPEN", "many", f"u{number % 20}", "DEVICE", f"d{number}", "SESSION", f"s{number}")
        client(f"LEASE.SEND many s{number} 1 m{number} p{number}")
        client(f"LEASE.ACK many s{number} 1 {number}")
    client("LEASE.HOLD many h1")
    client("LEASE.HOLD many h2")
    plain = client.server.connect(3)
    for command in (
        "LEASE.ROSTER empty",
        "LEASE.COUNT empty",
        "LEASE.INSPECT empty",
        "LEASE.POLICY empty",
        "LEASE.GET empty a",
        "LEASE.ROSTER many",
        "LEASE.ROSTER many COUNT 7 USER u3",
        "LEASE.COUNT many",
        "LEASE.INSPECT many COUNT 10000",
        "LEASE.GET many s7",
        "LEASE.STATS empty",
        "LEASE.LAG empty",
        "LEASE.HOLDS empty",
        "LEASE.REPLAY many s7 1 * 0 COUNT 1000",
        "LEASE.REPLAY many s7 1 * 149",
        "LEASE.REPLAY many s7 1 * 150",
        "LEASE.SNAPSHOT many s7 1 COUNT 1000",
        "LEASE.LAG many COUNT 1000",
        "LEASE.LAG many COUNT 7",
        "LEASE.HOLDS many",
        "LEASE.STATS many",
    ):
        assert client(command) == normal(command.split(), plain(command)), command


def test_api_10_no_room(client):
    """API-10 RESP2 and RESP3 shapes: what each command answers where there is no room."""
    with client.nothing_changes():
        assert client("LEASE.GET r a") is client("LEASE.INSPECT r") is client("LEASE.INSPECT r SESSION a") is None
        assert client("LEASE.COUNT r") == [0, 0]
        assert client("LEASE.ROSTER r") == {"cursor": 0, "now": 0, "gen": None, "event_n": 0, "leases": []}
        policy = client("LEASE.POLICY r")
        assert [b"ttl-ms", 30000, 0] in policy and all(own == 0 for _, _, own in policy)
        assert client("LEASE.GRANTS r") == {"cursor": 0, "grants": []}
        assert client("LEASE.LAG r") == {"cursor": 0, "holders": []}
        assert client("LEASE.HOLDS r") == []
        assert client("LEASE.STATS r") is None
        assert client("LEASE.KICK r USER u") == client("LEASE.REAP r") == client("LEASE.TRIM r") == client("LEASE.UNHOLD r h") == 0
        assert client.refusal("LEASE.MARK r u default QUEUED 0") == "ERR"
        assert client("LEASE.LEAVE r a 1") == client("LEASE.LEAVE r a 1 LINGER 5") == b"gone"
        assert client("LEASE.RENEW r a 1 1 STATE closed") == [b"gone", 0, 0]
        for words in ("RENEW r a 1 1", "SEND r a 1 m1 x", "REPLAY r a 1 * 0", "SNAPSHOT r a 1", "ACK r a 1 0"):
            assert client.refusal("LEASE." + words) == "STALE unknown"
        assert client("LEASE.MRENEW r a 1 1") == [[b"stale", b"unknown"]]


# -------------------------------------------------------------------- clients that resend


def cut_off(server, *command):
    """The command is executed and its reply never arrives."""
    connection = Connection(server.port)
    calls = server.info("commandstats").get(f"cmdstat_{command[0].lower()}", "")
    connection.send([list(command)])
    wait_until(lambda: server.info("commandstats").get(f"cmdstat_{command[0].lower()}", "") != calls)
    connection.close()


def test_api_11_the_client_resends(client):
    """API-11 The client resends after reconnecting: at once, and a minute later; no second event."""
    resent = client.another()
    steps = (
        (["LEASE.OPEN", "r", "u1", "SESSION", "a", "META", "x"], lambda reply: reply["epoch"] == 1 and reply["event_n"] == 1),
        (["LEASE.RENEW", "r", "a", "1", "1", "STATE", "failed", "META", "y"], lambda reply: reply[0] == b"duplicate"),
        (["LEASE.MRENEW", "r", "a", "1", "2"], lambda reply: reply == [[b"duplicate", 30000]]),
        (["LEASE.SEND", "r", "a", "1", "m1", "x"], lambda reply: (reply["status"], reply["seq"]) == (b"duplicate", 1)),
        (["LEASE.POST", "r", "u1", "m2", "x"], lambda reply: (reply["status"], reply["seq"]) == (b"duplicate", 2)),
        (["LEASE.ACK", "r", "a", "1", "1"], lambda reply: reply == 1),
        (["LEASE.MARK", "r", "u1", "default", "QUEUED", "2"], lambda reply: reply == 2),
        (["LEASE.HOLD", "r", "h"], lambda reply: reply == 0),
        (["LEASE.UNHOLD", "r", "h"], lambda reply: reply == 0),
        (["LEASE.TRIM", "r"], lambda reply: reply == 0),
        (["LEASE.LEAVE", "r", "a", "1"], lambda reply: reply == b"gone"),
        (["LEASE.KICK", "r", "USER", "u1"], lambda reply: reply == 0),
        (["LEASE.GRANT", "r", "u2", "READ", "TOKEN", "s3cret"], lambda reply: reply == b"ok"),
        (["LEASE.REVOKE", "r", "u2"], lambda reply: reply == [b"ok", 0]),
        (["LEASE.GRANT", "r", "u3", "READ", "VERSION", "5"], lambda reply: reply == b"stale"),
        (["LEASE.REVOKE", "r", "u3", "VERSION", "6"], lambda reply: reply == [b"stale", 0]),
    )
    for command, right in steps:
        cut_off(client.server, *command)
        with client.nothing_changes():
            reply = resent(*command)
        assert right(reply), f"{command}: {reply}"
    assert client.history("r") == [
        ("opened", b"a", 1),
        ("state", b"a", 1),
        ("updated", b"a", 1),
        ("removed", b"a", 1, "left"),
        ("granted",),
        ("grant-revoked",),
        ("granted",),
        ("grant-revoked",),
    ]


def test_api_11_resent_a_minute_later(client):
    """API-11 The client resends after reconnecting: when the lease has run out meanwhile, it learns so, and nothing happens."""
    client("LEASE.OPEN r u1 SESSION a")
    client("LEASE.RENEW r a 1 1")
    client("LEASE.SEND r a 1 m1 x")
    client("LEASE.ACK r a 1 1")
    client.advance(60000)
    with client.nothing_changes():
        assert client.refusal("LEASE.OPEN r u1 SESSION a") == "STALE expired"
        for words in ("RENEW r a 1 1", "SEND r a 1 m1 x", "ACK r a 1 1", "REPLAY r a 1 * 0"):
            assert client.refusal("LEASE." + words) == "STALE expired"
        assert client("LEASE.POST r u1 m1 x")["status"] == b"duplicate"
        assert client("LEASE.MRENEW r a 1 1") == [[b"stale", b"expired"]]
        assert client("LEASE.LEAVE r a 1") == b"gone"
    assert client.history("r") == [("opened", b"a", 1), ("removed", b"a", 1, "expired")]
