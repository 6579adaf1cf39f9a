//! What happened on this node since it started (contract section 8). Gauges are elsewhere, in `gauges`.

use std::cell::Cell;
use std::time::Duration;

use crate::core::effect::Effect;
use crate::core::lease::Reason;
use crate::core::refusal::Refusal;
use crate::core::room::Env;

/// Counters of one kind each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub opened: u64,
    pub renewed: u64,
    pub duplicate: u64,
    /// In the order of [`Reason::ALL`].
    pub ended: [u64; Reason::ALL.len()],
    pub events_lost: u64,
    pub reap_slices: u64,
    pub pauses_honoured: u64,
}

thread_local! {
    static COUNTERS: Cell<Counters> = const { Cell::new(Counters {
        opened: 0, renewed: 0, duplicate: 0, ended: [0; Reason::ALL.len()], events_lost: 0, reap_slices: 0, pauses_honoured: 0,
    }) };
}

fn change(change: impl FnOnce(&mut Counters)) {
    COUNTERS.with(|cell| {
        let mut counters = cell.get();
        change(&mut counters);
        cell.set(counters);
    });
}

pub fn counters() -> Counters {
    COUNTERS.get()
}

/// What a write did.
pub fn count(effects: &[Effect], _env: &Env) {
    for effect in effects {
        match effect {
            Effect::Opened(_) => change(|c| c.opened += 1),
            Effect::Renewed(..) => change(|c| c.renewed += 1),
            Effect::Ended(ended) => change(|c| {
                if let Some(of_reason) = c.ended.get_mut(ended.reason as usize - 1) {
                    *of_reason += 1;
                }
            }),
            _ => {}
        }
    }
}

/// A heartbeat, so many ms after the one before.
pub fn renewed(_gap_ms: u64) {
    change(|c| c.renewed += 1);
}

/// A command or an item of one was refused.
pub fn rejected(_refusal: &Refusal) {}

pub fn duplicate() {
    change(|c| c.duplicate += 1);
}

pub fn events_lost(lost: u64) {
    change(|c| c.events_lost += lost);
}

pub fn slice(_took: Duration) {
    change(|c| c.reap_slices += 1);
}

pub fn pause_honoured() {
    change(|c| c.pauses_honoured += 1);
}
