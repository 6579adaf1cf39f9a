//! The load of benchmarks and load tests: one kind of command over many leases, at a steady rate or as fast as the
//! server takes it; or probes, which see what others have to wait meanwhile. `python_tests/harness/generator.py` builds
//! it with rustc alone and reads the line of JSON it prints.
//!
//! ```text
//! load KIND PORT leases=N rooms=N connections=N pipeline=N [first=N] [ttl-ms=N | due-in-ms=N due-per-s=N] [sha=SHA]
//!      [per-s=N]             without: as fast as it goes
//!      [seconds=S lap=N]     without seconds: each command once
//!      KIND: set, renew, mrenew, open, reopen, supersede, grant, send, xadd, replay, xrange,
//!            lua-renew, lua-open, lua-grant, lua-send
//! load probe WHAT:PORT… per-s=N [seconds=S]     without seconds: until its input ends
//!      WHAT: ping, renew, send; the last two by session `probe` of room `watched`, which is there
//! ```
//!
//! 1. Lease i is in room i modulo rooms. All of a room goes over one connection, so that its seqs arrive in order.
//! 2. The seq is the number of the lap over all leases, and names the lap's messages. It has four digits, and every id
//!    its fixed width: so commands are made before the clock starts, and sending is no more than writing a slice.
//! 3. Every line of every reply is checked. A refusal or a duplicate ends the run.
//! 4. Pages of messages have so many lines that reading them would be the limit. Each connection asks for the same page
//!    again and again: only the first is checked, the others must equal it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{stdin, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::exit;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Stand in a command for what is filled in when it is sent: the lap, and the ttl after which a lease is due.
const SEQ: &str = "@@@@";
const TTL: &str = "&&&&";
/// The message after which pages begin.
const PAGE_AFTER: u64 = 500;

// What the lines of a reply begin with; `_` is any line.
const SET: &str = "+OK";
const RENEWED: &str = "*3 $7 renewed : :";
const ITEM_RENEWED: &str = "*2 $7 renewed :";
const FIRST_EPOCH: &str = ":1";
const GRANTED: &str = "$2 ok";
const NEW_FIELD: &str = ":1";
const STREAM_ID: &str = "$ _";
const SENT: &str = "*8 $6 status $8 accepted $3 seq : $3 gen $ _ $2 at :";
const LUA_SENT: &str = "*3 $8 accepted : :";
const PONG: &str = "+PONG";
const REPLAYED: &str = "*14 $6 status $2 ok $6 reason $-1 $3 gen $ _ $6 oldest : $7 current : $4 next : $7 entries \
                        *100";
const REPLAYED_MESSAGE: &str = "*2 : *16 $2 id $ message- $4 user $ user- $6 device $7 default $7 session $36 _ \
                                $5 epoch :1 $2 at : $3 gen $ _ $7 payload $100 _";
const LOG_ENTRY: &str = "*2 $ _ *16 $2 id $ message- $4 user $ user- $6 device $7 default $7 session $36 _ \
                         $5 epoch $1 1 $2 at $ _ $3 gen $ _ $7 payload $100 _";
const OPENED: &str = "*28 $7 session $36 _ $5 epoch :1 $11 user_leases :1 $6 ttl_ms : $12 heartbeat_ms : $7 left_ms : \
                      $10 expires_at : $3 now : $8 replaced $-1 $3 gen $ _ $7 log_seq : $10 log_oldest : \
                      $7 event_n : $5 acked _";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (pairs, words): (Vec<&str>, Vec<&str>) = args.iter().map(String::as_str).partition(|arg| arg.contains('='));
    let options = Options(pairs.iter().filter_map(|pair| pair.split_once('=')).collect());
    match words[..] {
        ["probe", ref targets @ ..] => probe(targets, &options),
        [kind, port] => run(&Load::new(kind, &options), port, &options),
        _ => fail("its arguments are told at the head of load.rs"),
    }
}

fn fail(reason: &str) -> ! {
    eprintln!("load: {reason}");
    exit(1)
}

struct Options<'a>(HashMap<&'a str, &'a str>);

impl Options<'_> {
    fn find<T: FromStr>(&self, name: &str) -> Option<T> {
        self.0.get(name).map(|text| text.parse().unwrap_or_else(|_| fail(&format!("{name}={text}"))))
    }

    fn get<T: FromStr>(&self, name: &str) -> T {
        self.find(name).unwrap_or_else(|| fail(&format!("{name}= is missing")))
    }
}

// -------------------------------------------------------------------- commands

/// What is sent, and what is expected back.
struct Load<'a> {
    kind: &'a str,
    first: u64,
    leases: u64,
    rooms: u64,
    ttl: String,
    sha: String,
    payload: String,
    reply: Vec<String>,
}

