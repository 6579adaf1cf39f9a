//! How far each holder's messages got: what servers say they queued and wrote, and what clients say they have.
//!
//! Rules
//! 1. A holder has one record with three claims. Each moves forward only, on its own; 0 makes no record.
//! 2. A record ends `cursor-ms` after its last move and acts as none from that millisecond on, whether it has been
//!    dropped yet or not.
//! 3. A user has at most [`MOST_DEVICES`] records. They are a list that starts from the user, so that a walk of it finds
//!    a holder and tells how many there are.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use super::id::Id;
use super::index::Index;
use super::queue::{Queue, Queued};
use super::room::Mover;
use super::slab::Slab;
use super::users::NONE;

/// Devices of one user with a record.
pub const MOST_DEVICES: usize = 64;

/// What is said of all messages up to some seq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Claim {
    /// A server put them into the recipient's durable queue.
    Queued = 1,
    /// A server wrote them to the recipient's socket.
    Written,
    /// The recipient's client has them.
    Acked,
}

impl Claim {
    pub const ALL: [Self; 3] = [Self::Queued, Self::Written, Self::Acked];

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|claim| *claim as u8 == code)
    }
}

/// Of one holder.
#[derive(Clone, Debug)]
pub struct Cursor {
    pub user: Id,
    pub device: Id,
    pub queued: u64,
    pub written: u64,
    pub acked: u64,
    /// Its place in the queue.
    place: u32,
    /// The next one of this user, or [`NONE`].
    next: u32,
}

impl Cursor {
    pub fn seq(&self, claim: Claim) -> u64 {
        match claim {
            Claim::Queued => self.queued,
            Claim::Written => self.written,
            Claim::Acked => self.acked,
        }
    }

    fn seq_mut(&mut self, claim: Claim) -> &mut u64 {
        match claim {
            Claim::Queued => &mut self.queued,
            Claim::Written => &mut self.written,
            Claim::Acked => &mut self.acked,
        }
    }
}

impl Queued for Cursor {
    fn place(&mut self) -> &mut u32 {
        &mut self.place
    }
}

#[derive(Clone, Default)]
pub struct Cursors {
    records: Slab<Cursor>,
    /// The first record of each user.
    by_user: Index,
    /// All of them, by their end.
    ends: Queue,
    hasher: DefaultHashBuilder,
}

impl Cursors {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// A holder's record, whether its time is over or not.
    pub fn get(&self, user: &[u8], device: &[u8]) -> Option<&Cursor> {
        self.records.get(self.slot_of(user, device)?)
    }

    /// A holder's record, unless its time is over.
    pub fn live(&self, user: &[u8], device: &[u8], mono: u64) -> Option<&Cursor> {
        self.get(user, device).filter(|cursor| self.is_live(cursor, mono))
    }

    pub fn is_live(&self, cursor: &Cursor, mono: u64) -> bool {
        self.until(cursor) > mono
    }

    /// Monotonic.
    pub fn until(&self, cursor: &Cursor) -> u64 {
        self.ends.bound(cursor.place).unwrap_or_default()
    }

    pub fn of_user(&self, user: &[u8]) -> impl Iterator<Item = &Cursor> {
        self.slots_of(user).filter_map(|slot| self.records.get(slot))
    }

    /// Records in slots `first` and above.
    pub fn from(&self, first: u32) -> impl Iterator<Item = (u32, &Cursor)> {
        self.records.from(first)
    }

    /// The next moment at which one ends.
    pub fn next_end(&self) -> Option<u64> {
        self.ends.first().map(|(bound, _)| bound)
    }

    /// Holders whose record is over, `most` at most.
    pub fn ended(&self, mono: u64, most: usize) -> Vec<(Id, Id)> {
        let due = self.ends.due(mono, most).into_iter().filter_map(|slot| self.records.get(slot));
        due.map(|cursor| (cursor.user.clone(), cursor.device.clone())).collect()
    }

