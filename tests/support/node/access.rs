//! Grants and marks of the node.

use redis_lease::core::access::Level;
use redis_lease::core::grant::{GrantRequest, RevokeRequest};
use redis_lease::core::policy::Setting;
use redis_lease::core::refusal::Refusal;
use redis_lease::core::room::Env;

use super::super::command::{access_fields, Fields, Grant, Reply};
use super::Node;

/// Users of one page of GRANTS.
const PAGE: usize = 2;

impl Node {
    pub(super) fn grant(&mut self, grant: &Grant, env: &Env) -> Result<Reply, Refusal> {
        let request = GrantRequest {
            user: grant.user.as_bytes(),
            level: if grant.writes { Level::Write } else { Level::Read },
            until: grant.until,
            token: grant.token.as_ref().map(|token| token.as_bytes()),
            version: grant.version,
        };
        let fresh = self.room.is_none().then(|| self.fresh(env));
        let room = fresh.as_ref().or(self.room.as_ref()).expect("a room");
        match room.decide_grant(&request, env)? {
            Some(plan) => self.commit(plan, fresh).map(|()| Reply::words([&"ok"])),
            None => Ok(Reply::words([&"stale"])),
        }
    }

    pub(super) fn revoke(
        &mut self,
        user: &str,
        device: Option<&str>,
        version: Option<u64>,
        env: &Env,
    ) -> Result<Reply, Refusal> {
        let request = RevokeRequest { user: user.as_bytes(), device: device.map(str::as_bytes), version };
        let fresh = self.room.is_none().then(|| self.fresh(env));
        let room = fresh.as_ref().or(self.room.as_ref()).expect("a room");
        match room.decide_revoke(&request, env) {
            Some((plan, ended)) => self.commit(plan, fresh).map(|()| Reply::words([&"ok", &ended])),
            None => Ok(Reply::words([&"stale", &0])),
        }
    }

    /// Drops the grants whose time is over.
    pub(super) fn end_grants(&mut self, env: &Env) {
        while let Some(plan) = self.room.as_ref().and_then(|room| room.decide_grant_ends(PAGE, env)) {
            self.commit(plan, None).expect("needs no stream");
        }
    }

    /// Whether the room wants grants, or would if there was one.
    pub fn wants_grants(&self) -> bool {
        let of_room = self.room.as_ref().map(|room| room.policy(&self.settings).wants_grants());
        of_room.unwrap_or_else(|| self.settings.get(Setting::DefaultAccess) != 0)
    }

    /// Everything a caller sees of access, or what it sees of one user's.
    pub fn grants(&self, user: Option<&str>) -> Vec<Fields> {
        let env = Env { now: self.now, settings: &self.settings };
        let (mut shown, mut cursor) = (Vec::new(), 0);
        while let Some(room) = &self.room {
            let (next, records) = room.grants(user.map(str::as_bytes), cursor, PAGE, &env);
            shown.extend(records.into_iter().map(|record| access_fields(record, self.now)));
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        shown
    }
}
