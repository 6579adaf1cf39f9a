//! LEASE.KICK: ends the leases of a user, a device or a holder. They may open again.

use super::args::{self, Options};
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::refusal::Refusal;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::strings::Args;
use crate::server::{role, rooms, unit};

const USER: Arg = Arg::text("user").token("USER");
const DEVICE: Arg = Arg::text("device").token("DEVICE");

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.kick",
    summary: "Ends the active leases of a user, of a device, or of a user's device",
    complexity: "O(N) with N being the leases of the user; by device alone, of the room",
    since: "0.1.0",
    arity: -2,
    flags: "write",
    categories: "dangerous",
    key: KeyAccess::Remove,
    args: &[Arg::ROOM, Arg::one_of("whom", &[Arg::block("holder", &[USER, DEVICE.optional()]), DEVICE])],
    entry: command_entry!(run),
};

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let (mut user, mut device) = (None, None);
    let mut options = Options::after(args, 2, SPEC.args);
    while let Some(option) = options.next()? {
        match option {
            "USER" => user = Some(options.id()?),
            _ => device = Some(options.id()?),
        }
    }
    if user.is_none() && device.is_none() {
        return Err(Refusal::Bad("name a USER, a DEVICE or both"));
    }
    role::check_may_decide(ctx)?;
    let (name, env) = (args.str(1), rooms::env());
    let kicked = {
        let mut key = Key::write(ctx, name);
        rooms::find(ctx, &mut key, name, &env)?.map(|value| value.room.decide_kick(user, device, &env))
    };
    let mut count = 0;
    if let Some((plan, ended)) = kicked.filter(|(_, ended)| *ended > 0) {
        unit::commit(ctx, name, plan, None, &env)?;
        count = ended;
    }
    ctx.reply().int(count);
    Ok(())
}
