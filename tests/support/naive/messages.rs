//! The message log of the naive model: a list of messages, a table of who sent what, and what readers are told.

use std::collections::{BTreeMap, BTreeSet};

use redis_lease::core::cursor::Claim;
use redis_lease::core::policy::Setting;

use super::super::command::{or_nil, Fields, Post, Reply, Send, Session};
use super::super::node::AT_ONCE;
use super::{Naive, Outcome};

/// (user, message id).
type Key = (String, String);

#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    seq: u64,
    key: Key,
    /// Device, session, epoch.
    from: Option<(String, String, u64)>,
    /// Unix ms.
    at: u64,
    /// Monotonic; unknown in a log that the room has met.
    accepted: Option<u64>,
    /// A later message's: this one is no younger.
    followed: Option<u64>,
    gen: String,
    payload: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    entries: Vec<Message>,
    last: u64,
}

#[derive(Clone, Debug)]
struct Record {
    seq: u64,
    payload: String,
    at: u64,
    /// Monotonic.
    until: u64,
    /// Whether the log's message of that seq is this one.
    attached: bool,
}

#[derive(Clone, Debug, Default)]
struct Cursor {
    queued: u64,
    written: u64,
    acked: u64,
    until: u64,
}

/// What a write has carried to all nodes, or may be lost.
#[derive(Clone, Debug, Default)]
struct Known {
    gen: String,
    seq: u64,
    past: Vec<(String, u64)>,
    holds: BTreeSet<String>,
}

#[derive(Default)]
pub struct Log {
    stream: Stream,
    elsewhere: Stream,
    pub seq: u64,
    last_at: u64,
    /// Which moment stood for which `at`.
    reading: Option<(u64, u64)>,
    /// Earlier gens, and the newest message of each.
    past: Vec<(String, u64)>,
    records: BTreeMap<Key, Record>,
    /// The next message to make a record of.
    rebuilding: Option<u64>,
    /// Whether the log is believed to hold something.
    retains: bool,
    holds: BTreeSet<String>,
    cursors: BTreeMap<(String, String), Cursor>,
    known: Known,
}

impl Stream {
    pub fn oldest(&self) -> u64 {
        self.entries.first().map_or(0, |message| message.seq)
    }
}

// ---------------------------------------------------------------- what it is told

impl Naive {
    pub(super) fn is_held(&self) -> bool {
        !self.log.holds.is_empty()
    }

    /// A server may keep more of a stream than it must. It does not keep less.
    pub fn log_begins_at(&mut self, oldest: u64) {
        let stream = &mut self.log.stream;
        let before = stream.entries.len();
        stream.entries.retain(|message| message.seq >= oldest && oldest > 0);
        let (left, went) = (stream.entries.len() as u64, before > stream.entries.len());
        let kept = self.policy(Setting::RetainCount);
        assert!(!went || (!self.is_held() && kept > 0 && left >= kept), "{left} of {before} messages are left");
        assert_eq!(self.log.stream.oldest(), oldest, "what is left of the log");
    }

    pub fn log_lost(&mut self) {
        self.log.stream = Stream::default();
    }

    /// A write has carried the room's history.
    pub fn carried(&mut self) {
        let Log { seq, past, holds, .. } = &self.log;
        let (seq, past, holds) = (*seq, past.clone(), holds.clone());
        self.log.known = Known { gen: self.gen.clone(), seq, past, holds };
    }

    /// What no write had carried was not saved.
    pub fn forget_uncarried(&mut self) {
        let Known { gen, seq, past, holds } = self.log.known.clone();
        self.gen = gen;
        (self.log.seq, self.log.past, self.log.holds) = (seq, past, holds);
    }

    /// The room goes on from its own messages.
    pub(super) fn go_on(&mut self) {
        self.log.past.push((self.gen.clone(), self.log.seq));
        let extra = self.log.past.len().saturating_sub(64);
        self.log.past.drain(..extra);
    }

    pub fn move_elsewhere(&mut self) {
        let Log { stream, elsewhere, .. } = &mut self.log;
        std::mem::swap(stream, elsewhere);
    }

