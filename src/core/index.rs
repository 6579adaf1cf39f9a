//! Which slot holds the record of a key.
//!
//! A hash table moves all its entries when it grows, and asks each for its key: a tenth of a second for a million, in
//! which nobody is answered. Here the entries are dealt to tables of about [`SHARE`] (linear hashing): whenever these are
//! full on average the next of them in turn is dealt to two, and to one again when three quarters are unused.

use hashbrown::HashTable;

/// Entries of a table, on average; up to twice as many before its turn comes.
const SHARE: usize = 1024;

#[derive(Clone, Default)]
pub struct Index {
    /// All there is to most. The rest is a mere pointer, since each room has five of these.
    first: HashTable<u32>,
    more: Option<Box<More>>,
}

#[derive(Clone)]
struct More {
    tables: Vec<HashTable<u32>>,
    /// Entries in all tables, the first included.
    len: usize,
}

impl Index {
    pub fn len(&self) -> usize {
        self.more.as_ref().map_or(self.first.len(), |more| more.len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of the key with this hash.
    pub fn find(&self, hash: u64, same: impl FnMut(&u32) -> bool) -> Option<u32> {
        let other = table_of(hash, self.tables()).checked_sub(1);
        let table = other.and_then(|place| self.others().get(place)).unwrap_or(&self.first);
        table.find(hash, same).copied()
    }

    /// Adds a key that is not there. `hash_of` tells the hash of the key in a slot.
    pub fn insert(&mut self, hash: u64, slot: u32, hash_of: impl Fn(&u32) -> u64) {
        self.table(table_of(hash, self.tables())).insert_unique(hash, slot, &hash_of);
        self.more.iter_mut().for_each(|more| more.len = more.len.saturating_add(1));
        if self.len() > self.tables().saturating_mul(SHARE) {
            self.split(hash_of);
        }
    }

    /// Removes the key with this hash that is in `slot`.
    pub fn remove(&mut self, hash: u64, slot: u32, hash_of: impl Fn(&u32) -> u64) {
        let table = self.table(table_of(hash, self.tables()));
        let Ok(found) = table.find_entry(hash, |at| *at == slot) else { return };
        found.remove();
        if table.capacity() > 16 && table.len() <= table.capacity() / 4 {
            table.shrink_to(table.len().saturating_mul(2), &hash_of);
        }
        self.more.iter_mut().for_each(|more| more.len = more.len.saturating_sub(1));
        if self.len() <= self.others().len().saturating_mul(SHARE / 4) {
            self.merge(hash_of);
        }
    }

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        let of_more = |more: &More| more.tables.capacity().saturating_mul(size_of::<HashTable<u32>>());
        let more = self.more.as_deref().map_or(0, |more| size_of::<More>().saturating_add(of_more(more)));
        let tables = std::iter::once(&self.first).chain(self.others()).map(HashTable::allocation_size);
        tables.fold(more, usize::saturating_add)
    }

    fn others(&self) -> &[HashTable<u32>] {
        self.more.as_ref().map_or(&[], |more| &more.tables)
    }

    fn tables(&self) -> usize {
        self.others().len().saturating_add(1)
    }

    fn table(&mut self, number: usize) -> &mut HashTable<u32> {
        let other = number.checked_sub(1).and_then(|place| self.more.as_mut()?.tables.get_mut(place));
        other.unwrap_or(&mut self.first)
    }

    /// One more table: it takes its entries from the one they were in until now.
    fn split(&mut self, hash_of: impl Fn(&u32) -> u64) {
        let (number, len) = (self.tables(), self.len());
        let old = std::mem::take(self.table(parent(number)));
        let half = old.len() / 2;
        let (mut stay, mut go) = (HashTable::with_capacity(half), HashTable::with_capacity(half));
        for slot in old {
            let hash = hash_of(&slot);
            let goes = table_of(hash, number.saturating_add(1)) == number;
            if goes { &mut go } else { &mut stay }.insert_unique(hash, slot, &hash_of);
        }
        *self.table(parent(number)) = stay;
        self.more.get_or_insert_with(|| Box::new(More { tables: Vec::new(), len })).tables.push(go);
    }

    /// One table less.
    fn merge(&mut self, hash_of: impl Fn(&u32) -> u64) {
        let Some(last) = self.more.as_mut().and_then(|more| more.tables.pop()) else { return };
        let table = self.table(parent(self.tables()));
        for slot in last {
            table.insert_unique(hash_of(&slot), slot, &hash_of);
        }
        self.more.take_if(|more| more.tables.is_empty());
    }
}

/// Which of so many tables a key is in. The tables themselves use the lowest and the highest bits of its hash.
fn table_of(hash: u64, tables: usize) -> usize {
    let (bits, all) = ((hash >> 32) as usize, tables.next_power_of_two());
    let number = bits & all.wrapping_sub(1);
    if number < tables {
        number
    } else {
        parent(number)
    }
}

/// The table in which the entries of a later one are while that is not there: its number without the highest bit.
fn parent(number: usize) -> usize {
    number ^ number.checked_ilog2().map_or(0, |bit| 1 << bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    use hashbrown::DefaultHashBuilder;

    fn check(index: &Index, hash_of: impl Fn(&u32) -> u64, slots: std::ops::Range<u32>, all: u32) {
        for slot in 0..all {
            let found = index.find(hash_of(&slot), |at| *at == slot);
            assert_eq!(found, slots.contains(&slot).then_some(slot));
        }
        assert_eq!(index.len(), slots.len());
    }

    #[test]
    fn every_key_is_found_while_tables_come_and_go() {
        let hasher = DefaultHashBuilder::default();
        let (mut index, hash_of, all) = (Index::default(), |slot: &u32| hasher.hash_one(slot), 40 * SHARE as u32);
        for slot in 0..all {
            index.insert(hash_of(&slot), slot, hash_of);
            if slot % 3001 == 0 {
                check(&index, hash_of, 0..slot + 1, all);
            }
        }
        assert_eq!(index.tables(), 40);
        let full = index.heap_bytes();
        assert!(full <= 12 * all as usize, "{full} bytes for {all} keys");
        for slot in 0..all {
            index.remove(hash_of(&slot), slot, hash_of);
            index.remove(hash_of(&slot), slot, hash_of);
            if slot % 3001 == 0 {
                check(&index, hash_of, slot + 1..all, all);
            }
        }
        assert!(index.is_empty() && index.heap_bytes() < 1000, "{}", index.heap_bytes());
    }

    /// What makes others wait: keys that are asked for their hash by one change.
    #[test]
    fn no_change_moves_more_than_a_few_tables() {
        let (hasher, asked) = (DefaultHashBuilder::default(), std::cell::Cell::new(0));
        let hash_of = |slot: &u32| {
            asked.set(asked.get() + 1);
            hasher.hash_one(slot)
        };
        let (mut index, all, mut most) = (Index::default(), 100_000, 0);
        for slot in (0..all).chain(0..all) {
            let (hash, is_new) = (hasher.hash_one(slot), index.find(hasher.hash_one(slot), |at| *at == slot).is_none());
            asked.set(0);
            if is_new {
                index.insert(hash, slot, hash_of);
            } else {
                index.remove(hash, slot, hash_of);
            }
            most = most.max(asked.get());
        }
        assert!(index.is_empty() && most <= 6 * SHARE, "{most}");
    }
}
