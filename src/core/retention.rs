//! What the policy keeps of the log, and when the rest goes.
//!
//! Rules
//! 1. A message goes as soon as `retain-count` or `retain-ms` says so; with a hold nothing goes.
//! 2. What goes is told as `Trimmed` once it is gone from the stream, so that a room never promises what is not there.
//! 3. A dedupe record ends at the later of its message's going and its window's end.

use super::dedupe::{message_key, payload_digest, Accepted};
use super::effect::{Effect, Recalled, RecordsEnded, Trimmed};
use super::log::{accepted_at, Reading};
use super::plan::Plan;
use super::replay::Edges;
use super::room::{Env, Room};

/// Messages that may be gone from the log before the room looks: each look costs a tenth of a SEND.
const UNNOTICED: u64 = 128;

/// An entry of a log the room has met, as far as a record needs it.
pub struct Found<'a> {
    pub seq: u64,
    pub user: Option<&'a [u8]>,
    pub id: Option<&'a [u8]>,
    pub payload: Option<&'a [u8]>,
    /// 0 if the entry tells none.
    pub at: u64,
}

/// When messages have been kept long enough, apart from the room they are of.
pub struct Ages {
    readings: Vec<Reading>,
    retain_ms: u64,
}

impl Ages {
    /// Until when message `seq` is kept, monotonic.
    pub fn kept_until(&self, seq: u64, at: u64, env: &Env) -> u64 {
        if self.retain_ms == 0 {
            return u64::MAX;
        }
        accepted_at(&self.readings, seq, at, env.now).saturating_add(self.retain_ms)
    }
}

impl Room {
    /// Entries the log keeps when a message is added; 0: all.
    pub(super) fn retained_on_send(&self, env: &Env) -> u64 {
        if self.is_held() {
            0
        } else {
            self.policy(env.settings).retain_count()
        }
    }

    /// Up to which message nothing is retained, seen from the stream's own edges.
    pub fn gone(&self, edges: &Edges) -> u64 {
        match edges.oldest {
            0 => self.log_seq(),
            oldest => oldest.saturating_sub(1).min(self.log_seq()),
        }
    }

    /// Whether message `seq`, being added, may have pushed out so many that the room should look.
    pub fn should_look(&self, seq: u64, retained: u64) -> bool {
        retained > 0 && seq.saturating_sub(self.log.gone) > retained.saturating_add(UNNOTICED)
    }

    /// When the oldest message has been kept long enough, monotonic.
    pub(super) fn next_retention(&self, env: &Env) -> Option<u64> {
        let retain_ms = self.policy(env.settings).retain_ms();
        if retain_ms == 0 || self.is_held() || self.log_seq() <= self.log.gone {
            return None;
        }
        let oldest = self.log.gone.saturating_add(1);
        Some(accepted_at(&self.log.readings, oldest, self.log.oldest_at, env.now).saturating_add(retain_ms))
    }

    /// What judges the age of messages.
    pub fn ages(&self, env: &Env) -> Ages {
        Ages { readings: self.log.readings.clone(), retain_ms: self.policy(env.settings).retain_ms() }
    }

    /// Whether something in the log has been kept long enough.
    pub fn is_retention_due(&self, env: &Env) -> bool {
        self.next_retention(env).is_some_and(|at| at <= env.now.mono)
    }

    /// The log's stream has gone, or another has come in its place.
    pub fn doubt_log(&mut self) {
        self.log.doubted = true;
    }

    /// Whether that has been told since the last time.
    pub fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.log.doubted)
    }

    /// Whether a dedupe record may have ended.
    pub fn is_record_due(&self, env: &Env) -> bool {
        self.rebuilding().is_none() && self.log.dedupe.next_due(self.log.gone).is_some_and(|at| at <= env.now.mono)
    }

    /// The log's edges are these now: what is gone, if the room did not know.
    pub fn decide_trimmed(&self, edges: &Edges, env: &Env) -> Option<Plan> {
        let gone = self.gone(edges);
        if gone <= self.log.gone {
            return None;
        }
        let mut plan = Plan::of(self, env);
        plan.effects.push(Effect::Trimmed(Trimmed { gone, oldest_at: edges.oldest_at, at: env.now.mono }));
        Some(plan)
    }

    /// Dedupe records whose time is over, `most` at most.
    pub fn decide_record_ends(&self, most: usize, env: &Env) -> Option<Plan> {
        let keys = self.log.dedupe.over(env.now.mono, self.log.gone, most);
        if keys.is_empty() {
            return None;
        }
        let mut plan = Plan::of(self, env);
        plan.effects.push(Effect::RecordsEnded(RecordsEnded { keys }));
        Some(plan)
    }

    /// Records that wait for their message to go need no look meanwhile; how many were set aside. Of this node only.
    pub fn park_records(&mut self, most: usize, env: &Env) -> usize {
        self.log.dedupe.park(env.now.mono, self.log.gone, most)
    }

    // ---------------------------------------------------------------- rebuilding

    /// Where rebuilding the records from a log the room has met goes on.
    pub fn rebuilding(&self) -> Option<u64> {
        self.log.rebuilding
    }

    /// The next entries of that log, and where to go on; none: it is done. A record of the room's own whose time is
    /// over gives way to the message that the log holds: it would be accepted again.
    pub fn decide_recall<'a>(&self, found: impl Iterator<Item = Found<'a>>, next: Option<u64>, env: &Env) -> Plan {
        let window_ms = self.policy(env.settings).dedup_ms();
        let record = |found: Found| {
            let (user, id, payload) = (found.user?, found.id?, found.payload?);
            Some(Accepted {
                key: message_key(user, id),
                payload: payload_digest(payload),
                seq: found.seq,
                at: found.at,
                until: env.now.to_mono(found.at).saturating_add(window_ms),
            })
        };
        let records: Vec<Accepted> = found.filter_map(record).collect();
        let is_over = |found: &&Accepted| {
            let own = self.log.dedupe.find(&found.key).filter(|own| !own.attached && own.accepted.seq != found.seq);
            own.is_some_and(|own| own.accepted.until <= env.now.mono)
        };
        let keys: Vec<_> = records.iter().filter(is_over).map(|found| found.key).collect();
        let mut plan = Plan::of(self, env);
        if !keys.is_empty() {
            plan.effects.push(Effect::RecordsEnded(RecordsEnded { keys }));
        }
        plan.effects.push(Effect::Recalled(Recalled { records, next }));
        plan
    }
}
