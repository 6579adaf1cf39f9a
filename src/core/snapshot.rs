//! A whole room as bytes: what RDB, DUMP, COPY and a rewritten AOF hold.
//!
//! A snapshot is a header and as many chunks of records as it says. Version 102 added grants; golden files keep 101 and it
//! readable for good. Times are absolute unix ms.
//!
//! Everything read is checked, also against the rest of the room: bytes that decode but describe an impossible room
//! (two live leases of one holder, an epoch above the highest ever given) are refused as a whole.

use hashbrown::HashSet;

use super::access;
use super::codec::{
    read_accepted, read_gen, read_grant, read_past, read_setting, read_signal, read_value, write_accepted, write_gen,
    write_grant, write_past, write_value,
};
use super::cursor::{Claim, Cursor, MOST_DEVICES};
use super::dedupe::Known;
use super::effect::Gen;
use super::id::{Id, SessionKey, DEFAULT_DEVICE};
use super::lease::{Extras, Flags, Lease, Phase, Reason};
use super::log::{Log, Reading};
use super::room::Room;
use super::time::{Ms48, Now, MAX};
use super::wire::{Corrupt, Reader, Writer};

/// Apart from the versions of effects, since both travel by `LEASE.APPLY`.
const VERSION: u8 = 102;
/// The first: without grants and marks.
const FIRST_VERSION: u8 = 101;
/// Records in a chunk: small enough that none is ever a burden, large enough that a big room has few.
const CHUNK: usize = 512;

/// The header, then grants and marks, then dedupe records, then cursors, then the leases and tombstones, in chunks.
/// `has_begun`: whether the node has begun the history it is to have of the room; else what is read back tells of a later
/// one than it has.
pub fn parts(room: &Room, has_begun: bool, now: Now) -> impl Iterator<Item = Vec<u8>> + '_ {
    let users: Vec<u32> = room.access.from(0).map(|(slot, _)| slot).collect();
    let holders: Vec<u32> = room.cursors.from(0).map(|(slot, _)| slot).collect();
    let slots: Vec<u32> = room.leases.iter().map(|(slot, _)| slot).collect();
    let messages: Vec<u32> = room.log.dedupe.slots().collect();
    let chunks = [users.len(), messages.len(), holders.len(), slots.len()].map(|len| len.div_ceil(CHUNK));
    let chunks = chunks.into_iter().fold(0, usize::saturating_add);
    let told_ms = if has_begun { room.last_gen_ms() } else { room.last_gen_ms().saturating_add(1).min(MAX) };
    let header = header(room, chunks as u64, told_ms, now);
    let access = chunked(users, now, kind::ACCESS, |w, slot| {
        if let Some((_, record)) = room.access.from(slot).next() {
            write_access(w, record);
        }
    });
    let dedupe = chunked(messages, now, kind::DEDUPE, |w, slot| {
        if let Some(known) = room.log.dedupe.known(slot) {
            write_accepted(w, &known.accepted);
            w.byte(known.attached.into());
        }
    });
    let cursors = chunked(holders, now, kind::CURSORS, |w, slot| {
        if let Some((_, cursor)) = room.cursors.from(slot).next() {
            write_cursor(w, cursor, room.cursors.until(cursor));
        }
    });
    let records = chunked(slots, now, kind::RECORDS, |w, slot| {
        if let Some(lease) = room.leases.get(slot) {
            write_record(w, room, slot, lease);
        }
    });
    std::iter::once(header).chain(access).chain(dedupe).chain(cursors).chain(records)
}

fn chunked<'a>(
    slots: Vec<u32>,
    now: Now,
    kind: u8,
    write: impl Fn(&mut Writer, u32) + 'a,
) -> impl Iterator<Item = Vec<u8>> + 'a {
    let chunks = slots.len().div_ceil(CHUNK);
    (0..chunks).map(move |chunk| {
        let mut w = Writer::new(now);
        w.byte(VERSION);
        w.byte(kind);
        let first = chunk.saturating_mul(CHUNK);
        for slot in slots.iter().skip(first).take(CHUNK) {
            write(&mut w, *slot);
        }
        w.into_bytes()
    })
}

mod kind {
    pub const HEADER: u8 = 1;
    pub const RECORDS: u8 = 2;
    pub const ACCESS: u8 = 3;
    pub const DEDUPE: u8 = 4;
    pub const CURSORS: u8 = 5;
}

