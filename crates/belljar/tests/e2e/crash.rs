//! `kill -9` of the supervisor at any moment leaves no process running and loses no change.
//!
//! One group of tests kills the supervisor at each of its system calls, one run per call. Another test
//! kills the supervisor after delays that are spread over start, run and end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_testkit::{
    Lab, Program, Signal, cgroups_of, descendants, eventually, is_alive, is_root, mounts_naming,
    orphans,
};
use serde_json::Value;

use crate::lab;

/// A script that changes, creates and removes a file, and has a child process.
const SCRIPT: &str = "echo box > changed; echo new > made; rm removed; sleep 0.01 & wait";

/// Creates the user's files, which no crash may change.
fn create_files(lab: &Lab) {
    for name in ["changed", "removed", "deep/in/a/directory"] {
        lab.write(name, "the user's own");
    }
}

/// Asserts that the user's files in the workspace are unchanged.
#[track_caller]
fn assert_unchanged(lab: &Lab, when: &str) {
    for name in ["changed", "removed", "deep/in/a/directory"] {
        let content = fs::read(lab.workspace().join(name));
        assert!(content.is_ok_and(|text| text == b"the user's own"), "{name}, {when}");
    }
    assert!(!lab.workspace().join("made").exists(), "{when}");
}

/// Returns the output of `belljar runs --json`.
#[track_caller]
fn list_runs(lab: &Lab) -> Vec<Value> {
    let out = lab.belljar(["runs", "--json", "--limit", "1000"]).succeed();
    out.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect()
}

/// Asserts that no process, mount or cgroup is left, every run ended and its changes are kept.
#[track_caller]
fn assert_clean(lab: &Lab) {
    let left = orphans();
    eventually("processes without a supervisor end", || !left.iter().any(is_alive));
    eventually("no cgroup is left", || cgroups_of(&lab.runs()).is_empty());
    assert_eq!(mounts_naming(lab.dir()), [] as [String; 0]);
    let runs = list_runs(lab);
    for run in &runs {
        let state = run["state"].as_str();
        assert!(matches!(state, Some("interrupted" | "finished")), "{run}");
        let upper = lab.state().join("runs").join(run["id"].as_str().expect("an id")).join("upper");
        let has_changes = fs::read_dir(&upper).is_ok_and(|mut entries| entries.next().is_some());
        assert_eq!(run["review"] == "pending", has_changes, "{run}");
    }
    assert_unrecorded_are_removed(lab, &runs);
    // The next run works.
    assert_eq!(lab.bash("cat changed").succeed(), "the user's own");
}

/// Asserts that run directories without a record hold no changes and are removed when they are old.
#[track_caller]
fn assert_unrecorded_are_removed(lab: &Lab, listed: &[Value]) {
    let is_listed = |dir: &Path| listed.iter().any(|run| run["id"].as_str() == file_name(dir));
    let unlisted: Vec<PathBuf> = lab.runs().into_iter().filter(|dir| !is_listed(dir)).collect();
    for dir in &unlisted {
        let entries = fs::read_dir(dir).expect("a directory").flatten();
        let names: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        // The record is written atomically, so only its temporary copy can be incomplete.
        let is_copy = |name: &str| name.starts_with(".run.json.") && name.ends_with(".new");
        let harmless =
            |path: &PathBuf| file_name(path).is_some_and(|name| name == "lock" || is_copy(name));
        assert!(names.iter().all(harmless), "{names:?}");
        lab.program("touch").args(["-d", "1 hour ago"]).arg(dir).succeed();
    }
    lab.belljar(["runs"]).run().expect(0);
    for dir in &unlisted {
        assert!(!dir.exists(), "{} is still there", dir.display());
    }
}

/// Returns the last component of a path.
fn file_name(path: &Path) -> Option<&str> {
    path.file_name().and_then(|name| name.to_str())
}

/// System calls that only read, or only change the memory and descriptors of the supervisor.
///
/// A kill before such a call has the same effect as a kill after the previous call.
const HARMLESS_CALLS: [&str; 27] = [
    "access",
    "arch_prctl",
    "brk",
    "capget",
    "close",
    "execve",
    "exit_group",
    "fcntl",
    "fgetxattr",
    "flistxattr",
    "fstat",
    "getdents64",
    "geteuid",
    "getrandom",
    "lseek",
    "mmap",
    "mprotect",
    "munmap",
    "newfstatat",
    "pread64",
    "prlimit64",
    "read",
    "readlink",
    "readlinkat",
    "rt_sigaction",
    "statfs",
    "statx",
];

/// Returns the system calls of the supervisor in one complete run, each with its number by name.
fn system_calls() -> Vec<(String, usize)> {
    let lab = lab();
    create_files(&lab);
    let trace = lab.dir().join("trace");
    let file = trace.to_str().expect("a name in UTF-8");
    lab.bash(SCRIPT).through(["strace", "-o", file]).succeed();
    let text = fs::read_to_string(trace).expect("a trace");
    let names = text.lines().filter_map(|line| line.split_once('(').map(|(name, _)| name));
    let mut calls: Vec<(String, usize)> = Vec::new();
    for name in names.filter(|name| !HARMLESS_CALLS.contains(name)) {
        let before = calls.iter().filter(|(other, _)| other == name).count();
        calls.push((name.to_owned(), before + 1));
    }
    calls
}

