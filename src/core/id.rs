//! Opaque ids: any bytes, compared exactly (invariant 9).

use std::fmt;

const INLINE: usize = 22;

/// The device of a holder that names none.
pub const DEFAULT_DEVICE: &[u8] = b"default";

/// A user's, device's or session's bytes: up to 22 in place, longer ones out of line; 24 bytes either way.
#[derive(Clone)]
pub enum Id {
    Inline(u8, [u8; INLINE]),
    Heap(Box<[u8]>),
}

impl Id {
    pub fn new(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE];
        match inline.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Self::Inline(bytes.len() as u8, inline)
            }
            None => Self::Heap(bytes.into()),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline(len, bytes) => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Heap(bytes) => bytes,
        }
    }

    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Inline(..) => 0,
            Self::Heap(bytes) => bytes.len(),
        }
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Id {}

impl std::hash::Hash for Id {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// So that a map keyed by `Id` can be asked with bytes.
impl std::borrow::Borrow<[u8]> for Id {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

/// A session id inside a lease: 17 bytes. Those the server makes, and any other UUID in canonical lower-case text, are
/// stored as 16 bytes; what is longer than 15 bytes otherwise lives with the lease's rare fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKey {
    Uuid([u8; 16]),
    Short(u8, [u8; 15]),
    Long,
}

impl SessionKey {
    pub fn of(bytes: &[u8]) -> Self {
        if let Some(uuid) = parse_uuid(bytes) {
            return Self::Uuid(uuid);
        }
        let mut short = [0; 15];
        match short.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Self::Short(bytes.len() as u8, short)
            }
            None => Self::Long,
        }
    }

    /// The id as callers know it; `long` are the bytes kept elsewhere.
    pub fn text(self, long: &[u8]) -> Id {
        match self {
            Self::Uuid(uuid) => Id::new(&uuid_text(uuid)),
            Self::Short(len, bytes) => Id::new(bytes.get(..usize::from(len)).unwrap_or_default()),
            Self::Long => Id::new(long),
        }
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";
/// Places of the dashes in a UUID's text.
const DASHES: [usize; 4] = [8, 13, 18, 23];
/// Places of the digits.
#[rustfmt::skip]
const DIGITS: [usize; 32] = [
    0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 14, 15, 16, 17, 19, 20, 21, 22, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35,
];
const UUID_TEXT: usize = 36;

/// The text of 16 bytes as UUID.
pub fn uuid_text(uuid: [u8; 16]) -> [u8; UUID_TEXT] {
    let mut text = [b'-'; UUID_TEXT];
    for (byte, places) in uuid.into_iter().zip(DIGITS.chunks_exact(2)) {
        for (digit, at) in hex(byte).into_iter().zip(places) {
            if let Some(place) = text.get_mut(*at) {
                *place = digit;
            }
        }
    }
    text
}

/// The two digits of a byte.
pub fn hex(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| HEX.get(usize::from(digit)).copied().unwrap_or_default())
}

/// A version 4 UUID from random bytes.
pub fn uuid_v4(random: [u8; 16]) -> [u8; 16] {
    let mut uuid = random;
    let [_, _, _, _, _, _, version, _, variant, ..] = &mut uuid;
    *version = *version & 0x0f | 0x40;
    *variant = *variant & 0x3f | 0x80;
    uuid
}

/// Without a branch on any digit: those on random ones are mispredicted, which took a tenth of a heartbeat's time.
fn parse_uuid(bytes: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; UUID_TEXT] = bytes.try_into().ok()?;
    if !DASHES.iter().all(|&at| text.get(at) == Some(&b'-')) {
        return None;
    }
    let mut digits = DIGITS.map(|at| text.get(at).copied().unwrap_or_default());
    // Apart from the gathering, so that the compiler makes it a few vector instructions.
    digits.iter_mut().for_each(|c| *c = hex_digit(*c));
    if digits.iter().fold(0, |seen, digit| seen | digit) >= NO_DIGIT {
        return None;
    }
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
    }
    Some(uuid)
}

/// What is no digit becomes this or more.
const NO_DIGIT: u8 = 16;

fn hex_digit(c: u8) -> u8 {
    let (digit, letter) = (c.wrapping_sub(b'0'), c.wrapping_sub(b'a'));
    let is_digit = u8::from(digit < 10).wrapping_neg();
    let is_letter = u8::from(letter < 6).wrapping_neg();
    digit & is_digit | letter.wrapping_add(10) & is_letter | !(is_digit | is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_as_planned() {
        assert_eq!((size_of::<Id>(), size_of::<SessionKey>()), (24, 17));
    }

    proptest! {
        /// Invariant 9: whatever goes in comes out.
        #[test]
        fn inv_9_ids_round_trip(bytes in proptest::collection::vec(any::<u8>(), 1..60)) {
            let id = Id::new(&bytes);
            prop_assert_eq!(id.as_bytes(), &bytes[..]);
            prop_assert_eq!(SessionKey::of(&bytes).text(&bytes), Id::new(&bytes));
        }

        #[test]
        fn uuids_are_recognised_in_canonical_form_only(random in any::<[u8; 16]>()) {
            let text = uuid_text(random);
            prop_assert_eq!(SessionKey::of(&text), SessionKey::Uuid(random));
            let upper = text.to_ascii_uppercase();
            if upper != text {
                prop_assert_eq!(SessionKey::of(&upper), SessionKey::Long);
            }
        }
    }
}
