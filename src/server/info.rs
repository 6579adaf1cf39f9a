//! `INFO lease`: gauges as a full scan of this moment would count them, counters and distributions since the start.
//!
//! The server prefixes every name with `lease_`. A field is there from the start, with 0. CONFIG RESETSTAT leaves them
//! alone: no server tells a module of it. No id of any kind is in here (docs/concepts.md, guarantee 10).

use std::ffi::{c_int, CString};

use redis_module::raw::RedisModuleInfoCtx;

use super::api::{api, Ctx, OK};
use super::entry::guard;
use super::metrics::{self, COUNTERS, DISTRIBUTIONS};
use super::tally::Distribution;
use super::{gauges, rooms};
use crate::core::lease::Reason;
use crate::core::refusal::Refusal;
use crate::core::replay::Resync;

pub fn register(ctx: Ctx) -> Result<(), String> {
    // SAFETY: the context is live.
    if unsafe { api!(RedisModule_RegisterInfoFunc)(ctx.as_ptr(), Some(info)) } == OK {
        Ok(())
    } else {
        Err("the server refused the INFO section".to_owned())
    }
}

unsafe extern "C" fn info(ctx: *mut RedisModuleInfoCtx, for_crash_report: c_int) {
    // A crash may have come from the allocator, or from the middle of a change.
    if for_crash_report == 0 {
        guard(|| tell(Section(ctx)));
    }
}

/// The answer to one INFO.
#[derive(Clone, Copy)]
struct Section(*mut RedisModuleInfoCtx);

impl Section {
    /// Begins the section that bears the module's name; false if the caller asked for others only.
    fn begin(self) -> bool {
        // SAFETY: the server's context is live during its callback.
        unsafe { api!(RedisModule_InfoAddSection)(self.0, std::ptr::null()) == OK }
    }

    fn field(self, name: &str, value: u64) {
        if let Ok(name) = CString::new(name) {
            // SAFETY: as above; the server copies the name.
            unsafe { api!(RedisModule_InfoAddFieldULongLong)(self.0, name.as_ptr(), value) };
        }
    }

    fn distribution(self, name: &str, of: &Distribution) {
        self.field(&format!("{name}_p50"), of.percentile(50));
        self.field(&format!("{name}_p99"), of.percentile(99));
        self.field(&format!("{name}_max"), of.max());
    }
}

fn tell(section: Section) {
    if section.begin() {
        tell_gauges(section);
        tell_counters(section);
        tell_distributions(section);
    }
}

fn tell_gauges(section: Section) {
    let (shown, backlog) = gauges::scan(&rooms::env());
    section.field("active_leases", shown.leases);
    section.field("users", shown.users);
    section.field("rooms", shown.rooms);
    section.field("orphan_rooms", shown.orphans);
    section.field("tombstones", shown.tombstones);
    section.field("dedupe_records", shown.dedupe_records);
    section.field("reap_backlog", backlog);
}

fn tell_counters(section: Section) {
    section.field("opened", COUNTERS.opened.get());
    section.field("renewed", COUNTERS.renewed.get());
    section.field("duplicate", COUNTERS.duplicate.get());
    for (reason, ended) in Reason::ALL.iter().zip(&COUNTERS.ended) {
        section.field(&format!("ended_{}", reason.word()), ended.get());
    }
    section.field("false_offline", COUNTERS.false_offline.get());
    for (refusal, rejected) in Refusal::KINDS.iter().zip(&COUNTERS.rejected) {
        let words = [Some("rejected"), Some(refusal.code()), refusal.word()];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        section.field(&words.join("_").to_ascii_lowercase(), rejected.get());
    }
    section.field("messages_accepted", COUNTERS.messages_accepted.get());
    section.field("messages_duplicate", COUNTERS.messages_duplicate.get());
    section.field("messages_conflicting", metrics::messages_conflicting());
    section.field("replays", COUNTERS.replays.get());
    for (resync, counted) in Resync::ALL.iter().zip(&COUNTERS.resyncs) {
        section.field(&format!("resyncs_{}", resync.word()), counted.get());
    }
    section.field("trims_skipped_by_hold", COUNTERS.trims_skipped_by_hold.get());
    section.field("events_lost", COUNTERS.events_lost.get());
    section.field("effects_not_applied", COUNTERS.effects_not_applied.get());
    section.field("reap_slices", COUNTERS.reap_slices.get());
    section.field("pauses_honoured", COUNTERS.pauses_honoured.get());
}

fn tell_distributions(section: Section) {
    let all = &DISTRIBUTIONS;
    section.distribution("expiry_age_ms", &all.expiry_age_ms);
    for (reason, delay) in Reason::ALL.iter().zip(&all.reconnect_ms) {
        // Its successor's OPEN ends a superseded lease: that holder was never away.
        if *reason != Reason::Superseded {
            section.distribution(&format!("reconnect_{}_ms", reason.word()), delay);
        }
    }
    section.distribution("heartbeat_gap_ms", &all.heartbeat_gap_ms);
    section.distribution("client_skew_behind_ms", &all.skew_behind_ms);
    section.distribution("client_skew_ahead_ms", &all.skew_ahead_ms);
    section.distribution("send_us", &all.send_us);
    section.distribution("replay_us", &all.replay_us);
    section.distribution("slice_us", &all.slice_us);
}
