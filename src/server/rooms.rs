//! Rooms in the keyspace: how a command finds one, and how a new history begins for one.
//!
//! A room's value carries what only this node knows of it: which era it belongs to, what the deadline index holds of
//! it, and whether the gauges count it. An era begins when the node loads its data or becomes primary; a room of an
//! earlier era begins a new history (docs/concepts.md, `gen`) when it is first looked at here, in memory; its next
//! write carries that to replicas. A replica begins nothing.

use std::cell::Cell;

use super::api::{self, Ctx};
use super::keys::{Key, KeyType, Kind};
use super::strings::Str;
use super::{clock, keyspace, role, settings, streams};
use crate::core::effect::{Began, Gen, Recovery};
use crate::core::refusal::Refusal;
use crate::core::room::{Env, Room};
use crate::core::time::{Now, MAX};

/// The module's key type.
pub static ROOM: KeyType<RoomValue> = KeyType::unregistered();

/// Epochs that a lost primary may have given for one holder, at most, between two replications.
const LOST_EPOCHS: u64 = 1024;
/// Events that a lost primary may have numbered.
const LOST_EVENTS: u64 = 1 << 20;
/// A stream id above this was not written by a room: one foreign XADD must not exhaust its counter.
const FOREIGN_ID: u64 = 1 << 62;

/// Why a room begins a new history when it is next looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its history goes on, as long as the node's era is this one.
    Since(u32),
    /// The server loaded it from disk or from its primary.
    Loaded,
    Restored,
    /// RENAME, MOVE or COPY brought it here.
    Moved,
}

/// What a room's key holds.
#[derive(Clone)]
pub struct RoomValue {
    pub room: Room,
    pub standing: Standing,
    /// The bound the deadline index has for it; `u64::MAX`: none.
    pub indexed: u64,
    /// Whether the gauges of this database include it.
    pub counted: bool,
    /// An epoch that the room it was restored over may have given, known to this node only.
    pub outranked: u64,
}

impl RoomValue {
    pub fn new(room: Room, standing: Standing) -> Self {
        keyspace::listen();
        Self { room, standing, indexed: u64::MAX, counted: false, outranked: 0 }
    }
}

#[derive(Clone, Copy)]
struct Era {
    serial: u32,
    gen: Gen,
    /// Monotonic.
    at: u64,
}

thread_local! {
    static ERA: Cell<Era> = const { Cell::new(Era { serial: 1, gen: Gen { ms: 0, random: 0 }, at: 0 }) };
    static LAST_GEN_MS: Cell<u64> = const { Cell::new(0) };
}

/// The node has loaded its data or become primary: every room begins anew, with what is drawn here once for all.
pub fn begin_era() {
    let now = clock::now();
    let gen = draw_gen(now);
    ERA.with(|era| era.set(Era { serial: era.get().serial.wrapping_add(1), gen, at: now.mono }));
}

/// The standing of a room that begins or has begun on this node now.
pub fn standing_now() -> Standing {
    Standing::Since(ERA.get().serial)
}

fn draw_gen(now: Now) -> Gen {
    let ms = now.unix.max(LAST_GEN_MS.get().saturating_add(1)).min(MAX);
    LAST_GEN_MS.set(ms);
    let mut random = [0; 4];
    api::random(&mut random);
    Gen { ms, random: u32::from_ne_bytes(random) }
}

/// One reading of the clocks and the settings in force: what a decision may look at besides the room.
pub fn env() -> Env<'static> {
    Env { now: clock::now(), settings: settings::settings() }
}

/// The room of a command, begun if it has to be. The key must be open for writing if the command writes.
pub fn find<'k>(ctx: Ctx, key: &'k mut Key, name: Str<'_>, env: &Env) -> Result<Option<&'k mut RoomValue>, Refusal> {
    let found: *mut RoomValue = match key.kind(&ROOM) {
        Kind::Missing => return Ok(None),
        Kind::Other => return Err(Refusal::WrongType),
        Kind::Value(value) => value,
    };
    // SAFETY: the key stays open and borrowed for 'k, and nothing has run since. (The borrow checker cannot see that
    // the borrow is given up where this does not return; asking the key again costs as much as the lookup.)
    let value = unsafe { &mut *found };
    let Some(reason) = beginning(value).filter(|_| role::may_decide(ctx)) else {
        return Ok(Some(value));
    };
    // The stream is read by a command, and no command may run while the room is borrowed.
    let last_event = streams::last_event(ctx, name);
    match key.kind(&ROOM) {
        Kind::Value(value) => {
            begin(value, reason, last_event, env);
            Ok(Some(value))
        }
        Kind::Missing | Kind::Other => Ok(None),
    }
}

/// A room for a name that has none. Its first write puts it into the keyspace.
pub fn fresh(ctx: Ctx, name: Str<'_>, env: &Env) -> Room {
    keyspace::close_before(ctx, name.bytes());
    let event_n = streams::last_event(ctx, name).filter(|n| *n <= FOREIGN_ID).unwrap_or(0);
    Room::new(Began { gen: draw_gen(env.now), floor: 0, event_n, at: env.now.mono, recovery: None })
}

#[derive(Clone, Copy)]
enum Beginning {
    Era(Era),
    Restored,
    Moved,
}

fn beginning(value: &RoomValue) -> Option<Beginning> {
    let era = ERA.get();
    match value.standing {
        Standing::Since(serial) if serial == era.serial => None,
        Standing::Since(_) | Standing::Loaded => Some(Beginning::Era(era)),
        Standing::Restored => Some(Beginning::Restored),
        Standing::Moved => Some(Beginning::Moved),
    }
}

fn begin(value: &mut RoomValue, reason: Beginning, last_event: Option<u64>, env: &Env) {
    let room = &mut value.room;
    let drawn = match reason {
        Beginning::Era(era) => era.gen,
        Beginning::Restored | Beginning::Moved => draw_gen(env.now),
    };
    let gen = Gen { ms: drawn.ms.max(room.last_gen_ms().saturating_add(1)).min(MAX), ..drawn };
    LAST_GEN_MS.set(LAST_GEN_MS.get().max(gen.ms));
    let met = last_event.filter(|n| *n <= FOREIGN_ID).unwrap_or(0).max(room.event_n());
    let (lost_epochs, lost_events) = match reason {
        Beginning::Era(_) | Beginning::Restored => (LOST_EPOCHS, LOST_EVENTS),
        Beginning::Moved => (0, 0),
    };
    let floor = match lost_epochs {
        0 => 0,
        lost => room.highest_epoch().max(value.outranked).saturating_add(lost).min(MAX),
    };
    let recovery = match reason {
        Beginning::Era(era) => Some(Recovery {
            at: era.at,
            grace_ms: env.settings.recovery_grace_ms(),
            granted: room.policy(env.settings).wants_grants(),
        }),
        Beginning::Restored | Beginning::Moved => None,
    };
    let event_n = met.saturating_add(lost_events).min(MAX);
    room.begin(Began { gen, floor, event_n, at: env.now.mono, recovery });
    value.standing = standing_now();
}
