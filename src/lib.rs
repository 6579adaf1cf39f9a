//! A module for Redis and Valkey that keeps presence: leases with epochs, heartbeats with sequences, and exactly one
//! removal for each lease.
//!
//! `core` holds the rules and knows no server; `commands` the grammar and the replies; `server` every call into the
//! server. A write runs one way through them: parse, read the clock, decide, publish, apply, reply.

mod alloc;
mod commands;
pub mod core;
mod server;
