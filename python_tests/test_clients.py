"""The lessons of examples/: each client library plays one on a server, and what it says it saw is what the server has.

The Python ones always; those that need another toolchain by `make test-clients`, which sets it up, or says what is missing.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

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


# -------------------------------------------------------------------- what a client does not know by itself


@pytest.mark.ways("plain-resp3")
@pytest.mark.no_restart("nothing here that other tests do not hold")
def test_insist(client):
    """A room that meets more messages than it reads at once says TRYAGAIN, which redis-py takes for any other error."""
    sys.path.insert(0, str(EXAMPLES / "python"))
    import lesson

    client.pipeline(*(f"LEASE.POST {ROOM} bot m{number} x" for number in range(600)))
    client.raw("DEL", ROOM)
    plain = redis.Redis(port=client.server.port, retry=None)
    post = "LEASE.POST", ROOM, "bot", "m600", "x"
    with pytest.raises(redis.ResponseError, match="^TRYAGAIN: ") as told:
        plain.execute_command(*post)
    assert type(told.value) is redis.ResponseError and lesson.head(told.value) == "TRYAGAIN"
    assert lesson.as_map(lesson.insist(plain.execute_command, *post))[b"seq"] == 601
    client.server.aside.add((0, ROOM.encode()))


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
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", code, str(client.server.port)], cwd=NODE, capture_output=True, text=True, timeout=60
    )
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
