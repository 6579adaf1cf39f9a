"""The lessons of examples/: each client library plays one on a server, and what it says it saw is what the server has.

The Python ones always; those that need another toolchain by `make test-clients`, which sets it up, or says what is missing.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
import redis

from harness import Client, Way
from harness.cluster import Cluster
from harness.events import stream

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
NODE, RUST, GO = EXAMPLES / "node", EXAMPLES / "rust", EXAMPLES / "go"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
ROOM = "class"
TTL_MS = 1000  # of the session that falls silent
EXACT_IN_DOUBLES = 2**53
RESP3 = "?protocol=resp3"  # in the URLs of Rust's crate


def python(program, *options):
    return lambda url, room: [sys.executable, EXAMPLES / "python" / program, "--url", url, "--room", room, *options]


def node(program):
    def command(url, room):
        needs_node()
        return ["node", NODE / program, url, room]

    return command


def needs_node():
    needs("node")
    if not (NODE / "node_modules").exists():
        pytest.skip("examples/node is not installed: npm ci")


def rust(query=""):
    def command(url, room):
        needs("cargo")
        folder = TARGET / "examples-rust"
        built(["cargo", "build", "--quiet", "--locked", "--manifest-path", RUST / "Cargo.toml", "--target-dir", folder])
        return [folder / "debug/lesson", f"{url}/{query}", room]

    return command


def go(url, room):
    """With redigo from where Debian's package puts it: that asks no module proxy."""
    needs("go")
    debian = pathlib.Path("/usr/share/gocode")
    if not (debian / "src/github.com/gomodule/redigo").exists():
        pytest.skip("there is no redigo: apt-get install golang-github-gomodule-redigo-dev")
    program = TARGET / "examples-go/lesson"
    program.parent.mkdir(parents=True, exist_ok=True)
    built(["go", "build", "-o", program, GO / "lesson.go"], GO111MODULE="off", GOPATH=str(debian))
    return [program, url, room]


def needs(program):
    if not shutil.which(program):
        pytest.skip(f"there is no {program}")


def built(command, **environment):
    subprocess.run(command, env=os.environ | environment, check=True)


HEAVY = pytest.mark.clients
LESSONS = {
    "redis-py-resp2": python("lesson.py", "--protocol", "2"),
    "redis-py-resp3": python("lesson.py", "--protocol", "3"),
    "node-redis": node("lesson_node_redis.mjs"),
    "ioredis": node("lesson_ioredis.mjs"),
    "rust-resp2": rust(),
    "rust-resp3": rust(RESP3),
    "go": go,
}
MARKED = [pytest.param(lesson, id=name, marks=[] if name.startswith("redis-py") else HEAVY) for name, lesson in LESSONS.items()]


# -------------------------------------------------------------------- lessons


def played(command, advance):
    """What a lesson says, step by step: (step, what it told). Time passes when all it waits for is the end of a lease."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    overdue = threading.Timer(60, process.kill)
    overdue.start()
    said = []
    for line in process.stdout:
        step, told = line.split(" ", 1)
        said.append((step, json.loads(told, parse_int=str)))
        if step == "sent":
            advance(TTL_MS)
    overdue.cancel()
    assert process.wait() == 0, f"{said}\n{process.stderr.read()}"
    return said


def told(said, step):
    return [what for name, what in said if name == step]


def right(client, said, room=ROOM):
    """Holds what was said to what the server has: numbers as text, for so no client's rounding goes by unseen."""
    events, messages = client.events(room), client.messages(room)
    opened = [(event["user"].decode(), str(event["epoch"])) for event in events if event["type"] == "opened"]
    assert [(one["user"], one["epoch"]) for one in told(said, "opened")] == opened
    (expired,) = [event for event in events if event.get("reason") == "expired"]
    assert told(said, "removed") == [{"user": "ben", "epoch": str(expired["epoch"]), "reason": "expired"}] and expired["user"] == b"ben"
    assert told(said, "refused") == ["STALE expired"]
    assert told(said, "replayed") == [[[str(seq), message["payload"].hex()] for seq, message in messages]]
    assert client("XPENDING", stream(room), "lobby")[0] == 0, "every event that was taken is confirmed"
    ann = events[-1] if events[-1]["user"] == b"ann" else events[-2]
    assert (ann["type"], ann["reason"]) == ("removed", "left") and ann["seq"] > EXACT_IN_DOUBLES
    return ann


