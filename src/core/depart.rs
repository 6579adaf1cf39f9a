//! LEAVE and KICK: a lease ends before its time.
//!
//! Rules
//! 1. LEAVE is decided by session and epoch alone and never fails: what is not live any more is `gone`.
//! 2. LINGER brings the deadline forward, the first time only; a lingering lease still counts as present.
//! 3. KICK is one step for all it ends; what is overdue is left to the reaper.

use super::effect::{Effect, Lingered};
use super::lease::{Lease, Phase, Reason};
use super::plan::{Plan, Removal};
use super::refusal::Refusal;
use super::room::{Env, Room};

pub enum Departure {
    Gone,
    Left(Plan),
    /// With nothing to do if it lingers already.
    Lingering(Option<Plan>),
}

impl Room {
    pub fn decide_leave(
        &self,
        session: &[u8],
        epoch: u64,
        linger_ms: u64,
        token: Option<&[u8]>,
        env: &Env,
    ) -> Result<Departure, Refusal> {
        let Some((slot, lease)) = self.known(session, env) else {
            return Ok(Departure::Gone);
        };
        self.check_token(slot, lease, token)?;
        let Some(deadline) = lease.deadline().filter(|_| lease.is_live(env.now.mono) && lease.epoch == epoch) else {
            return Ok(Departure::Gone);
        };
        if linger_ms == 0 {
            let mut plan = Plan::of(self, env);
            let user_leases = self.user_leases(lease).saturating_sub(1);
            let removal = Removal { reason: Reason::Left, user_leases, replaced_by: None };
            self.plan_removal(&mut plan, slot, lease, removal, env);
            return Ok(Departure::Left(plan));
        }
        if lease.phase == Phase::Lingering {
            return Ok(Departure::Lingering(None));
        }
        let deadline = deadline.min(env.now.after(linger_ms));
        let mut plan = Plan::of(self, env);
        plan.signals = true;
        plan.effects.push(Effect::Lingered(Lingered {
            session: self.session_id(slot, lease),
            epoch,
            deadline,
            span_ms: deadline.saturating_sub(env.now.mono),
        }));
        Ok(Departure::Lingering(Some(plan)))
    }

    /// Ends the live leases of a user, of a device, or of a holder; the plan and how many.
    pub fn decide_kick(&self, user: Option<&[u8]>, device: Option<&[u8]>, env: &Env) -> (Plan, u64) {
        let mut plan = Plan::of(self, env);
        let ended = self.plan_removals(&mut plan, user, device, Reason::Kicked, env);
        (plan, ended)
    }

    /// One step for all live leases that match: each event tells `user_leases` as they are once all are gone.
    pub(super) fn plan_removals(
        &self,
        plan: &mut Plan,
        user: Option<&[u8]>,
        device: Option<&[u8]>,
        reason: Reason,
        env: &Env,
    ) -> u64 {
        let slots = match (user, device) {
            (Some(user), Some(device)) => self.live_slot_of(user, device, env.now.mono).into_iter().collect(),
            _ => self.live_slots(user, env.now.mono),
        };
        let on_device = |lease: &(u32, &Lease)| device.is_none_or(|device| self.device_of(lease.0, lease.1) == device);
        let leases = slots.into_iter().filter_map(|slot| Some((slot, self.leases.get(slot)?))).filter(on_device);
        let mut slots: Vec<u32> = leases.map(|(slot, _)| slot).collect();
        self.sort_by_opening(&mut slots);
        let mut going = hashbrown::HashMap::<u32, u32>::new();
        let leases: Vec<_> = slots.iter().filter_map(|slot| Some((*slot, self.leases.get(*slot)?))).collect();
        for (_, lease) in &leases {
            let of_user = going.entry(lease.user).or_default();
            *of_user = of_user.saturating_add(1);
        }
        for (slot, lease) in &leases {
            let gone = going.get(&lease.user).copied().unwrap_or_default();
            let user_leases = self.user_leases(lease).saturating_sub(gone);
            self.plan_removal(plan, *slot, lease, Removal { reason, user_leases, replaced_by: None }, env);
        }
        leases.len() as u64
    }

    fn sort_by_opening(&self, slots: &mut [u32]) {
        let order = |slot: &u32| self.leases.get(*slot).map_or(0, |l| self.next_order.wrapping_sub(l.order));
        slots.sort_by_key(|slot| std::cmp::Reverse(order(slot)));
    }
}
