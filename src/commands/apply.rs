//! LEASE.APPLY: decided effects, or a part of a saved room, from the primary or the AOF. Not for callers.

use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::effect::Effect;
use crate::core::refusal::Refusal;
use crate::core::room::{Env, Room};
use crate::core::snapshot::{self, Loading};
use crate::core::{codec, wire::Corrupt};
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::{Key, Kind};
use crate::server::metrics::COUNTERS;
use crate::server::rooms::{self, Arrival, RoomValue, ROOM};
use crate::server::strings::{Args, Str};
use crate::server::{log, unit};

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.apply",
    summary: "Internal: carries decided effects to replicas and the AOF; refused from clients",
    complexity: "O(N) with N being the effects",
    since: "0.1.0",
    arity: 3,
    flags: "write no-monitor",
    categories: "dangerous",
    key: KeyAccess::Update,
    args: &[Arg::ROOM, Arg::text("effects")],
    entry: command_entry!(run),
};

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    let flags = ctx.flags();
    if !flags.replicated() && !flags.loading() {
        return Err(Refusal::Bad("LEASE.APPLY is the module's own: it comes from a primary or an AOF only"));
    }
    let (name, payload, env) = (args.str(1), args.get(2), rooms::env());
    ctx.replicate_verbatim();
    let applied = if snapshot::is_part(payload) {
        restore_part(ctx, name, payload, &env)
    } else {
        apply(ctx, name, payload, &env)
    };
    if let Err(Corrupt(reason)) = applied {
        COUNTERS.effects_not_applied.add(1);
        log::warning(&format!(
            "effects were not applied: {reason}. This node differs from its primary, or from its AOF: it needs the same \
             version of the module or a newer one, and then to load or sync anew"
        ));
        return Err(Refusal::Bad("the effects cannot be applied here"));
    }
    ctx.reply().simple(c"OK");
    Ok(())
}

fn apply(ctx: Ctx, name: Str<'_>, payload: &[u8], env: &Env) -> Result<(), Corrupt> {
    let effects = codec::decode(payload, env.now)?;
    let signals = effects.iter().any(Effect::is_watched);
    let begins = matches!(effects.first(), Some(Effect::Began(_)));
    let mut key = Key::write(ctx, name);
    if let (Kind::Missing, true) = (key.kind(&ROOM), begins) {
        key.set_value(&ROOM, Box::new(RoomValue::new(Room::default(), Arrival::Settled)));
    }
    let Kind::Value(value) = key.kind(&ROOM) else { return Err(Corrupt("their room is not here")) };
    if begins {
        // However it came here, another node has begun its history since.
        value.arrival = Arrival::Settled;
    }
    unit::apply(ctx, name, value, &effects, env);
    drop(key);
    if signals {
        ctx.signal_modified(name);
    }
    Ok(())
}

/// A rewritten AOF, or a slot on its way to another Valkey, brings a room in parts: the header makes it, each further
/// part adds records. If no write has carried the room's history there, it begins another here.
fn restore_part(ctx: Ctx, name: Str<'_>, payload: &[u8], env: &Env) -> Result<(), Corrupt> {
    let begins = snapshot::is_header(payload);
    let mut key = Key::write(ctx, name);
    if let (Kind::Missing, true) = (key.kind(&ROOM), begins) {
        key.set_value(&ROOM, Box::new(RoomValue::new(Room::default(), Arrival::Settled)));
    }
    let Kind::Value(value) = key.kind(&ROOM) else { return Err(Corrupt("a part of a room without its header")) };
    let mut read = Ok(());
    unit::changing(ctx, name, value, env, |room| {
        let so_far = std::mem::take(room);
        let mut loading = if begins { Loading::default() } else { Loading::resume(so_far) };
        read = loading.part(payload, env.now);
        *room = loading.into_room();
    });
    if !value.room.is_history_written() {
        value.arrival = Arrival::Restored;
    }
    read
}
