//! The commands of the naive model.

use redis_lease::core::policy::Setting;

use super::super::command::{or_nil, Command, Fields, Open, Renew, Reply};
use super::{count, Lease, Naive, Outcome};

impl Naive {
    pub fn run(&mut self, command: &Command) -> Outcome {
        self.tidy();
        match command {
            Command::Open(open) => self.open(open),
            Command::Renew(renew) => self.renew(renew),
            Command::MRenew(items) => Ok(self.mrenew(items)),
            Command::Leave { session, epoch, linger_ms, token } => {
                self.leave(session, *epoch, *linger_ms, token.as_deref())
            }
            Command::Kick { user, device } => {
                Ok(Reply::words([&self.end_all(user.as_ref(), device.as_ref(), "kicked")]))
            }
            Command::Reap { count } => Ok(Reply::words([&self.reap(*count as usize)])),
            Command::SetPolicy(values) => {
                if !std::mem::replace(&mut self.exists, true) {
                    self.begin_room();
                }
                let wanted = self.wants_grants();
                for (setting, value) in values {
                    match value {
                        Some(value) => self.own.insert(*setting, *value),
                        None => self.own.remove(setting),
                    };
                }
                if self.wants_grants() && !wanted {
                    self.cut(None);
                }
                self.busy_until = self.busy_until.max(self.mono);
                Ok(Reply::words([&"OK"]))
            }
            Command::Grant(grant) => self.grant(grant),
            Command::Revoke { user, device, version } => Ok(self.revoke(user, device.as_ref(), *version)),
            Command::Grants { user } => Ok(Reply::Maps(self.grants(user.as_ref()))),
            Command::Get(session) => Ok(self.known(session).map_or(Reply::Nil, |order| Reply::Map(self.show(order)))),
            Command::Roster { user, ended } => Ok(Reply::Maps(self.roster(user.as_ref(), *ended))),
            Command::Count => {
                let (leases, users) = count(self.leases.iter().filter(|l| self.is_live(l)));
                Ok(Reply::words([&leases, &users]))
            }
            Command::Send(send) => self.send(send),
            Command::Post(post) => self.post(post),
            Command::Replay { by, gen, after, count } => self.replay(by, gen, *after, *count),
            Command::Snapshot { by, count } => self.snapshot(by, *count),
            Command::Hold(name) => Ok(self.hold(name)),
            Command::Unhold(name) => Ok(self.unhold(name)),
            Command::Holds => Ok(Reply::Words(self.holds())),
            Command::Trim => self.trim(),
            Command::Mark { user, device, claim, seq } => self.mark(user, device, *claim, *seq),
            Command::Ack { by, seq } => self.ack(by, *seq),
            Command::Lag => Ok(Reply::Maps(self.lag())),
        }
    }

