//! Bundles: the entries of one tile in one file, each after its length in two bytes, big-endian.

use super::WIDTH;

/// Encodes entries as a bundle; `None` if an entry exceeds 65535 bytes or there are more than 256.
pub fn bundle(entries: &[&[u8]]) -> Option<Vec<u8>> {
    if entries.len() > usize::from(WIDTH) {
        return None;
    }
    let mut bytes = Vec::with_capacity(entries.iter().map(|entry| entry.len() + 2).sum());
    for entry in entries {
        bytes.extend(u16::try_from(entry.len()).ok()?.to_be_bytes());
        bytes.extend(*entry);
    }
    Some(bytes)
}

/// Returns the entries of a bundle; `None` if it is truncated or has more than 256 entries.
pub fn unbundle(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let (entry, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        entries.push(entry);
        if entries.len() > usize::from(WIDTH) {
            return None;
        }
        bytes = rest;
    }
    Some(entries)
}
