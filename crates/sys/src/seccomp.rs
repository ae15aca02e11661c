//! Installs a classic BPF program as a seccomp filter. See seccomp(2).

use std::io;

use crate::check;

/// One BPF instruction, with the layout of the kernel's `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub k: u32,
}

const SET_MODE_FILTER: u32 = 1;

/// Filters the system calls of this thread and its children permanently. Needs `no_new_privs`.
pub fn install(program: &[Instruction]) -> io::Result<()> {
    #[repr(C)]
    struct Program {
        length: u16,
        filter: *const Instruction,
    }
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = Program { length, filter: program.as_ptr() };
    // SAFETY: the kernel copies `length` instructions of exactly this layout during the call.
    check(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, &raw const program) })?;
    Ok(())
}
