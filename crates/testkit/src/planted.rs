//! Secrets that tests make or give to a vault, for the search of all logs after the tests.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write as _;

/// Names the file to which secrets are added, one per line; `cargo xtask test` sets it.
const FILE: &str = "BELLJAR_TEST_SECRETS";

/// Adds a secret to that file, if there is one.
pub(crate) fn plant(secret: &str) {
    let Some(file) = std::env::var_os(FILE) else { return };
    // One short write to a file opened for appending, so that lines of two tests do not mix.
    let line = format!("{}\n", secret.trim_end_matches('\n'));
    let added = OpenOptions::new()
        .append(true)
        .open(&file)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    added.unwrap_or_else(|error| panic!("{FILE}: {}: {error}", file.display()));
}

/// Adds what a program reads if the program is `belljar secret set`.
pub(crate) fn plant_input<'a>(args: impl IntoIterator<Item = &'a OsStr>, input: &[u8]) {
    let words: Vec<&OsStr> = args.into_iter().take(2).collect();
    // A value of several lines is refused, and its lines are searched for one by one.
    if words == ["secret", "set"]
        && let Ok(text) = std::str::from_utf8(input)
    {
        text.lines().for_each(plant);
    }
}
