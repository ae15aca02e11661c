//! An index of all runs of a tenant in memory, so that a server can list and filter many runs quickly.
//!
//! ```text
//! ledger ──▶ database of runs ──▶ new rows, and rows of open runs ──▶ index ──▶ ids of a page ──▶ database
//! ```
//! The index has a few words for each run: what filters search, and what decides who may see the run. The
//! database of runs has the rest, which is read for the runs of one page only. A refresh costs as much as the
//! new events and the open runs, whatever the number of runs that have ended.

mod rows;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use belljar_ledger::{LedgerPaths, Reader, ReaderError};
use belljar_model::caller::Principal;
use belljar_model::{Purpose, RunId};

use self::rows::{IndexRow, IndexRows};
use super::budget::Amounts;
use super::machine::Moment;
use super::store::sqlite::RunDb;
use super::store::{Cursor, RunStatus, SingleStatus, StoreError, TaskCounts};
use crate::error::EngineError;
use crate::scope::Scoped;

/// The number of events that are applied in one transaction.
const CHUNK: u64 = 8192;

/// The kind of a run that a person or a program started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunKind {
    /// The run of a plan.
    Plan,
    /// A single command.
    Run,
    /// A program that a model wrote.
    Call,
    /// A start of a named box.
    Box,
}

impl RunKind {
    pub const ALL: [Self; 4] = [Self::Plan, Self::Run, Self::Call, Self::Box];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Run => "run",
            Self::Call => "call",
            Self::Box => "box",
        }
    }

    /// Returns the kind of a run with a purpose; `None` if Belljar itself started the run.
    pub const fn of(purpose: Purpose) -> Option<Self> {
        match purpose {
            Purpose::Plan => Some(Self::Plan),
            Purpose::Run => Some(Self::Run),
            Purpose::Call => Some(Self::Call),
            Purpose::Box => Some(Self::Box),
            Purpose::ToolServer | Purpose::CloneReader | Purpose::Task => None,
        }
    }
}

/// The state of a run of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListedState {
    Running,
    /// Only gates of the plan are open.
    Waiting,
    /// A task needs the decision of a person about a lost attempt.
    Attention,
    /// The supervisor of a single run was killed.
    Interrupted,
    Succeeded,
    Failed,
    OverBudget,
    Cancelled,
}

