//! Keeper, broker and program are killed, in every state a box can be in: nothing is lost, nothing is
//! left, `status` tells the truth and `start` works.

use std::fs;
use std::time::Duration;

use belljar_testkit::{
    Family, Lab, Signal, cgroups_of, descendants, eventually, kill, mounts_naming,
};

use super::{beneath, keeper, state, status, up};
use crate::lab;

/// A box at work that has changed something and has something in its home.
fn at_work(lab: &Lab) -> i32 {
    lab.write("theirs", "the user's own");
    up(lab, "task", "echo box >> mine; echo kept >> ~/note");
    keeper(lab, "task")
}

/// The keeper has put the end on record and is gone.
#[track_caller]
fn is_stopped(lab: &Lab) {
    eventually("the end is on record", || state(lab, "task") == "stopped");
}

/// It can be started again, and what it had is there.
#[track_caller]
fn goes_on(lab: &Lab) {
    lab.belljar(["start", "task"]).succeed();
    let log = lab.state().join("boxes/task/output.log");
    eventually("the program is at work again", || {
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
    let keeper = at_work(&lab);
    let family = Family::watch(keeper);
    kill(keeper);
    assert!(family.is_gone() > 1, "the keeper had a box");
    let seen = status(&lab, "task");
    assert_eq!(seen["state"], "interrupted", "{seen:#}");
    assert_eq!(seen["run"]["review"], "pending", "{seen:#}");
    goes_on(&lab);
}

#[test]
fn runs_reports_a_box_as_needing_attention_only_after_its_supervisor_is_killed() {
    let lab = lab();
    let keeper = at_work(&lab);
    let family = Family::watch(keeper);
    let listed = || lab.belljar(["runs", "--all"]).succeed();
    assert_eq!(listed(), "");
    kill(keeper);
    family.is_gone();
    let after = listed();
    assert!(after.contains("needs attention: `run.created` has no outcome"), "{after}");
}

#[test]
fn killed_broker_is_recorded_and_its_box_keeps_running() {
    let lab = lab();
    let keeper = at_work(&lab);
    kill(beneath(keeper, "belljar-broker"));
    assert_eq!(state(&lab, "task"), "running", "the program goes on");
    lab.belljar(["stop", "task"]).succeed();
    let log = lab.belljar(["ledger", "log"]).succeed();
    assert!(log.contains("broker-gone"), "{log}");
    goes_on(&lab);
}

#[test]
fn killed_program_stops_its_box_and_its_signal_is_recorded() {
    let lab = lab();
    let keeper = at_work(&lab);
    let family = Family::watch(keeper);
    kill(beneath(keeper, "sleep"));
    family.is_gone();
    is_stopped(&lab);
    let seen = status(&lab, "task");
    assert_eq!(seen["run"]["result"]["signal"], 9, "{seen:#}");
    goes_on(&lab);
}

#[test]
fn killed_init_stops_its_box_and_start_works_again() {
    let lab = lab();
    let keeper = at_work(&lab);
    let family = Family::watch(keeper);
    kill(beneath(keeper, "belljar-init"));
    family.is_gone();
    is_stopped(&lab);
    goes_on(&lab);
}

#[test]
fn supervisor_stops_its_box_cleanly_on_sigterm() {
    let lab = lab();
    let keeper = at_work(&lab);
    let family = Family::watch(keeper);
    belljar_testkit::signal(keeper, Signal::TERM);
    family.is_gone();
    is_stopped(&lab);
    goes_on(&lab);
}

/// The keeper is killed after delays that are spread over its start.
#[test]
fn d17_supervisor_killed_during_start_leaves_a_box_that_can_be_started() {
    let lab = lab();
    at_work(&lab);
    lab.belljar(["stop", "--now", "task"]).succeed();
    let mut before = 0;
    for step in 0..40 {
        let mut start = lab.belljar(["start", "task"]).start();
        eventually("there is a keeper", || {
            let found = descendants(start.pid()).into_iter().find(|(pid, _)| is_supervisor(*pid));
            let Some((pid, _)) = found else { return start.ended() };
            std::thread::sleep(Duration::from_millis(2) * step);
            signal_if_there(pid);
            true
        });
        before += u32::from(start.wait().code() != 0);
        eventually("it tells the truth", || {
            ["stopped", "interrupted"].contains(&state(&lab, "task").as_str())
        });
        let upper = lab.state().join("boxes/task/upper/mine");
        assert!(fs::read_to_string(upper).unwrap().starts_with("box\n"), "step {step}");
    }
    assert!(before > 0, "some were killed before their box was up");
    lab.belljar(["start", "task"]).succeed();
    assert_eq!(state(&lab, "task"), "running");
}

fn is_supervisor(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.starts_with("belljar-supervisor"))
}

/// One that is gone already was killed by nobody, which is as good.
fn signal_if_there(pid: i32) {
    if is_supervisor(pid) {
        kill(pid);
    }
}
