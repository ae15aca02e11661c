//! Makes the private clone of a box: the objects of one branch and a checkout, nothing else.
//!
//! No hard links and no alternates, so that nothing the box does reaches the user's objects. No
//! remote, hook or setting of the user's comes along. The user's checkout is compared with the commit
//! by the *clone's* git directory, whose configuration is ours: filters and monitors that the user's
//! names are never started.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::boxes::BoxName;
use belljar_model::{Identity, RepoAt, display};

use super::branch::default_branch;
use super::git::Git;
use super::source::{Head, Source};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};

/// What the clone should be.
#[derive(Clone, Copy, Debug)]
pub struct CloneSpec<'a> {
    /// Another branch, tag or commit than the one that is checked out.
    pub branch: Option<&'a str>,
    /// Whether what is not committed comes along.
    pub uncommitted: bool,
    pub identity: &'a Identity,
    /// The name of the box.
    pub name: &'a BoxName,
}

/// A clone that was made.
#[derive(Debug)]
pub struct Cloned {
    pub at: RepoAt,
    /// What is different from what one might expect, one sentence each.
    pub remarks: Vec<String>,
}

/// Where a clone begins.
struct StartPoint {
    branch: String,
    commit: Option<String>,
}

/// Makes a clone in `into`, which must not exist yet or be empty. If we are root, it is `owner`'s then.
pub fn clone(
    source: &Source,
    wish: &CloneSpec<'_>,
    into: &Path,
    owner: Option<(u32, u32)>,
) -> Result<Cloned, EngineError> {
    let mut remarks = source.remarks.clone();
    let start = start(source, wish, &mut remarks)?;
    let is_head = match &source.head {
        Head::Branch { commit, .. } | Head::Detached { commit } => {
            start.commit.as_ref() == Some(commit)
        }
        Head::Unborn { .. } => start.commit.is_none(),
    };
    if wish.uncommitted && (!is_head || source.checkout.is_none()) {
        return Err(invalid(
            "--uncommitted goes with what is checked out: leave out `--branch`, or check that branch out first",
        ));
    }
    let maker = CloneBuilder { source, wish, into, start: &start };
    let base = maker.make(is_head, &mut remarks).kind(ErrorKind::Broken)?;
    let is_root = rustix::process::geteuid().is_root();
    if let Some(owner) = owner.filter(|_| is_root) {
        give_away(into, owner).kind(ErrorKind::Broken)?;
    }
    let at = RepoAt {
        path: source.path().to_owned(),
        git_dir: source.common.clone(),
        from: start.commit,
        base,
        branch: start.branch,
        identity: wish.identity.clone(),
    };
    Ok(Cloned { at, remarks })
}

/// Finds the commit to begin at, and how its branch is called in the box.
fn start(
    source: &Source,
    wish: &CloneSpec<'_>,
    remarks: &mut Vec<String>,
) -> Result<StartPoint, EngineError> {
    let own = default_branch(wish.name);
    let Some(named) = wish.branch else {
        if source.jj_store {
            return Err(invalid(
                "this jj repository has no `.git` beside it: name a bookmark with `--branch` (`jj git export` shows it to git)",
            ));
        }
        return Ok(match &source.head {
            Head::Branch { name, commit } => {
                StartPoint { branch: name.clone(), commit: Some(commit.clone()) }
            }
            Head::Detached { commit } => {
                let short = commit.get(..12).unwrap_or(commit);
                remarks
                    .push(format!("no branch is checked out: the box begins at {short}, on {own}"));
                StartPoint { branch: own, commit: Some(commit.clone()) }
            }
            Head::Unborn { name } => {
                remarks.push("the repository has no commit yet: the box begins with none".into());
                StartPoint { branch: name.clone(), commit: None }
            }
        });
    };
    let git = source.git();
    let commit = |name: &str| {
        git.ask(&["rev-parse", "--verify", "-q", "--end-of-options", &format!("{name}^{{commit}}")])
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
    let full = git.ask(&["rev-parse", "--symbolic-full-name", "--end-of-options", named]);
    let remote =
        full.as_deref().and_then(|full| full.lines().last()?.strip_prefix("refs/remotes/"));
    let branch = remote.and_then(|rest| Some(rest.split_once('/')?.1.to_owned()));
    Ok(StartPoint {
        branch: branch.filter(|name| name != "HEAD").unwrap_or(own),
        commit: Some(commit),
    })
}

struct CloneBuilder<'a> {
    source: &'a Source,
    wish: &'a CloneSpec<'a>,
    into: &'a Path,
    start: &'a StartPoint,
}

