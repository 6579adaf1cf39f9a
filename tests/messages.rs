//! The invariants about messages, each over random lives of one room.

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use redis_lease::core::cursor::Claim;
use redis_lease::core::policy::Setting;
use redis_lease::core::refusal::{Conflict, Denied, Refusal, Stale};
use redis_lease::core::time::Now;

use support::cases;
use support::command::{field, Command, Grant, Open, Post, Renew, Reply, Send, Session};
use support::invariants::{inv_6_numbers_rise_by_one, inv_7_presence_never_touches_messages, Before};
use support::log::Log;
use support::node::{load, Beginning, Node};

const START: Now = Now { mono: 1 << 40, unix: 1_894_006_800_000 };
/// User and id of one pair, put together, read like those of another.
const SENDERS: [(&str, &str); 5] = [("a", "bc"), ("ab", "c"), ("ab", "cd"), ("abc", "d"), ("u", "m")];
const PAYLOADS: [&str; 2] = ["hello", "other"];

fn node() -> Node {
    Node::new(1, START)
}

fn pass(node: &mut Node, ms: u64) {
    node.now = Now { mono: node.now.mono + ms, unix: node.now.unix + ms };
}

fn post(user: &str, id: &str, payload: &str) -> Command {
    Command::Post(Post { user: user.to_owned(), id: id.to_owned(), payload: payload.to_owned() })
}

fn send(by: &Session, id: &str) -> Command {
    Command::Send(Send { by: by.clone(), id: id.to_owned(), payload: "hello".to_owned() })
}

fn open(node: &mut Node, user: &str, session: &str) -> Session {
    let open = Open { user: user.to_owned(), session: Some(session.to_owned()), ..Open::default() };
    let reply = node.run(&Command::Open(open)).expect("a lease");
    Session { session: session.to_owned(), epoch: reply.number("epoch"), token: None }
}

fn set(node: &mut Node, setting: Setting, value: i64) {
    node.run(&Command::SetPolicy(vec![(setting, Some(value))])).expect("a policy");
}

// -------------------------------------------------------------------- 6: one seq

#[derive(Clone, Debug)]
enum Act {
    /// A sender, a payload, and whether it is sent from a session.
    Message(usize, usize, bool),
    /// So many messages that nobody sends again.
    Burst(u64),
    Pass(u64),
    Set(Setting, i64),
    Trim,
    Reaper,
    Hold(bool),
    /// Saved and loaded, under a monotonic clock that shows something else.
    Reload,
    /// To another name and back, each with its log.
    Away,
}

fn act() -> impl Strategy<Value = Act> {
    let payload = prop_oneof![5 => Just(0usize), 1 => Just(1)];
    let spans = prop::sample::select(vec![0, 1_000, 30_000]);
    prop_oneof![
        12 => (0..SENDERS.len(), payload, any::<bool>()).prop_map(|(who, payload, by)| Act::Message(who, payload, by)),
        1 => (100..300u64).prop_map(Act::Burst),
        4 => prop_oneof![Just(1), Just(999), Just(1_000), Just(30_000)].prop_map(Act::Pass),
        2 => prop::sample::select(vec![0, 1, 2, 150]).prop_map(|count| Act::Set(Setting::RetainCount, count)),
        1 => spans.clone().prop_map(|ms| Act::Set(Setting::RetainMs, ms)),
        2 => spans.prop_map(|ms| Act::Set(Setting::DedupMs, ms)),
        1 => Just(Act::Trim),
        2 => Just(Act::Reaper),
        1 => any::<bool>().prop_map(Act::Hold),
        1 => Just(Act::Reload),
        1 => Just(Act::Away),
    ]
}

/// What a sender should be told, kept in the simplest way there is.
#[derive(Default)]
struct Expected {
    /// Seq, payload, and the end of the window in unix ms.
    known: BTreeMap<(String, String), (u64, &'static str, u64)>,
    last: u64,
}

impl Expected {
    /// `log` is as it was before: the message itself may push others out.
    fn check(&mut self, log: &Log, node: &Node, of: (&str, &str), payload: &'static str, got: Result<Reply, Refusal>) {
        let key = (of.0.to_owned(), of.1.to_owned());
        let is_there = |seq| log.messages(seq, seq).next().is_some();
        let known = self.known.get(&key).filter(|(seq, _, until)| *until > node.now.unix || is_there(*seq));
        match (got, known) {
            (Ok(reply), Some((seq, first, _))) => {
                assert_eq!((reply.field("status"), reply.number("seq")), (Some("duplicate"), *seq), "{key:?}");
                assert_eq!(*first, payload, "{key:?}: another payload is no duplicate");
            }
            (Err(refusal), known) => {
                assert_eq!(refusal, Refusal::Conflict(Conflict::Message));
                assert!(known.is_some_and(|(_, first, _)| *first != payload), "{key:?} conflicts with nothing");
            }
            (Ok(reply), None) => {
                self.last += 1;
                assert_eq!((reply.field("status"), reply.number("seq")), (Some("accepted"), self.last), "{key:?}");
                let room = node.room.as_ref().expect("a room");
                let until = node.now.unix + room.policy(&node.settings).dedup_ms();
                self.known.insert(key, (self.last, payload, until));
            }
        }
    }

