//! The core against a naive model of the contract, over long random histories.
//!
//! Every step is taken by both. After each one they must agree on the reply or refusal, on the events written, and on
//! all that can be seen; a replica that got nothing but encoded effects must have the same digest and show the same.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use redis_lease::core::codec;
use redis_lease::core::effect::Effect;
use redis_lease::core::policy::Setting;
use redis_lease::core::room::{Env, Room};
use redis_lease::core::time::Now;

use support::cases;
use support::command::{
    event_fields, head, message_fields, Command, Fields, Grant, Open, Post, Renew, Reply, Send, Session,
};
use support::history::{history, Beat, Presented, Step, Told, DEVICES, SESSIONS, USERS};
use support::naive::Naive;
use support::node::{load, Beginning, Node, Sent};

/// The primary's clocks at the beginning, and how far the replica's monotonic clock is from the primary's.
const START: Now = Now { mono: 1 << 40, unix: 1_894_006_800_000 };
const REPLICA_APART: u64 = 123_456_789;

struct Pair {
    core: Node,
    replica: Node,
    naive: Naive,
    /// Every session id that was ever used.
    sessions: Vec<String>,
    /// Every history the room has had.
    gens: Vec<String>,
    /// What the replica got.
    received: Vec<Sent>,
}

impl Pair {
    fn new() -> Self {
        let apart = Now { mono: START.mono - REPLICA_APART, ..START };
        Self {
            core: Node::new(7, START),
            replica: Node::new(8, apart),
            naive: Naive::new(START.mono, START.unix, 7),
            sessions: SESSIONS.map(str::to_owned).into(),
            gens: Vec::new(),
            received: Vec::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Pass(ms) => self.pass(*ms),
            Step::PassTo(nth, off) => {
                let moment = self.naive.moments().into_iter().filter(|m| *m > self.naive.mono).nth(*nth);
                let to = moment.map_or(0, |moment| moment.saturating_add_signed(*off));
                self.pass(to.saturating_sub(self.naive.mono));
            }
            Step::Wall(ms) => self.set_clocks(self.core.now.mono, self.core.now.unix.saturating_add_signed(*ms)),
            Step::Stream { writable } => {
                self.core.writable = *writable;
                self.naive.writable = *writable;
            }
            Step::Log { writable } => {
                self.core.log_writable = *writable;
                self.naive.log_writable = *writable;
            }
            Step::LoseLog => {
                self.core.lose_log();
                self.naive.log_lost();
            }
            Step::Delete => {
                self.core.delete();
                self.naive.forget_room();
            }
            Step::Config(setting, value) => {
                if self.core.settings.set(&[(*setting, *value)]).is_ok() {
                    self.replica.settings = self.core.settings.clone();
                    self.naive.settings.insert(*setting, *value);
                }
            }
            Step::Reaper => {
                self.core.tick();
                self.naive.tick();
                let tombstones = self.core.room.as_ref().map_or(0, |room| room.gauges().tombstones);
                assert_eq!(tombstones, self.naive.tombstones());
            }
            Step::Sync => self.sync(),
            Step::Reload { down_ms, wall, grace_ms } => self.reload(*down_ms, *wall, *grace_ms),
            Step::Promote { grace_ms } => {
                let again = self.gen_waits();
                self.begin(Beginning::Era { grace_ms: *grace_ms });
                // Who is promoted twice was a replica in between: its own replicas begin from a copy.
                if again {
                    self.sync();
                }
            }
            Step::Restore => self.begin(Beginning::Restored),
            Step::Move { elsewhere } => {
                self.begin(Beginning::Moved { elsewhere: *elsewhere });
                // Under another name the log is another one.
                self.core.log_writable = true;
                self.naive.log_writable = true;
            }
            _ => {
                // A tombstone that is over and still there hides an older one that is not.
                if matches!(step, Step::Mark { .. }) {
                    self.take(&Step::Reaper);
                }
                let command = self.command(step);
                self.run(&command);
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        let Now { mono, unix } = self.core.now;
        self.set_clocks(mono + ms, unix + ms);
    }

    fn set_clocks(&mut self, mono: u64, unix: u64) {
        self.core.now = Now { mono, unix };
        self.replica.now = Now { mono: mono - REPLICA_APART, unix };
        (self.naive.mono, self.naive.offset) = (mono, unix as i64 - mono as i64);
    }

    fn command(&self, step: &Step) -> Command {
        let user = |i: usize| USERS[i].to_owned();
        match step {
            Step::Open { user: of, device, session, until_in, token, grant_token, rest } => Command::Open(Open {
                user: user(*of),
                device: DEVICES[*device].map(str::to_owned),
                session: session.map(|i| self.sessions[i % self.sessions.len()].clone()),
                until: self.ahead(*until_in),
                token: token.then(|| "s3cret".to_owned()),
                grant_token: grant_token.of(self.naive.grant_token(USERS[*of])),
                // Chance never draws the same session twice.
                random: (0x1234_5678_9abc_def0_u128 << 64 | self.sessions.len() as u128).to_be_bytes(),
                ..rest.clone()
            }),
            Step::Renew(beat, rest) => Command::Renew(self.renew(beat, rest)),
            Step::MRenew(beats) => {
                Command::MRenew(beats.iter().map(|beat| self.renew(beat, &Renew::default())).collect())
            }
            Step::Leave(beat, linger_ms) => {
                let Session { session, epoch, token } = self.session(beat);
                Command::Leave { session, epoch, linger_ms: *linger_ms, token }
            }
            Step::Kick { user: of, device } => {
                Command::Kick { user: of.map(user), device: device.map(|i| DEVICES[i].unwrap_or("default").to_owned()) }
            }
            Step::Grant { user: of, until_in, rest } => {
                Command::Grant(Grant { user: user(*of), until: self.ahead(*until_in), ..rest.clone() })
            }
            Step::Revoke { user: of, device, version } => {
                let device = device.map(|i| DEVICES[i].unwrap_or("default").to_owned());
                Command::Revoke { user: user(*of), device, version: *version }
            }
            Step::Send(by, id, payload) => {
                Command::Send(Send { by: self.session(by), id: id.clone(), payload: payload.clone() })
            }
            Step::Post { user: of, id, payload } => {
                Command::Post(Post { user: user(*of), id: id.clone(), payload: payload.clone() })
            }
            Step::Replay { by, gen, off, count } => {
                let gen = match gen {
                    Told::Now => self.naive.gen.clone(),
                    Told::Earlier(nth) => self.gens.get(nth % self.gens.len().max(1)).cloned().unwrap_or_default(),
                    Told::Never => format!("{}-00000000", self.core.now.unix),
                    Told::Any => "*".to_owned(),
                };
                Command::Replay { by: self.session(by), gen, after: self.seq(*off), count: *count }
            }
            Step::Hold(name) => Command::Hold(name.clone()),
            Step::Unhold(name) => Command::Unhold(name.clone()),
            Step::Trim => Command::Trim,
            Step::Mark { user: of, device, claim, off } => {
                let device = DEVICES[*device].unwrap_or("default").to_owned();
                Command::Mark { user: user(*of), device, claim: *claim, seq: self.seq(*off) }
            }
            Step::Ack(by, off) => Command::Ack { by: self.session(by), seq: self.seq(*off) },
            Step::Reap(count) => Command::Reap { count: *count },
            Step::Count => Command::Count,
            Step::Policy(setting, value) => {
                let refused = value.is_some_and(|v| self.core.settings.check_own(*setting, v).is_err());
                Command::SetPolicy(vec![(*setting, value.filter(|_| !refused))])
            }
            _ => unreachable!("not a command"),
        }
    }

    fn ahead(&self, until_in: Option<i64>) -> Option<u64> {
        until_in.map(|ms| self.core.now.unix.saturating_add_signed(ms))
    }

    fn session(&self, beat: &Beat) -> Session {
        let Renew { session, epoch, token, .. } = self.renew(beat, &Renew::default());
        Session { session, epoch, token }
    }

    /// Told from the newest message.
    fn seq(&self, off: i64) -> u64 {
        self.naive.log.seq.saturating_add_signed(off)
    }

    fn renew(&self, beat: &Beat, rest: &Renew) -> Renew {
        let live = if beat.live { self.naive.live_sessions() } else { Vec::new() };
        let among = if live.is_empty() { &self.sessions } else { &live };
        let session = among[beat.session % among.len()].clone();
        let lease = self.naive.session(&session);
        let seq = lease.map_or(0, |l| l.seq).saturating_add_signed(beat.seq_off).min(i64::MAX as u64);
        Renew {
            epoch: lease.map_or(1, |l| l.epoch).saturating_add_signed(beat.epoch_off),
            seq,
            token: beat.token.of(lease.and_then(|l| l.token.clone())),
            session,
            ..rest.clone()
        }
    }

    fn run(&mut self, command: &Command) {
        let expected = self.naive.run(command);
        let got = self.core.run(command).map_err(|refusal| head(&refusal));
        assert_eq!(got, expected, "reply to {command:?}");
        if command.concerns_messages() && !matches!(command, Command::Trim) {
            self.naive.log_begins_at(self.core.log.entries().first().map_or(0, |message| message.seq));
        }
        if let Some(session) = got.ok().as_ref().and_then(|reply| reply.field("session")) {
            if !self.sessions.iter().any(|known| known == session) {
                self.sessions.push(session.to_owned());
            }
        }
    }

    /// The replica gets the room as a snapshot, and what was written before is in it.
    fn sync(&mut self) {
        self.replicate();
        let parts = self.core.save();
        let now = self.replica.now;
        self.replica.room = parts.map(|parts| load(&parts, now).expect("a room that was saved"));
    }

    /// The server stops, is down for a while and loads what it saved; its monotonic clock begins elsewhere, and the
    /// wall clock may have been set meanwhile.
    fn reload(&mut self, down_ms: u64, wall: i64, grace_ms: Option<u64>) {
        // A wall clock that was set back would have it remember again what no read showed any more.
        self.core.forget();
        self.core.retain();
        self.naive.retain();
        self.sync();
        let Some(parts) = self.core.save() else { return };
        let gen_waits = self.gen_waits();
        if !gen_waits {
            // What was retained just now may have been the write that carried it.
            self.naive.carried();
        }
        let Now { mono, unix } = self.core.now;
        self.set_clocks(mono + (1 << 20), (unix + down_ms).saturating_add_signed(wall));
        let (n, now) = (self.naive.n, self.core.now);
        (self.naive.mono, self.naive.offset) = (mono, unix as i64 - mono as i64);
        self.naive.rebase(now.mono, now.unix);
        let room = load(&parts, now).expect("a room that was saved");
        // A history that had begun and that no write had carried yet is lost: so are its leaps.
        let waited = n != room.event_n();
        assert!(!waited || (gen_waits && n - room.event_n() >= 1 << 20));
        (self.naive.n, self.naive.floor) = (room.event_n(), room.highest_epoch());
        if gen_waits {
            self.naive.forget_uncarried();
        }
        self.core.room = Some(room);
        self.begin(Beginning::Era { grace_ms });
        self.sync();
    }

    fn begin(&mut self, why: Beginning) {
        if self.core.room.is_none() {
            return;
        }
        self.core.begin(why);
        // The replica knows what everybody knows.
        let known_ms = self.replica.room.as_ref().map_or(0, |room| room.gen().ms);
        let meets = self.core.room.as_ref().is_some_and(Room::has_arrived);
        match why {
            Beginning::Era { grace_ms } => self.naive.era(grace_ms, known_ms, meets),
            Beginning::Restored => self.naive.restored(known_ms, meets),
            Beginning::Moved { elsewhere } => {
                if elsewhere {
                    self.naive.move_elsewhere();
                }
                self.naive.moved(meets);
            }
        }
    }

    /// Whether a new history has begun that no write has carried yet.
    fn gen_waits(&self) -> bool {
        let gen = |node: &Node| node.room.as_ref().map(|room| room.gen());
        gen(&self.replica) != gen(&self.core)
    }

    fn replicate(&mut self) {
        for sent in self.core.sent.drain(..) {
            self.received.push(sent.clone());
            self.replica.receive(sent);
        }
    }

    /// Heartbeats and endings that come again, and late, change nothing while their sessions are remembered.
    fn repeat(&mut self) {
        self.pass(7);
        let before = self.replica.everyone();
        let mut again = Vec::new();
        for sent in std::mem::take(&mut self.received) {
            match sent {
                Sent::Unit { effects, events, .. } => {
                    let effects = codec::decode(&effects, self.replica.now).expect("effects a node encoded");
                    let mut late = Vec::new();
                    for effect in effects {
                        match effect {
                            Effect::Renewed(..) | Effect::Ended(_) => late.push(effect),
                            Effect::Forgot(_) => {
                                again.clear();
                                late.clear();
                            }
                            _ => {}
                        }
                    }
                    let effects = codec::encode(&late, self.replica.now);
                    again.push(Sent::Unit { effects, events, message: None });
                }
                Sent::Heartbeat { .. } => again.push(sent),
                // A room of the same name counts its epochs anew.
                Sent::Vanished | Sent::Deleted => again.clear(),
                Sent::Trimmed { .. } | Sent::LogLost | Sent::Arrived { .. } => {}
            }
        }
        if self.replica.room.is_some() {
            again.into_iter().for_each(|sent| self.replica.receive(sent));
        }
        assert_eq!(set(&before), set(&self.replica.everyone()), "late effects");
    }

    fn compare(&mut self) {
        self.replicate();
        if self.naive.exists && !self.gen_waits() {
            self.naive.carried();
        }
        self.gens.extend(self.core.room.as_ref().map(|room| room.gen().to_string()).filter(|g| !self.gens.contains(g)));
        let events: Vec<Fields> = self.core.stream.iter().map(event_fields).collect();
        let seen = self.naive.stream.len().min(events.len()).saturating_sub(8);
        assert_eq!(by_name(&events[seen..]), by_name(&self.naive.stream[seen..]), "events");
        assert_eq!(self.core.room.is_some(), self.naive.exists);
        let messages: Vec<Fields> = self.core.log.entries().iter().map(message_fields).collect();
        assert_eq!(messages, self.naive.messages(), "messages");
        self.compare_room();
        self.compare_views();
        self.compare_replica();
    }

    fn compare_room(&self) {
        let Some(room) = &self.core.room else { return };
        assert_eq!(room.gen().to_string(), self.naive.gen);
        assert_eq!(room.event_n(), self.naive.n);
        assert_eq!((room.highest_epoch(), room.events_lost()), (self.naive.highest_epoch(), self.naive.events_lost));
        assert_eq!(
            room.own_policy().iter().collect::<Vec<_>>(),
            self.naive.own.clone().into_iter().collect::<Vec<_>>()
        );
        assert_eq!(room.log_seq(), self.naive.log.seq);
        let gauges = room.gauges();
        assert_eq!((gauges.leases, gauges.users), self.naive.present());
        // A bound may be early, never late.
        let next = self.naive.moments().first().copied();
        let env = Env { now: self.core.now, settings: &self.core.settings };
        assert!(next.is_none_or(|next| room.next_due(&env) <= next), "{next:?} is missed");
    }

    fn compare_views(&mut self) {
        let everyone = |user: Option<&str>, ended| Command::Roster { user: user.map(str::to_owned), ended };
        let rosters =
            [everyone(None, false), everyone(None, true), everyone(Some("a"), false), everyone(Some("a"), true)];
        let grants = [None, Some("a".to_owned())].map(|user| Command::Grants { user });
        for list in rosters.into_iter().chain(grants).chain([Command::Lag]) {
            assert_eq!(rows(self.core.run(&list)), rows(self.naive.run(&list)), "{list:?}");
        }
        for session in self.sessions.clone() {
            self.run(&Command::Get(session));
        }
        let holds: BTreeSet<String> = self.core.holds().into_iter().collect();
        assert_eq!(holds, self.naive.holds().into_iter().collect(), "holds");
        let live = Beat { live: true, session: 0, epoch_off: 0, seq_off: 0, token: Presented::Right };
        self.run(&Command::Snapshot { by: self.session(&live), count: 3 });
    }

    fn compare_replica(&self) {
        assert_eq!(self.replica.digest(), self.core.digest(), "the replica's digest");
        assert_eq!(self.replica.stream.len(), self.core.stream.len());
        assert_eq!(self.replica.log, self.core.log, "the replica's log");
        assert_eq!(set(&self.replica.grants(None)), set(&self.core.grants(None)), "the replica's grants and marks");
        // Until a new history is carried to it, a replica still shows the deadlines of the old one.
        if !self.gen_waits() {
            assert_eq!(set(&self.replica.everyone()), set(&self.core.everyone()), "what the replica shows");
        }
    }
}

fn rows<E: std::fmt::Debug>(reply: Result<Reply, E>) -> BTreeSet<Row> {
    match reply {
        Ok(Reply::Maps(rows)) => set(&rows),
        other => panic!("not a list: {other:?}"),
    }
}

type Row = BTreeMap<&'static str, String>;

fn by_name(rows: &[Fields]) -> Vec<Row> {
    rows.iter().map(|row| row.iter().cloned().collect()).collect()
}

fn set(rows: &[Fields]) -> BTreeSet<Row> {
    let set: BTreeSet<Row> = by_name(rows).into_iter().collect();
    assert_eq!(set.len(), rows.len(), "a row came twice");
    set
}

fn agree(steps: &[Step]) -> Pair {
    let mut pair = Pair::new();
    for step in steps {
        pair.take(step);
        pair.compare();
    }
    pair
}

fn agree_until_it_is_gone(steps: &[Step]) {
    let wait = [Step::PassTo(0, -1), Step::Reaper, Step::PassTo(0, 0), Step::Reaper];
    let pair = agree(&[steps, &wait, &wait].concat());
    assert!(pair.core.room.is_none(), "an empty room stayed");
}

fn post() -> Step {
    Step::Post { user: 0, id: "m1".to_owned(), payload: "hello".to_owned() }
}

/// Chance hardly ever leaves a room with nothing but a grant that ends.
#[test]
fn agrees_on_a_room_that_only_a_grant_kept() {
    agree_until_it_is_gone(&[Step::Grant { user: 0, until_in: Some(5_000), rest: Grant::default() }]);
}

/// Nor one with nothing but messages, that is moved away from them: it is empty from then on.
#[test]
fn agrees_on_a_room_that_only_messages_kept() {
    let short = Step::Config(Setting::DedupMs, 700);
    let away = Step::Move { elsewhere: true };
    agree_until_it_is_gone(&[short, post(), Step::Pass(90_000), Step::Reaper, away, Step::Reaper]);
}

/// Nor two loads in a row of a room that has met its log again.
#[test]
fn agrees_on_a_restored_room_that_is_loaded_twice() {
    let reload = Step::Reload { down_ms: 0, wall: 0, grace_ms: None };
    agree(&[post(), Step::Restore, reload.clone(), reload]);
}

/// Hardly ever does a message outlive the room's record of it, and comes again: to a room made anew, or to one that is
/// moved back to it from where it accepted it once more.
#[test]
fn agrees_on_a_message_that_outlived_its_record() {
    let short = Step::Config(Setting::DedupMs, 700);
    let pass = Step::Pass(90_000);
    let made_anew = agree(&[short.clone(), post(), pass.clone(), Step::Delete, post()]);
    let away = Step::Move { elsewhere: true };
    let moved = agree(&[short, post(), pass.clone(), away.clone(), post(), pass, away, post()]);
    for pair in [made_anew, moved] {
        assert_eq!(pair.core.log.entries().len(), 1, "it was accepted twice");
    }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn agrees_with_the_naive_model(history in history()) {
        let mut pair = Pair::new();
        for step in &history.0 {
            pair.take(step);
            pair.compare();
        }
        pair.repeat();
    }
}