    /// It is under a name whose log it did not write.
    pub(super) fn meet(&mut self) {
        self.busy_until = self.busy_until.max(self.mono);
        let log = &mut self.log;
        log.past.clear();
        log.seq = log.known.seq.max(log.stream.last);
        log.holds = log.known.holds.clone();
        log.records.values_mut().for_each(|record| record.attached = false);
        log.stream.entries.iter_mut().for_each(|message| (message.accepted, message.followed) = (None, None));
        log.rebuilding = log.stream.entries.first().map(|message| message.seq);
        log.retains = log.rebuilding.is_some();
        log.reading = None;
        if log.retains {
            log.holds.insert("orphan".to_owned());
        }
    }

    /// A room that is gone leaves its log behind.
    pub(super) fn forget_log(&mut self) {
        let Log { stream, elsewhere, .. } = std::mem::take(&mut self.log);
        self.log = Log { stream, elsewhere, ..Log::default() };
    }

    /// An empty log goes with an empty room.
    pub(super) fn remove_empty_log(&mut self) {
        if self.log.stream.entries.is_empty() {
            self.log.stream = Stream::default();
        }
    }

    pub(super) fn move_windows(&mut self, moved: impl Fn(u64) -> u64) {
        for record in self.log.records.values_mut() {
            record.until = moved(record.until);
        }
        for message in &mut self.log.stream.entries {
            message.accepted = message.accepted.map(&moved);
            message.followed = message.followed.map(&moved);
        }
        self.log.reading = self.log.reading.map(|(at, mono)| (at, moved(mono)));
        for cursor in self.log.cursors.values_mut() {
            cursor.until = moved(cursor.until);
        }
    }

    /// When windows, ages and cursors end; what is over and stays where it is, for the sake of its message, waits for
    /// nothing.
    pub(super) fn log_moments(&self) -> Vec<u64> {
        let log = &self.log;
        let mut moments: Vec<u64> =
            log.records.values().map(|record| record.until).filter(|until| *until > self.mono).collect();
        moments.extend(log.cursors.values().map(|cursor| cursor.until));
        moments.extend(log.rebuilding.map(|_| 0));
        let first = log.stream.entries.first().filter(|_| !self.is_held()).map(|message| self.kept_until(message));
        moments.extend(first.filter(|until| *until < u64::MAX));
        moments
    }

    pub(super) fn keeps_messages(&self) -> bool {
        let Log { records, holds, cursors, retains, .. } = &self.log;
        *retains || !records.is_empty() || !holds.is_empty() || !cursors.is_empty()
    }

    pub(super) fn log_oldest(&self) -> u64 {
        self.log.stream.oldest()
    }

    pub fn records(&self) -> u64 {
        self.log.records.len() as u64
    }
}

// ---------------------------------------------------------------- senders

impl Naive {
    fn is_retained(&self, record: &Record) -> bool {
        record.attached && self.log.stream.entries.iter().any(|message| message.seq == record.seq)
    }

    fn is_known(&self, record: &Record) -> bool {
        record.until > self.mono || self.is_retained(record)
    }

    pub(super) fn send(&mut self, s: &Send) -> Outcome {
        let order = self.live_session(&s.by.session, s.by.epoch, s.by.token.as_deref())?;
        let user = self.lease(order).user.clone();
        self.check_may_write(&user)?;
        self.message(&user, &s.id, &s.payload, Some(order))
    }

    pub(super) fn post(&mut self, p: &Post) -> Outcome {
        if !self.exists {
            self.begin_room();
        }
        if self.is_revoked(&p.user) {
            return Err("DENIED revoked".to_owned());
        }
        self.check_grant(&p.user)?;
        self.check_may_write(&p.user)?;
        self.message(&p.user, &p.id, &p.payload, None)
    }

