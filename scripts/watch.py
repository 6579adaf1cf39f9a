#!/usr/bin/env python3
"""A room in the terminal: who is there, and what happens, until ^C.

    watch.py ROOM [--url redis://localhost:6379]

Reads only. It follows the room as docs/events.md says: the roster first, then events after the roster's `event_n`. The roster is read
again with every screen, once a second at least, since heartbeats are no events; so a jump of `n` or a new `gen` needs only be told.
"""

import argparse
import os
import re
import shutil
import signal
import sys
import time
from collections import deque

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

BLOCK_MS = 1000
BETWEEN_SCREENS_S = 0.1  # however fast events come
AWAY_S = 0.5  # until a server that is away is asked again
PAGE = 1000

# A screen of its own, no cursor; and back.
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, ERASE_BELOW, BOLD, DIM, PLAIN = "\x1b[H", "\x1b[J", "\x1b[1m", "\x1b[2m", "\x1b[0m"

COLUMNS = (("USER", 16), ("DEVICE", 12), ("SESSION", 16), ("EPOCH", 6), ("STATE", 12), ("SEQ", 6), ("LEFT", 6))


class Room:
    """What is known of the room, and where its events have been read to."""

    def __init__(self, client, name):
        self.redis, self.name = client, name
        self.roster, self.counts, self.news = {}, (0, 0), deque(maxlen=PAGE)
        self.stream = None  # until the room has been looked at

    def begin(self):
        """The roster, the events up to it, and from where to follow."""
        stream, shared = stream_of(self.name, self.scope())
        self.look(PAGE)
        self.n, self.gen = self.roster["event_n"], self.roster["gen"]
        self.position = self.roster["event_id"] if shared else b"%d-0" % self.n
        past = self.redis.xrevrange(stream, self.position, count=PAGE)
        self.news.extend(line(event) for _, event in reversed(past) if event.get(b"room") == self.name)
        self.stream = stream

    def scope(self):
        """Where events go; who may not ask is taken to have the default."""
        try:
            return self.redis.config_get("lease.events-scope")["lease.events-scope"]
        except redis.exceptions.NoPermissionError:
            return "room"

    def look(self, count):
        """The roster's first page, and how many there are in all."""
        page = self.redis.execute_command("LEASE.ROSTER", self.name, "COUNT", count)
        self.roster = {field.decode(): value for field, value in page.items()}
        self.counts = self.redis.execute_command("LEASE.COUNT", self.name)

    def follow(self, rows):
        """Waits for events, or a while, and looks again."""
        if self.stream is None:
            return self.begin()
        answer = self.redis.xread({self.stream: self.position}, count=PAGE, block=BLOCK_MS)
        for self.position, event in (entry for pages in answer.values() for page in pages for entry in page):
            if event.get(b"room") == self.name:  # a shared stream has others' too
                self.take(event)
        self.look(rows)
        if self.roster["gen"] and self.roster["event_n"] < self.n:
            self.news.append(note("the room went with its events; another begins"))
            self.begin()

    def take(self, event):
        n, gen = int(event[b"n"]), event[b"gen"]
        if gen != self.gen and self.gen:
            self.news.append(note("a new gen: the room was loaded, promoted, moved or made anew"))
        elif n != self.n + 1:
            self.news.append(note(f"events are missing: after {self.n} comes {n}"))
        self.n, self.gen = n, gen
        self.news.append(line(event))


def stream_of(room, scope):
    """The room's event stream, and whether other rooms' events are in it too."""
    tag = re.match(rb"[^{]*\{([^}]+)\}", room, re.S)
    if scope == "node":
        return b"lease:events", True
    if scope == "tag" and tag:
        return b"{" + tag[1] + b"}:lease:events", True
    return (room if tag else b"{" + room + b"}") + b":events", False


def line(event):
    """One event: when, what, who, and why or how."""
    at = clock(int(event[b"at"])) if b"at" in event else "        "
    who = [text(event[field]) for field in (b"user", b"device", b"session") if field in event]
    how = [text(event[field]) for field in (b"reason", b"state", b"level") if field in event]
    told = ((b"lag_ms", "{} ms late"), (b"replaced", "instead of {}"), (b"active", "with {} leases"))
    how += [form.format(text(event[field])) for field, form in told if field in event]
    return f"{at}  {text(event[b'type']):<13} {' '.join(who)}  {', '.join(how)}"


