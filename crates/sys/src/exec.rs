//! Executes another program in this process, or ends the process. See execve(2), _exit(2).

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::check;

/// Executes the program at this path with these arguments and variables. Returns only on failure.
pub fn execve(program: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both arrays are null-terminated and point to C strings that outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Executes the program of an open file, see execveat(2). Returns only on failure.
pub fn execve_fd(program: BorrowedFd<'_>, argv: &[CString], env: &[CString]) -> io::Error {
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

/// Converts strings into the null-terminated array of pointers that the kernel expects.
fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Takes ownership of an inherited descriptor. Only the first call in a process succeeds.
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    static ADOPTED: AtomicBool = AtomicBool::new(false);
    if ADOPTED.swap(true, Ordering::SeqCst) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // SAFETY: F_SETFD takes integers only, and fails if the descriptor is not open.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }.into())?;
    // SAFETY: the descriptor is open (F_SETFD succeeded), and no earlier call took it (ADOPTED).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes ownership of an inherited descriptor of a listening socket. Only the first call for a descriptor
/// succeeds.
pub fn adopt_listener(fd: RawFd) -> io::Result<OwnedFd> {
    static ADOPTED: AtomicU64 = AtomicU64::new(0);
    let number = u32::try_from(fd).map_err(|_| io::ErrorKind::InvalidInput)?;
    let bit = 1_u64.checked_shl(number).ok_or(io::ErrorKind::InvalidInput)?;
    let mut listens: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or_default();
    // SAFETY: both pointers are valid for writes of their types during the call, and `length` is the size
    // of `listens`.
    let status = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ACCEPTCONN,
            (&raw mut listens).cast(),
            &raw mut length,
        )
    };
    check(status.into())?;
    if listens == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if ADOPTED.fetch_or(bit, Ordering::SeqCst) & bit != 0 {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // SAFETY: F_SETFD takes integers only, and fails if the descriptor is not open.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }.into())?;
    // SAFETY: the descriptor is open (F_SETFD succeeded), and no earlier call took it (ADOPTED).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Ends this process at once, without running exit handlers that a parent registered before a fork.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes an integer and does not return.
    unsafe { libc::_exit(code) }
}
