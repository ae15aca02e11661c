//! Applies the changes of a box to the user's directory, one file at a time.
//!
//! A new file is written under a temporary name in the same directory and then renamed. A file that
//! is replaced is *exchanged* with the new one, so that the file that comes out can be checked: if
//! it is not the file that the plan saw, the exchange is undone. Replaced and deleted files are
//! moved to `trash` in the run's directory, so no file of the user is unlinked. `apply.log` lists
//! the temporary names before they are created. The next apply uses the list to clean up after an
//! apply that was killed, and finds completed steps by comparing content.

use std::io;
use std::os::fd::OwnedFd;

use serde::Serialize;

use crate::change::{Change, Changes};
use crate::host::{self, ObserveError, Observed};
use crate::layers::Layers;
use crate::path::RelPath;
use crate::plan::{Action, ApplyPlan, ConflictReason, LeftOut, PlannedStep, Verdict};

mod executor;
mod log;
mod path_step;
mod prestage;
mod recover;
mod stage;
mod trash;

use executor::{Executor, StepError};
use log::ApplyLog;
pub use recover::Recovered;
pub use trash::{Trashed, trashed};

/// The number of apply steps whose log records are written to disk together.
const BATCH: usize = 64;

/// An apply in progress: it copies changes of a run into the workspace on the host. It holds the
/// lock on the run's log, so only one exists per run.
#[derive(Debug)]
pub struct ApplySession<'l> {
    layers: &'l Layers,
    log: ApplyLog,
    trash: OwnedFd,
    recovered: Vec<Recovered>,
}

/// The status of every change after an apply.
#[derive(Debug, Serialize)]
pub struct ApplyOutcome {
    pub entries: Vec<OutcomeEntry>,
}

/// The status of one change after an apply.
#[derive(Debug, Serialize)]
pub struct OutcomeEntry {
    pub path: RelPath,
    #[serde(rename = "taken")]
    pub status: EntryStatus,
}

/// The status of one change after an apply: applied, or not and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryStatus {
    Applied,
    /// The user's directory already had this content.
    AlreadyThere,
    NotChosen,
    LeftOut(LeftOut),
    /// Host and box had both changed the path, and the user chose to keep the host's version.
    KeptOurs,
    /// The host changed the file after the apply was planned. The host's file is untouched.
    Conflict(ConflictReason),
    Failed {
        doing: String,
        cause: String,
    },
    /// The apply stopped before this change. Repeating the apply continues.
    NotReached,
}

/// A progress report of an apply, sent before each change to a file system.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// The number of the apply step, starting at one.
    pub number: u64,
    pub path: &'a RelPath,
}

/// The reason why an apply could not begin or had to stop. Completed steps stay complete.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("another apply of this run is in progress; wait until it ends and try again")]
    Busy,
    #[error("cannot open apply.log of the run")]
    OpenLog { source: io::Error },
    #[error("cannot read apply.log of the run")]
    ReadLog { source: io::Error },
    #[error("cannot parse line {line} of the run's apply.log")]
    DamagedLog { line: usize, source: serde_json::Error },
    #[error("cannot write apply.log of the run")]
    WriteLog { source: io::Error },
    #[error("cannot open the directory that keeps the replaced files of the run")]
    OpenTrash { source: io::Error },
    #[error("cannot remove the temporary files of an interrupted apply at {path:?}")]
    Recover { path: RelPath, source: io::Error },
    #[error(transparent)]
    Observe(#[from] ObserveError),
    #[error("cannot flush the directory {path:?} to disk")]
    Sync { path: RelPath, source: io::Error },
}

impl<'l> ApplySession<'l> {
    /// Locks the apply log of the run and cleans up after an apply that was killed.
    pub fn begin(layers: &'l Layers) -> Result<Self, ApplyError> {
        let (log, open) = ApplyLog::open(layers)?;
        let trash =
            layers.make_run_dir(b"trash").map_err(|source| ApplyError::OpenTrash { source })?;
        let mut session = Self { layers, log, trash, recovered: Vec::new() };
        session.recovered = recover::recover(&mut session, &open)?;
        Ok(session)
    }

    /// Returns the user's files that an interrupted apply had moved to a temporary name. They are
    /// in the trash now.
    pub fn recovered(&self) -> &[Recovered] {
        &self.recovered
    }

