//! LEASE.ACK: a session's client says which messages it has.

use super::args::{self, Options};
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::claim::Ack;
use crate::core::refusal::Refusal;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::strings::Args;
use crate::server::{role, rooms, unit};

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.ack",
    summary: "Notes how far a session's client has confirmed messages",
    complexity: "O(1)",
    since: "0.1.0",
    arity: -5,
    flags: "write fast",
    categories: "",
    key: KeyAccess::Update,
    args: &[
        Arg::ROOM,
        Arg::text("session"),
        Arg::int("epoch"),
        Arg::int("seq"),
        Arg::text("token").token("TOKEN").optional(),
    ],
    entry: command_entry!(run),
};

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let session = args::id(args.get(2))?;
    let mut ack = Ack { session, epoch: args::int(args.get(3))?, token: None, seq: args::int(args.get(4))? };
    let mut options = Options::after(args, 5, SPEC.args);
    while options.next()?.is_some() {
        ack.token = Some(options.value()?);
    }
    role::check_may_decide(ctx)?;
    let (name, env) = (args.str(1), rooms::env());
    let moved = {
        let mut key = Key::write(ctx, name);
        let value = rooms::find(ctx, &mut key, name, &env)?.ok_or(Refusal::UNKNOWN_SESSION)?;
        value.room.decide_ack(&ack, &env)?
    };
    if let Some(plan) = moved.plan {
        unit::commit(ctx, name, plan, None, &env)?;
    }
    ctx.reply().int(moved.seq);
    Ok(())
}
