//! Reads and writes the files, keys and numbers of the ledger commands.

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use belljar_ledger::VerifyingKey;
use belljar_model::display;

use super::LedgerHome;
use crate::cli::ledger::Trust;
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::record::sentences;

/// Parses a number that consists only of digits.
pub(super) fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

/// Returns the trusted keys: those of `--key`, or else the keys of this machine.
pub(super) fn trusted_keys(trust: &Trust) -> Result<Vec<VerifyingKey>, EngineError> {
    match trust.key.as_deref() {
        Some(key) => given_keys(key),
        None => LedgerHome::open()?.keys(),
    }
}

/// Parses the value of `--key`: a public key, or a file with public keys.
pub(super) fn given_keys(given: &str) -> Result<Vec<VerifyingKey>, EngineError> {
    const MAX_KEY_FILE_BYTES: u64 = 1 << 20;
    if let Ok(key) = given.parse() {
        return Ok(vec![key]);
    }
    let text = read_input("--key", Path::new(given), MAX_KEY_FILE_BYTES)?;
    let text = String::from_utf8(text).unwrap_or_default();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let keys: Option<Vec<VerifyingKey>> = lines.map(|line| line.parse().ok()).collect();
    let keys = keys.filter(|keys| !keys.is_empty());
    keys.ok_or_else(|| {
        invalid(format!(
            "--key: {given:?} is neither a public key (NAME+ID+BASE64) nor a file with public keys"
        ))
    })
}

/// Reads a file, or standard input for `-`, up to a size limit.
pub(super) fn read_input(flag: &str, path: &Path, max_bytes: u64) -> Result<Vec<u8>, EngineError> {
    let name = display::safe(path.as_os_str().as_bytes());
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if path == Path::new("-") {
            io::stdin().lock().take(max_bytes + 1).read_to_end(&mut bytes)?;
        } else {
            std::fs::File::open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    };
    let bytes =
        read().with_context(|| format!("{flag}: cannot read {name}")).kind(ErrorKind::Invalid)?;
    if bytes.len() as u64 > max_bytes {
        return Err(invalid(format!(
            "{flag}: {name} is larger than {}",
            sentences::size(max_bytes)
        )));
    }
    Ok(bytes)
}

/// Writes to the file of `-o`, or to standard output.
pub(super) fn write_output(output: Option<&Path>, text: &str) -> Result<(), EngineError> {
    match output {
        Some(path) => {
            let name = display::safe(path.as_os_str().as_bytes());
            std::fs::write(path, text)
                .with_context(|| format!("-o: cannot write {name}"))
                .kind(ErrorKind::Broken)
        }
        None => print::out(text).kind(ErrorKind::Broken),
    }
}
