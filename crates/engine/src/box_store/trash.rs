//! Where what is removed of boxes waits for two weeks, in case it was wanted after all.
//!
//! ```text
//! $BELLJAR_HOME/trash/<id>-NAME/trash.json   what it is, and when and why it came here
//!                               …            a whole box, or the parts that were taken out of one
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

/// How long it waits.
pub const KEPT: Duration = Duration::from_hours(14 * 24);

/// What something in the trash is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Box,
    /// What a box had changed.
    Changes,
    /// What a box had before it was set back.
    Reset,
}

impl What {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Box => "box",
            Self::Changes => "changes",
            Self::Reset => "reset",
        }
    }
}

/// The content of `trash.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Note {
    pub id: RunId,
    pub name: BoxName,
    pub what: What,
    /// Milliseconds since the Unix epoch.
    pub when: u64,
    /// What was typed.
    pub by: String,
    /// What it holds that nobody took over.
    pub unapplied: Option<String>,
}

/// Something in the trash.
#[derive(Debug)]
pub struct Entry {
    pub dir: PathBuf,
    pub note: Note,
}

pub fn place(state: &Scoped) -> PathBuf {
    state.store().layout().trash()
}

impl Note {
    pub fn new(
        state: &Scoped,
        name: &BoxName,
        what: What,
        by: &str,
        unapplied: Option<String>,
    ) -> Result<Self, EngineError> {
        let (id, _) = state.new_id()?;
        let when = state.clock().millis();
        Ok(Self { id, name: name.clone(), what, when, by: by.to_owned(), unapplied })
    }

    /// Its directory in the trash.
    pub fn place(&self) -> String {
        format!("{}-{}", self.id, self.name)
    }

    pub fn save(&self, dir: &Path) -> anyhow::Result<()> {
        super::write_whole(dir, "trash.json", &serde_json::to_vec_pretty(self)?)
    }
}

/// Everything in the trash, newest first.
pub fn all(state: &Scoped) -> Result<Vec<Entry>, EngineError> {
    let entries = match fs::read_dir(place(state)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.context("list the trash").kind(ErrorKind::Broken)?,
    };
    let load = |dir: PathBuf| -> anyhow::Result<Entry> {
        let text = fs::read(dir.join("trash.json"))?;
        Ok(Entry { note: serde_json::from_slice(&text)?, dir })
    };
    let mut all = Vec::new();
    for dir in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        match load(dir.clone()) {
            Ok(entry) => all.push(entry),
            Err(error) => state.notice(&Notice::Damaged(format!(
                "damaged entry of the trash {}: {error:#}",
                dir.display()
            ))),
        }
    }
    all.sort_by_key(|entry| std::cmp::Reverse(entry.note.id));
    Ok(all)
}

/// Moves a whole box that is not up into the trash, once that is on record.
pub fn put(
    state: &Scoped,
    of: &NamedBox,
    by: &str,
    unapplied: Option<String>,
) -> Result<Note, EngineError> {
    let note = Note::new(state, of.name(), What::Box, by, unapplied)?;
    let event = BoxRemoved {
        name: note.name.to_string(),
        trash: note.place(),
        unapplied: note.unapplied.clone(),
        by: by.to_owned(),
    };
    record::fact(state, event)?;
    let moved = || -> anyhow::Result<()> {
        // Before the one step that counts: here it says nothing yet.
        note.save(&of.dir)?;
        make(&place(state))?;
        shift(&of.dir, &place(state).join(note.place()))
    };
    moved()
        .with_context(|| format!("put box {} into the trash", of.name()))
        .kind(ErrorKind::Broken)?;
    Ok(note)
}

/// Makes the trash, or one place in it.
pub fn make(dir: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.with_context(|| format!("make {}", dir.display()))
}

/// Moves a name to where nothing is, whatever mode a box gave it.
pub fn shift(from: &Path, to: &Path) -> anyhow::Result<()> {
    let meta = fs::symlink_metadata(from).with_context(|| format!("find {}", from.display()))?;
    // A directory that gets another parent must itself be writable: rename(2), EACCES.
    let locked = meta.is_dir() && meta.mode() & 0o200 == 0;
    let give = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    if locked {
        give(from, meta.mode() & 0o7777 | 0o200)?;
    }
    rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
        .with_context(|| format!("move {} to {}", from.display(), to.display()))?;
    if locked {
        give(to, meta.mode() & 0o7777)?;
    }
    for dir in [from.parent(), to.parent()].into_iter().flatten() {
        File::open(dir).and_then(|dir| dir.sync_all()).context("write a directory to disk")?;
    }
    Ok(())
}

/// What has been in the trash for longer than `age`.
pub fn older_than(state: &Scoped, age: Duration) -> Result<Vec<Entry>, EngineError> {
    let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let now = state.clock().millis();
    let mut all = all(state)?;
    all.retain(|entry| now.saturating_sub(entry.note.when) > age);
    Ok(all)
}

/// Deletes these for good, once that is on record.
pub fn empty(state: &Scoped, entries: &[Entry]) -> Result<(), EngineError> {
    if entries.is_empty() {
        return Ok(());
    }
    let event = TrashEmptied { trash: entries.iter().map(|entry| entry.note.place()).collect() };
    record::fact(state, event)?;
    for entry in entries {
        belljar_workspace::remove_tree(&entry.dir)
            .context("empty the trash")
            .kind(ErrorKind::Broken)?;
    }
    Ok(())
}

/// Now and then: what waited long enough goes. To fail here is no failure of what was asked.
pub fn tidy(state: &Scoped) {
    if let Err(failure) = older_than(state, KEPT).and_then(|old| empty(state, &old)) {
        state.failed(failure.inner());
    }
}
