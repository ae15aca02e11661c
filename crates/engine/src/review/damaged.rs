//! Reviews a run whose record `run.json` cannot be read, for example after a disk error.
//!
//! The changes of the run are in its layer, and the ledger has the start of the run. So the record is made
//! again from the ledger, and `diff`, `apply` and `discard` work as usual.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::{Clock, Mode, Review, RunId, RunRecord, RunState, WorkspaceAt};

use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::notice::Notice;
use crate::record::runs::{self, RecordedRun};
use crate::scope::Scoped;
use crate::store::{DamagedRun, Run, is_empty};

/// Returns the run with this id prefix whose record cannot be read, with a record from the ledger.
///
/// Returns `None` if no run with a damaged record has this id prefix.
pub(super) fn find(state: &Scoped, prefix: &str) -> Result<Option<Run>, EngineError> {
    let damaged = state.store().damaged_runs().kind(ErrorKind::Broken)?;
    let is_named = |run: &DamagedRun| {
        prefix.len() >= 4 && run.id().is_some_and(|id| id.to_string().starts_with(prefix))
    };
    let mut found: Vec<DamagedRun> = damaged.into_iter().filter(is_named).collect();
    match (found.pop(), found.len()) {
        (None, _) => Ok(None),
        (Some(run), 0) => rebuild(state, &run).map(Some),
        (Some(_), others) => Err(invalid(format!(
            "run id prefix {prefix:?} is ambiguous ({} matches); use a longer prefix",
            others + 1
        ))),
    }
}

/// Reads a run again, after another command may have changed it.
pub(super) fn reload(state: &Scoped, run: &Run) -> Result<Run, EngineError> {
    let why = match Run::load(&run.dir) {
        Ok(run) => return Ok(run),
        Err(error) => format!("{error:#}"),
    };
    let damaged = DamagedRun { dir: run.dir.clone(), why };
    rebuild(state, &damaged)
}

/// Makes the record of a run again from the ledger. The record is not written to disk.
fn rebuild(state: &Scoped, damaged: &DamagedRun) -> Result<Run, EngineError> {
    let DamagedRun { dir, why } = damaged;
    let cannot = |cause: String| {
        let text = format!(
            "the run record in {} is damaged ({why}), and {cause}; the files that the box changed are in {}",
            dir.display(),
            dir.join("upper").display()
        );
        EngineError::message(ErrorKind::Damaged, text)
    };
    let Some(id) = damaged.id() else { return Err(cannot("its name is not a run id".to_owned())) };
    let recorded = match runs::reader(state) {
        Ok(Some(reader)) => runs::find(&reader, id)?,
        Ok(None) => None,
        Err(error) => return Err(cannot(format!("the ledger cannot be read: {error}"))),
    };
    let recorded = recorded.ok_or_else(|| cannot("the ledger has no such run".to_owned()))?;
    let record = record(dir, id, recorded).map_err(|error| cannot(format!("{error:#}")))?;
    state.notice(&Notice::Damaged(format!(
        "the run record in {} is damaged ({why}); the record in the ledger is used instead",
        dir.display()
    )));
    Ok(Run { dir: dir.clone(), record })
}

/// Converts the record of a run in the ledger.
fn record(dir: &Path, id: RunId, recorded: RecordedRun) -> anyhow::Result<RunRecord> {
    let mode: Mode = recorded.mode.parse().context("the mode in the ledger is unknown")?;
    let is_pending = !is_empty(&dir.join("upper"));
    Ok(RunRecord {
        id,
        name: recorded.name.and_then(|name| name.parse().ok()),
        created: id.millis(),
        workspace: recorded.workspace.map(|path| workspace_at(path, id)).transpose()?,
        mode,
        argv: Vec::new(), // for display only; the ledger has its hash
        template: recorded.template,
        state: if recorded.end.is_some() { RunState::Finished } else { RunState::Interrupted },
        review: if is_pending { Review::Pending } else { Review::None },
        result: None,
    })
}

/// Describes the workspace of a run, which must still be at its path.
fn workspace_at(path: PathBuf, id: RunId) -> anyhow::Result<WorkspaceAt> {
    let meta = fs::metadata(&path)
        .with_context(|| format!("the workspace {} cannot be opened", path.display()))?;
    // The id was made before the box saw the workspace, so a later change is always noticed.
    let secs = i64::try_from(id.millis() / 1000).context("the time of the run is too late")?;
    let nanos = u32::try_from(id.millis() % 1000 * 1_000_000).context("nanoseconds")?;
    let clock = Clock { secs, nanos };
    Ok(WorkspaceAt { path, dev: meta.dev(), ino: meta.ino(), clock })
}
