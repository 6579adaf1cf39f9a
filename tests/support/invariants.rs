//! The invariants of the contract (section 2), each a function that bears its number.
//!
//! 9, 10 and 12 are about bytes, texts and notifications.

use std::collections::{BTreeMap, BTreeSet};

use redis_lease::core::effect::Gen;
use redis_lease::core::event::Body;
use redis_lease::core::lease::Reason;
use redis_lease::core::refusal::Refusal;

mod access;
mod messages;

pub use access::*;
pub use messages::*;

use super::client::CAPPED;
use super::command::{field, Command, Fields, Renew, Reply, Send, Session};
use super::log::Log;
use super::node::{Node, LOST_EVENTS};

pub type Holder = (String, String);

/// What a node held before a command, down to the last deadline.
pub struct Before {
    saved: Option<Vec<Vec<u8>>>,
    events: usize,
    sent: usize,
    log: Log,
    /// The newest message, and how many are remembered.
    messages: (u64, u64),
    everyone: Vec<Fields>,
    grants: Vec<Fields>,
    wants_grants: bool,
}

impl Before {
    pub fn of(node: &Node) -> Self {
        Self {
            saved: node.save(),
            events: node.stream.len(),
            sent: node.sent.len(),
            log: node.log.clone(),
            messages: messages(node),
            everyone: node.everyone(),
            grants: node.grants(None),
            wants_grants: node.wants_grants(),
        }
    }

