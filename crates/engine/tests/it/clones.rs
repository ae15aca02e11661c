//! Private clones and the way back: real repositories, a real git, and real sealed boxes.

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
use belljar_testkit::{commit, git, git_command, is_root, picture, write_file as write};

use crate::bench::{self, Bench};

/// A user's repository, a state directory, and a clone for one box.
struct Repos {
    bench: Bench,
    top: PathBuf,
    state: Scoped,
}

impl Repos {
    /// With one commit of two files on `main`.
    fn new() -> Self {
        let repos = Self::empty();
        repos.write("src/lib.rs", "one\n");
        repos.write("README.md", "hello\n");
        repos.commit("Begin");
        repos
    }

    fn empty() -> Self {
        let bench = Bench::new();
        let (_, top) = belljar_box::open(bench.lab.dir()).unwrap();
        fs::create_dir(top.join("user")).unwrap();
        let repos = Self { top, state: bench.state.clone(), bench };
        git(&repos.user(), &["init", "-q", "-b", "main"]);
        repos
    }

    /// An engine on another state directory.
    fn open(&self, home: &Path) -> Scoped {
        bench::open_engine(&self.bench.lab, home).unwrap()
    }

    fn user(&self) -> PathBuf {
        self.top.join("user")
    }

    /// Where the box's clone is.
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
        let (ada, name) = (ada(), boxed());
        let wish = CloneSpec { branch: None, uncommitted, identity: &ada, name: &name };
        self.clone_as(&self.user(), &wish).unwrap()
    }

    fn clone_as(&self, from: &Path, wish: &CloneSpec<'_>) -> Result<Cloned, EngineError> {
        // Root's boxes have the owner's files under an id of their own.
        let owner = is_root().then_some((65534, 65534));
        clone(&find_source(&self.state, from)?, wish, &self.repo(), owner)
    }

    fn work(&self, at: &RepoAt) -> Option<Work> {
        read_work(&self.state, &boxed(), at, &self.repo()).unwrap()
    }

    /// Why the work cannot be had.
    fn refusal(&self, at: &RepoAt) -> String {
        let failure = read_work(&self.state, &boxed(), at, &self.repo()).unwrap_err();
        format!("{failure:#}")
    }
}

fn boxed() -> BoxName {
    "box".parse().unwrap()
}

fn ada() -> Identity {
    "Ada Lovelace <ada@example.org>".parse().unwrap()
}

/// The work of a box, on `refs/belljar/work/NAME` of the user's repository.
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

fn names(work: &Work) -> Vec<(String, &'static str)> {
    let name = |file: &FileChange| (file.path.display().to_string(), file.kind.name());
    work.files.iter().map(name).collect()
}

