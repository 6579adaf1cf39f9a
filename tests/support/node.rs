//! A node without a server: it carries out commands on one room as the module's commands do, keeps the room's streams
//! and hands out what replicas would get.

mod access;
mod messages;
mod replication;

use redis_lease::core::claim::Mark;
use redis_lease::core::codec::{self, Batch};
use redis_lease::core::depart::Departure;
use redis_lease::core::effect::{Began, Effect, Gen, Recovery};
use redis_lease::core::event::Event;
use redis_lease::core::heartbeat::{Close, Extra, Heartbeat, Pulse};
use redis_lease::core::id::{Id, DEFAULT_DEVICE};
use redis_lease::core::lease::Signal;
use redis_lease::core::open::{check_ttl, Open as OpenRequest, Opening};
use redis_lease::core::policy::Settings;
use redis_lease::core::refusal::Refusal;
use redis_lease::core::room::{Env, Room};
use redis_lease::core::snapshot::{self, Loading};
use redis_lease::core::time::{Now, MAX};
use redis_lease::core::view::PageRequest;
use redis_lease::core::wire::Corrupt;

use super::chance::Chance;
use super::command::{lease_fields, open_fields, Command, Fields, Open, Renew, Reply};
use super::digest;
use super::log::Log;

pub use messages::AT_ONCE;
pub use replication::Sent;

/// What a load or promotion adds to the highest epoch and to the event counter (contract, invariant 1 and section 10).
pub const LOST_EPOCHS: u64 = 1024;
/// For each ms since the history that all nodes know began: a node that was lost may have begun one of its own.
pub const LOST_EPOCHS_PER_MS: u64 = 16;
pub const LOST_EVENTS: u64 = 1 << 20;

/// Tombstones forgotten in one step of the reaper.
const FORGET_PER_STEP: usize = 64;

/// Why a room begins a new history.
#[derive(Clone, Copy, Debug)]
pub enum Beginning {
    /// A load from disk or a promotion, with `recovery-grace-ms`.
    Era {
        grace_ms: Option<u64>,
    },
    Restored,
    /// To a name with the log that the room left behind when it was last moved so, or to one whose log is its own.
    Moved {
        elsewhere: bool,
    },
}

#[derive(Clone)]
pub struct Node {
    pub room: Option<Room>,
    pub now: Now,
    pub settings: Settings,
    /// The room's event stream.
    pub stream: Vec<Event>,
    /// Whether the stream takes events.
    pub writable: bool,
    /// The room's log, and the one under the other name that it may be moved to.
    pub log: Log,
    pub elsewhere: Log,
    /// Whether the log takes messages: no foreign entry is ahead.
    pub log_writable: bool,
    pub sent: Vec<Sent>,
    /// In the place of chance: no two nodes draw the same gen.
    id: u32,
    last_gen_ms: u64,
    chance: Chance,
}

impl Node {
    pub fn new(id: u32, now: Now) -> Self {
        Self {
            room: None,
            now,
            settings: Settings::default(),
            stream: Vec::new(),
            writable: true,
            log: Log::default(),
            elsewhere: Log::default(),
            log_writable: true,
            sent: Vec::new(),
            id,
            last_gen_ms: 0,
            chance: Chance::new(id.into()),
        }
    }

    pub fn run(&mut self, command: &Command) -> Result<Reply, Refusal> {
        let settings = self.settings.clone();
        let env = &Env { now: self.now, settings: &settings };
        match command {
            Command::Open(open) => self.open(open, env),
            Command::Renew(renew) => self.renew(renew, env),
            Command::MRenew(items) => self.mrenew(items, env),
            Command::Leave { session, epoch, linger_ms, token } => {
                self.leave(session, *epoch, *linger_ms, token.as_deref(), env)
            }
            Command::Kick { user, device } => self.kick(user.as_deref(), device.as_deref(), env),
            Command::Reap { count } => self.reap(*count, env),
            Command::SetPolicy(values) => {
                let fresh = self.room.is_none().then(|| self.fresh(env));
                let room = fresh.as_ref().or(self.room.as_ref()).expect("a room");
                let plan = room.decide_policy(values.clone(), env);
                self.commit(plan, fresh)?;
                Ok(Reply::words([&"OK"]))
            }
            Command::Grant(grant) => self.grant(grant, env),
            Command::Revoke { user, device, version } => self.revoke(user, device.as_deref(), *version, env),
            Command::Grants { user } => Ok(Reply::Maps(self.grants(user.as_deref()))),
            Command::Get(session) => {
                let view = self.room.as_ref().and_then(|room| room.view(session.as_bytes(), env));
                Ok(view.map_or(Reply::Nil, |view| Reply::Map(lease_fields(&view))))
            }
            Command::Roster { user, ended } => Ok(Reply::Maps(self.roster(user.as_deref(), *ended, env))),
            Command::Count => {
                let (leases, users) = self.room.as_mut().map_or((0, 0), |room| room.count(env.now.mono));
                Ok(Reply::words([&leases, &users]))
            }
            Command::Send(send) => self.send(send, env),
            Command::Post(post) => self.post(post, env),
            Command::Replay { by, gen, after, count } => self.replay(by, gen, *after, *count, env),
            Command::Snapshot { by, count } => self.snapshot(by, *count, env),
            Command::Hold(name) => self.hold(name, env),
            Command::Unhold(name) => self.unhold(name, env),
            Command::Holds => Ok(Reply::Words(self.holds())),
            Command::Trim => self.trim(env),
            Command::Mark { user, device, claim, seq } => {
                let (user, device) = (user.as_bytes(), device.as_bytes());
                self.mark(&Mark { user, device, claim: *claim, seq: *seq }, env)
            }
            Command::Ack { by, seq } => self.ack(by, *seq, env),
            Command::Lag => Ok(Reply::Maps(self.lag(env))),
        }
    }

