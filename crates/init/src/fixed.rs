//! Files and masks that the box cannot change inside writable directories, such as the workspace or a
//! home that earlier boxes have written to.
//!
//! A box cannot remove, rename or replace a mount. But it can rename a directory *above* a mount, which
//! moves the mount along, and then create another file at the old path. So each parent directory becomes
//! a mount of itself. As a drawback, files cannot be renamed or linked across these mounts (`EXDEV`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use belljar_sys::mount::{self, attr};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use crate::build::{NewRoot, attach_to, clone_beneath, components, open_beneath, relative};
use crate::plan::{Bytes, MaskKind};
use crate::proc;

/// The maximum number of symbolic links that [`NewRoot::resolve`] follows, like the kernel.
const MAX_LINKS: usize = 40;

impl NewRoot<'_> {
    /// Covers an existing file or directory with an empty, read-only one.
    pub(crate) fn hide(&self, path: &[u8]) -> io::Result<()> {
        let target = match open_beneath(&self.root, relative(path), OFlags::PATH) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let stat = rustix::fs::fstat(&target)?;
        let is_dir = FileType::from_raw_mode(stat.st_mode).is_dir();
        let cover = if is_dir { proc::EMPTY_DIR } else { proc::EMPTY_FILE };
        let covers = open_beneath(&self.staging, b"covers", OFlags::PATH | OFlags::DIRECTORY)?;
        let cover = clone_beneath(&covers, cover)?;
        mount::set_tree_attributes(cover.as_fd(), attr::READ_ONLY)?;
        attach_to(cover.as_fd(), target.as_fd())
    }

    /// Hides a path beneath a directory of the new root, or makes it read-only. Ignores a missing
    /// path.
    pub(crate) fn mask(&self, beneath: &[u8], path: &[u8], kind: MaskKind) -> io::Result<()> {
        let Some(path) = self.resolve(beneath, path)? else { return Ok(()) };
        self.mount_parents(&path)?;
        match kind {
            MaskKind::Hidden => self.hide(&path)?,
            MaskKind::ReadOnly => {
                let target = open_beneath(&self.root, relative(&path), OFlags::PATH)?;
                let tree = clone_all(&target)?;
                mount::set_tree_attributes(tree.as_fd(), attr::READ_ONLY)?;
                attach_to(tree.as_fd(), target.as_fd())?;
            }
        }
        self.drop_cached_directory();
        Ok(())
    }

    /// Mounts a read-only file with this content at `path` in the new root. Removes symbolic links
    /// on the path, and renames a directory at `path`. In a persistent directory an empty file, the
    /// mount point, stays after the box ends.
    pub(crate) fn fixed_file(&self, path: &[u8], content: &[u8], number: usize) -> io::Result<()> {
        let names: Vec<&[u8]> = components(path).collect();
        let Some((name, above)) = names.split_last() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut parent = open_beneath(&self.root, b"", OFlags::PATH | OFlags::DIRECTORY)?;
        for name in above {
            make_mount_point(&parent, name, true)?;
            parent = open_beneath(&parent, name, OFlags::PATH | OFlags::DIRECTORY)?;
        }
        make_mount_point(&parent, name, false)?;
        self.mount_parents(path)?;
        let source = format!("own{number}").into_bytes();
        let covers = open_beneath(&self.staging, b"covers", OFlags::PATH | OFlags::DIRECTORY)?;
        proc::write(&covers, &source, content, 0o444)?;
        let tree = clone_beneath(&covers, &source)?;
        mount::set_tree_attributes(tree.as_fd(), attr::READ_ONLY | attr::NO_SUID | attr::NO_DEV)?;
        let target = open_beneath(&self.root, relative(path), OFlags::PATH)?;
        attach_to(tree.as_fd(), target.as_fd())?;
        self.drop_cached_directory();
        Ok(())
    }

    /// Turns every parent directory of `path` into a mount, so that the box cannot rename it.
    fn mount_parents(&self, path: &[u8]) -> io::Result<()> {
        let path = relative(path);
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        for end in ends {
            let above = path.get(..end).unwrap_or_default();
            let directory = open_beneath(&self.root, above, OFlags::PATH | OFlags::DIRECTORY)?;
            if !self.is_fixed(&directory)? {
                attach_to(clone_all(&directory)?.as_fd(), directory.as_fd())?;
            }
        }
        Ok(())
    }

    /// Returns whether a directory cannot be renamed: it is a mount, or in a root that becomes
    /// read-only.
    fn is_fixed(&self, directory: &OwnedFd) -> io::Result<bool> {
        let mount_id =
            |fd: &OwnedFd| rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
        let (stat, root) = (mount_id(directory)?, mount_id(&self.root)?);
        let is_mount = stat.stx_attributes.contains(rustix::fs::StatxAttributes::MOUNT_ROOT);
        Ok(is_mount || (self.is_read_only && stat.stx_mnt_id == root.stx_mnt_id))
    }

    /// Resolves the symbolic links of `path` as a program in the box would. Returns `None` if the target
    /// is missing or outside the directory `beneath`.
    fn resolve(&self, beneath: &[u8], path: &[u8]) -> io::Result<Option<Bytes>> {
        let base: Vec<Bytes> = components(beneath).map(<[u8]>::to_vec).collect();
        let mut rest: Vec<Bytes> = components(path).rev().map(<[u8]>::to_vec).collect();
        let mut found = base.clone();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            match name.as_slice() {
                b"." => continue,
                b".." => {
                    found.pop();
                    continue;
                }
                _ => {}
            }
            let at = found.join(&b'/');
            let parent = match open_beneath(&self.root, &at, OFlags::PATH | OFlags::DIRECTORY) {
                Err(error) if is_missing(&error) => return Ok(None),
                parent => parent?,
            };
            let stat = match rustix::fs::statat(&parent, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)
            {
                Err(Errno::NOENT) => return Ok(None),
                stat => stat?,
            };
            if !FileType::from_raw_mode(stat.st_mode).is_symlink() {
                found.push(name);
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Ok(None);
            }
            let target = rustix::fs::readlinkat(&parent, name.as_slice(), Vec::new())?;
            if target.as_bytes().starts_with(b"/") {
                found.clear();
            }
            rest.extend(components(target.as_bytes()).rev().map(<[u8]>::to_vec));
        }
        Ok(found.starts_with(&base).then(|| [b"/".as_slice(), &found.join(&b'/')].concat()))
    }
}

