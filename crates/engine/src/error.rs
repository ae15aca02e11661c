//! The error type of the engine's public functions: a kind for programs and a message for people.

use std::error::Error;
use std::fmt;

/// The kind of an engine error, for programs that handle kinds differently.
///
/// The command line maps each kind to an exit code, a server maps each kind to an HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// A name, a value or a file that the caller passed is invalid. Nothing was done.
    Invalid,
    /// The named box, run, template or secret does not exist.
    NotFound,
    /// A box or another object with the requested name already exists.
    AlreadyExists,
    /// The state of the box or run does not allow the operation: for example, the box is running.
    WrongState,
    /// A rule forbids the operation.
    Refused,
    /// Another process held the lock for longer than the timeout.
    Busy,
    /// The object changed after the caller read it, or both sides changed the same object.
    Conflict,
    /// A record on disk cannot be read.
    Damaged,
    /// The state directory or a process belongs to another version of Belljar.
    Version,
    /// An internal operation, such as writing a file, failed.
    Broken,
    /// The ledger cannot be written, so nothing was done.
    Unrecorded,
    /// The box could not be started.
    CannotStart,
    /// The program exists in the box, but cannot be executed.
    NotExecutable,
    /// The program does not exist in the box.
    ProgramNotFound,
}

/// An error of the engine, with a kind, a message and its causes.
pub struct EngineError {
    kind: ErrorKind,
    error: anyhow::Error,
}

impl EngineError {
    pub fn new(kind: ErrorKind, error: impl Into<anyhow::Error>) -> Self {
        Self { kind, error: error.into() }
    }

    /// Creates an error that has a message and no cause.
    pub fn message(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, error: anyhow::Error::msg(text.into()) }
    }

    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the error with a text that precedes its message.
    #[must_use]
    pub fn context(self, text: impl fmt::Display + Send + Sync + 'static) -> Self {
        Self { kind: self.kind, error: self.error.context(text) }
    }

    pub(crate) const fn inner(&self) -> &anyhow::Error {
        &self.error
    }

    pub(crate) fn into_inner(self) -> anyhow::Error {
        self.error
    }
}

/// Writes the message of the error. `{:#}` also writes its causes.
impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl fmt::Debug for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:#}", self.kind, self.error)
    }
}

impl Error for EngineError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Converts the error of a result into an [`EngineError`] of a given kind.
pub trait WithKind<T> {
    fn kind(self, kind: ErrorKind) -> Result<T, EngineError>;
}

impl<T, E: Into<anyhow::Error>> WithKind<T> for Result<T, E> {
    fn kind(self, kind: ErrorKind) -> Result<T, EngineError> {
        self.map_err(|error| EngineError { kind, error: error.into() })
    }
}

/// Creates an error of the kind [`ErrorKind::Invalid`].
pub fn invalid(text: impl Into<String>) -> EngineError {
    EngineError::message(ErrorKind::Invalid, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_error_shows_its_message_and_in_alternate_format_its_causes() {
        let cause = std::io::Error::other("disk full");
        let error = anyhow::Error::new(cause).context("cannot write run.json");
        let error = EngineError::new(ErrorKind::Broken, error).context("box x");
        assert_eq!(error.to_string(), "box x");
        assert_eq!(format!("{error:#}"), "box x: cannot write run.json: disk full");
        assert_eq!(error.kind(), ErrorKind::Broken);
        assert_eq!(
            error.source().map(ToString::to_string).as_deref(),
            Some("cannot write run.json")
        );
    }
}
