//! GRANT and REVOKE: who may be in a room, and who not any more.
//!
//! Rules
//! 1. A change whose version is not greater than the stored one is stale and has no effect.
//! 2. A GRANT replaces the whole grant and lifts all marks. In a room that wants grants it lowers deadlines beyond its
//!    end at once; only a heartbeat raises them.
//! 3. A REVOKE ends the live leases it concerns and leaves a mark, in one step: removals first, then its own event.
//!    What is overdue is left to the reaper.
//! 4. A change that says nothing new, or only a newer version, writes no event; without that version, nothing at all.
//! 5. A GRANT leaves the event numbers that removals need (rule 4 of `open`); a REVOKE is never refused.

use super::access::{Grant, Level, Record};
use super::effect::{Cut, Effect, GrantEnded, Granted, Revoked};
use super::event::Body;
use super::id::Id;
use super::lease::{Lease, Reason};
use super::plan::Plan;
use super::refusal::{Denied, Refusal};
use super::room::{Env, Room};
use super::token;

pub struct GrantRequest<'a> {
    pub user: &'a [u8],
    pub level: Level,
    /// Unix ms.
    pub until: Option<u64>,
    pub token: Option<&'a [u8]>,
    pub version: Option<u64>,
}

pub struct RevokeRequest<'a> {
    pub user: &'a [u8],
    pub device: Option<&'a [u8]>,
    pub version: Option<u64>,
}

impl Room {
    /// `None`: stale.
    pub fn decide_grant(&self, request: &GrantRequest, env: &Env) -> Result<Option<Plan>, Refusal> {
        if request.until.is_some_and(|until| until <= env.now.unix) {
            return Err(Refusal::UNTIL_HAS_PASSED);
        }
        let before = self.access.get(request.user);
        if before.is_some_and(|r| r.outdates(request.version)) {
            return Ok(None);
        }
        let grant = Grant {
            level: request.level,
            until: request.until.map(|unix| env.now.to_mono(unix)),
            token: request.token.map(token::digest),
        };
        let same = |r: &Record| r.live_grant(env.now.mono) == Some(&grant) && !r.revoked && r.devices.is_empty();
        let changed = !before.is_some_and(same);
        if changed {
            self.check_reserve(1)?;
        }
        let mut plan = Plan::of(self, env);
        plan.needs_stream = true;
        plan.signals = changed;
        if self.policy(env.settings).wants_grants() {
            self.plan_cuts(&mut plan, self.live_slots(Some(request.user), env.now.mono), |_| grant.until);
        }
        let stored = before.and_then(|r| r.version);
        let (user, version) = (Id::new(request.user), request.version.or(stored));
        if changed || version != stored {
            plan.effects.push(Effect::Granted(Granted { user: user.clone(), grant, version }));
        }
        if changed {
            let body = Body::Granted { user, level: request.level, until: request.until };
            plan.event(self, env, None, body);
        }
        Ok(Some(plan))
    }

    /// How many leases it ends, with the plan; `None`: stale.
    pub fn decide_revoke(&self, request: &RevokeRequest, env: &Env) -> Option<(Plan, u64)> {
        let before = self.access.get(request.user);
        if before.is_some_and(|r| r.outdates(request.version)) {
            return None;
        }
        let mut plan = Plan::of(self, env);
        let ended = self.plan_removals(&mut plan, Some(request.user), request.device, Reason::Revoked, env);
        let changed = match request.device {
            None => !before.is_some_and(|r| r.revoked),
            Some(device) => !before.is_some_and(|r| r.devices.iter().any(|d| d.as_bytes() == device)),
        };
        plan.signals |= changed;
        let (user, device) = (Id::new(request.user), request.device.map(Id::new));
        let stored = before.and_then(|r| r.version);
        let version = request.version.or(stored);
        if changed || version != stored {
            plan.effects.push(Effect::Revoked(Revoked { user: user.clone(), device: device.clone(), version }));
        }
        if changed {
            plan.event(self, env, None, Body::GrantRevoked { user, device });
        }
        Some((plan, ended))
    }

    /// Grants whose time is over, `most` at most.
    pub fn decide_grant_ends(&self, most: usize, env: &Env) -> Option<Plan> {
        let users = self.access.ended(env.now.mono, most);
        if users.is_empty() {
            return None;
        }
        let mut plan = Plan::of(self, env);
        plan.effects.push(Effect::GrantEnded(GrantEnded { users }));
        Some(plan)
    }

    /// The settings ask for grants from now on: cuts what is in `most` slots from `first` on, if the room follows them;
    /// with the slot to go on from, if there is one.
    pub fn decide_access_cuts(&self, first: u32, most: u32, env: &Env) -> (Option<Plan>, Option<u32>) {
        if !self.policy(env.settings).wants_grants() {
            return (None, None);
        }
        let after = first.saturating_add(most);
        let mut plan = Plan::of(self, env);
        let carried = plan.effects.len();
        self.plan_access_cuts(&mut plan, first..after.min(self.leases.end()), env);
        plan.signals = plan.effects.len() > carried;
        (plan.signals.then_some(plan), (after < self.leases.end()).then_some(after))
    }

    /// The room wants grants from now on: live leases end no later than theirs.
    pub(super) fn plan_access_cuts(&self, plan: &mut Plan, slots: impl IntoIterator<Item = u32>, env: &Env) {
        let until = |lease: &Lease| {
            let record = self.access.get(self.user_of(lease));
            record.and_then(|r| r.live_grant(env.now.mono)).and_then(|g| g.until)
        };
        self.plan_cuts(plan, slots, until);
    }

    /// Lowers the deadlines of live leases to what `until` says, which has not come yet, where it does.
    fn plan_cuts(&self, plan: &mut Plan, slots: impl IntoIterator<Item = u32>, until: impl Fn(&Lease) -> Option<u64>) {
        for slot in slots {
            let Some(lease) = self.leases.get(slot) else { continue };
            if let (Some(until), Some(deadline)) = (until(lease), lease.deadline()) {
                if until < deadline {
                    let session = self.session_id(slot, lease);
                    plan.effects.push(Effect::Cut(Cut { session, epoch: lease.epoch, deadline: until }));
                }
            }
        }
    }

    /// A page of what is known of users' access: where to go on (0 when done), and the records.
    pub fn grants(&self, user: Option<&[u8]>, cursor: u64, count: usize, env: &Env) -> (u64, Vec<&Record>) {
        let shown = |r: &&Record| r.is_shown(env.now.mono);
        if let Some(user) = user {
            return (0, self.access.get(user).into_iter().filter(shown).collect());
        }
        let first = u32::try_from(cursor).unwrap_or(u32::MAX);
        let mut records = Vec::new();
        for (slot, record) in self.access.from(first).filter(|(_, record)| shown(record)) {
            if records.len() == count {
                return (slot.into(), records);
            }
            records.push(record);
        }
        (0, records)
    }

    // ---------------------------------------------------------------- checks

    pub(super) fn check_marks(&self, user: &[u8], device: &[u8]) -> Result<(), Refusal> {
        if self.access.get(user).is_some_and(|r| r.is_marked(device)) {
            return Err(Refusal::Denied(Denied::Revoked));
        }
        Ok(())
    }

    /// In a room that wants grants: the user's live one.
    pub(super) fn check_grant(&self, user: &[u8], env: &Env) -> Result<Option<&Grant>, Refusal> {
        if !self.policy(env.settings).wants_grants() {
            return Ok(None);
        }
        let grant = self.access.get(user).and_then(|r| r.live_grant(env.now.mono));
        grant.map(Some).ok_or(Refusal::Denied(Denied::NoGrant))
    }
}