    fn message(&mut self, user: &str, id: &str, payload: &str, from: Option<u64>) -> Outcome {
        let key = (user.to_owned(), id.to_owned());
        let rebuilt = self.log.rebuilding.is_some();
        self.rebuild(AT_ONCE);
        if self.log.rebuilding.is_some() {
            self.exists = true;
            return Err("TRYAGAIN".to_owned());
        }
        if let Some(known) = self.log.records.get(&key).filter(|record| self.is_known(record)) {
            if known.payload != payload {
                return Err("CONFLICT message".to_owned());
            }
            return Ok(told("duplicate", known.seq, &self.gen, known.at));
        }
        self.exists |= rebuilt;
        if !self.log_writable {
            return Err("LOGSTATE".to_owned());
        }
        self.exists = true;
        let at = self.now().max(self.log.last_at);
        let until = self.mono + self.policy(Setting::DedupMs);
        let accepted = self.accepted_at(at);
        self.log.seq += 1;
        let seq = self.log.seq;
        (self.log.last_at, self.log.stream.last, self.log.retains) = (at, seq, true);
        let record = Record { seq, payload: payload.to_owned(), at, until, attached: true };
        self.log.records.insert(key.clone(), record);
        let of = |order: u64| {
            let l = self.lease(order);
            (l.device.clone(), l.session.clone(), l.epoch)
        };
        let from_lease = from.map(of);
        self.log.stream.entries.push(Message {
            seq,
            key,
            from: from_lease,
            at,
            accepted: Some(accepted),
            followed: None,
            gen: self.gen.clone(),
            payload: payload.to_owned(),
        });
        if self.policy(Setting::AnnounceMessages) == 1 {
            let number = ("seq", seq.to_string());
            match from {
                Some(order) => self.emit("message", order, vec![number]),
                None => self.tell("message", vec![("user", user.to_owned()), number]),
            }
        }
        Ok(told("accepted", seq, &self.gen, at))
    }

    /// By when a message's age is counted: now, or up to a second later while `at` stands still.
    fn accepted_at(&mut self, at: u64) -> u64 {
        let slack_ms = if at == self.log.last_at { 1_000 } else { 0 };
        let told = self.log.reading.map(|(of, mono)| mono + at - of);
        match told {
            Some(told) if (self.mono..=self.mono + slack_ms).contains(&told) => told,
            _ => {
                let mono = self.mono + told.map_or(0, |_| slack_ms);
                self.log.reading = Some((at, mono));
                for message in &mut self.log.stream.entries {
                    message.followed = Some(message.followed.map_or(mono, |earlier| earlier.min(mono)));
                }
                mono
            }
        }
    }

    /// Makes records of the next messages of a log the room has met.
    fn rebuild(&mut self, most: usize) {
        let Some(first) = self.log.rebuilding else { return };
        let ahead = self.log.stream.entries.iter().filter(|message| message.seq >= first);
        let ahead: Vec<Message> = ahead.cloned().collect();
        self.log.rebuilding = ahead.get(most).map(|message| message.seq);
        for message in ahead.into_iter().take(most) {
            self.log.last_at = self.log.last_at.max(message.at);
            // What the room knows itself goes before it, unless that is over and of another message.
            let own = self.log.records.get(&message.key);
            let own = own.filter(|own| self.is_known(own) || own.seq == message.seq).cloned();
            let record = match own {
                Some(own) => Record { attached: own.attached || own.seq == message.seq, ..own },
                None => Record {
                    seq: message.seq,
                    payload: message.payload,
                    at: message.at,
                    until: self.to_mono(message.at) + self.policy(Setting::DedupMs),
                    attached: true,
                },
            };
            self.log.records.insert(message.key, record);
        }
    }
}

fn told(status: &str, seq: u64, gen: &str, at: u64) -> Reply {
    Reply::Map(vec![
        ("status", status.to_owned()),
        ("seq", seq.to_string()),
        ("gen", gen.to_owned()),
        ("at", at.to_string()),
    ])
}

// ---------------------------------------------------------------- readers

