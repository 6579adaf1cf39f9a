"""What is there of the rooms, each at one instant: what the rules hold against all that was answered."""

from harness import events, messages
from harness.replies import normal

CLAIMS = "queued", "written", "acked"
ALL = "COUNT", 10000


def rooms(connections):
    """By room, given a connection to the node that has it."""
    return {room: at_one_instant(connection, room) for room, connection in connections.items()}


def at_one_instant(connection, room):
    reads = [
        ["LEASE.REAP", room],
        ["LEASE.ROSTER", room, "ENDED", *ALL],
        ["LEASE.LAG", room, *ALL],
        ["LEASE.GRANTS", room, *ALL],
        ["LEASE.HOLDS", room],
        ["LEASE.POLICY", room],
        ["XRANGE", events.stream(room), "-", "+"],
        ["XRANGE", events.stream(room, "log"), "-", "+"],
    ]
    *_, replies = connection.pipeline([["MULTI"], *reads, ["EXEC"]])
    _, roster, lag, grants, holds, policy, told, log = (normal(*pair) for pair in zip(reads, replies, strict=True))
    assert {page["cursor"] for page in (roster, lag, grants)} <= {0, b"0"}, f"{room} has more than one page"
    return {
        "events": [events.entry(*one) for one in told],
        "messages": [messages.message(*one) for one in log],
        "leases": {lease["session"]: lease for lease in roster["leases"]},
        "cursors": {b" ".join((holder["user"], holder["device"], claim.encode())): holder[claim] for holder in lag["holders"] for claim in CLAIMS},
        "versions": {record["user"]: record["version"] or 0 for record in grants["grants"]},
        "holds": holds,
        "policy": {name: value for name, value, own in policy if own},
    }
