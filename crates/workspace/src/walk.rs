//! Walks through a directory tree of any depth and width.
//!
//! The walk does not recurse and holds a fixed number of descriptors: the nearest [`OPEN`]
//! directories above the current one stay open; others are reopened through `..` and checked by
//! inode.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use crate::at::{self, Name};

/// The number of directories that are kept open above the current one.
const OPEN: usize = 48;

/// The operations of a walk through a directory tree.
pub(crate) trait Visit {
    type Error: From<WalkError>;

    /// Reads one directory and returns the names of the subdirectories to enter.
    fn visit(&mut self, path: &[u8], dir: BorrowedFd<'_>) -> Result<Vec<Name>, Self::Error>;

    /// Opens a subdirectory that `visit` returned; `None` skips the subdirectory.
    fn open(
        &mut self,
        path: &[u8],
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<Option<OwnedFd>, Self::Error>;
}

/// Why a walk failed.
#[derive(Debug)]
pub(crate) enum WalkError {
    Io {
        path: Vec<u8>,
        source: io::Error,
    },
    /// A directory was moved during the walk, so the walk was stopped.
    Moved {
        path: Vec<u8>,
    },
}

/// A directory whose subdirectories are being visited.
struct Frame {
    fd: Option<OwnedFd>,
    inode: (u64, u64),
    pending: Vec<Name>,
    /// The length of this directory's path in bytes.
    len: usize,
}

/// Visits `root` (whose path is `top`) and every directory that the visitor enters.
pub(crate) fn walk<V: Visit>(root: OwnedFd, top: &[u8], visitor: &mut V) -> Result<(), V::Error> {
    let mut path = top.to_vec();
    let mut frames = vec![enter(root, &path, visitor)?];
    while let Some(frame) = frames.last_mut() {
        let Some(name) = frame.pending.pop() else {
            leave(&mut frames, &mut path)?;
            continue;
        };
        let parent = frame.fd.as_ref().expect("the current directory is open");
        path.truncate(frame.len);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        let Some(child) = visitor.open(&path, parent.as_fd(), &name)? else { continue };
        let child = enter(child, &path, visitor)?;
        frames.push(child);
        if let Some(far) = frames.len().checked_sub(OPEN).and_then(|at| frames.get_mut(at)) {
            far.fd = None;
        }
    }
    Ok(())
}

fn enter<V: Visit>(fd: OwnedFd, path: &[u8], visitor: &mut V) -> Result<Frame, V::Error> {
    let inode =
        at::meta(&fd).map_err(|source| WalkError::Io { path: path.to_vec(), source })?.inode();
    let pending = visitor.visit(path, fd.as_fd())?;
    Ok(Frame { fd: Some(fd), inode, pending, len: path.len() })
}

/// Moves to the parent directory and checks that it is the expected one.
fn leave(frames: &mut Vec<Frame>, path: &mut Vec<u8>) -> Result<(), WalkError> {
    let Some(Frame { fd: Some(left), .. }) = frames.pop() else { return Ok(()) };
    let Some(frame) = frames.last_mut() else { return Ok(()) };
    path.truncate(frame.len);
    if frame.fd.is_none() {
        let io = |source| WalkError::Io { path: path.clone(), source };
        let above = at::parent_dir(&left).map_err(io)?;
        if at::meta(&above).map_err(io)?.inode() != frame.inode {
            return Err(WalkError::Moved { path: path.clone() });
        }
        frame.fd = Some(above);
    }
    Ok(())
}
