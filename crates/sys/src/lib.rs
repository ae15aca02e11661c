//! Safe wrappers around the Linux system calls that `rustix` does not cover, one function per call.
//!
//! This is the only crate with `unsafe`. It has no policy, no retries and no logging: functions return
//! [`std::io::Result`], borrow descriptors and return owned ones. `docs/unsafe.md` lists every block.

#![expect(unsafe_code, reason = "raw system calls; every block is listed in docs/unsafe.md")]

pub mod capability;
pub mod clone;
pub mod exec;
pub mod landlock;
pub mod loop_device;
pub mod mount;
pub mod net;
pub mod probe;
pub mod process;
pub mod seccomp;
pub mod signal;
pub mod time;

use std::io;

/// Returns the error in `errno` if the result of a system call is -1.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
