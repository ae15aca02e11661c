//! What an act came to, in words that the attack suite compares letter by letter.

use std::fmt;
use std::io;

use belljar_sys::probe::Outcome;

/// The detail of a granted act, or what stopped it.
pub(crate) type Answer = Result<String, Stop>;

#[derive(Debug)]
pub(crate) enum Stop {
    /// The kernel refused, possibly after some of it was granted.
    Errno {
        errno: i32,
        detail: String,
    },
    /// A child that performed the act was killed by this signal.
    Killed(i32),
    /// The line is already printed, by another program; only the code is left to tell.
    Told(u8),
    /// The act could not be tried at all.
    Failed(String),
    Usage(String),
}

impl Stop {
    pub(crate) fn errno(errno: i32) -> Self {
        Self::Errno { errno, detail: String::new() }
    }

    /// The same refusal with how far the act came before it.
    pub(crate) fn after(error: &io::Error, count: impl fmt::Display) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::Errno { errno, detail: format!("after {count}") },
            None => Self::Failed(error.to_string()),
        }
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Errno { .. } | Self::Killed(_) => 1,
            Self::Told(code) => *code,
            Self::Failed(_) | Self::Usage(_) => 2,
        }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::errno(errno),
            None => Self::Failed(error.to_string()),
        }
    }
}

impl From<rustix::io::Errno> for Stop {
    fn from(error: rustix::io::Errno) -> Self {
        Self::errno(error.raw_os_error())
    }
}

impl fmt::Display for Stop {
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
            Self::Told(_) => Ok(()),
            Self::Failed(text) => write!(f, "failed: {text}"),
            Self::Usage(text) => write!(f, "usage: belljar-probe {text}"),
        }
    }
}

/// What a list of calls in a child came to.
pub(crate) fn of(ending: Outcome) -> Answer {
    match ending {
        Outcome::Granted(value) => Ok(value.to_string()),
        Outcome::Refused { index: 0, errno } => Err(Stop::errno(errno)),
        Outcome::Refused { index: place, errno } => {
            Err(Stop::Errno { errno, detail: format!("at {place}") })
        }
        Outcome::Killed(signal) => Err(Stop::Killed(signal)),
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
