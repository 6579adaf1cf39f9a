//! Grants and marks of the naive model.

use redis_lease::core::policy::Setting;

use super::super::command::{or_nil, Fields, Grant, Open, Reply};
use super::{Lease, Naive, Outcome};

#[derive(Clone, Debug, Default)]
pub struct Record {
    grant: Option<Granted>,
    version: Option<u64>,
    revoked: bool,
    devices: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Granted {
    level: &'static str,
    /// Monotonic.
    until: Option<u64>,
    token: Option<String>,
}

impl Record {
    fn is_late(&self, version: Option<u64>) -> bool {
        matches!((version, self.version), (Some(new), Some(stored)) if new <= stored)
    }

    fn until(&self) -> Option<u64> {
        self.grant.as_ref().and_then(|grant| grant.until)
    }
}

// ---------------------------------------------------------------- what it is asked

impl Naive {
    pub(super) fn wants_grants(&self) -> bool {
        self.policy(Setting::DefaultAccess) == 1
    }

    fn record(&self, user: &str) -> Record {
        self.access.get(user).cloned().unwrap_or_default()
    }

    /// A grant whose time is over is none.
    fn live_grant(&self, user: &str) -> Option<Granted> {
        self.record(user).grant.filter(|grant| grant.until.is_none_or(|until| until > self.mono))
    }

    pub(super) fn is_marked(&self, user: &str, device: &str) -> bool {
        let record = self.record(user);
        record.revoked || record.devices.iter().any(|d| d == device)
    }

    pub(super) fn check_marks(&self, user: &str, device: &str) -> Result<(), String> {
        if self.is_marked(user, device) {
            return Err("DENIED revoked".to_owned());
        }
        Ok(())
    }

    pub(super) fn check_grant(&self, user: &str) -> Result<(), String> {
        if self.wants_grants() && self.live_grant(user).is_none() {
            return Err("DENIED nogrant".to_owned());
        }
        Ok(())
    }

    pub(super) fn has_live_grant(&self, user: &str) -> bool {
        self.live_grant(user).is_some()
    }

    pub(super) fn is_revoked(&self, user: &str) -> bool {
        self.record(user).revoked
    }

    pub(super) fn check_may_write(&self, user: &str) -> Result<(), String> {
        match self.live_grant(user) {
            Some(grant) if self.wants_grants() && grant.level == "READ" => Err("DENIED readonly".to_owned()),
            _ => Ok(()),
        }
    }

    /// What OPEN asks before anything else.
    pub(super) fn check_access(&self, o: &Open, device: &str) -> Result<(), String> {
        self.check_marks(&o.user, device)?;
        self.check_grant(&o.user)?;
        let bound = self.grant_token(&o.user).filter(|_| self.wants_grants());
        if bound.is_some() && bound != o.grant_token {
            return Err("DENIED token".to_owned());
        }
        Ok(())
    }

    /// The token that the user's OPENs must present where grants are wanted.
    pub fn grant_token(&self, user: &str) -> Option<String> {
        self.record(user).grant.and_then(|grant| grant.token)
    }

    /// The latest deadline the lease may have.
    pub(super) fn cap(&self, l: &Lease) -> u64 {
        let of_grant = self.record(&l.user).until().filter(|_| self.wants_grants());
        [l.until, of_grant].into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    pub(super) fn grant_ends(&self) -> impl Iterator<Item = u64> + '_ {
        self.access.values().filter_map(Record::until)
    }
}

// ---------------------------------------------------------------- what becomes of it

impl Naive {
    pub(super) fn grant(&mut self, g: &Grant) -> Outcome {
        if !self.exists {
            self.begin_room();
        }
        if g.until.is_some_and(|until| until <= self.now()) {
            return Err("ERR".to_owned());
        }
        let before = self.record(&g.user);
        if before.is_late(g.version) {
            return Ok(Reply::words([&"stale"]));
        }
        let level = if g.writes { "WRITE" } else { "READ" };
        let granted = Granted { level, until: g.until.map(|until| self.to_mono(until)), token: g.token.clone() };
        let known = self.live_grant(&g.user).as_ref() == Some(&granted) && !before.revoked && before.devices.is_empty();
        if !known && !self.writable {
            return Err("LOGSTATE".to_owned());
        }
        self.exists = true;
        let version = g.version.or(before.version);
        let record = Record { grant: Some(granted), version, ..Record::default() };
        self.access.insert(g.user.clone(), record);
        if self.wants_grants() {
            self.cut(Some(&g.user));
        }
        if !known {
            let mut rest: Fields = vec![("user", g.user.clone()), ("level", level.to_owned())];
            rest.extend(g.until.map(|until| ("until", until.to_string())));
            self.tell("granted", rest);
        }
        Ok(Reply::words([&"ok"]))
    }

