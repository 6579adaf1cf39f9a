//! Replies, written straight to the client: no tree of values in between, no allocation but for errors.

use std::ffi::{c_long, CStr, CString};
use std::fmt::Display;

use super::api::{api, Ctx};

/// The reply of the running command. RESP2 gets maps as flat arrays and nil as a null bulk; the server sees to it.
#[derive(Clone, Copy)]
pub struct Reply(Ctx);

impl Ctx {
    pub fn reply(self) -> Reply {
        Reply(self)
    }
}

impl Reply {
    /// `len` replies follow.
    pub fn array(self, len: usize) {
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_ReplyWithArray)(self.0.as_ptr(), len as c_long) };
    }

    /// `len` pairs of replies follow.
    pub fn map(self, len: usize) {
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_ReplyWithMap)(self.0.as_ptr(), len as c_long) };
    }

    /// The name of a map's field; its value follows.
    pub fn field(self, name: &str) -> Self {
        self.bulk(name.as_bytes());
        self
    }

    pub fn bulk_or_nil(self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.nil(),
        }
    }

    pub fn int_or_nil(self, number: Option<u64>) {
        match number {
            Some(number) => self.int(number),
            None => self.nil(),
        }
    }

    pub fn bulk(self, bytes: &[u8]) {
        // SAFETY: the context is live; the server copies the bytes.
        unsafe { api!(RedisModule_ReplyWithStringBuffer)(self.0.as_ptr(), bytes.as_ptr().cast(), bytes.len()) };
    }

    /// Counters stay below 2^63 by contract; a greater number would turn negative on the way out.
    pub fn int(self, number: u64) {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_ReplyWithLongLong)(self.0.as_ptr(), number) };
    }

    pub fn nil(self) {
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_ReplyWithNull)(self.0.as_ptr()) };
    }

    /// A status such as `c"OK"`.
    pub fn simple(self, status: &CStr) {
        // SAFETY: the context is live; the server copies the text.
        unsafe { api!(RedisModule_ReplyWithSimpleString)(self.0.as_ptr(), status.as_ptr()) };
    }

    /// An error, its code first.
    pub fn error(self, error: &impl Display) {
        // Texts are the program's own and hold no NUL.
        let text = CString::new(error.to_string()).unwrap_or_default();
        // SAFETY: the context is live; the server copies the text.
        unsafe { api!(RedisModule_ReplyWithError)(self.0.as_ptr(), text.as_ptr()) };
    }
}
