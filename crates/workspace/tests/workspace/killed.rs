//! Tests that an apply killed at any step loses no file, and that the next apply completes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_workspace::{ApplySession, Changes, Layers, RunPaths, plan_apply};

use crate::fixture::{Run, all, snapshot};

const HOST: &str = "
    echo a > a; chmod 640 a; echo b > b; mkdir -p d/e f r; echo c > d/e/c; ln -s a l; ln -s a k
    echo t > t; echo m > m; echo moved > moved; echo g > f/g; echo r > r/r; chmod 555 r; mkdir q";
const BOX: &str = "
    echo more >> a; rm b; rm -r d; mkdir -p n/o; echo n > n/o/p; ln -sfn b l; rm k; rm t; mkdir t
    echo u > t/u; chmod 600 m; mv moved n/moved; rm -r f; echo file > f; mkdir w; echo w > w/w
    chmod 500 w; chmod 755 r; echo s >> r/r; echo v > r/v; chmod 555 r; chmod 700 q; ln -s a s";

/// The environment variable with the paths of the run for the child process.
const PATHS: &str = "BELLJAR_TEST_KILLED_PLACES";
const KILL_AT: &str = "BELLJAR_TEST_KILLED_AT";

fn apply(layers: &Layers, changes: &Changes, kill_at: u64) {
    let mut session = ApplySession::begin(layers).unwrap();
    let observed = session.observe(changes).unwrap();
    let plan = plan_apply(&observed, &all()).settle().unwrap_or_else(|draft| {
        panic!("conflicts: {:?}", crate::fixture::conflicts(&draft));
    });
    let outcome = session.apply(plan, &mut |step| {
        if step.number == kill_at {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
        }
    });
    assert!(outcome.unwrap().is_complete());
}

/// Runs a complete apply, as the child process of another test. As a child of the tests below it is
/// killed at the given step.
#[test]
fn apply_in_a_child_process() {
    let settings = std::env::var(PATHS).ok().zip(std::env::var(KILL_AT).ok());
    let Some((paths, kill_at)) = settings else {
        let run = Run::new(HOST);
        run.in_box(BOX);
        let view = run.box_view();
        apply(&run.layers(), &run.seal(), u64::MAX);
        assert_eq!(snapshot(&run.lower()), view);
        return;
    };
    let paths: Vec<PathBuf> = paths.split(':').map(PathBuf::from).collect();
    let [workspace, state, run] = paths.as_slice() else { panic!("expected three paths") };
    let layers = Layers::open(&RunPaths { workspace, state, run }).unwrap();
    let changes = Changes::load(&layers).unwrap().unwrap();
    apply(&layers, &changes, kill_at.parse().unwrap());
}

/// Runs an apply in a child process that is killed before step `kill_at`; returns whether it was
/// killed. Returns whether it was killed.
fn apply_and_die(run: &Run, kill_at: u64) -> bool {
    let state = run.run_dir().join("../..");
    let paths = [run.lower(), state, run.run_dir()];
    let paths: Vec<_> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::apply_in_a_child_process", "--nocapture"])
        .env(PATHS, paths.join(":"))
        .env(KILL_AT, kill_at.to_string())
        .output()
        .unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert!(
        signal == Some(9) || output.status.success(),
        "step {kill_at}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    signal == Some(9)
}

/// Returns every file content and link target beneath a directory.
fn contents(dir: &Path) -> Vec<String> {
    let tail = |what: String| what.split_once(' ').map(|(_, tail)| tail.to_owned());
    snapshot(dir)
        .into_values()
        .filter(|what| !what.starts_with("dir"))
        .filter_map(|what| {
            let tail = tail(what)?;
            Some(tail.split_once(' ').map_or(tail.clone(), |(_, content)| content.to_owned()))
        })
        .collect()
}

fn check_nothing_is_lost(run: &Run, before: &[String], step: u64) {
    let mut left = contents(&run.lower());
    left.extend(contents(&run.run_dir().join("trash")));
    for content in before {
        assert!(left.contains(content), "step {step}: {content} is lost: {left:?}");
    }
}

fn check_finished(run: &Run, view: &BTreeMap<Vec<u8>, String>, before: &[String], step: u64) {
    assert_eq!(&snapshot(&run.lower()), view, "step {step}");
    check_nothing_is_lost(run, before, step);
}

#[track_caller]
fn check_killed_at_every_step(make: impl Fn() -> Run) {
    let mut steps = 0;
    for step in 1.. {
        let run = make();
        run.in_box(BOX);
        let view = run.box_view();
        let changes = run.seal();
        let before = contents(&run.lower());
        if !apply_and_die(&run, step) {
            check_finished(&run, &view, &before, step);
            break;
        }
        steps = step;
        check_nothing_is_lost(&run, &before, step);
        // Killed once more at a later step, and then completed.
        apply_and_die(&run, 1 + step % 5);
        check_nothing_is_lost(&run, &before, step);
        apply(&run.layers(), &changes, u64::MAX);
        check_finished(&run, &view, &before, step);
    }
    assert!(steps > 40, "only {steps} steps");
}

#[test]
fn apply_loses_nothing_if_killed_at_any_step_and_the_next_apply_completes_it() {
    check_killed_at_every_step(|| Run::new(HOST));
}

#[test]
fn apply_between_file_systems_loses_nothing_if_killed_at_any_step() {
    check_killed_at_every_step(|| Run::across_file_systems(HOST));
}

#[test]
fn apply_ignores_an_incomplete_last_line_of_its_log() {
    let run = Run::new("echo a > a");
    run.in_box("echo x > a; echo y > n");
    run.seal();
    fs::write(run.run_dir().join("apply.log"), "{\"begin\":{\"number\":1,\"pa").unwrap();
    assert!(run.apply(&all()).is_complete());
    let log = fs::read_to_string(run.run_dir().join("apply.log")).unwrap();
    assert!(log.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}

#[test]
fn apply_refuses_a_damaged_log() {
    let run = Run::new("echo a > a");
    run.in_box("echo x > a");
    run.seal();
    fs::write(run.run_dir().join("apply.log"), "garbage\n").unwrap();
    let layers = run.layers();
    let begun = ApplySession::begin(&layers);
    let damaged = belljar_workspace::ApplyError::DamagedLog { line: 1, source: json_error() };
    assert_eq!(begun.unwrap_err().to_string(), damaged.to_string());
}

fn json_error() -> serde_json::Error {
    serde_json::from_str::<u8>("x").unwrap_err()
}
