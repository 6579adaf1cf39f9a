//! What happened: past-tense facts with every decided value in them.
//!
//! A decision returns effects, `Room::apply` turns them into state, and their encoding is what replicas and the AOF
//! get. Nothing in here depends on when or where it is applied (invariant 5).

use std::fmt;

use super::access::Grant;
use super::cursor::Claim;
use super::dedupe::{Accepted, MessageKey};
use super::id::{hex, Id};
use super::lease::{Reason, Signal};
use super::policy::Setting;
use super::token::TokenDigest;

/// Id of a room's history: a new one begins when history may have been lost. Compared by its ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gen {
    pub ms: u64,
    pub random: u32,
}

impl Gen {
    /// `<unix ms>-<8 hex digits>`.
    pub fn text(self) -> GenText {
        let mut digits = itoa::Buffer::new();
        let ms = digits.format(self.ms).as_bytes();
        let random = self.random.to_be_bytes().into_iter().flat_map(hex);
        let mut text = GenText { bytes: [0; GenText::LONGEST], len: 0 };
        let all = ms.iter().copied().chain([b'-']).chain(random);
        for (place, byte) in text.bytes.iter_mut().zip(all) {
            *place = byte;
            text.len = text.len.saturating_add(1);
        }
        text
    }
}

/// A gen as callers know it.
#[derive(Clone, Copy)]
pub struct GenText {
    bytes: [u8; Self::LONGEST],
    len: u8,
}

impl GenText {
    /// Twenty digits, a dash and eight more.
    const LONGEST: usize = 29;

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl fmt::Display for Gen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(self.text().as_bytes()).unwrap_or_default())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Began(Began),
    Opened(Box<Opened>),
    Renewed(Id, Renewed),
    Lingered(Lingered),
    Ended(Ended),
    Forgot(Forgot),
    PolicySet(PolicySet),
    Granted(Granted),
    Revoked(Revoked),
    GrantEnded(GrantEnded),
    Cut(Cut),
    Claimed(Claimed),
    CursorsEnded(CursorsEnded),
    Sent(Sent),
    Trimmed(Trimmed),
    Recalled(Recalled),
    RecordsEnded(RecordsEnded),
    Held(Held),
    Unheld(Unheld),
    Noted(Noted),
}

impl Effect {
    /// Whether it changes what clients watch or cache: roster, grants or policy, not a mere heartbeat.
    pub fn is_watched(&self) -> bool {
        match self {
            Self::Opened(_) | Self::Lingered(_) | Self::Ended(_) | Self::PolicySet(_) => true,
            Self::Granted(_) | Self::Revoked(_) | Self::Cut(_) => true,
            Self::Renewed(_, renewed) => {
                renewed.report.as_ref().is_some_and(|r| r.signal.is_some() || r.meta.is_some())
            }
            _ => false,
        }
    }
}

/// A history began: the room is new, or was loaded, restored, promoted, moved or copied. It is drawn before the
/// room's next write and travels with that (docs/concepts.md, `gen`).
#[derive(Clone, Debug, PartialEq)]
pub struct Began {
    pub gen: Gen,
    pub floor: u64,
    pub event_n: u64,
    /// Monotonic.
    pub at: u64,
    pub recovery: Option<Recovery>,
    /// Earlier gens and the newest message of each, oldest first.
    pub past: Vec<(Gen, u64)>,
    /// The log under the room's name, if the room did not write it.
    pub met: Option<MetLog>,
}

/// A log that a room finds under its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetLog {
    /// The greatest number that was ever used in it.
    pub seq: u64,
    /// Its oldest entry and that one's `at`, if it has any.
    pub first: Option<(u64, u64)>,
}

/// After a load or promotion a lease has some time left again, since nobody could renew it meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Monotonic: when the load or promotion happened.
    pub at: u64,
    /// `None`: each lease's own ttl.
    pub grace_ms: Option<u64>,
    /// Whether the room wants grants, so that leases end with theirs.
    pub granted: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    pub session: Id,
    pub user: Id,
    pub device: Id,
    pub epoch: u64,
    pub ttl_ms: u64,
    /// Monotonic.
    pub deadline: u64,
    /// Unix ms; also the first heartbeat.
    pub at: u64,
    /// Monotonic.
    pub until: Option<u64>,
    pub token: Option<TokenDigest>,
    pub meta: Option<Box<[u8]>>,
    pub replaced: Option<Id>,
}

