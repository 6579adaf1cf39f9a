//! Well-formed but impossible snapshots (DISK-06), written by hand: they are refused, or put right by a rule.

mod support;

use redis_lease::core::dedupe::Accepted;
use redis_lease::core::effect::{Began, Effect, Ended, Gen, Lingered, Motion, Opened, Recalled, Renewed};
use redis_lease::core::id::Id;
use redis_lease::core::lease::Reason;
use redis_lease::core::policy::Setting;
use redis_lease::core::refusal::{Denied, Limit, Refusal};
use redis_lease::core::room::Room;
use redis_lease::core::time::{Now, MAX};
use redis_lease::core::wire::{Corrupt, Writer};

use support::command::{field, Command, Grant, Open, Renew};
use support::exercise::{assert_valid, exercise};
use support::node::{load, Beginning, Node};

const NOW: Now = Now { mono: 1 << 40, unix: 1_894_006_800_000 };
/// The first byte of every part: its version. Grants are read in the first as well.
const SNAPSHOT: u8 = 101;

/// A snapshot written by hand, as `core::snapshot` lays it out. All numbers in it are unix ms where they are times.
struct Parts {
    chunks: u64,
    floor: u64,
    highest: u64,
    event_n: u64,
    next_order: u64,
    own: Vec<(u8, u64)>,
    access: Vec<Access>,
    records: Vec<Record>,
}

/// What a user may do.
#[derive(Clone)]
struct Access {
    user: &'static str,
    /// Level and end.
    grant: Option<(u8, Option<u64>)>,
    version: Option<u64>,
    revoked: bool,
    devices: &'static [&'static str],
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
    replaced_by: Option<u64>,
}

const ACTIVE: u8 = 0;
const EXPIRED: u8 = 1;
const SUPERSEDED: u8 = 3;

const LEASE: Record = Record {
    session: "a",
    user: "u",
    epoch: 5,
    above: 0,
    order: 0,
    signal: 4,
    phase: ACTIVE,
    end: NOW.unix + 30_000,
    replaced_by: None,
};

const READ: u8 = 1;

const GRANTED: Access = Access { user: "u", grant: Some((READ, None)), version: None, revoked: false, devices: &[] };
const REVOKED: Access = Access { user: "u", grant: None, version: None, revoked: true, devices: &[] };

impl Default for Parts {
    fn default() -> Self {
        Self {
            chunks: 1,
            floor: 0,
            highest: 9,
            event_n: 3,
            next_order: 7,
            own: Vec::new(),
            access: Vec::new(),
            records: Vec::new(),
        }
    }
}

impl Parts {
    fn of(records: &[Record]) -> Self {
        Self { records: records.to_vec(), ..Self::default() }
    }

    fn with_access(access: &[Access], records: &[Record]) -> Self {
        Self { chunks: 2, access: access.to_vec(), ..Self::of(records) }
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

    fn access(&self) -> Vec<u8> {
        let mut w = Writer::new(NOW);
        w.byte(SNAPSHOT);
        w.byte(3);
        for a in &self.access {
            w.bytes(a.user.as_bytes());
            w.option(a.grant, |w, (level, until)| {
                w.byte(level);
                w.option(until, Writer::number);
                w.byte(0);
            });
            w.option(a.version, Writer::number);
            w.byte(a.revoked.into());
            w.number(a.devices.len() as u64);
            for device in a.devices {
                w.bytes(device.as_bytes());
            }
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
            if r.phase != ACTIVE {
                w.number(NOW.unix + 600_000);
            }
            w.option(r.replaced_by, |w, by| {
                w.fixed(&[0; 5]); // until, token, meta, observed_at, replaced
                w.option(Some(by), Writer::number);
                w.byte(0);
            });
        }
        w.into_bytes()
    }

    fn load(&self) -> Result<Room, Corrupt> {
        let access = (self.chunks == 2).then(|| self.access());
        load(&[self.header()].into_iter().chain(access).chain([self.chunk()]).collect::<Vec<_>>(), NOW)
    }
}

#[test]
fn disk_06_impossible_leases_are_refused() {
    let tombstone = Record { session: "t", epoch: 3, above: 2, phase: EXPIRED, end: NOW.unix, ..LEASE };
    Parts::of(&[tombstone.clone(), LEASE]).load().expect("what the cases below make impossible");
    let superseded = Record { phase: SUPERSEDED, replaced_by: Some(4), ..tombstone.clone() };
    Parts::of(&[superseded.clone(), LEASE]).load().expect("the same");
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
        ("superseded by nothing", Record { replaced_by: None, ..superseded.clone() }),
        ("superseded by epoch 0", Record { replaced_by: Some(0), ..superseded.clone() }),
        ("superseded by an earlier one", Record { replaced_by: Some(2), ..superseded.clone() }),
        ("superseded and expired", Record { phase: EXPIRED, ..superseded }),
        ("superseded and live", Record { replaced_by: Some(6), ..LEASE }),
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
        ("a part that is missing", Parts { chunks: 3, ..Parts::default() }),
        ("a part too many", Parts { chunks: 0, ..Parts::default() }),
    ] {
        assert!(parts.load().is_err(), "{what}");
    }
    let (header, chunk) = (Parts::default().header(), Parts::of(&[LEASE]).chunk());
    assert!(load(std::slice::from_ref(&chunk), NOW).is_err(), "records before the header");
    assert!(load(&[header.clone(), header.clone()], NOW).is_err(), "two headers");
    assert!(load(&[[&header[..], &[0]].concat(), chunk.clone()], NOW).is_err(), "bytes after the header");
    assert!(load(&[[&[u8::MAX], &header[1..]].concat(), chunk.clone()], NOW).is_err(), "a version of the far future");
    for end in 0..header.len() {
        assert!(load(&[header[..end].to_vec(), chunk.clone()], NOW).is_err(), "a header of {end} bytes");
    }
    for end in 3..chunk.len() {
        assert!(load(&[header.clone(), chunk[..end].to_vec()], NOW).is_err(), "a record of {end} bytes");
    }
}

