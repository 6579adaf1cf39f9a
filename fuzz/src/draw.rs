//! Words a room can meet, drawn from the fuzzer's bytes: few ids, so that they meet again, and numbers at their edges.

use arbitrary::Unstructured;
use redis_lease::core::id::Id;
use redis_lease::core::time::{Now, MAX};

pub const NOW: Now = Now { mono: 1 << 40, unix: 1_894_006_800_000 };

const IDS: [&[u8]; 12] = [
    b"a",
    b"b",
    b"c",
    b"default",
    b"0f8fad5b-d9cb-469f-a165-70867728950e",
    b"0F8FAD5B-D9CB-469F-A165-70867728950E",
    b"exactly fifteen",
    b"sixteen bytes...",
    b"orphan",
    b"\xff\xfe\x00",
    b"\0",
    &[b'x'; 255],
];
const NUMBERS: [u64; 16] =
    [0, 1, 2, 3, 41, 47, 1_000, 30_000, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 48, (1 << 48) - 1, 1 << 62, MAX - 1, MAX];

pub struct Draw<'a>(Unstructured<'a>);

impl<'a> Draw<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or_default()
    }

    /// 0 … `end` - 1.
    pub fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    pub fn one_in(&mut self, n: u8) -> bool {
        self.below(n) == 1
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    pub fn maybe<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.one_in(2).then(|| draw(self))
    }

    pub fn several<T>(&mut self, mut draw: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(5)).map(|_| draw(self)).collect()
    }

    /// 0 … 2^63-1, as every integer of the contract.
    pub fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.byte().into(),
            1 => self.pick(&NUMBERS),
            2 => self.0.arbitrary::<u16>().unwrap_or_default().into(),
            _ => self.0.arbitrary::<u64>().unwrap_or_default() & MAX,
        }
    }

    /// Now and then near `now`, as most moments are.
    pub fn moment(&mut self, now: u64) -> u64 {
        match self.below(4) {
            0 => self.number(),
            1 => now.saturating_sub(self.number()),
            _ => now.saturating_add(u64::from(self.byte()) * 1_000).min(MAX),
        }
    }

    pub fn bytes(&mut self) -> &'static [u8] {
        self.pick(&IDS)
    }

    pub fn id(&mut self) -> Id {
        Id::new(self.bytes())
    }

    pub fn blob(&mut self) -> &'static [u8] {
        self.pick(&[&b""[..], b"meta", b"another", &[0xff; 300]])
    }

    pub fn secret(&mut self) -> &'static [u8] {
        self.pick(&[b"s3cret", b"wrong!"])
    }

    pub fn fixed<const N: usize>(&mut self) -> [u8; N] {
        [self.below(6); N]
    }

    /// What is left.
    pub fn rest(self) -> &'a [u8] {
        self.0.take_rest()
    }
}
