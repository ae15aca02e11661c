//! The workspace of one session: what its calls share and nobody else sees.
//!
//! ```text
//! $BELLJAR_HOME/sessions/<id>/lock    held for as long as the session lives
//!                            upper/   what its programs wrote, shown to them at /workspace
//! ```
//! With a directory of the user's the changes are held back for review instead, as for any run.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use belljar_model::{Limits, Mode};
use serde_json::Value;

use super::overlay;
use super::pool::WarmPool;
use crate::box_store::set_owner;
use crate::error::EngineError;
use crate::scope::Scoped;
use crate::store::Run;
use crate::store::lock;
use crate::supervisor::spec::ProgramWorkspace as Place;

/// How long a session that is over waits for its boxes.
const FAREWELL: Duration = Duration::from_secs(5);
/// So many results are kept for `run://`.
const KEPT: usize = 64;

/// One session.
#[derive(Debug)]
pub struct ProgramSession {
    state: Scoped,
    pub(super) place: Place,
    pub(super) shelf: WarmPool,
    /// Held while a box has it, where two cannot have it at once.
    turn: Option<tokio::sync::Mutex<()>>,
    kept: Mutex<VecDeque<(String, Value)>>,
    project: Mutex<Option<Project>>,
    /// Of a scratch workspace.
    lock: Option<File>,
}

/// A run whose changes wait for review when the session is over.
#[derive(Debug)]
struct Project {
    run: Run,
    _lock: File,
}

/// What a user's directory is used for.
#[derive(Clone, Debug)]
pub struct WorkspaceSpec {
    pub path: PathBuf,
    pub mode: Mode,
}

impl ProgramSession {
    /// A place that starts empty and is gone with the session.
    pub fn scratch(state: &Scoped) -> anyhow::Result<Self> {
        let (id, _) = state.new_id().map_err(EngineError::into_inner)?;
        let (dir, lock) = lock::create_locked_dir(&sessions(state), &id.to_string())?;
        let upper = dir.join("upper");
        DirBuilder::new().mode(0o755).create(&upper).context("make the workspace of a session")?;
        set_owner(&[&dir, &upper], None)?;
        Ok(Self::new(state, Place::Scratch { dir }, None, None, Some(lock)))
    }

    /// The user's directory, with changes held back unless it is only read.
    pub fn project(state: &Scoped, ground: &WorkspaceSpec) -> anyhow::Result<Self> {
        let (run, lock) = overlay::begin(state, &ground.path, ground.mode)?;
        let WorkspaceSpec { path, mode } = ground.clone();
        let place = Place::Project { path, mode, dir: run.dir.clone() };
        let turn = (mode != Mode::ReadOnly).then(|| tokio::sync::Mutex::new(()));
        Ok(Self::new(state, place, turn, Some(Project { run, _lock: lock }), None))
    }

    fn new(
        state: &Scoped,
        place: Place,
        turn: Option<tokio::sync::Mutex<()>>,
        project: Option<Project>,
        lock: Option<File>,
    ) -> Self {
        let (shelf, kept, project) = (WarmPool::default(), Mutex::default(), Mutex::new(project));
        Self { state: state.clone(), place, shelf, turn, kept, project, lock }
    }

    /// The scope of the caller whose programs run here.
    pub(super) const fn state(&self) -> &Scoped {
        &self.state
    }

    /// Whether only one box at a time can have its workspace.
    pub(super) fn is_exclusive(&self) -> bool {
        self.turn.is_some()
    }

    /// The right to have a box that has the workspace; at once where many can.
    pub(super) async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match &self.turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        }
    }

    /// Keeps what a call gave.
    pub fn keep(&self, run: String, value: Value) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((run, value));
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }

    /// What a call of this session gave.
    pub fn kept(&self, run: &str) -> Option<Value> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(id, _)| id == run).map(|(_, value)| value.clone())
    }

    /// The ids of what is kept, newest first.
    pub fn kept_ids(&self) -> Vec<String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().map(|(id, _)| id.clone()).collect()
    }
}

/// Puts a session away. Boxes of it that are just being made end first.
pub fn put_away(room: Arc<ProgramSession>) {
    room.shelf.clear();
    let until = Instant::now() + FAREWELL;
    while Arc::strong_count(&room) > 1 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(room);
}

impl Drop for ProgramSession {
    fn drop(&mut self) {
        self.shelf.clear();
        let project = self.project.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Project { mut run, _lock }) = project {
            overlay::end(&self.state, &mut run, Limits::default().disk.as_u64());
        }
        if self.lock.is_some() {
            remove(self.place.dir());
        }
    }
}

/// Removes the sessions of servers that are gone.
pub(super) fn sweep(state: &Scoped) {
    lock::remove_abandoned_dirs(&sessions(state), remove);
}

fn sessions(state: &Scoped) -> PathBuf {
    state.store().layout().sessions()
}

/// A rest is swept by a later server.
fn remove(dir: &Path) {
    belljar_workspace::discard(dir).ok();
    fs::remove_dir_all(dir).ok();
}
