"""Rules of rooms: what was acknowledged is there, every lease ends once, every message has one number, what is held stays."""

import collections

from harness import messages
from harness.events import Ledger, gen_order

from ..calls import message_of, opened_session
from ..scene import RETAINED, SHORT

# What a load or a promotion passes over, so that no reader takes an event for one that was lost.
LOST_EVENTS = 1 << 20
# How long after a promotion by the server itself its line is noted at most.
NOTED_MS = 1000
EXPECTED = {
    "STALE",
    "DENIED",
    "HELD",
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "UNBLOCKED",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "OOM",
    "ERR the seq is beyond the newest message",
    "ERR the room does not know this holder",
}


def nothing_unexpected(run, line):
    """Nobody panics, nothing is logged or answered that tells of a fault."""
    yield from (alarm["text"] for alarm in run.alarms)
    for call in run.calls:
        error = call.get("error", "")
        if error and error not in EXPECTED and error.split(" ")[0] not in EXPECTED:
            yield f"{call['op']} was answered {error!r} by {call['node']} at {call['sent']:.0f}"


def acknowledged_is_kept(run, line):
    """What was acknowledged is there at the end: sessions opened and left, heartbeats, messages, cursors, versions of access."""
    opened, removed = run.survived("opened"), run.survived("removed")
    logs = {name: {(entry["user"], entry["id"]): seq for seq, entry in room["messages"]} for name, room in run.rooms.items()}
    for call in run.calls:
        if "reply" in call and call["room"] in run.rooms and not line.may_be_lost(call) and not kept(call, run, opened, removed, logs):
            yield f"{call['op']} {call['args']} of {call['room']} acknowledged by {call['node']} at {call['done']:.0f} is not there"


def kept(call, run, opened, removed, logs):
    op, room, args, reply = (call[name] for name in ("op", "room", "args", "reply"))
    if op == "OPEN":
        return (room, opened_session(call), reply["epoch"]) in opened
    if op in ("SEND", "POST"):
        return logs[room].get(message_of(call, run)) == reply["seq"] or reply["seq"] < run.oldest(room)
    if op == "LEAVE" and reply == "left" or op == "RENEW" and reply[0] == "ended":
        return (room, *args[:2]) in removed
    if run.forgotten(call):
        return True
    if op == "LEAVE" and reply == "lingering" and run.concluded:
        return (room, *args[:2]) in removed
    if op == "RENEW":
        return reply[0] == "gone" or seq_at_the_end(run, removed, (room, *args[:2])) >= args[2]
    if op in ("GRANT", "REVOKE"):
        return run.rooms[room]["versions"].get(args[0], 0) >= args[args.index("VERSION") + 1]
    if op == "MARK":
        return run.rooms[room]["cursors"].get(f"{args[0]} {args[1]} {args[2].lower()}", 0) >= reply
    return True


def seq_at_the_end(run, removed, session):
    if session in removed:
        return removed[session]["seq"]
    room, name, epoch = session
    lease = run.rooms[room]["leases"].get(name, {})
    return lease["seq"] if lease.get("epoch") == epoch else 0


def settings_are_kept(run, line):
    """The last word of the keeper stands, once all have come to rest."""
    if not run.concluded:
        return
    last = {
        (call["room"], call["op"].removeprefix("UN"), call["args"][0]): call for call in run.calls if call["op"] in ("HOLD", "UNHOLD", "SETPOLICY")
    }
    for (room, _, name), call in last.items():
        if "reply" not in call or room not in run.rooms or line.may_be_lost(call) or run.forgotten(call):
            continue
        there = run.rooms[room]
        stands = (
            str(there["policy"].get(name)) == str(call["args"][1])
            if call["op"] == "SETPOLICY"
            else (name in there["holds"]) == (call["op"] == "HOLD")
        )
        if not stands:
            yield f"{call['op']} {call['args']} of {room}, the last of its kind, acknowledged at {call['done']:.0f}, does not stand"


def holds_hold(run, line):
    """While the keeper holds a log nothing of it is trimmed."""
    trims = collections.defaultdict(list)
    for call in run.replies("TRIM", "REPLAY", "SNAPSHOT"):
        trims[call["room"]].append(call)
    for hold, until in held(run):
        oldest = None
        for call in trims[hold["room"]]:
            if call["sent"] < hold["done"] or call["done"] > until or not line.on(call):
                continue
            if (
                line.may_be_lost(hold, by=call["done"])
                or run.forgotten(hold, by=call["done"])
                or run.was_cut(hold["room"], hold["done"], call["done"])
            ):
                break
            if call["op"] == "TRIM":
                if call["reply"]:
                    yield f"TRIM at {call['sent']:.0f} took {call['reply']} entries of {call['room']}, which was held"
            elif (oldest := oldest or call["reply"]["oldest"]) != call["reply"]["oldest"]:
                yield f"{call['room']} was held, but at {call['sent']:.0f} begins with {call['reply']['oldest']} and not {oldest}"


