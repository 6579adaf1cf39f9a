//! Users and their holders.
//!
//! A holder is a `(user, device)` pair. It stands here while it has a record: a live lease or a tombstone. Most users
//! have one holder, on the default device, and take 40 bytes; others get a map.
//!
//! Rules
//! 1. A holder's epoch is the highest it was given; it outlives the lease, and the room's floor outlives the holder.
//! 2. Only a holder's newest record can be unended.

use std::hash::BuildHasher;
use std::num::NonZeroU32;

use hashbrown::{DefaultHashBuilder, HashMap};

use super::id::{Id, DEFAULT_DEVICE};
use super::index::Index;
use super::room::Mover;
use super::slab::Slab;

/// No slot.
pub const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// The highest epoch given to this holder.
    pub epoch: u64,
    /// Slot of its newest record, or [`NONE`] once that is forgotten.
    pub newest: u32,
    tally: Tally,
}

/// How many records a holder has, and whether one of them is unended. Never 0 records: the niche keeps a user small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tally(NonZeroU32);

#[derive(Clone, Debug)]
enum Holders {
    /// The default device alone.
    Sole(Holder),
    Many(Box<Many>),
}

#[derive(Clone, Debug)]
struct Many {
    holders: HashMap<Id, Holder>,
    /// Of all of them, unended.
    leases: u32,
}

#[derive(Clone, Debug)]
pub struct User {
    pub id: Id,
    holders: Holders,
}

impl User {
    /// Leases opened and not removed, overdue ones included.
    pub fn leases(&self) -> u32 {
        match &self.holders {
            Holders::Sole(holder) => holder.tally.unended().into(),
            Holders::Many(many) => many.leases,
        }
    }
}

#[derive(Clone, Default)]
pub struct Users {
    slots: Slab<User>,
    by_id: Index,
    /// Users with a lease.
    present: u32,
    hasher: DefaultHashBuilder,
}

impl Users {
    pub fn get(&self, user: u32) -> Option<&User> {
        self.slots.get(user)
    }

    pub fn find(&self, id: &[u8]) -> Option<u32> {
        let same = |slot: &u32| self.get(*slot).is_some_and(|u| u.id.as_bytes() == id);
        self.by_id.find(self.hasher.hash_one(id), same)
    }

    /// Users with at least one lease that nothing has removed.
    pub fn present(&self) -> u32 {
        self.present
    }

    pub fn holder(&self, user: u32, device: &[u8]) -> Option<Holder> {
        match &self.get(user)?.holders {
            Holders::Sole(holder) => (device == DEFAULT_DEVICE).then_some(*holder),
            Holders::Many(many) => many.holders.get(device).copied(),
        }
    }

    /// The newest records of all of a user's holders.
    pub fn newest_of(&self, user: u32) -> Vec<u32> {
        match self.get(user).map(|u| &u.holders) {
            None => Vec::new(),
            Some(Holders::Sole(holder)) => vec![holder.newest],
            Some(Holders::Many(many)) => many.holders.values().map(|h| h.newest).collect(),
        }
    }

    /// A record of this holder enters the room at `slot`; returns the user's slot.
    pub fn enter(&mut self, id: &[u8], device: &[u8], epoch: u64, slot: u32, unended: bool) -> u32 {
        let Some(user) = self.find(id) else {
            self.present = self.present.saturating_add(unended.into());
            return self.add(User { id: Id::new(id), holders: Holders::first(device, epoch, slot, unended) });
        };
        if let Some(entry) = self.slots.get_mut(user) {
            let was_present = entry.leases() > 0;
            entry.holders.enter(device, epoch, slot, unended);
            self.present = self.present.saturating_add((unended && !was_present).into());
        }
        user
    }

    /// The holder's lease has ended; its record stays.
    pub fn end(&mut self, user: u32, device: &[u8]) {
        let Some(entry) = self.slots.get_mut(user) else { return };
        match &mut entry.holders {
            Holders::Sole(holder) => holder.tally = holder.tally.ended(),
            Holders::Many(many) => {
                if let Some(holder) = many.holders.get_mut(device) {
                    holder.tally = holder.tally.ended();
                    many.leases = many.leases.saturating_sub(1);
                }
            }
        }
        self.present = self.present.saturating_sub((entry.leases() == 0).into());
    }

    /// A holder's epoch as it was saved; it may be above what its remaining records tell.
    pub fn raise_epoch(&mut self, user: u32, device: &[u8], epoch: u64) {
        let Some(entry) = self.slots.get_mut(user) else { return };
        let holder = match &mut entry.holders {
            Holders::Sole(holder) => Some(holder),
            Holders::Many(many) => many.holders.get_mut(device),
        };
        if let Some(holder) = holder {
            holder.epoch = holder.epoch.max(epoch);
        }
    }

    /// The record at `slot`, an ended lease, is forgotten.
    pub fn forget(&mut self, user: u32, device: &[u8], slot: u32) {
        let Some(entry) = self.slots.get_mut(user) else { return };
        let gone = match &mut entry.holders {
            Holders::Sole(holder) => holder.forget(slot),
            Holders::Many(many) => many.forget(device, slot),
        };
        if gone {
            self.remove(user);
        }
    }

    pub fn move_buffers(&mut self, mover: &impl Mover) {
        self.slots.move_buffers(mover);
    }

