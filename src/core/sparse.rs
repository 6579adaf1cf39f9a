//! Records that few slots have, each in a block of its own.
//!
//! One table of them all would move everything whenever it grows (see `index`): here every [`PART`] slots have a small
//! one of their own, and slots that have nothing cost nothing.

use hashbrown::HashMap;

use super::slab::{grow, tighten};

/// Slots of a table.
const PART: u32 = 1024;

#[derive(Clone, Debug)]
pub struct Sparse<T> {
    parts: Vec<HashMap<u32, Box<T>>>,
    len: usize,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self { parts: Vec::new(), len: 0 }
    }
}

impl<T> Sparse<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, slot: u32) -> Option<&T> {
        self.parts.get(part_of(slot))?.get(&slot).map(|record| &**record)
    }

    pub fn insert(&mut self, slot: u32, record: Box<T>) {
        if self.part(slot).insert(slot, record).is_none() {
            self.len = self.len.saturating_add(1);
        }
    }

    pub fn get_or_default(&mut self, slot: u32) -> &mut T
    where
        T: Default,
    {
        if self.get(slot).is_none() {
            self.insert(slot, Box::default());
        }
        self.part(slot).entry(slot).or_default()
    }

    pub fn remove(&mut self, slot: u32) {
        let Some(part) = self.parts.get_mut(part_of(slot)) else { return };
        if part.remove(&slot).is_none() {
            return;
        }
        self.len = self.len.saturating_sub(1);
        if part.is_empty() {
            *part = HashMap::new();
        } else if part.capacity() > 32 && part.len() <= part.capacity() / 4 {
            part.shrink_to(part.len().saturating_mul(2));
        }
        while self.parts.last().is_some_and(HashMap::is_empty) {
            self.parts.pop();
        }
        tighten(&mut self.parts);
    }

    /// Puts a record into another block.
    pub fn rehouse(&mut self, slot: u32, moved: impl FnOnce(Box<T>) -> Box<T>) {
        let Some(part) = self.parts.get_mut(part_of(slot)) else { return };
        if let Some(record) = part.remove(&slot) {
            part.insert(slot, moved(record));
        }
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flat_map(HashMap::values).map(|record| &**record)
    }

    /// Bytes allocated, the records aside.
    pub fn heap_bytes(&self) -> usize {
        let parts = self.parts.capacity().saturating_mul(size_of::<HashMap<u32, Box<T>>>());
        self.parts.iter().map(HashMap::allocation_size).fold(parts, usize::saturating_add)
    }

    /// The table of a slot, made if need be.
    fn part(&mut self, slot: u32) -> &mut HashMap<u32, Box<T>> {
        let place = part_of(slot);
        while self.parts.len() <= place {
            grow(&mut self.parts);
            self.parts.push(HashMap::new());
        }
        #[allow(clippy::indexing_slicing)] // It has just been made.
        &mut self.parts[place]
    }
}

fn part_of(slot: u32) -> usize {
    (slot / PART) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_records_of_few_slots() {
        let mut sparse = Sparse::default();
        for slot in 0..100_000u32 {
            sparse.insert(slot, Box::new(slot));
        }
        assert_eq!((sparse.len(), sparse.values().count(), sparse.get(77_777)), (100_000, 100_000, Some(&77_777)));
        assert!(sparse.parts.iter().all(|part| part.len() <= PART as usize));
        let full = sparse.heap_bytes();
        for slot in (0..100_000).filter(|slot| slot % 1000 != 0) {
            sparse.remove(slot);
            sparse.remove(slot);
        }
        assert_eq!((sparse.len(), sparse.get(99_000), sparse.get(99_001)), (100, Some(&99_000), None));
        assert!(sparse.heap_bytes() < full / 10, "{} of {full}", sparse.heap_bytes());
        *sparse.get_or_default(3) += 1;
        *sparse.get_or_default(3) += 1;
        sparse.rehouse(3, |record| Box::new(*record + 5));
        assert_eq!((sparse.get(3), sparse.len()), (Some(&7), 101));
        for slot in 0..100_000 {
            sparse.remove(slot);
        }
        assert_eq!((sparse.len(), sparse.heap_bytes()), (0, 0));
    }
}
