//! Records the secrets that tests use, so that `cargo xtask test` can search all logs for them.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write as _;

/// The environment variable with the path of the file that collects the secrets of tests, one per
/// line. `cargo xtask test` sets it.
const FILE: &str = "BELLJAR_TEST_SECRETS";

/// Appends a secret of a test to the file that [`FILE`] names, if that variable is set.
pub(crate) fn plant(secret: &str) {
    let Some(file) = std::env::var_os(FILE) else { return };
    // A single short write in append mode, so that lines of two tests do not mix.
    let line = format!("{}\n", secret.trim_end_matches('\n'));
    let added = OpenOptions::new()
        .append(true)
        .open(&file)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    added.unwrap_or_else(|error| panic!("cannot write to {FILE} {}: {error}", file.display()));
}

/// Records the standard input as a secret if the arguments are those of `belljar secret set`.
pub(crate) fn plant_input<'a>(args: impl IntoIterator<Item = &'a OsStr>, input: &[u8]) {
    let words: Vec<&OsStr> = args.into_iter().take(2).collect();
    // A value with several lines is recorded line by line; `secret set` refuses such a value.
    if words == ["secret", "set"]
        && let Ok(text) = std::str::from_utf8(input)
    {
        text.lines().for_each(plant);
    }
}
