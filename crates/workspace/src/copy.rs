//! Copies a directory tree of a box with owners, modes, times, overlay attributes and holes.
//!
//! The tree can be hostile and can change during the copy. No link is followed, both trees are held
//! by descriptor, depth costs neither stack nor descriptors, and blocks are shared if the file
//! system supports it. The copy never contains hard links to the source: a later write to one tree
//! must not change the other. Hard links within the tree are kept.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use crate::at::{self, Name};
use crate::content;
use crate::meta::{FileKind, Meta};
use crate::tree::UpperFile;

/// The number of directories that are kept open above the current one.
const OPEN: usize = 24;
/// The maximum size of a list of attribute names and of an attribute value, in bytes.
const ATTRIBUTE: usize = 64 * 1024;

/// The name of the upper layer in a run directory and in an image.
const UPPER: &[u8] = b"upper";
/// The name of an upper layer that is not yet complete.
const INCOMPLETE: &[u8] = b"upper.new";

/// The numbers of copied and skipped files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copied {
    pub entries: u64,
    /// Sockets and devices. They are useless without the process or driver behind them.
    pub left_out: u64,
}

/// The reason why a directory tree could not be copied. The partial copy stays.
#[derive(Debug, thiserror::Error)]
#[error("cannot copy `{}`", belljar_model::display::safe(path))]
pub struct CopyError {
    pub path: Vec<u8>,
    pub source: io::Error,
}

/// Copies the directory `from` to `to`, which must not exist, and syncs it to disk.
pub fn copy_tree(from: &Path, to: &Path) -> Result<Copied, CopyError> {
    let fail = |source| CopyError { path: from.as_os_str().as_bytes().to_vec(), source };
    let opened = || -> io::Result<(OwnedFd, OwnedFd)> {
        let source = open_readable(&at::open_parent_of(from)?, at::last_name(from)?)?;
        let above = at::open_parent_of(to)?;
        at::mkdir(&above, at::last_name(to)?, 0o700)?;
        Ok((source, at::child_dir(&above, at::last_name(to)?)?))
    };
    let (source, target) = opened().map_err(fail)?;
    let copied = copy(source, &target)?;
    rustix::fs::syncfs(&target).map_err(|errno| fail(errno.into()))?;
    Ok(copied)
}

/// Copies the upper layer from the image of a run, whose root is `image`, to the run directory, unless it is
/// there already. The copy has another name until it is complete, so an interrupted copy can be repeated.
/// Nothing is synced to disk, as for a layer without an image.
pub fn take_upper(image: BorrowedFd<'_>, run_dir: &Path) -> Result<Copied, CopyError> {
    let fail = |source: io::Error| CopyError { path: UPPER.to_vec(), source };
    let run = at::open_root(run_dir).map_err(fail)?;
    if at::stat(&run, UPPER).map_err(fail)?.is_some() {
        return Ok(Copied::default());
    }
    crate::discard::delete_in(&run, INCOMPLETE).map_err(fail)?;
    let opened = || -> io::Result<(OwnedFd, OwnedFd)> {
        let source = open_readable(image, UPPER)?;
        at::mkdir(&run, INCOMPLETE, 0o700)?;
        Ok((source, at::child_dir(&run, INCOMPLETE)?))
    };
    let (source, target) = opened().map_err(fail)?;
    let copied = copy(source, &target)?;
    at::rename_new(&run, INCOMPLETE, &run, UPPER).map_err(fail)?;
    Ok(copied)
}

/// Copies the content and the metadata of a directory into a new directory.
fn copy(source: OwnedFd, target: &OwnedFd) -> Result<Copied, CopyError> {
    let again = || Ok::<_, io::Error>((target.try_clone()?, target.try_clone()?));
    let (root, target) = again().map_err(|source| CopyError { path: Vec::new(), source })?;
    let mut copying =
        Copying { root, path: Vec::new(), done: Copied::default(), linked: HashMap::new() };
    copying
        .all(source, target)
        .map_err(|source| CopyError { path: copying.path.clone(), source })?;
    Ok(copying.done)
}

struct Copying {
    root: OwnedFd,
    /// The path that is being copied, for errors and for hard links.
    path: Vec<u8>,
    done: Copied,
    /// The copied path of each file with several hard links, by device and inode.
    linked: HashMap<(u64, u64), Vec<u8>>,
}

