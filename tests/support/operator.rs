//! Who says which user may be in the room. Its orders go through the same bad network as everyone's requests: some are
//! lost, some come twice, some too late.

use std::collections::BTreeMap;

use super::chance::Chance;
use super::client::grant_token_of;
use super::command::{Command, Grant};

pub const USERS: [&str; 2] = ["u1", "u2"];

pub struct Operator {
    /// Whether its orders carry versions, each its own.
    versioned: bool,
    /// What it ordered, by version.
    orders: BTreeMap<u64, Command>,
}

impl Operator {
    pub fn new(versioned: bool) -> Self {
        Self { versioned, orders: BTreeMap::new() }
    }

    /// Versions outlive everything else, and keep the room.
    pub fn is_versioned(&self) -> bool {
        self.versioned
    }

    pub fn act(&mut self, chance: &mut Chance, unix: u64) -> Command {
        let user = (*chance.pick(&USERS)).to_owned();
        match chance.below(6) {
            0 => self.order(|version| Command::Revoke { user, device: None, version }),
            1 => {
                let device = Some((*chance.pick(&["default", "phone"])).to_owned());
                self.order(|version| Command::Revoke { user, device, version })
            }
            _ => {
                let until = chance.one_in(3).then(|| unix + 1 + chance.below(60_000));
                let token = chance.one_in(4).then(|| grant_token_of(&user));
                let writes = chance.one_in(2);
                self.order(|version| Command::Grant(Grant { user, writes, until, token, version }))
            }
        }
    }

    pub fn grant(&mut self, user: &str, until: Option<u64>) -> Command {
        let user = user.to_owned();
        self.order(|version| Command::Grant(Grant { user, until, version, ..Grant::default() }))
    }

    /// The order that carried this version.
    pub fn ordered(&self, version: u64) -> &Command {
        &self.orders[&version]
    }

    fn order(&mut self, order: impl FnOnce(Option<u64>) -> Command) -> Command {
        let version = self.versioned.then_some(self.orders.len() as u64 + 1);
        let command = order(version);
        self.orders.extend(version.map(|version| (version, command.clone())));
        command
    }
}
