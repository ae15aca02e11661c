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
use crate::change::{Kind, Known, Side, Unsupported};
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
        let known = self.earlier.known(&path).cloned();
        let below = self.below(&path)?;
        let nothing = match &known {
            Some(known) => known.side.is_none(),
            None => matches!(below, Below::Nothing) || self.earlier.hides(&path),
        };
        let old = match below {
            Below::Nothing | Below::Is(_) if nothing => {
                let stop = new.unsupported.is_some();
                let change = self.change(path, Kind::Added, None, Some(new));
                self.push(change)?;
                return Ok(stop);
            }
            Below::Nothing => None,
            Below::OtherMount => {
                new.unsupported = Some(Unsupported::OtherFileSystem);
                let change = self.change(path, Kind::Modified, None, Some(new));
                self.push(change)?;
                return Ok(true);
            }
            Below::Is(meta) => Some(meta),
        };
        let was = known.as_ref().and_then(|known| known.side.as_ref());
        let was = was.map(|side| (side.kind, side.mode)).or(old.map(|meta| (meta.kind, meta.mode)));
        let kind = if let Some((FileKind::Directory, mode)) = was {
            let is_there = old.is_some_and(|meta| meta.kind == FileKind::Directory);
            if is_there && !self.can_look_into(&path) {
                new.unsupported = Some(Unsupported::Unreadable);
            }
            // Setgid and sticky on a directory are the host's to keep.
            if mode & 0o777 == new.side.mode && new.unsupported.is_none() {
                let host = old.map(|meta| meta.identity);
                let side = Side { mode, ..new.side };
                self.same.push(Known { path, side: Some(side), base: None, host });
                return Ok(false);
            }
            Kind::ModeChanged
        } else {
            Kind::TypeChanged
        };
        let stop = new.unsupported.is_some();
        let old = match (known, old) {
            (Some(known), _) => Old::from_known(known),
            (None, Some(meta)) => {
                let (parent, _) = path.split().unwrap_or((RelPath::root(), b""));
                let Some(parent) = self.lower_dir(&parent)? else { return Ok(stop) };
                Some(self.old(parent.as_fd(), &path, meta, Keep::Copy)?)
            }
            (None, None) => None,
        };
        let change = self.change(path, kind, old, Some(new));
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
        let left = self.left(upper, &path, &meta, cover)?;
        if let Some(known) = self.earlier.known(&path).cloned() {
            return self.leaf_since(path, (meta, left), known, under);
        }
        let under = under.filter(|_| !self.earlier.hides(&path));
        let new = match (left, under) {
            (Left::Whiteout, None) => {
                self.same.push(Known { path, side: None, base: None, host: None });
                return Ok(());
            }
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
        let may_be_equal = old.kind == new.side.kind && old.size() == new.side.size;
        let keep = if may_be_equal { Keep::Hash } else { Keep::Copy };
        let mut read = self.old(dir, &path, old, keep)?;
        if may_be_equal && old.kind == FileKind::File && !is_same_content(&read, &new) {
            read = self.old(dir, &path, old, Keep::Copy)?;
        }
        self.compare(path, read, (meta, new))
    }

    /// The same for a name that the upper layer held before the box was started again: what counts
    /// is what the box started from then, whatever the host has made of it since.
    fn leaf_since(
        &mut self,
        path: RelPath,
        (meta, left): (Meta, Left),
        known: Known,
        under: Option<(BorrowedFd<'_>, Meta)>,
    ) -> Result<(), SealError> {
        match (left, Old::from_known(known.clone())) {
            (Left::Whiteout, None) => {
                self.same.push(known);
                Ok(())
            }
            (Left::Whiteout, Some(old)) => match under {
                Some((dir, meta)) => doomed::delete(self, dir, path, meta),
                None => {
                    let change = self.change(path, Kind::Deleted, Some(old), None);
                    self.push(change)
                }
            },
            (Left::Something(new), None) => {
                let change = self.change(path, Kind::Added, None, Some(new));
                self.push(change)
            }
            (Left::Something(new), Some(old)) => {
                let is_dir = |kind| kind == FileKind::Directory;
                let replaced = under.filter(|(_, meta)| is_dir(meta.kind) && is_dir(old.side.kind));
                if let Some((dir, _)) = replaced {
                    doomed::delete_beneath(self, dir, &path)?;
                }
                self.compare(path, old, (meta, new))
            }
        }
    }

    fn compare(
        &mut self,
        path: RelPath,
        old: Old,
        (upper, new): (Meta, New),
    ) -> Result<(), SealError> {
        let kind = if old.side.kind != new.side.kind {
            Kind::TypeChanged
        } else if !is_same_content(&old, &new) {
            Kind::Modified
        } else if old.side.mode == upper.mode || new.side.kind == FileKind::Symlink {
            self.same.push(old.into_same(path));
            return Ok(());
        } else {
            Kind::ModeChanged
        };
        let change = self.change(path, kind, Some(old), Some(new));
        self.push(change)
    }

    /// Whether what is below the directory is gone. A directory that is made inside an opaque one
    /// carries no mark of its own, since nothing shows through to it.
    fn is_opaque(&mut self, path: &RelPath, cover: Cover) -> bool {
        self.opaque.retain(|top| path.is_within(top));
        if cover == Cover::Opaque {
            self.opaque.push(path.clone());
            self.all_opaque.push(path.clone());
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
