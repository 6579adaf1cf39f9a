"""A client: it stays with a node until that node refuses or is gone, then asks who the primary is. Every request is noted with its fate."""

import time

import redis

from harness.replies import normal
from harness.resp import Connection, Refused

from .history import now

GONE = (redis.ConnectionError, redis.TimeoutError, OSError)
ELSEWHERE = {"READONLY", "LOADING", "MASTERDOWN", "UNBLOCKED", "CLUSTERDOWN"}
AGAIN = ELSEWHERE | {"TRYAGAIN", "OOM"}


class Caller:
    def __init__(self, nodes, history, who, timeout=1.0):
        self.nodes, self.history, self.who, self.timeout = nodes, history, who, timeout
        self.node, self.connection = None, None

    def __call__(self, op, room, *args):
        """The reply; a `Refused`; or None, if there was none and the request may have been carried out or not."""
        record = {"who": self.who, "op": op, "room": room, "args": args, "sent": now()}
        try:
            self.connect()
            record["node"] = self.node
            reply = normal([f"LEASE.{op}"], self.exchange(room, [f"LEASE.{op}", room, *args]))
        except GONE as gone:
            self.leave()
            self.history.note("call", **record, done=now(), lost=type(gone).__name__)
            time.sleep(0.02)
            return None
        done = now()
        if isinstance(reply, Refused):
            self.history.note("call", **record, done=done, error=reply.head)
            if reply.code in ELSEWHERE:
                self.leave()
                time.sleep(0.02)
            return reply
        self.history.note("call", **record, done=done, reply=shortened(op, reply))
        return reply

    def insist(self, op, room, *args, tries=20):
        """The same request until it is answered for good."""
        for _ in range(tries):
            reply = self(op, room, *args)
            if reply is not None and not (isinstance(reply, Refused) and reply.code in AGAIN):
                break
            time.sleep(0.02)
        return reply

    def succeeds(self, *command):
        reply = self(*command)
        return None if isinstance(reply, Refused) else reply

    def connect(self):
        if self.connection is None:
            self.node = self.nodes.primary
            self.connection = Connection(self.nodes.port(self.node), timeout=self.timeout)

    def exchange(self, room, command):
        (reply,) = self.connection.pipeline([command])
        return reply

    def move(self, node):
        """To a node of choice, for the next requests."""
        self.leave()
        self.node = node
        try:
            self.connection = Connection(self.nodes.port(node), timeout=self.timeout)
        except GONE:
            self.connection = None

    def leave(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None


def shortened(op, reply):
    """The reply as it is noted: messages by what names them, of a snapshot no leases."""
    if op in ("REPLAY", "SNAPSHOT"):
        entries = [[seq, entry["user"], entry["id"]] for seq, entry in reply["entries"]]
        return (
            {name: reply[name] for name in ("gen", "oldest", "current")}
            | {"entries": entries}
            | {name: reply[name] for name in ("status", "reason", "next") if name in reply}
        )
    return reply
