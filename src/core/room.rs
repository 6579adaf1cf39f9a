//! A room: its leases, the tombstones of ended ones, its users, its policy and its history.
//!
//! Rules
//! 1. The next epoch of a holder is above its last and above the floor; forgetting a tombstone raises the floor to it.
//! 2. A session is found by its id alone and never reused while it is remembered.
//! 3. Every unended lease stands in `deadlines` exactly once, every tombstone in `tombstones`.
//! 4. `begun` is a history that has begun and that no write has carried yet: reads tell it, digests do not know it,
//!    the next write's first effect makes it the room's own.
//!
//! This file holds the state and how it is found. How it changes is in `apply`, why in `open`, `heartbeat`, `depart`
//! and `expire`, what is told of it in `view`.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use super::access::Access;
use super::cursor::Cursors;
use super::effect::{Began, Gen};
use super::hold::ORPHAN;
use super::id::{Id, SessionKey, DEFAULT_DEVICE};
use super::index::Index;
use super::lease::{Extras, Lease, Reason};
use super::log::Log;
use super::policy::{OwnPolicy, Policy, Settings};
use super::queue::{Queue, Queued};
use super::refusal::{Denied, Refusal, Stale};
use super::slab::Slab;
use super::sparse::Sparse;
use super::time::{Now, MAX};
use super::token;
use super::users::{Users, NONE};

/// What a decision may look at besides the room: one reading of the clocks, and the node's settings.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    pub now: Now,
    pub settings: &'a Settings,
}

/// A moment that does not come. Rooms that wait for it are known all the same: settings may bring theirs forward.
pub const NEVER: u64 = MAX;

#[derive(Clone, Default)]
pub struct Room {
    pub(super) gen: Gen,
    /// The ms of the latest history that reads were told, written or not.
    pub(super) gen_told_ms: u64,
    pub(super) floor: u64,
    /// The highest epoch the room ever gave.
    pub(super) highest: u64,
    pub(super) event_n: u64,
    pub(super) events_lost: u64,
    /// `at` of the last event, unix ms.
    pub(super) last_at: u64,
    /// The last moment, monotonic, at which the room is known to have held something.
    pub(super) busy_until: u64,
    pub(super) begun: Option<Box<Began>>,
    pub(super) own: OwnPolicy,
    pub(super) access: Access,
    pub(super) cursors: Cursors,
    pub(super) log: Log,
    pub(super) holds: Vec<Id>,
    /// Under a name whose streams it did not write; a write has yet to carry that.
    pub(super) arrived: bool,
    pub(super) leases: Slab<Lease>,
    pub(super) extras: Sparse<Extras>,
    pub(super) sessions: Index,
    pub(super) users: Users,
    pub(super) deadlines: Queue,
    pub(super) tombstones: Queue,
    pub(super) next_order: u32,
    pub(super) hasher: DefaultHashBuilder,
}

impl Queued for Lease {
    fn place(&mut self) -> &mut u32 {
        &mut self.place
    }

    fn order(&self, _slot: u32) -> u32 {
        self.order
    }
}

/// What a full scan of the room would count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Leases that nothing has removed.
    pub leases: u64,
    /// Users that have one.
    pub users: u64,
    pub tombstones: u64,
    pub dedupe_records: u64,
    /// Whether it holds a log it did not write: 0 or 1.
    pub orphans: u64,
}

/// Moves memory to a better place, for whoever owns the allocator.
pub trait Mover {
    fn vec<T>(&self, v: Vec<T>) -> Vec<T>;
    fn boxed<T>(&self, b: Box<T>) -> Box<T>;
}

impl Room {
    /// A room that is not in the keyspace yet; its first write puts it there.
    pub fn new(began: Began) -> Self {
        let mut room = Self { busy_until: began.at, ..Self::default() };
        if let Some(met) = &began.met {
            room.log.meet(met);
        }
        room.begun = Some(Box::new(began));
        room
    }

    pub fn gen(&self) -> Gen {
        self.begun.as_ref().map_or(self.gen, |b| b.gen)
    }

    /// The ms of the history that all nodes know.
    pub fn written_gen_ms(&self) -> u64 {
        self.gen.ms
    }

