//! Sets attributes and id mappings of mounts. See mount_setattr(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;

/// Mount attributes, with the values of `MOUNT_ATTR_*`.
pub mod attr {
    pub const READ_ONLY: u64 = 1;
    pub const NO_SUID: u64 = 2;
    pub const NO_DEV: u64 = 4;
    pub const NO_EXEC: u64 = 8;
}

const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

#[repr(C)]
#[derive(Default)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Sets attributes (bits of [`attr`]) on a mount and on all mounts beneath it.
pub fn set_tree_attributes(tree: BorrowedFd<'_>, set: u64) -> io::Result<()> {
    let attr = MountAttr { attr_set: set, ..MountAttr::default() };
    mount_setattr(tree, libc::AT_RECURSIVE, &attr)
}

/// Sets attributes (bits of [`attr`]) on one mount, without the mounts beneath it.
pub fn set_mount_attributes(mount: BorrowedFd<'_>, set: u64) -> io::Result<()> {
    mount_setattr(mount, 0, &MountAttr { attr_set: set, ..MountAttr::default() })
}

/// Maps the owners of all files of a detached mount tree as `user_namespace` maps its ids.
pub fn map_ids(tree: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let userns_fd = u64::from(user_namespace.as_raw_fd().unsigned_abs());
    let attr = MountAttr { attr_set: MOUNT_ATTR_IDMAP, userns_fd, ..MountAttr::default() };
    mount_setattr(tree, libc::AT_RECURSIVE, &attr)
}

fn mount_setattr(tree: BorrowedFd<'_>, flags: i32, attr: &MountAttr) -> io::Result<()> {
    // SAFETY: the path is an empty C string, and the struct has the size that is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            std::ptr::from_ref(attr),
            std::mem::size_of::<MountAttr>(),
        )
    })?;
    Ok(())
}
