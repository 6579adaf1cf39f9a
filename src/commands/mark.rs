//! LEASE.MARK: a server says how far a holder's messages got.

use super::args;
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::claim::{Mark, UNKNOWN_HOLDER};
use crate::core::cursor::Claim;
use crate::core::refusal::Refusal;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::strings::Args;
use crate::server::{role, rooms, unit};

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.mark",
    summary: "Notes how far a holder's messages were queued or written",
    complexity: "O(1)",
    since: "0.1.0",
    arity: 6,
    flags: "write fast",
    categories: "",
    key: KeyAccess::Update,
    args: &[
        Arg::ROOM,
        Arg::text("user"),
        Arg::text("device"),
        Arg::one_of("claim", &[Arg::flag("queued", "QUEUED"), Arg::flag("written", "WRITTEN")]),
        Arg::int("seq"),
    ],
    entry: command_entry!(run),
};

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let (user, device) = (args::id(args.get(2))?, args::id(args.get(3))?);
    let claim = match args.get(4) {
        word if word.eq_ignore_ascii_case(b"QUEUED") => Claim::Queued,
        word if word.eq_ignore_ascii_case(b"WRITTEN") => Claim::Written,
        _ => return Err(Refusal::Bad("the claim is QUEUED or WRITTEN")),
    };
    let mark = Mark { user, device, claim, seq: args::int(args.get(5))? };
    let (name, env) = (args.str(1), rooms::env());
    for id in [user, device] {
        args::within(id, env.settings.max_id_bytes())?;
    }
    role::check_may_decide(ctx)?;
    let moved = {
        let mut key = Key::write(ctx, name);
        let value = rooms::find(ctx, &mut key, name, &env)?.ok_or(UNKNOWN_HOLDER)?;
        value.room.decide_mark(&mark, &env)?
    };
    if let Some(plan) = moved.plan {
        unit::commit(ctx, name, plan, None, &env)?;
    }
    ctx.reply().int(moved.seq);
    Ok(())
}
