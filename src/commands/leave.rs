//! LEASE.LEAVE: a clean end, at once or after a while.

use super::args::{self, Options};
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::depart::Departure;
use crate::core::refusal::Refusal;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::strings::Args;
use crate::server::{role, rooms, unit};

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.leave",
    summary: "Ends a session's lease, or lets it linger for a page refresh",
    complexity: "O(1)",
    since: "0.1.0",
    arity: -4,
    flags: "write fast",
    categories: "",
    key: KeyAccess::Remove,
    args: &[
        Arg::ROOM,
        Arg::text("session"),
        Arg::int("epoch"),
        Arg::int("ms").token("LINGER").optional(),
        Arg::text("token").token("TOKEN").optional(),
    ],
    entry: command_entry!(run),
};

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let (session, epoch) = (args::id(args.get(2))?, args::int(args.get(3))?);
    let (mut linger_ms, mut token) = (0, None);
    let mut options = Options::after(args, 4, SPEC.args);
    while let Some(option) = options.next()? {
        match option {
            "LINGER" => linger_ms = options.int()?,
            _ => token = Some(options.value()?),
        }
    }
    role::check_may_decide(ctx)?;
    let (name, env) = (args.str(1), rooms::env());
    let departure = {
        let mut key = Key::write(ctx, name);
        match rooms::find(ctx, &mut key, name, &env)? {
            Some(value) => value.room.decide_leave(session, epoch, linger_ms, token, &env)?,
            None => Departure::Gone,
        }
    };
    let (status, plan) = match departure {
        Departure::Gone => ("gone", None),
        Departure::Left(plan) => ("left", Some(plan)),
        Departure::Lingering(plan) => ("lingering", plan),
    };
    if let Some(plan) = plan {
        unit::commit(ctx, name, plan, None, &env)?;
    }
    ctx.reply().bulk(status.as_bytes());
    Ok(())
}