    /// Moves a claim forward, and the record's end with it; nothing if it does not move, or has no room.
    pub fn advance(&mut self, user: &[u8], device: &[u8], claim: Claim, seq: u64, until: u64) {
        if seq <= self.get(user, device).map_or(0, |cursor| cursor.seq(claim)) {
            return;
        }
        let Some(slot) = self.slot_of(user, device).or_else(|| self.add(user, device, until)) else { return };
        let Some(cursor) = self.records.get_mut(slot) else { return };
        *cursor.seq_mut(claim) = seq;
        let place = cursor.place;
        self.ends.raise(place, until, &mut self.records);
    }

    /// Drops a holder's record; the moment at which it ended or would have.
    pub fn remove(&mut self, user: &[u8], device: &[u8]) -> Option<u64> {
        let slot = self.slot_of(user, device)?;
        let before = self.slots_of(user).take_while(|other| *other != slot).last();
        let (place, next) = self.records.get(slot).map(|cursor| (cursor.place, cursor.next))?;
        match before.and_then(|before| self.records.get_mut(before)) {
            Some(before) => before.next = next,
            None => self.set_first(user, next),
        }
        let until = self.ends.bound(place);
        self.ends.remove(place, &mut self.records);
        self.records.remove(slot);
        until
    }

    pub fn move_buffers(&mut self, mover: &impl Mover) {
        self.records.move_buffers(mover);
        self.ends.move_buffers(mover);
    }

    pub fn heap_bytes(&self) -> usize {
        let tables = [self.records.heap_bytes(), self.by_user.heap_bytes(), self.ends.heap_bytes()];
        let ids = self.records.iter().map(|(_, c)| c.user.heap_bytes().saturating_add(c.device.heap_bytes()));
        tables.into_iter().chain(ids).fold(0, usize::saturating_add)
    }

    fn first_of(&self, user: &[u8]) -> Option<u32> {
        let same = |slot: &u32| self.records.get(*slot).is_some_and(|c| c.user.as_bytes() == user);
        self.by_user.find(self.hasher.hash_one(user), same)
    }

    fn slots_of(&self, user: &[u8]) -> impl Iterator<Item = u32> + '_ {
        let next = |slot: &u32| self.records.get(*slot).map(|c| c.next).filter(|next| *next != NONE);
        std::iter::successors(self.first_of(user), next)
    }

    fn slot_of(&self, user: &[u8], device: &[u8]) -> Option<u32> {
        let same = |slot: &u32| self.records.get(*slot).is_some_and(|c| c.device.as_bytes() == device);
        self.slots_of(user).find(same)
    }

    /// None if the user has all the records it may have.
    fn add(&mut self, user: &[u8], device: &[u8], until: u64) -> Option<u32> {
        if self.slots_of(user).count() >= MOST_DEVICES {
            return None;
        }
        let next = self.first_of(user).unwrap_or(NONE);
        let (of, device) = (Id::new(user), Id::new(device));
        let slot = self.records.insert(Cursor { user: of, device, queued: 0, written: 0, acked: 0, place: 0, next });
        self.set_first(user, slot);
        self.ends.push(until, slot, &mut self.records);
        Some(slot)
    }

    /// The user's list starts at `slot` now. What it started with is still there.
    fn set_first(&mut self, user: &[u8], slot: u32) {
        let (hash, before) = (self.hasher.hash_one(user), self.first_of(user));
        let (records, hasher) = (&self.records, &self.hasher);
        let hash_of = |slot: &u32| hash_of(records, hasher, *slot);
        if let Some(before) = before {
            self.by_user.remove(hash, before, hash_of);
        }
        if slot != NONE {
            self.by_user.insert(hash, slot, hash_of);
        }
    }
}

