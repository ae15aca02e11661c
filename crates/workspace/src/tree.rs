//! The upper layer as something that can be read, whatever modes the box left in it.
//!
//! Root reads anything. A plain user owns the files but not the right to open a directory that the
//! box made 0000, so such a directory is opened up for as long as a [`Tree`] lives and gets its mode
//! back afterwards. (Killed in between, it stays 0700 and shows up so; nothing else is lost.)

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

    /// The regular file `name` in `parent`.
    pub(crate) fn file(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<(OwnedFd, Meta)> {
        match at::file(parent, name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            done => return done,
        }
        let (handle, meta) = at::handle(parent, name)?;
        if meta.kind != FileKind::File {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        at::chmod(&handle, meta.mode | 0o400)?;
        let opened = at::file(parent, name);
        at::chmod(&handle, meta.mode)?;
        // The mode that counts is the one the box gave, not the one we needed.
        opened.map(|(fd, now)| (fd, Meta { mode: meta.mode, ..now }))
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

impl Drop for Tree {
    fn drop(&mut self) {
        self.lock_again();
    }
}

/// Whether its owner could not list it and look at what it holds.
fn is_locked(meta: &Meta) -> bool {
    meta.mode & 0o500 != 0o500 && !rustix::process::geteuid().is_root()
}
