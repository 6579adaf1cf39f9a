//! Active defragmentation: a room's blocks move to better pages.
//!
//! The value and its large buffers go at once (the server's hint leaves blocks above its small classes alone); the
//! rare fields of leases, each in a block of its own, go in portions. Hash tables stay where they are.

use std::ffi::{c_int, c_ulong, c_void};
use std::mem::ManuallyDrop;

use redis_module::raw::{RedisModuleDefragCtx, RedisModuleString};

use super::api::api;
use super::entry::guard;
use super::rooms::RoomValue;
use crate::core::room::Mover;

/// Rare fields moved between two looks at whether it is time to stop.
const PORTION: u32 = 64;

struct Defrag(*mut RedisModuleDefragCtx);

impl Defrag {
    /// The block's new place, or its old one if it stays.
    ///
    /// # Safety
    /// `block` was allocated by the server, and nothing but the caller refers to it.
    unsafe fn moved<T>(&self, block: *mut T) -> *mut T {
        // SAFETY: the caller says so; the server copies the bytes and frees the old block.
        let moved = unsafe { api!(RedisModule_DefragAlloc)(self.0, block.cast()) };
        if moved.is_null() {
            block
        } else {
            moved.cast()
        }
    }

    fn should_stop(&self) -> bool {
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_DefragShouldStop)(self.0) != 0 }
    }

    /// Where an earlier call stopped; 0 at the beginning, and for rooms the server defragments in one go.
    fn cursor(&self) -> u32 {
        let mut cursor: c_ulong = 0;
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_DefragCursorGet)(self.0, &raw mut cursor) };
        u32::try_from(cursor).unwrap_or(0)
    }

    /// False where the server wants no second call for this room.
    fn set_cursor(&self, cursor: u32) -> bool {
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_DefragCursorSet)(self.0, cursor.into()) == super::api::OK }
    }
}

impl Mover for Defrag {
    fn vec<T>(&self, v: Vec<T>) -> Vec<T> {
        // Only blocks that the server handed out as they are, unpadded (see `alloc`).
        if v.capacity() == 0 || size_of::<T>() == 0 || align_of::<T>() > align_of::<u64>() {
            return v;
        }
        let mut v = ManuallyDrop::new(v);
        let (len, capacity) = (v.len(), v.capacity());
        // SAFETY: the buffer is the vector's own, and the vector is put together again from where it is now.
        unsafe { Vec::from_raw_parts(self.moved(v.as_mut_ptr()), len, capacity) }
    }

    fn boxed<T>(&self, b: Box<T>) -> Box<T> {
        if size_of::<T>() == 0 || align_of::<T>() > align_of::<u64>() {
            return b;
        }
        // SAFETY: as in `vec`.
        unsafe { Box::from_raw(self.moved(Box::into_raw(b))) }
    }
}

/// The type's defrag method: 1 if it wants to be called again.
///
/// # Safety
/// The server calls it with a live context and a boxed [`RoomValue`] that nothing else refers to.
pub unsafe extern "C" fn defrag(
    ctx: *mut RedisModuleDefragCtx,
    _key: *mut RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    guard(|| {
        let defrag = Defrag(ctx);
        let first = defrag.cursor();
        // SAFETY: the caller says so.
        let room = unsafe {
            let boxed = defrag.boxed(Box::from_raw((*value).cast::<RoomValue>()));
            *value = Box::into_raw(boxed).cast();
            &mut (*(*value).cast::<RoomValue>()).room
        };
        if first == 0 {
            room.move_buffers(&defrag);
        }
        let mut next = first;
        while let Some(after) = room.move_extras(&defrag, next, PORTION) {
            next = after;
            if defrag.should_stop() && defrag.set_cursor(next) {
                return 1;
            }
        }
        0
    })
    .unwrap_or(0)
}
