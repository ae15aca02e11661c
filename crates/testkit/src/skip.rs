//! Records checks that a test skips on this machine or as this user.

use std::fs::OpenOptions;
use std::io::Write as _;

/// The environment variable with the path of the file that collects skipped checks. `cargo xtask
/// test` sets it, counts the lines of the file, and fails in CI on an unexpected skip.
const FILE: &str = "BELLJAR_SKIPS";

/// Records that the running test skips a check, with the reason. The caller then returns.
#[expect(clippy::print_stdout, reason = "printed as output of the test")]
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed thread");
    println!("skipped: {test}: {reason}");
    let Some(file) = std::env::var_os(FILE) else { return };
    // A single short write in append mode, so that lines of two tests do not mix.
    let line = format!("{test}\t{}\n", reason.replace('\n', " "));
    let added = OpenOptions::new()
        .append(true)
        .open(&file)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    added.unwrap_or_else(|error| panic!("cannot write to {FILE} {}: {error}", file.display()));
}

/// Returns whether the test runs as root, and records a skip if it does not. If not, records the
/// running test as skipped.
#[must_use]
pub fn root_or_skip(reason: &str) -> bool {
    let is_root = crate::is_root();
    if !is_root {
        skip(reason);
    }
    is_root
}