fn header(room: &Room, chunks: u64, told_ms: u64, now: Now) -> Vec<u8> {
    let mut w = Writer::new(now);
    w.byte(VERSION);
    w.byte(kind::HEADER);
    w.number(chunks);
    write_gen(&mut w, room.gen);
    w.number(told_ms);
    for number in [room.floor, room.highest, room.event_n, room.events_lost, room.last_at] {
        w.number(number);
    }
    w.moment(room.busy_until);
    w.number(room.next_order.into());
    w.number(room.own.iter().len() as u64);
    for (setting, value) in room.own.iter() {
        w.byte(setting.code());
        write_value(&mut w, value);
    }
    write_log(&mut w, &room.log);
    w.byte(room.arrived.into());
    w.number(room.holds.len() as u64);
    for hold in &room.holds {
        w.id(hold);
    }
    w.into_bytes()
}

/// Whether these bytes are a part of a snapshot, rather than effects.
pub fn is_part(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|version| (FIRST_VERSION..=VERSION).contains(version))
}

/// Whether they are the part that begins one.
pub fn is_header(bytes: &[u8]) -> bool {
    is_part(bytes) && bytes.get(1) == Some(&kind::HEADER)
}

/// A room being read back, part by part.
#[derive(Default)]
pub struct Loading {
    room: Room,
    /// Chunks still to come; `None` before the header.
    missing: Option<u64>,
}

impl Loading {
    /// A room whose remaining chunks come as separate commands of a rewritten AOF.
    pub fn resume(room: Room) -> Self {
        Self { room, missing: Some(u64::MAX) }
    }

    pub fn is_complete(&self) -> bool {
        self.missing == Some(0)
    }

    pub fn into_room(self) -> Room {
        self.room
    }

    pub fn part(&mut self, bytes: &[u8], now: Now) -> Result<(), Corrupt> {
        let mut r = Reader::new(bytes, now);
        let version = r.byte()?;
        if !(FIRST_VERSION..=VERSION).contains(&version) {
            return Err(Corrupt("a snapshot of an unknown version"));
        }
        match (r.byte()?, self.missing) {
            (kind::HEADER, None) => self.read_header(&mut r, version)?,
            (kind @ (kind::RECORDS | kind::ACCESS | kind::DEDUPE | kind::CURSORS), Some(missing)) => {
                self.missing = Some(missing.checked_sub(1).ok_or(Corrupt("more parts than announced"))?);
                while !r.is_empty() {
                    match kind {
                        kind::ACCESS => self.read_access(&mut r)?,
                        kind::DEDUPE => self.read_dedupe(&mut r)?,
                        kind::CURSORS => self.read_cursor(&mut r)?,
                        _ => self.read_record(&mut r, now)?,
                    }
                }
            }
            _ => return Err(Corrupt("parts out of order")),
        }
        if r.is_empty() {
            Ok(())
        } else {
            Err(Corrupt("bytes after its end"))
        }
    }

    fn read_header(&mut self, r: &mut Reader, version: u8) -> Result<(), Corrupt> {
        self.missing = Some(r.number()?);
        let room = &mut self.room;
        room.gen = read_gen(r)?;
        room.gen_told_ms = r.number()?;
        room.floor = r.number()?;
        room.highest = r.number()?;
        room.event_n = r.number()?;
        room.events_lost = r.number()?;
        room.last_at = r.number()?;
        room.busy_until = r.moment()?;
        room.next_order = u32::try_from(r.number()?).map_err(|_| Corrupt("an order is too large"))?;
        for _ in 0..r.number()? {
            let setting = read_setting(r)?;
            room.own.set(setting, read_value(r, setting)?);
        }
        if version > FIRST_VERSION {
            read_log(r, &mut room.log)?;
            room.arrived = r.byte()? != 0;
            for _ in 0..r.number()? {
                let hold = r.id()?;
                if room.holds.contains(&hold) {
                    return Err(Corrupt("one hold twice"));
                }
                room.holds.push(hold);
            }
        }
        Ok(())
    }

    /// Comes before the leases, which are told of it as they are read.
    fn read_access(&mut self, r: &mut Reader) -> Result<(), Corrupt> {
        let user = r.id()?;
        let access = &mut self.room.access;
        if access.get(user.as_bytes()).is_some() || !self.room.leases.is_empty() {
            return Err(Corrupt("one user's access twice, or too late"));
        }
        let (grant, version, revoked) = (r.option(read_grant)?, r.option(Reader::number)?, r.byte()? != 0);
        if revoked && grant.is_some() {
            return Err(Corrupt("a grant beside a revocation"));
        }
        let count = r.number()?;
        let devices = (0..count).map(|_| r.id()).collect::<Result<Vec<_>, _>>()?;
        if devices.iter().map(Id::as_bytes).collect::<HashSet<_>>().len() < devices.len() {
            return Err(Corrupt("one device revoked twice"));
        }
        access.edit(user.as_bytes(), |record| {
            record.grant = grant;
            record.version = version;
            record.revoked = revoked;
            record.devices = devices;
        });
        Ok(())
    }

