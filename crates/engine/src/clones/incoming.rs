//! A temporary git object directory for objects from a box, until the host has checked them.
//!
//! ```text
//! $BELLJAR_HOME/incoming/<id>/lock       held while a process uses the directory
//!                             answer     the output of the sealed box
//!                             objects/   checked objects; the user's objects are an alternate of them
//! ```

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::clone::quoted;
use super::git::{Git, GitProgram};
use crate::error::EngineError;
use crate::scope::Scoped;
use crate::store::lock;

/// A temporary git object directory for objects from a box. Dropping the value removes the directory.
#[derive(Debug)]
pub(super) struct Incoming {
    dir: PathBuf,
    program: GitProgram,
    _lock: File,
}

impl Incoming {
    /// Creates an empty temporary object directory and removes those of killed processes.
    pub(super) fn new(state: &Scoped) -> anyhow::Result<Self> {
        let all = state.store().layout().incoming();
        // A failed removal is retried next time.
        lock::remove_abandoned_dirs(&all, |dir| drop(fs::remove_dir_all(dir)));
        let (id, _) = state.new_id().map_err(EngineError::into_inner)?;
        let (dir, lock) = lock::create_locked_dir(&all, &id.to_string())?;
        for name in ["objects", "objects/pack", "objects/info"] {
            fs::create_dir(dir.join(name))
                .context("cannot create a directory for the objects of the box")?;
        }
        let program = GitProgram::find(state.host())?;
        Ok(Self { dir, program, _lock: lock })
    }

    /// Creates the file that receives the output of the sealed box.
    pub(super) fn create_output_file(&self) -> anyhow::Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        options
            .open(self.dir.join("answer"))
            .context("cannot create a file for the output of the sealed box")
    }

    /// Returns a git command for the user's repository, without the objects of the box.
    pub(super) fn user_git(&self, git_dir: &Path) -> Git {
        Git::at(&self.program, git_dir)
    }

    pub(super) const fn program(&self) -> &GitProgram {
        &self.program
    }

    /// Returns a git command for the user's repository that also sees the objects of the box.
    ///
    /// git writes new objects to the temporary directory, not to the user's repository.
    pub(super) fn combined_git(&self, git_dir: &Path) -> Git {
        let git = self.user_git(git_dir).limited();
        let git = git.var("GIT_OBJECT_DIRECTORY", self.dir.join("objects"));
        git.var("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&git_dir.join("objects")))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.dir).ok(); // the next `Incoming::new` removes leftovers
    }
}
