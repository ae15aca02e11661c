//! Drops stored contents: by name (`redact`) or by age (`prune`).
//!
//! The event about a drop is signed and on disk before the first content is removed. Contents are
//! removed in batches, and the lock of the ledger is released between two batches, so other processes
//! record their events meanwhile. An interrupted drop is completed by calling it again.
//!
//! **Invariant:** `prune` decides by the events of the log, never by the index, and removes no content
//! that a process has a lease of.

use std::collections::HashMap;
use std::sync::Arc;

use super::tip::doing;
use super::{Draft, Dropped, Ledger, RecordError};
use crate::bodies::{Bodies, BodyError, Claim, Found};
use crate::digest::Digest;
use crate::entry::EntryView;
use crate::event::{LedgerPruned, LedgerRedacted};
use crate::field::Raw;
use crate::frame::HEADER;
use crate::index::Index;
use crate::log::Log;
use crate::salts::Eraser;

/// The maximum number of hashes in one event.
const PER_EVENT: usize = 1000;
/// The maximum number of contents that are removed while the lock is held once.
const BATCH: usize = 256;

/// The references of all events to stored bodies, as the log has them.
#[derive(Debug)]
struct References {
    log: Log,
    offset: u64,
    next: u64,
    /// The time before which an event is old.
    before: u64,
    /// The index after the last old event.
    before_index: u64,
    /// All referenced bodies.
    bodies: HashMap<Digest, Reference>,
}

/// How the events reference one body.
#[derive(Debug, Clone, Copy, Default)]
struct Reference {
    /// Whether an event says that the content is stored.
    is_kept: bool,
    /// Whether an event that is not old references the body.
    is_current: bool,
}

/// One file that `prune` may remove.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Candidate {
    /// A body that only old events reference.
    Old(Digest),
    /// A content that no event references.
    Unnamed(Digest),
    /// A content whose storing was interrupted or is in progress, by its file name.
    Unfinished(String),
}

impl Ledger {
    /// Drops the content and the salts of bodies permanently, so that the content cannot be guessed
    /// either.
    ///
    /// The events that reference the bodies stay, and so does the event with the reason for this
    /// redaction. A process that is about to record one of the bodies gets
    /// [`RecordError::BodyGone`].
    pub fn redact(&self, hashes: &[Digest], reason: &str) -> Result<Dropped, RecordError> {
        let events = hashes.chunks(PER_EVENT).map(|bodies| {
            Draft::new(LedgerRedacted { bodies: bodies.to_vec(), reason: reason.to_owned() })
        });
        self.record_all(events.collect()).map(drop)?;
        let bodies = Bodies::open(&self.paths);
        let mut eraser = self.eraser()?;
        let mut dropped = Dropped { contents: 0, salts: 0 };
        for hashes in hashes.chunks(BATCH) {
            self.tip().with_lock(&self.paths, || {
                for hash in hashes {
                    dropped.contents += u64::from(bodies.remove(*hash).map_err(body_error)?);
                }
                dropped.salts += eraser.erase(hashes).map_err(doing("erase salts"))? as u64;
                self.forget(hashes);
                Ok(())
            })?;
        }
        Ok(dropped)
    }

    /// Drops contents that only events before a time reference, and contents from before that time
    /// that no event references. The time is in nanoseconds since 1970.
    ///
    /// An event is old by its own time, so one event with a wrong time decides only about its own
    /// bodies. A content that another process is about to record stays.
    pub fn prune(&self, before: u64) -> Result<Dropped, RecordError> {
        self.prune_in_batches(before, BATCH, || {})
    }

    /// Drops contents as [`Ledger::prune`] does, and calls `released` after each batch, when the lock
    /// is free.
    pub(super) fn prune_in_batches(
        &self,
        before: u64,
        batch: usize,
        mut released: impl FnMut(),
    ) -> Result<Dropped, RecordError> {
        let mut references = self.references(before)?;
        let bodies = Bodies::open(&self.paths);
        let candidates = references.candidates(&bodies)?;
        let before_index = references.before_index;
        self.record(Draft::new(LedgerPruned { before_index, before_time: before })).map(drop)?;
        let mut eraser = self.eraser()?;
        let mut dropped = Dropped { contents: 0, salts: 0 };
        for candidates in candidates.chunks(batch) {
            self.tip().with_lock(&self.paths, || {
                // Other processes recorded events since the last batch.
                references.read_on(u64::MAX)?;
                let claims = references.claims(&bodies, candidates)?;
                let hashes: Vec<Digest> = claims.iter().filter_map(Claim::hash).collect();
                // The content goes last: as long as it exists, the next `prune` repeats the drop.
                dropped.salts += eraser.erase(&hashes).map_err(doing("erase salts"))? as u64;
                bodies.remove_claimed(&claims).map_err(body_error)?;
                dropped.contents += claims.len() as u64;
                self.forget(&hashes);
                Ok(())
            })?;
            released();
        }
        Ok(dropped)
    }

