//! Long random histories: what callers, operators, time and disasters do to a room.

use proptest::prelude::*;
use redis_lease::core::cursor::Claim;
use redis_lease::core::policy::Setting;

use super::command::{Grant, Open, Renew};

pub const USERS: [&str; 3] = ["u1", "a", "a:b"];
pub const DEVICES: [Option<&str>; 3] = [None, Some("b:c"), Some("c")];
/// One kept as a UUID, one too long to be kept in place.
pub const SESSIONS: [&str; 6] =
    ["a", "b", "c", "d", "0f8fad5b-d9cb-469f-a165-70867728950e", "a session id of more than fifteen bytes"];
const METAS: [&str; 3] = ["", "A", "a meta that is a little longer"];
const STATES: [&str; 8] =
    ["new", "connecting", "checking", "connected", "completed", "disconnected", "failed", "closed"];
const TTLS: [u64; 6] = [0, 999, 1_000, 5_000, 30_000, 3_600_001];
const GRANT_TOKENS: [&str; 2] = ["pass", "word"];
/// Few, so that some are sent twice.
const MESSAGES: [&str; 5] = ["m1", "m2", "m3", "m4", "a message id of more than fifteen bytes"];
const PAYLOADS: [&str; 2] = ["hello", ""];
/// One is the name that the module gives a hold.
const HOLDS: [&str; 2] = ["audit", "orphan"];
const SPANS: [u64; 5] = [0, 1, 700, 5_000, 90_000];

#[derive(Clone, Debug)]
pub enum Step {
    Open {
        user: usize,
        device: usize,
        session: Option<usize>,
        until_in: Option<i64>,
        token: bool,
        grant_token: Presented,
        rest: Open,
    },
    Renew(Beat, Renew),
    MRenew(Vec<Beat>),
    Leave(Beat, u64),
    Kick {
        user: Option<usize>,
        device: Option<usize>,
    },
    Grant {
        user: usize,
        until_in: Option<i64>,
        rest: Grant,
    },
    Revoke {
        user: usize,
        device: Option<usize>,
        version: Option<u64>,
    },
    /// An id and a payload.
    Send(Beat, String, String),
    Post {
        user: usize,
        id: String,
        payload: String,
    },
    Replay {
        by: Beat,
        gen: Told,
        off: i64,
        count: u64,
    },
    Hold(String),
    Unhold(String),
    Trim,
    /// Seqs are told from the newest message.
    Mark {
        user: usize,
        device: usize,
        claim: Claim,
        off: i64,
    },
    Ack(Beat, i64),
    Reap(u64),
    Count,
    Policy(Setting, Option<i64>),
    Config(Setting, i64),
    Reaper,
    Pass(u64),
    /// To the nth of the moments at which time does something, or a ms off.
    PassTo(usize, i64),
    Wall(i64),
    Stream {
        writable: bool,
    },
    Log {
        writable: bool,
    },
    /// By hand: the log's key, the room's key.
    LoseLog,
    Delete,
    /// The replica is synchronised in full.
    Sync,
    Reload {
        down_ms: u64,
        wall: i64,
        grace_ms: Option<u64>,
    },
    Promote {
        grace_ms: Option<u64>,
    },
    Restore,
    Move {
        elsewhere: bool,
    },
}

/// Which history a reader was told.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    Now,
    /// The nth of all there were.
    Earlier(usize),
    Never,
    Any,
}

/// Which session is meant, and how right the caller is about it.
#[derive(Clone, Debug)]
pub struct Beat {
    /// One of the live ones, mostly.
    pub live: bool,
    pub session: usize,
    pub epoch_off: i64,
    pub seq_off: i64,
    pub token: Presented,
}

#[derive(Clone, Copy, Debug)]
pub enum Presented {
    Right,
    Wrong,
    None,
}

impl Presented {
    pub fn of(self, right: Option<String>) -> Option<String> {
        match self {
            Self::Right => right,
            Self::Wrong => Some("guess".to_owned()),
            Self::None => None,
        }
    }
}

fn pick<T: Clone + std::fmt::Debug + 'static>(from: impl Into<Vec<T>>) -> impl Strategy<Value = T> {
    prop::sample::select(from.into())
}

fn rarely<T: std::fmt::Debug + 'static>(value: impl Strategy<Value = T> + 'static) -> impl Strategy<Value = Option<T>> {
    prop::option::weighted(0.2, value)
}

fn meta() -> impl Strategy<Value = Option<String>> {
    rarely(pick(METAS).prop_map(str::to_owned))
}

fn presented() -> impl Strategy<Value = Presented> {
    prop_oneof![8 => Just(Presented::Right), 1 => Just(Presented::Wrong), 1 => Just(Presented::None)]
}