impl CloneBuilder<'_> {
    /// Returns the commit that the box begins with.
    fn make(&self, is_head: bool, remarks: &mut Vec<String>) -> anyhow::Result<Option<String>> {
        let git_dir = self.init()?;
        let clone = Git::at(&self.source.program, &git_dir);
        if let Some(commit) = &self.start.commit {
            self.fetch(&clone, &git_dir, commit)?;
            let name = format!("refs/heads/{}", self.start.branch);
            clone.bytes(&["update-ref", &name, commit])?;
        }
        let base = match &self.source.checkout {
            Some(checkout) if is_head => self.uncommitted(&git_dir, checkout, remarks)?,
            _ => self.start.commit.clone(),
        };
        self.check_out(&clone, base.as_deref(), remarks)?;
        Ok(base)
    }

    /// An empty repository with our settings.
    fn init(&self) -> anyhow::Result<PathBuf> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(self.into)
            .context("make the clone")?;
        let outside =
            Git::in_dir(&self.source.program, self.into).var("GIT_DEFAULT_REF_FORMAT", "files");
        let format = format!("--object-format={}", self.source.format);
        outside.bytes(&["init", "-q", "--template=", &format, "-b", &self.start.branch, "."])?;
        let git_dir = self.into.join(".git");
        let clone = Git::at(&self.source.program, &git_dir);
        let mut settings: Vec<(String, std::ffi::OsString)> = [
            ("user.name", self.wish.identity.name()),
            ("user.email", self.wish.identity.email()),
            ("commit.gpgSign", "false"),
            ("tag.gpgSign", "false"),
        ]
        .map(|(key, value)| (key.to_owned(), value.into()))
        .to_vec();
        let of_files = self.source.file_settings()?.into_iter();
        settings.extend(of_files.filter(|(key, _)| {
            matches!(key.as_str(), "core.autocrlf" | "core.eol" | "core.safecrlf")
        }));
        for (key, value) in settings {
            clone.bytes(&[
                OsStr::new("config"),
                OsStr::new("--local"),
                OsStr::new(&key),
                &value,
            ])?;
        }
        Ok(git_dir)
    }

    /// Copies the history of one commit.
    fn fetch(&self, clone: &Git, git_dir: &Path, commit: &str) -> anyhow::Result<()> {
        if let Some(cut) = self.source.shallow_file()? {
            fs::write(git_dir.join("shallow"), cut)
                .context("write where the history is cut off")?;
        }
        let sent = self.source.git().send_pack(&[commit.to_owned()], clone);
        sent.with_context(|| {
            let keys = r"^remote\..*\.(promisor|partialclonefilter)$";
            let partial = self.source.git().agrees(&["config", "--get-regexp", keys]);
            if partial {
                "this is a partial clone, and not all of its objects are here; `git fetch --refetch` with no filter gets them"
            } else {
                "copy the history of the repository"
            }
        })
    }

    /// Says what in the user's checkout is not committed; if that is wanted, makes a commit of it in the
    /// clone. The user's index, branches and files stay as they are.
    fn uncommitted(
        &self,
        git_dir: &Path,
        checkout: &Path,
        remarks: &mut Vec<String>,
    ) -> anyhow::Result<Option<String>> {
        let compare = Compare::new(self.source, git_dir, checkout)?;
        let changed = compare.changed()?;
        let (nested, changed): (Vec<Vec<u8>>, Vec<Vec<u8>>) =
            changed.into_iter().partition(|path| path.ends_with(b"/"));
        if !nested.is_empty() {
            remarks.push(format!(
                "{} not in the box: {}",
                count(nested.len(), "nested repository is", "nested repositories are"),
                names(&nested)
            ));
        }
        if changed.is_empty() {
            return Ok(self.start.commit.clone());
        }
        if !self.wish.uncommitted {
            remarks.push(format!(
                "{} not in the box; `--uncommitted` takes them along",
                count(changed.len(), "changed file is", "changed files are")
            ));
            return Ok(self.start.commit.clone());
        }
        let commit = compare.commit(&changed, self.start.commit.as_deref(), self.wish.identity)?;
        let name = format!("refs/heads/{}", self.start.branch);
        Git::at(&self.source.program, git_dir).bytes(&["update-ref", &name, &commit])?;
        remarks.push(format!(
            "{} in the box, as the commit {}",
            count(changed.len(), "changed file is", "changed files are"),
            commit.get(..12).unwrap_or(&commit)
        ));
        Ok(Some(commit))
    }

    /// Puts the files there, and says which of them are not what they seem.
    fn check_out(
        &self,
        clone: &Git,
        base: Option<&str>,
        remarks: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let Some(base) = base else { return Ok(()) };
        let clone = clone.clone().checkout(self.into).var("GIT_LITERAL_PATHSPECS", "0");
        clone.bytes(&["read-tree", "--reset", "-u", base])?;
        let staged = clone.bytes(&["ls-files", "-s", "-z"])?;
        let submodules: Vec<Vec<u8>> = staged
            .split(|byte| *byte == 0)
            .filter(|entry| entry.starts_with(b"160000 "))
            .filter_map(|entry| Some(entry.split(|byte| *byte == b'\t').nth(1)?.to_vec()))
            .collect();
        if !submodules.is_empty() {
            remarks.push(format!(
                "{} empty in the box: {}",
                count(submodules.len(), "submodule is", "submodules are"),
                names(&submodules)
            ));
        }
        let pointers = clone.bytes(&["ls-files", "-z", "--", ":(attr:filter=lfs)"])?;
        let pointers = pointers.split(|byte| *byte == 0).filter(|path| !path.is_empty()).count();
        if pointers > 0 {
            let files = count(pointers, "file of git-lfs is", "files of git-lfs are");
            remarks.push(format!("{files} in the box as pointers, without their content"));
        }
        if self.source.shallow {
            remarks.push("the history is cut off as in your own clone".into());
        }
        Ok(())
    }
}

