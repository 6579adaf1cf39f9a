//! Two clocks, one reading.
//!
//! Deadlines and windows live on the monotonic clock, so a step of the wall clock moves none of them; unix ms are
//! what people and other machines are shown. A [`Now`] is one reading of both, taken once per command or timer tick.

/// The largest value of any integer in the contract.
pub const MAX: u64 = i64::MAX as u64;

/// Milliseconds on both clocks at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic; its zero lies far enough back that no stored moment is below it.
    pub mono: u64,
    /// Unix time.
    pub unix: u64,
}

impl Now {
    /// The unix time at which the monotonic clock shows `mono`.
    pub fn to_unix(self, mono: u64) -> u64 {
        shift(mono, self.mono, self.unix)
    }

    /// The monotonic time of the unix moment `unix`.
    pub fn to_mono(self, unix: u64) -> u64 {
        shift(unix, self.unix, self.mono)
    }

    /// The monotonic moment `span_ms` from now.
    pub fn after(self, span_ms: u64) -> u64 {
        self.mono.saturating_add(span_ms).min(MAX)
    }
}

/// `moment`, read on a clock that shows `from`, as told by one that shows `to` at the same instant.
fn shift(moment: u64, from: u64, to: u64) -> u64 {
    let there = if moment >= from {
        to.saturating_add(moment.saturating_sub(from))
    } else {
        to.saturating_sub(from.saturating_sub(moment))
    };
    there.min(MAX)
}

/// A moment or length in 48 bits: half of what fills a lease is time, and this reaches past the year 10000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ms48([u8; 6]);

impl Ms48 {
    pub const MAX: u64 = (1 << 48) - 1;

    /// Values above [`Ms48::MAX`] are stored as it.
    pub fn new(ms: u64) -> Self {
        let [a, b, c, d, e, f, _, _] = ms.min(Self::MAX).to_le_bytes();
        Self([a, b, c, d, e, f])
    }

    pub fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_inverse_and_never_wrap() {
        let now = Now { mono: 5_000, unix: 1_000_000 };
        assert_eq!(now.to_unix(6_000), 1_001_000);
        assert_eq!(now.to_unix(4_000), 999_000);
        assert_eq!(now.to_mono(now.to_unix(7)), 7);
        assert_eq!(now.to_unix(MAX), MAX);
        assert_eq!(now.to_mono(0), 0);
        assert_eq!(now.after(u64::MAX), MAX);
    }

    #[test]
    fn ms48_keeps_what_fits() {
        for ms in [0, 1, 1_894_006_800_000, Ms48::MAX] {
            assert_eq!(Ms48::new(ms).get(), ms);
        }
        assert_eq!(Ms48::new(u64::MAX).get(), Ms48::MAX);
    }
}