#[test]
fn work_comes_back_as_commits_and_nothing_else_changes() {
    let repos = Repos::new();
    let (user, repo) = (repos.user(), repos.repo());
    let cloned = repos.clone(false);
    assert_eq!(cloned.remarks, Vec::<String>::new());
    assert_eq!((cloned.at.branch.as_str(), &cloned.at.path), ("main", &user));
    assert!(repos.work(&cloned.at).is_none(), "nothing was done yet");

    write(&repo, "src/lib.rs", "two\n");
    let first = commit(&repo, "Say two");
    fs::remove_file(repo.join("README.md")).unwrap();
    write(&repo, "new file.txt", "new\n");
    let before = picture(&user);
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
    assert_eq!(names(&work), expect.map(|(path, kind)| (path.to_owned(), kind)));
    let text = diff(&cloned.at, &work, DiffStyle::default()).unwrap();
    assert!(text.contains("-one\n+two\n") && text.contains("deleted file"), "{text}");
    let one = DiffStyle { paths: &[Path::new("src")], colour: true, ..DiffStyle::default() };
    let text = diff(&cloned.at, &work, one).unwrap();
    assert!(text.contains("\u{1b}[32m+two\u{1b}[m\n") && !text.contains("README"), "{text}");
    let stat = diff(&cloned.at, &work, DiffStyle { stat: true, ..DiffStyle::default() }).unwrap();
    assert!(stat.contains("3 files changed"), "{stat}");
    assert_eq!(before, picture(&user), "to look changes nothing");

    // The same again is the same commit.
    let kept = collect(&repos.state, &boxed(), &cloned.at, &repo).unwrap().unwrap();
    assert_eq!(kept.tip, work.tip);
    assert_eq!(git(&user, &["rev-parse", "refs/belljar/work/box"]), work.tip);
    let news: Vec<PathBuf> = picture(&user)
        .into_iter()
        .filter(|file| !before.contains(file))
        .map(|(path, _)| path.strip_prefix(user.join(".git")).unwrap().to_owned())
        .collect();
    let is_new = |path: &PathBuf| {
        path.starts_with("objects/pack") || path == Path::new("refs/belljar/work/box")
    };
    assert!(news.iter().all(is_new) && !news.is_empty(), "{news:?}");
    assert!(git(&user, &["fsck", "--strict"]).is_empty());
    assert!(is_empty(&repos.top.join("state/incoming/x")), "nothing is left");
    drop((work, kept));
    assert!(is_empty(&repos.top.join("state/incoming")), "nothing is left");
}

#[test]
fn a_branch_is_made_or_moved_forward_and_never_pulled_from_under_anybody() {
    let repos = Repos::new();
    let (user, repo) = (repos.user(), repos.repo());
    let at = repos.clone(false).at;
    write(&repo, "a", "1\n");
    commit(&repo, "One");
    let work = collect(&repos.state, &boxed(), &at, &repo).unwrap().unwrap();
    let refused = |name: &str| format!("{:#}", branch(&at, &work, name).unwrap_err());
    assert_eq!(repos.work(&at).unwrap().would_lose().unwrap(), "1 commit with changes to 1 file");
    branch(&at, &work, "belljar/box").unwrap();
    branch(&at, &work, "belljar/box").unwrap();
    let taken = repos.work(&at).unwrap();
    let plain = git_command(&user, &["rev-parse", "belljar/box"]).output().unwrap();
    assert!(plain.stderr.is_empty(), "the name means the branch alone: {plain:?}");
    assert_eq!((taken.contained_in.as_deref(), taken.would_lose()), (Some("belljar/box"), None));
    assert_eq!(git(&user, &["rev-parse", "belljar/box"]), work.tip);
    assert!(refused("main").contains("checked out in"), "{}", refused("main"));
    git(&user, &["worktree", "add", "-q", "../other", "-b", "other"]);
    assert!(refused("other").contains("/other;"), "{}", refused("other"));
    git(&user, &["branch", "apart", "main"]);
    git(&user, &["commit", "-q", "--allow-empty", "-m", "My own"]);
    git(&user, &["branch", "own", "main"]);
    assert!(refused("own").contains("has commits that"), "{}", refused("own"));
    branch(&at, &work, "apart").unwrap();
    for name in ["", "-d", "HEAD", "a..b", "a b", "x.lock", "/x", "../../config", "a\nb"] {
        assert!(refused(name).contains("is not a valid branch name"), "{name}: {}", refused(name));
    }
    fs::create_dir_all(user.join(".git/rebase-merge")).unwrap();
    fs::write(user.join(".git/rebase-merge/head-name"), "refs/heads/moving\n").unwrap();
    git(&user, &["branch", "moving", "apart~1"]);
    assert!(refused("moving").contains("checked out"), "{}", refused("moving"));

    // The next work goes on from there.
    write(&repo, "a", "2\n");
    let next = collect(&repos.state, &boxed(), &at, &repo).unwrap().unwrap();
    branch(&at, &next, "belljar/box").unwrap();
    assert_eq!(git(&user, &["show", "belljar/box:a"]), "2");
    // Work that was only looked at is nowhere that a branch could point to.
    write(&repo, "a", "3\n");
    let seen = repos.work(&at).unwrap();
    assert!(branch(&at, &seen, "belljar/box").is_err());
}

