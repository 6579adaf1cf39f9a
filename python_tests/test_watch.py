"""`make watch`: a room in a terminal of 80 columns."""

import re
import sys

import pytest

from harness import Client, Way
from harness.events import stream
from terminal import CONTROL, Terminal
from test_docs import ROOT

PLAIN = Way("plain", 3)
INTERRUPT = "\x03"


def watching(server, room="r", login=""):
    return Terminal([sys.executable, ROOT / "scripts/watch.py", room, "--url", f"redis://{login}127.0.0.1:{server.port}"])


def on(server):
    return Client(server, PLAIN)


@pytest.mark.server(clock=None)
def test_who_is_there_and_what_happens(server):
    client = on(server)
    client("LEASE.OPEN r ann DEVICE phone SESSION tab1 TTL 20000")
    with watching(server) as terminal:
        terminal.shows("r: 1 leases, 1 users, n 1, gen ")
        terminal.shows("ann              phone        tab1             1      active       0      ")
        terminal.shows("opened        ann phone tab1")
        client("LEASE.OPEN r ben SESSION tab2")
        terminal.shows("r: 2 leases, 2 users, n 2, gen ")
        terminal.shows("ben              default      tab2             1      active ")
        terminal.shows("opened        ben default tab2")
        client("LEASE.RENEW r tab2 1 7 STATE disconnected")
        terminal.shows("tab2             1      disconnected 7 ")
        terminal.shows("state         ben default tab2  disconnected")
        client("LEASE.RENEW r tab1 1 9")
        terminal.shows("tab1             1      active       9 ")  # no event tells of a heartbeat
        client("LEASE.OPEN r ben SESSION tab3")
        terminal.shows("removed       ben default tab2  superseded")
        terminal.shows("opened        ben default tab3  instead of tab2")
        client("LEASE.KICK r USER ann")
        terminal.shows("removed       ann phone tab1  kicked")
        client.raw("DEL r")
        terminal.shows("closed          with 1 leases")


@pytest.mark.server(clock=None)
def test_it_ends_cleanly(server):
    """^C: the terminal as it was, no traceback, no error; so does SIGTERM."""
    for end in lambda terminal: terminal.type(INTERRUPT), lambda terminal: terminal.process.terminate():
        with watching(server) as terminal:
            terminal.shows("r: no such room yet")
            end(terminal)
            assert terminal.ends() == 0
            assert terminal.everything.endswith("\x1b[?25h\x1b[?1049l")
            assert "Traceback" not in terminal.everything


@pytest.mark.server(clock=None)
def test_it_fits_the_terminal(server):
    """80 columns, 24 lines, whatever ids are like: none is taken for a control sequence."""
    client = on(server)
    hostile = b"\x1b[2J\x07\r\n\xff" + "é".encode() * 30
    for number in range(30):
        client("LEASE.OPEN", "r", b"%d" % number + hostile, "DEVICE", hostile, "SESSION", b"%d" % number + hostile)
    with watching(server) as terminal:
        terminal.shows("and 21 more")
        terminal.process.terminate()  # ^C would be echoed
        assert terminal.ends() == 0
        first, *_ = terminal.everything.split("\x1b[?25h")
    screens = first.split("\x1b[H")[1:]
    assert screens
    for shown in screens:
        lines = CONTROL.sub("", shown).split("\r\n")
        assert len(lines) <= 24 and max(map(len, lines)) <= 80
        assert all(character.isprintable() for line in lines for character in line)
    assert "\\x1b[2J\\x07\\x0d\\x0a\\xff" in screens[-1]


