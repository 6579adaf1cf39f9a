//! Which messages were accepted: one record a (user, message id), so that a retry is told from a new message.
//!
//! Rules
//! 1. A record answers until its window is over and its message is gone from the log, whichever is later.
//! 2. `Attached` means that the message is in the log of this room while its seq is above what is gone. A room that
//!    meets another log detaches all records; rebuilding from that log attaches those it confirms.
//! 3. Every record stands in exactly one queue: in `windows` by the end of its window, or, once that is over and the
//!    message is retained, in `parked` by its seq. Parking is a matter of this node alone: nothing shows it.
//!
//! A record is 48 bytes, with index and queue entries about 70. It knows digests only: 16 bytes of the SHA-256 of
//! user and id, so that nobody can take another's place, and 12 of the payload's.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use sha2::{Digest, Sha256};

use super::index::Index;
use super::queue::{Queue, Queued};
use super::room::Mover;
use super::slab::Slab;
use super::time::Ms48;

/// Stands for a (user, message id).
pub type MessageKey = [u8; 16];
/// Stands for a payload.
pub type PayloadDigest = [u8; 12];

/// Length-prefixed, so that no two pairs read alike (invariant 9).
pub fn message_key(user: &[u8], id: &[u8]) -> MessageKey {
    let hash = Sha256::new().chain_update((user.len() as u64).to_be_bytes()).chain_update(user).chain_update(id);
    head(&hash.finalize())
}

pub fn payload_digest(payload: &[u8]) -> PayloadDigest {
    head(&Sha256::digest(payload))
}

fn head<const N: usize>(hash: &[u8]) -> [u8; N] {
    hash.first_chunk().copied().unwrap_or([0; N])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tie {
    /// No message of the log is known to be this one.
    Loose,
    Attached,
    /// Attached, and its window is over.
    Parked,
}

#[derive(Clone, Debug)]
struct Record {
    key: MessageKey,
    payload: PayloadDigest,
    /// As bytes: a number would be padded.
    seq: [u8; 8],
    at: Ms48,
    tie: Tie,
    /// Its place in its queue.
    place: u32,
}

impl Record {
    fn seq(&self) -> u64 {
        u64::from_le_bytes(self.seq)
    }
}

/// What a record says of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub key: MessageKey,
    pub payload: PayloadDigest,
    pub seq: u64,
    /// Unix ms.
    pub at: u64,
    /// Monotonic: the end of its window.
    pub until: u64,
}

/// The same, and whether the log is known to hold it unless it was trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub accepted: Accepted,
    pub attached: bool,
}

impl Queued for Record {
    fn place(&mut self) -> &mut u32 {
        &mut self.place
    }
}

#[derive(Clone, Default)]
pub struct Dedupe {
    records: Slab<Record>,
    by_key: Index,
    windows: Queue,
    parked: Queue,
    hasher: DefaultHashBuilder,
}

impl Dedupe {
    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// What is known of this message, whether its time is over or not.
    pub fn find(&self, key: &MessageKey) -> Option<Known> {
        self.known(self.slot_of(key)?)
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.records.iter().map(|(slot, _)| slot)
    }

    pub(super) fn known(&self, slot: u32) -> Option<Known> {
        let record = self.records.get(slot)?;
        let until = if record.tie == Tie::Parked { None } else { self.windows.bound(record.place) };
        Some(Known {
            accepted: Accepted {
                key: record.key,
                payload: record.payload,
                seq: record.seq(),
                at: record.at.get(),
                until: until.unwrap_or(0),
            },
            attached: record.tie != Tie::Loose,
        })
    }

    /// Takes the place of an earlier record of the same key.
    pub fn put(&mut self, known: &Known) {
        let Known { accepted, attached } = known;
        self.remove(&accepted.key);
        let slot = self.records.insert(Record {
            key: accepted.key,
            payload: accepted.payload,
            seq: accepted.seq.to_le_bytes(),
            at: Ms48::new(accepted.at),
            tie: if *attached { Tie::Attached } else { Tie::Loose },
            place: 0,
        });
        let (records, hasher) = (&self.records, &self.hasher);
        self.by_key.insert(hasher.hash_one(accepted.key), slot, |slot| hash_of(records, hasher, *slot));
        self.windows.push(accepted.until, slot, &mut self.records);
    }

    /// A message found in a log the room has met. What the room knows itself goes before it.
    pub fn recall(&mut self, accepted: &Accepted) {
        let Some(slot) = self.slot_of(&accepted.key) else {
            return self.put(&Known { accepted: *accepted, attached: true });
        };
        if let Some(record) = self.records.get_mut(slot).filter(|r| r.seq() == accepted.seq && r.tie == Tie::Loose) {
            record.tie = Tie::Attached;
        }
    }

    pub fn remove(&mut self, key: &MessageKey) {
        let Some(slot) = self.slot_of(key) else { return };
        self.unqueue(slot);
        let (records, hasher) = (&self.records, &self.hasher);
        self.by_key.remove(hasher.hash_one(key), slot, |slot| hash_of(records, hasher, *slot));
        self.records.remove(slot);
    }

