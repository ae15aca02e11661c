//! Takes over what a box changed, one file at a time and each in one step.
//!
//! A new file is written beside its place and renamed into it. A file that is replaced is *exchanged*
//! with the new one, so that what comes out can be checked: if it is not what the plan saw, it goes
//! back. What comes out, and what is deleted, is moved to `trash` in the run's directory, so nothing
//! of the user's is ever unlinked. `apply.log` says beforehand which temporary names may appear, so
//! that an apply that was killed is cleaned up by the next one, which finds by content what is done.

use std::io;
use std::os::fd::OwnedFd;

use serde::Serialize;

use crate::change::{Change, Changes};
use crate::host::{self, ObserveError, Observed};
use crate::layers::Layers;
use crate::path::RelPath;
use crate::plan::{Act, ApplyPlan, ConflictReason, LeftOut, PlannedStep, Verdict};

mod ahead;
mod journal;
mod place;
mod recover;
mod stage;
mod trash;
mod work;

use journal::Journal;
pub use recover::Recovered;
pub use trash::{Trashed, trashed};
use work::{StepError, Work};

/// Steps whose log records are written to disk together.
const BATCH: usize = 64;

/// An apply at work: holds the run's log, so there is only one.
#[derive(Debug)]
pub struct Takeover<'l> {
    layers: &'l Layers,
    journal: Journal,
    trash: OwnedFd,
    recovered: Vec<Recovered>,
}

/// What became of every change.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub entries: Vec<OutcomeEntry>,
}

#[derive(Debug, Serialize)]
pub struct OutcomeEntry {
    pub path: RelPath,
    pub taken: Taken,
}

/// What became of one change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Taken {
    Applied,
    /// The host held it already.
    AlreadyThere,
    NotChosen,
    LeftOut(LeftOut),
    /// Both sides had changed, and the host's was to stay.
    KeptOurs,
    /// The host changed it after the plan was made. Its file is untouched.
    Conflict(ConflictReason),
    Failed {
        doing: String,
        cause: String,
    },
    /// The apply stopped before it. Doing it again goes on.
    NotReached,
}

/// Told before each change to a file system, for progress and for tests.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// Counts from one.
    pub number: u64,
    pub path: &'a RelPath,
}

/// Why an apply could not begin or had to stop. What was done until then is whole.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("another apply of this run is at work")]
    Busy,
    #[error("open apply.log of the run")]
    OpenJournal { source: io::Error },
    #[error("read apply.log of the run")]
    ReadJournal { source: io::Error },
    #[error("apply.log of the run is damaged in line {line}")]
    DamagedJournal { line: usize, source: serde_json::Error },
    #[error("write apply.log of the run")]
    WriteJournal { source: io::Error },
    #[error("open the trash of the run")]
    OpenTrash { source: io::Error },
    #[error("clean up what an earlier apply left at {path:?}")]
    Recover { path: RelPath, source: io::Error },
    #[error(transparent)]
    Observe(#[from] ObserveError),
    #[error("write the directory {path:?} to disk")]
    Sync { path: RelPath, source: io::Error },
}

impl<'l> Takeover<'l> {
    /// Takes the run's log and cleans up what an apply that was killed left behind.
    pub fn begin(layers: &'l Layers) -> Result<Self, ApplyError> {
        let (journal, open) = Journal::open(layers)?;
        let trash =
            layers.make_run_dir(b"trash").map_err(|source| ApplyError::OpenTrash { source })?;
        let mut takeover = Self { layers, journal, trash, recovered: Vec::new() };
        takeover.recovered = recover::recover(&mut takeover, &open)?;
        Ok(takeover)
    }

    /// What an earlier apply had taken out of the user's directory and not yet put away.
    pub fn recovered(&self) -> &[Recovered] {
        &self.recovered
    }

    /// Looks at what the user's directory holds now.
    pub fn observe<'c>(&self, changes: &'c Changes) -> Result<Observed<'c>, ApplyError> {
        Ok(host::observe(self.layers.lower(), changes)?)
    }

    /// Does what the plan says. What the host changed since is left as it is, and reported.
    pub fn apply(
        &mut self,
        plan: ApplyPlan<'_>,
        on_step: &mut dyn FnMut(Step<'_>),
    ) -> Result<Outcome, ApplyError> {
        let ApplyPlan { changes, verdicts, steps } = plan;
        let mut taken: Vec<Taken> = verdicts.into_iter().map(Taken::from).collect();
        let mut work = Work::new(self, on_step);
        // Of one phase only: the directories of one are where the files of the next belong.
        let phases = steps.chunk_by(|one, next| one.act.phase() == next.act.phase());
        'all: for batch in phases.flat_map(|phase| phase.chunks(BATCH)) {
            let numbers = work.announce(changes, batch)?;
            work.stage_ahead(changes, batch, &numbers);
            for (step, number) in batch.iter().zip(numbers) {
                let Some(change) = changes.entries().get(step.index) else { continue };
                let result = match move_incomplete(changes, change, step, &taken) {
                    Some(left_out) => Taken::LeftOut(left_out),
                    None => match work.execute(change, &step.act, number) {
                        Ok(()) => Taken::Applied,
                        Err(StepError::Conflict(why)) => Taken::Conflict(why),
                        Err(StepError::LeftOut(why)) => Taken::LeftOut(why),
                        Err(StepError::Log(error)) => return Err(error),
                        Err(StepError::Io { doing, source }) => {
                            let cause = source.to_string();
                            set(
                                &mut taken,
                                step.index,
                                Taken::Failed { doing: doing.into(), cause },
                            );
                            if is_hopeless(&source) {
                                break 'all;
                            }
                            continue;
                        }
                    },
                };
                work.finish(number, &result)?;
                set(&mut taken, step.index, result);
            }
            work.sync()?;
        }
        work.close()?;
        let paths = changes.entries().iter().map(|change| change.path.clone());
        let entries = paths.zip(taken).map(|(path, taken)| OutcomeEntry { path, taken }).collect();
        Ok(Outcome { entries })
    }
}

fn set(taken: &mut [Taken], index: usize, result: Taken) {
    if let Some(place) = taken.get_mut(index) {
        *place = result;
    }
}

/// A file that was moved loses its old place only when it has its new one.
fn move_incomplete(
    changes: &Changes,
    change: &Change,
    step: &PlannedStep,
    taken: &[Taken],
) -> Option<LeftOut> {
    let to = change.moved_to.as_ref().filter(|_| matches!(step.act, Act::Remove(_)))?;
    let arrived = changes.position(to).and_then(|place| taken.get(place));
    match arrived {
        Some(Taken::Applied | Taken::AlreadyThere) => None,
        _ => Some(LeftOut::MoveLeftOut { to: to.clone() }),
    }
}

/// Errors that every further step would meet as well.
fn is_hopeless(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::OutOfMemory
    )
}

impl From<Verdict> for Taken {
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

impl Outcome {
    /// Whether nothing that was chosen is missing on the host.
    pub fn is_complete(&self) -> bool {
        self.entries.iter().all(|entry| match entry.taken {
            Taken::Applied | Taken::AlreadyThere | Taken::KeptOurs | Taken::NotChosen => true,
            Taken::LeftOut(_) | Taken::Conflict(_) | Taken::Failed { .. } | Taken::NotReached => {
                false
            }
        })
    }

    pub fn get(&self, path: &RelPath) -> Option<&Taken> {
        let entry = self.entries.binary_search_by(|entry| entry.path.cmp(path)).ok()?;
        self.entries.get(entry).map(|entry| &entry.taken)
    }
}
