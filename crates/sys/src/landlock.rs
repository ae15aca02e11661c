//! Landlock rulesets: create, add rules, enforce. See landlock(7).
//!
//! This module has no policy: the caller chooses which rights are handled and which are allowed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::check;

/// File system rights, with the values of `LANDLOCK_ACCESS_FS_*`.
pub mod fs {
    pub const EXECUTE: u64 = 1;
    pub const WRITE_FILE: u64 = 1 << 1;
    pub const READ_FILE: u64 = 1 << 2;
    pub const READ_DIR: u64 = 1 << 3;
    pub const REMOVE_DIR: u64 = 1 << 4;
    pub const REMOVE_FILE: u64 = 1 << 5;
    pub const MAKE_CHAR: u64 = 1 << 6;
    pub const MAKE_DIR: u64 = 1 << 7;
    pub const MAKE_REG: u64 = 1 << 8;
    pub const MAKE_SOCK: u64 = 1 << 9;
    pub const MAKE_FIFO: u64 = 1 << 10;
    pub const MAKE_BLOCK: u64 = 1 << 11;
    pub const MAKE_SYM: u64 = 1 << 12;
    pub const REFER: u64 = 1 << 13; // ABI 2
    pub const TRUNCATE: u64 = 1 << 14; // ABI 3
    pub const IOCTL_DEV: u64 = 1 << 15; // ABI 5

    /// Returns all file system rights that this version of the Landlock ABI supports.
    pub fn all(abi: u32) -> u64 {
        let bits = match abi {
            0 | 1 => 13,
            2 => 14,
            3 | 4 => 15,
            _ => 16,
        };
        (1 << bits) - 1
    }
}

/// Kinds of access to processes outside the Landlock domain, with the values of `LANDLOCK_SCOPE_*` (ABI 6).
pub mod scope {
    pub const ABSTRACT_UNIX_SOCKET: u64 = 1;
    pub const SIGNAL: u64 = 1 << 1;
}

#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: i32,
}

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

/// Returns the newest Landlock ABI of the running kernel. Fails if the kernel has no Landlock.
pub fn abi() -> io::Result<u32> {
    // SAFETY: with the version flag the attribute must be null, and the kernel does not read it.
    let version = check(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, CREATE_RULESET_VERSION)
    })?;
    u32::try_from(version).map_err(io::Error::other)
}

/// A Landlock ruleset that is not enforced yet.
#[derive(Debug)]
pub struct Ruleset(OwnedFd);

impl Ruleset {
    /// Creates a ruleset that denies `rights` (bits of [`fs`]) and `scopes` (bits of [`scope`]), except
    /// where [`Self::allow`] grants them.
    pub fn new(rights: u64, scopes: u64) -> io::Result<Self> {
        let attr = RulesetAttr { handled_access_fs: rights, handled_access_net: 0, scoped: scopes };
        // Older kernels have a shorter struct and accept a longer one only if the rest is zero. Kernels
        // before ABI 4 refuse every longer size, so only the fields in use are passed.
        let size = if scopes == 0 { 8 } else { std::mem::size_of::<RulesetAttr>() };
        // SAFETY: the attribute has at least `size` bytes and lives across the call.
        let fd = check(unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attr, size, 0)
        })?;
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the kernel just returned `fd`, so it has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Allows `rights` on the file or directory `path` and on everything beneath it.
    pub fn allow(&self, path: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
        let attr = PathBeneathAttr { allowed_access: rights, parent_fd: path.as_raw_fd() };
        // SAFETY: the attribute is the packed struct of this rule type and lives across the call.
        check(unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.0.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const attr,
                0,
            )
        })?;
        Ok(())
    }

    /// Enforces the ruleset on the calling thread permanently. Needs `no_new_privs`.
    pub fn restrict_self(self) -> io::Result<()> {
        // SAFETY: landlock_restrict_self takes integers only.
        check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.0.as_raw_fd(), 0) })?;
        Ok(())
    }
}