/// The user's checkout, seen by the clone's git directory and a copy of the user's index.
struct Compare {
    git: Git,
    clone: Git,
    own_files: Vec<PathBuf>,
    /// Our own state, if it lies in the checkout.
    hidden: Option<PathBuf>,
}

impl Compare {
    fn new(source: &Source, git_dir: &Path, checkout: &Path) -> anyhow::Result<Self> {
        let index = git_dir.join("belljar-index");
        let mut own_files = vec![index.clone()];
        copy_if_there(&source.git_dir.join("index"), &index)?;
        let shared = fs::read_dir(&source.git_dir).context("look at the index")?;
        for entry in shared.filter_map(Result::ok) {
            if entry.file_name().as_bytes().starts_with(b"sharedindex.") {
                let copy = git_dir.join(entry.file_name());
                copy_if_there(&entry.path(), &copy)?;
                own_files.push(copy);
            }
        }
        fs::create_dir_all(git_dir.join("info")).context("make the clone")?;
        let exclude = git_dir.join("info/exclude");
        copy_if_there(&source.common.join("info/exclude"), &exclude)?;
        let hidden = source.hidden.strip_prefix(checkout).ok().map(ToOwned::to_owned);
        if let Some(hidden) = &hidden {
            exclude_directory(&exclude, hidden)?;
        }
        own_files.push(exclude);
        let clone = Git::at(&source.program, git_dir);
        let mut git = clone
            .clone()
            .checkout(checkout)
            .var("GIT_INDEX_FILE", index)
            .var("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&source.common.join("objects")));
        for (key, value) in source.file_settings()? {
            git = git.setting(&key, value);
        }
        Ok(Self { git, clone, own_files, hidden })
    }

    /// Every path that is not as in the commit; one that ends in `/` is a repository of its own.
    fn changed(&self) -> anyhow::Result<Vec<Vec<u8>>> {
        // Git would ask the git of every submodule, with that one's settings.
        let said = self.git.bytes(&[
            "status",
            "--porcelain=v1",
            "-z",
            "--untracked-files=all",
            "--no-renames",
            "--ignore-submodules=all",
        ])?;
        let paths = said.split(|byte| *byte == 0).filter_map(|entry| entry.get(3..));
        let is_own = |path: &&[u8]| {
            self.hidden
                .as_ref()
                .is_some_and(|own| Path::new(OsStr::from_bytes(path)).starts_with(own))
        };
        Ok(paths.filter(|path| !is_own(path)).map(<[u8]>::to_vec).collect())
    }

    fn commit(
        &self,
        changed: &[Vec<u8>],
        parent: Option<&str>,
        identity: &Identity,
    ) -> anyhow::Result<String> {
        let mut list = changed.join(&0);
        list.push(0);
        let update = ["update-index", "--add", "--remove", "--replace", "-z", "--stdin"];
        self.git.answer(&update, &list, 0).context("take what is not committed along")?;
        let tree = self.git.line(&["write-tree"])?;
        let by = |git: Git| {
            let (name, email) = (identity.name(), identity.email());
            git.var("GIT_AUTHOR_NAME", name)
                .var("GIT_AUTHOR_EMAIL", email)
                .var("GIT_COMMITTER_NAME", name)
                .var("GIT_COMMITTER_EMAIL", email)
        };
        let mut args = vec!["commit-tree", "-m", "Changes that were not committed", &tree];
        args.extend(parent.iter().flat_map(|parent| ["-p", parent]));
        let commit = by(self.git.clone()).line(&args)?;
        // What was staged may be in the user's objects alone.
        let mut revisions = vec![commit.clone()];
        revisions.extend(parent.map(|parent| format!("^{parent}")));
        self.git.send_pack(&revisions, &self.clone)?;
        Ok(commit)
    }
}

impl Drop for Compare {
    fn drop(&mut self) {
        for file in &self.own_files {
            fs::remove_file(file).ok(); // it says nothing that the checkout does not
        }
    }
}

/// Adds a directory to a file of patterns, so that git does not even go there.
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
    file.and_then(|mut file| file.write_all(&line)).context("exclude our own state")
}

fn copy_if_there(from: &Path, to: &Path) -> anyhow::Result<()> {
    match fs::copy(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map(drop).with_context(|| format!("copy {}", from.display())),
    }
}

/// A path in a list that is divided by colons, as git reads it.
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

/// Gives everything in a tree that nobody else has seen yet to its owner.
fn give_away(path: &Path, (uid, gid): (u32, u32)) -> anyhow::Result<()> {
    let given = std::os::unix::fs::lchown(path, Some(uid), Some(gid));
    given.with_context(|| format!("give {} to its owner", path.display()))?;
    if path.symlink_metadata().context("look at the clone")?.is_dir() {
        for entry in fs::read_dir(path).context("look at the clone")? {
            give_away(&entry.context("look at the clone")?.path(), (uid, gid))?;
        }
    }
    Ok(())
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The first few names, safe to show.
fn names(paths: &[Vec<u8>]) -> String {
    const SHOWN: usize = 5;
    let mut text: Vec<String> = paths.iter().take(SHOWN).map(display::safe).collect();
    if paths.len() > SHOWN {
        text.push("…".into());
    }
    text.join(", ")
}
