//! The writer: what it records is on disk before anybody is told.
//!
//! One state machine, [`Tip`], owned by whoever commits. Threads that record at the same time share
//! one write and one wait for the disk; processes take turns with a lock on a file. Whoever gets the
//! lock first reads what others appended, so that nobody ever writes on top of something unseen.
//!
//! **Invariant:** a [`Receipt`] exists only for an event that the disk has.

mod open;
mod queue;
mod recent;
mod tip;
mod turn;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use belljar_model::RunId;

use crate::anchor::AnchorError;
use crate::bodies::{Bodies, BodyError};
use crate::body::Body;
use crate::digest::Digest;
use crate::entry::{Actor, EntryError};
use crate::event::{Event, LedgerPruned, LedgerRedacted};
use crate::frame::LedgerId;
use crate::index::{Index, IndexError, Query};
use crate::log::{Log, LogError};
use crate::note::VerifyingKey;
use crate::paths::LedgerPaths;
use crate::salts::{self, Reading};

use queue::{Answer, Pending, Queue, Seat, Word};
use recent::Recent;
use tip::Tip;

pub use open::{Mended, OpenError, Repair, mend};

/// The ledger, open for recording.
#[derive(Debug)]
pub struct Ledger {
    paths: LedgerPaths,
    id: LedgerId,
    repairs: Vec<Repair>,
    tip: Mutex<Tip>,
    /// Runs that were begun or looked up here recently.
    known: Mutex<Recent<()>>,
    queue: Mutex<Queue>,
    /// Tells the leader that all whom it waits for are there.
    gathered: Condvar,
}

/// Something that is to be recorded.
#[derive(Debug, Clone)]
pub struct Draft {
    run: Option<RunId>,
    actor: Actor,
    cause: Option<u64>,
    event: Event,
}

/// Proof that an event is on disk. Only [`Ledger::record`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Receipt {
    index: u64,
    run: Option<RunId>,
    sequence: u64,
    hash: Digest,
}

/// Why something was not recorded. Nothing that depends on it may be done.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RecordError {
    #[error("the event cannot be recorded: {0}")]
    Event(#[from] EntryError),
    #[error("{count} events at once are too many")]
    TooMany { count: usize },
    #[error("another process ({holder}) has held the ledger for more than {seconds} s")]
    Busy { holder: String, seconds: u64 },
    #[error("cannot {doing}")]
    Io { doing: &'static str, source: Arc<std::io::Error> },
    #[error("the ledger changed in a way that no append does: {0}")]
    Changed(Arc<LogError>),
    #[error("event {cause} cannot be the cause of event {index}, which comes before it")]
    Cause { cause: u64, index: u64 },
    #[error("run {run} is not in the ledger")]
    NoRun { run: RunId },
    #[error("look up the run")]
    Index(#[source] Arc<IndexError>),
    #[error("the kept content of {hash} was dropped meanwhile; keep it again")]
    BodyGone { hash: Digest },
    #[error("drop a body")]
    Body(#[source] Arc<BodyError>),
    #[error("use the ledger's keys")]
    Anchor(#[source] Arc<AnchorError>),
    #[error(
        "an earlier append failed in a way that leaves the disk's state unknown; open the ledger again"
    )]
    Broken,
}

/// Why a content was not kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("read {}", path.display())]
    Salts { path: PathBuf, source: std::io::Error },
}

/// What was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    pub contents: u64,
    pub salts: u64,
}

/// So many hashes fit into one event.
const PER_EVENT: usize = 1000;

impl Draft {
    /// An event of the ledger itself, by the operator; see the other methods.
    pub fn new(event: impl Into<Event>) -> Self {
        Self { run: None, actor: Actor::Operator, cause: None, event: event.into() }
    }

    /// An event of this run, or with `None` the ledger's own.
    pub fn of_run(self, run: impl Into<Option<RunId>>) -> Self {
        Self { run: run.into(), ..self }
    }

    pub fn by(self, actor: Actor) -> Self {
        Self { actor, ..self }
    }

    /// Names the event that led to this one.
    pub fn because_of(self, cause: &Receipt) -> Self {
        self.because_of_index(Some(cause.index))
    }

    /// The same by place, for a cause that an earlier process recorded.
    pub fn because_of_index(self, cause: Option<u64>) -> Self {
        Self { cause, ..self }
    }
}

impl Receipt {
    /// The place of the event in the ledger.
    pub const fn index(&self) -> u64 {
        self.index
    }

    pub const fn run(&self) -> Option<RunId> {
        self.run
    }

