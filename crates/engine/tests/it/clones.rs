//! Tests of private clones and of bringing work back from them, with real repositories, git and boxes.

mod attacks;
mod kinds;

use std::fs;
use std::path::{Path, PathBuf};

use belljar_engine::clones::{
    CloneSpec, Cloned, DiffStyle, FileChange, Work, branch, clone, diff, find_source, read_work,
    save_work,
};
use belljar_engine::error::EngineError;
use belljar_engine::scope::Scoped;
use belljar_engine::store::is_empty;
use belljar_model::boxes::BoxName;
use belljar_model::{Identity, RepoAt};
use belljar_testkit::{commit, git, git_command, is_root, read_tree, write_file as write};

use crate::test_engine::{self, TestEngine};

/// A repository of the user, an engine, and the clone of one box.
struct Repos {
    engine: TestEngine,
    top: PathBuf,
    state: Scoped,
}

impl Repos {
    /// Creates a user's repository with one commit of two files on `main`.
    fn new() -> Self {
        let repos = Self::empty();
        repos.write("src/lib.rs", "one\n");
        repos.write("README.md", "hello\n");
        repos.commit("Begin");
        repos
    }

    /// Creates a user's repository without a commit.
    fn empty() -> Self {
        let engine = TestEngine::new();
        let (_, top) = belljar_box::open(engine.lab.dir()).unwrap();
        fs::create_dir(top.join("user")).unwrap();
        let repos = Self { top, state: engine.state.clone(), engine };
        git(&repos.user(), &["init", "-q", "-b", "main"]);
        repos
    }

    /// Opens an engine on another state directory.
    fn open(&self, home: &Path) -> Scoped {
        test_engine::open_engine(&self.engine.lab, home).unwrap()
    }

    fn user(&self) -> PathBuf {
        self.top.join("user")
    }

    /// Returns the directory of the box's clone.
    fn repo(&self) -> PathBuf {
        self.top.join("state/repo")
    }

    fn write(&self, path: &str, content: &str) {
        write(&self.user(), path, content);
    }

    fn commit(&self, subject: &str) -> String {
        commit(&self.user(), subject)
    }

    fn clone(&self, uncommitted: bool) -> Cloned {
        let (ada, name) = (ada(), box_name());
        let spec = CloneSpec { branch: None, uncommitted, identity: &ada, name: &name };
        self.clone_as(&self.user(), &spec).unwrap()
    }

    fn clone_as(&self, from: &Path, spec: &CloneSpec<'_>) -> Result<Cloned, EngineError> {
        // Boxes of root run with a different user id, which owns the files of the clone.
        let owner = is_root().then_some((65534, 65534));
        clone(&find_source(&self.state, from)?, spec, &self.repo(), owner)
    }

    fn work(&self, at: &RepoAt) -> Option<Work> {
        read_work(&self.state, &box_name(), at, &self.repo()).unwrap()
    }

    /// Returns the error of reading the box's work.
    fn work_error(&self, at: &RepoAt) -> String {
        let error = read_work(&self.state, &box_name(), at, &self.repo()).unwrap_err();
        format!("{error:#}")
    }
}

fn box_name() -> BoxName {
    "box".parse().unwrap()
}

fn ada() -> Identity {
    "Ada Lovelace <ada@example.org>".parse().unwrap()
}

/// Copies the work of a box to `refs/belljar/work/NAME` of the user's repository.
fn collect(
    state: &Scoped,
    name: &BoxName,
    at: &RepoAt,
    repo: &Path,
) -> Result<Option<Work>, EngineError> {
    let work = read_work(state, name, at, repo)?;
    if let Some(work) = &work {
        save_work(at, work, name)?;
    }
    Ok(work)
}

/// Returns the path and the kind of change of every file.
fn file_changes(work: &Work) -> Vec<(String, &'static str)> {
    let name = |file: &FileChange| (file.path.display().to_string(), file.kind.name());
    work.files.iter().map(name).collect()
}

