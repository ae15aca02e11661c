//! Puts a commit that is in the user's repository on a branch of it, after a person approved the commit.
//!
//! The commit was made in a box, and its objects were checked when they were imported; see [`super::work`].
//! As everywhere in this module, git runs with a configuration that Belljar wrote.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::display;

use super::branch;
use super::changes::changed_files;
use super::incoming::Incoming;
use super::source::find_source;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::scope::Scoped;

/// A commit, and the branch that will contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchUpdate {
    /// A directory in the user's repository.
    pub repo: PathBuf,
    pub branch: String,
    pub commit: String,
    /// The commit from which the work started.
    pub base: String,
}

/// The difference between the base of an update and its commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateSize {
    pub files: u64,
    pub added_lines: u64,
    pub removed_lines: u64,
    /// The changed files that the host would execute, each with the reason; safe to print to a terminal.
    pub executes: Vec<String>,
}

impl BranchUpdate {
    /// Describes the update. Changes nothing.
    pub fn size(&self, state: &Scoped) -> Result<UpdateSize, EngineError> {
        let incoming = self.open(state)?;
        let git = incoming.user_git().limited();
        let read = || -> anyhow::Result<UpdateSize> {
            let args = ["diff-tree", "-r", "--numstat", "--no-renames", &self.base, &self.commit];
            let counts = git.output(&args).context("cannot compare the commit with its base")?;
            let mut size = UpdateSize::default();
            for line in String::from_utf8_lossy(&counts).lines() {
                let mut parts = line.split('\t');
                // A binary file has `-` instead of a number.
                let mut number = || parts.next().and_then(|text| text.parse().ok()).unwrap_or(0);
                let (added, removed): (u64, u64) = (number(), number());
                size.files += 1;
                size.added_lines = size.added_lines.saturating_add(added);
                size.removed_lines = size.removed_lines.saturating_add(removed);
            }
            for change in changed_files(&git, &self.base, &self.commit)? {
                let path = display::safe(change.path.as_os_str().as_encoded_bytes());
                size.executes.extend(change.risky.map(|why| format!("{path}: {why}")));
            }
            Ok(size)
        };
        read().kind(ErrorKind::Broken)
    }

    /// Returns the difference between the base and the commit, as git shows it. A hostile box made it: print
    /// it with `display::safe_multiline` only.
    pub fn diff(&self, state: &Scoped) -> Result<Vec<u8>, EngineError> {
        let git = self.open(state)?.user_git().limited();
        let args = ["diff", "--no-ext-diff", "--no-textconv", &self.base, &self.commit, "--"];
        git.output(&args).context("cannot show the difference").kind(ErrorKind::Broken)
    }

    /// Returns why the branch cannot be updated now, or `None` if it can.
    pub fn obstacle(&self, state: &Scoped) -> Result<Option<String>, EngineError> {
        let incoming = self.open(state)?;
        match branch::check(&incoming, &self.commit, &self.branch) {
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(Some(format!("{error:#}"))),
            Err(error) => Err(error),
        }
    }

    /// Creates or fast-forwards the branch. Does nothing if the branch is at the commit.
    pub fn apply(&self, state: &Scoped) -> Result<(), EngineError> {
        branch::put(&self.open(state)?, &self.commit, &self.branch, "belljar: approved by a person")
    }

    /// Writes the files of the commit to the new directory `dir`, without a git directory.
    pub fn write_files(&self, state: &Scoped, dir: &Path) -> Result<(), EngineError> {
        let incoming = self.open(state)?;
        let write = || -> anyhow::Result<()> {
            fs::create_dir(dir)?;
            // The index is beside the files, so that the box does not see it.
            let index = dir.with_extension("index");
            let git = incoming.user_git().limited().var("GIT_INDEX_FILE", &index).checkout(dir);
            git.output(&["read-tree", &self.commit])?;
            git.output(&["checkout-index", "--all", "--quiet"])?;
            fs::remove_file(&index)?;
            Ok(())
        };
        write().context("cannot write the files of the commit").kind(ErrorKind::Broken)
    }

