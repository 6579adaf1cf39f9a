//! Revoked between a heartbeat and whatever comes next (SEC-01, SEC-02): nothing gets in any more, through no delay,
//! reaper, restart or failover, until a GRANT of a later version.

mod support;

use proptest::prelude::*;
use redis_lease::core::policy::Setting;
use redis_lease::core::refusal::{Denied, Refusal, Stale};
use redis_lease::core::time::Now;

use support::cases;
use support::command::{Command, Grant, Open, Renew, Reply};
use support::invariants::{inv_2_a_revoked_user_has_no_active_lease, inv_3_each_lease_is_removed_once, Before};
use support::node::{load, Beginning, Node, Sent};

const START: Now = Now { mono: 1 << 40, unix: 1_894_006_800_000 };
const TTL_MS: u64 = 30_000;
const VERSION: u64 = 7;
/// Devices of the user, each with a session of its name.
const DEVICES: [&str; 2] = ["default", "phone"];

#[derive(Clone, Debug)]
enum Turn {
    Pass(u64),
    Reaper,
    /// The server starts again; the wall clock may have been set back meanwhile.
    Restart {
        wall: i64,
    },
    /// The replica takes over, which has got everything, some of it late.
    FailOver,
    /// A GRANT from before the revocation arrives.
    LateGrant(u64),
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        3 => (0..40_000u64).prop_map(Turn::Pass),
        1 => Just(Turn::Reaper),
        1 => prop_oneof![Just(0), Just(-3_600_000i64)].prop_map(|wall| Turn::Restart { wall }),
        1 => Just(Turn::FailOver),
        1 => (0..=VERSION).prop_map(Turn::LateGrant),
    ]
}

struct Scene {
    primary: Node,
    replica: Node,
    /// How much later the replica gets what the primary sends.
    lag_ms: u64,
    grace_ms: Option<u64>,
}

impl Scene {
    /// A user with a session on each device, all heard of by now.
    fn new(granted: bool, lag_ms: u64, grace_ms: Option<u64>) -> Self {
        let node = |id| {
            let mut node = Node::new(id, START);
            node.settings.put(Setting::DefaultAccess, granted.into());
            node
        };
        let mut scene = Self { primary: node(1), replica: node(2), lag_ms, grace_ms };
        scene.ok(&Command::Grant(Grant { user: "u".to_owned(), version: Some(1), ..Grant::default() }));
        DEVICES.iter().for_each(|device| drop(scene.ok(&open(device, Some(device)))));
        scene.pass(1_000);
        DEVICES.iter().for_each(|device| drop(scene.ok(&Command::Renew(renew(device, 1)))));
        scene
    }

    fn ok(&mut self, command: &Command) -> Reply {
        let reply = self.primary.run(command).unwrap_or_else(|refusal| panic!("{command:?}: {refusal}"));
        self.replicate();
        reply
    }

    fn replicate(&mut self) {
        self.replica.now = later(self.primary.now, self.lag_ms, 0);
        self.primary.sent.drain(..).for_each(|sent: Sent| self.replica.receive(sent));
    }

    fn pass(&mut self, ms: u64) {
        self.primary.now = later(self.primary.now, ms, 0);
    }

    fn take(&mut self, turn: &Turn) {
        match turn {
            Turn::Pass(ms) => self.pass(*ms),
            Turn::Reaper => self.primary.tick(),
            Turn::Restart { wall } => {
                let parts = self.primary.save().expect("a room");
                self.primary.now = later(self.primary.now, 0, *wall);
                self.primary.room = Some(load(&parts, self.primary.now).expect("a room that was saved"));
                self.begin();
            }
            Turn::FailOver => {
                self.pass(self.lag_ms);
                self.replica.now = self.primary.now;
                std::mem::swap(&mut self.primary, &mut self.replica);
                self.begin();
            }
            Turn::LateGrant(version) => {
                let before = Before::of(&self.primary);
                let grant = Grant { user: "u".to_owned(), version: Some(*version), ..Grant::default() };
                assert_eq!(self.primary.run(&Command::Grant(grant)), Ok(Reply::words([&"stale"])));
                before.assert_unchanged(&self.primary, "a late grant");
            }
        }
        self.replicate();
    }

    /// A new history, and a replica synchronised in full.
    fn begin(&mut self) {
        self.primary.begin(Beginning::Era { grace_ms: self.grace_ms });
        self.replica.now = self.primary.now;
        let parts = self.primary.save().expect("a room");
        self.replica.room = Some(load(&parts, self.replica.now).expect("a room that was saved"));
        self.replica.stream.clone_from(&self.primary.stream);
    }

