//! Finds and inspects the user's repository. No program of the repository is started, no file changed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, anyhow};
use belljar_model::Identity;

use super::git::{Git, GitProgram};
use super::layout::RepoLayout;
use super::view::{RepoSettings, RepoView};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;
use crate::scope::Scoped;
use crate::store::lock;

/// The user's repository.
#[derive(Debug)]
pub struct Source {
    pub(super) layout: RepoLayout,
    /// The git directory that Belljar reads the repository with.
    view: RepoView,
    pub(super) head: Head,
    /// Belljar's state directory, which is never copied into a box even if the checkout contains it.
    pub(super) hidden: PathBuf,
    /// Whether the settings of the user apply, who has other settings than the owners of other tenants.
    is_of_user: bool,
    pub(super) program: GitProgram,
    /// Sentences for the user about the repository.
    pub(super) remarks: Vec<String>,
    _dir: SourceDir,
}

/// A temporary directory with the view of a [`Source`]. Dropping the value removes the directory.
#[derive(Debug)]
struct SourceDir {
    dir: PathBuf,
    _lock: File,
}

impl Drop for SourceDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.dir).ok(); // the next `Incoming::new` removes leftovers
    }
}

/// The branch or commit that is checked out in the user's repository.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    Branch {
        name: String,
        commit: String,
    },
    Detached {
        commit: String,
    },
    /// A branch without a commit.
    Unborn {
        name: String,
    },
}

/// Finds the git repository that contains `dir`.
///
/// A repository in Belljar's state directory is refused, because a box can write to it.
pub fn find_source(state: &Scoped, dir: &Path) -> Result<Source, EngineError> {
    find_source_for(state, dir, SourceOption::Repo)
}

/// The option of the user that names a repository, for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SourceOption {
    /// The option `--repo` of a command.
    Repo,
    /// The key `repo` of a task.
    TaskRepo,
}

/// Finds the git repository that contains `dir`, as [`find_source`] does.
pub(crate) fn find_source_for(
    state: &Scoped,
    dir: &Path,
    option: SourceOption,
) -> Result<Source, EngineError> {
    let (name, hint) = match option {
        SourceOption::Repo => ("--repo", "run `git init`, or use `--workspace`"),
        SourceOption::TaskRepo => ("`repo`", "run `git init` and commit its files"),
    };
    let (_, dir) = belljar_box::open(dir).kind(ErrorKind::Invalid)?;
    if !dir.is_dir() {
        return Err(invalid(format!("{name}: {} is not a directory", dir.display())));
    }
    let refuse_state = |path: &Path| match path.starts_with(state.root()) {
        true => Err(anyhow!("{} is part of Belljar's own state directory", path.display())),
        false => Ok(()),
    };
    let program = GitProgram::find(state.host()).kind(ErrorKind::Broken)?;
    let worktree_of = |git_dir: &Path| {
        let worktree = RepoSettings::new(&program, git_dir).path("core.worktree")?;
        Some(path(worktree))
    };
    let find = || {
        refuse_state(&dir)?;
        let layout = RepoLayout::find(&dir, &refuse_state, &worktree_of)?;
        let layout = layout
            .with_context(|| format!("{} is not in a git repository; {hint}", dir.display()))?;
        refuse_state(layout.git_dir())?;
        refuse_state(layout.common())?;
        Ok(layout)
    };
    let layout = find().map_err(|error: anyhow::Error| invalid(format!("{name}: {error:#}")))?;
    inspect(state, program, layout, &dir).kind(ErrorKind::Broken)
}

/// Reads the properties of a repository that was found.
fn inspect(
    state: &Scoped,
    program: GitProgram,
    layout: RepoLayout,
    named: &Path,
) -> anyhow::Result<Source> {
    let layout = match RepoSettings::new(&program, layout.common()).is_true("core.bare") {
        true if layout.common() == layout.git_dir() => layout.without_checkout(),
        _ => layout,
    };
    let mut remarks = Vec::new();
    match layout.checkout() {
        Some(top) if top != named => remarks.push(format!(
            "{} is a directory of the repository {}: the box gets the complete repository",
            named.display(),
            top.display()
        )),
        _ => {}
    }
    let all = state.store().layout().incoming();
    let (id, _) = state.new_id().map_err(EngineError::into_inner)?;
    let (dir, lock) = lock::create_locked_dir(&all, &id.to_string())?;
    let dir = SourceDir { dir, _lock: lock };
    let view = RepoView::create(dir.dir.join("view"), &program, &layout, None)?;
    let head = head(&view.git(&program))?;
    let (hidden, is_of_user) = (state.root().to_owned(), state.user().is_some());
    Ok(Source { layout, view, head, hidden, is_of_user, program, remarks, _dir: dir })
}

