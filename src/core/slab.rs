//! Records in numbered slots.
//!
//! A slot keeps its number while its record lives, so a roster page can be continued from a number. Slots come in
//! pages of about 4 KiB, a size allocators keep: a large room grows without ever being copied, an emptied page is
//! given back even where a neighbour lives on, and only the first page of a small room grows step by step. Freed
//! slots are reused from the lowest page, so that the end empties.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::room::Mover;

const PAGE_BYTES: usize = 4096;

#[derive(Clone, Debug)]
struct Page<T> {
    slots: Vec<Option<T>>,
    len: u32,
}

#[derive(Clone, Debug)]
pub struct Slab<T> {
    pages: Vec<Page<T>>,
    /// Pages that were full once and have room; those that are full again or gone are skipped.
    roomy: BinaryHeap<Reverse<u32>>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), roomy: BinaryHeap::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    /// Slots of a page.
    const PAGE: u32 = {
        let fit = PAGE_BYTES / size_of::<Option<T>>();
        if fit == 0 {
            1
        } else {
            fit as u32
        }
    };

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One more than the highest slot in use.
    pub fn end(&self) -> u32 {
        let Some(last) = self.pages.last() else { return 0 };
        let before = (self.pages.len() as u32).saturating_sub(1).saturating_mul(Self::PAGE);
        before.saturating_add(last.slots.len() as u32)
    }

    pub fn get(&self, slot: u32) -> Option<&T> {
        let (page, place) = Self::at(slot);
        self.pages.get(page)?.slots.get(place)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        let (page, place) = Self::at(slot);
        self.pages.get_mut(page)?.slots.get_mut(place)?.as_mut()
    }

    pub fn insert(&mut self, record: T) -> u32 {
        self.len = self.len.saturating_add(1);
        let index = self.page_with_room();
        if index == self.pages.len() {
            grow(&mut self.pages);
            self.pages.push(Page { slots: Vec::new(), len: 0 });
        }
        let Some(page) = self.pages.get_mut(index) else { return u32::MAX };
        page.len = page.len.saturating_add(1);
        let place = match page.slots.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                grow_within(&mut page.slots, Self::PAGE as usize);
                page.slots.push(None);
                page.slots.len().saturating_sub(1)
            }
        };
        if let Some(free) = page.slots.get_mut(place) {
            *free = Some(record);
        }
        // Else a page that is filled and emptied by one, over and over, would stand there once for each time.
        if page.len == Self::PAGE && self.roomy.peek() == Some(&Reverse(index as u32)) {
            self.roomy.pop();
        }
        (index as u32).saturating_mul(Self::PAGE).saturating_add(place as u32)
    }

    pub fn remove(&mut self, slot: u32) -> Option<T> {
        let (index, place) = Self::at(slot);
        let page = self.pages.get_mut(index)?;
        let record = page.slots.get_mut(place)?.take()?;
        self.len = self.len.saturating_sub(1);
        if page.len == Self::PAGE {
            self.roomy.push(Reverse(index as u32));
        }
        page.len = page.len.saturating_sub(1);
        if page.len == 0 {
            page.slots = Vec::new();
        }
        self.drop_empty_end();
        Some(record)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.from(0)
    }

    /// Records in slots `first` and above.
    pub fn from(&self, first: u32) -> impl Iterator<Item = (u32, &T)> {
        let (page, place) = Self::at(first);
        let pages = self.pages.iter().enumerate().skip(page);
        pages.flat_map(move |(index, of_page)| {
            let base = (index as u32).saturating_mul(Self::PAGE);
            let skipped = if index == page { place } else { 0 };
            let records = of_page.slots.iter().enumerate().skip(skipped);
            records.filter_map(move |(place, record)| Some((base.saturating_add(place as u32), record.as_ref()?)))
        })
    }

    pub fn move_buffers(&mut self, mover: &impl Mover) {
        for page in &mut self.pages {
            page.slots = mover.vec(std::mem::take(&mut page.slots));
        }
        self.pages = mover.vec(std::mem::take(&mut self.pages));
    }

    /// Bytes allocated, the records' own allocations aside.
    pub fn heap_bytes(&self) -> usize {
        let slots = self.pages.iter().map(|page| page.slots.capacity().saturating_mul(size_of::<Option<T>>()));
        let pages = self.pages.capacity().saturating_mul(size_of::<Page<T>>());
        let roomy = self.roomy.capacity().saturating_mul(size_of::<u32>());
        slots.fold(pages.saturating_add(roomy), usize::saturating_add)
    }

    fn at(slot: u32) -> (usize, usize) {
        #[allow(clippy::arithmetic_side_effects)] // PAGE is a constant above 0.
        let (page, place) = (slot / Self::PAGE, slot % Self::PAGE);
        (page as usize, place as usize)
    }

    /// The lowest page known to have room, else the last, else the next. Only the last page has never been full.
    fn page_with_room(&mut self) -> usize {
        let has_room = |pages: &[Page<T>], index: usize| pages.get(index).is_some_and(|p| p.len < Self::PAGE);
        while let Some(Reverse(index)) = self.roomy.peek().copied() {
            if has_room(&self.pages, index as usize) {
                return index as usize;
            }
            self.roomy.pop();
        }
        let last = self.pages.len().saturating_sub(1);
        if has_room(&self.pages, last) {
            last
        } else {
            self.pages.len()
        }
    }

    fn drop_empty_end(&mut self) {
        while let Some(page) = self.pages.last_mut() {
            while let Some(None) = page.slots.last() {
                page.slots.pop();
            }
            if page.len > 0 {
                tighten(&mut page.slots);
                break;
            }
            self.pages.pop();
        }
        if self.pages.is_empty() {
            self.roomy = BinaryHeap::new();
        }
        tighten(&mut self.pages);
    }
}

