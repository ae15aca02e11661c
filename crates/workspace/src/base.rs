//! Originals of what a box changed, kept by hash so that a three-way view is possible later.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::at;
use crate::content::{self, ContentHash, Summary};
use crate::layers::Layers;

/// Larger files are only hashed.
pub(crate) const KEEP_LIMIT: u64 = 16 * 1024 * 1024;

const INCOMING: &[u8] = b"incoming";

#[derive(Debug)]
pub(crate) struct BaseStore {
    dir: OwnedFd,
}

impl BaseStore {
    pub(crate) fn create(layers: &Layers) -> io::Result<Self> {
        Ok(Self { dir: layers.make_run_dir(b"base")? })
    }

    /// Copies `file`, which is at most [`KEEP_LIMIT`] long.
    ///
    /// Not synced: the user's file is still where it was, and [`load`] checks the hash, so a copy
    /// that a power cut emptied is only a missing convenience.
    pub(crate) fn keep(&self, file: &mut File) -> io::Result<Summary> {
        match at::unlink(&self.dir, INCOMING) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut copy = File::from(at::create(&self.dir, INCOMING, 0o600)?);
        let summary = content::copy(file, &mut copy, KEEP_LIMIT)?;
        at::rename(&self.dir, INCOMING, &self.dir, summary.hash.to_string().as_bytes())?;
        Ok(summary)
    }
}

/// The original with this hash, if it is there and whole.
pub(crate) fn load(
    run: BorrowedFd<'_>,
    hash: ContentHash,
    limit: u64,
) -> io::Result<Option<Vec<u8>>> {
    let dir = match at::child_dir(run, b"base") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        dir => dir?,
    };
    let bytes = match at::file(&dir, hash.to_string().as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => content::read_up_to(&mut File::from(file?.0), limit)?,
    };
    Ok(bytes.filter(|bytes| ContentHash::of(bytes) == hash))
}