/// Reads which branch or commit is checked out.
fn head(git: &Git) -> anyhow::Result<Head> {
    let commit = git.query(&["rev-parse", "--verify", "-q", "HEAD^{commit}"]);
    let name = git.query(&["symbolic-ref", "-q", "HEAD"]);
    let name = name.and_then(|name| Some(name.strip_prefix("refs/heads/")?.to_owned()));
    match (commit, name) {
        (Some(commit), Some(name)) => Ok(Head::Branch { name, commit }),
        (Some(commit), None) => Ok(Head::Detached { commit }),
        (None, Some(name)) => Ok(Head::Unborn { name }),
        (None, None) => anyhow::bail!(
            "cannot read which commit is checked out in the repository: HEAD is invalid"
        ),
    }
}

/// Converts a line of git's output to a path, without the final line break.
fn path(mut line: Vec<u8>) -> PathBuf {
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    PathBuf::from(OsString::from_vec(line))
}

/// Returns the user's name and email address from the global git configuration, if both are set.
pub fn identity(host: &HostEnv) -> Option<Identity> {
    let program = host.find_program("git")?;
    let global_setting = |key: &str| {
        let mut git = std::process::Command::new(&program);
        git.env_clear().envs(&host.variables);
        git.args(["config", "--global", "--includes", "--get", key]).current_dir("/");
        let output = git.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    Identity::new(&global_setting("user.name")?, &global_setting("user.email")?).ok()
}

impl Source {
    /// Returns the top directory of the checkout, or the git directory of a bare repository.
    pub fn path(&self) -> &Path {
        self.layout.checkout().unwrap_or_else(|| self.layout.common())
    }

    /// Returns the user's name and email address from the configuration of this repository, if both are set.
    pub fn identity(&self) -> Option<Identity> {
        let settings = self.settings_of_user()?;
        Identity::new(&settings.get("user.name")?, &settings.get("user.email")?).ok()
    }

    /// Returns whether the repository has a branch, a tag or a commit with this name.
    pub fn has_revision(&self, revision: &str) -> bool {
        let revision = format!("{revision}^{{commit}}");
        let args = ["rev-parse", "--verify", "-q", "--end-of-options", &revision];
        self.git().query(&args).is_some()
    }

    /// Returns a git command for reading the user's repository.
    pub(super) fn git(&self) -> Git {
        self.view.git(&self.program)
    }

    /// Returns the settings of the repository with those of the user; `None` for a tenant other than `local`.
    fn settings_of_user(&self) -> Option<RepoSettings> {
        self.is_of_user.then(|| self.settings().with_user_config())
    }

    /// Returns the settings of the user's repository.
    fn settings(&self) -> RepoSettings {
        RepoSettings::new(&self.program, self.layout.git_dir())
    }

    /// Returns the object format of the repository: `sha1` or `sha256`.
    pub(super) fn format(&self) -> &str {
        self.view.format()
    }

    /// Returns whether the repository lacks objects that its remote has.
    pub(super) fn is_partial(&self) -> bool {
        !self.settings().names(r"^remote\..*\.(promisor|partialclonefilter)$").is_empty()
    }

    /// Returns the git settings that control how files of the checkout become objects.
    ///
    /// None of these settings names a program.
    pub(super) fn file_settings(&self) -> Vec<(String, OsString)> {
        const KEYS: [&str; 6] =
            ["autocrlf", "eol", "fileMode", "symlinks", "ignoreCase", "safecrlf"];
        let settings = self.settings_of_user().unwrap_or_else(|| self.settings());
        let values = KEYS.iter().map(|key| format!("core.{key}"));
        let values = values.filter_map(|key| Some((key.clone(), settings.get(&key)?.into())));
        let excludes = settings.path("core.excludesFile");
        let excludes = excludes.map(|file| ("core.excludesFile".to_owned(), path(file).into()));
        values.chain(excludes).collect()
    }

    /// Reads the `shallow` file of the repository; `None` if the history is complete.
    pub(super) fn shallow_file(&self) -> anyhow::Result<Option<Vec<u8>>> {
        match fs::read(self.layout.common().join("shallow")) {
            Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context("cannot read the file `shallow` of the repository"),
        }
    }
}
