//! MARK, ACK and LAG: delivery claims.
//!
//! Rules
//! 1. MARK is a server's word on a holder the room knows: one with a lease or a tombstone, a grant or a cursor. ACK is
//!    the word of a live session's client.
//! 2. No claim goes beyond the newest message.
//! 3. A claim that does not move writes nothing.
//! 4. The user's cursors that are over go with the next move of one of them, so that a room never holds more than it
//!    may, and a holder's new cursor never stands on an old one.

use super::cursor::{Claim, Cursor, MOST_DEVICES};
use super::effect::{Claimed, CursorsEnded, Effect};
use super::id::Id;
use super::plan::Plan;
use super::refusal::{Limit, Refusal};
use super::room::{Env, Room};

/// MARK of a holder that the room does not know; no room knows any.
pub const UNKNOWN_HOLDER: Refusal = Refusal::Bad("the room does not know this holder");
const BEYOND: Refusal = Refusal::Bad("the seq is beyond the newest message");

pub struct Mark<'a> {
    pub user: &'a [u8],
    pub device: &'a [u8],
    pub claim: Claim,
    pub seq: u64,
}

pub struct Ack<'a> {
    pub session: &'a [u8],
    pub epoch: u64,
    pub token: Option<&'a [u8]>,
    pub seq: u64,
}

/// Where a claim stands, and how it gets there; no plan if it stands there already.
pub struct Move {
    pub seq: u64,
    pub plan: Option<Plan>,
}

/// How many holders have cursors, and how far the last of them is behind the newest message, by claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lags {
    pub cursors: u64,
    pub queued: u64,
    pub written: u64,
    pub acked: u64,
}

impl Room {
    pub fn decide_mark(&self, mark: &Mark, env: &Env) -> Result<Move, Refusal> {
        if !self.knows_holder(mark.user, mark.device, env) {
            return Err(UNKNOWN_HOLDER);
        }
        self.decide_move(mark, env)
    }

    pub fn decide_ack(&self, ack: &Ack, env: &Env) -> Result<Move, Refusal> {
        let (slot, lease) = self.live_session(ack.session, ack.epoch, ack.token, env)?;
        let (user, device) = (self.user_of(lease), self.device_of(slot, lease));
        self.decide_move(&Mark { user, device, claim: Claim::Acked, seq: ack.seq }, env)
    }

    fn decide_move(&self, mark: &Mark, env: &Env) -> Result<Move, Refusal> {
        let Mark { user, device, claim, seq } = *mark;
        if seq > self.log_seq() {
            return Err(BEYOND);
        }
        let cursor = self.cursors.live(user, device, env.now.mono);
        let before = cursor.map_or(0, |cursor| cursor.seq(claim));
        if seq <= before {
            return Ok(Move { seq: before, plan: None });
        }
        let is_live = |c: &&Cursor| self.cursors.is_live(c, env.now.mono);
        let (live, over): (Vec<_>, Vec<_>) = self.cursors.of_user(user).partition(is_live);
        if cursor.is_none() && live.len() >= MOST_DEVICES {
            return Err(Refusal::Limit(Limit::Items));
        }
        let mut plan = Plan::of(self, env);
        if !over.is_empty() {
            let holders = over.into_iter().map(|c| (c.user.clone(), c.device.clone())).collect();
            plan.effects.push(Effect::CursorsEnded(CursorsEnded { holders }));
        }
        let until = env.now.after(env.settings.cursor_ms());
        let (user, device) = (Id::new(user), Id::new(device));
        plan.effects.push(Effect::Claimed(Claimed { user, device, claim, seq, until }));
        Ok(Move { seq, plan: Some(plan) })
    }

    /// Cursors whose time is over, `most` at most.
    pub fn decide_cursor_ends(&self, most: usize, env: &Env) -> Option<Plan> {
        let holders = self.cursors.ended(env.now.mono, most);
        if holders.is_empty() {
            return None;
        }
        let mut plan = Plan::of(self, env);
        plan.effects.push(Effect::CursorsEnded(CursorsEnded { holders }));
        Some(plan)
    }