    /// Every session command of a device, and every way in: refused, or an acknowledgement, without effect.
    fn assert_out(&mut self, device: &str) {
        for command in session_commands(device).into_iter().chain([open(device, None), open(device, Some("new"))]) {
            let before = Before::of(&self.primary);
            let reply = self.primary.run(&command);
            match (&command, &reply) {
                (Command::Leave { .. }, Ok(reply)) => assert_eq!(reply.status(), "gone"),
                (Command::Renew(renew), Ok(reply)) if renew.state.as_deref() == Some("closed") => {
                    assert_eq!(reply.status(), "gone");
                }
                (Command::MRenew(_), reply) => assert_eq!(*reply, Ok(Reply::words([&"denied", &"revoked"]))),
                _ => assert_eq!(reply, Err(Refusal::Denied(Denied::Revoked)), "{command:?}"),
            }
            before.assert_unchanged(&self.primary, "what a revoked user sent");
        }
    }
}

fn later(now: Now, ms: u64, wall: i64) -> Now {
    Now { mono: now.mono + ms, unix: (now.unix + ms).saturating_add_signed(wall) }
}

fn open(device: &str, session: Option<&str>) -> Command {
    Command::Open(Open {
        user: "u".to_owned(),
        device: Some(device.to_owned()),
        session: session.map(str::to_owned),
        ttl_ms: Some(TTL_MS),
        random: [7; 16],
        ..Open::default()
    })
}

fn renew(device: &str, seq: u64) -> Renew {
    Renew { session: device.to_owned(), epoch: 1, seq, ..Renew::default() }
}

fn session_commands(device: &str) -> Vec<Command> {
    let state = |word: &str| Command::Renew(Renew { state: Some(word.to_owned()), ..renew(device, 2) });
    let leave = |linger_ms| Command::Leave { session: device.to_owned(), epoch: 1, linger_ms, token: None };
    let states = ["new", "connected", "disconnected", "failed", "closed"].map(state);
    let plain = [
        Command::Renew(renew(device, 2)),
        // A used seq is not even a duplicate.
        Command::Renew(renew(device, 1)),
        // Nor does another epoch tell the session's fate.
        Command::Renew(Renew { epoch: 2, ..renew(device, 2) }),
        Command::Renew(Renew { meta: Some("still here".to_owned()), ttl_ms: Some(TTL_MS), ..renew(device, 2) }),
        Command::MRenew(vec![renew(device, 2)]),
        open(device, Some(device)),
        leave(0),
        leave(500),
    ];
    plain.into_iter().chain(states).collect()
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn inv_2_revoked_after_a_heartbeat_nothing_gets_in(
        granted in any::<bool>(),
        (lag_ms, grace_ms) in (0..3_000u64, prop::option::of(0..40_000u64)),
        // Before the revocation: some leases are overdue by then, and left to the reaper.
        wait_ms in prop_oneof![0..1_000u64, TTL_MS - 1_000..TTL_MS + 1_000],
        only in prop::option::of(0..DEVICES.len()),
        turns in prop::collection::vec(turn(), 0..8),
    ) {
        let mut scene = Scene::new(granted, lag_ms, grace_ms);
        scene.pass(wait_ms);
        let device = only.map(|i| DEVICES[i].to_owned());
        let ended = if wait_ms < TTL_MS { only.map_or(DEVICES.len(), |_| 1) } else { 0 };
        let revoke = Command::Revoke { user: "u".to_owned(), device, version: Some(VERSION) };
        prop_assert_eq!(scene.ok(&revoke), Reply::words([&"ok", &ended]));

        let out: Vec<&str> = only.map_or(DEVICES.into(), |i| vec![DEVICES[i]]);
        out.iter().for_each(|device| scene.assert_out(device));
        for turn in &turns {
            scene.take(turn);
            out.iter().for_each(|device| scene.assert_out(device));
            inv_2_a_revoked_user_has_no_active_lease(&scene.primary);
        }
        if let Some(i) = only {
            scene.ok(&open(DEVICES[1 - i], Some("on the other device")));
        }
        scene.ok(&Command::Grant(Grant { user: "u".to_owned(), version: Some(VERSION + 1), ..Grant::default() }));
        for device in out {
            let fate = scene.primary.run(&Command::Renew(renew(device, 2)));
            if ended > 0 {
                prop_assert_eq!(fate, Err(Refusal::Stale(Stale::Revoked)));
            }
            let back = scene.ok(&open(device, Some(&format!("{device} again"))));
            prop_assert!(back.field("epoch").and_then(|epoch| epoch.parse::<u64>().ok()) > Some(1));
        }
        inv_3_each_lease_is_removed_once(&scene.primary);
    }
}
