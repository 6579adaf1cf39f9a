//! Server events: a load that ended, a role that changed, databases flushed or swapped, the cron.

use std::ffi::c_void;

use redis_module::raw;

use super::api::Ctx;
use super::{deadlines, entry, keyspace, rooms};

/// Subscribes to all of them.
pub fn subscribe(ctx: Ctx) -> Result<(), String> {
    let wanted: [(u64, entry::EventHandler); 5] = [
        (raw::REDISMODULE_EVENT_LOADING, loading),
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, role_changed),
        (raw::REDISMODULE_EVENT_FLUSHDB, flushed),
        (raw::REDISMODULE_EVENT_SWAPDB, swapped),
        (raw::REDISMODULE_EVENT_CRON_LOOP, cron),
    ];
    for (id, handler) in wanted {
        if !entry::on_event(ctx, id, handler) {
            return Err(format!("the server has no event {id}"));
        }
    }
    Ok(())
}

fn loading(ctx: Ctx, subevent: u64, _data: *const c_void) {
    let ended = [raw::REDISMODULE_SUBEVENT_LOADING_ENDED, raw::REDISMODULE_SUBEVENT_LOADING_FAILED];
    if ended.map(u64::from).contains(&subevent) {
        rooms::begin_era();
        deadlines::arm(ctx);
    }
}

/// Nothing may be written from here: only a timer is armed.
fn role_changed(ctx: Ctx, subevent: u64, _data: *const c_void) {
    if subevent == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER {
        rooms::begin_era();
        deadlines::arm_after(ctx, 0);
    }
}

fn flushed(_ctx: Ctx, subevent: u64, data: *const c_void) {
    if subevent == raw::REDISMODULE_SUBEVENT_FLUSHDB_START && !data.is_null() {
        // SAFETY: the server documents this data for the event, in version 1.
        let info = unsafe { &*data.cast::<raw::RedisModuleFlushInfo>() };
        keyspace::flushed(info.dbnum);
    }
}

fn swapped(_ctx: Ctx, _subevent: u64, data: *const c_void) {
    if !data.is_null() {
        // SAFETY: the server documents this data for the event, in version 1.
        let info = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
        keyspace::swapped(info.dbnum_first, info.dbnum_second);
    }
}

fn cron(ctx: Ctx, _subevent: u64, _data: *const c_void) {
    deadlines::watch(ctx);
}
