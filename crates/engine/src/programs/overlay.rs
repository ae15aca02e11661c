//! The run of a session on the user's directory: many boxes use the same overlay, one after the other.

use std::fs::File;
use std::path::Path;

use anyhow::Context as _;
use belljar_box::{LayerSync, Workspace};
use belljar_model::{Mode, Review, RunRecord, RunState};

use crate::changes::count_changes;
use crate::error::EngineError;
use crate::launch::{finish_run, prepare_layers, workspace_at};
use crate::notice::Notice;
use crate::scope::Scoped;
use crate::store::Run;

/// Creates the run of a session, with its directory and its lock. Unless the mode is read-only, also
/// creates the overlay layers.
pub(super) fn create(state: &Scoped, path: &Path, mode: Mode) -> anyhow::Result<(Run, File)> {
    let (id, _) = state.new_id().map_err(EngineError::into_inner)?;
    let (place, path) =
        belljar_box::open(path).context("cannot open the workspace of the session")?;
    let mut workspace = Workspace { place, path, layers: None, scratch: false };
    let record = RunRecord {
        id,
        name: None,
        created: id.millis(),
        workspace: Some(workspace_at(&workspace)?),
        mode,
        argv: vec!["belljar".to_owned(), "mcp".to_owned()],
        template: belljar_model::code::CODE_TEMPLATE.to_owned(),
        state: RunState::Running,
        review: Review::None,
        result: None,
    };
    let (run, lock) = state.store().create(record)?;
    if mode != Mode::ReadOnly {
        prepare_layers(&run, &mut workspace, LayerSync::Skipped)?;
    }
    Ok((run, lock))
}

/// Ends the run of a session. The changes to the workspace wait for review, as after any run.
pub(super) fn end(state: &Scoped, run: &mut Run, disk: u64) {
    let changed = match run.record.mode {
        Mode::ReadOnly => 0,
        Mode::Overlay | Mode::Direct => count_changes(run, state, disk),
    };
    finish_run(run, None, state);
    if changed > 0 {
        state.notice(&Notice::ChangesWait { run: run.id(), files: changed });
    }
}