#[test]
fn c02_c04_a_clone_shares_nothing_with_the_repository_it_is_from() {
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
    for (path, _) in picture(&repo) {
        let meta = path.symlink_metadata().unwrap();
        assert_eq!(meta.nlink(), 1, "{}", path.display());
        assert!(!root || meta.uid() == 65534, "{} is root's", path.display());
    }
    assert_eq!(fs::read_to_string(repo.join("src/lib.rs")).unwrap(), "one\n");
    let config = fs::read_to_string(repo.join(".git/config")).unwrap();
    for word in ["remote", "example.org/x", "token", "alias", "hooks"] {
        assert!(!config.contains(word), "{config}");
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
fn what_is_not_committed_is_said_or_taken_along_and_stays_as_it_was() {
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
    let before = (picture(&user), git(&user, &["status", "--porcelain"]));

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
    assert_eq!(before, (picture(&user), git(&user, &["status", "--porcelain"])));
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
    assert!(git(&repo, &["fsck"]).is_empty(), "it needs nothing of the user's");
    assert!(repos.work(&cloned.at).is_none(), "the user's changes are not the box's work");
    // Nor after the agent has thrown them away: then that is the work.
    git(&repo, &["reset", "-q", "--hard", "HEAD~1"]);
    write(&repo, "more", "x\n");
    let work = repos.work(&cloned.at).unwrap();
    assert!(names(&work).contains(&("gone".to_owned(), "added")), "{:?}", names(&work));
    assert_eq!(work.files.len(), 6);
}

#[test]
fn what_stays_in_the_box_is_said() {
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
    save_work(&at, &work, &boxed()).unwrap();
    write(&repo, ".gitignore", "out/\n");
    write(&repo, "out/x", "x\n");
    git(&repo, &["init", "-q", "dep"]);
    commit(&repo.join("dep"), "Theirs");
    git(&repo, &["init", "-q", "unborn"]);
    write(&repo, "unborn/x", "x\n");
    let work = repos.work(&at).unwrap();
    let said = work.remarks.join("\n");
    assert!(said.contains("1 file or directory that git ignores"), "{said}");
    assert!(said.contains("could not be read"), "{said}");
    let dep = work.files.iter().find(|file| file.path == Path::new("dep")).unwrap();
    assert!(dep.risky.as_ref().unwrap().contains("a submodule"), "{dep:?}");
}

#[test]
fn a_repository_that_cannot_be_read_is_not_taken_for_one_without_work() {
    let repos = Repos::new();
    let at = repos.clone(false).at;
    let repo = repos.repo();
    write(&repo, "work", "precious\n");
    fs::rename(repo.join(".git"), repos.top.join("away")).unwrap();
    assert!(
        repos.refusal(&at).contains("the workspace is no longer a git repository"),
        "{}",
        repos.refusal(&at)
    );
    fs::rename(repos.top.join("away"), repo.join(".git")).unwrap();
    assert!(repos.work(&at).is_some());
    fs::rename(repos.user(), repos.top.join("elsewhere")).unwrap();
    assert!(repos.refusal(&at).contains("cannot find the repository"), "{}", repos.refusal(&at));
}

#[test]
fn denied_paths_are_marked_by_the_rule_that_keeps_them_out() {
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
fn f13_names_and_subjects_from_a_box_only_draw() {
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
        diff(&at, &work, DiffStyle::default()).unwrap(),
        diff(&at, &work, DiffStyle { stat: true, ..DiffStyle::default() }).unwrap(),
        work.commits[0].subject.clone(),
        work.commits[0].author.clone(),
    ];
    for text in texts {
        let bad = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || c == '\u{202e}';
        assert!(!text.contains(bad), "{text:?}");
    }
    assert!(work.files[0].path.to_str().unwrap().contains('\u{1b}'), "the name itself is kept");
}