    /// What the ms of the next history must exceed.
    pub fn last_gen_ms(&self) -> u64 {
        self.gen().ms.max(self.gen_told_ms)
    }

    pub fn event_n(&self) -> u64 {
        self.begun.as_ref().map_or(self.event_n, |b| b.event_n)
    }

    /// The newest message, 0 if there was none.
    pub fn log_seq(&self) -> u64 {
        let met = self.begun.as_ref().and_then(|b| b.met).map_or(0, |met| met.seq);
        self.log.seq.max(met)
    }

    /// Whether a write has carried the history that reads are told.
    pub fn is_history_written(&self) -> bool {
        self.last_gen_ms() <= self.gen.ms
    }

    /// It is under a name whose streams it did not write: its next history meets them.
    pub fn set_arrived(&mut self) {
        self.arrived = true;
    }

    pub fn has_arrived(&self) -> bool {
        self.arrived
    }

    /// Entries its event stream keeps; 0: all.
    pub fn events_maxlen(&self, settings: &Settings) -> u64 {
        if self.is_held() {
            0
        } else {
            self.policy(settings).events_maxlen()
        }
    }

    pub(super) fn floor(&self) -> u64 {
        self.begun.as_ref().map_or(self.floor, |b| b.floor)
    }

    /// The highest epoch this room ever gave. A floor counts as given: a primary that was lost may have begun above it.
    /// No value restored over this one, and no history that begins after its, may go below.
    pub fn highest_epoch(&self) -> u64 {
        self.highest.max(self.floor())
    }

    /// The same, as far as a write has carried it: equal on all nodes.
    pub fn written_epoch(&self) -> u64 {
        self.highest.max(self.floor)
    }

    /// This room takes the place of one that gave epochs up to `epoch`.
    pub fn raise_highest(&mut self, epoch: u64) {
        self.highest = self.highest.max(epoch);
    }

    pub fn gauges(&self) -> Gauges {
        Gauges {
            leases: self.deadlines.len() as u64,
            users: self.users.present().into(),
            tombstones: self.tombstones.len() as u64,
            dedupe_records: self.log.dedupe.len() as u64,
            orphans: self.keeps_hold(ORPHAN).into(),
        }
    }

    pub fn policy<'a>(&'a self, settings: &'a Settings) -> Policy<'a> {
        Policy { settings, own: &self.own }
    }

    pub fn own_policy(&self) -> &OwnPolicy {
        &self.own
    }

    pub fn events_lost(&self) -> u64 {
        self.events_lost
    }

    /// Whether nothing but its history is left.
    pub fn is_empty(&self) -> bool {
        let presence = self.deadlines.is_empty() && self.tombstones.is_empty();
        let kept = self.own.is_empty() && self.access.is_empty() && self.cursors.is_empty() && !self.is_held();
        presence && kept && self.log.dedupe.is_empty() && self.log_seq() <= self.log.gone
    }

    /// No later than the next moment, monotonic, at which time changes something here; [`NEVER`] if it changes nothing.
    pub fn next_due(&self, env: &Env) -> u64 {
        let first = |queue: &Queue| queue.first().map(|(bound, _)| bound);
        let firsts = [
            first(&self.deadlines),
            first(&self.tombstones),
            self.access.next_end(),
            self.cursors.next_end(),
            (self.rebuilding().is_some() || self.log.doubted).then_some(0),
            self.log.dedupe.next_due(self.log.gone),
            self.next_retention(env),
            self.vanishes_at(env.settings),
        ];
        firsts.into_iter().flatten().min().unwrap_or(NEVER)
    }

    /// When the key of an empty room is due to be removed, monotonic.
    pub fn vanishes_at(&self, settings: &Settings) -> Option<u64> {
        let wait = settings.empty_room_ms();
        self.is_empty().then(|| self.busy_until.saturating_add(wait))
    }

    // ---------------------------------------------------------------- finding

    /// The record of a session, whatever its state.
    pub(super) fn slot_of(&self, session: &[u8]) -> Option<u32> {
        let key = SessionKey::of(session);
        let same = |slot: &u32| {
            self.leases
                .get(*slot)
                .is_some_and(|l| l.session == key && (key != SessionKey::Long || self.long_session(*slot) == session))
        };
        self.sessions.find(hash_session(&self.hasher, key, session), same)
    }