    fn open(&mut self, o: &Open) -> Outcome {
        if !self.exists {
            self.begin_room();
        }
        let device = o.device.clone().unwrap_or_else(|| "default".to_owned());
        self.check_access(o, &device)?;
        if let Some(order) = o.session.as_ref().and_then(|session| self.known(session)) {
            return self.retry(order, &o.user, &device, o.token.as_deref());
        }
        let ttl = o.ttl_ms.unwrap_or_else(|| self.policy(Setting::TtlMs));
        self.check_ttl(o.ttl_ms)?;
        if o.until.is_some_and(|until| until <= self.now()) {
            return Err("ERR".to_owned());
        }
        if self.policy(Setting::RequireToken) == 1 && o.token.is_none() {
            return Err("DENIED token".to_owned());
        }
        let mine = |l: &&Lease| l.user == o.user && l.device == device && l.ended.is_none();
        let current = self.leases.iter().filter(mine).find(|l| self.is_live(l));
        if let (Some(current), true) = (current, o.nx) {
            return Err(format!("HELD {}", current.deadline - self.mono));
        }
        let most = self.policy(Setting::MaxLeases);
        let live = self.leases.iter().filter(|l| self.is_live(l)).count() as u64;
        if most > 0 && current.is_none() && live >= most {
            return Err("LIMIT leases".to_owned());
        }
        if !self.writable {
            return Err("LOGSTATE".to_owned());
        }
        self.exists = true;

        // Nothing can refuse it any more. First what is overdue, by deadline, each in a step of its own: the holder's
        // lease, and one of this session id that is over for so long that nothing remembers it.
        let current = current.map(|l| l.order);
        let holder = (o.user.clone(), device.clone());
        let epoch = self.given.get(&holder).copied().unwrap_or(0).max(self.floor) + 1;
        let session = o.session.clone().unwrap_or_else(|| uuid(o.random));
        for order in self.overdue() {
            let l = self.lease(order);
            if (l.user == o.user && l.device == device) || l.session == session {
                self.expire(order);
            }
        }
        if let Some(twin) = self.session(&session).map(|l| l.epoch) {
            self.floor = self.floor.max(twin);
            self.leases.retain(|l| l.session != session);
        }
        let replaced = current.map(|order| self.lease(order).session.clone());
        if let Some(order) = current {
            self.end(order, "superseded", Some(epoch));
        }
        let order = self.add(o, device, session, epoch, ttl, replaced.clone());
        self.given.insert(holder, epoch);
        self.highest = self.highest.max(epoch);
        if let Some(current) = current {
            self.emit_removed(current);
        }
        let mut rest: Fields = replaced.map(|session| ("replaced", session)).into_iter().collect();
        rest.push(("expires_at", self.rounded(self.unix(self.lease(order).deadline)).to_string()));
        rest.extend(o.meta.clone().map(|meta| ("meta", meta)));
        self.emit("opened", order, rest);
        Ok(self.opened(order))
    }

    fn retry(&self, order: u64, user: &str, device: &str, token: Option<&str>) -> Outcome {
        let lease = self.lease(order);
        if lease.user != user || lease.device != device {
            return Err("CONFLICT session".to_owned());
        }
        self.check_token(order, token)?;
        self.why_stale(lease).map_or_else(|| Ok(self.opened(order)), Err)
    }

    fn add(
        &mut self,
        o: &Open,
        device: String,
        session: String,
        epoch: u64,
        ttl: u64,
        replaced: Option<String>,
    ) -> u64 {
        self.next_order += 1;
        let until = o.until.map(|until| self.to_mono(until));
        let mut lease = Lease {
            session,
            user: o.user.clone(),
            device,
            epoch,
            order: self.next_order,
            seq: 0,
            signal: None,
            ttl,
            deadline: self.mono + ttl,
            until,
            opened_at: self.now(),
            heartbeat_at: self.now(),
            observed_at: None,
            meta: o.meta.clone(),
            token: o.token.clone(),
            replaced,
            lingering: false,
            span: None,
            ended: None,
        };
        lease.deadline = lease.deadline.min(self.cap(&lease));
        self.leases.push(lease);
        self.next_order
    }

    fn opened(&self, order: u64) -> Reply {
        let l = self.lease(order);
        Reply::Map(vec![
            ("session", l.session.clone()),
            ("epoch", l.epoch.to_string()),
            ("user_leases", self.leases_of(&l.user).to_string()),
            ("ttl_ms", l.ttl.to_string()),
            ("heartbeat_ms", (l.ttl / 3).to_string()),
            ("left_ms", (l.deadline - self.mono).to_string()),
            ("expires_at", self.unix(l.deadline).to_string()),
            ("now", self.now().to_string()),
            ("replaced", or_nil(l.replaced.clone())),
            ("gen", self.gen.clone()),
            ("log_seq", self.log.seq.to_string()),
            ("log_oldest", self.log_oldest().to_string()),
            ("event_n", self.n.to_string()),
            ("acked", self.acked(&l.user, &l.device).to_string()),
        ])
    }

