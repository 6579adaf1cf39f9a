//! What happens to room keys from outside: deleted, expired, overwritten, renamed, moved, copied, restored, loaded,
//! flushed, swapped.
//!
//! 1. A room leaves the index and the gauges when its value is unlinked, and enters them when a notification says
//!    that it has arrived: RENAME and MOVE unlink a value that lives on.
//! 2. A room that is really gone is told with one `closed`, written once the command that took it is over: the
//!    keyspace must not be touched from within an unlink. FLUSH unlinks nothing and closes nothing.
//! 3. What arrives begins a new history (see `rooms`); RESTORE over a room keeps the higher epoch of both. A room that
//!    comes with its slot goes on with the history it has, unless no write has carried that.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void, CStr};

use redis_module::raw::{self, RedisModuleCtx};

use super::api::{api, has_api, Ctx, OK};
use super::entry::{self, guard, Timer};
use super::keys::{Key, Kind};
use super::rooms::{self, Arrival, RoomValue, FOREIGN_ID, ROOM};
use super::strings::{OwnedStr, Str};
use super::{deadlines, gauges, log, message_log, metrics, role, settings, slots, streams, unit};
use crate::core::effect::Gen;
use crate::core::event::{Body, Event};
use crate::core::plan::Plan;
use crate::core::room::Env;

/// Notifications that may bring a room or take one away.
const CLASSES: c_int = (raw::REDISMODULE_NOTIFY_GENERIC
    | raw::REDISMODULE_NOTIFY_EXPIRED
    | raw::REDISMODULE_NOTIFY_EVICTED
    | raw::REDISMODULE_NOTIFY_LOADED) as c_int;

/// A room that went, until it is told.
struct Closure {
    db: i32,
    name: Vec<u8>,
    gen: Gen,
    event_n: u64,
    /// If not, it had yet to go on from what the stream of its name holds.
    had_begun: bool,
    active: u64,
    events_maxlen: u64,
    log_seq: u64,
}

/// The last room unlinked: a value restored in its place keeps its epochs.
struct Unlinked {
    db: i32,
    name: Vec<u8>,
    /// As all nodes know it, and as only this one may.
    written_epoch: u64,
    highest_epoch: u64,
}

thread_local! {
    static CLOSURES: RefCell<Vec<Closure>> = const { RefCell::new(Vec::new()) };
    static LAST_UNLINKED: RefCell<Option<Unlinked>> = const { RefCell::new(None) };
    /// A room has expired: its closure must wait for a timer.
    static EXPIRED: Cell<bool> = const { Cell::new(false) };
    /// Rooms whose log has expired, until they are told.
    static LOGS_EXPIRED: RefCell<Vec<(i32, Vec<u8>)>> = const { RefCell::new(Vec::new()) };
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static LISTENING: Cell<bool> = const { Cell::new(false) };
    /// The database that the running MOVE or COPY was called in.
    static CALLED_IN: Cell<Option<i32>> = const { Cell::new(None) };
    /// Rooms that `rdb_load` made and no notification has placed yet.
    static ARRIVING: Cell<u64> = const { Cell::new(0) };
}

/// A room is about to be: from now on notifications matter. Until then the module costs other keys nothing.
pub fn listen() {
    if !LISTENING.replace(true) && !entry::on_keyspace(Ctx::detached(), CLASSES, notified) {
        log::warning("the server refused keyspace notifications: rooms that move will be lost sight of; restart it");
    }
}

/// Runs `work`, which removes a room for the module's own reasons: no `closed` for it.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    QUIET.set(true);
    let result = work();
    QUIET.set(false);
    result
}

/// `rdb_load` has made a room; a notification will say where it is.
pub fn arriving() {
    ARRIVING.set(ARRIVING.get() + 1);
}

/// A MOVE or COPY was called in database `db`; its notification comes from the other.
pub fn called_in(db: i32) {
    CALLED_IN.set(Some(db));
}

/// The value of this key leaves the keyspace, or moves in it.
pub fn unlinked(db: i32, name: &[u8], value: &mut RoomValue) {
    if value.counted {
        gauges::removed(db, value.room.gauges());
        value.counted = false;
    }
    value.indexed = u64::MAX;
    deadlines::settle(db, name, None);
    LAST_UNLINKED.set(Some(Unlinked {
        db,
        name: name.to_vec(),
        written_epoch: value.room.written_epoch(),
        highest_epoch: value.room.highest_epoch(),
    }));
    let ctx = Ctx::detached();
    if QUIET.get() || !role::may_decide(ctx) {
        return;
    }
    let closure = Closure {
        db,
        name: name.to_vec(),
        gen: rooms::last_gen(value),
        event_n: value.room.event_n(),
        had_begun: rooms::has_begun(value),
        active: value.room.gauges().leases,
        events_maxlen: value.room.events_maxlen(settings::settings()),
        log_seq: value.room.log_seq(),
    };
    if CLOSURES.with_borrow_mut(|all| {
        all.push(closure);
        all.len() == 1
    }) {
        schedule(ctx);
    }
}

