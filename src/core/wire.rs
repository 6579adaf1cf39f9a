//! Bytes that leave the process: the primitives of effects and snapshots.
//!
//! Numbers are LEB128, ids and payloads are prefixed by their length (invariant 9), and moments of the monotonic
//! clock travel as absolute unix ms. Whatever is read is checked: bytes from a dump may hold anything.

use super::id::Id;
use super::time::{Now, MAX};

/// Bytes that are not what this module writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt(pub &'static str);

/// Room for the effects of one step of one lease or message: growing on the way costs more than the rest.
const USUAL_BYTES: usize = 128;

pub struct Writer {
    out: Vec<u8>,
    now: Now,
}

impl Writer {
    pub fn new(now: Now) -> Self {
        Self { out: Vec::with_capacity(USUAL_BYTES), now }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    pub fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    pub fn number(&mut self, mut number: u64) {
        while number > 0x7f {
            self.out.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.out.push(number as u8);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    pub fn id(&mut self, id: &Id) {
        self.bytes(id.as_bytes());
    }

    pub fn fixed<const N: usize>(&mut self, bytes: &[u8; N]) {
        self.out.extend_from_slice(bytes);
    }

    /// A moment of the monotonic clock.
    pub fn moment(&mut self, mono: u64) {
        self.number(self.now.to_unix(mono));
    }

    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.byte(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }
}

pub struct Reader<'a> {
    rest: &'a [u8],
    now: Now,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], now: Now) -> Self {
        Self { rest: bytes, now }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn byte(&mut self) -> Result<u8, Corrupt> {
        let (first, rest) = self.rest.split_first().ok_or(Corrupt("it ends early"))?;
        self.rest = rest;
        Ok(*first)
    }

    /// 0 … 2^63-1, as every integer of the contract.
    pub fn number(&mut self) -> Result<u64, Corrupt> {
        let mut number = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Corrupt("a number is too large"))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Corrupt> {
        let len = usize::try_from(self.number()?).map_err(|_| Corrupt("a length is too large"))?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Corrupt("a length is too large"))?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Never empty.
    pub fn id(&mut self) -> Result<Id, Corrupt> {
        match self.bytes()? {
            [] => Err(Corrupt("an id is empty")),
            bytes => Ok(Id::new(bytes)),
        }
    }

    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Corrupt("it ends early"))?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub fn moment(&mut self) -> Result<u64, Corrupt> {
        let unix = self.number()?;
        Ok(self.now.to_mono(unix).min(MAX))
    }

    pub fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Corrupt>) -> Result<Option<T>, Corrupt> {
        match self.byte()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(Corrupt("a flag is neither 0 nor 1")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn primitives_round_trip(n in 0..=MAX, b in proptest::collection::vec(any::<u8>(), 0..40), o in any::<Option<u8>>()) {
            let now = Now { mono: 1 << 40, unix: 1 << 41 };
            let mut w = Writer::new(now);
            w.number(n);
            w.bytes(&b);
            w.option(o, Writer::byte);
            w.moment(7 << 38);
            let bytes = w.into_bytes();
            let later = Now { mono: now.mono + 500, unix: now.unix + 500 };
            let mut r = Reader::new(&bytes, later);
            prop_assert_eq!(r.number(), Ok(n));
            prop_assert_eq!(r.bytes(), Ok(&b[..]));
            prop_assert_eq!(r.option(Reader::byte), Ok(o));
            prop_assert_eq!(r.moment(), Ok(7 << 38));
            prop_assert!(r.is_empty());
            for end in 0..bytes.len() {
                let mut r = Reader::new(&bytes[..end], now);
                let all = r.number().and_then(|_| r.bytes()).and_then(|_| r.option(Reader::byte)).and_then(|_| r.moment());
                prop_assert!(all.is_err());
            }
        }
    }
}
