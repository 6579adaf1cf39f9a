//! A module that commits the fault its argument names, and then refuses to be loaded, with which the server ends.
//! `sanitize.sh` proves with it that what goes wrong in memory that came from the server is reported.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::hint::black_box;
use std::mem::transmute;
use std::ptr::null_mut;

type GetApi = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
const REFUSED: c_int = 1;

/// # Safety
/// `ctx` is the server's: it begins with the function that hands out the others.
unsafe fn function(ctx: *const GetApi, name: &CStr) -> *mut c_void {
    let mut found = null_mut();
    // SAFETY: the name is a C string, and there is a place for what is found.
    unsafe { (*ctx)(name.as_ptr(), &mut found) };
    assert!(!found.is_null(), "the server has no {name:?}");
    found
}

/// # Safety
/// Called by the server, with one argument.
#[no_mangle]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: *const GetApi, argv: *const *const c_void, _argc: c_int) -> c_int {
    // SAFETY: the signatures are those of the server's header. What is wrong with the reads is what they are for.
    unsafe {
        let alloc: unsafe extern "C" fn(usize) -> *mut u8 = transmute(function(ctx, c"RedisModule_Alloc"));
        let free: unsafe extern "C" fn(*mut u8) = transmute(function(ctx, c"RedisModule_Free"));
        let text: unsafe extern "C" fn(*const c_void, *mut usize) -> *const c_char = transmute(function(ctx, c"RedisModule_StringPtrLen"));
        let block = black_box(alloc(100));
        match CStr::from_ptr(text(*argv, null_mut())).to_bytes() {
            b"overflow" => _ = black_box(block.add(100).read()),
            b"use-after-free" => {
                free(block);
                black_box(block.read());
            }
            b"leak" => {}
            other => panic!("no such fault: {other:?}"),
        }
    }
    REFUSED
}
