//! Work is never lost: whoever would lose it refuses and says what, and what goes comes back.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use belljar_testkit::{Lab, eventually};
use serde_json::Value;

use super::{state, status, up};
use crate::lab;

/// Everything beneath a directory: what it is, to whom it belongs, what it holds.
pub(super) fn contents(root: &Path) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let mut what = format!("{:o} {}:{}", meta.mode(), meta.uid(), meta.gid());
            if meta.is_dir() {
                // Overlayfs gives its own directory mode 0.
                if fs::read_dir(&path).is_ok() && !name.starts_with("work/") {
                    todo.push(path);
                }
            } else if meta.is_file() {
                let text = fs::read(&path).unwrap();
                what = format!("{what} {}", text.escape_ascii());
            } else if meta.is_symlink() {
                what = format!("{what} {}", fs::read_link(&path).unwrap().display());
            }
            seen.insert(name, what);
        }
    }
    seen
}

/// What a box holds that counts: not the files that only a running keeper needs.
pub(super) fn held(dir: &Path) -> BTreeMap<String, String> {
    let mut all = contents(dir);
    all.retain(|name, _| {
        let first = name.split('/').next().unwrap_or_default();
        ["home", "upper", "base", "snapshots"].contains(&first)
    });
    all
}

/// A stopped box that changed, added, deleted, and keeps things in its home.
pub(super) fn stopped(lab: &Lab, name: &str) {
    for path in ["changed", "removed", "dir/gone"] {
        lab.write(path, "the user's own");
    }
    let script = "echo box >> changed; echo new > added; rm removed; rm -r dir; mkdir dir; \
                  echo x > dir/other; ln -s /etc/passwd link; mkdir -p ~/deep/er; \
                  echo kept > ~/deep/er/note; chmod 500 ~/deep";
    up(lab, name, script);
    lab.belljar(["stop", "--now", name]).succeed();
}

pub(super) fn dir(lab: &Lab, name: &str) -> std::path::PathBuf {
    lab.state().join("boxes").join(name)
}

/// What the box wrote.
pub(super) fn output(lab: &Lab, name: &str) -> String {
    fs::read_to_string(dir(lab, name).join("output.log")).unwrap_or_default()
}

/// Starts a box again and lets its program come to the end of its script.
#[track_caller]
pub(super) fn again(lab: &Lab, name: &str) {
    let before = output(lab, name).matches("ready").count();
    lab.belljar(["start", name]).succeed();
    eventually("the program is at work again", || {
        output(lab, name).matches("ready").count() > before
    });
    lab.belljar(["stop", "--now", name]).succeed();
}