    fn check_ttl(&self, ttl_ms: Option<u64>) -> Result<(), String> {
        let allowed = self.node(Setting::TtlMinMs)..=self.node(Setting::TtlMaxMs);
        ttl_ms.filter(|ttl| !allowed.contains(ttl)).map_or(Ok(()), |_| Err("ERR".to_owned()))
    }

    fn renew(&mut self, r: &Renew) -> Outcome {
        self.check_ttl(r.ttl_ms)?;
        if r.state.as_deref() == Some("closed") {
            return self.closed(r);
        }
        let order = self.live_session(&r.session, r.epoch, r.token.as_deref())?;
        let status = self.heartbeat(order, r);
        let deadline = self.lease(order).deadline;
        Ok(Reply::words([&status, &(deadline - self.mono), &self.unix(deadline)]))
    }

    fn heartbeat(&mut self, order: u64, r: &Renew) -> &'static str {
        let (mono, now) = (self.mono, self.now());
        let disconnect = self.policy(Setting::DisconnectMs);
        let failed = self.policy(Setting::FailedMs);
        let cap = self.cap(self.lease(order));
        let lease = self.lease_mut(order);
        if r.seq <= lease.seq {
            return "duplicate";
        }
        (lease.seq, lease.heartbeat_at) = (r.seq, now);
        lease.observed_at = r.observed_at.or(lease.observed_at);
        lease.ttl = r.ttl_ms.unwrap_or(lease.ttl);
        let mut shorten = |span: u64| {
            if mono + span < lease.deadline {
                lease.deadline = mono + span;
                lease.span = Some(span);
            }
            "shortened"
        };
        let status = match r.state.as_deref() {
            Some("disconnected") => shorten(disconnect),
            Some("failed") => shorten(failed),
            None | Some("connected" | "completed") => {
                lease.deadline = (mono + lease.ttl).min(cap);
                lease.span = None;
                "renewed"
            }
            Some(_) => "noted",
        };
        let changed = r.state.is_some() && r.state != lease.signal;
        let updated = r.meta.is_some() && r.meta != lease.meta;
        lease.signal = r.state.clone().or(lease.signal.take());
        lease.meta = r.meta.clone().or(lease.meta.take());
        let deadline = lease.deadline;
        if changed {
            let expires_at = self.rounded(self.unix(deadline)).to_string();
            let state = r.state.clone().unwrap_or_default();
            self.emit("state", order, vec![("state", state), ("expires_at", expires_at)]);
        }
        if updated {
            self.emit("updated", order, vec![("meta", r.meta.clone().unwrap_or_default())]);
        }
        if self.policy(Setting::LogRenewals) == 1 && !self.coarse() {
            self.emit("renewed", order, vec![]);
        }
        status
    }

    fn closed(&mut self, r: &Renew) -> Outcome {
        let Some(order) = self.known(&r.session) else { return Ok(Reply::words([&"gone", &0, &0])) };
        self.check_token(order, r.token.as_deref())?;
        let now = self.now();
        let lease = self.lease(order);
        if !self.is_live(lease) {
            let ended_at = lease.ended.as_ref().map_or(self.unix(lease.deadline), |ended| ended.at);
            return Ok(Reply::words([&"gone", &0, &ended_at]));
        }
        if r.epoch != lease.epoch {
            return Ok(Reply::words([&"gone", &0, &0]));
        }
        if r.seq <= lease.seq {
            let left = lease.deadline - self.mono;
            return Ok(Reply::words([&"duplicate", &left, &self.unix(lease.deadline)]));
        }
        let lease = self.lease_mut(order);
        (lease.seq, lease.heartbeat_at, lease.signal) = (r.seq, now, r.state.clone());
        lease.observed_at = r.observed_at.or(lease.observed_at);
        self.end(order, "left", None);
        self.emit_removed(order);
        Ok(Reply::words([&"ended", &0, &now]))
    }

    fn mrenew(&mut self, items: &[Renew]) -> Reply {
        let mut words = Vec::new();
        for item in items {
            match self.live_session(&item.session, item.epoch, item.token.as_deref()) {
                Ok(order) => {
                    words.push(self.heartbeat(order, item).to_owned());
                    words.push((self.lease(order).deadline - self.mono).to_string());
                }
                Err(error) => words.extend(error.to_lowercase().split(' ').take(2).map(str::to_owned)),
            }
        }
        Reply::Words(words)
    }

    fn leave(&mut self, session: &str, epoch: u64, linger_ms: u64, token: Option<&str>) -> Outcome {
        let Some(order) = self.known(session) else { return Ok(Reply::words([&"gone"])) };
        self.check_token(order, token)?;
        let lease = self.lease(order);
        if !self.is_live(lease) || epoch != lease.epoch {
            return Ok(Reply::words([&"gone"]));
        }
        if linger_ms == 0 {
            self.end(order, "left", None);
            self.emit_removed(order);
            return Ok(Reply::words([&"left"]));
        }
        let mono = self.mono;
        let lease = self.lease_mut(order);
        if !lease.lingering {
            lease.lingering = true;
            lease.deadline = lease.deadline.min(mono + linger_ms);
            lease.span = Some(lease.deadline - mono);
        }
        Ok(Reply::words([&"lingering"]))
    }

    /// KICK or REVOKE: one step for all it ends.
    pub(super) fn end_all(&mut self, user: Option<&String>, device: Option<&String>, reason: &'static str) -> usize {
        let fits = |l: &&Lease| user.is_none_or(|user| l.user == *user) && device.is_none_or(|d| l.device == *d);
        let going = self.leases.iter().filter(|l| self.is_live(l)).filter(fits);
        let going: Vec<u64> = going.map(|l| l.order).collect();
        going.iter().for_each(|order| self.end(*order, reason, None));
        going.iter().for_each(|order| self.emit_removed(*order));
        going.len()
    }

    fn show(&self, order: u64) -> Fields {
        let l = self.lease(order);
        let reason = self.reason(l);
        let exact = l.ended.as_ref().map_or(self.unix(l.deadline), |ended| ended.at);
        // An end that time did not bring tells nothing about heartbeats; `left` may be either.
        let told = if matches!(reason, None | Some("expired" | "left")) { self.rounded(exact) } else { exact };
        let state = match (reason, l.lingering) {
            (Some(_), _) => "ended",
            (None, true) => "lingering",
            (None, false) => "active",
        };
        vec![
            ("session", l.session.clone()),
            ("user", l.user.clone()),
            ("device", l.device.clone()),
            ("epoch", l.epoch.to_string()),
            ("seq", or_nil((!self.coarse()).then_some(l.seq))),
            ("state", state.to_owned()),
            ("reason", or_nil(reason)),
            ("signal", or_nil(l.signal.clone())),
            ("ttl_ms", l.ttl.to_string()),
            ("left_ms", if reason.is_some() { 0 } else { told.saturating_sub(self.now()) }.to_string()),
            ("expires_at", told.to_string()),
            ("opened_at", l.opened_at.to_string()),
            ("heartbeat_at", self.rounded(l.heartbeat_at).to_string()),
            ("observed_at", or_nil(l.observed_at.map(|at| self.rounded(at)))),
            ("ended_at", or_nil(reason.map(|_| told))),
            ("replaced_by", or_nil(l.ended.as_ref().and_then(|ended| ended.replaced_by))),
            ("meta", or_nil(l.meta.clone())),
        ]
    }

    fn roster(&self, user: Option<&String>, ended: bool) -> Vec<Fields> {
        let shown = |l: &&Lease| {
            user.is_none_or(|user| l.user == *user) && (self.is_live(l) || (ended && self.known(&l.session).is_some()))
        };
        self.leases.iter().filter(shown).map(|l| self.show(l.order)).collect()
    }
}

/// The text of a version 4 UUID.
fn uuid(random: [u8; 16]) -> String {
    let mut bits = u128::from_be_bytes(random);
    bits = bits & !(0xf << 76) | 4 << 76;
    bits = bits & !(0b11 << 62) | 0b10 << 62;
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
