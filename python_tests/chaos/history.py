"""What happened in a run: one JSON object a line, in the order it was noted. Bytes are written as Latin-1 text.

call    who, node, sent, done, op, room, args, and one of: reply, error (its head), lost (what broke)
line    node counts as primary from `at` on; whatever was acknowledged until `known_until` it has
fault   name, phase (begin, end), at
event   who was handed which event of which room
alarm   what a server said or did that none may
world   from `at` on rooms are new: nothing is left of what was before
cut     between `since` and `at` the log of `room` was evicted; `newest` was its last message or came right after
final   what is there at the end of a world, by room; if it is `concluded`, all had come to rest, and digests by primary and node
"""

import json
import threading
import time

START = time.time() - time.monotonic()


def now():
    """Unix ms that never go back; the servers of a run read the same machine's clock."""
    return round((START + time.monotonic()) * 1000, 3)


def plain(value):
    """The value as JSON has it."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    if isinstance(value, dict):
        return {plain(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value


class History:
    def __init__(self, path):
        self.file, self.lock = open(path, "w"), threading.Lock()

    def note(self, kind, **fields):
        line = json.dumps({"kind": kind} | plain(fields)) + "\n"
        with self.lock:
            self.file.write(line)

    def close(self):
        self.file.close()


def load(path):
    with open(path) as file:
        return [json.loads(line) for line in file]