fn hash_of(records: &Slab<Cursor>, hasher: &DefaultHashBuilder, slot: u32) -> u64 {
    records.get(slot).map_or(0, |c| hasher.hash_one(c.user.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cursor_takes_80_bytes() {
        assert_eq!(size_of::<Option<Cursor>>(), 80);
    }

    #[test]
    fn a_user_has_64_devices_and_room_again_once_one_is_gone() {
        let mut c = Cursors::default();
        for device in 0..=MOST_DEVICES as u8 {
            c.advance(b"u", &[device], Claim::Queued, 1, 9);
        }
        c.advance(b"v", b"d", Claim::Queued, 1, 9);
        assert_eq!((c.of_user(b"u").count(), c.len()), (64, 65));
        assert!(c.get(b"u", &[64]).is_none());
        c.advance(b"u", &[63], Claim::Acked, 7, 9);
        assert_eq!(c.get(b"u", &[63]).map(|c| (c.queued, c.acked)), Some((1, 7)));
        assert_eq!((c.remove(b"u", &[5]), c.remove(b"u", &[5])), (Some(9), None));
        c.advance(b"u", &[64], Claim::Queued, 1, 9);
        assert_eq!(c.of_user(b"u").count(), 64);
        let longest = vec![7; 255];
        let before = c.heap_bytes();
        c.advance(&longest, &longest, Claim::Queued, 1, 9);
        assert_eq!(c.heap_bytes(), before + 2 * 255);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Advance { user: u8, device: u8, claim: Claim, seq: u64, until: u64 },
        Remove { user: u8, device: u8 },
    }

    fn op() -> impl Strategy<Value = Op> {
        let advance = (0..4u8, 0..70u8, prop::sample::select(&Claim::ALL[..]), 0..5u64, 0..40u64);
        prop_oneof![
            3 => advance.prop_map(|(user, device, claim, seq, until)| Op::Advance { user, device, claim, seq, until }),
            1 => (0..4u8, 0..70u8).prop_map(|(user, device)| Op::Remove { user, device }),
        ]
    }

    /// Holders, their three claims and their end.
    type Model = HashMap<(u8, u8), ([u64; 3], u64)>;

    fn advance(model: &mut Model, (user, device): (u8, u8), claim: Claim, seq: u64, until: u64) {
        let of_user = model.keys().filter(|(of, _)| *of == user).count();
        let known = model.contains_key(&(user, device));
        if seq == 0 || (!known && of_user == MOST_DEVICES) {
            return;
        }
        let entry = model.entry((user, device)).or_default();
        if seq > entry.0[claim as usize - 1] {
            entry.0[claim as usize - 1] = seq;
            entry.1 = until;
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(ops in prop::collection::vec(op(), 1..900)) {
            let (mut cursors, mut model) = (Cursors::default(), Model::new());
            for op in ops {
                match op {
                    Op::Advance { user, device, claim, seq, until } => {
                        cursors.advance(&[user], &[device], claim, seq, until);
                        advance(&mut model, (user, device), claim, seq, until);
                    }
                    Op::Remove { user, device } => {
                        let removed = model.remove(&(user, device)).map(|(_, until)| until);
                        prop_assert_eq!(cursors.remove(&[user], &[device]), removed);
                    }
                }
                prop_assert_eq!(cursors.len(), model.len());
                prop_assert_eq!(cursors.next_end(), model.values().map(|(_, until)| *until).min());
            }
            for user in 0..4u8 {
                let of_user = model.keys().filter(|(of, _)| *of == user).count();
                prop_assert_eq!(cursors.of_user(&[user]).count(), of_user);
            }
            for (_, cursor) in cursors.from(0) {
                let holder = (cursor.user.as_bytes()[0], cursor.device.as_bytes()[0]);
                let seen = (Claim::ALL.map(|claim| cursor.seq(claim)), cursors.until(cursor));
                prop_assert_eq!(Some(&seen), model.get(&holder));
                prop_assert!(cursors.get(&[holder.0], &[holder.1]).is_some());
            }
            let over = model.values().filter(|(_, until)| *until <= 20).count();
            prop_assert_eq!(cursors.ended(20, usize::MAX).len(), over);
            for (user, device) in model.into_keys() {
                cursors.remove(&[user], &[device]);
            }
            prop_assert!(cursors.is_empty() && cursors.by_user.is_empty() && cursors.ends.is_empty());
        }
    }
}
