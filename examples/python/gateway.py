#!/usr/bin/env python3
"""A gateway: who is connected to it is present in the room, and hears why when that ends.

    gateway.py ROOM [--url redis://localhost:6380] [--port 7000] [--ttl-ms 30000]

`nc localhost 7000`, and a name as first line. One MRENEW a tick keeps all who are connected. (It believes the name: a real gateway asks
for more than that.)
"""

import argparse
import asyncio
import logging
import os
import uuid
from contextlib import closing, suppress

import redis
import redis.asyncio

from lesson import as_map, head, seq

BATCH = 1024  # items of one MRENEW


class Connection:
    def __init__(self, writer):
        self.writer = writer


class Gateway:
    def __init__(self, client, room, ttl_ms):
        self.redis, self.room, self.ttl_ms, self.present = client, room, ttl_ms, set()

    def call(self, verb, *args):
        return self.redis.execute_command(f"LEASE.{verb}", self.room, *args)

    async def serve(self, reader, writer):
        connection = Connection(writer)
        with suppress(OSError, redis.RedisError), closing(writer):
            connection.user = (await reader.readline()).strip()
            await self.open(connection)
            while await reader.readline():
                pass  # messages would come here, and go on by SEND
        if connection in self.present:  # a socket that breaks is no LEAVE: most come back
            self.present.remove(connection)
            with suppress(redis.RedisError):
                await self.call("RENEW", connection.session, connection.epoch, seq(), "STATE", "disconnected")

    async def open(self, connection):
        session = str(uuid.uuid4())  # made here, so redis-py may resend the command
        try:
            opened = as_map(await self.call("OPEN", connection.user, "SESSION", session, "TTL", self.ttl_ms))
        except redis.ResponseError as refused:
            return self.close(connection, head(refused).encode())
        connection.session, connection.epoch = session, opened[b"epoch"]
        if not connection.writer.is_closing():  # else it went meanwhile, and its lease runs out
            self.present.add(connection)

    def close(self, connection, why):
        self.present.discard(connection)
        connection.writer.write(why + b"\n")
        connection.writer.close()

    async def beat(self):
        while True:
            await asyncio.sleep(self.ttl_ms / 3000)
            present = list(self.present)
            try:
                for start in range(0, len(present), BATCH):
                    await self.renew(present[start : start + BATCH])
            except redis.RedisError as error:  # the next tick is worth more than this one
                logging.warning("no heartbeat: %s", head(error))

    async def renew(self, connections):
        items = [part for each in connections for part in (each.session, each.epoch, seq())]
        for connection, (status, value) in zip(connections, await self.call("MRENEW", *items)):
            if connection not in self.present or status not in (b"stale", b"denied"):
                continue
            if value in (b"unknown", b"expired"):
                await self.open(connection)
            else:
                self.close(connection, value)


async def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("room", type=os.fsencode)
    parser.add_argument("--url", default="redis://localhost:6380")
    parser.add_argument("--port", type=int, default=7000)
    parser.add_argument("--ttl-ms", type=int, default=30000)
    options = parser.parse_args()
    async with redis.asyncio.Redis.from_url(options.url, protocol=3, socket_timeout=10) as client:
        gateway = Gateway(client, options.room, options.ttl_ms)
        async with await asyncio.start_server(gateway.serve, "127.0.0.1", options.port):
            await gateway.beat()


if __name__ == "__main__":
    asyncio.run(main())