    fn message(&mut self, node: &mut Node, of: (&str, &str), payload: &'static str, by: Option<Session>) {
        let (before, log) = (Before::of(node), node.log.clone());
        let command = match by {
            Some(by) => Command::Send(Send { by, id: of.1.to_owned(), payload: payload.to_owned() }),
            None => post(of.0, of.1, payload),
        };
        let got = node.run(&command);
        match &got {
            Ok(reply) => inv_6_numbers_rise_by_one(&before, &command, reply, node),
            Err(_) => before.assert_unchanged(node, "a refused message"),
        }
        self.check(&log, node, of, payload, got);
    }
}

/// All that is no message.
fn go_on(node: &mut Node, act: &Act) {
    match act {
        Act::Pass(ms) => pass(node, *ms),
        Act::Set(setting, value) => set(node, *setting, *value),
        Act::Trim => drop(node.run(&Command::Trim)),
        Act::Reaper => node.tick(),
        Act::Hold(true) => drop(node.run(&Command::Hold("audit".to_owned()))),
        Act::Hold(false) => drop(node.run(&Command::Unhold("audit".to_owned()))),
        Act::Reload => {
            let Some(parts) = node.save() else { return };
            node.now.mono += 1 << 20;
            node.room = Some(load(&parts, node.now).expect("a room that was saved"));
            node.begin(Beginning::Era { grace_ms: None });
        }
        Act::Away => {
            node.begin(Beginning::Moved { elsewhere: true });
            node.begin(Beginning::Moved { elsewhere: true });
            // It learns of its log again, and is not held for its own messages.
            node.tick();
            let _ = node.run(&Command::Unhold("orphan".to_owned()));
        }
        Act::Message(..) | Act::Burst(_) => {}
    }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn inv_6_one_seq_per_user_and_message_id_while_retained_and_in_its_window(
        acts in prop::collection::vec(act(), 1..80),
    ) {
        let (mut node, mut expected) = (node(), Expected::default());
        // A policy, so that the room stays whatever becomes of its messages.
        set(&mut node, Setting::RetainCount, 2);
        for (nth, act) in acts.iter().enumerate() {
            match act {
                Act::Message(who, payload, by_session) => {
                    let of = SENDERS[*who];
                    let by = by_session.then(|| open(&mut node, of.0, &format!("session {nth}")));
                    expected.message(&mut node, of, PAYLOADS[*payload], by);
                }
                Act::Burst(messages) => {
                    for _ in 0..*messages {
                        let id = format!("once {}", expected.last);
                        let got = node.run(&post("somebody", &id, PAYLOADS[0]));
                        expected.check(&Log::default(), &node, ("somebody", &id), PAYLOADS[0], got);
                    }
                }
                _ => go_on(&mut node, act),
            }
        }
    }

    #[test]
    fn section_4_a_hold_keeps_every_message(acts in prop::collection::vec(act(), 1..40)) {
        let mut node = node();
        set(&mut node, Setting::RetainCount, 2);
        node.run(&Command::Hold("another".to_owned())).expect("a hold");
        let mut sent = 0;
        for act in &acts {
            if let Act::Message(..) | Act::Burst(_) = act {
                sent += 1;
                node.run(&post("u", &format!("m{sent}"), PAYLOADS[0])).expect("a message");
            }
            go_on(&mut node, act);
            prop_assert!(node.log.entries().iter().map(|message| message.seq).eq(1..=sent));
        }
    }

    #[test]
    fn inv_7_presence_never_touches_messages_not_even_by_its_end(acts in prop::collection::vec(presence(), 1..60)) {
        let mut node = node();
        let users = ["u", "v", "w"];
        for id in 0..5 {
            node.run(&post(users[id % 3], &format!("m{id}"), PAYLOADS[0])).expect("a message");
        }
        let mark = |seq| Command::Mark { user: "u".to_owned(), device: "d".to_owned(), claim: Claim::Queued, seq };
        open(&mut node, "u", "at first");
        for (nth, act) in acts.iter().enumerate() {
            let before = Before::of(&node);
            match act {
                Presence::Pass(ms) => {
                    pass(&mut node, *ms);
                    node.tick();
                }
                Presence::Delete => {
                    node.delete();
                    prop_assert_eq!(before.log(), &node.log);
                    // Whoever comes next finds the messages, and a retry its seq.
                    let _ = open(&mut node, "w", &format!("after {nth}"));
                    node.retain();
                    let reply = node.run(&post("u", "m0", PAYLOADS[0])).expect("a duplicate");
                    prop_assert_eq!((reply.field("status"), reply.number("seq")), (Some("duplicate"), 1));
                    prop_assert_eq!(before.log(), &node.log);
                    continue;
                }
                Presence::Command(command) => {
                    let command = with_session(command, &node, nth);
                    let _ = node.run(&command);
                }
            }
            inv_7_presence_never_touches_messages(&before, &node);
            let refused = node.run(&mark(6)).expect_err("no message has that number");
            prop_assert!(matches!(refused, Refusal::Bad(_)));
        }
    }
}

// -------------------------------------------------------------------- 7: presence

#[derive(Clone, Debug)]
enum Presence {
    Command(Command),
    Pass(u64),
    Delete,
}

fn presence() -> impl Strategy<Value = Presence> {
    let user = || prop::sample::select(vec!["u", "v", "w"]).prop_map(str::to_owned);
    let state = prop::option::of(prop::sample::select(vec!["failed", "closed", "connected"]));
    let command = prop_oneof![
        4 => user().prop_map(|user| Command::Open(Open { user, ..Open::default() })),
        3 => state.prop_map(|state| Command::Renew(Renew { state: state.map(str::to_owned), ..Renew::default() })),
        2 => Just(Command::Leave { session: String::new(), epoch: 0, linger_ms: 500, token: None }),
        1 => user().prop_map(|user| Command::Kick { user: Some(user), device: None }),
        1 => user().prop_map(|user| Command::Grant(Grant { user, ..Grant::default() })),
        1 => user().prop_map(|user| Command::Revoke { user, device: None, version: None }),
        1 => Just(Command::SetPolicy(vec![(Setting::TombstoneMs, Some(0))])),
        1 => Just(Command::Reap { count: 9 }),
    ];
    let spans = prop::sample::select(vec![1, 30_000, 600_000, 3_600_000]);
    prop_oneof![
        8 => command.prop_map(Presence::Command),
        3 => spans.prop_map(Presence::Pass),
        1 => Just(Presence::Delete),
    ]
}

/// A session that was never there opens; the newest one there is does all the rest.
fn with_session(command: &Command, node: &Node, nth: usize) -> Command {
    let lease = node.everyone().pop().unwrap_or_default();
    let of = |name| field(&lease, name).unwrap_or_default().to_owned();
    let (session, epoch) = (of("session"), of("epoch").parse().unwrap_or(0));
    match command.clone() {
        Command::Open(open) => Command::Open(Open { session: Some(format!("session {nth}")), ..open }),
        Command::Renew(renew) => Command::Renew(Renew { session, epoch, seq: nth as u64 + 1, ..renew }),
        Command::Leave { linger_ms, token, .. } => Command::Leave { session, epoch, linger_ms, token },
        other => other,
    }
}

// -------------------------------------------------------------------- 2 and 8: refused messages

/// A refused message has no number and leaves no record: once it is allowed, the same id gets the next number.
#[test]
fn inv_2_a_refused_message_leaves_no_number_and_no_record() {
    type Spoil = fn(&mut Node, &mut Session);
    let cases: [(Spoil, Refusal); 9] = [
        (|_, by| by.epoch -= 1, Refusal::Stale(Stale::Superseded(2))),
        (|_, by| by.epoch += 1, Refusal::Stale(Stale::Unknown)),
        (|_, by| by.session = "nobody".to_owned(), Refusal::Stale(Stale::Unknown)),
        (|node, _| pass(node, 30_000), Refusal::Stale(Stale::Expired)),
        (|node, _| drop(open(node, "u", "another")), Refusal::Stale(Stale::Superseded(3))),
        (
            |node, _| drop(node.run(&Command::Revoke { user: "u".to_owned(), device: None, version: None })),
            Refusal::Denied(Denied::Revoked),
        ),
        (|node, _| set(node, Setting::DefaultAccess, 1), Refusal::Denied(Denied::NoGrant)),
        (
            |node, _| {
                let read = Grant { user: "u".to_owned(), ..Grant::default() };
                node.run(&Command::Grant(read)).expect("a grant");
                set(node, Setting::DefaultAccess, 1);
            },
            Refusal::Denied(Denied::ReadOnly),
        ),
        (|node, _| node.log_writable = false, Refusal::LogState),
    ];
    for (nth, (spoil, refusal)) in cases.into_iter().enumerate() {
        let mut node = node();
        set(&mut node, Setting::DefaultAccess, 0);
        node.run(&post("v", "earlier", "hello")).expect("a message");
        open(&mut node, "u", "first");
        let mut by = open(&mut node, "u", "second");
        spoil(&mut node, &mut by);
        let before = Before::of(&node);
        assert_eq!(node.run(&send(&by, "m")), Err(refusal), "case {nth}");
        before.assert_unchanged(&node, "a refused SEND");
        // All is allowed again.
        node.log_writable = true;
        set(&mut node, Setting::DefaultAccess, 0);
        node.run(&Command::Grant(Grant { user: "u".to_owned(), writes: true, ..Grant::default() })).expect("a grant");
        let by = open(&mut node, "u", "once more");
        let reply = node.run(&send(&by, "m")).expect("a message");
        assert_eq!((reply.field("status"), reply.number("seq")), (Some("accepted"), 2), "case {nth}");
    }
}

/// Whoever waits for records to be rebuilt has sent nothing yet.
#[test]
fn inv_8_a_message_that_is_to_be_tried_again_is_not_sent() {
    let mut node = node();
    for id in 0..10 {
        node.run(&post("u", &format!("m{id}"), "hello")).expect("a message");
    }
    node.delete();
    let log = node.log.clone();
    let mut tries = 0;
    let reply = loop {
        match node.run(&post("u", "new", "hello")) {
            Err(Refusal::TryAgain) => assert_eq!(node.log, log, "a message was sent all the same"),
            other => break other.expect("a message"),
        }
        tries += 1;
    };
    assert_eq!((reply.field("status"), reply.number("seq"), tries), (Some("accepted"), 11, 3));
    assert_eq!(node.holds(), ["orphan"]);
    let again = node.run(&post("u", "m4", "hello")).expect("a duplicate");
    assert_eq!((again.field("status"), again.number("seq")), (Some("duplicate"), 5));
}

/// What no claim may say changes nothing.
#[test]
fn inv_8_a_refused_claim_has_no_effect() {
    let mut node = node();
    node.run(&post("u", "m", "hello")).expect("a message");
    let by = open(&mut node, "u", "a");
    let mark = |user: &str, seq| Command::Mark {
        user: user.to_owned(),
        device: "default".to_owned(),
        claim: Claim::Written,
        seq,
    };
    let stale = Session { epoch: by.epoch + 1, ..by.clone() };
    let before = Before::of(&node);
    for refused in [
        mark("nobody", 1),
        mark("u", 2),
        Command::Ack { by: by.clone(), seq: 2 },
        Command::Ack { by: stale.clone(), seq: 1 },
        Command::Replay { by: stale.clone(), gen: "*".to_owned(), after: 0, count: 1 },
        Command::Snapshot { by: stale, count: 1 },
    ] {
        assert!(node.run(&refused).is_err(), "{refused:?}");
        before.assert_unchanged(&node, "a refused claim");
    }
}

// -------------------------------------------------------------------- 6: histories

/// A room keeps 64 earlier histories. A reader of one of them goes on, if it saw no more than that history had here.
#[test]
fn inv_6_a_reader_goes_on_from_one_of_the_last_64_histories() {
    let mut node = node();
    let by = open(&mut node, "u", "a");
    let mut told = Vec::new();
    for id in 0..70 {
        let reply = node.run(&post("u", &format!("m{id}"), "hello")).expect("a message");
        told.push((reply.field("gen").expect("a gen").to_owned(), reply.number("seq")));
        pass(&mut node, 1);
        node.begin(Beginning::Era { grace_ms: None });
    }
    for (nth, (gen, seq)) in told.into_iter().enumerate() {
        let mut replay = |after| {
            let reply = node.run(&Command::Replay { by: by.clone(), gen: gen.clone(), after, count: 100 });
            let reply = reply.expect("a reply");
            (reply.field("reason").map(str::to_owned), reply.entries().len() as u64)
        };
        let (known, lost) = (("nil", 70 - seq), ("diverged", 0));
        let expected = if nth < 6 { lost } else { known };
        assert_eq!(replay(seq), (Some(expected.0.to_owned()), expected.1), "history {nth}");
        assert_eq!(replay(seq + 1), (Some("diverged".to_owned()), 0), "beyond history {nth}");
    }
}
