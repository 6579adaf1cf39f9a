//! LEASE.ROSTER: who is there, page by page.

use super::args::{self, Options};
use super::get;
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::effect::GenText;
use crate::core::refusal::Refusal;
use crate::core::view::PageRequest;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::strings::Args;
use crate::server::{rooms, streams};

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.roster",
    summary: "Lists a room's leases, page by page",
    complexity: "O(N) with N being the leases of a page",
    since: "0.1.0",
    arity: -2,
    flags: "readonly",
    categories: "",
    key: KeyAccess::Read,
    args: &[
        Arg::ROOM,
        Arg::text("user").token("USER").optional(),
        Arg::int("cursor").token("CURSOR").optional(),
        Arg::int("n").token("COUNT").optional(),
        Arg::flag("ended", "ENDED").optional(),
    ],
    entry: command_entry!(run),
};

/// Leases of a page unless COUNT says otherwise.
pub const DEFAULT_COUNT: usize = 100;

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let mut request = PageRequest { user: None, cursor: 0, count: DEFAULT_COUNT, ended: false };
    let mut options = Options::after(args, 2, SPEC.args);
    while let Some(option) = options.next()? {
        match option {
            "USER" => request.user = Some(options.id()?),
            "CURSOR" => request.cursor = options.int()?,
            "COUNT" => request.count = options.count()? as usize,
            _ => request.ended = true,
        }
    }
    let (name, env) = (args.str(1), rooms::env());
    let position = streams::shared_position(ctx, name, env.settings.events_scope())?;
    let mut key = Key::read(ctx, name);
    let value = rooms::find(ctx, &mut key, name, &env)?;
    let room = value.as_ref().map(|value| &value.room);
    let page = room.map(|room| room.page(&request, &env));
    let reply = ctx.reply();
    reply.map(if position.is_some() { 6 } else { 5 });
    reply.field("cursor").int(page.as_ref().map_or(0, |page| page.cursor));
    reply.field("now").int(env.now.unix);
    let gen = room.map(|room| room.gen().text());
    reply.field("gen").bulk_or_nil(gen.as_ref().map(GenText::as_bytes));
    reply.field("event_n").int(room.map_or(0, |room| room.event_n()));
    if let Some(position) = position {
        reply.field("event_id").bulk(&position);
    }
    let leases = page.map(|page| page.leases).unwrap_or_default();
    reply.field("leases").array(leases.len());
    for lease in &leases {
        get::lease(reply, lease);
    }
    Ok(())
}
