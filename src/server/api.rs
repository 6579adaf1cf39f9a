//! The server as one context sees it: flags, database, notifications, replication of the whole command.
//!
//! What a server can do is asked of its function pointers, never of its version number: Valkey reports its own.

use std::cell::OnceCell;
use std::ffi::{c_int, c_void, CStr};
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;
pub use redis_module::raw::RedisModuleCtx;

use super::strings::Str;

/// A module API function. Use inside `unsafe`; the pointers are filled once, before OnLoad does anything else.
macro_rules! api {
    ($name:ident) => {
        redis_module::raw::$name.expect(stringify!($name))
    };
}
pub(crate) use api;

/// Whether this server has the function.
macro_rules! has_api {
    ($name:ident) => {{
        // SAFETY: the pointers are filled once, before OnLoad does anything else.
        let function = unsafe { redis_module::raw::$name };
        function.is_some()
    }};
}
pub(crate) use has_api;

/// What the server calls success.
pub const OK: c_int = raw::REDISMODULE_OK as c_int;
pub const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// A context handed out by the server, or the module's own detached one. Valid on the main thread, inside the
/// callback that brought it; copies of it must not be kept.
#[derive(Clone, Copy)]
pub struct Ctx(*mut RedisModuleCtx);

thread_local! {
    static IN_CLUSTER: OnceCell<bool> = const { OnceCell::new() };
}

static DETACHED: AtomicPtr<RedisModuleCtx> = AtomicPtr::new(std::ptr::null_mut());

impl Ctx {
    /// # Safety
    /// `ctx` is a live context and stays so while the result is used.
    pub unsafe fn new(ctx: *mut RedisModuleCtx) -> Self {
        Self(ctx)
    }

    pub fn as_ptr(self) -> *mut RedisModuleCtx {
        self.0
    }

    /// The module's own context, for work that no command or callback brought. Main thread only.
    pub fn detached() -> Self {
        Self(DETACHED.load(Ordering::Relaxed))
    }

    /// Makes the detached context; once, at load.
    pub fn detach(self) {
        // SAFETY: `self` is live.
        let detached = unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(self.0) };
        DETACHED.store(detached, Ordering::Relaxed);
    }

    /// Frees the detached context, for a module that does not stay: the server would keep it, and the client within.
    pub fn drop_detached() {
        let detached = DETACHED.swap(std::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: `detach` made it, and nothing has it any more.
        unsafe { api!(RedisModule_FreeThreadSafeContext)(detached) };
    }

    pub fn flags(self) -> Flags {
        // SAFETY: `self` is live.
        Flags(unsafe { api!(RedisModule_GetContextFlags)(self.0) } as u32)
    }

    /// Whether this node is one of a cluster, which never changes: asking the server costs as much as a short reply.
    pub fn in_cluster(self) -> bool {
        IN_CLUSTER.with(|known| *known.get_or_init(|| self.flags().has(raw::REDISMODULE_CTX_FLAGS_CLUSTER)))
    }

    /// The selected database.
    pub fn db(self) -> i32 {
        // SAFETY: `self` is live.
        unsafe { api!(RedisModule_GetSelectedDb)(self.0) }
    }

    /// False when there is no such database.
    pub fn select_db(self, db: i32) -> bool {
        // SAFETY: `self` is live.
        unsafe { api!(RedisModule_SelectDb)(self.0, db) == OK }
    }

    /// Tells WATCH and client-side caches that the key changed.
    pub fn signal_modified(self, key: Str<'_>) {
        // SAFETY: both are live.
        unsafe { api!(RedisModule_SignalModifiedKey)(self.0, key.as_ptr()) };
    }

    /// A keyspace notification of class module (`d`).
    pub fn notify(self, event: &CStr, key: Str<'_>) {
        // SAFETY: all are live; the server copies what it keeps.
        unsafe {
            api!(RedisModule_NotifyKeyspaceEvent)(self.0, raw::REDISMODULE_NOTIFY_MODULE, event.as_ptr(), key.as_ptr())
        };
    }

    /// Hides an argument from SLOWLOG and MONITOR; inside a script, which shows its arguments whole, it does nothing.
    /// Only once the command is done with its arguments: in a Valkey 8.1 transaction this frees the one it hides.
    pub fn redact(self, index: usize) {
        let Ok(index) = c_int::try_from(index) else { return };
        // SAFETY: `self` is live; the server checks the index.
        unsafe { api!(RedisModule_RedactClientCommandArgument)(self.0, index) };
    }

    /// Replicates the command as the caller wrote it. Never together with [`super::call::replicate`].
    pub fn replicate_verbatim(self) {
        // SAFETY: `self` is live.
        unsafe { api!(RedisModule_ReplicateVerbatim)(self.0) };
    }
}

/// Where a context stands: bits of `RedisModule_GetContextFlags`.
#[derive(Clone, Copy)]
pub struct Flags(u32);

impl Flags {
    fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    /// The command came from the primary, or from the node a slot is moving from.
    pub fn replicated(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_REPLICATED)
    }

    pub fn loading(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    pub fn in_multi(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MULTI)
    }

    pub fn in_script(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LUA)
    }

    pub fn primary(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MASTER)
    }

    pub fn out_of_memory(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_OOM)
    }
}

/// Whether this is Valkey: newer options and events have other numbers there than on Redis.
pub fn is_valkey() -> bool {
    let mut function: *mut c_void = std::ptr::null_mut();
    // SAFETY: the name is a C string; the server fills the pointer, or leaves it if it has no such function.
    unsafe { api!(RedisModule_GetApi)(c"ValkeyModule_GetContextFlags".as_ptr(), (&raw mut function).cast()) == OK }
}

/// While true (CLIENT PAUSE, a failover or a shutdown that waits for replicas) a write outside a command aborts
/// the server.
pub fn avoid_replica_traffic() -> bool {
    // SAFETY: takes no arguments and only reads.
    unsafe { api!(RedisModule_AvoidReplicaTraffic)() != 0 }
}

/// Fills `bytes` from the server's generator, seeded from the system's entropy.
pub fn random(bytes: &mut [u8]) {
    // SAFETY: the buffer has that many bytes.
    unsafe { api!(RedisModule_GetRandomBytes)(bytes.as_mut_ptr(), bytes.len()) };
}
