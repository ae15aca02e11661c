//! The state directory of Belljar. Submodules contain the directory layout, locks and their order,
//! durable writes and the ledger handle. This module contains the runs: one directory per run.
//!
//! ```text
//! $BELLJAR_HOME/runs/<id>/run.json       the record
//!                         lock           held by the supervisor while it lives
//!                         upper/ work/   the overlay
//!                         layers.img     or an image with the overlay, until the box has ended
//!                         output log result.json socket held    files of a task, see `runs::host`
//!                         request.json stdout stderr host.log   files of a run that a server requested
//!                         base/ changes.json apply.log trash/   files of belljar-workspace
//! ```

pub mod durable;
pub mod layout;
pub mod ledger;
pub mod lock;
pub(crate) mod server_address;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use belljar_model::{Review, RunId, RunRecord, RunState};
use belljar_workspace::LAYER_IMAGE;

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::layer_image;
use crate::store::layout::Layout;
use crate::store::ledger::SharedLedger;
use crate::store::lock::{PROBE_TIMEOUT, Rank, is_held, try_acquire};

/// The open state directory of one tenant.
#[derive(Clone, Debug)]
pub struct Store {
    /// The paths, with all symbolic links resolved, so that the directory is recognised in a workspace.
    layout: Layout,
    ledger: Arc<SharedLedger>,
}

/// A run with its directory and its record.
#[derive(Debug)]
pub struct Run {
    pub dir: PathBuf,
    pub record: RunRecord,
}

/// A run whose record cannot be read, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRun {
    pub dir: PathBuf,
    pub why: String,
}

impl DamagedRun {
    /// Returns the id of the run, which is the name of its directory.
    pub fn id(&self) -> Option<RunId> {
        self.dir.file_name()?.to_str()?.parse().ok()
    }
}

/// The file in the directory of a run that keeps the run until the driver has taken its result.
pub(crate) const HELD: &str = "held";

/// The maximum number of records of finished runs that are kept.
const MAX_FINISHED_RUNS: usize = 500;

impl Store {
    /// Opens the state directory, and creates it if it is missing.
    pub fn open(home: &Path) -> Result<Self, EngineError> {
        let opened = || -> io::Result<PathBuf> {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(Layout::new(home.to_owned()).runs())?;
            let (_, real) = belljar_box::open(home).map_err(io::Error::other)?;
            Ok(real)
        };
        let opened = opened().map_err(|error| durable::with_disk_full_hint(error, home));
        let opened =
            opened.with_context(|| format!("cannot open the state directory {}", home.display()));
        let layout = Layout::new(opened.kind(ErrorKind::Broken)?);
        layout.check()?;
        tracing::debug!(home = %layout.home().display(), "state directory is open");
        let ledger = ledger::shared(layout.home());
        Ok(Self { layout, ledger })
    }

    /// Returns the paths in the state directory.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the path of the state directory.
    pub fn home(&self) -> &Path {
        self.layout.home()
    }

    /// Returns the ledger, which is opened at its first use.
    pub(crate) const fn ledger(&self) -> &Arc<SharedLedger> {
        &self.ledger
    }

    /// Creates the directory and the record of a new run, and locks the run.
    pub fn create(&self, record: RunRecord) -> anyhow::Result<(Run, File)> {
        let dir = self.layout.run(record.id);
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(|error| durable::with_disk_full_hint(error, &dir))
            .with_context(|| format!("cannot create {}", dir.display()))?;
        let lock =
            File::create(dir.join("lock")).context("cannot create the lock file of the run")?;
        anyhow::ensure!(
            try_acquire(&lock, PROBE_TIMEOUT),
            "another process holds the lock of the new run"
        );
        let run = Run { dir, record };
        run.save_new()?;
        Ok((run, lock))
    }

    /// Returns the runs whose record cannot be read. A run that is just being created is not damaged: its
    /// record is written atomically, before its layers are created.
    pub fn damaged_runs(&self) -> anyhow::Result<Vec<DamagedRun>> {
        let entries = fs::read_dir(self.layout.runs()).context("cannot list the runs")?;
        let dirs = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let damaged = |dir: PathBuf| {
            let why = format!("{:#}", Run::load(&dir).err()?);
            (has_content(&dir) && !is_locked(&dir)).then_some(DamagedRun { dir, why })
        };
        Ok(dirs.filter_map(damaged).collect())
    }

