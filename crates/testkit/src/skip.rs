//! Tests that cannot check something on this machine, or as this user, say so here.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Names the file to which skips are added; `cargo xtask test` sets it, counts the lines, and fails
/// in CI when one is not expected.
const FILE: &str = "BELLJAR_SKIPS";

/// Records that the running test leaves something unchecked, and why. The caller then returns.
#[expect(clippy::print_stdout, reason = "shown with the output of the test")]
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread without a name");
    println!("skipped: {test}: {reason}");
    let Some(file) = std::env::var_os(FILE) else { return };
    // One short write to a file opened for appending, so that lines of two tests do not mix.
    let line = format!("{test}\t{}\n", reason.replace('\n', " "));
    let added = OpenOptions::new()
        .append(true)
        .open(&file)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    added.unwrap_or_else(|error| panic!("{FILE}: {}: {error}", file.display()));
}

/// Whether this user is root. If not, the running test is recorded as skipped.
#[must_use]
pub fn root_or_skip(reason: &str) -> bool {
    let is_root = crate::is_root();
    if !is_root {
        skip(reason);
    }
    is_root
}
