//! The workspace of one session, which the programs of this session share.
//!
//! ```text
//! $BELLJAR_HOME/sessions/<id>/lock    held until the session ends
//!                            upper/   the files of the programs, mounted at /workspace
//! ```
//! If the session works on the user's directory, the changes are held back for review, as in any run.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use belljar_model::{Limits, Mode};

use super::overlay;
use super::pool::WarmPool;
use crate::box_store::set_owner;
use crate::error::EngineError;
use crate::scope::Scoped;
use crate::store::Run;
use crate::store::lock;
use crate::supervisor::spec::ProgramWorkspace;

/// The maximum time that a session waits for its boxes when it is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of results that a session keeps for the resources `run://ID`.
const MAX_RESULTS: usize = 64;
/// The maximum size of all results that a session keeps, in bytes.
const MAX_RESULT_BYTES: usize = 4 << 20;

/// The session of one caller: its workspace, its ready boxes, and the results of its programs.
#[derive(Debug)]
pub struct ProgramSession {
    state: Scoped,
    pub(super) workspace: ProgramWorkspace,
    pub(super) pool: WarmPool,
    /// A lock that is held while a box uses the workspace. `None` if several boxes can use it at once.
    workspace_lock: Option<tokio::sync::Mutex<()>>,
    /// The latest results.
    results: Mutex<KeptResults>,
    /// The run of a session on the user's directory.
    project: Mutex<Option<ProjectRun>>,
    /// The lock of a scratch directory.
    lock: Option<File>,
}

/// The run of a session on the user's directory. Its changes wait for review when the session ends.
#[derive(Debug)]
struct ProjectRun {
    run: Run,
    _lock: File,
}

/// A directory of the user that programs work on, and how they may change it.
#[derive(Clone, Debug)]
pub struct WorkspaceSpec {
    pub path: PathBuf,
    pub mode: Mode,
}

impl ProgramSession {
    /// Creates a session on an empty scratch directory, which is removed when the session ends.
    pub fn scratch(state: &Scoped) -> anyhow::Result<Self> {
        let (id, _) = state.new_id().map_err(EngineError::into_inner)?;
        let (dir, lock) = lock::create_locked_dir(&sessions(state), &id.to_string())?;
        let upper = dir.join("upper");
        DirBuilder::new()
            .mode(0o755)
            .create(&upper)
            .context("cannot create the workspace of a session")?;
        set_owner(&[&dir, &upper], None)?;
        Ok(Self::new(state, ProgramWorkspace::Scratch { dir }, None, None, Some(lock)))
    }

    /// Creates a session on the user's directory. Changes are held back for review.
    pub fn project(state: &Scoped, spec: &WorkspaceSpec) -> anyhow::Result<Self> {
        let (run, lock) = overlay::create(state, &spec.path, spec.mode)?;
        let WorkspaceSpec { path, mode } = spec.clone();
        let workspace = ProgramWorkspace::Project { path, mode, dir: run.dir.clone() };
        let workspace_lock = (mode != Mode::ReadOnly).then(|| tokio::sync::Mutex::new(()));
        let project = Some(ProjectRun { run, _lock: lock });
        Ok(Self::new(state, workspace, workspace_lock, project, None))
    }

    fn new(
        state: &Scoped,
        workspace: ProgramWorkspace,
        workspace_lock: Option<tokio::sync::Mutex<()>>,
        project: Option<ProjectRun>,
        lock: Option<File>,
    ) -> Self {
        Self {
            state: state.clone(),
            workspace,
            pool: WarmPool::default(),
            workspace_lock,
            results: Mutex::default(),
            project: Mutex::new(project),
            lock,
        }
    }

    /// Returns the scope of the caller that this session belongs to.
    pub(super) const fn state(&self) -> &Scoped {
        &self.state
    }

    /// Returns whether only one box at a time can use the workspace.
    pub(super) fn is_exclusive(&self) -> bool {
        self.workspace_lock.is_some()
    }

