//! Tests of conflicts: a file that both sides changed is applied only if the user chooses a side.

use std::fs;
use std::os::unix::fs::symlink;

use belljar_workspace::{Choice, EntryStatus, Pick};

use crate::fixture::{Run, all, path, snapshot, these};

/// Checks the conflicts of a box change and a host change after the seal.
#[track_caller]
fn check(host: &str, in_box: &str, meanwhile: &str, expected: &[&str]) -> Run {
    let run = Run::new(host);
    run.in_box(in_box);
    run.seal();
    run.host(meanwhile);
    let before = snapshot(&run.lower());
    assert_eq!(run.conflicts(&all()), expected);
    assert_eq!(snapshot(&run.lower()), before, "planning changes no file");
    run
}

#[test]
fn different_changes_of_host_and_box_are_reported_as_conflicts() {
    let base = "echo a > a; mkdir d; echo b > d/b; chmod 755 d; ln -s a l";
    check(base, "echo x > a", "echo y > a", &["a: HostChanged"]);
    check(base, "echo x > a", "rm a", &["a: HostDeleted"]);
    check(base, "echo x > a", "rm a; mkdir a", &["a: HostTypeChanged (ours only)"]);
    check(base, "rm a", "echo y > a", &["a: HostChanged"]);
    check(base, "echo x > n", "echo y > n", &["n: AddedOnBoth"]);
    check(base, "echo x > n", "mkdir n", &["n: HostTypeChanged (ours only)"]);
    check(base, "mkdir n; echo x > n/n", "echo y > n", &["n: AddedOnBoth", "n/n: AddedOnBoth"]);
    check(base, "echo x > d/n", "rm -r d", &["d/n: DirectoryGone"]);
    check(base, "echo x > d/b", "rm -r d", &["d/b: DirectoryGone"]);
    check(base, "echo x > d/n", "mv d e; ln -s e d", &["d/n: BlockedBySymlink (ours only)"]);
    check(base, "echo x > d/n", "rm -r d; echo f > d", &["d/n: BlockedByFile (ours only)"]);
    check(base, "chmod 700 d", "chmod 750 d", &["d: HostChanged"]);
    check(base, "chmod 600 a", "chmod 640 a", &["a: HostChanged"]);
    check(base, "ln -sfn x l", "ln -sfn y l", &["l: HostChanged"]);
    check(base, "rm l", "rm l; echo f > l", &["l: HostChanged"]);
    check(base, "rm -r d; echo x > d", "echo c > d/c", &[]);
}

#[test]
fn equal_or_unrelated_changes_of_host_and_box_are_no_conflict() {
    let base = "echo a > a; mkdir d; echo b > d/b; chmod 644 a";
    check(base, "echo x > a", "echo x > a", &[]);
    check(base, "echo x > n", "echo x > n", &[]);
    check(base, "rm a; rm -r d", "rm a; rm -r d", &[]);
    check(base, "echo x > a", "touch a; echo y > d/b", &[]);
    check(base, "echo x > a", "cp a a2; mv a2 a", &[]);
    check(base, "chmod 700 d", "chmod 700 d", &[]);
    check(base, "rm d/b", "rm -r d; ln -s /etc d", &[]);
}

#[test]
fn apply_keeps_a_mode_change_of_the_host_and_a_content_change_of_the_box() {
    let run = check("echo a > a; chmod 644 a", "echo x > a", "chmod 600 a", &[]);
    run.apply(&all());
    let host = snapshot(&run.lower());
    assert_eq!(host[&b"a"[..]], "file 600 x\\n");
}

#[test]
fn host_change_while_the_box_runs_is_a_conflict() {
    let run = Run::new("echo a > a; echo b > b");
    run.in_box("echo x > a; rm b");
    run.host("echo y > a; echo z > b");
    assert_eq!(run.conflicts(&all()), ["a: HostChangedDuringRun", "b: HostChangedDuringRun"]);
}

