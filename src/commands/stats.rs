//! LEASE.STATS: a room's counters, for people and monitoring.

use super::args;
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::refusal::Refusal;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::strings::Args;
use crate::server::{message_log, rooms};

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.stats",
    summary: "Returns a room's counters and largest lags",
    complexity: "O(N) with N being the holders with cursors",
    since: "0.1.0",
    arity: 2,
    flags: "readonly",
    categories: "",
    key: KeyAccess::Read,
    args: &[Arg::ROOM],
    entry: command_entry!(run),
};

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let (name, env, reply) = (args.str(1), rooms::env(), ctx.reply());
    let newest = rooms::find(ctx, &mut Key::read(ctx, name), name, &env)?.map(|value| value.room.log_seq());
    let edges = message_log::edges(ctx, name.bytes(), newest.unwrap_or(0))?;
    let mut key = Key::read(ctx, name);
    let Some(value) = rooms::find(ctx, &mut key, name, &env)? else {
        reply.nil();
        return Ok(());
    };
    let room = &mut value.room;
    let stats = room.stats(&edges, &env);
    reply.map(stats.len() + 1);
    reply.field("gen").bulk(room.gen().text().as_bytes());
    for (field, value) in stats {
        reply.field(field).int(value);
    }
    Ok(())
}
