//! LEASE.SEND and LEASE.POST: a message enters the room's log, once.

use std::time::Instant;

use super::args::{self, Options};
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::refusal::{Limit, Refusal};
use crate::core::room::{Env, Room};
use crate::core::send::{Post, Send, Sending};
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::strings::{Args, Str};
use crate::server::{message_log, metrics, retention, role, rooms, unit};

pub const SEND: CommandSpec = CommandSpec {
    name: "lease.send",
    summary: "Appends a message to a room's log, once per user and message id",
    complexity: "O(1)",
    since: "0.1.0",
    arity: -6,
    flags: "write deny-oom fast",
    categories: "",
    key: KeyAccess::Update,
    args: &[
        Arg::ROOM,
        Arg::text("session"),
        Arg::int("epoch"),
        Arg::text("message-id"),
        Arg::text("payload"),
        Arg::text("token").token("TOKEN").optional(),
    ],
    entry: command_entry!(send),
};

pub const POST: CommandSpec = CommandSpec {
    name: "lease.post",
    summary: "Appends a message on behalf of a user who needs no lease",
    complexity: "O(1)",
    since: "0.1.0",
    arity: 5,
    flags: "write deny-oom fast",
    categories: "dangerous",
    key: KeyAccess::Update,
    args: &[Arg::ROOM, Arg::text("user"), Arg::text("message-id"), Arg::text("payload")],
    entry: command_entry!(post),
};

fn send(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    let began = Instant::now();
    args::room(args.get(1), ctx.in_cluster())?;
    let env = rooms::env();
    let mut request = Send {
        session: args::id(args.get(2))?,
        epoch: args::int(args.get(3))?,
        token: None,
        id: args::id(args.get(4))?,
        payload: args.get(5),
    };
    let mut options = Options::after(args, 6, SEND.args);
    while options.next()?.is_some() {
        request.token = Some(options.value()?);
    }
    check_limits(&[request.id], request.payload, &env)?;
    role::check_may_decide(ctx)?;
    let name = args.str(1);
    let sending = judge(ctx, name, &mut None, &env, |room, gone| room.decide_send(&request, gone, &env))?;
    carry_out(ctx, name, sending, None, &env)?;
    metrics::sent(began.elapsed());
    Ok(())
}

fn post(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    let began = Instant::now();
    args::room(args.get(1), ctx.in_cluster())?;
    let env = rooms::env();
    let request = Post { user: args::id(args.get(2))?, id: args::id(args.get(3))?, payload: args.get(4) };
    check_limits(&[request.user, request.id], request.payload, &env)?;
    role::check_may_decide(ctx)?;
    let name = args.str(1);
    let is_there = rooms::find(ctx, &mut Key::write(ctx, name), name, &env)?.is_some();
    let mut fresh = if is_there { None } else { Some(rooms::fresh(ctx, name, &env)?) };
    let sending = judge(ctx, name, &mut fresh, &env, |room, gone| room.decide_post(&request, gone, &env))?;
    carry_out(ctx, name, sending, fresh, &env)?;
    metrics::sent(began.elapsed());
    Ok(())
}

fn check_limits(ids: &[&[u8]], payload: &[u8], env: &Env) -> Result<(), Refusal> {
    for id in ids {
        args::within(id, env.settings.max_id_bytes())?;
    }
    if payload.len() as u64 > env.settings.max_payload_bytes() {
        return Err(Refusal::Limit(Limit::Payload));
    }
    Ok(())
}

/// What becomes of a message. A room that still learns of a log it has met learns on first. A room that is not there
/// yet appears only if the message is accepted, or for whoever is told to try again: to be found further on.
fn judge(
    ctx: Ctx,
    name: Str<'_>,
    fresh: &mut Option<Room>,
    env: &Env,
    decide: impl Fn(&Room, Option<u64>) -> Result<Sending, Refusal>,
) -> Result<Sending, Refusal> {
    match judge_in(ctx, name, fresh, env, &decide) {
        Err(Refusal::TryAgain) => {}
        judged => return judged,
    }
    match fresh.take() {
        None => retention::recall_at_once(ctx, name, env)?,
        Some(room) => {
            let (plan, learned) = retention::recall_fresh(ctx, name, &room, env);
            match judge_in(ctx, name, &Some(learned), env, &decide) {
                Ok(Sending::Accepted { .. }) | Err(Refusal::TryAgain) => {}
                judged => return judged,
            }
            unit::commit(ctx, name, plan, Some(room), env)?;
        }
    }
    judge_in(ctx, name, fresh, env, &decide)
}

/// A room in doubt whether its log still holds a message looks.
fn judge_in(
    ctx: Ctx,
    name: Str<'_>,
    fresh: &Option<Room>,
    env: &Env,
    decide: impl Fn(&Room, Option<u64>) -> Result<Sending, Refusal>,
) -> Result<Sending, Refusal> {
    let sending = decide_in(ctx, name, fresh, env, |room| decide(room, None))?;
    if !matches!(sending, Sending::Doubtful) {
        return Ok(sending);
    }
    let newest = decide_in(ctx, name, fresh, env, |room| Ok(room.log_seq()))?;
    let edges = message_log::edges(ctx, name.bytes(), newest)?;
    decide_in(ctx, name, fresh, env, |room| decide(room, Some(room.gone(&edges))))
}

fn decide_in<T>(
    ctx: Ctx,
    name: Str<'_>,
    fresh: &Option<Room>,
    env: &Env,
    decide: impl FnOnce(&Room) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    if let Some(room) = fresh {
        return decide(room);
    }
    let mut key = Key::write(ctx, name);
    match rooms::find(ctx, &mut key, name, env)? {
        Some(value) => decide(&value.room),
        None => Err(Refusal::UNKNOWN_SESSION),
    }
}

fn carry_out(ctx: Ctx, name: Str<'_>, sending: Sending, fresh: Option<Room>, env: &Env) -> Result<(), Refusal> {
    let (status, seq, at, gen) = match sending {
        Sending::Duplicate { seq, at, gen } => {
            metrics::message_repeated();
            ("duplicate", seq, at, gen)
        }
        Sending::Accepted { seq, at, gen, plan } => {
            unit::commit(ctx, name, plan, fresh, env)?;
            ("accepted", seq, at, gen)
        }
        Sending::Doubtful => return Err(Refusal::TryAgain),
    };
    let reply = ctx.reply();
    reply.map(4);
    reply.field("status").bulk(status.as_bytes());
    reply.field("seq").int(seq);
    reply.field("gen").bulk(gen.text().as_bytes());
    reply.field("at").int(at);
    Ok(())
}