impl ListedState {
    pub const ALL: [Self; 8] = [
        Self::Running,
        Self::Waiting,
        Self::Attention,
        Self::Interrupted,
        Self::Succeeded,
        Self::Failed,
        Self::OverBudget,
        Self::Cancelled,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Attention => "attention",
            Self::Interrupted => "interrupted",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::OverBudget => "over_budget",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns whether the state can change.
    const fn is_open(self) -> bool {
        match self {
            Self::Running | Self::Waiting | Self::Attention => true,
            Self::Interrupted
            | Self::Succeeded
            | Self::Failed
            | Self::OverBudget
            | Self::Cancelled => false,
        }
    }
}

impl From<RunStatus> for ListedState {
    fn from(status: RunStatus) -> Self {
        use super::machine::Outcome;
        match status {
            RunStatus::Running => Self::Running,
            RunStatus::Waiting => Self::Waiting,
            RunStatus::Attention => Self::Attention,
            RunStatus::Ended(Outcome::Succeeded) => Self::Succeeded,
            RunStatus::Ended(Outcome::Failed) => Self::Failed,
            RunStatus::Ended(Outcome::OverBudget) => Self::OverBudget,
            RunStatus::Ended(Outcome::Cancelled) => Self::Cancelled,
        }
    }
}

impl From<SingleStatus> for ListedState {
    fn from(status: SingleStatus) -> Self {
        match status {
            SingleStatus::Running => Self::Running,
            SingleStatus::Succeeded => Self::Succeeded,
            SingleStatus::Failed => Self::Failed,
            SingleStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// A property that a term of a search compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunTerm {
    /// The name of a [`ListedState`].
    State,
    /// The name of a [`RunKind`].
    Kind,
    /// A principal, or its name without the kind.
    Maker,
    /// The name of a plan or of a run.
    Name,
}

/// The runs that a page contains: those that fulfil all conditions, newest first.
#[derive(Debug, Clone)]
pub struct RunSearch {
    /// Only runs that one of these principals made.
    pub makers: Option<BTreeSet<Principal>>,
    /// The values of properties, in lower case.
    pub terms: Vec<(RunTerm, String)>,
    /// Texts in lower case: parts of the name, the principal or the template, or the start of the id.
    pub texts: Vec<String>,
    /// Only runs that were accepted at or after the first and before the second time.
    pub accepted: Option<(Moment, Moment)>,
    /// Continue after the page with this cursor.
    pub after: Option<Cursor>,
    pub limit: usize,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    pub run: RunId,
    pub kind: RunKind,
    pub state: ListedState,
    /// Why a single run ended, such as `exited` or `timeout`.
    pub reason: Option<String>,
    /// The name of the plan, the box or the run; can be empty.
    pub name: String,
    /// The principal that started the run, as text.
    pub maker: String,
    pub template: String,
    pub directory: Option<PathBuf>,
    pub accepted: Moment,
    pub ended: Option<Moment>,
    /// The usage so far. The usage of an open run of a plan is that of the attempts that have ended.
    pub spent: Amounts,
    /// The tasks of the run of a plan that has ended.
    pub tasks: Option<TaskCounts>,
    /// The index of the first event of the run in the ledger.
    pub sequence: u64,
}

/// A page of runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunsPage {
    pub runs: Vec<RunSummary>,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<Cursor>,
}

/// The index of the runs of one tenant.
#[derive(Debug, Default)]
pub struct RunIndex {
    loaded: Mutex<Option<Loaded>>,
}

/// The log that an index was made from, as device and inode number.
type LogFile = (u64, u64);

#[derive(Debug)]
struct Loaded {
    log: LogFile,
    reader: Reader,
    database: RunDb,
    /// The number of events that the rows contain.
    applied: u64,
    rows: IndexRows,
}

impl RunIndex {
    /// Returns a page of the runs of the caller's tenant.
    pub fn page(&self, state: &Scoped, search: &RunSearch) -> Result<RunsPage, EngineError> {
        let empty = RunsPage { runs: Vec::new(), next: None };
        let found = self.with(state, |loaded| {
            let is_alive = |row: &IndexRow, name: &str| is_alive(state, row, name);
            let (found, has_more) = loaded.rows.search(search, &is_alive);
            let next = found.last().filter(|_| has_more).map(|row| Cursor::before(row.sequence));
            let runs = found.iter().map(|row| loaded.summary(state, row));
            Ok(RunsPage { runs: runs.collect::<Result<_, _>>()?, next })
        })?;
        Ok(found.unwrap_or(empty))
    }

    /// Returns one run of the caller's tenant.
    pub fn find(&self, state: &Scoped, run: RunId) -> Result<Option<RunSummary>, EngineError> {
        let found = self.with(state, |loaded| {
            let row = loaded.rows.find(run).cloned();
            row.map(|row| loaded.summary(state, &row)).transpose()
        })?;
        Ok(found.flatten())
    }

    /// Returns the principals that started some runs, as text; `None` for unknown runs.
    pub fn makers(
        &self,
        state: &Scoped,
        runs: &[RunId],
    ) -> Result<Vec<Option<String>>, EngineError> {
        let found = self.with(state, |loaded| {
            let maker = |run: &RunId| loaded.rows.maker(*run).map(str::to_owned);
            Ok(runs.iter().map(maker).collect())
        })?;
        Ok(found.unwrap_or_else(|| vec![None; runs.len()]))
    }

    /// Reads from the database of runs after all events were applied; `None` without a ledger.
    pub(super) fn read<T>(
        &self,
        state: &Scoped,
        read: impl Fn(&RunDb) -> Result<T, StoreError>,
    ) -> Result<Option<T>, EngineError> {
        self.with(state, |loaded| read(&loaded.database))
    }

