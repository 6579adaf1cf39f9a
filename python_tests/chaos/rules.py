"""What must hold, rule by rule. Each takes a run and its line and yields a text for every violation; `check` puts them together.

`May be lost` is always the judgement of `line.py`: a rule forgives only what an asynchronous replica or a late flush may cost.
"""

import collections
import heapq

from harness import messages
from harness.events import Ledger

from .calls import Run, holder_of, opened_session
from .line import Line

# The servers read the clock once a command, and take small steps of the wall clock not over.
CLOCK_MS = 100
# What a load or a promotion passes over, so that no reader takes an event for one that was lost.
LOST_EVENTS = 1 << 20
EXPECTED = {"STALE", "DENIED", "HELD", "READONLY", "LOADING", "MASTERDOWN", "UNBLOCKED", "TRYAGAIN", "OOM",
            "ERR the seq is beyond the newest message", "ERR the room does not know this holder"}
FOR_GOOD = ("STALE superseded", "STALE left", "STALE kicked", "STALE revoked")


def check(records):
    """Every violation in a history."""
    run, line = Run(records), Line(records)
    return [f"{rule.__name__}: {text}" for rule in RULES for text in rule(run, line)]


# -------------------------------------------------------------------- replies

def nothing_unexpected(run, line):
    """Nobody panics, nothing is logged or answered that tells of a fault."""
    yield from (alarm["text"] for alarm in run.alarms)
    for call in run.calls:
        error = call.get("error", "")
        if error and error not in EXPECTED and error.split(" ")[0] not in EXPECTED:
            yield f"{call['op']} was answered {error!r} by {call['node']} at {call['sent']:.0f}"


def epochs_rise(run, line):
    """A session that is opened after another one of its holder was has the greater epoch, even if the other one is lost by then."""
    asked, issued = {}, {}
    for call in run.calls:
        if call["op"] == "OPEN":
            asked.setdefault((call["room"], opened_session(call)), call["sent"])
    for call in run.replies("OPEN"):
        issued.setdefault((holder_of(call), opened_session(call), call["reply"]["epoch"]), call)
    by_holder = collections.defaultdict(list)
    for (holder, session, epoch), call in issued.items():
        by_holder[holder].append((asked[call["room"], session], call["done"], epoch, session, line.on(call)))
    for holder, all_issued in by_holder.items():
        highest, waiting = 0, []
        for since, done, epoch, session, on_line in sorted(all_issued):
            while waiting and waiting[0][0] < since:
                highest = max(highest, heapq.heappop(waiting)[1])
            if on_line and epoch <= highest:
                yield f"{session} of {holder} got epoch {epoch} although {highest} had been given"
            heapq.heappush(waiting, (done, epoch))


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
    if op == "LEAVE":
        return reply != "left" or (room, *args[:2]) in removed
    if op == "RENEW":
        return seq_at_the_end(run, removed, (room, *args[:2])) >= args[2]
    if op == "SEND":
        return logs[room].get((run.users.get((room, args[0])), args[2])) == reply["seq"]
    if op == "POST":
        return logs[room].get((args[0], args[1])) == reply["seq"]
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


# -------------------------------------------------------------------- what is there at the end

def one_ending_a_lease(run, line):
    """Every lease has one `opened` and at most one `removed`; those without are the ones the roster shows; n jumps with every new gen, and only then."""
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
            if former["gen"] != event["gen"] and event["n"] < former["n"] + LOST_EVENTS:
                yield f"{name}: {event['id']} of a new gen follows {former['id']} without a jump"
        for event in room["events"]:
            if event["type"] == "opened":
                holder = event["user"], event["device"]
                if event["epoch"] <= epochs.get(holder, 0):
                    yield f"{name}: {holder} has epoch {event['epoch']} after {epochs[holder]}"
                epochs[holder] = event["epoch"]


def one_seq_a_message(run, line):
    """The log has every number once and every (user, id) once."""
    for name, room in run.rooms.items():
        entries = [(seq, entry | {"gen": entry["gen"].encode()}) for seq, entry in room["messages"]]
        try:
            messages.in_order(entries)
            assert not entries or entries[0][0] == 1, f"the log begins at {entries[0][0]}"
        except AssertionError as broken:
            yield f"{name}: {broken}"


