//! OPEN: a holder starts a session.
//!
//! Rules
//! 1. Order of checks: revoked, grant, grant token, session (conflict, token, stale), ttl and until, `require-token`, NX, `max-leases`, counters;
//!    the event stream comes last, when the plan is published.
//! 2. The session of the holder's live lease is a retry: nothing changes, whatever the other options say.
//! 3. The holder's live lease ends as superseded in the same step; one past its deadline ends as time ended it.
//! 4. One event number stays in reserve for every live lease, so that no removal is ever without its own.

use std::cmp::Reverse;

use super::effect::{Effect, Forgot, Opened};
use super::event::{Body, Subject};
use super::id::{uuid_text, uuid_v4, Id};
use super::lease::{Lease, Reason};
use super::plan::{Plan, Removal};
use super::refusal::{Conflict, Denied, Limit, Refusal};
use super::room::{Env, Room};
use super::time::MAX;
use super::token;
use super::users::NONE;

/// Tombstones that one OPEN forgets on its way, at most; the reaper sees to the rest.
const FORGET_AT_ONCE: usize = 1024;

pub struct Open<'a> {
    pub user: &'a [u8],
    pub device: &'a [u8],
    pub session: Option<&'a [u8]>,
    pub ttl_ms: Option<u64>,
    /// Unix ms.
    pub until: Option<u64>,
    pub token: Option<&'a [u8]>,
    pub grant_token: Option<&'a [u8]>,
    pub meta: Option<&'a [u8]>,
    pub only_if_vacant: bool,
    /// For a session id, should the caller give none.
    pub random: [u8; 16],
}

pub enum Opening {
    /// The session is already the holder's live one.
    Retry,
    Fresh(Id, Plan),
}

impl Room {
    pub fn decide_open(&self, open: &Open, env: &Env) -> Result<Opening, Refusal> {
        self.check_marks(open.user, open.device)?;
        let grant = self.check_grant(open.user, env)?;
        if let Some(bound) = grant.and_then(|g| g.token.as_ref()) {
            if !token::matches(bound, open.grant_token) {
                return Err(Refusal::Denied(Denied::Token));
            }
        }
        if let Some((slot, lease)) = open.session.and_then(|s| self.known(s, env)) {
            return self.check_retry(slot, lease, open, env).map(|()| Opening::Retry);
        }
        check_span(open, env)?;
        let policy = self.policy(env.settings);
        if policy.require_token() && open.token.is_none() {
            return Err(Refusal::Denied(Denied::Token));
        }
        let user = self.users.find(open.user);
        let holder = user.and_then(|u| self.users.holder(u, open.device));
        let newest = holder.map(|h| h.newest).filter(|slot| *slot != NONE);
        let unended = newest.and_then(|slot| Some((slot, self.leases.get(slot)?))).filter(|(_, l)| l.ended().is_none());
        let current = unended.filter(|(_, l)| l.is_live(env.now.mono));
        if let (Some((_, lease)), true) = (current, open.only_if_vacant) {
            let left = lease.deadline().unwrap_or_default().saturating_sub(env.now.mono);
            return Err(Refusal::Held(left));
        }
        let forgotten = self.tombstones.due(env.now.mono, FORGET_AT_ONCE);
        self.check_limits(current.is_some(), env)?;
        let floor = forgotten.iter().filter_map(|slot| self.leases.get(*slot)).map(|l| l.epoch).max();
        let last = holder.map_or(0, |h| h.epoch).max(self.floor()).max(floor.unwrap_or(0));
        let epoch = last.checked_add(1).filter(|e| *e <= MAX).ok_or(Refusal::Limit(Limit::Exhausted))?;

        let session = match open.session {
            Some(session) => Id::new(session),
            None => Id::new(&uuid_text(uuid_v4(open.random))),
        };
        let mut plan = Plan::of(self, env);
        plan.needs_stream = true;
        plan.signals = true;
        self.plan_forget(&mut plan, &forgotten);
        self.plan_overdue(&mut plan, unended.map(|(slot, _)| slot), &session, env);
        let opened = self.opened(open, session.clone(), epoch, grant.and_then(|g| g.until), env);
        let replaced = current.map(|(slot, lease)| {
            let removal = Removal {
                reason: Reason::Superseded,
                user_leases: self.user_leases(lease).saturating_sub(plan.removed_of(open.user)),
                replaced_by: Some(epoch),
            };
            self.plan_removal(&mut plan, slot, lease, removal, env);
            self.session_id(slot, lease)
        });
        self.plan_forget_twin(&mut plan, &session, &forgotten);
        self.plan_opened(&mut plan, Opened { replaced, ..opened }, env);
        Ok(Opening::Fresh(session, plan))
    }

    fn check_retry(&self, slot: u32, lease: &Lease, open: &Open, env: &Env) -> Result<(), Refusal> {
        if self.user_of(lease) != open.user || self.device_of(slot, lease) != open.device {
            return Err(Refusal::Conflict(Conflict::Session));
        }
        self.check_token(slot, lease, open.token)?;
        match self.why_over(slot, lease, env) {
            Some(stale) => Err(Refusal::Stale(stale)),
            None => Ok(()),
        }
    }

