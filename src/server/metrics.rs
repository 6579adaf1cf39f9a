//! What happened on this node since it started (docs/operations.md): counters and distributions. Gauges are elsewhere,
//! in `gauges`; what INFO makes of all of them in `info`.
//!
//! Only what this node decided counts: a replica that applies its primary's effects counts nothing.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::core::absence::Absence;
use crate::core::effect::{Effect, Renewed};
use crate::core::lease::Reason;
use crate::core::plan::Plan;
use crate::core::refusal::Refusal;
use crate::core::room::Env;

/// Only the main thread counts, so loading and storing is enough: no locked instruction on the hot path.
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    fn add(&self, n: u64) {
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub struct Counters {
    pub opened: Counter,
    pub renewed: Counter,
    pub duplicate: Counter,
    pub false_offline: Counter,
    pub events_lost: Counter,
    pub reap_slices: Counter,
    pub pauses_honoured: Counter,
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
    ended: [const { Counter::new() }; Reason::ALL.len()],
    rejected: [const { Counter::new() }; Refusal::KINDS.len()],
};

/// Values above this, 49 days as ms, share the last bucket; the maximum is exact whatever it is.
const HIGHEST: u64 = 1 << 32;
/// Quantiles are within one per cent of a value that was measured.
const DIGITS: u8 = 2;

pub struct Distribution {
    histogram: Histogram<u64>,
    max: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, HIGHEST, DIGITS).expect("the bounds are constants");
        Self { histogram, max: 0 }
    }
}

impl Distribution {
    fn record(&mut self, value: u64) {
        self.histogram.saturating_record(value);
        self.max = self.max.max(value);
    }

    /// 0 while nothing has been measured.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).min(self.max)
    }

    pub fn max(&self) -> u64 {
        self.max
    }
}

#[derive(Default)]
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
    /// From a holder's last end to its next OPEN, by the reason of that end, in the order of [`Reason::ALL`].
    pub reconnect_ms: [Distribution; Reason::ALL.len()],
}

thread_local! {
    /// Never dropped: a destructor would keep the library from being unloaded.
    static DISTRIBUTIONS: RefCell<ManuallyDrop<Distributions>> = RefCell::default();
}

/// Lends the distributions to `look`, which must not measure anything.
pub fn with_distributions<T>(look: impl FnOnce(&Distributions) -> T) -> T {
    DISTRIBUTIONS.with_borrow(|all| look(all))
}

fn measure(record: impl FnOnce(&mut Distributions)) {
    DISTRIBUTIONS.with_borrow_mut(|all| record(all));
}

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
    for age_ms in plan.expiry_ages(env.now) {
        measure(|all| all.expiry_age_ms.record(age_ms));
    }
}

/// A heartbeat was accepted.
pub fn renewed(heartbeat: &Renewed) {
    COUNTERS.renewed.add(1);
    skew(heartbeat.report.as_ref().and_then(|report| report.observed_at), heartbeat.at);
}

/// An accepted heartbeat came so many ms after the one before.
pub fn heartbeat_gap(gap_ms: u64) {
    measure(|all| all.heartbeat_gap_ms.record(gap_ms));
}

fn skew(observed_at: Option<u64>, at: u64) {
    let Some(observed_at) = observed_at else { return };
    measure(|all| {
        if observed_at > at {
            all.skew_ahead_ms.record(observed_at - at);
        } else {
            all.skew_behind_ms.record(at - observed_at);
        }
    });
}

/// A holder that had been away has opened a session.
pub fn reconnected(absence: Absence) {
    measure(|all| all.reconnect_ms[place(absence.reason)].record(absence.ms));
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

pub fn events_lost(lost: u64) {
    COUNTERS.events_lost.add(lost);
}

/// The reaper's timer has worked for so long.
pub fn slice(took: Duration) {
    COUNTERS.reap_slices.add(1);
    measure(|all| all.slice_us.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX)));
}

pub fn pause_honoured() {
    COUNTERS.pauses_honoured.add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_close_and_its_maximum_exact() {
        let mut distribution = Distribution::default();
        assert_eq!((distribution.quantile(0.99), distribution.max()), (0, 0));
        (0..=10_000).for_each(|value| distribution.record(value));
        assert!((5_000..=5_050).contains(&distribution.quantile(0.5)));
        assert!((9_900..=9_999).contains(&distribution.quantile(0.99)));
        assert_eq!(distribution.quantile(1.0), 10_000);
        distribution.record(u64::MAX);
        assert_eq!(distribution.max(), u64::MAX);
    }
}
