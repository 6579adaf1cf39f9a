"""redis-cli as an inspector: hints while typing, JSON of a room, and the server's own commands on a room's key."""

import json
import subprocess

import pytest

import transcripts
from terminal import Terminal

NEEDS_CLI = pytest.mark.skipif(transcripts.CLI is None, reason="there is no redis-cli")
ONE_WAY = pytest.mark.ways("plain-resp3")


def cli(server, *words):
    done = subprocess.run([transcripts.CLI, "-p", str(server.port), *words], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


# -------------------------------------------------------------------- hints

ERASE_LINE = "\x15"


@NEEDS_CLI
def test_hints_while_typing(server):
    """Of every command: what LEASE.HELP tells, from COMMAND DOCS."""
    lines = [line.decode() for line in server.call("LEASE.HELP")][::2]
    with Terminal([transcripts.CLI, "-p", str(server.port)], columns=200) as terminal:
        terminal.shows(f":{server.port}> ")
        for line in lines:
            name, _, arguments = line.partition(" ")
            terminal.type(f"{name.lower()} ")
            terminal.shows(f"{name.lower()} {arguments}")
            terminal.type(ERASE_LINE)


@NEEDS_CLI
def test_help_of_a_command(server):
    """`help lease.open` at the prompt: syntax, summary, since when."""
    with Terminal([transcripts.CLI, "-p", str(server.port)], columns=200) as terminal:
        terminal.shows(f":{server.port}> ")
        terminal.type("help lease.leave\r")
        for line in "LEASE.LEAVE room session epoch [LINGER ms] [TOKEN token]", "summary: Ends a session's lease", "since: 0.1.0":
            terminal.shows(line)


def test_every_argument_has_its_kind(server):
    """What hints are made of: no command with a room is without arguments, no argument without name and type, no group empty."""

    def check(arguments):
        for argument in arguments:
            assert argument[b"name"] and argument[b"type"]
            assert (argument[b"type"] in (b"oneof", b"block")) == (b"arguments" in argument)
            check(argument.get(b"arguments", []))

    docs = server.call("COMMAND", "DOCS", *server.call("COMMAND LIST FILTERBY MODULE lease"))
    for name, told in docs.items():
        check(told.get(b"arguments", []))
        assert told.get(b"arguments") or name == b"lease.help"


# -------------------------------------------------------------------- JSON


@NEEDS_CLI
def test_json_of_a_room(server):
    """INSPECT: with --raw one JSON document, for jq; with --json the same as a JSON string. ROSTER with --json: a map."""
    server.call("LEASE.OPEN", "r", 'a "b" é', "SESSION", "tab1", "META", "x\ny")
    raw = cli(server, "--raw", "LEASE.INSPECT", "r")
    document = json.loads(raw)
    assert json.loads(json.loads(cli(server, "--json", "LEASE.INSPECT", "r"))) == document
    (lease,) = document["leases"]
    assert (lease["session"], lease["user"], lease["meta"]) == ("tab1", 'a "b" é', "x\ny")
    assert "\n" not in raw and "\\u" not in raw
    assert json.loads(cli(server, "--raw", "LEASE.INSPECT", "r", "SESSION", "tab1"))["lease"] == lease
    server.call("LEASE.OPEN r other SESSION tab2")
    server.call("LEASE.LEAVE r tab2 1")
    for options, sessions in ((), ["tab1"]), (("USER", "other"), []), (("USER", "other", "ENDED"), ["tab2"]), (("ENDED",), ["tab1", "tab2"]):
        listed = json.loads(cli(server, "--raw", "LEASE.INSPECT", "r", *options))["leases"]
        assert sorted(lease["session"] for lease in listed) == sessions
    roster = json.loads(cli(server, "--json", "-3", "LEASE.ROSTER", "r"))
    assert roster["leases"][0] | {"session": "tab1", "user": 'a "b" é', "state": "active"} == roster["leases"][0]
    assert cli(server, "--json", "LEASE.INSPECT", "nowhere") == "null"


# -------------------------------------------------------------------- the server's own commands


@pytest.mark.server(redis={"maxmemory-policy": "volatile-lru"})
@ONE_WAY
def test_the_servers_commands_know_a_room(client):
    client.raw("SET other x")
    client("LEASE.OPEN r u SESSION a")
    cursor, found = b"0", []
    while cursor != b"0" or not found:
        cursor, page = client.raw("SCAN", cursor, "TYPE", "leaseroom")
        found += page
    assert found == [b"r"]
    assert client.raw("TYPE r") == b"leaseroom"
    assert client.raw("OBJECT ENCODING r") == b"raw"
    assert client.raw("OBJECT REFCOUNT r") == 1
    assert 0 <= client.raw("OBJECT IDLETIME r") < 60
    assert b"serializedlength:" in client.raw("DEBUG OBJECT r")
    small = client.raw("MEMORY USAGE r SAMPLES 0")
    client.pipeline(*(f"LEASE.OPEN r u{number} META {'x' * 1000}" for number in range(100)))
    assert client.raw("MEMORY USAGE r SAMPLES 0") - small > 100 * 1000


@pytest.mark.server(redis={"maxmemory-policy": "volatile-lfu", "lfu-log-factor": "0"})
@ONE_WAY
def test_how_often_a_room_is_used(client):
    """OBJECT FREQ: commands count, reads too; INFO and the module's own looks do not."""
    client("LEASE.OPEN r u SESSION a")
    before = client.raw("OBJECT FREQ r")
    client("LEASE.RENEW r a 1 1")
    client("LEASE.COUNT r")
    assert client.raw("OBJECT FREQ r") == before + 2
    for _ in range(5):
        client.server.lease_info()
    assert client.raw("OBJECT FREQ r") == before + 2


@ONE_WAY
def test_digests_tell_rooms_apart(client):
    """DEBUG DIGEST-VALUE: the same for what is the same, deadlines and heartbeats left out; another for anything else."""

    def digest():
        return client.raw("DEBUG DIGEST-VALUE r")[0]

    client("LEASE.OPEN r u SESSION a")
    before, whole = digest(), client.raw("DEBUG DIGEST")
    client.advance(1000)
    assert (digest(), client.raw("DEBUG DIGEST")) == (before, whole)
    seen = {before}
    for change in "LEASE.RENEW r a 1 1 META x", "LEASE.SETPOLICY r ttl-ms 5000", "LEASE.HOLD r h", "LEASE.GRANT r u READ", "LEASE.LEAVE r a 1":
        client(change)
        assert digest() not in seen, change
        seen.add(digest())
