//! LEASE.REAP: removes what is overdue now. Never required: the module reaps by itself.

use super::args::{self, Options};
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::refusal::Refusal;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::strings::Args;
use crate::server::{reaper, role, rooms};

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.reap",
    summary: "Removes leases past their deadline, as the module does by itself",
    complexity: "O(N log M) with N being the leases removed and M those of the room",
    since: "0.1.0",
    arity: -2,
    flags: "write",
    categories: "",
    key: KeyAccess::Remove,
    args: &[Arg::ROOM, Arg::int("n").token("COUNT").optional()],
    entry: command_entry!(run),
};

const DEFAULT_COUNT: u64 = 1000;

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let mut most = DEFAULT_COUNT;
    let mut options = Options::after(args, 2, SPEC.args);
    while options.next()?.is_some() {
        most = options.int()?;
    }
    if most == 0 {
        return Err(Refusal::Bad("COUNT must be at least 1"));
    }
    role::check_may_decide(ctx)?;
    let removed = reaper::reap(ctx, args.str(1), most, &rooms::env())?;
    ctx.reply().int(removed);
    Ok(())
}