    fn read_dedupe(&mut self, r: &mut Reader) -> Result<(), Corrupt> {
        let (accepted, attached) = (read_accepted(r)?, r.byte()? != 0);
        let log = &mut self.room.log;
        if log.dedupe.find(&accepted.key).is_some() {
            return Err(Corrupt("one message accepted twice"));
        }
        if accepted.seq == 0 || accepted.seq > log.seq {
            return Err(Corrupt("a message the room never numbered"));
        }
        log.dedupe.put(&Known { accepted, attached });
        Ok(())
    }

    fn read_cursor(&mut self, r: &mut Reader) -> Result<(), Corrupt> {
        let (user, device) = (r.id()?, r.id()?);
        let claims = [r.number()?, r.number()?, r.number()?];
        let until = r.moment()?;
        let (user, device) = (user.as_bytes(), device.as_bytes());
        let newest = self.room.log_seq();
        if claims == [0; 3] || claims.iter().any(|seq| *seq > newest) {
            return Err(Corrupt("a cursor beyond the newest message, or none"));
        }
        let cursors = &mut self.room.cursors;
        if cursors.get(user, device).is_some() || cursors.of_user(user).count() >= MOST_DEVICES {
            return Err(Corrupt("one cursor twice, or too many of a user"));
        }
        for (claim, seq) in Claim::ALL.into_iter().zip(claims) {
            cursors.advance(user, device, claim, seq, until);
        }
        Ok(())
    }

    fn read_record(&mut self, r: &mut Reader, now: Now) -> Result<(), Corrupt> {
        let mut record = Record::read(r)?;
        let room = &mut self.room;
        // A revocation ended what was live: what it left was overdue, even if the clock here is behind.
        let access = room.access.get(record.user.as_bytes());
        if record.lease.ended().is_none() && access.is_some_and(|r| r.is_marked(record.device.as_bytes())) {
            record.lease.end = record.lease.end.min(now.mono);
        }
        let lease = &record.lease;
        if lease.epoch == 0 || record.holder_epoch > room.highest {
            return Err(Corrupt("an epoch the room never gave"));
        }
        if room.slot_of(record.session.as_bytes()).is_some() {
            return Err(Corrupt("one session twice"));
        }
        // Every record tells its holder's epoch; only the one that has it can be unended.
        let unended = lease.ended().is_none();
        let holder =
            room.users.find(record.user.as_bytes()).and_then(|u| room.users.holder(u, record.device.as_bytes()));
        let newest = holder.and_then(|h| room.leases.get(h.newest));
        let strange = holder.is_some_and(|h| h.epoch != record.holder_epoch);
        let twin = newest.is_some_and(|l| l.epoch == lease.epoch);
        if strange || twin || (unended && lease.epoch != record.holder_epoch) {
            return Err(Corrupt("two leases of one holder"));
        }
        let slot = room.add(
            record.session.as_bytes(),
            record.user.as_bytes(),
            record.lease,
            record.extras,
            record.remembered_until,
        );
        if let Some(user) = room.leases.get(slot).map(|l| l.user) {
            room.users.raise_epoch(user, record.device.as_bytes(), record.holder_epoch);
        }
        Ok(())
    }
}

struct Record {
    session: Id,
    user: Id,
    device: Id,
    holder_epoch: u64,
    lease: Lease,
    extras: Extras,
    remembered_until: u64,
}

fn phase_code(phase: Phase) -> u8 {
    match phase {
        Phase::Active => 0,
        Phase::Shortened => 10,
        Phase::Lingering => 11,
        Phase::Ended(reason) => reason as u8,
    }
}

fn read_phase(r: &mut Reader) -> Result<Phase, Corrupt> {
    Ok(match r.byte()? {
        0 => Phase::Active,
        10 => Phase::Shortened,
        11 => Phase::Lingering,
        code => Phase::Ended(Reason::from_code(code).ok_or(Corrupt("an unknown phase"))?),
    })
}

fn write_log(w: &mut Writer, log: &Log) {
    for number in [log.seq, log.gone, log.oldest_at, log.last_at] {
        w.number(number);
    }
    write_past(w, &log.past);
    w.number(log.readings.len() as u64);
    for reading in &log.readings {
        w.number(reading.seq);
        w.number(reading.at);
        w.moment(reading.mono);
    }
    w.option(log.rebuilding, Writer::number);
}