/// Just over, or some time ahead.
fn until_in() -> impl Strategy<Value = Option<i64>> {
    rarely(prop_oneof![-1..2i64, 500..40_000i64])
}

fn beat() -> impl Strategy<Value = Beat> {
    let off = |wrong: i64| prop_oneof![8 => Just(0), 1 => Just(wrong), 1 => Just(-wrong)];
    let seq_off = prop_oneof![6 => 1..3i64, 2 => Just(0), 1 => Just(-1), 1 => Just(i64::MAX)];
    (prop::bool::weighted(0.8), any::<usize>(), off(1), seq_off, presented())
        .prop_map(|(live, session, epoch_off, seq_off, token)| Beat { live, session, epoch_off, seq_off, token })
}

fn open() -> impl Strategy<Value = Step> {
    let rest = (rarely(pick(TTLS)), meta(), prop::bool::weighted(0.2));
    let session = prop::option::weighted(0.9, any::<usize>());
    let tokens = (prop::bool::weighted(0.2), presented());
    (0..USERS.len(), 0..DEVICES.len(), session, until_in(), tokens, rest).prop_map(
        |(user, device, session, until_in, (token, grant_token), (ttl_ms, meta, nx))| {
            let rest = Open { ttl_ms, meta, nx, ..Open::default() };
            Step::Open { user, device, session, until_in, token, grant_token, rest }
        },
    )
}

/// Few versions, so that some come twice and some too late.
fn version() -> impl Strategy<Value = Option<u64>> {
    prop::option::of(prop_oneof![12 => 0..8u64, 1 => Just(i64::MAX as u64)])
}

fn grant() -> impl Strategy<Value = Step> {
    let token = rarely(pick(GRANT_TOKENS).prop_map(str::to_owned));
    (0..USERS.len(), any::<bool>(), until_in(), token, version()).prop_map(
        |(user, writes, until_in, token, version)| Step::Grant {
            user,
            until_in,
            rest: Grant { writes, token, version, ..Grant::default() },
        },
    )
}

fn revoke() -> impl Strategy<Value = Step> {
    (0..USERS.len(), prop::option::of(0..DEVICES.len()), version()).prop_map(|(user, device, version)| Step::Revoke {
        user,
        device,
        version,
    })
}

fn message() -> impl Strategy<Value = (String, String)> {
    let payload = prop_oneof![9 => Just(PAYLOADS[0]), 1 => Just(PAYLOADS[1])];
    (pick(MESSAGES), payload).prop_map(|(id, payload)| (id.to_owned(), payload.to_owned()))
}

fn send() -> impl Strategy<Value = Step> {
    prop_oneof![
        (beat(), message()).prop_map(|(by, (id, payload))| Step::Send(by, id, payload)),
        (0..USERS.len(), message()).prop_map(|(user, (id, payload))| Step::Post { user, id, payload }),
    ]
}

fn replay() -> impl Strategy<Value = Step> {
    let told = prop_oneof![
        6 => Just(Told::Now),
        4 => any::<usize>().prop_map(Told::Earlier),
        1 => Just(Told::Never),
        2 => Just(Told::Any),
    ];
    (beat(), told, -6..2i64, 1..5u64).prop_map(|(by, gen, off, count)| Step::Replay { by, gen, off, count })
}

fn claim() -> impl Strategy<Value = Step> {
    let mark = (0..USERS.len(), 0..DEVICES.len(), pick([Claim::Queued, Claim::Written]), -3..2i64);
    prop_oneof![
        mark.prop_map(|(user, device, claim, off)| Step::Mark { user, device, claim, off }),
        (beat(), -3..2i64).prop_map(|(by, off)| Step::Ack(by, off)),
    ]
}

fn hold() -> impl Strategy<Value = Step> {
    (pick(HOLDS), prop::bool::weighted(0.3)).prop_map(|(name, hold)| {
        let name = name.to_owned();
        if hold {
            Step::Hold(name)
        } else {
            Step::Unhold(name)
        }
    })
}

/// What somebody does to keys.
fn by_hand() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => prop::bool::weighted(0.3).prop_map(|broken| Step::Stream { writable: !broken }),
        2 => prop::bool::weighted(0.3).prop_map(|broken| Step::Log { writable: !broken }),
        1 => Just(Step::LoseLog),
        1 => Just(Step::Delete),
        1 => Just(Step::Restore),
        3 => any::<bool>().prop_map(|elsewhere| Step::Move { elsewhere }),
    ]
}

fn renew() -> impl Strategy<Value = Step> {
    let state = prop::option::weighted(0.6, pick(STATES).prop_map(str::to_owned));
    (beat(), state, meta(), rarely(pick(TTLS)), rarely(0..i64::MAX as u64)).prop_map(
        |(beat, state, meta, ttl_ms, observed_at)| {
            Step::Renew(beat, Renew { state, meta, ttl_ms, observed_at, ..Renew::default() })
        },
    )
}