@pytest.mark.server(clock=None, redis={"save": "3600 1"})
def test_it_survives_a_restart(server):
    """It waits for the server, and goes on where it was: nothing is shown twice, and the new gen is told."""
    client = on(server)
    client("LEASE.OPEN r ann SESSION tab1")
    with watching(server) as terminal:
        terminal.shows("opened        ann default tab1")
        server.stop("save")
        terminal.shows("r: no server since ")
        terminal.shows(f" connecting to 127.0.0.1:{server.port}")
        server.start()
        terminal.shows("r: 1 leases, 1 users, n ")
        on(server)("LEASE.OPEN r ben SESSION tab2")
        terminal.shows("-- a new gen")
        terminal.shows("opened        ben default tab2")
        screen = terminal.everything.split("\x1b[H")[-1]
        assert screen.count("opened        ann") == 1


@pytest.mark.server(clock=None)
def test_it_tells_what_it_missed(server):
    """A jump of n, and a room that is flushed and begun anew, with numbers that it has seen before."""
    client = on(server)
    server.aside.add((0, b"r"))
    client("LEASE.OPEN r ann SESSION tab1")
    client("LEASE.OPEN r ben SESSION tab2")
    with watching(server) as terminal:
        terminal.shows("opened        ben default tab2")
        client.transaction(
            ["RENAME", stream("r"), "aside"], ["SET", stream("r"), "x"], "LEASE.LEAVE r tab1 1", ["DEL", stream("r")], "LEASE.OPEN r cat SESSION tab3"
        )
        terminal.shows("-- events are missing: after 2 comes 4")
        terminal.shows("opened        cat default tab3")
        terminal.shows("r: 2 leases, 2 users, n 4")
        client.transaction("FLUSHALL", "LEASE.OPEN r dan SESSION tab4")
        terminal.shows("-- the room went with its events; another begins")
        terminal.shows("opened        dan default tab4")


@pytest.mark.parametrize("scope", ("tag", "node"))
def test_shared_streams(start, scope):
    """Other rooms' events are not shown, nor taken for missing ones."""
    server = start(clock=None, lease={"events-scope": scope})
    client = on(server)
    server.aside |= {(0, b"{t}r"), (0, b"{t}q")}  # whose events are not in streams of their own
    client("LEASE.OPEN {t}r ann SESSION tab1")
    client("LEASE.OPEN {t}q eve SESSION tab1")
    with watching(server, "{t}p") as terminal:
        terminal.shows("{t}p: no such room yet")
    with watching(server, "{t}r") as terminal:
        terminal.shows("opened        ann default tab1")
        client("LEASE.OPEN {t}q eve SESSION tab2")
        client("LEASE.OPEN {t}r ben SESSION tab2")
        terminal.shows("opened        ben default tab2")
        assert "eve" not in terminal.everything and "--" not in terminal.everything


@pytest.mark.server(clock=None)
def test_what_it_needs(server):
    """The rights that docs/operations/README.md names are enough."""
    rights = re.search(r"needs\n`(\+[^`]+)`", (ROOT / "docs/operations/README.md").read_text())[1]
    server.call("ACL", "SETUSER", "watcher", "on", ">secret", "%R~r", "%R~{r}:events", *rights.split())
    on(server)("LEASE.OPEN r ann SESSION tab1")
    with watching(server, login="watcher:secret@") as terminal:
        terminal.shows("opened        ann default tab1")
        on(server)("LEASE.LEAVE r tab1 1")
        terminal.shows("removed       ann default tab1  left")


@pytest.mark.server(clock=None)
def test_it_says_what_is_wrong(server):
    on(server).raw("SET r x")
    with watching(server) as terminal:
        assert terminal.ends() == 1
        terminal.shows("WRONGTYPE")
        assert "Traceback" not in terminal.everything


@pytest.mark.server(clock=None)
def test_a_wrong_password_ends_it(server):
    server.call("CONFIG SET requirepass right")
    for login, told in ("", "HELLO must be called"), (":wrong@", "invalid username-password pair"):
        with watching(server, login=login) as terminal:
            terminal.shows(told)
            terminal.shows("redis://user:password@host:port")
            assert terminal.ends() == 1
    server.call("CONFIG", "SET", "requirepass", "")