    /// A session that is live, overdue, or remembered; an overdue one reads just as after its removal, so its
    /// tombstone may be over as well.
    pub(super) fn known(&self, session: &[u8], env: &Env) -> Option<(u32, &Lease)> {
        let slot = self.slot_of(session)?;
        let lease = self.leases.get(slot)?;
        self.is_known(lease, env).then_some((slot, lease))
    }

    pub(super) fn is_known(&self, lease: &Lease, env: &Env) -> bool {
        match lease.deadline() {
            None => self.tombstones.bound(lease.place).is_some_and(|until| until > env.now.mono),
            Some(deadline) if deadline > env.now.mono => true,
            Some(deadline) => {
                let remembered = self.policy(env.settings).tombstone_ms();
                deadline.saturating_add(remembered) > env.now.mono
            }
        }
    }

    pub(super) fn extras_of(&self, slot: u32, lease: &Lease) -> Option<&Extras> {
        if !lease.flags.extras() {
            return None;
        }
        self.extras.get(slot)
    }

    pub(super) fn session_id(&self, slot: u32, lease: &Lease) -> Id {
        lease.session.text(self.long_session(slot))
    }

    pub(super) fn device_of(&self, slot: u32, lease: &Lease) -> &[u8] {
        let device = self.extras_of(slot, lease).and_then(|e| e.device.as_ref());
        device.map_or(DEFAULT_DEVICE, Id::as_bytes)
    }

    pub(super) fn user_of(&self, lease: &Lease) -> &[u8] {
        self.users.get(lease.user).map_or(b"", |u| u.id.as_bytes())
    }

    pub(super) fn user_leases(&self, lease: &Lease) -> u32 {
        self.users.get(lease.user).map_or(0, |u| u.leases())
    }

    pub(super) fn ttl_of(&self, slot: u32, lease: &Lease) -> u64 {
        let long = self.extras_of(slot, lease).and_then(|e| e.long_ttl_ms);
        long.unwrap_or_else(|| lease.ttl_ms.into())
    }