/// A directory whose content is being copied.
struct Frame {
    /// The source and target descriptors of the directory; closed while the walk is much deeper.
    pair: Option<(OwnedFd, OwnedFd)>,
    inodes: [(u64, u64); 2],
    meta: Meta,
    pending: Vec<Name>,
    len: usize,
}

impl Copying {
    fn all(&mut self, source: OwnedFd, target: OwnedFd) -> io::Result<()> {
        let meta = at::meta(&source)?;
        let mut frames = vec![self.enter(source, target, meta)?];
        while let Some(frame) = frames.last_mut() {
            let (source, target) = frame.pair.as_ref().ok_or(io::ErrorKind::NotFound)?;
            let Some(name) = frame.pending.pop() else {
                finish_directory(source, target, &frame.meta)?;
                self.leave(&mut frames)?;
                continue;
            };
            self.path.truncate(frame.len);
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&name);
            let Some(meta) = at::stat(source, &name)? else { continue };
            if meta.kind != FileKind::Directory {
                self.leaf(source.as_fd(), target.as_fd(), &name, &meta)?;
                continue;
            }
            let below = open_readable(source, &name)?;
            at::mkdir(target, &name, 0o700)?;
            let copy = at::child_dir(target, &name)?;
            self.done.entries += 1;
            let frame = self.enter(below, copy, meta)?;
            frames.push(frame);
            if let Some(far) = frames.len().checked_sub(OPEN).and_then(|at| frames.get_mut(at)) {
                far.pair = None;
            }
        }
        Ok(())
    }

    fn enter(&self, source: OwnedFd, target: OwnedFd, meta: Meta) -> io::Result<Frame> {
        let inodes = [at::meta(&source)?.inode(), at::meta(&target)?.inode()];
        let pending = at::names(&source, usize::MAX)?;
        Ok(Frame { pair: Some((source, target)), inodes, meta, pending, len: self.path.len() })
    }

    /// Moves to the parent directory in both trees and checks that it is the expected one.
    fn leave(&mut self, frames: &mut Vec<Frame>) -> io::Result<()> {
        let Some(Frame { pair: Some((source, target)), .. }) = frames.pop() else { return Ok(()) };
        let Some(frame) = frames.last_mut() else { return Ok(()) };
        self.path.truncate(frame.len);
        if frame.pair.is_none() {
            let above = (reopen(&at::parent_dir(&source)?)?, reopen(&at::parent_dir(&target)?)?);
            if [at::meta(&above.0)?.inode(), at::meta(&above.1)?.inode()] != frame.inodes {
                return Err(io::Error::other("a directory was moved during the copy; try again"));
            }
            frame.pair = Some(above);
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        source: BorrowedFd<'_>,
        target: BorrowedFd<'_>,
        name: &[u8],
        meta: &Meta,
    ) -> io::Result<()> {
        let name_text = OsStr::from_bytes(name);
        match meta.kind {
            FileKind::File if self.link_to_copied(target, name_text, meta) => {}
            FileKind::File => {
                copy_file(source, target, name, meta)?;
                if meta.nlink > 1 {
                    self.linked.insert(meta.inode(), self.path.clone());
                }
            }
            FileKind::Symlink => {
                let to = at::read_link(source, name)?;
                rustix::fs::symlinkat(OsStr::from_bytes(&to), target, name_text)?;
                set_owner_and_times(target, name_text, meta)?;
            }
            FileKind::Fifo => {
                let mode = Mode::from_raw_mode(meta.mode & 0o777);
                rustix::fs::mknodat(target, name_text, FileType::Fifo, mode, 0)?;
                set_owner_and_times(target, name_text, meta)?;
            }
            FileKind::Device if meta.whiteout => {
                let kind = FileType::CharacterDevice;
                rustix::fs::mknodat(target, name_text, kind, Mode::empty(), 0)?;
                set_owner_and_times(target, name_text, meta)?;
            }
            FileKind::Socket | FileKind::Device | FileKind::Directory => {
                self.done.left_out += 1;
                return Ok(());
            }
        }
        self.done.entries += 1;
        Ok(())
    }

    /// Creates a hard link to a file that was already copied; returns whether that succeeded.
    fn link_to_copied(&self, target: BorrowedFd<'_>, name: &OsStr, meta: &Meta) -> bool {
        let Some(first) = self.linked.get(&meta.inode()) else { return false };
        let first = OsStr::from_bytes(first);
        rustix::fs::linkat(&self.root, first, target, name, AtFlags::empty()).is_ok()
    }
}

