//! The log configuration of the processes that the engine starts.
//!
//! The engine writes log events with `tracing`. The embedding program decides where they are stored.
//! Events name runs, boxes, hosts, paths, tools and rules. Events never contain the value of an
//! environment variable, a header, a body, the content of a file, an argument of a tool or a token.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::OnceLock;
use std::thread::JoinHandle;

use belljar_model::RunId;
use tracing::Span;

/// The environment variable that tells the broker and the screen their run id, for log events.
pub(crate) const RUN_VARIABLE: &str = "BELLJAR_LOG_RUN";

static VARIABLES: OnceLock<Vec<CString>> = OnceLock::new();

/// Sets the environment variables that configure the log of brokers and screens.
///
/// The environment of these processes is otherwise empty. Without this call they write no log. Only the
/// first call has an effect.
pub fn set_variables<'a>(variables: impl IntoIterator<Item = (&'a str, OsString)>) {
    let assigned = variables.into_iter().filter_map(|(name, value)| {
        CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
    });
    VARIABLES.get_or_init(|| assigned.collect());
}

/// Returns the environment for a broker or screen of a run. It is empty if no log is configured.
pub(crate) fn environment(run: RunId) -> Vec<CString> {
    let Some(variables) = VARIABLES.get() else { return Vec::new() };
    let run = CString::new(format!("{RUN_VARIABLE}={run}")).ok();
    variables.iter().cloned().chain(run).collect()
}

/// Starts a thread whose log events have the same run and box ids as those of the current thread.
pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let span = Span::current();
    std::thread::spawn(move || span.in_scope(work))
}
