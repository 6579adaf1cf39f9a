//! A roster read in pages, while leases come and go (BEAT-03): the pages and the events after the first page's
//! `event_n` make up the room as it is, and a lease that is there throughout comes at least once.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use redis_lease::core::event::{Body, Event};
use redis_lease::core::policy::Setting;
use redis_lease::core::room::Env;
use redis_lease::core::time::Now;
use redis_lease::core::view::PageRequest;

use support::cases;
use support::command::{field, Command, Open};
use support::node::Node;

/// What happens between two pages: a holder opens anew, or leaves.
#[derive(Clone, Debug)]
struct Change {
    user: u8,
    leaves: bool,
}

fn changes(most: usize) -> impl Strategy<Value = Vec<Change>> {
    let change = (0..40u8, prop::bool::weighted(0.4)).prop_map(|(user, leaves)| Change { user, leaves });
    prop::collection::vec(change, 0..most)
}

fn take(node: &mut Node, change: &Change) {
    let user = format!("u{}", change.user);
    let command = if change.leaves {
        Command::Kick { user: Some(user), device: None }
    } else {
        let session = Some(format!("{user}.{}", node.stream.len()));
        Command::Open(Open { user, session, ..Open::default() })
    };
    node.run(&command).expect("neither is refused");
    // Tombstones last no time here, so slots are freed and used again.
    node.tick();
}

/// Holders and their epochs, as somebody outside puts them together.
#[derive(Default)]
struct Reader(BTreeMap<String, u64>);

impl Reader {
    fn page(&mut self, node: &Node, cursor: u64, count: usize) -> u64 {
        let env = Env { now: node.now, settings: &node.settings };
        let page =
            node.room.as_ref().expect("a room").page(&PageRequest { user: None, cursor, count, ended: false }, &env);
        for lease in page.leases {
            let known = self.0.entry(String::from_utf8_lossy(lease.user).into_owned()).or_default();
            *known = lease.epoch.max(*known);
        }
        page.cursor
    }

    /// By epoch: what is older than the page says nothing new.
    fn event(&mut self, event: &Event) {
        let Some(subject) = &event.subject else { return };
        let user = String::from_utf8_lossy(subject.user.as_bytes()).into_owned();
        match event.body {
            Body::Opened { .. } => {
                let known = self.0.entry(user).or_default();
                *known = subject.epoch.max(*known);
            }
            Body::Removed { .. } if self.0.get(&user) == Some(&subject.epoch) => {
                self.0.remove(&user);
            }
            _ => {}
        }
    }
}

fn roster(node: &Node) -> BTreeMap<String, u64> {
    let live = node.everyone().into_iter().filter(|lease| field(lease, "state") != Some("ended"));
    let holder = |lease| Some((field(&lease, "user")?.to_owned(), field(&lease, "epoch")?.parse().ok()?));
    live.filter_map(holder).collect()
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn beat_03_pages_and_events_leave_no_gap(
        before in changes(80),
        between in prop::collection::vec(changes(6), 60),
        count in 1..8usize,
    ) {
        let mut node = Node::new(1, Now { mono: 1 << 40, unix: 1 << 40 });
        node.run(&Command::SetPolicy(vec![(Setting::TombstoneMs, Some(0))])).expect("allowed");
        before.iter().for_each(|change| take(&mut node, change));

        let events_read = node.stream.len();
        let mut throughout: BTreeSet<_> = roster(&node).into_iter().collect();
        let (mut reader, mut cursor) = (Reader::default(), 0);
        let mut seen = BTreeSet::new();
        for changes in &between {
            cursor = reader.page(&node, cursor, count);
            seen.extend(reader.0.clone());
            if cursor == 0 {
                break;
            }
            changes.iter().for_each(|change| take(&mut node, change));
            throughout = throughout.intersection(&roster(&node).into_iter().collect()).cloned().collect();
        }
        prop_assert_eq!(cursor, 0, "more pages than there ever were leases");
        prop_assert!(throughout.is_subset(&seen), "{:?} was there all the time", throughout.difference(&seen));

        node.stream[events_read..].iter().for_each(|event| reader.event(event));
        prop_assert_eq!(reader.0, roster(&node));
    }
}
