//! The stream of a room's message log, as a server keeps it: message n is entry `n-0`.

use redis_lease::core::message::Message;
use redis_lease::core::replay::Edges;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    entries: Vec<Message>,
    /// The greatest number it ever held.
    last: u64,
}

impl Log {
    pub fn entries(&self) -> &[Message] {
        &self.entries
    }

    pub fn last(&self) -> u64 {
        self.last
    }

    pub fn edges(&self, newest: u64) -> Edges {
        let mut shown = self.messages(0, newest);
        let Some(oldest) = shown.next() else { return Edges::default() };
        let newest = shown.last().unwrap_or(oldest).seq;
        Edges { oldest: oldest.seq, newest, oldest_at: oldest.at }
    }

    pub fn messages(&self, first: u64, last: u64) -> impl Iterator<Item = &Message> {
        self.entries.iter().filter(move |message| (first..=last).contains(&message.seq))
    }

    /// False if the number was used: a server refuses such an entry.
    pub fn add(&mut self, message: &Message) -> bool {
        if message.seq <= self.last {
            return false;
        }
        self.last = message.seq;
        self.entries.push(message.clone());
        true
    }

    /// Removes the oldest, so many; the first that stays, or would.
    pub fn drop_oldest(&mut self, entries: usize) -> u64 {
        self.entries.drain(..entries);
        self.entries.first().map_or(self.last + 1, |message| message.seq)
    }

    /// Removes all before message `first`; how many went.
    pub fn trim_before(&mut self, first: u64) -> u64 {
        let before = self.entries.len();
        self.entries.retain(|message| message.seq >= first);
        (before - self.entries.len()) as u64
    }
}
