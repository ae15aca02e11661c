//! The binary `belljar-worker`: runs one job inside a box and exits.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// The stack size of the thread that runs the job, in bytes.
///
/// Programs and their parser recurse deeper than a default stack allows. Unused stack costs no memory.
const STACK: usize = 256 << 20;

#[expect(clippy::disallowed_methods, reason = "the environment is read here and passed in")]
fn main() -> ExitCode {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let env = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    let work = move || belljar_worker::runtime::work(env);
    let Ok(worker) = std::thread::Builder::new().stack_size(STACK).spawn(work) else {
        return ExitCode::from(70);
    };
    // A job normally exits the process. The thread returns only if the host closed the connection or
    // sent an invalid message, so there is no one to report the error to.
    match worker.join() {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) | Err(_) => ExitCode::from(70),
    }
}
