//! What a decision returns: effects for the room and events for its stream, numbered and complete, with nothing
//! changed yet.

use super::effect::{Effect, Ended, Gen, Noted, PolicySet, Trimmed};
use super::event::{Body, Event, Subject};
use super::id::Id;
use super::lease::{Lease, Reason};
use super::message::Message;
use super::policy::{Policy, Setting};
use super::replay::Edges;
use super::room::{Env, Room};
use super::time::{Now, MAX};

#[derive(Clone, Debug)]
pub struct Plan {
    pub effects: Vec<Effect>,
    pub events: Vec<Event>,
    /// Goes into the log first.
    pub message: Option<Box<Message>>,
    /// Whether adding it may have pushed out so many others that the room should learn of it.
    pub looks: bool,
    /// Messages the log keeps when one is added, at least; 0: all.
    pub retained: u64,
    /// Refuse the whole step if its events cannot be written (an OPEN), instead of counting them as lost.
    pub needs_stream: bool,
    /// Whether what clients watch or cache has changed: roster, grants or policy, not a mere heartbeat.
    pub signals: bool,
    /// Entries the room's own stream keeps; 0: all.
    pub events_maxlen: u64,
    n: u64,
    /// The newest message.
    log_seq: u64,
    at: u64,
    events_lost: u64,
}

impl Plan {
    /// Starts with the history that has begun and that no write has carried yet, if there is one.
    pub fn of(room: &Room, env: &Env) -> Self {
        let began = room.begun.as_deref().cloned().map(Effect::Began);
        Self {
            effects: began.into_iter().collect(),
            events: Vec::new(),
            message: None,
            looks: false,
            retained: 0,
            needs_stream: false,
            signals: false,
            events_maxlen: room.events_maxlen(env.settings),
            n: room.event_n(),
            log_seq: room.log_seq(),
            at: env.now.unix.max(room.last_at),
            events_lost: room.events_lost,
        }
    }

    /// Tells that an earlier room of this name went, of the history `gen` and with so many leases.
    pub fn closing(successor: &Room, gen: Gen, active: u64, env: &Env) -> Self {
        let mut plan = Self::of(successor, env);
        plan.event(successor, env, None, Body::Closed { active });
        if let Some(event) = plan.events.last_mut() {
            event.gen = gen;
        }
        plan
    }

    pub(super) fn event(&mut self, room: &Room, env: &Env, subject: Option<Subject>, body: Body) {
        // At the end of the count the stream refuses it: the event is lost, and the lease ends all the same.
        self.n = self.n.saturating_add(1).min(MAX);
        let coarse = room.policy(env.settings).precision_ms() > 0;
        let tells_a_heartbeat = matches!(body, Body::State { .. } | Body::Updated { .. });
        let at = (!(coarse && tells_a_heartbeat)).then_some(self.at);
        self.events.push(Event { n: self.n, gen: room.gen(), log_seq: self.log_seq, at, subject, body });
    }

    pub(super) fn message(&mut self, room: &Room, env: &Env, message: Message) {
        self.log_seq = message.seq;
        self.retained = room.retained_on_send(env);
        self.looks = room.should_look(message.seq, self.retained);
        self.message = Some(Box::new(message));
    }

    /// These are the log's edges after the message was added.
    pub fn looked(&mut self, edges: &Edges, env: &Env) {
        let gone = edges.oldest.saturating_sub(1);
        self.effects.push(Effect::Trimmed(Trimmed { gone, oldest_at: edges.oldest_at, at: env.now.mono }));
    }

    /// How many leases of this user the plan removes so far.
    pub(super) fn removed_of(&self, user: &[u8]) -> u32 {
        let of_user = |e: &&Event| {
            matches!(e.body, Body::Removed { .. }) && e.subject.as_ref().is_some_and(|s| s.user.as_bytes() == user)
        };
        self.events.iter().filter(of_user).count() as u32
    }

    /// How late time's endings among the plan's effects are, in ms. An ending stands beside its removal, in order.
    pub fn expiry_ages(&self, now: Now) -> impl Iterator<Item = u64> + '_ {
        let endings = self.effects.iter().filter_map(|effect| match effect {
            Effect::Ended(ended) => Some(ended),
            _ => None,
        });
        let by_time = self.events.iter().filter_map(|event| match event.body {
            Body::Removed { due, .. } => Some(due.is_some()),
            _ => None,
        });
        let late = endings.zip(by_time).filter(|(_, by_time)| *by_time);
        late.map(move |(ended, _)| now.unix.saturating_sub(ended.at))
    }

    /// Closes the step, once it is known how many of its events no stream took.
    pub fn note(&mut self, lost: u64) {
        if !self.events.is_empty() {
            let events_lost = self.events_lost.saturating_add(lost).min(MAX);
            self.effects.push(Effect::Noted(Noted { event_n: self.n, events_lost, at: self.at }));
        }
    }
}

