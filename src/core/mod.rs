//! The lease rules, pure: no server, no clock, no randomness, no globals.
//!
//! Every write runs the same way: `Room::decide_*` looks at the room and at a [`time::Now`] it is handed and
//! returns a [`plan::Plan`] of past-tense [`effect::Effect`]s, or a [`refusal::Refusal`] that leaves no trace.
//! `Room::apply` turns effects into state; it sees no clock, no settings, no chance, and cannot fail, so the same
//! room and the same effect give the same room on every node.
#![forbid(unsafe_code)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub mod absence;
pub mod access;
pub mod claim;
pub mod codec;
pub mod cursor;
pub mod dedupe;
pub mod depart;
pub mod effect;
pub mod event;
pub mod grant;
pub mod heartbeat;
pub mod hold;
pub mod id;
pub mod index;
pub mod lease;
pub mod message;
pub mod open;
pub mod plan;
pub mod policy;
pub mod queue;
pub mod refusal;
pub mod replay;
pub mod retention;
pub mod room;
pub mod send;
pub mod slab;
pub mod snapshot;
pub mod time;
pub mod view;
pub mod wire;

mod apply;
mod expire;
mod log;
mod sparse;

mod token;
mod users;
