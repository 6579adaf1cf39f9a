//! A room with its log, its reaper and a replica, under any command with any words. What the module's commands do with
//! a room is done here too, without a server.
//!
//! What must hold, whatever comes: nothing panics; a replica that got the effects equals the room, and so does one that
//! is loaded from its snapshot; once the reaper has nothing left to do, the room asks for no look before a later moment;
//! and time brings every lease to its end.

use redis_lease::core::access::Level;
use redis_lease::core::claim::{Ack, Mark, Move};
use redis_lease::core::codec::{self, Batch};
use redis_lease::core::cursor::Claim;
use redis_lease::core::depart::Departure;
use redis_lease::core::effect::{Began, Effect, Gen, MetLog, Recovery};
use redis_lease::core::grant::{GrantRequest, RevokeRequest};
use redis_lease::core::heartbeat::{Close, Extra, Heartbeat, Pulse};
use redis_lease::core::lease::Signal;
use redis_lease::core::open::{check_ttl, Open, Opening};
use redis_lease::core::plan::Plan;
use redis_lease::core::policy::Settings;
use redis_lease::core::refusal::Refusal;
use redis_lease::core::replay::{Edges, Position};
use redis_lease::core::retention::Found;
use redis_lease::core::room::{Env, Room};
use redis_lease::core::send::{Post, Send, Sending};
use redis_lease::core::snapshot;
use redis_lease::core::time::{Now, MAX};
use redis_lease::core::view::PageRequest;

use crate::draw::{Draw, NOW};
use crate::effects::policy;
use crate::support::{digest, node::load};

/// What one step of the reaper does at most.
const PER_STEP: usize = 4;
/// More steps at one moment than any room here has work for.
const MANY: usize = 5_000;

/// An entry of the log.
struct Entry {
    seq: u64,
    at: u64,
    user: Vec<u8>,
    id: Vec<u8>,
    payload: Vec<u8>,
}

pub struct World {
    room: Room,
    /// Has what was written; none for a room that came by other ways.
    replica: Option<Room>,
    log: Vec<Entry>,
    settings: Settings,
    now: Now,
    gens: u32,
}

impl World {
    pub fn new() -> Self {
        let mut world = Self::of(Room::default());
        world.room = Room::new(world.draw_began(None, None));
        world.replica = Some(Room::default());
        world
    }

    /// A room of doubtful origin.
    pub fn of(room: Room) -> Self {
        Self { room, replica: None, log: Vec::new(), settings: Settings::default(), now: NOW, gens: 0 }
    }

    pub fn live(&mut self, d: &mut Draw) {
        while !d.is_empty() {
            // A refusal is a life too.
            let _ = self.act(d);
        }
    }

    fn act(&mut self, d: &mut Draw) -> Result<(), Refusal> {
        let settings = self.settings.clone();
        let env = &Env { now: self.now, settings: &settings };
        match d.below(24) {
            0..=2 => self.open(d, env),
            3 | 4 => self.renew(d, env),
            5 => self.close(d, env),
            6 => self.leave(d, env),
            7 => {
                let (user, device) = (d.maybe(Draw::bytes), d.maybe(Draw::bytes));
                let (plan, _) = self.room.decide_kick(user, device, env);
                self.commit(plan, env);
                Ok(())
            }
            8 => {
                let plan = self.room.decide_policy(policy(d), env);
                self.commit(plan, env);
                Ok(())
            }
            9 | 10 => self.grant(d, env),
            11 => self.revoke(d, env),
            12..=14 => self.send(d, env),
            15 => self.claim(d, env),
            16 => {
                let plan = if d.one_in(2) {
                    self.room.decide_hold(d.bytes(), env)
                } else {
                    self.room.decide_unhold(d.bytes(), env)
                };
                self.maybe_commit(plan, env);
                Ok(())
            }
            17 | 18 => {
                self.pass(d);
                Ok(())
            }
            19 => {
                self.reap();
                Ok(())
            }
            20 => {
                self.begin(d);
                Ok(())
            }
            21 => {
                self.lose_log(d);
                Ok(())
            }
            22 => {
                self.check_reload();
                Ok(())
            }
            _ => self.read(d, env),
        }
    }

    // ---------------------------------------------------------------- commands

    fn session(&self, d: &mut Draw, env: &Env) -> (&'static [u8], u64, u64) {
        let session = d.bytes();
        let known = self.room.view(session, env).map(|view| (view.epoch, view.seq.unwrap_or_default()));
        match known {
            Some((epoch, seq)) if !d.one_in(8) => (session, epoch, (seq + 1).min(MAX)),
            _ => (session, d.number(), d.number()),
        }
    }