fn read_log(r: &mut Reader, log: &mut Log) -> Result<(), Corrupt> {
    log.seq = r.number()?;
    log.gone = r.number()?;
    log.oldest_at = r.number()?;
    log.last_at = r.number()?;
    log.past = read_past(r)?;
    for _ in 0..r.number()? {
        let reading = Reading { seq: r.number()?, at: r.number()?, mono: r.moment()? };
        if reading.seq > log.seq || log.readings.last().is_some_and(|before| before.seq >= reading.seq) {
            return Err(Corrupt("readings out of order, or of no message"));
        }
        log.readings.push(reading);
    }
    log.rebuilding = r.option(Reader::number)?;
    Ok(())
}

fn write_access(w: &mut Writer, record: &access::Record) {
    w.id(&record.user);
    w.option(record.grant.as_ref(), write_grant);
    w.option(record.version, Writer::number);
    w.byte(record.revoked.into());
    w.number(record.devices.len() as u64);
    for device in &record.devices {
        w.id(device);
    }
}

fn write_cursor(w: &mut Writer, cursor: &Cursor, until: u64) {
    w.id(&cursor.user);
    w.id(&cursor.device);
    for claim in Claim::ALL {
        w.number(cursor.seq(claim));
    }
    w.moment(until);
}

fn write_record(w: &mut Writer, room: &Room, slot: u32, lease: &Lease) {
    let device = room.device_of(slot, lease);
    let holder = room.users.holder(lease.user, device).map_or(lease.epoch, |h| h.epoch);
    w.id(&room.session_id(slot, lease));
    w.bytes(room.user_of(lease));
    w.bytes(device);
    w.number(lease.epoch);
    w.number(holder.saturating_sub(lease.epoch));
    w.number(lease.seq);
    w.number(lease.opened_at.get());
    w.number(lease.heartbeat_at.get());
    w.number(room.ttl_of(slot, lease));
    w.number(lease.order.into());
    w.option(lease.signal, |w, signal| w.byte(signal as u8));
    w.byte(phase_code(lease.phase));
    match lease.deadline() {
        Some(deadline) => w.moment(deadline),
        None => {
            w.number(lease.end);
            w.moment(room.tombstones.bound(lease.place).unwrap_or_default());
        }
    }
    w.option(room.extras_of(slot, lease), |w, extras| {
        w.option(extras.until, Writer::moment);
        w.option(extras.token.as_ref(), Writer::fixed);
        w.option(extras.meta.as_deref(), Writer::bytes);
        w.option(extras.observed_at, Writer::number);
        w.option(extras.replaced.as_ref(), Writer::id);
        w.option(extras.replaced_by, Writer::number);
        w.option(extras.span_ms, Writer::number);
    });
}

impl Record {
    fn read(r: &mut Reader) -> Result<Self, Corrupt> {
        let (session, user, device) = (r.id()?, r.id()?, r.id()?);
        let epoch = r.number()?;
        let holder_epoch =
            epoch.checked_add(r.number()?).filter(|e| *e <= MAX).ok_or(Corrupt("an epoch is too large"))?;
        let (seq, opened_at, heartbeat_at) = (r.number()?, r.number()?, r.number()?);
        let ttl_ms = r.number()?;
        let order = u32::try_from(r.number()?).map_err(|_| Corrupt("an order is too large"))?;
        let signal = r.option(read_signal)?;
        let phase = read_phase(r)?;
        let (end, remembered_until) = match phase {
            Phase::Ended(_) => (r.number()?, r.moment()?),
            _ => (r.moment()?, 0),
        };
        let short_ttl = u32::try_from(ttl_ms).ok().filter(|ttl| *ttl != u32::MAX);
        let extras = r.option(|r| {
            Ok(Extras {
                until: r.option(Reader::moment)?,
                token: r.option(Reader::fixed)?,
                meta: r.option(Reader::bytes)?.map(Into::into),
                observed_at: r.option(Reader::number)?,
                replaced: r.option(Reader::id)?,
                replaced_by: r.option(Reader::number)?,
                span_ms: r.option(Reader::number)?,
                ..Extras::default()
            })
        })?;
        let replaced_by = extras.as_ref().and_then(|extras| extras.replaced_by);
        match (phase, replaced_by) {
            (Phase::Ended(Reason::Superseded), Some(by)) if by >= epoch => {}
            (Phase::Ended(Reason::Superseded), _) | (_, Some(_)) => return Err(Corrupt("superseded by nothing")),
            _ => {}
        }
        let extras = Extras {
            device: (device.as_bytes() != DEFAULT_DEVICE).then(|| device.clone()),
            long_ttl_ms: short_ttl.is_none().then_some(ttl_ms),
            ..extras.unwrap_or_default()
        };
        let lease = Lease {
            epoch,
            seq,
            end,
            opened_at: Ms48::new(opened_at),
            heartbeat_at: Ms48::new(heartbeat_at),
            ttl_ms: short_ttl.unwrap_or(u32::MAX),
            order,
            user: 0,
            place: 0,
            session: SessionKey::Long,
            signal,
            phase,
            flags: Flags::default(),
        };
        Ok(Self { session, user, device, holder_epoch, lease, extras, remembered_until })
    }
}

