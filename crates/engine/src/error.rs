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
    /// The caller or the tenant already uses as much as it may. Nothing was done.
    LimitReached,
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
    /// The ledger cannot be written, so nothing was done, or the end of a program is not recorded.
    Unrecorded,
    /// The box could not be started.
    CannotStart,
    /// The program exists in the box, but cannot be executed.
    NotExecutable,
    /// The program does not exist in the box.
    ProgramNotFound,
}

/// An error of the engine, with a kind, a message, its causes and what to do next.
///
/// `{:#}` is the one format of errors for people: what failed and on what, why, and what to do, in
/// this order.
pub struct EngineError {
    kind: ErrorKind,
    error: anyhow::Error,
    advice: Option<String>,
}

impl EngineError {
    pub fn new(kind: ErrorKind, error: impl Into<anyhow::Error>) -> Self {
        Self { kind, error: error.into(), advice: None }
    }

    /// Creates an error that has a message and no cause.
    pub fn message(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self::new(kind, anyhow::Error::msg(text.into()))
    }

    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the error with a text that precedes its message.
    #[must_use]
    pub fn context(self, text: impl fmt::Display + Send + Sync + 'static) -> Self {
        Self { error: self.error.context(text), ..self }
    }

    /// Returns the error with the next step for the user, which follows the causes.
    #[must_use]
    pub fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    pub(crate) const fn inner(&self) -> &anyhow::Error {
        &self.error
    }

    pub(crate) fn into_inner(self) -> anyhow::Error {
        self.error
    }
}

/// Writes the message of the error. `{:#}` also writes its causes and the advice.
impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(&self.error, f);
        }
        let mut before = String::new();
        for cause in self.error.chain() {
            let text = cause.to_string();
            // Some errors already contain the text of their cause.
            if before.contains(&text) {
                continue;
            }
            let separator = if before.is_empty() { "" } else { ": " };
            write!(f, "{separator}{text}")?;
            before = text;
        }
        self.advice.iter().try_for_each(|advice| write!(f, "; {advice}"))
    }
}

impl fmt::Debug for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self:#}", self.kind)
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
        self.map_err(|error| EngineError::new(kind, error))
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

    #[test]
    fn engine_error_shows_the_advice_after_the_causes() {
        let cause = std::io::Error::other("line 3: unknown key \"hots\"");
        let error = EngineError::new(ErrorKind::Invalid, cause).context("cannot read policy.toml");
        let error = error.advise("did you mean \"hosts\"?");
        let text = "cannot read policy.toml: line 3: unknown key \"hots\"; did you mean \"hosts\"?";
        assert_eq!(format!("{error:#}"), text);
        assert_eq!(format!("{:#}", error.context("box x")), format!("box x: {text}"));
    }

    #[test]
    fn engine_error_does_not_repeat_a_cause_that_its_message_contains() {
        let cause = anyhow::anyhow!("disk full").context("cannot write x: disk full");
        assert_eq!(
            format!("{:#}", EngineError::new(ErrorKind::Broken, cause)),
            "cannot write x: disk full"
        );
    }
}
