//! `/proc` of the box: its own processes, and of the rest only what real programs need.
//!
//! `subset=pid` would hide the rest more simply, but then there is no `/proc/cpuinfo` to put a
//! content of ours on, and Node, `ps` and many others fail. So every entry that is not about a
//! process and not named in the plan is covered by an empty file or directory, unless the kernel keeps
//! it from everybody but the machine's root, whom no process of a box ever is.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use belljar_sys::mount::{self, attr};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::mount::MoveMountFlags;

use crate::build::{Site, clone_beneath, filesystem, place};
use crate::plan::ProcMask;

/// Covers an entry that is a file, and one that is a directory.
pub(crate) const EMPTY_FILE: &[u8] = b".file";
pub(crate) const EMPTY_DIR: &[u8] = b".dir";

/// Mounts `/proc` read-only with the processes of others invisible.
pub(crate) fn mount(site: &Site<'_>, mask: Option<&ProcMask>) -> io::Result<()> {
    let proc = filesystem("proc", &[("hidepid", "invisible")])?;
    site.attach(proc.as_fd(), b"/proc")?;
    if let Some(mask) = mask {
        cover(site, &proc, mask)?;
    }
    mount::set_tree_attributes(proc.as_fd(), attr::READ_ONLY | attr::NO_SUID | attr::NO_EXEC)
}

/// Puts an empty file and an empty directory on the stage.
pub(crate) fn make_covers(stage: &OwnedFd) -> io::Result<()> {
    let covers = place(stage, b"covers", OFlags::PATH | OFlags::DIRECTORY)?;
    rustix::fs::mkdirat(&covers, EMPTY_DIR, Mode::from_raw_mode(0o555))?;
    write(&covers, EMPTY_FILE, b"", 0o000)
}

/// Covers what the mask does not keep.
fn cover(site: &Site<'_>, proc: &OwnedFd, mask: &ProcMask) -> io::Result<()> {
    let covers = place(&site.stage, b"covers", OFlags::RDONLY | OFlags::DIRECTORY)?;
    for (path, content) in &mask.replace {
        make_parents(&covers, path)?;
        write(&covers, path, content, 0o444)?;
    }
    let reader = place(proc, b"", OFlags::RDONLY | OFlags::DIRECTORY)?;
    for entry in Dir::read_from(&reader)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let is_process = name.first().is_some_and(u8::is_ascii_digit);
        let is_link = entry.file_type() == FileType::Symlink; // self, mounts, net: about the reader
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
        // By name: the kernel made it, it is one component, and no link is followed.
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&cover, "", proc, name, flags)?;
    }
    Ok(())
}

/// Creates the directories above `path`.
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

pub(crate) fn write(dir: &OwnedFd, path: &[u8], content: &[u8], mode: u32) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, path, flags, Mode::from_raw_mode(mode))?;
    let wrote = rustix::io::write(&file, content)?;
    if wrote == content.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn first(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'/').next().unwrap_or_default()
}
