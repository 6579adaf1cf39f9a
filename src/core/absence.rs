//! How long a holder that comes back was away, and why. Nothing is decided by it: operators are told.

use super::lease::Reason;
use super::room::{Env, Room};

/// The time since a holder's last lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    pub reason: Reason,
    pub ms: u64,
    /// Of the lease that ended.
    pub ttl_ms: u64,
}

impl Absence {
    /// Whether the holder was there all along, as far as anyone can tell: its heartbeats, not its connection, were
    /// late.
    pub fn is_false_offline(self) -> bool {
        self.reason == Reason::Expired && self.ms <= self.ttl_ms
    }
}

impl Room {
    /// None while the holder has a live lease, and once its last session is forgotten.
    pub fn absence(&self, user: &[u8], device: &[u8], env: &Env) -> Option<Absence> {
        let holder = self.users.holder(self.users.find(user)?, device)?;
        let lease = self.leases.get(holder.newest)?;
        if lease.is_live(env.now.mono) || !self.is_known(lease, env) {
            return None;
        }
        Some(Absence {
            reason: lease.ended().unwrap_or_else(|| lease.expiry_reason()),
            ms: env.now.unix.saturating_sub(self.ended_at(lease, env)),
            ttl_ms: self.ttl_of(holder.newest, lease),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::depart::Departure;
    use crate::core::effect::{Began, Gen};
    use crate::core::open::{Open, Opening};
    use crate::core::plan::Plan;
    use crate::core::policy::Settings;
    use crate::core::time::Now;

    const TTL_MS: u64 = 30_000;

    fn at<T>(ms: u64, look: impl FnOnce(&Env) -> T) -> T {
        look(&Env { now: Now { mono: ms, unix: ms }, settings: &Settings::default() })
    }

    fn apply(room: &mut Room, plan: Plan) {
        plan.effects.iter().for_each(|effect| room.apply(effect));
    }

    fn open(room: &mut Room, session: &[u8], env: &Env) {
        let open = Open {
            user: b"u",
            device: b"d",
            session: Some(session),
            ttl_ms: None,
            until: None,
            token: None,
            grant_token: None,
            meta: None,
            only_if_vacant: false,
            random: [0; 16],
        };
        let Ok(Opening::Fresh(_, plan)) = room.decide_open(&open, env) else { panic!("refused") };
        apply(room, plan);
    }

    fn absence(room: &Room, ms: u64) -> Option<(Reason, u64)> {
        at(ms, |env| room.absence(b"u", b"d", env)).map(|a| {
            assert_eq!(a.ttl_ms, TTL_MS);
            (a.reason, a.ms)
        })
    }

    fn room() -> Room {
        let gen = Gen { ms: 0, random: 0 };
        let mut room =
            Room::new(Began { gen, floor: 0, event_n: 0, at: 0, recovery: None, past: Vec::new(), met: None });
        at(0, |env| open(&mut room, b"a", env));
        room
    }

    #[test]
    fn counts_from_the_deadline_removed_or_not() {
        let mut room = room();
        assert_eq!(absence(&room, TTL_MS - 1), None);
        assert_eq!(absence(&room, TTL_MS + 7), Some((Reason::Expired, 7)));
        let plan = at(TTL_MS + 7, |env| room.decide_expiry(env));
        apply(&mut room, plan.unwrap());
        assert_eq!(absence(&room, TTL_MS + 9), Some((Reason::Expired, 9)));
        assert_eq!(at(TTL_MS, |env| room.absence(b"u", b"default", env)), None);
        at(TTL_MS + 10, |env| open(&mut room, b"b", env));
        assert_eq!(absence(&room, TTL_MS + 11), None);
    }

    #[test]
    fn ends_when_the_session_is_forgotten() {
        let mut room = room();
        let left = at(5, |env| room.decide_leave(b"a", 1, 0, None, env));
        let Ok(Departure::Left(plan)) = left else { panic!("not left") };
        apply(&mut room, plan);
        let window = Settings::default().get(crate::core::policy::Setting::TombstoneMs) as u64;
        assert_eq!(absence(&room, 5 + window - 1), Some((Reason::Left, window - 1)));
        assert_eq!(absence(&room, 5 + window), None);
    }

    #[test]
    fn only_an_expiry_within_one_ttl_was_false() {
        let absence = |reason, ms| Absence { reason, ms, ttl_ms: 100 };
        assert!(absence(Reason::Expired, 100).is_false_offline());
        assert!(!absence(Reason::Expired, 101).is_false_offline());
        assert!(!absence(Reason::Left, 1).is_false_offline());
    }
}
