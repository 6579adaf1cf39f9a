//! Effects as bytes: the payload of `LEASE.APPLY`, in the replication stream and in the AOF.
//!
//! A batch is a version byte and effects, each a tag and its fields. Version 2 added grants; version 1 is still read.

use super::access::{Grant, Level};
use super::cursor::Claim;
use super::dedupe::Accepted;
use super::effect::{
    Began, Claimed, Closing, CursorsEnded, Cut, Effect, Ended, Forgot, Gen, GrantEnded, Granted, Held, Lingered,
    MetLog, Motion, Noted, Opened, PolicySet, Recalled, RecordsEnded, Recovery, Renewed, Report, Revoked, Sent,
    Trimmed, Unheld,
};
use super::lease::{Reason, Signal};
use super::log::GENS;
use super::policy::Setting;
use super::time::Now;
use super::wire::{Corrupt, Reader, Writer};

const VERSION: u8 = 2;
/// The first: a recovery does not say whether the room wants grants, since none did.
const FIRST_VERSION: u8 = 1;

mod tag {
    pub const BEGAN: u8 = 1;
    pub const OPENED: u8 = 2;
    pub const RENEWED: u8 = 3;
    pub const LINGERED: u8 = 4;
    pub const ENDED: u8 = 5;
    pub const FORGOT: u8 = 6;
    pub const POLICY_SET: u8 = 7;
    pub const NOTED: u8 = 8;
    pub const GRANTED: u8 = 9;
    pub const REVOKED: u8 = 10;
    pub const GRANT_ENDED: u8 = 11;
    pub const CUT: u8 = 12;
    pub const SENT: u8 = 13;
    pub const TRIMMED: u8 = 14;
    pub const RECALLED: u8 = 15;
    pub const RECORDS_ENDED: u8 = 16;
    pub const CLAIMED: u8 = 17;
    pub const CURSORS_ENDED: u8 = 18;
    pub const HELD: u8 = 19;
    pub const UNHELD: u8 = 20;
}

pub fn encode(effects: &[Effect], now: Now) -> Vec<u8> {
    let mut w = Writer::new(now);
    w.byte(VERSION);
    for effect in effects {
        write(&mut w, effect);
    }
    w.into_bytes()
}

/// A batch of heartbeats, encoded one by one.
pub struct Batch(Writer);

impl Batch {
    pub fn new(now: Now) -> Self {
        let mut w = Writer::new(now);
        w.byte(VERSION);
        Self(w)
    }

    pub fn renewed(&mut self, session: &[u8], renewed: &Renewed) {
        write_renewed(&mut self.0, session, renewed);
    }

    /// None if nothing is in it.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        Some(self.0.into_bytes()).filter(|bytes| bytes.len() > 1)
    }
}

pub fn decode(bytes: &[u8], now: Now) -> Result<Vec<Effect>, Corrupt> {
    let mut r = Reader::new(bytes, now);
    let version = r.byte()?;
    if !(FIRST_VERSION..=VERSION).contains(&version) {
        return Err(Corrupt("effects of an unknown version"));
    }
    let mut effects = Vec::new();
    while !r.is_empty() {
        effects.push(read(&mut r, version)?);
    }
    Ok(effects)
}

