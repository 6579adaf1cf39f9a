//! Which room comes due first, over all databases: the timer's index.
//!
//! 1. An entry is a hint, keyed by database and name: a bound before which nothing in that room comes due. It is
//!    looked at again when it fires; a room that is gone by then costs one lookup.
//! 2. A room that comes due earlier than its entry says must tell (`expect`).
//! 3. The timer stands for the earliest entry. Timers follow the wall clock, so the server's cron looks after a late
//!    one (`watch`).

use std::cell::{Cell, RefCell};
use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use super::api::Ctx;
use super::entry::{self, Timer};
use super::strings::Str;
use super::{clock, reaper, role};
use crate::core::index;
use crate::core::queue::{Queue, Queued};
use crate::core::slab::Slab;
use crate::core::time::Now;

struct Entry {
    db: i32,
    name: Box<[u8]>,
    place: u32,
}

#[derive(Default)]
struct Index {
    entries: Slab<Entry>,
    by_name: index::Index,
    queue: Queue,
    hasher: DefaultHashBuilder,
}

impl Queued for Entry {
    fn place(&mut self) -> &mut u32 {
        &mut self.place
    }
}

impl Index {
    fn find(&self, db: i32, name: &[u8]) -> Option<u32> {
        let same = |slot: &u32| self.entries.get(*slot).is_some_and(|e| e.db == db && *e.name == *name);
        self.by_name.find(self.hasher.hash_one((db, name)), same)
    }

    fn set(&mut self, db: i32, name: &[u8], bound: u64) {
        if let Some(slot) = self.find(db, name) {
            let place = self.entries.get(slot).map_or(0, |e| e.place);
            self.queue.raise(place, bound, &mut self.entries);
            return;
        }
        let slot = self.entries.insert(Entry { db, name: name.into(), place: 0 });
        self.queue.push(bound, slot, &mut self.entries);
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.by_name.insert(hasher.hash_one((db, name)), slot, |slot| hash_of(entries, hasher, *slot));
    }

    fn remove(&mut self, db: i32, name: &[u8]) {
        let Some(slot) = self.find(db, name) else { return };
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.by_name.remove(hasher.hash_one((db, name)), slot, |slot| hash_of(entries, hasher, *slot));
        let place = self.entries.get(slot).map_or(0, |e| e.place);
        self.queue.remove(place, &mut self.entries);
        self.entries.remove(slot);
    }

    /// All entries again, as `keep` says: their new database, or none to drop them.
    fn rebuild(&mut self, keep: impl Fn(i32) -> Option<i32>) {
        let old = std::mem::take(self);
        for (_, entry) in old.entries.iter() {
            if let (Some(db), Some(bound)) = (keep(entry.db), old.queue.bound(entry.place)) {
                self.set(db, &entry.name, bound);
            }
        }
    }
}

fn hash_of(entries: &Slab<Entry>, hasher: &DefaultHashBuilder, slot: u32) -> u64 {
    entries.get(slot).map_or(0, |e| hasher.hash_one((e.db, &*e.name)))
}

/// The timer that has been started.
#[derive(Clone, Copy)]
struct Armed {
    timer: Timer,
    /// The monotonic moment it stands for.
    at: u64,
    /// The clocks when it was started: timers follow the wall clock, so a step of that moves them.
    since: Now,
}

thread_local! {
    static INDEX: RefCell<Index> = RefCell::default();
    static ARMED: Cell<Option<Armed>> = const { Cell::new(None) };
}

/// Something in this room comes due at `bound`, earlier than the index knew.
pub fn expect(ctx: Ctx, name: Str<'_>, bound: Option<u64>) {
    if let Some(bound) = bound {
        INDEX.with_borrow_mut(|index| index.set(ctx.db(), name.bytes(), bound));
        arm(ctx);
    }
}

/// The room has been looked at: its next bound, or none.
pub fn settle(db: i32, name: &[u8], bound: Option<u64>) {
    INDEX.with_borrow_mut(|index| match bound {
        Some(bound) => index.set(db, name, bound),
        None => index.remove(db, name),
    });
}

/// Every bound may be too late: each room is looked at once, from `mono` on.
pub fn look_at_all(mono: u64) {
    INDEX.with_borrow_mut(|index| index.queue.level(mono));
}

pub fn flushed(db: Option<i32>) {
    INDEX.with_borrow_mut(|index| index.rebuild(|of| (db.is_some_and(|db| db != of)).then_some(of)));
}

pub fn swapped(a: i32, b: i32) {
    INDEX.with_borrow_mut(|index| {
        index.rebuild(|of| {
            Some(if of == a {
                b
            } else if of == b {
                a
            } else {
                of
            })
        });
    });
}

/// The room that may have something due at `mono`, if any.
pub fn due(mono: u64) -> Option<(i32, Vec<u8>)> {
    INDEX.with_borrow(|index| {
        let (_, slot) = index.queue.first().filter(|(bound, _)| *bound <= mono)?;
        let entry = index.entries.get(slot)?;
        Some((entry.db, entry.name.to_vec()))
    })
}

/// All rooms that may have something due at `mono`.
pub fn all_due(mono: u64) -> Vec<(i32, Vec<u8>)> {
    INDEX.with_borrow(|index| {
        let due = index.queue.due(mono, usize::MAX).into_iter();
        due.filter_map(|slot| index.entries.get(slot)).map(|entry| (entry.db, entry.name.to_vec())).collect()
    })
}

fn first_bound() -> Option<u64> {
    INDEX.with_borrow(|index| index.queue.first().map(|(bound, _)| bound))
}

/// Starts the timer for the earliest entry, unless one stands for it already. With a manual clock only for what is
/// due: time does not come by itself.
pub fn arm(ctx: Ctx) {
    let Some(bound) = first_bound() else { return };
    let now = clock::now();
    let waits = clock::is_manual() && bound > now.mono;
    if !waits && ARMED.get().is_none_or(|armed| armed.at > bound) {
        start(ctx, bound.max(now.mono), now);
    }
}

/// Looks again after `wait_ms`, whatever the index says.
pub fn arm_after(ctx: Ctx, wait_ms: u64) {
    let now = clock::now();
    start(ctx, now.after(wait_ms), now);
}

/// Looks again once commands have had their turn. A timer started while one fires waits a millisecond at least, and a
/// backlog would drain at half speed; one started from the event loop fires in the same round of it.
pub fn arm_soon() {
    entry::in_next_round(|ctx| arm_after(ctx, 0));
}

fn start(ctx: Ctx, at: u64, now: Now) {
    if let Some(armed) = ARMED.take() {
        armed.timer.stop(ctx);
    }
    let timer = Timer::start(ctx, at.saturating_sub(now.mono), fired);
    ARMED.set(Some(Armed { timer, at, since: now }));
}

fn fired(ctx: Ctx) {
    // The server frees a timer that fires; from here on there is none to stop.
    ARMED.set(None);
    reaper::tick(ctx);
}

/// Called by the server's cron, which follows the monotonic clock: starts the timer anew if a step of the wall clock
/// has moved it, and again after replica traffic was to be avoided when it fired.
pub fn watch(ctx: Ctx) {
    if !role::may_decide(ctx) {
        return;
    }
    let now = clock::now();
    match ARMED.get() {
        Some(armed) if now.to_unix(armed.at) != armed.since.to_unix(armed.at) => start(ctx, armed.at, now),
        Some(_) => {}
        None => arm(ctx),
    }
}
