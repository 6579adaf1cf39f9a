//! LEASE.GRANT, LEASE.REVOKE and LEASE.GRANTS: who may be in a room.

use super::args::{self, Options};
use super::roster;
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::access::{Level, Record};
use crate::core::grant::{GrantRequest, RevokeRequest};
use crate::core::refusal::Refusal;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::strings::Args;
use crate::server::{role, rooms, unit};

pub const GRANT: CommandSpec = CommandSpec {
    name: "lease.grant",
    summary: "Grants a user access to a room, and lifts what a revocation left",
    complexity: "O(N) with N being the leases of the user",
    since: "0.1.0",
    arity: -4,
    flags: "write deny-oom",
    categories: "dangerous",
    key: KeyAccess::Update,
    args: &[
        Arg::ROOM,
        Arg::text("user"),
        Arg::one_of("level", &[Arg::flag("read", "READ"), Arg::flag("write", "WRITE")]),
        Arg::unix_time("unix-ms").token("UNTIL").optional(),
        Arg::text("token").token("TOKEN").optional(),
        Arg::int("n").token("VERSION").optional(),
    ],
    entry: command_entry!(grant),
};

pub const REVOKE: CommandSpec = CommandSpec {
    name: "lease.revoke",
    summary: "Ends a user's or a device's leases and keeps it out until it is granted access again",
    complexity: "O(N) with N being the leases of the user",
    since: "0.1.0",
    arity: -3,
    flags: "write",
    categories: "dangerous",
    key: KeyAccess::Update,
    args: &[
        Arg::ROOM,
        Arg::text("user"),
        Arg::text("device").token("DEVICE").optional(),
        Arg::int("n").token("VERSION").optional(),
    ],
    entry: command_entry!(revoke),
};

pub const GRANTS: CommandSpec = CommandSpec {
    name: "lease.grants",
    summary: "Lists a room's grants and revocations, page by page",
    complexity: "O(N) with N being the users of a page",
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
    ],
    entry: command_entry!(grants),
};

fn grant(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let env = rooms::env();
    let level = Level::parse(args.get(3)).ok_or(Refusal::Bad("the level is READ or WRITE"))?;
    let user = args::id(args.get(2))?;
    let mut request = GrantRequest { user, level, until: None, token: None, version: None };
    let mut options = Options::after(args, 4, GRANT.args);
    while let Some(option) = options.next()? {
        match option {
            "UNTIL" => request.until = Some(options.int()?),
            "TOKEN" => request.token = Some(args::secret(options.value()?)?),
            "VERSION" => request.version = Some(options.int()?),
            _ => return Err(args::SYNTAX),
        }
    }
    args::within(user, env.settings.max_id_bytes())?;
    role::check_may_decide(ctx)?;
    let name = args.str(1);
    let (plan, fresh) = rooms::find_or_fresh(ctx, name, &env, |room| room.decide_grant(&request, &env))?;
    let status = match plan {
        Some(plan) => {
            unit::commit(ctx, name, plan, fresh, &env)?;
            "ok"
        }
        None => "stale",
    };
    ctx.reply().bulk(status.as_bytes());
    Ok(())
}

fn revoke(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let env = rooms::env();
    let user = args::id(args.get(2))?;
    let mut request = RevokeRequest { user, device: None, version: None };
    let mut options = Options::after(args, 3, REVOKE.args);
    while let Some(option) = options.next()? {
        match option {
            "DEVICE" => request.device = Some(options.id()?),
            _ => request.version = Some(options.int()?),
        }
    }
    for id in [Some(user), request.device].into_iter().flatten() {
        args::within(id, env.settings.max_id_bytes())?;
    }
    role::check_may_decide(ctx)?;
    let name = args.str(1);
    let (revoked, fresh) = rooms::find_or_fresh(ctx, name, &env, |room| Ok(room.decide_revoke(&request, &env)))?;
    let (status, ended) = match revoked {
        Some((plan, ended)) => {
            unit::commit(ctx, name, plan, fresh, &env)?;
            ("ok", ended)
        }
        None => ("stale", 0),
    };
    let reply = ctx.reply();
    reply.array(2);
    reply.bulk(status.as_bytes());
    reply.int(ended);
    Ok(())
}

fn grants(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let (mut user, mut cursor, mut count) = (None, 0, roster::DEFAULT_COUNT);
    let mut options = Options::after(args, 2, GRANTS.args);
    while let Some(option) = options.next()? {
        match option {
            "USER" => user = Some(options.id()?),
            "CURSOR" => cursor = options.int()?,
            _ => count = options.count()? as usize,
        }
    }
    let (name, env) = (args.str(1), rooms::env());
    let mut key = Key::read(ctx, name);
    let value = rooms::find(ctx, &mut key, name, &env)?;
    let page = value.map(|value| value.room.grants(user, cursor, count, &env));
    let (next, records) = page.unwrap_or_default();
    let reply = ctx.reply();
    reply.map(2);
    reply.field("cursor").int(next);
    reply.field("grants").array(records.len());
    for record in records {
        let reply = ctx.reply();
        let grant = record.live_grant(env.now.mono);
        reply.map(7);
        reply.field("user").bulk(record.user.as_bytes());
        reply.field("level").bulk_or_nil(grant.map(|g| g.level.word().as_bytes()));
        reply.field("until").int_or_nil(grant.and_then(|g| g.until).map(|until| env.now.to_unix(until)));
        reply.field("version").int_or_nil(record.version);
        reply.field("token").int(grant.is_some_and(|g| g.token.is_some()).into());
        reply.field("revoked").int(record.revoked.into());
        devices(ctx, record);
    }
    Ok(())
}

fn devices(ctx: Ctx, record: &Record) {
    let reply = ctx.reply();
    reply.field("devices").array(record.devices.len());
    for device in &record.devices {
        reply.bulk(device.as_bytes());
    }
}