#[test]
fn disk_06_impossible_access_is_refused() {
    let device = Access { devices: &["phone", "tab"], version: Some(7), ..GRANTED };
    Parts::with_access(&[device.clone(), Access { user: "v", ..REVOKED }], &[LEASE])
        .load()
        .expect("what the cases below make impossible");
    for (what, access) in [
        ("a user twice", vec![GRANTED, Access { version: Some(1), ..REVOKED }]),
        ("a grant beside a revocation", vec![Access { revoked: true, ..GRANTED }]),
        ("no user", vec![Access { user: "", ..REVOKED }]),
        ("no device", vec![Access { devices: &["phone", ""], ..GRANTED }]),
        ("a device twice", vec![Access { devices: &["phone", "tab", "phone"], ..GRANTED }]),
        ("level 0", vec![Access { grant: Some((0, None)), ..GRANTED }]),
        ("a level above WRITE", vec![Access { grant: Some((3, None)), ..GRANTED }]),
        ("an end beyond 2^63-1", vec![Access { grant: Some((READ, Some(MAX + 1))), ..GRANTED }]),
        ("a version beyond 2^63-1", vec![Access { version: Some(MAX + 1), ..REVOKED }]),
    ] {
        assert!(Parts::with_access(&access, &[]).load().is_err(), "{what}");
    }
    let parts = Parts::with_access(&[device], &[LEASE]);
    let (header, access, chunk) = (parts.header(), parts.access(), parts.chunk());
    assert!(load(&[header.clone(), chunk.clone(), access.clone()], NOW).is_err(), "access after the leases");
    assert!(load(&[header.clone(), access.clone(), access.clone()], NOW).is_err(), "all access twice");
    assert!(load(&[access.clone(), header.clone(), chunk.clone()], NOW).is_err(), "access before the header");
    for end in 3..access.len() {
        assert!(load(&[header.clone(), access[..end].to_vec(), chunk.clone()], NOW).is_err(), "access of {end} bytes");
    }
}

/// A revocation ended what was live: what it left was overdue, whatever deadline the bytes tell.
#[test]
fn disk_06_a_live_lease_beside_a_mark_is_over() {
    let of_device = Access { devices: &["default"], ..GRANTED };
    for (access, grace_ms) in [(REVOKED, None), (of_device, None), (REVOKED, Some(0)), (REVOKED, Some(1_000))] {
        let mut node = Node::new(9, NOW);
        node.room = Some(Parts::with_access(&[access], &[LEASE]).load().expect("a room"));
        // A RESTORE gives no grace, and begins with what it finds.
        for beginning in [Beginning::Restored, Beginning::Era { grace_ms }] {
            node.begin(beginning);
            assert_eq!(field(&node.everyone()[0], "reason"), Some("expired"));
            let renew = Renew { session: "a".to_owned(), epoch: LEASE.epoch, seq: 1, ..Renew::default() };
            assert_eq!(node.run(&Command::Renew(renew)), Err(Refusal::Denied(Denied::Revoked)));
        }
        node.tick();
        assert_eq!(node.stream.len(), 1, "one removal");
    }
}