/// How a lease is ended before its time.
pub(super) struct Removal {
    pub reason: Reason,
    /// Of its user, once the whole step is done.
    pub user_leases: u32,
    pub replaced_by: Option<u64>,
}

impl Room {
    /// Values that [`Settings::check_own`](super::policy::Settings::check_own) allows.
    pub fn decide_policy(&self, values: Vec<(Setting, Option<i64>)>, env: &Env) -> Plan {
        let before = self.policy(env.settings);
        let mut own = self.own.clone();
        for (setting, value) in &values {
            own.change(*setting, *value);
        }
        let after = Policy { settings: env.settings, own: &own };
        let mut plan = Plan::of(self, env);
        plan.signals = true;
        plan.effects.push(Effect::PolicySet(PolicySet { values, at: env.now.mono }));
        if after.wants_grants() && !before.wants_grants() {
            self.plan_access_cuts(&mut plan, 0..self.leases.end(), env);
        }
        plan
    }

    /// A live lease ends now.
    pub(super) fn plan_removal(&self, plan: &mut Plan, slot: u32, lease: &Lease, removal: Removal, env: &Env) {
        plan.signals = true;
        plan.effects.push(Effect::Ended(Ended {
            session: self.session_id(slot, lease),
            epoch: lease.epoch,
            reason: removal.reason,
            at: env.now.unix,
            tombstone_until: env.now.after(self.policy(env.settings).tombstone_ms()),
            replaced_by: removal.replaced_by,
            closing: None,
        }));
        let body = Body::Removed { reason: removal.reason, due: None, lag_ms: None, replaced_by: removal.replaced_by };
        plan.event(self, env, Some(self.subject(slot, lease, removal.user_leases, env)), body);
    }

    /// Time has ended this lease: at its deadline, whenever that is noticed. A step of its own.
    pub(super) fn plan_expiry(&self, plan: &mut Plan, slot: u32, lease: &Lease, env: &Env) {
        let Some(deadline) = lease.deadline() else { return };
        plan.signals = true;
        let (reason, due) = (lease.expiry_reason(), env.now.to_unix(deadline));
        let coarse = self.policy(env.settings).precision_ms() > 0;
        let earlier = plan.removed_of(self.user_of(lease)).saturating_add(1);
        let user_leases = self.user_leases(lease).saturating_sub(earlier);
        plan.effects.push(Effect::Ended(Ended {
            session: self.session_id(slot, lease),
            epoch: lease.epoch,
            reason,
            at: due,
            tombstone_until: deadline.saturating_add(self.policy(env.settings).tombstone_ms()).min(MAX),
            replaced_by: None,
            closing: None,
        }));
        let lag_ms = (!coarse).then(|| env.now.mono.saturating_sub(deadline));
        let body = Body::Removed { reason, due: Some(self.rounded(due, env)), lag_ms, replaced_by: None };
        plan.event(self, env, Some(self.subject(slot, lease, user_leases, env)), body);
    }

    /// The lease an event is about; `user_leases` as they are once the whole step is done.
    pub(super) fn subject(&self, slot: u32, lease: &Lease, user_leases: u32, env: &Env) -> Subject {
        let coarse = self.policy(env.settings).precision_ms() > 0;
        let observed_at = self.extras_of(slot, lease).and_then(|e| e.observed_at);
        Subject {
            session: self.session_id(slot, lease),
            user: Id::new(self.user_of(lease)),
            device: Id::new(self.device_of(slot, lease)),
            epoch: lease.epoch,
            seq: (!coarse).then_some(lease.seq),
            user_leases,
            observed_at: observed_at.map(|t| self.rounded(t, env)),
        }
    }

    /// A time as others may know it under the policy's precision.
    pub(super) fn rounded(&self, unix: u64, env: &Env) -> u64 {
        let step = self.policy(env.settings).precision_ms();
        unix.saturating_sub(unix.checked_rem(step).unwrap_or(0))
    }
}