fn copy_file(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    name: &[u8],
    meta: &Meta,
) -> io::Result<()> {
    let mut from = UpperFile::open(source, name)?;
    let mut to = File::from(at::create(target, name, 0o600)?);
    content::clone_or_copy(from.file(), &mut to)?;
    copy_attributes(from.file().as_fd(), to.as_fd())?;
    set_owner(to.as_fd(), meta)?;
    at::chmod(&to, meta.mode)?;
    Ok(rustix::fs::futimens(&to, &times(meta))?)
}

fn finish_directory(source: &OwnedFd, target: &OwnedFd, meta: &Meta) -> io::Result<()> {
    copy_attributes(source.as_fd(), target.as_fd())?;
    set_owner(target.as_fd(), meta)?;
    rustix::fs::futimens(target, &times(meta))?;
    at::chmod(target, meta.mode)?;
    if at::meta(source)?.mode != meta.mode {
        at::chmod(source, meta.mode)?; // was made readable for the copy
    }
    Ok(())
}

/// Opens a directory and first makes it readable for its owner if necessary.
fn open_readable(parent: impl AsFd, name: &[u8]) -> io::Result<OwnedFd> {
    let (handle, meta) = at::handle(parent.as_fd(), name)?;
    if meta.kind == FileKind::Directory
        && meta.mode & 0o500 != 0o500
        && !rustix::process::geteuid().is_root()
    {
        at::chmod(&handle, meta.mode | 0o500)?;
    }
    at::child_dir(&handle, b".")
}

/// Reopens an `O_PATH` handle of a directory so that it can be listed.
fn reopen(handle: &OwnedFd) -> io::Result<OwnedFd> {
    at::child_dir(handle, b".")
}

fn set_owner(file: BorrowedFd<'_>, meta: &Meta) -> io::Result<()> {
    let now = at::meta(file)?;
    if (now.uid, now.gid) == (meta.uid, meta.gid) {
        return Ok(());
    }
    let owner = rustix::fs::Uid::from_raw(meta.uid);
    let group = rustix::fs::Gid::from_raw(meta.gid);
    match rustix::fs::fchown(file, Some(owner), Some(group)) {
        // Without root privileges files of other users get our owner.
        Err(Errno::PERM) if !rustix::process::geteuid().is_root() => Ok(()),
        done => Ok(done?),
    }
}

fn set_owner_and_times(parent: BorrowedFd<'_>, name: &OsStr, meta: &Meta) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let owner = rustix::fs::Uid::from_raw(meta.uid);
        let group = rustix::fs::Gid::from_raw(meta.gid);
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(parent, name, Some(owner), Some(group), flags)?;
    }
    Ok(rustix::fs::utimensat(parent, name, &times(meta), AtFlags::SYMLINK_NOFOLLOW)?)
}

const fn times(meta: &Meta) -> Timestamps {
    let mtime = meta.identity.mtime;
    let time = Timespec { tv_sec: mtime.secs, tv_nsec: mtime.nanos as _ };
    Timestamps { last_access: time, last_modification: time }
}

