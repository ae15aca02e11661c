//! File operations by descriptor, for files that a box wrote.
//!
//! **Invariant:** no function follows a symbolic link, leaves its directory, crosses a mount or
//! blocks on a pipe. Callers hold directory descriptors, not path strings. If a name is swapped
//! between two calls, the second call sees another file, but in the same directory.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use crate::meta::{FileKind, Meta};
use crate::path::RelPath;

/// The name of one directory entry.
pub(crate) type Name = Vec<u8>;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The flags to open a file for reading without following links or blocking. `NONBLOCK` because
/// opening a pipe in place of the file would block forever.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Opens the directory at a path from the caller, which can contain symbolic links. Symbolic links
/// are followed because the user made them.
pub(crate) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens the parent directory of a path from the caller.
pub(crate) fn open_parent_of(path: &Path) -> io::Result<OwnedFd> {
    open_root(path.parent().ok_or(io::ErrorKind::InvalidInput)?)
}

/// Returns the last component of a path from the caller.
pub(crate) fn last_name(path: &Path) -> io::Result<&[u8]> {
    Ok(path.file_name().ok_or(io::ErrorKind::InvalidInput)?.as_bytes())
}

/// Opens the directory at `path` beneath `root`.
pub(crate) fn dir(root: impl AsFd, path: &RelPath) -> io::Result<OwnedFd> {
    let name = if path.is_root() { OsStr::new(".") } else { path.as_os_str() };
    open(root, name, DIRECTORY)
}

/// Opens the directory `name` in `parent`.
pub(crate) fn child_dir(parent: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    open(parent, OsStr::from_bytes(name), DIRECTORY)
}

/// Opens the parent directory of the open directory `child`. The caller must compare inodes:
/// `child` can have been moved.
pub(crate) fn parent_dir(child: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(child, "..", HANDLE | OFlags::DIRECTORY, Mode::empty())?)
}

/// Opens `name` as an `O_PATH` handle, which gives metadata but no content.
pub(crate) fn handle(parent: impl AsFd, name: &[u8]) -> io::Result<(OwnedFd, Meta)> {
    let fd = open(parent, OsStr::from_bytes(name), HANDLE)?;
    let meta = meta(&fd)?;
    Ok((fd, meta))
}

