//! Named boxes whose supervisor, broker, init or program was killed: no change is lost, no process or
//! cgroup is left, `status` is correct and `start` works.

use std::fs;
use std::time::Duration;

use belljar_testkit::{
    Lab, ProcessTree, Signal, cgroups_of, descendants, eventually, kill, mounts_naming,
};

use super::{descendant_pid, state, status, supervisor_pid, up};
use crate::lab;

/// Creates a running box with a changed file and a file in its home, and returns its supervisor.
fn running_box(lab: &Lab) -> i32 {
    lab.write("theirs", "the user's own");
    up(lab, "task", "echo box >> mine; echo kept >> ~/note");
    supervisor_pid(lab, "task")
}

/// Waits until the state of the box `task` is `stopped`.
#[track_caller]
fn wait_until_stopped(lab: &Lab) {
    eventually("the box is stopped", || state(lab, "task") == "stopped");
}

/// Asserts that the box `task` can be started again and still has its changes.
#[track_caller]
fn assert_restartable(lab: &Lab) {
    lab.belljar(["start", "task"]).succeed();
    let log = lab.state().join("boxes/task/output.log");
    eventually("the script has ended again", || {
        fs::read_to_string(&log).is_ok_and(|text| text.matches("ready").count() >= 2)
    });
    assert_eq!(state(lab, "task"), "running");
    lab.belljar(["stop", "--now", "task"]).succeed();
    let upper = lab.state().join("boxes/task/upper/mine");
    assert_eq!(fs::read_to_string(upper).unwrap(), "box\nbox\n", "both runs wrote to one layer");
    assert_eq!(fs::read_to_string(lab.workspace().join("theirs")).unwrap(), "the user's own");
    assert_eq!(mounts_naming(lab.dir()), Vec::<String>::new());
    let run = status(lab, "task")["run"]["id"].as_str().unwrap().to_owned();
    eventually("no cgroup is left", || cgroups_of(&[run.clone().into()]).is_empty());
    lab.belljar(["ledger", "verify"]).succeed();
}

#[test]
fn d17_killed_supervisor_ends_its_box_and_keeps_its_changes() {
    let lab = lab();
    let supervisor = running_box(&lab);
    let family = ProcessTree::watch(supervisor);
    kill(supervisor);
    assert!(family.wait_until_gone() > 1, "the supervisor had child processes");
    let seen = status(&lab, "task");
    assert_eq!(seen["state"], "interrupted", "{seen:#}");
    assert_eq!(seen["run"]["review"], "pending", "{seen:#}");
    assert_restartable(&lab);
}

#[test]
fn runs_reports_a_box_as_needing_attention_only_after_its_supervisor_is_killed() {
    let lab = lab();
    let supervisor = running_box(&lab);
    let family = ProcessTree::watch(supervisor);
    let listed = || lab.belljar(["runs", "--all"]).succeed();
    assert_eq!(listed(), "");
    kill(supervisor);
    family.wait_until_gone();
    let after = listed();
    assert!(after.contains("needs attention: the result of `run.created` is unknown"), "{after}");
}

#[test]
fn killed_broker_is_recorded_and_its_box_keeps_running() {
    let lab = lab();
    let supervisor = running_box(&lab);
    kill(descendant_pid(supervisor, "belljar-broker"));
    assert_eq!(state(&lab, "task"), "running", "the program keeps running");
    lab.belljar(["stop", "task"]).succeed();
    let log = lab.belljar(["ledger", "log"]).succeed();
    assert!(log.contains("broker-gone"), "{log}");
    assert_restartable(&lab);
}

#[test]
fn killed_broker_shows_the_network_as_down_until_the_box_is_restarted() {
    let lab = lab();
    let supervisor = running_box(&lab);
    kill(descendant_pid(supervisor, "belljar-broker"));
    eventually("the supervisor has noticed the end of its broker", || {
        status(&lab, "task")["live"]["dark"] == true
    });
    let page = lab.belljar(["status", "task"]).succeed();
    let expect = "network    down: the broker died; `belljar restart task` restores it";
    assert!(page.contains(expect), "{page}");
    assert!(lab.belljar(["list"]).succeed().contains("network down: broker died"));
    lab.belljar(["restart", "task"]).succeed();
    assert_ne!(supervisor_pid(&lab, "task"), supervisor);
    assert!(!lab.belljar(["status", "task"]).succeed().contains("network    down"));
    lab.belljar(["stop", "--now", "task"]).succeed();
}

