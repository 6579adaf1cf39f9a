//! The grammar all commands share: integers, ids, options and room keys.
//!
//! 1. An integer is 0 … 2^63-1 in plain decimal digits; every other spelling is refused.
//! 2. An id is any bytes but none; where it would be stored, at most `max-id-bytes` of them.
//! 3. Options stand in any order, in any case, each at most once.
//! 4. A room key must not collide with the streams of another room.

use crate::commands::spec::{Arg, ArgKind};
use crate::core::policy::integer;
use crate::core::refusal::{Limit, Refusal};
use crate::server::strings::Args;

pub const SYNTAX: Refusal = Refusal::Bad("syntax error");
const NOT_AN_INTEGER: Refusal = Refusal::Bad("value is not an integer or out of range");
const EMPTY_ID: Refusal = Refusal::Bad("an id must not be empty");
const EMPTY_TOKEN: Refusal = Refusal::Bad("a token must not be empty");
const COUNT_RANGE: Refusal = Refusal::Bad("COUNT must be between 1 and 10000");
const EMPTY_ROOM: Refusal = Refusal::Bad("this key cannot name a room: it is empty");
const LIKE_A_STREAM: Refusal =
    Refusal::Bad("this key cannot name a room: it ends in :events or :log, as rooms' streams do");
const ALL_TAG: Refusal = Refusal::Bad("this key cannot name a room: it is all hash tag; leave the outer braces out");
const STRAY_BRACE: Refusal =
    Refusal::Bad("this key cannot name a room in a cluster: a } without its { takes the room's streams to other slots");

/// The most a reading command returns at once.
pub const MAX_COUNT: u64 = 10_000;

/// Rule 1.
pub fn int(text: &[u8]) -> Result<u64, Refusal> {
    integer(text).ok_or(NOT_AN_INTEGER)
}

/// COUNT of a reading command.
pub fn count(text: &[u8]) -> Result<u64, Refusal> {
    match int(text)? {
        count @ 1..=MAX_COUNT => Ok(count),
        _ => Err(COUNT_RANGE),
    }
}

/// An id to look up: one that is too long is simply unknown.
pub fn id(text: &[u8]) -> Result<&[u8], Refusal> {
    if text.is_empty() {
        return Err(EMPTY_ID);
    }
    Ok(text)
}

/// A token that something is to be bound to: not an empty one.
pub fn secret(token: &[u8]) -> Result<&[u8], Refusal> {
    if token.is_empty() {
        return Err(EMPTY_TOKEN);
    }
    Ok(token)
}

/// Refuses an id that would be stored and is longer than `max-id-bytes`.
pub fn within(id: &[u8], max_id_bytes: u64) -> Result<(), Refusal> {
    if id.len() as u64 > max_id_bytes {
        return Err(Refusal::Limit(Limit::Id));
    }
    Ok(())
}

/// Rule 4. A key with a hash tag has the streams `k:events` and `k:log`, any other `{k}:events` and `{k}:log`: so a
/// key may neither look like such a stream nor be all tag, and in a cluster the streams must share its slot.
pub fn room(key: &[u8], cluster: bool) -> Result<&[u8], Refusal> {
    if key.is_empty() {
        Err(EMPTY_ROOM)
    } else if key.ends_with(b":events") || key.ends_with(b":log") {
        Err(LIKE_A_STREAM)
    } else if key.starts_with(b"{") && key.ends_with(b"}") {
        Err(ALL_TAG)
    } else if cluster && streams_stray(key) {
        Err(STRAY_BRACE)
    } else {
        Ok(key)
    }
}

/// Whether `{k}:…` of a key without a tag would hash something else than `k`: its tag ends at the first brace in `k`.
fn streams_stray(key: &[u8]) -> bool {
    key.contains(&b'}') && hash_tag(key).is_none()
}

/// The part of a key that a cluster hashes, if that is not all of it: what stands between the first `{` and the next
/// `}`, if anything does.
pub fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let rest = key.get(open + 1..)?;
    let close = rest.iter().position(|&byte| byte == b'}')?;
    rest.get(..close).filter(|tag| !tag.is_empty())
}