/// Opens the regular file `name` in `parent` for reading.
pub(crate) fn file(parent: impl AsFd, name: &[u8]) -> io::Result<(OwnedFd, Meta)> {
    let fd = open(parent, OsStr::from_bytes(name), READ)?;
    let meta = meta(&fd)?;
    match meta.kind {
        FileKind::File => Ok((fd, meta)),
        FileKind::Directory
        | FileKind::Symlink
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::Device => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}

/// Creates the file `name` in `parent`; fails if the name exists. The caller sets the final mode
/// when the content is complete.
pub(crate) fn create(parent: impl AsFd, name: &[u8], mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = OsStr::from_bytes(name);
    Ok(rustix::fs::openat2(parent, name, flags, Mode::from_raw_mode(mode), BENEATH)?)
}

/// Returns the metadata of an open file.
pub(crate) fn meta(fd: impl AsFd) -> io::Result<Meta> {
    Ok(rustix::fs::fstat(fd)?.into())
}

/// Returns the metadata of the file `name` in `parent`, or `None` if it does not exist.
pub(crate) fn stat(parent: impl AsFd, name: &[u8]) -> io::Result<Option<Meta>> {
    match rustix::fs::statat(parent, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the target of the symbolic link `name`.
pub(crate) fn read_link(parent: impl AsFd, name: &[u8]) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlinkat(parent, OsStr::from_bytes(name), Vec::new())?.into_bytes())
}

/// Returns all names in a directory except `.` and `..`. Reading stops soon after `limit` names, so
/// a longer result means "too many".
pub(crate) fn names(dir: impl AsFd, limit: usize) -> io::Result<Vec<Name>> {
    let mut all = Vec::new();
    loop {
        let mut some = next_names(dir.as_fd())?;
        if some.is_empty() || all.len() > limit {
            return Ok(all);
        }
        all.append(&mut some);
    }
}

/// Returns the next batch of names in a directory, continuing after the last call on this
/// descriptor; empty at the end.
pub(crate) fn next_names(dir: impl AsFd) -> io::Result<Vec<Name>> {
    let mut buffer = [MaybeUninit::uninit(); 32 * 1024];
    let mut entries = RawDir::new(dir.as_fd(), &mut buffer);
    let mut names = Vec::new();
    while names.is_empty() || !entries.is_buffer_empty() {
        let Some(entry) = entries.next() else { break };
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Resets the reading position of a directory to its first entry.
pub(crate) fn rewind(dir: impl AsFd) -> io::Result<()> {
    rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0))?;
    Ok(())
}

/// Returns the value of an extended attribute, or `None` if it is missing or unsupported.
pub(crate) fn xattr(fd: impl AsFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    // All overlayfs attributes that we read are shorter; a longer value is never equal to an
    // expected one.
    let mut value = [0_u8; 256];
    match rustix::fs::fgetxattr(fd, name, &mut value[..]) {
        Ok(len) => Ok(value.get(..len).map(<[u8]>::to_vec)),
        Err(Errno::RANGE) => Ok(Some(value.to_vec())),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes the file or link `name` from `parent`.
pub(crate) fn unlink(parent: impl AsFd, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(parent, OsStr::from_bytes(name), AtFlags::empty())?)
}

/// Removes the empty directory `name` from `parent`.
pub(crate) fn rmdir(parent: impl AsFd, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(parent, OsStr::from_bytes(name), AtFlags::REMOVEDIR)?)
}

/// Creates the directory `name` in `parent`; fails if the name exists.
pub(crate) fn mkdir(parent: impl AsFd, name: &[u8], mode: u32) -> io::Result<()> {
    Ok(rustix::fs::mkdirat(parent, OsStr::from_bytes(name), Mode::from_raw_mode(mode))?)
}

/// Renames a file and replaces an existing target.
pub(crate) fn rename(from: impl AsFd, old: &[u8], to: impl AsFd, new: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::renameat(from, OsStr::from_bytes(old), to, OsStr::from_bytes(new))?)
}

/// Renames a file; fails if the target exists.
pub(crate) fn rename_new(from: impl AsFd, old: &[u8], to: impl AsFd, new: &[u8]) -> io::Result<()> {
    let (old_name, new_name) = (OsStr::from_bytes(old), OsStr::from_bytes(new));
    let flags = RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(from.as_fd(), old_name, to.as_fd(), new_name, flags) {
        Err(errno) if is_unsupported(errno) => link_then_unlink(from, old, to, new),
        done => Ok(done?),
    }
}

