//! Well-formed but impossible snapshots and effects of a message log (DISK-06), written by hand: they are refused, or
//! put right by a rule.

mod support;

use redis_lease::core::codec;
use redis_lease::core::cursor::{Claim, MOST_DEVICES};
use redis_lease::core::dedupe::{message_key, payload_digest, Accepted};
use redis_lease::core::effect::{Began, Claimed, Effect, Gen, Held, Recalled, Sent, Trimmed};
use redis_lease::core::id::Id;
use redis_lease::core::policy::Settings;
use redis_lease::core::room::{Env, Room};
use redis_lease::core::time::{Now, MAX};
use redis_lease::core::wire::{Corrupt, Writer};

use support::command::{Command, Post};
use support::exercise::{assert_valid, exercise};
use support::node::{load, Node};

const NOW: Now = Now { mono: 1 << 40, unix: 1_894_006_800_000 };
/// The first byte of every part: the version that messages came with.
const SNAPSHOT: u8 = 102;
/// The newest message of every room here.
const NEWEST: u64 = 9;
/// Earlier gens that a room keeps.
const GENS: usize = 64;

/// A snapshot written by hand, as `core::snapshot` lays it out. All numbers in it are unix ms where they are times.
#[derive(Clone, Default)]
struct Parts {
    gone: u64,
    /// Gens and the newest message of each.
    past: Vec<(u64, u64)>,
    readings: Vec<u64>,
    rebuilding: Option<u64>,
    holds: Vec<&'static str>,
    records: Vec<Record>,
    cursors: Vec<Cursor>,
}

/// Of one message.
#[derive(Clone)]
struct Record {
    id: &'static str,
    seq: u64,
    at: u64,
    until: u64,
}

#[derive(Clone)]
struct Cursor {
    user: &'static str,
    device: String,
    claims: [u64; 3],
}

const RECORD: Record = Record { id: "m", seq: NEWEST, at: NOW.unix, until: NOW.unix + 1_000 };

fn cursor(device: &str, claims: [u64; 3]) -> Cursor {
    Cursor { user: "u", device: device.to_owned(), claims }
}

impl Parts {
    fn header(&self) -> Vec<u8> {
        let mut w = Writer::new(NOW);
        w.byte(SNAPSHOT);
        w.byte(1);
        w.number(2);
        w.number(NOW.unix);
        w.fixed(&[1, 2, 3, 4]);
        for number in [NOW.unix, 0, 0, 3, 0, NOW.unix, NOW.unix, 0, 0] {
            w.number(number);
        }
        for number in [NEWEST, self.gone, NOW.unix, NOW.unix] {
            w.number(number);
        }
        w.number(self.past.len() as u64);
        for (ms, last) in &self.past {
            w.number(*ms);
            w.fixed(&[0; 4]);
            w.number(*last);
        }
        w.number(self.readings.len() as u64);
        for seq in &self.readings {
            for number in [*seq, NOW.unix, NOW.unix] {
                w.number(number);
            }
        }
        w.option(self.rebuilding, Writer::number);
        w.byte(0);
        w.number(self.holds.len() as u64);
        for hold in &self.holds {
            w.bytes(hold.as_bytes());
        }
        w.into_bytes()
    }

    fn dedupe(&self) -> Vec<u8> {
        let mut w = Writer::new(NOW);
        w.byte(SNAPSHOT);
        w.byte(4);
        for record in &self.records {
            w.fixed(&message_key(b"u", record.id.as_bytes()));
            w.fixed(&payload_digest(b"p"));
            for number in [record.seq, record.at, record.until] {
                w.number(number);
            }
            w.byte(1);
        }
        w.into_bytes()
    }

    fn cursors(&self) -> Vec<u8> {
        let mut w = Writer::new(NOW);
        w.byte(SNAPSHOT);
        w.byte(5);
        for Cursor { user, device, claims } in &self.cursors {
            w.bytes(user.as_bytes());
            w.bytes(device.as_bytes());
            claims.iter().for_each(|seq| w.number(*seq));
            w.number(NOW.unix + 1_000);
        }
        w.into_bytes()
    }

    fn load(&self) -> Result<Room, Corrupt> {
        load(&[self.header(), self.dedupe(), self.cursors()], NOW)
    }
}

fn with_records(records: &[Record]) -> Parts {
    Parts { records: records.to_vec(), ..Parts::default() }
}

