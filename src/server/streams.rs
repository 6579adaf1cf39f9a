//! The event stream of a room: its name, its last entry, and how an event is added.
//!
//! Streams share the room's slot by construction: a key with a hash tag has `k:events`, any other `{k}:events`.
//! With `events-scope` `tag` or `node` presence events go to a stream that several rooms share, under ids of the
//! server's time.

use super::api::Ctx;
use super::call::{call, call_replicated, Answer, Shape, Words};
use super::slots;
use super::strings::Str;
use crate::commands::args::hash_tag;
use crate::core::event::Event;
use crate::core::policy::{Scope, Settings};
use crate::core::refusal::Refusal;

/// Why an event could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritten {
    /// The key is no stream, or its last id is ahead.
    Unwritable,
    /// The server did not run the command: the slot is moving.
    NotHere,
}

/// The room's own event stream.
pub fn own_events(room: &[u8]) -> Vec<u8> {
    beside(room, b":events")
}

/// The key of that ending in a room's slot.
pub fn beside(room: &[u8], ending: &[u8]) -> Vec<u8> {
    match hash_tag(room) {
        Some(_) => [room, ending].concat(),
        None => [b"{", room, b"}", ending].concat(),
    }
}

/// The stream that takes a room's presence events.
pub fn events(room: &[u8], scope: Scope) -> Vec<u8> {
    match (scope, hash_tag(room)) {
        (Scope::Node, _) => b"lease:events".to_vec(),
        (Scope::Tag, Some(tag)) => [b"{", tag, b"}:lease:events"].concat(),
        (Scope::Tag, None) | (Scope::Room, _) => own_events(room),
    }
}

/// Whether the stream is the room's own, numbered by its event counter.
fn is_own(room: &[u8], scope: Scope) -> bool {
    scope == Scope::Room || (scope == Scope::Tag && hash_tag(room).is_none())
}

/// The greatest event number the room's own stream has seen; none if there is no such stream.
pub fn last_event(ctx: Ctx, room: Str<'_>) -> Result<Option<u64>, Refusal> {
    last_number(ctx, &own_events(room.bytes()))
}

/// The first part of the greatest id a stream has seen; none if there is no such stream.
pub fn last_number(ctx: Ctx, stream: &[u8]) -> Result<Option<u64>, Refusal> {
    let first_part = |id: Vec<u8>| std::str::from_utf8(id.split(|byte| *byte == b'-').next()?).ok()?.parse().ok();
    Ok(last_id(ctx, stream)?.and_then(first_part))
}

/// The position of a stream that several rooms share, for readers of rosters; `0-0` before its first entry.
pub fn shared_position(ctx: Ctx, room: Str<'_>, scope: Scope) -> Result<Option<Vec<u8>>, Refusal> {
    if is_own(room.bytes(), scope) {
        return Ok(None);
    }
    let stream = events(room.bytes(), scope);
    if let Some(id) = last_id(ctx, &stream)? {
        return Ok(Some(id));
    }
    slots::check(ctx, room, &[stream])?;
    Ok(Some(b"0-0".to_vec()))
}

/// Refused if the stream is not here.
fn last_id(ctx: Ctx, stream: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    let mut words = Words::with_capacity(2);
    words.literal("STREAM").bytes(stream);
    let answer = call(ctx, c"XINFO", &words);
    let len = match answer.shape() {
        Shape::Refused => return Err(Refusal::TryAgain),
        Shape::Array(len) => len,
        _ => 0,
    };
    let name_at = (0..len).step_by(2).find(|at| matches!(answer.at(*at), Shape::Bytes(b"last-generated-id")));
    Ok(name_at.and_then(|at| match answer.at(at + 1) {
        Shape::Bytes(id) => Some(id.to_vec()),
        _ => None,
    }))
}

/// Adds the event, trims to `own_maxlen` or what holds for shared streams, tells replicas and wakes blocked readers.
pub fn add(ctx: Ctx, room: &[u8], event: &Event, own_maxlen: u64, settings: &Settings) -> Result<(), Unwritten> {
    let scope = settings.events_scope();
    let own = is_own(room, scope);
    let maxlen = if own { own_maxlen } else { settings.shared_events_maxlen() };
    let mut words = Words::with_capacity(48);
    words.bytes(&events(room, scope));
    if maxlen > 0 {
        words.literal("MAXLEN").literal("~").number(maxlen);
    }
    if own {
        words.entry_id(event.n);
    } else {
        words.literal("*");
    }
    event.fields(room, &mut |name, value| {
        words.literal(name).bytes(value);
    });
    written(&call_replicated(ctx, c"XADD", &words))
}

/// What an XADD's answer says.
pub fn written(answer: &Answer) -> Result<(), Unwritten> {
    match answer.shape() {
        Shape::Refused => Err(Unwritten::NotHere),
        Shape::Error => Err(Unwritten::Unwritable),
        _ => Ok(()),
    }
}

/// Trims the room's own stream to exactly so many events; how many went.
pub fn trim_events(ctx: Ctx, room: &[u8], events: u64) -> Result<u64, Refusal> {
    trim(ctx, &own_events(room), "MAXLEN", events)
}

/// Trims a stream exactly, if it is one; how many entries went.
pub fn trim(ctx: Ctx, stream: &[u8], how: &'static str, threshold: u64) -> Result<u64, Refusal> {
    let mut words = Words::with_capacity(3);
    words.bytes(stream).literal(how).number(threshold);
    match call_replicated(ctx, c"XTRIM", &words).shape() {
        Shape::Refused => Err(Refusal::TryAgain),
        Shape::Integer(gone) => Ok(gone.unsigned_abs()),
        _ => Ok(0),
    }
}

/// A room's stream must outlast an earlier room of its name.
pub fn keep(ctx: Ctx, room: &[u8]) {
    let stream = own_events(room);
    let mut words = Words::with_capacity(1);
    words.bytes(&stream);
    if matches!(call(ctx, c"PTTL", &words).shape(), Shape::Integer(ttl_ms) if ttl_ms >= 0) {
        call_replicated(ctx, c"PERSIST", &words);
    }
}

/// The room key is removed for want of anything to keep: its stream follows after the same time.
pub fn let_go(ctx: Ctx, room: &[u8], after_ms: u64) {
    let mut words = Words::with_capacity(2);
    words.bytes(&own_events(room)).number(after_ms);
    call_replicated(ctx, c"PEXPIRE", &words);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_share_the_rooms_tag() {
        assert_eq!(own_events(b"r"), b"{r}:events");
        assert_eq!(own_events(b"x{t}y"), b"x{t}y:events");
        assert_eq!(events(b"x{t}y", Scope::Tag), b"{t}:lease:events");
        assert_eq!(events(b"r", Scope::Tag), b"{r}:events");
        assert_eq!(events(b"r", Scope::Node), b"lease:events");
        assert!(is_own(b"r", Scope::Tag) && !is_own(b"{t}r", Scope::Tag) && !is_own(b"r", Scope::Node));
    }
}
