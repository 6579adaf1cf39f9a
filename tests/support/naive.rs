//! Presence, access and messages as the contract has them, naively: flat lists, linear scans, no index and no effects.
//!
//! It shares no code with the core but the names of settings. Everything that time ends is looked for anew whenever
//! somebody asks. What a lost history takes along (a reload, a promotion) is told by the caller.

mod access;
mod commands;
mod messages;

use std::collections::{BTreeMap, BTreeSet};

use redis_lease::core::policy::Setting;

use super::command::{Fields, Reply, ROOM};

/// A reply, or the part of an error that programs read.
pub type Outcome = Result<Reply, String>;

#[derive(Clone, Debug)]
pub struct Lease {
    pub session: String,
    user: String,
    device: String,
    pub epoch: u64,
    /// Its place in the order of opening, and its name in here.
    order: u64,
    pub seq: u64,
    signal: Option<String>,
    ttl: u64,
    /// Monotonic, as `until`.
    deadline: u64,
    until: Option<u64>,
    opened_at: u64,
    heartbeat_at: u64,
    observed_at: Option<u64>,
    meta: Option<String>,
    pub token: Option<String>,
    replaced: Option<String>,
    lingering: bool,
    /// What it was shortened to, or lingers for.
    span: Option<u64>,
    ended: Option<Ended>,
}

#[derive(Clone, Debug)]
struct Ended {
    reason: &'static str,
    /// Unix ms.
    at: u64,
    /// Monotonic.
    forget_at: u64,
    replaced_by: Option<u64>,
}

#[derive(Default)]
pub struct Naive {
    pub mono: u64,
    /// Unix time less monotonic time.
    pub offset: i64,
    pub settings: BTreeMap<Setting, i64>,
    /// Whether the event stream takes events.
    pub writable: bool,
    /// Whether the log takes messages.
    pub log_writable: bool,
    pub stream: Vec<Fields>,
    /// In the place of chance.
    pub gen_random: u32,
    last_gen_ms: u64,

    // The room.
    pub exists: bool,
    pub gen: String,
    gen_ms: u64,
    pub n: u64,
    pub events_lost: u64,
    highest: u64,
    pub floor: u64,
    last_at: u64,
    busy_until: u64,
    next_order: u64,
    pub own: BTreeMap<Setting, i64>,
    access: BTreeMap<String, access::Record>,
    pub log: messages::Log,
    leases: Vec<Lease>,
    /// The highest epoch each holder was ever given.
    given: BTreeMap<(String, String), u64>,
}

// ---------------------------------------------------------------- time and settings

impl Naive {
    pub fn new(mono: u64, unix: u64, gen_random: u32) -> Self {
        Self {
            mono,
            offset: unix as i64 - mono as i64,
            writable: true,
            log_writable: true,
            gen_random,
            ..Self::default()
        }
    }

    pub fn unix(&self, mono: u64) -> u64 {
        mono.checked_add_signed(self.offset).expect("tests stay within the range")
    }

    fn to_mono(&self, unix: u64) -> u64 {
        unix.checked_add_signed(-self.offset).expect("tests stay within the range")
    }

    fn now(&self) -> u64 {
        self.unix(self.mono)
    }

    fn node(&self, setting: Setting) -> u64 {
        let value = self.settings.get(&setting).copied().unwrap_or(setting.default_value());
        value.try_into().expect("no test sets a negative value")
    }

    fn policy(&self, setting: Setting) -> u64 {
        let own = self.own.get(&setting).map(|own| u64::try_from(*own).expect("not negative"));
        let value = own.unwrap_or_else(|| self.node(setting));
        match setting {
            Setting::TtlMs => value.min(self.node(Setting::TtlMaxMs)).max(self.node(Setting::TtlMinMs)),
            _ => value,
        }
    }

    fn coarse(&self) -> bool {
        self.policy(Setting::PrecisionMs) > 0
    }

    fn rounded(&self, unix: u64) -> u64 {
        match self.policy(Setting::PrecisionMs) {
            0 => unix,
            step => unix / step * step,
        }
    }

