//! Reads signals from a descriptor, and resets signal handling before exec. See signalfd(2), signal(7).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use libc::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};

use crate::check;

/// The signals that the supervising thread of a process reads; other threads must block them.
pub const SUPERVISOR_SIGNALS: [i32; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH];

/// A descriptor from which a thread reads signals. Dropping it unblocks those signals that were not blocked
/// before.
pub struct SignalFd {
    fd: OwnedFd,
    /// The signals that this value has blocked.
    blocked: libc::sigset_t,
}

impl SignalFd {
    /// Blocks `signals` for the calling thread and opens a descriptor from which they can be read.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        let set = set_of(signals)?;
        let mut old = set_of(&[])?;
        // SAFETY: both sets are initialised local variables.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut old) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: the set is initialised, and the numbers are those of signals.
        let was_blocked = |signal: i32| unsafe { libc::sigismember(&raw const old, signal) } == 1;
        let new: Vec<i32> = signals.iter().copied().filter(|it| !was_blocked(*it)).collect();
        let blocked = set_of(&new)?;
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: -1 requests a new descriptor; the set is initialised.
        let fd = check(unsafe { libc::signalfd(-1, &raw const set, flags) }.into())?;
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the kernel just returned `fd`, so it has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, blocked })
    }

    /// Returns the next pending signal, or `None` if no signal is pending.
    pub fn read(&self) -> io::Result<Option<i32>> {
        // SAFETY: signalfd_siginfo is plain integers, for which zero is a valid value.
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
        let (set, none) = (&raw const self.blocked, std::ptr::null_mut());
        // SAFETY: the set was initialised by `new`; the old set is not requested.
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

/// Sets all signals to their default action and unblocks them, as a program expects when it starts.
pub fn reset() -> io::Result<()> {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL installs no handler. The call fails for SIGKILL, SIGSTOP and the two signals
        // that glibc reserves, which need no reset.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let none = set_of(&[])?;
    // SAFETY: the set is initialised; the old set is not requested.
    let unblocked =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) };
    if unblocked == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(unblocked)) }
}

/// Returns the signal set (`sigset_t`) of these signals. Fails if a number is not a signal.
fn set_of(signals: &[i32]) -> io::Result<libc::sigset_t> {
    // SAFETY: sigset_t is plain integers, for which zero is a valid value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is a local variable that the call can write to.
    check(unsafe { libc::sigemptyset(&raw mut set) }.into())?;
    for signal in signals {
        // SAFETY: the set is initialised; an invalid signal number is an error.
        check(unsafe { libc::sigaddset(&raw mut set, *signal) }.into())?;
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the calling thread blocks a signal.
    fn is_blocked(signal: i32) -> bool {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal - 1)) != 0
    }

    #[test]
    fn dropped_signal_descriptor_unblocks_only_the_signals_that_it_blocked() {
        assert!(!is_blocked(SIGHUP) && !is_blocked(SIGTERM));
        let outer = SignalFd::new(&[SIGTERM]).unwrap();
        let inner = SignalFd::new(&[SIGHUP, SIGTERM]).unwrap();
        assert!(is_blocked(SIGHUP) && is_blocked(SIGTERM));
        drop(inner);
        assert!(!is_blocked(SIGHUP), "control: the inner descriptor blocked this signal");
        assert!(is_blocked(SIGTERM), "the outer descriptor still blocks this signal");
        drop(outer);
        assert!(!is_blocked(SIGTERM));
    }
}