#[test]
fn work_of_a_box_becomes_commits_and_changes_no_other_file_of_the_repository() {
    let repos = Repos::new();
    let (user, repo) = (repos.user(), repos.repo());
    let cloned = repos.clone(false);
    assert_eq!(cloned.remarks, Vec::<String>::new());
    assert_eq!((cloned.at.branch.as_str(), &cloned.at.path), ("main", &user));
    assert!(repos.work(&cloned.at).is_none(), "the box has no work yet");

    write(&repo, "src/lib.rs", "two\n");
    let first = commit(&repo, "Say two");
    fs::remove_file(repo.join("README.md")).unwrap();
    write(&repo, "new file.txt", "new\n");
    let before = read_tree(&user);
    let work = repos.work(&cloned.at).unwrap();
    assert!(work.uncommitted && !work.is_empty());
    assert_eq!(work.base, cloned.at.base.clone().unwrap());
    let subjects: Vec<&str> = work.commits.iter().map(|commit| commit.subject.as_str()).collect();
    assert_eq!(subjects, ["Changes in the box box that were not committed", "Say two"]);
    assert_eq!(
        (work.commits[0].author.as_str(), work.commit_count),
        ("Ada Lovelace <ada@example.org>", 2)
    );
    assert_eq!(work.commits[1].oid, first);
    let expect = [("README.md", "deleted"), ("new file.txt", "added"), ("src/lib.rs", "modified")];
    assert_eq!(file_changes(&work), expect.map(|(path, kind)| (path.to_owned(), kind)));
    let text = diff(&work, DiffStyle::default()).unwrap();
    assert!(text.contains("-one\n+two\n") && text.contains("deleted file"), "{text}");
    let one = DiffStyle { paths: &[Path::new("src")], colour: true, ..DiffStyle::default() };
    let text = diff(&work, one).unwrap();
    assert!(text.contains("\u{1b}[32m+two\u{1b}[m\n") && !text.contains("README"), "{text}");
    let stat = diff(&work, DiffStyle { stat: true, ..DiffStyle::default() }).unwrap();
    assert!(stat.contains("3 files changed"), "{stat}");
    assert_eq!(before, read_tree(&user), "reading the work changes no file");

    // Collecting the same work again creates the same commit.
    let kept = collect(&repos.state, &box_name(), &cloned.at, &repo).unwrap().unwrap();
    assert_eq!(kept.tip, work.tip);
    assert_eq!(git(&user, &["rev-parse", "refs/belljar/work/box"]), work.tip);
    let new_files: Vec<PathBuf> = read_tree(&user)
        .into_iter()
        .filter(|file| !before.contains(file))
        .map(|(path, _)| path.strip_prefix(user.join(".git")).unwrap().to_owned())
        .collect();
    let is_expected = |path: &PathBuf| {
        path.starts_with("objects/pack") || path == Path::new("refs/belljar/work/box")
    };
    assert!(new_files.iter().all(is_expected) && !new_files.is_empty(), "{new_files:?}");
    assert!(git(&user, &["fsck", "--strict"]).is_empty());
    assert!(is_empty(&repos.top.join("state/incoming/x")), "no temporary file is left");
    drop((work, kept));
    assert!(is_empty(&repos.top.join("state/incoming")), "no temporary file is left");
}

#[test]
fn branch_is_created_or_fast_forwarded_and_never_moved_while_checked_out() {
    let repos = Repos::new();
    let (user, repo) = (repos.user(), repos.repo());
    let at = repos.clone(false).at;
    write(&repo, "a", "1\n");
    commit(&repo, "One");
    let work = collect(&repos.state, &box_name(), &at, &repo).unwrap().unwrap();
    let refused = |name: &str| format!("{:#}", branch(&work, name).unwrap_err());
    assert_eq!(repos.work(&at).unwrap().would_lose().unwrap(), "1 commit with changes to 1 file");
    branch(&work, "belljar/box").unwrap();
    branch(&work, "belljar/box").unwrap();
    let taken = repos.work(&at).unwrap();
    let plain = git_command(&user, &["rev-parse", "belljar/box"]).output().unwrap();
    assert!(plain.stderr.is_empty(), "the branch name is not ambiguous: {plain:?}");
    assert_eq!((taken.contained_in.as_deref(), taken.would_lose()), (Some("belljar/box"), None));
    assert_eq!(git(&user, &["rev-parse", "belljar/box"]), work.tip);
    assert!(refused("main").contains("checked out in"), "{}", refused("main"));
    git(&user, &["worktree", "add", "-q", "../other", "-b", "other"]);
    assert!(refused("other").contains("/other;"), "{}", refused("other"));
    git(&user, &["branch", "apart", "main"]);
    git(&user, &["commit", "-q", "--allow-empty", "-m", "My own"]);
    git(&user, &["branch", "own", "main"]);
    assert!(refused("own").contains("has commits that"), "{}", refused("own"));
    branch(&work, "apart").unwrap();
    for name in ["", "-d", "HEAD", "a..b", "a b", "x.lock", "/x", "../../config", "a\nb"] {
        assert!(refused(name).contains("is not a valid branch name"), "{name}: {}", refused(name));
    }
    fs::create_dir_all(user.join(".git/rebase-merge")).unwrap();
    fs::write(user.join(".git/rebase-merge/head-name"), "refs/heads/moving\n").unwrap();
    git(&user, &["branch", "moving", "apart~1"]);
    assert!(refused("moving").contains("checked out"), "{}", refused("moving"));

    // Later work continues from that commit.
    write(&repo, "a", "2\n");
    let next = collect(&repos.state, &box_name(), &at, &repo).unwrap().unwrap();
    branch(&next, "belljar/box").unwrap();
    assert_eq!(git(&user, &["show", "belljar/box:a"]), "2");
    // Work that was read but not collected is not in the user's repository, so no branch can point to it.
    write(&repo, "a", "3\n");
    let not_collected = repos.work(&at).unwrap();
    assert!(branch(&not_collected, "belljar/box").is_err());
}

