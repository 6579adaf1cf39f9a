//! Bytes that this module did not write, or that changed on the way: effects and snapshots (DISK-05, DISK-06).
//!
//! They are an error, or a room on which every command, expiry and read works, and which can be saved again. A
//! snapshot moreover never yields a room that breaks the rules.

mod support;

use std::collections::BTreeSet;

use proptest::prelude::*;
use redis_lease::core::codec;
use redis_lease::core::policy::{Setting, Settings};
use redis_lease::core::refusal::{Limit, Refusal};
use redis_lease::core::room::{Env, Room};
use redis_lease::core::time::{Now, MAX};
use redis_lease::core::wire::{Corrupt, Writer};

use support::cases;
use support::command::{field, Command, Fields, Open, Renew};
use support::digest;
use support::node::{load, Beginning, Node, Sent};

const NOW: Now = Now { mono: 1 << 40, unix: 1_894_006_800_000 };
/// For a session id that no history has.
const NEVER_DRAWN: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// The first bytes of every batch of effects and of every part of a snapshot.
const EFFECTS: u8 = 1;
const SNAPSHOT: u8 = 101;

// -------------------------------------------------------------------- material

/// A node with a history: leases of every kind, tombstones, a policy.
fn lived(ops: &[(u8, u8)]) -> Node {
    let mut node = Node::new(1, NOW);
    let sessions = ["a", "b", "0f8fad5b-d9cb-469f-a165-70867728950e", "a session id of more than fifteen bytes"];
    for (op, of) in ops {
        let session = sessions[usize::from(*of) % sessions.len()].to_owned();
        let epoch = node.everyone().iter().find(|l| field(l, "session") == Some(&session)).and_then(|l| {
            let number = |name| field(l, name)?.parse::<u64>().ok();
            Some((number("epoch")?, number("seq")?))
        });
        let (epoch, seq) = epoch.unwrap_or((1, 0));
        let renew = Renew { session: session.clone(), epoch, seq: seq + 1, ..Renew::default() };
        let command = match op % 8 {
            0..=2 => Command::Open(Open {
                user: format!("u{}", of % 3),
                device: (of % 5 == 0).then(|| "phone".to_owned()),
                session: (of % 7 != 0).then_some(session),
                ttl_ms: (of % 2 == 0).then_some(3_600_000),
                until: (of % 3 == 0).then_some(NOW.unix + 50_000),
                token: (of % 11 == 0).then(|| "s3cret".to_owned()),
                meta: (of % 4 == 0).then(|| "meta".to_owned()),
                nx: false,
                random: [*of; 16],
            }),
            3 => Command::Renew(renew),
            4 => Command::Renew(Renew {
                state: Some(["failed", "connected", "closed"][usize::from(of % 3)].to_owned()),
                observed_at: Some(u64::from(*of)),
                meta: Some("another".to_owned()),
                ..renew
            }),
            5 => Command::Leave { session, epoch, linger_ms: u64::from(of % 2) * 500, token: None },
            6 => Command::SetPolicy(vec![(Setting::TombstoneMs, (of % 2 == 0).then_some(60_000))]),
            _ => {
                node.now =
                    Now { mono: node.now.mono + u64::from(*of) * 100, unix: node.now.unix + u64::from(*of) * 100 };
                node.tick();
                continue;
            }
        };
        // Some are refused: that is a history too.
        let _ = node.run(&command);
    }
    node
}

fn history() -> impl Strategy<Value = Node> {
    prop::collection::vec(any::<(u8, u8)>(), 1..40)
        .prop_map(|ops| lived(&ops))
        .prop_filter("a room", |n| n.room.is_some())
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{:?}", self.everyone())
    }
}

