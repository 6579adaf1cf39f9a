//! Entries of a stream, read where they lie: nothing is copied but what is asked for.

use std::ffi::{c_int, c_long};

use redis_module::raw::{self, RedisModuleStreamID, RedisModuleString};

use super::api::{api, OK};
use super::keys::Key;
use super::strings::OwnedStr;

/// What an iterator may be told besides its range.
const NEWEST_FIRST: c_int = raw::REDISMODULE_STREAM_ITERATOR_REVERSE as c_int;

/// Entries whose first id part lies in a range. Nothing else may run while one is read: only replies are written.
pub struct Entries<'k> {
    key: &'k mut Key,
    /// Fields of the entry just reached that have not been read.
    unread: usize,
}

/// An entry's id, and how many fields it has.
#[derive(Clone, Copy)]
pub struct Entry {
    pub ms: u64,
    pub seq: u64,
    pub fields: usize,
}

impl<'k> Entries<'k> {
    /// From id `first-0` up to all of `last-…`, oldest first; none if the key holds no stream.
    pub fn oldest_first(key: &'k mut Key, first: u64, last: u64) -> Option<Self> {
        Self::start(key, 0, first, last)
    }

    pub fn newest_first(key: &'k mut Key, first: u64, last: u64) -> Option<Self> {
        Self::start(key, NEWEST_FIRST, first, last)
    }

    fn start(key: &'k mut Key, flags: c_int, first: u64, last: u64) -> Option<Self> {
        let mut first = RedisModuleStreamID { ms: first, seq: 0 };
        let mut last = RedisModuleStreamID { ms: last, seq: u64::MAX };
        // SAFETY: the key is open or null, which the server checks; it copies the ids.
        let started =
            unsafe { api!(RedisModule_StreamIteratorStart)(key.as_ptr(), flags, &raw mut first, &raw mut last) };
        (started == OK).then_some(Self { key, unread: 0 })
    }

    /// Skips what is left of the entry before: the server's iterator must read all of it, or it asserts.
    pub fn next(&mut self) -> Option<Entry> {
        while self.unread > 0 && self.next_field(std::ptr::null_mut(), std::ptr::null_mut()) {}
        let mut id = RedisModuleStreamID { ms: 0, seq: 0 };
        let mut fields: c_long = 0;
        // SAFETY: the key is open and an iterator runs on it.
        let found = unsafe { api!(RedisModule_StreamIteratorNextID)(self.key.as_ptr(), &raw mut id, &raw mut fields) };
        self.unread = usize::try_from(fields).unwrap_or(0);
        (found == OK).then_some(Entry { ms: id.ms, seq: id.seq, fields: self.unread })
    }

    /// The next field of the entry just reached, and its value.
    pub fn field(&mut self) -> Option<(OwnedStr, OwnedStr)> {
        let mut field: *mut RedisModuleString = std::ptr::null_mut();
        let mut value: *mut RedisModuleString = std::ptr::null_mut();
        // SAFETY: the server has filled both with new strings, which are ours.
        self.next_field(&raw mut field, &raw mut value)
            .then(|| unsafe { (OwnedStr::from_raw(field), OwnedStr::from_raw(value)) })
    }

    /// Makes strings of the next field and its value, where there is a place for them.
    fn next_field(&mut self, field: *mut *mut RedisModuleString, value: *mut *mut RedisModuleString) -> bool {
        self.unread = self.unread.saturating_sub(1);
        // SAFETY: the key is open and an iterator runs on it; both places are ours or null.
        unsafe { api!(RedisModule_StreamIteratorNextField)(self.key.as_ptr(), field, value) == OK }
    }
}

impl Drop for Entries<'_> {
    fn drop(&mut self) {
        // SAFETY: the key is open and the iterator is ours.
        unsafe { api!(RedisModule_StreamIteratorStop)(self.key.as_ptr()) };
    }
}
