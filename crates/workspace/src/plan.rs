//! Decides what an apply does with each change. Pure: touches no file.
//!
//! **Invariants:** a host file is replaced or deleted only if it is certainly the original that the
//! box started from, or if the user chose `theirs`. A marked entry is applied only if the user
//! names it. An [`ApplyPlan`] exists only if no conflict is left. The old name of a moved file is
//! removed only if the new name is applied.

use crate::change::{Change, ChangeKind, Changes};
use crate::choice::{Choice, Pattern};
use crate::host::{HostFile, ObserveError, Observed};
use crate::layers::Layers;
use crate::meta::FileKind;
use crate::path::RelPath;

mod decide;
mod depend;
mod reason;

pub use reason::{ConflictReason, LeftOut};

/// A planned apply: the decision about every change. Becomes an [`ApplyPlan`] if there is no
/// conflict.
#[derive(Debug)]
pub struct Draft<'c> {
    changes: &'c Changes,
    verdicts: Vec<Verdict>,
    unmatched: Vec<Pattern>,
}

/// The steps of an apply in order, each with the expected state of the host.
#[derive(Debug)]
#[must_use]
pub struct ApplyPlan<'c> {
    pub(crate) changes: &'c Changes,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) steps: Vec<PlannedStep>,
}

/// One planned step of an apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedStep {
    /// The index of the change that the step applies.
    pub index: usize,
    pub action: Action,
}

/// The file operation of an apply at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// The action creates a directory at a free path, with missing parents.
    MakeDir,
    /// The action replaces a file with a directory.
    ReplaceWithDir(HostFile),
    /// The action creates a file or link at a free path.
    Add,
    /// The action replaces a file or link with another one.
    Replace {
        was: HostFile,
        mode: u32,
    },
    SetMode {
        was: HostFile,
        mode: u32,
    },
    Remove(HostFile),
    RemoveDir,
    /// The action replaces an empty directory with a file or link.
    ReplaceDir,
    SetDirMode {
        was: HostFile,
        mode: u32,
    },
}

/// The decision about one change: apply it, leave it out, or report a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    NotChosen,
    LeftOut(LeftOut),
    /// The host already has this content.
    Done,
    /// Host and box changed the path, and the host's version stays.
    Ours,
    Conflict {
        why: ConflictReason,
        settle: Settle,
    },
    Do(Action),
}

/// The choices of the user that can resolve a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settle {
    Either,
    OursOnly,
}

/// A path that both the host and the box changed.
#[derive(Debug, Clone, Copy)]
pub struct Conflict<'d> {
    pub change: &'d Change,
    pub why: ConflictReason,
    /// Whether the box's version can resolve the conflict; the host's version always can.
    pub theirs_possible: bool,
}

/// Decides what an apply would do with each change, without changing anything.
pub fn plan_apply<'c>(observed: &Observed<'c>, choice: &Choice) -> Draft<'c> {
    let changes = observed.changes;
    let verdicts = decide::all(observed, choice);
    let verdicts = depend::settle(changes, verdicts);
    Draft { changes, verdicts, unmatched: unmatched(changes, choice) }
}

/// Returns the changes of the box that are not yet on the host.
pub fn unapplied<'c>(
    layers: &Layers,
    changes: &'c Changes,
) -> Result<Vec<&'c Change>, ObserveError> {
    let observed = crate::host::observe(layers.lower(), changes)?;
    let verdicts = verdicts(&observed);
    let all = changes.entries().iter().zip(verdicts);
    Ok(all.filter(|(_, verdict)| *verdict != Verdict::Done).map(|(change, _)| change).collect())
}

/// Returns the decisions for a choice of all changes.
pub(crate) fn verdicts(observed: &Observed<'_>) -> Vec<Verdict> {
    decide::all(observed, &Choice::everything())
}

