//! `kill -9` of the supervisor at any moment leaves nothing running, and loses nothing.
//!
//! Two ways of choosing the moment: at each system call that the supervisor makes, one run per call,
//! and after delays that are spread over start, run and end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_testkit::{
    Lab, Signal, cgroups_of, descendants, eventually, is_alive, mounts_naming, orphans,
};
use serde_json::Value;

use crate::lab;

/// Changes a file, makes one and removes one, and has children while it does.
const SCRIPT: &str = "echo box > changed; echo new > made; rm removed; sleep 0.01 & wait";

/// The user's files, which no crash may touch.
fn fill(lab: &Lab) {
    for name in ["changed", "removed", "deep/in/a/directory"] {
        lab.write(name, "the user's own");
    }
}

#[track_caller]
fn is_untouched(lab: &Lab, when: &str) {
    for name in ["changed", "removed", "deep/in/a/directory"] {
        let content = fs::read(lab.workspace().join(name));
        assert!(content.is_ok_and(|text| text == b"the user's own"), "{name}, {when}");
    }
    assert!(!lab.workspace().join("made").exists(), "{when}");
}

/// What `belljar runs` tells of all runs.
#[track_caller]
fn listed(lab: &Lab) -> Vec<Value> {
    let out = lab.belljar(["runs", "--json"]).succeed();
    out.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect()
}

/// No process, mount or cgroup; every run is over; nothing of what a box changed is lost.
#[track_caller]
fn is_clean(lab: &Lab) {
    let left = orphans();
    eventually("whoever lost their supervisor ends", || !left.iter().any(is_alive));
    eventually("no cgroup is left", || cgroups_of(&lab.runs()).is_empty());
    assert_eq!(mounts_naming(lab.dir()), [] as [String; 0]);
    let listed = listed(lab);
    for run in &listed {
        let state = run["state"].as_str();
        assert!(matches!(state, Some("interrupted" | "finished")), "{run}");
        let upper = lab.state().join("runs").join(run["id"].as_str().expect("an id")).join("upper");
        let holds = fs::read_dir(&upper).is_ok_and(|mut entries| entries.next().is_some());
        assert_eq!(run["review"] == "pending", holds, "{run}");
    }
    stillborn_are_removed(lab, &listed);
    // The next one works as if nothing had been.
    assert_eq!(lab.bash("cat changed").succeed(), "the user's own");
}

/// What was killed before its record was written holds nothing, and goes when it is old enough to
/// be no run that just begins.
#[track_caller]
fn stillborn_are_removed(lab: &Lab, listed: &[Value]) {
    let is_listed = |dir: &Path| listed.iter().any(|run| run["id"].as_str() == file_name(dir));
    let unlisted: Vec<PathBuf> = lab.runs().into_iter().filter(|dir| !is_listed(dir)).collect();
    for dir in &unlisted {
        let entries = fs::read_dir(dir).expect("a directory").flatten();
        let names: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        // The record is written whole or not at all, so only a copy of it can be unfinished.
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

fn file_name(path: &Path) -> Option<&str> {
    path.file_name().and_then(|name| name.to_str())
}

/// Calls that only look, or only change the supervisor's own memory and table of descriptors: to be
/// killed before one of them is to be killed after the call before.
const HARMLESS: [&str; 27] = [
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

/// The system calls of the supervisor in one undisturbed run: the name and which of that name it is.
fn moments() -> Vec<(String, usize)> {
    let lab = lab();
    fill(&lab);
    let trace = lab.dir().join("trace");
    let file = trace.to_str().expect("a name in UTF-8");
    lab.bash(SCRIPT).through(["strace", "-o", file]).succeed();
    let text = fs::read_to_string(trace).expect("a trace");
    let names = text.lines().filter_map(|line| line.split_once('(').map(|(name, _)| name));
    let mut moments: Vec<(String, usize)> = Vec::new();
    for name in names.filter(|name| !HARMLESS.contains(name)) {
        let before = moments.iter().filter(|(other, _)| other == name).count();
        moments.push((name.to_owned(), before + 1));
    }
    moments
}

/// Kills the supervisor when it is about to make a system call: every fourth, from this one on.
fn kill_at_calls(first: usize) {
    let moments = moments();
    assert!(moments.len() >= 60, "the supervisor makes more calls than {}", moments.len());
    let lab = lab();
    fill(&lab);
    let mut killed = 0;
    for (name, number) in moments.iter().skip(first).step_by(4) {
        let trace = format!("trace={name}");
        let inject = format!("inject={name}:signal=KILL:when={number}");
        let strace = ["strace", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let ended = lab.bash(SCRIPT).through(strace).run();
        killed += usize::from(ended.code() == 137);
        is_untouched(&lab, &format!("killed at {name} number {number}"));
    }
    // Some calls are made more or less often from run to run, but most are in every one.
    assert!(killed * 4 > moments.len() / 2, "{killed} of {}", moments.len() / 4);
    is_clean(&lab);
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

#[test]
fn supervisor_killed_after_varying_delays_leaves_nothing_running() {
    let lab = lab();
    fill(&lab);
    for step in 0..60 {
        let live = lab.bash(SCRIPT).start();
        std::thread::sleep(Duration::from_micros(1500 * step));
        // Stopped first, so that it starts nobody between being looked at and being killed.
        live.signal(Signal::STOP);
        let family = descendants(live.pid());
        live.signal(Signal::KILL);
        live.wait();
        eventually("every process of the box is gone", || !family.iter().any(is_alive));
        is_untouched(&lab, &format!("killed after {step} steps"));
    }
    is_clean(&lab);
}

#[test]
fn changes_of_a_killed_run_are_kept_until_discard() {
    let lab = lab();
    fill(&lab);
    let live = lab.bash(&format!("{SCRIPT}; echo written; sleep 1000")).start();
    live.says("written");
    assert_eq!(listed(&lab)[0]["state"], "running");
    let family = descendants(live.pid());
    live.signal(Signal::KILL);
    live.wait();
    eventually("every process of the box is gone", || !family.iter().any(is_alive));
    let runs = listed(&lab);
    assert_eq!((&runs[0]["state"], &runs[0]["review"]), (&"interrupted".into(), &"pending".into()));
    let upper = lab.run_dir().join("upper");
    assert_eq!(fs::read_to_string(upper.join("changed")).unwrap(), "box\n");
    assert_eq!(fs::read_to_string(upper.join("made")).unwrap(), "new\n");
    is_untouched(&lab, "killed after it had written");
    lab.belljar(["discard"]).run().complains(2, "nothing was discarded");
    assert!(upper.join("made").exists());
    lab.belljar(["discard", "--yes"]).succeed();
    assert!(!upper.join("made").exists());
    assert_eq!(listed(&lab)[0]["review"], "discarded");
    is_untouched(&lab, "discarded");
    is_clean(&lab);
}

#[test]
fn run_ends_as_interrupted_when_its_init_is_killed() {
    let lab = lab();
    let live = lab.json(&[], "echo ready; sleep 1000").start();
    live.says("ready");
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
