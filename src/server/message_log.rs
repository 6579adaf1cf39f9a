//! The message log of a room: a plain stream next to it, in its slot. Message n is entry `n-0`.
//!
//! The room counts and remembers; what the log holds is asked of the stream itself, which may have been trimmed,
//! deleted or replaced by hand.

use super::api::Ctx;
use super::call::{call_replicated, Words};
use super::entries::{Entries, Entry};
use super::keys::{Key, Kind};
use super::rooms::{FOREIGN_ID, ROOM};
use super::slots;
use super::streams::{self, Unwritten};
use super::strings::OwnedStr;
use crate::commands::args::hash_tag;
use crate::core::effect::MetLog;
use crate::core::message::Message;
use crate::core::policy::integer;
use crate::core::refusal::Refusal;
use crate::core::replay::Edges;
use crate::core::retention::Found;
use crate::core::time::{Ms48, MAX};

/// Messages asked when one was accepted: a log may be imported without any that tells.
const ASKED_FOR_TIME: usize = 64;

/// The log of a room.
pub fn name_of(room: &[u8]) -> Vec<u8> {
    streams::beside(room, b":log")
}

/// The room whose log this key would be.
pub fn room_of(log: &[u8]) -> Option<&[u8]> {
    let base = log.strip_suffix(b":log")?;
    let inner = base.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
    Some(inner.filter(|room| hash_tag(room).is_none()).unwrap_or(base))
}

/// A room's log, open for reading.
pub struct Log(Key);

impl Log {
    /// The log of a room that has numbered messages up to `newest`. A key that is missing reads as an empty log, unless
    /// its slot is moving and has taken it elsewhere; one of another type is refused.
    pub fn open(ctx: Ctx, room: &[u8], newest: u64) -> Result<Self, Refusal> {
        let name = OwnedStr::new(&name_of(room));
        let mut key = Key::read(ctx, name.lend());
        if key.is_stream() {
            return Ok(Self(key));
        }
        if !matches!(key.kind(&ROOM), Kind::Missing) {
            return Err(Refusal::LogState);
        }
        if newest > 0 {
            slots::check(ctx, OwnedStr::new(room).lend(), &[name_of(room)])?;
        }
        Ok(Self(key))
    }

    pub fn is_there(&self) -> bool {
        self.0.is_stream()
    }

    /// Entries, those that are no messages included.
    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// The oldest and the newest of the messages up to `newest`.
    pub fn edges(&mut self, newest: u64) -> Edges {
        let Some(last) = self.newest_first(newest).next() else { return Edges::default() };
        let mut messages = self.messages(0, newest);
        let oldest = messages.next().map_or(0, |entry| entry.ms);
        Edges { oldest, newest: last.ms, oldest_at: messages.at() }
    }

    /// Messages from `first` to `last`, oldest first.
    pub fn messages(&mut self, first: u64, last: u64) -> Messages<'_> {
        Messages(Entries::oldest_first(&mut self.0, first, last))
    }

    /// Messages up to `last`, newest first.
    pub fn newest_first(&mut self, last: u64) -> Messages<'_> {
        Messages(Entries::newest_first(&mut self.0, 0, last))
    }
}

/// Those entries of a log that are messages.
pub struct Messages<'k>(Option<Entries<'k>>);

impl Messages<'_> {
    pub fn next(&mut self) -> Option<Entry> {
        let entries = self.0.as_mut()?;
        loop {
            let entry = entries.next()?;
            if entry.seq == 0 {
                return Some(entry);
            }
        }
    }

    /// The next field of the message just reached.
    pub fn field(&mut self) -> Option<(OwnedStr, OwnedStr)> {
        self.0.as_mut()?.field()
    }

    /// When the message just reached was accepted: as it tells, or else the next that does, since none is younger than a
    /// later one. If none of the next few does, not before the end of time: then only what the room wrote later tells its age.
    fn at(&mut self) -> u64 {
        for _ in 0..ASKED_FOR_TIME {
            while let Some((field, value)) = self.field() {
                if let Some(at) = moment_of(&field, &value) {
                    return at;
                }
            }
            if self.next().is_none() {
                break;
            }
        }
        MAX
    }
}

/// When a message was accepted, if this field tells. A moment that no room can note is none: nothing after it could be later.
fn moment_of(field: &OwnedStr, value: &OwnedStr) -> Option<u64> {
    (field.lend().bytes() == b"at").then(|| integer(value.lend().bytes()).filter(|at| *at <= Ms48::MAX))?
}

/// What the log's stream shows of the messages up to `newest`. A log that is none of the room's shows nothing.
pub fn edges(ctx: Ctx, room: &[u8], newest: u64) -> Result<Edges, Refusal> {
    if newest == 0 {
        return Ok(Edges::default());
    }
    match Log::open(ctx, room, newest) {
        Ok(mut log) => Ok(log.edges(newest)),
        Err(Refusal::LogState) => Ok(Edges::default()),
        Err(refusal) => Err(refusal),
    }
}

