//! Whether this node may turn time into state (invariant 5), and when.

use super::api::{self, Ctx};
use crate::core::refusal::Refusal;

/// A primary that is not loading, and a command that did not come from another node's decision. A timer or an event
/// asks the same.
pub fn may_decide(ctx: Ctx) -> bool {
    let flags = ctx.flags();
    flags.primary() && !flags.loading() && !flags.replicated()
}

/// The same, as the refusal of a command that writes.
pub fn check_may_decide(ctx: Ctx) -> Result<(), Refusal> {
    if may_decide(ctx) {
        Ok(())
    } else {
        Err(Refusal::ReadOnly)
    }
}

/// A write outside a command must also wait while replica traffic is to be avoided: the server would abort.
pub fn may_write_unasked(ctx: Ctx) -> bool {
    may_decide(ctx) && !api::avoid_replica_traffic()
}