/// The settings a room may have, with values that matter.
fn policy() -> impl Strategy<Value = (Setting, i64)> {
    let span = |setting: Setting| pick(SPANS).prop_map(move |ms| (setting, ms as i64));
    prop_oneof![
        pick([1_000, 5_000]).prop_map(|ms| (Setting::TtlMs, ms)),
        span(Setting::DisconnectMs),
        span(Setting::FailedMs),
        span(Setting::TombstoneMs),
        (0..2i64).prop_map(|yes| (Setting::RequireToken, yes)),
        pick([0, 7, 1_000]).prop_map(|ms| (Setting::PrecisionMs, ms)),
        (0..4i64).prop_map(|most| (Setting::MaxLeases, most)),
        (0..2i64).prop_map(|yes| (Setting::LogRenewals, yes)),
        access(),
        retention(),
    ]
}

/// What is kept of messages, and how they are told.
fn retention() -> impl Strategy<Value = (Setting, i64)> {
    let span = |setting: Setting| pick(SPANS).prop_map(move |ms| (setting, ms as i64));
    prop_oneof![
        pick([0, 1, 2, 5]).prop_map(|count| (Setting::RetainCount, count)),
        span(Setting::RetainMs),
        span(Setting::DedupMs),
        (0..2i64).prop_map(|yes| (Setting::AnnounceMessages, yes)),
    ]
}

fn access() -> impl Strategy<Value = (Setting, i64)> {
    (0..2i64).prop_map(|granted| (Setting::DefaultAccess, granted))
}

fn config() -> impl Strategy<Value = (Setting, i64)> {
    let of_node = prop_oneof![
        pick([1, 1_000, 2_000]).prop_map(|ms| (Setting::TtlMinMs, ms)),
        pick([20_000, 3_600_000]).prop_map(|ms| (Setting::TtlMaxMs, ms)),
        pick([0, 1_000, 3_600_000]).prop_map(|ms| (Setting::EmptyRoomMs, ms)),
        pick([1, 1_000, 30_000]).prop_map(|ms| (Setting::CursorMs, ms)),
    ];
    prop_oneof![1 => of_node, 1 => policy()]
}

fn grace() -> impl Strategy<Value = Option<u64>> {
    prop::option::of(pick(SPANS))
}

fn step() -> impl Strategy<Value = Step> {
    let wall = || pick([-3_600_000, -10, 10, 3_600_000]);
    prop_oneof![
        30 => open(),
        25 => beat().prop_map(|beat| Step::Renew(beat, Renew::default())),
        20 => renew(),
        4 => prop::collection::vec(beat(), 1..4).prop_map(Step::MRenew),
        10 => (beat(), prop_oneof![Just(0), pick(SPANS)]).prop_map(|(beat, linger)| Step::Leave(beat, linger)),
        4 => (rarely(0..USERS.len()), rarely(0..DEVICES.len())).prop_map(|(user, device)| Step::Kick { user, device }),
        12 => grant(),
        5 => revoke(),
        3 => access().prop_map(|(setting, granted)| Step::Policy(setting, Some(granted))),
        5 => (1..4u64).prop_map(Step::Reap),
        10 => Just(Step::Reaper),
        5 => Just(Step::Count),
        8 => prop_oneof![0..3u64, 100..40_000u64].prop_map(Step::Pass),
        20 => (0..3usize, -1..2i64).prop_map(|(nth, off)| Step::PassTo(nth, off)),
        3 => wall().prop_map(Step::Wall),
        6 => (policy(), prop::bool::weighted(0.7)).prop_map(|((s, v), own)| Step::Policy(s, own.then_some(v))),
        3 => config().prop_map(|(setting, value)| Step::Config(setting, value)),
        30 => send(),
        10 => replay(),
        8 => claim(),
        4 => hold(),
        3 => Just(Step::Trim),
        4 => retention().prop_map(|(setting, value)| Step::Policy(setting, Some(value))),
        5 => by_hand(),
        3 => Just(Step::Sync),
        2 => (0..40_000u64, prop_oneof![Just(0), wall()], grace())
            .prop_map(|(down_ms, wall, grace_ms)| Step::Reload { down_ms, wall, grace_ms }),
        2 => grace().prop_map(|grace_ms| Step::Promote { grace_ms }),
    ]
}

/// Shown a step a line.
#[derive(Clone)]
pub struct History(pub Vec<Step>);

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        self.0.iter().try_for_each(|step| write!(f, "\n  {step:?}"))
    }
}

pub fn history() -> impl Strategy<Value = History> {
    prop::collection::vec(step(), 1..160).prop_map(History)
}
