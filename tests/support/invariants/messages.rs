//! Invariants about messages.

use std::collections::BTreeMap;

use super::super::command::{Command, Reply, Send};
use super::super::node::Node;
use super::{messages, Before};

/// Ended leases, dropped tombstones, grants and policies leave messages and what is remembered of them alone.
pub fn inv_7_presence_never_touches_messages(before: &Before, after: &Node) {
    assert_eq!(before.log, after.log, "presence reached the log");
    assert_eq!(before.messages, messages(after), "presence reached what is remembered of messages");
}

/// What senders were told, as long as nothing is trimmed and no window ends.
#[derive(Default)]
pub struct Numbered(BTreeMap<(String, String), (u64, String)>);

impl Numbered {
    /// In the history a node has: what a lost primary accepted may get another number.
    pub fn of(node: &Node) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let entry = |message: &redis_lease::core::message::Message| {
            let key = (text(message.user.as_bytes()), text(&message.id));
            (key, (message.seq, text(&message.payload)))
        };
        Self(node.log.entries().iter().map(entry).collect())
    }

    /// `user` is the sender's.
    pub fn inv_6_one_seq_per_user_and_message_id(&mut self, user: &str, send: &Send, reply: &Reply) {
        let (key, told) = ((user.to_owned(), send.id.clone()), (reply.number("seq"), send.payload.clone()));
        let is_new = reply.field("status") == Some("accepted");
        assert_eq!(is_new, !self.0.contains_key(&key), "{key:?}: {reply:?}");
        assert_eq!(self.0.entry(key).or_insert_with(|| told.clone()), &told, "{reply:?}");
    }
}

/// A message that reached the log came from the session that its entry names, and got the next number.
pub fn inv_6_numbers_rise_by_one(before: &Before, command: &Command, reply: &Reply, after: &Node) {
    if !matches!(command, Command::Send(_) | Command::Post(_)) || reply.field("status") != Some("accepted") {
        return;
    }
    let newest = after.log.entries().last().map(|message| message.seq);
    assert_eq!(reply.number("seq"), before.messages.0 + 1);
    assert_eq!(newest, Some(reply.number("seq")), "the log lacks what was accepted");
}
