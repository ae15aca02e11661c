//! A walk through a tree that may be as deep and as wide as a box could make it.
//!
//! No recursion and a fixed number of open descriptors: the nearest [`OPEN`] directories above the
//! current one stay open, farther ones are found again through `..` and recognised by their inode.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use crate::at::{self, Name};

/// Directories kept open above the current one.
const OPEN: usize = 48;

/// What is done in each directory of a walk.
pub(crate) trait Visit {
    type Error: From<WalkError>;

    /// Looks at one directory and names the children to go into.
    fn visit(&mut self, path: &[u8], dir: BorrowedFd<'_>) -> Result<Vec<Name>, Self::Error>;

    /// Opens a child that `visit` named; `None` leaves it out.
    fn open(
        &mut self,
        path: &[u8],
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<Option<OwnedFd>, Self::Error>;
}

/// How a walk itself can fail.
#[derive(Debug)]
pub(crate) enum WalkError {
    Io {
        path: Vec<u8>,
        source: io::Error,
    },
    /// A directory was moved away while we were inside it.
    Moved {
        path: Vec<u8>,
    },
}

struct Frame {
    fd: Option<OwnedFd>,
    inode: (u64, u64),
    pending: Vec<Name>,
    /// Length of this directory's path.
    len: usize,
}

/// Visits `root` (whose path is `top`) and everything that the visitor goes into.
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

/// Goes up one directory, which must be the one we came from.
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
