//! Creates the private clone of a box: the objects of one branch and a checkout.
//!
//! The clone uses no hard links and no alternates, so that a box cannot reach the user's objects. It gets
//! no remote, hook or setting of the user. The user's checkout is compared with its commit through the
//! git directory of the *clone*, whose configuration Belljar wrote: filters and file system monitors that
//! the user's configuration names are never started.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::boxes::BoxName;
use belljar_model::{Identity, RepoAt, display};
use serde::{Deserialize, Serialize};

use super::branch::default_branch;
use super::git::Git;
use super::source::{Head, Source};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};

/// The options for a new private clone.
#[derive(Clone, Copy, Debug)]
pub struct CloneSpec<'a> {
    /// The branch, tag or commit to clone; `None` for the commit that is checked out.
    pub branch: Option<&'a str>,
    /// Whether uncommitted changes of the user's checkout are copied into the clone.
    pub uncommitted: bool,
    pub identity: &'a Identity,
    /// The name of the box.
    pub name: &'a BoxName,
}

/// The result of [`clone`]: a new private clone.
#[derive(Debug)]
pub struct Cloned {
    pub at: RepoAt,
    /// Sentences for the user about differences between the clone and the user's checkout.
    pub remarks: Vec<String>,
}

/// The commit that a clone starts from, at the time when it was resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResolvedBase {
    /// The commit id; `None` for a repository without commits.
    pub(crate) commit: Option<String>,
    /// The name of the branch in the clone; `None` for the default of the box.
    pub(crate) branch: Option<String>,
}

/// The branch and commit that a new clone starts from.
struct StartPoint {
    /// The name of the branch in the clone.
    branch: String,
    /// The commit id; `None` for a repository without commits.
    commit: Option<String>,
}

/// Creates a private clone of `source` in the directory `into`, which must be missing or empty.
///
/// If this process is root, all files of the clone are given to `owner`.
pub fn clone(
    source: &Source,
    spec: &CloneSpec<'_>,
    into: &Path,
    owner: Option<(u32, u32)>,
) -> Result<Cloned, EngineError> {
    let mut remarks = source.remarks.clone();
    let start = start_point(source, (spec.branch, &default_branch(spec.name)), &mut remarks)?;
    clone_from(source, spec, start, (into, owner), remarks)
}

/// Creates a private clone that starts from a commit which [`resolve_base`] returned. The other parameters
/// are those of [`clone()`]; `spec.branch` is not used.
pub(crate) fn clone_at(
    source: &Source,
    spec: &CloneSpec<'_>,
    base: &ResolvedBase,
    into: &Path,
    owner: Option<(u32, u32)>,
) -> Result<Cloned, EngineError> {
    if let Some(commit) = &base.commit
        && !source.has_revision(commit)
    {
        let path = source.path().display();
        return Err(invalid(format!("{path} does not have the commit {commit} any more")));
    }
    let branch = base.branch.clone().unwrap_or_else(|| default_branch(spec.name));
    let start = StartPoint { branch, commit: base.commit.clone() };
    clone_from(source, spec, start, (into, owner), source.remarks.clone())
}

/// Resolves the branch, tag or commit that a clone starts from; `None` for the commit that is checked out.
pub(crate) fn resolve_base(
    source: &Source,
    revision: Option<&str>,
) -> Result<ResolvedBase, EngineError> {
    let StartPoint { branch, commit } = start_point(source, (revision, ""), &mut Vec::new())?;
    Ok(ResolvedBase { commit, branch: Some(branch).filter(|branch| !branch.is_empty()) })
}

