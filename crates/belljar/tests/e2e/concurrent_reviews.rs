//! Reviews of one run at the same time: `apply` beside `discard`, and each beside itself.
//!
//! The changes are applied completely or discarded completely, and the command that comes second says so.

use std::fs::{self, File};
use std::path::Path;

use belljar_testkit::{DEADLINE, Ended, Lab, Live, eventually};
use rustix::fs::FlockOperation;

use crate::lab;

/// The number of files that the box of each trial changes, creates and removes.
const FILES: usize = 30;

/// The state of the workspace after a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workspace {
    AllApplied,
    Untouched,
}

/// Starts a run whose changes wait for review. Returns the id of the run.
fn run_with_changes(lab: &Lab) -> String {
    for number in 0..FILES {
        lab.write(&format!("changed-{number}"), "host");
        lab.write(&format!("removed-{number}"), "host");
        fs::remove_file(lab.workspace().join(format!("made-{number}"))).ok(); // of an earlier trial
    }
    let last = FILES - 1;
    let script = format!(
        "for n in $(seq 0 {last}); do echo -n box > changed-$n; echo -n box > made-$n; rm removed-$n; done"
    );
    lab.bash(&script).succeed();
    let newest = lab.runs().pop().expect("a run");
    newest.file_name().and_then(|name| name.to_str()).expect("an id").to_owned()
}

/// Asserts that the workspace has all changes of the box or none of them, and returns which.
#[track_caller]
fn workspace(lab: &Lab, context: &str) -> Workspace {
    let content = |name: String| fs::read_to_string(lab.workspace().join(name)).ok();
    let of_file = |number: usize| {
        let [changed, made, removed] = ["changed", "made", "removed"];
        match (
            content(format!("{changed}-{number}")).as_deref(),
            content(format!("{made}-{number}")).as_deref(),
            content(format!("{removed}-{number}")).as_deref(),
        ) {
            (Some("box"), Some("box"), None) => Workspace::AllApplied,
            (Some("host"), None, Some("host")) => Workspace::Untouched,
            other => panic!("number {number} is partly applied: {other:?}; {context}"),
        }
    };
    let first = of_file(0);
    for number in 1..FILES {
        assert_eq!(of_file(number), first, "number {number}; {context}");
    }
    first
}

/// Starts a review command of a run.
fn review(lab: &Lab, command: &str, id: &str) -> Live {
    lab.belljar([command, "--yes", id]).start()
}

/// Runs two review commands of a run at the same time: both wait for the lock of the run, which this test
/// holds until then.
fn at_once(lab: &Lab, id: &str, commands: [&str; 2]) -> [Ended; 2] {
    let path = lab.state().join("runs").join(id).join("review");
    let lock = File::create(&path).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    let live = commands.map(|command| review(lab, command, id));
    for review in &live {
        eventually("a review command waits for the lock of the run", || {
            has_open(review.pid(), &path)
        });
    }
    drop(lock);
    live.map(Live::wait)
}

/// Returns whether a process has a file open.
fn has_open(pid: i32, path: &Path) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == path))
}

/// Asserts that exactly one of `apply` and `discard` took effect, and that the other one says so. Returns
/// the state of the workspace.
#[track_caller]
fn assert_one_took_effect(lab: &Lab, id: &str, apply: &Ended, discard: &Ended) -> Workspace {
    let context = format!(
        "apply: {} {}; discard: {} {}",
        apply.code(),
        apply.err(),
        discard.code(),
        discard.err()
    );
    let record = fs::read_to_string(lab.state().join("runs").join(id).join("run.json")).unwrap();
    let found = workspace(lab, &context);
    match found {
        Workspace::AllApplied => {
            assert_eq!(apply.code(), 0, "{context}");
            discard.fails_with(2, "were applied; nothing was discarded");
            assert!(record.contains("\"applied\""), "{record}");
        }
        Workspace::Untouched => {
            assert_eq!(discard.code(), 0, "{context}");
            apply.fails_with(2, "were discarded; nothing was applied");
            assert!(record.contains("\"discarded\""), "{record}");
        }
    }
    found
}

#[test]
fn apply_and_discard_that_wait_for_the_same_run_take_effect_completely_or_not_at_all() {
    let lab = lab();
    let start = std::time::Instant::now();
    let mut seen = Vec::new();
    // The kernel chooses who gets the lock. Trials go on until each command was first at least once.
    while !(seen.len() >= 10
        && seen.contains(&Workspace::AllApplied)
        && seen.contains(&Workspace::Untouched))
    {
        assert!(start.elapsed() < DEADLINE, "one command was always first: {seen:?}");
        let id = run_with_changes(&lab);
        let [apply, discard] = at_once(&lab, &id, ["apply", "discard"]);
        seen.push(assert_one_took_effect(&lab, &id, &apply, &discard));
    }
}

#[test]
fn apply_and_discard_started_at_the_same_time_take_effect_completely_or_not_at_all() {
    let lab = lab();
    for trial in 0..16 {
        let id = run_with_changes(&lab);
        let commands = if trial % 2 == 0 { ["apply", "discard"] } else { ["discard", "apply"] };
        let [first, second] = commands.map(|command| review(&lab, command, &id)).map(Live::wait);
        let (apply, discard) = if trial % 2 == 0 { (first, second) } else { (second, first) };
        assert_one_took_effect(&lab, &id, &apply, &discard);
    }
}

#[test]
fn two_reviews_of_the_same_kind_at_once_both_succeed_and_take_effect_once() {
    let lab = lab();
    for (command, expected) in [("apply", Workspace::AllApplied), ("discard", Workspace::Untouched)]
        .into_iter()
        .cycle()
        .take(6)
    {
        let id = run_with_changes(&lab);
        let ended = at_once(&lab, &id, [command, command]);
        for ended in &ended {
            ended.expect(0);
        }
        let text = ended.map(|ended| ended.err() + &ended.out()).concat();
        let nothing_left = match expected {
            Workspace::AllApplied => "there are no changes to apply",
            Workspace::Untouched => "has no changes to discard",
        };
        assert_eq!(text.matches(nothing_left).count(), 1, "{text}");
        assert_eq!(workspace(&lab, command), expected);
    }
}