    /// The latest deadline the lease may ever have, in a room that wants grants or in one that does not.
    pub(super) fn cap_of(&self, slot: u32, lease: &Lease, wants_grants: bool) -> u64 {
        let Some(extras) = self.extras_of(slot, lease) else { return u64::MAX };
        let ends = [extras.until, extras.grant_until.filter(|_| wants_grants)];
        ends.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Whether the lease's user has a live grant, as far as the lease was told; an end may not have been told yet.
    fn is_granted(&self, slot: u32, lease: &Lease, env: &Env) -> bool {
        let until = self.extras_of(slot, lease).and_then(|e| e.grant_until);
        lease.flags.granted() && until.is_none_or(|until| until > env.now.mono)
    }

    fn long_session(&self, slot: u32) -> &[u8] {
        self.extras.get(slot).and_then(|e| e.long_session.as_deref()).unwrap_or_default()
    }

    // ---------------------------------------------------------------- checks

    /// The checks of every session command, up to the seq; returns the live lease.
    pub(super) fn live_session(
        &self,
        session: &[u8],
        epoch: u64,
        token: Option<&[u8]>,
        env: &Env,
    ) -> Result<(u32, &Lease), Refusal> {
        let Some((slot, lease)) = self.known(session, env) else {
            return Err(Refusal::Stale(Stale::Unknown));
        };
        self.check_token(slot, lease, token)?;
        if !lease.is_live(env.now.mono) {
            // A revocation ends the live leases it concerns, so only the others' users can have a mark.
            self.check_marks(self.user_of(lease), self.device_of(slot, lease))?;
        }
        if epoch > lease.epoch {
            return Err(Refusal::Stale(Stale::Unknown));
        }
        if epoch < lease.epoch {
            return Err(Refusal::Stale(Stale::Superseded(self.holder_epoch(slot, lease))));
        }
        if let Some(stale) = self.why_over(slot, lease, env) {
            return Err(Refusal::Stale(stale));
        }
        if self.policy(env.settings).wants_grants() && !self.is_granted(slot, lease, env) {
            return Err(Refusal::Denied(Denied::NoGrant));
        }
        Ok((slot, lease))
    }

    pub(super) fn check_token(&self, slot: u32, lease: &Lease, token: Option<&[u8]>) -> Result<(), Refusal> {
        match self.extras_of(slot, lease).and_then(|e| e.token.as_ref()) {
            Some(bound) if !token::matches(bound, token) => Err(Refusal::Denied(Denied::Token)),
            _ => Ok(()),
        }
    }

    /// Why the session accepts nothing any more; `None` while it is active.
    pub(super) fn why_over(&self, slot: u32, lease: &Lease, env: &Env) -> Option<Stale> {
        let lingering = lease.expiry_reason() == Reason::Left;
        let reason = match lease.ended() {
            Some(reason) => reason,
            None if lingering || lease.is_overdue(env.now.mono) => lease.expiry_reason(),
            None => return None,
        };
        Some(match reason {
            Reason::Expired => Stale::Expired,
            Reason::Left => Stale::Left,
            Reason::Kicked => Stale::Kicked,
            Reason::Revoked => Stale::Revoked,
            Reason::Superseded => Stale::Superseded(self.holder_epoch(slot, lease)),
        })
    }

    fn holder_epoch(&self, slot: u32, lease: &Lease) -> u64 {
        let holder = self.users.holder(lease.user, self.device_of(slot, lease));
        holder.map_or(lease.epoch, |h| h.epoch)
    }

    // ---------------------------------------------------------------- records

    /// Puts a record into all tables. `lease.user` is filled in here; an unended one is queued by its deadline, a
    /// tombstone until `remembered_until`.
    pub(super) fn add(
        &mut self,
        session: &[u8],
        user: &[u8],
        mut lease: Lease,
        mut extras: Extras,
        remembered_until: u64,
    ) -> u32 {
        let key = SessionKey::of(session);
        lease.session = key;
        let grant = self.access.get(user).and_then(|r| r.grant.as_ref()).filter(|_| lease.ended().is_none());
        lease.flags.set_granted(grant.is_some());
        extras.grant_until = grant.and_then(|g| g.until);
        extras.long_session = (key == SessionKey::Long).then(|| session.into());
        lease.flags.set_extras(extras != Extras::default());
        let (epoch, deadline) = (lease.epoch, lease.deadline());
        let slot = self.leases.insert(lease);
        let device = extras.device.clone();
        let device = device.as_ref().map_or(DEFAULT_DEVICE, Id::as_bytes);
        if extras != Extras::default() {
            self.extras.insert(slot, Box::new(extras));
        }
        let owner = self.users.enter(user, device, epoch, slot, deadline.is_some());
        if let Some(lease) = self.leases.get_mut(slot) {
            lease.user = owner;
        }
        match deadline {
            Some(deadline) => self.deadlines.push(deadline, slot, &mut self.leases),
            None => self.tombstones.push(remembered_until, slot, &mut self.leases),
        }
        let hash = hash_session(&self.hasher, key, session);
        let Self { sessions, leases, extras, hasher, .. } = self;
        sessions.insert(hash, slot, |slot| hash_slot(hasher, leases, extras, *slot));
        self.highest = self.highest.max(epoch);
        slot
    }

    /// Takes a tombstone out of all tables.
    pub(super) fn forget(&mut self, slot: u32) {
        let Some(lease) = self.leases.get(slot) else { return };
        if lease.ended().is_none() {
            return;
        }
        let (place, user, epoch) = (lease.place, lease.user, lease.epoch);
        let device = Id::new(self.device_of(slot, lease));
        let until = self.tombstones.bound(place).unwrap_or_default();
        self.busy_until = self.busy_until.max(until);
        self.floor = self.floor.max(epoch);
        let Self { sessions, leases, extras, hasher, .. } = self;
        let hash_of = |slot: &u32| hash_slot(hasher, leases, extras, *slot);
        sessions.remove(hash_of(&slot), slot, hash_of);
        self.tombstones.remove(place, &mut self.leases);
        self.users.forget(user, device.as_bytes(), slot);
        self.leases.remove(slot);
        self.extras.remove(slot);
    }

    pub(super) fn edit_extras(&mut self, slot: u32, edit: impl FnOnce(&mut Extras)) {
        let Some(lease) = self.leases.get_mut(slot) else { return };
        let extras = self.extras.get_or_default(slot);
        edit(extras);
        lease.flags.set_extras(*extras != Extras::default());
        if !lease.flags.extras() {
            self.extras.remove(slot);
        }
    }

    /// The slot of a holder's live lease.
    pub(super) fn live_slot_of(&self, user: &[u8], device: &[u8], mono: u64) -> Option<u32> {
        let holder = self.users.holder(self.users.find(user)?, device)?;
        self.leases.get(holder.newest).filter(|lease| lease.is_live(mono)).map(|_| holder.newest)
    }

    /// Slots of the live leases of a user, or of everyone's.
    pub(super) fn live_slots(&self, user: Option<&[u8]>, mono: u64) -> Vec<u32> {
        let live = |slot: &u32| self.leases.get(*slot).is_some_and(|l| l.is_live(mono));
        match user {
            None => self.leases.iter().filter(|(_, l)| l.is_live(mono)).map(|(slot, _)| slot).collect(),
            Some(user) => {
                let newest = self.users.find(user).map(|u| self.users.newest_of(u)).unwrap_or_default();
                newest.into_iter().filter(|slot| *slot != NONE && live(slot)).collect()
            }
        }
    }

    /// Moves the buffers of all records and queues.
    pub fn move_buffers(&mut self, mover: &impl Mover) {
        self.leases.move_buffers(mover);
        self.users.move_buffers(mover);
        self.deadlines.move_buffers(mover);
        self.tombstones.move_buffers(mover);
        self.access.move_buffers(mover);
        self.cursors.move_buffers(mover);
        self.log.move_buffers(mover);
    }

    /// Moves the rare fields of `most` slots from `first` on; returns the next slot, if there is one.
    pub fn move_extras(&mut self, mover: &impl Mover, first: u32, most: u32) -> Option<u32> {
        let after = first.saturating_add(most);
        for slot in first..after.min(self.leases.end()) {
            self.extras.rehouse(slot, |extras| mover.boxed(extras));
        }
        (after < self.leases.end()).then_some(after)
    }

    /// About how many allocations the room holds.
    pub fn free_effort(&self) -> usize {
        self.extras.len().saturating_mul(2).saturating_add(self.leases.len() / 64).saturating_add(8)
    }

    /// Bytes the room has allocated beyond itself.
    pub fn heap_bytes(&self) -> usize {
        let extras = self.extras.values().map(Extras::heap_bytes).fold(self.extras.heap_bytes(), usize::saturating_add);
        [
            self.leases.heap_bytes(),
            self.sessions.heap_bytes(),
            self.users.heap_bytes(),
            self.deadlines.heap_bytes(),
            self.tombstones.heap_bytes(),
            self.access.heap_bytes(),
            self.cursors.heap_bytes(),
            self.log.heap_bytes(),
            self.holds.capacity().saturating_mul(size_of::<Id>()),
            self.holds.iter().map(Id::heap_bytes).fold(0, usize::saturating_add),
        ]
        .into_iter()
        .fold(extras, usize::saturating_add)
    }
}

fn hash_session(hasher: &DefaultHashBuilder, key: SessionKey, session: &[u8]) -> u64 {
    match key {
        SessionKey::Uuid(uuid) => hasher.hash_one(uuid),
        SessionKey::Short(..) | SessionKey::Long => hasher.hash_one(session),
    }
}

fn hash_slot(hasher: &DefaultHashBuilder, leases: &Slab<Lease>, extras: &Sparse<Extras>, slot: u32) -> u64 {
    let Some(lease) = leases.get(slot) else { return 0 };
    let long = extras.get(slot).and_then(|e| e.long_session.as_deref()).unwrap_or_default();
    match lease.session {
        SessionKey::Uuid(uuid) => hasher.hash_one(uuid),
        key => hasher.hash_one(key.text(long).as_bytes()),
    }
}
