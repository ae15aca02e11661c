//! Hashes and copies file content, with a limit on the bytes read.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const CHUNK: usize = 64 * 1024;
const TEXT_PROBE: usize = 8000; // the value of git

/// The SHA-256 hash of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ContentHash([u8; 32]);

/// The error for a text that is not a content hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid content hash: expected 64 hexadecimal digits")]
pub struct BadHash;

/// Whether a file is text or binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    Text,
    Binary,
}

/// The hash, size and content type of a file that was read completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    pub hash: ContentHash,
    pub size: u64,
    pub content: Content,
}

impl ContentHash {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// Returns whether content is text or binary: a NUL byte near the start means binary.
pub(crate) fn classify(start: &[u8]) -> Content {
    let probe = start.get(..TEXT_PROBE).unwrap_or(start);
    if probe.contains(&0) { Content::Binary } else { Content::Text }
}

/// Reads `file` completely and returns hash, size and type of its content; fails above `limit`
/// bytes.
pub(crate) fn summarize(file: &mut File, limit: u64) -> io::Result<Summary> {
    file.seek(SeekFrom::Start(0))?;
    read_chunks(file, limit, |_| Ok(()))
}

/// Copies `from` into the empty file `to` and returns hash, size and type of the content. Blocks
/// are shared if the file system supports it, and zeros become holes.
pub(crate) fn copy(from: &mut File, to: &mut File, limit: u64) -> io::Result<Summary> {
    if rustix::fs::ioctl_ficlone(&*to, &*from).is_ok() {
        return summarize(to, limit);
    }
    from.seek(SeekFrom::Start(0))?;
    let summary = read_chunks(from, limit, |chunk| {
        if chunk.iter().all(|&byte| byte == 0) {
            to.seek_relative(i64::try_from(chunk.len()).unwrap_or(i64::MAX))
        } else {
            to.write_all(chunk)
        }
    })?;
    to.set_len(summary.size)?;
    Ok(summary)
}

/// Copies `from` into the empty file `to` without computing a hash. Blocks are shared if the file
/// system supports it.
pub(crate) fn clone_or_copy(from: &mut File, to: &mut File) -> io::Result<()> {
    if rustix::fs::ioctl_ficlone(&*to, &*from).is_ok() {
        return Ok(());
    }
    copy(from, to, u64::MAX).map(drop)
}

/// Returns the content of the file, or `None` if it is longer than `limit`.
pub(crate) fn read_up_to(file: &mut File, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

fn read_chunks(
    file: &mut File,
    limit: u64,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Summary> {
    let mut hasher = Sha256::new();
    let mut size = 0_u64;
    let mut content = None;
    let mut buffer = vec![0_u8; CHUNK];
    loop {
        let len = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let chunk = buffer.get(..len).unwrap_or_default();
        size += chunk.len() as u64;
        if size > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        content.get_or_insert_with(|| classify(chunk));
        hasher.update(chunk);
        each(chunk)?;
    }
    let content = content.unwrap_or(Content::Text);
    Ok(Summary { hash: ContentHash(hasher.finalize().into()), size, content })
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ContentHash> for String {
    fn from(hash: ContentHash) -> Self {
        hash.to_string()
    }
}

impl TryFrom<String> for ContentHash {
    type Error = BadHash;

    fn try_from(text: String) -> Result<Self, BadHash> {
        text.parse()
    }
}

impl FromStr for ContentHash {
    type Err = BadHash;

    fn from_str(text: &str) -> Result<Self, BadHash> {
        let mut bytes = [0_u8; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| BadHash)?;
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn copy_of_a_file_has_the_same_bytes_and_keeps_holes() {
        let mut bytes = vec![0; 1 << 20];
        bytes.extend_from_slice(b"tail");
        let mut to = tempfile::tempfile().unwrap();
        let summary = copy(&mut file_of(&bytes), &mut to, u64::MAX).unwrap();
        assert_eq!(summary, summarize(&mut to, u64::MAX).unwrap());
        assert_eq!(summary.hash, ContentHash::of(&bytes));
        assert_eq!((summary.size, summary.content), (bytes.len() as u64, Content::Binary));
        assert!(to.metadata().unwrap().blocks() * 512 < 1 << 20);
    }

    #[test]
    fn c23_summarize_stops_reading_a_file_above_the_limit() {
        let error = summarize(&mut file_of(&[1; 1000]), 999).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(summarize(&mut file_of(&[1; 1000]), 1000).unwrap().size, 1000);
        let mut huge = file_of(b"");
        huge.set_len(1 << 40).unwrap();
        assert!(summarize(&mut huge, 1 << 20).is_err());
    }

    #[test]
    fn content_hash_survives_a_round_trip_and_invalid_texts_are_refused() {
        let hash = ContentHash::of(b"belljar");
        let text = hash.to_string();
        assert_eq!(text.parse(), Ok(hash));
        assert_eq!(text.to_uppercase().parse(), Ok(hash));
        for bad in [
            "",
            "00",
            &text[1..],
            &format!("{text}00"),
            &"g".repeat(64),
            &"é".repeat(32),
            &"+1".repeat(32),
        ] {
            assert_eq!(bad.parse::<ContentHash>(), Err(BadHash), "{bad}");
        }
    }
}