/// What may happen to bytes.
#[derive(Clone, Debug)]
enum Damage {
    Cut(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    /// The largest number of the contract, or one larger, from there on.
    Huge(prop::sample::Index, bool),
    Double(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
}

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let at = any::<prop::sample::Index>;
    let one = prop_oneof![
        1 => at().prop_map(Damage::Cut),
        6 => (at(), 0..8u8).prop_map(|(at, bit)| Damage::Flip(at, 1 << bit)),
        3 => (at(), any::<bool>()).prop_map(|(at, over)| Damage::Huge(at, over)),
        1 => at().prop_map(Damage::Double),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..5)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
    ];
    prop::collection::vec(one, 1..4)
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        if bytes.is_empty() {
            break;
        }
        let len = bytes.len();
        match damage {
            Damage::Cut(at) => bytes.truncate(at.index(len)),
            Damage::Flip(at, bit) => bytes[at.index(len)] ^= bit,
            Damage::Huge(at, over) => {
                let mut huge = vec![0xff; 8];
                huge.extend(if *over { vec![0xff, 0x01] } else { vec![0x7f] });
                bytes.splice(at.index(len)..at.index(len) + 1, huge);
            }
            Damage::Double(at) => bytes.extend_from_within(at.index(len)..),
            Damage::Insert(at, insert) => drop(bytes.splice(at.index(len)..at.index(len), insert.clone())),
        }
    }
    bytes
}

// -------------------------------------------------------------------- use

/// Every command and read, then all of time. Nothing panics, all comes to an end, and whatever is sent to replicas
/// or saved can be read there.
fn exercise(room: Room, now: Now) -> Node {
    let mut node = Node::new(9, now);
    node.room = Some(room);
    let leases = node.everyone();
    for (i, lease) in leases.iter().enumerate() {
        let of = |name| field(lease, name).unwrap_or_default().to_owned();
        let (session, epoch, seq) = (of("session"), of("epoch").parse().unwrap_or(0), of("seq").parse().unwrap_or(0));
        let renew = Renew { session: session.clone(), epoch, seq: (seq + 1).min(MAX), ..Renew::default() };
        let opened = Open { user: of("user"), device: Some(of("device")), random: [i as u8; 16], ..Open::default() };
        let failed = Renew { state: Some("failed".to_owned()), seq: (seq + 2).min(MAX), ..renew.clone() };
        for command in [
            Command::Get(session.clone()),
            Command::Renew(renew.clone()),
            Command::MRenew(vec![renew.clone(), failed.clone()]),
            Command::Renew(failed),
            Command::Open(Open { session: Some(session.clone()), ..opened.clone() }),
            Command::Open(opened),
            Command::Leave { session, epoch, linger_ms: 5, token: None },
            Command::Count,
        ] {
            let _ = node.run(&command);
        }
    }
    let newcomer = Open { user: "a newcomer".to_owned(), random: [0xee; 16], ..Open::default() };
    for command in [Command::Open(newcomer), Command::Kick { user: None, device: Some("phone".to_owned()) }] {
        let _ = node.run(&command);
    }
    run_out(&mut node);
    for sent in node.sent.drain(..) {
        if let Sent::Unit { effects, .. } = sent {
            codec::decode(&effects, now).expect("what a node sends, a replica can read");
        }
    }
    node
}

/// To the end of time.
fn run_out(node: &mut Node) {
    node.now = Now { mono: MAX, unix: MAX };
    let settings = Settings::default();
    let env = Env { now: node.now, settings: &settings };
    let room = node.room.as_mut().expect("a room");
    let most = room.gauges().leases;
    for _ in 0..=most {
        let Some(plan) = room.decide_expiry(&env) else { break };
        plan.effects.iter().for_each(|effect| room.apply(effect));
    }
    assert_eq!(room.gauges().leases, 0, "a lease never ends");
    let most = room.gauges().tombstones;
    for _ in 0..=most {
        let Some(plan) = room.decide_forgetting(1, &env) else { break };
        plan.effects.iter().for_each(|effect| room.apply(effect));
    }
    assert_eq!(room.gauges().tombstones, 0, "a tombstone is never forgotten");
    assert_eq!(room.gauges().users, 0);
    node.save().map(|parts| load(&parts, node.now).expect("a room that was saved"));
}

