//! Named boxes: lifecycle commands, and the reported state after any process was killed.

mod approvals;
mod attach;
mod changes;
mod clones;
mod copy;
mod exec;
mod forward;
mod killed_commands;
mod killed_processes;
mod logs;
mod network;
mod parallel;
mod snapshots;
mod ui;

use std::fs;

use belljar_testkit::{Lab, descendants, eventually, mounts_naming};
use serde_json::Value;

use crate::lab;

/// Returns the output of `belljar status --json` for a box.
#[track_caller]
fn status(lab: &Lab, name: &str) -> Value {
    let out = lab.belljar(["status", name, "--json"]).succeed();
    serde_json::from_str(&out).expect("one object")
}

/// Returns the state of a box, such as `running` or `stopped`.
#[track_caller]
fn state(lab: &Lab, name: &str) -> String {
    status(lab, name)["state"].as_str().expect("a state").to_owned()
}

/// Returns the process id of the supervisor of a running box.
#[track_caller]
fn supervisor_pid(lab: &Lab, name: &str) -> i32 {
    let pid = status(lab, name)["live"]["pid"].as_i64().expect("a running box");
    i32::try_from(pid).expect("a process id")
}

/// Returns the process id of the descendant of a supervisor whose command line starts with a name.
#[track_caller]
fn descendant_pid(supervisor: i32, name: &str) -> i32 {
    let found = descendants(supervisor).into_iter().find(|(pid, _)| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(name))
    });
    found.unwrap_or_else(|| panic!("process {supervisor} has no descendant {name}")).0
}

/// Creates a box that runs a script and then sleeps, and waits until the script has ended.
fn up(lab: &Lab, name: &str, script: &str) {
    let script = format!("{script}; echo ready; exec sleep 1000");
    lab.belljar(["up", name, "--", "sh", "-c", &script]).succeed();
    let log = lab.state().join("boxes").join(name).join("output.log");
    eventually("the script has ended", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("ready"))
    });
}

#[test]
fn named_box_outlives_the_up_command_and_starts_again_after_stop() {
    let lab = lab();
    lab.write("theirs", "the user's own");
    up(&lab, "task", "echo box > mine; rm theirs; echo kept > ~/note");
    assert_eq!(state(&lab, "task"), "running");
    let supervisor = supervisor_pid(&lab, "task");
    // The supervisor has its own session, so closing a terminal does not end it.
    let stat = fs::read_to_string(format!("/proc/{supervisor}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    assert_eq!(fields[3], supervisor.to_string(), "the supervisor leads its session: {stat}");
    assert_eq!(fields[4], "0", "the supervisor has no terminal: {stat}");
    lab.belljar(["stop", "task"]).succeed();
    assert_eq!(state(&lab, "task"), "stopped");
    assert!(lab.workspace().join("theirs").exists(), "changes are held back");
    assert_eq!(mounts_naming(lab.dir()), Vec::<String>::new());

    lab.belljar(["start", "task"]).succeed();
    lab.belljar(["stop", "--now", "task"]).succeed();
    let listed = lab.belljar(["list"]).succeed();
    assert!(listed.contains("task") && listed.contains("waits for review"), "{listed}");
    let log = lab.belljar(["ledger", "log"]).succeed();
    assert_eq!(log.matches("run.created").count(), 2, "each start is a run: {log}");
    assert_eq!(log.matches("run.ended").count(), 2, "{log}");
    lab.belljar(["ledger", "verify"]).succeed();
}

#[test]
fn stop_waits_for_a_supervisor_that_no_longer_answers_and_status_does_not_say_running() {
    let lab = lab();
    up(&lab, "task", "true");
    let dir = lab.state().join("boxes/task");
    belljar_testkit::kill(supervisor_pid(&lab, "task"));
    eventually("the supervisor has ended", || state(&lab, "task") == "interrupted");
    // This test holds the lock as a supervisor does between the end of its program and its own end.
    let lock = fs::File::options().write(true).open(dir.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(state(&lab, "task"), "changing");
    let stop = lab.belljar(["stop", "task"]).start();
    let pid = stop.pid();
    eventually("stop has locked the box", || {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|to| to == dir.join("turn"))
    });
    drop(lock);
    stop.wait().expect(0);
    assert_eq!(state(&lab, "task"), "interrupted");
}

#[test]
fn home_of_a_named_box_persists_and_is_not_shared_with_other_boxes() {
    let lab = lab();
    up(&lab, "one", "cat ~/note 2>/dev/null || true; echo first > ~/note");
    lab.belljar(["stop", "one"]).succeed();
    lab.belljar(["start", "one"]).succeed();
    let log = lab.state().join("boxes/one/output.log");
    eventually("the second run reads the file of the first", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("first"))
    });
    up(&lab, "two", "ls -A ~");
    let log = fs::read_to_string(lab.state().join("boxes/two/output.log")).unwrap();
    assert!(!log.contains("note"), "{log}");
}

