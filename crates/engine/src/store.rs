//! Everything Belljar keeps: the directory layout, locks and their order, durable writes and the
//! ledger handle each have a module here. This one has the runs: one directory per run.
//!
//! ```text
//! $BELLJAR_HOME/runs/<id>/run.json       the record
//!                         lock           held by the supervisor for as long as it lives
//!                         upper/ work/   the overlay
//!                         base/ changes.json apply.log trash/   what belljar-workspace keeps
//! ```

pub mod durable;
pub mod layout;
pub mod ledger;
pub mod lock;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use belljar_model::{Review, RunId, RunRecord, RunState};

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::store::layout::Layout;
use crate::store::ledger::SharedLedger;
use crate::store::lock::{GLANCE, is_held, take};

/// The state directory.
#[derive(Clone, Debug)]
pub struct Store {
    /// With every link resolved, so that it can be recognised inside a workspace.
    layout: Layout,
    ledger: Arc<SharedLedger>,
}

/// One run that was recorded.
#[derive(Debug)]
pub struct Run {
    pub dir: PathBuf,
    pub record: RunRecord,
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    pub dir: PathBuf,
    pub why: String,
}

/// Records of runs that need nobody any more are kept up to this many.
const KEPT_RECORDS: usize = 500;

impl Store {
    /// Opens the state directory, making it if it is missing.
    pub fn open(home: &Path) -> Result<Self, EngineError> {
        let opened = || -> io::Result<PathBuf> {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(Layout::new(home.to_owned()).runs())?;
            let (_, real) = belljar_box::open(home).map_err(io::Error::other)?;
            Ok(real)
        };
        let opened = opened().map_err(|error| durable::explained(error, home));
        let opened = opened.with_context(|| format!("open the state directory {}", home.display()));
        let layout = Layout::new(opened.kind(ErrorKind::Broken)?);
        layout.check()?;
        tracing::debug!(home = %layout.home().display(), "state directory is open");
        let ledger = ledger::shared(layout.home());
        Ok(Self { layout, ledger })
    }

    /// Where everything is kept.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The state directory.
    pub fn home(&self) -> &Path {
        self.layout.home()
    }

    /// The ledger, which is opened at its first use.
    pub(crate) const fn ledger(&self) -> &Arc<SharedLedger> {
        &self.ledger
    }

    /// Makes the directory of a new run and takes its lock.
    pub fn create(&self, record: RunRecord) -> anyhow::Result<(Run, File)> {
        let dir = self.layout.run(record.id);
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(|error| durable::explained(error, &dir))
            .with_context(|| format!("create {}", dir.display()))?;
        let lock = File::create(dir.join("lock")).context("create the lock of the run")?;
        anyhow::ensure!(take(&lock, GLANCE), "somebody else has the lock of the run");
        let run = Run { dir, record };
        let text = serde_json::to_vec(&run.record)?;
        durable::write_soon(&run.dir, "run.json", &text).context("write run.json")?;
        Ok((run, lock))
    }

    /// Directories of runs whose record cannot be read, with the reason. A run that just begins is none.
    pub fn damaged_runs(&self, now: SystemTime) -> anyhow::Result<Vec<Damaged>> {
        let entries = fs::read_dir(self.layout.runs()).context("list the runs")?;
        let dirs = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let damaged = |dir: PathBuf| {
            let why = format!("{:#}", Run::load(&dir).err()?);
            let damaged = was_run(&dir) && is_old(&dir, now) && !is_locked(&dir);
            damaged.then_some(Damaged { dir, why })
        };
        Ok(dirs.filter_map(damaged).collect())
    }

    /// All runs that can be read, newest first. The others are in [`Store::damaged_runs`].
    pub fn runs(&self) -> anyhow::Result<Vec<Run>> {
        let entries = fs::read_dir(self.layout.runs()).context("list the runs")?;
        let mut runs: Vec<Run> =
            entries.filter_map(|entry| Run::load(&entry.ok()?.path()).ok()).collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.record.id));
        Ok(runs)
    }

    /// Forgets the oldest runs that nobody waits for, and what was killed before it was one.
    pub fn prune(&self, now: SystemTime) -> anyhow::Result<()> {
        self.remove_stillborn(now)?;
        self.remove_ended_calls(now);
        let idle =
            |run: &Run| run.record.state != RunState::Running && !run.record.review.is_pending();
        for run in self.runs()?.into_iter().filter(idle).skip(KEPT_RECORDS) {
            belljar_workspace::discard(&run.dir).ok(); // a rest is tried again next time
            fs::remove_dir_all(&run.dir).ok();
        }
        Ok(())
    }
}

impl Store {
    /// Marks a run that has no directory of its own as one that is under way.
    pub fn mark_call(&self, id: RunId) -> anyhow::Result<CallMark> {
        let (dir, path) = (self.layout.calls(), self.layout.call(id));
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).context("mark a call")?;
        let file = File::create_new(&path).context("mark a call")?;
        anyhow::ensure!(take(&file, GLANCE), "somebody else has the mark of the call");
        Ok(CallMark { path, _file: file })
    }

    /// Whether a call of this id is under way.
    pub fn is_call(&self, id: RunId) -> bool {
        is_held(&self.layout.call(id))
    }

    /// Removes the marks of calls whose process was killed.
    fn remove_ended_calls(&self, now: SystemTime) {
        let Ok(entries) = fs::read_dir(self.layout.calls()) else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if is_old(&path, now) && !is_held(&path) {
                fs::remove_file(&path).ok(); // tried again next time
            }
        }
    }

    /// Removes directories of runs that ended before their record was written. They hold nothing.
    fn remove_stillborn(&self, now: SystemTime) -> anyhow::Result<()> {
        let entries = fs::read_dir(self.layout.runs()).context("list the runs")?;
        for dir in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if !was_run(&dir) && is_old(&dir, now) && !is_locked(&dir) {
                fs::remove_dir_all(&dir).ok(); // a rest is tried again next time
            }
        }
        Ok(())
    }
}

