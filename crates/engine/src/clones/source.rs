//! Finds and inspects the user's repository. No program of the repository is started, no file changed.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use belljar_model::Identity;

use super::git::{Git, GitProgram};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::host::HostEnv;
use crate::scope::Scoped;

/// The user's repository.
#[derive(Debug)]
pub struct Source {
    /// The top directory of the user's checkout; `None` for a bare repository.
    pub(super) checkout: Option<PathBuf>,
    /// The git directory of this checkout, with `HEAD` and the index.
    pub(super) git_dir: PathBuf,
    /// The git directory that all worktrees share, with objects, branches and settings.
    pub(super) common: PathBuf,
    /// The object format of the repository: `sha1` or `sha256`.
    pub(super) format: String,
    pub(super) head: Head,
    /// Whether the history of the repository is incomplete.
    pub(super) shallow: bool,
    /// Whether this is the internal git store of a jj repository, in which `HEAD` has no meaning.
    pub(super) jj_store: bool,
    /// Belljar's state directory, which is never copied into a box even if the checkout contains it.
    pub(super) hidden: PathBuf,
    pub(super) program: GitProgram,
    /// Sentences for the user about the repository.
    pub(super) remarks: Vec<String>,
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
    let (_, dir) = belljar_box::open(dir).kind(ErrorKind::Invalid)?;
    if !dir.is_dir() {
        return Err(invalid(format!("--repo: {} is not a directory", dir.display())));
    }
    let refuse_state = |path: &Path| {
        let text = format!("--repo: {} is part of Belljar's own state directory", path.display());
        if path.starts_with(state.home()) { Err(invalid(text)) } else { Ok(()) }
    };
    refuse_state(&dir)?;
    let source = find(state, &dir)?;
    refuse_state(&source.git_dir)?;
    refuse_state(&source.common)?;
    Ok(source)
}

/// Finds the git repository that contains `dir`, or the git store of a jj repository.
fn find(state: &Scoped, dir: &Path) -> Result<Source, EngineError> {
    let inspect = |git: &Git, top, jj| inspect(git, top, dir, jj, state.home());
    let program = GitProgram::find(state.host()).kind(ErrorKind::Broken)?;
    if let Some(store) = jj_store(dir) {
        return inspect(&Git::at(&program, &store), None, true);
    }
    let git = Git::in_dir(&program, dir);
    if let Ok(top) = git.output(&["rev-parse", "--show-toplevel"]) {
        let top = path(top);
        return inspect(&git, Some(top), false);
    }
    // A bare repository is used only if `dir` itself is the repository. A bare repository in a parent
    // directory may have been planted by an attacker.
    let bare = Git::at(&program, dir);
    if bare.succeeds(&["rev-parse", "--git-dir"]) {
        return inspect(&bare, None, false);
    }
    let text = format!(
        "--repo: {} is not in a git repository; run `git init`, or use `--workspace`",
        dir.display()
    );
    Err(invalid(text))
}

/// Reads the properties of a repository that was found.
fn inspect(
    git: &Git,
    checkout: Option<PathBuf>,
    named: &Path,
    jj_store: bool,
    hidden: &Path,
) -> Result<Source, EngineError> {
    let rev_parse = |option: &str| git.output(&["rev-parse", "--path-format=absolute", option]);
    let git_dir = path(rev_parse("--git-dir").kind(ErrorKind::Broken)?);
    let common = path(rev_parse("--git-common-dir").kind(ErrorKind::Broken)?);
    let git_at_dir = Git::at(git.program(), &git_dir);
    let format = git_at_dir.line(&["rev-parse", "--show-object-format"]).kind(ErrorKind::Broken)?;
    let shallow =
        git_at_dir.query(&["rev-parse", "--is-shallow-repository"]).is_some_and(|it| it == "true");
    let mut remarks = Vec::new();
    match &checkout {
        Some(top) if top != named => remarks.push(format!(
            "{} is a directory of the repository {}: the box gets the complete repository",
            named.display(),
            top.display()
        )),
        _ => {}
    }
    let head = head(&git_at_dir).kind(ErrorKind::Broken)?;
    let hidden = hidden.to_owned();
    let program = git.program().clone();
    Ok(Source {
        checkout,
        git_dir,
        common,
        format,
        head,
        shallow,
        jj_store,
        hidden,
        program,
        remarks,
    })
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

/// Returns the internal git store of a jj repository that has no `.git` directory beside `.jj`.
fn jj_store(dir: &Path) -> Option<PathBuf> {
    let top = dir.ancestors().find(|dir| dir.join(".jj").is_dir() || dir.join(".git").exists())?;
    if top.join(".git").exists() {
        return None;
    }
    let mut repo = top.join(".jj/repo");
    if repo.is_file() {
        // In an additional jj workspace, this file contains the path of the repository.
        repo = top.join(".jj").join(fs::read_to_string(&repo).ok()?.trim_end());
    }
    let store = repo.join("store");
    let target = fs::read_to_string(store.join("git_target")).ok()?;
    let (_, store) = belljar_box::open(&store.join(target.trim_end())).ok()?;
    Some(store)
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
        self.checkout.as_deref().unwrap_or(&self.common)
    }

    /// Returns the user's name and email address from the configuration of this repository, if both are set.
    pub fn identity(&self) -> Option<Identity> {
        let git = self.git().with_user_config();
        let name = git.query(&["config", "--get", "user.name"])?;
        Identity::new(&name, &git.query(&["config", "--get", "user.email"])?).ok()
    }

    /// Returns a git command for reading the user's repository.
    pub(super) fn git(&self) -> Git {
        Git::at(&self.program, &self.git_dir)
    }

    /// Returns the git settings that control how files of the checkout become objects.
    ///
    /// None of these settings names a program.
    pub(super) fn file_settings(&self) -> anyhow::Result<Vec<(String, OsString)>> {
        const KEYS: [&str; 6] =
            ["autocrlf", "eol", "fileMode", "symlinks", "ignoreCase", "safecrlf"];
        let git = self.git().with_user_config();
        let mut settings: Vec<(String, OsString)> = KEYS
            .iter()
            .map(|key| format!("core.{key}"))
            .filter_map(|key| Some((key.clone(), git.query(&["config", "--get", &key])?.into())))
            .collect();
        let excludes = git.output(&["config", "--type=path", "--get", "core.excludesFile"]);
        settings
            .extend(excludes.ok().map(|file| ("core.excludesFile".to_owned(), path(file).into())));
        Ok(settings)
    }

    /// Reads the `shallow` file of the repository; `None` if the history is complete.
    pub(super) fn shallow_file(&self) -> anyhow::Result<Option<Vec<u8>>> {
        if !self.shallow {
            return Ok(None);
        }
        fs::read(self.common.join("shallow"))
            .map(Some)
            .context("cannot read the file `shallow` of the repository")
    }
}