    /// A page of cursors: where to go on (0 when done), and the cursors, to be told from the newest message.
    pub fn lag(&self, cursor: u64, count: usize, env: &Env) -> (u64, Vec<&Cursor>) {
        let first = u32::try_from(cursor).unwrap_or(u32::MAX);
        let mut cursors = Vec::new();
        for (slot, cursor) in self.cursors.from(first).filter(|(_, c)| self.cursors.is_live(c, env.now.mono)) {
            if cursors.len() == count {
                return (slot.into(), cursors);
            }
            cursors.push(cursor);
        }
        (0, cursors)
    }

    /// What STATS tells of all cursors.
    pub fn lags(&self, env: &Env) -> Lags {
        let newest = self.log_seq();
        let live = self.cursors.from(0).map(|(_, c)| c).filter(|c| self.cursors.is_live(c, env.now.mono));
        live.fold(Lags::default(), |lags, c| Lags {
            cursors: lags.cursors.saturating_add(1),
            queued: lags.queued.max(newest.saturating_sub(c.queued)),
            written: lags.written.max(newest.saturating_sub(c.written)),
            acked: lags.acked.max(newest.saturating_sub(c.acked)),
        })
    }

    fn knows_holder(&self, user: &[u8], device: &[u8], env: &Env) -> bool {
        let granted = || self.access.get(user).is_some_and(|r| r.live_grant(env.now.mono).is_some());
        self.cursors.live(user, device, env.now.mono).is_some() || granted() || self.remembers(user, device, env)
    }

