//! The type `leaseroom`: how the server saves, loads, copies, measures and frees a room.
//!
//! Saving and rewriting run in a forked child, freeing may run on another thread: no shared state there.

use std::ffi::{c_int, c_void, CStr};

use redis_module::raw::{
    RedisModuleDigest, RedisModuleIO, RedisModuleKeyOptCtx, RedisModuleString, RedisModuleTypeMethods,
};

use super::api::{api, Ctx};
use super::entry::guard;
use super::rooms::{self, Arrival, RoomValue, ROOM};
use super::strings::Str;
use super::{clock, defrag, keyspace, load, log, unit};
use crate::core::snapshot::{self, Digest, Loading};

/// Nine characters, part of the RDB format.
const NAME: &CStr = c"leaseroom";
/// The encoding's version; the payload tells its own besides.
const ENCODING: c_int = 1;
/// The version of the methods table that Redis 7.0 knows.
const METHODS: u64 = 4;

pub fn register(ctx: Ctx) -> Result<(), String> {
    let mut methods = RedisModuleTypeMethods {
        version: METHODS,
        rdb_load: Some(rdb_load),
        rdb_save: Some(rdb_save),
        aof_rewrite: Some(aof_rewrite),
        mem_usage: None,
        digest: Some(digest),
        free: Some(free),
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: None,
        unlink: None,
        copy: None,
        defrag: Some(defrag::defrag),
        mem_usage2: Some(mem_usage),
        free_effort2: Some(free_effort),
        unlink2: Some(unlink),
        copy2: Some(copy),
        aux_save2: None,
    };
    // SAFETY: every value these methods make comes from `Box::<RoomValue>::into_raw`, and `free` takes it back so.
    if unsafe { ROOM.register(ctx, NAME, ENCODING, &mut methods) } {
        Ok(())
    } else {
        Err("the server refused the type leaseroom".to_owned())
    }
}

/// # Safety
/// `value` came from `Box::<RoomValue>::into_raw` and nobody changes it meanwhile.
unsafe fn room<'a>(value: *const c_void) -> &'a RoomValue {
    // SAFETY: the caller says so.
    unsafe { &*value.cast() }
}

unsafe extern "C" fn rdb_save(rdb: *mut RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server passes a value of this type.
    let value = unsafe { room(value) };
    guard(|| {
        for part in snapshot::parts(&value.room, rooms::has_begun(value), clock::now()) {
            // SAFETY: `rdb` is live; the server copies the bytes.
            unsafe { api!(RedisModule_SaveStringBuffer)(rdb, part.as_ptr().cast(), part.len()) };
        }
    });
}

unsafe extern "C" fn rdb_load(rdb: *mut RedisModuleIO, encoding: c_int) -> *mut c_void {
    load::mark_used();
    match guard(|| read_room(rdb, encoding)) {
        Some(Ok(value)) => Box::into_raw(Box::new(value)).cast(),
        Some(Err(reason)) => {
            log::warning(&format!("a room was not loaded: {reason}; it is damaged, or a newer module wrote it"));
            std::ptr::null_mut()
        }
        None => std::ptr::null_mut(),
    }
}

fn read_room(rdb: *mut RedisModuleIO, encoding: c_int) -> Result<RoomValue, String> {
    if encoding != ENCODING {
        return Err(format!("encoding {encoding} is not {ENCODING}, the newest this version of the module knows"));
    }
    let mut loading = Loading::default();
    let now = clock::now();
    while !loading.is_complete() {
        let part = read_part(rdb).ok_or("its payload ends early")?;
        loading.part(&part, now).map_err(|corrupt| corrupt.0.to_owned())?;
    }
    // What a load brings begins anew when it is over, with all the others.
    let arrival = if Ctx::detached().flags().loading() { Arrival::Settled } else { Arrival::Restored };
    keyspace::arriving();
    Ok(RoomValue::new(loading.into_room(), arrival))
}

