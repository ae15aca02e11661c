//! The log of the processes that the engine starts.
//!
//! The engine writes events with `tracing`; the embedding program decides whether and where they are
//! kept. Events name runs, boxes, hosts, paths, tools and rules. They never hold the value of a
//! variable, a header, a body, the content of a file, an argument of a tool or a token.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::OnceLock;
use std::thread::JoinHandle;

use belljar_model::RunId;
use tracing::Span;

/// Names the run to a process that starts with an empty environment.
pub(crate) const RUN_VARIABLE: &str = "BELLJAR_LOG_RUN";

static VARIABLES: OnceLock<Vec<CString>> = OnceLock::new();

/// Sets the variables that configure the log of a broker and of a screen, which otherwise have an
/// empty environment. Without this call they write no log. Only the first call counts.
pub fn pass_on<'a>(variables: impl IntoIterator<Item = (&'a str, OsString)>) {
    let assigned = variables.into_iter().filter_map(|(name, value)| {
        CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
    });
    VARIABLES.get_or_init(|| assigned.collect());
}

/// The environment of a process that keeps the log of this run; empty without a log.
pub(crate) fn environment(run: RunId) -> Vec<CString> {
    let Some(variables) = VARIABLES.get() else { return Vec::new() };
    let run = CString::new(format!("{RUN_VARIABLE}={run}")).ok();
    variables.iter().cloned().chain(run).collect()
}

/// Starts a thread whose events have the ids of this one.
pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let span = Span::current();
    std::thread::spawn(move || span.in_scope(work))
}
