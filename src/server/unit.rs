//! The one way through: a plan is published, applied, replicated, indexed and told, in this order.
//!
//! 1. Message and events are written first. One that refuses the step leaves room and keyspace as they were.
//! 2. No borrow of a room outlives a call into the server: callbacks of other modules may come back into ours.
//! 3. Notifications come last, when state and streams are complete.

use super::api::Ctx;
use super::call::{self, Words};
use super::keys::{Key, Kind};
use super::rooms::{Arrival, RoomValue, ROOM};
use super::streams::{self, Unwritten};
use super::strings::Str;
use super::{deadlines, gauges, message_log, metrics, slots};
use crate::core::codec;
use crate::core::effect::Effect;
use crate::core::event::{Body, Event};
use crate::core::plan::Plan;
use crate::core::refusal::Refusal;
use crate::core::room::{Env, Room};

/// The internal command that carries effects to replicas and the AOF.
pub const APPLY: &std::ffi::CStr = c"LEASE.APPLY";

/// Carries out a plan for the room `name`; `fresh` is the room it was made for, if the key is missing.
pub fn commit(ctx: Ctx, name: Str<'_>, mut plan: Plan, fresh: Option<Room>, env: &Env) -> Result<(), Refusal> {
    if plan.effects.is_empty() && plan.events.is_empty() {
        return Ok(());
    }
    check_slot(ctx, name, &plan, env)?;
    let lost = publish(ctx, name, &plan, env)?;
    if let Some(message) = plan.message.as_ref().filter(|_| plan.looks) {
        // The message is written: nothing may refuse the step any more.
        if let Ok(edges) = message_log::edges(ctx, name.bytes(), message.seq) {
            plan.looked(&edges, env);
        }
    }
    plan.note(lost);
    metrics::events_lost(lost);
    let created = fresh.is_some();
    {
        let mut key = Key::write(ctx, name);
        if let Some(room) = fresh {
            key.set_value(&ROOM, Box::new(RoomValue::new(room, Arrival::Settled)));
        }
        let Kind::Value(value) = key.kind(&ROOM) else { return Ok(()) };
        apply(ctx, name, value, &plan.effects, env);
    }
    if created {
        streams::keep(ctx, name.bytes());
    }
    replicate(ctx, name, &codec::encode(&plan.effects, env.now));
    if plan.signals {
        ctx.signal_modified(name);
    }
    metrics::committed(&plan, env);
    notify(ctx, name, &plan);
    Ok(())
}

/// Whether all that the plan writes is in one place: half a step is none.
fn check_slot(ctx: Ctx, name: Str<'_>, plan: &Plan, env: &Env) -> Result<(), Refusal> {
    if !ctx.in_cluster() {
        return Ok(());
    }
    let log = plan.message.as_ref().map(|_| message_log::name_of(name.bytes()));
    let events = plan.events.first().map(|_| streams::events(name.bytes(), env.settings.events_scope()));
    let streams: Vec<_> = log.into_iter().chain(events).collect();
    if streams.is_empty() {
        return Ok(());
    }
    slots::check(ctx, name, &streams)
}

/// Sends encoded effects to replicas and the AOF.
pub fn replicate(ctx: Ctx, name: Str<'_>, effects: &[u8]) {
    let mut words = Words::with_capacity(2);
    words.lent(name).bytes(effects);
    call::replicate(ctx, APPLY, &words);
}

/// Writes the plan's message and events; returns how many events no stream took.
fn publish(ctx: Ctx, name: Str<'_>, plan: &Plan, env: &Env) -> Result<u64, Refusal> {
    if let Some(message) = &plan.message {
        message_log::append(ctx, name.bytes(), message, plan.retained).map_err(|unwritten| match unwritten {
            Unwritten::NotHere => Refusal::TryAgain,
            Unwritten::Unwritable => Refusal::LogState,
        })?;
    }
    let mut lost = 0;
    for (place, event) in plan.events.iter().enumerate() {
        match streams::add(ctx, name.bytes(), event, plan.events_maxlen, env.settings) {
            Ok(()) => {}
            Err(Unwritten::NotHere) if place == 0 && plan.message.is_none() => return Err(Refusal::TryAgain),
            Err(Unwritten::Unwritable) if plan.needs_stream && place == 0 => return Err(Refusal::LogState),
            Err(_) => lost += 1,
        }
    }
    Ok(lost)
}

/// Applies effects, here or on the node that gets them, and keeps gauges and index.
pub fn apply(ctx: Ctx, name: Str<'_>, value: &mut RoomValue, effects: &[Effect], env: &Env) {
    changing(ctx, name, value, env, |room| effects.iter().for_each(|effect| room.apply(effect)));
}

/// Changes a room in place; gauges and index follow.
pub fn changing(ctx: Ctx, name: Str<'_>, value: &mut RoomValue, env: &Env, change: impl FnOnce(&mut Room)) {
    let before = value.counted.then(|| value.room.gauges());
    change(&mut value.room);
    gauges::changed(ctx.db(), before, value.room.gauges());
    value.counted = true;
    let bound = new_bound(value, env);
    deadlines::expect(ctx, name, bound);
}

/// What the index must learn of a room that has changed.
pub fn new_bound(value: &mut RoomValue, env: &Env) -> Option<u64> {
    let due = value.next_due(env);
    if due >= value.indexed {
        return None;
    }
    value.indexed = due;
    Some(due)
}

fn notify(ctx: Ctx, name: Str<'_>, plan: &Plan) {
    let is_announced = plan.events.iter().any(|event| matches!(event.body, Body::Message { .. }));
    let message = plan.message.as_ref().filter(|_| !is_announced).map(|_| c"lease.message");
    for hint in message.into_iter().chain(plan.events.iter().filter_map(Event::notification)) {
        ctx.notify(hint, name);
    }
}