fn write(w: &mut Writer, effect: &Effect) {
    match effect {
        Effect::Began(e) => {
            w.byte(tag::BEGAN);
            write_gen(w, e.gen);
            w.number(e.floor);
            w.number(e.event_n);
            w.moment(e.at);
            w.option(e.recovery, |w, recovery| {
                w.moment(recovery.at);
                w.option(recovery.grace_ms, Writer::number);
                w.byte(recovery.granted.into());
            });
            write_past(w, &e.past);
            w.option(e.met, |w, met| {
                w.number(met.seq);
                w.option(met.first, |w, (seq, at)| {
                    w.number(seq);
                    w.number(at);
                });
            });
        }
        Effect::Opened(e) => {
            w.byte(tag::OPENED);
            w.id(&e.session);
            w.id(&e.user);
            w.id(&e.device);
            w.number(e.epoch);
            w.number(e.ttl_ms);
            w.moment(e.deadline);
            w.number(e.at);
            w.option(e.until, Writer::moment);
            w.option(e.token.as_ref(), Writer::fixed);
            w.option(e.meta.as_deref(), Writer::bytes);
            w.option(e.replaced.as_ref(), Writer::id);
        }
        Effect::Renewed(session, e) => write_renewed(w, session.as_bytes(), e),
        Effect::Lingered(e) => {
            w.byte(tag::LINGERED);
            w.id(&e.session);
            w.number(e.epoch);
            w.moment(e.deadline);
            w.number(e.span_ms);
        }
        Effect::Ended(e) => {
            w.byte(tag::ENDED);
            w.id(&e.session);
            w.number(e.epoch);
            w.byte(e.reason as u8);
            w.number(e.at);
            w.moment(e.tombstone_until);
            w.option(e.replaced_by, Writer::number);
            w.option(e.closing, |w, closing| {
                w.number(closing.seq);
                w.option(closing.observed_at, Writer::number);
                w.number(closing.at);
            });
        }
        Effect::Forgot(e) => {
            w.byte(tag::FORGOT);
            w.number(e.sessions.len() as u64);
            for session in &e.sessions {
                w.id(session);
            }
        }
        Effect::PolicySet(e) => {
            w.byte(tag::POLICY_SET);
            w.moment(e.at);
            w.number(e.values.len() as u64);
            for (setting, value) in &e.values {
                w.byte(setting.code());
                w.option(*value, write_value);
            }
        }
        Effect::Granted(e) => {
            w.byte(tag::GRANTED);
            w.id(&e.user);
            write_grant(w, &e.grant);
            w.option(e.version, Writer::number);
        }
        Effect::Revoked(e) => {
            w.byte(tag::REVOKED);
            w.id(&e.user);
            w.option(e.device.as_ref(), Writer::id);
            w.option(e.version, Writer::number);
        }
        Effect::GrantEnded(e) => {
            w.byte(tag::GRANT_ENDED);
            w.number(e.users.len() as u64);
            for user in &e.users {
                w.id(user);
            }
        }
        Effect::Cut(e) => {
            w.byte(tag::CUT);
            w.id(&e.session);
            w.number(e.epoch);
            w.moment(e.deadline);
        }
        Effect::Claimed(e) => {
            w.byte(tag::CLAIMED);
            w.id(&e.user);
            w.id(&e.device);
            w.byte(e.claim as u8);
            w.number(e.seq);
            w.moment(e.until);
        }
        Effect::CursorsEnded(e) => {
            w.byte(tag::CURSORS_ENDED);
            w.number(e.holders.len() as u64);
            for (user, device) in &e.holders {
                w.id(user);
                w.id(device);
            }
        }
        Effect::Sent(e) => {
            w.byte(tag::SENT);
            write_accepted(w, &e.accepted);
            w.moment(e.mono);
        }
        Effect::Trimmed(e) => {
            w.byte(tag::TRIMMED);
            w.number(e.gone);
            w.number(e.oldest_at);
            w.moment(e.at);
        }
        Effect::Recalled(e) => {
            w.byte(tag::RECALLED);
            w.number(e.records.len() as u64);
            for record in &e.records {
                write_accepted(w, record);
            }
            w.option(e.next, Writer::number);
        }
        Effect::RecordsEnded(e) => {
            w.byte(tag::RECORDS_ENDED);
            w.number(e.keys.len() as u64);
            for key in &e.keys {
                w.fixed(key);
            }
        }
        Effect::Held(e) => {
            w.byte(tag::HELD);
            w.id(&e.name);
        }
        Effect::Unheld(e) => {
            w.byte(tag::UNHELD);
            w.id(&e.name);
            w.moment(e.at);
        }
        Effect::Noted(e) => {
            w.byte(tag::NOTED);
            w.number(e.event_n);
            w.number(e.events_lost);
            w.number(e.at);
        }
    }
}

fn write_renewed(w: &mut Writer, session: &[u8], e: &Renewed) {
    w.byte(tag::RENEWED);
    w.bytes(session);
    w.number(e.epoch);
    w.number(e.seq);
    w.number(e.at);
    w.moment(e.deadline);
    match e.motion {
        Motion::Renewed => w.byte(0),
        Motion::Unmoved => w.byte(1),
        Motion::Shortened(span_ms) => {
            w.byte(2);
            w.number(span_ms);
        }
    }
    w.option(e.report.as_deref(), |w, report| {
        w.option(report.signal, |w, signal| w.byte(signal as u8));
        w.option(report.ttl_ms, Writer::number);
        w.option(report.observed_at, Writer::number);
        w.option(report.meta.as_deref(), Writer::bytes);
    });
}