    /// The reaper, to the end: expiry, forgetting, the end of grants, retention and the end of an empty room.
    pub fn tick(&mut self) {
        let settings = self.settings.clone();
        let env = &Env { now: self.now, settings: &settings };
        while self.expire_one(env) {}
        self.forget();
        self.end_grants(env);
        self.retain();
        if self.room.as_ref().and_then(|room| room.vanishes_at(&settings)).is_some_and(|at| at <= self.now.mono) {
            self.vanish();
            self.sent.push(Sent::Vanished);
        }
    }

    fn vanish(&mut self) {
        self.room = None;
        if self.log.entries().is_empty() {
            self.log = Log::default();
        }
    }

    /// Somebody deletes the room's key.
    pub fn delete(&mut self) {
        self.room = None;
        self.sent.push(Sent::Deleted);
    }

    /// Somebody deletes the log.
    pub fn lose_log(&mut self) {
        self.log = Log::default();
        self.room.iter_mut().for_each(Room::doubt_log);
        self.sent.push(Sent::LogLost);
    }

    /// Its value is under another name now.
    fn arrive(&mut self, elsewhere: bool) {
        if elsewhere {
            std::mem::swap(&mut self.log, &mut self.elsewhere);
        }
        self.room.iter_mut().for_each(Room::set_arrived);
    }

    /// Forgets the tombstones whose window is over.
    pub fn forget(&mut self) {
        let settings = self.settings.clone();
        let env = &Env { now: self.now, settings: &settings };
        while let Some(plan) = self.room.as_ref().and_then(|room| room.decide_forgetting(FORGET_PER_STEP, env)) {
            self.commit(plan, None).expect("needs no stream");
        }
    }

    /// The room's history begins anew, in memory; its next write carries that.
    pub fn begin(&mut self, why: Beginning) {
        let gen = self.draw_gen();
        let last_event = self.last_event();
        let elsewhere = matches!(why, Beginning::Moved { elsewhere: true });
        if self.room.is_some() && !matches!(why, Beginning::Era { .. }) {
            self.arrive(elsewhere);
            self.sent.push(Sent::Arrived { elsewhere });
        }
        let found = self.met();
        let Some(room) = &mut self.room else { return };
        let met = room.has_arrived().then_some(found);
        let gen = Gen { ms: gen.ms.max(room.last_gen_ms() + 1), ..gen };
        self.last_gen_ms = gen.ms;
        let unknown_ms = gen.ms - room.written_gen_ms();
        let above_lost = room.highest_epoch().saturating_add(LOST_EPOCHS + unknown_ms * LOST_EPOCHS_PER_MS);
        let (floor, lost_events) = match why {
            Beginning::Era { .. } | Beginning::Restored => (above_lost.min(MAX), LOST_EVENTS),
            Beginning::Moved { .. } => (0, 0),
        };
        let recovery = match why {
            Beginning::Era { grace_ms } => {
                let granted = room.policy(&self.settings).wants_grants();
                Some(Recovery { at: self.now.mono, grace_ms, granted })
            }
            Beginning::Restored | Beginning::Moved { .. } => None,
        };
        // Positions in the streams of another name mean nothing here.
        let past = if met.is_some() { Vec::new() } else { room.past_with_this() };
        room.begin(Began {
            gen,
            floor,
            event_n: (last_event.max(room.event_n()) + lost_events).min(MAX),
            at: self.now.mono,
            recovery,
            past,
            met,
        });
    }

