//! The server's log. No line carries an id of any kind, nor a room's key, which may be made of some.

use std::ffi::{CStr, CString};

use super::api::{api, Ctx};

/// What an operator should see to; the line says how.
pub fn warning(text: &str) {
    write(c"warning", text);
}

/// What explains something else that an operator may see.
pub fn notice(text: &str) {
    write(c"notice", text);
}

fn write(level: &CStr, text: &str) {
    let Ok(text) = CString::new(text.replace('\0', " ")) else { return };
    // SAFETY: the detached context is live or null, both allowed. The text goes in as an argument of a fixed format,
    // since the server reads formats in it.
    unsafe { api!(RedisModule_Log)(Ctx::detached().as_ptr(), level.as_ptr(), c"%s".as_ptr(), text.as_ptr()) };
}
