//! Exchanges parts of a box that is not up, all of them or none.
//!
//! What is to be is made ready in `next/`. When it is whole, it is renamed to `ready/`: from that moment
//! the exchange is decided, and whoever takes the box's turn after a crash finishes it. The old parts go
//! to the trash.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::{Review, RunRecord, RunState};
use serde::{Deserialize, Serialize};

use super::NamedBox;
use super::trash::{self, Note};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::store::is_empty;
use crate::store::layout::Layout;

/// What a box changed in its workspace.
pub const CHANGES: [&str; 6] =
    ["upper", "work", "base", "changes.json", "earlier.json", "run.json"];
/// All that a box can fill.
pub const ALL: [&str; 8] =
    ["home", "repo", "upper", "work", "base", "changes.json", "earlier.json", "run.json"];

/// What of it is worth a copy: overlayfs makes its `work` anew.
pub const KEPT: [&str; 7] =
    ["home", "repo", "upper", "base", "changes.json", "earlier.json", "run.json"];

/// The content of `plan.json` in `next` and `ready`.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    note: Note,
    /// These go; of those that are followed by true, another one comes.
    parts: Vec<(String, bool)>,
}

/// An empty `next/` for the parts that are to be.
pub fn prepare(of: &NamedBox) -> Result<PathBuf, EngineError> {
    let next = of.dir.join("next");
    let made = || -> anyhow::Result<()> {
        belljar_workspace::remove_tree(&next)?;
        Ok(DirBuilder::new().mode(0o700).create(&next)?)
    };
    made().context("make room for what is to be").kind(ErrorKind::Broken)?;
    Ok(next)
}

/// Puts what is in `next/` in the place of these parts.
pub fn exchange(of: &NamedBox, parts: &[&str], note: Note) -> Result<(), EngineError> {
    let exchanged = || -> anyhow::Result<()> {
        let next = of.dir.join("next");
        let parts = parts.iter().map(|&part| (part.to_owned(), exists(&next.join(part)))).collect();
        let plan = serde_json::to_vec(&Plan { note, parts })?;
        super::write_whole(&next, "plan.json", &plan)?;
        trash::shift(&next, &of.dir.join("ready"))?;
        finish(&of.dir)
    };
    exchanged()
        .with_context(|| format!("exchange parts of box {}", of.name()))
        .kind(ErrorKind::Broken)
}

/// Finishes an exchange that was decided, if there is one.
pub(super) fn finish(dir: &Path) -> anyhow::Result<()> {
    let ready = dir.join("ready");
    if !ready.exists() {
        return Ok(());
    }
    let plan: Plan = serde_json::from_slice(&fs::read(ready.join("plan.json"))?)?;
    let trash = Layout::trash_of_box(dir).context("find the state directory")?;
    let kept = trash.join(plan.note.place());
    trash::make(&kept)?;
    plan.note.save(&kept)?;
    for (part, comes) in &plan.parts {
        let (old, new, gone) = (dir.join(part), ready.join(part), kept.join(part));
        let done = *comes && !exists(&new);
        if !done && exists(&old) {
            trash::shift(&old, &gone)?;
        }
        if exists(&new) {
            trash::shift(&new, &old)?;
        }
    }
    // Never missing: without it there is no box that could be finished.
    if exists(&ready.join("box.json")) {
        super::write_whole(&kept, "box.json", &fs::read(dir.join("box.json"))?)?;
        fs::rename(ready.join("box.json"), dir.join("box.json"))?;
    }
    // First out of the way, in one step: half of it could not be finished again.
    let next = dir.join("next");
    belljar_workspace::remove_tree(&next)?;
    fs::rename(&ready, &next)?;
    belljar_workspace::remove_tree(&next)?;
    Ok(())
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Copies those of the parts that are there.
pub fn copy(from: &Path, parts: &[&str], to: &Path) -> anyhow::Result<()> {
    for part in parts {
        let (old, new) = (from.join(part), to.join(part));
        let Ok(meta) = old.symlink_metadata() else { continue };
        if meta.is_dir() {
            belljar_workspace::copy_tree(&old, &new)?;
        } else {
            super::write_whole(to, part, &fs::read(&old)?)?;
        }
    }
    Ok(())
}

/// Writes the record of a run that is over, as the changes beside it say.
pub fn write_run(dir: &Path, mut record: RunRecord) -> anyhow::Result<()> {
    let held = !is_empty(&dir.join("upper"));
    record.state = RunState::Finished;
    record.review = if held { Review::Pending } else { Review::Discarded };
    super::write_whole(dir, "run.json", &serde_json::to_vec_pretty(&record)?)
}
