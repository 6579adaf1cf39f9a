//! How a plan becomes the node's state, and what replicas get of that.

use redis_lease::core::codec;
use redis_lease::core::effect::Effect;
use redis_lease::core::event::Event;
use redis_lease::core::heartbeat::Heartbeat;
use redis_lease::core::message::Message;
use redis_lease::core::plan::Plan;
use redis_lease::core::refusal::Refusal;
use redis_lease::core::room::{Env, Room};

use super::super::log::Log;
use super::Node;

/// One atomic unit of the replication stream.
#[derive(Clone, Debug)]
pub enum Sent {
    Unit {
        effects: Vec<u8>,
        events: Vec<Event>,
        /// With the first that its log kept.
        message: Option<(Box<Message>, u64)>,
    },
    /// A plain RENEW, as it came.
    Heartbeat { session: String, epoch: u64, seq: u64 },
    /// The log lost what is before.
    Trimmed { first: u64 },
    /// The log's key was removed by hand.
    LogLost,
    /// The room came under another name, where another log may stand.
    Arrived { elsewhere: bool },
    /// The room's key was removed, and its log's if that was empty.
    Vanished,
    /// The room's key was removed by hand.
    Deleted,
}

impl Node {
    /// A replica gets what its primary sent.
    pub fn receive(&mut self, sent: Sent) {
        match sent {
            Sent::Unit { effects, events, message } => {
                if let Some((message, first)) = message {
                    assert!(self.log.add(&message), "a replica's log is what its primary's is");
                    self.log.trim_before(first);
                }
                let effects = codec::decode(&effects, self.now).expect("effects a node encoded");
                let begins = matches!(effects.first(), Some(Effect::Began(_)));
                let room = if begins { Some(self.room.get_or_insert_default()) } else { self.room.as_mut() };
                let room = room.expect("the room the effects are for");
                effects.iter().for_each(|effect| room.apply(effect));
                self.stream.extend(events);
            }
            Sent::Heartbeat { session, epoch, seq } => {
                let settings = self.settings.clone();
                let beat = Heartbeat { session: session.as_bytes(), epoch, seq, token: None };
                if let Some(room) = &mut self.room {
                    room.replay_renew(&beat, &Env { now: self.now, settings: &settings });
                }
            }
            Sent::Trimmed { first } => drop(self.log.trim_before(first)),
            Sent::LogLost => self.log = Log::default(),
            Sent::Arrived { elsewhere } => self.arrive(elsewhere),
            Sent::Vanished => self.vanish(),
            Sent::Deleted => self.room = None,
        }
    }

    /// Publishes, applies and replicates a plan.
    pub(super) fn commit(&mut self, mut plan: Plan, fresh: Option<Room>) -> Result<(), Refusal> {
        if plan.effects.is_empty() && plan.events.is_empty() {
            return Ok(());
        }
        if plan.needs_stream && !plan.events.is_empty() && !self.writable {
            return Err(Refusal::LogState);
        }
        let message = plan.message.clone();
        let first = self.append(&plan);
        if message.is_some() && first.is_none() {
            return Err(Refusal::LogState);
        }
        if let Some(message) = message.as_ref().filter(|_| plan.looks) {
            plan.looked(&self.log.edges(message.seq), &Env { now: self.now, settings: &self.settings });
        }
        plan.note(if self.writable { 0 } else { plan.events.len() as u64 });
        let room = match fresh {
            Some(fresh) => self.room.insert(fresh),
            None => self.room.as_mut().expect("the room the plan was made for"),
        };
        plan.effects.iter().for_each(|effect| room.apply(effect));
        let events = if self.writable { plan.events } else { Vec::new() };
        self.stream.extend(events.iter().cloned());
        let (effects, message) = (codec::encode(&plan.effects, self.now), message.zip(first));
        self.sent.push(Sent::Unit { effects, events, message });
        Ok(())
    }
}
