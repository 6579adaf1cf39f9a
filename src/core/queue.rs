//! Which record comes due first: a binary heap of lower bounds, touched lazily.
//!
//! Rules
//! 1. Every queued record has exactly one entry; the record knows its place in the heap.
//! 2. An entry's bound is never later than the record's moment. A heartbeat moves the moment only and touches nothing
//!    here; whoever finds the bound too early at the top puts it back at the record's moment (`raise`).
//! 3. A moment that moves forward in the queue (a shortened lease) must lower its bound at once (`lower`).
//! 4. Equal bounds come in the order the records were opened.
//!
//! An entry is 12 bytes; nothing stale is ever left behind, so memory follows the number of records.

use super::room::Mover;
use super::slab::{grow, tighten, Slab};

/// The records entries point to.
pub trait Records {
    /// Opening order; wraps, and is compared as such.
    fn order(&self, slot: u32) -> u32;
    fn set_place(&mut self, slot: u32, place: u32);
}

/// A record of a slab that stands in a queue, one at a time.
pub trait Queued {
    /// Where it keeps its place.
    fn place(&mut self) -> &mut u32;

    /// Opening order, where that is another than the one of slots.
    fn order(&self, slot: u32) -> u32 {
        slot
    }
}

impl<T: Queued> Records for Slab<T> {
    fn order(&self, slot: u32) -> u32 {
        self.get(slot).map_or(slot, |record| record.order(slot))
    }

    fn set_place(&mut self, slot: u32, place: u32) {
        if let Some(record) = self.get_mut(slot) {
            *record.place() = place;
        }
    }
}

/// Packed: half a million idle leases should not pay for padding.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct Entry {
    bound: u64,
    slot: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Queue {
    heap: Vec<Entry>,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The earliest bound and its record.
    pub fn first(&self) -> Option<(u64, u32)> {
        self.heap.first().map(|e| (e.bound, e.slot))
    }

    pub fn bound(&self, place: u32) -> Option<u64> {
        self.heap.get(place as usize).map(|e| e.bound)
    }

    pub fn push(&mut self, bound: u64, slot: u32, records: &mut impl Records) {
        grow(&mut self.heap);
        self.heap.push(Entry { bound, slot });
        let place = self.heap.len().saturating_sub(1);
        records.set_place(slot, place as u32);
        self.rise(place, records);
    }

    pub fn remove(&mut self, place: u32, records: &mut impl Records) {
        let place = place as usize;
        if place >= self.heap.len() {
            return;
        }
        self.heap.swap_remove(place);
        if let Some(moved) = self.heap.get(place).copied() {
            records.set_place(moved.slot, place as u32);
            self.settle(place, records);
        }
        tighten(&mut self.heap);
    }

    /// The record's moment is `bound` now; nothing to do unless that is earlier than what was queued.
    pub fn lower(&mut self, place: u32, bound: u64, records: &mut impl Records) {
        if self.bound(place).is_some_and(|queued| bound < queued) {
            self.set(place, bound, records);
        }
    }

    /// The record at `place` is not due before `bound`.
    pub fn raise(&mut self, place: u32, bound: u64, records: &mut impl Records) {
        self.set(place, bound, records);
    }

    /// Brings all bounds that are later forward to `bound`. Few records come so at once, so their order is not kept.
    pub fn level(&mut self, bound: u64) {
        for entry in &mut self.heap {
            entry.bound = entry.bound.min(bound);
        }
    }

    /// Slots of entries with a bound at or before `moment`, `most` at most, in no order; the work grows with their
    /// number only.
    pub fn due(&self, moment: u64, most: usize) -> Vec<u32> {
        let mut found = Vec::new();
        let mut open = vec![0usize];
        while let Some(place) = open.pop() {
            if found.len() == most {
                break;
            }
            if let Some(e) = self.heap.get(place).filter(|e| e.bound <= moment) {
                found.push(e.slot);
                open.extend([left(place), left(place).saturating_add(1)]);
            }
        }
        found
    }

    pub fn move_buffers(&mut self, mover: &impl Mover) {
        self.heap = mover.vec(std::mem::take(&mut self.heap));
    }

    pub fn heap_bytes(&self) -> usize {
        self.heap.capacity().saturating_mul(size_of::<Entry>())
    }

    fn set(&mut self, place: u32, bound: u64, records: &mut impl Records) {
        if let Some(e) = self.heap.get_mut(place as usize) {
            e.bound = bound;
            self.settle(place as usize, records);
        }
    }

    fn settle(&mut self, place: usize, records: &mut impl Records) {
        let place = self.rise(place, records);
        self.sink(place, records);
    }

    fn rise(&mut self, mut place: usize, records: &mut impl Records) -> usize {
        while place > 0 {
            let parent = place.saturating_sub(1) / 2;
            if !self.before(place, parent, records) {
                break;
            }
            self.swap(place, parent, records);
            place = parent;
        }
        place
    }

    fn sink(&mut self, mut place: usize, records: &mut impl Records) {
        loop {
            let mut least = place;
            for child in [left(place), left(place).saturating_add(1)] {
                if child < self.heap.len() && self.before(child, least, records) {
                    least = child;
                }
            }
            if least == place {
                return;
            }
            self.swap(place, least, records);
            place = least;
        }
    }

    fn before(&self, a: usize, b: usize, records: &impl Records) -> bool {
        let (Some(a), Some(b)) = (self.heap.get(a).copied(), self.heap.get(b).copied()) else {
            return false;
        };
        if a.bound != b.bound {
            return a.bound < b.bound;
        }
        let apart = records.order(a.slot).wrapping_sub(records.order(b.slot));
        (apart as i32) < 0
    }

    fn swap(&mut self, a: usize, b: usize, records: &mut impl Records) {
        self.heap.swap(a, b);
        for place in [a, b] {
            if let Some(e) = self.heap.get(place).copied() {
                records.set_place(e.slot, place as u32);
            }
        }
    }
}

