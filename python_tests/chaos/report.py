"""How available RENEW was: the probes' heartbeats, by the kind of fault that was on while they were sent."""

import collections
import statistics

AFTERWARDS_MS = 200


def windows(records):
    """(kind, begin, end) of every fault, and of the calm between two."""
    found, calm_since = [], None
    begun = None
    for record in records:
        if record["kind"] != "fault":
            continue
        if record["phase"] == "begin":
            begun = record["at"]
            if calm_since is not None:
                found.append(("calm", calm_since, begun))
        else:
            found.append((record["name"], begun, record["at"] + AFTERWARDS_MS))
            calm_since = record["at"] + AFTERWARDS_MS
    return found


def availability(records):
    """Lines of a table: kind, times, heartbeats, those that were accepted in %, the longest time without one (median and worst, in ms)."""
    beats = collections.defaultdict(list)
    for record in records:
        if record["kind"] == "call" and record["op"] == "RENEW" and record["who"].startswith("probe"):
            beats[record["who"]].append((record["sent"], record["done"], record.get("reply", [""])[0] in ("renewed", "duplicate")))
    rows = collections.defaultdict(list)
    for kind, begin, end in windows(records):
        inside = [beat for probe in beats.values() for beat in probe if begin <= beat[0] < end]
        gaps = [gap(probe, begin, end) for probe in beats.values()]
        rows[kind].append((len(inside), sum(ok for *_, ok in inside), max(gaps, default=0)))
    yield f"{'fault':26} {'times':>5} {'beats':>7} {'accepted':>9} {'gap ms: median':>15} {'worst':>7}"
    for kind, times in sorted(rows.items()):
        sent, accepted = sum(row[0] for row in times), sum(row[1] for row in times)
        share = f"{100 * accepted / sent:.2f} %" if sent else "-"
        gaps_ms = [row[2] for row in times]
        yield f"{kind:26} {len(times):5} {sent:7} {share:>9} {statistics.median(gaps_ms):15.0f} {max(gaps_ms):7.0f}"


def gap(beats, begin, end):
    """The longest time within a window without an accepted heartbeat."""
    accepted = [done for _, done, ok in beats if ok and begin < done < end]
    return max(after - before for before, after in zip([begin, *accepted], [*accepted, end]))