    fn check_limits(&self, supersedes: bool, env: &Env) -> Result<(), Refusal> {
        let most = self.policy(env.settings).max_leases();
        let unended = self.deadlines.len() as u64;
        if most > 0 && !supersedes && unended >= most {
            let overdue = self.deadlines.due(env.now.mono, usize::MAX);
            let overdue =
                overdue.iter().filter_map(|slot| self.leases.get(*slot)).filter(|l| l.is_overdue(env.now.mono));
            if unended.saturating_sub(overdue.count() as u64) >= most {
                return Err(Refusal::Limit(Limit::Leases));
            }
        }
        // Its own removal, besides what tells that it opened.
        self.check_reserve(2)
    }

    /// Whether so many event numbers more leave one for each lease that nothing has removed (rule 4).
    pub(super) fn check_reserve(&self, more: u64) -> Result<(), Refusal> {
        let needed = more.saturating_add(self.deadlines.len() as u64);
        if self.event_n().saturating_add(needed) > MAX {
            return Err(Refusal::Limit(Limit::Exhausted));
        }
        Ok(())
    }

    fn plan_forget(&self, plan: &mut Plan, slots: &[u32]) {
        let records = slots.iter().filter_map(|slot| Some((*slot, self.leases.get(*slot)?)));
        let sessions: Vec<Id> = records.map(|(slot, lease)| self.session_id(slot, lease)).collect();
        if !sessions.is_empty() {
            plan.effects.push(Effect::Forgot(Forgot { sessions }));
        }
    }

    /// What is overdue and stands in the way goes first, each in a step of its own: the holder's own lease, and an
    /// earlier one of the same session id, overdue for longer than a tombstone lasts (it reads as unknown, so the id
    /// is free).
    fn plan_overdue(&self, plan: &mut Plan, own: Option<u32>, session: &Id, env: &Env) {
        let twin = self.slot_of(session.as_bytes()).filter(|slot| own != Some(*slot));
        let leases = own.into_iter().chain(twin).filter_map(|slot| Some((slot, self.leases.get(slot)?)));
        let mut overdue: Vec<_> = leases.filter(|(_, lease)| lease.is_overdue(env.now.mono)).collect();
        overdue.sort_by_key(|(_, l)| (l.deadline(), Reverse(self.next_order.wrapping_sub(l.order))));
        for (slot, lease) in overdue {
            self.plan_expiry(plan, slot, lease, env);
        }
    }

    /// The tombstone of an earlier lease of the same session id would be over as well.
    fn plan_forget_twin(&self, plan: &mut Plan, session: &Id, forgotten: &[u32]) {
        if let Some(slot) = self.slot_of(session.as_bytes()).filter(|slot| !forgotten.contains(slot)) {
            self.plan_forget(plan, &[slot]);
        }
    }

    fn opened(&self, open: &Open, session: Id, epoch: u64, grant_until: Option<u64>, env: &Env) -> Opened {
        let ttl_ms = open.ttl_ms.unwrap_or_else(|| self.policy(env.settings).ttl_ms());
        let until = open.until.map(|unix| env.now.to_mono(unix));
        Opened {
            session,
            user: Id::new(open.user),
            device: Id::new(open.device),
            epoch,
            ttl_ms,
            deadline: [until, grant_until].into_iter().flatten().fold(env.now.after(ttl_ms), u64::min),
            at: env.now.unix,
            until,
            token: open.token.map(token::digest),
            meta: open.meta.map(Into::into),
            replaced: None,
        }
    }

    fn plan_opened(&self, plan: &mut Plan, opened: Opened, env: &Env) {
        let coarse = self.policy(env.settings).precision_ms() > 0;
        let user = opened.user.as_bytes();
        let before = self.users.find(user).and_then(|u| self.users.get(u)).map_or(0, |u| u.leases());
        let subject = Subject {
            session: opened.session.clone(),
            user: opened.user.clone(),
            device: opened.device.clone(),
            epoch: opened.epoch,
            seq: (!coarse).then_some(0),
            user_leases: before.saturating_sub(plan.removed_of(user)).saturating_add(1),
            observed_at: None,
        };
        let body = Body::Opened {
            replaced: opened.replaced.clone(),
            expires_at: self.rounded(env.now.to_unix(opened.deadline), env),
            meta: opened.meta.clone(),
        };
        plan.effects.push(Effect::Opened(Box::new(opened)));
        plan.event(self, env, Some(subject), body);
    }
}

/// The ttl and the end of life a caller asks for, told only once the session's own fate has been.
fn check_span(open: &Open, env: &Env) -> Result<(), Refusal> {
    if let Some(ttl_ms) = open.ttl_ms {
        check_ttl(ttl_ms, env)?;
    }
    match open.until {
        Some(until) if until <= env.now.unix => Err(Refusal::UNTIL_HAS_PASSED),
        _ => Ok(()),
    }
}

/// A ttl that a command names lies within `ttl-min-ms` and `ttl-max-ms`.
pub fn check_ttl(ttl_ms: u64, env: &Env) -> Result<(), Refusal> {
    if (env.settings.ttl_min_ms()..=env.settings.ttl_max_ms()).contains(&ttl_ms) {
        Ok(())
    } else {
        Err(Refusal::Bad("TTL is in ms, and outside ttl-min-ms and ttl-max-ms"))
    }
}
