#!/usr/bin/env python3
"""A fan-out worker: puts every message of a room into the durable queue of each member, exactly once and in order.

    fan_out.py ROOM [--url redis://localhost:6380] [--consumer NAME] [--claim-after-ms 60000] [--drain]

It is a consumer group on the room's log, with no framework around it. Members are the users with a grant in the room, there or not. A
member's queue is a stream of its own, from which whoever serves that member reads; the cursor that LEASE.MARK keeps says how far it goes.
`make run` starts a server for it.

Run as many workers as you like, each with a name of its own that it keeps, and start one that has ended anew: an error ends it, and it
may be killed at any moment. What makes that safe:

1. The cursor decides, not the group's entry. An entry only says how far the log goes; a member gets everything after its cursor, in the
   log's order. So an entry handled twice, late or before an older one neither doubles a message nor passes one by.
2. Queue and cursor move in one transaction, which an interrupted worker leaves undone as a whole.
3. An entry is acknowledged when all members have it. Until then the group remembers who had read it.

What the log no longer has cannot be queued. Then the queue says so: `gap_from`, `gap_to`. Its reader calls LEASE.SNAPSHOT. It is met by
a member who joins when messages have been trimmed already, and by one who was behind for longer than the room's retention.
"""

import argparse
import os
import re
import socket

import redis

GROUP = "fan-out"
DEVICE = "default"  # the queue is the user's, whatever devices read from it
PAGE = 100
BLOCK_MS = 1000


class Worker:
    def __init__(self, client, room, consumer, claim_after_ms):
        self.redis, self.room, self.consumer, self.claim_after_ms = client, room, consumer, claim_after_ms
        # The room's hash tag, as in the names of its streams: in a cluster a transaction has to stay in one slot.
        self.stem = room if re.match(rb"[^{]*\{[^}]+\}", room) else b"{" + room + b"}"
        self.log = self.stem + b":log"

    def run(self, drain):
        """Works for ever; with `drain`, until nothing is left to do."""
        self.members()  # fails now, before anything is made, if this server has no such command
        try:
            self.redis.xgroup_create(self.log, GROUP, id="0", mkstream=True)
        except redis.ResponseError as refused:
            if not str(refused).startswith("BUSYGROUP"):
                raise
        while ids := self.read("0"):  # what a worker of this name had read when it died
            self.handle(ids)
        while True:
            if ids := self.abandoned() or self.read(">", None if drain else BLOCK_MS):
                self.handle(ids)
            elif drain:
                return

    def read(self, after, block_ms=None):
        """Ids of entries that are new (`>`), or that this consumer has read and not acknowledged."""
        streams = self.redis.xreadgroup(GROUP, self.consumer, {self.log: after}, count=PAGE, block=block_ms)
        return [id for pages in streams.values() for entries in pages for id, _ in entries]

    def abandoned(self):
        """Ids of entries that another consumer has had for too long, trimmed ones too: members may lack what they stood for."""
        _, entries, trimmed = self.redis.xautoclaim(self.log, GROUP, self.consumer, self.claim_after_ms, count=PAGE)
        return [id for id, _ in entries] + trimmed

    def handle(self, ids):
        newest = max(map(seq_of, ids))
        for user in self.members():
            self.deliver(user, newest)
        self.redis.xack(self.log, GROUP, *ids)  # only now: until here, a death leaves the entries to the next worker

    def members(self):
        """Users with a grant, page by page. Read after the entries, so none is missing who had a grant when they were written."""
        users, cursor = set(), None
        while cursor != 0:
            page = self.redis.execute_command("LEASE.GRANTS", self.room, "CURSOR", cursor or 0)
            cursor = page[b"cursor"]
            users |= {grant[b"user"] for grant in page[b"grants"] if grant[b"level"]}
        return sorted(users)

    def deliver(self, user, newest):
        """Brings one member's queue up to message `newest`, a page a step."""
        queue, done = self.stem + b":queue:" + user, 0
        while done < newest:
            # Watched, because EXEC undoes nothing: if another worker has written the queue since this one read the cursor, or a REVOKE
            # would let the MARK fail but not the XADD, the step is taken anew.
            done = self.redis.transaction(lambda pipe: self.step(pipe, user, queue, newest), queue, self.room, value_from_callable=True)

    def step(self, pipe, user, queue, newest):
        """Reads what the queue lacks and prepares the transaction; how far the queue goes with it."""
        mark = ("LEASE.MARK", self.room, user, DEVICE, "QUEUED")
        cursor = pipe.execute_command(*mark, 0)  # moves nothing: a cursor only goes forward
        if cursor >= newest:
            return cursor  # by this worker before it died, or by another one
        # Read also because it fails now if the queue is no stream; the XADD would fail without stopping the MARK.
        last = pipe.xrevrange(queue, count=1)
        if last and not cursor:
            cursor = self.cursor_by(pipe, *last[0])
        messages = [(seq_of(id), fields) for id, fields in pipe.xrange(self.log, cursor + 1, newest, count=PAGE)]
        done = messages[-1][0] if len(messages) == PAGE else newest
        # One MULTI/EXEC. A message queued without its mark would be queued again, a mark without its message would lose it.
        pipe.multi()
        for entry in queued(messages, cursor, done):
            pipe.xadd(queue, entry)
        pipe.execute_command(*mark, done)
        return done

    def cursor_by(self, pipe, _, entry):
        """The cursor of a member who had none for so long that it ended (`cursor-ms`), by the last entry of the queue: if the log still
        has this message, and not another one that a new room of this name gave its seq to. If not, nothing the log has is queued."""
        seq = int(entry.pop(b"seq", 0))
        return seq if [fields for _, fields in pipe.xrange(self.log, seq, seq)] == [entry] else 0


def queued(messages, after, done):
    """The entries of a queue for the messages in `(after, done]`: a message's own fields and its seq; or a gap, where some are gone."""
    for seq, fields in messages:
        if seq > after + 1:
            yield {"gap_from": after + 1, "gap_to": seq - 1}
        yield {"seq": seq} | fields
        after = seq
    if after < done:
        yield {"gap_from": after + 1, "gap_to": done}


def seq_of(id):
    """Message n of a room is entry `n-0` of its log."""
    return int(id.split(b"-")[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("room", type=os.fsencode)
    parser.add_argument("--url", default="redis://localhost:6380")
    parser.add_argument("--consumer", default=socket.gethostname(), help="the worker's name in the group; kept from one start to the next")
    parser.add_argument("--claim-after-ms", type=int, default=60000, help="how long another worker's entries may stay unacknowledged")
    parser.add_argument("--drain", action="store_true", help="end when nothing is left to do")
    options = parser.parse_args()
    client = redis.Redis.from_url(options.url, protocol=3)
    Worker(client, options.room, options.consumer, options.claim_after_ms).run(options.drain)


if __name__ == "__main__":
    main()
