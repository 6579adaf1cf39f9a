"""What must hold after every scenario; the numbers are those of the scenarios' own list.

1 the server is well and has nothing left to remove, 2 events, counts, gauges and messages agree, 3 a replica, a reload and
a restart from either kind of AOF show the same leases, messages, cursors and holds.
"""

import re
from collections import Counter

from . import messages, rooms
from .client import Client
from .events import Ledger, gen_order, read, stream
from .resp import Refused
from .ways import Way

ALARMS = re.compile(r"panic|assert|BUG REPORT|crashed by signal|stack trace|Sanitizer|their room is not here", re.I)
EPOCH_FLOOR_RISE = 1024


def check(server, restart=True):
    """The whole check of one primary."""
    well(server)
    accounted(server)
    replicas_agree(server)
    if restart:
        survives(server)
        well(server)


# -------------------------------------------------------------------- 1


def well(server):
    assert server.call("PING") in (b"PONG", "PONG")
    nothing_left_to_remove(server)
    log = server.log()
    assert not (alarm := ALARMS.search(log)), log[max(0, alarm.start() - 500) : alarm.end() + 2000]
    said = "\n".join(re.findall("<lease> (.*)", log)).encode()  # without level, time and process id
    for name in (name for name in names(server) if len(name) > 1):  # one byte may stand in any sentence
        assert not re.search(rb"(?<![\w-])" + re.escape(name) + rb"(?![\w-])", said), f"{name} stands in the log"


def nothing_left_to_remove(server):
    """A second REAP right behind a first one, in one transaction: 0, and nothing written."""
    for db, room, _ in rooms.each(server):
        reap = ["LEASE.REAP", room, "COUNT", 1 << 30]
        *_, replies = server.in_db(db).pipeline(["MULTI", reap, "INFO persistence", reap, "INFO persistence", "EXEC"])
        _, before, reaped, after = replies
        assert reaped == 0, f"a second REAP of {room} removed {reaped}"
        assert changes(before) == changes(after), f"a second REAP of {room} wrote"


def changes(info):
    return re.search(rb"rdb_changes_since_last_save:(\d+)", info).group(1)


def names(server):
    """User and device ids in use, apart from the device's default."""
    found = rooms.scan(server).values()
    leased = {lease[field] for room in found for lease in room["leases"].values() for field in ("user", "device")}
    known = {name for room in found for user, record in room["grants"].items() for name in (user, *record["devices"])}
    behind = {name for room in found for holder in room["holders"] for name in holder}
    return (leased | known | behind) - {b"default"}


# -------------------------------------------------------------------- 2


def accounted(server):
    """On the real clock something may end between two reads: then all is read again."""
    for _ in range(2 if server.clock is None else 0):
        try:
            return balance(server)
        except AssertionError:
            pass
    balance(server)


def balance(server):
    found = rooms.scan(server)
    info = server.lease_info()
    for (db, name), room in found.items():
        if (db, name) not in server.aside:
            balanced(read(server.in_db(db), name), room, jumps_allowed=info.get("events_lost", 0) > 0)
            logged(server.in_db(db), name, room)
    listed = [active(room) for room in found.values()]
    gauges = {
        "rooms": len(found),
        "active_leases": sum(map(len, listed)),
        "users": sum(len({lease["user"] for lease in leases.values()}) for leases in listed),
        "tombstones": sum(len(room["leases"]) for room in found.values()) - sum(map(len, listed)),
        "reap_backlog": 0,
        "dedupe_records": sum(room["stats"].get("dedupe", 0) for room in found.values()),
        "orphan_rooms": sum(b"orphan" in room["holds"] for room in found.values()),
    }
    assert {name: info.get(name, 0) for name in gauges} == gauges


def active(room):
    return {session: lease for session, lease in room["leases"].items() if lease["state"] != b"ended"}


def balanced(entries, room, jumps_allowed):
    """opened - removed - closed.active = COUNT, lease by lease and user by user."""
    live = {(session, lease["epoch"]): lease["user"] for session, lease in active(room).items()}
    shown = Counter(live.values())
    assert room["count"] == [len(live), len(shown)]
    ledger = Ledger(entries, jumps_allowed)
    if not ledger.whole:
        return
    told = {lease: user for lease, (user, _) in ledger.leases.items()}
    assert told == live, f"by events alone {told.items() - live.items()}, by the roster alone {live.items() - told.items()}"
    if entries and entries[-1]["gen"] == room["gen"]:
        assert room["event_n"] == entries[-1]["n"]
    if any(event["type"] == "closed" for event in entries):
        return
    for user, told in ledger.user_leases.items():
        assert told == shown[user], f"the last event of {user} tells {told} leases, the roster {shown[user]}"


