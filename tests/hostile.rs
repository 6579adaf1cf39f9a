//! Bytes that this module did not write, or that changed on the way: effects and snapshots (DISK-05).
//!
//! They are an error, or a room on which every command, expiry and read works, and which can be saved again. A
//! snapshot moreover never yields a room that breaks the rules.

mod support;

use proptest::prelude::*;
use redis_lease::core::codec;
use redis_lease::core::cursor::Claim;
use redis_lease::core::policy::Setting;
use redis_lease::core::time::Now;

use support::cases;
use support::command::{field, Command, Grant, Open, Post, Renew, Send, Session};
use support::exercise::{assert_valid, exercise};
use support::node::{load, Beginning, Node, Sent};

const NOW: Now = Now { mono: 1 << 40, unix: 1_894_006_800_000 };
/// The first bytes of every batch of effects and of every part of a snapshot.
const EFFECTS: u8 = 2;
const SNAPSHOT: u8 = 101;

// -------------------------------------------------------------------- material

/// A node with a history: leases of every kind, tombstones, a policy, grants and marks, messages, claims and holds.
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
        let user = format!("u{}", of % 3);
        let device = (of % 5 == 0).then(|| "phone".to_owned());
        let command = match op % 19 {
            0..=2 => Command::Open(Open {
                user,
                device,
                session: (of % 7 != 0).then_some(session),
                ttl_ms: (of % 2 == 0).then_some(3_600_000),
                until: (of % 3 == 0).then_some(NOW.unix + 50_000),
                token: (of % 11 == 0).then(|| "s3cret".to_owned()),
                grant_token: Some("pass".to_owned()),
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
            7 => Command::SetPolicy(vec![(Setting::DefaultAccess, Some(i64::from(of % 3 == 0)))]),
            8 => Command::Grant(Grant {
                user,
                writes: of % 2 == 0,
                until: (of % 3 != 0).then_some(node.now.unix + u64::from(*of) * 200 + 1),
                token: (of % 4 == 0).then(|| "pass".to_owned()),
                version: (of % 5 == 0).then_some(u64::from(*of)),
            }),
            9 => Command::Revoke { user, device, version: (of % 4 == 0).then_some(u64::from(*of)) },
            10 | 11 => Command::Post(Post { user, id: format!("m{}", of % 8), payload: "a message".to_owned() }),
            12 => {
                let by = Session { session, epoch, token: None };
                Command::Send(Send { by, id: format!("m{}", of % 8), payload: "a message".to_owned() })
            }
            13 => {
                let (setting, value) = [
                    (Setting::RetainCount, 1),
                    (Setting::RetainMs, 500),
                    (Setting::DedupMs, 700),
                    (Setting::DedupMs, 600_000),
                ][usize::from(of % 4)];
                Command::SetPolicy(vec![(setting, Some(value))])
            }
            14 => {
                let claim = Claim::ALL[usize::from(of % 2)];
                Command::Mark { user, device: "default".to_owned(), claim, seq: u64::from(of % 6) }
            }
            15 => Command::Hold(format!("hold {}", of % 3)),
            16 => Command::Unhold(["hold 0", "hold 1", "orphan"][usize::from(of % 3)].to_owned()),
            17 => {
                // Its records are rebuilt by what comes next.
                node.begin([Beginning::Restored, Beginning::Moved { elsewhere: true }][usize::from(of % 2)]);
                continue;
            }
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
    fn random_snapshots(of in history(), mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..3u8) {
        if kind > 0 {
            bytes.splice(0..0, [SNAPSHOT, kind]);
        }
        let header = of.save().into_iter().flatten().next().expect("a header");
        play_snapshot(&[header, bytes.clone()]);
        play_snapshot(&[bytes]);
    }

    #[test]
    fn damaged_snapshots(of in history(), which in any::<prop::sample::Index>(), damage in damage()) {
        let mut parts = of.save().expect("a room");
        let part = which.index(parts.len());
        parts[part] = damaged(parts[part].clone(), &damage);
        play_snapshot(&parts);
    }
}
