//! Boxes with a private clone of a repository: `apply` brings their work back as a branch.

use std::collections::BTreeSet;
use std::fs;

use belljar_testkit::{Lab, eventually};

use super::changes::{box_dir, trash_entries};
use crate::lab;

/// Creates a lab whose workspace is a Git repository with one commit.
fn lab_with_repository() -> Lab {
    let lab = lab();
    lab.write("file", "one\n");
    git(&lab, &["init", "-q", "-b", "main"]);
    git(&lab, &["add", "."]);
    git(&lab, &["commit", "-q", "-m", "first"]);
    lab
}

/// Runs git in the workspace and returns its output.
#[track_caller]
fn git(lab: &Lab, args: &[&str]) -> String {
    let author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"];
    lab.program("git").args(author).args(args).succeed()
}

/// Creates a box with a clone, runs a script in it and stops the box.
#[track_caller]
fn run_in_clone(lab: &Lab, name: &str, script: &str) {
    let script = format!("{script}; echo ready; exec sleep 1000");
    lab.belljar(["up", name, "--repo", ".", "--", "sh", "-c", &script]).succeed();
    let log = box_dir(lab, name).join("output.log");
    eventually("the script has ended", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("ready"))
    });
    lab.belljar(["stop", "--now", name]).succeed();
}

/// A script that makes one commit and one uncommitted file.
const WORK: &str = "echo two >> file; git commit -qam second; echo new > added";

#[test]
fn apply_creates_a_branch_from_a_clone_and_then_down_is_allowed() {
    let lab = lab_with_repository();
    run_in_clone(&lab, "task", WORK);
    let before = git(&lab, &["rev-parse", "HEAD"]);
    let diff = lab.belljar(["diff", "task"]).succeed();
    for line in ["+two", "+new", "second"] {
        assert!(diff.contains(line), "{line} in {diff}");
    }
    lab.belljar(["down", "task"]).run().fails_with(2, "2 commits");
    lab.belljar(["apply", "task", "--yes", "--branch"]).succeed();
    assert_eq!(git(&lab, &["show", "belljar/task:file"]), "one\ntwo");
    assert_eq!(git(&lab, &["show", "belljar/task:added"]), "new");
    lab.belljar(["apply", "task", "--yes", "--branch", "other"]).succeed();
    assert_eq!(git(&lab, &["show", "other:added"]), "new");
    lab.belljar(["apply", "task", "--yes", "--branch", "main"]).run().fails_with(2, "checked out");
    assert_eq!(git(&lab, &["rev-parse", "HEAD"]), before, "the checked-out branch is unchanged");
    assert_eq!(git(&lab, &["status", "--porcelain"]), "");
    assert_eq!(fs::read_to_string(lab.workspace().join("file")).unwrap(), "one\n");
    lab.belljar(["down", "task"]).succeed();
    let log = lab.belljar(["ledger", "log"]).succeed();
    for kind in ["workspace.applying", "workspace.applied", "box.removed"] {
        assert!(log.contains(kind), "{kind} in {log}");
    }
}

#[test]
fn discard_recreates_a_clone_and_restore_brings_its_work_back() {
    let lab = lab_with_repository();
    run_in_clone(
        &lab,
        "task",
        "test -e added || { echo two >> file; git commit -qam second; echo new > added; }",
    );
    let diff = lab.belljar(["diff", "task"]).succeed();
    lab.belljar(["discard", "task", "--yes"]).run().fails_with(2, "--discard-work");
    lab.belljar(["reset", "task"]).run().fails_with(2, "--discard-work");
    lab.belljar(["discard", "task", "--discard-work"]).succeed();
    assert_eq!(lab.belljar(["diff", "task"]).succeed(), "", "no change is left");
    assert_eq!(fs::read_to_string(box_dir(&lab, "task").join("repo/file")).unwrap(), "one\n");
    lab.belljar(["restore", "task"]).succeed();
    assert_eq!(lab.belljar(["diff", "task"]).succeed(), diff, "every byte is restored");
    lab.belljar(["reset", "task", "--discard-work"]).succeed();
    assert_eq!(lab.belljar(["diff", "task"]).succeed(), "");
    lab.belljar(["start", "task"]).succeed();
    eventually("the script has run again", || {
        lab.belljar(["diff", "task"]).run().out().contains("+new")
    });
    lab.belljar(["stop", "--now", "task"]).succeed();
    let id = trash_entries(&lab)[0]["id"].as_str().unwrap().to_owned();
    lab.belljar(["restore", &id]).run().fails_with(2, "apply or discard");
}

#[test]
fn snapshot_fork_and_reset_keep_all_work_of_a_clone() {
    let lab = lab_with_repository();
    run_in_clone(&lab, "task", WORK);
    let diff = lab.belljar(["diff", "task"]).succeed();
    lab.belljar(["snapshot", "task", "good"]).succeed();
    lab.belljar(["discard", "task", "--discard-work"]).succeed();
    lab.belljar(["fork", "task@good", "copy"]).succeed();
    let copied = lab.belljar(["diff", "copy"]).succeed();
    assert!(copied.contains("+two") && copied.contains("+new"), "{copied}");
    lab.belljar(["reset", "task", "good"]).succeed();
    assert_eq!(lab.belljar(["diff", "task"]).succeed(), diff);
    lab.belljar(["apply", "copy", "--yes", "--branch"]).succeed();
    assert_eq!(git(&lab, &["show", "belljar/copy:added"]), "new");
}