    pub fn assert_unchanged(&self, after: &Node, why: &str) {
        assert_eq!(self.saved, after.save(), "{why} changed the room");
        assert_eq!((self.events, self.sent), (after.stream.len(), after.sent.len()), "{why} was published");
        assert_eq!(self.log, after.log, "{why} reached the log");
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    fn session(&self, session: &str) -> Option<&Fields> {
        self.everyone.iter().find(|lease| field(lease, "session") == Some(session))
    }
}

/// Epochs that callers were told, for as long as the test runs.
#[derive(Default)]
pub struct Given(BTreeMap<Holder, BTreeSet<(u64, Told)>>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    session: String,
    gen: String,
    /// The room's first history: a room that was removed and made anew counts anew.
    first: String,
}

impl Given {
    /// `lineage` are the histories the answering node's room has lived through, as far as the node was told of them or
    /// has begun them itself. A node that is lost may have given epochs in a history nobody heard of: the next one
    /// stays above them by the time that has passed, if wall clocks are `steady`. Gen and epoch together always differ.
    pub fn inv_1_epochs_never_go_back(&mut self, holder: Holder, reply: &Reply, lineage: &[Gen], steady: bool) {
        let text = |name| reply.field(name).unwrap_or_default().to_owned();
        let epoch: u64 = text("epoch").parse().expect("an epoch");
        let lineage: Vec<String> = lineage.iter().map(Gen::to_string).collect();
        let told = Told { session: text("session"), gen: text("gen"), first: lineage[0].clone() };
        let all = self.0.entry(holder).or_default();
        if all.iter().any(|(earlier, of)| *earlier == epoch && of.session == told.session) {
            // A retry.
            return;
        }
        for (earlier, of) in &*all {
            assert!((*earlier, &of.gen) != (epoch, &told.gen), "gen {} and epoch {epoch} came twice", told.gen);
            let counts = lineage.contains(&of.gen) || (steady && of.first == told.first);
            assert!(!counts || *earlier < epoch, "epoch {epoch} after {earlier} of {} in {}", of.session, of.gen);
        }
        all.insert((epoch, told));
    }
}

/// Whatever was accepted came from a live lease of that very epoch, and moved no other.
pub fn inv_2_the_stale_change_nothing(before: &Before, command: &Command, reply: &Reply, after: &Node) {
    let (session, epoch) = match command {
        Command::Renew(Renew { session, epoch, .. }) | Command::Leave { session, epoch, .. } => (session, epoch),
        Command::Send(Send { by: Session { session, epoch, .. }, .. })
        | Command::Ack { by: Session { session, epoch, .. }, .. } => (session, epoch),
        _ => return,
    };
    if reply.status() == "gone" {
        return before.assert_unchanged(after, "a departure of what is gone");
    }
    let lease = before.session(session).expect("a lease that accepts a command is known");
    assert_eq!(field(lease, "epoch"), Some(epoch.to_string().as_str()), "another epoch was accepted");
    assert_ne!(field(lease, "state"), Some("ended"), "an ended session was accepted");
    let others = |everyone: &[Fields]| -> Vec<Fields> {
        everyone.iter().filter(|lease| field(lease, "session") != Some(session)).cloned().collect()
    };
    assert_eq!(others(&before.everyone), others(&after.everyone()), "another lease moved");
}

/// Every lease that was opened is there, or was removed once, for one reason. `n` rises by one, or leaps with a new
/// history; `at` never falls; `user_leases` is what was opened less what was removed.
pub fn inv_3_each_lease_is_removed_once(node: &Node) {
    let mut there: BTreeMap<(&[u8], u64), &[u8]> = BTreeMap::new();
    let mut last: Option<&redis_lease::core::event::Event> = None;
    for event in &node.stream {
        let leap = last.is_some_and(|l| l.gen != event.gen && event.n - l.n >= LOST_EVENTS);
        assert!(last.is_none_or(|l| event.n == l.n + 1) || leap, "n went from {:?} to {}", last.map(|l| l.n), event.n);
        // A new room begins its own time.
        let same_room = last.is_some_and(|l| l.gen == event.gen);
        assert!(!same_room || last.and_then(|l| l.at) <= event.at, "at went back at n {}", event.n);
        last = Some(event);
        let Some(subject) = &event.subject else { continue };
        let lease = (subject.session.as_bytes(), subject.epoch);
        let user = subject.user.as_bytes();
        let one_more = match event.body {
            Body::Opened { .. } => {
                assert!(there.insert(lease, user).is_none(), "opened twice: {lease:?}");
                0
            }
            Body::Removed { reason, .. } => {
                assert!(there.remove(&lease).is_some(), "removed, but not there: {lease:?}");
                u32::from(reason == Reason::Superseded)
            }
            _ => continue,
        };
        let of_user = there.values().filter(|of| **of == user).count() as u32 + one_more;
        let one_step = matches!(event.body, Body::Removed { reason: Reason::Kicked | Reason::Revoked, .. });
        assert!(subject.user_leases == of_user || one_step, "user_leases of n {}", event.n);
    }
    let leases = node.room.as_ref().map_or(0, |room| room.gauges().leases);
    assert_eq!(leases, there.len() as u64, "leases opened and not removed");
    for lease in live(&node.everyone()) {
        let session = field(lease, "session").unwrap_or_default().as_bytes();
        assert!(there.keys().any(|(of, _)| *of == session), "a live lease has a removal: {lease:?}");
    }
}

/// The reaper ends what is overdue, and nothing else.
pub fn inv_3_a_live_lease_is_not_removed(before: &Before, after: &Node) {
    assert_eq!(live(&before.everyone), live(&after.everyone()));
}

fn messages(node: &Node) -> (u64, u64) {
    node.room.as_ref().map_or((0, 0), |room| (room.log_seq(), room.gauges().dedupe_records))
}

fn live(everyone: &[Fields]) -> Vec<&Fields> {
    everyone.iter().filter(|lease| field(lease, "state") != Some("ended")).collect()
}

/// A seq counts if it is greater than the epoch's last, and then is the last.
pub fn inv_4_seq_compares_inside_its_epoch(before: &Before, command: &Command, reply: &Reply, after: &Node) {
    let Command::Renew(Renew { session, seq, .. }) = command else { return };
    let seq_in = |lease: Option<&Fields>| lease.and_then(|l| field(l, "seq")?.parse::<u64>().ok()).expect("its seq");
    match reply.status() {
        "gone" => {}
        "duplicate" => {
            assert!(*seq <= seq_in(before.session(session)), "a greater seq is no duplicate");
            before.assert_unchanged(after, "a duplicate");
        }
        _ => {
            assert!(*seq > seq_in(before.session(session)), "a used seq was accepted");
            assert_eq!(seq_in(Before::of(after).session(session)), *seq);
        }
    }
}

/// A replica that has got everything equals its primary, whatever its own clocks say.
pub fn inv_5_a_replica_equals_its_primary(primary: &Node, replica: &Node) {
    assert_eq!(primary.digest(), replica.digest(), "digests");
    assert_eq!(primary.stream, replica.stream, "streams");
}

pub fn inv_8_an_error_has_no_effect(before: &Before, refusal: &Refusal, after: &Node) {
    before.assert_unchanged(after, &format!("a refused command ({refusal})"));
}

/// OBSERVED is recorded: without it the same command has the same reply and leaves the same room.
pub fn inv_11_client_clocks_decide_nothing(before: &Node, command: &Command, reply: &Reply, after: &Node) {
    let Command::Renew(renew) = command else { return };
    if renew.observed_at.is_none() {
        return;
    }
    let mut without = before.clone();
    let again = without.run(&Command::Renew(Renew { observed_at: None, ..renew.clone() }));
    assert_eq!(again.as_ref(), Ok(reply));
    let unseen = |node: &Node| -> Vec<Fields> {
        let hide = |mut lease: Fields| {
            lease.retain(|(name, _)| *name != "observed_at");
            lease
        };
        node.everyone().into_iter().map(hide).collect()
    };
    assert_eq!(unseen(&without), unseen(after), "OBSERVED decided something");
}

/// Section 7: nobody is left with more than the ttl, ever; and who was heard of normally has all of it after a load or
/// promotion with a grace of -1.
pub fn section_7_at_most_the_ttl_is_left(node: &Node, begun_now: bool) {
    for lease in live(&node.everyone()) {
        let number = |name| field(lease, name).and_then(|n| n.parse::<u64>().ok()).expect("a number");
        assert!(number("left_ms") <= number("ttl_ms"), "{lease:?}");
        let normal = [("signal", "nil"), ("state", "active")].iter().all(|(name, v)| field(lease, name) == Some(v));
        let capped = field(lease, "session").is_some_and(|session| session.ends_with(CAPPED));
        if begun_now && normal && !capped && grant_end(node, lease).is_none() {
            assert_eq!(number("left_ms"), number("ttl_ms"), "{lease:?}");
        }
    }
}