/// Closures are told at the end of the command, or a moment later on servers without such a hook (7.0).
fn schedule(ctx: Ctx) {
    if has_api!(RedisModule_AddPostNotificationJob) {
        // SAFETY: the context is live; the job takes no data.
        let added = unsafe {
            api!(RedisModule_AddPostNotificationJob)(ctx.as_ptr(), Some(closing_job), std::ptr::null_mut(), None) == OK
        };
        if added {
            return;
        }
    }
    Timer::start(ctx, 0, close_pending);
}

unsafe extern "C" fn closing_job(ctx: *mut RedisModuleCtx, _data: *mut c_void) {
    // SAFETY: the server calls with a live context.
    let ctx = unsafe { Ctx::new(ctx) };
    guard(|| {
        if EXPIRED.take() {
            Timer::start(ctx, 0, close_pending); // for the reason that `expired` tells
        } else {
            close_pending(ctx);
        }
    });
}

fn close_pending(ctx: Ctx) {
    if !role::may_write_unasked(ctx) {
        if role::may_decide(ctx) && CLOSURES.with_borrow(|all| !all.is_empty()) {
            Timer::start(ctx, 1, close_pending);
        } else {
            CLOSURES.take();
        }
        return;
    }
    let db = ctx.db();
    for closure in CLOSURES.take() {
        if ctx.select_db(closure.db) {
            close(ctx, closure);
        }
    }
    ctx.select_db(db);
}

/// A new room is about to take this name: an earlier one is told first, while the event counter is still its own.
pub fn close_before(ctx: Ctx, name: &[u8]) {
    let db = ctx.db();
    let at = CLOSURES.with_borrow(|all| all.iter().position(|c| c.db == db && c.name == name));
    if let Some(at) = at {
        let closure = CLOSURES.with_borrow_mut(|all| all.remove(at));
        close(ctx, closure);
    }
}

/// Writes `closed`, with the old room's next number. A room of that name that has begun meanwhile has the counter, and
/// so does one that arrived if the stream is ahead already. In a slot that leaves a room that goes lives on elsewhere.
fn close(ctx: Ctx, closure: Closure) {
    let env = rooms::env();
    let owned = OwnedStr::new(&closure.name);
    let name = owned.lend();
    if slots::check(ctx, name, &[]).is_err() {
        return;
    }
    let begun = matches!(Key::read(ctx, name).kind(&ROOM), Kind::Value(v) if rooms::has_begun(v));
    if !begun && close_by_itself(ctx, &closure, name, &env) {
        return;
    }
    let successor = {
        let mut key = Key::write(ctx, name);
        match rooms::find(ctx, &mut key, name, &env) {
            Ok(Some(value)) => Some(Plan::closing(&value.room, closure.gen, closure.active, &env)),
            _ => None,
        }
    };
    match successor {
        Some(plan) => drop(unit::commit(ctx, name, plan, None, &env)),
        // No room is left to count it.
        None => {
            metrics::events_lost(1);
            ctx.notify(c"lease.closed", name);
        }
    }
}

/// Whether the stream took it.
fn close_by_itself(ctx: Ctx, closure: &Closure, name: Str<'_>, env: &Env) -> bool {
    let held = if closure.had_begun { None } else { streams::last_event(ctx, name).ok().flatten() };
    let last = held.filter(|n| *n <= FOREIGN_ID).unwrap_or(0).max(closure.event_n);
    let event = Event {
        n: last.saturating_add(1),
        gen: closure.gen,
        log_seq: closure.log_seq.max(message_log::met(ctx, &closure.name).map_or(0, |met| met.seq)),
        at: Some(env.now.unix),
        subject: None,
        body: Body::Closed { active: closure.active },
    };
    let written = streams::add(ctx, &closure.name, &event, closure.events_maxlen, env.settings).is_ok();
    if written {
        ctx.notify(c"lease.closed", name);
    }
    written
}

/// A keyspace notification. Other classes than [`CLASSES`] do not come here.
fn notified(ctx: Ctx, _class: c_int, event: &CStr, key: Str<'_>) {
    match event.to_bytes() {
        // This key lives on the server's stack: opening it would take a reference and crash.
        b"loaded" if ARRIVING.get() > 0 => arrived(ctx, OwnedStr::new(key.bytes()).lend()),
        b"rename_from" => {
            forget_closure(ctx.db(), key.bytes());
            log_went(ctx, key.bytes());
        }
        b"move_from" => {
            called_in(ctx.db());
            forget_closure(ctx.db(), key.bytes());
        }
        b"rename_to" => moved(ctx, key),
        b"move_to" | b"copy_to" => {
            moved(ctx, key);
            // Valkey 8.1 lends a handler its caller's own client, and leaves it in the event's database.
            CALLED_IN.take().map(|db| ctx.select_db(db));
        }
        b"restore" => restored(ctx, key),
        b"expired" => expired(ctx, key.bytes()),
        b"del" | b"evicted" => {
            LAST_UNLINKED.take();
            log_went(ctx, key.bytes());
        }
        _ => {}
    }
}

