//! Invariants about grants and marks.

use std::collections::BTreeMap;

use super::super::client::grant_token_of;
use super::super::command::{field, Command, Fields, Grant, Open, Renew, Reply, Send, Session};
use super::super::node::Node;
use super::super::operator::Operator;
use super::{live, Before};

fn of_user<'a>(grants: &'a [Fields], user: &str) -> Option<&'a Fields> {
    grants.iter().find(|record| field(record, "user") == Some(user))
}

fn is_marked(record: &Fields, device: &str) -> bool {
    let mut devices = field(record, "devices").unwrap_or_default().split(' ');
    field(record, "revoked") == Some("1") || devices.any(|of| of == device)
}

fn version(record: &Fields) -> Option<u64> {
    field(record, "version").and_then(|version| version.parse().ok())
}

/// A revocation ends what is live, and nothing comes in after it.
pub fn inv_2_a_revoked_user_has_no_active_lease(node: &Node) {
    let grants = node.grants(None);
    for lease in live(&node.everyone()) {
        let of = |name| field(lease, name).unwrap_or_default();
        let marked = of_user(&grants, of("user")).is_some_and(|record| is_marked(record, of("device")));
        assert!(!marked, "active, and revoked: {lease:?}");
    }
}

/// Whoever opened, renewed or sent had no mark and, where grants are wanted, a live one: for writing if it sent, and
/// with its token if it opened.
pub fn inv_2_only_the_granted_are_let_in(before: &Before, command: &Command) {
    let (user, device, open) = match command {
        Command::Open(open) => {
            let (user, device) = open.holder();
            (user, device, Some(open))
        }
        Command::Renew(Renew { state: Some(state), .. }) if state == "closed" => return,
        Command::Renew(Renew { session, .. }) | Command::Send(Send { by: Session { session, .. }, .. }) => {
            let lease = before.session(session).expect("a lease that accepts a command is known");
            let of = |name| field(lease, name).unwrap_or_default().to_owned();
            (of("user"), of("device"), None)
        }
        _ => return,
    };
    let record = of_user(&before.grants, &user);
    assert!(!record.is_some_and(|record| is_marked(record, &device)), "revoked, and let in: {command:?}");
    if !before.wants_grants {
        return;
    }
    let granted = record.filter(|record| field(record, "level") != Some("nil"));
    let granted = granted.unwrap_or_else(|| panic!("let in without a grant: {command:?}"));
    if matches!(command, Command::Send(_)) {
        assert_eq!(field(granted, "level"), Some("WRITE"), "a message without a grant to write: {command:?}");
    }
    if let (Some(Open { grant_token, .. }), Some("1")) = (open, field(granted, "token")) {
        assert_eq!(grant_token.as_ref(), Some(&grant_token_of(&user)), "let in without the grant's token");
    }
}

/// The highest version each user's access had in the room as it is now.
#[derive(Default)]
pub struct Versions(BTreeMap<String, u64>);

impl Versions {
    /// As far as a node shows them, that takes over: a version alone is not shown.
    pub fn of(node: &Node) -> Self {
        let told = |record: &Fields| Some((field(record, "user")?.to_owned(), version(record)?));
        Self(node.grants(None).iter().filter_map(told).collect())
    }

    /// A change that carries a version counts if that is greater than any before, and then is the last.
    pub fn inv_2_no_stale_version_wins(&mut self, before: &Before, command: &Command, reply: &Reply, after: &Node) {
        let (user, carried) = match command {
            Command::Grant(Grant { user, version, .. }) | Command::Revoke { user, version, .. } => (user, version),
            _ => return,
        };
        let last = self.0.get(user).copied();
        if reply.status() == "stale" {
            let late = last.is_none_or(|last| carried.is_some_and(|carried| carried <= last));
            assert!(late && carried.is_some(), "{carried:?} is not stale after {last:?}");
            return before.assert_unchanged(after, "a stale version");
        }
        assert!(carried.is_none() || *carried > last, "{carried:?} came after {last:?}");
        let stored = of_user(&after.grants(None), user).map(version);
        assert_eq!(stored, Some(carried.or(last)), "the version that is kept");
        self.0.extend(carried.map(|carried| (user.clone(), carried)));
    }
}

/// What a node holds of a user is what the order of that version made of it, wherever and however late it came.
pub fn inv_2_access_is_what_its_version_said(node: &Node, operator: &Operator) {
    for record in node.grants(None) {
        let Some(version) = version(&record) else { continue };
        let is = |name, value: &str| assert_eq!(field(&record, name), Some(value), "{name} of version {version}");
        match operator.ordered(version) {
            Command::Grant(grant) => {
                is("level", if grant.writes { "WRITE" } else { "READ" });
                is("token", if grant.token.is_some() { "1" } else { "0" });
                is("revoked", "0");
                is("devices", "");
            }
            Command::Revoke { device: None, .. } => {
                is("level", "nil");
                is("revoked", "1");
            }
            Command::Revoke { device: Some(device), .. } => {
                assert!(is_marked(&record, device), "version {version} is not kept: {record:?}");
            }
            other => panic!("no order: {other:?}"),
        }
    }
}

/// GRANTS says the same on both, ends included, if their clocks agree; what a digest has is compared in any case.
pub fn inv_5_grants_and_marks_are_equal(primary: &Node, replica: &Node) {
    let sorted = |node: &Node| {
        let mut grants = node.grants(None);
        grants.sort();
        grants
    };
    assert_eq!(sorted(primary), sorted(replica), "grants and marks");
}

/// When the grant ends that caps this lease, unix ms.
pub(super) fn grant_end(node: &Node, lease: &Fields) -> Option<u64> {
    let grants = node.grants(field(lease, "user"));
    grants.first().filter(|_| node.wants_grants()).and_then(|grant| field(grant, "until")?.parse().ok())
}

/// Section 4: where grants are wanted, nobody stays beyond the end of its grant.
pub fn section_4_no_lease_outlives_its_grant(node: &Node) {
    for lease in live(&node.everyone()) {
        let expires_at = field(lease, "expires_at").and_then(|at| at.parse::<u64>().ok()).expect("a time");
        assert!(grant_end(node, lease).is_none_or(|until| expires_at <= until), "beyond its grant: {lease:?}");
    }
}
