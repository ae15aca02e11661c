//! Files by descriptor: the few calls with which the host touches what a box wrote.
//!
//! **Invariant:** no function here follows a symbolic link, leaves the directory it was given,
//! crosses a mount or blocks on a pipe. Callers hold directories, not path strings, so a name that
//! is swapped between two calls changes what is found, never where it is looked for.

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

/// One name in a directory.
pub(crate) type Name = Vec<u8>;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// `NONBLOCK` because a pipe that took the file's place would otherwise hold us for ever.
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

/// Opens a directory that the caller names, not the box: links on the way are the user's own.
pub(crate) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The directory that holds what the caller names.
pub(crate) fn open_parent_of(path: &Path) -> io::Result<OwnedFd> {
    open_root(path.parent().ok_or(io::ErrorKind::InvalidInput)?)
}

/// The last part of a path that the caller names.
pub(crate) fn last_name(path: &Path) -> io::Result<&[u8]> {
    Ok(path.file_name().ok_or(io::ErrorKind::InvalidInput)?.as_bytes())
}

/// The directory at `path` beneath `root`.
pub(crate) fn dir(root: impl AsFd, path: &RelPath) -> io::Result<OwnedFd> {
    let name = if path.is_root() { OsStr::new(".") } else { path.as_os_str() };
    open(root, name, DIRECTORY)
}

/// The directory `name` in `parent`.
pub(crate) fn child_dir(parent: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    open(parent, OsStr::from_bytes(name), DIRECTORY)
}

/// The directory above `child`. The caller compares inodes: `child` may have been moved.
pub(crate) fn parent_dir(child: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(child, "..", HANDLE | OFlags::DIRECTORY, Mode::empty())?)
}

/// A handle on `name` that can be looked at and compared but not read.
pub(crate) fn handle(parent: impl AsFd, name: &[u8]) -> io::Result<(OwnedFd, Meta)> {
    let fd = open(parent, OsStr::from_bytes(name), HANDLE)?;
    let meta = meta(&fd)?;
    Ok((fd, meta))
}

/// The regular file `name` in `parent`, for reading.
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

/// A new file that nobody else has. The caller gives it its final mode when it is whole.
pub(crate) fn create(parent: impl AsFd, name: &[u8], mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = OsStr::from_bytes(name);
    Ok(rustix::fs::openat2(parent, name, flags, Mode::from_raw_mode(mode), BENEATH)?)
}

pub(crate) fn meta(fd: impl AsFd) -> io::Result<Meta> {
    Ok(rustix::fs::fstat(fd)?.into())
}

/// What `name` is, or `None` where there is nothing.
pub(crate) fn stat(parent: impl AsFd, name: &[u8]) -> io::Result<Option<Meta>> {
    match rustix::fs::statat(parent, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

pub(crate) fn read_link(parent: impl AsFd, name: &[u8]) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlinkat(parent, OsStr::from_bytes(name), Vec::new())?.into_bytes())
}

/// All names in the directory, `.` and `..` left out. Reading stops soon after `limit`, so more
/// than that many means "too many".
pub(crate) fn names(dir: impl AsFd, limit: usize) -> io::Result<Vec<Name>> {
    let mut all = Vec::new();
    loop {
        let mut some = some_names(dir.as_fd())?;
        if some.is_empty() || all.len() > limit {
            return Ok(all);
        }
        all.append(&mut some);
    }
}

/// The next few names, reading on from where the last call on this descriptor ended; none at the
/// end.
pub(crate) fn some_names(dir: impl AsFd) -> io::Result<Vec<Name>> {
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

/// Starts reading the directory from its beginning again.
pub(crate) fn rewind(dir: impl AsFd) -> io::Result<()> {
    rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0))?;
    Ok(())
}

