#!/usr/bin/env python3
"""A lesson with redis-py: two users open, renew, one of them falls silent, and who follows the room learns of it.

    lesson.py [--url redis://localhost:6380] [--room class] [--protocol 3] [--cluster]

Prints a line for each step. `make run` starts a server for it; it takes about a second, which is ben's ttl.
"""

import argparse
import json
import os
import time
import uuid

import redis


def as_map(reply):
    """A map of RESP3 is a dict already; RESP2 knows flat arrays only. Fields are bytes: ids may be any bytes, so nothing is decoded."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))


def head(error):
    """What to decide by: `STALE expired`, `HELD 12000`. The sentence behind the colon is for people. Codes that redis-py knows, ERR too, it cuts off."""
    return getattr(error, "status_code", None) or str(error).split(":")[0]


def insist(call, *command, tries=50):
    """TRYAGAIN asks for the same command again, with the same ids; redis-py does not know the module's, for its colon."""
    for left in reversed(range(tries)):
        try:
            return call(*command)
        except redis.ResponseError as error:
            if head(error) != "TRYAGAIN" or not left:
                raise
            time.sleep(0.02)


last = 0


def seq():
    """A seq that rises without being stored: unix time in ns, or one more than the last where the clock stands or is set back."""
    global last
    last = max(last + 1, time.time_ns())
    return last


def entries(streams):
    """All (id, fields) of an XREADGROUP: redis-py has its streams as a dict in RESP3, as a list in RESP2, and nothing after BLOCK."""
    pages = [page for pages in streams.values() for page in pages] if isinstance(streams, dict) else [page for _, page in streams or ()]
    return [entry for page in pages for entry in page]


def say(step, told):
    print(step, json.dumps(told), flush=True)


class Lesson:
    def __init__(self, client, room):
        self.client, self.room = client, room
        self.events = f"{{{room}}}:events"  # of a room without a hash tag; of `k{tag}` it is `k{tag}:events`

    def call(self, verb, *args):
        return insist(self.client.execute_command, f"LEASE.{verb}", self.room, *args)

    def play(self):
        self.follow()
        # A session id of one's own makes a resent OPEN harmless. The device is 16 bytes, most of which are no text.
        device = os.urandom(15) + b"\xff"
        ann = self.open("ann", "DEVICE", device, "TTL", 10000)
        ben = self.open("ben", "TTL", 1000)
        self.renew([ann, ben, (b"nobody", 1)])
        self.send(ann, ("m1", "hello"), ("m2", b"\x00\xff"), ("m1", "hello"))
        self.await_removal(ben)
        try:
            self.call("RENEW", *ben, seq())
        except redis.ResponseError as error:
            say("refused", head(error))
        ben = self.open("ben")  # STALE expired says: open a new session
        self.roster()
        self.replay(ann)
        say("left", [self.call("LEAVE", *session).decode() for session in (ann, ben)])

    def open(self, user, *options):
        opened = as_map(self.call("OPEN", user, "SESSION", str(uuid.uuid4()), *options))
        say("opened", {"user": user, "epoch": opened[b"epoch"], "heartbeat_ms": opened[b"heartbeat_ms"]})
        return opened[b"session"], opened[b"epoch"]

    def renew(self, sessions):
        """One write for many heartbeats."""
        pipe = self.client.pipeline(transaction=False)
        for session, epoch in sessions:
            pipe.execute_command("LEASE.RENEW", self.room, session, epoch, seq())
        # Errors are values here: one refused heartbeat spoils no other.
        replies = pipe.execute(raise_on_error=False)
        say("renewed", [head(reply) if isinstance(reply, redis.ResponseError) else reply[0].decode() for reply in replies])

    def send(self, session, *messages):
        """The id is the message's own: sent again, after a timeout say, it stands in the log once."""
        sent = [as_map(self.call("SEND", *session, id, payload)) for id, payload in messages]
        say("sent", [[reply[b"status"].decode(), reply[b"seq"]] for reply in sent])

    def follow(self):
        """A consumer group on the events, from now on, if there is none yet."""
        try:
            self.client.xgroup_create(self.events, "lobby", id="$", mkstream=True)
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def await_removal(self, session):
        """Takes events until this session's lease has ended, and confirms each. The socket's timeout has to be longer than BLOCK."""
        while True:
            streams = self.client.xreadgroup("lobby", "worker", {self.events: ">"}, count=100, block=5000)
            for id, event in entries(streams):
                self.client.xack(self.events, "lobby", id)
                if (event[b"type"], event.get(b"session")) == (b"removed", session[0]):
                    say("removed", {"user": event[b"user"].decode(), "epoch": int(event[b"epoch"]), "reason": event[b"reason"].decode()})
                    return

    def roster(self):
        page = as_map(self.call("ROSTER"))
        leases = [as_map(lease) for lease in page[b"leases"]]
        say("roster", [{"user": lease[b"user"].decode(), "device": lease[b"device"].hex(), "seq": lease[b"seq"]} for lease in leases])

    def replay(self, session):
        """Page by page; the position is (gen, next). On `resync` a client would call SNAPSHOT."""
        gen, after, messages = b"*", 0, []
        while True:
            page = as_map(self.call("REPLAY", *session, gen, after, "COUNT", 1))
            messages += [[seq, as_map(message)[b"payload"].hex()] for seq, message in page[b"entries"]]
            gen, after = page[b"gen"], page[b"next"]
            if after == page[b"current"]:
                break
        say("replayed", messages)


def arguments(doc):
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--url", default="redis://localhost:6380")
    parser.add_argument("--room", default="class")
    parser.add_argument("--protocol", type=int, choices=(2, 3), default=3)
    parser.add_argument("--cluster", action="store_true", help="the url is that of any of its nodes")
    return parser.parse_args()


def main():
    options = arguments(__doc__)
    kind = redis.RedisCluster if options.cluster else redis.Redis
    Lesson(kind.from_url(options.url, protocol=options.protocol, socket_timeout=10), options.room).play()


if __name__ == "__main__":
    main()
