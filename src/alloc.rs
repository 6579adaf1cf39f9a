//! The allocator: the server's once it has handed its functions over, so that leases count in its memory and in
//! `maxmemory`, and the system's until then, so that tests run without a server.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;

use redis_module::raw;

#[global_allocator]
static ALLOCATOR: ServerAllocator = ServerAllocator;

struct ServerAllocator;

/// What the server's functions align to, whatever malloc is behind them: Redis builds jemalloc with classes of 8 bytes,
/// and other allocators get a length of 8 bytes before the block.
const NATURAL_ALIGN: usize = 8;

// Blocks never change hands: nothing this library allocates before the server's functions are there is freed after.
// Rust allocates nothing on the way into OnLoad, and the functions are the first thing OnLoad asks for.
//
// SAFETY: each method returns what malloc of the same library would, for sizes and alignments as asked.
unsafe impl GlobalAlloc for ServerAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the pointer is set once, before any other thread of this library exists.
        let Some(alloc) = (unsafe { raw::RedisModule_Alloc }) else {
            // SAFETY: the caller keeps the contract of GlobalAlloc.
            return unsafe { System.alloc(layout) };
        };
        if layout.align() <= NATURAL_ALIGN {
            // SAFETY: any size is allowed.
            return unsafe { alloc(layout.size()) }.cast();
        }
        let Some(size) = padded(layout) else { return std::ptr::null_mut() };
        // SAFETY: any size is allowed.
        let block = unsafe { alloc(size) }.cast::<u8>();
        // SAFETY: `block` has room for the padding.
        unsafe { align_within(block, layout.align()) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        let Some(free) = (unsafe { raw::RedisModule_Free }) else {
            // SAFETY: the caller keeps the contract of GlobalAlloc.
            return unsafe { System.dealloc(ptr, layout) };
        };
        let block = if layout.align() <= NATURAL_ALIGN {
            ptr
        } else {
            // SAFETY: `align_within` wrote the block's start just below.
            unsafe { ptr.cast::<*mut u8>().sub(1).read_unaligned() }
        };
        // SAFETY: `block` came from the server's allocator.
        unsafe { free(block.cast::<c_void>()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        match unsafe { raw::RedisModule_Calloc } {
            // SAFETY: any size is allowed.
            Some(calloc) if layout.align() <= NATURAL_ALIGN => unsafe { calloc(1, layout.size()) }.cast(),
            Some(_) => {
                // SAFETY: the caller keeps the contract of GlobalAlloc.
                let ptr = unsafe { self.alloc(layout) };
                if !ptr.is_null() {
                    // SAFETY: `alloc` returned room for that many bytes.
                    unsafe { ptr.write_bytes(0, layout.size()) };
                }
                ptr
            }
            // SAFETY: the caller keeps the contract of GlobalAlloc.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `alloc`.
        match unsafe { raw::RedisModule_Realloc } {
            // SAFETY: `ptr` came from the server's allocator, unpadded.
            Some(realloc) if layout.align() <= NATURAL_ALIGN => unsafe { realloc(ptr.cast(), new_size) }.cast(),
            Some(_) => {
                // SAFETY: the caller keeps the contract of GlobalAlloc: `new_size` with this alignment is a layout.
                let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
                // SAFETY: as above.
                let moved = unsafe { self.alloc(new_layout) };
                if !moved.is_null() {
                    // SAFETY: both blocks hold at least that many bytes and do not overlap.
                    unsafe { ptr.copy_to_nonoverlapping(moved, layout.size().min(new_size)) };
                    // SAFETY: `ptr` has this layout and is not used again.
                    unsafe { self.dealloc(ptr, layout) };
                }
                moved
            }
            // SAFETY: the caller keeps the contract of GlobalAlloc.
            None => unsafe { System.realloc(ptr, layout, new_size) },
        }
    }
}

/// Room for the block, its shift to the alignment and the note of where it starts.
fn padded(layout: Layout) -> Option<usize> {
    layout.size().checked_add(layout.align())?.checked_add(size_of::<*mut u8>())
}

/// Moves up to the alignment, leaving the block's start just below.
///
/// # Safety
/// `block` is null or has room for [`padded`] bytes.
unsafe fn align_within(block: *mut u8, align: usize) -> *mut u8 {
    if block.is_null() {
        return block;
    }
    // SAFETY: the note and the shift lie within the padding.
    unsafe {
        let after_note = block.add(size_of::<*mut u8>());
        let ptr = after_note.add(after_note.align_offset(align));
        ptr.cast::<*mut u8>().sub(1).write_unaligned(block);
        ptr
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_leaves_room_for_the_note_and_aligns() {
        let layout = Layout::from_size_align(100, 64).unwrap();
        let mut block = vec![0u8; padded(layout).unwrap() + 64];
        for shift in 0..64 {
            let start = block[shift..].as_mut_ptr();
            // SAFETY: the buffer has `shift` bytes more than `padded` asks for.
            let ptr = unsafe { align_within(start, 64) };
            assert_eq!(ptr.align_offset(64), 0);
            // SAFETY: `align_within` wrote it.
            assert_eq!(unsafe { ptr.cast::<*mut u8>().sub(1).read_unaligned() }, start);
            let end = ptr as usize + layout.size();
            assert!(end <= start as usize + padded(layout).unwrap());
        }
    }
}
