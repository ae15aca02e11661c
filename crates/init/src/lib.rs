//! PID 1 of a native box.
//!
//! Init is a separate static program, started from a sealed memfd in the namespaces of the box. It has
//! one thread, no environment, and its role as the only argument. It receives one [`plan::Plan`], builds
//! the root, restricts itself, starts the payload with the same restrictions and reaps processes until
//! the payload ends. The payload is the first program that the user runs in the box.
//!
//! Init makes no policy decisions (the supervisor made the plan) and reads no file that the payload wrote.

#![forbid(unsafe_code)]

pub mod files;
pub mod janitor;
pub mod plan;
pub mod wire;

mod build;
mod exec_processes;
mod fixed;
mod limits;
mod lockdown;
mod net;
mod payload;
mod proc;
mod reap;
mod selftest;

pub use reap::run;

use plan::Stage;

/// The reason why init could not build a box. Init sends its fields to the supervisor.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) stage: Stage,
    /// The failed operation as a clause: "cannot mount /proc".
    pub(crate) what: String,
    pub(crate) errno: i32,
}

/// Adds the failed operation to the error of a system call.
pub(crate) trait Context<T> {
    fn context(self, stage: Stage, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<std::io::Error>> Context<T> for Result<T, E> {
    fn context(self, stage: Stage, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| {
            let error: std::io::Error = error.into();
            Failure { stage, what: what(), errno: error.raw_os_error().unwrap_or(0) }
        })
    }
}

/// Returns a path as text for an error message.
pub(crate) fn display(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
