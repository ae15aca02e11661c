//! Pending changes of version 0.1: they can be applied, discarded and restored.

use std::fs;

use super::fixture::Fixture;

/// Asserts that a workspace has the changes of the script of the fixture.
#[track_caller]
fn assert_changed(fixture: &Fixture, workspace: &str) {
    let read = |path: &str| fixture.read(&format!("{workspace}/{path}"));
    assert_eq!(read("changed.txt"), "the user's own\nbox\n");
    assert_eq!(read("added.txt"), "new\n");
    assert_eq!(read("gone/new.txt"), "other\n");
    assert_eq!(read("new/tree/leaf"), "leaf\n");
    assert_eq!(read("numbers.txt").lines().count(), 19);
    for removed in ["removed.txt", "gone/old.txt"] {
        assert!(!fixture.path(workspace).join(removed).exists(), "{removed}");
    }
    let link = fs::read_link(fixture.path(workspace).join("link")).unwrap();
    assert_eq!(link.to_str(), Some("changed.txt"));
}

#[test]
fn apply_works_on_a_stopped_box_of_version_0_1() {
    let fixture = Fixture::unpack();
    let apply = ["apply", "plain", "--yes", "--include-executable", "**"];
    fixture.belljar(apply).succeed();
    assert_changed(&fixture, "project");
    assert!(fixture.read("project/bin/tool").contains("replaced"));
    assert_eq!(review(&fixture, "plain"), "applied");
    // Another box changed files of the same workspace. Its changes are applied as well.
    fixture.belljar(["apply", "twice", "--yes"]).succeed();
    assert_eq!(fixture.read("project/count.txt"), "2\n");
    fixture.belljar(["ledger", "verify", "--deep"]).succeed();
}

#[test]
fn apply_and_discard_work_on_runs_of_version_0_1() {
    let fixture = Fixture::unpack();
    fixture.belljar(["apply", "pending", "--yes", "--include-executable", "**"]).succeed();
    assert_changed(&fixture, "project");
    fixture.belljar(["apply", "partly", "--yes"]).succeed();
    let read = |path: &str| fixture.read(path);
    assert_eq!((read("other/second.txt"), read("other/third.txt")), ("2\n".into(), "3\n".into()));
    fixture.belljar(["discard", "second-pending", "--yes"]).succeed();
    assert!(!fixture.path("other/added.txt").exists());
    fixture.belljar(["apply", "at-once", "--yes", "--include-executable", "Makefile"]).succeed();
    assert_eq!(read("direct/Makefile"), "all:\n");
    let reviews: Vec<(String, String)> = fixture
        .objects(&["runs", "--all", "--json"])
        .iter()
        .filter(|run| ["pending", "partly", "second-pending"].iter().any(|it| run["name"] == *it))
        .map(|run| (run["name"].to_string(), run["review"].to_string()))
        .collect();
    assert_eq!(
        format!("{reviews:?}"),
        r#"[("\"second-pending\"", "\"discarded\""), ("\"partly\"", "\"applied\""), ("\"pending\"", "\"applied\"")]"#
    );
    fixture.belljar(["ledger", "verify", "--deep"]).succeed();
}

#[test]
fn apply_works_on_an_interrupted_box_of_version_0_1() {
    let fixture = Fixture::unpack();
    fixture.belljar(["apply", "killed", "--yes"]).succeed();
    assert_eq!(fixture.read("other/killed.txt"), "before the end\n");
}

#[test]
fn apply_turns_work_in_clones_of_version_0_1_into_branches() {
    let fixture = Fixture::unpack();
    let git = |args: &[&str]| fixture.program("git").args(["-C", "repo"]).args(args).succeed();
    let head = git(&["rev-parse", "HEAD"]);
    assert_eq!(git(&["log", "-1", "--format=%s", "belljar/clone-branch"]), "more on the topic");
    // A clone that is reset to a snapshot of version 0.1 has its work again.
    fixture.belljar(["discard", "clone", "--discard-work"]).succeed();
    assert_eq!(fixture.belljar(["diff", "clone"]).succeed(), "");
    fixture.belljar(["reset", "clone", "good"]).succeed();
    let diff = fixture.belljar(["diff", "clone"]).succeed();
    assert!(diff.contains("+two") && diff.contains("+new"), "{diff}");
    fixture.belljar(["apply", "clone", "--yes", "--branch"]).succeed();
    assert_eq!(git(&["show", "belljar/clone:added"]), "new");
    assert_eq!(git(&["show", "belljar/clone:src/main.rs"]), "fn main() {}\ntwo");
    fixture.belljar(["apply", "clone-dirty", "--yes", "--branch", "dirty"]).succeed();
    assert_eq!(git(&["show", "dirty:dirty.txt"]), "not committed");
    fixture.belljar(["apply", "fork-of-clone", "--yes", "--branch", "of-the-fork"]).succeed();
    assert_eq!(git(&["show", "of-the-fork:added"]), "new");
    assert_eq!(git(&["rev-parse", "HEAD"]), head, "the checked-out commit is unchanged");
    assert_eq!(fixture.read("repo/untracked.txt"), "not committed\n");
}

#[test]
fn restore_works_on_boxes_and_changes_in_the_trash_of_version_0_1() {
    let fixture = Fixture::unpack();
    fixture.belljar(["restore", "gone"]).succeed();
    let diff = fixture.belljar(["diff", "gone", "--stat"]).succeed();
    assert!(diff.contains("removed.txt") && diff.contains("new/tree/leaf"), "{diff}");
    fixture.belljar(["restore", "empty-box", "--as", "renamed"]).succeed();
    fixture.start("renamed");
    fixture.belljar(["stop", "--now", "renamed"]).succeed();
    fixture.belljar(["restore", "discards"]).succeed();
    assert!(fixture.belljar(["diff", "discards"]).succeed().contains("+lost"));
    fixture.belljar(["restore", "resets"]).succeed();
    assert!(fixture.belljar(["diff", "resets"]).succeed().contains("+work"));
    assert_eq!(fixture.read("state/boxes/resets/home/note"), "kept\n");
}

#[test]
fn fork_and_reset_work_on_snapshots_of_version_0_1() {
    let fixture = Fixture::unpack();
    fixture.belljar(["fork", "twice@first", "again"]).succeed();
    let count = |name: &str| {
        let diff = fixture.belljar(["diff", name, "--", "count.txt"]).succeed();
        diff.lines().rfind(|line| line.starts_with('+')).unwrap_or("").to_owned()
    };
    assert_eq!((count("twice"), count("again")), ("+2".into(), "+1".into()));
    fixture.belljar(["reset", "twice", "first", "--discard-work"]).succeed();
    assert_eq!(count("twice"), "+1");
    fixture.start("twice");
    assert_eq!(fixture.exec("twice", "cat count.txt"), "2");
    fixture.belljar(["stop", "--now", "twice"]).succeed();
    fixture.belljar(["snapshot", "plain", "after"]).succeed();
    fixture.belljar(["reset", "plain", "before", "--discard-work"]).succeed();
    assert!(fixture.belljar(["diff", "plain"]).succeed().contains("+new"));
}

/// Returns the state of review of the changes of a box.
fn review(fixture: &Fixture, name: &str) -> String {
    let status = &fixture.objects(&["status", name, "--json"])[0];
    status["run"]["review"].as_str().unwrap_or_default().to_owned()
}