    /// The room as it is saved, if there is one.
    pub fn save(&self) -> Option<Vec<Vec<u8>>> {
        self.room.as_ref().map(|room| snapshot::parts(room, true, self.now).collect())
    }

    pub fn digest(&self) -> Option<Vec<Vec<u8>>> {
        self.room.as_ref().map(digest::of)
    }

    /// Everything a caller sees of leases, ended ones included.
    pub fn everyone(&self) -> Vec<Fields> {
        let settings = self.settings.clone();
        self.roster(None, true, &Env { now: self.now, settings: &settings })
    }

    fn open(&mut self, open: &Open, env: &Env) -> Result<Reply, Refusal> {
        let fresh = self.room.is_none().then(|| self.fresh(env));
        let room = fresh.as_ref().or(self.room.as_ref()).expect("a room");
        let request = OpenRequest {
            user: open.user.as_bytes(),
            device: open.device.as_ref().map_or(DEFAULT_DEVICE, |device| device.as_bytes()),
            session: open.session.as_ref().map(|session| session.as_bytes()),
            ttl_ms: open.ttl_ms,
            until: open.until,
            token: open.token.as_ref().map(|token| token.as_bytes()),
            grant_token: open.grant_token.as_ref().map(|token| token.as_bytes()),
            meta: open.meta.as_ref().map(|meta| meta.as_bytes()),
            only_if_vacant: open.nx,
            random: open.random,
        };
        let session = match room.decide_open(&request, env)? {
            Opening::Retry => Id::new(request.session.expect("a retry names its session")),
            Opening::Fresh(session, plan) => {
                self.commit(plan, fresh)?;
                session
            }
        };
        let view = self.room.as_ref().and_then(|room| room.open_view(session.as_bytes(), env));
        let view = view.expect("what was opened");
        Ok(Reply::Map(open_fields(&view, self.log.edges(view.log_seq).oldest, env.now)))
    }

    fn renew(&mut self, renew: &Renew, env: &Env) -> Result<Reply, Refusal> {
        if let Some(ttl_ms) = renew.ttl_ms {
            check_ttl(ttl_ms, env)?;
        }
        let state = renew.state.as_ref();
        let extra = Extra {
            signal: state
                .map(|word| Signal::parse(word.as_bytes()).ok_or(Refusal::Bad("unknown STATE")))
                .transpose()?,
            meta: renew.meta.as_ref().map(|meta| meta.as_bytes()),
            ttl_ms: renew.ttl_ms,
            observed_at: renew.observed_at,
        };
        if extra.signal == Some(Signal::Closed) {
            return self.close(renew, env);
        }
        let (status, (left_ms, expires_at)) = self.beat(renew, &extra, None, env)?;
        Ok(Reply::words([&status, &left_ms, &expires_at]))
    }

    fn close(&mut self, renew: &Renew, env: &Env) -> Result<Reply, Refusal> {
        let Some(room) = &self.room else { return Ok(Reply::words([&"gone", &0, &0])) };
        match room.decide_closed(&heartbeat(renew), renew.observed_at, env)? {
            Close::Gone { ended_at } => Ok(Reply::words([&"gone", &0, &ended_at])),
            Close::Duplicate { left } => Ok(Reply::words([&"duplicate", &left.0, &left.1])),
            Close::Ended(plan) => {
                self.commit(plan, None)?;
                Ok(Reply::words([&"ended", &0, &env.now.unix]))
            }
        }
    }

    fn mrenew(&mut self, items: &[Renew], env: &Env) -> Result<Reply, Refusal> {
        let mut batch = Batch::new(env.now);
        let mut words = Vec::new();
        for item in items {
            match self.beat(item, &Extra::default(), Some(&mut batch), env) {
                Ok((status, (left_ms, _))) => words.extend([status.to_owned(), left_ms.to_string()]),
                Err(refusal) => {
                    let word = refusal.word().unwrap_or_default();
                    words.extend([refusal.code().to_ascii_lowercase(), word.to_owned()]);
                }
            }
        }
        if let Some(effects) = batch.into_bytes() {
            self.sent.push(Sent::Unit { effects, events: Vec::new(), message: None });
        }
        Ok(Reply::Words(words))
    }