fn clone_from(
    source: &Source,
    spec: &CloneSpec<'_>,
    start: StartPoint,
    (into, owner): (&Path, Option<(u32, u32)>),
    mut remarks: Vec<String>,
) -> Result<Cloned, EngineError> {
    let is_head = match &source.head {
        Head::Branch { commit, .. } | Head::Detached { commit } => {
            start.commit.as_ref() == Some(commit)
        }
        Head::Unborn { .. } => start.commit.is_none(),
    };
    if spec.uncommitted && (!is_head || source.layout.checkout().is_none()) {
        return Err(invalid(
            "--uncommitted works only with the commit that is checked out: omit `--branch`, or check out that branch first",
        ));
    }
    let builder = CloneBuilder { source, spec, into, start: &start };
    let base = builder.build(is_head, &mut remarks).kind(ErrorKind::Broken)?;
    let is_root = rustix::process::geteuid().is_root();
    if let Some(owner) = owner.filter(|_| is_root) {
        change_owner(into, owner).kind(ErrorKind::Broken)?;
    }
    let at = RepoAt {
        path: source.path().to_owned(),
        git_dir: source.layout.common().to_owned(),
        from: start.commit,
        base,
        branch: start.branch,
        identity: spec.identity.clone(),
    };
    Ok(Cloned { at, remarks })
}

/// Returns the commit that the clone starts from, and the name of its branch in the box.
fn start_point(
    source: &Source,
    (named, default): (Option<&str>, &str),
    remarks: &mut Vec<String>,
) -> Result<StartPoint, EngineError> {
    let default = default.to_owned();
    let Some(named) = named else {
        if source.layout.is_jj_store() {
            return Err(invalid(
                "this jj repository has no `.git` directory beside `.jj`: choose a bookmark with `--branch` (run `jj git export` first)",
            ));
        }
        return Ok(match &source.head {
            Head::Branch { name, commit } => {
                StartPoint { branch: name.clone(), commit: Some(commit.clone()) }
            }
            Head::Detached { commit } => {
                let short = commit.get(..12).unwrap_or(commit);
                remarks.push(format!(
                    "no branch is checked out: the box starts at commit {short}, on the branch {default}"
                ));
                StartPoint { branch: default, commit: Some(commit.clone()) }
            }
            Head::Unborn { name } => {
                remarks.push(
                    "the repository has no commits: the clone in the box has none either".into(),
                );
                StartPoint { branch: name.clone(), commit: None }
            }
        });
    };
    let git = source.git();
    let commit = |name: &str| {
        git.query(&[
            "rev-parse",
            "--verify",
            "-q",
            "--end-of-options",
            &format!("{name}^{{commit}}"),
        ])
    };
    if let Some(commit) = commit(&format!("refs/heads/{named}")) {
        return Ok(StartPoint { branch: named.to_owned(), commit: Some(commit) });
    }
    let unknown = || {
        invalid(format!(
            "--branch: {} has no branch, tag or commit {named:?}",
            source.path().display()
        ))
    };
    let found = Some(named).filter(|named| !named.starts_with('-')).and_then(commit);
    let commit = found.ok_or_else(unknown)?;
    let full = git.query(&["rev-parse", "--symbolic-full-name", "--end-of-options", named]);
    let remote =
        full.as_deref().and_then(|full| full.lines().last()?.strip_prefix("refs/remotes/"));
    let branch = remote.and_then(|rest| Some(rest.split_once('/')?.1.to_owned()));
    Ok(StartPoint {
        branch: branch.filter(|name| name != "HEAD").unwrap_or(default),
        commit: Some(commit),
    })
}

/// Builds one private clone, step by step.
struct CloneBuilder<'a> {
    source: &'a Source,
    spec: &'a CloneSpec<'a>,
    into: &'a Path,
    start: &'a StartPoint,
}