/// A list of arguments: the server's, or a test's.
pub trait Words<'a>: Copy {
    /// Argument `index`, if there are so many.
    fn word(self, index: usize) -> Option<&'a [u8]>;
}

impl<'a> Words<'a> for Args<'a> {
    fn word(self, index: usize) -> Option<&'a [u8]> {
        (index < self.len()).then(|| self.get(index))
    }
}

impl<'a> Words<'a> for &'a [&'a [u8]] {
    fn word(self, index: usize) -> Option<&'a [u8]> {
        self.get(index).copied()
    }
}

/// Rule 3: walks the options that follow the fixed arguments, by the tokens in a command's row.
///
/// ```ignore
/// let mut options = Options::after(args, 3, SPEC.args);
/// while let Some(option) = options.next()? {
///     match option {
///         "DEVICE" => device = options.id()?,
///         "TTL" => ttl_ms = Some(options.int()?),
///         _ => nx = true,
///     }
/// }
/// ```
pub struct Options<'a, W> {
    words: W,
    next: usize,
    known: &'static [Arg],
    seen: u32,
    value: std::marker::PhantomData<&'a [u8]>,
}

impl<'a, W: Words<'a>> Options<'a, W> {
    /// Options of `words` from index `first` on, `known` by their tokens.
    pub fn after(words: W, first: usize, known: &'static [Arg]) -> Self {
        Self { words, next: first, known, seen: 0, value: std::marker::PhantomData }
    }

    /// The next option's token, as the row spells it; none at the end of the arguments.
    pub fn next(&mut self) -> Result<Option<&'static str>, Refusal> {
        let Some(word) = self.words.word(self.next) else { return Ok(None) };
        let (token, place) = find_token(self.known, word, &mut 0).ok_or(SYNTAX)?;
        let bit = 1u32.checked_shl(place).ok_or(SYNTAX)?;
        if self.seen & bit != 0 {
            return Err(SYNTAX);
        }
        self.seen |= bit;
        self.next += 1;
        Ok(Some(token))
    }

    /// The value of the option just read.
    pub fn value(&mut self) -> Result<&'a [u8], Refusal> {
        let value = self.words.word(self.next).ok_or(SYNTAX)?;
        self.next += 1;
        Ok(value)
    }

    pub fn int(&mut self) -> Result<u64, Refusal> {
        int(self.value()?)
    }

    pub fn count(&mut self) -> Result<u64, Refusal> {
        count(self.value()?)
    }

    pub fn id(&mut self) -> Result<&'a [u8], Refusal> {
        id(self.value()?)
    }
}