def whole(said, ann, messages):
    """The lesson that all but asyncio play, from the first step to the last."""
    assert [step for step, _ in said] == ["opened", "opened", "renewed", "sent", "removed", "refused", "opened", "roster", "replayed", "left"]
    assert told(said, "renewed") == [["renewed", "renewed", "STALE unknown"]]
    assert told(said, "sent") == [[["accepted", "1"], ["accepted", "2"], ["duplicate", "1"]]]
    assert told(said, "roster") == [
        [{"user": "ann", "device": ann["device"].hex(), "seq": str(ann["seq"])}, {"user": "ben", "device": b"default".hex(), "seq": "0"}]
    ]
    assert ann["device"].endswith(b"\xff") and messages[1][1]["payload"] == b"\x00\xff"
    assert told(said, "left") == [["left", "left"]]


@pytest.mark.parametrize("lesson", MARKED)
@pytest.mark.ways("plain-resp3")
def test_lesson(client, lesson):
    command = lesson(f"redis://127.0.0.1:{client.server.port}", ROOM)
    said = played(command, client.advance)
    whole(said, right(client, said), client.messages(ROOM))
    again = played(command, client.advance)
    assert [told(again, step) for step in ("removed", "refused")] == [[{"user": "ben", "epoch": "3", "reason": "expired"}], ["STALE expired"]]


@pytest.mark.parametrize("protocol", ("2", "3"))
@pytest.mark.ways("plain-resp3")
def test_lesson_of_tasks(client, protocol):
    lesson = python("lesson_asyncio.py", "--protocol", protocol)
    said = played(lesson(f"redis://127.0.0.1:{client.server.port}", ROOM), client.advance)
    right(client, said)
    assert [step for step, _ in said] == ["opened", "opened", "renewed", "sent", "removed", "refused", "replayed", "left"]


@pytest.mark.parametrize("protocol", ("2", "3"))
@pytest.mark.no_restart("a restarted node waits for its cluster")
def test_lesson_in_a_cluster(start, protocol):
    """By way of a node that has not the room's slot."""
    cluster = Cluster(start)
    owner, other = cluster.pair(ROOM)
    lesson = python("lesson.py", "--cluster", "--protocol", protocol)
    said = played(lesson(f"redis://127.0.0.1:{other.port}", ROOM), cluster.advance)
    client = Client(owner, Way("plain", 3))
    whole(said, right(client, said), client.messages(ROOM))


@pytest.mark.no_restart("a restarted node waits for its cluster")
def test_commands_without_a_room_in_a_cluster(start):
    """docs/cluster.md: redis-py wants to be told the node."""
    owner, _ = Cluster(start).pair(ROOM)
    client = redis.RedisCluster(host="127.0.0.1", port=owner.port)
    with pytest.raises(redis.RedisClusterException, match="Missing key"):
        client.execute_command("LEASE.CLOCK", "GET")
    assert client.execute_command("LEASE.CLOCK", "GET", target_nodes=client.get_node(port=owner.port, host="127.0.0.1")) == owner.now()


@pytest.mark.clients
@pytest.mark.no_restart("a restarted node waits for its cluster")
def test_clusters_by_node(start):
    """node-redis goes to the room's node at once when told the key, ioredis where it is sent."""
    cluster = Cluster(start)
    owner, other = cluster.pair(ROOM)
    said = played(node("cluster.mjs")(f"redis://127.0.0.1:{other.port}", ROOM), cluster.advance)
    assert said == [("opened", {"user": "ann", "epoch": epoch}) for epoch in ("1", "2")]
    sent_on = sum(calls(node, "rejected_calls") for node in cluster.nodes)
    assert calls(owner, "calls") == 2 and sent_on <= 1


def calls(node, kind):
    told = node.info("commandstats").get("cmdstat_lease.open", "")
    return int(re.search(rf"\b{kind}=(\d+)", told)[1]) if told else 0


