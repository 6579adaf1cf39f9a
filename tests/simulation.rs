//! Clients, an operator, a primary and a replica under a virtual clock and bad luck: requests lost, repeated and late, a slow
//! replication stream, failovers, crashes, wall clocks that are set. The invariants are checked after every step.
//!
//! A seed decides everything. One that fails is printed with its last steps; `SEED=n cargo test --test simulation`
//! plays it again, `SEEDS=n` tries that many.

mod support;

use std::collections::VecDeque;

use redis_lease::core::effect::Gen;
use redis_lease::core::event::Event;
use redis_lease::core::policy::Setting;
use redis_lease::core::time::Now;

use support::chance::Chance;
use support::client::{Answer, Client, Request};
use support::command::{field, Command};
use support::invariants::*;
use support::log::Log;
use support::node::{load, Beginning, Node, Sent};
use support::operator::{Operator, USERS};

const SEEDS: u64 = 100;
const STEPS: usize = 500;
const UNIX: u64 = 1_894_006_800_000;
/// Packets in flight, at most.
const IN_FLIGHT: usize = 40;

enum Packet {
    Request(Request),
    Answer(usize, u64, Answer),
    /// Nobody waits for its answer.
    Order(Command),
}

/// A node, its clocks, and the histories its room has lived through.
struct Member {
    node: Node,
    /// What its monotonic clock shows more than the world's.
    boot: u64,
    /// How far its wall clock is off.
    wall: i64,
    lineage: Vec<Gen>,
}

impl Member {
    fn new(id: u32, time: u64, granted: bool) -> Self {
        let boot = u64::from(id) << 40;
        let mut node = Node::new(id, Now { mono: boot + time, unix: UNIX + time });
        node.settings.put(Setting::DefaultAccess, granted.into());
        node.settings.put(Setting::AnnounceMessages, 1);
        Self { node, boot, wall: 0, lineage: Vec::new() }
    }

    fn set_clocks(&mut self, time: u64) {
        self.node.now = Now { mono: self.boot + time, unix: (UNIX + time).saturating_add_signed(self.wall) };
    }

    /// Notes the history its room is in now.
    fn note(&mut self) {
        match &self.node.room {
            None => self.lineage.clear(),
            Some(room) if self.lineage.last() != Some(&room.gen()) => self.lineage.push(room.gen()),
            Some(_) => {}
        }
    }
}

/// What is on disk: the room and its stream, as of one moment.
struct Saved {
    parts: Option<Vec<Vec<u8>>>,
    stream: Vec<Event>,
    messages: Log,
    lineage: Vec<Gen>,
}

