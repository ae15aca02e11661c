//! Unapplied changes of boxes: commands refuse to lose them, and `restore` brings removed ones back.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use belljar_testkit::{Lab, eventually};
use serde_json::Value;

use super::{state, status, up};
use crate::lab;

/// Returns all paths below a directory, each with its mode, owner and content.
pub(super) fn directory_contents(root: &Path) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let mut description = format!("{:o} {}:{}", meta.mode(), meta.uid(), meta.gid());
            if meta.is_dir() {
                // Overlayfs gives its own directory mode 0.
                if fs::read_dir(&path).is_ok() && !name.starts_with("work/") {
                    pending.push(path);
                }
            } else if meta.is_file() {
                let text = fs::read(&path).unwrap();
                description = format!("{description} {}", text.escape_ascii());
            } else if meta.is_symlink() {
                description = format!("{description} {}", fs::read_link(&path).unwrap().display());
            }
            seen.insert(name, description);
        }
    }
    seen
}

/// Returns the contents of home, layers and snapshots of a box, without files of its supervisor.
pub(super) fn box_contents(dir: &Path) -> BTreeMap<String, String> {
    let mut all = directory_contents(dir);
    all.retain(|name, _| {
        let first = name.split('/').next().unwrap_or_default();
        ["home", "upper", "base", "snapshots"].contains(&first)
    });
    all
}

/// Creates a stopped box that changed, added and deleted files and has files in its home.
pub(super) fn create_stopped_box(lab: &Lab, name: &str) {
    for path in ["changed", "removed", "dir/gone"] {
        lab.write(path, "the user's own");
    }
    let script = "echo box >> changed; echo new > added; rm removed; rm -r dir; mkdir dir; \
                  echo x > dir/other; ln -s /etc/passwd link; mkdir -p ~/deep/er; \
                  echo kept > ~/deep/er/note; chmod 500 ~/deep";
    up(lab, name, script);
    lab.belljar(["stop", "--now", name]).succeed();
}

/// Returns the directory of a box in the state directory.
pub(super) fn box_dir(lab: &Lab, name: &str) -> std::path::PathBuf {
    lab.state().join("boxes").join(name)
}

/// Returns the logged output of a box.
pub(super) fn box_output(lab: &Lab, name: &str) -> String {
    fs::read_to_string(box_dir(lab, name).join("output.log")).unwrap_or_default()
}

/// Starts a box, waits until its script has ended, and stops the box.
#[track_caller]
pub(super) fn run_again(lab: &Lab, name: &str) {
    let before = box_output(lab, name).matches("ready").count();
    lab.belljar(["start", name]).succeed();
    eventually("the script has ended again", || {
        box_output(lab, name).matches("ready").count() > before
    });
    lab.belljar(["stop", "--now", name]).succeed();
}

