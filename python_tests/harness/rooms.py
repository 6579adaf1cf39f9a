"""A full scan: every room of every database, with what a reader can learn of it."""

from .events import read, stream
from .replies import normal
from .resp import Refused

DEADLINE = {"left_ms", "expires_at"}


def databases(server):
    return [int(name[2:]) for name in server.info("keyspace") if name.startswith("db")]


def each(server):
    """(db, room, call) for every room; `call` sends plain commands in that database and gives normal replies."""
    for db in databases(server):
        connection = server.in_db(db)

        def call(*command, connection=connection):
            return normal(command, connection(*command))

        for room in sorted(keys(connection, "leaseroom")):
            yield db, room, call


def keys(connection, kind):
    cursor = b"0"
    while True:
        cursor, found = connection("SCAN", cursor, "COUNT", 1000, "TYPE", kind)
        yield from found
        if cursor == b"0":
            return


def leases(call, room):
    """All leases of a room, the ended ones too, by session; the last page's head under None."""
    found, cursor = {}, 0
    while True:
        page = call("LEASE.ROSTER", room, "ENDED", "COUNT", 10000, "CURSOR", cursor)
        found |= {lease["session"]: lease for lease in page["leases"]}
        cursor = page["cursor"]
        if cursor in (0, b"0"):
            return found, page


def grants(call, room):
    """What is known of users' access, by user."""
    return {record["user"]: record for record in listed(call, "LEASE.GRANTS", room, "grants")}


def holders(call, room):
    """Where holders have their cursors, by user and device."""
    return {(holder["user"], holder["device"]): holder for holder in listed(call, "LEASE.LAG", room, "holders")}


def listed(call, command, room, field):
    """The maps in the pages of a list, one by one; none where the command is not there yet."""
    cursor = 0
    while page := optional(call, command, room, "COUNT", 10000, "CURSOR", cursor):
        yield from page[field]
        cursor = page["cursor"]
        if cursor in (0, b"0"):
            return


def scan(server):
    """{(db, room): what it shows}: leases by session, counts, gen, event_n, the settings of its own, grants and marks, STATS, cursors, holds."""
    found = {}
    for db, room, call in each(server):
        sessions, page = leases(call, room)
        found[db, room] = {
            "leases": sessions,
            "count": call("LEASE.COUNT", room),
            "gen": page["gen"].decode(),
            "event_n": page["event_n"],
            "policy": sorted(optional(call, "LEASE.POLICY", room)),
            "grants": grants(call, room),
            "stats": optional(call, "LEASE.STATS", room) or {},
            "holders": holders(call, room),
            "holds": sorted(optional(call, "LEASE.HOLDS", room)),
        }
    return found


def optional(call, *command):
    """The reply to a command that a module of an earlier stage may not have: then nothing."""
    try:
        return call(*command)
    except Refused as refused:
        if "unknown command" not in refused.text:
            raise
        return []


def everything(server):
    """What no refused command may change: rooms with their deadlines, events, messages, keys, the count of changes."""
    rooms = scan(server)
    events = {name: read(server.in_db(name[0]), name[1]) for name in rooms}
    # As bytes, for a test may have put anything in the log's place.
    logs = {name: server.in_db(name[0])("DUMP", stream(name[1], "log")) for name in rooms}
    info = server.info("persistence")
    return {"rooms": rooms, "events": events, "logs": logs, "changes": info.get("rdb_changes_since_last_save"), "keyspace": server.info("keyspace")}
