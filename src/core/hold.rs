//! Holds: while one exists the module trims neither the log nor the events of the room.

use super::effect::{Effect, Held, Unheld};
use super::id::Id;
use super::plan::Plan;
use super::room::{Env, Room};

/// The hold that a room puts on a log it did not write.
pub const ORPHAN: &[u8] = b"orphan";

impl Room {
    pub fn is_held(&self) -> bool {
        !self.holds.is_empty() || self.meets_entries()
    }

    pub fn holds(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let orphan = (self.meets_entries() && !self.keeps_hold(ORPHAN)).then_some(ORPHAN);
        self.holds.iter().map(Id::as_bytes).chain(orphan).collect::<Vec<_>>().into_iter()
    }

    /// Whether a write has put this hold on the room.
    pub(super) fn keeps_hold(&self, name: &[u8]) -> bool {
        self.holds.iter().any(|hold| hold.as_bytes() == name)
    }

    /// `None`: the hold is there.
    pub fn decide_hold(&self, name: &[u8], env: &Env) -> Option<Plan> {
        if self.has_hold(name) {
            return None;
        }
        let mut plan = Plan::of(self, env);
        plan.effects.push(Effect::Held(Held { name: Id::new(name) }));
        Some(plan)
    }

    /// `None`: there is no such hold.
    pub fn decide_unhold(&self, name: &[u8], env: &Env) -> Option<Plan> {
        if !self.has_hold(name) {
            return None;
        }
        let mut plan = Plan::of(self, env);
        plan.effects.push(Effect::Unheld(Unheld { name: Id::new(name), at: env.now.mono }));
        Some(plan)
    }

    fn has_hold(&self, name: &[u8]) -> bool {
        self.keeps_hold(name) || (name == ORPHAN && self.meets_entries())
    }

    /// Whether the history that has begun and is not written yet meets a log.
    fn meets_entries(&self) -> bool {
        self.begun.as_ref().and_then(|begun| begun.met).is_some_and(|met| met.first.is_some())
    }
}
