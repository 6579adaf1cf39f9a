//! Parts of a snapshot as one input of the fuzzer: a mark stands between them, so that bytes come and go within one
//! without moving the others.

const MARK: &[u8] = b"\xfePART";

pub fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.join(MARK)
}

pub fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    while let Some(at) = bytes.windows(MARK.len()).position(|window| window == MARK) {
        parts.push(bytes[..at].to_vec());
        bytes = &bytes[at + MARK.len()..];
    }
    parts.push(bytes.to_vec());
    parts
}
