//! LEASE.GET: one session's lease, live or remembered.

use super::args;
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::refusal::Refusal;
use crate::core::view::LeaseView;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::reply::Reply;
use crate::server::rooms;
use crate::server::strings::Args;

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.get",
    summary: "Tells a session's lease, ended ones while they are remembered",
    complexity: "O(1)",
    since: "0.1.0",
    arity: 3,
    flags: "readonly fast",
    categories: "",
    key: KeyAccess::Read,
    args: &[Arg::ROOM, Arg::text("session")],
    entry: command_entry!(run),
};

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let session = args::id(args.get(2))?;
    let (name, env) = (args.str(1), rooms::env());
    let mut key = Key::read(ctx, name);
    match rooms::find(ctx, &mut key, name, &env)?.and_then(|value| value.room.view(session, &env)) {
        Some(view) => lease(ctx.reply(), &view),
        None => ctx.reply().nil(),
    }
    Ok(())
}

/// A lease as a map of all fields; nil where one does not apply.
pub fn lease(reply: Reply, view: &LeaseView) {
    reply.map(17);
    reply.field("session").bulk(view.session.as_bytes());
    reply.field("user").bulk(view.user);
    reply.field("device").bulk(view.device);
    reply.field("epoch").int(view.epoch);
    reply.field("seq").int_or_nil(view.seq);
    reply.field("state").bulk(view.state.as_bytes());
    reply.field("reason").bulk_or_nil(view.reason.map(|reason| reason.word().as_bytes()));
    reply.field("signal").bulk_or_nil(view.signal.map(|signal| signal.word().as_bytes()));
    reply.field("ttl_ms").int(view.ttl_ms);
    reply.field("left_ms").int(view.left_ms);
    reply.field("expires_at").int(view.expires_at);
    reply.field("opened_at").int(view.opened_at);
    reply.field("heartbeat_at").int(view.heartbeat_at);
    reply.field("observed_at").int_or_nil(view.observed_at);
    reply.field("ended_at").int_or_nil(view.ended_at);
    reply.field("replaced_by").int_or_nil(view.replaced_by);
    reply.field("meta").bulk_or_nil(view.meta);
}