    /// Locks an exclusive workspace for one box. Returns `None` at once if several boxes can use the
    /// workspace.
    pub(super) async fn lock_workspace(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match &self.workspace_lock {
            Some(lock) => Some(lock.lock().await),
            None => None,
        }
    }

    /// Stores the result of a run for the resource `run://ID`, as JSON text.
    ///
    /// The oldest results are dropped at the limits. A result above the limit is replaced by a note.
    pub fn store_result(&self, run: String, json: String) {
        self.results.lock().unwrap_or_else(PoisonError::into_inner).store(run, json);
    }

    /// Returns the stored result of a run of this session, as JSON text.
    pub fn result(&self, run: &str) -> Option<String> {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.all.iter().find(|(id, _)| id == run).map(|(_, json)| json.to_string())
    }

    /// Returns the ids of the runs with stored results, newest first.
    pub fn result_ids(&self) -> Vec<String> {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.all.iter().rev().map(|(id, _)| id.clone()).collect()
    }
}

/// The latest results of a session as JSON text, by the ids of their runs. Their size is limited.
#[derive(Debug, Default)]
struct KeptResults {
    all: VecDeque<(String, Box<str>)>,
    bytes: usize,
}

impl KeptResults {
    fn store(&mut self, run: String, json: String) {
        let json = match json.len() {
            length if length > MAX_RESULT_BYTES => {
                let note = format!(
                    "the report has {length} bytes and was not kept; the limit is {MAX_RESULT_BYTES}"
                );
                serde_json::json!({ "run": run, "notes": [note] }).to_string()
            }
            _ => json,
        };
        self.bytes += json.len();
        self.all.push_back((run, json.into_boxed_str()));
        while self.all.len() > MAX_RESULTS || self.bytes > MAX_RESULT_BYTES {
            let Some((_, oldest)) = self.all.pop_front() else { break };
            self.bytes -= oldest.len();
        }
    }
}

/// Closes a session and removes its data. Waits a limited time for boxes that are still being built.
pub fn close_session(session: Arc<ProgramSession>) {
    session.pool.close();
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    while Arc::strong_count(&session) > 1 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(session);
}

impl Drop for ProgramSession {
    fn drop(&mut self) {
        self.pool.close();
        let project = self.project.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ProjectRun { mut run, _lock }) = project {
            overlay::end(&self.state, &mut run, Limits::default().disk.as_u64());
        }
        if self.lock.is_some() {
            remove(self.workspace.dir());
        }
    }
}

/// Removes the session directories of servers that are not running any more.
pub(super) fn remove_stale(state: &Scoped) {
    lock::remove_abandoned_dirs(&sessions(state), remove);
}

fn sessions(state: &Scoped) -> PathBuf {
    state.store().layout().sessions()
}

/// Removes the directory of a session. If files remain after an error, a later server removes them.
fn remove(dir: &Path) {
    belljar_workspace::discard(dir).ok();
    fs::remove_dir_all(dir).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f14_session_keeps_a_bounded_number_of_bytes_of_results() {
        let mut kept = KeptResults::default();
        let megabyte = "x".repeat(1 << 20);
        for run in 0..30 {
            kept.store(run.to_string(), megabyte.clone());
            assert_eq!(kept.bytes, kept.all.iter().map(|(_, json)| json.len()).sum::<usize>());
            assert!(kept.bytes <= MAX_RESULT_BYTES);
        }
        let ids: Vec<&str> = kept.all.iter().map(|(run, _)| run.as_str()).collect();
        assert_eq!(ids, ["26", "27", "28", "29"]);
        kept.store("huge".to_owned(), "x".repeat(MAX_RESULT_BYTES + 1));
        let (run, note) = kept.all.back().unwrap();
        assert!(run == "huge" && note.len() < 200 && note.contains("was not kept"), "{note}");
        for run in 0..1000 {
            kept.store(run.to_string(), "{}".to_owned());
        }
        assert_eq!(kept.all.len(), MAX_RESULTS);
    }
}
