//! LEASE.COUNT: how many leases and users are present.

use super::args;
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::refusal::Refusal;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::rooms;
use crate::server::strings::Args;

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.count",
    summary: "Counts a room's live leases and the users that have one",
    complexity: "O(1 + N) with N being the leases that are due and not yet removed",
    since: "0.1.0",
    arity: 2,
    flags: "readonly fast",
    categories: "",
    key: KeyAccess::Read,
    args: &[Arg::ROOM],
    entry: command_entry!(run),
};

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let (name, env) = (args.str(1), rooms::env());
    let mut key = Key::read(ctx, name);
    let counted = rooms::find(ctx, &mut key, name, &env)?.map(|value| value.room.count(env.now.mono));
    let (leases, users) = counted.unwrap_or_default();
    let reply = ctx.reply();
    reply.array(2);
    reply.int(leases);
    reply.int(users);
    Ok(())
}
