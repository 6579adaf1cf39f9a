#!/usr/bin/env python3
"""The lesson with redis-py and asyncio: sessions beat on their own, one of them stops, and a task that follows the room hears of it.

    lesson_asyncio.py [--url redis://localhost:6380] [--room class] [--protocol 3]

What it shares with lesson.py it takes from there.
"""

import asyncio
import uuid

import redis
import redis.asyncio

from lesson import arguments, as_map, entries, head, say, seq


class Session:
    """A connection of a user: opened, and kept alive by a task of its own until that is cancelled or the lease is lost."""

    def __init__(self, client, room, user):
        self.client, self.room, self.user = client, room, user

    async def open(self, ttl_ms):
        opened = as_map(await self.client.execute_command("LEASE.OPEN", self.room, self.user, "SESSION", str(uuid.uuid4()), "TTL", ttl_ms))
        self.name, self.epoch, self.heartbeat_s = opened[b"session"], opened[b"epoch"], opened[b"heartbeat_ms"] / 1000
        say("opened", {"user": self.user, "epoch": self.epoch, "heartbeat_ms": opened[b"heartbeat_ms"]})
        self.beating = asyncio.create_task(self.beat())

    async def beat(self):
        while True:
            await asyncio.sleep(self.heartbeat_s)
            await self.call("RENEW", seq())

    async def call(self, verb, *args):
        return await self.client.execute_command(f"LEASE.{verb}", self.room, self.name, self.epoch, *args)


async def follow(client, events):
    """A consumer group on the events, from now on, if there is none yet."""
    try:
        await client.xgroup_create(events, "lobby", id="$", mkstream=True)
    except redis.ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise


async def removal(client, events, session):
    """Takes events until this session's lease has ended, and confirms each."""
    while True:
        for id, event in entries(await client.xreadgroup("lobby", "worker", {events: ">"}, count=100, block=5000)):
            await client.xack(events, "lobby", id)
            if (event[b"type"], event.get(b"session")) == (b"removed", session.name):
                return {"user": session.user, "epoch": int(event[b"epoch"]), "reason": event[b"reason"].decode()}


async def play(client, room):
    events = f"{{{room}}}:events"
    await follow(client, events)  # first, so that nothing is missed
    ann, ben = Session(client, room, "ann"), Session(client, room, "ben")
    await ann.open(10000)
    await ben.open(1000)
    lost = asyncio.create_task(removal(client, events, ben))

    # Heartbeats of many sessions go out in one write; refusals come back as values.
    pipe = client.pipeline(transaction=False)
    for session in ann, ben:
        pipe.execute_command("LEASE.RENEW", room, session.name, session.epoch, seq())
    replies = await pipe.execute(raise_on_error=False)
    say("renewed", [head(reply) if isinstance(reply, redis.ResponseError) else reply[0].decode() for reply in replies])

    ben.beating.cancel()  # a tab that is gone
    sent = as_map(await ann.call("SEND", "m1", "hello"))
    say("sent", [[sent[b"status"].decode(), sent[b"seq"]]])
    say("removed", await lost)
    try:
        await ben.call("RENEW", seq())
    except redis.ResponseError as error:
        say("refused", head(error))
    page = as_map(await ann.call("REPLAY", "*", 0))
    say("replayed", [[seq, as_map(message)[b"payload"].hex()] for seq, message in page[b"entries"]])
    ann.beating.cancel()
    say("left", [(await ann.call("LEAVE")).decode()])


async def main():
    options = arguments(__doc__)
    async with redis.asyncio.Redis.from_url(options.url, protocol=options.protocol, socket_timeout=10) as client:
        await play(client, options.room)


if __name__ == "__main__":
    asyncio.run(main())
