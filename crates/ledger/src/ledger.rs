//! The writer of the ledger: an event is on disk before its caller continues.
//!
//! [`Tip`] is the only state; the committing thread owns it. Threads that record at the same time
//! share one write and one sync. Processes exclude each other with a lock on a file. A process that
//! gets the lock reads the events that other processes appended before it writes.
//!
//! **Invariant:** a [`Receipt`] exists only for an event that is on disk.

mod host;
mod lock;
mod mend;
mod open;
mod prune;
mod queue;
mod recent;
mod tip;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
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
use crate::event::Event;
use crate::frame::LedgerId;
use crate::index::{Index, IndexError};
use crate::log::{Log, LogError};
use crate::note::VerifyingKey;
use crate::paths::LedgerPaths;
use crate::salts::Reading;

use host::HostLock;
use queue::{Pending, Queue, RecordResult, Waiter, Wake};
use recent::Recent;
use tip::Tip;

pub use mend::{Mended, mend};
pub use open::{OpenError, Repair};

/// A ledger that is open for recording.
#[derive(Debug)]
pub struct Ledger {
    paths: LedgerPaths,
    id: LedgerId,
    repairs: Vec<Repair>,
    /// Held until the ledger is closed.
    _host: HostLock,
    tip: Mutex<Tip>,
    /// Runs that this process began or looked up recently.
    known: Mutex<Recent<()>>,
    queue: Mutex<Queue>,
    /// Signals the leading thread that all expected callers are in the queue.
    gathered: Condvar,
}

/// An event to be recorded, with its run, actor and cause.
#[derive(Debug, Clone)]
pub struct Draft {
    run: Option<RunId>,
    actor: Actor,
    cause: Option<u64>,
    /// The sequence number of the last event of the run that the caller knows; see [`Draft::after`].
    after: Option<u64>,
    /// Whether the append fails if the run already has an event; see [`Draft::of_new_run`].
    is_first: bool,
    event: Event,
}

/// Proof that an event is on disk; only [`Ledger::record`] creates receipts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Receipt {
    index: u64,
    run: Option<RunId>,
    sequence: u64,
    hash: Digest,
}

/// Why an event was not recorded; the caller must not do anything that depends on the event.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RecordError {
    #[error("the event cannot be recorded: {0}")]
    Event(#[from] EntryError),
    #[error("{count} events exceed the limit of one append; record fewer at once")]
    TooMany { count: usize },
    #[error("another process ({holder}) has held the lock of the ledger for more than {seconds} s")]
    Busy { holder: String, seconds: u64 },
    #[error("cannot {doing}")]
    Io { doing: &'static str, source: Arc<std::io::Error> },
    #[error("the ledger was changed by something other than an append: {0}")]
    Changed(Arc<LogError>),
    #[error("event {cause} cannot be the cause of event {index}, because it is not earlier")]
    Cause { cause: u64, index: u64 },
    #[error("run {run} is not in the ledger")]
    NoRun { run: RunId },
    #[error(
        "another process recorded an event in the meantime: the last event has the sequence number {found}, not {expected}"
    )]
    Moved { run: Option<RunId>, expected: u64, found: u64 },
    #[error("run {run} has an event already")]
    Exists { run: RunId },
    #[error("cannot look up the run in the index of the ledger")]
    Index(#[source] Arc<IndexError>),
    #[error("the stored content of {hash} was dropped in the meantime; store it again")]
    BodyGone { hash: Digest },
    #[error("cannot drop the content of a body")]
    Body(#[source] Arc<BodyError>),
    #[error("cannot use the keys of the ledger")]
    Anchor(#[source] Arc<AnchorError>),
    #[error(
        "an earlier append failed and left the state of the disk unknown; open the ledger again"
    )]
    Broken,
}

/// Why the content of a body was not stored.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("cannot read {}", path.display())]
    Salts { path: PathBuf, source: std::io::Error },
}

/// The numbers of contents and salts that were dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    pub contents: u64,
    pub salts: u64,
}

impl Draft {
    /// Creates an event of the ledger itself with the operator as actor and no cause.
    pub fn new(event: impl Into<Event>) -> Self {
        let event = event.into();
        Self { run: None, actor: Actor::Operator, cause: None, after: None, is_first: false, event }
    }

    /// Assigns the event to a run, or with `None` to the ledger itself.
    pub fn of_run(self, run: impl Into<Option<RunId>>) -> Self {
        Self { run: run.into(), ..self }
    }

    pub fn by(self, actor: Actor) -> Self {
        Self { actor, ..self }
    }

    /// Sets the event that caused this event.
    pub fn because_of(self, cause: &Receipt) -> Self {
        self.because_of_index(Some(cause.index))
    }

    /// Sets the cause by its index, for a cause that an earlier process recorded.
    pub fn because_of_index(self, cause: Option<u64>) -> Self {
        Self { cause, ..self }
    }

    /// Requires that the last event of the run has this sequence number when the event is recorded.
    ///
    /// If another writer recorded an event of the run in the meantime, nothing of the batch is
    /// recorded: [`RecordError::Moved`].
    pub fn after(self, sequence: u64) -> Self {
        Self { after: Some(sequence), ..self }
    }

    /// Assigns the event to a run that has no event yet, although its id was not chosen at random.
    ///
    /// If the run has an event, nothing of the batch is recorded: [`RecordError::Exists`].
    pub fn of_new_run(self, run: RunId) -> Self {
        Self { run: Some(run), is_first: true, ..self }
    }
}

impl Receipt {
    /// Returns the index of the event in the ledger.
    pub const fn index(&self) -> u64 {
        self.index
    }

