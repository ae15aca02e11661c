//! Copies the static programs that go inside a box into sealed memory.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags};

pub use belljar_embedded::PROBE;

/// Init in memory that nobody can change any more, not even through `/proc/1/exe`.
pub(crate) fn init() -> io::Result<OwnedFd> {
    sealed("belljar-init", belljar_embedded::INIT)
}

/// A program in memory that nobody can change any more.
pub fn sealed(name: &str, program: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Before 6.3 the kernel does not know the flag that says "will be executed".
    let memory = rustix::fs::memfd_create(name, flags | MemfdFlags::from_bits_retain(MFD_EXEC))
        .or_else(|_| rustix::fs::memfd_create(name, flags))?;
    let mut rest = program;
    while !rest.is_empty() {
        let wrote = rustix::io::write(&memory, rest)?;
        rest = rest.get(wrote..).unwrap_or_default();
    }
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&memory, seals)?;
    Ok(memory)
}

const MFD_EXEC: u32 = 0x10;
