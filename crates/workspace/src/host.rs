//! What the user's directory holds right now at the path of each change.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::at;
use crate::change::{Base, Change, Changes, Side, Target};
use crate::content::{self, ContentHash};
use crate::meta::{FileKind, Identity};
use crate::path::RelPath;

/// What was found for every entry of `changes`, in its order.
#[derive(Debug)]
pub struct Observed<'c> {
    pub(crate) changes: &'c Changes,
    pub(crate) seen: Vec<Seen>,
}

/// What is at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Absent,
    /// A directory above it is not there.
    NoParent,
    /// Something on the way is not a directory that we would go through.
    Blocked(Blocked),
    Here(Here),
}

/// What stands on the way to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    NotDirectory,
    Symlink,
    OtherFileSystem,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Here {
    pub kind: FileKind,
    pub mode: u32,
    pub identity: Identity,
    /// It has other names too, here or anywhere on its file system.
    pub shared: bool,
    /// Known when it could matter: when this may be what the box started from, or what it left.
    pub hash: Option<ContentHash>,
    pub target: Option<Target>,
}

/// A host path could not be looked at.
#[derive(Debug, thiserror::Error)]
#[error("look at {path:?} in the workspace")]
pub struct ObserveError {
    pub path: RelPath,
    pub source: io::Error,
}

pub(crate) fn observe<'c>(
    lower: BorrowedFd<'_>,
    changes: &'c Changes,
) -> Result<Observed<'c>, ObserveError> {
    // Neighbours share a directory, so the last one is kept open.
    let mut last: Option<(RelPath, Result<OwnedFd, Seen>)> = None;
    let mut seen = Vec::with_capacity(changes.entries().len());
    for change in changes.entries() {
        let fail = |source| ObserveError { path: change.path.clone(), source };
        let (parent, name) = change.path.split().unwrap_or((RelPath::root(), b"."));
        if last.as_ref().is_none_or(|(path, _)| *path != parent) {
            let opened = open_parent(lower, &parent).map_err(fail)?;
            last = Some((parent, opened));
        }
        seen.push(match &last {
            Some((_, Ok(dir))) => look(dir, name, change).map_err(fail)?,
            Some((_, Err(seen))) => seen.clone(),
            None => Seen::NoParent,
        });
    }
    Ok(Observed { changes, seen })
}

/// Opens the directory that holds a change, or says what is there instead.
pub(crate) fn open_parent(
    lower: BorrowedFd<'_>,
    parent: &RelPath,
) -> io::Result<Result<OwnedFd, Seen>> {
    match at::dir(lower, parent) {
        Ok(dir) => Ok(Ok(dir)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Ok(Err(Seen::NoParent)),
            // A link at the very end is not followed and then found to be no directory.
            Some(Errno::NOTDIR) => {
                Ok(Err(Seen::Blocked(match at::handle(lower, parent.as_bytes()) {
                    Ok((_, meta)) if meta.kind == FileKind::Symlink => Blocked::Symlink,
                    Ok(_) | Err(_) => Blocked::NotDirectory,
                })))
            }
            Some(Errno::LOOP) => Ok(Err(Seen::Blocked(Blocked::Symlink))),
            Some(Errno::XDEV) => Ok(Err(Seen::Blocked(Blocked::OtherFileSystem))),
            _ => Err(error),
        },
    }
}

fn look(dir: &OwnedFd, name: &[u8], change: &Change) -> io::Result<Seen> {
    let Some(meta) = at::stat(dir, name)? else { return Ok(Seen::Absent) };
    let mut here = Here {
        kind: meta.kind,
        mode: meta.mode,
        identity: meta.identity,
        shared: meta.is_shared(),
        hash: None,
        target: None,
    };
    match meta.kind {
        FileKind::Symlink => match at::read_link(dir, name) {
            Ok(target) => here.target = Some(Target(target)),
            // Replaced since; the executor will notice.
            Err(_) => return Ok(Seen::Here(here)),
        },
        FileKind::File
            if change.host != Some(meta.identity) && could_match(change, meta.size()) =>
        {
            here.hash = hash(dir, name, meta.size());
        }
        FileKind::File
        | FileKind::Directory
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::Device => {}
    }
    Ok(Seen::Here(here))
}

/// A file of another size is surely neither side, and need not be read.
fn could_match(change: &Change, size: u64) -> bool {
    [&change.old, &change.new].into_iter().flatten().any(|side| side.size == size)
}

fn hash(dir: &OwnedFd, name: &[u8], limit: u64) -> Option<ContentHash> {
    let (fd, _) = at::file(dir, name).ok()?;
    content::summarize(&mut File::from(fd), limit).ok().map(|summary| summary.hash)
}

impl Here {
    /// Whether this holds exactly what the box left, whatever its mode.
    pub(crate) fn holds(&self, side: &Side) -> bool {
        self.kind == side.kind
            && match side.kind {
                FileKind::Directory => true,
                FileKind::File => self.hash.is_some() && self.hash == side.hash,
                FileKind::Symlink => self.target.is_some() && self.target == side.target,
                FileKind::Fifo | FileKind::Socket | FileKind::Device => false,
            }
    }

    /// Whether this is surely still what the box started from.
    pub(crate) fn is_original(&self, change: &Change) -> bool {
        let Some(old) = &change.old else { return false };
        match change.base {
            None => self.kind == old.kind,
            Some(Base::Unknown) => false,
            Some(Base::IdentityOnly) => change.host == Some(self.identity),
            Some(Base::Kept | Base::HashOnly) => {
                change.host == Some(self.identity) || self.holds(old)
            }
        }
    }
}
