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
use super::room::{Env, Gauges, Room};

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
        let (leases, users) = self.count_overdue(mono);
        ((self.deadlines.len() as u64).saturating_sub(leases), u64::from(self.users.present()).saturating_sub(users))
    }

    /// What the gauges still hold and no read shows any more: leases, tombstones and dedupe records whose time is over,
    /// and users that have no other lease.
    pub fn lapsed(&mut self, mono: u64) -> Gauges {
        let (leases, users) = self.count_overdue(mono);
        let tombstones = self.tombstones.due(mono, usize::MAX).len() as u64;
        let dedupe_records = self.log.dedupe.over(mono, self.log.gone, usize::MAX).len() as u64;
        Gauges { leases, users, tombstones, dedupe_records, orphans: 0 }
    }

    /// Overdue leases, and users all of whose leases are.
    fn count_overdue(&mut self, mono: u64) -> (u64, u64) {
        let overdue = self.overdue(mono);
        let mut users = 0u64;
        // Of users with several leases only: a million overdue leases of a user each should cost no table.
        let mut seen = hashbrown::HashMap::<u32, u32>::new();
        for lease in overdue.iter().filter_map(|slot| self.leases.get(*slot)) {
            let all = self.user_leases(lease);
            let seen = if all == 1 { &mut 0 } else { seen.entry(lease.user).or_default() };
            *seen = seen.saturating_add(1);
            users = users.saturating_add(u64::from(*seen == all));
        }
        (overdue.len() as u64, users)
    }

    /// Unix ms at which a lease that is not live ended, or was due to.
    pub(super) fn ended_at(&self, lease: &Lease, env: &Env) -> u64 {
        lease.deadline().map_or(lease.end, |deadline| env.now.to_unix(deadline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::effect::Opened;
    use crate::core::policy::Settings;
    use crate::core::time::Now;

    fn open(room: &mut Room, session: &str, user: &str, deadline: u64) {
        room.apply(&Effect::Opened(Box::new(Opened {
            session: Id::new(session.as_bytes()),
            user: Id::new(user.as_bytes()),
            device: Id::new(session.as_bytes()),
            epoch: 1,
            ttl_ms: 10,
            deadline,
            at: 0,
            until: None,
            token: None,
            meta: None,
            replaced: None,
        })));
    }

    fn lapsed(room: &mut Room, mono: u64) -> (u64, u64, u64) {
        let Gauges { leases, users, tombstones, .. } = room.lapsed(mono);
        (leases, users, tombstones)
    }

    #[test]
    fn lapsed_leases_take_a_user_along_once_none_is_left() {
        let mut room = Room::default();
        for (session, user, deadline) in [("a", "u", 10), ("b", "u", 20), ("c", "v", 20), ("d", "w", 30)] {
            open(&mut room, session, user, deadline);
        }
        assert_eq!((lapsed(&mut room, 9), room.count(9)), ((0, 0, 0), (4, 3)));
        assert_eq!((lapsed(&mut room, 10), room.count(10)), ((1, 0, 0), (3, 3)));
        assert_eq!((lapsed(&mut room, 20), room.count(20)), ((3, 2, 0), (1, 1)));
    }

    #[test]
    fn a_tombstone_lapses_and_its_age_is_told_when_time_ended_it() {
        let settings = Settings::default();
        let mut room = Room::default();
        open(&mut room, "a", "u", 10);
        let env = Env { now: Now { mono: 17, unix: 1017 }, settings: &settings };
        let plan = room.decide_expiry(&env).unwrap();
        assert_eq!(plan.expiry_ages(env.now).collect::<Vec<_>>(), [7]);
        plan.effects.iter().for_each(|effect| room.apply(effect));
        let (until, _) = room.tombstones.first().unwrap();
        assert_eq!((lapsed(&mut room, until - 1), lapsed(&mut room, until)), ((0, 0, 0), (0, 0, 1)));

        open(&mut room, "b", "u", 40);
        let (plan, _) = room.decide_kick(Some(b"u"), None, &env);
        assert_eq!(plan.expiry_ages(env.now).count(), 0);
    }
}
