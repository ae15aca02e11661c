//! Errors at the edge: what to say and which exit code says it too.

/// Usage: a flag, a file or a name was wrong, and nothing was done.
pub(crate) const USAGE: u8 = 2;
/// Something that was asked for could not be done.
pub(crate) const FAILED: u8 = 1;
/// The box could not be started.
pub(crate) const NO_BOX: u8 = 125;

/// An error on its way to the operator.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) error: anyhow::Error,
}

pub(crate) type Outcome = Result<u8, Failure>;

/// Gives an error its exit code.
pub(crate) trait Code<T> {
    fn code(self, code: u8) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> Code<T> for Result<T, E> {
    fn code(self, code: u8) -> Result<T, Failure> {
        self.map_err(|error| Failure { code, error: error.into() })
    }
}

/// A refusal of what was asked, in words.
pub(crate) fn usage(text: impl Into<String>) -> Failure {
    Failure { code: USAGE, error: anyhow::Error::msg(text.into()) }
}
