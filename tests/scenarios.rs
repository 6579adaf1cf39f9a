//! The scenarios that the core decides alone, read from `scenarios/*.txt` and played on one node.
//!
//! ```text
//! == OWN-07 Only if vacant       begins a scenario: an empty node, clock at 0, default settings
//! OPEN u1 SESSION a              a command of the contract, less LEASE. and the room
//!     epoch 1, event_n 1         what its reply holds: fields of a map, or all words, or the head of an error;
//!                                without such lines it must not be refused
//! +30000                         time passes, then the reaper runs, as it does after each command
//! held +30000                    the same in a transaction: no reaper until `release`
//! EV                             all events so far, each with the fields that matter
//!     opened session a, epoch e1
//! ```
//!
//! `e1`, `e2` … are the epochs the OPENs returned, in order; a retry counts once. Further lines: `again` (an empty node
//! within a scenario), `clock MS`, `wall ±MS` (the wall clock is set), `config NAME VALUE`, `reaper`,
//! `restart AFTER-MS GRACE-MS [±MS]` (and the wall clock is set meanwhile), `promote GRACE-MS` (-1: each lease's own
//! ttl). `#` begins a comment.
//!
//! When a node is done with, what must hold after every scenario is checked.

mod support;

use std::collections::BTreeSet;

use redis_lease::core::policy::Setting;
use redis_lease::core::time::Now;

use support::command::{event_fields, field, head, Command, Fields, Open, Renew, Reply};
use support::digest;
use support::invariants::{inv_3_each_lease_is_removed_once, inv_5_a_replica_equals_its_primary};
use support::node::{load, Beginning, Node};

struct Stage<'a> {
    node: Node,
    replica: Node,
    held: bool,
    /// Sessions opened and their epochs, in order.
    opened: Vec<(String, u64)>,
    /// Where it is, for whoever reads a failure.
    place: &'a str,
}

impl<'a> Stage<'a> {
    fn new(place: &'a str) -> Self {
        let start = Now { mono: 0, unix: 0 };
        Self { node: Node::new(1, start), replica: Node::new(2, start), held: false, opened: Vec::new(), place }
    }

