//! Where what `apply` took out of the user's directory is kept.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::io::Errno;

use super::{ApplyError, journal};
use crate::at;
use crate::content;
use crate::layers::Layers;
use crate::meta::FileKind;
use crate::path::RelPath;

/// Something that `apply` took out of the user's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trashed {
    /// Its name in `trash`.
    pub number: u64,
    /// Where it was.
    pub path: RelPath,
}

/// What is in the trash of a run.
pub fn trashed(layers: &Layers) -> Result<Vec<Trashed>, ApplyError> {
    let dir = match at::child_dir(layers.run(), b"trash") {
        Ok(dir) => dir,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(ApplyError::OpenTrash { source }),
    };
    let kept = |number: u64| at::stat(&dir, number.to_string().as_bytes());
    let begun = journal::read_begun(layers)?.into_iter();
    Ok(begun
        .filter(|begin| kept(begin.number).is_ok_and(|meta| meta.is_some()))
        .map(|begin| Trashed { number: begin.number, path: begin.path })
        .collect())
}

/// Moves `name` into the trash under `number`. Between file systems it is copied, written to disk
/// and only then removed.
pub(super) fn put(
    trash: BorrowedFd<'_>,
    number: u64,
    from: BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<()> {
    let mut place = number.to_string();
    // An apply that was killed between copy and removal left the copy; keep both.
    while at::stat(trash, place.as_bytes())?.is_some() {
        place.push_str(".again");
    }
    match at::rename_new(from, name, trash, place.as_bytes()) {
        Err(error) if is_other_file_system(&error) => {
            copy(trash, &place, from, name)?;
            at::unlink(from, name)
        }
        done => done,
    }
}

/// Copies `name` into the trash under `number` and leaves it where it is.
pub(super) fn keep_copy(
    trash: BorrowedFd<'_>,
    number: u64,
    from: BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<()> {
    copy(trash, &number.to_string(), from, name)
}

/// rename(2) between file systems, or between mounts of one.
pub(super) fn is_other_file_system(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::XDEV)
}

fn copy(trash: BorrowedFd<'_>, place: &str, from: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    let part = format!("{place}.part");
    match at::unlink(trash, part.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let meta = at::stat(from, name)?.ok_or(io::ErrorKind::NotFound)?;
    match meta.kind {
        FileKind::File => {
            let (source, _) = at::file(from, name)?;
            let mut to = File::from(at::create(trash, part.as_bytes(), 0o600)?);
            content::copy(&mut File::from(source), &mut to, u64::MAX)?;
            at::chmod(&to, meta.mode & 0o777)?;
            to.sync_all()?;
        }
        FileKind::Symlink => {
            let target = at::read_link(from, name)?;
            rustix::fs::symlinkat(OsStr::from_bytes(&target), trash, &part)?;
        }
        // Nothing that a copy could keep.
        FileKind::Directory | FileKind::Fifo | FileKind::Socket | FileKind::Device => {
            return Err(io::ErrorKind::Unsupported.into());
        }
    }
    at::rename(trash, part.as_bytes(), trash, place.as_bytes())?;
    journal::sync_dir(trash.as_fd())
}
