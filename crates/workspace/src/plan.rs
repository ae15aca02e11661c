//! Decides what an `apply` will do, entry by entry. Pure: no file is touched here.
//!
//! **Invariants:** whatever a host file holds is taken away only where it is surely what the box
//! started from, or where the user said `theirs`; a marked entry is taken only where it is named; an
//! [`ApplyPlan`] exists only where no conflict is left; and a file that was moved loses its old place
//! only if its new one is taken.

use crate::change::{Change, Changes, Kind};
use crate::choice::{Choice, Pattern};
use crate::host::{Here, ObserveError, Observed};
use crate::layers::Layers;
use crate::meta::FileKind;
use crate::path::RelPath;

mod decide;
mod depend;
mod reason;

pub use reason::{ConflictReason, LeftOut};

/// What would happen to every change. Becomes an [`ApplyPlan`] when nothing conflicts.
#[derive(Debug)]
pub struct Draft<'c> {
    changes: &'c Changes,
    verdicts: Vec<Verdict>,
    unmatched: Vec<Pattern>,
}

/// What to do, in which order, and what each step expects to find.
#[derive(Debug)]
#[must_use]
pub struct ApplyPlan<'c> {
    pub(crate) changes: &'c Changes,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) steps: Vec<PlannedStep>,
}

/// One thing to do to the user's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedStep {
    /// Which entry of the changes.
    pub index: usize,
    pub act: Act,
}

/// What is done at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// Makes a directory where nothing is, and the missing ones above it.
    MakeDir,
    /// Puts a directory in the place of a file.
    ReplaceWithDir(Here),
    /// Puts a file or link where nothing is.
    Add,
    /// Puts a file or link in the place of another one.
    Replace {
        was: Here,
        mode: u32,
    },
    SetMode {
        was: Here,
        mode: u32,
    },
    Remove(Here),
    RemoveDir,
    /// Puts a file or link in the place of a directory, once that is empty.
    ReplaceDir,
    SetDirMode {
        was: Here,
        mode: u32,
    },
}

/// What happens to one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    NotChosen,
    LeftOut(LeftOut),
    /// The host holds it already.
    Done,
    /// Both sides changed and the host's stays.
    Ours,
    Conflict {
        why: ConflictReason,
        settle: Settle,
    },
    Do(Act),
}

/// How a conflict can be settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settle {
    Either,
    OursOnly,
}

/// A path where both sides changed.
#[derive(Debug, Clone, Copy)]
pub struct Conflict<'d> {
    pub change: &'d Change,
    pub why: ConflictReason,
    /// Whether `theirs` could settle it; `ours` always can.
    pub theirs_possible: bool,
}

/// Decides, for each change, what would happen.
pub fn plan_apply<'c>(observed: &Observed<'c>, choice: &Choice) -> Draft<'c> {
    let changes = observed.changes;
    let verdicts = decide::all(observed, choice);
    let verdicts = depend::settle(changes, verdicts);
    Draft { changes, verdicts, unmatched: unmatched(changes, choice) }
}

/// What the host does not hold yet of what the box left.
pub fn unapplied<'c>(
    layers: &Layers,
    changes: &'c Changes,
) -> Result<Vec<&'c Change>, ObserveError> {
    let observed = crate::host::observe(layers.lower(), changes)?;
    let verdicts = verdicts(&observed);
    let all = changes.entries().iter().zip(verdicts);
    Ok(all.filter(|(_, verdict)| *verdict != Verdict::Done).map(|(change, _)| change).collect())
}

/// What would happen to each change if everything were chosen.
pub(crate) fn verdicts(observed: &Observed<'_>) -> Vec<Verdict> {
    decide::all(observed, &Choice::everything())
}

impl<'c> Draft<'c> {
    /// Where both sides changed and the choice does not say which is meant.
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

    /// What was chosen and is left out all the same, and why.
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

    /// What will be taken over.
    pub fn to_do(&self) -> impl Iterator<Item = &Change> {
        let chosen = |(change, verdict)| matches!(verdict, &Verdict::Do(_)).then_some(change);
        self.with_verdicts().filter_map(chosen)
    }

    /// What the host already holds as the box left it.
    pub fn already_there(&self) -> impl Iterator<Item = &Change> {
        let done = |(change, verdict)| matches!(verdict, &Verdict::Done).then_some(change);
        self.with_verdicts().filter_map(done)
    }

    /// Patterns of the choice that match no change: perhaps a typing error.
    pub fn unmatched(&self) -> &[Pattern] {
        &self.unmatched
    }

    /// The plan, if nothing conflicts. Nothing is taken over from half a choice.
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
    /// How many things there are to do.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl Verdict {
    /// Whether the host will hold what the box left.
    pub(crate) const fn arrives(&self) -> bool {
        matches!(self, Self::Do(_) | Self::Done)
    }
}

/// First what is new, from the top; then what is gone, from the bottom; modes of directories last,
/// because they may forbid the rest.
fn order(verdicts: &[Verdict]) -> Vec<PlannedStep> {
    let steps = |phase: u8| {
        verdicts.iter().enumerate().filter_map(move |(index, verdict)| match verdict {
            Verdict::Do(act) if act.phase() == phase => {
                Some(PlannedStep { index, act: act.clone() })
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

impl Act {
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
    let Choice { paths, include_executable, theirs, ours, denied: _ } = choice;
    [paths, include_executable, theirs, ours]
        .into_iter()
        .flat_map(|pick| pick.patterns())
        .filter(|pattern| !changes.entries().iter().any(|change| pattern.matches(&change.path)))
        .cloned()
        .collect()
}

/// For each entry, the nearest entry above it.
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

/// Whether the entry makes a directory at its path.
fn makes_directory(change: &Change) -> bool {
    let made = matches!(change.kind, Kind::Added | Kind::TypeChanged);
    made && change.new_kind() == Some(FileKind::Directory)
}
