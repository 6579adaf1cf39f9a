"""A room with messages in it: what most tests of the log begin with."""

LONG_LIFE = 3600000


def send(client, numbers, session="a", epoch=1):
    """Messages m<n> with payload p<n>: the replies' (status, seq)."""
    replies = client.pipeline(*(f"LEASE.SEND r {session} {epoch} m{n} p{n}" for n in numbers))
    return [(reply["status"].decode(), reply["seq"]) for reply in replies]


def accepted(numbers):
    return [("accepted", n) for n in numbers]


def a_room_at(client, current, session="a"):
    """The gen of a room with so many messages of one session of u1, epoch 1."""
    opened = client("LEASE.OPEN", "r", "u1", "SESSION", session, "TTL", LONG_LIFE)
    assert send(client, range(1, current + 1), session) == accepted(range(1, current + 1))
    return opened["gen"]


def seqs(client):
    return [seq for seq, _ in client.messages("r")]
