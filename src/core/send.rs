//! SEND and POST: one message seq per (user, message id).
//!
//! Rules
//! 1. A retry gets the first seq, and nothing changes; the same id with another payload is a conflict. This is told
//!    before anything about the log is.
//! 2. A refused message leaves no number and no record.
//! 3. While records are being rebuilt nobody knows whether a message is a retry: everything waits (`TRYAGAIN`).
//! 4. A message extends no lease.

use super::access::Level;
use super::dedupe::{message_key, payload_digest, Accepted};
use super::effect::{Effect, Gen, Sent};
use super::event::{Body, Subject};
use super::id::Id;
use super::lease::Lease;
use super::message::{Message, Sender};
use super::plan::Plan;
use super::refusal::{Conflict, Denied, Limit, Refusal};
use super::room::{Env, Room};
use super::time::MAX;

/// From a live session.
pub struct Send<'a> {
    pub session: &'a [u8],
    pub epoch: u64,
    pub token: Option<&'a [u8]>,
    pub id: &'a [u8],
    pub payload: &'a [u8],
}

/// From a trusted server, on behalf of a user.
pub struct Post<'a> {
    pub user: &'a [u8],
    pub id: &'a [u8],
    pub payload: &'a [u8],
}

pub enum Sending {
    /// Accepted before, as this seq at this unix time; the gen is the one of now.
    Duplicate {
        seq: u64,
        at: u64,
        gen: Gen,
    },
    Accepted {
        seq: u64,
        at: u64,
        gen: Gen,
        plan: Plan,
    },
    /// Whether it is a retry depends on whether the log still holds message `seq`: decide again, knowing what is gone.
    Doubtful,
}

impl Room {
    /// `gone`: up to which message the log holds nothing, if whoever asks has looked.
    pub fn decide_send(&self, send: &Send, gone: Option<u64>, env: &Env) -> Result<Sending, Refusal> {
        let (slot, lease) = self.live_session(send.session, send.epoch, send.token, env)?;
        let user = self.user_of(lease);
        self.check_may_write(user, env)?;
        let post = Post { user, id: send.id, payload: send.payload };
        self.decide_message(&post, Some((slot, lease)), gone, env)
    }

    pub fn decide_post(&self, post: &Post, gone: Option<u64>, env: &Env) -> Result<Sending, Refusal> {
        if self.access.get(post.user).is_some_and(|record| record.revoked) {
            return Err(Refusal::Denied(Denied::Revoked));
        }
        self.check_may_write(post.user, env)?;
        self.decide_message(post, None, gone, env)
    }

    /// In a room that wants grants: the user's live one is for writing.
    fn check_may_write(&self, user: &[u8], env: &Env) -> Result<(), Refusal> {
        match self.check_grant(user, env)? {
            Some(grant) if grant.level != Level::Write => Err(Refusal::Denied(Denied::ReadOnly)),
            _ => Ok(()),
        }
    }

    /// Once its sender is allowed to send it.
    fn decide_message(
        &self,
        post: &Post,
        from: Option<(u32, &Lease)>,
        gone: Option<u64>,
        env: &Env,
    ) -> Result<Sending, Refusal> {
        if self.rebuilding().is_some() {
            return Err(Refusal::TryAgain);
        }
        let (key, payload) = (message_key(post.user, post.id), payload_digest(post.payload));
        if let Some(known) = self.log.dedupe.find(&key) {
            let open = known.accepted.until > env.now.mono;
            let retained = known.attached && known.accepted.seq > gone.unwrap_or(self.log.gone);
            if !open && retained && gone.is_none() {
                return Ok(Sending::Doubtful);
            }
            if open || retained {
                let same = known.accepted.payload == payload;
                let Accepted { seq, at, .. } = known.accepted;
                return if same { Ok(Sending::Duplicate { seq, at, gen: self.gen() }) } else { Err(CONFLICT) };
            }
        }
        let seq = self.log_seq().checked_add(1).filter(|seq| *seq <= MAX).ok_or(Refusal::Limit(Limit::Exhausted))?;
        let at = env.now.unix.max(self.log.last_at);
        let policy = self.policy(env.settings);
        let until = env.now.after(policy.dedup_ms());
        let mut plan = Plan::of(self, env);
        plan.effects
            .push(Effect::Sent(Sent { accepted: Accepted { key, payload, seq, at, until }, mono: env.now.mono }));
        let sender = from.map(|(slot, lease)| Sender {
            device: Id::new(self.device_of(slot, lease)),
            session: self.session_id(slot, lease),
            epoch: lease.epoch,
        });
        let user = Id::new(post.user);
        plan.message(
            self,
            env,
            Message { seq, gen: self.gen(), id: post.id.into(), user, sender, at, payload: post.payload.into() },
        );
        if policy.announce_messages() {
            let subject = from.map(|(slot, lease)| self.subject(slot, lease, self.user_leases(lease), env));
            let subject = subject.map(|subject| Subject { seq: None, ..subject });
            let user = subject.is_none().then(|| Id::new(post.user));
            plan.event(self, env, subject, Body::Message { user, seq });
        }
        Ok(Sending::Accepted { seq, at, gen: self.gen(), plan })
    }
}

const CONFLICT: Refusal = Refusal::Conflict(Conflict::Message);
