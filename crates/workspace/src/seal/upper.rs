//! The walk through the upper layer.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use belljar_model::risky;
use rustix::io::Errno;

use super::doomed;
use super::sides::{Keep, Left, New, Old, bare_side};
use super::{SealError, Sealing};
use crate::at::{self, Name};
use crate::change::{Change, Kind, Unsupported};
use crate::meta::{FileKind, Meta};
use crate::overlay::{self, Cover};
use crate::path::RelPath;
use crate::walk::{self, Visit, WalkError};

/// What the user's directory has where the upper layer has a directory.
enum Below {
    Nothing,
    /// Another file system is mounted there. The box saw what lies under it.
    OtherMount,
    Is(Meta),
}

pub(super) fn read(sealing: &mut Sealing<'_>) -> Result<(), SealError> {
    let root = sealing.layers.upper().dir(&RelPath::root());
    let root = root.map_err(|source| SealError::Upper { path: RelPath::root(), source })?;
    walk::walk(root, b"", sealing)
}

impl Visit for Sealing<'_> {
    type Error = SealError;

    fn visit(&mut self, path: &[u8], dir: BorrowedFd<'_>) -> Result<Vec<Name>, SealError> {
        let path = known(path);
        let io = |source| SealError::Upper { path: path.clone(), source };
        let cover = overlay::cover(dir).map_err(io)?;
        let names = at::names(dir, self.caps.entries).map_err(io)?;
        if names.len() > self.caps.entries {
            return Err(SealError::TooManyEntries { cap: self.caps.entries });
        }
        let lower = self.lower_dir(&path)?;
        self.note_bare_repository(&path, &names, lower.as_ref());
        if self.is_opaque(&path, cover)
            && let Some(lower) = &lower
        {
            self.delete_uncovered(lower.as_fd(), &path, &names)?;
        }
        let mut below = Vec::new();
        for name in names {
            let Ok(child) = path.join(&name) else {
                self.push_too_long(path.clone());
                continue;
            };
            let Some(meta) = at::stat(dir, &name).map_err(io)? else { continue };
            if meta.kind == FileKind::Directory {
                below.push(name);
            } else {
                self.leaf(dir, lower.as_ref().map(OwnedFd::as_fd), child, (meta, cover))?;
            }
        }
        Ok(below)
    }

    /// Compares a directory of the upper layer with what lies under it, and goes into it.
    fn open(
        &mut self,
        path: &[u8],
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<Option<OwnedFd>, SealError> {
        let path = known(path);
        let io = |source| SealError::Upper { path: path.clone(), source };
        let meta = at::stat(parent, name).map_err(io)?.ok_or(Errno::NOENT.into()).map_err(io)?;
        let mut new = New { side: bare_side(&meta), stripped: 0, unsupported: None };
        new.side.mode &= 0o777;
        let opened = match self.layers.upper().child(parent, &path) {
            Ok(fd) => {
                new.unsupported = overlay::refuse(&fd).map_err(io)?;
                Some(fd)
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                new.unsupported = Some(Unsupported::Unreadable);
                None
            }
            Err(source) => return Err(io(source)),
        };
        if self.layers.is_own(&path) {
            new.unsupported = Some(Unsupported::OwnState);
        }
        let stop = self.directory(path, new)?;
        Ok(opened.filter(|_| !stop))
    }
}