/// Returns the removed boxes and changes that are in the trash.
#[track_caller]
pub(super) fn trash_entries(lab: &Lab) -> Vec<Value> {
    let out = lab.belljar(["restore", "--json"]).succeed();
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn down_refuses_to_discard_unapplied_changes_and_restore_brings_a_box_back() {
    let lab = lab();
    create_stopped_box(&lab, "task");
    let before = box_contents(&box_dir(&lab, "task"));
    let diff = lab.belljar(["diff", "task"]).succeed();
    let refused = lab.belljar(["down", "task"]).run();
    refused.fails_with(2, "--discard-work");
    for path in ["added", "changed", "belljar apply task", "belljar diff task"] {
        assert!(refused.err().contains(path), "{}", refused.err());
    }
    assert_eq!(box_contents(&box_dir(&lab, "task")), before, "a refusal changes nothing");

    lab.belljar(["down", "--discard-work", "task"]).succeed();
    assert_eq!(lab.boxes(), Vec::<String>::new());
    lab.belljar(["diff", "task"]).run().fails_with(2, "task");
    let kept = trash_entries(&lab);
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!((&kept[0]["name"], &kept[0]["what"]), (&"task".into(), &"box".into()));
    assert!(kept[0]["unapplied"].as_str().unwrap().contains("added"), "{kept:?}");

    // While another box has the name, the removed box can be restored under a new name.
    up(&lab, "task", "true");
    lab.belljar(["restore", "task"]).run().fails_with(2, "--as");
    lab.belljar(["restore", "task", "--as", "old"]).succeed();
    assert_eq!(box_contents(&box_dir(&lab, "old")), before, "every byte is restored");
    assert_eq!(lab.belljar(["diff", "old"]).succeed(), diff);
    assert_eq!(status(&lab, "old")["name"], "old");
    assert_eq!(trash_entries(&lab), Vec::<Value>::new());
    run_again(&lab, "old");
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
    lab.belljar(["down", "task"]).run().fails_with(2, "added");
    assert_eq!(state(&lab, "task"), "running");
    let live = lab.belljar(["diff", "task"]).succeed();
    assert!(live.contains("+new"), "diff shows changes of a running box: {live}");
    lab.belljar(["apply", "task", "--yes"]).run().fails_with(2, "belljar stop task");
    lab.belljar(["discard", "task", "--discard-work"]).run().fails_with(2, "belljar stop task");
    lab.belljar(["down", "task", "--discard-work"]).succeed();
    lab.belljar(["restore", "task"]).succeed();
    assert_eq!(state(&lab, "task"), "stopped");
    let diff = lab.belljar(["diff", "task"]).succeed();
    assert!(diff.contains("+new"), "{diff}");
}

#[test]
fn discard_requires_discard_work_and_restore_undoes_it() {
    let lab = lab();
    create_stopped_box(&lab, "task");
    let before = box_contents(&box_dir(&lab, "task"));
    let diff = lab.belljar(["diff", "task"]).succeed();
    lab.belljar(["discard", "task", "--yes"]).run().fails_with(2, "--discard-work");
    assert_eq!(box_contents(&box_dir(&lab, "task")), before);
    lab.belljar(["discard", "task", "--discard-work"]).succeed();
    let after = box_contents(&box_dir(&lab, "task"));
    assert!(after.keys().all(|name| name.starts_with("home")), "{after:?}");
    assert_eq!(after["home/deep/er/note"], before["home/deep/er/note"], "the home stays");
    assert_eq!(status(&lab, "task")["run"]["review"], "discarded");
    lab.belljar(["down", "task"]).succeed();
    lab.belljar(["restore", "task"]).succeed();
    let id = trash_entries(&lab)[0]["id"].as_str().unwrap().to_owned();
    lab.belljar(["restore", &id]).succeed();
    assert_eq!(box_contents(&box_dir(&lab, "task")), before, "every byte is restored");
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
    assert!(!box_dir(&lab, "task").join("upper").exists(), "the layer is removed");
    lab.write("list", "the host's\n");
    run_again(&lab, "task");
    lab.belljar(["apply", "task", "--yes"]).succeed();
    let list = fs::read_to_string(lab.workspace().join("list")).unwrap();
    assert_eq!(
        list, "the host's\nmore\n",
        "no conflict: the box started from the current host file"
    );
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
    run_again(&lab, "task");
    let refused = lab.belljar(["apply", "task", "--yes"]).run();
    refused.fails_with(1, "both");
    assert!(!refused.err().contains("later"), "the box had read that version: {}", refused.err());
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
    lab.belljar(["down", "task"]).run().fails_with(2, "cannot be read");
    lab.belljar(["start", "task"]).run().fails_with(125, "another directory");
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
    let home = box_dir(&lab, "task").join("home");
    assert_eq!(fs::metadata(&home).unwrap().permissions().mode() & 0o777, 0o500);
    assert_eq!(fs::read_to_string(home.join("note")).unwrap(), "kept\n");
}

#[test]
fn start_refuses_when_the_run_record_is_damaged_and_keeps_the_changes() {
    let lab = lab();
    create_stopped_box(&lab, "task");
    let dir = lab.state().join("boxes/task");
    let before = box_contents(&dir);
    let record = fs::read(dir.join("run.json")).unwrap();
    fs::write(dir.join("run.json"), "").unwrap();
    lab.belljar(["start", "task"]).run().fails_with(125, "missing or damaged");
    assert_eq!(box_contents(&dir), before);
    // Control: with an undamaged record the box starts.
    fs::write(dir.join("run.json"), record).unwrap();
    lab.belljar(["start", "task"]).succeed();
    lab.belljar(["stop", "--now", "task"]).succeed();
}

#[test]
fn start_that_fails_before_the_box_is_built_keeps_the_record_of_the_last_run() {
    let lab = lab();
    create_stopped_box(&lab, "task");
    let dir = lab.state().join("boxes/task");
    let before = fs::read_to_string(dir.join("run.json")).unwrap();
    // The broker fails at its start, because it cannot resolve the proxy.
    let proxy = "[proxy]\nurl = \"http://no-such-host.invalid:3128\"\n";
    let config = lab.home().join(".config/belljar");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("belljar.toml"), proxy).unwrap();
    lab.belljar(["start", "task"]).run().fails_with(125, "no-such-host.invalid");
    assert_eq!(fs::read_to_string(dir.join("run.json")).unwrap(), before);
    // Control: without the proxy the box starts and writes a new record.
    fs::remove_file(config.join("belljar.toml")).unwrap();
    lab.belljar(["start", "task"]).succeed();
    lab.belljar(["stop", "--now", "task"]).succeed();
    assert_ne!(fs::read_to_string(dir.join("run.json")).unwrap(), before);
}