/// The log that a room finds under its name. An id that no room gives, far ahead, is left to be an error (LOGSTATE).
pub fn met(ctx: Ctx, room: &[u8]) -> Result<MetLog, Refusal> {
    let seq = streams::last_number(ctx, &name_of(room))?.filter(|seq| *seq <= FOREIGN_ID).unwrap_or(0);
    let edges = edges(ctx, room, seq)?;
    Ok(MetLog { seq, first: (edges.oldest > 0).then_some((edges.oldest, edges.oldest_at)) })
}

/// A message as a record of it needs it.
#[derive(Default)]
pub struct Remembered {
    seq: u64,
    at: u64,
    user: Option<OwnedStr>,
    id: Option<OwnedStr>,
    payload: Option<OwnedStr>,
}

impl Remembered {
    pub fn lend(&self) -> Found<'_> {
        let [user, id, payload] = [&self.user, &self.id, &self.payload].map(|text| Some(text.as_ref()?.lend().bytes()));
        Found { seq: self.seq, at: self.at, user, id, payload }
    }
}

/// How much of a log is read in one go: so many messages, and not many more bytes.
#[derive(Clone, Copy)]
pub struct Portion {
    pub messages: usize,
    pub bytes: usize,
}

/// A portion of the messages from `first` to `last`, and the one to go on with.
pub fn remembered(ctx: Ctx, room: &[u8], first: u64, last: u64, portion: Portion) -> (Vec<Remembered>, Option<u64>) {
    let (mut found, mut bytes) = (Vec::new(), 0);
    let Ok(mut log) = Log::open(ctx, room, last) else { return (found, None) };
    let mut messages = log.messages(first, last);
    while let Some(entry) = messages.next() {
        if found.len() == portion.messages || bytes >= portion.bytes {
            return (found, Some(entry.ms));
        }
        let mut message = Remembered { seq: entry.ms, ..Remembered::default() };
        while let Some((field, value)) = messages.field() {
            bytes += value.lend().bytes().len();
            match field.lend().bytes() {
                b"user" => message.user = Some(value),
                b"id" => message.id = Some(value),
                b"payload" => message.payload = Some(value),
                b"at" => message.at = moment_of(&field, &value).unwrap_or(0),
                _ => {}
            }
        }
        found.push(message);
    }
    (found, None)
}

/// Of the oldest messages up to `last`, `most` numbers at most, the first that `keeps` wants; the one after all looked at,
/// if it wants none of them. None if it wants the oldest. No message is younger than a later one, so few need a look.
pub fn first_kept(ctx: Ctx, room: &[u8], last: u64, most: u64, keeps: impl Fn(u64, u64) -> bool) -> Option<u64> {
    let mut log = Log::open(ctx, room, last).ok()?;
    let oldest = log.messages(0, last).next()?.ms;
    let (mut first, mut end) = (oldest, last.saturating_add(1).min(oldest.saturating_add(most)));
    while first < end {
        let middle = first.midpoint(end);
        let mut messages = log.messages(middle, last);
        // Behind the last message there is nothing to take.
        if messages.next().is_none_or(|entry| keeps(entry.ms, messages.at())) {
            end = middle;
        } else {
            first = middle + 1;
        }
    }
    (first > oldest).then_some(first)
}

/// Adds the message, trims to about `retained` (0: not at all), tells replicas and wakes blocked readers.
pub fn append(ctx: Ctx, room: &[u8], message: &Message, retained: u64) -> Result<(), Unwritten> {
    let mut words = Words::with_capacity(24);
    words.bytes(&name_of(room));
    if retained > 0 {
        words.literal("MAXLEN").literal("~").number(retained);
    }
    words.entry_id(message.seq);
    message.fields(&mut |name, value| {
        words.literal(name).bytes(value);
    });
    streams::written(&call_replicated(ctx, c"XADD", &words))
}

/// Trims the log to exactly so many entries; how many went.
pub fn trim_to(ctx: Ctx, room: &[u8], entries: u64) -> Result<u64, Refusal> {
    streams::trim(ctx, &name_of(room), "MAXLEN", entries)
}

/// Removes every message before `first`; how many went.
pub fn trim_before(ctx: Ctx, room: &[u8], first: u64) -> Result<u64, Refusal> {
    streams::trim(ctx, &name_of(room), "MINID", first)
}

/// The room key goes for want of anything to keep: an empty log goes with it.
pub fn remove_empty(ctx: Ctx, room: &[u8]) {
    let is_empty = Log::open(ctx, room, 0).is_ok_and(|log| log.is_there() && log.len() == 0);
    if is_empty {
        let mut words = Words::with_capacity(1);
        words.bytes(&name_of(room));
        call_replicated(ctx, c"UNLINK", &words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_and_its_room_name_each_other() {
        for (room, log) in [("r", "{r}:log"), ("x{t}y", "x{t}y:log"), ("a}b", "{a}b}:log"), ("{t}r", "{t}r:log")] {
            assert_eq!(name_of(room.as_bytes()), log.as_bytes());
            assert_eq!(room_of(log.as_bytes()), Some(room.as_bytes()));
        }
        assert_eq!(room_of(b"r:events"), None);
    }
}