fn read_part(rdb: *mut RedisModuleIO) -> Option<Vec<u8>> {
    let mut len = 0;
    // SAFETY: `rdb` is live; the buffer is ours and freed below.
    unsafe {
        let buffer = api!(RedisModule_LoadStringBuffer)(rdb, &raw mut len);
        if api!(RedisModule_IsIOError)(rdb) != 0 || buffer.is_null() {
            return None;
        }
        let part = std::slice::from_raw_parts(buffer.cast::<u8>(), len).to_vec();
        api!(RedisModule_Free)(buffer.cast());
        Some(part)
    }
}

/// A rewritten AOF, and a slot on its way to another Valkey, get the room as the snapshot's parts.
unsafe extern "C" fn aof_rewrite(aof: *mut RedisModuleIO, key: *mut RedisModuleString, value: *mut c_void) {
    // SAFETY: the server passes a value of this type.
    let value = unsafe { room(value) };
    guard(|| {
        for part in snapshot::parts(&value.room, rooms::has_begun(value), clock::now()) {
            // SAFETY: all are live; the format announces a string and a buffer with its length.
            unsafe {
                api!(RedisModule_EmitAOF)(aof, unit::APPLY.as_ptr(), c"sb".as_ptr(), key, part.as_ptr(), part.len());
            }
        }
    });
}

struct DigestOf(*mut RedisModuleDigest);

impl Digest for DigestOf {
    fn bytes(&mut self, bytes: &[u8]) {
        // SAFETY: the digest is live while the server's call lasts.
        unsafe { api!(RedisModule_DigestAddStringBuffer)(self.0, bytes.as_ptr().cast(), bytes.len()) };
    }

    fn number(&mut self, number: u64) {
        // SAFETY: as above.
        unsafe { api!(RedisModule_DigestAddLongLong)(self.0, number as i64) };
    }

    fn end_item(&mut self) {
        // SAFETY: as above.
        unsafe { api!(RedisModule_DigestEndSequence)(self.0) };
    }
}

unsafe extern "C" fn digest(digest: *mut RedisModuleDigest, value: *mut c_void) {
    // SAFETY: the server passes a value of this type.
    let value = unsafe { room(value) };
    guard(|| snapshot::digest(&value.room, &mut DigestOf(digest)));
}

unsafe extern "C" fn mem_usage(_ctx: *mut RedisModuleKeyOptCtx, value: *const c_void, _samples: usize) -> usize {
    // SAFETY: the server passes a value of this type.
    let value = unsafe { room(value) };
    guard(|| size_of::<RoomValue>() + value.room.heap_bytes()).unwrap_or(0)
}

unsafe extern "C" fn free(value: *mut c_void) {
    guard(|| {
        // SAFETY: the server owned the value and gives it back for good.
        drop(unsafe { Box::from_raw(value.cast::<RoomValue>()) });
    });
}

/// How many allocations freeing takes, so that the server frees large rooms in the background.
unsafe extern "C" fn free_effort(_ctx: *mut RedisModuleKeyOptCtx, value: *const c_void) -> usize {
    // SAFETY: the server passes a value of this type.
    let value = unsafe { room(value) };
    guard(|| value.room.free_effort()).unwrap_or(1)
}

unsafe extern "C" fn unlink(ctx: *mut RedisModuleKeyOptCtx, value: *const c_void) {
    // SAFETY: the server passes its context, with a live name, and a value of this type on the main thread; nothing
    // else refers to the value while the server unlinks it.
    let (db, name, value) = unsafe {
        let name = api!(RedisModule_GetKeyNameFromOptCtx)(ctx);
        let db = api!(RedisModule_GetDbIdFromOptCtx)(ctx);
        (db, Str::new(name.cast_mut()), &mut *value.cast_mut().cast::<RoomValue>())
    };
    guard(|| keyspace::unlinked(db, name.bytes(), value));
}

unsafe extern "C" fn copy(ctx: *mut RedisModuleKeyOptCtx, value: *const c_void) -> *mut c_void {
    // SAFETY: the context is live.
    keyspace::called_in(unsafe { api!(RedisModule_GetDbIdFromOptCtx)(ctx) });
    // SAFETY: the server passes a value of this type.
    let value = unsafe { room(value) };
    let copied = guard(|| Box::new(value.copied()));
    copied.map_or(std::ptr::null_mut(), |copied| Box::into_raw(copied).cast())
}
