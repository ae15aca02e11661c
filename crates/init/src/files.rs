//! The helper that reads and changes single files inside a box, for a caller outside of it.
//!
//! The helper is the same static program as init, under another name. Init starts it from a sealed memory
//! file as an additional program of a running box. So it needs nothing from the root of the box, it has the
//! user and all restrictions of the box, and the kernel resolves every name and link inside the box.
//!
//! | arguments | standard input | standard output |
//! |---|---|---|
//! | `open PATH AFTER LIMIT` | a [`Range`], if the reply is [`Reply::File`] | reply, then the bytes of the range |
//! | `write PATH LENGTH new` or `write PATH LENGTH replace` | the bytes of the file | reply |
//! | `remove PATH` | nothing | reply |
//!
//! A reply is its length as four bytes, little endian, and a [`Reply`]. The reader must not trust it: another
//! process of the box can stop or disturb the helper.

mod role;

use serde::{Deserialize, Serialize};

use crate::plan::Bytes;

pub use role::run;

/// The name of the helper, which is the first argument.
pub const ROLE: &str = "belljar-files";
/// The maximum size of an encoded [`Reply`].
pub const MAX_REPLY: usize = 256 * 1024;
/// The maximum number of entries of a directory in one reply.
pub const MAX_ENTRIES: usize = 200;

/// The reply of the helper to its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The path is a regular file. The helper waits for a [`Range`].
    File(Metadata),
    /// The path is a directory, with its entries in the order of their names.
    Directory {
        entries: Vec<Entry>,
        has_more: bool,
    },
    /// The file was written.
    Written {
        /// Whether there was no file before.
        is_new: bool,
    },
    Removed,
    Refused(Refusal),
}

/// The size and the time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    pub size: u64,
    /// The time of the last change, in seconds since 1970.
    pub modified: i64,
}

/// An entry of a directory. Links are not followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub name: Bytes,
    pub kind: EntryKind,
    pub metadata: Metadata,
}

/// The type of an entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    /// A pipe, socket or device.
    Special,
}

/// The reason why the helper did not do what it was started for. It changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    NotFound,
    Exists,
    IsDirectory,
    /// The path is neither a file nor a directory.
    IsSpecial,
    NotEmpty,
    Denied,
    /// The disk of the box is full.
    Full,
    /// Standard input ended before the whole file.
    Incomplete,
    /// The arguments are not valid.
    Usage,
    Failed {
        errno: i32,
    },
}

/// The part of a file that the helper sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub offset: u64,
    pub length: u64,
}

impl Range {
    /// The length of an encoded range.
    pub const SIZE: usize = 16;

    pub fn encode(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let (offset, length) = bytes.split_at_mut(Self::SIZE / 2);
        offset.copy_from_slice(&self.offset.to_le_bytes());
        length.copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    fn decode(bytes: [u8; Self::SIZE]) -> Self {
        let number = u128::from_le_bytes(bytes);
        let low = number & u128::from(u64::MAX);
        let part = |bits: u128| u64::try_from(bits).unwrap_or(u64::MAX);
        Self { offset: part(low), length: part(number >> 64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_survives_a_round_trip() {
        for (offset, length) in [(0, 0), (1, u64::MAX), (u64::MAX, 7)] {
            let range = Range { offset, length };
            assert_eq!(Range::decode(range.encode()), range);
        }
    }
}
