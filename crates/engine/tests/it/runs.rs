//! Tests of the run directories: finding, discarding and pruning runs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use belljar_engine::error::{EngineError, ErrorKind};
use belljar_engine::review;
use belljar_engine::store::Run;
use belljar_model::Review;
use serde_json::json;

use crate::test_engine::{TestEngine, open_engine};

/// Runs a program that changes one file, and returns the id of the run.
#[track_caller]
fn run_with_a_change(engine: &TestEngine, name: Option<&str>) -> String {
    let mut spec = engine.spec(json!({}), "echo x >> f");
    spec.name = name.map(|name| name.parse().unwrap());
    let ended = engine.try_run(&spec).unwrap();
    ended.succeeded();
    ended.result.run.to_string()
}

fn find(engine: &TestEngine, which: Option<&str>) -> Result<Run, EngineError> {
    review::find(&engine.state, &engine.lab.workspace(), which)
}

#[track_caller]
fn find_fails(engine: &TestEngine, which: Option<&str>, kind: ErrorKind, expected: &str) {
    let error = find(engine, which).unwrap_err();
    assert_eq!(error.kind(), kind, "{error:#}");
    assert!(format!("{error:#}").contains(expected), "{error:#}");
}

/// Discards the changes of a run, found by name or id, and returns the id.
#[track_caller]
fn discard(engine: &TestEngine, which: &str) -> String {
    let mut run = find(engine, Some(which)).unwrap();
    assert!(review::can_discard(&run).unwrap(), "run {which} has no changes to discard");
    review::discard(&engine.state, &mut run).unwrap();
    assert_eq!(run.record.review, Review::Discarded);
    run.id().to_string()
}

#[test]
fn run_is_found_by_id_by_unique_prefix_or_by_name() {
    let engine = TestEngine::new();
    let (first, second) =
        (run_with_a_change(&engine, Some("same")), run_with_a_change(&engine, Some("same")));
    let third = run_with_a_change(&engine, None);
    let shared: String =
        first.chars().zip(third.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    assert!(shared.len() >= 4, "run ids start with the time: {first} {third}");
    find_fails(&engine, Some(&shared[..4]), ErrorKind::Invalid, "use a longer prefix");
    find_fails(&engine, Some("no-such-run"), ErrorKind::NotFound, "there is no run");
    find_fails(&engine, Some(""), ErrorKind::NotFound, "there is no run");
    assert_eq!(discard(&engine, "same"), second, "the newest run with this name");
    assert_eq!(discard(&engine, &first), first);
    assert_eq!(discard(&engine, &third[..third.len() - 1]), third);
    let third = find(&engine, Some(&third)).unwrap();
    assert!(!review::can_discard(&third).unwrap(), "the changes were discarded");
    find_fails(&engine, None, ErrorKind::Invalid, "no run of this directory");
}

#[test]
fn change_of_a_file_that_the_host_wrote_right_before_the_run_is_no_conflict() {
    let engine = TestEngine::new();
    let file = engine.lab.workspace().join("f");
    let changed = |content: &str| {
        // A file that was just read gets an exact timestamp, which is ahead of the coarse clock.
        fs::write(&file, "").unwrap();
        fs::metadata(&file).unwrap();
        fs::write(&file, content).unwrap();
        let id = run_with_a_change(&engine, None);
        let dir = engine.lab.state().join("runs").join(id);
        fs::read_to_string(dir.join("changes.json")).unwrap()
    };
    for number in 0..40 {
        let changes = changed(&format!("{number}\n"));
        assert!(changes.contains("\"kept\"") && !changes.contains("\"unknown\""), "{changes}");
    }
}

#[test]
fn run_without_changes_leaves_no_overlay_directories() {
    let engine = TestEngine::new();
    engine.succeed(json!({}), "ls");
    let dir = engine.lab.run_dir();
    assert!(!dir.join("upper").exists() && !dir.join("work").exists());
}

#[test]
fn prune_removes_the_oldest_runs_and_keeps_runs_that_wait_for_review() {
    let engine = TestEngine::new();
    let waiting = run_with_a_change(&engine, None);
    engine.succeed(json!({}), "true");
    let record = |run: &Path| fs::read_to_string(run.join("run.json")).unwrap();
    let runs = engine.runs();
    let done = runs
        .iter()
        .find(|run| !record(run).contains("\"pending\""))
        .expect("the run without changes");
    let (text, id) = (record(done), done.file_name().unwrap().to_str().unwrap().to_owned());
    for number in 0..520 {
        // Run ids are base 32, which includes all digits.
        let other = format!("0000{number:012}");
        let dir = done.with_file_name(&other);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("lock"), "").unwrap();
        fs::write(dir.join("run.json"), text.replace(&id, &other)).unwrap();
    }
    engine.state.store().prune(engine.state.clock().now()).unwrap();
    let left = engine.runs();
    assert_eq!(left.len(), 501, "500 finished runs, and the run that waits for review");
    assert!(left.iter().any(|run| run.ends_with(&waiting)));
    assert!(left.iter().any(|run| run.ends_with("0000000000000519")), "the newest run stays");
    assert!(!left.iter().any(|run| run.ends_with("0000000000000000")), "the oldest run is removed");
}

