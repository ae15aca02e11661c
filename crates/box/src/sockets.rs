//! Finds Unix sockets in a directory that is about to be mounted writable in a box.
//!
//! Neither a read-only mount nor Landlock (before ABI 9) prevents a program from connecting to a socket
//! below a visible path. Sockets that exist at the start of the box are hidden; sockets that the host
//! creates later are not.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags};

/// The maximum number of directory entries to search for sockets, which are usually near the top of
/// a mount.
const MAX_ENTRIES: usize = 50_000;
const MAX_DEPTH: usize = 16;

/// Returns the paths of all Unix sockets below a directory, relative to it.
pub(crate) fn beneath(place: &OwnedFd) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = MAX_ENTRIES;
    if let Some(directory) = open(place.as_fd(), Path::new(".")) {
        search(&directory, Path::new(""), MAX_DEPTH, &mut left, &mut found);
    }
    found
}

fn search(
    directory: &OwnedFd,
    at: &Path,
    depth: usize,
    left: &mut usize,
    found: &mut Vec<PathBuf>,
) {
    let Ok(entries) = Dir::read_from(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if *left == 0 || depth == 0 {
            return;
        }
        *left -= 1;
        let path = at.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name));
        if entry.file_type() == FileType::Socket {
            found.push(path);
        } else if entry.file_type() == FileType::Directory
            && let Some(inner) =
                open(directory.as_fd(), Path::new(path.file_name().unwrap_or_default()))
        {
            search(&inner, &path, depth - 1, left, found);
        }
    }
}

fn open(parent: std::os::fd::BorrowedFd<'_>, name: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty()).ok()
}