impl Naive {
    pub(super) fn replay(&self, by: &Session, gen: &str, after: u64, count: u64) -> Outcome {
        self.live_session(&by.session, by.epoch, by.token.as_deref())?;
        let current = self.log.seq;
        let wanted: Vec<&Message> = self.shown().filter(|message| message.seq > after).collect();
        let known = gen == "*" || gen == self.gen || self.log.past.iter().any(|(g, last)| g == gen && after <= *last);
        let reason = if !known {
            Some("diverged")
        } else if after > current {
            Some("future")
        } else if wanted.len() as u64 != current - after {
            Some("trimmed")
        } else {
            None
        };
        let count = if reason.is_some() { 0 } else { count };
        let entries: Vec<Fields> = wanted.into_iter().take(count as usize).map(Message::show).collect();
        let head = vec![
            ("status", if reason.is_some() { "resync" } else { "ok" }.to_owned()),
            ("reason", or_nil(reason)),
            ("gen", self.gen.clone()),
            ("oldest", self.log_oldest().to_string()),
            ("current", current.to_string()),
            ("next", (after + entries.len() as u64).to_string()),
        ];
        Ok(Reply::Log(head, entries))
    }

    pub(super) fn snapshot(&self, by: &Session, count: u64) -> Outcome {
        self.live_session(&by.session, by.epoch, by.token.as_deref())?;
        let newest = self.messages();
        let head = vec![
            ("gen", self.gen.clone()),
            ("oldest", self.log_oldest().to_string()),
            ("current", self.log.seq.to_string()),
            ("event_n", self.n.to_string()),
        ];
        Ok(Reply::Log(head, newest[newest.len().saturating_sub(count as usize)..].to_vec()))
    }

    pub fn messages(&self) -> Vec<Fields> {
        self.shown().map(Message::show).collect()
    }

    fn shown(&self) -> impl Iterator<Item = &Message> {
        self.log.stream.entries.iter()
    }
}

impl Message {
    fn show(&self) -> Fields {
        let mut fields = vec![("n", self.seq.to_string()), ("id", self.key.1.clone()), ("user", self.key.0.clone())];
        if let Some((device, session, epoch)) = &self.from {
            fields.extend([("device", device.clone()), ("session", session.clone()), ("epoch", epoch.to_string())]);
        }
        fields.extend([("at", self.at.to_string()), ("gen", self.gen.clone()), ("payload", self.payload.clone())]);
        fields
    }
}

// ---------------------------------------------------------------- claims, holds, retention

impl Naive {
    pub(super) fn mark(&mut self, user: &String, device: &String, claim: Claim, seq: u64) -> Outcome {
        let is_holder = |l: &super::Lease| l.user == *user && l.device == *device;
        let remembered = self.leases.iter().any(|l| is_holder(l) && self.known(&l.session).is_some());
        let knows = remembered || self.has_live_grant(user) || self.cursor(user, device).is_some();
        if !self.exists || !knows {
            return Err("ERR".to_owned());
        }
        self.claim((user.clone(), device.clone()), claim, seq)
    }

    pub(super) fn ack(&mut self, by: &Session, seq: u64) -> Outcome {
        let order = self.live_session(&by.session, by.epoch, by.token.as_deref())?;
        let l = self.lease(order);
        self.claim((l.user.clone(), l.device.clone()), Claim::Acked, seq)
    }

    fn claim(&mut self, holder: (String, String), claim: Claim, seq: u64) -> Outcome {
        if seq > self.log.seq {
            return Err("ERR".to_owned());
        }
        let mut cursor = self.cursor(&holder.0, &holder.1).cloned().unwrap_or_default();
        let place = match claim {
            Claim::Queued => &mut cursor.queued,
            Claim::Written => &mut cursor.written,
            Claim::Acked => &mut cursor.acked,
        };
        if seq <= *place {
            return Ok(Reply::words([place]));
        }
        *place = seq;
        // Those of the user that are over go on this occasion.
        self.drop_cursors(Some(&holder.0));
        cursor.until = self.mono + self.node(Setting::CursorMs);
        self.log.cursors.insert(holder, cursor);
        Ok(Reply::words([&seq]))
    }

    /// What is over, of one user or of all.
    fn drop_cursors(&mut self, of: Option<&str>) {
        let (now, mut last) = (self.mono, 0);
        self.log.cursors.retain(|(user, _), cursor| {
            let over = cursor.until <= now && of.is_none_or(|of| of == user);
            last = last.max(if over { cursor.until } else { 0 });
            !over
        });
        self.busy_until = self.busy_until.max(last);
    }

