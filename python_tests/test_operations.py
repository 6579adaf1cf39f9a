"""What operators look at: the exporter's script, the scrape, the dashboard and the alerts, LATENCY, the server's log."""

import json
import re
import shlex
import subprocess
from itertools import combinations

import pytest
import yaml

import transcripts
from golden import crc64
from harness import Client, Way, wait_until
from harness.events import stream
from harness.resp import Refused
from test_docs import ROOT, anchors, code, table
from test_info import COUNTERS, GAUGES, MEASURED
from test_repl import promote

PLAIN = Way("plain", 3)
FOLDER = ROOT / "docs/operations"
PAGE = (FOLDER / "README.md").read_text()
# What redis_exporter tells of the server itself, as far as it is used here.
OF_THE_SERVER = {"redis_up", "redis_instance_info", "redis_memory_used_bytes", "redis_memory_max_bytes", "redis_evicted_keys_total"}
ROWS = ["Presence", "Endings", "Reaper", "Messages", "Replay and resync", "Errors", "Memory"]


def prefixed(names):
    return {f"lease_{name}" for name in names}


COUNTED = prefixed(COUNTERS) | {"redis_evicted_keys_total"}
SHOWN = prefixed(GAUGES) | OF_THE_SERVER - COUNTED | prefixed(f"{name}_{figure}" for name in MEASURED for figure in ("p50", "p99", "max"))


# -------------------------------------------------------------------- Prometheus


def test_the_exporters_script_tells_every_field(server):
    """Names and numbers in turn, as texts; the exporter calls it with a 0 as its one argument."""
    server.call("LEASE.OPEN r u")
    server.call("ACL SETUSER exporter on >secret +info +eval")
    told = server.connect(username="exporter", password="secret")("EVAL", (FOLDER / "lease.lua").read_text(), 0, 0)
    pairs = dict(zip(told[::2], told[1::2], strict=True))
    assert pairs == {name.encode(): b"%d" % number for name, number in server.info("lease").items()}
    assert pairs[b"lease_active_leases"] == b"1"


def test_the_scrape_gives_the_numbers_their_names():
    scrape = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert [(FOLDER / name).exists() for name in scrape["rule_files"]] == [True]
    rules = scrape["scrape_configs"][0]["metric_relabel_configs"]
    told = {"__name__": "redis_script_values", "key": "lease_rooms", "filename": "lease.lua", "instance": "i"}
    assert relabelled(told, rules) == {"__name__": "lease_rooms", "instance": "i"}
    for other in {"__name__": "redis_script_values", "key": "x", "filename": "y.lua"}, {"__name__": "redis_key_size", "key": "lease_rooms"}:
        assert relabelled(other, rules) == other


def relabelled(labels, rules):
    """As Prometheus does: sources joined by `;`, the whole must match, a label without a value goes."""
    for rule in rules:
        found = re.fullmatch(rule["regex"], ";".join(labels.get(name, "") for name in rule["source_labels"]))
        if found:
            value = rule["replacement"] if "replacement" in rule else found[1]
            labels = {name: text for name, text in {**labels, rule["target_label"]: value}.items() if text}
    return labels


def used(expression):
    """Metrics in an expression: (counters, read by rate or increase; all others, read as they are)."""
    names = re.findall(r"(\w+\()?\b((?:lease|redis)_\w+)", expression)
    grown = {name for call, name in names if call in ("rate(", "increase(")}
    return grown, {name for call, name in names if call not in ("rate(", "increase(")}


def expressions_hold(expressions):
    for expression in expressions:
        grown, shown = used(expression)
        assert grown or shown, expression
        assert grown <= COUNTED and shown <= SHOWN, f"{expression}: {grown - COUNTED} do not count, {shown - SHOWN} are not there, or count"
        assert expression.count("(") == expression.count(")")


def test_wrong_expressions_are_found():
    for wrong in "lease_opened", "rate(lease_rooms[5m])", "lease_nonsense", "rate(lease_openeds[5m])", "up", "rate(lease_opened[5m]":
        with pytest.raises(AssertionError):
            expressions_hold([wrong])


