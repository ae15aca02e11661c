//! A temporary git object directory for objects from a box, until the host has checked them.
//!
//! ```text
//! $BELLJAR_HOME/incoming/<id>/lock       held while a process uses the directory
//!                             answer     the output of the sealed box
//!                             objects/   checked objects; the user's objects are an alternate of them
//!                             view/      the git directory that shows the user's repository
//! ```

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::clone::quoted;
use super::git::{Git, GitProgram};
use super::layout::RepoLayout;
use super::view::RepoView;
use crate::error::EngineError;
use crate::scope::Scoped;
use crate::store::lock;

/// A temporary git object directory for objects from a box. Dropping the value removes the directory.
#[derive(Debug)]
pub(super) struct Incoming {
    dir: PathBuf,
    program: GitProgram,
    /// The user's repository.
    layout: RepoLayout,
    view: RepoView,
    _lock: File,
}

/// A git command that writes to the user's repository as its owner.
#[derive(Debug)]
pub(super) struct OwnerGit {
    pub(super) git: Git,
    /// The view that only the owner can access, if this process has another user id.
    _view: Option<RepoView>,
}

impl Incoming {
    /// Creates an empty temporary object directory for the user's repository with the git directory `common`.
    ///
    /// Removes the temporary directories of killed processes.
    pub(super) fn new(state: &Scoped, common: &Path) -> anyhow::Result<Self> {
        let all = state.store().layout().incoming();
        // A failed removal is retried next time.
        lock::remove_abandoned_dirs(&all, |dir| drop(fs::remove_dir_all(dir)));
        let program = GitProgram::find(state.host())?;
        let layout = RepoLayout::again(common)?;
        let (id, _) = state.new_id().map_err(EngineError::into_inner)?;
        let (dir, lock) = lock::create_locked_dir(&all, &id.to_string())?;
        for name in ["objects", "objects/pack", "objects/info"] {
            fs::create_dir(dir.join(name))
                .context("cannot create a directory for the objects of the box")?;
        }
        let view = RepoView::create(dir.join("view"), &program, &layout, None)?;
        Ok(Self { dir, program, layout, view, _lock: lock })
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
    pub(super) fn user_git(&self) -> Git {
        self.view.git(&self.program)
    }

    /// Returns a git command that writes to the user's repository as the owner of that repository.
    ///
    /// The owner cannot access the state directory of root, so such a git has a view in `TMPDIR`.
    pub(super) fn owner_git(&self) -> anyhow::Result<OwnerGit> {
        let Some(owner) = super::git::foreign_owner(self.layout.common())? else {
            return Ok(OwnerGit { git: self.user_git(), _view: None });
        };
        let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
        let dir = self.program.temporary_dir().join(format!("belljar-view-{name}"));
        let view = RepoView::create(dir, &self.program, &self.layout, Some(owner))?;
        Ok(OwnerGit { git: view.git(&self.program).run_as(owner), _view: Some(view) })
    }

    /// Returns the git directory of the user's repository.
    pub(super) fn common(&self) -> &Path {
        self.layout.common()
    }

    pub(super) const fn program(&self) -> &GitProgram {
        &self.program
    }

    /// Returns a git command for the user's repository that also sees the objects of the box.
    ///
    /// git writes new objects to the temporary directory, not to the user's repository.
    pub(super) fn combined_git(&self) -> Git {
        let git = self.user_git().limited();
        let git = git.var("GIT_OBJECT_DIRECTORY", self.dir.join("objects"));
        git.var("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&self.common().join("objects")))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.dir).ok(); // the next `Incoming::new` removes leftovers
    }
}
