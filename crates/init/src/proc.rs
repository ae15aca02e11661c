//! Mounts `/proc` of the box, which shows its processes and few other entries.
//!
//! The mount option `subset=pid` would also hide the other entries. But then `/proc/cpuinfo` could not be
//! replaced, and Node, `ps` and many other programs fail. So an entry that does not belong to a process
//! and is not named in the plan is covered by an empty file or directory. Entries that only the host's
//! root user can access stay, because no process of a box has that user id.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use belljar_sys::mount::{self, attr};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::mount::MoveMountFlags;

use crate::build::{NewRoot, clone_beneath, filesystem, open_beneath};
use crate::plan::ProcMask;

/// The name of the empty file that covers hidden files.
pub(crate) const EMPTY_FILE: &[u8] = b".file";
/// The name of the empty directory that covers hidden directories.
pub(crate) const EMPTY_DIR: &[u8] = b".dir";

/// Mounts `/proc` read-only, with processes of other users hidden and other entries masked.
pub(crate) fn mount(new_root: &NewRoot<'_>, mask: Option<&ProcMask>) -> io::Result<()> {
    let proc = filesystem("proc", &[("hidepid", "invisible")])?;
    new_root.attach(proc.as_fd(), b"/proc")?;
    if let Some(mask) = mask {
        cover(new_root, &proc, mask)?;
    }
    mount::set_tree_attributes(proc.as_fd(), attr::READ_ONLY | attr::NO_SUID | attr::NO_EXEC)
}

/// Creates the empty file and the empty directory that cover hidden paths, in `covers/` of the
/// staging tmpfs.
pub(crate) fn make_covers(staging: &OwnedFd) -> io::Result<()> {
    let covers = open_beneath(staging, b"covers", OFlags::PATH | OFlags::DIRECTORY)?;
    rustix::fs::mkdirat(&covers, EMPTY_DIR, Mode::from_raw_mode(0o555))?;
    write(&covers, EMPTY_FILE, b"", 0o000)
}

/// Covers all entries of `/proc` that the mask does not keep, and mounts the replaced files.
fn cover(new_root: &NewRoot<'_>, proc: &OwnedFd, mask: &ProcMask) -> io::Result<()> {
    let covers = open_beneath(&new_root.staging, b"covers", OFlags::RDONLY | OFlags::DIRECTORY)?;
    for (path, content) in &mask.replace {
        make_parents(&covers, path)?;
        write(&covers, path, content, 0o444)?;
    }
    let reader = open_beneath(proc, b"", OFlags::RDONLY | OFlags::DIRECTORY)?;
    for entry in Dir::read_from(&reader)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let is_process = name.first().is_some_and(u8::is_ascii_digit);
        // The links self, mounts and net lead to the process that reads them.
        let is_link = entry.file_type() == FileType::Symlink;
        let is_kept = mask.keep.iter().any(|keep| keep == name);
        if is_process || is_link || is_kept || name == b"." || name == b".." {
            continue;
        }
        let stat = rustix::fs::statat(proc, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if stat.st_mode & 0o007 == 0 {
            continue;
        }
        let covering = if mask.replace.iter().any(|(path, _)| first(path) == name) {
            name
        } else if entry.file_type() == FileType::Directory {
            EMPTY_DIR
        } else {
            EMPTY_FILE
        };
        let cover = clone_beneath(&covers, covering)?;
        // The name comes from the kernel and is a single component, so no symbolic link is followed.
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&cover, "", proc, name, flags)?;
    }
    Ok(())
}

/// Creates the parent directories of `path`.
fn make_parents(dir: &OwnedFd, path: &[u8]) -> io::Result<()> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    for (slash, _) in slashes {
        let parent = path.get(..slash).unwrap_or_default();
        match rustix::fs::mkdirat(dir, parent, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Creates a file with this content and mode at `path` beneath `dir`.
pub(crate) fn write(dir: &OwnedFd, path: &[u8], content: &[u8], mode: u32) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, path, flags, Mode::from_raw_mode(mode))?;
    let wrote = rustix::io::write(&file, content)?;
    if wrote == content.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Returns the first component of a path.
fn first(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'/').next().unwrap_or_default()
}
