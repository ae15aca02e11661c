//! The upper layer as something that can be read, whatever modes the box left in it.
//!
//! Root reads anything. A plain user owns the files but not the right to open a directory that the
//! box made 0000, so such a directory is opened up for as long as a [`Tree`] lives and gets its mode
//! back afterwards. (Killed in between, it stays 0700 and shows up so; nothing else is lost.)

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use crate::at;
use crate::meta::{FileKind, Meta};
use crate::path::RelPath;

#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    /// Directories that were opened up, outermost first, with the mode that the box gave them.
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

    /// The directory at `path`.
    pub(crate) fn dir(&self, path: &RelPath) -> io::Result<OwnedFd> {
        match at::dir(&self.root, path) {
            Ok(fd) if at::meta(&fd).is_ok_and(|meta| !is_locked(&meta)) => return Ok(fd),
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let mut fd = at::child_dir(&self.root, b".")?;
        let mut here = RelPath::root();
        for part in path.parts() {
            here = here.join(part).expect("a part of a path is a path");
            fd = self.child(fd.as_fd(), &here)?;
        }
        Ok(fd)
    }

    /// The directory `path`, whose parent is open already.
    pub(crate) fn child(&self, parent: BorrowedFd<'_>, path: &RelPath) -> io::Result<OwnedFd> {
        let (_, name) = path.split().ok_or(io::ErrorKind::InvalidInput)?;
        let (handle, meta) = at::handle(parent, name)?;
        if meta.kind == FileKind::Directory && is_locked(&meta) {
            let mut opened = self.opened.lock().expect("nobody panics while holding it");
            at::chmod(&handle, meta.mode | 0o700)?;
            opened.push((path.clone(), meta.mode));
        }
        at::child_dir(&handle, b".")
    }

    /// Gives the directories that were opened up their modes back.
    fn lock_again(&mut self) {
        let opened = std::mem::take(self.opened.get_mut().expect("nobody panics while holding it"));
        for (path, mode) in opened.iter().rev() {
            // Nothing is at stake but a mode in the private layer, and nobody to tell.
            drop(at::dir(&self.root, path).and_then(|fd| at::chmod(&fd, *mode)));
        }
    }
}

/// A regular file of the upper layer, readable for as long as this lives.
#[derive(Debug)]
pub(crate) struct UpperFile {
    file: File,
    /// What the box locked, and the mode it gets back.
    locked: Option<(OwnedFd, u32)>,
}

impl UpperFile {
    /// Opens `name` in `parent`.
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
            // Nothing is at stake but a mode in the private layer, and nobody to tell.
            drop(at::chmod(&handle, mode));
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.lock_again();
    }
}

/// Whether its owner could not list it and look at what it holds.
fn is_locked(meta: &Meta) -> bool {
    meta.mode & 0o500 != 0o500 && !rustix::process::geteuid().is_root()
}