/// Nothing is opened here: the server may be walking its table of expiring keys, and a key that is opened may be the
/// next of them, deleted under its hands.
fn expired(ctx: Ctx, key: &[u8]) {
    LAST_UNLINKED.take();
    EXPIRED.set(CLOSURES.with_borrow(|all| !all.is_empty()));
    if message_log::room_of(key).is_some() {
        let first = LOGS_EXPIRED.with_borrow_mut(|all| {
            all.push((ctx.db(), key.to_vec()));
            all.len() == 1
        });
        if first {
            Timer::start(ctx, 0, logs_expired);
        }
    }
}

fn logs_expired(ctx: Ctx) {
    let db = ctx.db();
    for (of, log) in LOGS_EXPIRED.take() {
        if ctx.select_db(of) {
            log_went(ctx, &log);
        }
    }
    ctx.select_db(db);
}

fn forget_closure(db: i32, name: &[u8]) {
    CLOSURES.with_borrow_mut(|all| {
        // The source was unlinked last; an earlier room of its name may have been closed in the same command.
        if let Some(at) = all.iter().rposition(|c| c.db == db && c.name == name) {
            all.remove(at);
        }
    });
}

/// If this was a room's log, the room is to learn that its messages are gone.
fn log_went(ctx: Ctx, key: &[u8]) {
    let Some(room) = message_log::room_of(key).filter(|_| role::may_decide(ctx)) else { return };
    let name = OwnedStr::new(room);
    if let Kind::Value(value) = Key::write(ctx, name.lend()).kind(&ROOM) {
        value.room.doubt_log();
        deadlines::expect(ctx, name.lend(), unit::new_bound(value, &rooms::env()));
    }
}

fn restored(ctx: Ctx, name: Str<'_>) {
    let before = LAST_UNLINKED.take().filter(|u| u.db == ctx.db() && u.name == name.bytes());
    let brought = slots::brought(ctx.db(), name);
    if let Kind::Value(value) = Key::write(ctx, name).kind(&ROOM) {
        if !brought {
            value.room.set_arrived();
        } else if value.room.is_history_written() {
            value.arrival = Arrival::Settled;
        }
        if let Some(before) = before {
            value.room.raise_highest(before.written_epoch);
            value.outranked = before.highest_epoch;
        }
    }
    arrived(ctx, name);
}

fn moved(ctx: Ctx, name: Str<'_>) {
    if let Kind::Value(value) = Key::write(ctx, name).kind(&ROOM) {
        value.room.set_arrived();
        if value.arrival == Arrival::Settled {
            value.arrival = Arrival::Moved;
        }
    }
    place(ctx, name);
}

/// What `rdb_load` made has its place.
fn arrived(ctx: Ctx, name: Str<'_>) {
    if place(ctx, name) {
        ARRIVING.set(ARRIVING.get().saturating_sub(1));
    }
}

/// A room is under this name: it counts here from now on, and the reaper looks at it. False if there is none.
fn place(ctx: Ctx, name: Str<'_>) -> bool {
    let bound = {
        let mut key = Key::write(ctx, name);
        let Kind::Value(value) = key.kind(&ROOM) else { return false };
        if !value.counted {
            gauges::changed(ctx.db(), None, value.room.gauges());
            value.counted = true;
        }
        value.indexed = value.next_due(&rooms::env());
        value.indexed
    };
    deadlines::expect(ctx, name, Some(bound));
    true
}

/// FLUSHDB, FLUSHALL, and what a replica drops before a full sync: nothing is unlinked, so all is forgotten here.
pub fn flushed(db: i32) {
    let db = (db >= 0).then_some(db);
    gauges::flushed(db);
    deadlines::flushed(db);
    LAST_UNLINKED.take();
    CLOSURES.with_borrow_mut(|all| all.retain(|c| db.is_some_and(|db| db != c.db)));
}

pub fn swapped(a: i32, b: i32) {
    gauges::swapped(a, b);
    deadlines::swapped(a, b);
    LAST_UNLINKED.take();
    CLOSURES.with_borrow_mut(|all| {
        for closure in all.iter_mut().filter(|c| c.db == a || c.db == b) {
            closure.db = if closure.db == a { b } else { a };
        }
    });
}
