//! Copies the embedded static programs into sealed memory files, for execution in a box.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags};

pub use belljar_embedded::PROBE;

/// Returns init as a sealed memory file, which cannot be changed even through `/proc/1/exe`.
pub(crate) fn init() -> io::Result<OwnedFd> {
    sealed("belljar-init", belljar_embedded::INIT)
}

/// Copies a program into a memory file, seals it against changes and returns it.
pub fn sealed(name: &str, program: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not support `MFD_EXEC`.
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
