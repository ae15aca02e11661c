//! Tests of a box that is stopped and restarted on the same upper layer.

use std::fs;

use belljar_workspace::{Base, Choice, Pick, read_changes};

use crate::fixture::{Run, path, snapshot, summary, these};

#[test]
fn changes_after_a_restart_are_added_to_the_earlier_ones() {
    let run = Run::new("echo a > a; echo b > b");
    run.in_box("echo first >> a; echo n > n");
    assert_eq!(summary(&run.seal()), ["M a", "A n"]);
    let run = run.restart();
    run.in_box("echo second >> a; rm b n");
    let changes = run.seal();
    assert_eq!(summary(&changes), ["M a", "D b"]);
    assert_eq!(changes.get(&path("a")).unwrap().base, Some(Base::Kept));
    run.apply(&Choice::everything());
    assert_eq!(fs::read_to_string(run.lower().join("a")).unwrap(), "a\nfirst\nsecond\n");
    assert!(!run.lower().join("b").exists());
}

#[test]
fn a_host_change_before_the_restart_is_the_original_of_a_later_box_change() {
    let run = Run::new("echo a > a; echo b > b");
    run.in_box("echo box >> a");
    run.seal();
    run.host("echo host >> b");
    let run = run.restart();
    run.in_box("echo box >> b");
    assert_eq!(run.conflicts(&Choice::everything()), Vec::<String>::new());
    run.apply(&Choice::everything());
    assert_eq!(fs::read_to_string(run.lower().join("b")).unwrap(), "b\nhost\nbox\n");
}

/// Checks that a host change between two runs of the box causes exactly the `expected` conflicts.
#[track_caller]
fn check(host: &str, first: &str, meanwhile: &str, second: &str, expected: &[&str]) {
    for sealed in [true, false] {
        let run = Run::new(host);
        run.in_box(first);
        if sealed {
            run.seal();
        }
        run.host(meanwhile);
        let run = run.restart();
        run.in_box(second);
        let conflicts = run.conflicts(&Choice::everything());
        let paths: Vec<&str> = conflicts.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(paths, expected, "sealed before: {sealed}; {conflicts:?}");
    }
}

#[test]
fn apply_never_replaces_a_host_change_that_the_box_could_not_see() {
    // The first run covered each of these paths. By its time alone, the host's file is older than
    // the second run.
    check("echo a > a", "echo box >> a", "echo host >> a", "echo more >> a", &["a"]);
    check("echo a > a", "touch a", "echo host >> a", "echo more >> a", &["a"]);
    check("echo a > a", "rm a", "echo host >> a", "true", &["a"]);
    check("echo a > a", "rm a", "echo host >> a", "echo new > a", &["a"]);
    check("true", "echo n > n", "echo host > n", "echo more >> n", &["n"]);
    check("mkdir d; echo a > d/a", "rm -r d", "echo host > d/h", "true", &["d/h"]);
    check(
        "mkdir d; echo a > d/a",
        "rm -r d; mkdir d; echo b > d/b",
        "echo host > d/h",
        "true",
        &["d/h"],
    );
    check(
        "mkdir d; echo a > d/a",
        "rm -r d; mkdir d",
        "echo host > d/h",
        "echo box > d/h",
        &["d/h"],
    );
    check("mkdir d; echo a > d/a", "rm -r d; echo f > d", "echo host > d/h", "true", &["d/h"]);
    check("echo a > a; chmod 644 a", "chmod 600 a", "chmod 640 a", "echo more >> a", &["a"]);
}

#[test]
fn file_that_the_box_only_touched_keeps_the_hosts_content_after_a_restart() {
    let run = Run::new("echo a > a; mkdir d; chmod 755 d; echo b > d/b");
    run.in_box("touch a; echo c > d/c");
    assert_eq!(summary(&run.seal()), ["A d/c"]);
    run.host("echo host >> a; chmod 700 d");
    let run = run.restart();
    run.in_box("echo e > e");
    assert_eq!(
        summary(&run.seal()),
        ["A d/c", "A e"],
        "neither the file nor the mode is a change of the box"
    );
    run.apply(&Choice::everything());
    assert_eq!(fs::read_to_string(run.lower().join("a")).unwrap(), "a\nhost\n");
}

#[test]
fn applied_changes_count_as_the_original_after_a_restart() {
    let run = Run::new("echo a > a; echo b > b");
    run.in_box("echo box >> a; echo box >> b; rm -f gone; mkdir n; echo x > n/x");
    let some = Choice { paths: these(["a", "n"]), ..Choice::everything() };
    run.apply(&some);
    let run = run.restart();
    run.in_box("echo more >> a; echo more >> n/x");
    assert_eq!(summary(&run.seal()), ["M a", "M b", "M n/x"]);
    assert_eq!(run.conflicts(&Choice::everything()), Vec::<String>::new());
    run.apply(&Choice::everything());
    assert_eq!(fs::read_to_string(run.lower().join("a")).unwrap(), "a\nbox\nmore\n");
    assert_eq!(fs::read_to_string(run.lower().join("n/x")).unwrap(), "x\nmore\n");
    let run = run.restart();
    assert_eq!(summary(&run.seal()), Vec::<String>::new(), "the host has every change");
}

#[test]
fn files_created_in_one_run_and_removed_in_the_next_are_no_change() {
    let run = Run::new("mkdir d; echo a > d/a");
    run.in_box("echo n > n; rm d/a; rmdir d");
    let run = run.restart();
    run.in_box("rm n; mkdir d; echo a > d/a");
    assert_eq!(summary(&run.seal()), Vec::<String>::new());
}

#[test]
fn several_runs_of_a_box_give_the_same_changes_as_one_run() {
    let host = "mkdir -p d/e; echo a > a; echo b > d/b; echo c > d/e/c; ln -s a l";
    let steps = [
        "echo 1 >> a; rm d/b",
        "rm -r d/e; mkdir d/e; echo new > d/e/n",
        "mv a moved; ln -sfn moved l",
        "chmod 600 moved; rm -r d/e; echo f > d/e",
        "echo b > d/b; rm d/e; mkdir -p d/e; echo c > d/e/c",
    ];
    let once = Run::new(host);
    steps.iter().for_each(|step| drop(once.in_box(step)));
    let mut often = Run::new(host);
    for step in steps {
        often = often.restart();
        often.in_box(step);
    }
    assert_eq!(summary(&often.seal()), summary(&once.seal()));
    often.apply(&Choice { include_executable: Pick::All, ..Choice::everything() });
    once.apply(&Choice { include_executable: Pick::All, ..Choice::everything() });
    assert_eq!(snapshot(&often.lower()), snapshot(&once.lower()));
}

#[test]
fn read_changes_stores_no_manifest() {
    let run = Run::new("echo a > a");
    run.in_box("echo n > n");
    let seen = read_changes(&run.layers(), run.start(), &belljar_workspace::SealLimits::default())
        .unwrap();
    assert_eq!(summary(&seen), ["A n"]);
    assert!(!run.run_dir().join("changes.json").exists());
    run.in_box("echo m > m");
    assert_eq!(summary(&run.seal()), ["A m", "A n"]);
}