    fn line(&mut self, line: &str, expected: &[&str]) {
        let words: Vec<String> = line.split_whitespace().map(|word| self.with_epoch(word)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let expected: Vec<String> = expected.iter().map(|line| self.with_epochs(line)).collect();
        match words[..] {
            ["EV"] => return self.check_events(&expected),
            ["clock", ms] => self.set_clocks(Now { mono: number(ms), unix: number(ms) }),
            ["wall", step] => self.set_wall_clock(step),
            ["held", by] => {
                self.held = true;
                self.pass(by);
            }
            ["release"] => self.held = false,
            ["reaper"] => self.node.tick(),
            ["config", name, value] => {
                let (setting, value) = setting(name, value);
                self.node.settings.set(&[(setting, value.expect("a value"))]).expect("a setting that is allowed");
            }
            ["restart", after, grace] => self.restart(after, grace, "0"),
            ["restart", after, grace, step] => self.restart(after, grace, step),
            ["promote", grace] => self.begin(grace),
            [by] if by.starts_with('+') => self.pass(by),
            _ => return self.command(&words, &expected),
        }
        assert!(expected.is_empty(), "{}: nothing to expect", self.place);
        self.settle();
    }

    fn command(&mut self, words: &[&str], expected: &[String]) {
        let command = parse(words).unwrap_or_else(|| panic!("{}: {words:?} is no command", self.place));
        let reply = self.node.run(&command).map_err(|refusal| head(&refusal));
        if let (Command::Open(_), Ok(opened)) = (&command, &reply) {
            let session = opened.field("session").expect("its session").to_owned();
            if !self.opened.iter().any(|(of, _)| *of == session) {
                let epoch = opened.field("epoch").map_or(0, number);
                self.opened.push((session, epoch));
            }
        }
        self.check_reply(reply, expected);
        self.settle();
    }

    // ---------------------------------------------------------------- what is expected

    fn check_reply(&self, reply: Result<Reply, String>, expected: &[String]) {
        let all = expected.join(", ");
        match reply {
            Ok(_) if expected.is_empty() => {}
            Ok(Reply::Map(fields) | Reply::Log(fields, _)) => self.check_fields(&fields, &all),
            Ok(Reply::Maps(rows)) => {
                let sessions: BTreeSet<_> = rows.iter().filter_map(|row| field(row, "session")).collect();
                assert_eq!(sessions, all.split_whitespace().collect(), "{}", self.place);
            }
            Ok(Reply::Words(words)) => assert_eq!(words.join(" "), all, "{}", self.place),
            Ok(Reply::Nil) => assert_eq!("nil", all, "{}", self.place),
            Err(error) => assert_eq!(error, all, "{}", self.place),
        }
    }

    fn check_fields(&self, fields: &Fields, expected: &str) {
        for pair in expected.split(',') {
            let (name, value) = pair.trim().split_once(' ').unwrap_or_else(|| panic!("{}: {pair:?}", self.place));
            assert_eq!(field(fields, name), Some(value.trim()), "{}: {name} in {fields:?}", self.place);
        }
    }

    fn check_events(&self, expected: &[String]) {
        let events: Vec<Fields> = self.node.stream.iter().map(event_fields).collect();
        for (event, line) in events.iter().zip(expected) {
            self.check_fields(event, &format!("type {}", line.replacen(' ', ",", 1)));
        }
        assert_eq!(events.len(), expected.len(), "{}: {events:?}", self.place);
    }

    fn with_epochs(&self, line: &str) -> String {
        let with_epoch = |word| match word {
            // Fields are parted by commas.
            word if str::ends_with(word, ',') => self.with_epoch(&word[..word.len() - 1]) + ",",
            word => self.with_epoch(word),
        };
        line.split_whitespace().map(with_epoch).collect::<Vec<_>>().join(" ")
    }

    fn with_epoch(&self, word: &str) -> String {
        let nth = word.strip_prefix('e').and_then(|n| n.parse::<usize>().ok());
        match nth.and_then(|n| self.opened.get(n - 1)) {
            Some((_, epoch)) => epoch.to_string(),
            None => word.to_owned(),
        }
    }

    // ---------------------------------------------------------------- time and nodes

    fn pass(&mut self, by: &str) {
        let ms = number(by.trim_start_matches('+'));
        let Now { mono, unix } = self.node.now;
        self.set_clocks(Now { mono: mono + ms, unix: unix + ms });
    }

    fn set_clocks(&mut self, now: Now) {
        (self.node.now, self.replica.now) = (now, now);
    }

    /// What runs by itself after each line: the reaper, and the replication stream.
    fn settle(&mut self) {
        if !self.held {
            self.node.tick();
        }
        for sent in self.node.sent.drain(..) {
            self.replica.receive(sent);
        }
    }

    fn set_wall_clock(&mut self, step: &str) {
        let Now { mono, unix } = self.node.now;
        self.set_clocks(Now { mono, unix: unix.saturating_add_signed(step.parse().expect("ms")) });
    }

    fn restart(&mut self, after: &str, grace: &str, step: &str) {
        let parts = self.node.save().expect("a room to save");
        self.pass(after);
        self.set_wall_clock(step);
        self.node.room = Some(load(&parts, self.node.now).expect("a room that was saved"));
        self.begin(grace);
    }

    fn begin(&mut self, grace: &str) {
        self.node.begin(Beginning::Era { grace_ms: grace.parse().ok() });
    }

    /// What must hold after every scenario.
    fn finish(mut self) {
        self.held = false;
        self.settle();
        let events = self.node.stream.len();
        let reaped = self.node.run(&Command::Reap { count: u64::MAX });
        assert_eq!(reaped, Ok(Reply::words([&0])), "{}: not all was reaped", self.place);
        assert_eq!((events, 0), (self.node.stream.len(), self.node.sent.len()), "{}: reaping again wrote", self.place);
        inv_3_each_lease_is_removed_once(&self.node);
        inv_5_a_replica_equals_its_primary(&self.node, &self.replica);
        if let Some(parts) = self.node.save() {
            let loaded = load(&parts, self.node.now).expect("a room that was saved");
            assert_eq!(Some(digest::of(&loaded)), self.node.digest(), "{}: another room came back", self.place);
        }
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word:?} is no number"))
}

fn setting(name: &str, value: &str) -> (Setting, Option<i64>) {
    let setting = Setting::from_name(name.as_bytes()).unwrap_or_else(|| panic!("no setting {name:?}"));
    (setting, (value != "default").then(|| setting.parse(value.as_bytes()).expect("a value of that setting")))
}

// -------------------------------------------------------------------- commands

fn parse(words: &[&str]) -> Option<Command> {
    Some(match words {
        ["OPEN", user, options @ ..] => Command::Open(open(user, options)?),
        ["RENEW", session, epoch, seq, options @ ..] => Command::Renew(renew(session, epoch, seq, options)?),
        ["MRENEW", "TOKENS", items @ ..] => {
            Command::MRenew(items.chunks(4).map(|i| renew(i[0], i[1], i[2], &["TOKEN", i[3]])).collect::<Option<_>>()?)
        }
        ["MRENEW", items @ ..] => {
            Command::MRenew(items.chunks(3).map(|i| renew(i[0], i[1], i[2], &[])).collect::<Option<_>>()?)
        }
        ["LEAVE", session, epoch, options @ ..] => {
            let mut leave = (0, None);
            for option in options.chunks(2) {
                match option {
                    ["LINGER", ms] => leave.0 = number(ms),
                    ["TOKEN", token] => leave.1 = Some((*token).to_owned()),
                    _ => return None,
                }
            }
            Command::Leave { session: (*session).to_owned(), epoch: number(epoch), linger_ms: leave.0, token: leave.1 }
        }
        ["KICK", "USER", user] => Command::Kick { user: Some((*user).to_owned()), device: None },
        ["KICK", "DEVICE", device] => Command::Kick { user: None, device: Some((*device).to_owned()) },
        ["REAP"] => Command::Reap { count: 1000 },
        ["REAP", "COUNT", n] => Command::Reap { count: number(n) },
        ["SETPOLICY", pairs @ ..] => {
            Command::SetPolicy(pairs.chunks(2).map(|pair| setting(pair[0], pair[1])).collect())
        }
        ["GET", session] => Command::Get((*session).to_owned()),
        ["ROSTER"] => Command::Roster { user: None, ended: false },
        ["COUNT"] => Command::Count,
        _ => return None,
    })
}

fn open(user: &str, options: &[&str]) -> Option<Open> {
    let (mut open, mut rest) = (Open { user: user.to_owned(), ..Open::default() }, options);
    loop {
        rest = match rest {
            [] => return Some(open),
            ["NX", rest @ ..] => {
                open.nx = true;
                rest
            }
            [name, value, rest @ ..] => {
                let text = Some((*value).to_owned());
                match *name {
                    "DEVICE" => open.device = text,
                    "SESSION" => open.session = text,
                    "TTL" => open.ttl_ms = Some(number(value)),
                    "UNTIL" => open.until = Some(number(value)),
                    "TOKEN" => open.token = text,
                    "META" => open.meta = text,
                    _ => return None,
                }
                rest
            }
            [_] => return None,
        }
    }
}

fn renew(session: &str, epoch: &str, seq: &str, options: &[&str]) -> Option<Renew> {
    let mut renew = Renew { session: session.to_owned(), epoch: number(epoch), seq: number(seq), ..Renew::default() };
    for option in options.chunks(2) {
        let [name, value] = option else { return None };
        let text = Some((*value).to_owned());
        match *name {
            "STATE" => renew.state = text,
            "META" => renew.meta = text,
            "TTL" => renew.ttl_ms = Some(number(value)),
            "OBSERVED" => renew.observed_at = Some(number(value)),
            "TOKEN" => renew.token = text,
            _ => return None,
        }
    }
    Some(renew)
}

// -------------------------------------------------------------------- files

fn play(file: &str, text: &str) {
    let lines: Vec<(usize, &str)> = text.lines().enumerate().collect();
    let code = |line: &str| line.split('#').next().unwrap_or_default().trim_end().to_owned();
    let lines: Vec<(usize, String)> = lines.into_iter().map(|(at, line)| (at + 1, code(line))).collect();
    let lines: Vec<_> = lines.into_iter().filter(|(_, line)| !line.is_empty()).collect();
    let mut stage: Option<Stage> = None;
    let mut title = "";
    let mut rest = &lines[..];
    while let [(at, line), after @ ..] = rest {
        let indented = after.iter().take_while(|(_, line)| line.starts_with(' ')).count();
        let expected: Vec<&str> = after[..indented].iter().map(|(_, line)| line.trim()).collect();
        rest = &after[indented..];
        let place = format!("{file}:{at}: {line}");
        if let Some(named) = line.strip_prefix("== ") {
            title = named;
        }
        if line == "again" || line.starts_with("== ") {
            stage.take().into_iter().for_each(Stage::finish);
            stage = Some(Stage::new(title));
            continue;
        }
        let stage = stage.as_mut().unwrap_or_else(|| panic!("{place}: no scenario has begun"));
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stage.line(line, &expected)));
        told.unwrap_or_else(|failure| {
            eprintln!("{place}");
            std::panic::resume_unwind(failure)
        });
    }
    stage.expect("a scenario").finish();
}

#[test]
fn fix() {
    play("fix.txt", include_str!("scenarios/fix.txt"));
}

#[test]
fn own() {
    play("own.txt", include_str!("scenarios/own.txt"));
}

#[test]
fn beat() {
    play("beat.txt", include_str!("scenarios/beat.txt"));
}

#[test]
fn time() {
    play("time.txt", include_str!("scenarios/time.txt"));
}

#[test]
fn num() {
    play("num.txt", include_str!("scenarios/num.txt"));
}
