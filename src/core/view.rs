//! What reads tell. They change nothing: an overdue lease reads just as after its removal, on a replica too.

use super::effect::Gen;
use super::id::Id;
use super::lease::{Lease, Phase, Reason, Signal};
use super::replay::Edges;
use super::room::{Env, Room};
use super::users::NONE;

/// Slots that one roster page looks at for each lease it may return, so that a page stays short in a room full of
/// what it does not show.
const SLOTS_PER_LEASE: usize = 10;

/// A lease as GET, ROSTER and INSPECT show it. `None`: does not apply, or withheld by the policy's precision.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseView<'a> {
    pub session: Id,
    pub user: &'a [u8],
    pub device: &'a [u8],
    pub epoch: u64,
    pub seq: Option<u64>,
    pub state: &'static str,
    pub reason: Option<Reason>,
    pub signal: Option<Signal>,
    pub ttl_ms: u64,
    pub left_ms: u64,
    pub expires_at: u64,
    pub opened_at: u64,
    pub heartbeat_at: u64,
    pub observed_at: Option<u64>,
    pub ended_at: Option<u64>,
    pub replaced_by: Option<u64>,
    pub meta: Option<&'a [u8]>,
}

/// OPEN's reply: exact, whatever the precision.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenView {
    pub session: Id,
    pub epoch: u64,
    pub user_leases: u32,
    pub ttl_ms: u64,
    pub left_ms: u64,
    pub expires_at: u64,
    pub replaced: Option<Id>,
    pub gen: Gen,
    pub log_seq: u64,
    pub event_n: u64,
}

/// Which leases a roster page shows.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest<'a> {
    pub user: Option<&'a [u8]>,
    /// The slot to go on from.
    pub cursor: u64,
    pub count: usize,
    pub ended: bool,
}

pub struct Page<'a> {
    /// 0 when done.
    pub cursor: u64,
    pub leases: Vec<LeaseView<'a>>,
}

impl Room {
    pub fn view(&self, session: &[u8], env: &Env) -> Option<LeaseView<'_>> {
        let (slot, lease) = self.known(session, env)?;
        Some(self.view_of(slot, lease, env))
    }

    /// The holder's live lease as OPEN tells it.
    pub fn open_view(&self, session: &[u8], env: &Env) -> Option<OpenView> {
        let slot = self.slot_of(session)?;
        let lease = self.leases.get(slot)?;
        let (left_ms, expires_at) = self.span_left(slot, env);
        Some(OpenView {
            session: self.session_id(slot, lease),
            epoch: lease.epoch,
            user_leases: self.user_leases(lease),
            ttl_ms: self.ttl_of(slot, lease),
            left_ms,
            expires_at,
            replaced: self.extras_of(slot, lease).and_then(|e| e.replaced.clone()),
            gen: self.gen(),
            log_seq: self.log_seq(),
            event_n: self.event_n(),
        })
    }

    /// The room's counters, as STATS shows them.
    pub fn stats(&mut self, edges: &Edges, env: &Env) -> [(&'static str, u64); 9] {
        let (kept, lapsed) = (self.gauges(), self.lapsed(env.now.mono));
        let shown = |kept: u64, lapsed: u64| kept.saturating_sub(lapsed);
        [
            ("leases", shown(kept.leases, lapsed.leases)),
            ("users", shown(kept.users, lapsed.users)),
            ("tombstones", shown(kept.tombstones, lapsed.tombstones)),
            ("event_n", self.event_n()),
            ("events_lost", self.events_lost()),
            ("log_seq", self.log_seq()),
            ("log_oldest", edges.oldest),
            ("dedupe", shown(kept.dedupe_records, lapsed.dedupe_records)),
            ("holds", self.holds().len() as u64),
        ]
    }

    /// One page, in the order of slots: a lease keeps its slot, so one present throughout comes at least once.
    pub fn page(&self, request: &PageRequest, env: &Env) -> Page<'_> {
        match request.user {
            Some(user) if !request.ended => self.page_of_user(user, request, env),
            _ => self.page_of_all(request, env),
        }
    }

    fn page_of_all(&self, request: &PageRequest, env: &Env) -> Page<'_> {
        let first = u32::try_from(request.cursor).unwrap_or(u32::MAX);
        let last = request.count.saturating_mul(SLOTS_PER_LEASE).saturating_add(first as usize);
        let mut leases = Vec::new();
        for (slot, lease) in self.leases.from(first) {
            if leases.len() == request.count || slot as usize >= last {
                return Page { cursor: slot.into(), leases };
            }
            let wanted = request.user.is_none_or(|user| self.user_of(lease) == user);
            let shown = lease.is_live(env.now.mono) || (request.ended && self.is_known(lease, env));
            if wanted && shown {
                leases.push(self.view_of(slot, lease, env));
            }
        }
        Page { cursor: 0, leases }
    }

    fn page_of_user(&self, user: &[u8], request: &PageRequest, env: &Env) -> Page<'_> {
        let mut slots = self.live_slots(Some(user), env.now.mono);
        slots.retain(|slot| *slot != NONE && u64::from(*slot) >= request.cursor);
        slots.sort_unstable();
        let cursor = slots.get(request.count).copied().unwrap_or(0).into();
        slots.truncate(request.count);
        let shown = slots.into_iter().filter_map(|slot| Some(self.view_of(slot, self.leases.get(slot)?, env)));
        Page { cursor, leases: shown.collect() }
    }

    fn view_of<'a>(&'a self, slot: u32, lease: &'a Lease, env: &Env) -> LeaseView<'a> {
        let mono = env.now.mono;
        let extras = self.extras_of(slot, lease);
        let reason = lease.ended().or_else(|| lease.is_overdue(mono).then(|| lease.expiry_reason()));
        let ended_at = reason.map(|_| self.ended_at(lease, env));
        let by_time = matches!(reason, Some(Reason::Expired | Reason::Left));
        let exact = ended_at.or_else(|| lease.deadline().map(|d| env.now.to_unix(d))).unwrap_or_default();
        let expires_at = if ended_at.is_some() && !by_time { exact } else { self.rounded(exact, env) };
        let coarse = self.policy(env.settings).precision_ms() > 0;
        LeaseView {
            session: self.session_id(slot, lease),
            user: self.user_of(lease),
            device: self.device_of(slot, lease),
            epoch: lease.epoch,
            seq: (!coarse).then_some(lease.seq),
            state: match (reason, lease.phase) {
                (Some(_), _) => "ended",
                (None, Phase::Lingering) => "lingering",
                (None, _) => "active",
            },
            reason,
            signal: lease.signal,
            ttl_ms: self.ttl_of(slot, lease),
            left_ms: if reason.is_some() { 0 } else { expires_at.saturating_sub(env.now.unix) },
            expires_at,
            opened_at: lease.opened_at.get(),
            heartbeat_at: self.rounded(lease.heartbeat_at.get(), env),
            observed_at: extras.and_then(|e| e.observed_at).map(|t| self.rounded(t, env)),
            ended_at: ended_at.map(|t| if by_time { self.rounded(t, env) } else { t }),
            replaced_by: extras.and_then(|e| e.replaced_by),
            meta: extras.and_then(|e| e.meta.as_deref()),
        }
    }
}
