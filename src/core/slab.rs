//! Records in numbered slots.
//!
//! A slot keeps its number while its record lives, so a roster page can be continued from a number. Growth is by an
//! eighth, not by doubling: a room's records are most of what a node stores. Freed slots are reused from the lowest,
//! so that the end empties and memory can be given back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashTable;

use super::room::Mover;

#[derive(Clone, Debug)]
pub struct Slab<T> {
    slots: Vec<Option<T>>,
    /// May hold numbers that were freed more than once or lie beyond the end; `insert` skips them.
    free: BinaryHeap<Reverse<u32>>,
    len: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: BinaryHeap::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// One more than the highest slot in use.
    pub fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub fn insert(&mut self, record: T) -> u32 {
        self.len = self.len.saturating_add(1);
        while let Some(Reverse(slot)) = self.free.pop() {
            if let Some(place @ None) = self.slots.get_mut(slot as usize) {
                *place = Some(record);
                return slot;
            }
        }
        grow(&mut self.slots);
        self.slots.push(Some(record));
        self.end().saturating_sub(1)
    }

    pub fn remove(&mut self, slot: u32) -> Option<T> {
        let record = self.slots.get_mut(slot as usize)?.take()?;
        self.len = self.len.saturating_sub(1);
        self.free.push(Reverse(slot));
        while let Some(None) = self.slots.last() {
            self.slots.pop();
        }
        if self.slots.is_empty() {
            self.free.clear();
        }
        tighten(&mut self.slots);
        Some(record)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.from(0)
    }

    /// Records in slots `first` and above.
    pub fn from(&self, first: u32) -> impl Iterator<Item = (u32, &T)> {
        self.slots
            .iter()
            .enumerate()
            .skip(first as usize)
            .filter_map(|(slot, record)| Some((slot as u32, record.as_ref()?)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(slot, record)| Some((slot as u32, record.as_mut()?)))
    }

    pub fn move_buffer(&mut self, mover: &impl Mover) {
        self.slots = mover.vec(std::mem::take(&mut self.slots));
    }

    /// Bytes allocated, the records' own allocations aside.
    pub fn heap_bytes(&self) -> usize {
        let records = self.slots.capacity().saturating_mul(size_of::<Option<T>>());
        records.saturating_add(self.free.capacity().saturating_mul(size_of::<u32>()))
    }
}

/// Makes room for one more, an eighth at a time.
pub fn grow<T>(v: &mut Vec<T>) {
    if v.len() == v.capacity() {
        v.reserve_exact((v.len() / 8).max(4));
    }
}

/// Gives memory back once three quarters are unused.
pub fn tighten<T>(v: &mut Vec<T>) {
    if v.capacity() > 16 && v.len() <= v.capacity() / 4 {
        v.shrink_to(v.len().saturating_mul(2));
    }
}

/// The same for a table of slots.
pub fn tighten_index(index: &mut HashTable<u32>, hash: impl Fn(&u32) -> u64) {
    if index.capacity() > 32 && index.len() <= index.capacity() / 4 {
        index.shrink_to(index.len().saturating_mul(2), hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_from_the_lowest_and_memory_goes_back() {
        let mut s = Slab::default();
        let slots: Vec<u32> = (0..1000).map(|i| s.insert(i)).collect();
        assert_eq!(slots, (0..1000).collect::<Vec<_>>());
        s.remove(7);
        s.remove(3);
        assert_eq!(s.remove(3), None);
        assert_eq!((s.insert(-1), s.insert(-2), s.insert(-3)), (3, 7, 1000));
        for slot in 1..1001 {
            s.remove(slot);
        }
        assert_eq!((s.len(), s.end()), (1, 1));
        assert!(s.slots.capacity() <= 16);
        s.insert(5);
        s.insert(6);
        assert_eq!(s.iter().map(|(slot, v)| (slot, *v)).collect::<Vec<_>>(), [(0, 0), (1, 5), (2, 6)]);
    }
}
