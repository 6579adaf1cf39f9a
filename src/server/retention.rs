//! Time and policy at work on a room's log: messages that go, dedupe records that end, and records rebuilt from a log
//! that the room has met. In slices, as all of the reaper's work.

use super::api::Ctx;
use super::message_log::{self, Portion, Remembered};
use super::reaper::with_room;
use super::slots;
use super::streams;
use super::strings::Str;
use super::unit;
use crate::core::plan::Plan;
use crate::core::refusal::Refusal;
use crate::core::room::{Env, Room};

/// Messages that one step takes, or learns.
const PER_STEP: usize = 64;
/// What a room learns in one step of a log it has met. A payload is read whole, to be digested.
const LEARNED_PER_STEP: Portion = Portion { messages: PER_STEP, bytes: 64 << 10 };
/// The same at once, before its first answer.
const LEARNED_AT_ONCE: Portion = Portion { messages: 512, bytes: 256 << 10 };

/// Does one thing that is due; false if there is none.
pub fn step(ctx: Ctx, name: Str<'_>, env: &Env) -> Result<bool, Refusal> {
    if recall(ctx, name, LEARNED_PER_STEP, env)? {
        return Ok(true);
    }
    let Some((newest, is_old, is_record)) = with_room(ctx, name, env, |room| {
        (room.log_seq(), room.is_retention_due(env), room.is_record_due(env) || room.take_doubt())
    })?
    else {
        return Ok(false);
    };
    if is_old && trim_old(ctx, name, newest, PER_STEP as u64, env)? > 0 {
        notice(ctx, name, env)?;
        return Ok(true);
    }
    if !is_old && !is_record {
        return Ok(false);
    }
    if notice(ctx, name, env)? {
        return Ok(true);
    }
    if let Some(plan) = with_room(ctx, name, env, |room| room.decide_record_ends(PER_STEP, env))?.flatten() {
        unit::commit(ctx, name, plan, None, env)?;
        return Ok(true);
    }
    let parked = with_room(ctx, name, env, |room| room.park_records(PER_STEP, env))?;
    Ok(parked.is_some_and(|parked| parked > 0))
}

/// Makes records of the next messages of a log the room has met; false if there are none to be made.
fn recall(ctx: Ctx, name: Str<'_>, portion: Portion, env: &Env) -> Result<bool, Refusal> {
    let Some((Some(first), last)) = with_room(ctx, name, env, |room| (room.rebuilding(), room.log_seq()))? else {
        return Ok(false);
    };
    let (found, next) = message_log::remembered(ctx, name.bytes(), first, last, portion);
    let plan = with_room(ctx, name, env, |room| room.decide_recall(found.iter().map(Remembered::lend), next, env))?;
    if let Some(plan) = plan {
        unit::commit(ctx, name, plan, None, env)?;
    }
    Ok(true)
}

/// A message waits for a room that still learns of a log: much of it is learned at once, all of a small one.
pub fn recall_at_once(ctx: Ctx, name: Str<'_>, env: &Env) -> Result<(), Refusal> {
    slots::check_all(ctx, name)?;
    recall(ctx, name, LEARNED_AT_ONCE, env).map(|_| ())
}

/// The same for a room that is not in the keyspace yet: what it would learn, and itself with that.
pub fn recall_fresh(ctx: Ctx, name: Str<'_>, room: &Room, env: &Env) -> (Plan, Room) {
    let (found, next) = match room.rebuilding() {
        Some(first) => message_log::remembered(ctx, name.bytes(), first, room.log_seq(), LEARNED_AT_ONCE),
        None => (Vec::new(), None),
    };
    let plan = room.decide_recall(found.iter().map(Remembered::lend), next, env);
    let mut learned = room.clone();
    plan.effects.iter().for_each(|effect| learned.apply(effect));
    (plan, learned)
}

/// Takes what is too old among the `most` oldest messages out of the log; how many went.
fn trim_old(ctx: Ctx, name: Str<'_>, newest: u64, most: u64, env: &Env) -> Result<u64, Refusal> {
    // The stream cannot be read while the room is borrowed, so its messages are judged by a copy of what judges them.
    let Some(ages) = with_room(ctx, name, env, |room| room.ages(env))? else { return Ok(0) };
    let keeps = |seq, at| ages.kept_until(seq, at, env) > env.now.mono;
    match message_log::first_kept(ctx, name.bytes(), newest, most, keeps) {
        Some(first) => message_log::trim_before(ctx, name.bytes(), first),
        None => Ok(0),
    }
}

/// The room learns what its log does not hold any more; false if it knew.
fn notice(ctx: Ctx, name: Str<'_>, env: &Env) -> Result<bool, Refusal> {
    let Some(newest) = with_room(ctx, name, env, |room| room.log_seq())? else { return Ok(false) };
    let edges = message_log::edges(ctx, name.bytes(), newest)?;
    match with_room(ctx, name, env, |room| room.decide_trimmed(&edges, env))?.flatten() {
        Some(plan) => unit::commit(ctx, name, plan, None, env).map(|()| true),
        None => Ok(false),
    }
}

/// TRIM: what the policy does not keep goes from both streams, exactly; how many entries went. Not before the room has
/// learned what a log it has met holds: it would take what goes for new when it comes again.
pub fn trim(ctx: Ctx, name: Str<'_>, env: &Env) -> Result<u64, Refusal> {
    slots::check_all(ctx, name)?;
    recall(ctx, name, LEARNED_AT_ONCE, env)?;
    if with_room(ctx, name, env, |room| room.rebuilding())?.flatten().is_some() {
        return Err(Refusal::TryAgain);
    }
    let Some((newest, retained, events)) = with_room(ctx, name, env, |room| {
        (room.log_seq(), room.policy(env.settings).retain_count(), room.events_maxlen(env.settings))
    })?
    else {
        return Ok(0);
    };
    let mut gone = trim_old(ctx, name, newest, u64::MAX, env)?;
    if retained > 0 {
        gone += message_log::trim_to(ctx, name.bytes(), retained)?;
    }
    if events > 0 {
        gone += streams::trim_events(ctx, name.bytes(), events)?;
    }
    notice(ctx, name, env)?;
    Ok(gone)
}
