//! RENEW and MRENEW: a session is alive, and what else it says of itself.
//!
//! Rules
//! 1. A seq is compared inside its epoch only; one already seen is a duplicate and changes nothing (invariant 4).
//! 2. A heartbeat moves the deadline to now + ttl, `disconnected` and `failed` bring it forward, other states leave it.
//! 3. `closed` is a departure with a seq: see [`Room::decide_closed`].
//! 4. A plain heartbeat is the hot path: it allocates nothing and looks nothing up but its session.

use super::effect::{Closing, Effect, Ended, Motion, Renewed, Report};
use super::event::Body;
use super::lease::{Lease, Reason, Signal};
use super::plan::Plan;
use super::refusal::Refusal;
use super::room::{Env, Room};

#[derive(Clone, Copy, Debug, Default)]
pub struct Heartbeat<'a> {
    pub session: &'a [u8],
    pub epoch: u64,
    pub seq: u64,
    pub token: Option<&'a [u8]>,
}

/// What RENEW may carry besides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra<'a> {
    pub signal: Option<Signal>,
    pub meta: Option<&'a [u8]>,
    pub ttl_ms: Option<u64>,
    pub observed_at: Option<u64>,
}

/// What becomes of a heartbeat.
pub enum Pulse {
    /// Its lease stands where it stood.
    Duplicate { slot: u32 },
    /// Nothing to tell anyone but replicas.
    Plain { slot: u32, renewed: Renewed },
    /// With events, or with a history to carry.
    Told { slot: u32, motion: Motion, plan: Plan },
}

/// What becomes of RENEW with STATE `closed`.
pub enum Close {
    /// Already over; unix ms of its end if that is known.
    Gone {
        ended_at: u64,
    },
    /// Its lease stands where it stood: ms left, and the unix time of its end.
    Duplicate {
        left: (u64, u64),
    },
    Ended(Plan),
}

impl Room {
    pub fn decide_renew(&self, beat: &Heartbeat, extra: &Extra, env: &Env) -> Result<Pulse, Refusal> {
        let (slot, lease) = self.live_session(beat.session, beat.epoch, beat.token, env)?;
        if beat.seq <= lease.seq {
            return Ok(Pulse::Duplicate { slot });
        }
        let renewed = self.renewed(slot, lease, beat, extra, env);
        let policy = self.policy(env.settings);
        let logged = policy.log_renewals() && policy.precision_ms() == 0;
        let changed = extra.signal.is_some() && extra.signal != lease.signal;
        let updated =
            extra.meta.is_some_and(|meta| self.extras_of(slot, lease).and_then(|e| e.meta.as_deref()) != Some(meta));
        if !(logged || changed || updated || self.begun.is_some()) {
            return Ok(Pulse::Plain { slot, renewed });
        }
        let motion = renewed.motion;
        let mut plan = Plan::of(self, env);
        plan.signals = changed || updated;
        let mut subject = self.subject(slot, lease, self.user_leases(lease), env);
        subject.seq = subject.seq.map(|_| beat.seq);
        subject.observed_at = extra.observed_at.map(|t| self.rounded(t, env)).or(subject.observed_at);
        let expires_at = self.rounded(env.now.to_unix(renewed.deadline), env);
        plan.effects.push(Effect::Renewed(subject.session.clone(), renewed));
        if let (true, Some(signal)) = (changed, extra.signal) {
            plan.event(self, env, Some(subject.clone()), Body::State { signal, expires_at });
        }
        if let (true, Some(meta)) = (updated, extra.meta) {
            plan.event(self, env, Some(subject.clone()), Body::Updated { meta: meta.into() });
        }
        if logged {
            plan.event(self, env, Some(subject), Body::Renewed);
        }
        Ok(Pulse::Told { slot, motion, plan })
    }

