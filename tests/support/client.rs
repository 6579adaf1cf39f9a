//! A caller as the contract wants it: it resends what got no answer, and each error code tells it what to do.

use redis_lease::core::refusal::{Refusal, Stale};

use super::chance::Chance;
use super::command::{Command, Open, Renew, Reply, Send, Session};

const STATES: [&str; 6] = ["connecting", "connected", "disconnected", "failed", "completed", "closed"];

/// Ends the name of a session that was opened with UNTIL, which no read shows.
pub const CAPPED: &str = "-until";

/// What a user's OPENs present where its grant is bound to a token.
pub fn grant_token_of(user: &str) -> String {
    format!("the pass of {user}")
}

/// A request on its way. What a client has sent it may send again, under the same number.
#[derive(Clone, Debug)]
pub struct Request {
    pub client: usize,
    pub number: u64,
    pub command: Command,
}

pub type Answer = Result<Reply, Refusal>;

pub struct Client {
    me: usize,
    user: String,
    device: Option<String>,
    token: Option<String>,
    session: Option<String>,
    /// Known once an OPEN was answered.
    epoch: Option<u64>,
    seq: u64,
    /// Has said goodbye, and waits to be told that it is over.
    leaving: bool,
    /// Acts it sits out: its user was told and does nothing for a while.
    idle: u64,
    waiting: Option<Request>,
    numbers: u64,
    sessions: u64,
    messages: u64,
    /// The newest message it knows of.
    newest: u64,
}

impl Client {
    pub fn new(me: usize, user: &str, device: Option<&str>, token: Option<&str>) -> Self {
        Self {
            me,
            user: user.to_owned(),
            device: device.map(str::to_owned),
            token: token.map(str::to_owned),
            session: None,
            epoch: None,
            seq: 0,
            leaving: false,
            idle: 0,
            waiting: None,
            numbers: 0,
            sessions: 0,
            messages: 0,
            newest: 0,
        }
    }

    /// What it sends now; again, if there was no answer.
    pub fn act(&mut self, chance: &mut Chance, unix: u64) -> Option<Request> {
        if self.idle > 0 {
            self.idle -= 1;
            return None;
        }
        // A crash, or a user who closes the laptop: nothing is said, everything forgotten.
        if chance.one_in(40) {
            (self.session, self.waiting, self.idle) = (None, None, chance.below(4));
            return None;
        }
        if self.waiting.is_none() {
            let command = self.next_command(chance, unix);
            self.numbers += 1;
            self.waiting = Some(Request { client: self.me, number: self.numbers, command });
        }
        self.waiting.clone()
    }

    fn next_command(&mut self, chance: &mut Chance, unix: u64) -> Command {
        let (Some(session), Some(epoch)) = (self.session.clone(), self.epoch) else { return self.open(chance, unix) };
        if chance.one_in(12) {
            self.leaving = true;
            let linger_ms = *chance.pick(&[0, 0, 500, 4_000]);
            return Command::Leave { session, epoch, linger_ms, token: self.token.clone() };
        }
        let by = Session { session: session.clone(), epoch, token: self.token.clone() };
        if chance.one_in(9) {
            // A user's two tabs may choose the same id, and say the same under it.
            self.messages += 1;
            let id = format!("m{}", self.messages);
            return Command::Send(Send { by, payload: format!("the text of {id}"), id });
        }
        if chance.one_in(12) {
            return Command::Ack { by, seq: self.newest };
        }
        // Sometimes what it says has overtaken, or is older than, what it said before.
        let seq = if chance.one_in(10) { self.seq } else { self.seq + 1 };
        self.seq = self.seq.max(seq);
        let state = chance.one_in(4).then(|| (*chance.pick(&STATES)).to_owned());
        self.leaving |= state.as_deref() == Some("closed");
        Command::Renew(Renew {
            session,
            epoch,
            seq,
            state,
            meta: chance.one_in(8).then(|| format!("meta {seq}")),
            ttl_ms: None,
            observed_at: chance.one_in(4).then(|| *chance.pick(&[0, 1, unix, unix + 3_600_000, i64::MAX as u64])),
            token: self.token.clone(),
        })
    }

    fn open(&mut self, chance: &mut Chance, unix: u64) -> Command {
        self.sessions += 1;
        let until = chance.one_in(6).then(|| unix + 1 + chance.below(60_000));
        let capped = if until.is_some() { CAPPED } else { "" };
        let session = format!("{}.{}{capped}", self.me, self.sessions);
        (self.epoch, self.seq, self.leaving) = (None, 0, false);
        self.session = Some(session.clone());
        Command::Open(Open {
            user: self.user.clone(),
            device: self.device.clone(),
            session: Some(session),
            ttl_ms: chance.one_in(2).then(|| *chance.pick(&[1_000, 5_000, 30_000])),
            until,
            token: self.token.clone(),
            grant_token: (!chance.one_in(12)).then(|| grant_token_of(&self.user)),
            meta: chance.one_in(5).then(|| "from the start".to_owned()),
            nx: chance.one_in(6),
            random: [0; 16],
        })
    }

    /// An answer arrives, perhaps late: what it no longer waits for it ignores.
    pub fn hear(&mut self, number: u64, answer: &Answer, chance: &mut Chance) {
        let Some(request) = self.waiting.take_if(|request| request.number == number) else { return };
        match (&request.command, answer) {
            (Command::Open(_), Ok(reply)) => self.epoch = reply.field("epoch").and_then(|epoch| epoch.parse().ok()),
            (Command::Send(_), Ok(reply)) => self.newest = reply.number("seq"),
            (_, Ok(_)) if self.leaving => self.session = None,
            (_, Ok(_)) => {}
            // Opens again at once.
            (_, Err(Refusal::Stale(Stale::Unknown | Stale::Expired))) => self.session = None,
            // Its user was told, and may ask for it again later.
            (_, Err(_)) => (self.session, self.idle) = (None, chance.below(6)),
        }
    }
}
