//! The trash of a run: the user's files that an apply replaced or deleted.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::io::Errno;

use super::{ApplyError, log};
use crate::at;
use crate::content;
use crate::layers::Layers;
use crate::meta::FileKind;
use crate::path::RelPath;

/// A file of the user that an apply replaced or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trashed {
    /// The number that is the name of the file in `trash`.
    pub number: u64,
    /// The path of the file before the apply.
    pub path: RelPath,
}

/// Returns the files in the trash of a run.
pub fn trashed(layers: &Layers) -> Result<Vec<Trashed>, ApplyError> {
    let dir = match at::child_dir(layers.run(), b"trash") {
        Ok(dir) => dir,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(ApplyError::OpenTrash { source }),
    };
    let kept = |number: u64| at::stat(&dir, number.to_string().as_bytes());
    let begun = log::read_begun(layers)?.into_iter();
    Ok(begun
        .filter(|begin| kept(begin.number).is_ok_and(|meta| meta.is_some()))
        .map(|begin| Trashed { number: begin.number, path: begin.path })
        .collect())
}

/// Moves the file `name` into the trash under `number`. Between file systems the file is copied,
/// synced to disk and only then removed.
pub(super) fn put(
    trash: BorrowedFd<'_>,
    number: u64,
    from: BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<()> {
    let mut trash_name = number.to_string();
    // An apply that was killed between copy and removal left its copy: keep both.
    while at::stat(trash, trash_name.as_bytes())?.is_some() {
        trash_name.push_str(".again");
    }
    match at::rename_new(from, name, trash, trash_name.as_bytes()) {
        Err(error) if is_other_file_system(&error) => {
            copy(trash, &trash_name, from, name)?;
            at::unlink(from, name)
        }
        done => done,
    }
}

/// Copies the file `name` into the trash under `number` and keeps the original.
pub(super) fn keep_copy(
    trash: BorrowedFd<'_>,
    number: u64,
    from: BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<()> {
    copy(trash, &number.to_string(), from, name)
}

/// Returns whether rename(2) failed because the two directories are on different mounts.
pub(super) fn is_other_file_system(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::XDEV)
}

fn copy(
    trash: BorrowedFd<'_>,
    trash_name: &str,
    from: BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<()> {
    let part = format!("{trash_name}.part");
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
        // A copy of these kinds would lose their function.
        FileKind::Directory | FileKind::Fifo | FileKind::Socket | FileKind::Device => {
            return Err(io::ErrorKind::Unsupported.into());
        }
    }
    at::rename(trash, part.as_bytes(), trash, trash_name.as_bytes())?;
    log::sync_dir(trash.as_fd())
}