impl<'a> Load<'a> {
    fn new(kind: &'a str, options: &Options) -> Self {
        let (leases, rooms) = (options.get("leases"), options.get("rooms"));
        let reply = match kind {
            "set" => SET.to_owned(),
            "open" => OPENED.to_owned(),
            // The holder of `open` comes back: its old session has ended, or ends now.
            "reopen" => OPENED.replace("epoch :1", "epoch :2"),
            "supersede" => OPENED.replace("epoch :1", "epoch :2").replace("$-1", "$36 _"),
            "lua-open" => FIRST_EPOCH.to_owned(),
            "mrenew" => (0..leases / rooms).fold(format!("*{}", leases / rooms), |all, _| all + " " + ITEM_RENEWED),
            "grant" => GRANTED.to_owned(),
            "lua-grant" => NEW_FIELD.to_owned(),
            "send" => SENT.to_owned(),
            "lua-send" => LUA_SENT.to_owned(),
            "xadd" => STREAM_ID.to_owned(),
            "replay" => (0..100).fold(REPLAYED.to_owned(), |all, _| all + " " + REPLAYED_MESSAGE),
            "xrange" => (0..100).fold("*100".to_owned(), |all, _| all + " " + LOG_ENTRY),
            _ => RENEWED.to_owned(),
        };
        Self {
            kind,
            first: options.find("first").unwrap_or(0),
            leases,
            rooms,
            ttl: options.find("ttl-ms").unwrap_or_else(|| TTL.to_owned()),
            sha: options.find("sha").unwrap_or_default(),
            payload: "p".repeat(100),
            reply: lines(&reply),
        }
    }

    /// The command that a lease stands for; one of `mrenew` stands for all leases of its room.
    fn command(&self, lease: u64) -> String {
        let Self { ttl, sha, payload, .. } = self;
        let (room, user, session) =
            (format!("room-{:06}", lease % self.rooms), format!("user-{lease:011}"), session(lease));
        match self.kind {
            "set" => format!("SET {room}:{user} {session} PX 30000"),
            "renew" => format!("LEASE.RENEW {room} {session} 1 {SEQ}"),
            "mrenew" => {
                let all = (lease..self.leases).step_by(self.rooms as usize).map(self::session);
                all.fold(format!("LEASE.MRENEW {room}"), |items, session| format!("{items} {session} 1 {SEQ}"))
            }
            "open" => format!("LEASE.OPEN {room} {user} SESSION {session} TTL {ttl}"),
            "reopen" | "supersede" => {
                format!("LEASE.OPEN {room} {user} SESSION {} TTL {ttl}", self::session(!lease))
            }
            "grant" => format!("LEASE.GRANT {room} {user} WRITE"),
            "send" => format!("LEASE.SEND {room} {session} 1 message-{SEQ} {payload}"),
            "xadd" => format!(
                "XADD {{{room}}}:log * id message-{SEQ} user {user} device default session {session} epoch 1 at 1894006800000 \
                 gen 1894006800000-12345678 payload {payload}"
            ),
            "replay" => format!("LEASE.REPLAY {room} {session} 1 * {PAGE_AFTER}"),
            "xrange" => format!("XRANGE {{{room}}}:log ({PAGE_AFTER} + COUNT 100"),
            "lua-renew" => format!("EVALSHA {sha} 2 due {{{room}}}:sessions renew {room} {session} 1 {SEQ}"),
            "lua-open" => {
                let keys = format!("due {{{room}}}:sessions {{{room}}}:holders");
                format!("EVALSHA {sha} 3 {keys} open {room} {session} {user} {ttl}")
            }
            "lua-grant" => format!("HSET {{{room}}}:grants {user} WRITE"),
            "lua-send" => {
                let keys = ["sessions", "grants", "sent", "seq", "lua-log"].map(|key| format!("{{{room}}}:{key}")).join(" ");
                format!("EVALSHA {sha} 6 due {keys} send {room} {session} 1 message-{SEQ} {payload}")
            }
            kind => fail(&format!("{kind} is no kind of load")),
        }
    }

    /// Whether replies are pages of messages.
    fn pages(&self) -> bool {
        matches!(self.kind, "replay" | "xrange")
    }

    /// The leases that stand for commands, those of each connection apart, in no order.
    fn shares(&self, connections: u64) -> Vec<Vec<u64>> {
        let count = if self.kind == "mrenew" { self.rooms } else { self.leases };
        let mut order: Vec<u64> = (self.first..count).collect();
        order.sort_by_key(|lease| scramble(*lease));
        let of =
            |connection| order.iter().copied().filter(|lease| lease % self.rooms % connections == connection).collect();
        (0..connections).map(of).collect()
    }
}