def note(words):
    return f"{clock(time.time() * 1000)}  -- {words}"


def clock(unix_ms):
    return time.strftime("%H:%M:%S", time.localtime(unix_ms / 1000))


def text(value):
    """Bytes that anybody may have chosen, safe in a terminal."""
    shown = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in shown)


def cells(lease):
    state = lease[b"signal"] if lease[b"state"] == b"active" and lease[b"signal"] else lease[b"state"]
    seq = "-" if lease[b"seq"] is None else lease[b"seq"]  # the policy may withhold it
    left_s = lease[b"left_ms"] / 1000
    left = f"{left_s:.1f}s" if left_s < 100 else f"{left_s:.0f}s"
    return row(map(text, (lease[b"user"], lease[b"device"], lease[b"session"], lease[b"epoch"], state, seq, left)))


def row(values):
    return " ".join(fit(value, width).ljust(width) for value, (_, width) in zip(values, COLUMNS))


def fit(words, width):
    return words if len(words) <= width else words[: width - 1] + "…"


def head(room, trouble):
    if trouble:
        return trouble
    if not room.roster["gen"]:
        return "no such room yet"
    live, users = room.counts
    return f"{live} leases, {users} users, n {room.roster['event_n']}, gen {text(room.roster['gen'])}"


def screen(room, trouble, columns, lines):
    """Line by line: the head, as much of the roster as half the screen takes, the newest events."""
    leases = sorted(room.roster.get("leases", ()), key=lambda lease: (lease[b"user"], lease[b"device"]))[: rows(lines)]
    more = room.counts[0] - len(leases)
    top = [BOLD + fit(f"{text(room.name)}: {head(room, trouble)}", columns) + PLAIN, fit(row(name for name, _ in COLUMNS), columns)]
    top += [fit(cells(lease), columns) for lease in leases]
    top += [f"and {more} more" if more > 0 else "", ""]
    return top + [DIM + fit(event, columns) + PLAIN for event in list(room.news)[len(top) - lines :]]


def rows(lines):
    return max(lines // 2 - 3, 1)


def watch(room):
    since, trouble = None, None
    while True:
        columns, lines = shutil.get_terminal_size()
        try:
            room.follow(rows(lines))
            since, trouble = None, None
        except redis.AuthenticationError:  # asking again would not help, though it is a kind of ConnectionError
            raise
        except (redis.ConnectionError, redis.TimeoutError) as away:
            since = since or clock(time.time() * 1000)
            trouble = f"no server since {since}: {away}"
        # Erased before it is written: a line as wide as the terminal leaves the cursor on its last column.
        sys.stdout.write(HOME + "\n".join(ERASE_BELOW + one for one in screen(room, trouble, columns, lines)))
        sys.stdout.flush()
        time.sleep(AWAY_S if trouble else BETWEEN_SCREENS_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("room", type=os.fsencode)
    parser.add_argument("--url", default="redis://localhost:6379")
    arguments = parser.parse_args()
    # SIGINT too: a shell that starts a program in the background has it ignored.
    for each in signal.SIGINT, signal.SIGTERM:
        signal.signal(each, signal.default_int_handler)
    # Once is enough: the screen tells that the server is away, and it is asked again.
    try:
        client = redis.Redis.from_url(arguments.url, protocol=3, socket_timeout=5, retry=Retry(NoBackoff(), 0))
    except ValueError as wrong:
        parser.error(f"--url {arguments.url}: {wrong}")
    trouble = None
    sys.stdout.write(ENTER)
    try:
        watch(Room(client, arguments.room))
    except KeyboardInterrupt:
        pass
    except redis.AuthenticationError as refused:
        trouble = f"{refused}; the URL names both: redis://user:password@host:port"
    except redis.RedisError as refused:
        trouble = str(refused)
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
    sys.exit(trouble)


if __name__ == "__main__":
    main()
