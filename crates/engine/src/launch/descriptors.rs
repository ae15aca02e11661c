//! Checks before the start of a box that enough file descriptors are available.
//!
//! Without the check, a step in the middle of the start fails with an error that does not name the
//! limit.

use rustix::process::{Resource, getrlimit};

use crate::error::{EngineError, ErrorKind};

/// The number of descriptors that a process needs to start a box with a broker, and some to spare.
const NEEDED: u64 = 128;

/// Returns an error if the limit of open files is too low to start a box.
pub(crate) fn check() -> Result<(), EngineError> {
    check_limit(getrlimit(Resource::Nofile).current)
}

fn check_limit(limit: Option<u64>) -> Result<(), EngineError> {
    match limit {
        Some(limit) if limit < NEEDED => Err(EngineError::message(
            ErrorKind::CannotStart,
            format!(
                "cannot start a box: at most {limit} files can be open, and {NEEDED} are needed"
            ),
        )
        .advise("raise the limit, for example with `ulimit -n 1024`")),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_limit_refuses_too_few_descriptors_and_names_both_numbers() {
        let error = check_limit(Some(127)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CannotStart);
        let text = format!("{error:#}");
        assert!(text.contains("at most 127 files can be open, and 128 are needed"), "{text}");
        assert!(text.contains("ulimit -n"), "{text}");
        check_limit(Some(128)).unwrap();
        check_limit(None).unwrap();
    }
}