#[test]
fn c06_apply_branch_refuses_files_that_the_host_would_execute_unless_named() {
    let lab = lab_with_repository();
    run_in_clone(&lab, "task", "echo evil > .envrc; git add .envrc; git commit -qm evil");
    let refused = lab.belljar(["apply", "task", "--yes", "--branch"]).run();
    refused.fails_with(1, ".envrc");
    let branch = lab.program("git").args(["rev-parse", "-q", "--verify", "belljar/task"]).run();
    assert_ne!(branch.code(), 0, "no branch was created");
    let named = ["apply", "task", "--yes", "--branch", "--include-executable", ".envrc"];
    lab.belljar(named).succeed();
    assert_eq!(
        git(&lab, &["show", "belljar/task:.envrc"]),
        "evil",
        "control: a named file is applied"
    );
}

#[test]
fn c01_changes_to_paths_with_an_edit_deny_rule_are_not_applied_from_boxes() {
    let lab = lab_with_repository();
    let rules = lab.configure("[permissions]\ndeny = [\"Edit(secret/**)\"]\n");
    let rules = rules.to_str().unwrap();
    let script =
        "mkdir -p secret; echo evil > secret/new; echo fine > added; echo ready; exec sleep 1000";
    for (name, option) in [("over", "--workspace"), ("clone", "--repo")] {
        let up = ["--config", rules, "up", name, option, ".", "--", "sh", "-c", script];
        lab.belljar(up).succeed();
        let log = box_dir(&lab, name).join("output.log");
        eventually("the script has ended", || {
            fs::read_to_string(&log).is_ok_and(|text| text.contains("ready"))
        });
        lab.belljar(["stop", "--now", name]).succeed();
    }
    lab.belljar(["apply", "over", "--yes", "--include-executable", "**"]).run();
    assert!(lab.workspace().join("added").exists(), "control: other changes are applied");
    assert!(!lab.workspace().join("secret/new").exists());
    let refused =
        lab.belljar(["apply", "clone", "--yes", "--branch", "--include-executable", "**"]);
    refused.run().fails_with(1, "secret/new");
}

#[test]
fn diff_of_a_clone_is_recorded_as_a_run_that_net_log_skips() {
    let lab = lab_with_repository();
    run_in_clone(&lab, "task", WORK);
    let run = fs::read_to_string(box_dir(&lab, "task").join("run.json")).unwrap();
    let run: serde_json::Value = serde_json::from_str(&run).unwrap();
    let created = || {
        let args = ["ledger", "log", "--kind", "run.created", "--json"];
        let text = lab.belljar(args).succeed();
        text.lines().filter(|line| line.contains("clone-reader")).count()
    };
    let before = created();
    lab.belljar(["diff", "task"]).succeed();
    assert_eq!(created(), before + 1);
    let logged = lab.belljar(["net", "log"]).run();
    let own = format!("run {} has no matching requests", run["id"].as_str().unwrap());
    logged.expect(0);
    assert!(logged.err().contains(&own), "{}", logged.err());
}

#[test]
fn runs_lists_clone_readers_only_when_their_purpose_is_requested() {
    let lab = lab_with_repository();
    run_in_clone(&lab, "task", WORK);
    lab.belljar(["run", "--name", "control", "--", "true"]).succeed();
    lab.belljar(["diff", "task"]).succeed();
    let listed = |args: &[&str]| -> Vec<serde_json::Value> {
        let text = lab.belljar(["runs", "--json"]).args(args).succeed();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let purposes = |args: &[&str]| -> BTreeSet<String> {
        let all = listed(args).into_iter();
        all.map(|run| run["purpose"].as_str().expect("a purpose").to_owned()).collect()
    };
    let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(purposes(&["--all"]), set(&["run"]));
    assert_eq!(purposes(&["--purpose", "clone-reader"]), set(&["clone-reader"]));
    assert_eq!(
        purposes(&["--purpose", "clone-reader", "--purpose", "run"]),
        set(&["clone-reader", "run"])
    );
    assert_eq!(purposes(&["--purpose", "all"]), set(&["box", "clone-reader", "run"]));

    let readers = listed(&["--purpose", "clone-reader"]);
    let newest = &readers[0];
    assert_eq!((&newest["state"], &newest["reason"]), (&"finished".into(), &"exited".into()));
    let id = newest["id"].as_str().unwrap();
    let text = lab.belljar(["runs", "--purpose", "clone-reader"]).succeed();
    let line = text.lines().next().unwrap();
    assert!(line.starts_with(id) && line.contains("  clone-reader  exited "), "{line}");
    let logged = lab.belljar(["net", "log", "--purpose", "clone-reader"]).run();
    logged.expect(0);
    let own = format!("run {id} has no matching requests");
    assert!(logged.err().contains(&own), "{}", logged.err());
}