/// Kills the supervisor before every fourth system call, starting with the call number `first`.
fn kill_at_calls(first: usize) {
    let calls = system_calls();
    assert!(calls.len() >= 60, "the supervisor made only {} calls", calls.len());
    let lab = lab();
    create_files(&lab);
    let mut killed = 0;
    for (name, number) in calls.iter().skip(first).step_by(4) {
        let trace = format!("trace={name}");
        let inject = format!("inject={name}:signal=KILL:when={number}");
        let strace = ["strace", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let ended = lab.bash(SCRIPT).through(strace).run();
        killed += usize::from(ended.code() == 137);
        assert_unchanged(&lab, &format!("killed at {name} number {number}"));
    }
    // The number of some calls varies between runs, but most calls occur in every run.
    assert!(killed * 4 > calls.len() / 2, "{killed} of {}", calls.len() / 4);
    assert_clean(&lab);
}

#[test]
fn supervisor_killed_at_system_calls_leaves_nothing_running_part_1() {
    kill_at_calls(0);
}

#[test]
fn supervisor_killed_at_system_calls_leaves_nothing_running_part_2() {
    kill_at_calls(1);
}

#[test]
fn supervisor_killed_at_system_calls_leaves_nothing_running_part_3() {
    kill_at_calls(2);
}

#[test]
fn supervisor_killed_at_system_calls_leaves_nothing_running_part_4() {
    kill_at_calls(3);
}

/// Returns a program that runs a script in a box. With `has_image`, and as root, its layers are in an image.
fn run_in(lab: &Lab, has_image: bool, script: &str) -> Program {
    let disk = if has_image { "64MiB" } else { "2GiB" };
    lab.belljar(["run", "--disk", disk, "--", "bash", "-c", script])
}

#[test]
fn supervisor_killed_after_varying_delays_leaves_nothing_running() {
    kill_after_delays(false);
}

#[test]
fn supervisor_killed_after_varying_delays_with_an_image_leaves_nothing_running() {
    kill_after_delays(true);
}

fn kill_after_delays(has_image: bool) {
    let lab = lab();
    create_files(&lab);
    for step in 0..60 {
        let live = run_in(&lab, has_image, SCRIPT).start();
        std::thread::sleep(Duration::from_micros(1500 * step));
        // A stopped supervisor cannot start a process between the listing and the kill.
        live.signal(Signal::STOP);
        let family = descendants(live.pid());
        live.signal(Signal::KILL);
        live.wait();
        eventually("every process of the box is gone", || !family.iter().any(is_alive));
        assert_unchanged(&lab, &format!("killed after {step} steps"));
    }
    assert_clean(&lab);
}

#[test]
fn changes_of_a_killed_run_are_kept_until_discard() {
    [false, true].into_iter().for_each(check_changes_of_a_killed_run);
}

fn check_changes_of_a_killed_run(has_image: bool) {
    let lab = lab();
    create_files(&lab);
    let script = format!("{SCRIPT}; echo written; sleep 1000");
    let live = run_in(&lab, has_image, &script).start();
    live.wait_for_output("written");
    let is_image = lab.run_dir().join("layers.img").exists();
    assert_eq!(is_image, has_image && is_root(), "the box uses an image only if it is asked for");
    assert_eq!(list_runs(&lab)[0]["state"], "running");
    let family = descendants(live.pid());
    live.signal(Signal::KILL);
    live.wait();
    eventually("every process of the box is gone", || !family.iter().any(is_alive));
    let runs = list_runs(&lab);
    assert_eq!((&runs[0]["state"], &runs[0]["review"]), (&"interrupted".into(), &"pending".into()));
    let upper = lab.run_dir().join("upper");
    assert_eq!(fs::read_to_string(upper.join("changed")).unwrap(), "box\n");
    assert_eq!(fs::read_to_string(upper.join("made")).unwrap(), "new\n");
    assert_unchanged(&lab, "killed after it had written");
    lab.belljar(["discard"]).run().fails_with(2, "nothing was discarded");
    assert!(upper.join("made").exists());
    lab.belljar(["discard", "--yes"]).succeed();
    assert!(!upper.join("made").exists());
    assert_eq!(list_runs(&lab)[0]["review"], "discarded");
    assert_unchanged(&lab, "discarded");
    assert_clean(&lab);
}

#[test]
fn run_ends_as_interrupted_when_its_init_is_killed() {
    let lab = lab();
    let live = lab.json(&[], "echo ready; sleep 1000").start();
    live.wait_for_output("ready");
    let family = descendants(live.pid());
    let is_init = |pid: i32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"belljar-init"))
    };
    let init = family.iter().map(|(pid, _)| *pid).find(|pid| is_init(*pid)).expect("init");
    belljar_testkit::kill(init);
    let ended = live.wait();
    assert_eq!(ended.result()["reason"], "interrupted");
    eventually("every process of the box is gone", || !family.iter().any(is_alive));
    eventually("no cgroup is left", || cgroups_of(&lab.runs()).is_empty());
}
