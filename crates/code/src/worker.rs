//! The program inside a box that runs one job.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Programs recurse, and so does the reader of their text: far more than a thread has by itself. Only
/// what is used costs memory.
const STACK: usize = 256 << 20;

fn main() -> ExitCode {
    let worker = std::thread::Builder::new().stack_size(STACK).spawn(belljar_code::engine::work);
    let Ok(worker) = worker else { return ExitCode::from(70) };
    match worker.join() {
        Ok(Ok(())) => ExitCode::SUCCESS,
        // The other side is gone, or speaks another language: there is nobody to tell.
        Ok(Err(_)) | Err(_) => ExitCode::from(70),
    }
}
