//! Verifies a ledger against its keys, signed checkpoints and bodies, and reports findings as
//! sentences.
//!
//! The log is read once. The memory is bounded: most of the records about runs and, in a deep check,
//! about bodies are in temporary files. No lock is needed for the main pass: the log is read while other processes
//! append, and only its end is checked again for a moment under the lock. A live writer therefore
//! causes no false alarm.
//!
//! The verifier changes no file. It trusts only the given key, or the first key of the anchor's
//! list.

mod anchor;
mod bodies;
mod chains;
mod derived;
mod finding;
mod pass;
mod reader;
mod references;
mod roots;
mod rotations;
mod runs;
mod vouchers;

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::bodies::BodyError;
use crate::digest::Digest;
use crate::note::VerifyingKey;
use crate::paths::LedgerPaths;

use anchor::Snapshot;
use finding::Findings;
use pass::Pass;
use rotations::Rotations;
use vouchers::StatementChecker;

pub use finding::{Code, Finding, Location, Severity};

/// The options of a verification.
#[derive(Default)]
pub struct VerifyOptions<'a> {
    /// Whether every body is checked too.
    pub deep: bool,
    /// The trusted key; by default the first key of the anchor's list.
    pub key: Option<&'a VerifyingKey>,
    /// Signed checkpoints that were stored elsewhere.
    pub checkpoints: &'a [String],
    /// A callback that receives the number of bytes read and the length of the log.
    pub progress: Option<&'a mut dyn FnMut(u64, u64)>,
}

/// The result of a verification.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    pub events: u64,
    pub runs: u64,
    /// The length of the log in bytes.
    pub bytes: u64,
    /// The number of events covered by the signed head; `None` if no head can be trusted.
    pub signed: Option<u64>,
    /// The root of the tree of all events; `None` if some events could not be read.
    pub root: Option<Digest>,
    /// The key in use, as far as endorsements lead from the trusted key.
    pub key: Option<VerifyingKey>,
    /// The number of events covered by given checkpoints; only this host's keys cover the others.
    pub anchored: Option<u64>,
    /// The counts of a deep check.
    pub bodies: Option<BodyCounts>,
    /// The findings, worst first.
    pub findings: Vec<Finding>,
    /// The number of findings beyond the listed ones.
    pub left_out: u64,
}

/// The numbers of referenced bodies by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BodyCounts {
    /// The content is stored and matches its commitment.
    pub kept: u64,
    /// Only the hash was recorded.
    pub hash_only: u64,
    pub redacted: u64,
    pub pruned: u64,
}

/// Why a ledger cannot be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot store data of the verification in a temporary file")]
    Temporary(#[from] rusqlite::Error),
    #[error(transparent)]
    Body(BodyError),
}

impl VerifyReport {
    /// Returns whether the ledger is undamaged; warnings do not count.
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Damage)
    }
}

impl VerifyError {
    fn reading(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }
}

/// Verifies the ledger.
pub fn verify(
    paths: &LedgerPaths,
    mut options: VerifyOptions<'_>,
) -> Result<VerifyReport, VerifyError> {
    let of_body = |finding: &Finding| {
        matches!(finding.code, Code::BodyMissing | Code::BodyDamaged | Code::SaltMissing)
    };
    let has_grown =
        |report: &VerifyReport| fs::metadata(paths.log()).is_ok_and(|log| log.len() > report.bytes);
    let first = verify_once(paths, &mut options)?;
    if !first.findings.iter().any(of_body) || !has_grown(&first) {
        return Ok(first);
    }
    // A body can be dropped on purpose after the log was read. The event about that is recorded
    // before the body is removed, so a second pass finds the event. A body that is missing only in
    // the second pass can have been dropped after that pass read the log.
    let mut second = verify_once(paths, &mut options)?;
    if has_grown(&second) {
        second.findings.retain(|finding| !of_body(finding) || first.findings.contains(finding));
    }
    Ok(second)
}

