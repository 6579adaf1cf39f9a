//! Commands and replies as tests write them: the contract's, less the room's name.

use std::fmt;

use redis_lease::core::access::{Level, Record};
use redis_lease::core::cursor::Claim;
use redis_lease::core::event::Event;
use redis_lease::core::id::Id;
use redis_lease::core::lease::{Reason, Signal};
use redis_lease::core::message::Message;
use redis_lease::core::policy::Setting;
use redis_lease::core::refusal::Refusal;
use redis_lease::core::time::Now;
use redis_lease::core::view::{LeaseView, OpenView};

/// The room every test plays in.
pub const ROOM: &str = "r";

#[derive(Clone, Debug)]
pub enum Command {
    Open(Open),
    Renew(Renew),
    /// Heartbeats that carry nothing but a token.
    MRenew(Vec<Renew>),
    Leave {
        session: String,
        epoch: u64,
        linger_ms: u64,
        token: Option<String>,
    },
    Kick {
        user: Option<String>,
        device: Option<String>,
    },
    Reap {
        count: u64,
    },
    SetPolicy(Vec<(Setting, Option<i64>)>),
    Grant(Grant),
    Revoke {
        user: String,
        device: Option<String>,
        version: Option<u64>,
    },
    Grants {
        user: Option<String>,
    },
    Get(String),
    Roster {
        user: Option<String>,
        ended: bool,
    },
    Count,
    Send(Send),
    Post(Post),
    Replay {
        by: Session,
        gen: String,
        after: u64,
        count: u64,
    },
    Snapshot {
        by: Session,
        count: u64,
    },
    Hold(String),
    Unhold(String),
    Holds,
    Trim,
    Mark {
        user: String,
        device: String,
        claim: Claim,
        seq: u64,
    },
    Ack {
        by: Session,
        seq: u64,
    },
    Lag,
}

impl Command {
    /// Whether it adds a message, takes some away, or tells of them: all others leave the log alone.
    pub fn concerns_messages(&self) -> bool {
        matches!(self, Self::Send(_) | Self::Post(_) | Self::Trim)
    }
}

