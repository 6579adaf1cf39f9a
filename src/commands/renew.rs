//! LEASE.RENEW: a heartbeat, and whatever else a session reports about itself.

use super::args::{self, Options};
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::codec;
use crate::core::effect::{Effect, Motion, Renewed};
use crate::core::heartbeat::{Close, Extra, Heartbeat, Pulse};
use crate::core::id::Id;
use crate::core::lease::Signal;
use crate::core::open::check_ttl;
use crate::core::refusal::{Limit, Refusal};
use crate::core::room::Env;
use crate::server::api::Ctx;
use crate::server::entry::{self, command_entry};
use crate::server::keys::Key;
use crate::server::strings::{Args, Str};
use crate::server::{deadlines, metrics, rooms, unit};

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.renew",
    summary: "Renews a session's lease; reports its connection state, meta, ttl or clock",
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
        Arg::text("state").token("STATE").optional(),
        Arg::text("meta").token("META").optional(),
        Arg::int("ms").token("TTL").optional(),
        Arg::unix_time("unix-ms").token("OBSERVED").optional(),
        Arg::text("token").token("TOKEN").optional(),
    ],
    entry: command_entry!(run, redact),
};

const UNKNOWN_STATE: Refusal = Refusal::Bad(
    "unknown STATE; it is new, connecting, checking, connected, completed, disconnected, failed or closed",
);

/// Arguments of a heartbeat that carries nothing else: the only form that is replicated as it is.
const PLAIN: usize = 5;

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    let flags = ctx.flags();
    let name = args.str(1);
    let mut beat = heartbeat(args, ctx.in_cluster())?;
    let env = rooms::env();
    if flags.replicated() || flags.loading() {
        return replay(ctx, name, &beat, &env);
    }
    if !flags.primary() {
        return Err(Refusal::ReadOnly);
    }
    if args.len() == PLAIN {
        return renew(ctx, name, &beat, &Extra::default(), true, &env);
    }
    let extra = parse(args, &mut beat)?;
    if extra.signal == Some(Signal::Closed) {
        return close(ctx, name, &beat, &extra, &env);
    }
    check(&extra, &env)?;
    if extra.meta.is_some() && flags.out_of_memory() {
        return Err(Refusal::OutOfMemory);
    }
    renew(ctx, name, &beat, &extra, false, &env)
}

/// A plain heartbeat that was accepted has ids and numbers and no token: nobody reads it once more.
fn redact(ctx: Ctx, args: Args<'_>, refused: bool) {
    if refused || args.len() != PLAIN {
        entry::redact_tokens(ctx, args, refused);
    }
}