def test_the_dashboard():
    """Every gauge and counter is on it, by a name that is there, in the rows that operators look for."""
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    variables = {variable["name"]: variable["type"] for variable in dashboard["templating"]["list"]}
    assert variables == {"datasource": "datasource", "instance": "query"}
    panels = dashboard["panels"]
    assert [panel["title"] for panel in panels if panel["type"] == "row"] == ROWS
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        assert one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"] or one["y"] + one["h"] <= other["y"], (one, other)
    charts = [panel for panel in panels if panel["type"] != "row"]
    assert {chart["datasource"]["uid"] for chart in charts} == {"${datasource}"}
    expressions = [target["expr"] for chart in charts for target in chart["targets"]]
    expressions_hold(expressions)
    assert all('{instance=~"$instance"}' in expression for expression in expressions)
    shown = set().union(*(names for expression in expressions for names in used(expression)))
    assert prefixed(GAUGES | COUNTERS) <= shown
    assert {name for name in MEASURED if not any(each.startswith(f"lease_{name}_") for each in shown)} == set()


def test_the_alerts():
    """Each has a section of the page, which says what to do, and no section is without its alert."""
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    expressions_hold(rule["expr"] for rule in group["rules"])
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert "$labels.instance" in rule["annotations"]["summary"]
        path, anchor = rule["annotations"]["runbook"].split("#")
        assert (ROOT / path).samefile(FOLDER / "README.md")
        assert anchor == rule["alert"].lower() and anchor in anchors(PAGE)
    assert [rule["alert"] for rule in group["rules"]] == re.findall(r"^### (Lease\w+)$", PAGE, re.M)
    named = {name for name in re.findall(r"`(lease_\w+)`", PAGE) if name not in COUNTED | SHOWN}
    assert all(any(known.startswith(name + "_p") for known in SHOWN) for name in named), named


# -------------------------------------------------------------------- which room?

# What breaks a room r, and what the script says of it.
TROUBLES = {
    "events-ahead": ({"events 99-0"}, "XADD {r}:events 99-0 by hand"),
    "events-no-id-left": ({"events 18446744073709551615-0"}, "XADD {r}:events 18446744073709551615-0 by hand"),
    "events-typed": ({"events string"}, "SET {r}:events x"),
    "log-ahead": ({"log 99-0"}, "XADD {r}:log 99-0 by hand"),
    "log-typed": ({"log list"}, "DEL {r}:log", "RPUSH {r}:log x"),
    "both": ({"events 2-0", "log 2-0"}, "XADD {r}:events 2-0 by hand", "XADD {r}:log 2-0 by hand"),
    "orphan": ({"orphan"}, "DEL r", "LEASE.OPEN r ann"),
    "orphan-and-log": ({"orphan", "log 99-0"}, "DEL r", "LEASE.OPEN r ann", "XADD {r}:log 99-0 by hand"),
    "tagged{t}": ({"events hash"}, "DEL r:events", "HSET r:events x y"),
    "braces{}": ({"log 99-0"}, "XADD {r}:log 99-0 by hand"),
    "sound": (set(),),
    "sound-beneath": (set(), "XADD {r}:events 1-7 by hand", "XADD {r}:log 1-7 by hand"),
    "sound-without-streams": (set(), "DEL {r}:events {r}:log"),
    "sound-held": (set(), "LEASE.HOLD r audit"),
}


def troubled(node, count):
    """What the script says of each room, asked page by page; and how many pages there were."""
    script, cursor, told, pages = (FOLDER / "troubled.lua").read_text(), b"0", {}, 0
    while pages == 0 or cursor != b"0":
        cursor, *rooms = node.call("EVAL", script, 0, cursor, count)
        told |= {room.decode(): {wrong.decode() for wrong in all_wrong} for room, *all_wrong in rooms}
        pages += 1
    return told, pages


def refused_by(client, room):
    """Which streams keep writes out, and whether the room has the hold, as the room's commands tell."""
    tries = {"events": ["LEASE.OPEN", room, "a-new-user"], "log": ["LEASE.POST", room, "ann", "a-new-id", "x"]}
    told = {stream for stream, command in tries.items() for reply in client.pipeline(command) if "LOGSTATE" in str(reply)}
    return told | ({"orphan"} if b"orphan" in client("LEASE.HOLDS", room) else set())


