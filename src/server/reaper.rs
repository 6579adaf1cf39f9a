//! Time becomes state by itself: expiry, forgetting, and the end of empty rooms.
//!
//! 1. Only a primary that is not loading does this, and not while replica traffic is to be avoided: the server would
//!    abort. Afterwards it catches up.
//! 2. A tick works for `reap-slice-us`, then commands run. What is left comes with the next tick, at once.
//! 3. A room with much to do gives way after a few steps to every room that is due, so that none starves.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::api::Ctx;
use super::call::{call_replicated, Words};
use super::keys::{Key, Kind};
use super::rooms::{self, ROOM};
use super::strings::{OwnedStr, Str};
use super::{
    clock, deadlines, keyspace, latency, message_log, metrics, retention, role, settings, slots, streams, unit,
};
use crate::core::plan::Plan;
use crate::core::refusal::Refusal;
use crate::core::room::{Env, Room};

/// Steps one room gets before others have their turn (rule 3).
const STEPS_AT_ONCE: usize = 32;
/// Records that count as one step where no event is written.
const QUIET_PER_STEP: usize = 64;

/// Until a room is looked at again whose due work could not be done.
pub const RETRY_MS: u64 = 100;

thread_local! {
    /// Whether the last tick found that replica traffic is to be avoided.
    static PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// The timer's work.
pub fn tick(ctx: Ctx) {
    if !role::may_decide(ctx) {
        return;
    }
    if !role::may_write_unasked(ctx) {
        if !PAUSED.replace(true) {
            metrics::pause_honoured();
        }
        return;
    }
    PAUSED.set(false);
    let slice = Duration::from_micros(settings::settings().reap_slice_us());
    let start = Instant::now();
    let env = rooms::env();
    let mut took = Duration::ZERO;
    while took < slice {
        let Some((db, name)) = deadlines::due(env.now.mono) else { break };
        visit(ctx, db, &name, &env, || start.elapsed() >= slice);
        took = start.elapsed();
    }
    if !took.is_zero() {
        metrics::slice(took);
        latency::sample(ctx, took);
    }
    if took < slice {
        deadlines::arm(ctx);
    } else {
        deadlines::arm_soon();
    }
}

/// Everything that is due now, to the end: what moving a manual clock does.
pub fn run_to_end(ctx: Ctx) {
    if !role::may_write_unasked(ctx) {
        return;
    }
    let env = rooms::env();
    let db = ctx.db();
    while let Some((of, name)) = deadlines::due(env.now.mono) {
        visit(ctx, of, &name, &env, || false);
    }
    ctx.select_db(db);
}

/// REAP: up to `most` overdue leases of one room, now.
pub fn reap(ctx: Ctx, name: Str<'_>, most: u64, env: &Env) -> Result<u64, Refusal> {
    let mut removed = 0;
    while removed < most && expire_one(ctx, name, env)? {
        removed += 1;
    }
    Ok(removed)
}

/// One room's turn, until `time_is_up`; what is left of it waits behind all that is due by now.
fn visit(ctx: Ctx, db: i32, name: &[u8], env: &Env, time_is_up: impl Fn() -> bool) {
    let owned = OwnedStr::new(name);
    let key_name = owned.lend();
    if !ctx.select_db(db) {
        return deadlines::settle(db, name, None);
    }
    let mut wait_ms = 0;
    // In a slot that is moving, or not this node's, nothing is to be done but to wait.
    let is_here = slots::check_all(ctx, key_name).is_ok();
    for _ in 0..STEPS_AT_ONCE {
        if !is_here || !step(ctx, key_name, env).unwrap_or(false) {
            // Nothing is due any more; or something is and cannot be done now.
            wait_ms = RETRY_MS;
            break;
        }
        if time_is_up() {
            break;
        }
    }
    let bound = next_bound(ctx, key_name, env);
    let now = env.now.mono;
    deadlines::settle(db, name, bound.map(|bound| if bound > now { bound } else { now.saturating_add(wait_ms) }));
}

/// The room's next bound, which the index is about to learn.
fn next_bound(ctx: Ctx, name: Str<'_>, env: &Env) -> Option<u64> {
    let mut key = Key::write(ctx, name);
    let Kind::Value(value) = key.kind(&ROOM) else { return None };
    value.indexed = if rooms::has_begun(value) { value.next_due(env) } else { 0 };
    Some(value.indexed)
}

/// Does one thing that is due in the room; false if there is none.
fn step(ctx: Ctx, name: Str<'_>, env: &Env) -> Result<bool, Refusal> {
    if expire_one(ctx, name, env)? {
        return Ok(true);
    }
    if cut_some(ctx, name, env)? {
        return Ok(true);
    }
    type Decide = fn(&Room, usize, &Env) -> Option<Plan>;
    let quiet: [Decide; 3] = [Room::decide_forgetting, Room::decide_grant_ends, Room::decide_cursor_ends];
    for decide in quiet {
        if let Some(plan) = with_room(ctx, name, env, |room| decide(room, QUIET_PER_STEP, env))?.flatten() {
            return unit::commit(ctx, name, plan, None, env).map(|()| true);
        }
    }
    if retention::step(ctx, name, env)? {
        return Ok(true);
    }
    let vanishes = with_room(ctx, name, env, |room| room.vanishes_at(env.settings))?.flatten();
    if vanishes.is_some_and(|at| at <= env.now.mono) {
        vanish(ctx, name, env);
    }
    Ok(false)
}

fn expire_one(ctx: Ctx, name: Str<'_>, env: &Env) -> Result<bool, Refusal> {
    match with_room(ctx, name, env, |room| room.decide_expiry(env))?.flatten() {
        Some(plan) => unit::commit(ctx, name, plan, None, env).map(|()| true),
        None => Ok(false),
    }
}

/// Leases that stand beyond their grants since CONFIG SET asks for these; false if none is left to look at.
fn cut_some(ctx: Ctx, name: Str<'_>, env: &Env) -> Result<bool, Refusal> {
    let plan = {
        let mut key = Key::write(ctx, name);
        let Some(value) = rooms::find(ctx, &mut key, name, env)? else { return Ok(false) };
        let Some(first) = value.uncut() else { return Ok(false) };
        let (plan, next) = value.room.decide_access_cuts(first, QUIET_PER_STEP as u32, env);
        value.cut_up_to(next);
        plan
    };
    match plan {
        Some(plan) => unit::commit(ctx, name, plan, None, env).map(|()| true),
        None => Ok(true),
    }
}

pub fn with_room<T>(
    ctx: Ctx,
    name: Str<'_>,
    env: &Env,
    look: impl FnOnce(&mut Room) -> T,
) -> Result<Option<T>, Refusal> {
    let mut key = Key::write(ctx, name);
    Ok(rooms::find(ctx, &mut key, name, env)?.map(|value| look(&mut value.room)))
}

/// An empty room's time is over: its key goes, without an event, and its stream follows.
fn vanish(ctx: Ctx, name: Str<'_>, env: &Env) {
    let wait_ms = env.settings.empty_room_ms();
    streams::let_go(ctx, name.bytes(), wait_ms);
    message_log::remove_empty(ctx, name.bytes());
    let mut words = Words::with_capacity(1);
    words.lent(name);
    keyspace::quietly(|| call_replicated(ctx, c"UNLINK", &words));
}

/// Whether anything waits for the manual clock's barrier.
pub fn is_due() -> bool {
    deadlines::due(clock::now().mono).is_some()
}