#[test]
fn conflict_choice_theirs_applies_the_boxs_version_and_moves_the_hosts_to_the_trash() {
    let run = Run::new("echo a > a; echo b > b; echo c > c; mkdir d e; ln -s a l");
    run.in_box("echo x > a; rm b; echo x > n; echo x > c; echo x > d/n; mkdir -p e/f; ln -sfn z l");
    let view = run.box_view();
    run.seal();
    run.host("echo y > a; echo y > b; echo y > n; rm c; rm -r d; echo y > e/f; ln -sfn y l");
    let choice = Choice { theirs: Pick::All, ..all() };
    assert!(run.apply(&choice).is_complete());
    assert_eq!(snapshot(&run.lower()), view);
    let kept: Vec<_> = run.trash().into_iter().collect();
    let y = "file 644 y\\n".to_owned();
    let expected = [
        (b"a".to_vec(), y.clone()),
        (b"b".to_vec(), y.clone()),
        (b"e/f".to_vec(), y.clone()),
        (b"l".to_vec(), "link y".to_owned()),
        (b"n".to_vec(), y),
    ];
    assert_eq!(kept, expected);
}

#[test]
fn conflict_choice_ours_keeps_the_hosts_version_and_applies_the_rest() {
    let run = Run::new("echo a > a; echo b > b");
    run.in_box("echo x > a; echo x > b; echo x > n");
    run.seal();
    run.host("echo y > a; mkdir n");
    let choice = Choice { ours: these(["a", "n"]), theirs: these(["a"]), ..all() };
    let outcome = run.apply(&choice);
    assert_eq!(outcome.get(&path("a")), Some(&EntryStatus::KeptOurs));
    let host = snapshot(&run.lower());
    assert_eq!(host[&b"a"[..]], "file 644 y\\n");
    assert_eq!(host[&b"b"[..]], "file 644 x\\n");
    assert_eq!(host[&b"n"[..]], "dir 755");
}

#[test]
fn apply_does_not_replace_a_directory_with_a_new_host_file() {
    let run = check("mkdir d; echo a > d/a", "rm -r d; echo x > d", "echo mine > d/mine", &[]);
    let outcome = run.apply(&all());
    assert!(matches!(outcome.get(&path("d")), Some(EntryStatus::Conflict(_))), "{outcome:?}");
    let host = snapshot(&run.lower());
    assert_eq!(host[&b"d/mine"[..]], "file 644 mine\\n");
    assert!(!host.keys().any(|name| name.starts_with(b".belljar")));
}

#[test]
fn c10_apply_never_writes_through_a_host_link_in_place_of_a_directory() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("b"), "precious").unwrap();
    let run = Run::new("mkdir d; echo b > d/b");
    run.in_box("echo evil > d/b; echo evil > d/n; rm -rf d/x");
    run.seal();
    fs::rename(run.lower().join("d"), run.lower().join("e")).unwrap();
    symlink(outside.path(), run.lower().join("d")).unwrap();
    let choice = Choice { theirs: Pick::All, ..all() };
    let expected = ["d/b: BlockedBySymlink (ours only)", "d/n: BlockedBySymlink (ours only)"];
    assert_eq!(run.conflicts(&choice), expected, "`theirs` does not help");
    assert_eq!(snapshot(outside.path()).into_values().collect::<Vec<_>>(), ["file 644 precious"]);
}

#[test]
fn apply_does_not_touch_a_host_file_that_changed_after_the_plan() {
    let run = Run::new("echo a > a; echo b > b; echo c > c; mkdir d");
    run.in_box("echo x > a; rm b; chmod 600 c; echo x > n; echo x > ok; echo x > d/n");
    let (layers, changes) = (run.layers(), run.seal());
    let mut session = belljar_workspace::ApplySession::begin(&layers).unwrap();
    let observed = session.observe(&changes).unwrap();
    let plan = belljar_workspace::plan_apply(&observed, &all()).settle().unwrap();
    run.host("echo mine > a; echo mine > b; echo mine > c; echo mine > n; mv d e; ln -s e d");
    let before = snapshot(&run.lower());
    let outcome = session.apply(plan, &mut |_| {}).unwrap();
    for name in ["a", "b", "c", "n", "d/n"] {
        let taken = outcome.get(&path(name));
        assert!(matches!(taken, Some(EntryStatus::Conflict(_))), "{name}: {taken:?}");
    }
    let mut after = snapshot(&run.lower());
    assert_eq!(after.remove(&b"ok"[..]).unwrap(), "file 644 x\\n");
    assert_eq!(after, before);
}
