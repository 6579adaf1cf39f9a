//! What a full scan of the rooms would count, kept by database.
//!
//! A room counts from its first write, load, restore or move in, until it is unlinked or its database is flushed;
//! what it counts for is told here whenever that changes.

use std::cell::RefCell;

use crate::core::room::Gauges;

/// Of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub rooms: u64,
    pub leases: u64,
    pub users: u64,
    pub tombstones: u64,
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

/// Of all databases.
pub fn total() -> Totals {
    TOTALS.with_borrow(|all| {
        all.iter().fold(Totals::default(), |sum, t| Totals {
            rooms: sum.rooms + t.rooms,
            leases: sum.leases + t.leases,
            users: sum.users + t.users,
            tombstones: sum.tombstones + t.tombstones,
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
