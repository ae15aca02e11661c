//! How Belljar asks the kernel: one safe function per call that `rustix` does not cover.
//!
//! The only crate with `unsafe`. No policy, no retries, no logging: everything returns
//! [`std::io::Result`] and takes and gives owned descriptors. `docs/unsafe.md` lists every block.

#![expect(unsafe_code, reason = "raw system calls; every block is listed in docs/unsafe.md")]

pub mod capability;
pub mod clone;
pub mod exec;
pub mod landlock;
pub mod mount;
pub mod net;
pub mod probe;
pub mod process;
pub mod seccomp;
pub mod signal;
pub mod time;

use std::io;

/// Turns the kernel's `-1` into the error that it left in `errno`.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