impl<'c> Draft<'c> {
    /// Returns the conflicts that the user's choice does not resolve.
    pub fn conflicts(&self) -> impl Iterator<Item = Conflict<'_>> {
        self.with_verdicts().filter_map(|(change, verdict)| match *verdict {
            Verdict::Conflict { why, settle } => {
                Some(Conflict { change, why, theirs_possible: settle == Settle::Either })
            }
            Verdict::NotChosen
            | Verdict::LeftOut(_)
            | Verdict::Done
            | Verdict::Ours
            | Verdict::Do(_) => None,
        })
    }

    /// Returns the selected changes that are left out, with the reason.
    pub fn left_out(&self) -> impl Iterator<Item = (&Change, &LeftOut)> {
        self.with_verdicts().filter_map(|(change, verdict)| match verdict {
            Verdict::LeftOut(why) => Some((change, why)),
            Verdict::NotChosen
            | Verdict::Done
            | Verdict::Ours
            | Verdict::Conflict { .. }
            | Verdict::Do(_) => None,
        })
    }

    /// Returns the changes that the apply will make.
    pub fn to_do(&self) -> impl Iterator<Item = &Change> {
        let chosen = |(change, verdict)| matches!(verdict, &Verdict::Do(_)).then_some(change);
        self.with_verdicts().filter_map(chosen)
    }

    /// Returns the changes whose content the host already has.
    pub fn already_there(&self) -> impl Iterator<Item = &Change> {
        let done = |(change, verdict)| matches!(verdict, &Verdict::Done).then_some(change);
        self.with_verdicts().filter_map(done)
    }

    /// Returns the patterns of the user that match no change, which indicates a typing error.
    pub fn unmatched(&self) -> &[Pattern] {
        &self.unmatched
    }

    /// Returns the executable plan, or the draft itself if a conflict is not resolved.
    pub fn settle(self) -> Result<ApplyPlan<'c>, Self> {
        if self.conflicts().next().is_some() {
            return Err(self);
        }
        let Self { changes, verdicts, unmatched: _ } = self;
        let steps = order(&verdicts);
        Ok(ApplyPlan { changes, verdicts, steps })
    }

    fn with_verdicts(&self) -> impl Iterator<Item = (&'c Change, &Verdict)> {
        self.changes.entries().iter().zip(&self.verdicts)
    }
}

impl ApplyPlan<'_> {
    /// Returns the number of apply steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl Verdict {
    /// Returns whether the host has the box's version after the apply.
    pub(crate) const fn arrives(&self) -> bool {
        matches!(self, Self::Do(_) | Self::Done)
    }
}

/// Returns the apply steps in order: additions from the top, deletions from the bottom, then
/// directory modes.
fn order(verdicts: &[Verdict]) -> Vec<PlannedStep> {
    let steps = |phase: u8| {
        verdicts.iter().enumerate().filter_map(move |(index, verdict)| match verdict {
            Verdict::Do(action) if action.phase() == phase => {
                Some(PlannedStep { index, action: action.clone() })
            }
            Verdict::Do(_)
            | Verdict::NotChosen
            | Verdict::LeftOut(_)
            | Verdict::Done
            | Verdict::Ours
            | Verdict::Conflict { .. } => None,
        })
    };
    let mut ordered: Vec<_> = steps(0).chain(steps(1)).chain(steps(2)).collect();
    ordered.extend(steps(3).collect::<Vec<_>>().into_iter().rev());
    ordered.extend(steps(4).collect::<Vec<_>>().into_iter().rev());
    ordered
}

impl Action {
    pub(crate) const fn phase(&self) -> u8 {
        match self {
            Self::MakeDir | Self::ReplaceWithDir(_) => 0,
            Self::Add | Self::Replace { .. } | Self::SetMode { .. } => 1,
            Self::Remove(_) => 2,
            Self::RemoveDir | Self::ReplaceDir => 3,
            Self::SetDirMode { .. } => 4,
        }
    }
}

fn unmatched(changes: &Changes, choice: &Choice) -> Vec<Pattern> {
    let Choice { paths, include_executable, theirs, ours, denied: _, only_inert: _ } = choice;
    [paths, include_executable, theirs, ours]
        .into_iter()
        .flat_map(|pick| pick.patterns())
        .filter(|pattern| !changes.entries().iter().any(|change| pattern.matches(&change.path)))
        .cloned()
        .collect()
}

/// Returns, for each change, the index of the nearest change at a parent directory.
fn parents(changes: &Changes) -> Vec<Option<usize>> {
    let entries = changes.entries();
    let mut above: Vec<(usize, &RelPath)> = Vec::new();
    let mut parents = Vec::with_capacity(entries.len());
    for (index, change) in entries.iter().enumerate() {
        while above.last().is_some_and(|(_, top)| !change.path.is_beneath(top)) {
            above.pop();
        }
        parents.push(above.last().map(|&(index, _)| index));
        above.push((index, &change.path));
    }
    parents
}

/// Returns whether the change creates a directory at its path.
fn makes_directory(change: &Change) -> bool {
    let made = matches!(change.kind, ChangeKind::Added | ChangeKind::TypeChanged);
    made && change.new_kind() == Some(FileKind::Directory)
}