    /// The next moments, monotonic, at which time changes an answer or is due to be turned into state.
    pub fn moments(&self) -> Vec<u64> {
        let mut moments: Vec<u64> = self.leases.iter().map(|l| self.forget_or_deadline(l)).collect();
        moments.extend(self.grant_ends());
        moments.extend(self.log_moments());
        moments.extend(self.vanishes_at());
        moments.sort_unstable();
        moments
    }

    fn forget_or_deadline(&self, l: &Lease) -> u64 {
        l.ended.as_ref().map_or(l.deadline, |ended| ended.forget_at)
    }

    /// When an empty room's key is due to go.
    fn vanishes_at(&self) -> Option<u64> {
        let empty = self.exists && self.leases.is_empty() && self.own.is_empty() && self.access.is_empty();
        let empty = empty && !self.keeps_messages();
        empty.then(|| self.busy_until + self.node(Setting::EmptyRoomMs))
    }

    /// Drops what is remembered no longer. Nothing a caller sees depends on when this runs.
    fn tidy(&mut self) {
        let now = self.mono;
        let over = |l: &Lease| l.ended.as_ref().is_some_and(|ended| ended.forget_at <= now);
        for l in self.leases.iter().filter(|l| over(l)) {
            self.floor = self.floor.max(l.epoch);
            self.busy_until = self.busy_until.max(l.ended.as_ref().map_or(0, |ended| ended.forget_at));
        }
        self.leases.retain(|l| !over(l));
    }
}

// ---------------------------------------------------------------- finding

impl Naive {
    fn lease(&self, order: u64) -> &Lease {
        self.leases.iter().find(|l| l.order == order).expect("a lease of that order")
    }

    fn lease_mut(&mut self, order: u64) -> &mut Lease {
        self.leases.iter_mut().find(|l| l.order == order).expect("a lease of that order")
    }

    fn is_live(&self, l: &Lease) -> bool {
        l.ended.is_none() && l.deadline > self.mono
    }

    fn is_overdue(&self, l: &Lease) -> bool {
        l.ended.is_none() && l.deadline <= self.mono
    }

    pub fn session(&self, session: &str) -> Option<&Lease> {
        self.leases.iter().find(|l| l.session == session)
    }

    pub fn live_sessions(&self) -> Vec<String> {
        self.leases.iter().filter(|l| self.is_live(l)).map(|l| l.session.clone()).collect()
    }

    /// Live, overdue, or remembered; an overdue one for as long as a tombstone of its would be.
    fn known(&self, session: &str) -> Option<u64> {
        let lease = self.session(session)?;
        let forgotten = self.is_overdue(lease) && lease.deadline + self.policy(Setting::TombstoneMs) <= self.mono;
        (!forgotten).then_some(lease.order)
    }

    /// Opened minus removed.
    fn leases_of(&self, user: &str) -> usize {
        self.leases.iter().filter(|l| l.user == user && l.ended.is_none()).count()
    }

    pub fn present(&self) -> (u64, u64) {
        count(self.leases.iter().filter(|l| l.ended.is_none()))
    }

    pub fn tombstones(&self) -> u64 {
        self.leases.iter().filter(|l| l.ended.is_some()).count() as u64
    }

    fn check_token(&self, order: u64, token: Option<&str>) -> Result<(), String> {
        match self.lease(order).token.as_deref() {
            Some(bound) if token != Some(bound) => Err("DENIED token".to_owned()),
            _ => Ok(()),
        }
    }

    fn reason(&self, l: &Lease) -> Option<&'static str> {
        match &l.ended {
            Some(ended) => Some(ended.reason),
            None if self.is_overdue(l) => Some(if l.lingering { "left" } else { "expired" }),
            None => None,
        }
    }

    /// Why the session accepts nothing any more.
    fn why_stale(&self, l: &Lease) -> Option<String> {
        let reason = self.reason(l).or(l.lingering.then_some("left"))?;
        Some(match reason {
            "superseded" => self.superseded(l),
            reason => format!("STALE {reason}"),
        })
    }

    fn superseded(&self, l: &Lease) -> String {
        format!("STALE superseded {}", self.given[&(l.user.clone(), l.device.clone())])
    }

    /// The checks of every session command.
    fn live_session(&self, session: &str, epoch: u64, token: Option<&str>) -> Result<u64, String> {
        let order = self.known(session).ok_or("STALE unknown")?;
        self.check_token(order, token)?;
        let lease = self.lease(order);
        self.check_marks(&lease.user, &lease.device)?;
        if epoch > lease.epoch {
            return Err("STALE unknown".to_owned());
        }
        if epoch < lease.epoch {
            return Err(self.superseded(lease));
        }
        self.why_stale(lease).map_or(Ok(()), Err)?;
        self.check_grant(&lease.user)?;
        Ok(order)
    }
}