def test_a_lesson_that_went_wrong_is_found_out():
    ann = {"device": b"\xff", "seq": 1796075438679474775}
    said = [
        ("opened", {}),
        ("opened", {}),
        ("renewed", ["renewed", "renewed", "STALE unknown"]),
        ("sent", [["accepted", "1"], ["accepted", "2"], ["duplicate", "1"]]),
        ("removed", {}),
        ("refused", ""),
        ("opened", {}),
        ("roster", [{"user": "ann", "device": "ff", "seq": "1796075438679474775"}, {"user": "ben", "device": b"default".hex(), "seq": "0"}]),
        ("replayed", []),
        ("left", ["left", "left"]),
    ]
    messages = [(1, {}), (2, {"payload": b"\x00\xff"})]
    whole(said, ann, messages)
    rounded = [dict(one) for one in told(said, "roster")[0]]
    rounded[0]["seq"] = str(int(float(rounded[0]["seq"])))
    for place, wrong in ((2, ["renewed"] * 3), (3, [["accepted", "1"], ["accepted", "2"], ["accepted", "3"]]), (7, rounded), (9, ["left", "gone"])):
        with pytest.raises(AssertionError):
            whole([*said[:place], (said[place][0], wrong), *said[place + 1 :]], ann, messages)


# -------------------------------------------------------------------- seqs


@pytest.fixture
def lesson(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES / "python")
    import lesson

    return lesson


def test_seqs_rise_though_the_clock_does_not(lesson, monkeypatch):
    clock = iter([5_000, 5_000, 1_000, 9_000])
    monkeypatch.setattr(lesson, "last", 0)
    monkeypatch.setattr(lesson.time, "time_ns", lambda: next(clock))
    assert [lesson.seq() for _ in range(4)] == [5_000, 5_001, 5_002, 9_000]


def test_seqs_of_javascript_rise():
    """Many within one tick of its clock, and when that is set back."""
    needs("node")
    code = (
        "import { seq } from './steps.mjs'; const seqs = []; for (let n = 0; n < 200000; n++) seqs.push(BigInt(seq()));"
        "performance.now = () => 0; seqs.push(BigInt(seq()), BigInt(seq()));"
        "console.log(seqs.every((seq, n) => n === 0 || seq > seqs[n - 1]), String(seqs[0]));"
    )
    done = evaluated(code)
    rises, first = done.stdout.split()
    assert rises == "true", done.stderr
    assert abs(int(first) - time.time_ns()) < 60_000_000_000, "unix time in ns"


# -------------------------------------------------------------------- what a client does not know by itself


@pytest.mark.ways("plain-resp3")
@pytest.mark.no_restart("nothing here that other tests do not hold")
def test_insist(client, lesson):
    """A room that meets more messages than it reads at once says TRYAGAIN, which redis-py takes for any other error."""
    client.pipeline(*(f"LEASE.POST {ROOM} bot m{number} x" for number in range(600)))
    client.raw("DEL", ROOM)
    plain = redis.Redis(port=client.server.port, retry=None)
    post = "LEASE.POST", ROOM, "bot", "m600", "x"
    with pytest.raises(redis.ResponseError, match="^TRYAGAIN: ") as told:
        plain.execute_command(*post)
    assert type(told.value) is redis.ResponseError and lesson.head(told.value) == "TRYAGAIN"
    assert lesson.as_map(lesson.insist(plain.execute_command, *post))[b"seq"] == 601
    client.server.aside.add((0, ROOM.encode()))


