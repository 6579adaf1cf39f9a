"""One run: `python -m chaos --seconds 60 --seed 1`, or the check of an earlier history: `python -m chaos --check FILE`."""

import argparse
import collections
import contextlib
import pathlib
import sys
import tempfile
import threading
import time

from harness import aftermath, wait_until
from harness.process import EXECUTABLE

from . import history, report, rules
from .faults import LineFaults
from .history import History, now
from .keepers import Keeper, Moderator
from .nodes import PERSISTENCE, Nodes
from .readers import Consumer, Listener, Reader
from .scene import ROOMS
from .schedule import Schedule
from .shards import Shards
from .slots import SlotFaults
from .traffic import Bot, Devices, Gateway, Probe

SHOWN = 20


def main():
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100000)
    parser.add_argument("--cluster", action="store_true", help="three primaries with a replica each, and slots that move")
    parser.add_argument("--persistence", choices=PERSISTENCE, help="instead of the seed's choice")
    parser.add_argument("--only", nargs="*", help="these faults alone")
    parser.add_argument("--history", type=pathlib.Path, help="where it is written (default: a file that stays if the run fails)")
    parser.add_argument("--check", type=pathlib.Path, metavar="FILE", help="check a history, run nothing")
    options = parser.parse_args()
    path = options.check or options.history or pathlib.Path(tempfile.gettempdir(), f"chaos-{options.seed}.jsonl")
    if not options.check:
        options.persistence = options.persistence or list(PERSISTENCE)[options.seed % len(PERSISTENCE)]
        print(f"seed {options.seed}, {options.seconds} s, {'a cluster' if options.cluster else options.persistence}, {EXECUTABLE}", flush=True)
        run(options, path)
    sys.exit(judged(path, keep=options.check or options.history))


def judged(path, keep):
    """Prints what the history tells; 1 if something did not hold, and the file stays."""
    records = history.load(path)
    print("\n".join(report.availability(records)))
    calls = [record for record in records if record["kind"] == "call"]
    lines = [record for record in records if record["kind"] == "line"]
    print(
        f"{len(calls)} requests, {sum('reply' in call for call in calls)} accepted, {sum('lost' in call for call in calls)} without a reply; "
        f"{len(lines) - 1} changes of the primary's line; {sum(record['kind'] == 'event' for record in records)} events handed out"
    )
    reasons = collections.Counter(call["reply"]["reason"] for call in calls if call["op"] == "REPLAY" and call.get("reply", {}).get("reason"))
    print("readers sent to SNAPSHOT:", ", ".join(f"{reason} {times}" for reason, times in sorted(reasons.items())) or "none")
    violations = rules.check(records)
    print(f"{len(violations)} violations", *violations[:SHOWN], sep="\n  ")
    if violations:
        print(f"the history: {path}")
    elif not keep:
        path.unlink()
    return bool(violations)


def run(options, path):
    noted = History(path)
    nodes = Shards(noted) if options.cluster else Nodes(noted, options.persistence)
    faults = (SlotFaults if options.cluster else LineFaults)(nodes, options.seed)
    stopping, reading, watching = (threading.Event() for _ in range(3))
    try:
        watcher = threading.Thread(target=nodes.watch, args=(watching,), daemon=True)
        watcher.start()
        prepare(nodes)
        writers = those_who_write(nodes, noted, stopping, options.seed)
        readers = those_who_read(options.cluster, nodes, noted, reading, options.seed)
        followers = [] if options.cluster else [kind(nodes, noted, watching, options.seed, kind.__name__.lower()) for kind in (Consumer, Listener)]
        for actor in (*writers, *readers, *followers):
            actor.start()
        with failures_noted(nodes, noted):
            disturb(nodes, Schedule(faults, options.only), options.seconds)
        end(stopping, writers)
        end(reading, readers)
        with failures_noted(nodes, noted):
            run_out(nodes)
        end(watching, followers)
        with failures_noted(nodes, noted):
            conclude(nodes, noted)
    finally:
        for over in stopping, reading, watching:
            over.set()
        nodes.discard()
        noted.close()


@contextlib.contextmanager
def failures_noted(nodes, noted):
    """What breaks the run itself is a violation too."""
    try:
        yield
    except Exception as error:
        noted.note("alarm", text=nodes.ended_by_itself() or f"{type(error).__name__}: {error}")
        nodes.heal()


def those_who_write(*common):
    return [
        *(Devices(*common, f"devices-{letter}") for letter in "abcd"),
        Gateway(*common, "gateway"),
        Bot(*common, "bot"),
        Moderator(*common, "moderator"),
        Keeper(*common, "keeper"),
        Probe(*common, "probe-a", room=ROOMS[0]),
        Probe(*common, "probe-b", room=ROOMS[1]),
    ]


def those_who_read(cluster, *common):
    found = [Reader(*common, "reader-a"), Reader(*common, "reader-b")]
    return found if cluster else [*found, Reader(*common, "reader-everywhere", everywhere=True)]


def end(over, actors):
    over.set()
    for actor in actors:
        actor.join()


def prepare(nodes):
    """Rooms, known to all nodes and on every disk before anything goes wrong."""
    nodes.in_step()
    nodes.begin_world()
    nodes.settle()


def disturb(nodes, schedule, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        schedule.calm()
        schedule.strike()
        if died := nodes.ended_by_itself():
            raise RuntimeError(died)
    nodes.in_step()


def run_out(nodes):
    """Until the last lease has expired."""
    wait_until(lambda: not any(nodes.tell(nodes.home(room), "LEASE.COUNT", room)[0] for room in ROOMS), 30, "all leases run out")
    nodes.in_step()


def conclude(nodes, noted):
    """What is there is noted, nodes are compared, and the check after every scenario is made."""
    nodes.note_rooms(concluded=True, digests=nodes.digests(), at=now())
    for alarm in nodes.alarms():
        noted.note("alarm", text=alarm)
    for name in nodes.groups():
        primary = nodes.servers[name]
        primary.call = primary.connect()
        try:
            aftermath.well(primary)
            aftermath.accounted(primary)
        except AssertionError as broken:
            noted.note("alarm", text=f"the check after every scenario: {str(broken)[:4000]}")


if __name__ == "__main__":
    main()
