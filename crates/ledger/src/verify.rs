//! Checks a ledger against everything that vouches for it, and says what is wrong in plain words.
//!
//! Reads once through the log, in constant memory but for one small record per run and, when asked to
//! look deep, one per body. Needs no lock: the log is read while others append, and only its end is
//! looked at again, for a moment, while nobody does. So it raises no alarm beside a live writer.
//!
//! It changes nothing, and trusts nothing but the given key or the first of the anchor's list.

mod anchor;
mod bodies;
mod chains;
mod derived;
mod finding;
mod pass;
mod reader;
mod roots;
mod rotations;
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
use vouchers::Judge;

pub use finding::{Code, Finding, Location, Severity};

/// What is to be checked.
#[derive(Default)]
pub struct VerifyOptions<'a> {
    /// Look at every body too.
    pub deep: bool,
    /// The key to trust; if none is given, the first of the anchor's list.
    pub key: Option<&'a VerifyingKey>,
    /// Signed checkpoints that were kept elsewhere.
    pub checkpoints: &'a [String],
    /// Hears how many of how many bytes of the log were read.
    pub progress: Option<&'a mut dyn FnMut(u64, u64)>,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    pub events: u64,
    pub runs: u64,
    /// Of the log.
    pub bytes: u64,
    /// How many events the head vouches for; `None` when there is no head to be trusted.
    pub signed: Option<u64>,
    /// The root of the tree of all events; `None` when some could not be read.
    pub root: Option<Digest>,
    /// The key that is in use now, as far as the trusted key leads.
    pub key: Option<VerifyingKey>,
    /// How many events a checkpoint from elsewhere vouches for; the others only this machine does.
    pub anchored: Option<u64>,
    /// When asked to look deep.
    pub bodies: Option<BodyCounts>,
    /// The worst first.
    pub findings: Vec<Finding>,
    /// How many more findings there were than are listed.
    pub left_out: u64,
}

/// What became of the bodies that events name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BodyCounts {
    /// The content is there and fits.
    pub kept: u64,
    /// Only the hash was ever kept.
    pub hash_only: u64,
    pub redacted: u64,
    pub pruned: u64,
}

/// Why nothing can be said about a ledger.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Body(BodyError),
}

impl VerifyReport {
    /// Whether the record is what it was. Warnings are about other things.
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Damage)
    }
}

impl VerifyError {
    fn reading(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }
}

/// Checks the ledger.
pub fn verify(
    paths: &LedgerPaths,
    mut options: VerifyOptions<'_>,
) -> Result<VerifyReport, VerifyError> {
    let of_body = |finding: &Finding| {
        matches!(finding.code, Code::BodyMissing | Code::BodyDamaged | Code::SaltMissing)
    };
    let has_grown =
        |report: &VerifyReport| fs::metadata(paths.log()).is_ok_and(|log| log.len() > report.bytes);
    let first = look(paths, &mut options)?;
    if !first.findings.iter().any(of_body) || !has_grown(&first) {
        return Ok(first);
    }
    // A body may have been dropped on purpose after the log was read. The event that says so was there
    // before the body went, so a second look finds it; what it finds missing for the first time may
    // just have been dropped again.
    let mut second = look(paths, &mut options)?;
    if has_grown(&second) {
        second.findings.retain(|finding| !of_body(finding) || first.findings.contains(finding));
    }
    Ok(second)
}

fn look(paths: &LedgerPaths, options: &mut VerifyOptions<'_>) -> Result<VerifyReport, VerifyError> {
    let VerifyOptions { deep, key, checkpoints, progress } = options;
    let (deep, key, checkpoints) = (*deep, *key, *checkpoints);
    let mut found = Findings::default();
    // The head first, then the log, which only grows: so the log is never behind the head.
    let before = Snapshot::read(paths)?;
    let first = before.first_key().or_else(|| key.cloned());
    let path = paths.log();
    let Some(log) = anchor::absent(&path, File::open(&path))? else {
        // Whoever has something to hold it against knows that it was begun.
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
    let Pass { rotations, roots, chains, next, events, length, origin, bodies, tiles, .. } = pass;
    chains.finish(&mut found);
    let trusted = trusted(key, &rotations, &mut found);
    let judge = Judge {
        roots: &roots,
        rotations: &rotations,
        trusted: &trusted,
        origin: origin.as_deref(),
        events: next,
        log: path,
        head: paths.head(),
    };
    settled.anchor.judge(paths, origin.as_deref(), &rotations, &mut found);
    let signed = judge.head(settled.anchor.slots.as_ref(), &mut found);
    settled.judge_end(paths, signed, next, &mut found);
    let anchored = judge_given(&judge, checkpoints, &mut found);
    let bodies = match bodies {
        Some(bodies) => Some(bodies.judge(paths, signed, origin.as_deref(), &mut found)?),
        None => None,
    };
    if let Some(tiles) = tiles {
        tiles.finish(&mut found);
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

/// The keys whose word counts.
fn trusted(
    key: Option<&VerifyingKey>,
    rotations: &Rotations,
    found: &mut Findings,
) -> Vec<VerifyingKey> {
    let Some(key) = key else { return rotations.keys().to_vec() };
    let trusted = rotations.from(key);
    if trusted.is_empty() {
        let text = format!(
            "The given key {key} is none of this ledger's: it is another ledger, or it was written \
             anew with another key."
        );
        found.add_since(Severity::Damage, Code::KeyNotOfLedger, Location::Key, None, text);
        return vec![key.clone()];
    }
    trusted
}

/// Holds the log against the checkpoints from elsewhere; how many events they anchor.
fn judge_given(judge: &Judge<'_>, checkpoints: &[String], found: &mut Findings) -> Option<u64> {
    let mut anchored = None;
    for (place, text) in checkpoints.iter().enumerate() {
        let size = judge.checkpoint(text, Location::Checkpoint(place), anchored, found);
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
        let text = "There is no log: the ledger was never begun, or beginning it was cut short.";
        found.warn(Code::LogMissing, at, text.to_owned());
        return report_without_log(found);
    }
    let text = "The log is gone, with everything that was recorded. Look for a copy of it.";
    found.damage(Code::LogMissing, at, text.to_owned());
    before.judge(paths, None, &Rotations::new(before.first_key()), &mut found);
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
