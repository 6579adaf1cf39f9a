//! What the fuzz targets share: words drawn from the fuzzer's bytes, effects made of them, and a room that lives with
//! its replica and its log.

pub mod draw;
pub mod effects;
pub mod parts;
pub mod world;

#[path = "../../tests/support/mod.rs"]
pub mod support;