/// What a snapshot yields keeps the rules: a holder has one lease, and its next one takes that one's place.
fn assert_valid(room: &Room, now: Now) {
    let mut node = Node::new(9, now);
    node.room = Some(room.clone());
    let parts = node.save().expect("a room");
    let again = load(&parts, now).expect("a room that was saved");
    assert_eq!(digest::of(&again), digest::of(room));
    // The tests' commands are text: ids that a flipped bit has made something else are left aside.
    let is_text = |lease: &Fields| !lease.iter().any(|(_, value)| value.contains(char::REPLACEMENT_CHARACTER));
    let is_live = |lease: &Fields| field(lease, "state") != Some("ended");
    let live: Vec<_> = node.everyone().into_iter().filter(|lease| is_text(lease) && is_live(lease)).collect();
    let holder = |lease: &Fields| (field(lease, "user").map(str::to_owned), field(lease, "device").map(str::to_owned));
    assert_eq!(live.iter().map(holder).collect::<BTreeSet<_>>().len(), live.len(), "two leases of one holder");
    for lease in &live {
        let (user, device) = holder(lease);
        let open = Open { user: user.unwrap_or_default(), device, random: NEVER_DRAWN, ..Open::default() };
        let mut node = Node::new(9, now);
        node.room = Some(room.clone());
        let before = room.gauges().leases;
        match node.run(&Command::Open(open)) {
            Ok(reply) => {
                assert_eq!(reply.field("replaced"), field(lease, "session"));
                assert_eq!(node.room.map(|room| room.gauges().leases), Some(before));
            }
            Err(refusal) => assert_eq!(refusal, Refusal::Limit(Limit::Exhausted)),
        }
    }
}

fn play_effects(base: Node, bytes: &[u8]) {
    let Node { room, now, .. } = base;
    let mut room = room.unwrap_or_default();
    if let Ok(effects) = codec::decode(bytes, now) {
        effects.iter().for_each(|effect| room.apply(effect));
        exercise(room, now);
    }
}

