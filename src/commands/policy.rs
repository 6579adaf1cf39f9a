//! LEASE.POLICY and LEASE.SETPOLICY: the settings that hold in a room, and those it has for itself.

use super::args::{self, SYNTAX};
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::policy::{OwnPolicy, Policy, Setting, Shown};
use crate::core::refusal::Refusal;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::strings::Args;
use crate::server::{role, rooms, unit};

pub const POLICY: CommandSpec = CommandSpec {
    name: "lease.policy",
    summary: "Tells the settings that hold in a room, and which are its own",
    complexity: "O(1)",
    since: "0.1.0",
    arity: 2,
    flags: "readonly fast",
    categories: "",
    key: KeyAccess::Read,
    args: &[Arg::ROOM],
    entry: command_entry!(tell),
};

pub const SETPOLICY: CommandSpec = CommandSpec {
    name: "lease.setpolicy",
    summary: "Gives a room settings of its own, or lets it follow the node's again",
    complexity: "O(1)",
    since: "0.1.0",
    arity: -4,
    flags: "write deny-oom",
    categories: "dangerous",
    key: KeyAccess::Update,
    args: &[Arg::ROOM, Arg::block("setting", &[Arg::text("field"), Arg::text("value")]).repeated()],
    entry: command_entry!(set),
};

fn tell(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let (name, env) = (args.str(1), rooms::env());
    let mut key = Key::read(ctx, name);
    let none = OwnPolicy::default();
    let value = rooms::find(ctx, &mut key, name, &env)?;
    let own = value.as_ref().map_or(&none, |value| value.room.own_policy());
    let policy = Policy { settings: env.settings, own };
    let fields = || Setting::ALL.into_iter().filter(|setting| setting.per_room());
    let reply = ctx.reply();
    reply.array(fields().count());
    for setting in fields() {
        reply.array(3);
        reply.bulk(setting.room_name().as_bytes());
        match setting.show(policy.effective(setting)) {
            Shown::Int(value) => reply.int(value.unsigned_abs()),
            Shown::Word(word) => reply.bulk(word.as_bytes()),
        }
        reply.int(own.get(setting).is_some().into());
    }
    Ok(())
}

fn set(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let env = rooms::env();
    if args.len() % 2 != 0 {
        return Err(SYNTAX);
    }
    let mut values: Vec<(Setting, Option<i64>)> = Vec::new();
    for at in (2..args.len()).step_by(2) {
        let setting = Setting::from_room_name(args.get(at)).ok_or(Refusal::Bad(
            "no room has this setting; LEASE.POLICY tells those a room may have, without `lease.` or `default-`",
        ))?;
        if values.iter().any(|(known, _)| *known == setting) {
            return Err(Refusal::Bad("a setting is given twice"));
        }
        let text = args.get(at + 1);
        let value = if text.eq_ignore_ascii_case(b"default") {
            None
        } else {
            let value = setting.parse(text).map_err(Refusal::Bad)?;
            env.settings.check_own(setting, value).map_err(Refusal::Bad)?;
            Some(value)
        };
        values.push((setting, value));
    }
    role::check_may_decide(ctx)?;
    let name = args.str(1);
    let (plan, fresh) = rooms::find_or_fresh(ctx, name, &env, |room| Ok(room.decide_policy(values, &env)))?;
    unit::commit(ctx, name, plan, fresh, &env)?;
    ctx.reply().simple(c"OK");
    Ok(())
}