// ---------------------------------------------------------------- events and endings

impl Naive {
    /// An event about a lease.
    fn emit(&mut self, kind: &str, order: u64, rest: Fields) {
        let l = self.lease(order);
        let mut fields = vec![
            ("session", l.session.clone()),
            ("user", l.user.clone()),
            ("device", l.device.clone()),
            ("epoch", l.epoch.to_string()),
        ];
        if !self.coarse() {
            fields.push(("seq", l.seq.to_string()));
        }
        fields.push(("user_leases", self.leases_of(&l.user).to_string()));
        fields.extend(l.observed_at.map(|at| ("observed_at", self.rounded(at).to_string())));
        fields.extend(rest);
        self.tell(kind, fields);
    }

    fn tell(&mut self, kind: &str, rest: Fields) {
        self.n += 1;
        self.last_at = self.last_at.max(self.now());
        if !self.writable {
            self.events_lost += 1;
            return;
        }
        let mut fields = vec![
            ("v", "1".to_owned()),
            ("type", kind.to_owned()),
            ("room", ROOM.to_owned()),
            ("n", self.n.to_string()),
            ("gen", self.gen.clone()),
            ("log_seq", self.log.seq.to_string()),
        ];
        if !(self.coarse() && ["state", "updated"].contains(&kind)) {
            fields.push(("at", self.last_at.to_string()));
        }
        fields.extend(rest);
        self.stream.push(fields);
    }

    fn end(&mut self, order: u64, reason: &'static str, replaced_by: Option<u64>) {
        let ended =
            Ended { reason, at: self.now(), forget_at: self.mono + self.policy(Setting::TombstoneMs), replaced_by };
        let lease = self.lease_mut(order);
        lease.ended = Some(ended);
        lease.span = None;
    }

    fn emit_removed(&mut self, order: u64) {
        let Some(ended) = self.lease(order).ended.clone() else { return };
        let mut rest = vec![("reason", ended.reason.to_owned())];
        rest.extend(ended.replaced_by.map(|epoch| ("replaced_by", epoch.to_string())));
        self.emit("removed", order, rest);
    }

    /// Time ends a lease, at its deadline; a step of its own.
    fn expire(&mut self, order: u64) {
        let (deadline, lingering) = (self.lease(order).deadline, self.lease(order).lingering);
        let reason = if lingering { "left" } else { "expired" };
        let (due, forget_at) = (self.unix(deadline), deadline + self.policy(Setting::TombstoneMs));
        self.lease_mut(order).ended = Some(Ended { reason, at: due, forget_at, replaced_by: None });
        let mut rest = vec![("reason", reason.to_owned()), ("due", self.rounded(due).to_string())];
        if !self.coarse() {
            rest.push(("lag_ms", (self.mono - deadline).to_string()));
        }
        self.emit("removed", order, rest);
    }

    /// Overdue leases, earliest deadline first, then in the order of opening.
    fn overdue(&self) -> Vec<u64> {
        let mut overdue: Vec<_> = self.leases.iter().filter(|l| self.is_overdue(l)).collect();
        overdue.sort_by_key(|l| (l.deadline, l.order));
        overdue.into_iter().map(|l| l.order).collect()
    }

    fn reap(&mut self, most: usize) -> usize {
        let due: Vec<u64> = self.overdue().into_iter().take(most).collect();
        due.iter().for_each(|order| self.expire(*order));
        due.len()
    }