    /// The place of the event in its run.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The leaf hash of the event.
    pub const fn hash(&self) -> Digest {
        self.hash
    }
}

impl Ledger {
    /// Opens the ledger, beginning it if it is not there, and takes away an append that was cut short.
    pub fn open(paths: &LedgerPaths) -> Result<Self, OpenError> {
        open::open(paths)
    }

    /// What was put right on opening; the user should hear of it.
    pub fn repairs(&self) -> &[Repair] {
        &self.repairs
    }

    pub const fn id(&self) -> LedgerId {
        self.id
    }

    pub const fn paths(&self) -> &LedgerPaths {
        &self.paths
    }

    /// Whether this can record more. Not after a failure that leaves the disk's state unknown, nor when
    /// another process put another log in the place of this one: then the ledger is to be opened again.
    pub fn is_current(&self) -> bool {
        match self.tip.try_lock() {
            Ok(tip) => tip.is_current(&self.paths),
            Err(TryLockError::Poisoned(tip)) => tip.into_inner().is_current(&self.paths),
            // It records right now, and finds out by itself.
            Err(TryLockError::WouldBlock) => true,
        }
    }

    /// How many events the ledger had when this last read or wrote it.
    pub fn events(&self) -> u64 {
        self.tip().frontier.size()
    }

    /// Records one event. When this returns, it is on disk.
    pub fn record(&self, draft: Draft) -> Result<Receipt, RecordError> {
        let mut receipts = self.record_all(vec![draft])?;
        receipts.pop().ok_or(RecordError::Broken)
    }

    /// Records events one behind the other, all of them or none.
    pub fn record_all(&self, drafts: Vec<Draft>) -> Result<Vec<Receipt>, RecordError> {
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        self.prepare(&drafts)?;
        for Draft { event, run, .. } in &drafts {
            let run = run.map(tracing::field::display);
            tracing::trace!(kind = event.kind(), of_run = run, "event is to be recorded");
        }
        let (began, events) = (Instant::now(), drafts.len());
        let seat = Arc::new(Seat::new());
        let mut queue = self.queue();
        queue.push(&seat, drafts, tip::now());
        if queue.is_awaited_last() {
            self.gathered.notify_one();
        }
        if queue.begin_commit() {
            self.commit(queue);
        } else {
            drop(queue);
        }
        loop {
            match seat.wait() {
                Word::Answer(answer) => {
                    let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                    match &answer {
                        Ok(_) => tracing::debug!(events, micros, "events are on record"),
                        Err(_) => tracing::warn!(events, micros, "events are not on record"),
                    }
                    return answer;
                }
                Word::Lead => self.commit(self.queue()),
            }
        }
    }