#[test]
fn c02_c04_clone_shares_no_files_settings_or_other_branches_with_its_source() {
    use std::os::unix::fs::MetadataExt as _;
    let repos = Repos::new();
    let user = repos.user();
    let secret = repos.commit("On another branch");
    git(&user, &["branch", "private"]);
    git(&user, &["tag", "v1"]);
    git(&user, &["reset", "-q", "--hard", "HEAD~1"]);
    git(&user, &["remote", "add", "origin", "https://user:token@example.org/x.git"]);
    git(&user, &["config", "alias.st", "!touch fired"]);
    write(&user, ".git/hooks/post-checkout", "#!/bin/sh\n");
    let at = repos.clone(false).at;
    let repo = repos.repo();
    let root = is_root();
    for (path, _) in read_tree(&repo) {
        let meta = path.symlink_metadata().unwrap();
        assert_eq!(meta.nlink(), 1, "{}", path.display());
        assert!(!root || meta.uid() == 65534, "{} belongs to root", path.display());
    }
    assert_eq!(fs::read_to_string(repo.join("src/lib.rs")).unwrap(), "one\n");
    let config = fs::read_to_string(repo.join(".git/config")).unwrap();
    for text in ["remote", "example.org/x", "token", "alias", "hooks"] {
        assert!(!config.contains(text), "{config}");
    }
    assert_eq!(git(&repo, &["config", "user.email"]), "ada@example.org");
    assert_eq!(git(&repo, &["config", "commit.gpgsign"]), "false");
    assert!(
        !repo.join(".git/hooks").exists() && !repo.join(".git/objects/info/alternates").exists()
    );
    assert_eq!(git(&repo, &["for-each-ref", "--format=%(refname)"]), "refs/heads/main");
    assert!(!git_command(&repo, &["cat-file", "-e", &secret]).status().unwrap().success());
    assert!(git(&repo, &["status", "--porcelain"]).is_empty());
    assert!(repos.work(&at).is_none());
}

#[test]
fn clone_reports_or_includes_uncommitted_changes_and_leaves_the_source_unchanged() {
    let repos = Repos::new();
    let user = repos.user();
    repos.write(".gitignore", "ignored\n");
    repos.write("gone", "x\n");
    repos.commit("More");
    repos.write("src/lib.rs", "staged\n");
    git(&user, &["add", "src/lib.rs"]);
    repos.write("README.md", "changed\n");
    repos.write("later", "staged first\n");
    git(&user, &["add", "later"]);
    repos.write("later", "and changed again\n");
    fs::remove_file(user.join("gone")).unwrap();
    repos.write("untracked :(x) é", "new\n");
    repos.write("ignored", "no\n");
    repos.write("excluded", "no\n");
    fs::write(user.join(".git/info/exclude"), "excluded\n").unwrap();
    let before = (read_tree(&user), git(&user, &["status", "--porcelain"]));

    let cloned = repos.clone(false);
    assert_eq!(
        cloned.remarks,
        ["uncommitted changes of 5 files are not in the box; use `--uncommitted` to copy them"]
    );
    assert_eq!(git(&repos.repo(), &["status", "--porcelain"]), "");
    assert_eq!(cloned.at.base, cloned.at.from);
    fs::remove_dir_all(repos.repo()).unwrap();

    let cloned = repos.clone(true);
    let repo = repos.repo();
    assert_eq!(before, (read_tree(&user), git(&user, &["status", "--porcelain"])));
    for (path, content) in [
        ("src/lib.rs", Some("staged\n")),
        ("README.md", Some("changed\n")),
        ("later", Some("and changed again\n")),
        ("untracked :(x) é", Some("new\n")),
        ("gone", None),
        ("ignored", None),
        ("excluded", None),
        (".git/info/exclude", None),
        (".git/belljar-index", None),
    ] {
        assert_eq!(fs::read_to_string(repo.join(path)).ok().as_deref(), content, "{path}");
    }
    assert_eq!(git(&repo, &["status", "--porcelain"]), "");
    assert_ne!(cloned.at.base, cloned.at.from);
    assert!(git(&repo, &["fsck"]).is_empty(), "the clone has all its objects");
    assert!(repos.work(&cloned.at).is_none(), "the user's changes are not the box's work");
    // If the agent drops the user's uncommitted changes, dropping them is part of its work.
    git(&repo, &["reset", "-q", "--hard", "HEAD~1"]);
    write(&repo, "more", "x\n");
    let work = repos.work(&cloned.at).unwrap();
    assert!(
        file_changes(&work).contains(&("gone".to_owned(), "added")),
        "{:?}",
        file_changes(&work)
    );
    assert_eq!(work.files.len(), 6);
}

