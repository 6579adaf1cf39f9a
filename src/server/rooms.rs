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
use super::{clock, deadlines, gauges, keyspace, log, message_log, role, settings, slots, streams, unit};
use crate::commands::args;
use crate::core::effect::{Began, Gen, MetLog, Recovery};
use crate::core::refusal::Refusal;
use crate::core::room::{Env, Room};
use crate::core::time::{Now, MAX};

/// The module's key type.
pub static ROOM: KeyType<RoomValue> = KeyType::unregistered();

/// Epochs that a lost primary may have given for one holder, at most, between two replications.
const LOST_EPOCHS: u64 = 1024;
/// The same for each ms between two histories that began apart: far more than OPENs of one holder can be.
const LOST_EPOCHS_PER_MS: u64 = 16;
/// Events that a lost primary may have numbered.
const LOST_EVENTS: u64 = 1 << 20;
/// A stream id above this was not written by a room: one foreign XADD must not exhaust its counter.
pub const FOREIGN_ID: u64 = 1 << 62;

/// How a room came to be under its name. Where an era has begun since, that goes before: it takes more care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Its history goes on.
    Settled,
    Restored,
    /// RENAME, MOVE or COPY brought it here.
    Moved,
}

/// What a room's key holds.
pub struct RoomValue {
    pub room: Room,
    pub arrival: Arrival,
    /// The serial of the era in which it was last looked at.
    era: u32,
    /// The bound the deadline index has for it; `u64::MAX`: none.
    pub indexed: u64,
    /// Whether the gauges of this database include it.
    pub counted: bool,
    /// An epoch that the room it was restored over may have given, known to this node only.
    pub outranked: u64,
    cuts: Cuts,
}

/// How far the room's leases have been brought to end with their grants since `default-access` changed.
#[derive(Clone, Copy)]
struct Cuts {
    serial: u32,
    /// The slot to go on from, if there is one.
    next: Option<u32>,
}

impl RoomValue {
    /// A copy, not yet under any name.
    pub fn copied(&self) -> Self {
        Self { era: self.era, outranked: self.outranked, cuts: self.cuts, ..Self::new(self.room.clone(), self.arrival) }
    }

    /// One that belongs to the era of now.
    pub fn new(room: Room, arrival: Arrival) -> Self {
        keyspace::listen();
        let cuts = Cuts { serial: settings::access_serial(), next: None };
        Self { room, arrival, era: ERA.get().serial, indexed: u64::MAX, counted: false, outranked: 0, cuts }
    }

    /// The slot from which on leases may stand beyond their grants, if there is one.
    pub fn uncut(&self) -> Option<u32> {
        if self.cuts.serial == settings::access_serial() {
            self.cuts.next
        } else {
            Some(0)
        }
    }

    pub fn cut_up_to(&mut self, next: Option<u32>) {
        self.cuts = Cuts { serial: settings::access_serial(), next };
    }

