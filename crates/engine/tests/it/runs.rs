//! Records of runs: what is kept, found, discarded and removed, and where.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use belljar_engine::error::{EngineError, ErrorKind};
use belljar_engine::review;
use belljar_engine::store::Run;
use belljar_model::Review;
use serde_json::json;

use crate::bench::{Bench, open_engine};

/// A run that changed one file; its id.
#[track_caller]
fn changed(bench: &Bench, name: Option<&str>) -> String {
    let mut spec = bench.spec(json!({}), "echo x >> f");
    spec.name = name.map(|name| name.parse().unwrap());
    let ended = bench.try_run(&spec).unwrap();
    ended.succeeded();
    ended.result.run.to_string()
}

fn find(bench: &Bench, which: Option<&str>) -> Result<Run, EngineError> {
    review::find(&bench.state, &bench.lab.workspace(), which)
}

#[track_caller]
fn not_found(bench: &Bench, which: Option<&str>, kind: ErrorKind, about: &str) {
    let error = find(bench, which).unwrap_err();
    assert_eq!(error.kind(), kind, "{error:#}");
    assert!(format!("{error:#}").contains(about), "{error:#}");
}

/// Discards the run that this names; its id.
#[track_caller]
fn discard(bench: &Bench, which: &str) -> String {
    let mut run = find(bench, Some(which)).unwrap();
    assert!(review::can_discard(&run).unwrap(), "{which} holds nothing back");
    review::discard(&bench.state, &mut run).unwrap();
    assert_eq!(run.record.review, Review::Discarded);
    run.id().to_string()
}

#[test]
fn a_run_is_found_by_id_beginning_and_name() {
    let bench = Bench::new();
    let (first, second) = (changed(&bench, Some("same")), changed(&bench, Some("same")));
    let third = changed(&bench, None);
    let shared: String =
        first.chars().zip(third.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    assert!(shared.len() >= 4, "ids begin with the time: {first} {third}");
    not_found(&bench, Some(&shared[..4]), ErrorKind::Invalid, "use a longer prefix");
    not_found(&bench, Some("no-such-run"), ErrorKind::NotFound, "there is no run");
    not_found(&bench, Some(""), ErrorKind::NotFound, "there is no run");
    assert_eq!(discard(&bench, "same"), second, "the newest of that name");
    assert_eq!(discard(&bench, &first), first);
    assert_eq!(discard(&bench, &third[..third.len() - 1]), third);
    let third = find(&bench, Some(&third)).unwrap();
    assert!(!review::can_discard(&third).unwrap(), "it holds nothing back any more");
    not_found(&bench, None, ErrorKind::Invalid, "no run of this directory");
}

#[test]
fn what_changed_nothing_keeps_no_layers() {
    let bench = Bench::new();
    bench.succeed(json!({}), "ls");
    let dir = bench.lab.run_dir();
    assert!(!dir.join("upper").exists() && !dir.join("work").exists());
}

#[test]
fn old_records_go_and_what_waits_stays() {
    let bench = Bench::new();
    let waiting = changed(&bench, None);
    bench.succeed(json!({}), "true");
    let record = |run: &Path| fs::read_to_string(run.join("run.json")).unwrap();
    let runs = bench.runs();
    let done = runs.iter().find(|run| !record(run).contains("\"pending\"")).expect("both");
    let (text, id) = (record(done), done.file_name().unwrap().to_str().unwrap().to_owned());
    for number in 0..520 {
        // Base 32 without i, l, o and u: digits will do.
        let other = format!("0000{number:012}");
        let dir = done.with_file_name(&other);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("lock"), "").unwrap();
        fs::write(dir.join("run.json"), text.replace(&id, &other)).unwrap();
    }
    bench.state.store().prune(bench.state.clock().now()).unwrap();
    let left = bench.runs();
    assert_eq!(left.len(), 501, "500 records, and the run that waits");
    assert!(left.iter().any(|run| run.ends_with(&waiting)));
    assert!(left.iter().any(|run| run.ends_with("0000000000000519")), "the newest stay");
    assert!(!left.iter().any(|run| run.ends_with("0000000000000000")), "the oldest go");
}

#[test]
fn a_broken_record_does_not_hide_the_others() {
    let bench = Bench::new();
    let whole = changed(&bench, None);
    for (name, content) in [("broken", "{"), ("foreign", "{\"id\": 5}"), ("empty", "")] {
        let dir = bench.lab.state().join("runs").join(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("run.json"), content).unwrap();
    }
    fs::write(bench.lab.state().join("runs/file"), "").unwrap();
    let listed = bench.state.store().runs().unwrap();
    let ids: Vec<String> = listed.iter().map(|run| run.id().to_string()).collect();
    assert_eq!(ids, [whole]);
    bench.succeed(json!({}), "true");
}

#[test]
fn the_state_is_for_its_owner_alone() {
    let bench = Bench::new();
    let home = bench.lab.dir().join("new/state");
    open_engine(&bench.lab, &home).unwrap();
    for dir in [home.clone(), home.join("runs")] {
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o077, 0, "{dir:?}");
    }
}