@pytest.mark.server(redis={"save": "3600 1"})
@pytest.mark.no_restart("streams are broken on purpose")
def test_the_rooms_in_trouble_are_found(server):
    """The broken ones, no other, each with what is wrong, and writes are refused exactly there; on a replica too, and after a restart."""
    client, replica = Client(server, PLAIN), server.replica()
    for number in range(60):
        server.call("LEASE.OPEN", f"crowd{number}", "ann")
    for room, (_, *commands) in TROUBLES.items():
        server.aside.add((0, room.encode()))
        server.call("LEASE.OPEN", room, "ann", "SESSION", "tab1")
        server.call("LEASE.POST", room, "ann", "m1", "hello")
        for command in commands:
            server.call(*(room if word == "r" else word.replace("{r}", f"{{{room}}}").replace("r:", f"{room}:") for word in command.split()))
    told, pages = troubled(server, 10)
    assert told == {room: wrong for room, (wrong, *_) in TROUBLES.items() if wrong}
    assert pages > 5
    replica.in_step()
    assert troubled(replica, 1000)[0] == told
    for again in range(2):
        told = {room: {wrong.split()[0] for wrong in all_wrong} for room, all_wrong in troubled(server, 1000)[0].items()}
        assert told == {room: wrong for room in TROUBLES if (wrong := refused_by(client, room))}
        if not again:
            server.restart("save")
            client = Client(server, PLAIN)


