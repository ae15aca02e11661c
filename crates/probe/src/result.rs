//! The result of an act, and its text, which the attack suite compares exactly.

use std::fmt;
use std::io;

use belljar_sys::probe::Outcome;

/// The detail text of a successful operation, or the reason why it did not succeed.
pub(crate) type ActResult = Result<String, ActError>;

/// The reason why an operation of the probe did not succeed.
#[derive(Debug)]
pub(crate) enum ActError {
    /// The kernel refused a system call, possibly after others succeeded.
    Errno { errno: i32, detail: String },
    /// A signal killed the child process that performed the operation.
    Killed(i32),
    /// The operation or another program has already printed the result; this is the exit status.
    AlreadyPrinted(u8),
    /// The probe could not try the operation.
    Failed(String),
    /// The arguments of the operation are invalid.
    Usage(String),
}

impl ActError {
    pub(crate) fn errno(errno: i32) -> Self {
        Self::Errno { errno, detail: String::new() }
    }

    /// Returns the error of a refused call, with the amount that succeeded before it.
    pub(crate) fn after(error: &io::Error, count: impl fmt::Display) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::Errno { errno, detail: format!("after {count}") },
            None => Self::Failed(error.to_string()),
        }
    }

    /// Returns the exit status of the probe for this error.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Errno { .. } | Self::Killed(_) => 1,
            Self::AlreadyPrinted(code) => *code,
            Self::Failed(_) | Self::Usage(_) => 2,
        }
    }
}

impl From<io::Error> for ActError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::errno(errno),
            None => Self::Failed(error.to_string()),
        }
    }
}

impl From<rustix::io::Errno> for ActError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::errno(error.raw_os_error())
    }
}

impl fmt::Display for ActError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno { errno, detail } => {
                let name = ERRNO_NAMES.iter().find(|(number, _)| number == errno);
                match name {
                    Some((_, name)) => write!(f, "errno {name}")?,
                    None => write!(f, "errno {errno}")?,
                }
                if detail.is_empty() { Ok(()) } else { write!(f, " {detail}") }
            }
            Self::Killed(signal) => {
                match SIGNAL_NAMES.iter().find(|(number, _)| number == signal) {
                    Some((_, name)) => write!(f, "killed {name}"),
                    None => write!(f, "killed {signal}"),
                }
            }
            Self::AlreadyPrinted(_) => Ok(()),
            Self::Failed(text) => write!(f, "failed: {text}"),
            Self::Usage(text) => write!(f, "usage: belljar-probe {text}"),
        }
    }
}

/// Converts the outcome of system calls in a child process to a result of the probe.
pub(crate) fn from_outcome(outcome: Outcome) -> ActResult {
    match outcome {
        Outcome::Granted(value) => Ok(value.to_string()),
        Outcome::Refused { index: 0, errno } => Err(ActError::errno(errno)),
        Outcome::Refused { index, errno } => {
            Err(ActError::Errno { errno, detail: format!("at {index}") })
        }
        Outcome::Killed(signal) => Err(ActError::Killed(signal)),
        Outcome::Exited(code) => Ok(format!("left {code}")),
    }
}

const SIGNAL_NAMES: &[(i32, &str)] = &[
    (libc::SIGSYS, "SIGSYS"),
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGXFSZ, "SIGXFSZ"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGTERM, "SIGTERM"),
];

const ERRNO_NAMES: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::ESRCH, "ESRCH"),
    (libc::EINTR, "EINTR"),
    (libc::EIO, "EIO"),
    (libc::ENXIO, "ENXIO"),
    (libc::E2BIG, "E2BIG"),
    (libc::ENOEXEC, "ENOEXEC"),
    (libc::EBADF, "EBADF"),
    (libc::ECHILD, "ECHILD"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::ENOTBLK, "ENOTBLK"),
    (libc::EBUSY, "EBUSY"),
    (libc::EEXIST, "EEXIST"),
    (libc::EXDEV, "EXDEV"),
    (libc::ENODEV, "ENODEV"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::EISDIR, "EISDIR"),
    (libc::EINVAL, "EINVAL"),
    (libc::ENFILE, "ENFILE"),
    (libc::EMFILE, "EMFILE"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::ETXTBSY, "ETXTBSY"),
    (libc::EFBIG, "EFBIG"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::ESPIPE, "ESPIPE"),
    (libc::EROFS, "EROFS"),
    (libc::EMLINK, "EMLINK"),
    (libc::EPIPE, "EPIPE"),
    (libc::ERANGE, "ERANGE"),
    (libc::ENAMETOOLONG, "ENAMETOOLONG"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ENOTEMPTY, "ENOTEMPTY"),
    (libc::ELOOP, "ELOOP"),
    (libc::ENODATA, "ENODATA"),
    (libc::EOVERFLOW, "EOVERFLOW"),
    (libc::EUSERS, "EUSERS"),
    (libc::ENOTSOCK, "ENOTSOCK"),
    (libc::EPROTOTYPE, "EPROTOTYPE"),
    (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
    (libc::ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
    (libc::EADDRINUSE, "EADDRINUSE"),
    (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (libc::ENETDOWN, "ENETDOWN"),
    (libc::ENETUNREACH, "ENETUNREACH"),
    (libc::ECONNRESET, "ECONNRESET"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::EHOSTUNREACH, "EHOSTUNREACH"),
    (libc::EINPROGRESS, "EINPROGRESS"),
    (libc::EDQUOT, "EDQUOT"),
    (libc::ENOKEY, "ENOKEY"),
    (libc::EKEYREVOKED, "EKEYREVOKED"),
];