/// Who a session says it is.
#[derive(Clone, Debug, Default)]
pub struct Session {
    pub session: String,
    pub epoch: u64,
    pub token: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Send {
    pub by: Session,
    pub id: String,
    pub payload: String,
}

#[derive(Clone, Debug, Default)]
pub struct Post {
    pub user: String,
    pub id: String,
    pub payload: String,
}

#[derive(Clone, Debug, Default)]
pub struct Open {
    pub user: String,
    pub device: Option<String>,
    pub session: Option<String>,
    pub ttl_ms: Option<u64>,
    pub until: Option<u64>,
    pub token: Option<String>,
    pub grant_token: Option<String>,
    pub meta: Option<String>,
    pub nx: bool,
    pub random: [u8; 16],
}

impl Open {
    pub fn holder(&self) -> (String, String) {
        (self.user.clone(), self.device.clone().unwrap_or_else(|| "default".to_owned()))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Grant {
    pub user: String,
    /// WRITE, not READ.
    pub writes: bool,
    pub until: Option<u64>,
    pub token: Option<String>,
    pub version: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Renew {
    pub session: String,
    pub epoch: u64,
    pub seq: u64,
    pub state: Option<String>,
    pub meta: Option<String>,
    pub ttl_ms: Option<u64>,
    pub observed_at: Option<u64>,
    pub token: Option<String>,
}

impl Renew {
    /// Session, epoch and seq alone.
    pub fn is_plain(&self) -> bool {
        let says = [&self.state, &self.meta, &self.token].into_iter().any(Option::is_some);
        !says && self.ttl_ms.is_none() && self.observed_at.is_none()
    }
}

/// Named values in the order of the contract; what does not apply reads `nil`.
pub type Fields = Vec<(&'static str, String)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Words(Vec<String>),
    Map(Fields),
    Maps(Vec<Fields>),
    /// A map, and the entries of the log it ends with.
    Log(Fields, Vec<Fields>),
    Nil,
}

impl Reply {
    pub fn words<const N: usize>(words: [&dyn fmt::Display; N]) -> Self {
        Self::Words(words.map(|word| word.to_string()).into())
    }

    /// The first word, or nothing.
    pub fn status(&self) -> &str {
        match self {
            Self::Words(words) => words.first().map_or("", String::as_str),
            _ => "",
        }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        match self {
            Self::Map(fields) | Self::Log(fields, _) => field(fields, name),
            _ => None,
        }
    }

    pub fn number(&self, name: &str) -> u64 {
        self.field(name).and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no number {name} in {self:?}"))
    }

    pub fn entries(&self) -> &[Fields] {
        match self {
            Self::Log(_, entries) => entries,
            _ => &[],
        }
    }
}

pub fn field<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    fields.iter().find(|(of, _)| *of == name).map(|(_, value)| value.as_str())
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn or_nil(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "nil".to_owned(), |value| value.to_string())
}

/// The part of an error that programs read; of `ERR` only the code.
pub fn head(refusal: &Refusal) -> String {
    let text = refusal.to_string();
    match refusal {
        Refusal::Bad(_) => "ERR".to_owned(),
        _ => text.split(':').next().unwrap_or_default().to_owned(),
    }
}

pub fn lease_fields(view: &LeaseView) -> Fields {
    vec![
        ("session", text(view.session.as_bytes())),
        ("user", text(view.user)),
        ("device", text(view.device)),
        ("epoch", view.epoch.to_string()),
        ("seq", or_nil(view.seq)),
        ("state", view.state.to_owned()),
        ("reason", or_nil(view.reason.map(Reason::word))),
        ("signal", or_nil(view.signal.map(Signal::word))),
        ("ttl_ms", view.ttl_ms.to_string()),
        ("left_ms", view.left_ms.to_string()),
        ("expires_at", view.expires_at.to_string()),
        ("opened_at", view.opened_at.to_string()),
        ("heartbeat_at", view.heartbeat_at.to_string()),
        ("observed_at", or_nil(view.observed_at)),
        ("ended_at", or_nil(view.ended_at)),
        ("replaced_by", or_nil(view.replaced_by)),
        ("meta", or_nil(view.meta.map(text))),
    ]
}

pub fn open_fields(view: &OpenView, log_oldest: u64, now: Now) -> Fields {
    vec![
        ("session", text(view.session.as_bytes())),
        ("epoch", view.epoch.to_string()),
        ("user_leases", view.user_leases.to_string()),
        ("ttl_ms", view.ttl_ms.to_string()),
        ("heartbeat_ms", (view.ttl_ms / 3).to_string()),
        ("left_ms", view.left_ms.to_string()),
        ("expires_at", view.expires_at.to_string()),
        ("now", now.unix.to_string()),
        ("replaced", or_nil(view.replaced.as_ref().map(|id| text(id.as_bytes())))),
        ("gen", view.gen.to_string()),
        ("log_seq", view.log_seq.to_string()),
        ("log_oldest", log_oldest.to_string()),
        ("event_n", view.event_n.to_string()),
        ("acked", view.acked.to_string()),
    ]
}

/// What GRANTS shows of a user at `now`.
pub fn access_fields(record: &Record, now: Now) -> Fields {
    let grant = record.live_grant(now.mono);
    let devices: Vec<String> = record.devices.iter().map(Id::as_bytes).map(text).collect();
    vec![
        ("user", text(record.user.as_bytes())),
        ("level", or_nil(grant.map(|g| g.level).map(Level::word))),
        ("until", or_nil(grant.and_then(|g| g.until).map(|until| now.to_unix(until)))),
        ("version", or_nil(record.version)),
        ("token", u8::from(grant.is_some_and(|g| g.token.is_some())).to_string()),
        ("revoked", u8::from(record.revoked).to_string()),
        ("devices", devices.join(" ")),
    ]
}

/// An event as the entry its stream gets.
pub fn event_fields(event: &Event) -> Fields {
    let mut fields = Fields::new();
    event.fields(ROOM.as_bytes(), &mut |name, value| fields.push((name, text(value))));
    fields
}

/// A message as an entry of the log, with its number.
pub fn message_fields(message: &Message) -> Fields {
    let mut fields = vec![("n", message.seq.to_string())];
    message.fields(&mut |name, value| fields.push((name, text(value))));
    fields
}