    /// Returns all runs with a readable record, newest first. See also [`Store::damaged_runs`].
    pub fn runs(&self) -> anyhow::Result<Vec<Run>> {
        let entries = fs::read_dir(self.layout.runs()).context("cannot list the runs")?;
        let mut runs: Vec<Run> =
            entries.filter_map(|entry| Run::load(&entry.ok()?.path()).ok()).collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.record.id));
        Ok(runs)
    }

    /// Removes the oldest finished runs, and leftovers of killed processes.
    ///
    /// A run whose trash has files that an apply replaced is kept until `belljar gc` empties the trash.
    pub fn prune(&self, now: SystemTime) -> anyhow::Result<()> {
        self.remove_unrecorded(now)?;
        self.remove_ended_calls(now);
        for run in self.runs()?.into_iter().filter(Run::is_removable).skip(MAX_FINISHED_RUNS) {
            let review = lock::acquire(&run.dir.join("review"), Rank::Review, Duration::ZERO);
            let Ok(Some(_review)) = review else { continue }; // a command is reviewing the run
            if Run::load(&run.dir).is_ok_and(|run| run.is_removable()) {
                belljar_workspace::discard(&run.dir).ok(); // a failed removal is retried next time
                fs::remove_dir_all(&run.dir).ok();
            }
        }
        Ok(())
    }
}

impl Store {
    /// Marks a run without a directory, such as a call of a program, as running.
    pub fn mark_call(&self, id: RunId) -> anyhow::Result<CallMark> {
        let (dir, path) = (self.layout.calls(), self.layout.call(id));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .context("cannot create the directory of calls")?;
        let file = File::create_new(&path).context("cannot create the mark of a call")?;
        anyhow::ensure!(
            try_acquire(&file, PROBE_TIMEOUT),
            "another process holds the mark of the new call"
        );
        Ok(CallMark { path, _file: file })
    }

    /// Checks whether a call with this id is running.
    pub fn is_call_running(&self, id: RunId) -> bool {
        is_held(&self.layout.call(id))
    }

    /// Removes the marks of calls whose processes were killed.
    fn remove_ended_calls(&self, now: SystemTime) {
        let Ok(entries) = fs::read_dir(self.layout.calls()) else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if is_old(&path, now) && !is_held(&path) {
                fs::remove_file(&path).ok(); // a failed removal is retried next time
            }
        }
    }

    /// Removes the directories of runs that ended before their record was written.
    fn remove_unrecorded(&self, now: SystemTime) -> anyhow::Result<()> {
        let entries = fs::read_dir(self.layout.runs()).context("cannot list the runs")?;
        for dir in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if !has_content(&dir) && is_old(&dir, now) && !is_locked(&dir) {
                fs::remove_dir_all(&dir).ok(); // a failed removal is retried next time
            }
        }
        Ok(())
    }
}

/// Checks whether a directory contains a record or changes of a box.
///
/// Layers are created after the record. So a directory without both belongs to a run that was killed
/// before it started.
fn has_content(dir: &Path) -> bool {
    dir.join("run.json").symlink_metadata().is_ok() || !is_empty(&dir.join("upper"))
}

/// Checks whether a file or directory is older than the time that the start of a run takes.
fn is_old(dir: &Path, now: SystemTime) -> bool {
    const START_TIME: Duration = Duration::from_secs(10);
    let modified = dir.symlink_metadata().and_then(|meta| meta.modified());
    modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|age| age > START_TIME))
}

impl Run {
    /// Reads a run from its directory. A run whose supervisor was killed becomes `Interrupted`.
    pub fn load(dir: &Path) -> anyhow::Result<Self> {
        let text = fs::read(dir.join("run.json"))?;
        let mut record: RunRecord = serde_json::from_slice(&text)?;
        if record.state == RunState::Running && !is_locked(dir) {
            record.state = RunState::Interrupted;
            if let Err(error) = layer_image::recover(dir) {
                tracing::warn!("cannot read the changes of a run that was killed: {error:#}");
            }
            let has_changes = !is_empty(&dir.join("upper")) || layer_image::exists(dir);
            if record.review == Review::None && has_changes {
                record.review = Review::Pending;
            }
        }
        Ok(Self { dir: dir.to_owned(), record })
    }

    /// Writes the first record of the run, without waiting for the disk.
    pub(crate) fn save_new(&self) -> anyhow::Result<()> {
        let text = serde_json::to_vec(&self.record)?;
        durable::write_unsynced(&self.dir, "run.json", &text).context("cannot write run.json")
    }