#[test]
fn prune_keeps_runs_under_review_and_runs_whose_trash_has_files() {
    let engine = TestEngine::new();
    engine.succeed(json!({}), "true");
    let done = engine.lab.run_dir();
    let id = done.file_name().unwrap().to_str().unwrap().to_owned();
    let text = fs::read_to_string(done.join("run.json")).unwrap();
    let copy = |number: usize| {
        let other = format!("0000{number:012}");
        let dir = done.with_file_name(&other);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("run.json"), text.replace(&id, &other)).unwrap();
        dir
    };
    let [kept, reviewed, emptied] = [0, 1, 2].map(copy);
    (3..510).map(copy).for_each(drop);
    for dir in [&kept, &emptied] {
        fs::create_dir(dir.join("trash")).unwrap();
    }
    fs::write(kept.join("trash/1"), "a file of the user").unwrap();
    let store = engine.state.store();
    let load = |dir: &Path| Run::load(dir).unwrap();
    let held = review::lock(&load(&reviewed)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| store.prune(engine.state.clock().now()).unwrap());
    });
    assert!(kept.join("trash/1").exists(), "files that an apply replaced are kept");
    assert!(reviewed.exists(), "a run under review is kept");
    assert!(!emptied.exists(), "control: an old run with an empty trash is removed");
    drop(held);
    store.prune(engine.state.clock().now()).unwrap();
    assert!(!reviewed.exists(), "control: the review has ended");
    fs::remove_file(kept.join("trash/1")).unwrap();
    store.prune(engine.state.clock().now()).unwrap();
    assert!(!kept.exists(), "control: the trash is empty");
}

#[test]
fn list_of_runs_skips_run_directories_with_an_invalid_record() {
    let engine = TestEngine::new();
    let valid = run_with_a_change(&engine, None);
    for (name, content) in [("broken", "{"), ("foreign", "{\"id\": 5}"), ("empty", "")] {
        let dir = engine.lab.state().join("runs").join(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("run.json"), content).unwrap();
    }
    fs::write(engine.lab.state().join("runs/file"), "").unwrap();
    let listed = engine.state.store().runs().unwrap();
    let ids: Vec<String> = listed.iter().map(|run| run.id().to_string()).collect();
    assert_eq!(ids, [valid]);
    engine.succeed(json!({}), "true");
}

#[test]
fn new_state_directory_is_accessible_only_by_its_owner() {
    let engine = TestEngine::new();
    let home = engine.lab.dir().join("new/state");
    open_engine(&engine.lab, &home).unwrap();
    for dir in [home.clone(), home.join("runs")] {
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o077, 0, "{dir:?}");
    }
}