    /// Whether the holder has a lease or a tombstone. While its newest record is gone, an older one remains.
    fn remembers(&self, user: &[u8], device: &[u8], env: &Env) -> bool {
        let holder = self.users.find(user).and_then(|user| self.users.holder(user, device));
        holder.is_some_and(|h| self.leases.get(h.newest).is_none_or(|lease| self.is_known(lease, env)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::core::access::{Grant, Level};
    use crate::core::codec;
    use crate::core::effect::{Ended, Forgot, GrantEnded, Granted, Opened};
    use crate::core::lease::Reason;
    use crate::core::policy::{Setting, Settings};
    use crate::core::refusal::Stale;
    use crate::core::snapshot::{self, Digest, Loading};
    use crate::core::time::{Now, MAX};

    const NOW: Now = Now { mono: 1 << 40, unix: 1 << 41 };
    const NEWEST: u64 = 100;
    const CURSOR_MS: u64 = 50;

    fn at(ms: u64) -> Now {
        Now { mono: NOW.mono + ms, unix: NOW.unix + ms }
    }

    fn settings() -> Settings {
        let mut settings = Settings::default();
        settings.put(Setting::CursorMs, CURSOR_MS as i64);
        settings
    }

    /// After messages that were all trimmed, with a grant for `u`.
    fn room() -> Room {
        let mut room = Room::default();
        (room.log.seq, room.log.gone) = (NEWEST, NEWEST);
        let grant = Grant { level: Level::Read, until: None, token: None };
        room.apply(&Effect::Granted(Granted { user: Id::new(b"u"), grant, version: None }));
        room
    }

    fn opened(user: &[u8], deadline: u64) -> Opened {
        Opened {
            session: Id::new(user),
            user: Id::new(user),
            device: Id::new(b"d"),
            epoch: 1,
            ttl_ms: 10,
            deadline,
            at: NOW.unix,
            until: None,
            token: None,
            meta: None,
            replaced: None,
        }
    }

    fn open(room: &mut Room, user: &[u8], deadline: u64) {
        room.apply(&Effect::Opened(Box::new(opened(user, deadline))));
    }

    fn mark<'a>(user: &'a [u8], device: &'a [u8], claim: Claim, seq: u64) -> Mark<'a> {
        Mark { user, device, claim, seq }
    }

    /// Carries a move out; the reply, and how many effects it took.
    fn go(room: &mut Room, moved: Result<Move, Refusal>) -> Result<(u64, usize), Refusal> {
        moved.map(|moved| {
            let effects = moved.plan.map(|plan| plan.effects).unwrap_or_default();
            effects.iter().for_each(|effect| room.apply(effect));
            (moved.seq, effects.len())
        })
    }

    #[test]
    fn a_claim_moves_forward_alone_and_not_beyond_the_newest_message() {
        let (settings, mut room) = (settings(), room());
        let env = Env { now: NOW, settings: &settings };
        for (claim, seq, expected) in [
            (Claim::Queued, 0, Ok((0, 0))),
            (Claim::Queued, 7, Ok((7, 1))),
            (Claim::Queued, 7, Ok((7, 0))),
            (Claim::Queued, 3, Ok((7, 0))),
            (Claim::Written, 0, Ok((0, 0))),
            (Claim::Written, NEWEST, Ok((NEWEST, 1))),
            (Claim::Queued, NEWEST + 1, Err(BEYOND)),
        ] {
            let moved = room.decide_mark(&mark(b"u", b"d", claim, seq), &env);
            assert_eq!(go(&mut room, moved), expected, "{claim:?} {seq}");
        }
        assert_eq!(room.lags(&env), Lags { cursors: 1, queued: NEWEST - 7, written: 0, acked: NEWEST });
    }

    #[test]
    fn a_holder_is_known_by_lease_tombstone_grant_or_cursor() {
        let (settings, mut room) = (settings(), room());
        let env = |ms| Env { now: at(ms), settings: &settings };
        let known = |room: &Room, user: &[u8], device: &[u8], ms| {
            room.decide_mark(&mark(user, device, Claim::Queued, 1), &env(ms)).map(|moved| moved.seq)
        };
        assert_eq!(known(&room, b"u", b"any", 0), Ok(1));
        assert_eq!(known(&room, b"v", b"d", 0), Err(UNKNOWN_HOLDER));
        open(&mut room, b"v", NOW.mono + 10);
        assert_eq!((known(&room, b"v", b"d", 0), known(&room, b"v", b"e", 0)), (Ok(1), Err(UNKNOWN_HOLDER)));
        // An overdue lease counts as long as its tombstone would, removed or not.
        let over = 10 + Setting::TombstoneMs.default_value() as u64;
        assert_eq!((known(&room, b"v", b"d", over - 1), known(&room, b"v", b"d", over)), (Ok(1), Err(UNKNOWN_HOLDER)));
        let plan = room.decide_expiry(&env(10)).unwrap();
        plan.effects.iter().for_each(|effect| room.apply(effect));
        assert_eq!((known(&room, b"v", b"d", over - 1), known(&room, b"v", b"d", over)), (Ok(1), Err(UNKNOWN_HOLDER)));
        let moved = room.decide_mark(&mark(b"u", b"d", Claim::Queued, 1), &env(0));
        go(&mut room, moved).unwrap();
        room.apply(&Effect::GrantEnded(GrantEnded { users: vec![Id::new(b"u")] }));
        assert_eq!(known(&room, b"u", b"d", CURSOR_MS - 1), Ok(1));
        assert_eq!(known(&room, b"u", b"d", CURSOR_MS), Err(UNKNOWN_HOLDER));
        assert_eq!(known(&room, b"u", b"any", 0), Err(UNKNOWN_HOLDER));
    }

    #[test]
    fn a_holder_is_known_by_an_older_tombstone() {
        let (settings, mut room) = (settings(), Room::default());
        let env = Env { now: NOW, settings: &settings };
        // The second tombstone was given a shorter window than the first.
        for (session, epoch, tombstone_until) in [(&b"a"[..], 1, NOW.mono + 90), (b"b", 2, NOW.mono)] {
            let opened = Opened { session: Id::new(session), epoch, ..opened(b"v", NOW.mono + 10) };
            room.apply(&Effect::Opened(Box::new(opened)));
            room.apply(&Effect::Ended(Ended {
                session: Id::new(session),
                epoch,
                reason: Reason::Left,
                at: NOW.unix,
                tombstone_until,
                replaced_by: None,
                closing: None,
            }));
        }
        for known in [true, false] {
            let session = if known { b"b" } else { b"a" };
            room.apply(&Effect::Forgot(Forgot { sessions: vec![Id::new(session)] }));
            let moved = room.decide_mark(&mark(b"v", b"d", Claim::Queued, 0), &env);
            assert_eq!(moved.is_ok(), known);
        }
    }

    #[test]
    fn only_a_live_session_acknowledges_and_open_tells_it() {
        let (settings, mut room) = (settings(), room());
        let env = |ms| Env { now: at(ms), settings: &settings };
        open(&mut room, b"v", NOW.mono + CURSOR_MS + 1);
        let ack = |epoch, seq| Ack { session: b"v", epoch, token: None, seq };
        assert_eq!(room.decide_ack(&ack(2, 0), &env(0)).err(), Some(Refusal::Stale(Stale::Unknown)));
        assert_eq!(room.decide_ack(&ack(1, NEWEST + 1), &env(0)).err(), Some(BEYOND));
        let moved = room.decide_ack(&ack(1, 9), &env(0));
        assert_eq!(go(&mut room, moved), Ok((9, 1)));
        let acked = |ms| room.open_view(b"v", &env(ms)).map(|view| view.acked);
        assert_eq!((acked(CURSOR_MS - 1), acked(CURSOR_MS)), (Some(9), Some(0)));
        assert_eq!(room.decide_ack(&ack(1, 9), &env(CURSOR_MS + 1)).err(), Some(Refusal::Stale(Stale::Expired)));
    }

    #[test]
    fn cursors_keep_the_room_until_the_last_is_over() {
        let (settings, mut room) = (settings(), room());
        let env = |ms| Env { now: at(ms), settings: &settings };
        for (ms, claim) in [(0, Claim::Queued), (20, Claim::Written)] {
            let moved = room.decide_mark(&mark(b"u", b"d", claim, 1), &env(ms));
            go(&mut room, moved).unwrap();
        }
        let over = NOW.mono + 20 + CURSOR_MS;
        room.apply(&Effect::GrantEnded(GrantEnded { users: vec![Id::new(b"u")] }));
        assert_eq!((room.is_empty(), room.next_due(&env(0))), (false, over));
        assert!(room.decide_cursor_ends(9, &env(19 + CURSOR_MS)).is_none());
        let plan = room.decide_cursor_ends(9, &env(60 + CURSOR_MS)).unwrap();
        plan.effects.iter().for_each(|effect| room.apply(effect));
        assert_eq!((room.is_empty(), room.busy_until), (true, over));
    }

    #[test]
    fn impossible_cursors_are_refused() {
        let (settings, mut room) = (settings(), room());
        let env = Env { now: NOW, settings: &settings };
        for device in 0..MOST_DEVICES as u8 {
            let moved = room.decide_mark(&mark(b"u", &[device], Claim::Queued, NEWEST), &env);
            go(&mut room, moved).unwrap();
        }
        let saved = snapshot::parts(&room, true, NOW).find(|part| part[1] == 5).unwrap();
        let load = |newest, records: &[u8]| {
            let mut room = Room::default();
            room.log.seq = newest;
            Loading::resume(room).part(&[&saved[..2], records].concat(), NOW)
        };
        let size = (saved.len() - 2) / MOST_DEVICES;
        let (all, one) = (&saved[2..], &saved[2..2 + size]);
        assert_eq!((load(NEWEST, all), load(NEWEST, one)), (Ok(()), Ok(())));
        let with = |at: usize, byte: u8| {
            let mut changed = one.to_vec();
            changed[at] = byte;
            changed
        };
        // A record begins with two ids of one byte; then come the claims.
        assert_eq!((one[1], one[3], one[4]), (b'u', 0, NEWEST as u8));
        assert!(load(NEWEST - 1, all).is_err(), "beyond the newest message");
        assert!(load(NEWEST, &with(5, NEWEST as u8 + 1)).is_err(), "beyond it, written only");
        assert!(load(NEWEST, &with(4, 0)).is_err(), "no claim at all");
        assert!(load(NEWEST, &[one, one].concat()).is_err(), "one holder twice");
        assert!(load(NEWEST, &[all, &with(3, 64)].concat()).is_err(), "65 devices of a user");
        assert!(load(NEWEST, &[all, &with(1, b'v')].concat()).is_ok(), "another user");
        for end in 1..size {
            assert!(load(NEWEST, &one[..end]).is_err(), "a record of {end} bytes");
        }
        let [user, device] = [Id::new(b"u"), Id::new(&[0])];
        let beyond = Claimed { user, device, claim: Claim::Acked, seq: NEWEST + 1, until: MAX };
        room.apply(&Effect::Claimed(beyond));
        assert_eq!(room.cursors.get(b"u", &[0]).map(|cursor| cursor.acked), Some(0));
    }

    #[derive(Default)]
    struct Items(Vec<Vec<u8>>, Vec<u8>);

    impl Digest for Items {
        fn bytes(&mut self, bytes: &[u8]) {
            self.number(bytes.len() as u64);
            self.1.extend_from_slice(bytes);
        }
        fn number(&mut self, number: u64) {
            self.1.extend_from_slice(&number.to_le_bytes());
        }
        fn end_item(&mut self) {
            self.0.push(std::mem::take(&mut self.1));
        }
    }

    fn digest(room: &Room) -> Vec<Vec<u8>> {
        let mut items = Items::default();
        snapshot::digest(room, &mut items);
        items.0.sort();
        items.0
    }

    #[test]
    fn a_digest_tells_claims_but_not_when_they_end() {
        let settings = settings();
        let digest_of = |claim, seq, ms| {
            let mut room = room();
            let moved = room.decide_mark(&mark(b"u", b"d", claim, seq), &Env { now: at(ms), settings: &settings });
            go(&mut room, moved).unwrap();
            digest(&room)
        };
        assert_eq!(digest_of(Claim::Queued, 1, 0), digest_of(Claim::Queued, 1, 7));
        assert_ne!(digest_of(Claim::Queued, 1, 0), digest_of(Claim::Queued, 2, 0));
        assert_ne!(digest_of(Claim::Queued, 1, 0), digest_of(Claim::Written, 1, 0));
    }

    #[derive(Clone, Debug)]
    enum Op {
        Mark { user: u8, device: u8, claim: Claim, seq: u64 },
        Reap(usize),
        Pass(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        let claims = prop::sample::select(vec![Claim::Queued, Claim::Written]);
        // One user in most cases, so that its devices run out.
        let user = prop::sample::select(b"uuuuvw".to_vec());
        prop_oneof![
            20 => (user, 0..80u8, claims, 0..NEWEST + 5)
                .prop_map(|(user, device, claim, seq)| Op::Mark { user, device, claim, seq }),
            1 => (1..40usize).prop_map(Op::Reap),
            1 => (0..CURSOR_MS).prop_map(Op::Pass),
        ]
    }

    /// Holders, how far their messages were queued and written, and the end of it.
    #[derive(Default)]
    struct Model(HashMap<(u8, u8), ([u64; 2], u64)>);

    impl Model {
        fn mark(&mut self, (user, device): (u8, u8), claim: usize, seq: u64, mono: u64) -> Result<u64, Refusal> {
            self.0.retain(|_, (_, until)| *until > mono);
            let known = self.0.contains_key(&(user, device));
            if user == b'w' {
                return Err(UNKNOWN_HOLDER);
            }
            if seq > NEWEST {
                return Err(BEYOND);
            }
            if seq == 0 && !known {
                return Ok(0);
            }
            if !known && self.0.keys().filter(|(of, _)| *of == user).count() == MOST_DEVICES {
                return Err(Refusal::Limit(Limit::Items));
            }
            let (claims, until) = self.0.entry((user, device)).or_default();
            if seq > claims[claim] {
                claims[claim] = seq;
                *until = mono + CURSOR_MS;
            }
            Ok(claims[claim])
        }
    }

    proptest! {
        /// Replies and pages do not depend on when the reaper runs; another node gets the same from effects alone, and
        /// from a snapshot.
        #[test]
        fn agrees_with_a_map_on_all_nodes(ops in prop::collection::vec(op(), 1..400)) {
            let (settings, mut model, mut ms) = (settings(), Model::default(), 0);
            let mut room = room();
            let grant = Grant { level: Level::Read, until: None, token: None };
            room.apply(&Effect::Granted(Granted { user: Id::new(b"v"), grant, version: None }));
            let mut replica = room.clone();
            for op in ops {
                let env = Env { now: at(ms), settings: &settings };
                let plan = match op {
                    Op::Pass(span_ms) => {
                        ms += span_ms;
                        None
                    }
                    Op::Reap(most) => room.decide_cursor_ends(most, &env),
                    Op::Mark { user, device, claim, seq } => {
                        let moved = room.decide_mark(&mark(&[user], &[device], claim, seq), &env);
                        let expected = model.mark((user, device), claim as usize - 1, seq, env.now.mono);
                        prop_assert_eq!(moved.as_ref().map(|moved| moved.seq).map_err(Refusal::clone), expected);
                        moved.ok().and_then(|moved| moved.plan)
                    }
                };
                let effects = plan.map(|plan| plan.effects).unwrap_or_default();
                effects.iter().for_each(|effect| room.apply(effect));
                let sent = codec::decode(&codec::encode(&effects, env.now), env.now).unwrap();
                prop_assert_eq!(&sent, &effects);
                sent.iter().for_each(|effect| replica.apply(effect));
                prop_assert!(room.cursors.of_user(b"u").count() <= MOST_DEVICES);
            }
            prop_assert_eq!(digest(&room), digest(&replica));

            let env = Env { now: at(ms), settings: &settings };
            model.0.retain(|_, (_, until)| *until > env.now.mono);
            let mut loading = Loading::resume(Room { log: room.log.clone(), ..Room::default() });
            for part in snapshot::parts(&room, true, env.now).skip(1) {
                loading.part(&part, env.now).unwrap();
            }
            for node in [&room, &replica, &loading.into_room()] {
                let (mut seen, mut next) = (HashMap::new(), 0);
                loop {
                    let (after, page) = node.lag(next, 7, &env);
                    prop_assert!(page.len() <= 7 && (after == 0 || after > next));
                    for c in page {
                        let holder = (c.user.as_bytes()[0], c.device.as_bytes()[0]);
                        prop_assert!(seen.insert(holder, ([c.queued, c.written], node.cursors.until(c))).is_none());
                    }
                    next = after;
                    if next == 0 {
                        break;
                    }
                }
                prop_assert_eq!(&seen, &model.0);
                let lag = |claim: usize| model.0.values().map(|(claims, _)| NEWEST - claims[claim]).max().unwrap_or(0);
                let acked = if model.0.is_empty() { 0 } else { NEWEST };
                let lags = Lags { cursors: model.0.len() as u64, queued: lag(0), written: lag(1), acked };
                prop_assert_eq!(node.lags(&env), lags);
            }
        }
    }
}