    fn open(&self, state: &Scoped) -> Result<Incoming, EngineError> {
        let is_id = |text: &String| {
            matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        if !is_id(&self.commit) || !is_id(&self.base) {
            return Err(invalid("the output of the task names no commit"));
        }
        let source = find_source(state, &self.repo)?;
        let incoming = Incoming::new(state, source.layout.common()).kind(ErrorKind::Broken)?;
        let git = incoming.user_git();
        for commit in [&self.base, &self.commit] {
            if !git.succeeds(&["cat-file", "-e", &format!("{commit}^{{commit}}")]) {
                return Err(invalid(format!("the repository has no commit {commit}")));
            }
        }
        Ok(incoming)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    struct Repo {
        dir: tempfile::TempDir,
        state: Scoped,
    }

    impl Repo {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("home")).unwrap();
            fs::create_dir(dir.path().join("repo")).unwrap();
            let state = crate::scope::of_test(&dir.path().join("home"));
            let repo = Self { dir, state };
            repo.git(&["init", "-q", "-b", "main"]);
            repo.commit("a.txt", "one\n");
            repo
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("repo")
        }

        #[track_caller]
        fn git(&self, args: &[&str]) -> String {
            let mut git = Command::new("git");
            let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
            git.current_dir(self.path()).args(identity).args(args);
            let output = git.output().unwrap();
            assert!(output.status.success(), "{args:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        }

        #[track_caller]
        fn commit(&self, file: &str, text: &str) -> String {
            let path = self.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self.git(&["add", "-A"]);
            self.git(&["commit", "-q", "-m", file]);
            self.git(&["rev-parse", "HEAD"])
        }

        fn update(&self, base: &str, commit: &str) -> BranchUpdate {
            let (base, commit) = (base.to_owned(), commit.to_owned());
            BranchUpdate { repo: self.path(), branch: "belljar/fix".to_owned(), commit, base }
        }
    }

    #[test]
    fn update_creates_the_branch_and_moves_it_forward_only() {
        let repo = Repo::new();
        let base = repo.git(&["rev-parse", "HEAD"]);
        let one = repo.commit("b.txt", "1\n2\n");
        let two = repo.commit(".github/workflows/ci.yml", "on: push\n");
        let update = repo.update(&base, &one);
        assert_eq!(update.obstacle(&repo.state).unwrap(), None);
        assert!(repo.git(&["branch", "--list", "belljar/fix"]).is_empty(), "nothing moved yet");
        update.apply(&repo.state).unwrap();
        assert_eq!(repo.git(&["rev-parse", "belljar/fix"]), one);
        update.apply(&repo.state).unwrap();
        repo.update(&base, &two).apply(&repo.state).unwrap();
        assert_eq!(repo.git(&["rev-parse", "belljar/fix"]), two);
        let back = repo.update(&base, &one);
        let why = back.obstacle(&repo.state).unwrap().unwrap();
        assert!(why.contains("not based on"), "{why}");
        assert_eq!(back.apply(&repo.state).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(repo.git(&["rev-parse", "belljar/fix"]), two);
        assert_eq!(repo.git(&["rev-parse", "main"]), two, "no other branch moved");
    }

    #[test]
    fn update_of_a_branch_that_is_checked_out_is_refused() {
        let repo = Repo::new();
        let base = repo.git(&["rev-parse", "HEAD"]);
        repo.git(&["checkout", "-q", "-b", "belljar/fix"]);
        let one = repo.commit("b.txt", "1\n");
        repo.git(&["reset", "-q", "--hard", &base]);
        let why = repo.update(&base, &one).obstacle(&repo.state).unwrap().unwrap();
        assert!(why.contains("is checked out"), "{why}");
        repo.git(&["checkout", "-q", "main"]);
        assert_eq!(repo.update(&base, &one).obstacle(&repo.state).unwrap(), None, "control");
    }

    #[test]
    fn update_counts_changes_and_names_files_that_the_host_would_execute() {
        let repo = Repo::new();
        let base = repo.git(&["rev-parse", "HEAD"]);
        repo.commit("b.txt", "1\n2\n");
        repo.commit("a.txt", "");
        let tip = repo.commit(".github/workflows/ci.yml", "on: push\n");
        let size = repo.update(&base, &tip).size(&repo.state).unwrap();
        assert_eq!((size.files, size.added_lines, size.removed_lines), (3, 3, 1));
        let [executed] = size.executes.as_slice() else { panic!("{size:?}") };
        assert!(executed.starts_with(".github/workflows/ci.yml: "), "{executed}");
    }

    #[test]
    fn update_writes_the_files_of_its_commit_and_runs_no_hook() {
        let repo = Repo::new();
        let base = repo.git(&["rev-parse", "HEAD"]);
        let tip = repo.commit("src/b.txt", "1\n");
        repo.commit("later.txt", "x");
        let hook = repo.path().join(".git/hooks/post-checkout");
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        fs::write(&hook, "#!/bin/sh\ntouch ../hooked\n").unwrap();
        let dir = repo.dir.path().join("files");
        repo.update(&base, &tip).write_files(&repo.state, &dir).unwrap();
        assert_eq!(fs::read_to_string(dir.join("src/b.txt")).unwrap(), "1\n");
        assert!(!dir.join("later.txt").exists() && !dir.join(".git").exists());
        assert!(!repo.path().join("hooked").exists());
        assert_eq!(repo.git(&["status", "--porcelain"]), "", "the user's index is unchanged");
    }

    #[test]
    fn update_to_a_text_that_is_no_commit_of_the_repository_is_refused() {
        let repo = Repo::new();
        let base = repo.git(&["rev-parse", "HEAD"]);
        for commit in ["--exec=x", "main", &"0".repeat(40)] {
            let error = repo.update(&base, commit).apply(&repo.state).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{commit}: {error:#}");
        }
    }
}
