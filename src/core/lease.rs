//! One lease: a session's claim to be present.
//!
//! ```text
//!            RENEW                     disconnected / failed
//!          ┌───────┐                ┌────────────────────────┐
//!          ▼       │                ▼                        │
//! OPEN ─▶ Active ──┴──────────────▶ Shortened ──RENEW──▶ Active
//!          │   LEAVE LINGER          │
//!          ├──────────▶ Lingering ◀──┤          (accepts nothing but LEAVE and the holder's next OPEN)
//!          ▼               ▼         ▼
//!         Ended(expired | left | superseded | revoked | kicked)   once, then a tombstone until its window is over
//! ```
//!
//! Rules
//! 1. `deadline <= now` means gone, whatever the phase says: removal comes later and changes no answer.
//! 2. Fields most leases do not have live in [`Extras`], outside the lease, so that a million plain ones stay small.

use super::id::{Id, SessionKey};
use super::time::Ms48;
use super::token::TokenDigest;

/// The last WebRTC connection or ICE state a session reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Signal {
    New = 1,
    Connecting,
    Checking,
    Connected,
    Completed,
    Disconnected,
    Failed,
    Closed,
}

impl Signal {
    pub const ALL: [Self; 8] = [
        Self::New,
        Self::Connecting,
        Self::Checking,
        Self::Connected,
        Self::Completed,
        Self::Disconnected,
        Self::Failed,
        Self::Closed,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Connecting => "connecting",
            Self::Checking => "checking",
            Self::Connected => "connected",
            Self::Completed => "completed",
            Self::Disconnected => "disconnected",
            Self::Failed => "failed",
            Self::Closed => "closed",
        }
    }

    /// Case-insensitive, as options are.
    pub fn parse(word: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|s| word.eq_ignore_ascii_case(s.word().as_bytes()))
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|s| *s as u8 == code)
    }
}

/// Why a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    Expired = 1,
    Left,
    Superseded,
    Revoked,
    Kicked,
}

impl Reason {
    pub const ALL: [Self; 5] = [Self::Expired, Self::Left, Self::Superseded, Self::Revoked, Self::Kicked];

    pub fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Left => "left",
            Self::Superseded => "superseded",
            Self::Revoked => "revoked",
            Self::Kicked => "kicked",
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|r| *r as u8 == code)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Active,
    /// A `disconnected` or `failed` state brought the deadline forward; the next plain heartbeat undoes it.
    Shortened,
    /// Left, with time for a page refresh.
    Lingering,
    Ended(Reason),
}

/// 72 bytes; a test holds it there.
#[derive(Clone, Debug)]
pub struct Lease {
    pub epoch: u64,
    pub seq: u64,
    /// While it lives: its deadline on the monotonic clock. Once ended: unix ms of its end.
    pub(super) end: u64,
    pub(super) opened_at: Ms48,
    pub(super) heartbeat_at: Ms48,
    /// `u32::MAX`: longer than fits, see [`Extras::long_ttl_ms`].
    pub(super) ttl_ms: u32,
    /// Opening order within the room; wraps.
    pub(super) order: u32,
    pub(super) user: u32,
    /// Its place in the queue of deadlines, or of tombstones once ended.
    pub(super) place: u32,
    pub(super) session: SessionKey,
    pub signal: Option<Signal>,
    pub phase: Phase,
    pub(super) flags: Flags,
}

/// Two facts in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(u8);

impl Flags {
    const EXTRAS: u8 = 1;
    const GRANTED: u8 = 2;

    /// The lease has rare fields.
    pub fn extras(self) -> bool {
        self.0 & Self::EXTRAS != 0
    }

    pub fn set_extras(&mut self, on: bool) {
        self.set(Self::EXTRAS, on);
    }

    /// Its user has a grant; where that ends, the lease does.
    pub fn granted(self) -> bool {
        self.0 & Self::GRANTED != 0
    }

    pub fn set_granted(&mut self, on: bool) {
        self.set(Self::GRANTED, on);
    }

    fn set(&mut self, flag: u8, on: bool) {
        self.0 = if on { self.0 | flag } else { self.0 & !flag };
    }
}

impl Lease {
    pub fn ended(&self) -> Option<Reason> {
        match self.phase {
            Phase::Ended(reason) => Some(reason),
            _ => None,
        }
    }

    /// The deadline on the monotonic clock, until something has ended the lease.
    pub fn deadline(&self) -> Option<u64> {
        (self.ended().is_none()).then_some(self.end)
    }

    /// Not ended, and not past its deadline.
    pub fn is_live(&self, mono: u64) -> bool {
        self.deadline().is_some_and(|deadline| deadline > mono)
    }

    /// Past its deadline, and nothing has removed it yet.
    pub fn is_overdue(&self, mono: u64) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= mono)
    }

    /// What time ends it with.
    pub fn expiry_reason(&self) -> Reason {
        if self.phase == Phase::Lingering {
            Reason::Left
        } else {
            Reason::Expired
        }
    }
}

/// What few leases have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras {
    /// `None`: the default device.
    pub device: Option<Id>,
    pub long_session: Option<Box<[u8]>>,
    pub long_ttl_ms: Option<u64>,
    /// The deadline is never later, on the monotonic clock.
    pub until: Option<u64>,
    /// When its user's grant ends, on the monotonic clock.
    pub grant_until: Option<u64>,
    pub token: Option<TokenDigest>,
    pub meta: Option<Box<[u8]>>,
    pub observed_at: Option<u64>,
    /// The session this one superseded when it opened.
    pub replaced: Option<Id>,
    /// The epoch that superseded this session.
    pub replaced_by: Option<u64>,
    /// What was left when the lease was shortened or began to linger.
    pub span_ms: Option<u64>,
}

impl Extras {
    pub fn heap_bytes(&self) -> usize {
        let blob = |b: &Option<Box<[u8]>>| b.as_ref().map_or(0, |b| b.len());
        let id = |i: &Option<Id>| i.as_ref().map_or(0, Id::heap_bytes);
        [blob(&self.long_session), blob(&self.meta), id(&self.device), id(&self.replaced), size_of::<Self>()]
            .into_iter()
            .fold(0, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_takes_72_bytes_also_in_its_slot() {
        assert_eq!((size_of::<Lease>(), size_of::<Option<Lease>>()), (72, 72));
    }

    #[test]
    fn words_and_codes_round_trip() {
        for s in Signal::ALL {
            assert_eq!(Signal::parse(s.word().to_uppercase().as_bytes()), Some(s));
            assert_eq!(Signal::from_code(s as u8), Some(s));
        }
        for r in Reason::ALL {
            assert_eq!(Reason::from_code(r as u8), Some(r));
        }
        assert_eq!((Signal::parse(b"asleep"), Signal::from_code(0), Reason::from_code(6)), (None, None, None));
    }
}
