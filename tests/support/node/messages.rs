//! The node's message log: what `commands/{send,replay,hold,mark,ack}` and `server/retention` do on a server.

use redis_lease::core::claim::{Ack, Mark, Move, UNKNOWN_HOLDER};
use redis_lease::core::effect::MetLog;
use redis_lease::core::plan::Plan;
use redis_lease::core::refusal::Refusal;
use redis_lease::core::replay::{Position, Resync};
use redis_lease::core::retention::Found;
use redis_lease::core::room::{Env, Room};
use redis_lease::core::send::{Post, Send, Sending};

use super::super::command::{self, message_fields, or_nil, text, Fields, Reply, Session};
use super::super::log::Log;
use super::{Node, Sent};

/// Messages, records or cursors of one step of the reaper. Few, so that work is cut short at every place it can be.
const PER_STEP: usize = 2;
/// Messages of a log it has met that a room learns of at once.
pub const AT_ONCE: usize = 3;

impl Node {
    pub(super) fn send(&mut self, send: &command::Send, env: &Env) -> Result<Reply, Refusal> {
        let request = Send {
            session: send.by.session.as_bytes(),
            epoch: send.by.epoch,
            token: token(&send.by),
            id: send.id.as_bytes(),
            payload: send.payload.as_bytes(),
        };
        let sending = self.judge(&mut None, env, |room, gone| room.decide_send(&request, gone, env))?;
        self.accept(sending, None)
    }

    pub(super) fn post(&mut self, post: &command::Post, env: &Env) -> Result<Reply, Refusal> {
        let request = Post { user: post.user.as_bytes(), id: post.id.as_bytes(), payload: post.payload.as_bytes() };
        let mut fresh = self.room.is_none().then(|| self.fresh(env));
        let sending = self.judge(&mut fresh, env, |room, gone| room.decide_post(&request, gone, env))?;
        self.accept(sending, fresh)
    }

    /// A room that still learns of a log learns on first.
    fn judge(
        &mut self,
        fresh: &mut Option<Room>,
        env: &Env,
        decide: impl Fn(&Room, Option<u64>) -> Result<Sending, Refusal>,
    ) -> Result<Sending, Refusal> {
        match judge_apart(&self.log, self.room_or(fresh)?, &decide) {
            Err(Refusal::TryAgain) => {}
            sending => return sending,
        }
        match fresh {
            Some(room) => {
                let plan = recall_plan(&self.log, room, AT_ONCE, env).expect("what is tried again is rebuilt");
                let mut learned = room.clone();
                plan.effects.iter().for_each(|effect| learned.apply(effect));
                match judge_apart(&self.log, &learned, &decide) {
                    Ok(Sending::Accepted { .. }) | Err(Refusal::TryAgain) => {}
                    repeated => return repeated,
                }
                self.commit(plan, fresh.take())?;
            }
            None => drop(self.recall(AT_ONCE, env)),
        }
        judge_apart(&self.log, self.room_or(fresh)?, &decide)
    }

    fn room_or<'a>(&'a self, fresh: &'a Option<Room>) -> Result<&'a Room, Refusal> {
        fresh.as_ref().or(self.room.as_ref()).ok_or(Refusal::UNKNOWN_SESSION)
    }

    fn accept(&mut self, sending: Sending, fresh: Option<Room>) -> Result<Reply, Refusal> {
        let (status, seq, at, gen) = match sending {
            Sending::Duplicate { seq, at, gen } => ("duplicate", seq, at, gen),
            Sending::Accepted { seq, at, gen, plan } => {
                self.commit(plan, fresh)?;
                ("accepted", seq, at, gen)
            }
            Sending::Doubtful => panic!("in doubt even after a look"),
        };
        Ok(Reply::Map(vec![
            ("status", status.to_owned()),
            ("seq", seq.to_string()),
            ("gen", gen.to_string()),
            ("at", at.to_string()),
        ]))
    }

    // ---------------------------------------------------------------- readers

    pub(super) fn replay(&self, by: &Session, gen: &str, after: u64, count: u64, env: &Env) -> Result<Reply, Refusal> {
        let room = self.reader(by, env)?;
        let current = room.log_seq();
        let edges = self.log.edges(current);
        let last = after.saturating_add(count).min(current);
        let placed = room.place(&Position { gen: gen.as_bytes(), after });
        let resync = placed.and_then(|()| self.whole(after, current)).err();
        let head = vec![
            ("status", if resync.is_some() { "resync" } else { "ok" }.to_owned()),
            ("reason", or_nil(resync.map(Resync::word))),
            ("gen", room.gen().to_string()),
            ("oldest", edges.oldest.to_string()),
            ("current", current.to_string()),
            ("next", if resync.is_some() { after } else { last }.to_string()),
        ];
        let told = if resync.is_some() { Vec::new() } else { self.told(after + 1, last) };
        Ok(Reply::Log(head, told))
    }