impl CloneBuilder<'_> {
    /// Creates the clone and returns the commit that the box starts with.
    fn build(&self, is_head: bool, remarks: &mut Vec<String>) -> anyhow::Result<Option<String>> {
        let git_dir = self.init()?;
        let clone = Git::at(&self.source.program, &git_dir);
        if let Some(commit) = &self.start.commit {
            self.fetch(&clone, &git_dir, commit)?;
            let name = format!("refs/heads/{}", self.start.branch);
            clone.output(&["update-ref", &name, commit])?;
        }
        let base = match self.source.layout.checkout() {
            Some(checkout) if is_head => self.uncommitted(&git_dir, checkout, remarks)?,
            _ => self.start.commit.clone(),
        };
        self.check_out(&clone, base.as_deref(), remarks)?;
        Ok(base)
    }

    /// Creates an empty repository with Belljar's settings and returns its git directory.
    fn init(&self) -> anyhow::Result<PathBuf> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(self.into)
            .context("cannot create the directory of the clone")?;
        let outside =
            Git::in_dir(&self.source.program, self.into).var("GIT_DEFAULT_REF_FORMAT", "files");
        let format = format!("--object-format={}", self.source.format());
        outside.output(&["init", "-q", "--template=", &format, "-b", &self.start.branch, "."])?;
        let git_dir = self.into.join(".git");
        let clone = Git::at(&self.source.program, &git_dir);
        let mut settings: Vec<(String, std::ffi::OsString)> = [
            ("user.name", self.spec.identity.name()),
            ("user.email", self.spec.identity.email()),
            ("commit.gpgSign", "false"),
            ("tag.gpgSign", "false"),
        ]
        .map(|(key, value)| (key.to_owned(), value.into()))
        .to_vec();
        let file_settings = self.source.file_settings().into_iter();
        settings.extend(file_settings.filter(|(key, _)| {
            matches!(key.as_str(), "core.autocrlf" | "core.eol" | "core.safecrlf")
        }));
        for (key, value) in settings {
            clone.output(&[
                OsStr::new("config"),
                OsStr::new("--local"),
                OsStr::new(&key),
                &value,
            ])?;
        }
        Ok(git_dir)
    }

    /// Copies the history of one commit from the user's repository into the clone.
    fn fetch(&self, clone: &Git, git_dir: &Path, commit: &str) -> anyhow::Result<()> {
        if let Some(shallow) = self.source.shallow_file()? {
            fs::write(git_dir.join("shallow"), shallow)
                .context("cannot write the file `shallow` of the clone")?;
        }
        let sent = self.source.git().send_pack(&[commit.to_owned()], clone);
        sent.with_context(|| {
            if self.source.is_partial() {
                "cannot copy the history: the repository is a partial clone and lacks objects; run `git fetch --refetch` without a filter"
            } else {
                "cannot copy the history of the repository"
            }
        })
    }

    /// Reports uncommitted changes of the user's checkout, and commits them in the clone if requested.
    ///
    /// Returns the commit that the box starts with. The user's index, branches and files do not change.
    fn uncommitted(
        &self,
        git_dir: &Path,
        checkout: &Path,
        remarks: &mut Vec<String>,
    ) -> anyhow::Result<Option<String>> {
        let comparison = Comparison::new(self.source, git_dir, checkout)?;
        let changed = comparison.changed()?;
        let (nested, changed): (Vec<Vec<u8>>, Vec<Vec<u8>>) =
            changed.into_iter().partition(|path| path.ends_with(b"/"));
        if !nested.is_empty() {
            remarks.push(format!(
                "the box does not contain {}: {}",
                count(nested.len(), "nested repository", "nested repositories"),
                path_list(&nested)
            ));
        }
        if changed.is_empty() {
            return Ok(self.start.commit.clone());
        }
        if !self.spec.uncommitted {
            remarks.push(format!(
                "uncommitted changes of {} are not in the box; use `--uncommitted` to copy them",
                count(changed.len(), "file", "files")
            ));
            return Ok(self.start.commit.clone());
        }
        let commit =
            comparison.commit(&changed, self.start.commit.as_deref(), self.spec.identity)?;
        let name = format!("refs/heads/{}", self.start.branch);
        Git::at(&self.source.program, git_dir).output(&["update-ref", &name, &commit])?;
        remarks.push(format!(
            "uncommitted changes of {} are in the box as the commit {}",
            count(changed.len(), "file", "files"),
            commit.get(..12).unwrap_or(&commit)
        ));
        Ok(Some(commit))
    }

    /// Checks out the commit `base` in the clone, and reports submodules, git-lfs files and a shallow history.
    fn check_out(
        &self,
        clone: &Git,
        base: Option<&str>,
        remarks: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let Some(base) = base else { return Ok(()) };
        let clone = clone.clone().checkout(self.into).var("GIT_LITERAL_PATHSPECS", "0");
        clone.output(&["read-tree", "--reset", "-u", base])?;
        let staged = clone.output(&["ls-files", "-s", "-z"])?;
        let submodules: Vec<Vec<u8>> = staged
            .split(|byte| *byte == 0)
            .filter(|entry| entry.starts_with(b"160000 "))
            .filter_map(|entry| Some(entry.split(|byte| *byte == b'\t').nth(1)?.to_vec()))
            .collect();
        if !submodules.is_empty() {
            remarks.push(format!(
                "the box contains only empty directories for {}: {}",
                count(submodules.len(), "submodule", "submodules"),
                path_list(&submodules)
            ));
        }
        let pointers = clone.output(&["ls-files", "-z", "--", ":(attr:filter=lfs)"])?;
        let pointers = pointers.split(|byte| *byte == 0).filter(|path| !path.is_empty()).count();
        if pointers > 0 {
            let files = count(pointers, "git-lfs file", "git-lfs files");
            remarks.push(format!("the box contains only the pointers of {files}, not the content"));
        }
        if self.source.shallow_file()?.is_some() {
            remarks.push(
                "the history in the box is incomplete, because your own clone is shallow".into(),
            );
        }
        Ok(())
    }
}

