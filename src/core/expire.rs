//! Time becomes state: overdue leases end, tombstones are forgotten. Only a writable primary comes here.
//!
//! Rules
//! 1. Every expiry is a step of its own, by deadline, then in the order of opening.
//! 2. The reason is fixed by the deadline: expired, or left for one that lingered.
//! 3. Each lease is looked at again when its turn comes; what has been renewed since is put back.

use super::effect::{Effect, Forgot};
use super::id::Id;
use super::lease::Lease;
use super::plan::Plan;
use super::room::{Env, Room};

impl Room {
    /// The next lease that time has ended, and its removal. Bounds that prove too early are put right on the way.
    pub fn decide_expiry(&mut self, env: &Env) -> Option<Plan> {
        loop {
            let (bound, slot) = self.deadlines.first().filter(|(bound, _)| *bound <= env.now.mono)?;
            let lease = self.leases.get(slot)?;
            let deadline = lease.deadline()?;
            if bound < deadline {
                let place = lease.place;
                self.deadlines.raise(place, deadline, &mut self.leases);
                continue;
            }
            let mut plan = Plan::of(self, env);
            self.plan_expiry(&mut plan, slot, lease, env);
            return Some(plan);
        }
    }

    /// Up to `most` tombstones whose window is over.
    pub fn decide_forgetting(&self, most: usize, env: &Env) -> Option<Plan> {
        let due = self.tombstones.due(env.now.mono, most);
        let records = due.iter().filter_map(|slot| Some((*slot, self.leases.get(*slot)?)));
        let sessions: Vec<Id> = records.map(|(slot, lease)| self.session_id(slot, lease)).collect();
        if sessions.is_empty() {
            return None;
        }
        let mut plan = Plan::of(self, env);
        plan.effects.push(Effect::Forgot(Forgot { sessions }));
        Some(plan)
    }

    /// Slots of the leases that are past their deadline and that nothing has removed. Early bounds met on the way are
    /// put right, so that counting again costs nothing for them: the queue is an index, not state.
    pub(super) fn overdue(&mut self, mono: u64) -> Vec<u32> {
        let mut overdue = Vec::new();
        for slot in self.deadlines.due(mono, usize::MAX) {
            let Some(lease) = self.leases.get(slot) else { continue };
            let place = lease.place;
            match lease.deadline() {
                Some(deadline) if deadline > mono => self.deadlines.raise(place, deadline, &mut self.leases),
                _ => overdue.push(slot),
            }
        }
        overdue
    }

    /// Live leases, and users that have one; the work grows with what is overdue, not with the room.
    pub fn count(&mut self, mono: u64) -> (u64, u64) {
        let overdue = self.overdue(mono);
        let mut gone = hashbrown::HashMap::<u32, u32>::new();
        for lease in overdue.iter().filter_map(|slot| self.leases.get(*slot)) {
            let of_user = gone.entry(lease.user).or_default();
            *of_user = of_user.saturating_add(1);
        }
        let all_gone = |(user, gone): (&u32, &u32)| self.users.get(*user).is_some_and(|u| u.leases == *gone);
        let users_gone = gone.iter().filter(|g| all_gone(*g)).count() as u64;
        let leases = (self.deadlines.len() as u64).saturating_sub(overdue.len() as u64);
        (leases, u64::from(self.users.present()).saturating_sub(users_gone))
    }

    /// Unix ms at which a lease that is not live ended, or was due to.
    pub(super) fn ended_at(&self, lease: &Lease, env: &Env) -> u64 {
        lease.deadline().map_or(lease.end, |deadline| env.now.to_unix(deadline))
    }
}
