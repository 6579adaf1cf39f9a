//! Loading and unloading: `loadmodule lease.so [<setting> <value> …] [clock manual [<start-ms>]]`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};

use super::api::{self, api, has_api, Ctx, ERR, OK};
use super::strings::Args;
use super::{barrier, clock, entry, events, info, log, register, room_type, settings};
use crate::commands::COMMANDS;
use crate::core::policy::{integer, Scope, Setting};

/// Of Valkey 9, which else refuses CLUSTER MIGRATESLOTS: rooms may be here before their slot is (see `slots`).
const HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// What an operator may pass at load.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    settings: Vec<(Setting, i64)>,
    manual_from_ms: Option<u64>,
}

/// # Safety
/// The server calls it, once, with a live context and `argc` live strings.
#[no_mangle]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: `ctx` is live; this fills the function pointers every other call goes through.
    let ready =
        unsafe { raw::Export_RedisModule_Init(ctx, c"lease".as_ptr(), version(), raw::REDISMODULE_APIVER_1 as c_int) };
    if ready != OK {
        return ERR;
    }
    // SAFETY: the caller says so.
    let (ctx, args) = unsafe { (Ctx::new(ctx), Args::new(argv, argc)) };
    ctx.detach();
    entry::log_panics();
    match entry::guard(|| load(ctx, args)) {
        Some(Ok(())) => return OK,
        Some(Err(reason)) => log::warning(&format!("not loaded: {reason}")),
        None => {}
    }
    Ctx::drop_detached();
    ERR
}

/// Arms no timer: Redis 8 asserts if it then has to unload the module because of an unknown name in MODULE LOADEX.
fn load(ctx: Ctx, args: Args<'_>) -> Result<(), String> {
    if !has_api!(RedisModule_RegisterNumericConfig) {
        return Err("this server is too old; Redis 7.0 or Valkey is needed".to_owned());
    }
    let words: Vec<&[u8]> = (0..args.len()).map(|index| args.get(index)).collect();
    let arguments = parse(&words)?;
    if let Some(start_ms) = arguments.manual_from_ms {
        clock::make_manual(start_ms);
    }
    let mut options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    if api::is_valkey() {
        options |= HANDLE_ATOMIC_SLOT_MIGRATION;
    }
    // SAFETY: the context is live.
    unsafe { api!(RedisModule_SetModuleOptions)(ctx.as_ptr(), options as c_int) };
    settings::register(ctx, &arguments.settings)?;
    if settings::settings().events_scope() == Scope::Node && ctx.in_cluster() {
        return Err("events-scope node has one stream for all slots: not in a cluster".to_owned());
    }
    room_type::register(ctx)?;
    register::register(ctx, COMMANDS)?;
    info::register(ctx)?;
    if clock::is_manual() {
        log::warning("the clock is manual: no lease ends unless LEASE.CLOCK moves it. For tests and rehearsals alone");
        barrier::install(ctx);
    }
    events::subscribe(ctx)
}

fn parse(words: &[&[u8]]) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut words = words.iter().copied().peekable();
    while let Some(name) = words.next() {
        if name.eq_ignore_ascii_case(b"clock") {
            if arguments.manual_from_ms.is_some()
                || !words.next().is_some_and(|word| word.eq_ignore_ascii_case(b"manual"))
            {
                return Err("the clock is `clock manual [start-ms]`".to_owned());
            }
            let start = words.next_if(|word| Setting::from_name(word).is_none());
            let start_ms = integer(start.unwrap_or(b"0")).filter(|ms| *ms <= clock::LAST_MS);
            arguments.manual_from_ms = Some(start_ms.ok_or("start-ms of the manual clock is out of range")?);
            continue;
        }
        let Some(setting) = Setting::from_name(name) else {
            let hint = if name.starts_with(b"lease.") {
                "; `lease.` stands before a setting in the server's file alone"
            } else {
                ""
            };
            return Err(format!("unknown argument {}{hint}", name.escape_ascii()));
        };
        if arguments.settings.iter().any(|(known, _)| *known == setting) {
            return Err(format!("{} is given twice", setting.name()));
        }
        let value = words.next().ok_or_else(|| format!("{} has no value", setting.name()))?;
        let value = setting.parse(value).map_err(|reason| format!("{}: {reason}", setting.name()))?;
        arguments.settings.push((setting, value));
    }
    Ok(arguments)
}

/// The package's version as the one integer the server shows: 1.2.3 is 10203.
fn version() -> c_int {
    let parts = env!("CARGO_PKG_VERSION").split('.');
    parts.filter_map(|part| part.parse::<c_int>().ok()).fold(0, |version, part| version * 100 + part)
}

static USED: AtomicBool = AtomicBool::new(false);

/// Something may refer to the module's code from now on.
pub fn mark_used() {
    USED.store(true, Ordering::Relaxed);
}

/// # Safety
/// The server calls it.
#[no_mangle]
pub unsafe extern "C" fn RedisModule_OnUnload(_ctx: *mut RedisModuleCtx) -> c_int {
    if USED.load(Ordering::Relaxed) {
        return ERR;
    }
    Ctx::drop_detached();
    OK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Arguments, String> {
        parse(&line.split_whitespace().map(str::as_bytes).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_settings_and_a_clock() {
        assert_eq!(parse_line(""), Ok(Arguments::default()));
        let expected =
            Arguments { settings: vec![(Setting::TtlMs, 5000), (Setting::EventsScope, 1)], manual_from_ms: Some(7) };
        assert_eq!(parse_line("ttl-ms 5000 CLOCK Manual 7 Events-Scope TAG"), Ok(expected));
        assert_eq!(parse_line("clock manual").unwrap().manual_from_ms, Some(0));
        assert_eq!(parse_line("clock manual ttl-ms 5000").unwrap().manual_from_ms, Some(0));
        for bad in [
            "clock",
            "clock real",
            "clock manual 05",
            "clock manual 253402300800000",
            "clock manual 1 clock manual 2",
            "clock manual clock manual",
            "ttl-ms",
            "ttl-ms 0",
            "ttl-ms 5 ttl-ms 6",
            "log-renewals 1",
            "nonsense 1",
            "lease.ttl-ms 5",
        ] {
            assert!(parse_line(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_version_is_one_number() {
        assert_eq!(version(), 100);
    }
}
