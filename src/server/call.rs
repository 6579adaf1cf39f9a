//! Commands the module runs on the server, and commands it sends to replicas and the AOF.

use std::ffi::CStr;
use std::marker::PhantomData;

use redis_module::raw::{self, RedisModuleCallReply, RedisModuleString};

use super::api::{api, Ctx};
use super::strings::{literal, OwnedStr, Str};

/// Twenty digits, a dash and one more.
const LONGEST_ID: usize = 22;

/// The arguments of a command after its name.
#[derive(Default)]
pub struct Words<'a> {
    all: Vec<*mut RedisModuleString>,
    /// Those that were made for it; literals and lent arguments outlive it.
    made: Vec<OwnedStr>,
    lender: PhantomData<Str<'a>>,
}

impl<'a> Words<'a> {
    pub fn with_capacity(capacity: usize) -> Self {
        Self { all: Vec::with_capacity(capacity), made: Vec::with_capacity(capacity / 2), lender: PhantomData }
    }

    pub fn bytes(&mut self, word: &[u8]) -> &mut Self {
        self.made(OwnedStr::new(word))
    }

    pub fn number(&mut self, number: u64) -> &mut Self {
        self.made(OwnedStr::number(number))
    }

    /// The id of entry `n` of a stream that a room numbers: `n-0`.
    pub fn entry_id(&mut self, n: u64) -> &mut Self {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(n).as_bytes();
        let mut id = [0; LONGEST_ID];
        id[..digits.len()].copy_from_slice(digits);
        id[digits.len()..digits.len() + 2].copy_from_slice(b"-0");
        self.bytes(&id[..digits.len() + 2])
    }

    /// A word of the program's own, such as an option or a field name; its string is made once and shared.
    pub fn literal(&mut self, word: &'static str) -> &mut Self {
        self.lent(literal(word))
    }

    /// An argument the server lent, without copying it.
    pub fn lent(&mut self, word: Str<'a>) -> &mut Self {
        self.all.push(word.as_ptr());
        self
    }

    fn made(&mut self, word: OwnedStr) -> &mut Self {
        self.all.push(word.lend().as_ptr());
        self.made.push(word);
        self
    }

    /// As the server takes a vector.
    fn vector(&self) -> (*const *mut RedisModuleString, usize) {
        (self.all.as_ptr(), self.all.len())
    }
}

/// Runs a command whose effect the caller replicates, if there is one.
pub fn call(ctx: Ctx, command: &CStr, words: &Words<'_>) -> Answer {
    run(ctx, command, c"v", words)
}

/// Runs a command and sends it to replicas and the AOF as well.
pub fn call_replicated(ctx: Ctx, command: &CStr, words: &Words<'_>) -> Answer {
    run(ctx, command, c"!v", words)
}

fn run(ctx: Ctx, command: &CStr, format: &CStr, words: &Words<'_>) -> Answer {
    let (argv, argc) = words.vector();
    // SAFETY: the format announces one vector of live strings; the server takes references of its own.
    Answer(unsafe { api!(RedisModule_Call)(ctx.as_ptr(), command.as_ptr(), format.as_ptr(), argv, argc) })
}

/// Sends a command to replicas and the AOF. Never together with [`Ctx::replicate_verbatim`].
pub fn replicate(ctx: Ctx, command: &CStr, words: &Words<'_>) {
    let (argv, argc) = words.vector();
    // SAFETY: as in `run`.
    unsafe {
        api!(RedisModule_Replicate)(ctx.as_ptr(), command.as_ptr(), c"v".as_ptr(), argv, argc);
    }
}

/// What a command answered.
pub struct Answer(*mut RedisModuleCallReply);

/// The shapes of answers the module reads.
pub enum Shape<'a> {
    /// The server did not run the command: in a cluster a key is not here.
    Refused,
    Error,
    Integer(i64),
    Bytes(&'a [u8]),
    /// Its elements are read by [`Answer::at`].
    Array(usize),
    Unread,
}

impl Answer {
    pub fn shape(&self) -> Shape<'_> {
        if self.0.is_null() {
            return Shape::Refused;
        }
        // SAFETY: the reply is live while `self` is.
        unsafe { shape(self.0) }
    }

    /// Element `index` of an array.
    pub fn at(&self, index: usize) -> Shape<'_> {
        if self.0.is_null() {
            return Shape::Unread;
        }
        // SAFETY: the reply is live; its elements are freed with it.
        unsafe {
            let element = api!(RedisModule_CallReplyArrayElement)(self.0, index);
            if element.is_null() {
                return Shape::Unread;
            }
            shape(element)
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the reply is ours and not used again.
            unsafe { api!(RedisModule_FreeCallReply)(self.0) };
        }
    }
}

/// # Safety
/// `reply` is live for `'a`.
unsafe fn shape<'a>(reply: *mut RedisModuleCallReply) -> Shape<'a> {
    // SAFETY: the caller says so.
    match unsafe { api!(RedisModule_CallReplyType)(reply) } as isize {
        // SAFETY: as above, for all of these.
        raw::REDISMODULE_REPLY_INTEGER => Shape::Integer(unsafe { api!(RedisModule_CallReplyInteger)(reply) }),
        // SAFETY: as above.
        raw::REDISMODULE_REPLY_STRING => Shape::Bytes(unsafe { string(reply) }),
        raw::REDISMODULE_REPLY_ERROR => Shape::Error,
        // SAFETY: as above.
        raw::REDISMODULE_REPLY_ARRAY => Shape::Array(unsafe { api!(RedisModule_CallReplyLength)(reply) }),
        _ => Shape::Unread,
    }
}

/// # Safety
/// `reply` is a live string.
unsafe fn string<'a>(reply: *mut RedisModuleCallReply) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: the caller says so; the server returns its bytes and their number.
    unsafe {
        let start = api!(RedisModule_CallReplyStringPtr)(reply, &raw mut len);
        std::slice::from_raw_parts(start.cast(), len)
    }
}
