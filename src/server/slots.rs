//! Slots on the move, in a cluster. While a slot goes to another node key by key, a room and its streams may stand on
//! two nodes: what is not here may neither be made anew nor taken for deleted.
//!
//! The server knows: it runs no command of ours on keys of a slot that is not this node's, nor on several keys of a
//! slot that is moving unless all of them are here.

use super::api::Ctx;
use super::call::{call, Shape, Words};
use super::keys::{Key, Kind};
use super::rooms::ROOM;
use super::strings::Str;
use super::{message_log, role, settings, streams};
use crate::core::refusal::Refusal;
use crate::core::room::Room;

/// Refuses unless the room and these streams are here, or their slot stands still: then what is missing is nowhere.
pub fn check(ctx: Ctx, room: Str<'_>, streams: &[Vec<u8>]) -> Result<(), Refusal> {
    if !ctx.in_cluster() {
        return Ok(());
    }
    let mut words = Words::with_capacity(1 + streams.len());
    words.lent(room);
    for stream in streams {
        words.bytes(stream);
    }
    match call(ctx, c"EXISTS", &words).shape() {
        Shape::Refused => Err(Refusal::TryAgain),
        _ => Ok(()),
    }
}

/// The same for a room and all that it has written.
pub fn check_all(ctx: Ctx, name: Str<'_>) -> Result<(), Refusal> {
    if !ctx.in_cluster() {
        return Ok(());
    }
    let written = match Key::read(ctx, name).kind(&ROOM) {
        Kind::Value(value) => written(&value.room, name),
        Kind::Missing | Kind::Other => Vec::new(),
    };
    check(ctx, name, &written)
}

/// The streams that a room has written to.
pub fn written(room: &Room, name: Str<'_>) -> Vec<Vec<u8>> {
    let events = (room.event_n() > 0).then(|| streams::events(name.bytes(), settings::settings().events_scope()));
    let log = (room.log_seq() > 0).then(|| message_log::name_of(name.bytes()));
    events.into_iter().chain(log).collect()
}

/// Whether a key that RESTORE has just brought came with its slot: this node does not own that yet. A replica and an
/// AOF do not tell; there it is taken for granted, for what else a primary decides comes as effects.
pub fn brought(db: i32, name: Str<'_>) -> bool {
    let ctx = Ctx::detached();
    if !ctx.in_cluster() {
        return false;
    }
    !role::may_decide(ctx) || (ctx.select_db(db) && check(ctx, name, &[]).is_err())
}