    fn whole(&self, after: u64, current: u64) -> Result<(), Resync> {
        let follow = self.log.messages(after + 1, current).map(|message| message.seq).eq(after + 1..=current);
        follow.then_some(()).ok_or(Resync::Trimmed)
    }

    pub(super) fn snapshot(&self, by: &Session, count: u64, env: &Env) -> Result<Reply, Refusal> {
        let room = self.reader(by, env)?;
        let current = room.log_seq();
        let head = vec![
            ("gen", room.gen().to_string()),
            ("oldest", self.log.edges(current).oldest.to_string()),
            ("current", current.to_string()),
            ("event_n", room.event_n().to_string()),
        ];
        let mut told = self.told(0, current);
        told.drain(..told.len().saturating_sub(count as usize));
        Ok(Reply::Log(head, told))
    }

    fn reader(&self, by: &Session, env: &Env) -> Result<&Room, Refusal> {
        let room = self.room.as_ref().ok_or(Refusal::UNKNOWN_SESSION)?;
        room.check_reader(by.session.as_bytes(), by.epoch, token(by), env)?;
        Ok(room)
    }

    fn told(&self, first: u64, last: u64) -> Vec<Fields> {
        self.log.messages(first, last).map(message_fields).collect()
    }

    // ---------------------------------------------------------------- claims and holds

    pub(super) fn mark(&mut self, mark: &Mark, env: &Env) -> Result<Reply, Refusal> {
        let moved = self.room.as_ref().ok_or(UNKNOWN_HOLDER)?.decide_mark(mark, env)?;
        self.move_claim(moved)
    }

    pub(super) fn ack(&mut self, by: &Session, seq: u64, env: &Env) -> Result<Reply, Refusal> {
        let ack = Ack { session: by.session.as_bytes(), epoch: by.epoch, token: token(by), seq };
        let moved = self.room.as_ref().ok_or(Refusal::UNKNOWN_SESSION)?.decide_ack(&ack, env)?;
        self.move_claim(moved)
    }

    fn move_claim(&mut self, moved: Move) -> Result<Reply, Refusal> {
        moved.plan.map_or(Ok(()), |plan| self.commit(plan, None))?;
        Ok(Reply::words([&moved.seq]))
    }

    pub fn lag(&self, env: &Env) -> Vec<Fields> {
        let Some(room) = &self.room else { return Vec::new() };
        let (mut shown, mut from, newest) = (Vec::new(), 0, room.log_seq());
        loop {
            let (next, cursors) = room.lag(from, PER_STEP, env);
            shown.extend(cursors.into_iter().map(|cursor| {
                vec![
                    ("user", text(cursor.user.as_bytes())),
                    ("device", text(cursor.device.as_bytes())),
                    ("queued", cursor.queued.to_string()),
                    ("written", cursor.written.to_string()),
                    ("acked", cursor.acked.to_string()),
                    ("acked_lag", newest.saturating_sub(cursor.acked).to_string()),
                ]
            }));
            from = next;
            if from == 0 {
                return shown;
            }
        }
    }

    pub(super) fn hold(&mut self, name: &str, env: &Env) -> Result<Reply, Refusal> {
        let fresh = self.room.is_none().then(|| self.fresh(env));
        let plan = self.room_or(&fresh)?.decide_hold(name.as_bytes(), env);
        self.change(plan, fresh)
    }

    pub(super) fn unhold(&mut self, name: &str, env: &Env) -> Result<Reply, Refusal> {
        let plan = self.room.as_ref().and_then(|room| room.decide_unhold(name.as_bytes(), env));
        self.change(plan, None)
    }

    fn change(&mut self, plan: Option<Plan>, fresh: Option<Room>) -> Result<Reply, Refusal> {
        let changes = plan.is_some();
        plan.map_or(Ok(()), |plan| self.commit(plan, fresh))?;
        Ok(Reply::words([&u8::from(changes)]))
    }

    pub fn holds(&self) -> Vec<String> {
        self.room.as_ref().map(|room| room.holds().map(text).collect()).unwrap_or_default()
    }

    // ---------------------------------------------------------------- retention

    /// The reaper's part of it, to the end.
    pub fn retain(&mut self) {
        let settings = self.settings.clone();
        let env = &Env { now: self.now, settings: &settings };
        while let Some(plan) = self.room.as_ref().and_then(|room| room.decide_cursor_ends(PER_STEP, env)) {
            self.commit(plan, None).expect("needs no stream");
        }
        while self.retention_step(env) {}
    }

    /// One step of it.
    pub fn retain_some(&mut self) {
        let settings = self.settings.clone();
        self.retention_step(&Env { now: self.now, settings: &settings });
    }

