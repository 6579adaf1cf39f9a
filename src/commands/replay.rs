//! LEASE.REPLAY and LEASE.SNAPSHOT: what a reader has missed, and what it begins with.
//!
//! A gap is never silent: what is returned follows `after` without a hole, or the answer is a resync and says why.

use std::time::Instant;

use super::args::{self, Options};
use super::get;
use super::roster;
use super::spec::{Arg, CommandSpec, KeyAccess};
use crate::core::policy::integer;
use crate::core::refusal::Refusal;
use crate::core::replay::{Edges, Position, Resync};
use crate::core::view::PageRequest;
use crate::server::api::Ctx;
use crate::server::entry::command_entry;
use crate::server::keys::Key;
use crate::server::message_log::{Log, Messages};
use crate::server::reply::Reply;
use crate::server::strings::Args;
use crate::server::{metrics, rooms, streams};

pub const REPLAY: CommandSpec = CommandSpec {
    name: "lease.replay",
    summary: "Returns the messages after a position, or says that some are gone",
    complexity: "O(N) with N being the messages returned",
    since: "0.1.0",
    arity: -6,
    flags: "readonly",
    categories: "",
    key: KeyAccess::Read,
    args: &[
        Arg::ROOM,
        Arg::text("session"),
        Arg::int("epoch"),
        Arg::text("gen"),
        Arg::int("after"),
        Arg::int("n").token("COUNT").optional(),
        Arg::text("token").token("TOKEN").optional(),
    ],
    entry: command_entry!(replay),
};

pub const SNAPSHOT: CommandSpec = CommandSpec {
    name: "lease.snapshot",
    summary: "Returns who is there and the newest messages, as of one instant",
    complexity: "O(N) with N being the leases and messages returned",
    since: "0.1.0",
    arity: -4,
    flags: "readonly",
    categories: "",
    key: KeyAccess::Read,
    args: &[
        Arg::ROOM,
        Arg::text("session"),
        Arg::int("epoch"),
        Arg::int("n").token("COUNT").optional(),
        Arg::text("token").token("TOKEN").optional(),
    ],
    entry: command_entry!(snapshot),
};

/// Messages that REPLAY returns unless COUNT says otherwise.
const REPLAYED: u64 = 100;
/// The same of SNAPSHOT.
const SHOWN: u64 = 50;

/// Who reads, and how many messages at most.
struct Reader<'a> {
    session: &'a [u8],
    epoch: u64,
    token: Option<&'a [u8]>,
    count: u64,
}

impl<'a> Reader<'a> {
    fn new(args: Args<'a>, count: u64) -> Result<Self, Refusal> {
        Ok(Self { session: args::id(args.get(2))?, epoch: args::int(args.get(3))?, token: None, count })
    }

    fn read_options(&mut self, mut options: Options<'a, Args<'a>>) -> Result<(), Refusal> {
        while let Some(option) = options.next()? {
            match option {
                "COUNT" => self.count = options.count()?,
                _ => self.token = Some(options.value()?),
            }
        }
        Ok(())
    }
}

fn replay(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    let started = Instant::now();
    args::room(args.get(1), ctx.in_cluster())?;
    let mut reader = Reader::new(args, REPLAYED)?;
    let position = Position { gen: args.get(4), after: args::int(args.get(5))? };
    reader.read_options(Options::after(args, 6, REPLAY.args))?;
    let (name, env) = (args.str(1), rooms::env());
    let (placed, gen, current) = {
        let mut key = Key::read(ctx, name);
        let value = rooms::find(ctx, &mut key, name, &env)?.ok_or(Refusal::UNKNOWN_SESSION)?;
        value.room.check_reader(reader.session, reader.epoch, reader.token, &env)?;
        (value.room.place(&position), value.room.gen().text(), value.room.log_seq())
    };
    let mut log = Log::open(ctx, name.bytes(), current)?;
    let edges = log.edges(current);
    let last = position.after.saturating_add(reader.count).min(current);
    let resync = placed.and_then(|()| whole(&mut log, &edges, position.after, last, current)).err();
    let reply = ctx.reply();
    reply.map(7);
    reply.field("status").bulk(if resync.is_some() { b"resync" } else { b"ok" });
    reply.field("reason").bulk_or_nil(resync.map(|resync| resync.word().as_bytes()));
    reply.field("gen").bulk(gen.as_bytes());
    reply.field("oldest").int(edges.oldest);
    reply.field("current").int(current);
    reply.field("next").int(if resync.is_some() { position.after } else { last });
    let returned = if resync.is_some() { 0 } else { last.saturating_sub(position.after) };
    reply.field("entries").array(returned as usize);
    if returned > 0 {
        tell(reply, &mut log.messages(position.after + 1, last));
    }
    metrics::replayed(resync, started.elapsed());
    Ok(())
}

