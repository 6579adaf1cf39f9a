//! LEASE.LAG: how far each holder is behind the log.

use super::args::{self, Options};
use super::roster;
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::refusal::Refusal;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::rooms;
use crate::server::strings::Args;

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.lag",
    summary: "Lists how far each holder is behind the log, page by page",
    complexity: "O(N) with N being the holders of a page",
    since: "0.1.0",
    arity: -2,
    flags: "readonly",
    categories: "",
    key: KeyAccess::Read,
    args: &[Arg::ROOM, Arg::int("cursor").token("CURSOR").optional(), Arg::int("n").token("COUNT").optional()],
    entry: command_entry!(run),
};

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let (mut cursor, mut count) = (0, roster::DEFAULT_COUNT);
    let mut options = Options::after(args, 2, SPEC.args);
    while let Some(option) = options.next()? {
        match option {
            "CURSOR" => cursor = options.int()?,
            _ => count = options.count()? as usize,
        }
    }
    let (name, env) = (args.str(1), rooms::env());
    let mut key = Key::read(ctx, name);
    let value = rooms::find(ctx, &mut key, name, &env)?;
    let page = value.map(|value| (value.room.log_seq(), value.room.lag(cursor, count, &env)));
    let (newest, (next, cursors)) = page.unwrap_or_default();
    let reply = ctx.reply();
    reply.map(2);
    reply.field("cursor").int(next);
    reply.field("holders").array(cursors.len());
    for cursor in cursors {
        reply.map(8);
        reply.field("user").bulk(cursor.user.as_bytes());
        reply.field("device").bulk(cursor.device.as_bytes());
        reply.field("queued").int(cursor.queued);
        reply.field("written").int(cursor.written);
        reply.field("acked").int(cursor.acked);
        reply.field("queued_lag").int(newest.saturating_sub(cursor.queued));
        reply.field("written_lag").int(newest.saturating_sub(cursor.written));
        reply.field("acked_lag").int(newest.saturating_sub(cursor.acked));
    }
    Ok(())
}
