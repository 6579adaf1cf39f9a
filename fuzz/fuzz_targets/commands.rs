//! Commands with any words, on a room that is saved, loaded, promoted and left alone in between.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_lease_fuzz::draw::Draw;
use redis_lease_fuzz::world::World;

fuzz_target!(|bytes: &[u8]| {
    let mut world = World::new();
    world.live(&mut Draw::new(bytes));
    world.check_reload();
    world.run_out();
});
