//! Mount attributes on detached trees. See mount_setattr(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;

/// Attributes, as in `MOUNT_ATTR_*`.
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

/// Sets attributes (bits of [`attr`]) on the whole tree that `tree` is the root of.
pub fn set_attributes(tree: BorrowedFd<'_>, set: u64) -> io::Result<()> {
    let attr = MountAttr { attr_set: set, ..MountAttr::default() };
    mount_setattr(tree, libc::AT_RECURSIVE, &attr)
}

/// Sets attributes on this one mount and none that stands on it.
pub fn set_attributes_here(mount: BorrowedFd<'_>, set: u64) -> io::Result<()> {
    mount_setattr(mount, 0, &MountAttr { attr_set: set, ..MountAttr::default() })
}

/// Maps the owners of files on the tree through `user_namespace`.
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