def logged(connection, name, room):
    """The log goes up to the newest message, its counts are those STATS tells, and none it keeps is without its dedupe record."""
    entries, stats = messages.read(connection, name), room["stats"]
    messages.in_order(entries)
    if not stats:
        return
    assert stats["log_oldest"] == (entries[0][0] if entries else 0)
    # One deleted by hand is as if all of it were trimmed.
    if connection("EXISTS", stream(name, "log")):
        newest = connection("XINFO", "STREAM", stream(name, "log"))[b"last-generated-id"]
        assert newest == b"%d-0" % stats["log_seq"], f"the log ends at {newest}, the room at {stats['log_seq']}"
    assert stats["dedupe"] >= len(entries)
    told = {
        "leases": room["count"][0],
        "users": room["count"][1],
        "event_n": room["event_n"],
        "gen": room["gen"].encode(),
        "tombstones": len(room["leases"]) - len(active(room)),
        "holds": len(room["holds"]),
        "cursors": len(room["holders"]),
    }
    told |= {lag: max((holder[lag] for holder in room["holders"].values()), default=0) for lag in ("queued_lag", "written_lag", "acked_lag")}
    assert {field: stats[field] for field in told} == told
    for holder in room["holders"].values():
        for claim in "queued", "written", "acked":
            assert holder[claim] + holder[claim + "_lag"] == stats["log_seq"], holder


# -------------------------------------------------------------------- 3


def replicas_agree(server):
    for replica in server.replicas:
        if replica.running() and replica.primary is server:
            replica.in_step()
            assert replica.call("DEBUG DIGEST") == server.call("DEBUG DIGEST"), "the replica differs"


def survives(server):
    for load in reload, restart_from_rdb_preamble, restart_from_commands:
        before, digest = rooms.scan(server), server.call("DEBUG DIGEST")
        load(server)
        same(server, before, rooms.scan(server))
        assert server.clock is None or server.call("DEBUG DIGEST") == digest, "the digest differs after the load"
        accounted(server)
    epochs_go_on(server, before)
    seqs_go_on(server, before)


def reload(server):
    server.call("DEBUG RELOAD")


def restart_from_rdb_preamble(server):
    restart_from_aof(server, "yes")


def restart_from_commands(server):
    restart_from_aof(server, "no")


def restart_from_aof(server, preamble):
    server.rewrite_aof(preamble)
    settings = server.call("CONFIG GET lease.*")
    server.restart()
    # What the test set at run time is not in the configuration file.
    for name, value in server.call("CONFIG GET lease.*").items():
        if settings[name] != value:
            server.call("CONFIG", "SET", name, settings[name])


def same(server, before, after):
    """Rooms as they were before a load, but for a new gen, and deadlines within the ttl."""
    assert after.keys() == before.keys()
    for name, room in after.items():
        was = before[name]
        assert gen_order(room["gen"]) > gen_order(was["gen"]), "a load begins a new gen"
        assert room["event_n"] >= was["event_n"]
        assert room["policy"] == was["policy"]
        # On the real clock grants end meanwhile, and its steps move what is shown of their ends.
        assert server.clock is None or room["grants"] == was["grants"]
        assert kept(server, room) == kept(server, was)
        assert steady(server, room) == steady(server, was)
        for lease in active(room).values():
            assert 0 < lease["left_ms"] <= lease["ttl_ms"], lease


def kept(server, room):
    """What a room keeps of messages through a load. On the real clock windows end meanwhile."""
    always = {"holds": room["holds"], "log_seq": room["stats"].get("log_seq")}
    windows = {"holders": room["holders"], "log_oldest": room["stats"].get("log_oldest"), "dedupe": room["stats"].get("dedupe")}
    return always | (windows if server.clock is not None else {})


def steady(server, room):
    """The leases without what a load may move. On the real clock those that may end meanwhile, and ended ones, are left out."""
    kept = room["leases"].values() if server.clock is not None else [lease for lease in active(room).values() if lease["left_ms"] > 10000]
    return {
        lease["session"]: {name: value for name, value in lease.items() if name not in rooms.DEADLINE or lease["state"] == b"ended"} for lease in kept
    }


def epochs_go_on(server, before):
    """A holder new to the room starts above the highest epoch shown before the load, by the rise of the floor."""
    for db, name, call in rooms.each(server):
        highest = max((lease["epoch"] for lease in before[db, name]["leases"].values()), default=0)
        try:
            reply = call("LEASE.OPEN", name, "probe of the check")
        except Refused:  # its policy or its event stream may not let anyone in
            continue
        assert reply["epoch"] > highest + EPOCH_FLOOR_RISE, f"epoch {reply['epoch']} after {highest} and a load"
        assert reply["event_n"] > before[db, name]["event_n"]


def seqs_go_on(server, before):
    """The next message has the next number, whatever was loaded."""
    for db, name, _ in rooms.each(server):
        try:
            reply = Client(server, Way("plain", 3), db=db).sent("LEASE.POST", name, "probe of the check", "probe of the check", "")
        except Refused:  # its policy or its log may not take any, and a module of an earlier stage knows none
            continue
        assert (reply["status"], reply["seq"]) == (b"accepted", before[db, name]["stats"]["log_seq"] + 1)