def test_heads(start, lesson):
    """What to decide by, whatever redis-py makes of an error: it cuts off the codes it knows."""
    primary = start()
    replica = primary.replica()
    primary.call("ACL SETUSER nobody on >secret ~* +ping")
    plain, other = (redis.Redis(port=server.port, retry=None) for server in (primary, replica))
    nobody = redis.Redis(port=primary.port, username="nobody", password="secret", retry=None)
    opening = "LEASE.OPEN", ROOM, "ann"
    with plain.pipeline(transaction=False) as pipe:
        pipe.execute_command(*opening, "TTL", 5)
        pipe.execute_command("LEASE.RENEW", ROOM, "a", 1, 1)
        assert [lesson.head(error) for error in pipe.execute(raise_on_error=False)] == ["ERR", "STALE unknown"]
        pipe.execute_command("LEASE.SEND", ROOM, "a", 1, "m", "private", "TOKEN", "s3cret")
        with pytest.raises(redis.ResponseError) as told:
            pipe.execute()
        assert "private TOKEN s3cret" in str(told.value), "why the error itself must not be logged"
    plain.config_set("maxmemory", 1)
    for client, head in (plain, "OOM"), (other, "READONLY"), (nobody, "NOPERM"):
        with pytest.raises(redis.ResponseError) as told:
            client.execute_command(*opening)
        assert lesson.head(told.value) == head and head not in str(told.value)
    plain.config_set("maxmemory", 0)


@pytest.mark.ways("plain-resp3")
@pytest.mark.no_restart("nothing here that other tests do not hold")
def test_decoding(client):
    """One payload that is no UTF-8 and redis-py has nothing of the whole reply; or it is told to let such bytes pass."""
    port, replay = client.server.port, ("LEASE.REPLAY", ROOM, "a", 1, "*", 0)
    client(f"LEASE.OPEN {ROOM} ann SESSION a")
    decoding = redis.Redis(port=port, decode_responses=True, protocol=3)
    decoding.xgroup_create(stream(ROOM, "log"), "g", id="0", mkstream=True)
    for id, payload in ("m1", b"x"), ("m2", b"\xff"):
        client("LEASE.SEND", ROOM, "a", 1, id, payload)
    for take in lambda: decoding.execute_command(*replay), lambda: decoding.xreadgroup("g", "c", {stream(ROOM, "log"): ">"}):
        with pytest.raises(UnicodeDecodeError):
            take()
    assert client("XPENDING", stream(ROOM, "log"), "g")[0] == 2, "it was carried out"
    with pytest.raises(UnicodeDecodeError):
        decoding.execute_command("LEASE.OPEN", ROOM, "ben", "SESSION", b"s\xfe")
    assert client(f"LEASE.COUNT {ROOM}") == [2, 2]
    lenient = redis.Redis(port=port, decode_responses=True, encoding_errors="surrogateescape", protocol=3)
    payloads = [message["payload"] for _, message in lenient.execute_command(*replay)["entries"]]
    lenient.execute_command("LEASE.SEND", ROOM, "a", 1, "m3", payloads[1].encode(errors="surrogateescape"))
    assert client.messages(ROOM)[-1][1]["payload"] == b"\xff"


@pytest.mark.ways("plain-resp3")
@pytest.mark.no_restart("nothing here that other tests do not hold")
def test_maps_of_scripts(client):
    """Flat arrays, or what RESP3 has, without the fields that are nil."""
    client(f"LEASE.OPEN {ROOM} ann SESSION a")
    get = "redis.call('LEASE.GET', KEYS[1], 'a')"
    assert client.raw("EVAL", f"return {get}[1]", 1, ROOM) == b"session"
    (state, reason) = client.raw("EVAL", f"redis.setresp(3); local map = {get}.map; return {{map.state, tostring(map.reason)}}", 1, ROOM)
    assert (state, reason) == (b"active", b"nil")


@pytest.mark.ways("plain-resp3")
@pytest.mark.no_restart("nothing here that other tests do not hold")
def test_what_was_resent_is_answered_as_the_second(client):
    """redis-py resends by itself when no reply comes in time."""
    client(f"LEASE.OPEN {ROOM} ann SESSION a")
    client(f"LEASE.OPEN {ROOM} ben SESSION b")
    client(f"LEASE.HOLD {ROOM} kept")
    impatient = redis.Redis(port=client.server.port, socket_timeout=0.3)
    impatient.ping()
    commands = {
        "LEASE.RENEW class a 1 1": [b"duplicate"],
        "LEASE.LEAVE class a 1": b"gone",
        "LEASE.KICK class USER ben": 0,
        "LEASE.HOLD class open": 0,
        "LEASE.UNHOLD class kept": 0,
        "LEASE.GRANT class kim READ VERSION 3": b"stale",
        "LEASE.REVOKE class kim VERSION 4": [b"stale", 0],
    }
    process = client.server.process
    for command, second in commands.items():
        process.send_signal(signal.SIGSTOP)
        wake = threading.Timer(0.5, process.send_signal, [signal.SIGCONT])
        wake.start()
        reply = impatient.execute_command(*command.split())
        wake.join()
        assert (reply[:1] if "RENEW" in command else reply) == second, command
    (grant,) = client(f"LEASE.GRANTS {ROOM} USER kim")["grants"]
    assert (grant["version"], grant["revoked"]) == (4, True)


