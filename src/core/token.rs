//! Session tokens: only their SHA-256 is ever kept, and comparison takes the same time whatever is presented.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub type TokenDigest = [u8; 32];

pub fn digest(token: &[u8]) -> TokenDigest {
    Sha256::digest(token).into()
}

/// Whether the token presented is the one behind `bound`.
pub fn matches(bound: &TokenDigest, presented: Option<&[u8]>) -> bool {
    presented.is_some_and(|token| digest(token).ct_eq(bound).into())
}
