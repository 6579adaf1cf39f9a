//! What a room knows of its message log. The entries themselves are in a stream next to it.
//!
//! Rules
//! 1. Message n of a room is entry `n-0`; a number is never given twice, whatever becomes of the stream.
//! 2. `gone` is a lower bound: no message up to it is retained. Trimming is noticed late, never early.
//! 3. The last gens are kept with the newest message each of them ever had: a reader of one of them knows whether it
//!    saw what this history has.
//! 4. A message's age is measured on the monotonic clock, though its entry tells the wall clock: `readings` say which
//!    moment stood for which `at`, one reading for all messages between two steps of the wall clock. While `at` stands
//!    still, since the wall clock was set back, a second's messages share one: they are kept up to that much longer.

use super::dedupe::{Dedupe, Known};
use super::effect::{Gen, MetLog, Recalled, Sent, Trimmed};
use super::room::Mover;
use super::time::Now;

/// Earlier gens that a room keeps.
pub const GENS: usize = 64;

/// How long one reading serves while `at` stands still.
const STANDING_MS: u64 = 1000;

/// From this message on, `at` and the monotonic clock ran in step so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub seq: u64,
    pub at: u64,
    pub mono: u64,
}

impl Reading {
    fn to_mono(self, at: u64) -> u64 {
        Now { mono: self.mono, unix: self.at }.to_mono(at)
    }
}

/// The monotonic moment at which message `seq` was accepted, as far as is known.
pub(super) fn accepted_at(readings: &[Reading], seq: u64, at: u64, now: Now) -> u64 {
    let after = readings.partition_point(|reading| reading.seq <= seq);
    let reading = after.checked_sub(1).and_then(|place| readings.get(place));
    let told = reading.map_or_else(|| now.to_mono(at), |reading| reading.to_mono(at));
    // No message is younger than a later one: a load by a clock that was set back puts what it finds into the future.
    readings.get(after).map_or(told, |later| told.min(later.mono))
}

#[derive(Clone, Default)]
pub(super) struct Log {
    /// The newest message.
    pub seq: u64,
    pub gone: u64,
    /// `at` of the message after `gone`, if there is one; unix ms, `MAX` if it tells none.
    pub oldest_at: u64,
    /// `at` of the newest message: it never decreases in a log.
    pub last_at: u64,
    pub readings: Vec<Reading>,
    /// Earlier gens and the newest message of each, oldest first.
    pub past: Vec<(Gen, u64)>,
    pub dedupe: Dedupe,
    /// Somebody has taken the stream away: the room should look. Of this node only.
    pub doubted: bool,
    /// The next entry to make a record of, while records are rebuilt from a log the room has met.
    pub rebuilding: Option<u64>,
}

impl Log {
    /// Whether the log may hold a message.
    fn retains(&self) -> bool {
        self.seq > self.gone
    }

    pub fn apply_sent(&mut self, sent: &Sent) {
        let accepted = sent.accepted;
        if accepted.seq <= self.seq {
            return;
        }
        if !self.retains() {
            self.gone = accepted.seq.saturating_sub(1);
            self.oldest_at = accepted.at;
        }
        self.seq = accepted.seq;
        let slack_ms = if accepted.at == self.last_at { STANDING_MS } else { 0 };
        let told = self.readings.last().map(|reading| reading.to_mono(accepted.at));
        if !told.is_some_and(|told| (sent.mono..=sent.mono.saturating_add(slack_ms)).contains(&told)) {
            let mono = sent.mono.saturating_add(if told.is_some() { slack_ms } else { 0 });
            self.readings.iter_mut().rev().take_while(|earlier| earlier.mono > mono).for_each(|r| r.mono = mono);
            self.readings.push(Reading { seq: accepted.seq, at: accepted.at, mono });
        }
        self.last_at = self.last_at.max(accepted.at);
        self.dedupe.put(&Known { accepted, attached: true });
    }

    pub fn apply_trimmed(&mut self, trimmed: &Trimmed) {
        if trimmed.gone <= self.gone {
            return;
        }
        self.gone = trimmed.gone.min(self.seq);
        self.oldest_at = trimmed.oldest_at;
        let gone = self.gone;
        let first_needed = self.readings.iter().rposition(|reading| reading.seq <= gone.saturating_add(1));
        self.readings.drain(..first_needed.unwrap_or(0));
    }

    /// The room is under a name whose log it did not write. The counter is another matter: it goes on with the write
    /// that carries the new history.
    pub fn meet(&mut self, met: &MetLog) {
        self.dedupe.detach();
        self.readings = Vec::new();
        (self.gone, self.oldest_at) = match met.first {
            Some((first, at)) => (first.saturating_sub(1), at),
            None => (self.seq.max(met.seq), 0),
        };
        self.rebuilding = met.first.map(|(first, _)| first);
    }

    pub fn apply_recalled(&mut self, recalled: &Recalled) {
        // A message it never numbered would make the room one that nobody can load.
        let newest = self.seq;
        for accepted in recalled.records.iter().filter(|found| (1..=newest).contains(&found.seq)) {
            self.last_at = self.last_at.max(accepted.at);
            self.dedupe.recall(accepted);
        }
        self.rebuilding = recalled.next;
    }

    pub fn move_buffers(&mut self, mover: &impl Mover) {
        self.dedupe.move_buffers(mover);
    }

    pub fn heap_bytes(&self) -> usize {
        let readings = self.readings.capacity().saturating_mul(size_of::<Reading>());
        let past = self.past.capacity().saturating_mul(size_of::<(Gen, u64)>());
        self.dedupe.heap_bytes().saturating_add(readings).saturating_add(past)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dedupe::{message_key, payload_digest, Accepted};
    use crate::core::time::MAX;

    fn sent(log: &mut Log, seq: u64, at: u64, mono: u64) {
        let key = message_key(b"u", &seq.to_be_bytes());
        let accepted = Accepted { key, payload: payload_digest(b"p"), seq, at, until: 0 };
        log.apply_sent(&Sent { accepted, mono });
    }

    /// What a load by a wall clock that was set back leaves: readings of moments that have not come yet.
    #[test]
    fn no_message_is_younger_than_a_later_one() {
        let mut log = Log::default();
        for (seq, at, mono) in [(1, 1_000, 900_000), (2, 50_000, 940_000), (3, 60_000, 20), (4, 60_030, 50)] {
            sent(&mut log, seq, at, mono);
        }
        let now = Now { mono: 60, unix: 60_040 };
        let ages = [(1, 1_000), (2, 50_000), (3, 60_000), (4, 60_030)]
            .map(|(seq, at)| accepted_at(&log.readings, seq, at, now));
        assert_eq!(ages, [20, 20, 20, 50]);
    }

    /// Of a log that the room met: what it added to it is all it knows.
    #[test]
    fn a_message_that_tells_no_time_is_as_old_as_the_next_reading() {
        let mut log = Log::default();
        sent(&mut log, 5, 1_800, 800);
        let ages = [4, 5].map(|seq| accepted_at(&log.readings, seq, MAX, Now { mono: 900, unix: 1_900 }));
        assert_eq!(ages[0], 800);
        assert!(ages[1] > MAX / 2);
    }
}