    /// Brings the index up to date before anybody has to wait for it: to continue a run of another
    /// process, its last event is looked up while the ledger is locked.
    fn prepare(&self, drafts: &[Draft]) -> Result<(), RecordError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for draft in drafts {
            let Some(run) = draft.run.filter(|run| known.get(*run).is_none()) else { continue };
            if !draft.event.begins_run() {
                self.ask(|_, _| Ok(()))?;
            }
            known.insert(run, ());
        }
        Ok(())
    }

    /// Commits for all who wait, tells each how it went, and one who came meanwhile to go on.
    fn commit(&self, queue: MutexGuard<'_, Queue>) {
        let batch = self.gather(queue);
        let (seats, waiting): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|(seat, pending)| ((pending.ticket, seat), pending)).unzip();
        let began = Instant::now();
        let mut answers: HashMap<u64, Answer> =
            self.tip().commit(&self.paths, waiting).into_iter().collect();
        let next = self.queue().finish_commit(seats.len(), began.elapsed());
        for (ticket, seat) in seats {
            let answer = answers.remove(&ticket).unwrap_or(Err(RecordError::Broken));
            seat.tell(Word::Answer(answer));
        }
        if let Some(next) = next {
            next.tell(Word::Lead);
        }
    }

    /// Takes all who wait, after a moment for those who recorded just now and may do so again: without
    /// it they would fall into two halves that wait for the disk in turn.
    fn gather(&self, mut queue: MutexGuard<'_, Queue>) -> Vec<(Arc<Seat>, Pending)> {
        let end = Instant::now() + queue.patience();
        while !queue.is_complete() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.gathered.wait_timeout(queue, left);
            (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        queue.take()
    }

    /// Keeps a content, and gives the body that an event can name. The same content is kept once for
    /// all that is recorded under the same `scope`, which is the hash of a policy.
    pub fn keep(&self, scope: Digest, content: &mut dyn Read) -> Result<Body, KeepError> {
        let log = Log::open(&self.paths.log())?;
        let index = Index::open(&self.paths, &log)?;
        let path = self.paths.salts();
        let salts = Reading::open(&path, self.id);
        let salts = salts.map_err(|source| KeepError::Salts { path, source })?;
        Ok(Bodies::open(&self.paths).keep_once(&index, &salts, scope, content)?)
    }

    /// Drops bodies for good: their content and what it could be guessed with. That they were there,
    /// and that and why they were dropped, stays on record.
    pub fn redact(&self, hashes: &[Digest], reason: &str) -> Result<Dropped, RecordError> {
        let events = hashes.chunks(PER_EVENT).map(|bodies| {
            Draft::new(LedgerRedacted { bodies: bodies.to_vec(), reason: reason.to_owned() })
        });
        self.record_all(events.collect()).map(drop)?;
        self.drop_bodies(|| Ok(hashes.to_vec()))
    }

    /// Drops the contents that only events before a time name. The time is in nanoseconds since 1970.
    pub fn prune(&self, before: u64) -> Result<Dropped, RecordError> {
        let (before_index, old) = self.old_bodies(before)?;
        self.record(Draft::new(LedgerPruned { before_index, before_time: before })).map(drop)?;
        self.drop_bodies(|| {
            // Somebody may have recorded another event that names one of them.
            let still = self.kept_before(before_index)?;
            Ok(old.iter().copied().filter(|hash| still.contains(hash)).collect())
        })
    }

    /// How many bodies [`Ledger::prune`] would drop.
    pub fn would_prune(&self, before: u64) -> Result<u64, RecordError> {
        Ok(self.old_bodies(before)?.1.len() as u64)
    }

    /// The first event that is not older, and the kept bodies that only events before it name.
    fn old_bodies(&self, before: u64) -> Result<(u64, Vec<Digest>), RecordError> {
        self.ask(|index, size| {
            let query = Query { since: Some(before), limit: Some(1), ..Query::default() };
            let first = index.events(&query)?.first().map_or(size, |row| row.index);
            Ok((first, index.kept_before(first)?))
        })
    }

    fn kept_before(&self, first: u64) -> Result<HashSet<Digest>, RecordError> {
        self.ask(|index, _| Ok(index.kept_before(first)?.into_iter().collect()))
    }

    /// Asks the index, which is up to date, and has so many events.
    fn ask<T>(
        &self,
        question: impl FnOnce(&Index, u64) -> Result<T, IndexError>,
    ) -> Result<T, RecordError> {
        let log = Log::open(&self.paths.log());
        let log = log.map_err(|error| RecordError::Changed(Arc::new(error)))?;
        let answer = Index::open(&self.paths, &log).and_then(|mut index| {
            let size = index.catch_up(&log)?;
            question(&index, size)
        });
        answer.map_err(|error| RecordError::Index(Arc::new(error)))
    }

    /// Drops what an event says was dropped. Done again, it finishes what was cut short.
    fn drop_bodies(
        &self,
        which: impl FnOnce() -> Result<Vec<Digest>, RecordError>,
    ) -> Result<Dropped, RecordError> {
        self.tip().in_turn(&self.paths, || {
            let hashes = which()?;
            let bodies = Bodies::open(&self.paths);
            let mut dropped = Dropped { contents: 0, salts: 0 };
            for hash in &hashes {
                let removed = bodies.remove(*hash);
                let removed = removed.map_err(|error| RecordError::Body(Arc::new(error)))?;
                dropped.contents += u64::from(removed);
            }
            let erased = salts::erase(&self.paths.salts(), &hashes);
            dropped.salts = erased.map_err(tip::doing("erase salts"))? as u64;
            self.forget(&hashes);
            Ok(dropped)
        })
    }

    /// Keeps the index from naming what is gone. Without it a content is kept once more, no worse.
    fn forget(&self, hashes: &[Digest]) {
        let Ok(log) = Log::open(&self.paths.log()) else { return };
        let Ok(index) = Index::open(&self.paths, &log) else { return };
        hashes.iter().for_each(|hash| index.forget_content(*hash).unwrap_or_default());
    }

    /// Exchanges the signing key; the old one endorses the new one and is forgotten.
    pub fn rotate_key(&self) -> Result<VerifyingKey, RecordError> {
        self.tip().rotate_key(&self.paths)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tip(&self) -> MutexGuard<'_, Tip> {
        self.tip.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn anchor_error(error: AnchorError) -> RecordError {
    RecordError::Anchor(Arc::new(error))
}
