//! The one error type that leaves the engine: a kind for programs and a message for people.

use std::error::Error;
use std::fmt;

/// What went wrong, for a program that has to react to it.
///
/// The command line maps a kind to an exit code, a server maps it to an HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// A name, a value or a file of the caller is wrong. Nothing was done.
    Invalid,
    /// The named box, run, template or secret does not exist.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// The box or run is in a state that does not allow this, such as a running box.
    WrongState,
    /// A rule forbids it.
    Refused,
    /// Another process holds the lock for longer than the timeout.
    Busy,
    /// Both sides changed the same thing.
    Conflict,
    /// A record on disk cannot be read.
    Damaged,
    /// State or a process of another version of Belljar.
    Version,
    /// Something that should work did not.
    Broken,
    /// The ledger cannot be written, so nothing was done.
    Unrecorded,
    /// The box could not be started.
    CannotStart,
    /// The program exists and cannot be executed.
    NotExecutable,
    /// There is no such program in the box.
    ProgramNotFound,
}

/// An error with its kind, its message and its causes.
pub struct EngineError {
    kind: ErrorKind,
    error: anyhow::Error,
}

impl EngineError {
    pub fn new(kind: ErrorKind, error: impl Into<anyhow::Error>) -> Self {
        Self { kind, error: error.into() }
    }

    /// An error that has only a message.
    pub fn message(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, error: anyhow::Error::msg(text.into()) }
    }

    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same error with a sentence before its message.
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

/// The message; with `{:#}` also its causes.
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

/// Gives an error its kind.
pub trait WithKind<T> {
    fn kind(self, kind: ErrorKind) -> Result<T, EngineError>;
}

impl<T, E: Into<anyhow::Error>> WithKind<T> for Result<T, E> {
    fn kind(self, kind: ErrorKind) -> Result<T, EngineError> {
        self.map_err(|error| EngineError { kind, error: error.into() })
    }
}

/// An error about what the caller asked for.
pub fn invalid(text: impl Into<String>) -> EngineError {
    EngineError::message(ErrorKind::Invalid, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_its_message_and_on_request_its_causes() {
        let cause = std::io::Error::other("disk full");
        let error = anyhow::Error::new(cause).context("write run.json");
        let error = EngineError::new(ErrorKind::Broken, error).context("box x");
        assert_eq!(error.to_string(), "box x");
        assert_eq!(format!("{error:#}"), "box x: write run.json: disk full");
        assert_eq!(error.kind(), ErrorKind::Broken);
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("write run.json"));
    }
}
