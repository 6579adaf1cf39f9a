//! LEASE.HELP: the commands and what they are for, from their rows.

use std::ffi::CString;

use super::spec::{CommandSpec, KeyAccess};
use super::COMMANDS;
use crate::core::refusal::Refusal;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::strings::Args;

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.help",
    summary: "Lists the module's commands",
    complexity: "O(1)",
    since: "0.1.0",
    arity: 1,
    flags: "allow-loading allow-stale",
    categories: "",
    key: KeyAccess::None,
    args: &[],
    entry: command_entry!(run),
};

fn run(ctx: Ctx, _args: Args<'_>) -> Result<(), Refusal> {
    let reply = ctx.reply();
    reply.array(2 * COMMANDS.len());
    for spec in COMMANDS {
        for line in [spec.syntax(), format!("    {}.", spec.summary)] {
            reply.simple(&CString::new(line).unwrap_or_default());
        }
    }
    Ok(())
}