    pub(super) fn revoke(&mut self, user: &String, device: Option<&String>, version: Option<u64>) -> Reply {
        if !self.exists {
            self.begin_room();
        }
        if self.record(user).is_late(version) {
            return Reply::words([&"stale", &0]);
        }
        self.exists = true;
        let ended = self.end_all(Some(user), device, "revoked");
        let record = self.access.entry(user.clone()).or_default();
        record.version = version.or(record.version);
        let known = match device {
            None => {
                record.grant = None;
                std::mem::replace(&mut record.revoked, true)
            }
            Some(device) if record.devices.contains(device) => true,
            Some(device) => {
                record.devices.push(device.clone());
                false
            }
        };
        if !known {
            let mut rest: Fields = vec![("user", user.clone())];
            rest.extend(device.map(|device| ("device", device.clone())));
            self.tell("grant-revoked", rest);
        }
        Reply::words([&"ok", &ended])
    }

    /// Where grants count, live leases end with theirs.
    pub(super) fn cut(&mut self, user: Option<&String>) {
        for order in self.leases.iter().map(|l| l.order).collect::<Vec<_>>() {
            let l = self.lease(order);
            if !self.is_live(l) || user.is_some_and(|user| l.user != *user) {
                continue;
            }
            let until = self.live_grant(&l.user).and_then(|grant| grant.until).unwrap_or(u64::MAX);
            let l = self.lease_mut(order);
            l.deadline = l.deadline.min(until);
        }
    }

    /// The reaper drops the grants whose time is over.
    pub(super) fn end_grants(&mut self) {
        for record in self.access.values_mut() {
            if let Some(until) = record.until().filter(|until| *until <= self.mono) {
                self.busy_until = self.busy_until.max(until);
                record.grant = None;
            }
        }
        self.access.retain(|_, r| r.grant.is_some() || r.version.is_some() || r.revoked || !r.devices.is_empty());
    }

    pub(super) fn move_grant_ends(&mut self, moved: impl Fn(u64) -> u64) {
        for grant in self.access.values_mut().filter_map(|record| record.grant.as_mut()) {
            grant.until = grant.until.map(&moved);
        }
    }

    pub(super) fn grants(&self, user: Option<&String>) -> Vec<Fields> {
        let of = self.access.iter().filter(|(of, _)| user.is_none_or(|user| user == *of));
        let shown = of.filter(|(of, r)| self.live_grant(of).is_some() || r.revoked || !r.devices.is_empty());
        let row = |(of, record): (&String, &Record)| {
            let grant = self.live_grant(of);
            vec![
                ("user", of.clone()),
                ("level", or_nil(grant.as_ref().map(|g| g.level))),
                ("until", or_nil(grant.as_ref().and_then(|g| g.until).map(|until| self.unix(until)))),
                ("version", or_nil(record.version)),
                ("token", u8::from(grant.is_some_and(|g| g.token.is_some())).to_string()),
                ("revoked", u8::from(record.revoked).to_string()),
                ("devices", record.devices.join(" ")),
            ]
        };
        shown.map(row).collect()
    }
}
