//! LEASE.APPLY: effects that could have been sent, and bytes that are hardly any, on a room with a past.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_lease::core::codec;
use redis_lease::core::room::Room;
use redis_lease_fuzz::draw::{Draw, NOW};
use redis_lease_fuzz::effects::effect;
use redis_lease_fuzz::support::exercise::exercise;
use redis_lease_fuzz::world::World;

fuzz_target!(|bytes: &[u8]| {
    let mut d = Draw::new(bytes);
    let count = d.below(40);
    let drawn: Vec<_> = (0..count).map(|_| effect(&mut d)).collect();
    let sent = codec::encode(&drawn, NOW);
    // Moments near the end of time have changed on the way; once read they do not change again.
    let Ok(effects) = codec::decode(&sent, NOW) else { panic!("effects that were encoded are refused") };
    assert_eq!(codec::encode(&effects, NOW), sent);
    let mut room = Room::default();
    effects.iter().for_each(|effect| room.apply(effect));
    if let Ok(others) = codec::decode(d.rest(), NOW) {
        others.iter().for_each(|effect| room.apply(effect));
    }
    World::of(room.clone()).check_reload();
    exercise(room.clone(), NOW);
    World::of(room.clone()).run_out();
    let mut world = World::of(room);
    world.live(&mut Draw::new(bytes));
    world.run_out();
});