impl Sealing<'_> {
    /// Adds the entry of a directory, if it is one; `true` when what is in it does not count.
    fn directory(&mut self, path: RelPath, mut new: New) -> Result<bool, SealError> {
        let old = match self.below(&path)? {
            Below::Nothing => {
                let stop = new.unsupported.is_some();
                let change = self.change(path, Kind::Added, None, Some(new));
                self.push(change)?;
                return Ok(stop);
            }
            Below::OtherMount => {
                new.unsupported = Some(Unsupported::OtherFileSystem);
                let change = self.change(path, Kind::Modified, None, Some(new));
                self.push(change)?;
                return Ok(true);
            }
            Below::Is(meta) => meta,
        };
        let kind = if old.kind == FileKind::Directory {
            if !self.can_look_into(&path) {
                new.unsupported = Some(Unsupported::Unreadable);
            }
            // Setgid and sticky on a directory are the host's to keep.
            if old.mode & 0o777 == new.side.mode && new.unsupported.is_none() {
                return Ok(false);
            }
            Kind::ModeChanged
        } else {
            Kind::TypeChanged
        };
        let stop = new.unsupported.is_some();
        let (parent, _) = path.split().unwrap_or((RelPath::root(), b""));
        let Some(parent) = self.lower_dir(&parent)? else { return Ok(stop) };
        let old = self.old(parent.as_fd(), &path, old, Keep::Copy)?;
        let change = self.change(path, kind, Some(old), Some(new));
        self.push(change)?;
        Ok(stop)
    }

    /// Whether the user's directory at `path` can be listed and searched by us. The box, which
    /// may change modes in its own layer, could have got further.
    fn can_look_into(&self, path: &RelPath) -> bool {
        let looked = at::dir(self.layers.lower(), path).and_then(|fd| at::stat(&fd, b"."));
        looked.is_ok_and(|meta| meta.is_some())
    }

    /// Compares anything but a directory with what lies under it.
    fn leaf(
        &mut self,
        upper: BorrowedFd<'_>,
        lower: Option<BorrowedFd<'_>>,
        path: RelPath,
        (meta, cover): (Meta, Cover),
    ) -> Result<(), SealError> {
        let under = match lower {
            Some(dir) => at::stat(dir, path.name())
                .map_err(|source| SealError::Lower { path: path.clone(), source })?
                .map(|meta| (dir, meta)),
            None => None,
        };
        let new = match (self.left(upper, &path, &meta, cover)?, under) {
            (Left::Whiteout, None) => return Ok(()),
            (Left::Whiteout, Some((dir, old))) => return doomed::delete(self, dir, path, old),
            (Left::Something(new), _) => new,
        };
        let Some((dir, old)) = under else {
            let change = self.change(path, Kind::Added, None, Some(new));
            return self.push(change);
        };
        if old.kind == FileKind::Directory {
            doomed::delete_beneath(self, dir, &path)?;
        }
        match self.compare(dir, path, (old, meta), new)? {
            Some(change) => self.push(change),
            None => Ok(()),
        }
    }

    fn compare(
        &mut self,
        dir: BorrowedFd<'_>,
        path: RelPath,
        (old, upper): (Meta, Meta),
        new: New,
    ) -> Result<Option<Change>, SealError> {
        if old.kind != new.side.kind {
            let old = self.old(dir, &path, old, Keep::Copy)?;
            return Ok(Some(self.change(path, Kind::TypeChanged, Some(old), Some(new))));
        }
        let may_be_equal = old.size() == new.side.size;
        let keep = if may_be_equal { Keep::Hash } else { Keep::Copy };
        let mut read = self.old(dir, &path, old, keep)?;
        if is_same_content(&read, &new) {
            if old.mode == upper.mode || new.side.kind == FileKind::Symlink {
                return Ok(None);
            }
            return Ok(Some(self.change(path, Kind::ModeChanged, Some(read), Some(new))));
        }
        if may_be_equal && old.kind == FileKind::File {
            read = self.old(dir, &path, old, Keep::Copy)?;
        }
        Ok(Some(self.change(path, Kind::Modified, Some(read), Some(new))))
    }

    /// Whether what is below the directory is gone. A directory that is made inside an opaque one
    /// carries no mark of its own, since nothing shows through to it.
    fn is_opaque(&mut self, path: &RelPath, cover: Cover) -> bool {
        self.opaque.retain(|top| path.is_within(top));
        if cover == Cover::Opaque {
            self.opaque.push(path.clone());
        }
        !self.opaque.is_empty()
    }

    /// What an opaque directory hides and does not hold itself is deleted.
    fn delete_uncovered(
        &mut self,
        lower: BorrowedFd<'_>,
        path: &RelPath,
        names: &[Name],
    ) -> Result<(), SealError> {
        let io = |source| SealError::Lower { path: path.clone(), source };
        let held: HashSet<&[u8]> = names.iter().map(Vec::as_slice).collect();
        for name in at::names(lower, self.caps.entries).map_err(io)? {
            if held.contains(name.as_slice()) {
                continue;
            }
            let Ok(child) = path.join(&name) else {
                self.push_too_long(path.clone());
                continue;
            };
            if let Some(meta) = at::stat(lower, &name).map_err(io)? {
                doomed::delete(self, lower, child, meta)?;
            }
        }
        Ok(())
    }

    fn below(&self, path: &RelPath) -> Result<Below, SealError> {
        match at::handle(self.layers.lower(), path.as_bytes()) {
            Ok((_, meta)) => Ok(Below::Is(meta)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(Below::Nothing),
                Some(Errno::XDEV) => Ok(Below::OtherMount),
                _ => Err(SealError::Lower { path: path.clone(), source: error }),
            },
        }
    }

    /// The directory of the user at `path`, if there is a real one.
    fn lower_dir(&self, path: &RelPath) -> Result<Option<OwnedFd>, SealError> {
        match at::dir(self.layers.lower(), path) {
            Ok(fd) => Ok(Some(fd)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
                _ => Err(SealError::Lower { path: path.clone(), source: error }),
            },
        }
    }

    /// Remembers whether `path`, as the box left it, looks like a repository to git (threat C05).
    fn note_bare_repository(&mut self, path: &RelPath, names: &[Name], lower: Option<&OwnedFd>) {
        self.bare.retain(|(top, _)| path.is_within(top));
        let under = [&b"HEAD"[..], b"objects", b"refs", b"commondir"].into_iter().filter(|name| {
            lower.is_some_and(|dir| at::stat(dir, name).is_ok_and(|meta| meta.is_some()))
        });
        let all = names.iter().map(Vec::as_slice).chain(under);
        if let Some(rule) = risky::bare_repository(all) {
            self.bare.push((path.clone(), rule));
        }
    }
}

fn is_same_content(old: &Old, new: &New) -> bool {
    let (old, new) = (&old.side, &new.side);
    match new.kind {
        FileKind::File => old.hash.is_some() && old.hash == new.hash,
        FileKind::Symlink => old.target == new.target,
        // Nothing inside to compare.
        FileKind::Fifo | FileKind::Socket => true,
        FileKind::Directory | FileKind::Device => false,
    }
}

/// Only names that made a path are gone into, so what the walk says is one.
pub(super) fn known(path: &[u8]) -> RelPath {
    RelPath::new(path).expect("only names that make a path are gone into")
}

impl From<WalkError> for SealError {
    fn from(error: WalkError) -> Self {
        match error {
            WalkError::Io { path, source } => Self::Upper { path: known(&path), source },
            WalkError::Moved { path } => Self::Moved { path: known(&path) },
        }
    }
}
