//! Snapshots: copies of the contents of a box, stored in the directory of the box under a tag.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_ledger::BoxSnapshot;
use belljar_model::boxes::{BoxName, BoxWorkspace};
use serde::{Deserialize, Serialize};

use crate::box_store::{self, NamedBox, parts, trash};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::notice::Notice;
use crate::record;
use crate::scope::Scoped;
use crate::supervisor::{
    self,
    protocol::{FromSupervisor, ToSupervisor},
};

/// The name of a snapshot.
pub type Tag = BoxName;

/// The content of `snapshot.json`, which describes a snapshot.
#[derive(Debug, Serialize, Deserialize)]
pub struct Snapshot {
    pub tag: Tag,
    /// The time of the snapshot in milliseconds since the Unix epoch.
    pub when: u64,
    /// Whether the box was running. It was paused during the copy.
    pub running: bool,
}

/// Returns the directory that contains the snapshots of a box.
fn snapshots_dir(named_box: &NamedBox) -> PathBuf {
    named_box.dir.join("snapshots")
}

/// Returns the directory of the snapshot with this tag.
pub fn find(named_box: &NamedBox, tag: &Tag) -> Result<PathBuf, EngineError> {
    let dir = snapshots_dir(named_box).join(tag.as_str());
    if dir.is_dir() {
        return Ok(dir);
    }
    let name = named_box.name();
    Err(invalid(format!(
        "box {name} has no snapshot {tag}; `belljar snapshot {name} --list` shows all snapshots"
    )))
}

/// Returns the workspace that the box had at the time of a snapshot. A later clone is another workspace.
pub fn workspace_at_snapshot(state: &Scoped, dir: &Path) -> Option<BoxWorkspace> {
    let text = fs::read(dir.join("box.json")).ok()?;
    let home = state.host().user_home();
    box_store::read_record(&text, home.as_deref()).ok().map(|record| record.ground)
}

/// Returns the snapshots of a box, oldest first. Sends a notice for each damaged snapshot.
pub fn all(state: &Scoped, named_box: &NamedBox) -> Result<Vec<Snapshot>, EngineError> {
    let entries = match fs::read_dir(snapshots_dir(named_box)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => {
            entries.context("cannot list the snapshots of the box").kind(ErrorKind::Broken)?
        }
    };
    let load = |dir: &Path| -> anyhow::Result<Snapshot> {
        Ok(serde_json::from_slice(&fs::read(dir.join("snapshot.json"))?)?)
    };
    let mut all = Vec::new();
    for entry in entries.filter_map(Result::ok).filter(|entry| !is_unfinished(entry)) {
        match load(&entry.path()) {
            Ok(snapshot) => all.push(snapshot),
            Err(error) => state.notice(&Notice::Damaged(format!(
                "damaged snapshot {}: {error:#}",
                entry.path().display()
            ))),
        }
    }
    all.sort_by_key(|snapshot| snapshot.when);
    Ok(all)
}

fn is_unfinished(entry: &fs::DirEntry) -> bool {
    entry.file_name().as_encoded_bytes().starts_with(b".")
}

/// Takes a snapshot of a box. The caller must hold the [`box_store::ChangeLock`] of the box.
pub fn take(state: &Scoped, named_box: &NamedBox, tag: &Tag) -> Result<(), EngineError> {
    let to = snapshots_dir(named_box).join(tag.as_str());
    if to.exists() {
        return Err(invalid(format!(
            "box {} has a snapshot {tag} already; choose another tag",
            named_box.name()
        )));
    }
    let event = BoxSnapshot { name: named_box.name().to_string(), tag: tag.to_string() };
    record::fact(state, event)?;
    remove_unfinished(named_box);
    let (id, _) = state.new_id()?;
    let new = snapshots_dir(named_box).join(format!(".new-{id}"));
    let paused = pause(state, named_box)?;
    let taken = || -> anyhow::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&new)?;
        parts::copy(&named_box.dir, &parts::COPIED, &new)?;
        parts::copy(&named_box.dir, &["box.json"], &new)?;
        let when = state.clock().millis();
        let snapshot = Snapshot { tag: tag.clone(), when, running: paused.is_some() };
        let text = serde_json::to_vec_pretty(&snapshot)?;
        box_store::write_atomically(&new, "snapshot.json", &text)?;
        trash::move_path(&new, &to)
    };
    taken().with_context(|| format!("cannot copy box {}", named_box.name())).kind(ErrorKind::Broken)
}

/// Removes unfinished snapshots of a box. The caller must hold the [`box_store::ChangeLock`] of the box.
pub fn remove_unfinished(named_box: &NamedBox) {
    let Ok(entries) = fs::read_dir(snapshots_dir(named_box)) else { return };
    for entry in entries.filter_map(Result::ok).filter(is_unfinished) {
        belljar_workspace::remove_tree(&entry.path()).ok(); // the next snapshot retries
    }
}

/// Pauses a running box until the returned value is dropped. Returns `None` if the box is not running.
pub fn pause(state: &Scoped, named_box: &NamedBox) -> Result<Option<UnixStream>, EngineError> {
    if !named_box.is_up() {
        return Ok(None);
    }
    match supervisor::call(state, named_box, &ToSupervisor::Pause, None)? {
        (connection, FromSupervisor::Ok) => Ok(Some(connection)),
        _ => Err(invalid(format!(
            "cannot pause box {}; stop it first with `belljar stop`",
            named_box.name()
        ))),
    }
}
