//! The marks that overlayfs leaves in an upper layer (mounted with `userxattr`).
//!
//! See Documentation/filesystems/overlayfs.rst. `redirect_dir` and `metacopy` are off when we mount,
//! and a box cannot set these attributes through the mount, so an entry that has one was made some
//! other way and is refused. The rest of `user.overlay.*` is the kernel's own bookkeeping.

use std::io;
use std::os::fd::AsFd;

use crate::at;
use crate::change::Unsupported;

const OPAQUE: &str = "user.overlay.opaque";
const REDIRECT: &str = "user.overlay.redirect";
const METACOPY: &str = "user.overlay.metacopy";
const WHITEOUT: &str = "user.overlay.whiteout";

/// How a directory of the upper layer covers the one below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cover {
    /// What is below shows through.
    Merge,
    /// What is below is gone (`opaque = "y"`).
    Opaque,
    /// What is below shows through, and empty files may be whiteouts (`opaque = "x"`).
    MergeWithMarks,
}

/// How the open directory `dir` covers what is below it.
pub(crate) fn cover(dir: impl AsFd) -> io::Result<Cover> {
    Ok(match at::xattr(dir, OPAQUE)?.as_deref() {
        Some(b"y") => Cover::Opaque,
        Some(b"x") => Cover::MergeWithMarks,
        Some(_) | None => Cover::Merge,
    })
}

/// Why the open file or directory cannot be what a box left.
pub(crate) fn refuse(fd: impl AsFd) -> io::Result<Option<Unsupported>> {
    if at::xattr(fd.as_fd(), REDIRECT)?.is_some() {
        return Ok(Some(Unsupported::Redirect));
    }
    Ok(at::xattr(fd.as_fd(), METACOPY)?.map(|_| Unsupported::Metacopy))
}

/// Whether an empty file is marked as a whiteout.
pub(crate) fn is_marked_whiteout(fd: impl AsFd) -> io::Result<bool> {
    Ok(at::xattr(fd, WHITEOUT)?.is_some())
}