fn left(place: usize) -> usize {
    place.saturating_mul(2).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Book {
        places: Vec<u32>,
    }

    impl Records for Book {
        fn order(&self, slot: u32) -> u32 {
            slot.wrapping_sub(3)
        }
        fn set_place(&mut self, slot: u32, place: u32) {
            self.places[slot as usize] = place;
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Push(u64),
        Remove(usize),
        Lower(usize, u64),
        Raise(usize, u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0u64..50).prop_map(Op::Push),
            any::<usize>().prop_map(Op::Remove),
            (any::<usize>(), 0u64..50).prop_map(|(i, b)| Op::Lower(i, b)),
            (any::<usize>(), 0u64..50).prop_map(|(i, b)| Op::Raise(i, b)),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_list(ops in proptest::collection::vec(op(), 1..200)) {
            let (mut q, mut book, mut model) = (Queue::default(), Book::default(), Vec::<(u64, u32)>::new());
            for op in ops {
                match op {
                    Op::Push(bound) => {
                        let slot = book.places.len() as u32;
                        book.places.push(0);
                        model.push((bound, slot));
                        q.push(bound, slot, &mut book);
                    }
                    _ if model.is_empty() => {}
                    Op::Remove(i) => {
                        let (_, slot) = model.remove(i % model.len());
                        q.remove(book.places[slot as usize], &mut book);
                    }
                    Op::Lower(i, bound) => {
                        let at = i % model.len();
                        model[at].0 = model[at].0.min(bound);
                        q.lower(book.places[model[at].1 as usize], bound, &mut book);
                    }
                    Op::Raise(i, more) => {
                        let at = i % model.len();
                        model[at].0 += more;
                        q.raise(book.places[model[at].1 as usize], model[at].0, &mut book);
                    }
                }
                prop_assert_eq!(q.len(), model.len());
                let least = model.iter().copied().min_by_key(|&(b, s)| (b, s.wrapping_sub(3) as i32));
                prop_assert_eq!(q.first(), least);
                let mut due = q.due(25, usize::MAX);
                due.sort_unstable();
                let mut expected: Vec<u32> = model.iter().filter(|m| m.0 <= 25).map(|m| m.1).collect();
                expected.sort_unstable();
                prop_assert_eq!(due, expected);
                for &(bound, slot) in &model {
                    prop_assert_eq!(q.bound(book.places[slot as usize]), Some(bound));
                }
            }
        }
    }
}
