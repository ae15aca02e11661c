//! Objects that no honest git makes, as a sealed box might hand them over.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use belljar_model::RepoAt;
use belljar_testkit::{commit, git, git_command, is_root, picture, write_file};

use super::incoming::Incoming;
use super::reader::Answer;
use super::work::judge;
use super::{CloneSpec, Work, clone, look};
use crate::scope::{Scoped, of_test};

/// A user's repository with one commit, a state directory, and a clone for one box.
struct Bench {
    _dir: tempfile::TempDir,
    top: PathBuf,
    state: Scoped,
    at: RepoAt,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (_, top) = belljar_box::open(dir.path()).unwrap();
        let (user, state) = (top.join("user"), of_test(&top.join("state")));
        write_file(&user, "README.md", "hello\n");
        git(&user, &["init", "-q", "-b", "main"]);
        commit(&user, "Begin");
        let (ada, name) = ("Ada <ada@example.org>".parse().unwrap(), "box".parse().unwrap());
        let wish = CloneSpec { branch: None, uncommitted: false, identity: &ada, name: &name };
        // Root's boxes have the owner's files under an id of their own.
        let owner = is_root().then_some((65534, 65534));
        let source = look(&state, &user).unwrap();
        let at = clone(&source, &wish, &top.join("state/repo"), owner).unwrap().at;
        Self { _dir: dir, top, state, at }
    }

    fn user(&self) -> PathBuf {
        self.top.join("user")
    }

    /// Where the box's clone is.
    fn repo(&self) -> PathBuf {
        self.top.join("state/repo")
    }
}

