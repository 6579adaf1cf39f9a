//! Well-formed but impossible snapshots (DISK-06), written by hand: they are refused, or put right by a rule.

mod support;

use redis_lease::core::effect::{Effect, Ended, Lingered, Motion, Renewed};
use redis_lease::core::id::Id;
use redis_lease::core::lease::Reason;
use redis_lease::core::policy::Setting;
use redis_lease::core::refusal::{Limit, Refusal};
use redis_lease::core::room::Room;
use redis_lease::core::time::{Now, MAX};
use redis_lease::core::wire::{Corrupt, Writer};

use support::command::{field, Command, Open};
use support::exercise::{assert_valid, exercise};
use support::node::{load, Beginning, Node};

const NOW: Now = Now { mono: 1 << 40, unix: 1_894_006_800_000 };
/// The first byte of every part: its version.
const SNAPSHOT: u8 = 101;

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
    assert!(load(std::slice::from_ref(&chunk), NOW).is_err(), "records before the header");
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

/// One event number stays in reserve for every live lease.
#[test]
fn the_last_event_numbers_are_for_removals() {
    let open = |left: u64| {
        let mut node = Node::new(9, NOW);
        node.room = Some(Parts { event_n: MAX - left, ..Parts::of(&[LEASE]) }.load().expect("a room"));
        let newcomer = Open { user: "v".to_owned(), session: Some("b".to_owned()), ..Open::default() };
        (node.run(&Command::Open(newcomer)).err(), node)
    };
    assert_eq!(open(2).0, Some(Refusal::Limit(Limit::Exhausted)));
    let (refused, mut node) = open(3);
    assert_eq!(refused, None);
    node.now = Now { mono: NOW.mono + 30_000, unix: NOW.unix + 30_000 };
    node.tick();
    let numbers: Vec<u64> = node.stream.iter().map(|event| event.n).collect();
    assert_eq!(numbers, [MAX - 2, MAX - 1, MAX]);
}

/// An effect that does not fit the room any more is dropped.
#[test]
fn effects_of_another_epoch_change_nothing() {
    let mut node = Node::new(9, NOW);
    node.room = Some(Parts::of(&[LEASE]).load().expect("a room"));
    let before = node.everyone();
    let session = Id::new(LEASE.session.as_bytes());
    let (seq, at, deadline) = (9, NOW.unix, NOW.mono + 60_000);
    for epoch in [LEASE.epoch - 1, LEASE.epoch + 1] {
        let renewed = Renewed { epoch, seq, at, deadline, motion: Motion::Renewed, report: None };
        let lingered = Lingered { session: session.clone(), epoch, deadline: NOW.mono + 1, span_ms: 1 };
        let ended = Ended {
            session: session.clone(),
            epoch,
            reason: Reason::Left,
            at,
            tombstone_until: deadline,
            replaced_by: None,
            closing: None,
        };
        let room = node.room.as_mut().expect("a room");
        room.apply(&Effect::Renewed(session.clone(), renewed));
        room.apply(&Effect::Lingered(lingered));
        room.apply(&Effect::Ended(ended));
        assert_eq!(before, node.everyone());
    }
}