/// Makes room for one more, by about a quarter: doubling would leave a third of all memory unused.
pub fn grow<T>(v: &mut Vec<T>) {
    grow_within(v, usize::MAX);
}

fn grow_within<T>(v: &mut Vec<T>, most: usize) {
    if v.len() == v.capacity() {
        let wanted = v.len().saturating_add(1).max(4).saturating_mul(size_of::<T>());
        let fit = block_of(wanted).checked_div(size_of::<T>()).unwrap_or(most);
        v.reserve_exact(fit.min(most).saturating_sub(v.len()));
    }
}

/// What an allocator with four sizes a doubling, as jemalloc and most others, really sets aside for so many bytes.
fn block_of(bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / 8).max(16);
    bytes.next_multiple_of(step)
}

/// Gives memory back once three quarters are unused.
pub fn tighten<T>(v: &mut Vec<T>) {
    if v.capacity() > 8 && v.len() <= v.capacity() / 4 {
        v.shrink_to(v.len().saturating_mul(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn one_survivor_keeps_one_page() {
        let mut s = Slab::default();
        let slots: Vec<u32> = (0..10_000u64).map(|i| s.insert([i; 9])).collect();
        assert_eq!(slots, (0..10_000).collect::<Vec<_>>());
        let peak = s.heap_bytes();
        for slot in 0..9_999 {
            s.remove(slot);
        }
        assert_eq!(s.iter().map(|(slot, v)| (slot, v[0])).collect::<Vec<_>>(), [(9_999, 9_999)]);
        assert!(s.heap_bytes() < peak / 40, "{} of {peak}", s.heap_bytes());
        assert_eq!(s.insert([1; 9]), 0);
        s.remove(9_999);
        assert_eq!(s.end(), 1);
        s.remove(0);
        assert_eq!((s.end(), s.len()), (0, 0));
    }

    #[test]
    fn a_full_page_that_is_used_over_and_over_takes_no_more() {
        let mut s = Slab::default();
        (0..10 * Slab::<[u64; 9]>::PAGE).for_each(|slot| assert_eq!(s.insert([0u64; 9]), slot));
        let full = s.heap_bytes();
        for slot in (0..10 * Slab::<[u64; 9]>::PAGE).cycle().step_by(37).take(100_000) {
            s.remove(slot);
            assert_eq!(s.insert([0; 9]), slot);
        }
        assert!(s.heap_bytes() <= full + 100, "{} after {full}", s.heap_bytes());
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(ops in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..600)) {
            let (mut s, mut model) = (Slab::<[u64; 100]>::default(), BTreeMap::new());
            for (n, (add, which)) in ops.into_iter().enumerate() {
                if add || model.is_empty() {
                    let slot = s.insert([n as u64; 100]);
                    prop_assert!(model.insert(slot, n as u64).is_none());
                } else {
                    let slot = *model.keys().nth(which.index(model.len())).unwrap();
                    prop_assert_eq!(s.remove(slot).map(|v| v[0]), model.remove(&slot));
                    prop_assert!(s.remove(slot).is_none() && s.get(slot).is_none());
                }
                prop_assert_eq!(s.len(), model.len());
                prop_assert_eq!(s.end(), model.keys().last().map_or(0, |slot| slot + 1));
                let middle = s.end() / 2;
                let seen: Vec<_> = s.from(middle).map(|(slot, v)| (slot, v[0])).collect();
                let expected: Vec<_> = model.range(middle..).map(|(slot, n)| (*slot, *n)).collect();
                prop_assert_eq!(seen, expected);
            }
        }
    }
}