    fn open(&mut self, d: &mut Draw, env: &Env) -> Result<(), Refusal> {
        let open = Open {
            user: d.bytes(),
            device: d.bytes(),
            session: d.maybe(Draw::bytes),
            ttl_ms: d.maybe(Draw::number),
            until: d.maybe(|d| d.moment(env.now.unix)),
            token: d.maybe(Draw::secret),
            grant_token: d.maybe(Draw::secret),
            meta: d.maybe(Draw::blob),
            only_if_vacant: d.one_in(4),
            random: [d.byte(); 16],
        };
        if let Opening::Fresh(session, plan) = self.room.decide_open(&open, env)? {
            self.commit(plan, env);
            assert!(self.room.open_view(session.as_bytes(), env).is_some());
        }
        Ok(())
    }

    fn renew(&mut self, d: &mut Draw, env: &Env) -> Result<(), Refusal> {
        let (session, epoch, seq) = self.session(d, env);
        let beat = Heartbeat { session, epoch, seq, token: d.maybe(Draw::secret) };
        let mut extra = Extra::default();
        if d.one_in(2) {
            let signal = d.maybe(|d| d.pick(&Signal::ALL)).filter(|signal| *signal != Signal::Closed);
            let ttl_ms = d.maybe(Draw::number).filter(|ttl_ms| check_ttl(*ttl_ms, env).is_ok());
            extra = Extra { signal, meta: d.maybe(Draw::blob), ttl_ms, observed_at: d.maybe(Draw::number) };
        }
        match self.room.decide_renew(&beat, &extra, env)? {
            Pulse::Duplicate { slot } => drop(self.room.span_left(slot, env)),
            Pulse::Plain { slot, renewed } => {
                self.room.apply_renewed(slot, &renewed);
                let mut batch = Batch::new(env.now);
                batch.renewed(session, &renewed);
                self.replicate(&batch.into_bytes().expect("a heartbeat"));
                assert!(self.room.span_left(slot, env).0 <= MAX && self.room.silence_ms(slot, env) <= MAX);
            }
            Pulse::Told { plan, .. } => self.commit(plan, env),
        }
        Ok(())
    }

    fn close(&mut self, d: &mut Draw, env: &Env) -> Result<(), Refusal> {
        let (session, epoch, seq) = self.session(d, env);
        let beat = Heartbeat { session, epoch, seq, token: d.maybe(Draw::secret) };
        if let Close::Ended(plan) = self.room.decide_closed(&beat, d.maybe(Draw::number), env)? {
            self.commit(plan, env);
        }
        Ok(())
    }

    fn leave(&mut self, d: &mut Draw, env: &Env) -> Result<(), Refusal> {
        let (session, epoch, linger_ms) = self.session(d, env);
        match self.room.decide_leave(session, epoch, linger_ms, d.maybe(Draw::secret), env)? {
            Departure::Gone => {}
            Departure::Left(plan) => self.commit(plan, env),
            Departure::Lingering(plan) => self.maybe_commit(plan, env),
        }
        Ok(())
    }

    fn grant(&mut self, d: &mut Draw, env: &Env) -> Result<(), Refusal> {
        let request = GrantRequest {
            user: d.bytes(),
            level: d.pick(&[Level::Read, Level::Write]),
            until: d.maybe(|d| d.moment(env.now.unix)),
            token: d.maybe(Draw::secret),
            version: d.maybe(Draw::number),
        };
        let plan = self.room.decide_grant(&request, env)?;
        self.maybe_commit(plan, env);
        Ok(())
    }

    fn revoke(&mut self, d: &mut Draw, env: &Env) -> Result<(), Refusal> {
        let request = RevokeRequest { user: d.bytes(), device: d.maybe(Draw::bytes), version: d.maybe(Draw::number) };
        if let Some((plan, _)) = self.room.decide_revoke(&request, env) {
            self.commit(plan, env);
        }
        Ok(())
    }

    fn send(&mut self, d: &mut Draw, env: &Env) -> Result<(), Refusal> {
        let (user, id, payload) = (d.bytes(), d.bytes(), d.blob());
        let (session, epoch, _) = self.session(d, env);
        let (token, posts) = (d.maybe(Draw::secret), d.one_in(2));
        let decide = |room: &Room, gone| match posts {
            true => room.decide_post(&Post { user, id, payload }, gone, env),
            false => room.decide_send(&Send { session, epoch, token, id, payload }, gone, env),
        };
        let mut sending = decide(&self.room, None)?;
        if matches!(sending, Sending::Doubtful) {
            sending = decide(&self.room, Some(self.room.gone(&self.edges())))?;
            assert!(!matches!(sending, Sending::Doubtful), "in doubt although it was told what is gone");
        }
        if let Sending::Accepted { plan, seq, .. } = sending {
            self.commit(plan, env);
            assert_eq!(self.room.log_seq(), seq);
        }
        Ok(())
    }

