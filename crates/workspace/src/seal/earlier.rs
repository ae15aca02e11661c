//! The original states from before a box was restarted on the same upper layer.
//!
//! A restarted box sees its upper layer over the current state of the host's directory. A path that
//! the upper layer already covered hides the host's changes since then: there the original is still
//! the file from the first start. Everywhere else the original is the host's current file. Without
//! this distinction an apply would take a file that the host changed in the meantime for the
//! original and replace it silently.

use std::collections::{BTreeMap, HashSet};

use belljar_model::Clock;
use serde::{Deserialize, Serialize};

use super::manifest::{self, LoadError};
use super::{SealError, SealLimits, seal};
use crate::change::{Base, Change, Changes, StartState};
use crate::host::{self, HostFile, HostState, Observed};
use crate::layers::Layers;
use crate::meta::FileKind;
use crate::path::RelPath;
use crate::plan::{self, Verdict};

/// The paths that the upper layer contained when the box was restarted, with their original states.
#[derive(Debug, Default)]
pub(super) struct EarlierRuns {
    known: BTreeMap<RelPath, StartState>,
    /// The paths beneath which the host's files are hidden from the box.
    hides: HashSet<RelPath>,
}

/// The content of `earlier.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EarlierFile {
    known: Vec<StartState>,
    hides: Vec<RelPath>,
}

impl EarlierRuns {
    /// Loads `earlier.json`, the states before a restart; empty if the box was never restarted.
    pub(super) fn load(layers: &Layers) -> Result<Self, LoadError> {
        let Some(EarlierFile { known, hides }) = manifest::read(layers, manifest::EARLIER)? else {
            return Ok(Self::default());
        };
        let known = known.into_iter().map(|known| (known.path.clone(), known)).collect();
        Ok(Self { known, hides: hides.into_iter().collect() })
    }

    /// Returns the original state of `path` if the upper layer contained it before the restart.
    pub(super) fn known(&self, path: &RelPath) -> Option<&StartState> {
        self.known.get(path)
    }

    /// Returns whether a parent directory of `path` hides the host's file from the box.
    pub(super) fn hides(&self, path: &RelPath) -> bool {
        if self.hides.is_empty() {
            return false;
        }
        let mut above = path.split().map(|(parent, _)| parent);
        while let Some(directory) = above {
            if self.hides.contains(&directory) {
                return true;
            }
            above = directory.split().map(|(parent, _)| parent);
        }
        false
    }
}

/// Prepares the restart of a run: stores the current changes as original states, so that the next
/// [`seal`] reads the upper layer again with a new start time.
///
/// `start` is the start time of the run so far. The function can be repeated after an interruption.
pub fn prepare_restart(
    layers: &Layers,
    start: Clock,
    limits: &SealLimits,
) -> Result<(), SealError> {
    let changes = seal(layers, start, limits)?;
    let observed = host::observe(layers.lower(), &changes);
    let observed =
        observed.map_err(|error| SealError::Lower { path: error.path, source: error.source })?;
    let file = EarlierFile { known: start_states(&observed), hides: hidden_paths(&changes) };
    let written = manifest::write(layers, manifest::EARLIER, &file);
    written.and_then(|()| manifest::remove(layers)).map_err(|source| SealError::Write { source })
}

fn start_states(observed: &Observed<'_>) -> Vec<StartState> {
    let verdicts = plan::verdicts(observed);
    let entries = observed.changes.entries().iter().zip(&observed.states).zip(verdicts);
    let entries = entries.map(|((change, state), verdict)| match (verdict, state) {
        (Verdict::Done, HostState::Present(found)) if change.new.is_some() => {
            arrived(change, found)
        }
        (Verdict::Done, _) => {
            StartState { path: change.path.clone(), side: None, base: None, host: None }
        }
        _ => StartState {
            path: change.path.clone(),
            side: change.old.clone(),
            base: change.base,
            host: change.host,
        },
    });
    observed.changes.same().iter().cloned().chain(entries).collect()
}

/// Returns the original state of a change that the host already has.
fn arrived(change: &Change, found: &HostFile) -> StartState {
    let is_directory = found.kind == FileKind::Directory;
    StartState {
        path: change.path.clone(),
        side: change.new.clone(),
        base: (!is_directory).then_some(Base::HashOnly),
        host: Some(found.identity),
    }
}

fn hidden_paths(changes: &Changes) -> Vec<RelPath> {
    let is_leaf = |kind: Option<FileKind>| kind != Some(FileKind::Directory);
    let entries = changes.entries().iter().filter(|change| is_leaf(change.new_kind()));
    let same = changes.same().iter();
    let same = same.filter(|known| is_leaf(known.side.as_ref().map(|side| side.kind)));
    let entries = entries.map(|change| &change.path);
    let all = entries.chain(same.map(|known| &known.path)).chain(changes.opaque());
    all.cloned().collect()
}
