//! The database of runs: tables that are derived from the ledger, so that lists of runs are fast.
//!
//! ```text
//! ledger ──▶ events after `meta.applied` ──▶ rows and the new `meta.applied`, in one transaction
//! ```
//! **The ledger wins.** The database decides nothing that the ledger does not. It may be deleted, damaged, older than the ledger
//! or of another ledger: then it is rebuilt. Any process may bring it up to date, because an event and its
//! number are applied in one transaction. The driver does it while it waits, and a list does it before it
//! reads. If no file can be written, the tables are built in memory.
//!
//! The driver reads the usage of a tenant in its period from the tables, so that it need not read the events of
//! all runs that have ended.
//!
//! [`sqlite`] has the tables. Their types are BIGINT, TEXT and BLOB only, so that another database can have
//! the same tables.

mod accounts;
mod apply;
pub(super) mod sqlite;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use belljar_model::{Reason, RunId};

use super::budget::Amounts;
use super::machine::{Moment, Outcome};
use crate::error::{EngineError, ErrorKind};

/// The state of a run in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunStatus {
    /// A task is running, or can start.
    Running,
    /// Only gates are open.
    Waiting,
    /// A task needs the decision of a person about a lost attempt.
    Attention,
    /// The run has ended.
    Ended(Outcome),
}

impl RunStatus {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Running,
        Self::Waiting,
        Self::Attention,
        Self::Ended(Outcome::Succeeded),
        Self::Ended(Outcome::Failed),
        Self::Ended(Outcome::OverBudget),
        Self::Ended(Outcome::Cancelled),
    ];

    /// The name of the state in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Attention => "attention",
            Self::Ended(outcome) => outcome.name(),
        }
    }

    /// Returns the state with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// The state of a run that is not of a plan, as far as the ledger has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SingleStatus {
    /// The ledger has no end of the run. Its supervisor may have been killed.
    Running,
    /// The program exited with status 0.
    Succeeded,
    Failed,
    /// A person ended the program.
    Cancelled,
}

impl SingleStatus {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// The name of the state in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the state with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Returns the state after the recorded end of a program.
    pub fn ended(reason: &str, exit: Option<u64>) -> Self {
        match (reason, exit) {
            (reason, Some(0)) if reason == Reason::Exited.name() => Self::Succeeded,
            (reason, _) if reason == Reason::Interrupted.name() => Self::Cancelled,
            _ => Self::Failed,
        }
    }
}

/// One run in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    pub run: RunId,
    pub tenant: String,
    /// The person or program that submitted the plan.
    pub principal: String,
    pub name: String,
    pub status: RunStatus,
    /// The index of the first event of the run in the ledger. Later runs have higher numbers.
    pub sequence: u64,
    /// The time at which the plan was accepted.
    pub accepted: Moment,
    pub ended: Option<Moment>,
    /// The usage of all attempts that have ended.
    pub spent: Amounts,
    pub template: String,
    /// The directory that relative paths of the plan refer to; `None` if the ledger does not name it.
    pub directory: Option<PathBuf>,
    /// The tasks of a run that has ended; `None` while it is open.
    pub tasks: Option<TaskCounts>,
}

/// The numbers of tasks and instances of a run that has ended. A task with an empty list of items counts
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskCounts {
    pub all: u64,
    pub done: u64,
}

/// The place in a list of runs at which the next page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(u64);

impl Cursor {
    /// Returns the cursor of the runs that were recorded before the event with an index.
    pub const fn before(index: u64) -> Self {
        Self(index)
    }

    /// Returns the index of the ledger before which the page has its runs.
    pub const fn index(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A text is not a cursor of a list of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid cursor; use the cursor of the previous page")]
pub struct CursorError;

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let number = text.parse().map_err(|_| CursorError)?;
        let cursor = Self(number);
        if cursor.to_string() == text { Ok(cursor) } else { Err(CursorError) }
    }
}

/// The runs that a list contains. Without filters it contains all runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunsQuery {
    /// Only runs in one of these states; all runs if empty.
    pub statuses: Vec<RunStatus>,
    /// Only runs of plans with this name.
    pub name: Option<String>,
    /// Only runs that were submitted from the directory with this device and inode number, and runs whose
    /// directory the ledger does not name.
    pub directory: Option<(u64, u64)>,
    /// Continue after the page with this cursor.
    pub after: Option<Cursor>,
    /// The number of rows of a page, from 1 to 1,000; 50 if it is not set.
    pub limit: Option<usize>,
}

const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 1000;

impl RunsQuery {
    fn limit(&self) -> usize {
        page_size(self.limit)
    }
}

/// Returns the number of rows of a page.
pub(super) fn page_size(limit: Option<usize>) -> usize {
    limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT)
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<Cursor>,
}

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error("another process has locked the database of runs for too long; try again")]
    Busy,
    #[error("cannot write the database of runs")]
    Unwritable(#[source] Option<rusqlite::Error>),
    #[error("the database of runs is damaged")]
    Damaged(#[source] Option<rusqlite::Error>),
    #[error("the index of the ledger has no event {index}")]
    Gap { index: u64 },
    #[error("cannot read the ledger")]
    Ledger(#[source] anyhow::Error),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        match error.sqlite_error_code() {
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => Self::Busy,
            Some(
                Code::ReadOnly
                | Code::CannotOpen
                | Code::SystemIoFailure
                | Code::DiskFull
                | Code::PermissionDenied
                | Code::FileLockingProtocolFailed
                | Code::OutOfMemory,
            ) => Self::Unwritable(Some(error)),
            // Includes values that do not fit their column, and missing rows.
            Some(_) | None => Self::Damaged(Some(error)),
        }
    }
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::Busy => ErrorKind::Busy,
            StoreError::Damaged(_) => ErrorKind::Damaged,
            StoreError::Unwritable(_) | StoreError::Gap { .. } | StoreError::Ledger(_) => {
                ErrorKind::Broken
            }
        };
        Self::new(kind, anyhow::Error::new(error))
    }
}
