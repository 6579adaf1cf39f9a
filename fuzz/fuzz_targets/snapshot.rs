//! RDB and RESTORE: parts of a saved room, as they were or as anything has made them. What is taken is a room that keeps
//! the rules; anything else is refused whole.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use redis_lease_fuzz::draw::{Draw, NOW};
use redis_lease_fuzz::parts;
use redis_lease_fuzz::support::chance::Chance;
use redis_lease_fuzz::support::exercise::{assert_valid, exercise};
use redis_lease_fuzz::support::node::load;
use redis_lease_fuzz::world::World;

fuzz_target!(|bytes: &[u8]| {
    let Ok(room) = load(&parts::split(bytes), NOW) else { return };
    assert_valid(&room, NOW);
    exercise(room.clone(), NOW);
    World::of(room.clone()).run_out();
    let mut world = World::of(room);
    world.live(&mut Draw::new(bytes));
    world.check_reload();
    world.run_out();
});

// Structure: now and then the parts of a room that has lived take the place of all parts, or of one. Bytes: libFuzzer.
fuzz_mutator!(|bytes: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut chance = Chance::new(seed.into());
    if !chance.one_in(8) {
        return fuzzer_mutate(bytes, size, max_size);
    }
    let life: Vec<u8> = (0..chance.below(400)).map(|_| chance.below(256) as u8).collect();
    let mut world = World::new();
    world.live(&mut Draw::new(&life));
    let saved = world.save();
    let mut all = parts::split(&bytes[..size]);
    match chance.one_in(2) {
        true => all = saved,
        false => {
            let (from, to) = (chance.below(saved.len() as u64) as usize, chance.below(all.len() as u64) as usize);
            all[to] = saved[from].clone();
        }
    }
    let joined = parts::join(&all);
    if joined.len() > max_size {
        return fuzzer_mutate(bytes, size, max_size);
    }
    bytes[..joined.len()].copy_from_slice(&joined);
    joined.len()
});