/// Where a room's digest goes: state that two nodes with the same history share. Deadlines and heartbeat times are
/// not part of it, nor is a history that no write has carried yet.
pub trait Digest {
    fn bytes(&mut self, bytes: &[u8]);
    fn number(&mut self, number: u64);
    /// Ends an item; items count whatever their order.
    fn end_item(&mut self);
}

pub fn digest(room: &Room, out: &mut impl Digest) {
    let Gen { ms, random } = room.gen;
    for number in [ms, random.into(), room.floor, room.highest, room.event_n, room.events_lost] {
        out.number(number);
    }
    for (setting, value) in room.own.iter() {
        out.number(setting.code().into());
        out.number(u64::try_from(value).unwrap_or(0));
    }
    out.number(room.log.seq);
    for (gen, last) in &room.log.past {
        for number in [gen.ms, gen.random.into(), *last] {
            out.number(number);
        }
    }
    for hold in &room.holds {
        out.bytes(hold.as_bytes());
    }
    out.end_item();
    for slot in room.log.dedupe.slots() {
        if let Some(Known { accepted, .. }) = room.log.dedupe.known(slot) {
            out.bytes(&accepted.key);
            out.bytes(&accepted.payload);
            out.number(accepted.seq);
            out.number(accepted.at);
        }
        out.end_item();
    }
    for (_, record) in room.access.from(0) {
        out.bytes(record.user.as_bytes());
        let grant = record.grant.as_ref();
        out.bytes(&[grant.map_or(0, |g| g.level as u8), record.revoked.into()]);
        out.bytes(grant.and_then(|g| g.token.as_ref()).map_or(&[][..], |t| &t[..]));
        out.number(record.version.map_or(0, |v| v.saturating_add(1)));
        for device in &record.devices {
            out.bytes(device.as_bytes());
        }
        out.end_item();
    }
    for (_, cursor) in room.cursors.from(0) {
        out.bytes(cursor.user.as_bytes());
        out.bytes(cursor.device.as_bytes());
        for claim in Claim::ALL {
            out.number(cursor.seq(claim));
        }
        out.end_item();
    }
    for (slot, lease) in room.leases.iter() {
        out.bytes(room.session_id(slot, lease).as_bytes());
        out.bytes(room.user_of(lease));
        out.bytes(room.device_of(slot, lease));
        let ended_at = lease.ended().map_or(0, |_| lease.end);
        let codes = [lease.signal.map_or(0, |s| s as u8), phase_code(lease.phase)];
        for number in [lease.epoch, lease.seq, lease.opened_at.get(), room.ttl_of(slot, lease), ended_at] {
            out.number(number);
        }
        out.bytes(&codes);
        if let Some(e) = room.extras_of(slot, lease) {
            for number in [e.observed_at, e.replaced_by] {
                out.number(number.map_or(0, |n| n.saturating_add(1)));
            }
            out.bytes(e.token.as_ref().map_or(&[][..], |t| &t[..]));
            out.bytes(e.meta.as_deref().unwrap_or_default());
            out.bytes(e.replaced.as_ref().map_or(&[][..], Id::as_bytes));
        }
        out.end_item();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_beyond_the_newest_message_is_refused() {
        let now = Now { mono: 1 << 40, unix: 1 << 41 };
        let read = |seq| {
            let reading = Reading { seq, at: now.unix, mono: now.mono };
            let mut w = Writer::new(now);
            write_log(&mut w, &Log { seq: 7, readings: vec![reading], ..Log::default() });
            read_log(&mut Reader::new(&w.into_bytes(), now), &mut Log::default())
        };
        assert!(read(7).is_ok());
        assert!(read(8).is_err());
    }
}
