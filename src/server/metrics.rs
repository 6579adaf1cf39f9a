//! What happened on this node since it started (docs/operations.md): counters and distributions. Gauges are elsewhere,
//! in `gauges`; what INFO makes of all of them in `info`.
//!
//! Only what this node decided counts: a replica that applies its primary's effects counts none of them, but those it could
//! not apply.

use std::time::Duration;

use super::log;
use super::tally::{Counter, Distribution};
use crate::core::absence::Absence;
use crate::core::effect::{Effect, Renewed};
use crate::core::lease::Reason;
use crate::core::plan::Plan;
use crate::core::refusal::{Conflict, Refusal};
use crate::core::replay::Resync;
use crate::core::room::Env;

pub struct Counters {
    pub opened: Counter,
    pub renewed: Counter,
    pub duplicate: Counter,
    pub false_offline: Counter,
    pub events_lost: Counter,
    pub reap_slices: Counter,
    pub pauses_honoured: Counter,
    pub messages_accepted: Counter,
    pub messages_duplicate: Counter,
    pub replays: Counter,
    pub trims_skipped_by_hold: Counter,
    pub effects_not_applied: Counter,
    /// In the order of [`Resync::ALL`].
    pub resyncs: [Counter; Resync::ALL.len()],
    /// In the order of [`Reason::ALL`].
    pub ended: [Counter; Reason::ALL.len()],
    /// In the order of [`Refusal::KINDS`].
    pub rejected: [Counter; Refusal::KINDS.len()],
}

pub static COUNTERS: Counters = Counters {
    opened: Counter::new(),
    renewed: Counter::new(),
    duplicate: Counter::new(),
    false_offline: Counter::new(),
    events_lost: Counter::new(),
    reap_slices: Counter::new(),
    pauses_honoured: Counter::new(),
    messages_accepted: Counter::new(),
    messages_duplicate: Counter::new(),
    replays: Counter::new(),
    trims_skipped_by_hold: Counter::new(),
    effects_not_applied: Counter::new(),
    resyncs: [const { Counter::new() }; Resync::ALL.len()],
    ended: [const { Counter::new() }; Reason::ALL.len()],
    rejected: [const { Counter::new() }; Refusal::KINDS.len()],
};

pub struct Distributions {
    /// How late leases that time ended were removed.
    pub expiry_age_ms: Distribution,
    /// Between heartbeats of a session, its OPEN being the first.
    pub heartbeat_gap_ms: Distribution,
    /// OBSERVED before this node's time: a slow client clock, and the way the report took.
    pub skew_behind_ms: Distribution,
    /// OBSERVED after this node's time: a fast client clock.
    pub skew_ahead_ms: Distribution,
    pub slice_us: Distribution,
    /// A SEND or POST that was accepted or repeated, from its arguments to its reply.
    pub send_us: Distribution,
    pub replay_us: Distribution,
    /// From a holder's last end to its next OPEN, by the reason of that end, in the order of [`Reason::ALL`].
    pub reconnect_ms: [Distribution; Reason::ALL.len()],
}

pub static DISTRIBUTIONS: Distributions = Distributions {
    expiry_age_ms: Distribution::new(),
    heartbeat_gap_ms: Distribution::new(),
    skew_behind_ms: Distribution::new(),
    skew_ahead_ms: Distribution::new(),
    slice_us: Distribution::new(),
    send_us: Distribution::new(),
    replay_us: Distribution::new(),
    reconnect_ms: [const { Distribution::new() }; Reason::ALL.len()],
};

/// A write has been carried out.
pub fn committed(plan: &Plan, env: &Env) {
    for effect in &plan.effects {
        match effect {
            Effect::Opened(_) => COUNTERS.opened.add(1),
            Effect::Renewed(_, heartbeat) => renewed(heartbeat),
            Effect::Ended(ended) => {
                COUNTERS.ended[place(ended.reason)].add(1);
                if let Some(closing) = &ended.closing {
                    skew(closing.observed_at, closing.at);
                }
            }
            _ => {}
        }
    }
    if plan.message.is_some() {
        COUNTERS.messages_accepted.add(1);
    }
    for age_ms in plan.expiry_ages(env.now) {
        DISTRIBUTIONS.expiry_age_ms.record(age_ms);
    }
}

/// A heartbeat was accepted.
pub fn renewed(heartbeat: &Renewed) {
    COUNTERS.renewed.add(1);
    skew(heartbeat.report.as_ref().and_then(|report| report.observed_at), heartbeat.at);
}

/// An accepted heartbeat came so many ms after the one before.
pub fn heartbeat_gap(gap_ms: u64) {
    DISTRIBUTIONS.heartbeat_gap_ms.record(gap_ms);
}

fn skew(observed_at: Option<u64>, at: u64) {
    let Some(observed_at) = observed_at else { return };
    if observed_at > at {
        DISTRIBUTIONS.skew_ahead_ms.record(observed_at - at);
    } else {
        DISTRIBUTIONS.skew_behind_ms.record(at - observed_at);
    }
}

/// A holder that had been away has opened a session.
pub fn reconnected(absence: Absence) {
    DISTRIBUTIONS.reconnect_ms[place(absence.reason)].record(absence.ms);
    if absence.is_false_offline() {
        COUNTERS.false_offline.add(1);
    }
}

/// Place in [`Reason::ALL`], whose codes count from 1.
fn place(reason: Reason) -> usize {
    reason as usize - 1
}

/// A command, or an item of one, was refused.
pub fn rejected(refusal: &Refusal) {
    if let Some(kind) = refusal.kind() {
        COUNTERS.rejected[kind].add(1);
    }
}

pub fn duplicate() {
    COUNTERS.duplicate.add(1);
}

/// A message was accepted before.
pub fn message_repeated() {
    COUNTERS.messages_duplicate.add(1);
}

/// A SEND or POST took so long.
pub fn sent(took: Duration) {
    DISTRIBUTIONS.send_us.record(took.as_micros() as u64);
}

/// A REPLAY was answered.
pub fn replayed(resync: Option<Resync>, took: Duration) {
    match resync.and_then(|resync| Resync::ALL.iter().position(|known| *known == resync)) {
        Some(place) => COUNTERS.resyncs[place].add(1),
        None => COUNTERS.replays.add(1),
    }
    DISTRIBUTIONS.replay_us.record(took.as_micros() as u64);
}

/// A hold kept what the policy would not.
pub fn trim_skipped() {
    COUNTERS.trims_skipped_by_hold.add(1);
}

/// Events that no stream took. The log tells of the first; from then on the counter does.
pub fn events_lost(lost: u64) {
    if lost > 0 && COUNTERS.events_lost.get() == 0 {
        log::warning(
            "an event stream is not what its room wrote: events are lost, and counted in lease_events_lost. OPEN there \
             answers LOGSTATE; rename the stream away",
        );
    }
    COUNTERS.events_lost.add(lost);
}

/// Messages refused because their id was used for another payload.
pub fn messages_conflicting() -> u64 {
    let kind = Refusal::Conflict(Conflict::Message).kind();
    kind.map_or(0, |kind| COUNTERS.rejected[kind].get())
}

/// The reaper's timer has worked for so long.
pub fn slice(took: Duration) {
    COUNTERS.reap_slices.add(1);
    DISTRIBUTIONS.slice_us.record(took.as_micros() as u64);
}

pub fn pause_honoured() {
    COUNTERS.pauses_honoured.add(1);
}
