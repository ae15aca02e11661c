//! Replaces parts of a stopped box, either all of them or none. The old parts go to the trash.
//!
//! The new parts are written to `next/`. When they are complete, `next/` is renamed to `ready/`. From then
//! on the exchange is decided: if it is interrupted, the next command that locks the box finishes it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::{Review, RunRecord, RunState};
use serde::{Deserialize, Serialize};

use super::NamedBox;
use super::trash::{self, TrashNote};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::store::is_empty;
use crate::store::layout::Layout;

/// The files and directories that hold the changes of a box in its workspace.
pub const CHANGES: [&str; 6] =
    ["upper", "work", "base", "changes.json", "earlier.json", "run.json"];
/// All files and directories of a box whose contents the box can change.
pub const ALL: [&str; 8] =
    ["home", "repo", "upper", "work", "base", "changes.json", "earlier.json", "run.json"];

/// The files and directories of a box that snapshots copy. overlayfs creates its `work` again.
pub const COPIED: [&str; 7] =
    ["home", "repo", "upper", "base", "changes.json", "earlier.json", "run.json"];

/// The content of `plan.json`, which describes an exchange of parts of a box.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    note: TrashNote,
    /// The parts to replace. True if `next` has a new part, false if the part is only removed.
    parts: Vec<(String, bool)>,
}

/// Creates an empty directory `next/` for the new parts of a box.
pub fn prepare(named_box: &NamedBox) -> Result<PathBuf, EngineError> {
    let next = named_box.dir.join("next");
    let created = || -> anyhow::Result<()> {
        belljar_workspace::remove_tree(&next)?;
        Ok(DirBuilder::new().mode(0o700).create(&next)?)
    };
    created().context("cannot create a directory for the new parts").kind(ErrorKind::Broken)?;
    Ok(next)
}

/// Replaces these parts of a box with the contents of `next/`, and moves the old parts to the trash.
pub fn exchange(named_box: &NamedBox, parts: &[&str], note: TrashNote) -> Result<(), EngineError> {
    let exchanged = || -> anyhow::Result<()> {
        let next = named_box.dir.join("next");
        let parts = parts.iter().map(|&part| (part.to_owned(), exists(&next.join(part)))).collect();
        let plan = serde_json::to_vec(&Plan { note, parts })?;
        super::write_atomically(&next, "plan.json", &plan)?;
        trash::move_path(&next, &named_box.dir.join("ready"))?;
        finish(&named_box.dir)
    };
    exchanged()
        .with_context(|| format!("cannot replace parts of box {}", named_box.name()))
        .kind(ErrorKind::Broken)
}

/// Finishes an interrupted exchange of parts, if there is one in the directory of a box.
pub(super) fn finish(dir: &Path) -> anyhow::Result<()> {
    let ready = dir.join("ready");
    if !ready.exists() {
        return Ok(());
    }
    let plan: Plan = serde_json::from_slice(&fs::read(ready.join("plan.json"))?)?;
    let trash = Layout::trash_of_box(dir).context("cannot find the state directory of the box")?;
    let entry = trash.join(plan.note.directory_name());
    trash::create_dir(&entry)?;
    plan.note.save(&entry)?;
    for (part, has_new) in &plan.parts {
        let (old, new, trashed) = (dir.join(part), ready.join(part), entry.join(part));
        let is_done = *has_new && !exists(&new);
        if !is_done && exists(&old) {
            trash::move_path(&old, &trashed)?;
        }
        if exists(&new) {
            trash::move_path(&new, &old)?;
        }
    }
    // box.json is replaced by a rename, so that it never is missing: without it the box cannot be loaded.
    if exists(&ready.join("box.json")) {
        super::write_atomically(&entry, "box.json", &fs::read(dir.join("box.json"))?)?;
        fs::rename(ready.join("box.json"), dir.join("box.json"))?;
    }
    // `ready` is renamed before its removal: a partly removed `ready` could not be finished again.
    let next = dir.join("next");
    belljar_workspace::remove_tree(&next)?;
    fs::rename(&ready, &next)?;
    belljar_workspace::remove_tree(&next)?;
    Ok(())
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Copies parts of a box from one directory to another. Skips parts that do not exist.
pub fn copy(from: &Path, parts: &[&str], to: &Path) -> anyhow::Result<()> {
    for part in parts {
        let (old, new) = (from.join(part), to.join(part));
        let Ok(meta) = old.symlink_metadata() else { continue };
        if meta.is_dir() {
            belljar_workspace::copy_tree(&old, &new)?;
        } else {
            super::write_atomically(to, part, &fs::read(&old)?)?;
        }
    }
    Ok(())
}

/// Writes the record of a finished run. Its review is pending if the directory contains changes.
pub fn write_run(dir: &Path, mut record: RunRecord) -> anyhow::Result<()> {
    let has_changes = !is_empty(&dir.join("upper"));
    record.state = RunState::Finished;
    record.review = if has_changes { Review::Pending } else { Review::Discarded };
    super::write_atomically(dir, "run.json", &serde_json::to_vec_pretty(&record)?)
}
