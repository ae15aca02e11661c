//! Checks which isolation layers the host can enforce, and records the result.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use belljar_ledger::{Digest, DoctorChecked, Draft};

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record;
use crate::scope::Scoped;

pub use belljar_box::doctor::{Finding, Health, examine};

/// The result of `belljar doctor`, for the ledger.
#[derive(Clone, Copy, Debug)]
pub struct Examination<'a> {
    /// Whether the attack tests of the threat model were run, too.
    pub proved: bool,
    pub passed: u64,
    pub failed: u64,
    /// The complete report as JSON.
    pub report: &'a [u8],
}

/// Records the result of `belljar doctor` in the ledger, with its report.
pub fn record(state: &Scoped, examination: &Examination<'_>) -> Result<(), EngineError> {
    let Examination { proved, passed, failed, mut report } = *examination;
    let ledger = record::open(state).kind(ErrorKind::Broken)?;
    let report = ledger.keep(Digest::of(&[b"doctor"]), &mut report).kind(ErrorKind::Broken)?;
    let event = DoctorChecked { proved, passed, failed, report };
    ledger.record(Draft::new(event)).map(drop).kind(ErrorKind::Broken)
}

/// Writes the embedded probe, the program that runs attacks inside a box, to a new file.
pub fn write_probe(file: &Path) -> Result<(), EngineError> {
    let mut options = std::fs::File::options();
    let opened = options.write(true).create_new(true).mode(0o755).open(file);
    let written = opened.and_then(|mut opened| opened.write_all(belljar_box::embedded::PROBE));
    written.with_context(|| format!("cannot write {}", file.display())).kind(ErrorKind::Broken)
}
