//! Walks through the upper layer and collects the changes.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use belljar_model::risky;
use rustix::io::Errno;

use super::deleted;
use super::sides::{Keep, NewSide, OldSide, UpperEntry, bare_side};
use super::{SealError, Sealing};
use crate::at::{self, Name};
use crate::change::{ChangeKind, Side, StartState, Unsupported};
use crate::meta::{FileKind, Meta};
use crate::overlay::{self, Cover};
use crate::path::RelPath;
use crate::walk::{self, Visit, WalkError};

/// The host's entry at the path of a directory in the upper layer.
enum LowerEntry {
    Nothing,
    /// Another file system is mounted at the path on the host. The box saw the directory beneath
    /// the mount.
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
        let path = walked_path(path);
        let io = |source| SealError::Upper { path: path.clone(), source };
        let cover = overlay::cover(dir).map_err(io)?;
        let names = at::names(dir, self.limits.entries).map_err(io)?;
        if names.len() > self.limits.entries {
            return Err(SealError::TooManyEntries { cap: self.limits.entries });
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

    /// Compares a directory of the upper layer with the host and opens it.
    fn open(
        &mut self,
        path: &[u8],
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<Option<OwnedFd>, SealError> {
        let path = walked_path(path);
        let io = |source| SealError::Upper { path: path.clone(), source };
        let meta = at::stat(parent, name).map_err(io)?.ok_or(Errno::NOENT.into()).map_err(io)?;
        let mut new = NewSide { side: bare_side(&meta), stripped: 0, unsupported: None };
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
    /// Adds the change of a directory if the box changed it. Returns `true` if its content must be
    /// skipped.
    fn directory(&mut self, path: RelPath, mut new: NewSide) -> Result<bool, SealError> {
        let known = self.earlier.known(&path).cloned();
        let below = self.lower_entry(&path)?;
        let nothing = match &known {
            Some(known) => known.side.is_none(),
            None => matches!(below, LowerEntry::Nothing) || self.earlier.hides(&path),
        };
        let old = match below {
            LowerEntry::Nothing | LowerEntry::Is(_) if nothing => {
                let stop = new.unsupported.is_some();
                let change = self.change(path, ChangeKind::Added, None, Some(new));
                self.push(change)?;
                return Ok(stop);
            }
            LowerEntry::Nothing => None,
            LowerEntry::OtherMount => {
                new.unsupported = Some(Unsupported::OtherFileSystem);
                let change = self.change(path, ChangeKind::Modified, None, Some(new));
                self.push(change)?;
                return Ok(true);
            }
            LowerEntry::Is(meta) => Some(meta),
        };
        let was = known.as_ref().and_then(|known| known.side.as_ref());
        let was = was.map(|side| (side.kind, side.mode)).or(old.map(|meta| (meta.kind, meta.mode)));
        let kind = if let Some((FileKind::Directory, mode)) = was {
            let is_there = old.is_some_and(|meta| meta.kind == FileKind::Directory);
            if is_there && !self.can_read_lower_dir(&path) {
                new.unsupported = Some(Unsupported::Unreadable);
            }
            // The setgid and sticky bits of a directory are the host's.
            if mode & 0o777 == new.side.mode && new.unsupported.is_none() {
                let host = old.map(|meta| meta.identity);
                let side = Side { mode, ..new.side };
                self.same.push(StartState { path, side: Some(side), base: None, host });
                return Ok(false);
            }
            ChangeKind::ModeChanged
        } else {
            ChangeKind::TypeChanged
        };
        let stop = new.unsupported.is_some();
        let old = match (known, old) {
            (Some(known), _) => OldSide::from_known(known),
            (None, Some(meta)) => {
                let (parent, _) = path.split().unwrap_or((RelPath::root(), b""));
                let Some(parent) = self.lower_dir(&parent)? else { return Ok(stop) };
                Some(self.read_old_side(parent.as_fd(), &path, meta, Keep::Copy)?)
            }
            (None, None) => None,
        };
        let change = self.change(path, kind, old, Some(new));
        self.push(change)?;
        Ok(stop)
    }

    /// Returns whether this user can list and search the user's directory at `path`. The box can
    /// change modes in its own layer and so can have more access.
    fn can_read_lower_dir(&self, path: &RelPath) -> bool {
        let looked = at::dir(self.layers.lower(), path).and_then(|fd| at::stat(&fd, b"."));
        looked.is_ok_and(|meta| meta.is_some())
    }

    /// Compares a file, link or special file with the host.
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
        let left = self.read_upper_entry(upper, &path, &meta, cover)?;
        if let Some(known) = self.earlier.known(&path).cloned() {
            return self.leaf_after_restart(path, (meta, left), known, under);
        }
        let under = under.filter(|_| !self.earlier.hides(&path));
        let new = match (left, under) {
            (UpperEntry::Whiteout, None) => {
                self.same.push(StartState { path, side: None, base: None, host: None });
                return Ok(());
            }
            (UpperEntry::Whiteout, Some((dir, old))) => {
                return deleted::delete(self, dir, path, old);
            }
            (UpperEntry::Present(new), _) => new,
        };
        let Some((dir, old)) = under else {
            let change = self.change(path, ChangeKind::Added, None, Some(new));
            return self.push(change);
        };
        if old.kind == FileKind::Directory {
            deleted::delete_beneath(self, dir, &path)?;
        }
        let may_be_equal = old.kind == new.side.kind && old.size() == new.side.size;
        let keep = if may_be_equal { Keep::Hash } else { Keep::Copy };
        let mut read = self.read_old_side(dir, &path, old, keep)?;
        if may_be_equal && old.kind == FileKind::File && !is_same_content(&read, &new) {
            read = self.read_old_side(dir, &path, old, Keep::Copy)?;
        }
        self.compare(path, read, (meta, new))
    }

    /// Compares a file, link or special file that the upper layer had before a restart. Its
    /// original is the file from the first start, even if the host changed it since.
    fn leaf_after_restart(
        &mut self,
        path: RelPath,
        (meta, left): (Meta, UpperEntry),
        known: StartState,
        under: Option<(BorrowedFd<'_>, Meta)>,
    ) -> Result<(), SealError> {
        match (left, OldSide::from_known(known.clone())) {
            (UpperEntry::Whiteout, None) => {
                self.same.push(known);
                Ok(())
            }
            (UpperEntry::Whiteout, Some(old)) => match under {
                Some((dir, meta)) => deleted::delete(self, dir, path, meta),
                None => {
                    let change = self.change(path, ChangeKind::Deleted, Some(old), None);
                    self.push(change)
                }
            },
            (UpperEntry::Present(new), None) => {
                let change = self.change(path, ChangeKind::Added, None, Some(new));
                self.push(change)
            }
            (UpperEntry::Present(new), Some(old)) => {
                let is_dir = |kind| kind == FileKind::Directory;
                let replaced = under.filter(|(_, meta)| is_dir(meta.kind) && is_dir(old.side.kind));
                if let Some((dir, _)) = replaced {
                    deleted::delete_beneath(self, dir, &path)?;
                }
                self.compare(path, old, (meta, new))
            }
        }
    }

    fn compare(
        &mut self,
        path: RelPath,
        old: OldSide,
        (upper, new): (Meta, NewSide),
    ) -> Result<(), SealError> {
        let kind = if old.side.kind != new.side.kind {
            ChangeKind::TypeChanged
        } else if !is_same_content(&old, &new) {
            ChangeKind::Modified
        } else if old.side.mode == upper.mode || new.side.kind == FileKind::Symlink {
            self.same.push(old.into_same(path));
            return Ok(());
        } else {
            ChangeKind::ModeChanged
        };
        let change = self.change(path, kind, Some(old), Some(new));
        self.push(change)
    }

    /// Returns whether the host's directory is hidden by an opaque directory of the upper layer. A
    /// directory created inside an opaque one has no mark of its own.
    fn is_opaque(&mut self, path: &RelPath, cover: Cover) -> bool {
        self.opaque.retain(|top| path.is_within(top));
        if cover == Cover::Opaque {
            self.opaque.push(path.clone());
            self.all_opaque.push(path.clone());
        }
        !self.opaque.is_empty()
    }

    /// Records the host's entries that an opaque directory hides as deleted.
    fn delete_uncovered(
        &mut self,
        lower: BorrowedFd<'_>,
        path: &RelPath,
        names: &[Name],
    ) -> Result<(), SealError> {
        let io = |source| SealError::Lower { path: path.clone(), source };
        let held: HashSet<&[u8]> = names.iter().map(Vec::as_slice).collect();
        for name in at::names(lower, self.limits.entries).map_err(io)? {
            if held.contains(name.as_slice()) {
                continue;
            }
            let Ok(child) = path.join(&name) else {
                self.push_too_long(path.clone());
                continue;
            };
            if let Some(meta) = at::stat(lower, &name).map_err(io)? {
                deleted::delete(self, lower, child, meta)?;
            }
        }
        Ok(())
    }

    fn lower_entry(&self, path: &RelPath) -> Result<LowerEntry, SealError> {
        match at::handle(self.layers.lower(), path.as_bytes()) {
            Ok((_, meta)) => Ok(LowerEntry::Is(meta)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(LowerEntry::Nothing),
                Some(Errno::XDEV) => Ok(LowerEntry::OtherMount),
                _ => Err(SealError::Lower { path: path.clone(), source: error }),
            },
        }
    }

    /// Opens the user's directory at `path`, if it is a real directory.
    fn lower_dir(&self, path: &RelPath) -> Result<Option<OwnedFd>, SealError> {
        match at::dir(self.layers.lower(), path) {
            Ok(fd) => Ok(Some(fd)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
                _ => Err(SealError::Lower { path: path.clone(), source: error }),
            },
        }
    }

    /// Records whether git would treat `path`, as the box left it, as a repository (threat C05).
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

fn is_same_content(old: &OldSide, new: &NewSide) -> bool {
    let (old, new) = (&old.side, &new.side);
    match new.kind {
        FileKind::File => old.hash.is_some() && old.hash == new.hash,
        FileKind::Symlink => old.target == new.target,
        // These have no content to compare.
        FileKind::Fifo | FileKind::Socket => true,
        FileKind::Directory | FileKind::Device => false,
    }
}

/// Converts the path of a walk, which enters only directories with valid paths.
pub(super) fn walked_path(path: &[u8]) -> RelPath {
    RelPath::new(path).expect("the walk enters only directories with valid paths")
}

impl From<WalkError> for SealError {
    fn from(error: WalkError) -> Self {
        match error {
            WalkError::Io { path, source } => Self::Upper { path: walked_path(&path), source },
            WalkError::Moved { path } => Self::Moved { path: walked_path(&path) },
        }
    }
}
