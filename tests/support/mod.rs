//! What the tests of the core share. No test uses all of it.
#![allow(dead_code, unused_imports)]

use proptest::test_runner::RngSeed;

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

/// Cases a property is tried with; `PROPTEST_CASES` asks for more, or fewer. They are the same each time, so that a change
/// is judged by what it changes; `PROPTEST_RNG_SEED` asks for others, which is how to look for faults.
pub fn cases(default: u32) -> proptest::test_runner::Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    let config = proptest::test_runner::Config::default();
    let rng_seed = match config.rng_seed {
        RngSeed::Random => RngSeed::Fixed(SEED),
        asked => asked,
    };
    proptest::test_runner::Config { cases: asked.unwrap_or(default), failure_persistence: None, rng_seed, ..config }
}

const SEED: u64 = 1;
