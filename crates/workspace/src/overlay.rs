//! Reads the attributes that overlayfs writes to an upper layer (mounted with `userxattr`).
//!
//! See Documentation/filesystems/overlayfs.rst. Our mounts disable `redirect_dir` and `metacopy`,
//! and a box cannot set these attributes through the mount. An entry that has one was made in
//! another way and is refused. The other `user.overlay.*` attributes are internal to the kernel.

use std::io;
use std::os::fd::AsFd;

use crate::at;
use crate::change::Unsupported;

const OPAQUE: &str = "user.overlay.opaque";
const REDIRECT: &str = "user.overlay.redirect";
const METACOPY: &str = "user.overlay.metacopy";
const WHITEOUT: &str = "user.overlay.whiteout";

/// How a directory of the upper layer combines with the lower directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cover {
    /// The entries of the lower directory are visible in the box.
    Merge,
    /// The lower directory is hidden (`opaque = "y"`).
    Opaque,
    /// The lower directory is visible, and empty files can be whiteouts (`opaque = "x"`).
    MergeWithMarks,
}

/// Returns how the open directory `dir` of the upper layer combines with the lower directory.
pub(crate) fn cover(dir: impl AsFd) -> io::Result<Cover> {
    Ok(match at::xattr(dir, OPAQUE)?.as_deref() {
        Some(b"y") => Cover::Opaque,
        Some(b"x") => Cover::MergeWithMarks,
        Some(_) | None => Cover::Merge,
    })
}

/// Returns why an open file or directory of the upper layer is refused, if it has a forbidden
/// attribute.
pub(crate) fn refuse(fd: impl AsFd) -> io::Result<Option<Unsupported>> {
    if at::xattr(fd.as_fd(), REDIRECT)?.is_some() {
        return Ok(Some(Unsupported::Redirect));
    }
    Ok(at::xattr(fd.as_fd(), METACOPY)?.map(|_| Unsupported::Metacopy))
}

/// Returns whether an empty file of the upper layer is marked as a whiteout.
pub(crate) fn is_marked_whiteout(fd: impl AsFd) -> io::Result<bool> {
    Ok(at::xattr(fd, WHITEOUT)?.is_some())
}
