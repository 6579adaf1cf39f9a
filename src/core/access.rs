//! Who may be in a room: grants, and the marks that revocations leave.
//!
//! Rules
//! 1. A user has one record: a grant, marks, and the version of the last change that carried one.
//! 2. A mark on the user or on a device refuses it, in open rooms too; only a grant lifts marks.
//! 3. An expired grant acts as none from that millisecond on, whether it has been dropped yet or not.
//! 4. A version outlives grant and marks, so that a late delivery never brings one back.
//!
//! What a lease has to know of it is pushed into the lease when it changes (`granted`, `Extras::grant_until`), so that
//! a heartbeat looks nothing up. A live lease's user never has a mark: a revocation ends it.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use super::id::Id;
use super::index::Index;
use super::queue::{Queue, Queued};
use super::room::Mover;
use super::slab::Slab;
use super::token::TokenDigest;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    Read = 1,
    Write,
}

impl Level {
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
        }
    }

    /// Case-insensitive, as options are.
    pub fn parse(word: &[u8]) -> Option<Self> {
        [Self::Read, Self::Write].into_iter().find(|l| word.eq_ignore_ascii_case(l.word().as_bytes()))
    }

    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Read, Self::Write].into_iter().find(|l| *l as u8 == code)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    pub level: Level,
    /// Monotonic.
    pub until: Option<u64>,
    pub token: Option<TokenDigest>,
}

/// What the room knows of a user's access.
#[derive(Clone, Debug)]
pub struct Record {
    pub user: Id,
    pub grant: Option<Grant>,
    pub version: Option<u64>,
    pub revoked: bool,
    /// Devices revoked on their own.
    pub devices: Vec<Id>,
    /// Its place in the queue, while it has a grant that ends.
    place: u32,
}

impl Record {
    /// A user of whom nothing is known.
    pub fn new(user: &[u8]) -> Self {
        Self { user: Id::new(user), grant: None, version: None, revoked: false, devices: Vec::new(), place: 0 }
    }

    /// The grant, unless it is over.
    pub fn live_grant(&self, mono: u64) -> Option<&Grant> {
        self.grant.as_ref().filter(|g| g.until.is_none_or(|until| until > mono))
    }

    pub fn is_marked(&self, device: &[u8]) -> bool {
        self.revoked || self.devices.iter().any(|d| d.as_bytes() == device)
    }

    /// Whether a change that carries `version` comes too late.
    pub fn outdates(&self, version: Option<u64>) -> bool {
        matches!((version, self.version), (Some(new), Some(stored)) if new <= stored)
    }

    /// Whether the record is worth showing: not a mere version, nor a grant that is over.
    pub fn is_shown(&self, mono: u64) -> bool {
        self.live_grant(mono).is_some() || self.revoked || !self.devices.is_empty()
    }

    fn is_blank(&self) -> bool {
        self.grant.is_none() && self.version.is_none() && !self.revoked && self.devices.is_empty()
    }

    fn until(&self) -> Option<u64> {
        self.grant.as_ref().and_then(|g| g.until)
    }
}

impl Queued for Record {
    fn place(&mut self) -> &mut u32 {
        &mut self.place
    }
}

#[derive(Clone, Default)]
pub struct Access {
    records: Slab<Record>,
    by_user: Index,
    /// Grants that end.
    ending: Queue,
    hasher: DefaultHashBuilder,
}

impl Access {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn get(&self, user: &[u8]) -> Option<&Record> {
        self.records.get(self.slot_of(user)?)
    }

    /// Records in slots `first` and above.
    pub fn from(&self, first: u32) -> impl Iterator<Item = (u32, &Record)> {
        self.records.from(first)
    }

    /// The slot a user's record keeps, for pages that show one user.
    pub fn slot_of(&self, user: &[u8]) -> Option<u32> {
        let same = |slot: &u32| self.records.get(*slot).is_some_and(|r| r.user.as_bytes() == user);
        self.by_user.find(self.hasher.hash_one(user), same)
    }

    /// No later than the next moment at which a grant ends.
    pub fn next_end(&self) -> Option<u64> {
        self.ending.first().map(|(bound, _)| bound)
    }

    /// Users whose grant is over, `most` at most.
    pub fn ended(&self, mono: u64, most: usize) -> Vec<Id> {
        let due = self.ending.due(mono, most);
        due.into_iter().filter_map(|slot| Some(self.records.get(slot)?.user.clone())).collect()
    }

    /// Changes a user's record, which appears if it must and goes once it says nothing.
    pub fn edit(&mut self, user: &[u8], edit: impl FnOnce(&mut Record)) {
        let slot = self.slot_of(user).unwrap_or_else(|| self.add(user));
        let Some(record) = self.records.get_mut(slot) else { return };
        let (before, place) = (record.until(), record.place);
        edit(record);
        let (after, blank) = (record.until(), record.is_blank());
        if before.is_some() {
            self.ending.remove(place, &mut self.records);
        }
        if let Some(until) = after {
            self.ending.push(until, slot, &mut self.records);
        }
        if blank {
            self.remove(slot);
        }
    }

    pub fn move_buffers(&mut self, mover: &impl Mover) {
        self.records.move_buffers(mover);
        self.ending.move_buffers(mover);
    }

    pub fn heap_bytes(&self) -> usize {
        let tables = [self.records.heap_bytes(), self.by_user.heap_bytes(), self.ending.heap_bytes()];
        let of_record = |r: &Record| {
            let devices = r.devices.iter().map(Id::heap_bytes).fold(0, usize::saturating_add);
            let list = r.devices.capacity().saturating_mul(size_of::<Id>());
            r.user.heap_bytes().saturating_add(devices).saturating_add(list)
        };
        let records = self.records.iter().map(|(_, r)| of_record(r));
        tables.into_iter().chain(records).fold(0, usize::saturating_add)
    }

    fn add(&mut self, user: &[u8]) -> u32 {
        let slot = self.records.insert(Record::new(user));
        let (records, hasher) = (&self.records, &self.hasher);
        self.by_user.insert(hasher.hash_one(user), slot, |slot| hash_of(records, hasher, *slot));
        slot
    }

    fn remove(&mut self, slot: u32) {
        let (records, hasher) = (&self.records, &self.hasher);
        self.by_user.remove(hash_of(records, hasher, slot), slot, |slot| hash_of(records, hasher, *slot));
        self.records.remove(slot);
    }
}

fn hash_of(records: &Slab<Record>, hasher: &DefaultHashBuilder, slot: u32) -> u64 {
    records.get(slot).map_or(0, |r| hasher.hash_one(r.user.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(until: Option<u64>) -> Option<Grant> {
        Some(Grant { level: Level::Read, until, token: None })
    }

    #[test]
    fn a_record_lives_while_it_says_something() {
        let mut a = Access::default();
        a.edit(b"u", |r| r.grant = granted(Some(50)));
        a.edit(b"v", |r| r.grant = granted(Some(40)));
        assert_eq!((a.next_end(), a.ended(45, 9), a.len()), (Some(40), vec![Id::new(b"v")], 2));
        a.edit(b"v", |r| r.grant = None);
        assert_eq!((a.next_end(), a.len()), (Some(50), 1));
        a.edit(b"u", |r| r.grant = granted(None));
        assert_eq!(a.next_end(), None);
        a.edit(b"u", |r| {
            r.grant = None;
            r.version = Some(7);
        });
        assert!(a.get(b"u").is_some_and(|r| r.outdates(Some(7)) && !r.outdates(Some(8)) && !r.outdates(None)));
        a.edit(b"u", |r| r.version = None);
        assert!(a.is_empty());
    }
}