fn heartbeat(args: Args<'_>, cluster: bool) -> Result<Heartbeat<'_>, Refusal> {
    args::room(args.get(1), cluster)?;
    Ok(Heartbeat {
        session: args::id(args.get(2))?,
        epoch: args::int(args.get(3))?,
        seq: args::int(args.get(4))?,
        token: None,
    })
}

fn parse<'a>(args: Args<'a>, beat: &mut Heartbeat<'a>) -> Result<Extra<'a>, Refusal> {
    let mut extra = Extra::default();
    let mut options = Options::after(args, PLAIN, SPEC.args);
    while let Some(option) = options.next()? {
        match option {
            "STATE" => extra.signal = Some(Signal::parse(options.value()?).ok_or(UNKNOWN_STATE)?),
            "META" => extra.meta = Some(options.value()?),
            "TTL" => extra.ttl_ms = Some(options.int()?),
            "OBSERVED" => extra.observed_at = Some(options.int()?),
            _ => beat.token = Some(options.value()?),
        }
    }
    Ok(extra)
}

/// Not asked of a session that closes: it ends whatever META and TTL it brings along.
fn check(extra: &Extra, env: &Env) -> Result<(), Refusal> {
    if let Some(ttl_ms) = extra.ttl_ms {
        check_ttl(ttl_ms, env)?;
    }
    if extra.meta.is_some_and(|meta| meta.len() as u64 > env.settings.max_meta_bytes()) {
        return Err(Refusal::Limit(Limit::Meta));
    }
    Ok(())
}

/// From the primary or the AOF: accepted there, so nobody asks the clock whether it is allowed.
fn replay(ctx: Ctx, name: Str<'_>, beat: &Heartbeat, env: &Env) -> Result<(), Refusal> {
    let mut key = Key::write(ctx, name);
    if let Some(value) = rooms::find(ctx, &mut key, name, env)? {
        value.room.replay_renew(beat, env);
        // This node's clock may stand before the one that opened the lease.
        deadlines::expect(ctx, name, unit::new_bound(value, env));
    }
    ctx.replicate_verbatim();
    ctx.reply().simple(c"OK");
    Ok(())
}

fn renew(ctx: Ctx, name: Str<'_>, beat: &Heartbeat, extra: &Extra, verbatim: bool, env: &Env) -> Result<(), Refusal> {
    let mut key = Key::write(ctx, name);
    let Some(value) = rooms::find(ctx, &mut key, name, env)? else {
        return Err(Refusal::UNKNOWN_SESSION);
    };
    let (slot, motion, plan, gap_ms) = match value.room.decide_renew(beat, extra, env)? {
        Pulse::Duplicate { slot } => {
            metrics::duplicate();
            answer(ctx, "duplicate", value.room.span_left(slot, env));
            return Ok(());
        }
        Pulse::Plain { slot, renewed } => {
            metrics::heartbeat_gap(value.room.silence_ms(slot, env));
            metrics::renewed(&renewed);
            value.room.apply_renewed(slot, &renewed);
            let bound = unit::new_bound(value, env);
            answer(ctx, status(renewed.motion, extra.signal), value.room.span_left(slot, env));
            drop(key);
            if verbatim {
                ctx.replicate_verbatim();
            } else {
                replicate(ctx, name, beat, renewed, env);
            }
            deadlines::expect(ctx, name, bound);
            return Ok(());
        }
        Pulse::Told { slot, motion, plan } => (slot, motion, plan, value.room.silence_ms(slot, env)),
    };
    drop(key);
    unit::commit(ctx, name, plan, None, env)?;
    metrics::heartbeat_gap(gap_ms);
    let mut key = Key::read(ctx, name);
    let left = rooms::find(ctx, &mut key, name, env)?.map_or((0, 0), |value| value.room.span_left(slot, env));
    answer(ctx, status(motion, extra.signal), left);
    Ok(())
}

fn replicate(ctx: Ctx, name: Str<'_>, beat: &Heartbeat, renewed: Renewed, env: &Env) {
    let effects = [Effect::Renewed(Id::new(beat.session), renewed)];
    unit::replicate(ctx, name, &codec::encode(&effects, env.now));
}

fn close(ctx: Ctx, name: Str<'_>, beat: &Heartbeat, extra: &Extra, env: &Env) -> Result<(), Refusal> {
    let decided = {
        let mut key = Key::write(ctx, name);
        match rooms::find(ctx, &mut key, name, env)? {
            None => Close::Gone { ended_at: 0 },
            Some(value) => value.room.decide_closed(beat, extra.observed_at, env)?,
        }
    };
    match decided {
        Close::Ended(plan) => {
            unit::commit(ctx, name, plan, None, env)?;
            answer(ctx, "ended", (0, env.now.unix));
        }
        Close::Gone { ended_at } => answer(ctx, "gone", (0, ended_at)),
        Close::Duplicate { left } => {
            metrics::duplicate();
            answer(ctx, "duplicate", left);
        }
    }
    Ok(())
}

fn status(motion: Motion, signal: Option<Signal>) -> &'static str {
    match (motion, signal) {
        (_, Some(Signal::Disconnected | Signal::Failed)) => "shortened",
        (Motion::Renewed, _) => "renewed",
        (Motion::Shortened(_) | Motion::Unmoved, _) => "noted",
    }
}

fn answer(ctx: Ctx, status: &str, (left_ms, expires_at): (u64, u64)) {
    let reply = ctx.reply();
    reply.array(3);
    reply.bulk(status.as_bytes());
    reply.int(left_ms);
    reply.int(expires_at);
}