/// The value of an extended attribute, or `None` where there is none or the file system has none.
pub(crate) fn xattr(fd: impl AsFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    // Every attribute of overlayfs that we read is shorter; a longer one is not what we ask for.
    let mut value = [0_u8; 256];
    match rustix::fs::fgetxattr(fd, name, &mut value[..]) {
        Ok(len) => Ok(value.get(..len).map(<[u8]>::to_vec)),
        Err(Errno::RANGE) => Ok(Some(value.to_vec())),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes a name that is not a directory.
pub(crate) fn unlink(parent: impl AsFd, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(parent, OsStr::from_bytes(name), AtFlags::empty())?)
}

/// Removes an empty directory.
pub(crate) fn rmdir(parent: impl AsFd, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(parent, OsStr::from_bytes(name), AtFlags::REMOVEDIR)?)
}

/// Creates a directory, where nothing may be yet.
pub(crate) fn mkdir(parent: impl AsFd, name: &[u8], mode: u32) -> io::Result<()> {
    Ok(rustix::fs::mkdirat(parent, OsStr::from_bytes(name), Mode::from_raw_mode(mode))?)
}

/// Moves a name, replacing what stood there.
pub(crate) fn rename(from: impl AsFd, old: &[u8], to: impl AsFd, new: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::renameat(from, OsStr::from_bytes(old), to, OsStr::from_bytes(new))?)
}

/// Moves a name to where nothing may be yet.
pub(crate) fn rename_new(from: impl AsFd, old: &[u8], to: impl AsFd, new: &[u8]) -> io::Result<()> {
    let (old_name, new_name) = (OsStr::from_bytes(old), OsStr::from_bytes(new));
    let flags = RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(from.as_fd(), old_name, to.as_fd(), new_name, flags) {
        Err(errno) if is_unsupported(errno) => link_then_unlink(from, old, to, new),
        done => Ok(done?),
    }
}

/// What stands in for [`rename_new`] where the file system has no such rename: link(2) never replaces
/// anything either. A directory cannot be linked, but a rename replaces only an empty one with it.
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

/// renameat2(2) says EINVAL where the file system does not know the flag.
fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Swaps two names of one directory in one step; `Unsupported` where the file system cannot.
pub(crate) fn exchange(dir: impl AsFd, one: &[u8], other: &[u8]) -> io::Result<()> {
    let (one, other) = (OsStr::from_bytes(one), OsStr::from_bytes(other));
    match rustix::fs::renameat_with(dir.as_fd(), one, dir.as_fd(), other, RenameFlags::EXCHANGE) {
        // EXDEV: overlayfs, for a directory that is still in a lower layer.
        Err(errno) if is_unsupported(errno) || errno == Errno::XDEV => {
            Err(io::ErrorKind::Unsupported.into())
        }
        done => Ok(done?),
    }
}

/// Changes the mode of exactly the file behind `fd`, which may be a bare handle.
pub(crate) fn chmod(fd: impl AsFd, mode: u32) -> io::Result<()> {
    // fchmod(2) refuses O_PATH descriptors; the link in /proc leads to the inode, not to a name.
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    Ok(rustix::fs::chmod(link, Mode::from_raw_mode(mode))?)
}

fn open(root: impl AsFd, path: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    // openat2(2): EAGAIN when a rename raced with the lookup; the kernel asks us to try again.
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

    /// A directory with a file, a link, a directory and something in the way of each.
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
    fn a_rename_to_a_new_name_never_replaces_with_or_without_the_kernels_help() {
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
    fn c10_no_call_goes_through_a_link_or_out_of_its_directory() {
        let (dir, fd) = fixture();
        std::os::unix::fs::symlink("/etc", dir.path().join("out")).unwrap();
        fs::create_dir(dir.path().join("dir/sub")).unwrap();
        std::os::unix::fs::symlink("dir", dir.path().join("inside")).unwrap();
        fs::write(dir.path().join("dir/f"), "").unwrap();
        let path = |text: &str| RelPath::new(text).unwrap();
        assert!(super::dir(&fd, &path("dir/sub")).is_ok());
        assert!(super::dir(&fd, &path("out")).is_err());
        assert!(super::dir(&fd, &path("out/ssl")).is_err());
        assert!(super::dir(&fd, &path("inside/sub")).is_err(), "not even where it stays inside");
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
    fn c23_a_pipe_in_place_of_a_file_does_not_block() {
        let (_dir, fd) = fixture();
        rustix::fs::mknodat(&fd, "pipe", rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(file(&fd, b"pipe").is_err());
    }
}