def evaluated(code, *arguments):
    """JavaScript, beside the libraries."""
    command = ["node", "--input-type=module", "--eval", code, *map(str, arguments)]
    return subprocess.run(command, cwd=NODE, capture_output=True, text=True, timeout=60)


@pytest.mark.clients
@pytest.mark.ways("plain-resp3")
def test_what_ioredis_sends_and_tells(client):
    """Arguments that are no text, and what of a command stands in its error."""
    client(f"LEASE.OPEN {ROOM} ann SESSION a TOKEN s3cret")
    needs_node()
    code = (
        "import Redis from 'ioredis'; const redis = new Redis(`redis://127.0.0.1:${process.argv[1]}`);"
        "const send = (id, payload, token) => redis.call('LEASE.SEND', 'class', 'a', 1, id, payload, 'TOKEN', token);"
        "await send('m1', undefined, 's3cret'); await send('m2', null, 's3cret'); await send('m3', {}, 's3cret');"
        "await send('m4', 'private', 'wr0ng').catch((error) => console.log(JSON.stringify(error.command.args)));"
        "redis.disconnect();"
    )
    done = evaluated(code, client.server.port)
    assert json.loads(done.stdout)[-3:] == ["private", "TOKEN", "wr0ng"], done.stderr
    assert [message["payload"] for _, message in client.messages(ROOM)] == [b"", b"", b"[object Object]"]


@pytest.mark.clients
@pytest.mark.ways("plain-resp3")
def test_what_javascript_rounds(client):
    """Why the lessons ask for text: left to themselves both libraries make a number of a seq, which is not quite that seq."""
    seq = EXACT_IN_DOUBLES + 1
    client(f"LEASE.OPEN {ROOM} ann SESSION a")
    client("LEASE.RENEW", ROOM, "a", 1, seq)
    needs_node()
    code = (
        "import Redis from 'ioredis'; import { createClient } from 'redis'; const url = `redis://127.0.0.1:${process.argv[1]}`;"
        "const old = new Redis(url), own = await createClient({ url }).connect(), get = ['LEASE.GET', 'class', 'a'];"
        "console.log((await old.call(...get))[9], (await own.sendCommand(get))[9] ?? (await own.sendCommand(get)).seq);"
        "old.disconnect(); own.destroy();"
    )
    done = evaluated(code, client.server.port)
    assert done.stdout.split() == [str(EXACT_IN_DOUBLES)] * 2, done.stderr
    assert client(f"LEASE.GET {ROOM} a")["seq"] == seq


# -------------------------------------------------------------------- the page, and what is shipped


def blocks(page):
    return re.findall(r"^```(?:python|js|rust|go)\n(.*?)^```$", page, re.S | re.M)


def dedented(text):
    """The text at each of its indents."""
    lines = text.splitlines()
    return ["\n".join(line[depth:] if line[:depth].strip() == "" else line for line in lines) for depth in (0, 2, 4, 8)]


def test_the_page_shows_what_runs():
    files = [file for kind in ("py", "mjs", "rs", "go") for file in EXAMPLES.rglob(f"*.{kind}") if not {"node_modules", "target"} & set(file.parts)]
    programs = [text for file in files for text in dedented(file.read_text().replace("\t", "    "))]
    found = blocks((ROOT / "docs/clients.md").read_text())
    assert len(found) > 8
    for block in found:
        assert any(block in program for program in programs), block


def test_lockfiles_name_no_host():
    lock = json.loads((NODE / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
    assert all("integrity" in package for name, package in lock["packages"].items() if name)