/// The token that equals `word`, and its place among all tokens; the first of equal ones stands for all.
fn find_token(args: &'static [Arg], word: &[u8], place: &mut u32) -> Option<(&'static str, u32)> {
    for arg in args {
        if let Some(token) = arg.token {
            if token.as_bytes().eq_ignore_ascii_case(word) {
                return Some((token, *place));
            }
            *place += 1;
        }
        if matches!(arg.kind, ArgKind::OneOf | ArgKind::Block) {
            if let Some(found) = find_token(arg.args, word, place) {
                return Some(found);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_have_one_spelling() {
        for bad in
            ["", "+5", "05", " 5", "5 ", "1e3", "1.0", "-1", "-0", "00", "0x1", "9223372036854775808", "x", "5\0"]
        {
            assert_eq!(int(bad.as_bytes()), Err(NOT_AN_INTEGER), "{bad:?}");
        }
        assert_eq!(int(b"0"), Ok(0));
        assert_eq!(int(b"9223372036854775807"), Ok(i64::MAX as u64));
    }

    #[test]
    fn counts_have_a_range() {
        assert_eq!(count(b"0"), Err(COUNT_RANGE));
        assert_eq!(count(b"10000"), Ok(10_000));
        assert_eq!(count(b"10001"), Err(COUNT_RANGE));
        assert_eq!(count(b"1 "), Err(NOT_AN_INTEGER));
    }

    #[test]
    fn ids_are_any_bytes_but_none() {
        assert_eq!(id(b""), Err(EMPTY_ID));
        assert_eq!(id(b"\0"), Ok(&b"\0"[..]));
        assert_eq!(within(&[7; 255], 255), Ok(()));
        assert_eq!(within(&[7; 256], 255), Err(Refusal::Limit(Limit::Id)));
    }

    #[test]
    fn rooms_share_no_stream_and_no_foreign_slot() {
        for good in ["r", "a{b}c", "{t}r", "r{t}", "{a}{b}c", "x:events:y", "{", "a{b", "events"] {
            assert!(room(good.as_bytes(), false).is_ok(), "{good}");
        }
        for bad in ["", "{}", "{r}", "{a}b}", "r:events", "{r}:log", ":log"] {
            assert!(room(bad.as_bytes(), false).is_err(), "{bad}");
        }
        for stray in ["a}b", "}", "a{}b", "{}a"] {
            assert!(room(stray.as_bytes(), false).is_ok(), "{stray}");
            assert!(room(stray.as_bytes(), true).is_err(), "{stray}");
        }
        for close in ["{t}a}b", "a{b", "}{t}x", "plain"] {
            assert!(room(close.as_bytes(), true).is_ok(), "{close}");
        }
    }

    const KNOWN: &[Arg] = &[
        Arg::ROOM,
        Arg::text("device").token("DEVICE").optional(),
        Arg::int("ttl").token("TTL").optional(),
        Arg::flag("nx", "NX").optional(),
        Arg::one_of("who", &[Arg::text("user").token("USER"), Arg::block("both", &[Arg::text("user").token("USER")])]),
    ];

    /// Options and values in the order read.
    fn read(words: &[&[u8]]) -> Result<Vec<(&'static str, Vec<u8>)>, Refusal> {
        let mut options = Options::after(words, 0, KNOWN);
        let mut read = Vec::new();
        while let Some(option) = options.next()? {
            let value = match option {
                "NX" => Vec::new(),
                "TTL" => options.int()?.to_string().into_bytes(),
                _ => options.id()?.to_vec(),
            };
            read.push((option, value));
        }
        Ok(read)
    }

    #[test]
    fn options_in_any_order_and_case_each_once() {
        let expected = Ok(vec![("NX", vec![]), ("TTL", b"5".to_vec()), ("DEVICE", b"nx".to_vec())]);
        assert_eq!(read(&[b"nx", b"Ttl", b"5", b"DEVICE", b"nx"]), expected);
        assert_eq!(read(&[b"NX", b"nx"]), Err(SYNTAX));
        assert_eq!(read(&[b"USER", b"u", b"user", b"v"]), Err(SYNTAX));
        assert_eq!(read(&[b"TTL"]), Err(SYNTAX));
        assert_eq!(read(&[b"room"]), Err(SYNTAX));
        assert_eq!(read(&[b"DEVICE", b""]), Err(EMPTY_ID));
        assert_eq!(read(&[b"TTL", b"05"]), Err(NOT_AN_INTEGER));
    }

    proptest! {
        #[test]
        fn any_words_end_in_options_or_a_refusal(
            words in proptest::collection::vec(
                prop_oneof![
                    Just(b"NX".to_vec()), Just(b"ttl".to_vec()), Just(b"7".to_vec()), Just(b"device".to_vec()),
                    proptest::collection::vec(any::<u8>(), 0..4),
                ],
                0..8,
            )
        ) {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            if let Ok(read) = read(&words) {
                let mut names: Vec<_> = read.iter().map(|(name, _)| *name).collect();
                let flags = names.iter().filter(|name| **name == "NX").count();
                prop_assert_eq!(2 * names.len() - flags, words.len());
                names.sort_unstable();
                names.dedup();
                prop_assert_eq!(names.len(), read.len());
            }
        }
    }
}