/// An accepted heartbeat.
#[derive(Clone, Debug, PartialEq)]
pub struct Renewed {
    pub epoch: u64,
    pub seq: u64,
    /// Unix ms.
    pub at: u64,
    /// Monotonic.
    pub deadline: u64,
    pub motion: Motion,
    pub report: Option<Box<Report>>,
}

/// What a heartbeat did to the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    Renewed,
    /// With the ms left from there.
    Shortened(u64),
    Unmoved,
}

/// What a session told about itself besides being alive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub signal: Option<Signal>,
    pub ttl_ms: Option<u64>,
    pub observed_at: Option<u64>,
    pub meta: Option<Box<[u8]>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Lingered {
    pub session: Id,
    pub epoch: u64,
    /// Monotonic.
    pub deadline: u64,
    pub span_ms: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    pub session: Id,
    pub epoch: u64,
    pub reason: Reason,
    /// Unix ms.
    pub at: u64,
    /// Monotonic: the session is remembered until then.
    pub tombstone_until: u64,
    pub replaced_by: Option<u64>,
    pub closing: Option<Closing>,
}

/// The last heartbeat of a session that reported `closed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    pub seq: u64,
    pub observed_at: Option<u64>,
    pub at: u64,
}

/// Tombstones whose window is over; the floor rises to their epochs.
#[derive(Clone, Debug, PartialEq)]
pub struct Forgot {
    pub sessions: Vec<Id>,
}

/// `None` follows the node's setting again.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySet {
    pub values: Vec<(Setting, Option<i64>)>,
    /// Monotonic.
    pub at: u64,
}

/// The whole grant of a user; marks are lifted.
#[derive(Clone, Debug, PartialEq)]
pub struct Granted {
    pub user: Id,
    pub grant: Grant,
    /// The one to keep.
    pub version: Option<u64>,
}

/// A user, or one device of it, is kept out. The leases it had ended in the same step.
#[derive(Clone, Debug, PartialEq)]
pub struct Revoked {
    pub user: Id,
    pub device: Option<Id>,
    pub version: Option<u64>,
}

/// Grants whose time is over.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantEnded {
    pub users: Vec<Id>,
}

/// A grant brought the deadline of a live lease forward.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    pub session: Id,
    pub epoch: u64,
    /// Monotonic.
    pub deadline: u64,
}

/// A message was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub accepted: Accepted,
    /// Monotonic: when that was.
    pub mono: u64,
}

/// Messages up to `gone` have left the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    pub gone: u64,
    /// Unix ms: `at` of the oldest that is left.
    pub oldest_at: u64,
    /// Monotonic.
    pub at: u64,
}

/// Messages found in a log the room has met, and the entry to go on with.
#[derive(Clone, Debug, PartialEq)]
pub struct Recalled {
    pub records: Vec<Accepted>,
    pub next: Option<u64>,
}

/// Dedupe records whose time is over.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordsEnded {
    pub keys: Vec<MessageKey>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub name: Id,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Unheld {
    pub name: Id,
    /// Monotonic.
    pub at: u64,
}

/// A holder's claim moved forward.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    pub user: Id,
    pub device: Id,
    pub claim: Claim,
    pub seq: u64,
    /// Monotonic: the end of the holder's cursor, unless it moves again.
    pub until: u64,
}

/// Cursors whose time is over: users and devices.
#[derive(Clone, Debug, PartialEq)]
pub struct CursorsEnded {
    pub holders: Vec<(Id, Id)>,
}

/// Where the room's event counter stands after the step, and how many events no stream could take so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    pub event_n: u64,
    pub events_lost: u64,
    /// Unix ms of the last event: `at` never decreases within a stream.
    pub at: u64,
}
