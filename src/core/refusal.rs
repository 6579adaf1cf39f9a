//! Why a command is refused. Each code is an instruction to the caller (docs/errors.md); the text after the
//! colon is for people and never repeats an argument (invariant 10).

use std::fmt;

/// A refusal has no effect at all (invariant 8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Bad syntax or a value out of range.
    Bad(&'static str),
    /// Redis's own: the key holds something else.
    WrongType,
    /// Redis's own: this node may not decide.
    ReadOnly,
    /// Redis's own: memory is exhausted.
    OutOfMemory,
    Stale(Stale),
    Denied(Denied),
    /// The holder has a live lease for so many ms.
    Held(u64),
    Conflict(Conflict),
    Limit(Limit),
    /// The event stream or the log cannot take the entry.
    LogState,
    /// The room's slot is on its way to another node, or the room is still learning what a log holds.
    TryAgain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    Unknown,
    Expired,
    Left,
    Kicked,
    Revoked,
    /// With the holder's highest epoch.
    Superseded(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    NoGrant,
    Revoked,
    ReadOnly,
    Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    Session,
    Message,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Leases,
    Id,
    Meta,
    Payload,
    Items,
    Exhausted,
}

impl Stale {
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::Left => "left",
            Self::Kicked => "kicked",
            Self::Revoked => "revoked",
            Self::Superseded(_) => "superseded",
        }
    }
}

impl Denied {
    pub fn word(self) -> &'static str {
        match self {
            Self::NoGrant => "nogrant",
            Self::Revoked => "revoked",
            Self::ReadOnly => "readonly",
            Self::Token => "token",
        }
    }
}

impl Conflict {
    pub fn word(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Message => "message",
        }
    }
}

impl Limit {
    pub fn word(self) -> &'static str {
        match self {
            Self::Leases => "leases",
            Self::Id => "id",
            Self::Meta => "meta",
            Self::Payload => "payload",
            Self::Items => "items",
            Self::Exhausted => "exhausted",
        }
    }
}

impl Refusal {
    /// What session commands answer where there is no such room or session.
    pub const UNKNOWN_SESSION: Self = Self::Stale(Stale::Unknown);

    /// Of a caller that gives seconds, as often as not.
    pub const UNTIL_HAS_PASSED: Self = Self::Bad("UNTIL has passed; it is unix time in ms");

    /// One of every kind: numbers and sentences make none.
    pub const KINDS: [Self; 25] = [
        Self::Bad(""),
        Self::WrongType,
        Self::ReadOnly,
        Self::OutOfMemory,
        Self::Stale(Stale::Unknown),
        Self::Stale(Stale::Expired),
        Self::Stale(Stale::Left),
        Self::Stale(Stale::Kicked),
        Self::Stale(Stale::Revoked),
        Self::Stale(Stale::Superseded(0)),
        Self::Denied(Denied::NoGrant),
        Self::Denied(Denied::Revoked),
        Self::Denied(Denied::ReadOnly),
        Self::Denied(Denied::Token),
        Self::Held(0),
        Self::Conflict(Conflict::Session),
        Self::Conflict(Conflict::Message),
        Self::Limit(Limit::Leases),
        Self::Limit(Limit::Id),
        Self::Limit(Limit::Meta),
        Self::Limit(Limit::Payload),
        Self::Limit(Limit::Items),
        Self::Limit(Limit::Exhausted),
        Self::LogState,
        Self::TryAgain,
    ];

    /// Its place among [`Refusal::KINDS`].
    pub fn kind(&self) -> Option<usize> {
        Self::KINDS.iter().position(|kind| kind.code() == self.code() && kind.word() == self.word())
    }

