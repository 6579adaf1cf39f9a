"""Version 1 of what the module says, as types: replies, refusals, events, messages.

A record is a RESP3 map, or a RESP2 array of its fields and values. A field with a default is absent where it does not apply; one that
may be None is nil then. `conform` reads values by these types, `schemas` writes them down as JSON Schema.
"""

from dataclasses import dataclass
from typing import Literal, NewType

Number = NewType("Number", int)  # 0 … 2^63-1; in stream entries its decimal digits
Positive = NewType("Positive", int)
Bytes = NewType("Bytes", bytes)
Id = NewType("Id", bytes)  # never empty
Gen = NewType("Gen", bytes)
Position = NewType("Position", bytes)  # of a stream
Inspection = NewType("Inspection", bytes)  # JSON text of schema lease/1; all of it is held to inspect.json by a test of its own

record = dataclass(frozen=True, kw_only=True)

Flag = Literal[0, 1]
Level = Literal["READ", "WRITE"]
State = Literal["new", "connecting", "checking", "connected", "completed", "disconnected", "failed"]
Signal = State | Literal["closed"]


# -------------------------------------------------------------------- leases


@record
class Opened:
    """A session that began, or that was opened before: LEASE.OPEN."""

    session: Id
    epoch: Positive
    user_leases: Positive
    ttl_ms: Positive
    heartbeat_ms: Number
    left_ms: Positive
    expires_at: Number
    now: Number
    replaced: Id | None
    gen: Gen
    log_seq: Number
    log_oldest: Number
    event_n: Number
    acked: Number


@record
class Lease:
    session: Id
    user: Id
    device: Id
    epoch: Positive
    seq: Number | None
    signal: Signal | None
    ttl_ms: Number
    left_ms: Number
    expires_at: Number
    opened_at: Number
    heartbeat_at: Number
    observed_at: Number | None
    meta: Bytes | None


@record
class LiveLease(Lease):
    """A lease that holds: `lingering` once its session said LINGER."""

    state: Literal["active", "lingering"]
    reason: None
    ended_at: None
    replaced_by: None


@record
class EndedLease(Lease):
    """A lease that ended, while its tombstone lasts."""

    state: Literal["ended"]
    reason: Literal["expired", "left", "revoked", "kicked"]
    left_ms: Literal[0]
    ended_at: Number
    replaced_by: None


@record
class SupersededLease(EndedLease):
    """A lease that ended because its holder opened another session: `replaced_by` is that one's epoch."""

    reason: Literal["superseded"]
    replaced_by: Positive


AnyLease = LiveLease | EndedLease | SupersededLease


@record
class Roster:
    """A page of a room's leases. `event_id` is there only where the event stream is shared."""

    cursor: Number
    now: Number
    gen: Gen | None
    event_n: Number
    event_id: Position = None
    leases: list[AnyLease]


Renewed = tuple[Literal["renewed", "shortened", "noted", "duplicate", "ended", "gone"], Number, Number]
Beaten = tuple[Literal["renewed", "duplicate"], Positive]
Stale = tuple[Literal["stale"], Literal["unknown", "expired", "superseded", "left", "revoked", "kicked"]]
Denied = tuple[Literal["denied"], Literal["token", "revoked", "nogrant"]]


# -------------------------------------------------------------------- rooms


@record
class Grant:
    """What is known of a user's access."""

    user: Id
    level: Level | None
    until: Number | None
    version: Number | None
    token: Flag
    revoked: Flag
    devices: list[Id]


@record
class Grants:
    """A page of a room's grants and revocations."""

    cursor: Number
    grants: list[Grant]


@record
class Holder:
    """How far one holder's messages were delivered."""

    user: Id
    device: Id
    queued: Number
    written: Number
    acked: Number
    queued_lag: Number
    written_lag: Number
    acked_lag: Number


@record
class Lag:
    """A page of the holders that have a cursor."""

    cursor: Number
    holders: list[Holder]


@record
class Stats:
    """A room's counters and largest lags."""

    gen: Gen
    leases: Number
    users: Number
    tombstones: Number
    event_n: Number
    events_lost: Number
    log_seq: Number
    log_oldest: Number
    dedupe: Number
    holds: Number
    cursors: Number
    queued_lag: Number
    written_lag: Number
    acked_lag: Number


Setting = tuple[Id, Number | Literal["yes", "no", "open", "granted"], Flag]


# -------------------------------------------------------------------- messages


@record
class Accepted:
    """What became of a message."""

    status: Literal["accepted", "duplicate"]
    seq: Positive
    gen: Gen
    at: Number


@record
class Posted:
    """A message of POST."""

    id: Id
    user: Id
    at: Number
    gen: Gen
    payload: Bytes


@record
class Sent(Posted):
    """A message of SEND."""

    device: Id
    session: Id
    epoch: Positive


Message = Sent | Posted
Numbered = tuple[Positive, Message]


@record
class Replay:
    gen: Gen
    oldest: Number
    current: Number
    next: Number
    entries: list[Numbered]


@record
class Replayed(Replay):
    """A page of messages without a gap."""

    status: Literal["ok"]
    reason: None


@record
class Resync(Replay):
    """These messages cannot be given without a gap: call LEASE.SNAPSHOT."""

    status: Literal["resync"]
    reason: Literal["trimmed", "future", "diverged"]