    /// Inspects the current state of the user's directory at the path of every change.
    pub fn observe<'c>(&self, changes: &'c Changes) -> Result<Observed<'c>, ApplyError> {
        Ok(host::observe(self.layers.lower(), changes)?)
    }

    /// Executes the plan. A file that the host changed since then is left as it is and reported as
    /// a conflict.
    pub fn apply(
        &mut self,
        plan: ApplyPlan<'_>,
        on_step: &mut dyn FnMut(Step<'_>),
    ) -> Result<ApplyOutcome, ApplyError> {
        let ApplyPlan { changes, verdicts, steps } = plan;
        let mut statuses: Vec<EntryStatus> = verdicts.into_iter().map(EntryStatus::from).collect();
        let mut executor = Executor::new(self, on_step);
        // A batch has steps of one phase only: one phase creates the directories that the next
        // phase writes to.
        let phases = steps.chunk_by(|one, next| one.action.phase() == next.action.phase());
        'all: for batch in phases.flat_map(|phase| phase.chunks(BATCH)) {
            let numbers = executor.announce(changes, batch)?;
            executor.prestage(changes, batch, &numbers);
            for (step, number) in batch.iter().zip(numbers) {
                let Some(change) = changes.entries().get(step.index) else { continue };
                let result = match move_incomplete(changes, change, step, &statuses) {
                    Some(left_out) => EntryStatus::LeftOut(left_out),
                    None => match executor.execute(change, &step.action, number) {
                        Ok(()) => EntryStatus::Applied,
                        Err(StepError::Conflict(why)) => EntryStatus::Conflict(why),
                        Err(StepError::LeftOut(why)) => EntryStatus::LeftOut(why),
                        Err(StepError::Log(error)) => return Err(error),
                        Err(StepError::Io { doing, source }) => {
                            let cause = source.to_string();
                            set(
                                &mut statuses,
                                step.index,
                                EntryStatus::Failed { doing: doing.into(), cause },
                            );
                            if is_fatal(&source) {
                                break 'all;
                            }
                            continue;
                        }
                    },
                };
                executor.finish(number, &result)?;
                set(&mut statuses, step.index, result);
            }
            executor.sync()?;
        }
        executor.close()?;
        let paths = changes.entries().iter().map(|change| change.path.clone());
        let entries =
            paths.zip(statuses).map(|(path, status)| OutcomeEntry { path, status }).collect();
        Ok(ApplyOutcome { entries })
    }
}

fn set(statuses: &mut [EntryStatus], index: usize, result: EntryStatus) {
    if let Some(place) = statuses.get_mut(index) {
        *place = result;
    }
}

/// Returns why the old name of a moved file must stay: its new name was not applied.
fn move_incomplete(
    changes: &Changes,
    change: &Change,
    step: &PlannedStep,
    statuses: &[EntryStatus],
) -> Option<LeftOut> {
    let to = change.moved_to.as_ref().filter(|_| matches!(step.action, Action::Remove(_)))?;
    let arrived = changes.position(to).and_then(|place| statuses.get(place));
    match arrived {
        Some(EntryStatus::Applied | EntryStatus::AlreadyThere) => None,
        _ => Some(LeftOut::MoveLeftOut { to: to.clone() }),
    }
}

/// Returns whether every further step of the apply would fail with the same error.
fn is_fatal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::OutOfMemory
    )
}

impl From<Verdict> for EntryStatus {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::NotChosen => Self::NotChosen,
            Verdict::LeftOut(why) => Self::LeftOut(why),
            Verdict::Done => Self::AlreadyThere,
            Verdict::Ours => Self::KeptOurs,
            Verdict::Conflict { why, .. } => Self::Conflict(why),
            Verdict::Do(_) => Self::NotReached,
        }
    }
}

impl ApplyOutcome {
    /// Returns whether every chosen change is now on the host.
    pub fn is_complete(&self) -> bool {
        self.entries.iter().all(|entry| match entry.status {
            EntryStatus::Applied
            | EntryStatus::AlreadyThere
            | EntryStatus::KeptOurs
            | EntryStatus::NotChosen => true,
            EntryStatus::LeftOut(_)
            | EntryStatus::Conflict(_)
            | EntryStatus::Failed { .. }
            | EntryStatus::NotReached => false,
        })
    }

    pub fn get(&self, path: &RelPath) -> Option<&EntryStatus> {
        let entry = self.entries.binary_search_by(|entry| entry.path.cmp(path)).ok()?;
        self.entries.get(entry).map(|entry| &entry.status)
    }
}
