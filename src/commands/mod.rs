//! The commands: each file one verb, with its row, its grammar, its reply.

pub mod ack;
pub mod apply;
pub mod args;
pub mod clock;
pub mod count;
pub mod get;
pub mod grant;
pub mod help;
pub mod hold;
pub mod inspect;
pub mod kick;
pub mod lag;
pub mod leave;
pub mod mark;
pub mod mrenew;
pub mod open;
pub mod policy;
pub mod reap;
pub mod renew;
pub mod replay;
pub mod roster;
pub mod send;
pub mod spec;
pub mod stats;

use spec::CommandSpec;

use crate::core::refusal::Refusal;

/// Every command the module registers.
pub const COMMANDS: &[&CommandSpec] = &[
    &open::SPEC,
    &renew::SPEC,
    &mrenew::SPEC,
    &leave::SPEC,
    &kick::SPEC,
    &reap::SPEC,
    &get::SPEC,
    &roster::SPEC,
    &count::SPEC,
    &inspect::SPEC,
    &policy::POLICY,
    &policy::SETPOLICY,
    &grant::GRANT,
    &grant::REVOKE,
    &grant::GRANTS,
    &mark::SPEC,
    &ack::SPEC,
    &lag::SPEC,
    &send::SEND,
    &send::POST,
    &replay::REPLAY,
    &replay::SNAPSHOT,
    &hold::HOLD,
    &hold::UNHOLD,
    &hold::HOLDS,
    &hold::TRIM,
    &stats::SPEC,
    &clock::SPEC,
    &help::SPEC,
    &apply::SPEC,
];

/// How the command called so is written, if the refusal says that it was written otherwise.
pub fn syntax_broken(name: &[u8], refusal: &Refusal) -> Option<String> {
    let is_called = |spec: &&&CommandSpec| spec.name.as_bytes().eq_ignore_ascii_case(name);
    (*refusal == args::SYNTAX).then(|| COMMANDS.iter().find(is_called))?.map(|spec| spec.syntax())
}