/// Makes `name` a directory or a regular file, on which another one can be mounted.
fn make_mount_point(parent: &OwnedFd, name: &[u8], directory: bool) -> io::Result<()> {
    let stat = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => None,
        stat => Some(stat?),
    };
    match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Some(FileType::Directory) if directory => {
            return allow_owner(parent, name, stat.map_or(0, |stat| stat.st_mode));
        }
        Some(FileType::Directory) => move_aside(parent, name)?,
        Some(FileType::Symlink) => rustix::fs::unlinkat(parent, name, AtFlags::empty())?,
        Some(_) if directory => move_aside(parent, name)?,
        Some(_) => return Ok(()),
        None => {}
    }
    if directory {
        rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(parent, name, flags | OFlags::WRONLY, Mode::from_raw_mode(0o644))?;
    }
    Ok(())
}

/// Grants the owner access to a directory, so that the file in it can be read.
fn allow_owner(parent: &OwnedFd, name: &[u8], mode: u32) -> io::Result<()> {
    const READ_AND_ENTER: u32 = 0o500;
    if mode & READ_AND_ENTER != READ_AND_ENTER {
        let mode = Mode::from_raw_mode((mode & 0o777) | READ_AND_ENTER);
        rustix::fs::chmodat(parent, name, mode, AtFlags::empty())?;
    }
    Ok(())
}

/// Renames an existing file or directory to an unused name.
fn move_aside(parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
    use rustix::fs::RenameFlags;
    for number in 0..1000 {
        let aside = [name, format!(".aside-{number}").as_bytes()].concat();
        match rustix::fs::renameat_with(parent, name, parent, aside, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            done => return Ok(done?),
        }
    }
    Err(Errno::EXIST.into())
}

/// Returns a detached clone of a directory or file with all mounts beneath it.
fn clone_all(path: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(path, "", flags)?)
}

/// Returns whether an error means that a path does not exist.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
