//! The user's repository, found and understood, with nothing in it started or changed.

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
    /// The top of the checkout that was named; none for a repository without one.
    pub(super) checkout: Option<PathBuf>,
    /// What belongs to this checkout alone: `HEAD` and the index.
    pub(super) git_dir: PathBuf,
    /// What all checkouts share: objects, branches, settings.
    pub(super) common: PathBuf,
    /// `sha1` or `sha256`.
    pub(super) format: String,
    pub(super) head: Head,
    pub(super) shallow: bool,
    /// It is jj's own store, which knows no `HEAD` that means anything.
    pub(super) jj_store: bool,
    /// Our own state, of which nothing goes into a box even if it lies in the checkout.
    pub(super) hidden: PathBuf,
    pub(super) program: GitProgram,
    /// What the person should know.
    pub(super) remarks: Vec<String>,
}

/// What is checked out.
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

/// Finds the repository that a directory is, or lies in. One in our own state is refused: a box wrote it.
pub fn look(state: &Scoped, dir: &Path) -> Result<Source, EngineError> {
    let (_, dir) = belljar_box::open(dir).kind(ErrorKind::Invalid)?;
    if !dir.is_dir() {
        return Err(invalid(format!("--repo: {} is not a directory", dir.display())));
    }
    let own = |path: &Path| {
        let text = format!("--repo: {} is part of Belljar's own state", path.display());
        if path.starts_with(state.home()) { Err(invalid(text)) } else { Ok(()) }
    };
    own(&dir)?;
    let source = find(state, &dir)?;
    own(&source.git_dir)?;
    own(&source.common)?;
    Ok(source)
}

fn find(state: &Scoped, dir: &Path) -> Result<Source, EngineError> {
    let understand = |git: &Git, top, jj| understand(git, top, dir, jj, state.home());
    let program = GitProgram::find(state.host()).kind(ErrorKind::Broken)?;
    if let Some(store) = jj_store(dir) {
        return understand(&Git::at(&program, &store), None, true);
    }
    let here = Git::in_dir(&program, dir);
    if let Ok(top) = here.bytes(&["rev-parse", "--show-toplevel"]) {
        let top = path(top);
        return understand(&here, Some(top), false);
    }
    // One without a checkout is used only if it is the very directory that was named: one that was
    // planted somewhere above it is not.
    let bare = Git::at(&program, dir);
    if bare.agrees(&["rev-parse", "--git-dir"]) {
        return understand(&bare, None, false);
    }
    let text = format!(
        "--repo: {} is not in a git repository; `git init` makes one, `--workspace` needs none",
        dir.display()
    );
    Err(invalid(text))
}

fn understand(
    git: &Git,
    checkout: Option<PathBuf>,
    named: &Path,
    jj_store: bool,
    hidden: &Path,
) -> Result<Source, EngineError> {
    let ask = |what: &str| git.bytes(&["rev-parse", "--path-format=absolute", what]);
    let git_dir = path(ask("--git-dir").kind(ErrorKind::Broken)?);
    let common = path(ask("--git-common-dir").kind(ErrorKind::Broken)?);
    let own = Git::at(git.program(), &git_dir);
    let format = own.line(&["rev-parse", "--show-object-format"]).kind(ErrorKind::Broken)?;
    let shallow = own.ask(&["rev-parse", "--is-shallow-repository"]).is_some_and(|it| it == "true");
    let mut remarks = Vec::new();
    match &checkout {
        Some(top) if top != named => remarks.push(format!(
            "{} lies in the repository {}: all of it is in the box",
            named.display(),
            top.display()
        )),
        _ => {}
    }
    let head = head(&own).kind(ErrorKind::Broken)?;
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

fn head(git: &Git) -> anyhow::Result<Head> {
    let commit = git.ask(&["rev-parse", "--verify", "-q", "HEAD^{commit}"]);
    let name = git.ask(&["symbolic-ref", "-q", "HEAD"]);
    let name = name.and_then(|name| Some(name.strip_prefix("refs/heads/")?.to_owned()));
    match (commit, name) {
        (Some(commit), Some(name)) => Ok(Head::Branch { name, commit }),
        (Some(commit), None) => Ok(Head::Detached { commit }),
        (None, Some(name)) => Ok(Head::Unborn { name }),
        (None, None) => anyhow::bail!("what is checked out in the repository cannot be read"),
    }
}

/// The store of a jj repository that has no `.git` beside it.
fn jj_store(dir: &Path) -> Option<PathBuf> {
    let top = dir.ancestors().find(|dir| dir.join(".jj").is_dir() || dir.join(".git").exists())?;
    if top.join(".git").exists() {
        return None;
    }
    let mut repo = top.join(".jj/repo");
    if repo.is_file() {
        // A workspace of its own: the file says where the repository is.
        repo = top.join(".jj").join(fs::read_to_string(&repo).ok()?.trim_end());
    }
    let store = repo.join("store");
    let target = fs::read_to_string(store.join("git_target")).ok()?;
    let (_, store) = belljar_box::open(&store.join(target.trim_end())).ok()?;
    Some(store)
}

/// The path in an answer of git, which ends with a line break.
fn path(mut line: Vec<u8>) -> PathBuf {
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    PathBuf::from(OsString::from_vec(line))
}

/// Who the user says to be wherever they work, if git is there and knows.
pub fn identity(host: &HostEnv) -> Option<Identity> {
    let program = host.find_program("git")?;
    let ask = |key: &str| {
        let mut git = std::process::Command::new(&program);
        git.env_clear().envs(&host.variables);
        git.args(["config", "--global", "--includes", "--get", key]).current_dir("/");
        let said = git.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        String::from_utf8(said.stdout).ok()
    };
    Identity::new(&ask("user.name")?, &ask("user.email")?).ok()
}

impl Source {
    /// The checkout, or the repository itself.
    pub fn path(&self) -> &Path {
        self.checkout.as_deref().unwrap_or(&self.common)
    }

    /// Who the user says to be, in the user's own configuration.
    pub fn identity(&self) -> Option<Identity> {
        let git = self.git().with_own_config();
        let name = git.ask(&["config", "--get", "user.name"])?;
        Identity::new(&name, &git.ask(&["config", "--get", "user.email"])?).ok()
    }

    /// Git on the user's repository, to read from.
    pub(super) fn git(&self) -> Git {
        Git::at(&self.program, &self.git_dir)
    }

    /// The settings that say how files of the checkout become objects. Programs are not among them.
    pub(super) fn file_settings(&self) -> anyhow::Result<Vec<(String, OsString)>> {
        const KEYS: [&str; 6] =
            ["autocrlf", "eol", "fileMode", "symlinks", "ignoreCase", "safecrlf"];
        let git = self.git().with_own_config();
        let mut settings: Vec<(String, OsString)> = KEYS
            .iter()
            .map(|key| format!("core.{key}"))
            .filter_map(|key| Some((key.clone(), git.ask(&["config", "--get", &key])?.into())))
            .collect();
        let excludes = git.bytes(&["config", "--type=path", "--get", "core.excludesFile"]);
        settings
            .extend(excludes.ok().map(|file| ("core.excludesFile".to_owned(), path(file).into())));
        Ok(settings)
    }

    /// The commits at which its history is cut off.
    pub(super) fn shallow_file(&self) -> anyhow::Result<Option<Vec<u8>>> {
        if !self.shallow {
            return Ok(None);
        }
        fs::read(self.common.join("shallow")).map(Some).context("read where the history is cut off")
    }
}
