//! Any effect that LEASE.APPLY can carry, made of drawn words, whether a room would ever decide it or not.

use redis_lease::core::access::{Grant, Level};
use redis_lease::core::cursor::Claim;
use redis_lease::core::dedupe::Accepted;
use redis_lease::core::effect::*;
use redis_lease::core::lease::{Reason, Signal};
use redis_lease::core::policy::Setting;

use crate::draw::{Draw, NOW};

pub fn effect(d: &mut Draw) -> Effect {
    match d.below(20) {
        0 => Effect::Began(began(d)),
        1..=3 => Effect::Opened(Box::new(opened(d))),
        4 => Effect::Renewed(d.id(), renewed(d)),
        5 => Effect::Lingered(Lingered {
            session: d.id(),
            epoch: d.number(),
            deadline: d.moment(NOW.mono),
            span_ms: d.number(),
        }),
        6 => Effect::Ended(ended(d)),
        7 => Effect::Forgot(Forgot { sessions: d.several(Draw::id) }),
        8 => Effect::PolicySet(PolicySet { values: policy(d), at: d.moment(NOW.mono) }),
        9 => Effect::Granted(Granted { user: d.id(), grant: grant(d), version: d.maybe(Draw::number) }),
        10 => Effect::Revoked(Revoked { user: d.id(), device: d.maybe(Draw::id), version: d.maybe(Draw::number) }),
        11 => Effect::GrantEnded(GrantEnded { users: d.several(Draw::id) }),
        12 => Effect::Cut(Cut { session: d.id(), epoch: d.number(), deadline: d.moment(NOW.mono) }),
        13 => Effect::Claimed(Claimed {
            user: d.id(),
            device: d.id(),
            claim: d.pick(&Claim::ALL),
            seq: d.number(),
            until: d.moment(NOW.mono),
        }),
        14 => Effect::CursorsEnded(CursorsEnded { holders: d.several(|d| (d.id(), d.id())) }),
        15 => Effect::Sent(Sent { accepted: accepted(d), mono: d.moment(NOW.mono) }),
        16 => Effect::Trimmed(Trimmed { gone: d.number(), oldest_at: d.moment(NOW.unix), at: d.moment(NOW.mono) }),
        17 => Effect::Recalled(Recalled { records: d.several(accepted), next: d.maybe(Draw::number) }),
        18 => match d.below(3) {
            0 => Effect::RecordsEnded(RecordsEnded { keys: d.several(Draw::fixed) }),
            1 => Effect::Held(Held { name: d.id() }),
            _ => Effect::Unheld(Unheld { name: d.id(), at: d.moment(NOW.mono) }),
        },
        _ => Effect::Noted(Noted { event_n: d.number(), events_lost: d.number(), at: d.moment(NOW.unix) }),
    }
}

fn gen(d: &mut Draw) -> Gen {
    Gen { ms: d.moment(NOW.unix), random: d.byte().into() }
}

fn began(d: &mut Draw) -> Began {
    Began {
        gen: gen(d),
        floor: d.number(),
        event_n: d.number(),
        at: d.moment(NOW.mono),
        recovery: d.maybe(|d| Recovery {
            at: d.moment(NOW.mono),
            grace_ms: d.maybe(Draw::number),
            granted: d.one_in(2),
        }),
        past: d.several(|d| (gen(d), d.number())),
        met: d.maybe(|d| MetLog { seq: d.number(), first: d.maybe(|d| (d.number(), d.moment(NOW.unix))) }),
    }
}

fn opened(d: &mut Draw) -> Opened {
    Opened {
        session: d.id(),
        user: d.id(),
        device: d.id(),
        epoch: d.number(),
        ttl_ms: d.number(),
        deadline: d.moment(NOW.mono),
        at: d.moment(NOW.unix),
        until: d.maybe(|d| d.moment(NOW.mono)),
        token: d.maybe(Draw::fixed),
        meta: d.maybe(|d| d.blob().into()),
        replaced: d.maybe(Draw::id),
    }
}

fn renewed(d: &mut Draw) -> Renewed {
    Renewed {
        epoch: d.number(),
        seq: d.number(),
        at: d.moment(NOW.unix),
        deadline: d.moment(NOW.mono),
        motion: match d.below(3) {
            0 => Motion::Renewed,
            1 => Motion::Unmoved,
            _ => Motion::Shortened(d.number()),
        },
        report: d.maybe(|d| {
            Box::new(Report {
                signal: d.maybe(|d| d.pick(&Signal::ALL)),
                ttl_ms: d.maybe(Draw::number),
                observed_at: d.maybe(Draw::number),
                meta: d.maybe(|d| d.blob().into()),
            })
        }),
    }
}

fn ended(d: &mut Draw) -> Ended {
    Ended {
        session: d.id(),
        epoch: d.number(),
        reason: d.pick(&Reason::ALL),
        at: d.moment(NOW.unix),
        tombstone_until: d.moment(NOW.mono),
        replaced_by: d.maybe(Draw::number),
        closing: d.maybe(|d| Closing { seq: d.number(), observed_at: d.maybe(Draw::number), at: d.moment(NOW.unix) }),
    }
}

fn grant(d: &mut Draw) -> Grant {
    Grant {
        level: d.pick(&[Level::Read, Level::Write]),
        until: d.maybe(|d| d.moment(NOW.mono)),
        token: d.maybe(Draw::fixed),
    }
}

fn accepted(d: &mut Draw) -> Accepted {
    Accepted { key: d.fixed(), payload: d.fixed(), seq: d.number(), at: d.moment(NOW.unix), until: d.moment(NOW.mono) }
}

/// Settings a room may have, with values they may have.
pub fn policy(d: &mut Draw) -> Vec<(Setting, Option<i64>)> {
    let values = d.several(|d| (d.pick(&Setting::ALL), d.maybe(|d| d.number() as i64)));
    let may = |(setting, value): &(Setting, Option<i64>)| {
        setting.per_room() && value.is_none_or(|value| setting.allows(value))
    };
    values.into_iter().filter(may).collect()
}
