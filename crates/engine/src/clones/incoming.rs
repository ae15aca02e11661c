//! Where objects from a box wait until they are found to be sound: a store beside the user's.
//!
//! ```text
//! $BELLJAR_HOME/incoming/<id>/lock       held for as long as somebody looks at it
//!                             answer     what the sealed box said
//!                             objects/   checked, and reachable with the user's objects behind them
//! ```

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::clone::quoted;
use super::git::{Git, GitProgram};
use crate::error::EngineError;
use crate::scope::Scoped;
use crate::store::lock;

/// One such store. Gone with its last reader.
#[derive(Debug)]
pub(super) struct Incoming {
    dir: PathBuf,
    program: GitProgram,
    _lock: File,
}

impl Incoming {
    pub(super) fn new(state: &Scoped) -> anyhow::Result<Self> {
        let all = state.store().layout().incoming();
        lock::sweep(&all, |dir| drop(fs::remove_dir_all(dir))); // tried again next time
        let (id, _) = state.new_id().map_err(EngineError::into_inner)?;
        let (dir, lock) = lock::make(&all, &id.to_string())?;
        for name in ["objects", "objects/pack", "objects/info"] {
            fs::create_dir(dir.join(name)).context("make a place for what comes")?;
        }
        let program = GitProgram::find(state.host())?;
        Ok(Self { dir, program, _lock: lock })
    }

    /// A file for what the sealed box says.
    pub(super) fn answer(&self) -> anyhow::Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        options.open(self.dir.join("answer")).context("make a file for what comes")
    }

    /// Git on the user's repository alone.
    pub(super) fn plain(&self, git_dir: &Path) -> Git {
        Git::at(&self.program, git_dir)
    }

    pub(super) const fn program(&self) -> &GitProgram {
        &self.program
    }

    /// The user's git with these objects in front; what it writes stays here.
    pub(super) fn git(&self, git_dir: &Path) -> Git {
        let git = self.plain(git_dir).bounded();
        let git = git.var("GIT_OBJECT_DIRECTORY", self.dir.join("objects"));
        git.var("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&git_dir.join("objects")))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.dir).ok(); // a rest is swept by the next
    }
}
