//! LEASE.CLOCK: the module's time, and the manual clock of tests and rehearsals.

use super::args::{self, SYNTAX};
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::refusal::Refusal;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::strings::Args;
use crate::server::{clock, deadlines, reaper};

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.clock",
    summary: "Tells the module's time; moves it if the module was loaded with a manual clock",
    complexity: "O(1) to tell, O(N) to move, N being the leases that fall due",
    since: "0.1.0",
    arity: -2,
    // Neither write nor readonly: it moves time on a replica too, where it changes nothing else.
    flags: "allow-stale",
    categories: "dangerous",
    key: KeyAccess::None,
    args: &[Arg::one_of(
        "subcommand",
        &[Arg::flag("get", "GET"), Arg::unix_time("unix-ms").token("SET"), Arg::int("ms").token("ADVANCE")],
    )],
    entry: command_entry!(run),
};

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    let subcommand = args.get(1).to_ascii_uppercase();
    let now = match (subcommand.as_slice(), args.len()) {
        (b"GET", 2) => {
            ctx.reply().int(clock::now().unix);
            return Ok(());
        }
        (b"SET", 3) => clock::set(args::int(args.get(2))?)?,
        (b"ADVANCE", 3) => clock::advance(args::int(args.get(2))?)?,
        _ => return Err(SYNTAX),
    };
    // Inside a transaction or script time only moves: what is due waits for its end (see `barrier`).
    let flags = ctx.flags();
    if !flags.in_multi() && !flags.in_script() {
        reaper::run_to_end(ctx);
    }
    deadlines::arm(ctx);
    ctx.reply().int(now.unix);
    Ok(())
}