fn with_cursors(cursors: &[Cursor]) -> Parts {
    Parts { cursors: cursors.to_vec(), ..Parts::default() }
}

fn past(gens: usize) -> Parts {
    Parts { past: (0..gens as u64).map(|ms| (ms, ms.min(NEWEST))).collect(), ..Parts::default() }
}

fn with_readings(readings: &[u64]) -> Parts {
    Parts { readings: readings.to_vec(), ..Parts::default() }
}

#[test]
fn disk_06_impossible_logs_are_refused() {
    let other = Record { id: "n", seq: 1, ..RECORD };
    let all = |devices: usize| -> Vec<Cursor> { (0..devices).map(|i| cursor(&i.to_string(), [1, 0, 0])).collect() };
    for possible in [
        with_records(&[RECORD, other.clone()]),
        with_cursors(&[cursor("a", [NEWEST, 0, NEWEST]), cursor("b", [0, 1, 0])]),
        with_cursors(&all(MOST_DEVICES)),
        past(GENS),
        with_readings(&[1, 4, NEWEST]),
        Parts { holds: vec!["audit", "orphan"], ..Parts::default() },
    ] {
        let room = possible.load().expect("what the cases below make impossible");
        assert_valid(&room, NOW);
        exercise(room, NOW);
    }
    for (what, parts) in [
        ("two records of one message", with_records(&[RECORD, Record { seq: 1, ..RECORD }])),
        ("a message the room never numbered", with_records(&[Record { seq: NEWEST + 1, ..RECORD }])),
        ("message 0", with_records(&[other, Record { seq: 0, ..RECORD }])),
        ("a message beyond 2^63-1", with_records(&[Record { seq: MAX + 1, ..RECORD }])),
        ("a window beyond 2^63-1", with_records(&[Record { until: MAX + 1, ..RECORD }])),
        ("more gens than a room keeps", past(GENS + 1)),
        ("readings out of order", with_readings(&[4, 3])),
        ("two readings of one message", with_readings(&[4, 4])),
        ("a reading of a message the room never numbered", with_readings(&[4, NEWEST + 1])),
        ("one hold twice", Parts { holds: vec!["audit", "orphan", "audit"], ..Parts::default() }),
        ("a hold without a name", Parts { holds: vec![""], ..Parts::default() }),
        ("a cursor beyond the newest message", with_cursors(&[cursor("a", [0, 0, NEWEST + 1])])),
        ("a cursor that claims nothing", with_cursors(&[cursor("a", [0; 3])])),
        ("one holder's cursor twice", with_cursors(&[cursor("a", [1, 0, 0]), cursor("a", [0, 1, 0])])),
        ("a device too many", with_cursors(&all(MOST_DEVICES + 1))),
        ("a cursor without a device", with_cursors(&[cursor("", [1, 0, 0])])),
    ] {
        assert!(parts.load().is_err(), "{what}");
    }
    let parts = with_records(&[RECORD]);
    let (header, dedupe, cursors) = (parts.header(), parts.dedupe(), parts.cursors());
    assert!(load(&[header.clone(), dedupe.clone(), dedupe.clone()], NOW).is_err(), "all records twice");
    assert!(load(&[dedupe.clone(), header.clone(), cursors.clone()], NOW).is_err(), "records before the header");
    for end in 3..dedupe.len() {
        assert!(
            load(&[header.clone(), dedupe[..end].to_vec(), cursors.clone()], NOW).is_err(),
            "{end} bytes of records"
        );
    }
    for end in 2..header.len() {
        assert!(load(&[header[..end].to_vec(), dedupe.clone(), cursors.clone()], NOW).is_err(), "{end} of a header");
    }
}

/// More is gone than was ever numbered: so it is while a room waits to be told of a log it has met.
#[test]
fn disk_06_what_waits_for_its_history_is_read() {
    for gone in [NEWEST, NEWEST + 1, MAX] {
        for rebuilding in [None, Some(0), Some(1), Some(NEWEST + 1), Some(MAX)] {
            let parts = Parts { gone, rebuilding, ..with_records(&[RECORD]) };
            let room = parts.load().expect("a room");
            assert_valid(&room, NOW);
            let node = exercise(room, NOW);
            assert!(node.room.is_some_and(|room| room.log_seq() > NEWEST), "it takes no message any more");
        }
    }
}