    pub fn heap_bytes(&self) -> usize {
        let maps = self.slots.iter().map(|(_, u)| {
            let map = match &u.holders {
                Holders::Sole(_) => 0,
                Holders::Many(many) => many.holders.allocation_size().saturating_add(size_of::<Many>()),
            };
            u.id.heap_bytes().saturating_add(map)
        });
        let index = self.slots.heap_bytes().saturating_add(self.by_id.heap_bytes());
        maps.fold(index, usize::saturating_add)
    }

    fn add(&mut self, user: User) -> u32 {
        let hash = self.hasher.hash_one(user.id.as_bytes());
        let slot = self.slots.insert(user);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_id.insert(hash, slot, |slot| hash_of(slots, hasher, *slot));
        slot
    }

    fn remove(&mut self, user: u32) {
        let Some(entry) = self.slots.remove(user) else { return };
        let hash = self.hasher.hash_one(entry.id.as_bytes());
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_id.remove(hash, user, |slot| hash_of(slots, hasher, *slot));
    }
}

fn hash_of(slots: &Slab<User>, hasher: &DefaultHashBuilder, slot: u32) -> u64 {
    slots.get(slot).map_or(0, |u| hasher.hash_one(u.id.as_bytes()))
}

impl Holders {
    fn first(device: &[u8], epoch: u64, slot: u32, unended: bool) -> Self {
        let holder = Holder::first(epoch, slot, unended);
        if device == DEFAULT_DEVICE {
            Self::Sole(holder)
        } else {
            Self::Many(Box::new(Many::of(device, holder)))
        }
    }

    fn enter(&mut self, device: &[u8], epoch: u64, slot: u32, unended: bool) {
        if let (Self::Sole(holder), false) = (&*self, device == DEFAULT_DEVICE) {
            *self = Self::Many(Box::new(Many::of(DEFAULT_DEVICE, *holder)));
        }
        match self {
            Self::Sole(holder) => holder.enter(epoch, slot, unended),
            Self::Many(many) => {
                many.leases = many.leases.saturating_add(unended.into());
                let holder = many.holders.entry_ref(device);
                let known = holder.and_modify(|h| h.enter(epoch, slot, unended));
                known.or_insert_with(|| Holder::first(epoch, slot, unended));
            }
        }
    }
}

impl Many {
    fn of(device: &[u8], holder: Holder) -> Self {
        Self { holders: HashMap::from_iter([(Id::new(device), holder)]), leases: holder.tally.unended().into() }
    }

    /// Returns whether no holder is left.
    fn forget(&mut self, device: &[u8], slot: u32) -> bool {
        if self.holders.get_mut(device).is_some_and(|h| h.forget(slot)) {
            self.holders.remove(device);
        }
        if self.holders.capacity() > 16 && self.holders.len() <= self.holders.capacity() / 4 {
            self.holders.shrink_to(self.holders.len().saturating_mul(2));
        }
        self.holders.is_empty()
    }
}

impl Holder {
    fn first(epoch: u64, slot: u32, unended: bool) -> Self {
        Self { epoch, newest: slot, tally: Tally::first(unended) }
    }

    /// A load may have told the holder's epoch before the record that has it comes.
    fn enter(&mut self, epoch: u64, slot: u32, unended: bool) {
        self.tally = self.tally.entered(unended);
        if epoch >= self.epoch {
            self.epoch = epoch;
            self.newest = slot;
        }
    }

    /// Returns whether that was its last record.
    fn forget(&mut self, slot: u32) -> bool {
        if self.newest == slot {
            self.newest = NONE;
        }
        match self.tally.forgotten() {
            Some(tally) => {
                self.tally = tally;
                false
            }
            None => true,
        }
    }
}

impl Tally {
    /// The lowest bit tells whether one is unended, the others how many there are.
    const RECORD: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

    fn first(unended: bool) -> Self {
        Self(Self::RECORD.saturating_add(unended.into()))
    }

    fn unended(self) -> bool {
        self.0.get() & 1 == 1
    }

    fn entered(self, unended: bool) -> Self {
        Self(self.ended().0.saturating_add(Self::first(unended || self.unended()).0.get()))
    }

    fn ended(self) -> Self {
        Self(NonZeroU32::new(self.0.get() & !1).unwrap_or(Self::RECORD))
    }

    /// One record less; none if that was the last.
    fn forgotten(self) -> Option<Self> {
        let fewer = self.0.get().checked_sub(Self::RECORD.get())?;
        NonZeroU32::new(fewer).filter(|fewer| *fewer >= Self::RECORD).map(Self)
    }
}

impl From<&[u8]> for Id {
    fn from(bytes: &[u8]) -> Self {
        Self::new(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_user_takes_40_bytes() {
        assert_eq!((size_of::<User>(), size_of::<Option<User>>()), (40, 40));
    }

    #[test]
    fn a_holder_lives_as_long_as_its_records() {
        let mut users = Users::default();
        let u = users.enter(b"u", b"default", 1, 10, true);
        assert_eq!(users.enter(b"u", b"tab", 1, 11, true), u);
        users.end(u, b"default");
        assert_eq!(users.enter(b"u", b"default", 2, 12, true), u);
        assert_eq!((users.present(), users.get(u).map(User::leases)), (1, Some(2)));
        assert_eq!(users.holder(u, b"default").map(|h| (h.epoch, h.newest)), Some((2, 12)));
        users.forget(u, b"default", 10);
        users.end(u, b"default");
        users.forget(u, b"default", 12);
        assert!(users.holder(u, b"default").is_none());
        users.end(u, b"tab");
        users.forget(u, b"tab", 11);
        assert_eq!((users.find(b"u"), users.present()), (None, 0));
    }
}