def nodes_agree(run, line):
    if len(set(run.digests.values())) > 1:
        yield f"digests differ: {run.digests}"


# -------------------------------------------------------------------- sessions

def ended_stays_ended(run, line):
    """A session whose removal stands in the stream, or that was told for good that it has ended, is allowed nothing any more."""
    removed, told, gone = run.survived("removed"), {}, {}
    for act in sorted(run.acts, key=lambda act: act.done):
        if act.verdict.startswith(FOR_GOOD) and line.on(act.call):
            told.setdefault(act.session, act)
        elif act.verdict.startswith(("STALE expired", "STALE unknown")) and line.on(act.call):
            gone.setdefault(act.session, []).append(act)
    for act in run.acts:
        if not act.allowed or not line.on(act.call):
            continue
        end = removed.get(act.session)
        if end and end["at"] + CLOCK_MS < act.sent:
            yield f"{act} was allowed, but {act.session} was removed ({end['reason']}) at {end['at']}"
        refused = told.get(act.session)
        if refused and refused.done < act.sent and not line.may_be_lost(refused.call, by=act.done):
            yield f"{act} was allowed, but {act.session} had been told {refused.verdict} at {refused.done:.0f}"
        if any(refused.done < act.sent and not line.changed(refused.sent, act.done) for refused in gone.get(act.session, [])):
            yield f"{act} was allowed, but {act.session} had been refused within the same line"


def nobody_expires_early(run, line):
    """Whoever was heard is not expired before its ttl is over, whatever happens to the servers meanwhile."""
    ttls, heard = {}, {}
    moments = [(call["done"], call["sent"], call, (call["room"], opened_session(call), call["reply"]["epoch"]), None) for call in run.replies("OPEN")]
    moments += [(act.done, act.sent, act.call, act.session, act) for act in run.acts]
    for done, sent, call, session, act in sorted(moments, key=lambda moment: moment[0]):
        if not line.on(call):
            continue
        if act is None:
            if session not in ttls:  # a retry of a live session prolongs nothing
                ttls[session], heard[session] = call["reply"]["ttl_ms"], sent
        elif act.seq is not None and act.allowed and (call["op"] == "MRENEW" or call["reply"][0] == "renewed"):
            heard[session] = sent
        elif act.verdict.startswith("STALE expired") and session in ttls and done < heard[session] + ttls[session]:
            yield f"{act} was told expired {done - heard[session]:.0f} ms after {session} was heard"


def revoked_stay_out(run, line):
    """From the acknowledgement of a REVOKE until a GRANT is sent its user is allowed nothing, unless the REVOKE may be lost."""
    steps = collections.defaultdict(list)  # of (room, user): (time, call), a REVOKE when acknowledged, a GRANT when sent
    for call in run.calls:
        if call["op"] == "GRANT":
            steps[call["room"], call["args"][0]].append((call["sent"], call))
        elif call["op"] == "REVOKE" and call.get("reply", [None])[0] in ("ok", "stale"):
            steps[call["room"], call["args"][0]].append((call["done"], call))
    for known in steps.values():
        known.sort(key=lambda step: step[0])
    for call, user in allowed_to(run):
        before = [step for at, step in steps[call["room"], user] if at < call["sent"]]
        granted = any(step["op"] == "GRANT" and call["sent"] <= at <= call["done"] for at, step in steps[call["room"], user])
        if before and before[-1]["op"] == "REVOKE" and not granted and line.on(call) and not line.may_be_lost(before[-1], by=call["done"]):
            yield f"{call['op']} of {user} in {call['room']} was allowed by {call['node']} at {call['sent']:.0f}, revoked at {before[-1]['done']:.0f}"


def allowed_to(run):
    """(call, user) of everything that only those may do who are not revoked."""
    for call in run.replies("OPEN", "POST"):
        yield call, call["args"][0]
    for act in run.acts:
        if act.allowed:
            yield act.call, run.users.get(act.session[:2])


# -------------------------------------------------------------------- readers

