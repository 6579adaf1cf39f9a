//! A room of doubtful origin is put to use.

use std::collections::BTreeSet;

use redis_lease::core::codec;
use redis_lease::core::cursor::Claim;
use redis_lease::core::policy::Settings;
use redis_lease::core::refusal::{Limit, Refusal};
use redis_lease::core::room::{Env, Room};
use redis_lease::core::time::{Now, MAX};

use super::command::{field, Command, Fields, Grant, Open, Post, Renew, Send, Session};
use super::digest;
use super::invariants::inv_2_a_revoked_user_has_no_active_lease;
use super::node::{load, Node, Sent};

/// More grants than any room here has.
const MANY_GRANTS: usize = 1_000;

/// For a session id that no history has.
const NEVER_DRAWN: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Every command and read, then all of time. Nothing panics, all comes to an end, and whatever is sent to replicas
/// or saved can be read there.
pub fn exercise(room: Room, now: Now) -> Node {
    let mut node = Node::new(9, now);
    node.room = Some(room);
    let leases = node.everyone();
    for (i, lease) in leases.iter().enumerate() {
        let of = |name| field(lease, name).unwrap_or_default().to_owned();
        let (session, epoch, seq) = (of("session"), of("epoch").parse().unwrap_or(0), of("seq").parse().unwrap_or(0));
        let renew = Renew { session: session.clone(), epoch, seq: (seq + 1).min(MAX), ..Renew::default() };
        let opened = Open { user: of("user"), device: Some(of("device")), random: [i as u8; 16], ..Open::default() };
        let failed = Renew { state: Some("failed".to_owned()), seq: (seq + 2).min(MAX), ..renew.clone() };
        exercise_messages(&mut node, &opened, &Session { session: session.clone(), epoch, token: None });
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
    let stranger = Open { user: "a stranger".to_owned(), device: Some("default".to_owned()), ..Open::default() };
    exercise_messages(&mut node, &stranger, &Session::default());
    let newcomer = Open { user: "a newcomer".to_owned(), random: [0xee; 16], ..Open::default() };
    for command in [Command::Open(newcomer), Command::Kick { user: None, device: Some("phone".to_owned()) }] {
        let _ = node.run(&command);
    }
    let records = node.grants(None);
    for user in leases.iter().chain(&records).filter_map(|row| field(row, "user")) {
        exercise_access(&mut node, user);
    }
    run_out(&mut node);
    for sent in node.sent.drain(..) {
        if let Sent::Unit { effects, .. } = sent {
            codec::decode(&effects, now).expect("what a node sends, a replica can read");
        }
    }
    node
}

fn exercise_messages(node: &mut Node, holder: &Open, by: &Session) {
    let send = Send { by: by.clone(), id: "m".to_owned(), payload: "p".to_owned() };
    let post = Post { user: holder.user.clone(), id: "n".to_owned(), payload: "p".to_owned() };
    let newest = node.room.as_ref().map_or(0, |room| room.log_seq());
    let mark = |claim, seq| Command::Mark {
        user: holder.user.clone(),
        device: holder.device.clone().unwrap_or_default(),
        claim,
        seq,
    };
    let replay = |after| Command::Replay { by: by.clone(), gen: "*".to_owned(), after, count: 10_000 };
    for command in [
        Command::Send(send.clone()),
        Command::Send(send),
        Command::Post(post.clone()),
        Command::Post(Post { payload: "another".to_owned(), ..post }),
        replay(0),
        replay(newest),
        Command::Snapshot { by: by.clone(), count: 10 },
        mark(Claim::Queued, newest),
        mark(Claim::Written, MAX),
        Command::Ack { by: by.clone(), seq: newest },
        Command::Lag,
        Command::Hold("audit".to_owned()),
        Command::Trim,
        Command::Unhold("audit".to_owned()),
        Command::Unhold("orphan".to_owned()),
        Command::Trim,
        Command::Holds,
    ] {
        let _ = node.run(&command);
    }
}

fn exercise_access(node: &mut Node, user: &str) {
    let grant = Grant { user: user.to_owned(), until: Some((node.now.unix + 9).min(MAX)), ..Grant::default() };
    let revoke = |device: Option<&str>, version| Command::Revoke {
        user: user.to_owned(),
        device: device.map(str::to_owned),
        version,
    };
    for command in [
        revoke(Some("default"), None),
        Command::Grant(grant.clone()),
        Command::Open(Open { user: user.to_owned(), random: [0xdd; 16], ..Open::default() }),
        revoke(None, Some(MAX)),
        Command::Grant(Grant { token: Some("pass".to_owned()), ..grant }),
        Command::Grants { user: Some(user.to_owned()) },
    ] {
        let _ = node.run(&command);
    }
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
    let over = (0..MANY_GRANTS).any(|_| match room.decide_grant_ends(1, &env) {
        Some(plan) => {
            plan.effects.iter().for_each(|effect| room.apply(effect));
            false
        }
        None => true,
    });
    assert!(over, "a grant never ends");
    node.lose_log();
    node.retain();
    let room = node.room.as_ref().expect("a room");
    assert_eq!((room.gauges().dedupe_records, room.rebuilding()), (0, None), "a record never ends");
    assert_eq!(node.lag(&env), Vec::<Fields>::new(), "a cursor never ends");
    node.save().map(|parts| load(&parts, node.now).expect("a room that was saved"));
}

/// What a snapshot yields keeps the rules: a holder has one lease, and its next one takes that one's place; who is
/// revoked has none.
pub fn assert_valid(room: &Room, now: Now) {
    let mut node = Node::new(9, now);
    node.room = Some(room.clone());
    let parts = node.save().expect("a room");
    let again = load(&parts, now).expect("a room that was saved");
    assert_eq!(digest::of(&again), digest::of(room));
    inv_2_a_revoked_user_has_no_active_lease(&node);
    // The tests' commands are text: ids that a flipped bit has made something else are left aside.
    let is_text = |lease: &Fields| !lease.iter().any(|(_, value)| value.contains(char::REPLACEMENT_CHARACTER));
    let is_live = |lease: &Fields| field(lease, "state") != Some("ended");
    let live: Vec<_> = node.everyone().into_iter().filter(|lease| is_text(lease) && is_live(lease)).collect();
    let holder = |lease: &Fields| (field(lease, "user").map(str::to_owned), field(lease, "device").map(str::to_owned));
    assert_eq!(live.iter().map(holder).collect::<BTreeSet<_>>().len(), live.len(), "two leases of one holder");
    for lease in &live {
        let (user, device) = holder(lease);
        // A token, since the room's policy may want one.
        let token = Some("s3cret".to_owned());
        let open = Open { user: user.unwrap_or_default(), device, token, random: NEVER_DRAWN, ..Open::default() };
        let mut node = Node::new(9, now);
        node.room = Some(room.clone());
        let before = room.gauges().leases;
        let grant = Grant { user: open.user.clone(), ..Grant::default() };
        if let Err(refusal) = node.run(&Command::Grant(grant)) {
            assert_eq!(refusal, Refusal::Limit(Limit::Exhausted));
            continue;
        }
        match node.run(&Command::Open(open)) {
            Ok(reply) => {
                assert_eq!(reply.field("replaced"), field(lease, "session"));
                assert_eq!(node.room.map(|room| room.gauges().leases), Some(before));
            }
            Err(refusal) => assert_eq!(refusal, Refusal::Limit(Limit::Exhausted)),
        }
    }
}