    fn renewed(&self, slot: u32, lease: &Lease, beat: &Heartbeat, extra: &Extra, env: &Env) -> Renewed {
        let before = lease.deadline().unwrap_or_default();
        let ttl_ms = extra.ttl_ms.unwrap_or_else(|| self.ttl_of(slot, lease));
        let policy = self.policy(env.settings);
        let shortened = |span_ms: u64| {
            let deadline = before.min(env.now.after(span_ms));
            let motion = if deadline < before {
                Motion::Shortened(deadline.saturating_sub(env.now.mono))
            } else {
                Motion::Unmoved
            };
            (deadline, motion)
        };
        let (deadline, motion) = match extra.signal {
            None | Some(Signal::Connected | Signal::Completed) => {
                (env.now.after(ttl_ms).min(self.cap_of(slot, lease, policy.wants_grants())), Motion::Renewed)
            }
            Some(Signal::Disconnected) => shortened(policy.disconnect_ms()),
            Some(Signal::Failed) => shortened(policy.failed_ms()),
            Some(Signal::New | Signal::Connecting | Signal::Checking | Signal::Closed) => (before, Motion::Unmoved),
        };
        let tells =
            extra.signal.is_some() || extra.meta.is_some() || extra.ttl_ms.is_some() || extra.observed_at.is_some();
        let report = tells.then(|| {
            Box::new(Report {
                signal: extra.signal,
                ttl_ms: extra.ttl_ms,
                observed_at: extra.observed_at,
                meta: extra.meta.map(Into::into),
            })
        });
        Renewed { epoch: beat.epoch, seq: beat.seq, at: env.now.unix, deadline, motion, report }
    }

    /// RENEW with STATE `closed` ends a live lease of that epoch like LEAVE; its seq, OBSERVED and signal are kept,
    /// META and TTL mean nothing any more.
    pub fn decide_closed(&self, beat: &Heartbeat, observed_at: Option<u64>, env: &Env) -> Result<Close, Refusal> {
        let Some((slot, lease)) = self.known(beat.session, env) else {
            return Ok(Close::Gone { ended_at: 0 });
        };
        self.check_token(slot, lease, beat.token)?;
        if !lease.is_live(env.now.mono) {
            return Ok(Close::Gone { ended_at: self.ended_at(lease, env) });
        }
        if beat.epoch != lease.epoch {
            return Ok(Close::Gone { ended_at: 0 });
        }
        if beat.seq <= lease.seq {
            return Ok(Close::Duplicate { left: self.span_left(slot, env) });
        }
        let mut plan = Plan::of(self, env);
        plan.signals = true;
        let mut subject = self.subject(slot, lease, self.user_leases(lease).saturating_sub(1), env);
        subject.seq = subject.seq.map(|_| beat.seq);
        subject.observed_at = observed_at.map(|t| self.rounded(t, env)).or(subject.observed_at);
        plan.effects.push(Effect::Ended(Ended {
            session: subject.session.clone(),
            epoch: lease.epoch,
            reason: Reason::Left,
            at: env.now.unix,
            tombstone_until: env.now.after(self.policy(env.settings).tombstone_ms()),
            replaced_by: None,
            closing: Some(Closing { seq: beat.seq, observed_at, at: env.now.unix }),
        }));
        let body = Body::Removed { reason: Reason::Left, due: None, lag_ms: None, replaced_by: None };
        plan.event(self, env, Some(subject), body);
        Ok(Close::Ended(plan))
    }

    /// What a replica or an AOF makes of a plain RENEW: accepted once already, so nobody asks the clock whether it is
    /// allowed; the ttl counts from the applying node's now (invariant 5).
    pub fn replay_renew(&mut self, beat: &Heartbeat, env: &Env) {
        let Some(slot) = self.slot_of(beat.session) else { return };
        let Some(lease) = self.leases.get(slot) else { return };
        let deadline = env.now.after(self.ttl_of(slot, lease)).min(self.cap_of(
            slot,
            lease,
            self.policy(env.settings).wants_grants(),
        ));
        let renewed = Renewed {
            epoch: beat.epoch,
            seq: beat.seq,
            at: env.now.unix,
            deadline,
            motion: Motion::Renewed,
            report: None,
        };
        self.apply_renewed(slot, &renewed);
    }

    /// Ms left and the unix time of the end of the lease at `slot`, exact.
    pub fn span_left(&self, slot: u32, env: &Env) -> (u64, u64) {
        let deadline = self.leases.get(slot).and_then(Lease::deadline).unwrap_or_default();
        (deadline.saturating_sub(env.now.mono), env.now.to_unix(deadline))
    }

    /// Ms since the session was last heard of; how late or early its clock seems is OBSERVED minus now.
    pub fn silence_ms(&self, slot: u32, env: &Env) -> u64 {
        let last = self.leases.get(slot).map_or(env.now.unix, |l| l.heartbeat_at.get());
        env.now.unix.saturating_sub(last)
    }
}