/// Implements [`rename_new`] on file systems without `RENAME_NOREPLACE`: link(2) never replaces a
/// file. A directory cannot be linked; rename(2) replaces only an empty directory with one.
fn link_then_unlink(from: impl AsFd, old: &[u8], to: impl AsFd, new: &[u8]) -> io::Result<()> {
    let (old_name, new_name) = (OsStr::from_bytes(old), OsStr::from_bytes(new));
    match rustix::fs::linkat(from.as_fd(), old_name, to.as_fd(), new_name, AtFlags::empty()) {
        Ok(()) => unlink(from, old),
        Err(Errno::PERM | Errno::OPNOTSUPP) if stat(to.as_fd(), new)?.is_none() => {
            rename(from, old, to, new)
        }
        Err(Errno::PERM | Errno::OPNOTSUPP) => Err(Errno::EXIST.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns whether the file system does not support the rename flag (EINVAL of renameat2(2)).
fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Exchanges two names of one directory atomically; fails with `Unsupported` on other file systems.
pub(crate) fn exchange(dir: impl AsFd, one: &[u8], other: &[u8]) -> io::Result<()> {
    let (one, other) = (OsStr::from_bytes(one), OsStr::from_bytes(other));
    match rustix::fs::renameat_with(dir.as_fd(), one, dir.as_fd(), other, RenameFlags::EXCHANGE) {
        // EXDEV: overlayfs, for a directory that exists only in a lower layer.
        Err(errno) if is_unsupported(errno) || errno == Errno::XDEV => {
            Err(io::ErrorKind::Unsupported.into())
        }
        done => Ok(done?),
    }
}

/// Changes the mode of the file behind `fd`, which can be an `O_PATH` handle.
pub(crate) fn chmod(fd: impl AsFd, mode: u32) -> io::Result<()> {
    // fchmod(2) refuses O_PATH descriptors. The link in /proc leads to the inode, not to a name.
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    Ok(rustix::fs::chmod(link, Mode::from_raw_mode(mode))?)
}

fn open(root: impl AsFd, path: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    // openat2(2): EAGAIN means that a rename raced with the lookup and the call should be repeated.
    for _ in 0..128 {
        match rustix::fs::openat2(root.as_fd(), path, flags, Mode::empty(), BENEATH) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
    Err(Errno::AGAIN.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Creates a directory with a file, a link, a subdirectory and an existing name `taken`.
    fn fixture() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "file").unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("dir")).unwrap();
        fs::write(dir.path().join("taken"), "taken").unwrap();
        let fd = open_root(dir.path()).unwrap();
        (dir, fd)
    }

    #[test]
    fn rename_new_never_replaces_a_file_with_or_without_kernel_support() {
        type Rename = fn(&OwnedFd, &[u8], &OwnedFd, &[u8]) -> io::Result<()>;
        let both: [Rename; 2] = [
            |from, old, to, new| rename_new(from, old, to, new),
            |from, old, to, new| link_then_unlink(from, old, to, new),
        ];
        for rename in both {
            let (dir, fd) = fixture();
            for name in ["file", "link", "dir"] {
                let error = rename(&fd, name.as_bytes(), &fd, b"taken").unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}");
                let new = format!("new-{name}");
                rename(&fd, name.as_bytes(), &fd, new.as_bytes()).unwrap();
                assert!(fs::symlink_metadata(dir.path().join(&new)).is_ok());
                assert!(fs::symlink_metadata(dir.path().join(name)).is_err());
            }
            assert_eq!(fs::read(dir.path().join("taken")).unwrap(), b"taken");
        }
    }

    #[test]
    fn c10_no_file_operation_follows_a_symbolic_link_or_leaves_its_directory() {
        let (dir, fd) = fixture();
        std::os::unix::fs::symlink("/etc", dir.path().join("out")).unwrap();
        fs::create_dir(dir.path().join("dir/sub")).unwrap();
        std::os::unix::fs::symlink("dir", dir.path().join("inside")).unwrap();
        fs::write(dir.path().join("dir/f"), "").unwrap();
        let path = |text: &str| RelPath::new(text).unwrap();
        assert!(super::dir(&fd, &path("dir/sub")).is_ok());
        assert!(super::dir(&fd, &path("out")).is_err());
        assert!(super::dir(&fd, &path("out/ssl")).is_err());
        assert!(
            super::dir(&fd, &path("inside/sub")).is_err(),
            "links inside the directory are refused too"
        );
        assert!(file(&fd, b"dir/f").is_ok() && file(&fd, b"inside/f").is_err());
        assert!(file(&fd, b"out/passwd").is_err());
        assert!(handle(&fd, b"out/passwd").is_err());
        assert!(create(&fd, b"out/x", 0o600).is_err());
        for name in [&b".."[..], b"../x", b"/etc/passwd", b"dir/../.."] {
            assert!(child_dir(&fd, name).is_err() && file(&fd, name).is_err());
        }
        assert_eq!(handle(&fd, b"out").unwrap().1.kind, FileKind::Symlink);
    }

    #[test]
    fn c23_opening_a_named_pipe_in_place_of_a_file_does_not_block() {
        let (_dir, fd) = fixture();
        rustix::fs::mknodat(&fd, "pipe", rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(file(&fd, b"pipe").is_err());
    }
}