fn play_snapshot(parts: &[Vec<u8>]) {
    if let Ok(room) = load(parts, NOW) {
        assert_valid(&room, NOW);
        exercise(room, NOW);
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn random_effects(base in history(), mut bytes in prop::collection::vec(any::<u8>(), 0..200), honest in any::<bool>()) {
        if honest {
            bytes.insert(0, EFFECTS);
        }
        play_effects(base, &bytes);
    }

    #[test]
    fn damaged_effects(base in history(), of in history(), which in any::<prop::sample::Index>(), damage in damage()) {
        let units = of.sent.iter().filter_map(|sent| match sent {
            Sent::Unit { effects, .. } => Some(effects.clone()),
            _ => None,
        });
        let units: Vec<_> = units.collect();
        let unit = which.get(&units).clone();
        // Undamaged, in a room they were not made for; then damaged.
        play_effects(base.clone(), &unit);
        play_effects(base, &damaged(unit, &damage));
    }

    #[test]
    fn random_snapshots(bytes in prop::collection::vec(any::<u8>(), 0..200), honest in any::<bool>()) {
        let mut parts = vec![Parts::default().header(), bytes.clone(), bytes];
        if honest {
            parts[1].splice(0..0, [SNAPSHOT, 2]);
        }
        play_snapshot(&parts[..2]);
        parts[2].splice(0..0, [SNAPSHOT, 1]);
        play_snapshot(&parts[2..]);
    }

    #[test]
    fn damaged_snapshots(of in history(), which in any::<prop::sample::Index>(), damage in damage()) {
        let mut parts = of.save().expect("a room");
        let part = which.index(parts.len());
        parts[part] = damaged(parts[part].clone(), &damage);
        play_snapshot(&parts);
    }
}

// -------------------------------------------------------------------- impossible rooms

/// A snapshot written by hand, as `core::snapshot` lays it out. All numbers in it are unix ms where they are times.
struct Parts {
    chunks: u64,
    floor: u64,
    highest: u64,
    event_n: u64,
    next_order: u64,
    own: Vec<(u8, u64)>,
    records: Vec<Record>,
}

#[derive(Clone)]
struct Record {
    session: &'static str,
    user: &'static str,
    epoch: u64,
    /// What the holder's highest epoch is above this one.
    above: u64,
    order: u64,
    signal: u8,
    phase: u8,
    end: u64,
}

const ACTIVE: u8 = 0;
const EXPIRED: u8 = 1;

const LEASE: Record =
    Record { session: "a", user: "u", epoch: 5, above: 0, order: 0, signal: 4, phase: ACTIVE, end: NOW.unix + 30_000 };

impl Default for Parts {
    fn default() -> Self {
        Self { chunks: 1, floor: 0, highest: 9, event_n: 3, next_order: 7, own: Vec::new(), records: Vec::new() }
    }
}

impl Parts {
    fn of(records: &[Record]) -> Self {
        Self { records: records.to_vec(), ..Self::default() }
    }

    fn header(&self) -> Vec<u8> {
        let mut w = Writer::new(NOW);
        w.byte(SNAPSHOT);
        w.byte(1);
        w.number(self.chunks);
        w.number(NOW.unix);
        w.fixed(&[1, 2, 3, 4]);
        let Self { floor, highest, event_n, next_order, .. } = *self;
        for number in [NOW.unix, floor, highest, event_n, 0, NOW.unix, NOW.unix, next_order] {
            w.number(number);
        }
        w.number(self.own.len() as u64);
        for (setting, value) in &self.own {
            w.byte(*setting);
            w.number(*value);
        }
        w.into_bytes()
    }

    fn chunk(&self) -> Vec<u8> {
        let mut w = Writer::new(NOW);
        w.byte(SNAPSHOT);
        w.byte(2);
        for r in &self.records {
            for id in [r.session, r.user, "default"] {
                w.bytes(id.as_bytes());
            }
            for number in [r.epoch, r.above, 0, NOW.unix, NOW.unix, 30_000, r.order] {
                w.number(number);
            }
            w.option(Some(r.signal), Writer::byte);
            w.byte(r.phase);
            w.number(r.end);
            if r.phase == EXPIRED {
                w.number(NOW.unix + 600_000);
            }
            w.byte(0);
        }
        w.into_bytes()
    }

    fn load(&self) -> Result<Room, Corrupt> {
        load(&[self.header(), self.chunk()], NOW)
    }
}

#[test]
fn disk_06_impossible_leases_are_refused() {
    let tombstone = Record { session: "t", epoch: 3, above: 2, phase: EXPIRED, end: NOW.unix, ..LEASE };
    Parts::of(&[tombstone.clone(), LEASE]).load().expect("what the cases below make impossible");
    let other = Record { session: "b", ..LEASE };
    let cases: [(&str, &[Record]); 13] = [
        ("two leases, one epoch", &[LEASE, other.clone()]),
        ("two leases, two epochs", &[LEASE, Record { epoch: 6, ..other.clone() }]),
        ("two leases of a holder with one epoch", &[LEASE, Record { epoch: 4, above: 1, ..other.clone() }]),
        ("a lease below a tombstone", &[Record { epoch: 6, above: 0, ..tombstone.clone() }, LEASE]),
        ("a lease that is not its holder's newest", &[Record { above: 1, ..LEASE }]),
        ("a holder with two epochs", &[tombstone.clone(), Record { epoch: 6, ..LEASE }]),
        ("a tombstone with the lease's epoch", &[LEASE, Record { epoch: 5, above: 0, ..tombstone.clone() }]),
        ("one session twice", &[LEASE, Record { user: "v", ..LEASE }]),
        ("epoch 0", &[Record { epoch: 0, ..LEASE }]),
        ("an epoch the room never gave", &[Record { epoch: 10, ..LEASE }]),
        ("a holder's epoch the room never gave", &[Record { above: 7, ..tombstone.clone() }]),
        ("no user", &[Record { user: "", ..LEASE }]),
        ("a deadline beyond 2^63-1", &[Record { end: MAX + 1, ..LEASE }]),
    ];
    for (what, records) in cases {
        assert!(Parts::of(records).load().is_err(), "{what}");
    }
    for (what, lease) in [
        ("an unknown phase", Record { phase: 7, ..LEASE }),
        ("an unknown signal", Record { signal: 0, ..LEASE }),
        ("an order that never was", Record { order: 1 << 32, ..LEASE }),
        ("an epoch above 2^63-1", Record { above: MAX, ..LEASE }),
    ] {
        assert!(Parts::of(&[lease]).load().is_err(), "{what}");
    }
}

#[test]
fn disk_06_impossible_headers_and_parts_are_refused() {
    let own = |setting: Setting, value| Parts { own: vec![(setting.code(), value)], ..Parts::default() };
    own(Setting::TtlMs, 1).load().expect("what the cases below make impossible");
    for (what, parts) in [
        ("a setting no room has", own(Setting::TtlMinMs, 1_000)),
        ("a ttl of 0", own(Setting::TtlMs, 0)),
        ("neither yes nor no", own(Setting::RequireToken, 2)),
        ("an unknown setting", Parts { own: vec![(200, 1)], ..Parts::default() }),
        ("a counter above 2^63-1", Parts { event_n: MAX + 1, ..Parts::default() }),
        ("a floor above 2^63-1", Parts { floor: MAX + 1, ..Parts::default() }),
        ("an order that never was", Parts { next_order: 1 << 32, ..Parts::default() }),
        ("a part that is missing", Parts { chunks: 2, ..Parts::default() }),
        ("a part too many", Parts { chunks: 0, ..Parts::default() }),
    ] {
        assert!(parts.load().is_err(), "{what}");
    }
    let (header, chunk) = (Parts::default().header(), Parts::of(&[LEASE]).chunk());
    assert!(load(&[chunk.clone()], NOW).is_err(), "records before the header");
    assert!(load(&[header.clone(), header.clone()], NOW).is_err(), "two headers");
    assert!(load(&[[&header[..], &[0]].concat(), chunk.clone()], NOW).is_err(), "bytes after the header");
    assert!(load(&[vec![SNAPSHOT + 1, 1], chunk.clone()], NOW).is_err(), "a newer version");
    for end in 0..header.len() {
        assert!(load(&[header[..end].to_vec(), chunk.clone()], NOW).is_err(), "a header of {end} bytes");
    }
    for end in 3..chunk.len() {
        assert!(load(&[header.clone(), chunk[..end].to_vec()], NOW).is_err(), "a record of {end} bytes");
    }
}

/// Possible, at the very end of what can be counted: everything that is not refused still works.
#[test]
fn disk_06_the_last_numbers_work() {
    let tombstone = Record { session: "t", user: "v", phase: EXPIRED, end: NOW.unix, ..LEASE };
    let records = [Record { epoch: MAX, end: MAX, ..LEASE }, tombstone];
    let last = Parts { floor: MAX, highest: MAX, event_n: MAX, next_order: 0xffff_ffff, ..Parts::of(&records) };
    let room = last.load().expect("a room");
    assert_valid(&room, NOW);
    let mut node = Node::new(9, NOW);
    node.room = Some(room);
    for (user, session) in [("u", "b"), ("w", "c")] {
        let open = Open { user: user.to_owned(), session: Some(session.to_owned()), ..Open::default() };
        assert_eq!(node.run(&Command::Open(open)), Err(Refusal::Limit(Limit::Exhausted)));
    }
    // A deadline that no ttl explains goes with the load.
    node.begin(Beginning::Era { grace_ms: Some(0) });
    assert_eq!(field(&node.everyone()[0], "left_ms"), Some("30000"));
    exercise(node.room.expect("a room"), NOW);
}