    /// The reaper, to the end.
    pub fn tick(&mut self) {
        self.reap(usize::MAX);
        self.tidy();
        self.end_grants();
        self.retain();
        if self.vanishes_at().is_some_and(|at| at <= self.mono) {
            self.forget_room();
            self.remove_empty_log();
        }
    }

    pub fn forget_room(&mut self) {
        self.exists = false;
        self.leases.clear();
        self.given.clear();
        self.own.clear();
        self.access.clear();
        self.forget_log();
        (self.floor, self.highest, self.last_at, self.events_lost) = (0, 0, 0, 0);
    }
}

// ---------------------------------------------------------------- histories

impl Naive {
    fn draw_gen(&mut self, after: u64) {
        self.last_gen_ms = self.now().max(self.last_gen_ms + 1).max(after + 1);
        self.gen_ms = self.last_gen_ms;
        self.gen = format!("{}-{:08x}", self.gen_ms, self.gen_random);
    }

    fn last_event(&self) -> u64 {
        let n = self.stream.last().and_then(|entry| entry.iter().find(|(name, _)| *name == "n"));
        n.map_or(0, |(_, n)| n.parse().expect("a number"))
    }

    fn begin_room(&mut self) {
        self.draw_gen(0);
        self.n = self.last_event();
        self.busy_until = self.mono;
        self.forget_log();
        self.meet();
    }

    /// What was given, or may have been given by a primary that was lost.
    pub fn highest_epoch(&self) -> u64 {
        self.highest.max(self.floor)
    }

    /// RENAME, MOVE or COPY, if the room meets the streams there; otherwise its own history goes on.
    pub fn moved(&mut self, meets: bool) {
        if meets {
            self.meet();
        } else {
            self.go_on();
        }
        self.draw_gen(self.gen_ms);
        self.n = self.n.max(self.last_event());
    }

    /// RESTORE: what a lost history may have given is skipped. All nodes know the history that began at `known_ms`.
    pub fn restored(&mut self, known_ms: u64, meets: bool) {
        self.moved(meets);
        self.n += 1 << 20;
        self.floor = self.highest_epoch() + 1024 + 16 * (self.gen_ms - known_ms);
    }

    /// A load or a promotion: leases have some time left again, never more than their ttl, their span or their cap.
    /// Who was revoked has none.
    pub fn era(&mut self, grace_ms: Option<u64>, known_ms: u64, meets: bool) {
        self.restored(known_ms, meets);
        let now = self.mono;
        let limits: Vec<_> = self.leases.iter().map(|l| (self.cap(l), self.is_marked(&l.user, &l.device))).collect();
        for (l, (cap, marked)) in self.leases.iter_mut().zip(limits).filter(|(l, _)| l.ended.is_none()) {
            if marked {
                l.deadline = l.deadline.min(now);
                continue;
            }
            let most = l.ttl.min(l.span.unwrap_or(l.ttl));
            let grace = grace_ms.unwrap_or(most).min(most);
            if grace > 0 {
                l.deadline = l.deadline.max(now + grace);
            }
            l.deadline = l.deadline.min(now + most).min(cap);
        }
    }

    /// The server was down: its monotonic clock may show anything now, and the wall clock may have been set. What was
    /// saved is in unix time.
    pub fn rebase(&mut self, mono: u64, unix: u64) {
        let (before, after) = (self.offset, unix as i64 - mono as i64);
        let moved = |moment: u64| moment.saturating_add_signed(before - after);
        for l in &mut self.leases {
            l.deadline = moved(l.deadline);
            l.until = l.until.map(moved);
            if let Some(ended) = &mut l.ended {
                ended.forget_at = moved(ended.forget_at);
            }
        }
        self.move_grant_ends(moved);
        self.move_windows(moved);
        self.busy_until = moved(self.busy_until);
        (self.mono, self.offset) = (mono, after);
    }
}

fn count<'a>(leases: impl Iterator<Item = &'a Lease>) -> (u64, u64) {
    let users: Vec<&str> = leases.map(|l| l.user.as_str()).collect();
    (users.len() as u64, users.iter().collect::<BTreeSet<_>>().len() as u64)
}