@record
class Snapshot:
    """Who is there and the newest messages, as of one instant. `event_id` as in a roster."""

    gen: Gen
    oldest: Number
    current: Number
    event_n: Number
    event_id: Position = None
    now: Number
    cursor: Number
    leases: list[LiveLease]
    entries: list[Numbered]


# -------------------------------------------------------------------- commands

REPLIES = {
    "LEASE.OPEN": Opened,
    "LEASE.RENEW": Renewed,
    "LEASE.MRENEW": list[Beaten | Stale | Denied],
    "LEASE.LEAVE": Literal["left", "lingering", "gone"],
    "LEASE.KICK": Number,
    "LEASE.REAP": Number,
    "LEASE.GET": AnyLease | None,
    "LEASE.ROSTER": Roster,
    "LEASE.COUNT": tuple[Number, Number],
    "LEASE.INSPECT": Inspection | None,
    "LEASE.POLICY": list[Setting],
    "LEASE.SETPOLICY": Literal["OK"],
    "LEASE.GRANT": Literal["ok", "stale"],
    "LEASE.REVOKE": tuple[Literal["ok", "stale"], Number],
    "LEASE.GRANTS": Grants,
    "LEASE.SEND": Accepted,
    "LEASE.POST": Accepted,
    "LEASE.REPLAY": Replayed | Resync,
    "LEASE.SNAPSHOT": Snapshot,
    "LEASE.MARK": Number,
    "LEASE.ACK": Number,
    "LEASE.LAG": Lag,
    "LEASE.HOLD": Flag,
    "LEASE.UNHOLD": Flag,
    "LEASE.HOLDS": list[Id],
    "LEASE.TRIM": Number,
    "LEASE.STATS": Stats | None,
    "LEASE.CLOCK": Number,
    "LEASE.HELP": list[Id],
    "LEASE.APPLY": Literal["OK"],
}

# What stands before the colon of the module's own errors; `#` for a number.
REFUSALS = {
    "STALE unknown",
    "STALE expired",
    "STALE superseded #",
    "STALE left",
    "STALE kicked",
    "STALE revoked",
    "DENIED nogrant",
    "DENIED revoked",
    "DENIED readonly",
    "DENIED token",
    "HELD #",
    "CONFLICT session",
    "CONFLICT message",
    "LIMIT leases",
    "LIMIT id",
    "LIMIT meta",
    "LIMIT payload",
    "LIMIT items",
    "LIMIT exhausted",
    "LOGSTATE",
    "TRYAGAIN",
}
INSTRUCTIONS = {head.split(" ")[0] for head in REFUSALS}


# -------------------------------------------------------------------- events


@record
class Event:
    v: Literal[1]
    room: Id
    n: Positive
    gen: Gen
    log_seq: Number
    at: Number


@record
class OfLease(Event):  # `seq` is absent under precision-ms, `observed_at` without OBSERVED
    session: Id
    user: Id
    device: Id
    epoch: Positive
    seq: Number = None
    user_leases: Number
    observed_at: Number = None


@record
class OpenedEvent(OfLease):
    """A session began."""

    type: Literal["opened"]
    replaced: Id = None
    expires_at: Number
    meta: Bytes = None


@record
class RemovedEvent(OfLease):
    """A lease ended: it left, or was revoked or kicked."""

    type: Literal["removed"]
    reason: Literal["left", "revoked", "kicked"]


@record
class ExpiredEvent(OfLease):
    """A lease ended by time: it expired, or left by lingering. `lag_ms` is absent under precision-ms."""

    type: Literal["removed"]
    reason: Literal["expired", "left"]
    due: Number
    lag_ms: Number = None


@record
class SupersededEvent(OfLease):
    """A lease ended because its holder opened another session."""

    type: Literal["removed"]
    reason: Literal["superseded"]
    replaced_by: Positive


@record
class StateEvent(OfLease):
    """RENEW reported another STATE than before. `at` is absent under precision-ms."""

    type: Literal["state"]
    state: State
    expires_at: Number
    at: Number = None


@record
class UpdatedEvent(OfLease):
    """RENEW changed META. `at` is absent under precision-ms."""

    type: Literal["updated"]
    meta: Bytes
    at: Number = None


@record
class RenewedEvent(OfLease):
    """A heartbeat was accepted: only with log-renewals."""

    type: Literal["renewed"]


@record
class GrantedEvent(Event):
    """A user was granted access, or a mark was lifted."""

    type: Literal["granted"]
    user: Id
    level: Level
    until: Number = None


@record
class GrantRevokedEvent(Event):
    """A user, or one of its devices, is kept out."""

    type: Literal["grant-revoked"]
    user: Id
    device: Id = None


@record
class PostedEvent(Event):
    """A message of POST, only with announce-messages; `seq` is its number."""

    type: Literal["message"]
    user: Id
    seq: Positive


@record
class SentEvent(OfLease):
    """A message of SEND, only with announce-messages; `seq` is its number."""

    type: Literal["message"]
    seq: Positive


@record
class ClosedEvent(Event):
    """The room's key went, and `active` leases with it."""

    type: Literal["closed"]
    active: Number


AnyEvent = (
    OpenedEvent
    | RemovedEvent
    | ExpiredEvent
    | SupersededEvent
    | StateEvent
    | UpdatedEvent
    | RenewedEvent
    | GrantedEvent
    | GrantRevokedEvent
    | PostedEvent
    | SentEvent
    | ClosedEvent
)
