//! LATENCY: the reaper's slices beside the server's own events, under the name `lease-reaper`.

use std::ffi::CStr;
use std::time::Duration;

use super::api::{api, Ctx};
use super::call::{call, Shape, Words};

const EVENT: &CStr = c"lease-reaper";

/// A slice took so long. LATENCY counts whole milliseconds, so a shorter one costs nothing.
pub fn sample(ctx: Ctx, took: Duration) {
    let ms = i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
    if ms > 0 && is_monitored(ctx) {
        // SAFETY: the name is a C string; the server copies it, and leaves out what is below its threshold.
        unsafe { api!(RedisModule_LatencyAddSample)(EVENT.as_ptr(), ms) };
    }
}

/// Whether the operator wants samples: the server takes those of a module also while its threshold is 0, which means off.
fn is_monitored(ctx: Ctx) -> bool {
    let mut words = Words::with_capacity(2);
    words.literal("GET").literal("latency-monitor-threshold");
    let answer = call(ctx, c"CONFIG", &words);
    let is_on = matches!(answer.at(1), Shape::Bytes(threshold) if threshold != b"0");
    is_on
}