/// Copies the extended attributes `user.*`, which include the marks of overlayfs. A box cannot set
/// the other attributes that the kernel acts on (capabilities, labels).
fn copy_attributes(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let mut names = vec![0_u8; ATTRIBUTE];
    let length = match rustix::fs::flistxattr(from, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    let names = names.get(..length).unwrap_or_default();
    for name in names.split(|&byte| byte == 0).filter(|name| name.starts_with(b"user.")) {
        let name = OsStr::from_bytes(name);
        let mut value = vec![0_u8; ATTRIBUTE];
        match rustix::fs::fgetxattr(from, name, &mut value[..]) {
            Ok(length) => {
                let value = value.get(..length).unwrap_or_default();
                rustix::fs::fsetxattr(to, name, value, XattrFlags::empty())?;
            }
            Err(Errno::NODATA) => {} // removed in the meantime
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn copy_tree_keeps_metadata_and_shares_no_inode_with_the_source() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("d/e")).unwrap();
        fs::write(from.join("d/f"), "content").unwrap();
        fs::set_permissions(from.join("d/f"), fs::Permissions::from_mode(0o4750)).unwrap();
        fs::hard_link(from.join("d/f"), from.join("g")).unwrap();
        symlink("/nowhere/../x", from.join("l")).unwrap();
        let fd = at::open_root(&from).unwrap();
        let none = Mode::empty();
        rustix::fs::mknodat(&fd, "white", FileType::CharacterDevice, none, 0).unwrap();
        rustix::fs::mknodat(&fd, "pipe", FileType::Fifo, Mode::RUSR, 0).unwrap();
        let e = at::child_dir(&fd, b"d").and_then(|d| at::child_dir(&d, b"e")).unwrap();
        rustix::fs::fsetxattr(&e, "user.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
        fs::set_permissions(from.join("d/e"), fs::Permissions::from_mode(0o0)).unwrap();
        fs::set_permissions(from.join("d"), fs::Permissions::from_mode(0o500)).unwrap();

        let copied = copy_tree(&from, &to).unwrap();
        assert_eq!(copied, Copied { entries: 7, left_out: 1 });
        for name in ["", "d", "d/e", "d/f", "g", "l", "white", "pipe"] {
            let meta = |root: &Path| fs::symlink_metadata(root.join(name)).unwrap();
            let (was, is) = (meta(&from), meta(&to));
            let all = |meta: &fs::Metadata| {
                (meta.mode(), meta.uid(), meta.gid(), meta.mtime_nsec(), meta.rdev())
            };
            assert_eq!(all(&was), all(&is), "{name}");
            assert_ne!(was.ino(), is.ino(), "{name}");
        }
        assert_eq!(fs::read_link(to.join("l")).unwrap(), Path::new("/nowhere/../x"));
        let ino = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
        fs::set_permissions(to.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(ino("d/f"), ino("g"), "hard links within the tree are kept");
        fs::set_permissions(to.join("d/e"), fs::Permissions::from_mode(0o700)).unwrap();
        let e = at::open_root(&to.join("d/e")).unwrap();
        assert_eq!(at::xattr(&e, "user.overlay.opaque").unwrap(), Some(b"y".to_vec()));
        fs::write(to.join("g"), "other").unwrap();
        assert_eq!(fs::read_to_string(from.join("g")).unwrap(), "content");
        assert!(copy_tree(&from, &to).is_err(), "an existing target is refused");
        for name in ["d/e", "d"] {
            fs::set_permissions(from.join(name), fs::Permissions::from_mode(0o700)).ok();
        }
        fs::set_permissions(from.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn c10_copy_tree_follows_no_symbolic_link() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("secret")).unwrap();
        fs::write(dir.path().join("secret/key"), "key").unwrap();
        fs::create_dir(dir.path().join("from")).unwrap();
        symlink(dir.path().join("secret"), dir.path().join("from/link")).unwrap();
        copy_tree(&dir.path().join("from"), &dir.path().join("to")).unwrap();
        assert!(dir.path().join("to/link").is_symlink());
        symlink(dir.path().join("secret"), dir.path().join("top")).unwrap();
        let top = copy_tree(&dir.path().join("top"), &dir.path().join("other"));
        assert!(top.is_err(), "a link as the top directory is refused");
        assert!(copy_tree(&dir.path().join("secret"), &dir.path().join("control")).is_ok());
    }

    #[test]
    fn c23_a_tree_of_three_thousand_levels_is_copied_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir(&from).unwrap();
        let mut deep = at::open_root(&from).unwrap();
        for _ in 0..3000 {
            at::mkdir(&deep, b"deep", 0o755).unwrap();
            deep = at::child_dir(&deep, b"deep").unwrap();
        }
        let to = dir.path().join("to");
        assert_eq!(copy_tree(&from, &to).unwrap().entries, 3000);
        crate::remove_tree(&to).unwrap();
        crate::remove_tree(&from).unwrap();
        assert!(!to.exists() && !from.exists());
    }
}