def held(run):
    """(HOLD, when its UNHOLD was sent at the earliest)."""
    steps = [call for call in run.calls if call["op"] in ("HOLD", "UNHOLD")]
    for call in steps:
        if call["op"] == "HOLD" and "reply" in call:
            yield call, next((other["sent"] for other in steps if other["op"] == "UNHOLD" and other["sent"] > call["sent"]), float("inf"))


def one_ending_a_lease(run, line):
    """Every lease has one `opened` and at most one end; those without are the ones the roster shows; n jumps with every new gen of a room, and only then."""
    for name, room in run.rooms.items():
        try:
            ledger = Ledger(room["events"], jumps_allowed=False)
        except AssertionError as broken:
            yield f"{name}: {broken}"
            continue
        live = {(session, lease["epoch"]) for session, lease in room["leases"].items() if lease["state"] != "ended"}
        if ledger.leases.keys() != live:
            yield f"{name}: by events alone {sorted(ledger.leases.keys() - live)}, by the roster alone {sorted(live - ledger.leases.keys())}"
        epochs = {}
        for former, event in zip(room["events"], room["events"][1:]):
            same_room = run.life(name, former["gen"]) == run.life(name, event["gen"])
            if same_room and former["gen"] != event["gen"] and event["n"] < former["n"] + LOST_EVENTS:
                yield f"{name}: {event['id']} of a new gen follows {former['id']} without a jump"
        for event in room["events"]:
            if event["type"] == "opened":
                holder = event["user"], event["device"], run.life(name, event["gen"])
                if event["epoch"] <= epochs.get(holder, 0):
                    yield f"{name}: {holder} has epoch {event['epoch']} after {epochs[holder]}"
                epochs[holder] = event["epoch"]


def gens_begin_with_a_line(run, line):
    """A room begins another history when it is loaded or its node promoted, and for nothing else: not when its slot moves."""
    for name, room in run.rooms.items():
        for former, event in zip(room["events"], room["events"][1:]):
            same_room = run.life(name, former["gen"]) == run.life(name, event["gen"])
            if same_room and former["gen"] != event["gen"] and not line.changed(former["at"] - NOTED_MS, event["at"] + NOTED_MS):
                yield f"{name}: {event['id']} at {event['at']} is of another gen than {former['id']} at {former['at']}, though nothing was loaded or promoted"


def one_seq_a_message(run, line):
    """The log has every number once and every (user, id) once; it goes back to the first, to an eviction, or as far as the least that was ever to be retained."""
    for name, room in run.rooms.items():
        entries = [(seq, entry | {"gen": entry["gen"].encode()}) for seq, entry in room["messages"]]
        try:
            messages.in_order(entries)
        except AssertionError as broken:
            yield f"{name}: {broken}"
        if run.oldest(name) > run.cut_until(name) + 1 and (name != SHORT or len(entries) < min(RETAINED)):
            yield f"{name}: the log begins at {run.oldest(name)}, with {len(entries)} messages"


def one_answer_a_message(run, line):
    """A message that is sent again has the number it was first given, and none has that of another; those trimmed meanwhile too."""
    numbers, messages_by_number = {}, {}
    for call in run.replies("SEND", "POST"):
        if line.may_be_lost(call):
            continue
        message, seq, room = message_of(call, run), call["reply"]["seq"], call["room"]
        if numbers.setdefault((room, message), seq) != seq:
            yield f"{message} of {room} is number {seq} at {call['sent']:.0f}, and was {numbers[room, message]}"
        if messages_by_number.setdefault((room, seq), message) != message:
            yield f"number {seq} of {room} is {message} at {call['sent']:.0f}, and was {messages_by_number[room, seq]}"


def orphans_are_held(run, line):
    """A log whose room has gone is held for whoever looks into it."""
    for name, room in run.rooms.items():
        last = max((gen_order(event["gen"]) for event in run.closed[name]), default=0)
        if any(gen_order(entry["gen"]) <= last for _, entry in room["messages"]) and "orphan" not in room["holds"]:
            yield f"{name} has messages of a room that has gone, and no hold for them"


def nodes_agree(run, line):
    for digests in run.digests.values():
        if len(set(digests.values())) > 1:
            yield f"digests differ: {digests}"
