//! What is known from before a box was started again on the same upper layer.
//!
//! A box that was stopped and goes on sees its own layer over the host's directory as that is by then.
//! What it had covered before it does not see again: there it goes on from what it started from the
//! first time, and what the host did since is the host's own. Everywhere else it starts from the host as
//! it is now. Forgetting the difference would take a file that the host changed in between for one that
//! the box knew, and replace it without a word.

use std::collections::{BTreeMap, HashSet};

use belljar_model::Clock;
use serde::{Deserialize, Serialize};

use super::manifest::{self, LoadError};
use super::{Caps, SealError, seal};
use crate::change::{Base, Change, Changes, Known};
use crate::host::{self, Here, Observed, Seen};
use crate::layers::Layers;
use crate::meta::FileKind;
use crate::path::RelPath;
use crate::plan::{self, Verdict};

/// What the upper layer covered when the box was started again.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    known: BTreeMap<RelPath, Known>,
    /// Beneath these the box saw nothing of the host's.
    hides: HashSet<RelPath>,
}

/// Exactly `earlier.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    known: Vec<Known>,
    hides: Vec<RelPath>,
}

impl Earlier {
    pub(super) fn load(layers: &Layers) -> Result<Self, LoadError> {
        let Some(File { known, hides }) = manifest::read(layers, manifest::EARLIER)? else {
            return Ok(Self::default());
        };
        let known = known.into_iter().map(|known| (known.path.clone(), known)).collect();
        Ok(Self { known, hides: hides.into_iter().collect() })
    }

    /// What the box started from at `path`, if it covered it before.
    pub(super) fn known(&self, path: &RelPath) -> Option<&Known> {
        self.known.get(path)
    }

    /// Whether the box could not see what the host has at `path`, because of something above it.
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

/// Gets a run ready to go on: what it changed so far is put aside as what is known, so that the next
/// [`seal`] reads the upper layer again, with `start` as it is then.
///
/// `start` is that of the run so far. Done again after it was interrupted, it does the same.
pub fn go_on(layers: &Layers, start: Clock, caps: &Caps) -> Result<(), SealError> {
    let changes = seal(layers, start, caps)?;
    let observed = host::observe(layers.lower(), &changes);
    let observed =
        observed.map_err(|error| SealError::Lower { path: error.path, source: error.source })?;
    let file = File { known: known(&observed), hides: hides(&changes) };
    let written = manifest::write(layers, manifest::EARLIER, &file);
    written.and_then(|()| manifest::remove(layers)).map_err(|source| SealError::Write { source })
}

fn known(observed: &Observed<'_>) -> Vec<Known> {
    let verdicts = plan::verdicts(observed);
    let entries = observed.changes.entries().iter().zip(&observed.seen).zip(verdicts);
    let entries = entries.map(|((change, seen), verdict)| match (verdict, seen) {
        (Verdict::Done, Seen::Here(here)) if change.new.is_some() => arrived(change, here),
        (Verdict::Done, _) => {
            Known { path: change.path.clone(), side: None, base: None, host: None }
        }
        _ => Known {
            path: change.path.clone(),
            side: change.old.clone(),
            base: change.base,
            host: change.host,
        },
    });
    observed.changes.same().iter().cloned().chain(entries).collect()
}

/// The host has by now what the box left: from here on both start from it.
fn arrived(change: &Change, here: &Here) -> Known {
    let is_directory = here.kind == FileKind::Directory;
    Known {
        path: change.path.clone(),
        side: change.new.clone(),
        base: (!is_directory).then_some(Base::HashOnly),
        host: Some(here.identity),
    }
}

fn hides(changes: &Changes) -> Vec<RelPath> {
    let is_leaf = |kind: Option<FileKind>| kind != Some(FileKind::Directory);
    let entries = changes.entries().iter().filter(|change| is_leaf(change.new_kind()));
    let same = changes.same().iter();
    let same = same.filter(|known| is_leaf(known.side.as_ref().map(|side| side.kind)));
    let entries = entries.map(|change| &change.path);
    let all = entries.chain(same.map(|known| &known.path)).chain(changes.opaque());
    all.cloned().collect()
}
