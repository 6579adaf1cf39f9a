//! Every way in from the server: commands, timers, server events, keyspace notifications.
//!
//! A panic must not cross into C, where it would kill the server: each way in catches it, logs where it came from
//! and answers an error. Handlers therefore check first and change last.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw::{RedisModuleCtx, RedisModuleEvent, RedisModuleString, RedisModuleTimerID};

use super::api::{api, Ctx, OK};
use super::strings::{Args, Str};
use super::{load, log, metrics};
use crate::commands;
use crate::core::refusal::Refusal;

/// What a command does with its arguments. A refusal is answered for it; it has written no reply then.
pub type CommandHandler = fn(Ctx, Args<'_>) -> Result<(), Refusal>;
/// Redacts what must not show in SLOWLOG and MONITOR; told whether the command was refused, as it shows there all the same.
pub type Redactor = fn(Ctx, Args<'_>, bool);
/// The C function the server calls for a command; see `command_entry!`.
pub type CommandEntry = unsafe extern "C" fn(*mut RedisModuleCtx, *mut *mut RedisModuleString, c_int) -> c_int;
pub type TimerHandler = fn(Ctx);
/// The subevent, and the data the server documents for it.
pub type EventHandler = fn(Ctx, u64, *const c_void);
/// The notification's class, its name and the key.
pub type KeyspaceHandler = fn(Ctx, c_int, &CStr, Str<'_>);

/// Runs `work`; none if it panicked, which is in the log by then (see [`log_panics`]).
pub fn guard<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Panics go to the server's log: where, but not what, since a message may carry ids.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        log::warning(&format!("internal error at {place}: a fault of the module, please report this line"));
    }));
}

/// The C function of a command whose handler is `$handler`. Its tokens follow a word, or else `$redactor` knows them.
macro_rules! command_entry {
    ($handler:path) => {
        $crate::server::entry::command_entry!($handler, $crate::server::entry::redact_tokens)
    };
    ($handler:path, $redactor:path) => {{
        unsafe extern "C" fn enter(
            ctx: *mut redis_module::raw::RedisModuleCtx,
            argv: *mut *mut redis_module::raw::RedisModuleString,
            argc: std::ffi::c_int,
        ) -> std::ffi::c_int {
            // SAFETY: the server calls it with a live context and `argc` live strings.
            unsafe { $crate::server::entry::run_command(ctx, argv, argc, $handler, $redactor) }
        }
        enter
    }};
}
pub(crate) use command_entry;

/// # Safety
/// `ctx` and the `argc` strings of `argv` are live during the call.
pub unsafe fn run_command(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
    handler: CommandHandler,
    redactor: Redactor,
) -> c_int {
    load::mark_used();
    // SAFETY: the caller says so.
    let (ctx, args) = unsafe { (Ctx::new(ctx), Args::new(argv, argc)) };
    let done = guard(|| handler(ctx, args));
    // Not before: see `Ctx::redact`.
    guard(|| redactor(ctx, args, !matches!(done, Some(Ok(())))));
    match done {
        Some(Ok(())) => {}
        Some(Err(refusal)) => {
            metrics::rejected(&refusal);
            match commands::syntax_broken(args.get(0), &refusal) {
                Some(syntax) => ctx.reply().error(&format_args!("{refusal}; {syntax}")),
                None => ctx.reply().error(&refusal),
            }
        }
        None => ctx.reply().error(&"ERR internal error; the server's log tells where"),
    }
    OK
}

/// Whatever follows the word TOKEN or GRANT-TOKEN, in commands that take no token too; a word too many does no harm. From
/// the end on, since an argument must not be read once it is redacted.
pub fn redact_tokens(ctx: Ctx, args: Args<'_>, _refused: bool) {
    for at in (2..args.len()).rev() {
        let word = args.get(at - 1);
        if word.eq_ignore_ascii_case(b"TOKEN") || word.eq_ignore_ascii_case(b"GRANT-TOKEN") {
            ctx.redact(at);
        }
    }
}

/// Some 36 minutes. Redis 7.0 takes the wait that is left after one timer has fired for microseconds in 32 bits: from a longer one
/// it makes a moment that has passed, and turns round without a pause for as long.
const LONGEST_WAIT_MS: u64 = i32::MAX as u64 / 1000;

/// A timer that has been started and not fired.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Timer(RedisModuleTimerID);