/// What is in the trash.
#[track_caller]
pub(super) fn trash(lab: &Lab) -> Vec<Value> {
    let out = lab.belljar(["restore", "--json"]).succeed();
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn down_refuses_to_discard_unapplied_changes_and_restore_brings_a_box_back() {
    let lab = lab();
    stopped(&lab, "task");
    let before = held(&dir(&lab, "task"));
    let diff = lab.belljar(["diff", "task"]).succeed();
    let refused = lab.belljar(["down", "task"]).run();
    refused.complains(2, "--discard-work");
    for path in ["added", "changed", "belljar apply task", "belljar diff task"] {
        assert!(refused.err().contains(path), "{}", refused.err());
    }
    assert_eq!(held(&dir(&lab, "task")), before, "a refusal changes nothing");

    lab.belljar(["down", "--discard-work", "task"]).succeed();
    assert_eq!(lab.boxes(), Vec::<String>::new());
    lab.belljar(["diff", "task"]).run().complains(2, "task");
    let kept = trash(&lab);
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!((&kept[0]["name"], &kept[0]["what"]), (&"task".into(), &"box".into()));
    assert!(kept[0]["unapplied"].as_str().unwrap().contains("added"), "{kept:?}");

    // While the name is taken by another box, the old one can come back beside it.
    up(&lab, "task", "true");
    lab.belljar(["restore", "task"]).run().complains(2, "--as");
    lab.belljar(["restore", "task", "--as", "old"]).succeed();
    assert_eq!(held(&dir(&lab, "old")), before, "byte by byte");
    assert_eq!(lab.belljar(["diff", "old"]).succeed(), diff);
    assert_eq!(status(&lab, "old")["name"], "old");
    assert_eq!(trash(&lab), Vec::<Value>::new());
    again(&lab, "old");
    lab.belljar(["apply", "old", "--yes", "--include-executable", "**"]).succeed();
    assert_eq!(fs::read_to_string(lab.workspace().join("added")).unwrap(), "new\n");
    let log = lab.belljar(["ledger", "log"]).succeed();
    for kind in ["box.removed", "box.restored"] {
        assert!(log.contains(kind), "{log}");
    }
}

#[test]
fn down_does_not_stop_a_running_box_that_has_unapplied_changes() {
    let lab = lab();
    up(&lab, "task", "echo new > added");
    lab.belljar(["down", "task"]).run().complains(2, "added");
    assert_eq!(state(&lab, "task"), "running");
    let live = lab.belljar(["diff", "task"]).succeed();
    assert!(live.contains("+new"), "what it does is seen while it does it: {live}");
    lab.belljar(["apply", "task", "--yes"]).run().complains(2, "belljar stop task");
    lab.belljar(["discard", "task", "--discard-work"]).run().complains(2, "belljar stop task");
    lab.belljar(["down", "task", "--discard-work"]).succeed();
    lab.belljar(["restore", "task"]).succeed();
    assert_eq!(state(&lab, "task"), "stopped");
    let diff = lab.belljar(["diff", "task"]).succeed();
    assert!(diff.contains("+new"), "{diff}");
}

#[test]
fn discard_requires_discard_work_and_restore_undoes_it() {
    let lab = lab();
    stopped(&lab, "task");
    let before = held(&dir(&lab, "task"));
    let diff = lab.belljar(["diff", "task"]).succeed();
    lab.belljar(["discard", "task", "--yes"]).run().complains(2, "--discard-work");
    assert_eq!(held(&dir(&lab, "task")), before);
    lab.belljar(["discard", "task", "--discard-work"]).succeed();
    let after = held(&dir(&lab, "task"));
    assert!(after.keys().all(|name| name.starts_with("home")), "{after:?}");
    assert_eq!(after["home/deep/er/note"], before["home/deep/er/note"], "the home stays");
    assert_eq!(status(&lab, "task")["run"]["review"], "discarded");
    lab.belljar(["down", "task"]).succeed();
    lab.belljar(["restore", "task"]).succeed();
    let id = trash(&lab)[0]["id"].as_str().unwrap().to_owned();
    lab.belljar(["restore", &id]).succeed();
    assert_eq!(held(&dir(&lab, "task")), before, "byte by byte");
    assert_eq!(lab.belljar(["diff", "task"]).succeed(), diff);
}

#[test]
fn box_starts_from_the_current_host_files_after_a_complete_apply() {
    let lab = lab();
    lab.write("list", "one\n");
    up(&lab, "task", "echo more >> list");
    lab.belljar(["stop", "--now", "task"]).succeed();
    lab.belljar(["apply", "task", "--yes"]).succeed();
    assert_eq!(fs::read_to_string(lab.workspace().join("list")).unwrap(), "one\nmore\n");
    assert!(!dir(&lab, "task").join("upper").exists(), "it starts anew");
    lab.write("list", "the host's\n");
    again(&lab, "task");
    lab.belljar(["apply", "task", "--yes"]).succeed();
    let list = fs::read_to_string(lab.workspace().join("list")).unwrap();
    assert_eq!(list, "the host's\nmore\n", "no conflict: it started from what was there");
    lab.belljar(["down", "task"]).succeed();
}

#[test]
fn apply_refuses_when_the_host_changed_a_file_between_two_runs() {
    let lab = lab();
    lab.write("both", "one\n");
    lab.write("later", "one\n");
    up(&lab, "task", "echo more >> both; test ! -e go || echo more >> later");
    lab.belljar(["stop", "--now", "task"]).succeed();
    lab.write("both", "the host's\n");
    lab.write("later", "the host's\n");
    lab.write("go", "");
    again(&lab, "task");
    let refused = lab.belljar(["apply", "task", "--yes"]).run();
    refused.complains(1, "both");
    assert!(!refused.err().contains("later"), "that one the box saw: {}", refused.err());
    assert_eq!(fs::read_to_string(lab.workspace().join("both")).unwrap(), "the host's\n");
    lab.belljar(["apply", "task", "--yes", "--ours", "both"]).succeed();
    assert_eq!(fs::read_to_string(lab.workspace().join("later")).unwrap(), "the host's\nmore\n");
}

#[test]
fn down_and_start_refuse_when_the_workspace_directory_was_replaced() {
    let lab = lab();
    up(&lab, "task", "echo new > added");
    lab.belljar(["stop", "--now", "task"]).succeed();
    fs::rename(lab.workspace(), lab.dir().join("elsewhere")).unwrap();
    fs::create_dir(lab.workspace()).unwrap();
    lab.belljar(["down", "task"]).run().complains(2, "cannot be read");
    lab.belljar(["start", "task"]).run().complains(125, "another directory");
    fs::remove_dir(lab.workspace()).unwrap();
    fs::rename(lab.dir().join("elsewhere"), lab.workspace()).unwrap();
    lab.belljar(["apply", "task", "--yes"]).succeed();
    assert!(lab.workspace().join("added").exists());
}

#[test]
fn restore_brings_back_a_home_that_the_box_made_read_only() {
    let lab = lab();
    up(&lab, "task", "echo kept > ~/note; chmod 500 ~; chmod 500 /workspace");
    lab.belljar(["stop", "--now", "task"]).succeed();
    lab.belljar(["down", "task", "--discard-work"]).succeed();
    lab.belljar(["restore", "task"]).succeed();
    let home = dir(&lab, "task").join("home");
    assert_eq!(fs::metadata(&home).unwrap().permissions().mode() & 0o777, 0o500);
    assert_eq!(fs::read_to_string(home.join("note")).unwrap(), "kept\n");
}

#[test]
fn start_refuses_when_the_run_record_is_damaged_and_keeps_the_changes() {
    let lab = lab();
    stopped(&lab, "task");
    let dir = lab.state().join("boxes/task");
    let before = held(&dir);
    let record = fs::read(dir.join("run.json")).unwrap();
    fs::write(dir.join("run.json"), "").unwrap();
    lab.belljar(["start", "task"]).run().complains(125, "missing or damaged");
    assert_eq!(held(&dir), before);
    // Control: with its record the box starts.
    fs::write(dir.join("run.json"), record).unwrap();
    lab.belljar(["start", "task"]).succeed();
    lab.belljar(["stop", "--now", "task"]).succeed();
}

#[test]
fn start_that_fails_before_the_box_is_built_keeps_the_record_of_the_last_run() {
    let lab = lab();
    stopped(&lab, "task");
    let dir = lab.state().join("boxes/task");
    let before = fs::read_to_string(dir.join("run.json")).unwrap();
    // The broker resolves the proxy when it starts, and cannot.
    let operator = "[proxy]\nurl = \"http://no-such-host.invalid:3128\"\n";
    let config = lab.home().join(".config/belljar");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("belljar.toml"), operator).unwrap();
    lab.belljar(["start", "task"]).run().complains(125, "no-such-host.invalid");
    assert_eq!(fs::read_to_string(dir.join("run.json")).unwrap(), before);
    // Control: without the proxy the box starts, and its record is another one.
    fs::remove_file(config.join("belljar.toml")).unwrap();
    lab.belljar(["start", "task"]).succeed();
    lab.belljar(["stop", "--now", "task"]).succeed();
    assert_ne!(fs::read_to_string(dir.join("run.json")).unwrap(), before);
}
