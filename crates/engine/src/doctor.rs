//! Checks which isolation layers the host can enforce, and records the result.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use belljar_broker::tls::Roots;
use belljar_ledger::{Digest, DoctorChecked, Draft};
use serde::Serialize;

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record;
use crate::scope::Scoped;

pub use belljar_box::doctor::{Finding, Health};

/// Checks all features of this machine, the most important first.
pub fn examine() -> Vec<Finding> {
    let mut findings = belljar_box::doctor::examine();
    findings.push(certificates(Roots::system().iter().count()));
    findings
}

/// Rates the number of root certificates of this machine. A box with a network needs at least one.
fn certificates(count: usize) -> Finding {
    let subject = "certificates";
    if count > 0 {
        let detail = format!("root certificates of the system: {count}");
        return Finding { subject, health: Health::Good, detail, remedy: None };
    }
    let remedy =
        "install the package `ca-certificates`, or name a bundle in `[tls] roots` of belljar.toml";
    Finding {
        subject,
        health: Health::Weak,
        detail: "no root certificates found; boxes with a network do not start".to_owned(),
        remedy: Some(remedy.to_owned()),
    }
}

/// The report of `belljar doctor`, as JSON.
#[derive(Debug, Serialize)]
pub struct DoctorReport {
    /// Whether the machine has everything that boxes need.
    pub healthy: bool,
    pub findings: Vec<Finding>,
    /// The results of the attacks, if they were run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proofs: Option<Vec<AttackResult>>,
}

/// The result of one attack on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct AttackResult {
    pub id: &'static str,
    pub title: &'static str,
    /// Whether the attack failed, as it must.
    pub kept: bool,
    pub verdict: &'static str,
    pub detail: String,
}

impl DoctorReport {
    pub fn new(findings: Vec<Finding>, proofs: Option<Vec<AttackResult>>) -> Self {
        let healthy = findings.iter().all(|finding| finding.health != Health::Missing);
        Self { healthy, findings, proofs }
    }

    /// Returns whether every attack failed.
    pub fn is_proved(&self) -> bool {
        self.proofs.iter().flatten().all(|proof| proof.kept)
    }

    /// Records the report in the ledger.
    pub fn record(&self, state: &Scoped) -> Result<(), EngineError> {
        let text = serde_json::to_vec(self).kind(ErrorKind::Broken)?;
        let proof_results = self.proofs.iter().flatten().map(|proof| proof.kept);
        let finding_results = self.findings.iter().map(|it| it.health != Health::Missing);
        let (passed, failed): (Vec<bool>, Vec<bool>) =
            finding_results.chain(proof_results).partition(|is_passed| *is_passed);
        let examination = Examination {
            proved: self.proofs.is_some(),
            passed: passed.len() as u64,
            failed: failed.len() as u64,
            report: &text,
        };
        record(state, &examination)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_certificates_are_weak_and_the_remedy_names_the_package() {
        let found = certificates(0);
        assert_eq!(found.health, Health::Weak);
        assert!(found.remedy.unwrap().contains("ca-certificates"));
        assert_eq!(certificates(1).health, Health::Good);
    }
}