    /// One heartbeat; a plain one is replicated with its batch, or as it came if it carries nothing at all.
    fn beat(
        &mut self,
        renew: &Renew,
        extra: &Extra,
        batch: Option<&mut Batch>,
        env: &Env,
    ) -> Result<(&'static str, (u64, u64)), Refusal> {
        let now = self.now;
        let room = self.room.as_mut().ok_or(Refusal::UNKNOWN_SESSION)?;
        let (status, slot) = match room.decide_renew(&heartbeat(renew), extra, env)? {
            Pulse::Duplicate { slot } => ("duplicate", slot),
            Pulse::Plain { slot, renewed } => {
                room.apply_renewed(slot, &renewed);
                match batch {
                    Some(batch) => batch.renewed(renew.session.as_bytes(), &renewed),
                    None if renew.is_plain() => {
                        let Renew { session, epoch, seq, .. } = renew.clone();
                        self.sent.push(Sent::Heartbeat { session, epoch, seq });
                    }
                    None => {
                        let effect = Effect::Renewed(Id::new(renew.session.as_bytes()), renewed);
                        let effects = codec::encode(&[effect], now);
                        self.sent.push(Sent::Unit { effects, events: Vec::new(), message: None });
                    }
                }
                (status_of(extra.signal), slot)
            }
            Pulse::Told { slot, plan, .. } => {
                self.commit(plan, None)?;
                (status_of(extra.signal), slot)
            }
        };
        Ok((status, self.room.as_ref().map_or((0, 0), |room| room.span_left(slot, env))))
    }

    fn leave(
        &mut self,
        session: &str,
        epoch: u64,
        linger_ms: u64,
        token: Option<&str>,
        env: &Env,
    ) -> Result<Reply, Refusal> {
        let Some(room) = &self.room else { return Ok(Reply::words([&"gone"])) };
        let token = token.map(str::as_bytes);
        let (status, plan) = match room.decide_leave(session.as_bytes(), epoch, linger_ms, token, env)? {
            Departure::Gone => ("gone", None),
            Departure::Left(plan) => ("left", Some(plan)),
            Departure::Lingering(plan) => ("lingering", plan),
        };
        plan.map_or(Ok(()), |plan| self.commit(plan, None))?;
        Ok(Reply::words([&status]))
    }

    fn kick(&mut self, user: Option<&str>, device: Option<&str>, env: &Env) -> Result<Reply, Refusal> {
        let Some(room) = &self.room else { return Ok(Reply::words([&0])) };
        let (plan, ended) = room.decide_kick(user.map(str::as_bytes), device.map(str::as_bytes), env);
        if ended > 0 {
            self.commit(plan, None)?;
        }
        Ok(Reply::words([&ended]))
    }

    fn reap(&mut self, most: u64, env: &Env) -> Result<Reply, Refusal> {
        let mut removed = 0u64;
        while removed < most && self.expire_one(env) {
            removed += 1;
        }
        Ok(Reply::words([&removed]))
    }

    fn expire_one(&mut self, env: &Env) -> bool {
        let plan = self.room.as_mut().and_then(|room| room.decide_expiry(env));
        let due = plan.is_some();
        plan.map_or(Ok(()), |plan| self.commit(plan, None)).expect("needs no stream");
        due
    }

    fn roster(&self, user: Option<&str>, ended: bool, env: &Env) -> Vec<Fields> {
        let user = user.map(str::as_bytes);
        let mut request = PageRequest { user, cursor: 0, count: 3, ended };
        let mut leases = Vec::new();
        while let Some(room) = &self.room {
            let page = room.page(&request, env);
            leases.extend(page.leases.iter().map(lease_fields));
            request.cursor = page.cursor;
            if page.cursor == 0 {
                break;
            }
        }
        leases
    }

    fn fresh(&mut self, env: &Env) -> Room {
        let (gen, event_n, met) = (self.draw_gen(), self.last_event(), Some(self.met()));
        Room::new(Began { gen, floor: 0, event_n, at: env.now.mono, recovery: None, past: Vec::new(), met })
    }

    fn draw_gen(&mut self) -> Gen {
        self.last_gen_ms = self.now.unix.max(self.last_gen_ms + 1);
        Gen { ms: self.last_gen_ms, random: self.id }
    }

    fn last_event(&self) -> u64 {
        self.stream.last().map_or(0, |event| event.n)
    }
}

/// A room from its saved parts, read at `now`.
pub fn load(parts: &[Vec<u8>], now: Now) -> Result<Room, Corrupt> {
    let mut loading = Loading::default();
    for part in parts {
        loading.part(part, now)?;
    }
    if loading.is_complete() {
        Ok(loading.into_room())
    } else {
        Err(Corrupt("parts are missing"))
    }
}

fn heartbeat(renew: &Renew) -> Heartbeat<'_> {
    Heartbeat {
        session: renew.session.as_bytes(),
        epoch: renew.epoch,
        seq: renew.seq,
        token: renew.token.as_ref().map(|token| token.as_bytes()),
    }
}

fn status_of(signal: Option<Signal>) -> &'static str {
    match signal {
        None | Some(Signal::Connected | Signal::Completed) => "renewed",
        Some(Signal::Disconnected | Signal::Failed) => "shortened",
        Some(_) => "noted",
    }
}