    /// The first word of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Bad(_) => "ERR",
            Self::WrongType => "WRONGTYPE",
            Self::ReadOnly => "READONLY",
            Self::OutOfMemory => "OOM",
            Self::Stale(_) => "STALE",
            Self::Denied(_) => "DENIED",
            Self::Held(_) => "HELD",
            Self::Conflict(_) => "CONFLICT",
            Self::Limit(_) => "LIMIT",
            Self::LogState => "LOGSTATE",
            Self::TryAgain => "TRYAGAIN",
        }
    }

    /// The second word of the error, where the code has one.
    pub fn word(&self) -> Option<&'static str> {
        match self {
            Self::Stale(s) => Some(s.word()),
            Self::Denied(d) => Some(d.word()),
            Self::Conflict(c) => Some(c.word()),
            Self::Limit(l) => Some(l.word()),
            _ => None,
        }
    }

    fn number(&self) -> Option<u64> {
        match self {
            Self::Stale(Stale::Superseded(epoch)) => Some(*epoch),
            Self::Held(ms) => Some(*ms),
            _ => None,
        }
    }

    fn sentence(&self) -> &'static str {
        match self {
            Self::Bad(text) => text,
            Self::WrongType => "Operation against a key holding the wrong kind of value",
            Self::ReadOnly => "You can't write against a read only replica.",
            Self::OutOfMemory => "command not allowed when used memory > 'maxmemory'.",
            Self::Stale(Stale::Unknown) => "the room knows no such session and epoch; open a new one",
            Self::Stale(Stale::Expired) => "the lease ran out; open a new session",
            Self::Stale(Stale::Left) => "the session has left; stop, unless its user asks for a new one",
            Self::Stale(Stale::Kicked) => "the session was kicked; stop, unless its user asks for a new one",
            Self::Stale(Stale::Revoked) => "the session ended when access was revoked; close the connection",
            Self::Stale(Stale::Superseded(_)) => {
                "the holder's newest session has that epoch; stop, unless its user asks for a new one"
            }
            Self::Denied(Denied::NoGrant) => "the user has no grant in this room; LEASE.GRANT gives one",
            Self::Denied(Denied::Revoked) => "access was revoked; LEASE.GRANT gives it back",
            Self::Denied(Denied::ReadOnly) => "the user's grant is for reading; LEASE.GRANT with WRITE lets it send",
            Self::Denied(Denied::Token) => "a token is needed, or it is not the right one; close the connection",
            Self::Held(_) => "the holder has a live lease for so many ms; wait, or open without NX",
            Self::Conflict(Conflict::Session) => {
                "this session id belongs to another holder; give every session an id of its own"
            }
            Self::Conflict(Conflict::Message) => {
                "this message id was used for another payload; give every message an id of its own"
            }
            Self::Limit(Limit::Leases) => "the room has all the leases it may have; try later, or raise max-leases",
            Self::Limit(Limit::Id) => "an id is longer than max-id-bytes; shorten it, or raise the setting",
            Self::Limit(Limit::Meta) => "the meta is longer than max-meta-bytes; shorten it, or raise the setting",
            Self::Limit(Limit::Payload) => {
                "the payload is longer than max-payload-bytes; shorten it, or raise the setting"
            }
            Self::Limit(Limit::Items) => {
                "more items than one command or one user may have; split the batch, or name devices again"
            }
            Self::Limit(Limit::Exhausted) => "a counter of this room is at its end; go on in another room",
            Self::LogState => "a stream is not what the room wrote; rename it away and the room goes on",
            Self::TryAgain => "the slot is moving, or dedupe records are being rebuilt; send it again in some ms",
        }
    }
}

impl fmt::Display for Refusal {
    /// `<CODE>[ <word>][ <number>]: sentence`; Redis's own codes are written as Redis does, without the colon.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())?;
        if matches!(self, Self::Bad(_) | Self::WrongType | Self::ReadOnly | Self::OutOfMemory) {
            return write!(f, " {}", self.sentence());
        }
        if let Some(word) = self.word() {
            write!(f, " {word}")?;
        }
        if let Some(number) = self.number() {
            write!(f, " {number}")?;
        }
        write!(f, ": {}", self.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_follow_section_5() {
        let text = |r: Refusal| r.to_string();
        assert!(text(Refusal::Stale(Stale::Superseded(7))).starts_with("STALE superseded 7: "));
        assert!(text(Refusal::Held(12000)).starts_with("HELD 12000: "));
        assert!(text(Refusal::LogState).starts_with("LOGSTATE: "));
        assert_eq!(text(Refusal::Bad("syntax error")), "ERR syntax error");
    }

    #[test]
    fn each_instruction_tells_the_cause_and_what_to_do() {
        for text in Refusal::KINDS.map(|kind| kind.to_string()) {
            let sentence = text.split_once(": ").map(|(_, sentence)| sentence);
            assert!(sentence.is_none_or(|sentence| sentence.contains("; ")), "{text}");
        }
    }

    #[test]
    fn kinds_are_complete_and_each_is_its_own() {
        // Names every variant, so that a new one is missed here first.
        let of_its_code = |refusal: &Refusal| match refusal {
            Refusal::Bad(_) | Refusal::WrongType | Refusal::ReadOnly | Refusal::OutOfMemory => 1,
            Refusal::Stale(
                Stale::Unknown | Stale::Expired | Stale::Left | Stale::Kicked | Stale::Revoked | Stale::Superseded(_),
            ) => 6,
            Refusal::Denied(Denied::NoGrant | Denied::Revoked | Denied::ReadOnly | Denied::Token) => 4,
            Refusal::Conflict(Conflict::Session | Conflict::Message) => 2,
            Refusal::Limit(
                Limit::Leases | Limit::Id | Limit::Meta | Limit::Payload | Limit::Items | Limit::Exhausted,
            ) => 6,
            Refusal::Held(_) | Refusal::LogState | Refusal::TryAgain => 1,
        };
        for (place, refusal) in Refusal::KINDS.iter().enumerate() {
            assert_eq!(refusal.kind(), Some(place));
            let listed = Refusal::KINDS.iter().filter(|kind| kind.code() == refusal.code());
            assert_eq!(listed.count(), of_its_code(refusal));
        }
    }
}
