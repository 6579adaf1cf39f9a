//! A reader as the contract wants it: it follows a log by REPLAY, and begins anew with a SNAPSHOT when it is told so.

use redis_lease::core::refusal::Refusal;
use std::collections::BTreeMap;

use super::chance::Chance;
use super::command::{field, Command, Fields, Open, Reply, Session};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub user: String,
    pub id: String,
    pub payload: String,
}

impl Message {
    /// The same user and message id.
    pub fn is_of(&self, other: &Self) -> bool {
        (&self.user, &self.id) == (&other.user, &other.id)
    }

    fn entry(entry: &Fields) -> (u64, Self) {
        let of = |name| field(entry, name).unwrap_or_default().to_owned();
        (of("n").parse().expect("a number"), Self { user: of("user"), id: of("id"), payload: of("payload") })
    }
}

/// What an answer was to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    Nothing,
    Resync,
    Snapshot,
    More,
}

pub struct Reader {
    pub user: String,
    pub session: Option<Session>,
    sessions: u64,
    pub gen: String,
    pub after: u64,
    /// Before the first message it has.
    base: u64,
    pub have: BTreeMap<u64, Message>,
    lost: bool,
}

impl Reader {
    /// At first it stands at the beginning of a history that never was.
    pub fn new(user: &str) -> Self {
        Self {
            user: user.to_owned(),
            session: None,
            sessions: 0,
            gen: "0-00000000".to_owned(),
            after: 0,
            base: 0,
            have: BTreeMap::new(),
            lost: false,
        }
    }

    pub fn next_command(&mut self, chance: &mut Chance) -> Command {
        let Some(by) = self.session.clone() else {
            self.sessions += 1;
            let session = Some(format!("{} {}", self.user, self.sessions));
            return Command::Open(Open {
                user: self.user.clone(),
                session,
                ttl_ms: Some(3_600_000),
                ..Open::default()
            });
        };
        if self.lost {
            return Command::Snapshot { by, count: 1 + chance.below(8) };
        }
        if chance.one_in(6) {
            return Command::Ack { by, seq: self.after };
        }
        Command::Replay { by, gen: self.gen.clone(), after: self.after, count: 1 + chance.below(4) }
    }

    pub fn hear(&mut self, command: &Command, answer: Result<&Reply, &Refusal>) -> Heard {
        match (command, answer) {
            (Command::Open(open), Ok(reply)) => {
                let session = open.session.clone().expect("its session");
                self.session = Some(Session { session, epoch: reply.number("epoch"), token: None });
                Heard::Nothing
            }
            (_, Err(Refusal::Stale(_))) => {
                self.session = None;
                Heard::Nothing
            }
            (Command::Replay { after, .. }, Ok(reply)) if reply.field("status") == Some("ok") => {
                self.gen = reply.field("gen").expect("a gen").to_owned();
                let read: Vec<_> = reply.entries().iter().map(Message::entry).collect();
                assert!(read.iter().map(|(seq, _)| *seq).eq(after + 1..=reply.number("next")), "{after}: {reply:?}");
                self.after = reply.number("next");
                self.have.extend(read);
                Heard::More
            }
            (Command::Replay { after, .. }, Ok(reply)) => {
                assert_eq!((reply.number("next"), reply.entries()), (*after, &[][..]), "a resync moves nobody");
                self.lost = true;
                Heard::Resync
            }
            (Command::Snapshot { .. }, Ok(reply)) => {
                self.lost = false;
                self.gen = reply.field("gen").expect("a gen").to_owned();
                self.after = reply.number("current");
                self.have = reply.entries().iter().map(Message::entry).collect();
                self.base = self.have.keys().next().map_or(self.after, |first| first - 1);
                Heard::Snapshot
            }
            _ => Heard::Nothing,
        }
    }

    /// What it has is what was accepted in the history it is in, from where it began to where it stands.
    pub fn inv_6_replay_is_contiguous(&self, accepted: impl Iterator<Item = (u64, Message)>) {
        let told = self.base + 1..=self.after;
        let accepted: BTreeMap<u64, Message> = accepted.filter(|(seq, _)| told.contains(seq)).collect();
        assert_eq!(self.have, accepted, "what {} was told", self.user);
    }
}