fn read(r: &mut Reader, version: u8) -> Result<Effect, Corrupt> {
    Ok(match r.byte()? {
        tag::BEGAN => Effect::Began(Began {
            gen: read_gen(r)?,
            floor: r.number()?,
            event_n: r.number()?,
            at: r.moment()?,
            recovery: r.option(|r| {
                let (at, grace_ms) = (r.moment()?, r.option(Reader::number)?);
                Ok(Recovery { at, grace_ms, granted: version > FIRST_VERSION && r.byte()? != 0 })
            })?,
            past: if version > FIRST_VERSION { read_past(r)? } else { Vec::new() },
            met: if version > FIRST_VERSION { r.option(read_met)? } else { None },
        }),
        tag::OPENED => Effect::Opened(Box::new(Opened {
            session: r.id()?,
            user: r.id()?,
            device: r.id()?,
            epoch: r.number()?,
            ttl_ms: r.number()?,
            deadline: r.moment()?,
            at: r.number()?,
            until: r.option(Reader::moment)?,
            token: r.option(Reader::fixed)?,
            meta: r.option(Reader::bytes)?.map(Into::into),
            replaced: r.option(Reader::id)?,
        })),
        tag::RENEWED => Effect::Renewed(r.id()?, read_renewed(r)?),
        tag::LINGERED => Effect::Lingered(Lingered {
            session: r.id()?,
            epoch: r.number()?,
            deadline: r.moment()?,
            span_ms: r.number()?,
        }),
        tag::ENDED => Effect::Ended(Ended {
            session: r.id()?,
            epoch: r.number()?,
            reason: Reason::from_code(r.byte()?).ok_or(Corrupt("an unknown reason"))?,
            at: r.number()?,
            tombstone_until: r.moment()?,
            replaced_by: r.option(Reader::number)?,
            closing: r.option(|r| {
                Ok(Closing { seq: r.number()?, observed_at: r.option(Reader::number)?, at: r.number()? })
            })?,
        }),
        tag::FORGOT => {
            let count = r.number()?;
            Effect::Forgot(Forgot { sessions: (0..count).map(|_| r.id()).collect::<Result<_, _>>()? })
        }
        tag::POLICY_SET => {
            let (at, count) = (r.moment()?, r.number()?);
            let values = (0..count).map(|_| {
                let setting = read_setting(r)?;
                Ok((setting, r.option(|r| read_value(r, setting))?))
            });
            Effect::PolicySet(PolicySet { at, values: values.collect::<Result<_, _>>()? })
        }
        tag::GRANTED => {
            Effect::Granted(Granted { user: r.id()?, grant: read_grant(r)?, version: r.option(Reader::number)? })
        }
        tag::REVOKED => Effect::Revoked(Revoked {
            user: r.id()?,
            device: r.option(Reader::id)?,
            version: r.option(Reader::number)?,
        }),
        tag::GRANT_ENDED => {
            let count = r.number()?;
            Effect::GrantEnded(GrantEnded { users: (0..count).map(|_| r.id()).collect::<Result<_, _>>()? })
        }
        tag::CUT => Effect::Cut(Cut { session: r.id()?, epoch: r.number()?, deadline: r.moment()? }),
        tag::CLAIMED => Effect::Claimed(Claimed {
            user: r.id()?,
            device: r.id()?,
            claim: Claim::from_code(r.byte()?).ok_or(Corrupt("an unknown claim"))?,
            seq: r.number()?,
            until: r.moment()?,
        }),
        tag::CURSORS_ENDED => {
            let count = r.number()?;
            let holders = (0..count).map(|_| Ok((r.id()?, r.id()?)));
            Effect::CursorsEnded(CursorsEnded { holders: holders.collect::<Result<_, _>>()? })
        }
        tag::SENT => Effect::Sent(Sent { accepted: read_accepted(r)?, mono: r.moment()? }),
        tag::TRIMMED => Effect::Trimmed(Trimmed { gone: r.number()?, oldest_at: r.number()?, at: r.moment()? }),
        tag::RECALLED => {
            let count = r.number()?;
            let records = (0..count).map(|_| read_accepted(r)).collect::<Result<_, _>>()?;
            Effect::Recalled(Recalled { records, next: r.option(Reader::number)? })
        }
        tag::RECORDS_ENDED => {
            let count = r.number()?;
            Effect::RecordsEnded(RecordsEnded { keys: (0..count).map(|_| r.fixed()).collect::<Result<_, _>>()? })
        }
        tag::HELD => Effect::Held(Held { name: r.id()? }),
        tag::UNHELD => Effect::Unheld(Unheld { name: r.id()?, at: r.moment()? }),
        tag::NOTED => Effect::Noted(Noted { event_n: r.number()?, events_lost: r.number()?, at: r.number()? }),
        _ => return Err(Corrupt("an unknown effect")),
    })
}

