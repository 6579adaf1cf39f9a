//! The node's settings as the server's own configuration: `CONFIG SET lease.<name>`, `CONFIG REWRITE`, and arguments
//! of `loadmodule`.
//!
//! A load argument is registered as the setting's default: a `lease.<name>` line of the configuration file goes
//! before it, and CONFIG REWRITE writes such lines only for what differs from the arguments it keeps.
//!
//! CONFIG SET first sets each value, then applies them together, and puts the old ones back if either refuses. So
//! there are two copies: the pending one the server sees, and the applied one everyone else does.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_char, c_int, c_longlong, c_void, CString};
use std::sync::LazyLock;

use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};

use super::api::{api, Ctx, ERR, OK};
use super::strings::OwnedStr;
use super::{clock, deadlines, log, role};
use crate::core::policy::{Domain, Setting, Settings};

/// Settings that only the main thread touches.
struct MainThread(UnsafeCell<Settings>);

// SAFETY: the server runs commands, timers and configuration callbacks on its main thread, one at a time.
unsafe impl Sync for MainThread {}

static PENDING: LazyLock<MainThread> = LazyLock::new(|| MainThread(UnsafeCell::default()));
static APPLIED: LazyLock<MainThread> = LazyLock::new(|| MainThread(UnsafeCell::default()));

impl MainThread {
    fn get(&self) -> &Settings {
        // SAFETY: changed only in configuration callbacks and at load, which run between the uses of others.
        unsafe { &*self.0.get() }
    }

    fn change(&self, change: impl FnOnce(&mut Settings)) {
        // SAFETY: as above; `change` calls nothing that reads settings.
        change(unsafe { &mut *self.0.get() });
    }
}

/// The settings in force. Main thread only, and not to be kept across callbacks.
pub fn settings() -> &'static Settings {
    APPLIED.get()
}

thread_local! {
    static ACCESS_SERIAL: Cell<u32> = const { Cell::new(0) };
}

/// Another one after each change of `default-access`: the reaper brings every room up to it.
pub fn access_serial() -> u32 {
    ACCESS_SERIAL.get()
}

/// Registers every setting, with the values of `arguments` as defaults, and takes over the configuration file's.
pub fn register(ctx: Ctx, arguments: &[(Setting, i64)]) -> Result<(), String> {
    let mut defaults = Settings::default();
    defaults.set(arguments)?;
    for setting in Setting::ALL {
        if !register_one(ctx, setting, defaults.get(setting)) {
            return Err(format!("the server refused the setting {}", setting.name()));
        }
    }
    // SAFETY: the context is live. The server says itself which value of the file it refuses.
    if unsafe { api!(RedisModule_LoadConfigs)(ctx.as_ptr()) } != OK {
        return Err("a setting in the server's configuration was refused".to_owned());
    }
    // What CONFIG REWRITE wrote must load again: a ttl left outside bounds that moved later is clamped, not refused.
    let loaded = PENDING.get();
    loaded.check(loaded)?;
    if loaded.check_own(Setting::TtlMs, loaded.get(Setting::TtlMs)).is_err() {
        log::warning("ttl-ms is outside ttl-min-ms and ttl-max-ms: leases get the nearer of these");
    }
    APPLIED.change(|applied| applied.clone_from(loaded));
    Ok(())
}

fn register_one(ctx: Ctx, setting: Setting, default: i64) -> bool {
    let Ok(name) = CString::new(setting.name()) else { return false };
    let flags =
        if setting.only_at_load() { raw::REDISMODULE_CONFIG_IMMUTABLE } else { raw::REDISMODULE_CONFIG_DEFAULT };
    let (ctx, name, data) = (ctx.as_ptr(), name.as_ptr(), setting.code() as usize as *mut c_void);
    // SAFETY: all are live and the server copies the texts; the data is a number, never followed.
    let registered = unsafe {
        match setting.domain() {
            Domain::AtLeast(least) => api!(RedisModule_RegisterNumericConfig)(
                ctx,
                name,
                default,
                flags,
                least,
                i64::MAX,
                Some(get_number),
                Some(set_number),
                Some(apply),
                data,
            ),
            Domain::YesNo => api!(RedisModule_RegisterBoolConfig)(
                ctx,
                name,
                default as c_int,
                flags,
                Some(get_word),
                Some(set_word),
                Some(apply),
                data,
            ),
            Domain::Words(words) => {
                let words: Vec<CString> = words.iter().filter_map(|word| CString::new(*word).ok()).collect();
                let mut words: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
                let places: Vec<c_int> = (0..words.len() as c_int).collect();
                api!(RedisModule_RegisterEnumConfig)(
                    ctx,
                    name,
                    default as c_int,
                    flags,
                    words.as_mut_ptr(),
                    places.as_ptr(),
                    places.len() as c_int,
                    Some(get_word),
                    Some(set_word),
                    Some(apply),
                    data,
                )
            }
        }
    };
    registered == OK
}

/// Puts what is pending in force, or says why not.
fn take_over() -> Result<(), &'static str> {
    let (pending, applied) = (PENDING.get(), APPLIED.get());
    pending.check(applied)?;
    // A replica's leases are cut by its primary, and by the history that a promotion begins.
    if pending.get(Setting::DefaultAccess) != applied.get(Setting::DefaultAccess) && role::may_decide(Ctx::detached()) {
        ACCESS_SERIAL.set(ACCESS_SERIAL.get().wrapping_add(1));
    }
    APPLIED.change(|applied| applied.clone_from(PENDING.get()));
    // A shorter window of empty rooms, say, must not wait for what the longer one had announced.
    deadlines::look_at_all(clock::now().mono);
    deadlines::arm(Ctx::detached());
    Ok(())
}

fn setting_of(data: *mut c_void) -> Option<Setting> {
    Setting::from_code(u8::try_from(data as usize).ok()?)
}

fn get(data: *mut c_void) -> i64 {
    setting_of(data).map_or(0, |setting| PENDING.get().get(setting))
}

fn set(data: *mut c_void, value: i64) -> c_int {
    let Some(setting) = setting_of(data) else { return ERR };
    PENDING.change(|pending| pending.put(setting, value));
    OK
}

unsafe extern "C" fn get_number(_name: *const c_char, data: *mut c_void) -> c_longlong {
    get(data)
}

unsafe extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    data: *mut c_void,
    _error: *mut *mut RedisModuleString,
) -> c_int {
    set(data, value)
}

unsafe extern "C" fn get_word(_name: *const c_char, data: *mut c_void) -> c_int {
    get(data) as c_int
}

unsafe extern "C" fn set_word(
    _name: *const c_char,
    value: c_int,
    data: *mut c_void,
    _error: *mut *mut RedisModuleString,
) -> c_int {
    set(data, i64::from(value))
}

unsafe extern "C" fn apply(_ctx: *mut RedisModuleCtx, _data: *mut c_void, error: *mut *mut RedisModuleString) -> c_int {
    match take_over() {
        Ok(()) => OK,
        Err(text) => {
            // SAFETY: the server passes a place for the error, and frees the string.
            unsafe { *error = OwnedStr::new(text.as_bytes()).into_raw() };
            ERR
        }
    }
}
