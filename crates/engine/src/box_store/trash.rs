//! The trash: removed boxes and parts of boxes, which can be restored for 14 days.
//!
//! ```text
//! $BELLJAR_HOME/trash/<id>-NAME/trash.json   the note: kind, time and cause of the removal
//!                               …            a whole box, or the removed parts of a box
//! ```

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use belljar_ledger::{BoxRemoved, TrashEmptied};
use belljar_model::RunId;
use belljar_model::boxes::BoxName;
use rustix::fs::{CWD, RenameFlags};
use serde::{Deserialize, Serialize};

use super::NamedBox;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::notice::Notice;
use crate::record;
use crate::scope::Scoped;

/// How long an entry stays in the trash.
pub const RETENTION: Duration = Duration::from_hours(14 * 24);

/// The kind of an entry in the trash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrashKind {
    Box,
    /// The discarded changes of a box.
    Changes,
    /// The contents of a box before a reset.
    Reset,
}

impl TrashKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Box => "box",
            Self::Changes => "changes",
            Self::Reset => "reset",
        }
    }
}

/// The content of `trash.json`, which describes an entry in the trash.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrashNote {
    pub id: RunId,
    pub name: BoxName,
    pub what: TrashKind,
    /// The time of the removal in milliseconds since the Unix epoch.
    pub when: u64,
    /// The Belljar command that removed the entry.
    pub by: String,
    /// A description of the unapplied work in the entry.
    pub unapplied: Option<String>,
}

/// An entry in the trash.
#[derive(Debug)]
pub struct TrashEntry {
    pub dir: PathBuf,
    pub note: TrashNote,
}

/// Returns the directory of the trash.
pub fn trash_dir(state: &Scoped) -> PathBuf {
    state.store().layout().trash()
}

impl TrashNote {
    pub fn new(
        state: &Scoped,
        name: &BoxName,
        what: TrashKind,
        by: &str,
        unapplied: Option<String>,
    ) -> Result<Self, EngineError> {
        let (id, _) = state.new_id()?;
        let when = state.clock().millis();
        Ok(Self { id, name: name.clone(), what, when, by: by.to_owned(), unapplied })
    }

    /// Returns the name of the entry's directory in the trash.
    pub fn directory_name(&self) -> String {
        format!("{}-{}", self.id, self.name)
    }

    pub fn save(&self, dir: &Path) -> anyhow::Result<()> {
        super::write_atomically(dir, "trash.json", &serde_json::to_vec_pretty(self)?)
    }
}

/// Returns all entries in the trash, newest first.
pub fn all(state: &Scoped) -> Result<Vec<TrashEntry>, EngineError> {
    let entries = match fs::read_dir(trash_dir(state)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.context("cannot list the trash").kind(ErrorKind::Broken)?,
    };
    let load = |dir: PathBuf| -> anyhow::Result<TrashEntry> {
        let text = fs::read(dir.join("trash.json"))?;
        Ok(TrashEntry { note: serde_json::from_slice(&text)?, dir })
    };
    let mut all = Vec::new();
    for dir in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        match load(dir.clone()) {
            Ok(entry) => all.push(entry),
            Err(error) => state.notice(&Notice::Damaged(format!(
                "damaged entry in the trash {}: {error:#}",
                dir.display()
            ))),
        }
    }
    all.sort_by_key(|entry| std::cmp::Reverse(entry.note.id));
    Ok(all)
}

/// Records the removal of a stopped box in the ledger, then moves the box to the trash.
pub fn move_box(
    state: &Scoped,
    named_box: &NamedBox,
    by: &str,
    unapplied: Option<String>,
) -> Result<TrashNote, EngineError> {
    let note = TrashNote::new(state, named_box.name(), TrashKind::Box, by, unapplied)?;
    let event = BoxRemoved {
        name: note.name.to_string(),
        trash: note.directory_name(),
        unapplied: note.unapplied.clone(),
        by: by.to_owned(),
    };
    record::fact(state, event)?;
    let moved = || -> anyhow::Result<()> {
        // The note is written before the move. It has no effect while the box is not in the trash.
        note.save(&named_box.dir)?;
        create_dir(&trash_dir(state))?;
        move_path(&named_box.dir, &trash_dir(state).join(note.directory_name()))
    };
    moved()
        .with_context(|| format!("cannot move box {} to the trash", named_box.name()))
        .kind(ErrorKind::Broken)?;
    Ok(note)
}

/// Creates a private directory and its missing parent directories.
pub fn create_dir(dir: &Path) -> anyhow::Result<()> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    created.with_context(|| format!("cannot create {}", dir.display()))
}

/// Moves a file or directory to a new path, even if its mode is read-only, and syncs both parents.
///
/// Fails if the new path exists.
pub fn move_path(from: &Path, to: &Path) -> anyhow::Result<()> {
    let meta = fs::symlink_metadata(from);
    let meta = meta.with_context(|| format!("cannot read the metadata of {}", from.display()))?;
    // A directory that gets another parent must be writable itself: rename(2), EACCES.
    let is_read_only = meta.is_dir() && meta.mode() & 0o200 == 0;
    let set_mode =
        |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    if is_read_only {
        set_mode(from, meta.mode() & 0o7777 | 0o200)?;
    }
    rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
        .with_context(|| format!("cannot move {} to {}", from.display(), to.display()))?;
    if is_read_only {
        set_mode(to, meta.mode() & 0o7777)?;
    }
    for dir in [from.parent(), to.parent()].into_iter().flatten() {
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.context("cannot write a directory to disk")?;
    }
    Ok(())
}

/// Returns the entries that have been in the trash for longer than `age`.
pub fn older_than(state: &Scoped, age: Duration) -> Result<Vec<TrashEntry>, EngineError> {
    let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let now = state.clock().millis();
    let mut all = all(state)?;
    all.retain(|entry| now.saturating_sub(entry.note.when) > age);
    Ok(all)
}

/// Records the deletion of these entries in the ledger, then deletes them permanently.
pub fn delete(state: &Scoped, entries: &[TrashEntry]) -> Result<(), EngineError> {
    if entries.is_empty() {
        return Ok(());
    }
    let event =
        TrashEmptied { trash: entries.iter().map(|entry| entry.note.directory_name()).collect() };
    record::fact(state, event)?;
    for entry in entries {
        belljar_workspace::remove_tree(&entry.dir)
            .context("cannot delete an entry of the trash")
            .kind(ErrorKind::Broken)?;
    }
    Ok(())
}

/// Deletes all entries that have been in the trash for longer than [`RETENTION`].
///
/// An error is only a notice, because the command that calls this function has succeeded.
pub fn delete_expired(state: &Scoped) {
    if let Err(failure) = older_than(state, RETENTION).and_then(|old| delete(state, &old)) {
        state.failed(failure.inner());
    }
}
