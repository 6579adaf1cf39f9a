//! Keys that hold a value of the module's own type.

use std::ffi::{c_int, CStr};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw::{self, RedisModuleKey, RedisModuleType, RedisModuleTypeMethods};

use super::api::{api, Ctx, OK};
use super::strings::Str;

/// The type of keys whose value is a boxed `T`.
pub struct KeyType<T> {
    registered: AtomicPtr<RedisModuleType>,
    value: PhantomData<fn() -> T>,
}

impl<T> KeyType<T> {
    pub const fn unregistered() -> Self {
        Self { registered: AtomicPtr::new(std::ptr::null_mut()), value: PhantomData }
    }

    /// Registers the type; once, at load. False when the server refuses it.
    ///
    /// # Safety
    /// Every value that `methods` load or copy comes from `Box::<T>::into_raw`, and they free it as such.
    pub unsafe fn register(&self, ctx: Ctx, name: &CStr, encver: i32, methods: &mut RedisModuleTypeMethods) -> bool {
        // SAFETY: all are live; the server copies the methods.
        let registered =
            unsafe { api!(RedisModule_CreateDataType)(ctx.as_ptr(), name.as_ptr(), encver, &raw mut *methods) };
        self.registered.store(registered, Ordering::Relaxed);
        !registered.is_null()
    }

    fn as_ptr(&self) -> *mut RedisModuleType {
        self.registered.load(Ordering::Relaxed)
    }
}

/// What a key holds.
pub enum Kind<'a, T> {
    Missing,
    Value(&'a mut T),
    /// A value of another type.
    Other,
}

/// An open key. Close it (drop it) before calling commands that may touch the same key.
pub struct Key(*mut RedisModuleKey);

impl Key {
    pub fn read(ctx: Ctx, name: Str<'_>) -> Self {
        Self::open(ctx, name, raw::REDISMODULE_READ)
    }

    /// Opening for writing signals nothing by itself: see the module options set at load.
    pub fn write(ctx: Ctx, name: Str<'_>) -> Self {
        Self::open(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    fn open(ctx: Ctx, name: Str<'_>, mode: u32) -> Self {
        // SAFETY: both are live; null stands for a key that is missing and was opened for reading.
        Self(unsafe { api!(RedisModule_OpenKey)(ctx.as_ptr(), name.as_ptr(), mode as c_int) })
    }

    pub fn kind<T>(&mut self, key_type: &KeyType<T>) -> Kind<'_, T> {
        if self.0.is_null() {
            return Kind::Missing;
        }
        // SAFETY: the key is open. A value of `key_type` is a boxed T (the promise of `register`), and the borrow
        // of `self` keeps any other reference to it away.
        unsafe {
            let found = api!(RedisModule_ModuleTypeGetType)(self.0);
            if found.is_null() {
                let empty = api!(RedisModule_KeyType)(self.0) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int;
                return if empty { Kind::Missing } else { Kind::Other };
            }
            if found != key_type.as_ptr() {
                return Kind::Other;
            }
            Kind::Value(&mut *api!(RedisModule_ModuleTypeGetValue)(self.0).cast::<T>())
        }
    }

    pub fn is_stream(&self) -> bool {
        // SAFETY: the key is open or null, which the server takes for an empty one.
        !self.0.is_null() && unsafe { api!(RedisModule_KeyType)(self.0) } == raw::REDISMODULE_KEYTYPE_STREAM as c_int
    }

    /// Elements of the value, 0 if there is none.
    pub fn len(&self) -> usize {
        // SAFETY: as above.
        unsafe { api!(RedisModule_ValueLength)(self.0) }
    }

    pub(super) fn as_ptr(&self) -> *mut RedisModuleKey {
        self.0
    }

    /// Replaces whatever the key holds; its expiry goes too. The key must be open for writing.
    pub fn set_value<T>(&mut self, key_type: &KeyType<T>, value: Box<T>) {
        let value = Box::into_raw(value);
        // SAFETY: the key is open; the server owns the value from here, and frees it by the type's methods.
        let set = unsafe { api!(RedisModule_ModuleTypeSetValue)(self.0, key_type.as_ptr(), value.cast()) };
        if set != OK {
            // SAFETY: the server did not take it.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and not used again; null is allowed.
        unsafe { api!(RedisModule_CloseKey)(self.0) };
    }
}
