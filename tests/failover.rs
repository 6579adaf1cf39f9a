//! Readers and writers of a message log whose primaries are lost: with replicas behind, with crashes that go back to an
//! older save, under names where another log stands. Whoever reads a history is told all of it or to begin anew.
//!
//! A seed decides everything. One that fails is printed with its last steps; `SEED=n cargo test --test failover` plays
//! it again, `SEEDS=n` tries that many.

mod support;

use std::collections::{BTreeMap, VecDeque};

use redis_lease::core::policy::Setting;
use redis_lease::core::refusal::Refusal;
use redis_lease::core::time::Now;

use support::chance::Chance;
use support::command::{Command, Post, Reply, Send};
use support::invariants::inv_5_a_replica_equals_its_primary;
use support::node::{load, Beginning, Node, Sent};
use support::reader::{Heard, Message, Reader};

const SEEDS: u64 = 100;
const STEPS: usize = 400;
const UNIX: u64 = 1_894_006_800_000;
const REPLICAS: usize = 2;
/// Messages that writers have not been told of yet, at most.
const WAITING: usize = 12;

/// What every message of a log was, those included that are gone from it.
#[derive(Clone, Default)]
struct Chronicle(BTreeMap<u64, Accepted>);

#[derive(Clone, Debug)]
struct Accepted {
    message: Message,
    /// The end of its window, in the world's time.
    until: u64,
}

/// A node, and what was accepted in the history it has.
#[derive(Clone)]
struct Member {
    node: Node,
    boot: u64,
    here: Chronicle,
    /// Under the other name.
    elsewhere: Chronicle,
}

impl Member {
    fn new(id: u32, time: u64) -> Self {
        let boot = u64::from(id) << 40;
        let node = Node::new(id, Now { mono: boot + time, unix: UNIX + time });
        Self { node, boot, here: Chronicle::default(), elsewhere: Chronicle::default() }
    }

    fn set_clocks(&mut self, time: u64) {
        self.node.now = Now { mono: self.boot + time, unix: UNIX + time };
    }

    /// Of what was sent with the same key as `message`.
    fn earlier(&self, message: &Message) -> impl Iterator<Item = (u64, &Accepted)> {
        let of = message.clone();
        self.here.0.iter().filter(move |(_, known)| known.message.is_of(&of)).map(|(seq, known)| (*seq, known))
    }

    fn holds(&self, seq: u64) -> bool {
        self.node.log.messages(seq, seq).next().is_some()
    }

    /// Where no room is left nobody remembers a window, and where no log is left either numbers begin anew; under the
    /// one name and the other.
    fn note(&mut self) {
        if self.node.room.is_some() {
            return;
        }
        let logs = [(&self.node.log, &mut self.here), (&self.node.elsewhere, &mut self.elsewhere)];
        for (log, Chronicle(accepted)) in logs {
            accepted.values_mut().for_each(|known| known.until = 0);
            accepted.retain(|_, _| log.last() > 0);
        }
    }

    fn move_elsewhere(&mut self) {
        std::mem::swap(&mut self.here, &mut self.elsewhere);
    }
}

/// A replica, and what has not arrived there yet. A message travels with its entry in the chronicle.
struct Follower {
    member: Member,
    link: VecDeque<(Sent, Option<(u64, Accepted)>)>,
}

impl Follower {
    fn receive(&mut self, units: usize) {
        for (sent, accepted) in self.link.drain(..units) {
            let moves = matches!(sent, Sent::Arrived { elsewhere: true });
            self.member.node.receive(sent);
            if moves {
                self.member.move_elsewhere();
            }
            self.member.here.0.extend(accepted);
            self.member.note();
        }
    }
}

struct Writer {
    message: Message,
    /// From its session, rather than on its behalf.
    sends: bool,
}

/// What the worlds of all seeds came upon: a test of failovers needs some.
#[derive(Default)]
struct Seen {
    lost_units: usize,
    diverged: usize,
    trimmed: usize,
    /// Readers that went on in a new history.
    went_on: usize,
    duplicates: usize,
    again_later: usize,
}