def readers_miss_nothing(run, line):
    """What a reader holds, page by page, is the log as it stands at the end, or it was told to start anew before it read on after the loss."""
    logs = {name: {seq: (entry["user"], entry["id"]) for seq, entry in room["messages"]} for name, room in run.rooms.items()}
    views = {}
    for call in sorted(run.replies("REPLAY", "SNAPSHOT"), key=lambda call: call["done"]):
        reply, key = call["reply"], (call["who"], call["room"])
        entries = [(seq, (user, id)) for seq, user, id in reply["entries"]]
        if call["op"] == "SNAPSHOT":
            views[key] = View(call, reply["current"])
            yield from views[key].take(entries, reply["current"] - len(entries), reply["current"], logs[call["room"]], call)
        elif reply["status"] == "ok":
            if key not in views or views[key].next != call["args"][3]:
                yield f"{key} asked for what follows {call['args'][3]} without being there"
                continue
            yield from views[key].take(entries, call["args"][3], reply["next"], logs[call["room"]], call)
            if line.on(call):
                yield from views[key].compared(call, line)
    for (who, name), view in views.items():
        if view.strange:
            yield f"{who} holds {sorted(view.strange.items())[:3]} of {name}, which the log does not have"
        if logs[name] and view.next != max(logs[name]):
            yield f"{who} stands at {view.next} of {name}, the log at {max(logs[name])}"


class View:
    """The messages one reader holds since its last snapshot; kept of them: those the log does not have at the end, and when they were read."""

    def __init__(self, call, current):
        self.next, self.strange = current, {}

    def take(self, entries, after, upto, log, call):
        if [seq for seq, _ in entries] != list(range(after + 1, upto + 1)):
            yield f"{call['who']} got {[seq for seq, _ in entries]} for ({after}, {upto}] of {call['room']}"
        self.next = upto
        for seq, message in entries:
            if log.get(seq) != message:
                self.strange[seq] = message

    def compared(self, call, line):
        """A page that was given without a word, while what the reader holds was gone already."""
        if self.strange and not any(begin["at"] > call["sent"] for begin in line.begins):
            yield f"{call['who']} read on in {call['room']} at {call['sent']:.0f}, holding {sorted(self.strange.items())[:3]}, which was lost"


def standing(run):
    """The events that are there at the end, room by room: (id, gen) -> when."""
    return {name: {(event["id"], event["gen"]): event["at"] for event in room["events"]} for name, room in run.rooms.items()}


def consumers_get_all_events(run, line):
    """A consumer group is handed every event that stands at the end."""
    handed = collections.defaultdict(set)
    for record in run.events:
        if record["who"] == "consumer":
            handed[record["room"]].add((record["id"], record["gen"]))
    for name, there in standing(run).items():
        if missed := there.keys() - handed[name]:
            yield f"{len(missed)} events of {name} were never handed out, as {min(missed)}"


def listeners_are_told_of_gaps(run, line):
    """Whoever follows the events sees by gen or n where some were lost, or where it missed some, and then reads the roster."""
    there, handed, former, told = standing(run), collections.defaultdict(set), {}, {}
    for record in run.events:
        name, key, event = record["room"], (record["who"], record["room"]), (record["id"], record["gen"])
        handed[key].add(event)
        before, former[key] = former.get(key), record
        if before and (record["n"], record["gen"]) != (before["n"] + 1, before["gen"]):
            told[key] = record["at"]
        elif before and event in there[name] and (before["id"], before["gen"]) not in there[name]:
            yield f"{event} of {name} follows {before['id']}, which was lost, without a jump"
    for (who, name), seen in handed.items():
        silent = [event for event, at in there[name].items() if event not in seen and at > told.get((who, name), 0)]
        if silent:
            yield f"{who} missed {len(silent)} events of {name} without a sign, as {min(silent)}"


RULES = (nothing_unexpected, epochs_rise, acknowledged_is_kept, one_ending_a_lease, one_seq_a_message, nodes_agree, ended_stays_ended,
         nobody_expires_early, revoked_stay_out, readers_miss_nothing, consumers_get_all_events, listeners_are_told_of_gaps)
