//! What the tests of the core share. No test uses all of it.
#![allow(dead_code, unused_imports)]

pub mod chance;
pub mod client;
pub mod command;
pub mod digest;
pub mod exercise;
pub mod history;
pub mod invariants;
pub mod log;
pub mod naive;
pub mod node;
pub mod operator;
pub mod reader;

/// Cases a property is tried with; `PROPTEST_CASES` asks for more, or fewer.
pub fn cases(default: u32) -> proptest::test_runner::Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    proptest::test_runner::Config { cases: asked.unwrap_or(default), failure_persistence: None, ..Default::default() }
}