#[test]
fn status_shows_how_a_box_ended() {
    let lab = lab();
    let ended = || {
        let page = lab.belljar(["status", "task"]).succeed();
        page.lines().find(|line| line.starts_with("ended")).unwrap_or_default().to_owned()
    };
    lab.belljar(["up", "task", "--", "sh", "-c", "exit 3"]).succeed();
    wait_until_stopped(&lab);
    assert_eq!(ended(), "ended      the program exited with status 3");
    lab.belljar(["down", "task"]).succeed();
    up(&lab, "task", "true");
    lab.belljar(["stop", "task"]).succeed();
    assert_eq!(ended(), "ended      the box was stopped");
    lab.belljar(["start", "task"]).succeed();
    lab.belljar(["stop", "--now", "task"]).succeed();
    assert_eq!(ended(), "ended      the box was stopped");
    lab.belljar(["start", "task"]).succeed();
    kill(descendant_pid(supervisor_pid(&lab, "task"), "sleep"));
    wait_until_stopped(&lab);
    assert_eq!(ended(), "ended      the program was killed by signal 9");
}

#[test]
fn killed_program_stops_its_box_and_its_signal_is_recorded() {
    let lab = lab();
    let supervisor = running_box(&lab);
    let family = ProcessTree::watch(supervisor);
    kill(descendant_pid(supervisor, "sleep"));
    family.wait_until_gone();
    wait_until_stopped(&lab);
    let seen = status(&lab, "task");
    assert_eq!(seen["run"]["result"]["signal"], 9, "{seen:#}");
    assert_restartable(&lab);
}

#[test]
fn killed_init_stops_its_box_and_start_works_again() {
    let lab = lab();
    let supervisor = running_box(&lab);
    let family = ProcessTree::watch(supervisor);
    kill(descendant_pid(supervisor, "belljar-init"));
    family.wait_until_gone();
    wait_until_stopped(&lab);
    assert_restartable(&lab);
}

#[test]
fn supervisor_stops_its_box_cleanly_on_sigterm() {
    let lab = lab();
    let supervisor = running_box(&lab);
    let family = ProcessTree::watch(supervisor);
    belljar_testkit::signal(supervisor, Signal::TERM);
    family.wait_until_gone();
    wait_until_stopped(&lab);
    assert_restartable(&lab);
}

#[test]
fn d17_supervisor_killed_during_start_leaves_a_box_that_can_be_started() {
    let lab = lab();
    running_box(&lab);
    lab.belljar(["stop", "--now", "task"]).succeed();
    let mut failed = 0;
    for step in 0..40 {
        let mut start = lab.belljar(["start", "task"]).start();
        // The delays are spread over the start of the supervisor.
        eventually("the supervisor exists", || {
            let found = descendants(start.pid()).into_iter().find(|(pid, _)| is_supervisor(*pid));
            let Some((pid, _)) = found else { return start.ended() };
            std::thread::sleep(Duration::from_millis(2) * step);
            kill_if_running(pid);
            true
        });
        failed += u32::from(start.wait().code() != 0);
        eventually("the state is stopped or interrupted", || {
            ["stopped", "interrupted"].contains(&state(&lab, "task").as_str())
        });
        let upper = lab.state().join("boxes/task/upper/mine");
        assert!(fs::read_to_string(upper).unwrap().starts_with("box\n"), "step {step}");
    }
    assert!(failed > 0, "no supervisor was killed before its box was up");
    lab.belljar(["start", "task"]).succeed();
    assert_eq!(state(&lab, "task"), "running");
}

/// Tells whether a process is a supervisor.
fn is_supervisor(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.starts_with("belljar-supervisor"))
}

/// Kills a supervisor, unless it has already ended.
fn kill_if_running(pid: i32) {
    if is_supervisor(pid) {
        kill(pid);
    }
}

#[test]
fn status_and_exec_do_not_hang_while_the_supervisor_is_stopped() {
    let lab = lab();
    let supervisor = running_box(&lab);
    belljar_testkit::signal(supervisor, Signal::STOP);
    let seen = lab.belljar(["status", "task"]).run();
    assert!(seen.expect(0).contains("supervisor does not respond"), "{}", seen.out());
    let exec = lab.belljar(["exec", "task", "--", "true"]).start();
    let process = format!("/proc/{}", exec.pid());
    eventually("the command waits for the supervisor", || {
        let descriptors = fs::read_dir(format!("{process}/fd")).into_iter().flatten().flatten();
        let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        let stat = fs::read_to_string(format!("{process}/stat")).unwrap_or_default();
        links.any(|link| link.to_string_lossy().starts_with("socket:")) && stat.contains(") S ")
    });
    exec.signal(Signal::TERM);
    assert_eq!(exec.wait().code(), 128 + 15);
    belljar_testkit::signal(supervisor, Signal::CONT);
    assert_eq!(state(&lab, "task"), "running");
    assert!(status(&lab, "task")["live"]["pid"].is_number());
    lab.belljar(["stop", "--now", "task"]).succeed();
}
