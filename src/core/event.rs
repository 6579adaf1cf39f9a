//! Entries of the event stream (docs/events.md): the truth about what happened to a room.

use std::ffi::CStr;

use super::access::Level;
use super::effect::Gen;
use super::id::Id;
use super::lease::{Reason, Signal};

#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub n: u64,
    pub gen: Gen,
    /// Newest message at that moment.
    pub log_seq: u64,
    /// Unix ms; withheld where the policy's precision asks for it.
    pub at: Option<u64>,
    pub subject: Option<Subject>,
    pub body: Body,
}

/// The lease an event is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    pub session: Id,
    pub user: Id,
    pub device: Id,
    pub epoch: u64,
    pub seq: Option<u64>,
    /// Opened minus removed of that user, this step included.
    pub user_leases: u32,
    pub observed_at: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    Opened {
        replaced: Option<Id>,
        expires_at: u64,
        meta: Option<Box<[u8]>>,
    },
    Removed {
        reason: Reason,
        due: Option<u64>,
        lag_ms: Option<u64>,
        replaced_by: Option<u64>,
    },
    State {
        signal: Signal,
        expires_at: u64,
    },
    Updated {
        meta: Box<[u8]>,
    },
    Renewed,
    Granted {
        user: Id,
        level: Level,
        until: Option<u64>,
    },
    GrantRevoked {
        user: Id,
        device: Option<Id>,
    },
    Message {
        /// Of a message that was posted: no lease tells it.
        user: Option<Id>,
        seq: u64,
    },
    /// The room key went, with so many leases that nothing had removed.
    Closed {
        active: u64,
    },
}

impl Event {
    /// The value of the entry's `type` field.
    pub fn kind(&self) -> &'static str {
        match self.body {
            Body::Opened { .. } => "opened",
            Body::Removed { .. } => "removed",
            Body::State { .. } => "state",
            Body::Updated { .. } => "updated",
            Body::Renewed => "renewed",
            Body::Granted { .. } => "granted",
            Body::GrantRevoked { .. } => "grant-revoked",
            Body::Message { .. } => "message",
            Body::Closed { .. } => "closed",
        }
    }

    /// The keyspace notification that hints at it; heartbeats have none.
    pub fn notification(&self) -> Option<&'static CStr> {
        match self.body {
            Body::Opened { .. } => Some(c"lease.opened"),
            Body::Removed { reason, .. } => Some(match reason {
                Reason::Expired => c"lease.expired",
                Reason::Left => c"lease.left",
                Reason::Superseded => c"lease.superseded",
                Reason::Revoked => c"lease.revoked",
                Reason::Kicked => c"lease.kicked",
            }),
            Body::State { .. } => Some(c"lease.state"),
            Body::Updated { .. } => Some(c"lease.updated"),
            Body::Renewed => None,
            Body::Granted { .. } => Some(c"lease.granted"),
            Body::GrantRevoked { .. } => Some(c"lease.grant-revoked"),
            Body::Message { .. } => Some(c"lease.message"),
            Body::Closed { .. } => Some(c"lease.closed"),
        }
    }

    /// Hands every field that applies to `put`, in the order of docs/events.md.
    pub fn fields(&self, room: &[u8], put: &mut impl FnMut(&'static str, &[u8])) {
        let number = |put: &mut dyn FnMut(&'static str, &[u8]), name, value: Option<u64>| {
            if let Some(value) = value {
                put(name, itoa::Buffer::new().format(value).as_bytes());
            }
        };
        put("v", b"1");
        put("type", self.kind().as_bytes());
        put("room", room);
        number(put, "n", Some(self.n));
        put("gen", self.gen.text().as_bytes());
        number(put, "log_seq", Some(self.log_seq));
        if let Some(s) = &self.subject {
            put("session", s.session.as_bytes());
            put("user", s.user.as_bytes());
            put("device", s.device.as_bytes());
            number(put, "epoch", Some(s.epoch));
            number(put, "seq", s.seq);
            number(put, "user_leases", Some(s.user_leases.into()));
        }
        match &self.body {
            Body::Granted { user, .. } | Body::Message { user: Some(user), .. } => put("user", user.as_bytes()),
            Body::GrantRevoked { user, device } => {
                put("user", user.as_bytes());
                if let Some(device) = device {
                    put("device", device.as_bytes());
                }
            }
            _ => {}
        }
        number(put, "at", self.at);
        number(put, "observed_at", self.subject.as_ref().and_then(|s| s.observed_at));
        match &self.body {
            Body::Opened { replaced, expires_at, meta } => {
                if let Some(replaced) = replaced {
                    put("replaced", replaced.as_bytes());
                }
                number(put, "expires_at", Some(*expires_at));
                if let Some(meta) = meta {
                    put("meta", meta);
                }
            }
            Body::Removed { reason, due, lag_ms, replaced_by } => {
                put("reason", reason.word().as_bytes());
                number(put, "due", *due);
                number(put, "lag_ms", *lag_ms);
                number(put, "replaced_by", *replaced_by);
            }
            Body::State { signal, expires_at } => {
                put("state", signal.word().as_bytes());
                number(put, "expires_at", Some(*expires_at));
            }
            Body::Updated { meta } => put("meta", meta),
            Body::Granted { level, until, .. } => {
                put("level", level.word().as_bytes());
                number(put, "until", *until);
            }
            Body::Renewed | Body::GrantRevoked { .. } => {}
            Body::Message { seq, .. } => number(put, "seq", Some(*seq)),
            Body::Closed { active } => number(put, "active", Some(*active)),
        }
    }
}