/// Possible, at the very end of what can be counted.
#[test]
fn disk_06_a_window_and_an_age_without_end_work() {
    let endless = Record { at: MAX, until: MAX, ..RECORD };
    let room = Parts { readings: vec![1], ..with_records(&[endless, Record { id: "n", at: 0, until: 0, ..RECORD }]) };
    let room = room.load().expect("a room");
    assert_valid(&room, NOW);
    exercise(room, NOW);
}

// -------------------------------------------------------------------- effects

fn accepted(id: &[u8], seq: u64) -> Accepted {
    let (key, payload) = (message_key(b"u", id), payload_digest(b"p"));
    Accepted { key, payload, seq, at: NOW.unix, until: NOW.mono + 1_000 }
}

fn room() -> Room {
    with_records(&[RECORD]).load().expect("a room")
}

/// Applied as a replica does that gets its bytes; and whatever they made of the room can be saved and read again.
fn after(effects: &[Effect]) -> Option<Room> {
    let decoded = codec::decode(&codec::encode(effects, NOW), NOW).ok()?;
    let mut room = room();
    decoded.iter().for_each(|effect| room.apply(effect));
    assert_valid(&room, NOW);
    exercise(room.clone(), NOW);
    Some(room)
}

fn known(room: &Room, id: &str) -> Option<u64> {
    let mut node = Node::new(9, NOW);
    node.room = Some(room.clone());
    let (user, id, payload) = ("u".to_owned(), id.to_owned(), "p".to_owned());
    let reply = node.run(&Command::Post(Post { user, id, payload })).ok()?;
    (reply.field("status") == Some("duplicate")).then(|| reply.number("seq"))
}

/// What comes twice, late, or for another room is dropped.
#[test]
fn effects_that_do_not_fit_the_log_change_nothing() {
    let sent = |id, seq| Effect::Sent(Sent { accepted: accepted(id, seq), mono: NOW.mono });
    for seq in [0, 1, NEWEST] {
        let room = after(&[sent(b"late", seq)]).expect("effects");
        assert_eq!((room.log_seq(), known(&room, "late")), (NEWEST, None), "a message numbered {seq}");
    }
    let room = after(&[sent(b"next", NEWEST + 1), sent(b"twice", NEWEST + 1)]).expect("effects");
    assert_eq!((known(&room, "next"), known(&room, "twice")), (Some(NEWEST + 1), None));

    let recalled = |seq| Effect::Recalled(Recalled { records: vec![accepted(b"found", seq)], next: None });
    for (seq, expected) in [(0, None), (1, Some(1)), (NEWEST, Some(NEWEST)), (NEWEST + 1, None), (MAX, None)] {
        let room = after(&[recalled(seq)]).expect("effects");
        assert_eq!(known(&room, "found"), expected, "a message found at {seq}");
    }

    let hold = Effect::Held(Held { name: Id::new(b"audit") });
    assert_eq!(after(&[hold.clone(), hold]).map(|room| room.holds().len()), Some(1));

    let trimmed = |gone| Effect::Trimmed(Trimmed { gone, oldest_at: 0, at: NOW.mono });
    for gone in [0, NEWEST, MAX] {
        assert_eq!(after(&[trimmed(gone), trimmed(1)]).map(|room| room.log_seq()), Some(NEWEST));
    }

    let claimed = |seq| {
        let (user, device) = (Id::new(b"u"), Id::new(b"d"));
        Effect::Claimed(Claimed { user, device, claim: Claim::Queued, seq, until: NOW.mono + 1 })
    };
    let cursors = |seq| {
        let room = after(&[claimed(seq)]).expect("effects");
        room.lags(&Env { now: NOW, settings: &Settings::default() }).cursors
    };
    assert_eq!((cursors(NEWEST), cursors(NEWEST + 1)), (1, 0));
}

/// A history with more earlier ones than a room keeps would make one that no snapshot brings back.
#[test]
fn a_history_with_too_many_before_it_is_refused() {
    let began = |gens: u64| {
        let past = (0..gens).map(|ms| (Gen { ms, random: 0 }, 1)).collect();
        let gen = Gen { ms: NOW.unix + 1, random: 0 };
        Effect::Began(Began { gen, floor: 0, event_n: 0, at: NOW.mono, recovery: None, past, met: None })
    };
    assert!(after(&[began(GENS as u64)]).is_some());
    assert!(after(&[began(GENS as u64 + 1)]).is_none());
}
