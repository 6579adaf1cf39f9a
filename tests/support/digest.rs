//! A room's digest as a comparable value: the items, whatever their order.

use redis_lease::core::room::Room;
use redis_lease::core::snapshot::{self, Digest};

#[derive(Default)]
struct Items {
    item: Vec<u8>,
    items: Vec<Vec<u8>>,
}

impl Digest for Items {
    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.item.extend_from_slice(bytes);
    }

    fn number(&mut self, number: u64) {
        self.item.extend_from_slice(&number.to_le_bytes());
    }

    fn end_item(&mut self) {
        self.items.push(std::mem::take(&mut self.item));
    }
}

pub fn of(room: &Room) -> Vec<Vec<u8>> {
    let mut items = Items::default();
    snapshot::digest(room, &mut items);
    items.items.sort();
    items.items
}
