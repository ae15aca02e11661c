//! The exit code of each kind of error.

use belljar_engine::error::{EngineError, ErrorKind};

/// The command did its work and found a problem.
pub(crate) const FAILED: u8 = 1;
/// An argument, a file or a name was invalid, and nothing was done.
pub(crate) const USAGE: u8 = 2;

/// The exit code of a command, or its error.
pub(crate) type Outcome = Result<u8, EngineError>;

/// The exit code for a kind of error.
pub(crate) const fn code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Invalid
        | ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::WrongState
        | ErrorKind::Refused => USAGE,
        ErrorKind::LimitReached
        | ErrorKind::Busy
        | ErrorKind::Conflict
        | ErrorKind::Damaged
        | ErrorKind::Version
        | ErrorKind::Broken
        | ErrorKind::Unrecorded => FAILED,
        ErrorKind::CannotStart => 125,
        ErrorKind::NotExecutable => 126,
        ErrorKind::ProgramNotFound => 127,
    }
}
