//! Turns this process into another program. See execve(2).

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::check;

/// Executes `program` with exactly these arguments and variables. Returns only on failure.
pub fn execve(program: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both arrays are null-terminated and point to C strings that outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// The same with a program that is known by its descriptor only, which is closed by that.
pub fn execute(program: BorrowedFd<'_>, argv: &[CString], env: &[CString]) -> io::Error {
    let (argv, env) = (pointers(argv), pointers(env));
    let empty = c"";
    // SAFETY: both arrays are null-terminated and point to C strings that outlive the call, and so does
    // the empty path; the descriptor is open for as long as it is borrowed.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            empty.as_ptr(),
            argv.as_ptr(),
            env.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// What the kernel calls an array of strings.
fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Takes ownership of a descriptor that the parent promised to leave open, once per process.
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    static ADOPTED: AtomicBool = AtomicBool::new(false);
    if ADOPTED.swap(true, Ordering::SeqCst) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // SAFETY: F_SETFD takes integers only, and fails when the descriptor is not open.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }.into())?;
    // SAFETY: it is open (above), and nobody else in this process can have taken it (first line).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Ends this process without running what the parent has registered for its own end.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit touches no memory of ours.
    unsafe { libc::_exit(code) }
}
