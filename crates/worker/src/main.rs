//! The program inside a box that runs one job.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Programs recurse, and so does the reader of their text: far more than a thread has by itself. Only
/// what is used costs memory.
const STACK: usize = 256 << 20;

#[expect(clippy::disallowed_methods, reason = "the environment is read here and passed in")]
fn main() -> ExitCode {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let env = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    let work = move || belljar_worker::runtime::work(env);
    let Ok(worker) = std::thread::Builder::new().stack_size(STACK).spawn(work) else {
        return ExitCode::from(70);
    };
    // It ends the process itself, unless the other side is gone or speaks another language; and then
    // there is nobody to tell.
    match worker.join() {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) | Err(_) => ExitCode::from(70),
    }
}
