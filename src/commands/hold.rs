//! LEASE.HOLD, LEASE.UNHOLD, LEASE.HOLDS and LEASE.TRIM: what keeps a room's streams, and what trims them.

use super::args;
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::refusal::Refusal;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::strings::Args;
use crate::server::{metrics, retention, role, rooms, unit};

pub const HOLD: CommandSpec = CommandSpec {
    name: "lease.hold",
    summary: "Keeps a room's streams from being trimmed",
    complexity: "O(N) with N being the holds of the room",
    since: "0.1.0",
    arity: 3,
    flags: "write",
    categories: "dangerous",
    key: KeyAccess::Update,
    args: &[Arg::ROOM, Arg::text("name")],
    entry: command_entry!(hold),
};

pub const UNHOLD: CommandSpec = CommandSpec {
    name: "lease.unhold",
    summary: "Takes a hold away",
    complexity: "O(N) with N being the holds of the room",
    since: "0.1.0",
    arity: 3,
    flags: "write",
    categories: "dangerous",
    key: KeyAccess::Remove,
    args: &[Arg::ROOM, Arg::text("name")],
    entry: command_entry!(unhold),
};

pub const HOLDS: CommandSpec = CommandSpec {
    name: "lease.holds",
    summary: "Lists the holds of a room",
    complexity: "O(N) with N being the holds of the room",
    since: "0.1.0",
    arity: 2,
    flags: "readonly",
    categories: "",
    key: KeyAccess::Read,
    args: &[Arg::ROOM],
    entry: command_entry!(holds),
};

pub const TRIM: CommandSpec = CommandSpec {
    name: "lease.trim",
    summary: "Trims a room's streams to what its policy keeps, exactly",
    complexity: "O(N) with N being the entries removed",
    since: "0.1.0",
    arity: 2,
    flags: "write",
    categories: "dangerous",
    key: KeyAccess::Remove,
    args: &[Arg::ROOM],
    entry: command_entry!(trim),
};

fn hold(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let (hold, env) = (args::id(args.get(2))?, rooms::env());
    args::within(hold, env.settings.max_id_bytes())?;
    role::check_may_decide(ctx)?;
    let name = args.str(1);
    let (plan, fresh) = rooms::find_or_fresh(ctx, name, &env, |room| Ok(room.decide_hold(hold, &env)))?;
    let changes = plan.is_some();
    if let Some(plan) = plan {
        unit::commit(ctx, name, plan, fresh, &env)?;
    }
    ctx.reply().int(changes.into());
    Ok(())
}

fn unhold(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let (hold, env) = (args::id(args.get(2))?, rooms::env());
    role::check_may_decide(ctx)?;
    let name = args.str(1);
    let found =
        rooms::find(ctx, &mut Key::write(ctx, name), name, &env)?.map(|value| value.room.decide_unhold(hold, &env));
    let plan = found.flatten();
    let changes = plan.is_some();
    if let Some(plan) = plan {
        unit::commit(ctx, name, plan, None, &env)?;
    }
    ctx.reply().int(changes.into());
    Ok(())
}

fn holds(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let (name, env, reply) = (args.str(1), rooms::env(), ctx.reply());
    let mut key = Key::read(ctx, name);
    match rooms::find(ctx, &mut key, name, &env)? {
        Some(value) => {
            let holds = value.room.holds();
            reply.array(holds.len());
            holds.for_each(|hold| reply.bulk(hold));
        }
        None => reply.array(0),
    }
    Ok(())
}

fn trim(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    role::check_may_decide(ctx)?;
    let (name, env) = (args.str(1), rooms::env());
    let held = rooms::find(ctx, &mut Key::write(ctx, name), name, &env)?.map(|value| value.room.is_held());
    let gone = match held {
        None => 0,
        Some(true) => {
            metrics::trim_skipped();
            0
        }
        Some(false) => retention::trim(ctx, name, &env)?,
    };
    ctx.reply().int(gone);
    Ok(())
}