    /// The room has met another log: no message of it is known to be one of these.
    pub fn detach(&mut self) {
        for slot in self.slots().collect::<Vec<_>>() {
            let Some(record) = self.records.get_mut(slot) else { continue };
            if std::mem::replace(&mut record.tie, Tie::Loose) == Tie::Parked {
                let place = record.place;
                self.parked.remove(place, &mut self.records);
                self.windows.push(0, slot, &mut self.records);
            }
        }
    }

    /// Records whose time is over when the log holds nothing up to `gone`, `most` at most.
    pub fn over(&self, mono: u64, gone: u64, most: usize) -> Vec<MessageKey> {
        let due = self.windows.due(mono, most).into_iter();
        let ended = due.filter_map(|slot| self.records.get(slot)).filter(|r| !is_retained(r, gone));
        let trimmed = self.parked.due(gone, most).into_iter().filter_map(|slot| self.records.get(slot));
        ended.chain(trimmed).map(|r| r.key).take(most).collect()
    }

    /// Sets aside records whose window is over while their message is retained, `most` at most; how many there were.
    pub fn park(&mut self, mono: u64, gone: u64, most: usize) -> usize {
        let mut parked: usize = 0;
        for slot in self.windows.due(mono, most) {
            let Some(record) = self.records.get_mut(slot).filter(|r| is_retained(r, gone)) else { continue };
            record.tie = Tie::Parked;
            let (place, seq) = (record.place, record.seq());
            self.windows.remove(place, &mut self.records);
            self.parked.push(seq, slot, &mut self.records);
            parked = parked.saturating_add(1);
        }
        parked
    }

    /// No later than the next moment at which a record is over or to be set aside.
    pub fn next_due(&self, gone: u64) -> Option<u64> {
        if self.parked.first().is_some_and(|(seq, _)| seq <= gone) {
            return Some(0);
        }
        self.windows.first().map(|(bound, _)| bound)
    }

    pub fn move_buffers(&mut self, mover: &impl Mover) {
        self.records.move_buffers(mover);
        self.windows.move_buffers(mover);
        self.parked.move_buffers(mover);
    }

    pub fn heap_bytes(&self) -> usize {
        let queues = self.windows.heap_bytes().saturating_add(self.parked.heap_bytes());
        self.records.heap_bytes().saturating_add(self.by_key.heap_bytes()).saturating_add(queues)
    }

    fn slot_of(&self, key: &MessageKey) -> Option<u32> {
        let same = |slot: &u32| self.records.get(*slot).is_some_and(|r| r.key == *key);
        self.by_key.find(self.hasher.hash_one(key), same)
    }

    fn unqueue(&mut self, slot: u32) {
        let Some(record) = self.records.get(slot) else { return };
        let place = record.place;
        match record.tie {
            Tie::Parked => self.parked.remove(place, &mut self.records),
            Tie::Loose | Tie::Attached => self.windows.remove(place, &mut self.records),
        }
    }
}

fn is_retained(record: &Record, gone: u64) -> bool {
    record.tie != Tie::Loose && record.seq() > gone
}

fn hash_of(records: &Slab<Record>, hasher: &DefaultHashBuilder, slot: u32) -> u64 {
    records.get(slot).map_or(0, |r| hasher.hash_one(r.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(id: &[u8], seq: u64, until: u64) -> Accepted {
        Accepted { key: message_key(b"u", id), payload: payload_digest(b"p"), seq, at: 7, until }
    }

    #[test]
    fn a_record_is_as_small_as_planned() {
        assert_eq!(size_of::<Option<Record>>(), 48);
    }

    #[test]
    fn keys_are_length_prefixed() {
        assert_ne!(message_key(b"ab", b"c"), message_key(b"a", b"bc"));
    }

    #[test]
    fn a_record_lasts_as_long_as_the_later_of_window_and_message() {
        let mut d = Dedupe::default();
        d.put(&Known { accepted: accepted(b"m1", 1, 100), attached: true });
        d.put(&Known { accepted: accepted(b"m2", 2, 100), attached: false });
        assert_eq!((d.next_due(0), d.over(99, 0, 9)), (Some(100), vec![]));
        assert_eq!(d.over(100, 0, 9), [message_key(b"u", b"m2")]);
        assert_eq!((d.park(100, 0, 9), d.park(100, 0, 9)), (1, 0));
        d.remove(&message_key(b"u", b"m2"));
        assert_eq!((d.next_due(0), d.next_due(1)), (None, Some(0)));
        assert_eq!(d.over(100, 1, 9), [message_key(b"u", b"m1")]);
        d.detach();
        assert_eq!((d.next_due(0), d.len()), (Some(0), 1));
        d.recall(&accepted(b"m1", 9, 500));
        assert!(!d.find(&message_key(b"u", b"m1")).unwrap().attached);
        d.recall(&accepted(b"m1", 1, 500));
        assert!(d.find(&message_key(b"u", b"m1")).unwrap().attached);
        d.remove(&message_key(b"u", b"m1"));
        assert!(d.is_empty() && d.next_due(9).is_none());
    }
}