/// Writes an object as it is, whatever git thinks of it.
fn object(repo: &Path, kind: &str, content: &[u8]) -> String {
    let args = ["hash-object", "-t", kind, "--literally", "-w", "--stdin"];
    let mut command = git_command(repo, &args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(content).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// One entry of a tree.
fn entry(mode: &str, name: &str, oid: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&oid[at..at + 2], 16).unwrap();
    let mut entry = format!("{mode} {name}\0").into_bytes();
    entry.extend((0..oid.len()).step_by(2).map(byte));
    entry
}

fn commit_of(repo: &Path, tree: &str, parent: &str) -> String {
    let by = "T <t@t> 1700000000 +0000";
    let parent = if parent.is_empty() { String::new() } else { format!("parent {parent}\n") };
    let text = format!("tree {tree}\n{parent}author {by}\ncommitter {by}\n\nEvil\n");
    object(repo, "commit", text.as_bytes())
}

/// A pack of exactly these objects.
fn pack(repo: &Path, oids: &[&str]) -> Vec<u8> {
    let mut command = git_command(repo, &["pack-objects", "--stdout", "-q"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(oids.join("\n").as_bytes()).unwrap();
    child.wait_with_output().unwrap().stdout
}

fn take(bench: &Bench, at: &RepoAt, tip: &str, pack: &[u8]) -> anyhow::Result<Option<Work>> {
    let path = bench.top.join("pack");
    fs::write(&path, pack).unwrap();
    let answer = Answer { tip: Some(tip.to_owned()), has_pack: true, ..Answer::default() };
    judge(at, &answer, File::open(&path).unwrap(), Incoming::new(&bench.state).unwrap())
}

#[test]
fn c04_c10_objects_that_would_harm_a_checkout_are_refused() {
    let bench = Bench::new();
    let at = bench.at.clone();
    let repo = bench.repo();
    let before = picture(&bench.user());
    let base = at.base.clone().unwrap();
    let blob = object(&repo, "blob", b"#!/bin/sh\n");
    let link = object(&repo, "blob", b"/etc");
    let url = "[submodule \"x\"]\n\tpath = x\n\turl = --upload-pack=touch /tmp/x\n";
    let modules = object(&repo, "blob", url.as_bytes());
    let nested = object(&repo, "tree", &entry("100755", "post-checkout", &blob));
    let lone = |mode: &str, name: &str, oid: &str| object(&repo, "tree", &entry(mode, name, oid));
    let twice = [entry("120000", "a", &link), entry("40000", "a", &nested)].concat();
    let trees = [
        lone("40000", ".git", &nested),
        lone("40000", ".GiT", &nested),
        lone("40000", "GIT~1", &nested),
        lone("40000", ".g\u{200c}it", &nested),
        lone("40000", "..", &nested),
        lone("40000", ".", &nested),
        lone("100644", "a/b", &blob),
        lone("100644", "", &blob),
        lone("120000", ".gitmodules", &link),
        lone("100644", ".gitmodules", &modules),
        object(&repo, "tree", &twice),
        object(&repo, "tree", b"100644 broken"),
    ];
    for (index, tree) in trees.iter().enumerate() {
        let tip = commit_of(&repo, tree, &base);
        let pack = pack(&repo, &[&tip, tree, &nested, &blob, &link, &modules]);
        let refused = take(&bench, &at, &tip, &pack).unwrap_err();
        assert!(format!("{refused:#}").contains("not sound"), "{index}: {refused:#}");
    }
    // Git that is not told to look takes the first of them.
    let tip = commit_of(&repo, &trees[0], &base);
    let pack = pack(&repo, &[&tip, &trees[0], &nested, &blob]);
    fs::write(bench.top.join("pack"), pack).unwrap();
    git(&bench.top, &["clone", "-q", "--bare", "user", "control"]);
    let mut command = git_command(&bench.top.join("control"), &["index-pack", "--stdin"]);
    command.stdin(File::open(bench.top.join("pack")).unwrap());
    assert!(command.status().unwrap().success());
    assert_eq!(before, picture(&bench.user()), "none of it is in the user's repository");
    assert!(crate::store::is_empty(&bench.top.join("state/incoming")));
}

#[test]
fn c10_a_pack_that_is_not_what_it_says_is_refused() {
    let bench = Bench::new();
    let at = bench.at.clone();
    let repo = bench.repo();
    let before = picture(&bench.user());
    let base = at.base.clone().unwrap();
    let blob = object(&repo, "blob", b"new\n");
    let tree = object(&repo, "tree", &entry("100644", "a", &blob));
    let tip = commit_of(&repo, &tree, &base);
    let whole = pack(&repo, &[&tip, &tree, &blob]);
    let refusal =
        |tip: &str, pack: &[u8]| format!("{:#}", take(&bench, &at, tip, pack).unwrap_err());
    assert!(refusal(&tip, &pack(&repo, &[&tip, &tree])).contains("not sound"), "without its file");
    assert!(refusal(&tip, &pack(&repo, &[&tip])).contains("not sound"), "without its tree");
    assert!(refusal(&tip, b"").contains("not sound"), "nothing");
    assert!(refusal(&tip, b"PACK\0\0\0\x02").contains("not sound"), "cut short");
    let mut spoiled = whole.clone();
    *spoiled.last_mut().unwrap() ^= 1;
    assert!(refusal(&tip, &spoiled).contains("not sound"), "spoiled");
    assert!(refusal(&blob, &whole).contains("did not come"), "a file is no commit");
    assert!(refusal(&"0".repeat(40), &whole).contains("did not come"), "one that is not there");
    let orphan = commit_of(&repo, &tree, &"1".repeat(40));
    let pack = pack(&repo, &[&orphan, &tree, &blob]);
    assert!(
        refusal(&orphan, &pack).contains("missing")
            || refusal(&orphan, &pack).contains("not sound")
    );
    assert_eq!(before, picture(&bench.user()));
    let work = take(&bench, &at, &tip, &whole).unwrap().unwrap();
    assert_eq!(work.tip, tip, "an honest one is taken");
}

#[test]
fn a_few_objects_that_stand_for_billions_of_files_are_refused_in_time() {
    let bench = Bench::new();
    let at = bench.at.clone();
    let repo = bench.repo();
    let mut all = vec![object(&repo, "blob", b"x")];
    for level in 0..12 {
        let (mode, last) = (if level == 0 { "100644" } else { "40000" }, all.last().unwrap());
        let tree: Vec<u8> =
            (0..10).flat_map(|index| entry(mode, &format!("d{index}"), last)).collect();
        all.push(object(&repo, "tree", &tree));
    }
    all.push(commit_of(&repo, all.last().unwrap(), &at.base.clone().unwrap()));
    let oids: Vec<&str> = all.iter().map(String::as_str).collect();
    let pack = pack(&repo, &oids);
    assert!(pack.len() < 8192, "it is small: {}", pack.len());
    let refused = take(&bench, &at, all.last().unwrap(), &pack).unwrap_err();
    assert!(format!("{refused:#}").contains("says more than"), "{refused:#}");
}