fn verify_once(
    paths: &LedgerPaths,
    options: &mut VerifyOptions<'_>,
) -> Result<VerifyReport, VerifyError> {
    let VerifyOptions { deep, key, checkpoints, progress } = options;
    let (deep, key, checkpoints) = (*deep, *key, *checkpoints);
    let mut found = Findings::default();
    // The head is read before the log. The log only grows, so it is never shorter than the head.
    let before = Snapshot::read(paths)?;
    let first = before.first_key().or_else(|| key.cloned());
    let path = paths.log();
    let Some(log) = anchor::absent(&path, File::open(&path))? else {
        // A caller with a key or a checkpoint expects an existing ledger.
        let is_known = key.is_some() || !checkpoints.is_empty();
        return Ok(without_log(paths, &before, is_known, found));
    };
    let mut pass = Pass::new(paths, log, Rotations::new(first));
    pass.want(&before, checkpoints.iter().map(String::as_str));
    if deep {
        pass.look_deep(paths);
    }
    let mut show = |read: u64, all: u64| {
        if let Some(progress) = progress {
            progress(read, all);
        }
    };
    let settled = pass.run(paths, before, Some(&mut show), &mut found)?;
    if let Some(error) = pass.chains.take_failure() {
        return Err(VerifyError::Temporary(error));
    }
    let Pass { rotations, roots, chains, next, events, length, origin, bodies, tiles, .. } = pass;
    chains.finish(&mut found);
    let trusted = trusted(key, &rotations, &mut found);
    let checker = StatementChecker {
        roots: &roots,
        rotations: &rotations,
        trusted: &trusted,
        origin: origin.as_deref(),
        events: next,
        log: path,
        head: paths.head(),
    };
    settled.anchor.check(paths, origin.as_deref(), &rotations, &mut found);
    let signed = checker.head(settled.anchor.slots.as_ref(), &mut found);
    settled.check_end(paths, signed, next, &mut found);
    let anchored = check_given(&checker, checkpoints, &mut found);
    let bodies = match bodies {
        Some(bodies) => Some(bodies.check(paths, signed, origin.as_deref(), &mut found)?),
        None => None,
    };
    if let Some(tiles) = tiles {
        tiles.finish(&mut found);
    }
    if deep {
        derived::check_index(paths, &mut found);
    }
    let root = (!roots.is_broken()).then(|| roots.root());
    let key = trusted.last().filter(|_| signed.is_some()).cloned();
    let runs = chains.runs();
    let (findings, left_out) = found.finish();
    let bytes = length;
    Ok(VerifyReport {
        events,
        runs,
        bytes,
        signed,
        root,
        key,
        anchored,
        bodies,
        findings,
        left_out,
    })
}

/// Returns the trusted keys.
fn trusted(
    key: Option<&VerifyingKey>,
    rotations: &Rotations,
    found: &mut Findings,
) -> Vec<VerifyingKey> {
    let Some(key) = key else { return rotations.keys().to_vec() };
    let trusted = rotations.from(key);
    if trusted.is_empty() {
        let text = format!(
            "The given key {key} does not belong to this ledger: it is another ledger, or it was \
             rewritten with another key."
        );
        found.add_since(Severity::Damage, Code::KeyNotOfLedger, Location::Key, None, text);
        return vec![key.clone()];
    }
    trusted
}

/// Checks the log against the given checkpoints, and returns the number of events that they cover.
fn check_given(
    checker: &StatementChecker<'_>,
    checkpoints: &[String],
    found: &mut Findings,
) -> Option<u64> {
    let mut anchored = None;
    for (place, text) in checkpoints.iter().enumerate() {
        let size = checker.checkpoint(text, Location::Checkpoint(place), anchored, found);
        anchored = anchored.max(size);
    }
    anchored
}

fn without_log(
    paths: &LedgerPaths,
    before: &Snapshot,
    is_known: bool,
    mut found: Findings,
) -> VerifyReport {
    let at = Location::File(paths.log());
    if before.was_not_begun() && !is_known {
        let text = "There is no log: the ledger was never created, or its creation was \
                    interrupted.";
        found.warn(Code::LogMissing, at, text.to_owned());
        return report_without_log(found);
    }
    let text = "The log is missing with all recorded events. Look for a copy of it.";
    found.damage(Code::LogMissing, at, text.to_owned());
    before.check(paths, None, &Rotations::new(before.first_key()), &mut found);
    report_without_log(found)
}

fn report_without_log(found: Findings) -> VerifyReport {
    let (findings, left_out) = found.finish();
    VerifyReport {
        events: 0,
        runs: 0,
        bytes: 0,
        signed: None,
        root: None,
        key: None,
        anchored: None,
        bodies: None,
        findings,
        left_out,
    }
}

impl fmt::Debug for VerifyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { deep, key, checkpoints, progress: _ } = self;
        f.debug_struct("VerifyOptions")
            .field("deep", deep)
            .field("key", key)
            .field("checkpoints", &checkpoints.len())
            .finish_non_exhaustive()
    }
}
