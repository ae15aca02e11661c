//! Verifies the ledger of a tenant, and reports the result to programs.

use belljar_ledger::{
    Finding, LedgerPaths, Location, MAX_NOTE, VerifyOptions, VerifyReport, VerifyingKey,
    public_keys, verify,
};
use serde::Serialize;

use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::moment;
use crate::scope::Scoped;

/// The extent of a verification.
#[derive(Clone, Debug, Default)]
pub struct VerifyRequest {
    /// Whether every body is checked too.
    pub deep: bool,
    /// The trusted key; by default the first key of the ledger.
    pub key: Option<VerifyingKey>,
    /// Signed checkpoints that were stored elsewhere.
    pub checkpoints: Vec<String>,
}

/// The maximum length of a checkpoint in bytes.
pub const MAX_CHECKPOINT: usize = MAX_NOTE;

/// Parses a public key in the form `NAME+ID+BASE64`.
pub fn parse_key(text: &str) -> Result<VerifyingKey, EngineError> {
    text.parse().map_err(|error: belljar_ledger::KeyError| invalid(error.to_string()))
}

/// Verifies the ledger of a tenant. The report has no path of the host. `progress` receives the number of bytes read and the length of the log.
pub fn check(
    state: &Scoped,
    request: &VerifyRequest,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<LedgerReport, EngineError> {
    let options = VerifyOptions {
        deep: request.deep,
        key: request.key.as_ref(),
        checkpoints: &request.checkpoints,
        progress: Some(progress),
    };
    let report = verify(&LedgerPaths::under(state.home()), options).kind(ErrorKind::Broken)?;
    Ok(LedgerReport::of(&report).without_home(state))
}

/// Returns the public keys of a ledger, oldest first. The last one signs. Empty without a ledger.
pub fn keys(state: &Scoped) -> Result<Vec<VerifyingKey>, EngineError> {
    let paths = LedgerPaths::under(state.home());
    match paths.anchor().try_exists() {
        Ok(false) => Ok(Vec::new()),
        _ => public_keys(&paths).kind(ErrorKind::Broken),
    }
}

/// The result of a verification, for programs.
#[derive(Clone, Debug, Serialize)]
pub struct LedgerReport {
    /// Whether the ledger is undamaged; warnings do not count.
    pub sound: bool,
    pub events: u64,
    pub runs: u64,
    /// The length of the log in bytes.
    pub bytes: u64,
    /// The number of events that the signed head covers; `None` if no head can be trusted.
    pub signed: Option<u64>,
    /// The root of the tree of all events; `None` if some events could not be read.
    pub root: Option<String>,
    pub key: Option<String>,
    /// The number of events that given checkpoints cover.
    pub anchored: Option<u64>,
    /// The numbers of bodies by state; only after a deep check.
    pub bodies: Option<BodyNumbers>,
    /// The worst findings first.
    pub findings: Vec<LedgerFinding>,
    /// The number of findings beyond the listed ones.
    pub left_out: u64,
}

/// The numbers of bodies by state.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BodyNumbers {
    pub kept: u64,
    pub hash_only: u64,
    pub redacted: u64,
    pub pruned: u64,
}

/// A fault or remark about the ledger.
#[derive(Clone, Debug, Serialize)]
pub struct LedgerFinding {
    /// `note`, `warning` or `damage`.
    pub severity: String,
    pub code: &'static str,
    /// The location in words.
    pub at: String,
    /// The index of the event.
    pub event: Option<u64>,
    pub offset: Option<u64>,
    pub file: Option<String>,
    /// The time of the last event that is certainly intact.
    pub since: Option<String>,
    pub text: String,
}

impl LedgerReport {
    pub fn of(report: &VerifyReport) -> Self {
        let bodies = report.bodies.map(|counts| BodyNumbers {
            kept: counts.kept,
            hash_only: counts.hash_only,
            redacted: counts.redacted,
            pruned: counts.pruned,
        });
        Self {
            sound: report.is_sound(),
            events: report.events,
            runs: report.runs,
            bytes: report.bytes,
            signed: report.signed,
            root: report.root.map(|root| root.to_string()),
            key: report.key.as_ref().map(ToString::to_string),
            anchored: report.anchored,
            bodies,
            findings: report.findings.iter().map(LedgerFinding::of).collect(),
            left_out: report.left_out,
        }
    }

    /// Returns the report without the path of the state directory.
    #[must_use]
    pub fn without_home(mut self, state: &Scoped) -> Self {
        let home = format!("{}/", state.home().display());
        for finding in &mut self.findings {
            for text in [&mut finding.at, &mut finding.text].into_iter().chain(&mut finding.file) {
                *text = text.replace(&home, "");
            }
        }
        self
    }
}

impl LedgerFinding {
    fn of(finding: &Finding) -> Self {
        let Finding { severity, code, at, since, text } = finding;
        let (event, offset) = match at {
            Location::Event { index, offset, .. } => (Some(*index), Some(*offset)),
            Location::Byte { offset, .. } => (None, Some(*offset)),
            Location::File(_) | Location::Checkpoint(_) | Location::Key => (None, None),
        };
        Self {
            severity: severity.to_string(),
            code: code.name(),
            at: at.to_string(),
            event,
            offset,
            file: at.file().map(|file| file.to_string_lossy().into_owned()),
            since: since.map(moment::rfc3339),
            text: text.clone(),
        }
    }
}
