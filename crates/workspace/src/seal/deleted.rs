//! Lists deleted directories file by file, so that every lost file has an entry.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::sides::Keep;
use super::upper::walked_path;
use super::{SealError, Sealing};
use crate::at::{self, Name};
use crate::change::{ChangeKind, Unsupported};
use crate::meta::{FileKind, Meta};
use crate::path::RelPath;
use crate::walk::{self, Visit};

/// Records `path` in the user's directory `dir` and everything in it as deleted.
pub(super) fn delete(
    sealing: &mut Sealing<'_>,
    dir: BorrowedFd<'_>,
    path: RelPath,
    meta: Meta,
) -> Result<(), SealError> {
    if meta.kind != FileKind::Directory {
        return leaf(sealing, dir, path, meta);
    }
    let mut deleted = DeletedTree { sealing };
    match deleted.open(path.as_bytes(), dir, path.name())? {
        Some(fd) => walk::walk(fd, path.as_bytes(), &mut deleted),
        None => Ok(()),
    }
}

/// Records everything in the user's directory `path` as deleted. The directory itself was replaced
/// and has its own entry.
pub(super) fn delete_beneath(
    sealing: &mut Sealing<'_>,
    dir: BorrowedFd<'_>,
    path: &RelPath,
) -> Result<(), SealError> {
    let io = |source| SealError::Lower { path: path.clone(), source };
    // Belljar's own state and other file systems are skipped. The entry of the directory then stays
    // the only one, and its apply fails because the directory is not empty.
    if sealing.layers.is_own(path) {
        return Ok(());
    }
    match at::child_dir(dir, path.name()) {
        Ok(fd) => walk::walk(fd, path.as_bytes(), &mut DeletedTree { sealing }),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::XDEV | Errno::ACCESS) => Ok(()),
            _ => Err(io(error)),
        },
    }
}

fn leaf(
    sealing: &mut Sealing<'_>,
    dir: BorrowedFd<'_>,
    path: RelPath,
    meta: Meta,
) -> Result<(), SealError> {
    let old = sealing.old_side_of_deleted(dir, &path, meta, Keep::Copy)?;
    let change = sealing.change(path, ChangeKind::Deleted, Some(old), None);
    sealing.push(change)
}

/// A walk through a directory of the host that the box deleted.
struct DeletedTree<'a, 'b> {
    sealing: &'a mut Sealing<'b>,
}

impl Visit for DeletedTree<'_, '_> {
    type Error = SealError;

    fn visit(&mut self, path: &[u8], dir: BorrowedFd<'_>) -> Result<Vec<Name>, SealError> {
        let path = walked_path(path);
        let io = |source| SealError::Lower { path: path.clone(), source };
        let cap = self.sealing.limits.entries;
        let names = at::names(dir, cap).map_err(io)?;
        if names.len() > cap {
            return Err(SealError::TooManyEntries { cap });
        }
        let mut below = Vec::new();
        for name in names {
            let Ok(child) = path.join(&name) else {
                self.sealing.push_too_long(path.clone());
                continue;
            };
            let Some(meta) = at::stat(dir, &name).map_err(io)? else { continue };
            if meta.kind == FileKind::Directory {
                below.push(name);
            } else {
                leaf(self.sealing, dir, child, meta)?;
            }
        }
        Ok(below)
    }

    /// Adds the change of a deleted directory and opens it, unless it is unreadable or must be
    /// skipped.
    fn open(
        &mut self,
        path: &[u8],
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<Option<OwnedFd>, SealError> {
        let path = walked_path(path);
        let io = |source| SealError::Lower { path: path.clone(), source };
        let Some(meta) = at::stat(parent, name).map_err(io)? else { return Ok(None) };
        let (fd, unsupported) = match at::child_dir(parent.as_fd(), name) {
            Ok(fd) => (Some(fd), None),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::XDEV) => (None, Some(Unsupported::OtherFileSystem)),
                Some(Errno::ACCESS | Errno::PERM) => (None, Some(Unsupported::Unreadable)),
                _ if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                _ => return Err(io(error)),
            },
        };
        let fd = fd.filter(|_| !self.sealing.layers.is_own(&path));
        let old = self.sealing.old_side_of_deleted(parent, &path, meta, Keep::Hash)?;
        let mut change = self.sealing.change(path, ChangeKind::Deleted, Some(old), None);
        change.unsupported = unsupported;
        self.sealing.push(change)?;
        Ok(fd)
    }
}