@pytest.mark.skipif(transcripts.CLI is None, reason="there is no redis-cli")
def test_the_script_runs_as_the_runbooks_say(server):
    (line,) = set(re.findall(r"redis-cli --eval [^`\n]*", (ROOT / "docs/operations.md").read_text()))
    server.call("LEASE.OPEN class ann")
    server.call("XADD {class}:events 99-0 written by-hand")
    server.aside.add((0, b"class"))
    run = shlex.split(line.replace("redis-cli", f"{transcripts.CLI} -p {server.port}", 1))
    done = subprocess.run(run, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n") == ["0", "class", "events 99-0", ""], done


# -------------------------------------------------------------------- what operations.md says


def test_a_ttl_of_the_file_is_clamped(start):
    """CONFIG REWRITE writes what was within bounds that moved later: it must load again. Nowhere else is it taken."""
    server = start(redis={"lease.ttl-ms": 500})
    assert server.call("CONFIG GET lease.ttl-ms") == {b"lease.ttl-ms": b"500"}
    assert Client(server, PLAIN)("LEASE.OPEN r ann")["ttl_ms"] == 1000
    with pytest.raises(Refused):
        server.call("CONFIG SET lease.ttl-ms 400")
    with pytest.raises(AssertionError, match="not loaded: ttl-ms must lie within"):
        start(lease={"ttl-ms": 500})


@pytest.mark.parametrize(
    "row, wrong", ((0, {"lease": {"ttl": 20000}}), (1, {"redis": {"lease.ttl-ms": "20s"}}), (2, {"redis": {"lease.ttl": 20000}}))
)
def test_what_a_server_says_that_does_not_start(start, row, wrong):
    with pytest.raises(AssertionError, match="the server ended") as ended:
        start(**wrong)
    texts = [code(text)[0].rstrip("…") for text, _ in table((ROOT / "docs/operations.md").read_text(), "| | |")]
    assert [text in str(ended.value) for text in texts] == [each == row for each in range(3)]


@pytest.mark.parametrize("order", (("class", "{class}:log", "{class}:events"), ("{class}:log", "{class}:events", "class")), ids=" ".join)
def test_migrate_outside_a_cluster(start, order):
    """Here a room that went, there one that was restored beside its own streams: nothing is lost, and UNHOLD ends the hold."""
    here, there = Client(start(), PLAIN), Client(start(), PLAIN)
    for command in "OPEN class ann SESSION tab1", "POST class ann m1 hello", "POST class ann m2 hello":
        here(f"LEASE.{command}")
    before = here("LEASE.GET class tab1")
    assert here.raw("MIGRATE", "127.0.0.1", there.server.port, "", 0, 5000, "KEYS", *order) == b"OK"
    assert [event["type"] for event in here.events("class")] == ["closed"] and here.raw("EXISTS class {class}:log") == 0
    here.server.aside.add((0, b"class"))
    there.server.aside.add((0, b"class"))
    moved = there("LEASE.GET class tab1")
    assert {**moved, "gen": None} == {**before, "gen": None}
    assert there("LEASE.RENEW class tab1 1 1")[0] == b"renewed"
    assert there("LEASE.REPLAY", "class", "tab1", 1, "*", 0)["status"] == b"ok"
    assert there.sent("LEASE.POST class ann m2 hello")["status"] == b"duplicate"
    assert there("LEASE.POST class ann m3 hello")["seq"] == 3
    assert there("LEASE.HOLDS class") == [b"orphan"] and there("LEASE.UNHOLD class orphan") == 1


def test_who_counts_oom(server):
    """The server's own answers are in errorstats alone."""
    client = Client(server, PLAIN)
    client("LEASE.OPEN r ann SESSION a")
    client.raw("CONFIG SET maxmemory 1")
    own = ("OPEN r bob", "SEND r a 1 m1 x", "POST r ann m1 x", "GRANT r ann READ", "SETPOLICY r max-leases 3")
    for count, command in enumerate((*own, "RENEW r a 1 1 META x"), 1):
        assert client.refusal(f"LEASE.{command}") == "OOM"
        assert server.info("errorstats")["errorstat_OOM"] == f"count={count}"
        assert server.lease_info()["rejected_oom"] == (count > len(own))
    client.raw("CONFIG SET maxmemory 0")


def test_what_valkey_9_says_at_shutdown(server):
    is_valkey_9 = str(server.info("server").get("valkey_version", "")).startswith("9")
    server.stop()
    assert ("Failed to unload module lease" in server.log()) == is_valkey_9
    assert "`Failed to unload module lease`" in PAGE


# -------------------------------------------------------------------- LATENCY


def all_due_at_once(client, room, number):
    """Leases opened in one transaction that lasts longer than they do: the reaper finds them all overdue. Waits until it is done."""
    client.transaction(*(f"LEASE.OPEN {room} u{n} TTL 1" for n in range(number)))
    wait_until(lambda: client.server.lease_info()["reap_backlog"] == client.server.lease_info()["active_leases"] == 0, 20)


def samples(client):
    """Of LATENCY LATEST: the latest and the longest, in ms, by event."""
    return {name: (latest, longest) for name, _, latest, longest, *_ in client.raw("LATENCY LATEST")}


@pytest.mark.server(clock=None, lease={"ttl-min-ms": 1, "reap-slice-us": 30000, "tombstone-ms": 0, "events-maxlen": 100})
@pytest.mark.ways("plain-resp3")
def test_long_slices_are_samples(client):
    """From latency-monitor-threshold on, which is off at 0; a slice is as long as INFO tells."""
    all_due_at_once(client, "q", 6000)
    assert client.server.lease_info()["slice_us_max"] > 10000
    assert b"lease-reaper" not in samples(client)
    client.raw("CONFIG SET latency-monitor-threshold 10")
    all_due_at_once(client, "r", 6000)
    latest, longest = samples(client)[b"lease-reaper"]
    history = client.raw("LATENCY HISTORY lease-reaper")
    assert max(ms for _, ms in history) == longest and history[-1][1] == latest
    assert min(ms for _, ms in history) >= 10 and longest <= client.server.lease_info()["slice_us_max"] / 1000
    assert client.raw("LATENCY RESET lease-reaper") == 1
    client.raw("CONFIG SET latency-monitor-threshold 100000")
    all_due_at_once(client, "s", 10)
    assert b"lease-reaper" not in samples(client)


# -------------------------------------------------------------------- the log

LINE = re.compile(r'log::(warning|notice)\(\s*(?:&format!\(\s*)?"((?:[^"\\]|\\.)*)"', re.S)
# Heard in a test of its own, or no test can make the server say so.
UNHEARD = {
    "ttl-ms is outside ttl-min-ms and ttl-max-ms: leases get the nearer of these",
    "the server refused keyspace notifications: rooms that move will be lost sight of; restart it",
    "internal error at <place>: a fault of the module, please report this line",
}


def listed():
    return {code(line)[0]: level for line, level, _ in table(PAGE, "| line | level | what to do |")}


def test_every_log_line_is_explained():
    written = [line for path in sorted((ROOT / "src").rglob("*.rs")) for line in LINE.findall(path.read_text())]
    calls = sum(len(re.findall(r"\blog::(?:warning|notice)\(", path.read_text())) for path in (ROOT / "src").rglob("*.rs"))
    texts = {re.sub(r"\{(\w+)\}", r"<\1>", re.sub(r"\\\n\s*", "", text)): level for level, text in written}
    assert len(written) == calls
    assert texts == listed()


def heard(server):
    return re.findall(r"<lease> (.*)", server.log())


@pytest.mark.server(redis={"lease.ttl-ms": 500})
def test_a_ttl_of_the_file_outside_its_bounds(server):
    """It starts: CONFIG REWRITE may have written this, once the bounds had been moved."""
    assert "<lease> ttl-ms is outside ttl-min-ms and ttl-max-ms: leases get the nearer of these" in server.log()
    assert server.call("LEASE.OPEN r u1 SESSION a")[b"ttl_ms"] == 1000


def test_a_replica_announces_no_grace(server):
    """Its rooms begin another gen when it is promoted, not when it syncs."""
    server.call("LEASE.OPEN r u1 SESSION a")
    replica = server.replica()
    assert "rooms begin another gen" not in replica.log()
    promote(replica)
    assert "rooms begin another gen" in replica.log()


@pytest.mark.server(redis={"appendonly": "yes", "aof-use-rdb-preamble": "no"})
@pytest.mark.no_restart("its AOF is damaged on purpose")
def test_inv_10_log_lines_carry_no_ids(server, start):
    """Invariant 10: whatever the module has to say, no room, user, device, session, message or token is named."""
    ids = ("the-room", "the-user", "the-device", "the-session", "the-message", "the-payload", "the-meta", "the-token", "the-hold")
    client = Client(server, PLAIN)
    client("LEASE.OPEN the-room the-user DEVICE the-device SESSION the-session META the-meta TOKEN the-token")
    client("LEASE.OPEN the-room the-user SESSION the-session-too")
    client("LEASE.SEND the-room the-session 1 the-message the-payload TOKEN the-token")
    client("LEASE.HOLD the-room the-hold")
    dump = client.raw("DUMP the-room")
    half = crc64.sealed(dump[: len(dump) // 2] + dump[-10:-8])
    assert client.refusal("RESTORE", "the-copy", 0, half) == "ERR"
    client.raw("SET", stream("the-room"), "x")
    for end in "LEASE.LEAVE the-room the-session 1 TOKEN the-token", "LEASE.LEAVE the-room the-session-too 1":
        assert client(end) == b"left"
    assert server.lease_info()["events_lost"] == 2
    server.stop()
    with max((server.path / "appendonlydir").glob("*.incr.aof")).open("ab") as aof:
        aof.write(b"*3\r\n$11\r\nLEASE.APPLY\r\n$8\r\nthe-room\r\n$12\r\n\x02the-session\r\n")
    server.start()
    server.aside.add((0, b"the-room"))
    with pytest.raises(AssertionError, match="not loaded: unknown argument no-such-setting"):
        start(lease={"no-such-setting": "the-token"})
    lines = heard(server)
    patterns = {line: re.compile(re.sub("<[a-z]+>", ".+", re.escape(line))) for line in listed()}
    assert not [line for line in lines if not any(pattern.fullmatch(line) for pattern in patterns.values())]
    unheard = {text for text, pattern in patterns.items() if not any(map(pattern.fullmatch, lines))}
    assert unheard == UNHEARD | {"not loaded: <reason>"}
    assert not [id for id in ids if any(id in line for line in lines)]
    assert sum("events are lost" in line for line in lines) == 1, "told once, then counted"