    /// Returns the number of contents that [`Ledger::prune`] would drop.
    pub fn would_prune(&self, before: u64) -> Result<u64, RecordError> {
        let references = self.references(before)?;
        let bodies = Bodies::open(&self.paths);
        let mut count = 0;
        for candidates in references.candidates(&bodies)?.chunks(BATCH) {
            count += references.claims(&bodies, candidates)?.len() as u64;
        }
        Ok(count)
    }

    /// Reads the references of all events. The lock is held only to find the end of the log.
    fn references(&self, before: u64) -> Result<References, RecordError> {
        let end = {
            let mut tip = self.tip();
            tip.with_lock(&self.paths, || Ok(()))?;
            tip.end
        };
        let log = Log::open(&self.paths.log()).map_err(log_error)?;
        let mut references = References {
            log,
            offset: HEADER as u64,
            next: 0,
            before,
            before_index: 0,
            bodies: HashMap::new(),
        };
        references.read_on(end)?;
        Ok(references)
    }

    fn eraser(&self) -> Result<Eraser, RecordError> {
        Eraser::open(&self.paths.salts()).map_err(doing("open the salts of the ledger"))
    }

    /// Removes dropped contents from the index.
    ///
    /// After a failure here an equal content is stored once more, which does no harm.
    fn forget(&self, hashes: &[Digest]) {
        let Ok(log) = Log::open(&self.paths.log()) else { return };
        let Ok(index) = Index::open(&self.paths, &log) else { return };
        index.forget_contents(hashes).unwrap_or_default();
    }
}

impl References {
    /// Reads the events up to an offset; all batches up to there are complete.
    fn read_on(&mut self, until: u64) -> Result<(), RecordError> {
        let mut scan = self.log.scan(self.offset, self.next);
        let (before, first_read) = (self.before, self.next == 0);
        while scan.offset() < until {
            let Some(batch) = scan.next().map_err(log_error)? else { break };
            for event in batch.events() {
                // The verifier reports bytes that are not an event.
                let Ok(view) = EntryView::parse(event.bytes) else { continue };
                let is_old = view.moment.time < before;
                // The recorded event names the index, so later events cannot become old.
                if is_old && first_read {
                    self.before_index = event.index + 1;
                }
                let is_current = !is_old || event.index >= self.before_index;
                view.walk(|_, value| {
                    if let Raw::Body(body) = value {
                        let reference = self.bodies.entry(body.hash()).or_default();
                        reference.is_kept |= body.is_kept();
                        reference.is_current |= is_current;
                    }
                });
            }
            self.next = batch.end();
            self.offset = scan.offset();
        }
        Ok(())
    }

    /// Returns the files that can be removed, in the order of their directories.
    fn candidates(&self, bodies: &Bodies) -> Result<Vec<Candidate>, RecordError> {
        let found = bodies.list().map_err(body_error)?;
        let candidates = found.into_iter().filter_map(|found| match found {
            Found::Body(hash) => self.candidate(hash),
            Found::Unfinished(path) => {
                let name = path.file_name()?.to_str()?.to_owned();
                Some(Candidate::Unfinished(name))
            }
            Found::Foreign(_) => None,
        });
        let mut candidates: Vec<Candidate> = candidates.collect();
        candidates.sort_unstable();
        Ok(candidates)
    }

    fn candidate(&self, hash: Digest) -> Option<Candidate> {
        match self.bodies.get(&hash) {
            None => Some(Candidate::Unnamed(hash)),
            Some(reference) => {
                (reference.is_kept && !reference.is_current).then_some(Candidate::Old(hash))
            }
        }
    }

    /// Claims the candidates that can still be removed.
    fn claims(&self, bodies: &Bodies, candidates: &[Candidate]) -> Result<Vec<Claim>, RecordError> {
        let mut claims = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let claim = match candidate {
                Candidate::Old(hash) | Candidate::Unnamed(hash)
                    if self.candidate(*hash).as_ref() != Some(candidate) =>
                {
                    None
                }
                Candidate::Old(hash) => bodies.claim(*hash).map_err(body_error)?,
                Candidate::Unnamed(hash) => {
                    let claim = bodies.claim(*hash).map_err(body_error)?;
                    claim.filter(|claim| claim.is_older_than(self.before))
                }
                Candidate::Unfinished(name) => {
                    let claim = bodies.claim_unfinished(name).map_err(body_error)?;
                    claim.filter(|claim| claim.is_older_than(self.before))
                }
            };
            claims.extend(claim);
        }
        Ok(claims)
    }
}

fn body_error(error: BodyError) -> RecordError {
    RecordError::Body(Arc::new(error))
}

fn log_error(error: crate::log::LogError) -> RecordError {
    RecordError::Changed(Arc::new(error))
}