/// Whether a directory holds a record, readable or not, or something of a box. Layers are made after the
/// record, so a directory without both belongs to a run that was killed before it began.
fn was_run(dir: &Path) -> bool {
    dir.join("run.json").symlink_metadata().is_ok() || !is_empty(&dir.join("upper"))
}

/// Whether a directory has been there for longer than it takes to begin a run.
fn is_old(dir: &Path, now: SystemTime) -> bool {
    const BEGUN: std::time::Duration = std::time::Duration::from_secs(10);
    let made = dir.symlink_metadata().and_then(|meta| meta.modified());
    made.is_ok_and(|made| now.duration_since(made).is_ok_and(|age| age > BEGUN))
}

impl Run {
    pub fn load(dir: &Path) -> anyhow::Result<Self> {
        let text = fs::read(dir.join("run.json"))?;
        let mut record: RunRecord = serde_json::from_slice(&text)?;
        if record.state == RunState::Running && !is_locked(dir) {
            record.state = RunState::Interrupted;
            if record.review == Review::None && !is_empty(&dir.join("upper")) {
                record.review = Review::Pending;
            }
        }
        Ok(Self { dir: dir.to_owned(), record })
    }

    /// Writes the record, whole or not at all.
    pub fn save(&self) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(&self.record)?;
        // Losing the record of a run that changed nothing costs its line in a list; the ledger has it.
        let holds_changes = self.record.review.is_pending() || !is_empty(&self.dir.join("upper"));
        let written = match holds_changes {
            true => durable::write(&self.dir, "run.json", &text),
            false => durable::write_soon(&self.dir, "run.json", &text),
        };
        written.with_context(|| format!("write run.json in {}", self.dir.display()))
    }

    /// Makes the directories of an overlay, owned as the workspace is when we are root.
    pub fn make_layers(&self, owner: Option<(u32, u32)>) -> anyhow::Result<()> {
        for name in ["upper", "work"] {
            let path = self.dir.join(name);
            DirBuilder::new()
                .mode(0o755)
                .create(&path)
                .with_context(|| format!("create {}", path.display()))?;
        }
        if let Some((uid, gid)) = owner {
            for path in [self.dir.clone(), self.dir.join("upper"), self.dir.join("work")] {
                std::os::unix::fs::chown(&path, Some(uid), Some(gid))
                    .with_context(|| format!("give {} to the workspace's owner", path.display()))?;
            }
        }
        Ok(())
    }

    /// Makes the directory that overlayfs works in, if a copy of the rest came without it.
    pub fn make_work(&self) -> anyhow::Result<()> {
        let (upper, work) = (self.dir.join("upper"), self.dir.join("work"));
        if work.is_dir() {
            return Ok(());
        }
        DirBuilder::new().mode(0o755).create(&work).context("make `work`")?;
        let owner = fs::metadata(&upper).context("look at `upper`")?;
        std::os::unix::fs::chown(&work, Some(owner.uid()), Some(owner.gid()))
            .context("give `work` to the workspace's owner")
    }

    /// Removes an overlay that holds nothing. What is not empty stays and is pruned later.
    pub fn remove_layers(&self) {
        for name in ["upper", "work/work", "work"] {
            fs::remove_dir(self.dir.join(name)).ok(); // see above
        }
    }

    /// Copies mode of the workspace to the upper layer, which is what the box sees of it.
    pub fn copy_mode(&self, workspace: &Path) -> anyhow::Result<()> {
        let mode = fs::metadata(workspace).context("look at the workspace")?.mode() & 0o777;
        fs::set_permissions(self.dir.join("upper"), Permissions::from_mode(mode))
            .context("set the mode of the upper layer")
    }

    pub fn id(&self) -> RunId {
        self.record.id
    }
}

/// Says that a call is under way, for as long as its process lives.
#[derive(Debug)]
pub struct CallMark {
    path: PathBuf,
    _file: File,
}

impl Drop for CallMark {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok(); // what is left is removed by `Store::prune`
    }
}

fn is_locked(dir: &Path) -> bool {
    is_held(&dir.join("lock"))
}

/// Whether a directory has no entry; one that is not there has none.
pub fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_record_that_cannot_be_read_is_listed_as_damaged_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let runs = store.layout().runs();
        for name in ["torn", "unborn"] {
            fs::create_dir(runs.join(name)).unwrap();
        }
        fs::write(runs.join("torn/run.json"), "{").unwrap();
        let later = belljar_testkit::wall_clock() + Duration::from_secs(60);
        store.prune(later).unwrap();
        let damaged = store.damaged_runs(later).unwrap();
        assert_eq!(damaged.len(), 1, "{damaged:?}");
        assert_eq!(damaged[0].dir, runs.join("torn"));
        assert!(runs.join("torn/run.json").exists());
        assert!(!runs.join("unborn").exists(), "a run that never began is removed");
    }
}