    /// Unless its time is over.
    fn cursor(&self, user: &str, device: &str) -> Option<&Cursor> {
        let cursor = self.log.cursors.get(&(user.to_owned(), device.to_owned()));
        cursor.filter(|cursor| cursor.until > self.mono)
    }

    pub(super) fn acked(&self, user: &str, device: &str) -> u64 {
        self.cursor(user, device).map_or(0, |cursor| cursor.acked)
    }

    pub(super) fn lag(&self) -> Vec<Fields> {
        let live = self.log.cursors.iter().filter(|(_, cursor)| cursor.until > self.mono);
        let row = |((user, device), cursor): (&(String, String), &Cursor)| {
            vec![
                ("user", user.clone()),
                ("device", device.clone()),
                ("queued", cursor.queued.to_string()),
                ("written", cursor.written.to_string()),
                ("acked", cursor.acked.to_string()),
                ("acked_lag", (self.log.seq - cursor.acked).to_string()),
            ]
        };
        live.map(row).collect()
    }

    pub(super) fn hold(&mut self, name: &str) -> Reply {
        if !self.exists {
            self.begin_room();
        }
        let new = self.log.holds.insert(name.to_owned());
        self.exists |= new;
        Reply::words([&u8::from(new)])
    }

    pub(super) fn unhold(&mut self, name: &str) -> Reply {
        let there = self.exists && self.log.holds.remove(name);
        if there {
            self.busy_until = self.busy_until.max(self.mono);
        }
        Reply::words([&u8::from(there)])
    }

    pub fn holds(&self) -> Vec<String> {
        self.log.holds.iter().filter(|_| self.exists).cloned().collect()
    }

    /// Until when a message is kept, by its age.
    fn kept_until(&self, message: &Message) -> u64 {
        match self.policy(Setting::RetainMs) {
            0 => u64::MAX,
            retain_ms => {
                let accepted = message.accepted.unwrap_or_else(|| self.to_mono(message.at));
                message.followed.map_or(accepted, |later| later.min(accepted)) + retain_ms
            }
        }
    }

    fn drop_old(&mut self) -> usize {
        let old = self.shown().take_while(|message| self.kept_until(message) <= self.mono).count();
        self.drop_oldest(old)
    }

    fn drop_oldest(&mut self, most: usize) -> usize {
        self.log.stream.entries.drain(..most);
        most
    }

    fn notice(&mut self) {
        if self.log.stream.entries.is_empty() && std::mem::replace(&mut self.log.retains, false) {
            self.busy_until = self.busy_until.max(self.mono);
        }
    }

    pub(super) fn trim(&mut self) -> Outcome {
        if !self.exists || self.is_held() {
            return Ok(Reply::words([&0]));
        }
        self.rebuild(AT_ONCE);
        if self.log.rebuilding.is_some() {
            return Err("TRYAGAIN".to_owned());
        }
        let mut gone = self.drop_old();
        let kept = self.policy(Setting::RetainCount) as usize;
        if kept > 0 {
            gone += self.drop_oldest(self.log.stream.entries.len().saturating_sub(kept));
        }
        self.notice();
        Ok(Reply::words([&gone]))
    }

    /// The reaper's part: what is over goes.
    pub fn retain(&mut self) {
        let now = self.mono;
        self.drop_cursors(None);
        self.rebuild(usize::MAX);
        if self.exists && !self.is_held() {
            self.drop_old();
        }
        self.notice();
        let ended: Vec<Key> =
            self.log.records.iter().filter(|(_, record)| !self.is_known(record)).map(|(key, _)| key.clone()).collect();
        for key in ended {
            let until = self.log.records.remove(&key).map_or(0, |record| record.until);
            self.busy_until = self.busy_until.max(until);
        }
        // What is over stays so, whatever becomes of the wall clock.
        self.log.records.values_mut().filter(|record| record.until <= now).for_each(|record| record.until = 0);
    }
}