/// Whether the log holds everything after `after`, as far as needs to be seen.
fn whole(log: &mut Log, edges: &Edges, after: u64, last: u64, current: u64) -> Result<(), Resync> {
    if after == current {
        return Ok(());
    }
    let seen = edges.look_up_to(after, last, current, log.len(), args::MAX_COUNT)?;
    let mut messages = log.messages(after + 1, seen);
    let follow = (after + 1..=seen).all(|seq| messages.next().is_some_and(|entry| entry.ms == seq));
    follow.then_some(()).ok_or(Resync::Trimmed)
}

/// Replies all of these messages, each as `[seq, map]`.
fn tell(reply: Reply, messages: &mut Messages) {
    while let Some(entry) = messages.next() {
        reply.array(2);
        reply.int(entry.ms);
        reply.map(entry.fields);
        while let Some((field, value)) = messages.field() {
            let (field, value) = (field.lend().bytes(), value.lend().bytes());
            reply.bulk(field);
            match integer(value).filter(|_| field == b"epoch" || field == b"at") {
                Some(number) => reply.int(number),
                None => reply.bulk(value),
            }
        }
    }
}

fn snapshot(ctx: Ctx, args: Args<'_>) -> Result<(), Refusal> {
    args::room(args.get(1), ctx.in_cluster())?;
    let mut reader = Reader::new(args, SHOWN)?;
    reader.read_options(Options::after(args, 4, SNAPSHOT.args))?;
    let (name, env) = (args.str(1), rooms::env());
    let position = streams::shared_position(ctx, name, env.settings.events_scope())?;
    let current = {
        let mut key = Key::read(ctx, name);
        let room = &rooms::find(ctx, &mut key, name, &env)?.ok_or(Refusal::UNKNOWN_SESSION)?.room;
        room.check_reader(reader.session, reader.epoch, reader.token, &env)?;
        room.log_seq()
    };
    let mut log = Log::open(ctx, name.bytes(), current)?;
    let edges = log.edges(current);
    let (first, shown) = newest(&mut log, current, reader.count);
    let mut key = Key::read(ctx, name);
    let room = &rooms::find(ctx, &mut key, name, &env)?.ok_or(Refusal::UNKNOWN_SESSION)?.room;
    let first_page = PageRequest { user: None, cursor: 0, count: roster::DEFAULT_COUNT, ended: false };
    let page = room.page(&first_page, &env);
    let reply = ctx.reply();
    reply.map(if position.is_some() { 9 } else { 8 });
    reply.field("gen").bulk(room.gen().text().as_bytes());
    reply.field("oldest").int(edges.oldest);
    reply.field("current").int(current);
    reply.field("event_n").int(room.event_n());
    if let Some(position) = position {
        reply.field("event_id").bulk(&position);
    }
    reply.field("now").int(env.now.unix);
    reply.field("cursor").int(page.cursor);
    reply.field("leases").array(page.leases.len());
    for lease in &page.leases {
        get::lease(reply, lease);
    }
    reply.field("entries").array(shown);
    if shown > 0 {
        tell(reply, &mut log.messages(first, current));
    }
    Ok(())
}

/// The first of the newest `count` messages, and how many those are.
fn newest(log: &mut Log, current: u64, count: u64) -> (u64, usize) {
    let mut messages = log.newest_first(current);
    let (mut first, mut found) = (0, 0);
    while (found as u64) < count {
        let Some(entry) = messages.next() else { break };
        (first, found) = (entry.ms, found + 1);
    }
    (first, found)
}
