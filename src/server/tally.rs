//! Counters and distributions of the main thread.
//!
//! Nobody else changes them, so loading and storing is enough: no locked instruction, no borrow, no allocation, and
//! 3 ns of a heartbeat. (A histogram on the heap behind a thread-local cell took 40, most of it for memory that had
//! left the cache.)

use std::sync::atomic::{AtomicU64, Ordering};

pub struct Counter(AtomicU64);

impl Counter {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn add(&self, n: u64) {
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Each octave has 2^6 buckets: a value is told at most 1/64 too high, one below 128 exactly.
const FINE: u32 = 6;
const BUCKETS: usize = ((u64::BITS - FINE + 1) << FINE) as usize;

/// How often which values came, over all of `u64`.
pub struct Distribution {
    buckets: [Counter; BUCKETS],
    max: AtomicU64,
}

impl Distribution {
    pub const fn new() -> Self {
        Self { buckets: [const { Counter::new() }; BUCKETS], max: AtomicU64::new(0) }
    }

    pub fn record(&self, value: u64) {
        self.buckets[bucket_of(value)].add(1);
        if value > self.max() {
            self.max.store(value, Ordering::Relaxed);
        }
    }

    /// The value that so many per cent of all do not exceed; 0 while there is none.
    pub fn percentile(&self, percent: u64) -> u64 {
        let total: u64 = self.buckets.iter().map(Counter::get).sum();
        let rank = (total * percent).div_ceil(100);
        let mut seen = 0;
        let reaches_rank = |bucket: &Counter| {
            seen += bucket.get();
            seen >= rank
        };
        self.buckets.iter().position(reaches_rank).map_or(0, highest_in).min(self.max())
    }

    /// Exact.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }
}

fn bucket_of(value: u64) -> usize {
    let octave = (u64::BITS - FINE - 1).saturating_sub(value.leading_zeros());
    ((octave as usize) << FINE) + (value >> octave) as usize
}

fn highest_in(bucket: usize) -> u64 {
    let octave = (bucket >> FINE).saturating_sub(1);
    let lowest = ((bucket - (octave << FINE)) as u64) << octave;
    lowest + ((1 << octave) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_close_and_the_maximum_exact() {
        static DISTRIBUTION: Distribution = Distribution::new();
        assert_eq!((DISTRIBUTION.percentile(99), DISTRIBUTION.max()), (0, 0));
        (1..=100).for_each(|value| DISTRIBUTION.record(value));
        assert_eq!([1, 50, 99, 100].map(|percent| DISTRIBUTION.percentile(percent)), [1, 50, 99, 100]);
        (101..=10_000).for_each(|value| DISTRIBUTION.record(value));
        assert!((5_000..=5_000 + 5_000 / 64).contains(&DISTRIBUTION.percentile(50)));
        assert!((9_900..=10_000).contains(&DISTRIBUTION.percentile(99)));
        DISTRIBUTION.record(u64::MAX);
        assert_eq!(DISTRIBUTION.max(), u64::MAX);
    }

    #[test]
    fn buckets_lie_side_by_side() {
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
        for bucket in 0..BUCKETS - 1 {
            assert_eq!(bucket_of(highest_in(bucket)), bucket);
            assert_eq!(bucket_of(highest_in(bucket) + 1), bucket + 1);
        }
    }

    proptest! {
        #[test]
        fn a_value_is_told_at_most_a_64th_too_high(value: u64) {
            let told = highest_in(bucket_of(value));
            prop_assert!(told >= value && told - value <= value / 64);
        }
    }
}
