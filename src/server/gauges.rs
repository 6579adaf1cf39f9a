//! What a full scan of the rooms would count, kept by database.
//!
//! 1. A room counts from its first write, load, restore or move in, until it is unlinked or its database is flushed;
//!    what it counts for is told here whenever that changes.
//! 2. Time changes what reads show without telling anyone. So whoever asks looks at the rooms that have something due,
//!    and at no others: the work grows with the reaper's backlog.

use std::cell::RefCell;

use super::api::Ctx;
use super::keys::Key;
use super::strings::OwnedStr;
use super::{deadlines, reaper, rooms};
use crate::core::room::{Env, Gauges};

/// Of one database, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub rooms: u64,
    pub leases: u64,
    pub users: u64,
    pub tombstones: u64,
    pub dedupe_records: u64,
    pub orphans: u64,
}

thread_local! {
    static TOTALS: RefCell<Vec<Totals>> = const { RefCell::new(Vec::new()) };
}

/// A room of database `db` counted for `before` (nothing, if it was not counted) and counts for `now`.
pub fn changed(db: i32, before: Option<Gauges>, now: Gauges) {
    with(db, |t| {
        let was = before.unwrap_or_default();
        t.rooms += u64::from(before.is_none());
        for (total, was, is) in [
            (&mut t.leases, was.leases, now.leases),
            (&mut t.users, was.users, now.users),
            (&mut t.tombstones, was.tombstones, now.tombstones),
            (&mut t.dedupe_records, was.dedupe_records, now.dedupe_records),
            (&mut t.orphans, was.orphans, now.orphans),
        ] {
            *total = (*total + is).saturating_sub(was);
        }
    });
}

/// A room that counted is gone from database `db`.
pub fn removed(db: i32, was: Gauges) {
    with(db, |t| {
        t.rooms = t.rooms.saturating_sub(1);
        t.leases = t.leases.saturating_sub(was.leases);
        t.users = t.users.saturating_sub(was.users);
        t.tombstones = t.tombstones.saturating_sub(was.tombstones);
        t.dedupe_records = t.dedupe_records.saturating_sub(was.dedupe_records);
        t.orphans = t.orphans.saturating_sub(was.orphans);
    });
}

/// Database `db` was flushed; all of them if there is none.
pub fn flushed(db: Option<i32>) {
    match db {
        Some(db) => with(db, |t| *t = Totals::default()),
        None => TOTALS.with_borrow_mut(|all| all.fill(Totals::default())),
    }
}

pub fn swapped(a: i32, b: i32) {
    with(a, |_| ());
    with(b, |_| ());
    TOTALS.with_borrow_mut(|all| all.swap(a as usize, b as usize));
}

/// What a scan of all databases by reads would count now, and how many leases past their deadline nothing has removed.
pub fn scan(env: &Env) -> (Totals, u64) {
    let ctx = Ctx::detached();
    let mut lapsed = Gauges::default();
    // The index holds back a room that could not be reaped.
    for (db, name) in deadlines::all_due(env.now.after(reaper::RETRY_MS)) {
        if ctx.select_db(db) {
            let of_room = lapsed_of(ctx, db, &name, env);
            lapsed.leases += of_room.leases;
            lapsed.users += of_room.users;
            lapsed.tombstones += of_room.tombstones;
            lapsed.dedupe_records += of_room.dedupe_records;
        }
    }
    let kept = total();
    let shown = Totals {
        rooms: kept.rooms,
        leases: kept.leases.saturating_sub(lapsed.leases),
        users: kept.users.saturating_sub(lapsed.users),
        tombstones: kept.tombstones.saturating_sub(lapsed.tombstones),
        dedupe_records: kept.dedupe_records.saturating_sub(lapsed.dedupe_records),
        orphans: kept.orphans,
    };
    (shown, lapsed.leases)
}

/// What nothing has removed yet in one room. An index entry that proves too early is put right, so that it is not
/// looked at again and again: on a replica no reaper does that.
fn lapsed_of(ctx: Ctx, db: i32, name: &[u8], env: &Env) -> Gauges {
    let owned = OwnedStr::new(name);
    let mut key = Key::write(ctx, owned.lend());
    let Ok(Some(value)) = rooms::find(ctx, &mut key, owned.lend(), env) else { return Gauges::default() };
    let lapsed = value.room.lapsed(env.now.mono);
    let bound = value.next_due(env);
    if bound > env.now.mono {
        value.indexed = bound;
        deadlines::settle(db, name, Some(bound));
    }
    lapsed
}

pub fn any_room() -> bool {
    total().rooms > 0
}

fn total() -> Totals {
    TOTALS.with_borrow(|all| {
        all.iter().fold(Totals::default(), |sum, t| Totals {
            rooms: sum.rooms + t.rooms,
            leases: sum.leases + t.leases,
            users: sum.users + t.users,
            tombstones: sum.tombstones + t.tombstones,
            dedupe_records: sum.dedupe_records + t.dedupe_records,
            orphans: sum.orphans + t.orphans,
        })
    })
}

fn with(db: i32, change: impl FnOnce(&mut Totals)) {
    let Ok(db) = usize::try_from(db) else { return };
    TOTALS.with_borrow_mut(|all| {
        if all.len() <= db {
            all.resize(db + 1, Totals::default());
        }
        change(&mut all[db]);
    });
}
