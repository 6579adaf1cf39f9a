//! Where a reader stands: whether what it has read and what this room's log holds are one history.

use super::effect::Gen;
use super::log::GENS;
use super::refusal::Refusal;
use super::room::{Env, Room};

/// A reader's position, as REPLAY gives it.
pub struct Position<'a> {
    /// `*`: the reader does not care which history.
    pub gen: &'a [u8],
    pub after: u64,
}

/// Why a reader must begin anew, told before the log is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resync {
    /// It applied messages that this history never had, or stands in one that is not known here.
    Diverged,
    /// It stands beyond the newest message.
    Future,
    /// Some messages after its position are gone.
    Trimmed,
}

impl Resync {
    pub const ALL: [Self; 3] = [Self::Trimmed, Self::Future, Self::Diverged];

    pub fn word(self) -> &'static str {
        match self {
            Self::Diverged => "diverged",
            Self::Future => "future",
            Self::Trimmed => "trimmed",
        }
    }
}

/// What is left of the log, as its stream shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// The oldest and the newest message, 0 if there is none.
    pub oldest: u64,
    pub newest: u64,
    /// `at` of the oldest.
    pub oldest_at: u64,
}

impl Edges {
    /// Up to which message to look one by one before those after `after` up to `last` are returned, in a log of so many
    /// entries whose newest message should be `current`. What is returned is always looked at; beyond it the edges and
    /// the length tell, if they fit. If not, there is a hole somewhere, or an entry that is no message: then the
    /// greatest page is looked through, and what lies beyond is seen when its page is asked for.
    pub fn look_up_to(
        &self,
        after: u64,
        last: u64,
        current: u64,
        entries: u64,
        greatest_page: u64,
    ) -> Result<u64, Resync> {
        let next = after.saturating_add(1);
        if self.oldest == 0 || self.oldest > next || self.newest < current {
            return Err(Resync::Trimmed);
        }
        let fits = entries == self.newest.saturating_sub(self.oldest).saturating_add(1);
        Ok(if fits { last } else { current.min(after.saturating_add(greatest_page)) })
    }
}

impl Room {
    /// The checks of REPLAY and SNAPSHOT: those of every session command.
    pub fn check_reader(&self, session: &[u8], epoch: u64, token: Option<&[u8]>, env: &Env) -> Result<(), Refusal> {
        self.live_session(session, epoch, token, env).map(|_| ())
    }

    /// Whether the reader's history is this one's beginning. A gen that was lost with its primary knows only the
    /// messages that reached this node: a reader beyond them applied some that are not here.
    pub fn place(&self, position: &Position) -> Result<(), Resync> {
        if !self.knows(position) {
            return Err(Resync::Diverged);
        }
        if position.after > self.log_seq() {
            return Err(Resync::Future);
        }
        Ok(())
    }

    fn knows(&self, position: &Position) -> bool {
        if position.gen == b"*" {
            return true;
        }
        let is = |gen: &Gen| gen.text().as_bytes() == position.gen;
        if is(&self.gen()) {
            return true;
        }
        self.past().iter().rev().any(|(gen, last)| is(gen) && position.after <= *last)
    }

    /// Earlier gens, whether a write has carried them or not.
    pub(super) fn past(&self) -> &[(Gen, u64)] {
        self.begun.as_ref().map_or(&self.log.past, |begun| &begun.past)
    }

    /// The earlier gens of a history that begins now and goes on from this one's messages.
    pub fn past_with_this(&self) -> Vec<(Gen, u64)> {
        let mut past = self.past().to_vec();
        if self.gen() != Gen::default() {
            past.push((self.gen(), self.log_seq()));
        }
        let extra = past.len().saturating_sub(GENS);
        past.drain(..extra);
        past
    }
}