    fn claim(&mut self, d: &mut Draw, env: &Env) -> Result<(), Refusal> {
        let seq = if d.one_in(4) { d.number() } else { self.room.log_seq() };
        let (session, epoch, _) = self.session(d, env);
        let Move { plan, .. } = if d.one_in(2) {
            self.room.decide_ack(&Ack { session, epoch, token: d.maybe(Draw::secret), seq }, env)?
        } else {
            let claim = d.pick(&[Claim::Queued, Claim::Written]);
            self.room.decide_mark(&Mark { user: d.bytes(), device: d.bytes(), claim, seq }, env)?
        };
        self.maybe_commit(plan, env);
        Ok(())
    }

    fn read(&mut self, d: &mut Draw, env: &Env) -> Result<(), Refusal> {
        let edges = self.edges();
        let (session, epoch, _) = self.session(d, env);
        let request = PageRequest {
            user: d.maybe(Draw::bytes),
            cursor: d.number(),
            count: 1 + usize::from(d.byte()),
            ended: true,
        };
        self.room.page(&request, env);
        self.room.page(&PageRequest { ended: false, ..request }, env);
        self.room.lag(d.number(), 3, env);
        self.room.grants(request.user, d.number(), 3, env);
        self.room.stats(&edges, env);
        let (leases, users) = self.room.count(env.now.mono);
        assert!(users <= leases);
        self.room.absence(d.bytes(), d.bytes(), env);
        let gen = self.room.gen().text();
        let _ = self.room.place(&Position { gen: gen.as_bytes(), after: d.number() });
        let _ = self.room.place(&Position { gen: d.bytes(), after: d.number() });
        self.room.check_reader(session, epoch, None, env)
    }

    // ---------------------------------------------------------------- time and accidents

    fn pass(&mut self, d: &mut Draw) {
        let ms = d.number().min(MAX - self.now.mono);
        self.now.mono += ms;
        // The wall clock goes along, unless it is set.
        self.now.unix = if d.one_in(8) { d.moment(self.now.unix) } else { (self.now.unix + ms).min(MAX) };
    }

    fn begin(&mut self, d: &mut Draw) {
        let recovery =
            d.maybe(|d| Recovery { at: self.now.mono, grace_ms: d.maybe(Draw::number), granted: d.one_in(2) });
        let edges = self.edges();
        let met = d.maybe(|d| MetLog {
            seq: edges.newest.max(self.room.log_seq()).saturating_add(d.byte().into()).min(MAX),
            first: (edges.oldest > 0).then_some((edges.oldest, edges.oldest_at)),
        });
        let began = self.draw_began(recovery, met);
        self.room.begin(began);
    }

    fn draw_began(&mut self, recovery: Option<Recovery>, met: Option<MetLog>) -> Began {
        self.gens += 1;
        let ms = self.now.unix.max(self.room.last_gen_ms() + 1).min(MAX);
        Began {
            gen: Gen { ms, random: self.gens },
            floor: self.room.highest_epoch().saturating_add(1_024).min(MAX),
            event_n: self.room.event_n().saturating_add(1 << 20).min(MAX),
            at: self.now.mono,
            recovery,
            past: self.room.past_with_this(),
            met,
        }
    }

    fn lose_log(&mut self, d: &mut Draw) {
        let most = usize::from(d.byte());
        self.log.drain(..most.min(self.log.len()));
        self.room.doubt_log();
    }

    fn edges(&self) -> Edges {
        match (self.log.first(), self.log.last()) {
            (Some(first), Some(last)) => Edges { oldest: first.seq, newest: last.seq, oldest_at: first.at },
            _ => Edges::default(),
        }
    }

    // ---------------------------------------------------------------- the reaper

    /// Everything that is due now.
    pub fn reap(&mut self) {
        let settings = self.settings.clone();
        let env = &Env { now: self.now, settings: &settings };
        let steps = (0..MANY).take_while(|_| self.step(env)).count();
        assert!(steps < MANY, "the reaper never comes to an end");
        let vanishes = self.room.vanishes_at(env.settings).is_some_and(|at| at <= env.now.mono);
        let due = self.room.next_due(env);
        assert!(
            vanishes || due > env.now.mono || env.now.mono == MAX,
            "the reaper spins: due {due} at {}",
            env.now.mono
        );
    }

