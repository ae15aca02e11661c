//! The bytes of `events.log`: a header, then batches.
//!
//! Does no input or output. A batch holds the events of one append. The checksum of a batch covers
//! all its bytes through the leaf hashes, so reading a log hashes each event once.

use std::fmt;
use std::ops::Range;

use crate::bytes::Cursor;
use crate::digest::Digest;
use crate::entry::MAX_ENTRY;

/// The random id of one ledger, drawn when the ledger is created.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LedgerId([u8; 16]);

/// Why the header of a ledger file is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("the file does not start like a file of a ledger")]
    Foreign,
    #[error("the file has version {0}, but this version of Belljar reads only version 1")]
    Version(u8),
    #[error("the first 64 bytes of the file are damaged")]
    Damaged,
}

/// Why bytes are not a complete batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch does.
    #[error("a batch is truncated")]
    Short,
    #[error("a batch does not start with the magic bytes of a batch")]
    Magic,
    #[error("the length of a batch exceeds the limit")]
    Long,
    #[error("the events of a batch do not match their count")]
    Count,
    #[error("a batch does not match its checksum")]
    Check,
}

/// The 28 bytes of a batch before its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHead {
    pub(crate) payload: usize,
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) writer: u64,
}

pub(crate) const LOG_MAGIC: &[u8; 15] = b"belljar ledger\n";
pub(crate) const SALTS_MAGIC: &[u8; 15] = b"belljar salts \n";
pub(crate) const HEADER: usize = 64;
pub(crate) const BATCH_HEAD: usize = 28;
pub(crate) const MAX_PAYLOAD: usize = 16 << 20;
pub(crate) const MAGIC: &[u8; 4] = b"BJB1";
const VERSION: u8 = 1;
const DOMAIN: &[u8] = b"belljar batch 1\0";

impl LedgerId {
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the origin line of the ledger's checkpoints, which is also the name of its keys.
    pub fn origin(self) -> String {
        format!("belljar/{self}")
    }
}

/// Returns the header of a file of the ledger `id`.
pub(crate) fn header(magic: &[u8; 15], id: LedgerId) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let parts = [magic.as_slice(), &[VERSION], &id.0];
    let check = Digest::of(&parts);
    let bytes = parts.into_iter().flatten().chain(check.as_bytes());
    header.iter_mut().zip(bytes).for_each(|(target, byte)| *target = *byte);
    header
}

pub(crate) fn parse_header(magic: &[u8; 15], bytes: &[u8]) -> Result<LedgerId, HeaderError> {
    let mut cursor = Cursor::new(bytes);
    let found = cursor.array::<15>().ok_or(HeaderError::Foreign)?;
    let version = cursor.u8().ok_or(HeaderError::Foreign)?;
    let id = cursor.array().ok_or(HeaderError::Foreign)?;
    let check = cursor.array::<32>().ok_or(HeaderError::Foreign)?;
    let is_whole = Digest::of(&[&found, &[version], &id]) == Digest::new(check);
    if &found != magic {
        return Err(HeaderError::Foreign);
    }
    if !is_whole {
        return Err(HeaderError::Damaged);
    }
    if version != VERSION {
        return Err(HeaderError::Version(version));
    }
    Ok(LedgerId(id))
}

/// Encodes `entries` as one batch; `leaves` are their leaf hashes.
pub(crate) fn batch(first: u64, writer: u64, entries: &[Vec<u8>], leaves: &[Digest]) -> Vec<u8> {
    let payload: usize = entries.iter().map(|entry| 2 + entry.len()).sum();
    let mut out = Vec::with_capacity(BATCH_HEAD + payload + Digest::LENGTH);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&u32::try_from(payload).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&first.to_be_bytes());
    out.extend_from_slice(&u32::try_from(entries.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&writer.to_be_bytes());
    let check = check(&out, leaves);
    for entry in entries {
        debug_assert!(entry.len() <= MAX_ENTRY, "the encoder limits the length of an entry");
        out.extend_from_slice(&u16::try_from(entry.len()).unwrap_or(u16::MAX).to_be_bytes());
        out.extend_from_slice(entry);
    }
    out.extend_from_slice(check.as_bytes());
    out
}

impl BatchHead {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let mut cursor = Cursor::new(bytes);
        let magic = cursor.take(MAGIC.len()).ok_or(BatchError::Short)?;
        let payload = cursor.u32().ok_or(BatchError::Short)?;
        let first = cursor.u64().ok_or(BatchError::Short)?;
        let count = cursor.u32().ok_or(BatchError::Short)?;
        let writer = cursor.u64().ok_or(BatchError::Short)?;
        if magic != MAGIC {
            return Err(BatchError::Magic);
        }
        let payload = usize::try_from(payload).map_err(|_| BatchError::Long)?;
        if payload > MAX_PAYLOAD {
            return Err(BatchError::Long);
        }
        if count == 0 || usize::try_from(count).map_or(true, |count| count > payload / 2) {
            return Err(BatchError::Count);
        }
        Ok(Self { payload, first, count, writer })
    }

    /// Returns the length of the whole batch in bytes.
    pub(crate) const fn length(&self) -> usize {
        BATCH_HEAD + self.payload + Digest::LENGTH
    }
}

/// Checks a whole batch and fills in the byte ranges and leaf hashes of its events.
pub(crate) fn open_batch(
    head: &BatchHead,
    bytes: &[u8],
    ranges: &mut Vec<Range<usize>>,
    leaves: &mut Vec<Digest>,
) -> Result<(), BatchError> {
    ranges.clear();
    leaves.clear();
    let mut cursor = Cursor::new(bytes);
    let start = cursor.take(BATCH_HEAD).ok_or(BatchError::Short)?;
    let mut payload = Cursor::new(cursor.take(head.payload).ok_or(BatchError::Short)?);
    let found = cursor.array().ok_or(BatchError::Short)?;
    let mut at = BATCH_HEAD;
    while !payload.is_empty() {
        let length = payload.u16().ok_or(BatchError::Count)?;
        let entry = payload.take(length.into()).ok_or(BatchError::Count)?;
        at += 2;
        ranges.push(at..at + entry.len());
        at += entry.len();
        leaves.push(Digest::leaf(entry));
    }
    if ranges.len() as u64 != u64::from(head.count) {
        return Err(BatchError::Count);
    }
    if check(start, leaves) != Digest::new(found) {
        return Err(BatchError::Check);
    }
    Ok(())
}

fn check(head: &[u8], leaves: &[Digest]) -> Digest {
    let mut parts = Vec::with_capacity(leaves.len() + 2);
    parts.extend([DOMAIN, head]);
    parts.extend(leaves.iter().map(|leaf| leaf.as_bytes().as_slice()));
    Digest::of(&parts)
}

impl fmt::Display for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LedgerId({self})")
    }
}