impl Timer {
    /// Calls `handler` once, `after_ms` from now by the wall clock, or earlier if that is long: a backward step delays it.
    pub fn start(ctx: Ctx, after_ms: u64, handler: TimerHandler) -> Self {
        let after_ms = after_ms.min(LONGEST_WAIT_MS) as i64;
        // SAFETY: the context is live; the data is the handler's address, which outlives every timer.
        Self(unsafe { api!(RedisModule_CreateTimer)(ctx.as_ptr(), after_ms, Some(fire), handler as *mut c_void) })
    }

    /// Never from within its own handler: the server frees a firing timer itself.
    pub fn stop(self, ctx: Ctx) {
        // SAFETY: the context is live; an unknown timer is an error without effect.
        unsafe { api!(RedisModule_StopTimer)(ctx.as_ptr(), self.0, std::ptr::null_mut()) };
    }
}

unsafe extern "C" fn fire(ctx: *mut RedisModuleCtx, data: *mut c_void) {
    // SAFETY: `Timer::start` gave this handler's address as data.
    let handler: TimerHandler = unsafe { std::mem::transmute(data) };
    // SAFETY: the server calls with a live context.
    let ctx = unsafe { Ctx::new(ctx) };
    guard(|| handler(ctx));
}

/// Calls `handler` once, in the event loop's next round.
pub fn in_next_round(handler: TimerHandler) {
    // SAFETY: the data is the handler's address, which outlives every round.
    unsafe { api!(RedisModule_EventLoopAddOneShot)(Some(one_shot), handler as *mut c_void) };
}

unsafe extern "C" fn one_shot(data: *mut c_void) {
    // SAFETY: `in_next_round` gave this handler's address as data.
    let handler: TimerHandler = unsafe { std::mem::transmute(data) };
    guard(|| handler(Ctx::detached()));
}

/// Handlers by event id: the server passes the id, not data of ours. No server numbers 32 events yet.
static EVENT_HANDLERS: [AtomicPtr<c_void>; 32] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 32];

/// Subscribes to a server event, one handler an event. False when this server has no such event.
pub fn on_event(ctx: Ctx, id: u64, handler: EventHandler) -> bool {
    let Some(slot) = usize::try_from(id).ok().and_then(|id| EVENT_HANDLERS.get(id)) else { return false };
    slot.store(handler as *mut c_void, Ordering::Relaxed);
    // SAFETY: the context is live; version 1 of the data is what every server sends.
    unsafe {
        api!(RedisModule_SubscribeToServerEvent)(ctx.as_ptr(), RedisModuleEvent { id, dataver: 1 }, Some(event)) == OK
    }
}

unsafe extern "C" fn event(ctx: *mut RedisModuleCtx, event: RedisModuleEvent, subevent: u64, data: *mut c_void) {
    let slot = usize::try_from(event.id).ok().and_then(|id| EVENT_HANDLERS.get(id));
    let Some(handler) = slot.map(|slot| slot.load(Ordering::Relaxed)).filter(|handler| !handler.is_null()) else {
        return;
    };
    // SAFETY: `on_event` stored this handler's address.
    let handler: EventHandler = unsafe { std::mem::transmute(handler) };
    // SAFETY: the server calls with a live context.
    let ctx = unsafe { Ctx::new(ctx) };
    guard(|| handler(ctx, subevent, data));
}

static KEYSPACE_HANDLER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Subscribes to keyspace notifications of these classes; once, at load.
pub fn on_keyspace(ctx: Ctx, classes: c_int, handler: KeyspaceHandler) -> bool {
    KEYSPACE_HANDLER.store(handler as *mut c_void, Ordering::Relaxed);
    // SAFETY: the context is live.
    unsafe { api!(RedisModule_SubscribeToKeyspaceEvents)(ctx.as_ptr(), classes, Some(keyspace)) == OK }
}

unsafe extern "C" fn keyspace(
    ctx: *mut RedisModuleCtx,
    class: c_int,
    event: *const c_char,
    key: *mut RedisModuleString,
) -> c_int {
    let handler = KEYSPACE_HANDLER.load(Ordering::Relaxed);
    if handler.is_null() {
        return OK;
    }
    // SAFETY: `on_keyspace` stored this handler's address; the server calls with a live context, name and key.
    let (handler, ctx, event, key) = unsafe {
        (
            std::mem::transmute::<*mut c_void, KeyspaceHandler>(handler),
            Ctx::new(ctx),
            CStr::from_ptr(event),
            Str::new(key),
        )
    };
    guard(|| handler(ctx, class, event, key));
    OK
}
