//! Effects become state. No clock, no settings, no chance, and no way to fail: an effect that does not fit the room
//! any more is dropped, so that a repeated or late one changes nothing.

use super::dedupe::MessageKey;
use super::effect::{
    Began, Claimed, Cut, Effect, Ended, Gen, Granted, Lingered, MetLog, Motion, Opened, PolicySet, Recovery, Renewed,
    Revoked,
};
use super::hold::ORPHAN;
use super::id::{Id, DEFAULT_DEVICE};
use super::lease::{Extras, Flags, Lease, Phase, Reason, Signal};
use super::log::GENS;
use super::queue::Queue;
use super::room::Room;
use super::time::{Ms48, MAX};

impl Room {
    pub fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Began(began) => self.apply_began(began),
            Effect::Opened(opened) => self.apply_opened(opened),
            Effect::Renewed(session, renewed) => {
                if let Some(slot) = self.slot_of(session.as_bytes()) {
                    self.apply_renewed(slot, renewed);
                }
            }
            Effect::Lingered(lingered) => self.apply_lingered(lingered),
            Effect::Ended(ended) => self.apply_ended(ended),
            Effect::Forgot(forgot) => {
                for session in &forgot.sessions {
                    if let Some(slot) = self.slot_of(session.as_bytes()) {
                        self.forget(slot);
                    }
                }
            }
            Effect::PolicySet(set) => self.apply_policy(set),
            Effect::Granted(granted) => self.apply_granted(granted),
            Effect::Revoked(revoked) => self.apply_revoked(revoked),
            Effect::GrantEnded(ended) => {
                for user in &ended.users {
                    self.end_grant(user.as_bytes());
                }
            }
            Effect::Cut(cut) => self.apply_cut(cut),
            Effect::Claimed(claimed) => self.apply_claimed(claimed),
            Effect::CursorsEnded(ended) => {
                for (user, device) in &ended.holders {
                    let until = self.cursors.remove(user.as_bytes(), device.as_bytes());
                    self.busy_until = self.busy_until.max(until.unwrap_or_default());
                }
            }
            Effect::Sent(sent) => self.log.apply_sent(sent),
            Effect::Trimmed(trimmed) => {
                self.log.apply_trimmed(trimmed);
                self.busy_until = self.busy_until.max(trimmed.at);
            }
            Effect::Recalled(recalled) => self.log.apply_recalled(recalled),
            Effect::RecordsEnded(ended) => self.end_records(&ended.keys),
            Effect::Held(held) if self.holds.contains(&held.name) => {}
            Effect::Held(held) => self.holds.push(held.name.clone()),
            Effect::Unheld(unheld) => {
                self.holds.retain(|hold| *hold != unheld.name);
                self.busy_until = self.busy_until.max(unheld.at);
            }
            Effect::Noted(noted) => {
                self.event_n = noted.event_n;
                self.events_lost = noted.events_lost;
                self.last_at = self.last_at.max(noted.at);
            }
        }
    }

    fn apply_began(&mut self, began: &Began) {
        let known_here = self.begun.take().is_some_and(|begun| begun.gen == began.gen);
        if self.gen == Gen::default() {
            self.busy_until = began.at;
        }
        self.gen = began.gen;
        self.floor = self.floor.max(began.floor);
        self.event_n = began.event_n;
        let earlier = began.past.len().saturating_sub(GENS);
        self.log.past = began.past.iter().skip(earlier).copied().collect();
        if let Some(met) = &began.met {
            self.arrived = false;
            self.log.seq = self.log.seq.max(met.seq);
            if met.first.is_some() && !self.keeps_hold(ORPHAN) {
                self.holds.push(Id::new(ORPHAN));
            }
            if !known_here {
                self.meet(met, began.at);
            }
        }
        match &began.recovery {
            Some(recovery) if !known_here => self.recover(recovery),
            _ => {}
        }
    }

    /// Whatever it held until `mono`, the log it finds may be empty.
    fn meet(&mut self, met: &MetLog, mono: u64) {
        self.log.meet(met);
        self.busy_until = self.busy_until.max(mono);
    }

    fn apply_opened(&mut self, o: &Opened) {
        if self.slot_of(o.session.as_bytes()).is_some() || !self.make_way(o) {
            return;
        }
        let short_ttl = u32::try_from(o.ttl_ms).ok().filter(|ttl| *ttl != u32::MAX);
        let lease = Lease {
            epoch: o.epoch,
            seq: 0,
            end: o.deadline,
            opened_at: Ms48::new(o.at),
            heartbeat_at: Ms48::new(o.at),
            ttl_ms: short_ttl.unwrap_or(u32::MAX),
            order: self.next_order,
            user: 0,
            place: 0,
            session: super::id::SessionKey::Long,
            signal: None,
            phase: Phase::Active,
            flags: Flags::default(),
        };
        let extras = Extras {
            device: (o.device.as_bytes() != DEFAULT_DEVICE).then(|| o.device.clone()),
            long_ttl_ms: short_ttl.is_none().then_some(o.ttl_ms),
            until: o.until,
            token: o.token,
            meta: o.meta.clone(),
            replaced: o.replaced.clone(),
            ..Extras::default()
        };
        self.next_order = self.next_order.wrapping_add(1);
        self.add(o.session.as_bytes(), o.user.as_bytes(), lease, extras, 0);
    }

    /// A holder has one unended lease. Effects that end none before they open the next come from a torn AOF, which the
    /// server may put together wrongly: the later lease counts. False if that is not the new one.
    fn make_way(&mut self, o: &Opened) -> bool {
        let holder = self.users.find(o.user.as_bytes()).and_then(|u| self.users.holder(u, o.device.as_bytes()));
        let Some(holder) = holder else { return o.epoch > 0 };
        if holder.epoch >= o.epoch {
            return false;
        }
        let unended = self.leases.get(holder.newest).filter(|lease| lease.ended().is_none());
        let ended = unended.map(|lease| Ended {
            session: self.session_id(holder.newest, lease),
            epoch: lease.epoch,
            reason: Reason::Superseded,
            at: o.at,
            tombstone_until: o.deadline,
            replaced_by: Some(o.epoch),
            closing: None,
        });
        if let Some(ended) = ended {
            self.apply_ended(&ended);
        }
        true
    }

    /// Also the hot path of a plain heartbeat: no allocation, and the queue is touched only if the deadline moved
    /// forward in it.
    pub fn apply_renewed(&mut self, slot: u32, renewed: &Renewed) {
        let Some(lease) = self.leases.get_mut(slot) else { return };
        let Some(before) = lease.deadline() else { return };
        if lease.epoch != renewed.epoch || renewed.seq <= lease.seq {
            return;
        }
        lease.seq = renewed.seq;
        lease.heartbeat_at = Ms48::new(renewed.at);
        lease.end = renewed.deadline;
        let had_span = lease.phase == Phase::Shortened;
        match renewed.motion {
            Motion::Renewed => lease.phase = Phase::Active,
            Motion::Shortened(_) => lease.phase = Phase::Shortened,
            Motion::Unmoved => {}
        }
        if renewed.deadline < before {
            self.deadlines.lower(lease.place, renewed.deadline, &mut self.leases);
        }
        match renewed.motion {
            Motion::Renewed if had_span => self.edit_extras(slot, |e| e.span_ms = None),
            Motion::Shortened(span_ms) => self.edit_extras(slot, |e| e.span_ms = Some(span_ms)),
            Motion::Renewed | Motion::Unmoved => {}
        }
        if let Some(report) = &renewed.report {
            if let (Some(signal), Some(lease)) = (report.signal, self.leases.get_mut(slot)) {
                lease.signal = Some(signal);
            }
            if let Some(ttl_ms) = report.ttl_ms {
                self.set_ttl(slot, ttl_ms);
            }
            if report.observed_at.is_some() || report.meta.is_some() {
                self.edit_extras(slot, |e| {
                    e.observed_at = report.observed_at.or(e.observed_at);
                    if report.meta.is_some() {
                        e.meta.clone_from(&report.meta);
                    }
                });
            }
        }
    }

    fn set_ttl(&mut self, slot: u32, ttl_ms: u64) {
        let short = u32::try_from(ttl_ms).ok().filter(|ttl| *ttl != u32::MAX);
        let Some(lease) = self.leases.get_mut(slot) else { return };
        let was_long = std::mem::replace(&mut lease.ttl_ms, short.unwrap_or(u32::MAX)) == u32::MAX;
        if was_long || short.is_none() {
            self.edit_extras(slot, |e| e.long_ttl_ms = short.is_none().then_some(ttl_ms));
        }
    }

    fn apply_lingered(&mut self, l: &Lingered) {
        let Some(slot) = self.slot_of(l.session.as_bytes()) else { return };
        let Some(lease) = self.leases.get_mut(slot) else { return };
        if lease.epoch != l.epoch || lease.ended().is_some() {
            return;
        }
        lease.phase = Phase::Lingering;
        lease.end = l.deadline;
        let place = lease.place;
        self.deadlines.lower(place, l.deadline, &mut self.leases);
        self.edit_extras(slot, |e| e.span_ms = Some(l.span_ms));
    }

    fn apply_ended(&mut self, e: &Ended) {
        let Some(slot) = self.slot_of(e.session.as_bytes()) else { return };
        let Some(lease) = self.leases.get_mut(slot) else { return };
        if lease.epoch != e.epoch || lease.ended().is_some() {
            return;
        }
        lease.phase = Phase::Ended(e.reason);
        lease.end = e.at;
        if let Some(closing) = &e.closing {
            lease.seq = closing.seq;
            lease.heartbeat_at = Ms48::new(closing.at);
            lease.signal = Some(Signal::Closed);
        }
        let (place, user) = (lease.place, lease.user);
        self.deadlines.remove(place, &mut self.leases);
        self.tombstones.push(e.tombstone_until, slot, &mut self.leases);
        let device = self.extras.get(slot).and_then(|x| x.device.as_ref());
        self.users.end(user, device.map_or(DEFAULT_DEVICE, Id::as_bytes));
        let observed = e.closing.and_then(|c| c.observed_at);
        // As a snapshot wants it, whatever the bytes said: of a superseded lease, and of no other, an epoch not below its own.
        let replaced_by = (e.reason == Reason::Superseded).then(|| e.replaced_by.unwrap_or_default().max(e.epoch));
        let had_limit = self.extras.get(slot).is_some_and(|x| x.span_ms.is_some() || x.grant_until.is_some());
        if had_limit || observed.is_some() || replaced_by.is_some() {
            self.edit_extras(slot, |x| {
                x.span_ms = None;
                x.grant_until = None;
                x.observed_at = observed.or(x.observed_at);
                x.replaced_by = replaced_by;
            });
        }
    }

    fn apply_granted(&mut self, g: &Granted) {
        self.access.edit(g.user.as_bytes(), |record| {
            record.grant = Some(g.grant.clone());
            record.version = g.version;
            record.revoked = false;
            record.devices = Vec::new();
        });
        self.tell_leases(g.user.as_bytes());
    }

    fn apply_revoked(&mut self, r: &Revoked) {
        self.access.edit(r.user.as_bytes(), |record| {
            record.version = r.version;
            match &r.device {
                None => {
                    record.revoked = true;
                    record.grant = None;
                }
                Some(device) if record.devices.contains(device) => {}
                Some(device) => record.devices.push(device.clone()),
            }
        });
        // A mark on a device leaves the grant as it was.
        if r.device.is_none() {
            self.tell_leases(r.user.as_bytes());
        }
    }

    fn end_grant(&mut self, user: &[u8]) {
        let until = self.access.get(user).and_then(|r| r.grant.as_ref()).and_then(|g| g.until);
        self.busy_until = self.busy_until.max(until.unwrap_or_default());
        self.access.edit(user, |record| record.grant = None);
        self.tell_leases(user);
    }

    /// Pushes a user's grant into its unended leases, so that their heartbeats need not look it up.
    fn tell_leases(&mut self, user: &[u8]) {
        let grant = self.access.get(user).and_then(|r| r.grant.as_ref());
        let (granted, until) = (grant.is_some(), grant.and_then(|g| g.until));
        let slots = self.users.find(user).map(|u| self.users.newest_of(u)).unwrap_or_default();
        for slot in slots {
            let Some(lease) = self.leases.get_mut(slot).filter(|l| l.ended().is_none()) else { continue };
            lease.flags.set_granted(granted);
            if until.is_some() || lease.flags.extras() {
                self.edit_extras(slot, |e| e.grant_until = until);
            }
        }
    }

    fn apply_cut(&mut self, cut: &Cut) {
        let Some(slot) = self.slot_of(cut.session.as_bytes()) else { return };
        let Some(lease) = self.leases.get_mut(slot) else { return };
        if lease.epoch != cut.epoch || lease.deadline().is_none_or(|deadline| deadline <= cut.deadline) {
            return;
        }
        lease.end = cut.deadline;
        let place = lease.place;
        self.deadlines.lower(place, cut.deadline, &mut self.leases);
    }

    fn apply_claimed(&mut self, c: &Claimed) {
        if c.seq <= self.log_seq() {
            self.cursors.advance(c.user.as_bytes(), c.device.as_bytes(), c.claim, c.seq, c.until);
        }
    }

    fn end_records(&mut self, keys: &[MessageKey]) {
        for key in keys {
            let until = self.log.dedupe.find(key).map_or(0, |known| known.accepted.until);
            self.busy_until = self.busy_until.max(until);
            self.log.dedupe.remove(key);
        }
    }

    fn apply_policy(&mut self, set: &PolicySet) {
        for (setting, value) in &set.values {
            self.own.change(*setting, *value);
        }
        self.busy_until = self.busy_until.max(set.at);
    }

    /// After a load or promotion every lease has its grace left, but never more than its ttl, its cap, or the span it
    /// was shortened to. What was overdue when a revocation left its mark stays so, even if the wall clock by which its
    /// deadline came here is behind. Walks the whole room, once.
    pub(super) fn recover(&mut self, recovery: &Recovery) {
        let mut deadlines = Queue::default();
        let mut moved = Vec::with_capacity(self.deadlines.len());
        for (slot, lease) in self.leases.iter() {
            let Some(saved) = lease.deadline() else { continue };
            let ttl = self.ttl_of(slot, lease);
            let shortened = self.extras_of(slot, lease).and_then(|e| e.span_ms);
            let most = shortened.unwrap_or(ttl).min(ttl);
            let grace = recovery.grace_ms.unwrap_or(most).min(most);
            let access = self.access.get(self.user_of(lease));
            let marked = access.is_some_and(|r| r.is_marked(self.device_of(slot, lease)));
            let raised = match grace {
                _ if marked => saved.min(recovery.at),
                0 => saved,
                _ => saved.max(recovery.at.saturating_add(grace)),
            };
            let deadline =
                raised.min(recovery.at.saturating_add(most)).min(self.cap_of(slot, lease, recovery.granted)).min(MAX);
            moved.push((slot, deadline));
        }
        for (slot, deadline) in moved {
            if let Some(lease) = self.leases.get_mut(slot) {
                lease.end = deadline;
            }
            deadlines.push(deadline, slot, &mut self.leases);
        }
        self.deadlines = deadlines;
    }

    /// A history begins that no write has carried yet (rule 4 of `room`). One that still waits is carried along: its
    /// epochs may not come again, and replicas know nothing of its grace.
    pub fn begin(&mut self, began: Began) {
        if let Some(recovery) = &began.recovery {
            self.recover(recovery);
        }
        if let Some(met) = &began.met {
            self.meet(met, began.at);
        }
        let floor = began.floor.max(self.floor());
        let recovery = began.recovery.or(self.begun.as_ref().and_then(|waiting| waiting.recovery));
        self.begun = Some(Box::new(Began { floor, recovery, ..began }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::snapshot::{parts, Loading};
    use crate::core::time::Now;

    fn opened(session: &[u8], epoch: u64) -> Effect {
        Effect::Opened(Box::new(Opened {
            session: Id::new(session),
            user: Id::new(b"u"),
            device: Id::new(b"d"),
            epoch,
            ttl_ms: 10,
            deadline: 50,
            at: 5,
            until: None,
            token: None,
            meta: None,
            replaced: None,
        }))
    }

    /// What a torn AOF may be put together to: an OPEN without the end of the lease before it, and one that comes late.
    #[test]
    fn a_holder_has_one_live_lease_whatever_is_missing() {
        let mut room = Room::default();
        for (session, epoch) in [(b"a", 1), (b"c", 3), (b"b", 2)] {
            room.apply(&opened(session, epoch));
        }
        assert_eq!((room.gauges().leases, room.gauges().tombstones), (1, 1));
        assert!(room.slot_of(b"b").is_none());
        let (now, mut loading) = (Now { mono: 1, unix: 1 }, Loading::default());
        for part in parts(&room, true, now) {
            loading.part(&part, now).unwrap();
        }
    }
}
