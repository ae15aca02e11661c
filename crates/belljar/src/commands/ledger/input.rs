//! What commands are given and what they give: files, keys, numbers.

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use belljar_ledger::VerifyingKey;
use belljar_model::display;

use super::Home;
use crate::cli::ledger::Trust;
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::record::sentences;

/// Digits and nothing else.
pub(super) fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

/// The keys to trust: those that were given, or this machine's own.
pub(super) fn trusted_keys(trust: &Trust) -> Result<Vec<VerifyingKey>, EngineError> {
    match trust.key.as_deref() {
        Some(key) => given_keys(key),
        None => Home::open()?.keys(),
    }
}

/// A key as it was typed, or those of a file.
pub(super) fn given_keys(given: &str) -> Result<Vec<VerifyingKey>, EngineError> {
    const LONGEST: u64 = 1 << 20;
    if let Ok(key) = given.parse() {
        return Ok(vec![key]);
    }
    let text = read_input("--key", Path::new(given), LONGEST)?;
    let text = String::from_utf8(text).unwrap_or_default();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let keys: Option<Vec<VerifyingKey>> = lines.map(|line| line.parse().ok()).collect();
    let keys = keys.filter(|keys| !keys.is_empty());
    keys.ok_or_else(|| {
        invalid(format!(
            "--key {given:?}: neither a public key (NAME+ID+BASE64) nor a file of them"
        ))
    })
}

/// Reads a file that was named, or standard input for `-`.
pub(super) fn read_input(flag: &str, path: &Path, longest: u64) -> Result<Vec<u8>, EngineError> {
    let name = display::safe(path.as_os_str().as_bytes());
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if path == Path::new("-") {
            io::stdin().lock().take(longest + 1).read_to_end(&mut bytes)?;
        } else {
            std::fs::File::open(path)?.take(longest + 1).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    };
    let bytes = read().with_context(|| format!("{flag} {name}")).kind(ErrorKind::Invalid)?;
    if bytes.len() as u64 > longest {
        return Err(invalid(format!("{flag} {name}: larger than {}", sentences::size(longest))));
    }
    Ok(bytes)
}

/// Writes to the file of `-o`, or to standard output.
pub(super) fn write_output(output: Option<&Path>, text: &str) -> Result<(), EngineError> {
    match output {
        Some(path) => {
            let name = display::safe(path.as_os_str().as_bytes());
            std::fs::write(path, text).with_context(|| format!("-o {name}")).kind(ErrorKind::Broken)
        }
        None => print::out(text).kind(ErrorKind::Broken),
    }
}
