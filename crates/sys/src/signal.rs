//! Signals as descriptors, and the state that an executed program should find. See signalfd(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use libc::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};

use crate::check;

/// What the thread that supervises a box reads; other threads of its process block them.
pub const SUPERVISED: [i32; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH];

/// Signals that arrive by reading instead of by interrupting, for as long as this lives.
pub struct SignalFd {
    fd: OwnedFd,
    set: libc::sigset_t,
}

impl SignalFd {
    /// Blocks `signals` for this thread and collects them.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        let set = set_of(signals)?;
        // SAFETY: the set is initialised; the old set is not asked for.
        let blocked =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if blocked != 0 {
            return Err(io::Error::from_raw_os_error(blocked));
        }
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: -1 asks for a new descriptor; the set is initialised.
        let fd = check(unsafe { libc::signalfd(-1, &raw const set, flags) }.into())?;
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the kernel just returned `fd` to us, so nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, set })
    }

    /// The next signal, or `None` when there is none now.
    pub fn read(&self) -> io::Result<Option<i32>> {
        // SAFETY: signalfd_siginfo is plain integers, for which zero is a value.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = std::mem::size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has the size that is passed and lives across the call.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size) };
        match check(i64::try_from(read).map_err(io::Error::other)?) {
            Ok(_) => Ok(Some(i32::try_from(info.ssi_signo).map_err(io::Error::other)?)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for SignalFd {
    fn drop(&mut self) {
        let (set, none) = (&raw const self.set, std::ptr::null_mut());
        // SAFETY: the set was initialised by `new`; the old set is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set, none) };
    }
}

impl std::fmt::Debug for SignalFd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SignalFd").field(&self.fd).finish()
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Default actions for all signals and none of them blocked: what a program expects at its start.
pub fn reset() -> io::Result<()> {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL installs no code of ours. The kernel refuses SIGKILL, SIGSTOP and the
        // two that belong to glibc, which need no reset.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let none = set_of(&[])?;
    // SAFETY: the set is initialised; the old set is not asked for.
    let unblocked =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) };
    if unblocked == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(unblocked)) }
}

fn set_of(signals: &[i32]) -> io::Result<libc::sigset_t> {
    // SAFETY: sigset_t is plain integers, for which zero is a value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours to write.
    check(unsafe { libc::sigemptyset(&raw mut set) }.into())?;
    for signal in signals {
        // SAFETY: the set is initialised; a number that is no signal is refused.
        check(unsafe { libc::sigaddset(&raw mut set, *signal) }.into())?;
    }
    Ok(set)
}