/// Compares the user's checkout with its commit, through the clone's git directory and a copy of the user's
/// index.
struct Comparison {
    git: Git,
    clone: Git,
    /// Files in the clone that exist only for the comparison.
    temporary_files: Vec<PathBuf>,
    /// Belljar's state directory, relative to the checkout, if the checkout contains it.
    hidden: Option<PathBuf>,
}

impl Comparison {
    fn new(source: &Source, git_dir: &Path, checkout: &Path) -> anyhow::Result<Self> {
        let index = git_dir.join("belljar-index");
        let mut temporary_files = vec![index.clone()];
        copy_if_exists(&source.layout.git_dir().join("index"), &index)?;
        let entries = fs::read_dir(source.layout.git_dir())
            .context("cannot list the git directory of the user")?;
        for entry in entries.filter_map(Result::ok) {
            if entry.file_name().as_bytes().starts_with(b"sharedindex.") {
                let copy = git_dir.join(entry.file_name());
                copy_if_exists(&entry.path(), &copy)?;
                temporary_files.push(copy);
            }
        }
        fs::create_dir_all(git_dir.join("info"))
            .context("cannot create a directory in the clone")?;
        let exclude = git_dir.join("info/exclude");
        copy_if_exists(&source.layout.common().join("info/exclude"), &exclude)?;
        let hidden = source.hidden.strip_prefix(checkout).ok().map(ToOwned::to_owned);
        if let Some(hidden) = &hidden {
            exclude_directory(&exclude, hidden)?;
        }
        temporary_files.push(exclude);
        let clone = Git::at(&source.program, git_dir);
        let mut git = clone.clone().checkout(checkout).var("GIT_INDEX_FILE", index).var(
            "GIT_ALTERNATE_OBJECT_DIRECTORIES",
            quoted(&source.layout.common().join("objects")),
        );
        for (key, value) in source.file_settings() {
            git = git.setting(&key, value);
        }
        Ok(Self { git, clone, temporary_files, hidden })
    }

    /// Returns every path of the checkout that differs from the commit.
    ///
    /// A path that ends in `/` is a nested repository.
    fn changed(&self) -> anyhow::Result<Vec<Vec<u8>>> {
        // Without `--ignore-submodules` git would run git in every submodule, with the settings of that
        // submodule.
        let output = self.git.output(&[
            "status",
            "--porcelain=v1",
            "-z",
            "--untracked-files=all",
            "--no-renames",
            "--ignore-submodules=all",
        ])?;
        let paths = output.split(|byte| *byte == 0).filter_map(|entry| entry.get(3..));
        let is_hidden = |path: &&[u8]| {
            self.hidden
                .as_ref()
                .is_some_and(|hidden| Path::new(OsStr::from_bytes(path)).starts_with(hidden))
        };
        Ok(paths.filter(|path| !is_hidden(path)).map(<[u8]>::to_vec).collect())
    }