#[test]
fn up_stop_and_down_accept_several_boxes_at_once() {
    let lab = lab();
    let names = ["a", "b", "c"];
    let up = lab.belljar(["up"]).args(names).args(["--", "sh", "-c"]);
    let up = up.arg("echo $BELLJAR_RUN > mine; sleep 1000").run();
    up.expect(0);
    for name in names {
        assert!(up.err().contains(&format!("box {name} is running")), "{}", up.err());
        assert_eq!(state(&lab, name), "running");
    }
    lab.belljar(["stop", "--now"]).args(names).succeed();
    lab.belljar(["down", "--discard-work"]).args(names).succeed();
    assert_eq!(lab.boxes(), Vec::<String>::new());
}

#[test]
fn box_commands_refuse_invalid_arguments_before_creating_anything() {
    let lab = lab();
    let complains = |args: &[&str], about: &str| lab.belljar(args).run().fails_with(2, about);
    complains(&["up"], "NAME");
    complains(&["up", "../x"], "NAME");
    complains(&["up", "a", "--template", "none"], "--template");
    complains(&["up", "a", "--workspace", "/"], "root of the host");
    complains(&["up", "a", "--workspace", lab.state().to_str().unwrap()], "own state");
    complains(&["up", "a", "--memory", "0"], "--memory");
    complains(&["status", "a"], "there is no box a");
    complains(&["stop", "a"], "there is no box a");
    complains(&["start", "a"], "there is no box a");
    complains(&["down", "a"], "there is no box a");
    assert_eq!(lab.boxes(), Vec::<String>::new());
    up(&lab, "a", "true");
    complains(&["up", "a"], "there is a box a already");
    complains(&["start", "a"], "already running");
    assert_eq!(state(&lab, "a"), "running", "the refused commands did not affect the box");
}

#[test]
fn stop_now_ends_a_program_that_ignores_signals() {
    let lab = lab();
    up(&lab, "task", "trap '' HUP TERM INT");
    lab.belljar(["stop", "--now", "task"]).succeed();
    assert_eq!(state(&lab, "task"), "stopped");
    assert_eq!(status(&lab, "task")["run"]["result"]["reason"], "interrupted");
}

#[test]
fn up_with_a_missing_program_leaves_a_stopped_box_with_reason_not_found() {
    let lab = lab();
    lab.belljar(["up", "odd", "--", "no-such-program"]).run();
    eventually("the box has stopped", || state(&lab, "odd") == "stopped");
    assert_eq!(status(&lab, "odd")["run"]["result"]["reason"], "not_found");
}

#[test]
fn status_shows_the_result_of_the_health_command() {
    let lab = lab();
    let script = "echo ready; exec sleep 1000";
    let args = ["up", "web", "--health", "test -e /tmp/well", "--", "sh", "-c", script];
    lab.belljar(args).succeed();
    let health = || status(&lab, "web")["live"]["health"].clone();
    eventually("the box is unhealthy", || health() == "unhealthy");
    assert!(lab.belljar(["status", "web"]).succeed().contains("unhealthy"));
    lab.belljar(["stop", "--now", "web"]).succeed();
    let args = ["up", "fit", "--health", "test -e /tmp/well", "--", "sh", "-c"];
    lab.belljar(args).arg(format!("touch /tmp/well; {script}")).succeed();
    let health = || status(&lab, "fit")["live"]["health"].clone();
    eventually("the box is healthy", || health() == "healthy");
}
