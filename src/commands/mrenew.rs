//! LEASE.MRENEW: a gateway's tick, up to 1024 plain heartbeats at once.

use super::args::{self, SYNTAX};
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::codec::Batch;
use crate::core::heartbeat::{Extra, Heartbeat, Pulse};
use crate::core::refusal::{Limit, Refusal};
use crate::core::room::Env;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::strings::{Args, Str};
use crate::server::{deadlines, metrics, role, rooms, unit};

const ITEM: &[Arg] = &[Arg::text("session"), Arg::int("epoch"), Arg::int("seq")];
const ITEM_WITH_TOKEN: &[Arg] = &[Arg::text("session"), Arg::int("epoch"), Arg::int("seq"), Arg::text("token")];

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.mrenew",
    summary: "Renews many sessions' leases in one room; one refused item spoils no other",
    complexity: "O(N) with N being the number of items",
    since: "0.1.0",
    arity: -5,
    flags: "write fast",
    categories: "",
    key: KeyAccess::Update,
    args: &[
        Arg::ROOM,
        Arg::one_of(
            "heartbeats",
            &[
                Arg::block("item", ITEM).repeated(),
                Arg::block(
                    "with-tokens",
                    &[Arg::flag("tokens", "TOKENS"), Arg::block("item", ITEM_WITH_TOKEN).repeated()],
                ),
            ],
        ),
    ],
    entry: command_entry!(run, redact),
};

const MOST_ITEMS: usize = 1024;

/// What an item is answered with.
enum Beat {
    Accepted(&'static str, u64),
    Refused(Refusal),
}

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let items = parse(args)?;
    role::check_may_decide(ctx)?;
    let (name, env) = (args.str(1), rooms::env());
    let beats = renew(ctx, name, &items, &env)?;
    let reply = ctx.reply();
    reply.array(beats.len());
    for beat in &beats {
        reply.array(2);
        match beat {
            Beat::Accepted(status, left_ms) => {
                reply.bulk(status.as_bytes());
                reply.int(*left_ms);
            }
            Beat::Refused(refusal) => {
                metrics::rejected(refusal);
                reply.bulk(refusal.code().to_ascii_lowercase().as_bytes());
                reply.bulk(refusal.word().unwrap_or_default().as_bytes());
            }
        }
    }
    Ok(())
}

/// Tokens go by their place, not by a word. In a command that was refused as a whole nobody knows which word is one, so
/// all behind the room is redacted; in one that was understood only the items of TOKENS have any.
fn redact(ctx: Ctx, args: Args<'_>, refused: bool) {
    if refused {
        (2..args.len()).for_each(|at| ctx.redact(at));
    } else if args.get(2).eq_ignore_ascii_case(b"TOKENS") {
        (2..args.len()).step_by(ITEM_WITH_TOKEN.len()).skip(1).for_each(|at| ctx.redact(at));
    }
}

/// All items, or a refusal for all.
fn parse(args: Args<'_>) -> Result<Vec<Heartbeat<'_>>, Refusal> {
    let with_tokens = args.get(2).eq_ignore_ascii_case(b"TOKENS");
    let (first, size) = if with_tokens { (3, ITEM_WITH_TOKEN.len()) } else { (2, ITEM.len()) };
    let given = args.len() - first;
    if given == 0 || given % size != 0 {
        return Err(SYNTAX);
    }
    let item = |at: usize| {
        Ok(Heartbeat {
            session: args::id(args.get(at))?,
            epoch: args::int(args.get(at + 1))?,
            seq: args::int(args.get(at + 2))?,
            token: with_tokens.then(|| args.get(at + 3)).filter(|token| !token.is_empty()),
        })
    };
    let items: Vec<_> = (first..args.len()).step_by(size).map(item).collect::<Result<_, Refusal>>()?;
    if items.len() > MOST_ITEMS {
        return Err(Refusal::Limit(Limit::Items));
    }
    Ok(items)
}

fn renew(ctx: Ctx, name: Str<'_>, items: &[Heartbeat], env: &Env) -> Result<Vec<Beat>, Refusal> {
    let mut beats = Vec::with_capacity(items.len());
    let mut batch = Batch::new(env.now);
    let mut key = Key::write(ctx, name);
    for item in items {
        let Some(value) = rooms::find(ctx, &mut key, name, env)? else {
            beats.push(Beat::Refused(Refusal::UNKNOWN_SESSION));
            continue;
        };
        let slot = match value.room.decide_renew(item, &Extra::default(), env) {
            Err(refusal) => {
                beats.push(Beat::Refused(refusal));
                continue;
            }
            Ok(Pulse::Duplicate { slot }) => {
                metrics::duplicate();
                beats.push(Beat::Accepted("duplicate", value.room.span_left(slot, env).0));
                continue;
            }
            Ok(Pulse::Plain { slot, renewed }) => {
                metrics::heartbeat_gap(value.room.silence_ms(slot, env));
                metrics::renewed(&renewed);
                value.room.apply_renewed(slot, &renewed);
                batch.renewed(item.session, &renewed);
                slot
            }
            Ok(Pulse::Told { slot, plan, .. }) => {
                let gap_ms = value.room.silence_ms(slot, env);
                drop(key);
                unit::commit(ctx, name, plan, None, env)?;
                metrics::heartbeat_gap(gap_ms);
                key = Key::write(ctx, name);
                slot
            }
        };
        let left = rooms::find(ctx, &mut key, name, env)?.map_or(0, |value| value.room.span_left(slot, env).0);
        beats.push(Beat::Accepted("renewed", left));
    }
    let bound = rooms::find(ctx, &mut key, name, env)?.and_then(|value| unit::new_bound(value, env));
    drop(key);
    if let Some(batch) = batch.into_bytes() {
        unit::replicate(ctx, name, &batch);
    }
    deadlines::expect(ctx, name, bound);
    Ok(beats)
}