    fn retention_step(&mut self, env: &Env) -> bool {
        if self.recall(PER_STEP, env) {
            return true;
        }
        let Some(room) = &mut self.room else { return false };
        let (is_old, is_record) = (room.is_retention_due(env), room.is_record_due(env) || room.take_doubt());
        if is_old && self.trim_old(PER_STEP, env) > 0 {
            self.notice(env);
            return true;
        }
        if !is_old && !is_record {
            return false;
        }
        if self.notice(env) {
            return true;
        }
        let Some(room) = &mut self.room else { return false };
        if let Some(plan) = room.decide_record_ends(PER_STEP, env) {
            self.commit(plan, None).expect("needs no stream");
            return true;
        }
        room.park_records(PER_STEP, env) > 0
    }

    /// Makes records of the next messages of a log the room has met; false if there are none to be made.
    fn recall(&mut self, most: usize, env: &Env) -> bool {
        let plan = self.room.as_ref().and_then(|room| recall_plan(&self.log, room, most, env));
        let due = plan.is_some();
        plan.map_or(Ok(()), |plan| self.commit(plan, None)).expect("needs no stream");
        due
    }

    fn trim_old(&mut self, most: usize, env: &Env) -> u64 {
        let Some(room) = &self.room else { return 0 };
        let ages = room.ages(env);
        let is_old = |seq, at| ages.kept_until(seq, at, env) <= env.now.mono;
        let oldest = self.log.messages(0, room.log_seq()).take(most);
        let old = oldest.take_while(|message| is_old(message.seq, message.at)).count();
        self.drop_oldest(old)
    }

    /// Removes the oldest messages, here and on replicas.
    fn drop_oldest(&mut self, entries: usize) -> u64 {
        if entries > 0 {
            let first = self.log.drop_oldest(entries);
            self.sent.push(Sent::Trimmed { first });
        }
        entries as u64
    }

    /// The room learns what its log does not hold any more; false if it knew.
    fn notice(&mut self, env: &Env) -> bool {
        let noticed = |room: &Room| room.decide_trimmed(&self.log.edges(room.log_seq()), env);
        let plan = self.room.as_ref().and_then(noticed);
        let new = plan.is_some();
        plan.map_or(Ok(()), |plan| self.commit(plan, None)).expect("needs no stream");
        new
    }

    /// Not before the room has learned what a log it has met holds.
    pub(super) fn trim(&mut self, env: &Env) -> Result<Reply, Refusal> {
        if self.room.as_ref().is_none_or(Room::is_held) {
            return Ok(Reply::words([&0]));
        }
        self.recall(AT_ONCE, env);
        let room = self.room.as_ref().filter(|room| room.rebuilding().is_none()).ok_or(Refusal::TryAgain)?;
        let retained = room.policy(env.settings).retain_count() as usize;
        let mut gone = self.trim_old(usize::MAX, env);
        if retained > 0 {
            gone += self.drop_oldest(self.log.entries().len().saturating_sub(retained));
        }
        self.notice(env);
        Ok(Reply::words([&gone]))
    }

    /// Adds the message, and trims as a server does that drops whole nodes of a stream: anything between nothing and
    /// all that is allowed. The first that stays; none if the log cannot take it.
    pub(super) fn append(&mut self, plan: &Plan) -> Option<u64> {
        let message = plan.message.as_ref()?;
        if !self.log_writable || !self.log.add(message) {
            return None;
        }
        let extra = match plan.retained {
            0 => 0,
            retained => self.log.entries().len().saturating_sub(retained as usize),
        };
        let went = self.chance.below(extra as u64 + 1) as usize;
        Some(self.log.drop_oldest(went))
    }

    /// The log it finds under its name.
    pub(super) fn met(&self) -> MetLog {
        let edges = self.log.edges(self.log.last());
        MetLog { seq: self.log.last(), first: (edges.oldest > 0).then_some((edges.oldest, edges.oldest_at)) }
    }
}

/// One in doubt looks at its log.
fn judge_apart(
    log: &Log,
    room: &Room,
    decide: impl Fn(&Room, Option<u64>) -> Result<Sending, Refusal>,
) -> Result<Sending, Refusal> {
    match decide(room, None)? {
        Sending::Doubtful => decide(room, Some(room.gone(&log.edges(room.log_seq())))),
        sending => Ok(sending),
    }
}

fn token(by: &Session) -> Option<&[u8]> {
    by.token.as_ref().map(|token| token.as_bytes())
}

/// `None`: nothing is to be rebuilt.
fn recall_plan(log: &Log, room: &Room, most: usize, env: &Env) -> Option<Plan> {
    let first = room.rebuilding()?;
    let mut ahead = log.messages(first, room.log_seq());
    let found: Vec<_> = ahead.by_ref().take(most).collect();
    let found = found.into_iter().map(|message| Found {
        seq: message.seq,
        user: Some(message.user.as_bytes()),
        id: Some(&message.id),
        payload: Some(&message.payload),
        at: message.at,
    });
    Some(room.decide_recall(found, ahead.next().map(|message| message.seq), env))
}