    /// Commits the changed paths in the clone and returns the commit id.
    fn commit(
        &self,
        changed: &[Vec<u8>],
        parent: Option<&str>,
        identity: &Identity,
    ) -> anyhow::Result<String> {
        let mut list = changed.join(&0);
        list.push(0);
        let update = ["update-index", "--add", "--remove", "--replace", "-z", "--stdin"];
        self.git
            .output_with_input(&update, &list, 0)
            .context("cannot add uncommitted changes to the clone")?;
        let tree = self.git.line(&["write-tree"])?;
        let with_identity = |git: Git| {
            let (name, email) = (identity.name(), identity.email());
            git.var("GIT_AUTHOR_NAME", name)
                .var("GIT_AUTHOR_EMAIL", email)
                .var("GIT_COMMITTER_NAME", name)
                .var("GIT_COMMITTER_EMAIL", email)
        };
        let mut args = vec!["commit-tree", "-m", "Changes that were not committed", &tree];
        args.extend(parent.iter().flat_map(|parent| ["-p", parent]));
        let commit = with_identity(self.git.clone()).line(&args)?;
        // Objects of staged files may exist only in the user's repository: copy them.
        let mut revisions = vec![commit.clone()];
        revisions.extend(parent.map(|parent| format!("^{parent}")));
        self.git.send_pack(&revisions, &self.clone)?;
        Ok(commit)
    }
}

impl Drop for Comparison {
    fn drop(&mut self) {
        for file in &self.temporary_files {
            fs::remove_file(file).ok(); // a leftover file discloses nothing that is not in the checkout
        }
    }
}

/// Adds a directory to git's exclude file, so that git does not enter that directory.
fn exclude_directory(file: &Path, directory: &Path) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut line = b"\n/".to_vec();
    for byte in directory.as_os_str().as_bytes() {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b' ' | b'#' | b'!') {
            line.push(b'\\');
        }
        line.push(*byte);
    }
    line.extend(b"/\n");
    let file = fs::File::options().create(true).append(true).open(file);
    file.and_then(|mut file| file.write_all(&line))
        .context("cannot exclude Belljar's state directory from the comparison")
}

/// Copies a file; a missing source file is not an error.
fn copy_if_exists(from: &Path, to: &Path) -> anyhow::Result<()> {
    match fs::copy(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map(drop).with_context(|| format!("cannot copy {}", from.display())),
    }
}

/// Quotes a path for a colon-separated list, with the quoting rules of git.
pub(super) fn quoted(path: &Path) -> std::ffi::OsString {
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = path.as_os_str().as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b':' | b'"')) {
        return path.as_os_str().to_owned();
    }
    let mut text = vec![b'"'];
    for byte in bytes {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text.push(b'"');
    std::ffi::OsString::from_vec(text)
}

/// Changes the owner of a directory and everything below. No other process may use the directory yet.
fn change_owner(path: &Path, (uid, gid): (u32, u32)) -> anyhow::Result<()> {
    let changed = std::os::unix::fs::lchown(path, Some(uid), Some(gid));
    changed.with_context(|| format!("cannot change the owner of {}", path.display()))?;
    if path.symlink_metadata().context("cannot read the directory of the clone")?.is_dir() {
        for entry in fs::read_dir(path).context("cannot read the directory of the clone")? {
            change_owner(
                &entry.context("cannot read the directory of the clone")?.path(),
                (uid, gid),
            )?;
        }
    }
    Ok(())
}

/// Formats a count with the singular or plural form of a noun.
fn count(number: usize, singular: &str, plural: &str) -> String {
    format!("{number} {}", if number == 1 { singular } else { plural })
}

/// Returns the first few paths as a list that is safe to print.
fn path_list(paths: &[Vec<u8>]) -> String {
    const MAX_NAMES: usize = 5;
    let mut text: Vec<String> = paths.iter().take(MAX_NAMES).map(display::safe).collect();
    if paths.len() > MAX_NAMES {
        text.push("…".into());
    }
    text.join(", ")
}