struct World {
    chance: Chance,
    time: u64,
    /// Whether rooms are moved and keys deleted in this world.
    moves: bool,
    primary: Member,
    followers: Vec<Follower>,
    disk: Member,
    saved: Option<Vec<Vec<u8>>>,
    readers: Vec<Reader>,
    waiting: Vec<Writer>,
    told: Vec<Writer>,
    ids: u64,
    nodes: u32,
    seen: Seen,
    log: VecDeque<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let readers = (0..3).map(|me| Reader::new(&format!("reader {me}")));
        let followers = (0..REPLICAS as u32).map(|i| Follower { member: Member::new(2 + i, 0), link: VecDeque::new() });
        Self {
            chance: Chance::new(seed),
            time: 0,
            moves: seed % 2 == 1,
            primary: Member::new(1, 0),
            followers: followers.collect(),
            disk: Member::new(0, 0),
            saved: None,
            readers: readers.collect(),
            waiting: Vec::new(),
            told: Vec::new(),
            ids: 0,
            nodes: 1 + REPLICAS as u32,
            seen: Seen::default(),
            log: VecDeque::new(),
        }
    }

    fn step(&mut self) {
        match self.chance.below(100) {
            0..=34 => self.write(),
            35..=59 => self.read(),
            60..=74 => self.replicate_some(),
            75..=80 => self.pass(),
            81..=84 => self.reap(),
            85..=90 => self.operate(),
            91 => self.save(),
            92..=95 => self.fail_over(),
            96 => self.crash(),
            _ if self.moves => self.by_hand(),
            _ => self.reap(),
        }
        self.publish(None);
        for follower in &self.followers {
            if follower.link.is_empty() {
                inv_5_a_replica_equals_its_primary(&self.primary.node, &follower.member.node);
                assert_eq!(self.primary.node.log, follower.member.node.log, "a replica's log");
            }
        }
    }

    fn note(&mut self, what: String) {
        if self.log.len() == 60 {
            self.log.pop_front();
        }
        self.log.push_back(format!("{:>8} {what}", self.time));
    }

    /// What the primary has sent is on its way to every replica.
    fn publish(&mut self, accepted: Option<(u64, Accepted)>) {
        self.primary.note();
        for sent in std::mem::take(&mut self.primary.node.sent) {
            let is_message = matches!(sent, Sent::Unit { message: Some(_), .. });
            let accepted = accepted.clone().filter(|_| is_message);
            self.followers.iter_mut().for_each(|f| f.link.push_back((sent.clone(), accepted.clone())));
        }
    }

    fn run(&mut self, command: &Command) -> Result<Reply, Refusal> {
        let answer = self.primary.node.run(command);
        self.note(format!("{command:?}: {answer:?}"));
        answer
    }

    // ---------------------------------------------------------------- writers

    /// A message that nobody has answered yet is sent again, as a new one is; now and then one that was answered.
    fn write(&mut self) {
        let late = self.chance.one_in(8) && !self.told.is_empty();
        let from = if late { &mut self.told } else { &mut self.waiting };
        let writer = if from.is_empty() || (!late && from.len() < WAITING && self.chance.one_in(2)) {
            self.ids += 1;
            let (user, id) = (format!("reader {}", self.chance.below(3)), format!("m{}", self.ids));
            let message = Message { user, payload: format!("the text of {id}"), id };
            Writer { message, sends: self.chance.one_in(2) }
        } else {
            let which = self.chance.below(from.len() as u64) as usize;
            from.swap_remove(which)
        };
        let Message { user, id, payload } = writer.message.clone();
        let by = self.readers.iter().find(|reader| reader.user == user).and_then(|reader| reader.session.clone());
        let command = match by.filter(|_| writer.sends) {
            Some(by) => Command::Send(Send { by, id, payload }),
            None => Command::Post(Post { user, id, payload }),
        };
        let heard = match self.run(&command) {
            Ok(reply) => {
                self.inv_6_one_seq_per_user_and_message_id(&writer.message, &reply);
                !self.chance.one_in(3)
            }
            Err(Refusal::TryAgain) => {
                self.seen.again_later += 1;
                false
            }
            Err(Refusal::Stale(_)) => false,
            Err(refusal) => panic!("a message was refused: {refusal}"),
        };
        if heard || late {
            self.told.push(writer);
        } else {
            self.waiting.push(writer);
        }
    }

    /// A message gets one number while it is retained, and until its window is over.
    fn inv_6_one_seq_per_user_and_message_id(&mut self, message: &Message, reply: &Reply) {
        let (seq, member) = (reply.number("seq"), &mut self.primary);
        // A room that was moved knows what it accepted under its other name.
        let is_known_elsewhere = member.elsewhere.0.values().any(|known| known.message.is_of(message));
        if reply.field("status") == Some("duplicate") {
            self.seen.duplicates += 1;
            let first = member.here.0.get(&seq).map(|known| &known.message);
            assert!(first == Some(message) || is_known_elsewhere, "{seq} is {first:?}, not {message:?}");
            return;
        }
        for (earlier, known) in member.earlier(message).filter(|_| !is_known_elsewhere) {
            assert!(!member.holds(earlier), "{message:?} is {earlier}, retained, and {seq}");
            assert!(known.until <= self.time, "{message:?} is {earlier}, in its window, and {seq}");
        }
        let room = member.node.room.as_ref().expect("the room that accepted it");
        let until = self.time + room.policy(&member.node.settings).dedup_ms();
        let last = member.here.0.last_key_value().map_or(0, |(last, _)| *last);
        assert!(seq > last, "{seq} came after {last}");
        let accepted = Accepted { message: message.clone(), until };
        member.here.0.insert(seq, accepted.clone());
        self.publish(Some((seq, accepted)));
    }

    // ---------------------------------------------------------------- readers

    fn read(&mut self) {
        let which = self.chance.below(self.readers.len() as u64) as usize;
        let (gen, after) = (self.readers[which].gen.clone(), self.readers[which].after);
        let command = self.readers[which].next_command(&mut self.chance);
        let answer = self.run(&command);
        if self.chance.one_in(8) {
            return;
        }
        let heard = self.readers[which].hear(&command, answer.as_ref());
        self.publish(None);
        let reader = &self.readers[which];
        match heard {
            Heard::Nothing => return,
            Heard::Resync => return self.check_resync(&gen, after, &answer.expect("a reply")),
            Heard::Snapshot => {
                let log = self.primary.node.log.entries();
                let newest = log[log.len() - reader.have.len()..].iter().map(|message| message.seq);
                assert!(reader.have.keys().copied().eq(newest), "a snapshot is the newest of the log");
            }
            Heard::More => self.seen.went_on += usize::from(gen != reader.gen),
        }
        let accepted = self.primary.here.0.iter().map(|(seq, known)| (*seq, known.message.clone()));
        reader.inv_6_replay_is_contiguous(accepted);
    }

    /// Nobody is sent away without a reason.
    fn check_resync(&mut self, gen: &str, after: u64, reply: &Reply) {
        let (current, log) = (reply.number("current"), &self.primary.node.log);
        let same = reply.field("gen") == Some(gen);
        assert!(!same || after != current, "exactly current, and sent away");
        match reply.field("reason") {
            Some("trimmed") => {
                assert!(log.messages(after + 1, current).count() as u64 != current - after, "nothing is missing");
                self.seen.trimmed += 1;
            }
            Some("future") => assert!(after > current, "{after} is not in the future"),
            Some("diverged") => {
                assert!(!same, "its own history has diverged");
                self.seen.diverged += 1;
            }
            other => panic!("no reason: {other:?}"),
        }
    }

    // ---------------------------------------------------------------- time, operators

    fn pass(&mut self) {
        let ms = if self.chance.one_in(6) { self.chance.below(90_000) } else { self.chance.below(900) };
        self.advance(ms);
    }

    fn advance(&mut self, ms: u64) {
        self.time += ms;
        self.primary.set_clocks(self.time);
        self.followers.iter_mut().for_each(|follower| follower.member.set_clocks(self.time));
    }

    /// The reaper, to the end or in the midst of it.
    fn reap(&mut self) {
        if self.chance.one_in(2) {
            self.note("the reaper".to_owned());
            return self.primary.node.tick();
        }
        for _ in 0..self.chance.below(3) {
            self.note("a step of the reaper".to_owned());
            self.primary.node.retain_some();
        }
    }

    fn operate(&mut self) {
        let hold = (*self.chance.pick(&["audit", "orphan"])).to_owned();
        let set = |setting, value| Command::SetPolicy(vec![(setting, value)]);
        let command = match self.chance.below(6) {
            0 => Command::Hold("audit".to_owned()),
            1 | 2 => Command::Unhold(hold),
            3 => Command::Trim,
            4 => set(Setting::RetainCount, Some(*self.chance.pick(&[0, 1, 3, 10]))),
            _ if self.chance.one_in(2) => set(Setting::RetainMs, Some(*self.chance.pick(&[0, 0, 1_000, 30_000]))),
            _ => set(Setting::DedupMs, Some(*self.chance.pick(&[0, 1_000, 30_000, 600_000]))),
        };
        let _ = self.run(&command);
    }

    /// What somebody does to keys.
    fn by_hand(&mut self) {
        let what = self.chance.below(5);
        self.note(format!("by hand: {what}"));
        match what {
            0 => self.primary.node.delete(),
            1 => self.primary.node.lose_log(),
            2 => self.primary.node.begin(Beginning::Restored),
            _ => {
                let elsewhere = what == 3;
                if elsewhere && self.primary.node.room.is_some() {
                    self.primary.move_elsewhere();
                }
                self.primary.node.begin(Beginning::Moved { elsewhere });
            }
        }
    }

    // ---------------------------------------------------------------- nodes

    fn replicate_some(&mut self) {
        let which = self.chance.below(REPLICAS as u64) as usize;
        let units = 1 + self.chance.below(8) as usize;
        let follower = &mut self.followers[which];
        follower.receive(units.min(follower.link.len()));
    }

    fn save(&mut self) {
        (self.disk, self.saved) = (self.primary.clone(), self.primary.node.save());
    }

    /// The primary is lost, with all that had not reached the replica that takes its place, whichever that is.
    fn fail_over(&mut self) {
        self.advance_past_outage();
        let which = self.chance.below(REPLICAS as u64) as usize;
        let arrives = self.chance.below(self.followers[which].link.len() as u64 + 1) as usize;
        let follower = &mut self.followers[which];
        follower.receive(arrives);
        let lost = std::mem::take(&mut follower.link).len();
        self.note(format!("failover to replica {which}; {lost} units are lost"));
        self.seen.lost_units += lost;
        self.nodes += 1;
        let new = Member::new(self.nodes, self.time);
        self.primary = std::mem::replace(&mut self.followers[which].member, new);
        self.begin();
    }

    /// The primary starts again, from what it saved at that moment or some time ago.
    fn crash(&mut self) {
        if self.chance.one_in(2) {
            self.save();
        }
        self.note("crash and restart".to_owned());
        self.advance_past_outage();
        self.nodes += 1;
        let mut new = Member::new(self.nodes, self.time);
        new.node.room = self.saved.as_ref().map(|parts| load(parts, new.node.now).expect("a room that was saved"));
        (new.node.log, new.node.elsewhere) = (self.disk.node.log.clone(), self.disk.node.elsewhere.clone());
        new.node.stream.clone_from(&self.disk.node.stream);
        (new.here, new.elsewhere) = (self.disk.here.clone(), self.disk.elsewhere.clone());
        self.primary = new;
        self.begin();
    }

    fn advance_past_outage(&mut self) {
        let ms = 1 + self.chance.below(2_000);
        self.advance(ms);
    }

    /// A new primary begins a new history, and its replicas are synchronised in full.
    fn begin(&mut self) {
        self.primary.node.begin(Beginning::Era { grace_ms: None });
        self.primary.note();
        for follower in &mut self.followers {
            follower.link.clear();
            let Member { node, here, elsewhere, .. } = &self.primary;
            let synced = &mut follower.member;
            let now = synced.node.now;
            synced.node.room = node.save().map(|parts| load(&parts, now).expect("a room that was saved"));
            (synced.node.log, synced.node.elsewhere) = (node.log.clone(), node.elsewhere.clone());
            synced.node.stream.clone_from(&node.stream);
            (synced.here, synced.elsewhere) = (here.clone(), elsewhere.clone());
        }
    }

    /// Nothing fails any more: every message gets its number, every reader all of them.
    fn finish(&mut self) {
        let _ = self.run(&Command::Hold("to the end".to_owned()));
        self.primary.node.tick();
        for writer in std::mem::take(&mut self.waiting) {
            let Message { user, id, payload } = writer.message.clone();
            let reply = self.run(&Command::Post(Post { user, id, payload })).expect("nothing refuses it");
            self.inv_6_one_seq_per_user_and_message_id(&writer.message, &reply);
        }
        for which in 0..self.readers.len() {
            let newest = self.primary.here.0.last_key_value().map_or(0, |(seq, _)| *seq);
            for _ in 0..1_000 {
                let command = self.readers[which].next_command(&mut self.chance);
                let answer = self.run(&command);
                self.readers[which].hear(&command, answer.as_ref());
                if self.readers[which].after >= newest && self.readers[which].session.is_some() {
                    break;
                }
            }
            assert!(self.readers[which].after >= newest, "a reader never gets there");
        }
    }
}

/// Tells the last steps of a world that failed.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.log.iter().for_each(|line| eprintln!("{line}"));
        }
    }
}

fn play(seed: u64) -> Seen {
    let told = std::panic::catch_unwind(|| {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.finish();
        std::mem::take(&mut world.seen)
    });
    told.unwrap_or_else(|failure| {
        eprintln!("play it again with SEED={seed}");
        std::panic::resume_unwind(failure)
    })
}

#[test]
fn inv_6_nobody_misses_or_repeats_a_message_whatever_is_lost() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    if let Some(seed) = number("SEED") {
        play(seed);
        return;
    }
    let mut all = Seen::default();
    for seed in 0..number("SEEDS").unwrap_or(SEEDS) {
        let seen = play(seed);
        all.lost_units += seen.lost_units;
        all.diverged += seen.diverged;
        all.trimmed += seen.trimmed;
        all.went_on += seen.went_on;
        all.duplicates += seen.duplicates;
        all.again_later += seen.again_later;
    }
    let Seen { lost_units, diverged, trimmed, went_on, duplicates, again_later } = all;
    let counts = [lost_units, diverged, trimmed, went_on, duplicates, again_later];
    assert!(counts.iter().all(|count| *count > 100), "hardly a failover: {counts:?}");
}
