//! The module's clock: the real one, or one that tests and rehearsals move by hand.
//!
//! 1. Deadlines live on the monotonic clock, which also counts while the machine sleeps where the system has such a
//!    clock.
//! 2. Unix time is that clock plus an offset. The wall clock's steps are taken over when they reach 50 ms, so that
//!    its small corrections do not make an unmoved `expires_at` wobble.
//! 3. The manual clock is both at once, and never goes back.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::core::refusal::Refusal;
use crate::core::time::Now;

/// Rule 2.
const STEP_MS: u64 = 50;

/// How far the cheap reading of the wall clock may lag: a tick of the kernel, at most.
const COARSE_MS: u64 = 10;

/// Added to the monotonic clock, so that subtracting a span from a moment never goes below 0.
const ORIGIN_MS: u64 = 1 << 42;

/// The last moment that RFC 3339 can show: 9999-12-31T23:59:59.999Z.
pub const LAST_MS: u64 = 253_402_300_799_999;

static MANUAL: AtomicBool = AtomicBool::new(false);
static MANUAL_MS: AtomicU64 = AtomicU64::new(0);
static OFFSET_MS: AtomicI64 = AtomicI64::new(i64::MIN);

/// One reading of both clocks.
pub fn now() -> Now {
    if is_manual() {
        let ms = MANUAL_MS.load(Ordering::Relaxed);
        return Now { mono: ms, unix: ms };
    }
    let mono = ORIGIN_MS + monotonic_ms();
    let taken = mono.saturating_add_signed(OFFSET_MS.load(Ordering::Relaxed));
    // Most readings need to know no more of the wall clock than that it has not stepped.
    if wall_coarse_ms().is_some_and(|coarse| coarse.abs_diff(taken) < STEP_MS - COARSE_MS) {
        return Now { mono, unix: taken };
    }
    Now { mono, unix: unix_at(mono, read_ms(libc::CLOCK_REALTIME).unwrap_or(0)) }
}

/// Rule 2: the unix time of the monotonic moment `mono` when the wall clock shows `wall`.
fn unix_at(mono: u64, wall: u64) -> u64 {
    let offset = wall as i64 - mono as i64;
    let taken = OFFSET_MS.load(Ordering::Relaxed);
    if offset.abs_diff(taken) >= STEP_MS {
        OFFSET_MS.store(offset, Ordering::Relaxed);
        return wall;
    }
    mono.saturating_add_signed(taken)
}

#[cfg(target_os = "linux")]
fn wall_coarse_ms() -> Option<u64> {
    read_ms(libc::CLOCK_REALTIME_COARSE)
}

#[cfg(not(target_os = "linux"))]
fn wall_coarse_ms() -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
fn monotonic_ms() -> u64 {
    read_ms(libc::CLOCK_BOOTTIME).or_else(|| read_ms(libc::CLOCK_MONOTONIC)).unwrap_or(0)
}

#[cfg(not(target_os = "linux"))]
fn monotonic_ms() -> u64 {
    read_ms(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

fn read_ms(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` takes the result.
    let read = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if read != 0 {
        return None;
    }
    u64::try_from(time.tv_sec).ok()?.checked_mul(1000)?.checked_add(time.tv_nsec as u64 / 1_000_000)
}

pub fn is_manual() -> bool {
    MANUAL.load(Ordering::Relaxed)
}

/// Replaces the real clock by one that stands at `start_ms`; once, at load.
pub fn make_manual(start_ms: u64) {
    MANUAL_MS.store(start_ms, Ordering::Relaxed);
    MANUAL.store(true, Ordering::Relaxed);
}

/// Moves the manual clock to `unix_ms`.
pub fn set(unix_ms: u64) -> Result<Now, Refusal> {
    if !is_manual() {
        return Err(Refusal::Bad("the clock is not manual: load the module with `clock manual`"));
    }
    if unix_ms < MANUAL_MS.load(Ordering::Relaxed) {
        return Err(Refusal::Bad("the clock never goes back"));
    }
    if unix_ms > LAST_MS {
        return Err(Refusal::Bad("the clock ends with the year 9999"));
    }
    MANUAL_MS.store(unix_ms, Ordering::Relaxed);
    Ok(now())
}

/// Moves the manual clock by `ms`.
pub fn advance(ms: u64) -> Result<Now, Refusal> {
    set(MANUAL_MS.load(Ordering::Relaxed).saturating_add(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test: the clock is one for the whole process.
    #[test]
    fn small_steps_are_ignored_and_large_ones_taken_over() {
        let mono = ORIGIN_MS;
        assert_eq!(unix_at(mono, 1_000_000), 1_000_000);
        assert_eq!(unix_at(mono + 10, 1_000_059), 1_000_010);
        assert_eq!(unix_at(mono + 10, 1_000_060), 1_000_060);
        assert_eq!(unix_at(mono + 20, 1_000_021), 1_000_070);
        assert_eq!(unix_at(mono + 20, 1_000_020), 1_000_020);

        let (first, second) = (now(), now());
        assert!(second.mono >= first.mono && first.unix > 1_600_000_000_000);

        assert!(matches!(advance(1), Err(Refusal::Bad(_))));
        make_manual(5);
        assert_eq!(now(), Now { mono: 5, unix: 5 });
        assert_eq!(set(9), Ok(Now { mono: 9, unix: 9 }));
        assert!(set(8).is_err());
        assert_eq!(advance(0), Ok(now()));
        assert!(advance(LAST_MS - 8).is_err());
        assert!(set(LAST_MS).is_ok());
        assert!(advance(u64::MAX).is_err());
    }
}
