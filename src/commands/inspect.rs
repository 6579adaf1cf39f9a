//! LEASE.INSPECT: GET or ROSTER as JSON text, for people and tools (schema `lease/1`, see `docs/schema`).

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use chrono::{DateTime, SecondsFormat};
use serde::{Serialize, Serializer};

use super::args::{self, Options};
use super::roster;
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::refusal::Refusal;
use crate::core::room::{Env, Room};
use crate::core::view::{LeaseView, PageRequest};
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::rooms;
use crate::server::strings::Args;

pub const SPEC: CommandSpec = CommandSpec {
    name: "lease.inspect",
    summary: "Tells a room's leases, or one, as JSON text for people and tools",
    complexity: "O(N) with N being the leases of a page",
    since: "0.1.0",
    arity: -2,
    flags: "readonly",
    categories: "",
    key: KeyAccess::Read,
    args: &[
        Arg::ROOM,
        Arg::text("session").token("SESSION").optional(),
        Arg::text("user").token("USER").optional(),
        Arg::int("cursor").token("CURSOR").optional(),
        Arg::int("n").token("COUNT").optional(),
        Arg::flag("ended", "ENDED").optional(),
    ],
    entry: command_entry!(run),
};

const SCHEMA: &str = "lease/1";

fn run(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let mut session = None;
    let mut request = PageRequest { user: None, cursor: 0, count: roster::DEFAULT_COUNT, ended: false };
    let mut options = Options::after(args, 2, SPEC.args);
    while let Some(option) = options.next()? {
        match option {
            "SESSION" => session = Some(options.id()?),
            "USER" => request.user = Some(options.id()?),
            "CURSOR" => request.cursor = options.int()?,
            "ENDED" => request.ended = true,
            _ => request.count = options.count()? as usize,
        }
    }
    let (name, env) = (args.str(1), rooms::env());
    let mut key = Key::read(ctx, name);
    let value = rooms::find(ctx, &mut key, name, &env)?;
    let text = value.and_then(|value| inspect(&value.room, name.bytes(), session, &request, &env));
    ctx.reply().bulk_or_nil(text.as_deref().map(str::as_bytes));
    Ok(())
}

fn inspect(room: &Room, name: &[u8], session: Option<&[u8]>, request: &PageRequest, env: &Env) -> Option<String> {
    let text = |subject| {
        let now = Moment(env.now.unix);
        serde_json::to_string(&RoomJson {
            schema: SCHEMA,
            room: Bytes(name),
            gen: room.gen().to_string(),
            now,
            subject,
        })
    };
    let text = match session {
        Some(session) => text(Subject::Lease { lease: LeaseJson::of(&room.view(session, env)?) }),
        None => {
            let page = room.page(request, env);
            let leases = page.leases.iter().map(LeaseJson::of).collect();
            text(Subject::Page { cursor: page.cursor, event_n: room.event_n(), leases })
        }
    };
    text.ok()
}

#[derive(Serialize)]
struct RoomJson<'a> {
    schema: &'static str,
    room: Bytes<'a>,
    gen: String,
    now: Moment,
    #[serde(flatten)]
    subject: Subject<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Subject<'a> {
    Lease { lease: LeaseJson<'a> },
    Page { cursor: u64, event_n: u64, leases: Vec<LeaseJson<'a>> },
}

#[derive(Serialize)]
struct LeaseJson<'a> {
    session: Bytes<'a>,
    user: Bytes<'a>,
    device: Bytes<'a>,
    epoch: u64,
    seq: Option<u64>,
    state: &'static str,
    reason: Option<&'static str>,
    signal: Option<&'static str>,
    ttl_ms: u64,
    left_ms: u64,
    expires_at: Moment,
    opened_at: Moment,
    heartbeat_at: Moment,
    observed_at: Option<Moment>,
    ended_at: Option<Moment>,
    replaced_by: Option<u64>,
    meta: Option<Bytes<'a>>,
}

impl<'a> LeaseJson<'a> {
    fn of(view: &'a LeaseView) -> Self {
        Self {
            session: Bytes(view.session.as_bytes()),
            user: Bytes(view.user),
            device: Bytes(view.device),
            epoch: view.epoch,
            seq: view.seq,
            state: view.state,
            reason: view.reason.map(|reason| reason.word()),
            signal: view.signal.map(|signal| signal.word()),
            ttl_ms: view.ttl_ms,
            left_ms: view.left_ms,
            expires_at: Moment(view.expires_at),
            opened_at: Moment(view.opened_at),
            heartbeat_at: Moment(view.heartbeat_at),
            observed_at: view.observed_at.map(Moment),
            ended_at: view.ended_at.map(Moment),
            replaced_by: view.replaced_by,
            meta: view.meta.map(Bytes),
        }
    }
}

/// UTF-8 as a string, anything else as `{"base64": "…"}`.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Encoded {
            base64: String,
        }
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Encoded { base64: STANDARD.encode(self.0) }.serialize(serializer),
        }
    }
}

/// Unix ms as RFC 3339 in UTC; null for a moment its four-digit years cannot show.
struct Moment(u64);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = i64::try_from(self.0).ok().filter(|ms| *ms <= crate::server::clock::LAST_MS as i64);
        match shown.and_then(DateTime::from_timestamp_millis) {
            Some(moment) => serializer.serialize_str(&moment.to_rfc3339_opts(SecondsFormat::Millis, true)),
            None => serializer.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_moments_as_json() {
        assert_eq!(json(&Bytes("é\"".as_bytes())), r#""é\"""#);
        assert_eq!(json(&Bytes(&[0xff, 0xfe])), r#"{"base64":"//4="}"#);
        assert_eq!(json(&Moment(1_894_006_800_000)), r#""2030-01-07T09:00:00.000Z""#);
        assert_eq!(json(&Moment(i64::MAX as u64)), "null");
    }

    fn json(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap()
    }
}