    pub const fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Returns the sequence number of the event in its run.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the leaf hash of the event.
    pub const fn hash(&self) -> Digest {
        self.hash
    }
}

impl Ledger {
    /// Opens or creates the ledger, and removes a torn append from the end of its log.
    pub fn open(paths: &LedgerPaths) -> Result<Self, OpenError> {
        open::open(paths)
    }

    /// Returns the repairs made on opening, which the caller should report to the user.
    pub fn repairs(&self) -> &[Repair] {
        &self.repairs
    }

    pub const fn id(&self) -> LedgerId {
        self.id
    }

    pub const fn paths(&self) -> &LedgerPaths {
        &self.paths
    }

    /// Returns whether this handle can still record events.
    ///
    /// It cannot after a failure that leaves the state of the disk unknown, or after another
    /// process replaced the log. The caller must then open the ledger again.
    pub fn is_current(&self) -> bool {
        match self.tip.try_lock() {
            Ok(tip) => tip.is_current(&self.paths),
            Err(TryLockError::Poisoned(tip)) => tip.into_inner().is_current(&self.paths),
            // Another thread is recording and detects the failure itself.
            Err(TryLockError::WouldBlock) => true,
        }
    }

    /// Returns the number of events at the last read or write through this handle.
    pub fn events(&self) -> u64 {
        self.tip().frontier.size()
    }

    /// Records one event and returns after it is on disk.
    pub fn record(&self, draft: Draft) -> Result<Receipt, RecordError> {
        let mut receipts = self.record_all(vec![draft])?;
        receipts.pop().ok_or(RecordError::Broken)
    }

    /// Records consecutive events, either all of them or none.
    pub fn record_all(&self, drafts: Vec<Draft>) -> Result<Vec<Receipt>, RecordError> {
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        self.prepare(&drafts)?;
        for Draft { event, run, .. } in &drafts {
            let run = run.map(tracing::field::display);
            tracing::trace!(kind = event.kind(), of_run = run, "recording event");
        }
        let (began, events) = (Instant::now(), drafts.len());
        let waiter = Arc::new(Waiter::new());
        let mut queue = self.queue();
        queue.push(&waiter, drafts, tip::now());
        if queue.is_awaited_last() {
            self.gathered.notify_one();
        }
        if queue.begin_commit() {
            self.commit(queue);
        } else {
            drop(queue);
        }
        loop {
            match waiter.wait() {
                Wake::Done(result) => {
                    let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                    match &result {
                        Ok(_) => tracing::debug!(events, micros, "events recorded"),
                        Err(_) => tracing::warn!(events, micros, "cannot record events"),
                    }
                    return result;
                }
                Wake::Lead => self.commit(self.queue()),
            }
        }
    }

    /// Updates the index before the ledger is locked.
    ///
    /// To continue a run of another process, the last event of that run is looked up under the
    /// lock, and other processes wait meanwhile.
    fn prepare(&self, drafts: &[Draft]) -> Result<(), RecordError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_updated = false;
        for draft in drafts {
            let Some(run) = draft.run.filter(|run| known.get(*run).is_none()) else { continue };
            if (draft.is_first || !draft.event.begins_run()) && !is_updated {
                self.query_index(|_, _| Ok(()))?;
                is_updated = true;
            }
            known.insert(run, ());
        }
        Ok(())
    }

    /// Commits for all waiting callers, wakes them with their results and appoints the next leader.
    fn commit(&self, queue: MutexGuard<'_, Queue>) {
        let batch = self.gather(queue);
        let (waiters, waiting): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|(waiter, pending)| ((pending.ticket, waiter), pending)).unzip();
        let began = Instant::now();
        let mut results: HashMap<u64, RecordResult> =
            self.tip().commit(&self.paths, waiting).into_iter().collect();
        let next = self.queue().finish_commit(waiters.len(), began.elapsed());
        for (ticket, waiter) in waiters {
            let result = results.remove(&ticket).unwrap_or(Err(RecordError::Broken));
            waiter.wake(Wake::Done(result));
        }
        if let Some(next) = next {
            next.wake(Wake::Lead);
        }
    }

    /// Takes all waiting callers, after a short wait for the callers of the previous commit.
    ///
    /// Without this wait the callers would split into two groups that alternate in waiting for the
    /// disk.
    fn gather(&self, mut queue: MutexGuard<'_, Queue>) -> Vec<(Arc<Waiter>, Pending)> {
        let end = Instant::now() + queue.start_gathering();
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

    /// Stores a content and returns the body by which an event references it.
    ///
    /// Equal content is stored once for all events recorded under the same `scope`, which is the
    /// hash of a policy.
    pub fn keep(&self, scope: Digest, content: &mut dyn Read) -> Result<Body, KeepError> {
        let log = Log::open(&self.paths.log())?;
        let index = Index::open(&self.paths, &log)?;
        let path = self.paths.salts();
        let salts = Reading::open(&path, self.id);
        let salts = salts.map_err(|source| KeepError::Salts { path, source })?;
        Ok(Bodies::open(&self.paths).keep_once(&index, &salts, scope, content)?)
    }

    /// Runs a query on the up-to-date index; the query gets the number of events too.
    fn query_index<T>(
        &self,
        query: impl FnOnce(&Index, u64) -> Result<T, IndexError>,
    ) -> Result<T, RecordError> {
        let log = Log::open(&self.paths.log());
        let log = log.map_err(|error| RecordError::Changed(Arc::new(error)))?;
        let answer = Index::open(&self.paths, &log).and_then(|mut index| {
            let size = index.catch_up(&log)?;
            query(&index, size)
        });
        answer.map_err(|error| RecordError::Index(Arc::new(error)))
    }

    /// Replaces the signing key: the old key endorses the new key and is deleted.
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