    /// No later than the next moment, monotonic, at which the reaper has something to do here.
    pub fn next_due(&self, env: &Env) -> u64 {
        if self.uncut().is_some() {
            return 0;
        }
        self.room.next_due(env)
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

/// The node has loaded its data or become primary: every room begins anew, with what is drawn here once for all. Since
/// that may bring deadlines forward (another clock has saved them), the reaper looks at every room once.
pub fn begin_era() {
    let now = clock::now();
    let gen = draw_gen(now);
    ERA.with(|era| era.set(Era { serial: era.get().serial.wrapping_add(1), gen, at: now.mono }));
    deadlines::look_at_all(now.mono);
    // A replica's own beginning comes with its promotion.
    if gauges::any_room() && Ctx::detached().flags().primary() {
        log::notice(
            "after this load or promotion rooms begin another gen, and leases have at least recovery-grace-ms left",
        );
    }
}

/// Whether the room has begun the history it is to have on this node.
pub fn has_begun(value: &RoomValue) -> bool {
    beginning(value).is_none()
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
    // The streams are read by commands, and no command may run while the room is borrowed.
    let meets = value.room.has_arrived();
    let streams = if meets { own_streams(name).to_vec() } else { slots::written(&value.room, name) };
    slots::check(ctx, name, &streams)?;
    let log = if meets { Some(message_log::met(ctx, name.bytes())?) } else { None };
    let found = Found { last_event: streams::last_event(ctx, name)?, log };
    match key.kind(&ROOM) {
        Kind::Value(value) => {
            begin(value, reason, &found, env);
            deadlines::expect(ctx, name, unit::new_bound(value, env));
            Ok(Some(value))
        }
        Kind::Missing | Kind::Other => Ok(None),
    }
}

/// What is decided in the room of a command that creates a missing one; and that one, if it is missing.
pub fn find_or_fresh<T>(
    ctx: Ctx,
    name: Str<'_>,
    env: &Env,
    decide: impl FnOnce(&Room) -> Result<T, Refusal>,
) -> Result<(T, Option<Room>), Refusal> {
    let mut key = Key::write(ctx, name);
    if let Some(value) = find(ctx, &mut key, name, env)? {
        return Ok((decide(&value.room)?, None));
    }
    drop(key);
    let room = fresh(ctx, name, env)?;
    Ok((decide(&room)?, Some(room)))
}

/// A room for a name that has none. Its first write puts it into the keyspace.
pub fn fresh(ctx: Ctx, name: Str<'_>, env: &Env) -> Result<Room, Refusal> {
    args::within(name.bytes(), env.settings.max_id_bytes())?;
    slots::check(ctx, name, &own_streams(name))?;
    keyspace::close_before(ctx, name.bytes());
    let event_n = streams::last_event(ctx, name)?.filter(|n| *n <= FOREIGN_ID).unwrap_or(0);
    let met = Some(message_log::met(ctx, name.bytes())?);
    let gen = draw_gen(env.now);
    Ok(Room::new(Began { gen, floor: 0, event_n, at: env.now.mono, recovery: None, past: Vec::new(), met }))
}

fn own_streams(name: Str<'_>) -> [Vec<u8>; 2] {
    [streams::own_events(name.bytes()), message_log::name_of(name.bytes())]
}

#[derive(Clone, Copy)]
enum Beginning {
    Era(Era),
    Restored,
    Moved,
}

fn beginning(value: &RoomValue) -> Option<Beginning> {
    let era = ERA.get();
    if value.era != era.serial {
        return Some(Beginning::Era(era));
    }
    match value.arrival {
        Arrival::Settled => None,
        Arrival::Restored => Some(Beginning::Restored),
        Arrival::Moved => Some(Beginning::Moved),
    }
}

/// Above every epoch that may have been given and not replicated. A node that was lost may itself have begun a history
/// that no other node knows of, and given epochs above its floor: so the floor also rises with the time since the
/// history that all know began, and the later of two nodes always stands above the earlier.
fn floor_after_loss(room: &Room, outranked: u64, gen: Gen) -> u64 {
    let unknown_ms = gen.ms.saturating_sub(room.written_gen_ms());
    let lost = unknown_ms.saturating_mul(LOST_EPOCHS_PER_MS).saturating_add(LOST_EPOCHS);
    room.highest_epoch().max(outranked).saturating_add(lost).min(MAX)
}

/// The gen of the history that a room begins.
fn next_gen(room: &Room, reason: Beginning, now: Now) -> Gen {
    let drawn = match reason {
        Beginning::Era(era) => era.gen,
        Beginning::Restored | Beginning::Moved => draw_gen(now),
    };
    let gen = Gen { ms: drawn.ms.max(room.last_gen_ms().saturating_add(1)).min(MAX), ..drawn };
    LAST_GEN_MS.set(LAST_GEN_MS.get().max(gen.ms));
    gen
}

/// The gen under which a room that goes is closed: of the history it has, or was about to begin.
pub fn last_gen(value: &RoomValue) -> Gen {
    match beginning(value) {
        None => value.room.gen(),
        Some(reason) => next_gen(&value.room, reason, clock::now()),
    }
}

/// What stands in the streams of the room's name.
struct Found {
    last_event: Option<u64>,
    /// If the room did not write it.
    log: Option<MetLog>,
}

fn begin(value: &mut RoomValue, reason: Beginning, found: &Found, env: &Env) {
    let room = &mut value.room;
    let gen = next_gen(room, reason, env.now);
    let met = found.last_event.filter(|n| *n <= FOREIGN_ID).unwrap_or(0).max(room.event_n());
    let (floor, lost_events) = match reason {
        Beginning::Era(_) | Beginning::Restored => (floor_after_loss(room, value.outranked, gen), LOST_EVENTS),
        Beginning::Moved => (0, 0),
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
    // Positions in the streams of another name mean nothing here.
    let past = if found.log.is_some() { Vec::new() } else { room.past_with_this() };
    room.begin(Began { gen, floor, event_n, at: env.now.mono, recovery, past, met: found.log });
    (value.arrival, value.era) = (Arrival::Settled, ERA.get().serial);
}