/// A version 4 UUID that follows from the lease's number, as the server's follow from chance.
fn session(lease: u64) -> String {
    let (high, low) = (scramble(lease), scramble(!lease));
    let (time, middle, random) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
    format!("{time:08x}-{middle:04x}-4{random:03x}-{:04x}-{:012x}", low >> 48 & 0x3fff | 0x8000, low & 0xffff_ffff_ffff)
}

/// The mixing function of splitmix64.
fn scramble(seed: u64) -> u64 {
    let z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// As the protocol spells it.
fn encode(command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    words.iter().fold(format!("*{}\r\n", words.len()), |mut all, word| {
        let _ = write!(all, "${}\r\n{word}\r\n", word.len());
        all
    })
}

// -------------------------------------------------------------------- sending

/// One connection and its share of the commands.
struct Lane {
    replies: BufReader<TcpStream>,
    line: Vec<u8>,
    /// The first page, with which all others are compared.
    page: Vec<u8>,
    leases: Vec<u64>,
    commands: Vec<u8>,
    /// Where seqs and a ttl stand in each command.
    seqs: Vec<usize>,
    ttl: Option<usize>,
    /// The command to send next, and how many before it have not been answered.
    next: usize,
    unanswered: usize,
    lap: u64,
}

impl Lane {
    fn new(load: &Load, leases: Vec<u64>, port: &str, lap: u64) -> Self {
        let commands: String = leases.iter().map(|lease| encode(&load.command(*lease))).collect();
        let (size, one) = (commands.len() / leases.len(), encode(&load.command(leases[0])));
        assert_eq!(size, one.len(), "commands differ in length");
        Self {
            replies: BufReader::with_capacity(1 << 17, connect(port)),
            line: Vec::new(),
            page: Vec::new(),
            seqs: one.match_indices(SEQ).map(|(at, _)| at).collect(),
            ttl: one.find(TTL),
            commands: commands.into_bytes(),
            leases,
            next: 0,
            unanswered: 0,
            lap,
        }
    }

    /// Sends the next `most` commands, or what is left of the lap.
    fn send(&mut self, most: usize, ttl_of: impl Fn(u64) -> u64) {
        let (size, count) = (self.commands.len() / self.leases.len(), most.min(self.leases.len() - self.next));
        let batch = &mut self.commands[self.next * size..(self.next + count) * size];
        for (command, lease) in batch.chunks_mut(size).zip(&self.leases[self.next..]) {
            self.seqs.iter().for_each(|at| fill(&mut command[*at..][..SEQ.len()], self.lap));
            self.ttl.iter().for_each(|at| fill(&mut command[*at..][..TTL.len()], ttl_of(*lease)));
        }
        self.replies.get_ref().write_all(batch).unwrap_or_else(|error| fail(&error.to_string()));
        self.unanswered = count;
        self.next = (self.next + count) % self.leases.len();
        self.lap += u64::from(self.next == 0);
    }

    /// Reads and checks all replies that are due.
    fn receive(&mut self, load: &Load) -> usize {
        for _ in 0..self.unanswered {
            if self.page.is_empty() {
                self.receive_lines(load);
            } else {
                self.line.resize(self.page.len(), 0);
                if self.replies.read_exact(&mut self.line).is_err() || self.line != self.page {
                    fail("a page is not the same as the first");
                }
            }
        }
        std::mem::take(&mut self.unanswered)
    }

    fn receive_lines(&mut self, load: &Load) {
        for expected in &load.reply {
            read_line(&mut self.replies, &mut self.line, expected);
            if load.pages() {
                self.page.extend(&self.line);
            }
        }
    }
}

/// The lines that a reply has to begin with.
fn lines(reply: &str) -> Vec<String> {
    reply.split(' ').map(|line| line.trim_start_matches('_').to_owned()).collect()
}

fn read_line(replies: &mut impl BufRead, line: &mut Vec<u8>, expected: &str) {
    line.clear();
    let read = replies.read_until(b'\n', line);
    if !matches!(read, Ok(1..)) || !line.starts_with(expected.as_bytes()) {
        fail(&format!("{} instead of {expected}", line.escape_ascii()));
    }
}

/// Decimal digits of a number that has as many as there is place.
fn fill(place: &mut [u8], number: u64) {
    let rest = place.iter_mut().rev().fold(number, |rest, digit| {
        *digit = b'0' + (rest % 10) as u8;
        rest / 10
    });
    assert!(rest == 0 && place[0] != b'0', "{number} does not have {} digits", place.len());
}

fn connect(port: &str) -> TcpStream {
    let socket = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap_or_else(|error| fail(&error.to_string()));
    socket.set_nodelay(true).unwrap_or_else(|error| fail(&error.to_string()));
    socket
}

/// Keeps `pipeline` commands under way on each connection, for so long or once through.
fn run(load: &Load, port: &str, options: &Options) {
    let (pipeline, lap) = (options.get("pipeline"), options.find("lap").unwrap_or(0));
    let shares = load.shares(options.get("connections"));
    let mut lanes: Vec<Lane> = shares.into_iter().map(|leases| Lane::new(load, leases, port, lap)).collect();
    let (due_in_ms, due_per_s) = (options.find("due-in-ms").unwrap_or(0), options.find("due-per-s").unwrap_or(1));
    let limit = options.find("seconds").map(Duration::from_secs_f64);
    let per_s: Option<u32> = options.find("per-s");
    let start = Instant::now();
    let ttl_of = |lease: u64| due_in_ms + (lease - load.first) * 1000 / due_per_s - start.elapsed().as_millis() as u64;
    let goes_on = |lane: &Lane| limit.map_or(lane.lap == lap, |limit| start.elapsed() < limit);
    let mut sent = 0;
    let mut send = |lane: &mut Lane| {
        per_s.iter().for_each(|per_s| sleep_until(start + Duration::from_secs(sent) / *per_s));
        lane.send(pipeline, ttl_of);
        sent += lane.unanswered as u64;
    };
    lanes.iter_mut().for_each(&mut send);
    let mut commands = 0;
    while lanes.iter().any(|lane| lane.unanswered > 0) {
        for lane in &mut lanes {
            commands += lane.receive(load);
            if goes_on(lane) {
                send(lane);
            }
        }
    }
    let (seconds, next_lap) = (start.elapsed().as_secs_f64(), lanes.iter().map(|lane| lane.lap + 1).max());
    println!(r#"{{"commands": {commands}, "seconds": {seconds}, "next_lap": {}}}"#, next_lap.unwrap_or(lap));
}

fn sleep_until(due: Instant) {
    thread::sleep(due.saturating_duration_since(Instant::now()));
}

// -------------------------------------------------------------------- probes

/// Probes all targets at once, so that they see the same neighbours on the machine.
fn probe(targets: &[&str], options: &Options) {
    let per_s = options.get("per-s");
    let is_over = AtomicBool::new(false);
    let lines: Vec<String> = thread::scope(|scope| {
        let probes: Vec<_> = targets.iter().map(|target| scope.spawn(|| probe_one(target, per_s, &is_over))).collect();
        match options.find("seconds") {
            Some(seconds) => thread::sleep(Duration::from_secs_f64(seconds)),
            None => drop(stdin().read_to_end(&mut Vec::new())),
        }
        is_over.store(true, Ordering::Relaxed);
        probes.into_iter().map(|probe| probe.join().unwrap_or_else(|_| fail("a probe has failed"))).collect()
    });
    println!("[{}]", lines.join(", "));
}

/// How long each command took. One that had to wait for the reply before it is counted from when it was due: a server
/// that stands still must not hide what it kept waiting. And how late the machine woke those that had not to wait.
fn probe_one(target: &str, per_s: u32, is_over: &AtomicBool) -> String {
    let (what, port) = target.split_once(':').unwrap_or_else(|| fail(target));
    let reply = lines(match what {
        "ping" => PONG,
        "renew" => RENEWED,
        "send" => SENT,
        _ => fail(target),
    });
    let mut replies = BufReader::new(connect(port));
    let (mut line, mut waits, mut wakes) = (Vec::new(), Vec::new(), Vec::new());
    let mut due = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        due += Duration::from_secs(1) / per_s;
        let mut begin = due;
        if due > Instant::now() {
            sleep_until(due);
            begin = Instant::now();
            wakes.push(begin - due);
        }
        // A later probe of the same session goes on with greater numbers.
        let number = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        let command = match what {
            "renew" => format!("LEASE.RENEW watched probe 1 {number}"),
            "send" => format!("LEASE.SEND watched probe 1 {number} hello"),
            _ => "PING".to_owned(),
        };
        replies.get_ref().write_all(encode(&command).as_bytes()).unwrap_or_else(|error| fail(&error.to_string()));
        reply.iter().for_each(|expected| read_line(&mut replies, &mut line, expected));
        waits.push(begin.elapsed());
    }
    let (count, [p50, p99, max], [_, woken, _]) = (waits.len(), microseconds(waits), microseconds(wakes));
    format!(r#"{{"p50_us": {p50}, "p99_us": {p99}, "max_us": {max}, "count": {count}, "woken_p99_us": {woken}}}"#)
}

/// p50, p99 and the longest.
fn microseconds(mut spans: Vec<Duration>) -> [u128; 3] {
    spans.sort_unstable();
    let at =
        |share: f64| spans.get((spans.len().saturating_sub(1) as f64 * share) as usize).map_or(0, Duration::as_micros);
    [at(0.5), at(0.99), at(1.0)]
}
