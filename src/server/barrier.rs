//! With a manual clock, what fell due inside a transaction or script is reaped before the next command of any client.
//!
//! No server tells when a transaction is over, but each hands a command to its filters before it runs: outside of any
//! execution, since what stands in a MULTI was filtered when it was queued. Reaping goes by LEASE.CLOCK, so that it
//! has a command's context, and its writes go to replicas as one unit (the server does not send the call itself: it
//! leaves that to a module's commands).

use redis_module::raw::{self, RedisModuleCommandFilterCtx};

use super::api::{api, Ctx};
use super::call::{call_replicated, Words};
use super::entry::guard;
use super::reaper;

pub fn install(ctx: Ctx) {
    // The filter must not see the module's own calls: it makes one.
    let flags = raw::REDISMODULE_CMDFILTER_NOSELF as i32;
    // SAFETY: the context is live.
    unsafe { api!(RedisModule_RegisterCommandFilter)(ctx.as_ptr(), Some(filter), flags) };
}

unsafe extern "C" fn filter(_command: *mut RedisModuleCommandFilterCtx) {
    guard(|| {
        let ctx = Ctx::detached();
        if !ctx.flags().in_script() && reaper::is_due() {
            let mut words = Words::with_capacity(2);
            words.literal("ADVANCE").number(0);
            call_replicated(ctx, c"LEASE.CLOCK", &words);
        }
    });
}
