//! Lists runs: the runs with a directory, and on request the runs that only the ledger has.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use belljar_ledger::Reader;
use belljar_model::{Purpose, RunId, RunState};

use crate::box_store;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record::runs::{self, KnownPurposes, Purposes, RecordedRun};
use crate::scope::Scoped;
use crate::store::Run;

/// A run in the list of runs.
#[derive(Debug)]
pub enum ListedRun {
    /// A run with a directory. The purpose is `None` if the ledger has no purpose of the run.
    Kept { run: Box<Run>, purpose: Option<Purpose> },
    /// A run without a directory that the ledger has: a call, a clone reader, or a pruned run.
    Recorded { run: RecordedRun, state: RunState },
}

impl ListedRun {
    pub const fn id(&self) -> RunId {
        match self {
            Self::Kept { run, .. } => run.record.id,
            Self::Recorded { run, .. } => run.id,
        }
    }

    pub const fn purpose(&self) -> Option<Purpose> {
        match self {
            Self::Kept { purpose, .. } => *purpose,
            Self::Recorded { run, .. } => run.purpose,
        }
    }
}

/// Lists runs, newest first.
///
/// Without `purposes`, lists the runs that a user started and that have a directory; runs of named boxes
/// are not included. With `purposes`, lists all runs in the ledger with one of these purposes.
pub fn list(state: &Scoped, purposes: Option<&Purposes>) -> Result<Vec<ListedRun>, EngineError> {
    let mut kept = state.store().runs().kind(ErrorKind::Broken)?;
    let Some(purposes) = purposes else {
        // If the ledger is damaged, all runs are listed with an unknown purpose.
        let reader = runs::reader(state).ok().flatten();
        let purpose = |run: &Run, known: &mut KnownPurposes| {
            reader.as_ref().and_then(|reader| known.of(reader, run.id()).ok().flatten())
        };
        return Ok(chosen(kept, &Purposes::default(), purpose));
    };
    let Some(reader) = runs::reader(state).kind(ErrorKind::Broken)? else { return Ok(Vec::new()) };
    kept.extend(box_store::runs(state));
    let mut seen = BTreeSet::new();
    kept.retain(|run| seen.insert(run.id())); // the copy of a box can have the same run id
    let mut all = chosen(kept, purposes, |run, known| known.of(&reader, run.id()).ok().flatten());
    all.extend(recorded(state, &reader, purposes, &seen)?);
    all.sort_by_key(|run| Reverse(run.id()));
    Ok(all)
}

fn chosen(
    kept: Vec<Run>,
    purposes: &Purposes,
    purpose: impl Fn(&Run, &mut KnownPurposes) -> Option<Purpose>,
) -> Vec<ListedRun> {
    let mut known = KnownPurposes::default();
    let listed = |run: Run| {
        let purpose = purpose(&run, &mut known);
        purposes.include(purpose).then_some(ListedRun::Kept { run: Box::new(run), purpose })
    };
    kept.into_iter().filter_map(listed).collect()
}

/// Returns the runs in the ledger that have no directory.
fn recorded(
    state: &Scoped,
    reader: &Reader,
    purposes: &Purposes,
    kept: &BTreeSet<RunId>,
) -> Result<impl Iterator<Item = ListedRun>, EngineError> {
    let others = runs::list(reader, purposes)?.into_iter().filter(|run| !kept.contains(&run.id));
    let others: Vec<RecordedRun> = others.collect();
    Ok(others.into_iter().map(|run| {
        let state = match &run.end {
            Some(_) => RunState::Finished,
            None if state.store().is_call_running(run.id) => RunState::Running,
            None => RunState::Interrupted,
        };
        ListedRun::Recorded { run, state }
    }))
}
