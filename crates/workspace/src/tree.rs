//! Makes the upper layer readable, whatever modes the box set.
//!
//! Root can read everything. Other users own the files but cannot open a directory with mode 0000,
//! so a [`Tree`] makes such a directory accessible and restores its mode when it is dropped. After
//! a kill the directory keeps mode 0700 and is reported with it; nothing else is lost.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use crate::at;
use crate::meta::{FileKind, Meta};
use crate::path::RelPath;

/// A directory tree of a run that is made readable while this value exists.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    /// The directories that were made accessible, outermost first, with their original modes.
    opened: Mutex<Vec<(RelPath, u32)>>,
}

impl Tree {
    /// Opens the directory `name` of `run` as the root of a tree.
    pub(crate) fn open(run: BorrowedFd<'_>, name: &[u8]) -> io::Result<Self> {
        let (handle, meta) = at::handle(run, name)?;
        let mut opened = Vec::new();
        if meta.kind == FileKind::Directory && is_locked(&meta) {
            at::chmod(&handle, meta.mode | 0o700)?;
            opened.push((RelPath::root(), meta.mode));
        }
        Ok(Self { root: at::child_dir(&handle, b".")?, opened: Mutex::new(opened) })
    }

    /// Opens the directory at `path` in the tree.
    pub(crate) fn dir(&self, path: &RelPath) -> io::Result<OwnedFd> {
        match at::dir(&self.root, path) {
            Ok(fd) if at::meta(&fd).is_ok_and(|meta| !is_locked(&meta)) => return Ok(fd),
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let mut fd = at::child_dir(&self.root, b".")?;
        let mut here = RelPath::root();
        for part in path.parts() {
            here = here.join(part).expect("a component of a path is a valid path");
            fd = self.child(fd.as_fd(), &here)?;
        }
        Ok(fd)
    }

    /// Opens the directory `path` of the tree, whose parent is already open.
    pub(crate) fn child(&self, parent: BorrowedFd<'_>, path: &RelPath) -> io::Result<OwnedFd> {
        let (_, name) = path.split().ok_or(io::ErrorKind::InvalidInput)?;
        let (handle, meta) = at::handle(parent, name)?;
        if meta.kind == FileKind::Directory && is_locked(&meta) {
            let mut opened = self.opened.lock().expect("no code panics while holding the lock");
            at::chmod(&handle, meta.mode | 0o700)?;
            opened.push((path.clone(), meta.mode));
        }
        at::child_dir(&handle, b".")
    }

    /// Restores the modes of the directories that were made accessible.
    fn restore_modes(&mut self) {
        let opened =
            std::mem::take(self.opened.get_mut().expect("no code panics while holding the lock"));
        for (path, mode) in opened.iter().rev() {
            // A failure only leaves another mode in the private layer.
            drop(at::dir(&self.root, path).and_then(|fd| at::chmod(&fd, *mode)));
        }
    }
}

/// A regular file of the upper layer that is made readable while this value exists.
#[derive(Debug)]
pub(crate) struct UpperFile {
    file: File,
    /// A handle and the original mode of the file, if it was made readable.
    locked: Option<(OwnedFd, u32)>,
}

impl UpperFile {
    /// Opens the regular file `name` in `parent`.
    pub(crate) fn open(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<Self> {
        match at::file(parent, name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            opened => return opened.map(|(fd, _)| Self { file: fd.into(), locked: None }),
        }
        let (handle, meta) = at::handle(parent, name)?;
        if meta.kind != FileKind::File {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        at::chmod(&handle, meta.mode | 0o400)?;
        match at::file(parent, name) {
            Ok((fd, _)) => Ok(Self { file: fd.into(), locked: Some((handle, meta.mode)) }),
            Err(error) => {
                at::chmod(&handle, meta.mode)?;
                Err(error)
            }
        }
    }

    pub(crate) const fn file(&mut self) -> &mut File {
        &mut self.file
    }
}

impl Drop for UpperFile {
    fn drop(&mut self) {
        if let Some((handle, mode)) = self.locked.take() {
            // A failure only leaves another mode in the private layer.
            drop(at::chmod(&handle, mode));
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.restore_modes();
    }
}

/// Returns whether the owner of a directory cannot list or search it; false for root.
fn is_locked(meta: &Meta) -> bool {
    meta.mode & 0o500 != 0o500 && !rustix::process::geteuid().is_root()
}