    fn step(&mut self, env: &Env) -> bool {
        let plan = self.room.decide_expiry(env);
        let plan = plan.or_else(|| self.room.decide_forgetting(PER_STEP, env));
        let plan = plan.or_else(|| self.room.decide_grant_ends(PER_STEP, env));
        let plan = plan.or_else(|| self.room.decide_cursor_ends(PER_STEP, env));
        let plan = plan.or_else(|| self.decide_recall(env));
        let plan = plan.or_else(|| self.decide_retention(env));
        let works = plan.is_some();
        self.maybe_commit(plan, env);
        works || self.room.park_records(PER_STEP, env) > 0
    }

    fn decide_recall(&self, env: &Env) -> Option<Plan> {
        let first = self.room.rebuilding()?;
        let mut rest = self.log.iter().filter(|entry| entry.seq >= first);
        let found: Vec<&Entry> = rest.by_ref().take(PER_STEP).collect();
        let found = found.into_iter().map(|entry| Found {
            seq: entry.seq,
            user: Some(&entry.user),
            id: Some(&entry.id),
            payload: Some(&entry.payload),
            at: entry.at,
        });
        Some(self.room.decide_recall(found, rest.next().map(|entry| entry.seq), env))
    }

    fn decide_retention(&mut self, env: &Env) -> Option<Plan> {
        let is_old = self.room.is_retention_due(env);
        if is_old {
            let ages = self.room.ages(env);
            let kept = self.log.iter().position(|entry| ages.kept_until(entry.seq, entry.at, env) > env.now.mono);
            self.log.drain(..kept.unwrap_or(self.log.len()));
        }
        if !is_old && !self.room.is_record_due(env) && !self.room.take_doubt() {
            return None;
        }
        let plan = self.room.decide_trimmed(&self.edges(), env);
        plan.or_else(|| self.room.decide_record_ends(PER_STEP, env))
    }

    /// From one due moment to the next, to the end of time.
    pub fn run_out(&mut self) {
        for _ in 0..MANY {
            self.reap();
            let settings = self.settings.clone();
            let due = self.room.next_due(&Env { now: self.now, settings: &settings });
            if due > MAX
                || self.now.mono == MAX
                || self.room.vanishes_at(&settings).is_some_and(|at| at <= self.now.mono)
            {
                break;
            }
            self.now = Now { mono: due, unix: self.now.to_unix(due) };
        }
        self.now = Now { mono: MAX, unix: MAX };
        self.reap();
        let left = self.room.gauges();
        assert_eq!((left.leases, left.users, left.tombstones), (0, 0, 0));
    }

    // ---------------------------------------------------------------- what must hold

    fn maybe_commit(&mut self, plan: Option<Plan>, env: &Env) {
        if let Some(plan) = plan {
            self.commit(plan, env);
        }
    }

    fn commit(&mut self, mut plan: Plan, env: &Env) {
        if let Some(message) = plan.message.take() {
            let (user, id, payload) = (message.user.as_bytes().into(), message.id.into(), message.payload.into());
            self.log.push(Entry { seq: message.seq, at: message.at, user, id, payload });
            let most = usize::try_from(plan.retained).unwrap_or(usize::MAX);
            if most > 0 && self.log.len() > most {
                self.log.drain(..self.log.len() - most);
            }
            if plan.looks {
                plan.looked(&self.edges(), env);
            }
        }
        plan.note(0);
        let sent = codec::encode(&plan.effects, self.now);
        plan.effects.iter().for_each(|effect| self.room.apply(effect));
        self.replicate(&sent);
    }

    fn replicate(&mut self, sent: &[u8]) {
        let Ok(effects) = codec::decode(sent, self.now) else { panic!("a node sends what no replica can read") };
        let Some(replica) = &mut self.replica else { return };
        effects.iter().for_each(|effect: &Effect| replica.apply(effect));
        assert_eq!(digest::of(replica), digest::of(&self.room), "the replica differs");
    }

    /// Whoever loads what is saved gets the same room.
    pub fn check_reload(&self) {
        let room =
            load(&self.save(), self.now).unwrap_or_else(|corrupt| panic!("a saved room is refused: {corrupt:?}"));
        assert_eq!(digest::of(&room), digest::of(&self.room), "the loaded room differs");
    }

    pub fn save(&self) -> Vec<Vec<u8>> {
        snapshot::parts(&self.room, true, self.now).collect()
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}
