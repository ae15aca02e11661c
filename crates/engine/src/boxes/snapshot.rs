//! Copies of all that a box holds, kept beside it under a tag.

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

/// What a snapshot is called.
pub type Tag = BoxName;

/// The content of `snapshot.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Snapshot {
    pub tag: Tag,
    /// Milliseconds since the Unix epoch.
    pub when: u64,
    /// Whether the box was at work; it was stopped for the moment of the copy.
    pub running: bool,
}

/// Where the snapshots of a box are.
fn place(of: &NamedBox) -> PathBuf {
    of.dir.join("snapshots")
}

/// The snapshot of this tag.
pub fn find(of: &NamedBox, tag: &Tag) -> Result<PathBuf, EngineError> {
    let dir = place(of).join(tag.as_str());
    if dir.is_dir() {
        return Ok(dir);
    }
    let name = of.name();
    Err(invalid(format!(
        "box {name} has no snapshot {tag}; `belljar snapshot {name} --list` shows those there are"
    )))
}

/// What the box worked on when the snapshot was taken: a clone may have been made anew since.
pub fn ground(state: &Scoped, dir: &Path) -> Option<BoxWorkspace> {
    let text = fs::read(dir.join("box.json")).ok()?;
    let home = state.host().user_home();
    box_store::read_record(&text, home.as_deref()).ok().map(|record| record.ground)
}

/// All snapshots of a box that can be read, oldest first. The others are reported as damaged.
pub fn all(state: &Scoped, of: &NamedBox) -> Result<Vec<Snapshot>, EngineError> {
    let entries = match fs::read_dir(place(of)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.context("list the snapshots").kind(ErrorKind::Broken)?,
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

/// Copies all that a box holds. The caller has its turn.
pub fn take(state: &Scoped, of: &NamedBox, tag: &Tag) -> Result<(), EngineError> {
    let to = place(of).join(tag.as_str());
    if to.exists() {
        return Err(invalid(format!("box {} has a snapshot {tag} already", of.name())));
    }
    let event = BoxSnapshot { name: of.name().to_string(), tag: tag.to_string() };
    record::fact(state, event)?;
    remove_unfinished(of);
    let (id, _) = state.new_id()?;
    let new = place(of).join(format!(".new-{id}"));
    let paused = still(state, of)?;
    let taken = || -> anyhow::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&new)?;
        parts::copy(&of.dir, &parts::KEPT, &new)?;
        parts::copy(&of.dir, &["box.json"], &new)?;
        let when = state.clock().millis();
        let note = Snapshot { tag: tag.clone(), when, running: paused.is_some() };
        box_store::write_whole(&new, "snapshot.json", &serde_json::to_vec_pretty(&note)?)?;
        trash::shift(&new, &to)
    };
    taken().with_context(|| format!("copy box {}", of.name())).kind(ErrorKind::Broken)
}

/// Removes copies that broke off. The caller has the turn of the box.
pub fn remove_unfinished(of: &NamedBox) {
    let Ok(entries) = fs::read_dir(place(of)) else { return };
    for entry in entries.filter_map(Result::ok).filter(is_unfinished) {
        belljar_workspace::remove_tree(&entry.path()).ok(); // tried again next time
    }
}

/// Keeps a box still for as long as the value is there, if it is at work.
pub fn still(state: &Scoped, of: &NamedBox) -> Result<Option<UnixStream>, EngineError> {
    if !of.is_up() {
        return Ok(None);
    }
    match supervisor::call(state, of, &ToSupervisor::Pause, None)? {
        (connection, FromSupervisor::Ok) => Ok(Some(connection)),
        _ => Err(invalid(format!("box {} cannot be paused; `belljar stop` it first", of.name()))),
    }
}
