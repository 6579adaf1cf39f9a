"""Rules of those who read: pages without gaps, a word wherever something was lost, and every event."""

import collections


def readers_miss_nothing(run, line):
    """What a reader holds, page by page, is the log as it stands at the end, or it was told to start anew before it read on after the loss."""
    logs = {name: Log(run, name) for name in run.rooms}
    views = {}
    for call, _ in readings(run):
        reply, key = call["reply"], (call["who"], call["room"])
        entries = [(seq, (user, id)) for seq, user, id in reply["entries"]]
        if call["op"] == "SNAPSHOT":
            views[key] = View(logs[call["room"]])
            yield from views[key].take(entries, reply["current"] - len(entries), reply["current"], call)
        elif reply["status"] == "ok":
            if key not in views or views[key].next != call["args"][3]:
                yield f"{key} asked for what follows {call['args'][3]} without being there"
                continue
            yield from views[key].take(entries, call["args"][3], reply["next"], call)
            if line.on(call):
                yield from views[key].compared(call, line)
    for (who, name), view in views.items() if run.concluded else ():
        if view.strange:
            yield f"{who} holds {sorted(view.strange.items())[:3]} of {name}, which the log does not have"
        if view.log.newest and view.next != view.log.newest:
            yield f"{who} stands at {view.next} of {name}, the log at {view.log.newest}"


def readings(run):
    """Each page and snapshot, with the reader's one before in that room."""
    before = {}
    for call in sorted(run.replies("REPLAY", "SNAPSHOT"), key=lambda call: call["done"]):
        if call["room"] in run.rooms:
            yield call, before.get((call["who"], call["room"]))
            before[call["who"], call["room"]] = call


class Log:
    """A room's messages at the end; of those trimmed by then what was acknowledged."""

    def __init__(self, run, room):
        there = run.rooms[room]["messages"]
        self.oldest, self.newest = run.oldest(room), there[-1][0] if there else 0
        self.messages = {seq: message for seq, message in run.acknowledged_messages(room) if seq < self.oldest}
        self.messages |= {seq: (entry["user"], entry["id"]) for seq, entry in there}

    def has(self, seq, message):
        """Of a trimmed message that nobody was told of: whatever it is."""
        return self.messages.get(seq) == message or seq < self.oldest and seq not in self.messages


class View:
    """The messages one reader holds since its last snapshot; kept of them: those the log does not have at the end."""

    def __init__(self, log):
        self.log, self.next, self.strange = log, 0, {}

    def take(self, entries, after, upto, call):
        if [seq for seq, _ in entries] != list(range(after + 1, upto + 1)):
            yield f"{call['who']} got {[seq for seq, _ in entries]} for ({after}, {upto}] of {call['room']}"
        self.next = upto
        self.strange |= {seq: message for seq, message in entries if not self.log.has(seq, message)}

    def compared(self, call, line):
        """A page that was given without a word, while what the reader holds was gone already."""
        if self.strange and not any(begin["at"] > call["sent"] for begin in line.begins):
            yield f"{call['who']} read on in {call['room']} at {call['sent']:.0f}, holding {sorted(self.strange.items())[:3]}, which was lost"


def resyncs_have_a_reason(run, line):
    """Nobody is sent to SNAPSHOT who could have read on."""
    for call, former in readings(run):
        if call["op"] == "SNAPSHOT" or call["reply"]["status"] == "ok" or not former or not line.on(call) or not line.on(former):
            continue
        reply, after = call["reply"], call["args"][3]
        true = {
            "trimmed": after < reply["current"] and (reply["oldest"] > after + 1 or not reply["oldest"]),
            "future": after > reply["current"],
            "diverged": line.changed(former["sent"], call["done"]) or run.forgotten(former, by=call["done"]),
        }
        if not true[reply["reason"]]:
            yield f"{call['who']} was told {reply['reason']} for {after} of {call['room']}, which goes from {reply['oldest']} to {reply['current']}"


def standing(run):
    """The events that are there at the end, room by room: (id, gen) -> when."""
    return {name: {(event["id"], event["gen"]): event["at"] for event in room["events"]} for name, room in run.rooms.items()}


def consumers_get_all_events(run, line):
    """A consumer group is handed every event that stands at the end."""
    handed = collections.defaultdict(set)
    for record in run.events:
        if record["who"] == "consumer":
            handed[record["room"]].add((record["id"], record["gen"]))
    for name, there in standing(run).items() if run.followed else ():
        if missed := there.keys() - handed[name]:
            yield f"{len(missed)} events of {name} were never handed out, as {min(missed)}"


def listeners_are_told_of_gaps(run, line):
    """Whoever follows the events sees by gen or n where some were lost, or where it missed some, and then reads the roster."""
    there, handed, former, told = standing(run), collections.defaultdict(set), {}, {}
    for record in run.events:
        name, key, event = record["room"], (record["who"], record["room"]), (record["id"], record["gen"])
        if name not in there:
            continue
        handed[key].add(event)
        before, former[key] = former.get(key), record
        if before and (record["n"], record["gen"]) != (before["n"] + 1, before["gen"]):
            told[key] = record["at"]
        elif before and event in there[name] and (before["id"], before["gen"]) not in there[name]:
            yield f"{event} of {name} follows {before['id']}, which was lost, without a jump"
    for (who, name), seen in handed.items() if run.followed else ():
        silent = [event for event, at in there[name].items() if event not in seen and at > told.get((who, name), 0)]
        if silent:
            yield f"{who} missed {len(silent)} events of {name} without a sign, as {min(silent)}"
