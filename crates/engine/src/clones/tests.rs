//! Tests the import of malformed objects that a hostile sealed box might send.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use belljar_model::RepoAt;
use belljar_testkit::{commit, git, git_command, is_root, read_tree, write_file};

use super::incoming::Incoming;
use super::reader::ReadHeader;
use super::work::import;
use super::{CloneSpec, Work, clone, find_source};
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
        let spec = CloneSpec { branch: None, uncommitted: false, identity: &ada, name: &name };
        // As root, the clone must belong to another user, as the files of a box do.
        let owner = is_root().then_some((65534, 65534));
        let source = find_source(&state, &user).unwrap();
        let at = clone(&source, &spec, &top.join("state/repo"), owner).unwrap().at;
        Self { _dir: dir, top, state, at }
    }

    fn user(&self) -> PathBuf {
        self.top.join("user")
    }

    /// Returns the directory of the box's clone.
    fn repo(&self) -> PathBuf {
        self.top.join("state/repo")
    }
}

/// Writes a git object without any check and returns its id.
fn object(repo: &Path, kind: &str, content: &[u8]) -> String {
    let args = ["hash-object", "-t", kind, "--literally", "-w", "--stdin"];
    let mut command = git_command(repo, &args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(content).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns the bytes of one entry of a tree object.
fn entry(mode: &str, name: &str, oid: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&oid[at..at + 2], 16).unwrap();
    let mut entry = format!("{mode} {name}\0").into_bytes();
    entry.extend((0..oid.len()).step_by(2).map(byte));
    entry
}

/// Writes a commit object and returns its id.
fn commit_of(repo: &Path, tree: &str, parent: &str) -> String {
    let by = "T <t@t> 1700000000 +0000";
    let parent = if parent.is_empty() { String::new() } else { format!("parent {parent}\n") };
    let text = format!("tree {tree}\n{parent}author {by}\ncommitter {by}\n\nEvil\n");
    object(repo, "commit", text.as_bytes())
}

/// Returns a pack that contains exactly these objects.
fn pack(repo: &Path, oids: &[&str]) -> Vec<u8> {
    let mut command = git_command(repo, &["pack-objects", "--stdout", "-q"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(oids.join("\n").as_bytes()).unwrap();
    child.wait_with_output().unwrap().stdout
}

/// Imports a pack as if the sealed box had sent it with this last commit.
fn import_pack(bench: &Bench, at: &RepoAt, tip: &str, pack: &[u8]) -> anyhow::Result<Option<Work>> {
    let path = bench.top.join("pack");
    fs::write(&path, pack).unwrap();
    let header = ReadHeader { tip: Some(tip.to_owned()), has_pack: true, ..ReadHeader::default() };
    import(
        at,
        &header,
        File::open(&path).unwrap(),
        Incoming::new(&bench.state, &at.git_dir).unwrap(),
    )
}

#[test]
fn c04_c10_import_refuses_objects_that_would_harm_a_checkout() {
    let bench = Bench::new();
    let at = bench.at.clone();
    let repo = bench.repo();
    let before = read_tree(&bench.user());
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
        let refused = import_pack(&bench, &at, &tip, &pack).unwrap_err();
        assert!(format!("{refused:#}").contains("are invalid"), "{index}: {refused:#}");
    }
    // Control: without `--strict`, git accepts the first of these trees.
    let tip = commit_of(&repo, &trees[0], &base);
    let pack = pack(&repo, &[&tip, &trees[0], &nested, &blob]);
    fs::write(bench.top.join("pack"), pack).unwrap();
    git(&bench.top, &["clone", "-q", "--bare", "user", "control"]);
    let mut command = git_command(&bench.top.join("control"), &["index-pack", "--stdin"]);
    command.stdin(File::open(bench.top.join("pack")).unwrap());
    assert!(command.status().unwrap().success());
    assert_eq!(before, read_tree(&bench.user()), "the user's repository is unchanged");
    assert!(crate::store::is_empty(&bench.top.join("state/incoming")));
}

#[test]
fn c10_import_refuses_an_incomplete_or_corrupt_pack() {
    let bench = Bench::new();
    let at = bench.at.clone();
    let repo = bench.repo();
    let before = read_tree(&bench.user());
    let base = at.base.clone().unwrap();
    let blob = object(&repo, "blob", b"new\n");
    let tree = object(&repo, "tree", &entry("100644", "a", &blob));
    let tip = commit_of(&repo, &tree, &base);
    let whole = pack(&repo, &[&tip, &tree, &blob]);
    let refusal =
        |tip: &str, pack: &[u8]| format!("{:#}", import_pack(&bench, &at, tip, pack).unwrap_err());
    assert!(
        refusal(&tip, &pack(&repo, &[&tip, &tree])).contains("are invalid"),
        "pack without the file"
    );
    assert!(refusal(&tip, &pack(&repo, &[&tip])).contains("are invalid"), "pack without the tree");
    assert!(refusal(&tip, b"").contains("are invalid"), "empty pack");
    assert!(refusal(&tip, b"PACK\0\0\0\x02").contains("are invalid"), "truncated pack");
    let mut corrupt = whole.clone();
    *corrupt.last_mut().unwrap() ^= 1;
    assert!(refusal(&tip, &corrupt).contains("are invalid"), "corrupt pack");
    assert!(
        refusal(&blob, &whole).contains("is not in its pack"),
        "the id of a file instead of a commit"
    );
    assert!(
        refusal(&"0".repeat(40), &whole).contains("is not in its pack"),
        "the id of a missing object"
    );
    let orphan = commit_of(&repo, &tree, &"1".repeat(40));
    let pack = pack(&repo, &[&orphan, &tree, &blob]);
    assert!(
        refusal(&orphan, &pack).contains("missing")
            || refusal(&orphan, &pack).contains("are invalid")
    );
    assert_eq!(before, read_tree(&bench.user()));
    let work = import_pack(&bench, &at, &tip, &whole).unwrap().unwrap();
    assert_eq!(work.tip, tip, "a complete pack is imported");
}

#[test]
fn import_refuses_a_small_pack_that_describes_billions_of_files() {
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
    let base = at.base.clone().unwrap();
    let huge = commit_of(&repo, all.last().unwrap(), &base);
    // A commit after the huge one has few files again.
    let restored =
        commit_of(&repo, &git(&repo, &["rev-parse", &format!("{base}^{{tree}}")]), &huge);
    for (tip, expected) in [
        (&huge, "exceeds the limit"),
        (&restored, "cannot compare the commits of the box with their parents"),
    ] {
        let mut oids: Vec<&str> = all.iter().map(String::as_str).collect();
        oids.extend([huge.as_str(), tip.as_str()]);
        let pack = pack(&repo, &oids);
        assert!(pack.len() < 8192, "the pack is small: {}", pack.len());
        let refused = import_pack(&bench, &at, tip, &pack).unwrap_err();
        assert!(format!("{refused:#}").contains(expected), "{refused:#}");
    }
}
