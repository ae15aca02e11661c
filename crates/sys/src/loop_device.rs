//! Loop devices, which make a block device of a file. See loop(4).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::check;

const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_config` of linux/loop.h, with the `struct loop_info64` in it.
#[repr(C)]
struct LoopConfig {
    file: u32,
    block_size: u32,
    /// The first part of `loop_info64`, up to `lo_encrypt_key_size`.
    identity: [u64; 5],
    numbers: [u32; 3],
    flags: u32,
    names: [u8; 64 + 64 + 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

/// The access of a loop device to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopAccess {
    ReadOnly,
    ReadWrite,
}

/// Returns the number of a loop device that has no file, and creates the device if necessary. `control` is
/// `/dev/loop-control`. Another process can take the device before the caller.
pub fn find_free(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: this request takes no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(check(number.into())?).map_err(io::Error::other)
}

/// Gives a free loop device its file, until the last mount and descriptor of the device is closed. The
/// device uses the open file description of `file`, with its locks.
pub fn configure(
    device: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    access: LoopAccess,
) -> io::Result<()> {
    let read_only = if access == LoopAccess::ReadOnly { LO_FLAGS_READ_ONLY } else { 0 };
    let config = LoopConfig {
        file: file.as_raw_fd().unsigned_abs(),
        block_size: 0,
        identity: [0; 5],
        numbers: [0; 3],
        flags: LO_FLAGS_AUTOCLEAR | read_only,
        names: [0; 160],
        init: [0; 2],
        reserved: [0; 8],
    };
    // SAFETY: the request reads one `loop_config`, which has this layout and lives across the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    check(result.into()).map(drop)
}
