//! The server's strings: arguments it lends, and strings the module makes.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use hashbrown::HashMap;
use redis_module::raw::RedisModuleString;

use super::api::api;

/// A string someone else keeps alive for `'a`.
#[derive(Clone, Copy)]
pub struct Str<'a> {
    ptr: *mut RedisModuleString,
    lender: PhantomData<&'a [u8]>,
}

impl<'a> Str<'a> {
    /// # Safety
    /// `ptr` is a live string, unchanged for `'a`.
    pub unsafe fn new(ptr: *mut RedisModuleString) -> Self {
        Self { ptr, lender: PhantomData }
    }

    pub fn as_ptr(self) -> *mut RedisModuleString {
        self.ptr
    }

    pub fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: `ptr` is live for 'a; the server returns its bytes and their number.
        unsafe {
            let start = api!(RedisModule_StringPtrLen)(self.ptr, &raw mut len);
            std::slice::from_raw_parts(start.cast(), len)
        }
    }
}

/// A reference to a string of the server's.
pub struct OwnedStr(*mut RedisModuleString);

impl OwnedStr {
    pub fn new(bytes: &[u8]) -> Self {
        // SAFETY: the server copies the bytes; without a context nobody else frees the string.
        Self(unsafe { api!(RedisModule_CreateString)(std::ptr::null_mut(), bytes.as_ptr().cast(), bytes.len()) })
    }

    /// Its decimal digits.
    pub fn number(number: u64) -> Self {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        // SAFETY: as in `new`.
        Self(unsafe { api!(RedisModule_CreateStringFromLongLong)(std::ptr::null_mut(), number) })
    }

    /// # Safety
    /// `ptr` is a live string and this reference to it is the caller's to give away.
    pub unsafe fn from_raw(ptr: *mut RedisModuleString) -> Self {
        Self(ptr)
    }

    pub fn lend(&self) -> Str<'_> {
        Str { ptr: self.0, lender: PhantomData }
    }

    /// Gives the reference away, to a caller who frees it.
    pub fn into_raw(self) -> *mut RedisModuleString {
        let ptr = self.0;
        std::mem::forget(self);
        ptr
    }
}

impl Drop for OwnedStr {
    fn drop(&mut self) {
        // SAFETY: this reference is ours and is not used again.
        unsafe { api!(RedisModule_FreeString)(std::ptr::null_mut(), self.0) };
    }
}

thread_local! {
    /// Literals that have been used as arguments, by address; only the main thread ever asks. Never dropped: a
    /// destructor would keep the library from being unloaded.
    static LITERALS: RefCell<ManuallyDrop<HashMap<(*const u8, usize), OwnedStr>>> = RefCell::default();
}

/// A literal as a string, made once: event field names are written some 20,000 times a second when a large room
/// expires.
pub fn literal(text: &'static str) -> Str<'static> {
    LITERALS.with_borrow_mut(|literals| {
        // A literal that stands at two addresses is kept twice; the program's text bounds both.
        let string = literals.entry((text.as_ptr(), text.len())).or_insert_with(|| OwnedStr::new(text.as_bytes()));
        Str { ptr: string.lend().ptr, lender: PhantomData }
    })
}

/// The arguments of a command, the name included.
#[derive(Clone, Copy)]
pub struct Args<'a>(&'a [*mut RedisModuleString]);

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` holds `argc` live strings for `'a`.
    pub unsafe fn new(argv: *mut *mut RedisModuleString, argc: i32) -> Self {
        let argc = usize::try_from(argc).unwrap_or(0);
        if argc == 0 {
            return Self(&[]);
        }
        // SAFETY: the caller says so.
        Self(unsafe { std::slice::from_raw_parts(argv, argc) })
    }

    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Argument `index`; 0 is the command's name. Like a slice, panics beyond the end.
    pub fn get(self, index: usize) -> &'a [u8] {
        self.str(index).bytes()
    }

    /// Argument `index` as the server's string, to open a key with.
    pub fn str(self, index: usize) -> Str<'a> {
        Str { ptr: self.0[index], lender: PhantomData }
    }
}
