//! Copies of the original files that a box changed, stored by hash for a later three-way diff.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::at;
use crate::content::{self, ContentHash, Summary};
use crate::layers::Layers;

/// The size limit for stored original files; larger files are only hashed.
pub(crate) const KEEP_LIMIT: u64 = 16 * 1024 * 1024;

const INCOMING: &[u8] = b"incoming";
const CHOSEN: &[u8] = b"chosen";

/// The directory that stores original files of one run, as they were before the box changed them.
#[derive(Debug)]
pub(crate) struct BaseStore {
    dir: OwnedFd,
}

impl BaseStore {
    /// Opens the store of original files of a run and creates it if it is missing.
    pub(crate) fn create(layers: &Layers) -> io::Result<Self> {
        Ok(Self { dir: layers.make_run_dir(b"base")? })
    }

    /// Stores a copy of the original `file`, which has at most [`KEEP_LIMIT`] bytes.
    ///
    /// The copy is not synced to disk: [`load`] checks the hash, so after a power cut the original
    /// is at worst missing from the diff.
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

    /// Stores a text that an apply writes, and returns its hash.
    pub(crate) fn keep_bytes(&self, bytes: &[u8]) -> io::Result<ContentHash> {
        let hash = ContentHash::of(bytes);
        match at::unlink(&self.dir, CHOSEN) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = File::from(at::create(&self.dir, CHOSEN, 0o600)?);
        io::Write::write_all(&mut file, bytes)?;
        at::rename(&self.dir, CHOSEN, &self.dir, hash.to_string().as_bytes())?;
        Ok(hash)
    }
}

/// Opens the stored file with this hash. Its content is not checked.
pub(crate) fn open(run: BorrowedFd<'_>, hash: ContentHash) -> io::Result<File> {
    let dir = at::child_dir(run, b"base")?;
    Ok(File::from(at::file(&dir, hash.to_string().as_bytes())?.0))
}

/// Returns the stored original file with this hash, or `None` if it is missing or damaged.
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
