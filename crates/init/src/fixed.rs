//! What nobody inside can change, in places where the rest can be: masks of the workspace, and files of
//! our own, also in a home that earlier boxes have written to.
//!
//! A mount cannot be removed, renamed or replaced from inside. A directory *above* one can, and takes it
//! along, after which anything can be put in its old place. So each directory on the way becomes a mount
//! of itself. The price is that files cannot be renamed or linked across its border (`EXDEV`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use belljar_sys::mount::{self, attr};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use crate::build::{Site, attach_to, clone_beneath, components, place, relative};
use crate::plan::{Bytes, MaskKind};
use crate::proc;

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

impl Site<'_> {
    /// An empty, read-only thing over this one, if it is there.
    pub(crate) fn hide(&self, path: &[u8]) -> io::Result<()> {
        let target = match place(&self.root, relative(path), OFlags::PATH) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let stat = rustix::fs::fstat(&target)?;
        let is_dir = FileType::from_raw_mode(stat.st_mode).is_dir();
        let cover = if is_dir { proc::EMPTY_DIR } else { proc::EMPTY_FILE };
        let covers = place(&self.stage, b"covers", OFlags::PATH | OFlags::DIRECTORY)?;
        let cover = clone_beneath(&covers, cover)?;
        mount::set_tree_attributes(cover.as_fd(), attr::READ_ONLY)?;
        attach_to(cover.as_fd(), target.as_fd())
    }

    /// Takes rights from one place beneath a directory, for good. What does not exist is left alone.
    pub(crate) fn mask(&self, beneath: &[u8], path: &[u8], kind: MaskKind) -> io::Result<()> {
        let Some(path) = self.resolve(beneath, path)? else { return Ok(()) };
        self.pin_above(&path)?;
        match kind {
            MaskKind::Hidden => self.hide(&path)?,
            MaskKind::ReadOnly => {
                let target = place(&self.root, relative(&path), OFlags::PATH)?;
                let tree = clone_all(&target)?;
                mount::set_tree_attributes(tree.as_fd(), attr::READ_ONLY)?;
                attach_to(tree.as_fd(), target.as_fd())?;
            }
        }
        self.forget();
        Ok(())
    }

    /// Puts a file of ours over whatever is at `path`. Links on the way are removed; a directory where
    /// the file is to be is moved aside. What is made for it stays behind, empty, where that is kept.
    pub(crate) fn own(&self, path: &[u8], content: &[u8], number: usize) -> io::Result<()> {
        let names: Vec<&[u8]> = components(path).collect();
        let Some((name, above)) = names.split_last() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut parent = place(&self.root, b"", OFlags::PATH | OFlags::DIRECTORY)?;
        for name in above {
            make_way(&parent, name, true)?;
            parent = place(&parent, name, OFlags::PATH | OFlags::DIRECTORY)?;
        }
        make_way(&parent, name, false)?;
        self.pin_above(path)?;
        let source = format!("own{number}").into_bytes();
        let covers = place(&self.stage, b"covers", OFlags::PATH | OFlags::DIRECTORY)?;
        proc::write(&covers, &source, content, 0o444)?;
        let tree = clone_beneath(&covers, &source)?;
        mount::set_tree_attributes(tree.as_fd(), attr::READ_ONLY | attr::NO_SUID | attr::NO_DEV)?;
        let target = place(&self.root, relative(path), OFlags::PATH)?;
        attach_to(tree.as_fd(), target.as_fd())?;
        self.forget();
        Ok(())
    }

    /// Makes every directory above `path` a mount, unless it is one or cannot be changed anyway.
    fn pin_above(&self, path: &[u8]) -> io::Result<()> {
        let path = relative(path);
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        for end in ends {
            let above = path.get(..end).unwrap_or_default();
            let directory = place(&self.root, above, OFlags::PATH | OFlags::DIRECTORY)?;
            if !self.is_fixed(&directory)? {
                attach_to(clone_all(&directory)?.as_fd(), directory.as_fd())?;
            }
        }
        Ok(())
    }

    /// Whether a directory is the root of a mount, or lies in a root that will be read-only.
    fn is_fixed(&self, directory: &OwnedFd) -> io::Result<bool> {
        let look =
            |fd: &OwnedFd| rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
        let (stat, root) = (look(directory)?, look(&self.root)?);
        let is_mount = stat.stx_attributes.contains(rustix::fs::StatxAttributes::MOUNT_ROOT);
        Ok(is_mount || (self.is_sealed && stat.stx_mnt_id == root.stx_mnt_id))
    }

    /// Where `path` leads, as a program inside would find it, without links. `None`: nowhere, or out of
    /// the directory `beneath`.
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
            let parent = match place(&self.root, &at, OFlags::PATH | OFlags::DIRECTORY) {
                Err(error) if is_absent(&error) => return Ok(None),
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

/// Sees to it that a directory, or something that a file can be mounted on, has this name.
fn make_way(parent: &OwnedFd, name: &[u8], directory: bool) -> io::Result<()> {
    let stat = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => None,
        stat => Some(stat?),
    };
    match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Some(FileType::Directory) if directory => {
            return open_up(parent, name, stat.map_or(0, |stat| stat.st_mode));
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

/// Lets its owner look into a directory, or the file in it would be there for nobody.
fn open_up(parent: &OwnedFd, name: &[u8], mode: u32) -> io::Result<()> {
    const LOOK_INTO: u32 = 0o500;
    if mode & LOOK_INTO != LOOK_INTO {
        let mode = Mode::from_raw_mode((mode & 0o777) | LOOK_INTO);
        rustix::fs::chmodat(parent, name, mode, AtFlags::empty())?;
    }
    Ok(())
}

/// Gives something another name that is free.
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

/// A detached copy of a place with all that is mounted beneath it.
fn clone_all(place: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(place, "", flags)?)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