/// A record that says nothing is none: it keeps no room.
#[test]
fn disk_06_a_blank_record_is_dropped() {
    let blank = Access { grant: None, ..GRANTED };
    let room = |access| Parts::with_access(&[access], &[]).load().expect("a room");
    assert!(room(blank.clone()).is_empty());
    assert!(!room(Access { version: Some(0), ..blank }).is_empty());
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

/// A room with one lease and so many event numbers left, after a command; and what refused it.
fn near_the_end(left: u64, command: &Command) -> (Node, Option<Refusal>) {
    let mut node = Node::new(9, NOW);
    node.room = Some(Parts { event_n: MAX - left, ..Parts::of(&[LEASE]) }.load().expect("a room"));
    let refused = node.run(command).err();
    (node, refused)
}

/// The numbers of all events, once time has ended the leases.
fn numbers(mut node: Node) -> Vec<u64> {
    node.now = Now { mono: NOW.mono + 30_000, unix: NOW.unix + 30_000 };
    node.tick();
    node.stream.iter().map(|event| event.n).collect()
}

/// One event number stays in reserve for every live lease.
#[test]
fn the_last_event_numbers_are_for_removals() {
    let newcomer = Open { user: "v".to_owned(), session: Some("b".to_owned()), ..Open::default() };
    let open = |left| near_the_end(left, &Command::Open(newcomer.clone()));
    assert_eq!(open(2).1, Some(Refusal::Limit(Limit::Exhausted)));
    let (node, refused) = open(3);
    assert_eq!((numbers(node), refused), (vec![MAX - 2, MAX - 1, MAX], None));
}

/// Nor does a GRANT take one of those; a REVOKE is never refused.
#[test]
fn a_grant_leaves_the_last_event_numbers_for_removals() {
    let grant = Command::Grant(Grant { user: "u".to_owned(), ..Grant::default() });
    let (mut node, refused) = near_the_end(1, &grant);
    assert_eq!((&refused, node.grants(None).len()), (&Some(Refusal::Limit(Limit::Exhausted)), 0));
    let revoke = Command::Revoke { user: "u".to_owned(), device: None, version: None };
    assert_eq!(node.run(&revoke).map(|reply| reply.status().to_owned()), Ok("ok".to_owned()));
    assert_eq!(node.stream.first().map(|event| event.n), Some(MAX));
    let (mut node, refused) = near_the_end(2, &grant);
    assert_eq!(refused, None);
    // What writes no event needs no number.
    assert_eq!(node.run(&grant).map(|reply| reply.status().to_owned()), Ok("ok".to_owned()));
    assert_eq!(numbers(node), [MAX - 1, MAX]);
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

/// Nobody sends such effects. Bytes that changed on the way may: what they leave can be saved and loaded all the same.
#[test]
fn impossible_effects_leave_a_room_that_can_be_loaded() {
    let opened = |session: &str, user: &str, epoch| {
        let id = |text: &str| Id::new(text.as_bytes());
        let (deadline, at) = (NOW.mono + 30_000, NOW.unix);
        Effect::Opened(Box::new(Opened {
            session: id(session),
            user: id(user),
            device: id("default"),
            epoch,
            ttl_ms: 30_000,
            deadline,
            at,
            until: None,
            token: None,
            meta: None,
            replaced: None,
        }))
    };
    let accepted = |seq| Accepted { key: [1; 16], payload: [1; 12], seq, at: NOW.unix, until: NOW.mono };
    let recalled = |seq| Effect::Recalled(Recalled { records: vec![accepted(seq)], next: None });
    let gens = |count| {
        let past = (0..count).map(|ms| (Gen { ms, random: 1 }, 0)).collect();
        Effect::Began(Began {
            gen: Gen { ms: NOW.unix, random: 2 },
            floor: 0,
            event_n: 0,
            at: NOW.mono,
            recovery: None,
            past,
            met: None,
        })
    };
    let ended = |reason, replaced_by| {
        let session = Id::new(LEASE.session.as_bytes());
        let (epoch, at, tombstone_until) = (LEASE.epoch, NOW.unix, NOW.mono + 600_000);
        Effect::Ended(Ended { session, epoch, reason, at, tombstone_until, replaced_by, closing: None })
    };
    for (what, effect) in [
        ("superseded by nothing", ended(Reason::Superseded, None)),
        ("superseded by an epoch before", ended(Reason::Superseded, Some(1))),
        ("superseded and left", ended(Reason::Left, Some(6))),
        ("a second lease of a holder", opened("b", LEASE.user, LEASE.epoch + 1)),
        ("an epoch of 0", opened("b", "v", 0)),
        ("a message 0", recalled(0)),
        ("a message never numbered", recalled(1)),
        ("more gens than a room keeps", gens(65)),
    ] {
        let mut node = Node::new(9, NOW);
        node.room = Some(Parts::of(&[LEASE]).load().expect("a room"));
        node.room.as_mut().expect("a room").apply(&effect);
        load(&node.save().expect("a room"), NOW).unwrap_or_else(|corrupt| panic!("{what}: {corrupt:?}"));
    }
}