#[test]
fn work_has_remarks_about_branches_and_ignored_files_that_stay_in_the_box() {
    let repos = Repos::new();
    let repo = repos.repo();
    let at = repos.clone(false).at;
    git(&repo, &["checkout", "-q", "-b", "idea"]);
    commit(&repo, "An idea");
    git(&repo, &["checkout", "-q", "main"]);
    let work = repos.work(&at).unwrap();
    assert!(work.is_empty() && work.files.is_empty());
    assert!(work.would_lose().unwrap().contains("not checked out"));
    assert!(
        work.remarks[0].starts_with("the ref idea in the box has a commit"),
        "{:?}",
        work.remarks
    );
    save_work(&at, &work, &box_name()).unwrap();
    write(&repo, ".gitignore", "out/\n");
    write(&repo, "out/x", "x\n");
    git(&repo, &["init", "-q", "dep"]);
    commit(&repo.join("dep"), "Theirs");
    git(&repo, &["init", "-q", "unborn"]);
    write(&repo, "unborn/x", "x\n");
    let work = repos.work(&at).unwrap();
    let remarks = work.remarks.join("\n");
    assert!(remarks.contains("1 file or directory that git ignores"), "{remarks}");
    assert!(remarks.contains("could not be read"), "{remarks}");
    let dep = work.files.iter().find(|file| file.path == Path::new("dep")).unwrap();
    assert!(dep.risky.as_ref().unwrap().contains("a submodule"), "{dep:?}");
}

#[test]
fn unreadable_repository_of_a_box_is_an_error_and_not_taken_as_empty_work() {
    let repos = Repos::new();
    let at = repos.clone(false).at;
    let repo = repos.repo();
    write(&repo, "work", "precious\n");
    fs::rename(repo.join(".git"), repos.top.join("away")).unwrap();
    assert!(
        repos.work_error(&at).contains("the workspace is no longer a git repository"),
        "{}",
        repos.work_error(&at)
    );
    fs::rename(repos.top.join("away"), repo.join(".git")).unwrap();
    assert!(repos.work(&at).is_some());
    fs::rename(repos.user(), repos.top.join("elsewhere")).unwrap();
    assert!(
        repos.work_error(&at).contains("cannot find the repository"),
        "{}",
        repos.work_error(&at)
    );
}

#[test]
fn changed_files_that_a_rule_denies_are_marked_with_the_rule() {
    let repos = Repos::new();
    let at = repos.clone(false).at;
    write(&repos.repo(), "src/lib.rs", "x\n");
    write(&repos.repo(), "docs/x", "x\n");
    let mut work = repos.work(&at).unwrap();
    work.deny(&|path| path.starts_with("src").then(|| "Edit(src/**)".to_owned()));
    let denied: Vec<_> = work.files.iter().map(|file| file.denied.as_deref()).collect();
    assert_eq!(denied, [None, Some("Edit(src/**)")]);
}

#[test]
fn f13_diffs_and_commit_subjects_from_a_box_contain_no_control_characters() {
    let repos = Repos::new();
    let at = repos.clone(false).at;
    let repo = repos.repo();
    write(&repo, "a\u{1b}[2Jb", "x\u{1b}]0;title\u{7}\r\n");
    git(&repo, &["add", "-A"]);
    git(
        &repo,
        &["commit", "-q", "--author", "E\u{1b}[31m <e@e>", "-m", "Sub\u{1b}[2Jject\u{202e}"],
    );
    let work = repos.work(&at).unwrap();
    let texts = [
        diff(&work, DiffStyle::default()).unwrap(),
        diff(&work, DiffStyle { stat: true, ..DiffStyle::default() }).unwrap(),
        work.commits[0].subject.clone(),
        work.commits[0].author.clone(),
    ];
    for text in texts {
        let is_unsafe = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || c == '\u{202e}';
        assert!(!text.contains(is_unsafe), "{text:?}");
    }
    assert!(
        work.files[0].path.to_str().unwrap().contains('\u{1b}'),
        "the path itself is not escaped"
    );
}
