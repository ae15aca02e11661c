//! Inspects the current state of the user's directory at the path of each change.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::at;
use crate::change::{Base, Change, Changes, LinkTarget, Side};
use crate::content::{self, ContentHash};
use crate::meta::{FileKind, Identity};
use crate::path::RelPath;

/// The current state of the host for every entry of `changes`, in the same order.
#[derive(Debug)]
pub struct Observed<'c> {
    pub(crate) changes: &'c Changes,
    pub(crate) states: Vec<HostState>,
}

/// The current state of one changed path on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostState {
    Absent,
    /// A parent directory of the path is missing.
    NoParent,
    /// A parent of the path is not a directory that can be entered.
    Blocked(Blocked),
    Present(HostFile),
}

/// The reason why a parent directory of a path cannot be entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    NotDirectory,
    Symlink,
    OtherFileSystem,
}

/// A file on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostFile {
    pub kind: FileKind,
    pub mode: u32,
    pub identity: Identity,
    /// Whether the file has further hard links.
    pub shared: bool,
    /// The hash of the host's file; only computed if it can be the original or the box's version.
    pub hash: Option<ContentHash>,
    pub target: Option<LinkTarget>,
}

/// The error for a path in the user's directory that cannot be inspected.
#[derive(Debug, thiserror::Error)]
#[error("cannot inspect {path:?} in the workspace")]
pub struct ObserveError {
    pub path: RelPath,
    pub source: io::Error,
}

/// Inspects the current state of the host at the path of every change.
pub(crate) fn observe<'c>(
    lower: BorrowedFd<'_>,
    changes: &'c Changes,
) -> Result<Observed<'c>, ObserveError> {
    // Adjacent entries are often in the same directory, so the last directory stays open.
    let mut last: Option<(RelPath, Result<OwnedFd, HostState>)> = None;
    let mut states = Vec::with_capacity(changes.entries().len());
    for change in changes.entries() {
        let fail = |source| ObserveError { path: change.path.clone(), source };
        let (parent, name) = change.path.split().unwrap_or((RelPath::root(), b"."));
        if last.as_ref().is_none_or(|(path, _)| *path != parent) {
            let opened = open_parent(lower, &parent).map_err(fail)?;
            last = Some((parent, opened));
        }
        states.push(match &last {
            Some((_, Ok(dir))) => inspect(dir, name, change).map_err(fail)?,
            Some((_, Err(state))) => state.clone(),
            None => HostState::NoParent,
        });
    }
    Ok(Observed { changes, states })
}

/// Opens the parent directory of a change; the inner error is the state of the path if that fails.
pub(crate) fn open_parent(
    lower: BorrowedFd<'_>,
    parent: &RelPath,
) -> io::Result<Result<OwnedFd, HostState>> {
    match at::dir(lower, parent) {
        Ok(dir) => Ok(Ok(dir)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Ok(Err(HostState::NoParent)),
            // A link as the last component is not followed and gives ENOTDIR.
            Some(Errno::NOTDIR) => {
                Ok(Err(HostState::Blocked(match at::handle(lower, parent.as_bytes()) {
                    Ok((_, meta)) if meta.kind == FileKind::Symlink => Blocked::Symlink,
                    Ok(_) | Err(_) => Blocked::NotDirectory,
                })))
            }
            Some(Errno::LOOP) => Ok(Err(HostState::Blocked(Blocked::Symlink))),
            Some(Errno::XDEV) => Ok(Err(HostState::Blocked(Blocked::OtherFileSystem))),
            _ => Err(error),
        },
    }
}

fn inspect(dir: &OwnedFd, name: &[u8], change: &Change) -> io::Result<HostState> {
    let Some(meta) = at::stat(dir, name)? else { return Ok(HostState::Absent) };
    let mut found = HostFile {
        kind: meta.kind,
        mode: meta.mode,
        identity: meta.identity,
        shared: meta.is_shared(),
        hash: None,
        target: None,
    };
    match meta.kind {
        FileKind::Symlink => match at::read_link(dir, name) {
            Ok(target) => found.target = Some(LinkTarget(target)),
            // The link was replaced in the meantime; the executor will notice.
            Err(_) => return Ok(HostState::Present(found)),
        },
        FileKind::File
            if change.host != Some(meta.identity) && could_match(change, meta.size()) =>
        {
            found.hash = hash(dir, name, meta.size());
        }
        FileKind::File
        | FileKind::Directory
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::Device => {}
    }
    Ok(HostState::Present(found))
}

/// Returns whether a file of this size can be the original or the box's version of a change. Other
/// files need not be read.
fn could_match(change: &Change, size: u64) -> bool {
    [&change.old, &change.new].into_iter().flatten().any(|side| side.size == size)
}

fn hash(dir: &OwnedFd, name: &[u8], limit: u64) -> Option<ContentHash> {
    let (fd, _) = at::file(dir, name).ok()?;
    content::summarize(&mut File::from(fd), limit).ok().map(|summary| summary.hash)
}

impl HostFile {
    /// Returns whether the host's file has the content of this version. The mode is ignored.
    pub(crate) fn holds(&self, side: &Side) -> bool {
        self.kind == side.kind
            && match side.kind {
                FileKind::Directory => true,
                FileKind::File => self.hash.is_some() && self.hash == side.hash,
                FileKind::Symlink => self.target.is_some() && self.target == side.target,
                FileKind::Fifo | FileKind::Socket | FileKind::Device => false,
            }
    }

    /// Returns whether the host's file is certainly the original that the box started from.
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
