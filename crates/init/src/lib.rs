//! PID 1 of a native box.
//!
//! A static program of its own, started from a sealed memfd in the namespaces of the box: no thread,
//! no environment, no argument but its role. It receives one [`plan::Plan`], builds the root, locks
//! itself down, starts the payload behind the same locks and reaps until the payload ends.
//!
//! It decides nothing (the supervisor made the plan) and reads nothing that the payload wrote.

#![forbid(unsafe_code)]

pub mod janitor;
pub mod plan;
pub mod wire;

mod build;
mod fixed;
mod guests;
mod limits;
mod lockdown;
mod net;
mod payload;
mod proc;
mod reap;
mod selftest;

pub use reap::run;

use plan::Stage;

/// Why a box could not be built, in a form that crosses the control socket.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) stage: Stage,
    pub(crate) what: String,
    pub(crate) errno: i32,
}

/// Says what was being done when a call failed.
pub(crate) trait During<T> {
    fn during(self, stage: Stage, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<std::io::Error>> During<T> for Result<T, E> {
    fn during(self, stage: Stage, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| {
            let error: std::io::Error = error.into();
            Failure { stage, what: what(), errno: error.raw_os_error().unwrap_or(0) }
        })
    }
}

/// A path for people.
pub(crate) fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
