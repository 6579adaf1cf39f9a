//! Everything that touches the server: each call into its module API, each callback it makes, and all `unsafe` code
//! but the allocator's. The rest of the module sees safe types.

pub mod api;
pub mod barrier;
pub mod call;
pub mod clock;
pub mod deadlines;
pub mod defrag;
pub mod entries;
pub mod entry;
pub mod events;
pub mod gauges;
pub mod info;
pub mod keys;
pub mod keyspace;
pub mod latency;
pub mod load;
pub mod log;
pub mod message_log;
pub mod metrics;
pub mod reaper;
pub mod register;
pub mod reply;
pub mod retention;
pub mod role;
pub mod room_type;
pub mod rooms;
pub mod settings;
pub mod slots;
pub mod streams;
pub mod strings;
pub mod tally;
pub mod unit;