    /// Writes the record of the run atomically.
    pub fn save(&self) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(&self.record)?;
        // A run without changes needs no sync: if its record is lost, the ledger still has the run.
        let holds_changes = self.record.review.is_pending() || !is_empty(&self.dir.join("upper"));
        let written = match holds_changes {
            true => durable::write(&self.dir, "run.json", &text),
            false => durable::write_unsynced(&self.dir, "run.json", &text),
        };
        written.with_context(|| format!("cannot write run.json in {}", self.dir.display()))
    }

    /// Creates the directories of an overlay. As root, `owner` is the owner of the workspace.
    pub fn make_layers(&self, owner: Option<(u32, u32)>) -> anyhow::Result<()> {
        for name in ["upper", "work"] {
            let path = self.dir.join(name);
            DirBuilder::new()
                .mode(0o755)
                .create(&path)
                .with_context(|| format!("cannot create {}", path.display()))?;
        }
        if let Some((uid, gid)) = owner {
            for path in [self.dir.clone(), self.dir.join("upper"), self.dir.join("work")] {
                std::os::unix::fs::chown(&path, Some(uid), Some(gid))
                    .with_context(|| format!("cannot change the owner of {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Creates the work directory of the overlay if it is missing, as in a copy of a box.
    pub fn make_work_dir(&self) -> anyhow::Result<()> {
        let (upper, work) = (self.dir.join("upper"), self.dir.join("work"));
        if work.is_dir() {
            return Ok(());
        }
        DirBuilder::new()
            .mode(0o755)
            .create(&work)
            .context("cannot create the directory `work`")?;
        let owner =
            fs::metadata(&upper).context("cannot read the owner of the directory `upper`")?;
        std::os::unix::fs::chown(&work, Some(owner.uid()), Some(owner.gid()))
            .context("cannot change the owner of the directory `work`")
    }

    /// Removes the directories of an empty overlay. A directory that is not empty stays.
    pub fn remove_layers(&self) {
        // The mark of overlayfs is in directories without permissions, see `LayerSync::Skipped`.
        const MARKED: [&str; 3] =
            ["work/work", "work/work/incompat", "work/work/incompat/volatile"];
        for name in MARKED {
            let dir = self.dir.join(name);
            fs::set_permissions(dir, Permissions::from_mode(0o700)).ok(); // need not exist
        }
        fs::remove_file(self.dir.join("work/work/incompat/volatile/dirty")).ok(); // need not exist
        for name in [LAYER_IMAGE, "layers.new"] {
            fs::remove_file(self.dir.join(name)).ok(); // need not exist
        }
        for name in ["upper"].into_iter().chain(MARKED.into_iter().rev()).chain(["work"]) {
            fs::remove_dir(self.dir.join(name)).ok(); // fails for a directory that is not empty
        }
    }

    /// Returns whether nothing of the user is lost if the directory of the run is removed.
    fn is_removable(&self) -> bool {
        let is_idle = self.record.state != RunState::Running && !self.record.review.is_pending();
        let is_held = self.dir.join(HELD).exists();
        is_idle && !is_held && is_empty(&self.dir.join("trash"))
    }

    /// Copies the mode of the workspace directory to the upper layer, where the box sees it.
    pub fn copy_mode(&self, workspace: &Path) -> anyhow::Result<()> {
        let mode = fs::metadata(workspace).context("cannot read the mode of the workspace")?.mode()
            & 0o777;
        fs::set_permissions(self.dir.join("upper"), Permissions::from_mode(mode))
            .context("cannot set the mode of the upper layer")
    }

    pub fn id(&self) -> RunId {
        self.record.id
    }
}

/// A file that marks a call as running while its process lives. Dropping the value removes the file.
#[derive(Debug)]
pub struct CallMark {
    path: PathBuf,
    _file: File,
}

impl Drop for CallMark {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok(); // `Store::prune` removes leftovers
    }
}

/// Checks whether a process holds the lock of a run.
fn is_locked(dir: &Path) -> bool {
    is_held(&dir.join("lock"))
}

/// Checks whether a directory is empty or missing.
pub fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prune_keeps_a_run_with_an_unreadable_record_and_damaged_runs_lists_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let runs = store.layout().runs();
        for name in ["torn", "unstarted"] {
            fs::create_dir(runs.join(name)).unwrap();
        }
        fs::write(runs.join("torn/run.json"), "{").unwrap();
        let later = belljar_testkit::wall_clock() + Duration::from_secs(60);
        store.prune(later).unwrap();
        let damaged = store.damaged_runs().unwrap();
        assert_eq!(damaged.len(), 1, "{damaged:?}");
        assert_eq!(damaged[0].dir, runs.join("torn"));
        assert!(runs.join("torn/run.json").exists());
        assert!(!runs.join("unstarted").exists(), "a run that never started is removed");
    }
}
