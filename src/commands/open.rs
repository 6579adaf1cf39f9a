//! LEASE.OPEN: a holder starts a session.

use super::args::{self, Options};
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::id::DEFAULT_DEVICE;
use crate::core::open::{Open, Opening};
use crate::core::refusal::{Limit, Refusal};
use crate::core::replay::Edges;
use crate::core::room::Env;
use crate::core::view::OpenView;
use crate::server::api::{self, Ctx};
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::strings::Args;
use crate::server::{message_log, metrics, role, rooms, unit};

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.open",
    summary: "Starts a session: a lease with a new epoch, ending the holder's earlier one",
    complexity: "O(1)",
    since: "0.1.0",
    arity: -3,
    flags: "write deny-oom fast",
    categories: "",
    key: KeyAccess::Update,
    args: &[
        Arg::ROOM,
        Arg::text("user"),
        Arg::text("device").token("DEVICE").optional(),
        Arg::text("session").token("SESSION").optional(),
        Arg::int("ms").token("TTL").optional(),
        Arg::unix_time("unix-ms").token("UNTIL").optional(),
        Arg::text("token").token("TOKEN").optional(),
        Arg::text("grant-token").token("GRANT-TOKEN").optional(),
        Arg::text("meta").token("META").optional(),
        Arg::flag("nx", "NX").optional(),
    ],
    entry: command_entry!(run),
};

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    let env = rooms::env();
    let open = parse(ctx, args, &env)?;
    role::check_may_decide(ctx)?;
    let name = args.str(1);
    let (decided, absence, fresh, log_seq) = {
        let mut key = Key::write(ctx, name);
        match rooms::find(ctx, &mut key, name, &env)? {
            Some(value) => {
                let absence = value.room.absence(open.user, open.device, &env);
                (value.room.decide_open(&open, &env)?, absence, None, value.room.log_seq())
            }
            None => {
                drop(key);
                let room = rooms::fresh(ctx, name, &env)?;
                let log_seq = room.log_seq();
                (room.decide_open(&open, &env)?, None, Some(room), log_seq)
            }
        }
    };
    // Before anything is written: a log that is not here refuses the whole.
    let edges = message_log::edges(ctx, name.bytes(), log_seq)?;
    let session = match decided {
        Opening::Retry => open.session.unwrap_or_default().to_vec(),
        Opening::Fresh(session, plan) => {
            unit::commit(ctx, name, plan, fresh, &env)?;
            absence.into_iter().for_each(metrics::reconnected);
            session.as_bytes().to_vec()
        }
    };
    let found =
        rooms::find(ctx, &mut Key::read(ctx, name), name, &env)?.map(|value| value.room.open_view(&session, &env));
    let view = found.flatten();
    match view {
        Some(view) => reply(ctx, &view, &edges, &env),
        // Another module's callback has removed the room while the event was written.
        None => return Err(Refusal::TryAgain),
    }
    Ok(())
}

fn parse<'a>(ctx: Ctx, args: Args<'a>, env: &Env) -> Result<Open<'a>, Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let mut open = Open {
        user: args::id(args.get(2))?,
        device: DEFAULT_DEVICE,
        session: None,
        ttl_ms: None,
        until: None,
        token: None,
        grant_token: None,
        meta: None,
        only_if_vacant: false,
        random: [0; 16],
    };
    let mut options = Options::after(args, 3, SPEC.args);
    while let Some(option) = options.next()? {
        match option {
            "DEVICE" => open.device = options.id()?,
            "SESSION" => open.session = Some(options.id()?),
            "TTL" => open.ttl_ms = Some(options.int()?),
            "UNTIL" => open.until = Some(options.int()?),
            "TOKEN" => open.token = Some(args::secret(options.value()?)?),
            "GRANT-TOKEN" => open.grant_token = Some(args::secret(options.value()?)?),
            "META" => open.meta = Some(options.value()?),
            _ => open.only_if_vacant = true,
        }
    }
    for id in [Some(open.user), Some(open.device), open.session].into_iter().flatten() {
        args::within(id, env.settings.max_id_bytes())?;
    }
    if open.meta.is_some_and(|meta| meta.len() as u64 > env.settings.max_meta_bytes()) {
        return Err(Refusal::Limit(Limit::Meta));
    }
    if open.session.is_none() {
        api::random(&mut open.random);
    }
    Ok(open)
}

fn reply(ctx: Ctx, view: &OpenView, edges: &Edges, env: &Env) {
    let reply = ctx.reply();
    reply.map(14);
    reply.field("session").bulk(view.session.as_bytes());
    reply.field("epoch").int(view.epoch);
    reply.field("user_leases").int(view.user_leases.into());
    reply.field("ttl_ms").int(view.ttl_ms);
    reply.field("heartbeat_ms").int(view.ttl_ms / 3);
    reply.field("left_ms").int(view.left_ms);
    reply.field("expires_at").int(view.expires_at);
    reply.field("now").int(env.now.unix);
    match &view.replaced {
        Some(session) => reply.field("replaced").bulk(session.as_bytes()),
        None => reply.field("replaced").nil(),
    }
    reply.field("gen").bulk(view.gen.text().as_bytes());
    reply.field("log_seq").int(view.log_seq);
    reply.field("log_oldest").int(edges.oldest);
    reply.field("event_n").int(view.event_n);
    reply.field("acked").int(view.acked);
}