    fn with<T>(
        &self,
        state: &Scoped,
        find: impl Fn(&Loaded) -> Result<T, StoreError>,
    ) -> Result<Option<T>, EngineError> {
        let mut slot = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let log = LedgerPaths::under(state.home()).log();
        let Ok(log) = fs::metadata(log).map(|meta| (meta.dev(), meta.ino())) else {
            *slot = None;
            return Ok(None);
        };
        // A log that was replaced, for example by a restored one, has another history.
        if slot.as_ref().is_some_and(|loaded| loaded.log != log) {
            *slot = None;
        }
        let loaded = match slot.take() {
            Some(mut loaded) => loaded.refresh(state).map(|()| loaded),
            None => Loaded::open(state, log, false),
        };
        let tried = loaded.and_then(|loaded| Ok((find(&loaded)?, loaded)));
        let (found, loaded) = match tried {
            Ok(done) => done,
            // The index of the ledger had a gap, which is filled now, or the damaged file was removed.
            Err(StoreError::Gap { .. } | StoreError::Damaged(_)) => {
                let loaded = Loaded::open(state, log, true)?;
                (find(&loaded)?, loaded)
            }
            Err(error) => return Err(error.into()),
        };
        *slot = Some(loaded);
        Ok(Some(found))
    }
}

impl Loaded {
    fn open(state: &Scoped, log: LogFile, is_counted: bool) -> Result<Self, StoreError> {
        let open = if is_counted { Reader::open } else { Reader::open_uncounted };
        let reader = open(&LedgerPaths::under(state.home()));
        let reader = reader.map_err(|error: ReaderError| StoreError::Ledger(error.into()))?;
        let database = RunDb::open(state.store().layout(), reader.id())?;
        let rows = IndexRows::default();
        let mut loaded = Self { log, reader, database, applied: 0, rows };
        loaded.refresh(state)?;
        Ok(loaded)
    }

    /// Applies new events, and reads the rows that can have changed.
    fn refresh(&mut self, state: &Scoped) -> Result<(), StoreError> {
        self.reader.refresh().map_err(|error| StoreError::Ledger(error.into()))?;
        let opened = self.database.opened();
        let applied = loop {
            let progress = self.database.catch_up(&self.reader, CHUNK)?;
            if progress.is_complete {
                break progress.applied;
            }
        };
        // The database was made again.
        if applied < self.applied || opened != self.database.opened() {
            self.rows = IndexRows::default();
            self.applied = 0;
        }
        if applied != self.applied {
            self.rows.update(&self.database, &state.caller().tenant)?;
            self.applied = applied;
        }
        Ok(())
    }

    fn summary(&self, state: &Scoped, row: &IndexRow) -> Result<RunSummary, StoreError> {
        let missing = || StoreError::Damaged(None);
        if row.kind == RunKind::Plan {
            let found = self.database.run(row.run)?.ok_or_else(missing)?;
            return Ok(RunSummary {
                run: row.run,
                kind: row.kind,
                state: found.status.into(),
                reason: None,
                name: found.name,
                maker: found.principal,
                template: found.template,
                directory: found.directory,
                accepted: found.accepted,
                ended: found.ended,
                spent: found.spent,
                tasks: found.tasks,
                sequence: found.sequence,
            });
        }
        let (found, spent) = self.database.single(row.run)?.ok_or_else(missing)?;
        let is_interrupted =
            found.status == SingleStatus::Running && !is_alive(state, row, &found.name);
        let listed = if is_interrupted { ListedState::Interrupted } else { found.status.into() };
        Ok(RunSummary {
            run: row.run,
            kind: row.kind,
            state: listed,
            reason: found.reason,
            name: found.name,
            maker: found.principal,
            template: found.template,
            directory: found.directory.map(path),
            accepted: Moment(found.opened),
            ended: found.ended.map(Moment),
            spent,
            tasks: None,
            sequence: found.seq,
        })
    }
}

fn path(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    std::ffi::OsString::from_vec(bytes).into()
}

/// Returns whether the supervisor of a single run that the ledger shows as open is alive.
fn is_alive(state: &Scoped, row: &IndexRow, name: &str) -> bool {
    use crate::approvals::Supervisors as _;
    let store = state.store();
    match row.kind {
        RunKind::Plan => true,
        RunKind::Run => crate::store::lock::is_held(&store.layout().run(row.run).join("lock")),
        RunKind::Call => store.is_call_running(row.run),
        RunKind::Box => name
            .parse()
            .is_ok_and(|name| crate::supervisor::OfNamedBoxes.is_alive(state, &name, row.run)),
    }
}

#[cfg(test)]
mod tests;