fn read_renewed(r: &mut Reader) -> Result<Renewed, Corrupt> {
    Ok(Renewed {
        epoch: r.number()?,
        seq: r.number()?,
        at: r.number()?,
        deadline: r.moment()?,
        motion: match r.byte()? {
            0 => Motion::Renewed,
            1 => Motion::Unmoved,
            2 => Motion::Shortened(r.number()?),
            _ => return Err(Corrupt("an unknown motion")),
        },
        report: r.option(|r| {
            Ok(Box::new(Report {
                signal: r.option(read_signal)?,
                ttl_ms: r.option(Reader::number)?,
                observed_at: r.option(Reader::number)?,
                meta: r.option(Reader::bytes)?.map(Into::into),
            }))
        })?,
    })
}

pub(super) fn write_grant(w: &mut Writer, grant: &Grant) {
    w.byte(grant.level as u8);
    w.option(grant.until, Writer::moment);
    w.option(grant.token.as_ref(), Writer::fixed);
}

pub(super) fn read_grant(r: &mut Reader) -> Result<Grant, Corrupt> {
    Ok(Grant {
        level: Level::from_code(r.byte()?).ok_or(Corrupt("an unknown level"))?,
        until: r.option(Reader::moment)?,
        token: r.option(Reader::fixed)?,
    })
}

pub(super) fn write_past(w: &mut Writer, past: &[(Gen, u64)]) {
    w.number(past.len() as u64);
    for (gen, last) in past {
        write_gen(w, *gen);
        w.number(*last);
    }
}

pub(super) fn read_past(r: &mut Reader) -> Result<Vec<(Gen, u64)>, Corrupt> {
    let count = usize::try_from(r.number()?).ok().filter(|count| *count <= GENS);
    let count = count.ok_or(Corrupt("more gens than a room keeps"))?;
    (0..count).map(|_| Ok((read_gen(r)?, r.number()?))).collect()
}

fn read_met(r: &mut Reader) -> Result<MetLog, Corrupt> {
    Ok(MetLog { seq: r.number()?, first: r.option(|r| Ok((r.number()?, r.number()?)))? })
}

pub(super) fn write_accepted(w: &mut Writer, accepted: &Accepted) {
    w.fixed(&accepted.key);
    w.fixed(&accepted.payload);
    w.number(accepted.seq);
    w.number(accepted.at);
    w.moment(accepted.until);
}

pub(super) fn read_accepted(r: &mut Reader) -> Result<Accepted, Corrupt> {
    Ok(Accepted { key: r.fixed()?, payload: r.fixed()?, seq: r.number()?, at: r.number()?, until: r.moment()? })
}

pub(super) fn read_signal(r: &mut Reader) -> Result<Signal, Corrupt> {
    Signal::from_code(r.byte()?).ok_or(Corrupt("an unknown signal"))
}

pub(super) fn write_gen(w: &mut Writer, gen: Gen) {
    w.number(gen.ms);
    w.fixed(&gen.random.to_be_bytes());
}

pub(super) fn read_gen(r: &mut Reader) -> Result<Gen, Corrupt> {
    Ok(Gen { ms: r.number()?, random: u32::from_be_bytes(r.fixed()?) })
}

pub(super) fn read_setting(r: &mut Reader) -> Result<Setting, Corrupt> {
    let setting = Setting::from_code(r.byte()?).filter(|s| s.per_room());
    setting.ok_or(Corrupt("an unknown policy field"))
}

/// A setting's value; none that a room can have is negative.
pub(super) fn write_value(w: &mut Writer, value: i64) {
    w.number(u64::try_from(value).unwrap_or(0));
}

pub(super) fn read_value(r: &mut Reader, setting: Setting) -> Result<i64, Corrupt> {
    let value = i64::try_from(r.number()?).ok().filter(|value| setting.allows(*value));
    value.ok_or(Corrupt("a policy value out of range"))
}