struct World {
    chance: Chance,
    time: u64,
    /// No wall clock is ever set.
    steady: bool,
    /// `default-access` is `granted`.
    granted: bool,
    primary: Member,
    replica: Member,
    /// Sent by the primary, not yet arrived at the replica.
    link: VecDeque<Sent>,
    disk: Saved,
    clients: Vec<Client>,
    operator: Operator,
    air: Vec<Packet>,
    given: Given,
    versions: Versions,
    numbered: Numbered,
    nodes: u32,
    log: VecDeque<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        // Two tabs on one device, a second device, a user whose sessions are bound to a token.
        let holders =
            [("u1", None, None), ("u1", None, None), ("u1", Some("phone"), None), ("u2", None, Some("s3cret"))];
        let clients =
            holders.iter().enumerate().map(|(me, (user, device, token))| Client::new(me, user, *device, *token));
        let granted = seed % 4 >= 2;
        Self {
            chance: Chance::new(seed),
            time: 0,
            steady: seed % 2 == 1,
            granted,
            primary: Member::new(1, 0, granted),
            replica: Member::new(2, 0, granted),
            link: VecDeque::new(),
            disk: Saved { parts: None, stream: Vec::new(), messages: Log::default(), lineage: Vec::new() },
            clients: clients.collect(),
            operator: Operator::new(seed % 8 >= 4),
            air: Vec::new(),
            given: Given::default(),
            versions: Versions::default(),
            numbered: Numbered::default(),
            nodes: 2,
            log: VecDeque::new(),
        }
    }

    fn step(&mut self) {
        match self.chance.below(100) {
            0..=33 => self.deliver(),
            34..=62 => self.act(),
            63..=66 => self.order(),
            67..=79 => self.pass(),
            80..=89 => self.replicate_some(),
            90..=93 => self.tick(),
            94 => self.set_access(),
            95 => self.kick(),
            96 => self.save(),
            97 => self.set_wall_clock(),
            98 => self.fail_over(),
            _ => self.crash(),
        }
        self.primary.note();
        let sent = std::mem::take(&mut self.primary.node.sent);
        self.link.extend(sent);
        inv_3_each_lease_is_removed_once(&self.primary.node);
        section_7_at_most_the_ttl_is_left(&self.primary.node, false);
        section_4_no_lease_outlives_its_grant(&self.primary.node);
        inv_2_a_revoked_user_has_no_active_lease(&self.primary.node);
        for node in [&self.primary.node, &self.replica.node] {
            inv_2_access_is_what_its_version_said(node, &self.operator);
        }
        if self.link.is_empty() {
            inv_5_a_replica_equals_its_primary(&self.primary.node, &self.replica.node);
            if self.steady {
                inv_5_grants_and_marks_are_equal(&self.primary.node, &self.replica.node);
            }
        }
    }

    fn note(&mut self, what: String) {
        if self.log.len() == 60 {
            self.log.pop_front();
        }
        self.log.push_back(format!("{:>8} {what}", self.time));
    }

    // ---------------------------------------------------------------- clients and network

    fn act(&mut self) {
        let client = self.chance.below(self.clients.len() as u64) as usize;
        let unix = UNIX + self.time;
        if let Some(request) = self.clients[client].act(&mut self.chance, unix) {
            self.send(Packet::Request(request));
        }
    }

    fn order(&mut self) {
        let order = self.operator.act(&mut self.chance, UNIX + self.time);
        self.send(Packet::Order(order));
    }

    fn send(&mut self, packet: Packet) {
        if self.chance.one_in(8) {
            return;
        }
        if self.air.len() == IN_FLIGHT {
            let lost = self.chance.below(IN_FLIGHT as u64) as usize;
            self.air.swap_remove(lost);
        }
        self.air.push(packet);
    }

    /// Any packet in flight arrives; a request may arrive again later.
    fn deliver(&mut self) {
        if self.air.is_empty() {
            return;
        }
        let which = self.chance.below(self.air.len() as u64) as usize;
        match self.air.swap_remove(which) {
            Packet::Answer(client, number, answer) => {
                self.note(format!("client {client} hears {answer:?}"));
                self.clients[client].hear(number, &answer, &mut self.chance);
            }
            Packet::Request(request) => {
                if self.chance.one_in(6) {
                    self.air.push(Packet::Request(request.clone()));
                }
                let answer = self.run(&format!("client {}", request.client), &request.command);
                self.send(Packet::Answer(request.client, request.number, answer));
            }
            Packet::Order(order) => {
                if self.chance.one_in(3) {
                    self.air.push(Packet::Order(order.clone()));
                }
                // What an order asks for it may ask too late.
                let _ = self.run("the operator", &order);
            }
        }
    }

    fn run(&mut self, who: &str, command: &Command) -> Answer {
        let (before, earlier) = (Before::of(&self.primary.node), self.primary.node.clone());
        let answer = self.primary.node.run(command);
        self.note(format!("{who} {command:?}: {answer:?}"));
        self.primary.note();
        let after = &self.primary.node;
        if !command.concerns_messages() {
            inv_7_presence_never_touches_messages(&before, after);
        }
        match &answer {
            Err(refusal) => inv_8_an_error_has_no_effect(&before, refusal, after),
            Ok(reply) => {
                if let Command::Open(open) = command {
                    let lineage = &self.primary.lineage;
                    self.given.inv_1_epochs_never_go_back(open.holder(), reply, lineage, self.steady);
                }
                inv_2_only_the_granted_are_let_in(&before, command);
                self.versions.inv_2_no_stale_version_wins(&before, command, reply, after);
                inv_2_the_stale_change_nothing(&before, command, reply, after);
                inv_6_numbers_rise_by_one(&before, command, reply, after);
                if let Command::Send(send) = command {
                    let sender = earlier.everyone().into_iter().find(|l| field(l, "session") == Some(&send.by.session));
                    let user = sender.as_ref().and_then(|lease| field(lease, "user")).expect("a sender");
                    self.numbered.inv_6_one_seq_per_user_and_message_id(user, send, reply);
                }
                inv_4_seq_compares_inside_its_epoch(&before, command, reply, after);
                inv_11_client_clocks_decide_nothing(&earlier, command, reply, after);
            }
        }
        answer
    }

    // ---------------------------------------------------------------- time, operators

    fn pass(&mut self) {
        let ms = match self.chance.below(10) {
            0 => self.chance.below(60_000),
            1 => 600_000,
            _ => self.chance.below(1_500),
        };
        self.advance(ms);
    }

    fn advance(&mut self, ms: u64) {
        self.time += ms;
        self.set_clocks();
    }

    fn set_clocks(&mut self) {
        let digests = [self.primary.node.digest(), self.replica.node.digest()];
        self.primary.set_clocks(self.time);
        self.replica.set_clocks(self.time);
        assert_eq!(digests, [self.primary.node.digest(), self.replica.node.digest()], "time alone changed a digest");
    }

    fn set_wall_clock(&mut self) {
        if self.steady {
            return;
        }
        let step = *self.chance.pick(&[-3_600_000, -700, 700, 3_600_000]);
        self.note(format!("a wall clock goes by {step}"));
        let member = if self.chance.one_in(2) { &mut self.primary } else { &mut self.replica };
        member.wall = step;
        let left = |member: &Member| left_ms(&member.node);
        let before = left(&self.primary);
        self.set_clocks();
        assert_eq!(before, left(&self.primary), "a step of the wall clock moved a deadline");
    }

    fn tick(&mut self) {
        self.note("the reaper".to_owned());
        let before = Before::of(&self.primary.node);
        self.primary.node.tick();
        inv_3_a_live_lease_is_not_removed(&before, &self.primary.node);
        inv_7_presence_never_touches_messages(&before, &self.primary.node);
    }

    fn kick(&mut self) {
        let user = Some("u1".to_owned());
        let kicked = self.primary.node.run(&Command::Kick { user, device: None });
        self.note(format!("kick: {kicked:?}"));
    }

    /// The room wants grants from now on, or none, or what the node says.
    fn set_access(&mut self) {
        let access = *self.chance.pick(&[None, Some(0), Some(1)]);
        let _ = self.run("the operator", &Command::SetPolicy(vec![(Setting::DefaultAccess, access)]));
    }

    // ---------------------------------------------------------------- nodes

    fn replicate_some(&mut self) {
        let most = 1 + self.chance.below(6) as usize;
        self.replicate(most);
    }

    fn replicate(&mut self, most: usize) {
        for sent in self.link.drain(..most.min(self.link.len())) {
            self.replica.node.receive(sent);
            self.replica.note();
        }
    }

    fn save(&mut self) {
        let Member { node, lineage, .. } = &self.primary;
        let (stream, messages) = (node.stream.clone(), node.log.clone());
        self.disk = Saved { parts: node.save(), stream, messages, lineage: lineage.clone() };
    }

    /// Until somebody takes over. Epochs stay above those of histories that nobody heard of by the time this takes; a
    /// chain of such histories needs seconds.
    fn outage(&mut self) {
        let ms = if self.steady { 5_000 } else { self.chance.below(200) };
        self.advance(ms);
    }

    /// The primary is lost, with all that had not reached the replica.
    fn fail_over(&mut self) {
        self.outage();
        let arrived = self.chance.below(self.link.len() as u64 + 1) as usize;
        self.replicate(arrived);
        self.note(format!("failover; {} units are lost", self.link.len()));
        self.link.clear();
        self.nodes += 1;
        let new = Member::new(self.nodes, self.time, self.granted);
        self.primary = std::mem::replace(&mut self.replica, new);
        self.begin();
    }

    /// The primary starts again, from what it saved at that moment or some time ago.
    fn crash(&mut self) {
        if self.chance.one_in(2) {
            self.save();
        }
        self.note("crash and restart".to_owned());
        self.outage();
        self.nodes += 1;
        let mut new = Member::new(self.nodes, self.time, self.granted);
        new.wall = self.primary.wall;
        new.set_clocks(self.time);
        new.node.room = self.disk.parts.as_ref().map(|parts| load(parts, new.node.now).expect("a room that was saved"));
        new.node.stream.clone_from(&self.disk.stream);
        new.node.log.clone_from(&self.disk.messages);
        // A history that no write had carried was not saved.
        let gen = new.node.room.as_ref().map(|room| room.gen());
        let heard = self.disk.lineage.iter().position(|of| Some(*of) == gen).map_or(0, |place| place + 1);
        new.lineage = self.disk.lineage[..heard].to_vec();
        self.link.clear();
        self.primary = new;
        self.begin();
    }

    /// A new primary begins a new history, and its replica is synchronised in full.
    fn begin(&mut self) {
        self.primary.node.begin(Beginning::Era { grace_ms: None });
        section_7_at_most_the_ttl_is_left(&self.primary.node, true);
        self.versions = Versions::of(&self.primary.node);
        self.numbered = Numbered::of(&self.primary.node);
        let now = self.replica.node.now;
        self.replica.node.room =
            self.primary.node.save().map(|parts| load(&parts, now).expect("a room that was saved"));
        self.replica.node.stream.clone_from(&self.primary.node.stream);
        self.replica.node.log.clone_from(&self.primary.node.log);
        self.replica.lineage.clone_from(&self.primary.lineage);
        self.primary.note();
    }

    /// Everybody goes: what is left ends once, is forgotten, and leaves nothing behind but versions. A wall clock that
    /// was set back between a save and a load has made tombstones last longer, an hour each time.
    fn finish(&mut self) {
        for member in [&mut self.primary, &mut self.replica] {
            member.node.settings.put(Setting::RetainMs, 1);
        }
        let _ = self.run("the operator", &Command::SetPolicy(vec![(Setting::DefaultAccess, None)]));
        for user in USERS {
            let soon = self.primary.node.now.unix + 1;
            let grant = self.operator.grant(user, Some(soon));
            self.run("the operator", &grant).expect("a grant of the highest version");
        }
        let hours = 3 + self.nodes;
        for _ in 0..hours {
            self.advance(3_600_000);
            self.primary.node.tick();
            inv_3_each_lease_is_removed_once(&self.primary.node);
        }
        self.link.extend(std::mem::take(&mut self.primary.node.sent));
        self.replicate(usize::MAX);
        inv_5_a_replica_equals_its_primary(&self.primary.node, &self.replica.node);
        match &self.primary.node.room {
            None => {}
            Some(room) if self.operator.is_versioned() => {
                assert_eq!((room.gauges(), self.primary.node.grants(None)), Default::default(), "more than versions");
            }
            Some(_) => panic!("an empty room stayed"),
        }
    }
}

fn left_ms(node: &Node) -> Vec<(String, String)> {
    let fields = |lease: support::command::Fields| {
        let of = |name| support::command::field(&lease, name).unwrap_or_default().to_owned();
        (of("session"), of("left_ms"))
    };
    node.everyone().into_iter().map(fields).collect()
}

/// Tells the seed and the last steps of a world that failed.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.log.iter().for_each(|line| eprintln!("{line}"));
        }
    }
}

fn play(seed: u64) {
    let told = std::panic::catch_unwind(|| {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.finish();
    });
    if let Err(failure) = told {
        eprintln!("play it again with SEED={seed}");
        std::panic::resume_unwind(failure);
    }
}

#[test]
fn invariants_hold_whatever_happens() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    match number("SEED") {
        Some(seed) => play(seed),
        None => (0..number("SEEDS").unwrap_or(SEEDS)).for_each(play),
    }
}
