//! Snapshots, forks, resets, garbage collection and the trash of boxes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use belljar_testkit::eventually;
use serde_json::Value;

use super::changes::{
    box_contents, box_dir, box_output, create_stopped_box, run_again, trash_entries,
};
use super::{state, status, up};
use crate::lab;

#[test]
fn reset_returns_a_box_to_a_snapshot_and_restore_undoes_the_reset() {
    let lab = lab();
    create_stopped_box(&lab, "task");
    let first = box_contents(&box_dir(&lab, "task"));
    let diff = lab.belljar(["diff", "task"]).succeed();
    lab.belljar(["snapshot", "task", "good"]).succeed();
    lab.belljar(["snapshot", "task", "good"]).run().fails_with(2, "already");
    let listed = lab.belljar(["snapshot", "task", "--list"]).succeed();
    assert!(listed.contains("good"), "{listed}");
    run_again(&lab, "task");
    let mut second = box_contents(&box_dir(&lab, "task"));
    second.retain(|name, _| !name.starts_with("snapshots"));
    assert_ne!(first, second, "the second run changed files");
    let refused = lab.belljar(["reset", "task", "good"]).run();
    refused.fails_with(2, "--discard-work");
    assert!(refused.err().contains("changed"), "{}", refused.err());
    lab.belljar(["reset", "task", "none"]).run().fails_with(2, "no snapshot none");

    lab.belljar(["reset", "task", "good", "--discard-work"]).succeed();
    let mut now = box_contents(&box_dir(&lab, "task"));
    now.retain(|name, _| !name.starts_with("snapshots"));
    assert_eq!(now, first, "every byte is restored");
    assert_eq!(lab.belljar(["diff", "task"]).succeed(), diff);
    assert_eq!(state(&lab, "task"), "stopped");
    let id = trash_entries(&lab)[0]["id"].as_str().unwrap().to_owned();
    lab.belljar(["restore", &id]).run().fails_with(2, "apply or discard");
    lab.belljar(["discard", "task", "--discard-work"]).succeed();
    lab.belljar(["restore", &id]).succeed();
    let mut now = box_contents(&box_dir(&lab, "task"));
    now.retain(|name, _| !name.starts_with("snapshots"));
    assert_eq!(now, second, "restore undid the reset");
    run_again(&lab, "task");
    let log = lab.belljar(["ledger", "log"]).succeed();
    for kind in ["box.snapshot", "box.reset", "box.discarded", "box.restored"] {
        assert!(log.contains(kind), "{kind} in {log}");
    }
    lab.belljar(["ledger", "verify"]).succeed();
}

#[test]
fn snapshot_list_reports_damaged_snapshots_and_lists_the_others() {
    let lab = lab();
    create_stopped_box(&lab, "task");
    for tag in ["good", "torn", "bare"] {
        lab.belljar(["snapshot", "task", tag]).succeed();
    }
    let list = |options: &[&str]| {
        let ended = lab.belljar(["snapshot", "task", "--list"]).args(options).run();
        (ended.expect(0), ended.err())
    };
    let (listed, errors) = list(&[]);
    assert_eq!(listed.lines().count(), 3, "control: {listed}");
    assert!(!errors.contains("damaged"), "control: {errors}");
    let snapshots = box_dir(&lab, "task").join("snapshots");
    fs::write(snapshots.join("torn/snapshot.json"), "{").unwrap();
    fs::remove_file(snapshots.join("bare/snapshot.json")).unwrap();
    for options in [&[][..], &["--json"]] {
        let (listed, errors) = list(options);
        assert!(listed.contains("good") && listed.lines().count() == 1, "{listed}");
        for tag in ["torn", "bare"] {
            let expected = format!("damaged snapshot {}", snapshots.join(tag).display());
            assert!(errors.contains(&expected), "{errors}");
        }
    }
}

#[test]
fn concurrent_down_commands_remove_a_box_exactly_once() {
    let lab = lab();
    for _ in 0..3 {
        create_stopped_box(&lab, "task");
        let down = || lab.belljar(["down", "task", "--discard-work"]).start();
        let [first, second] = [down(), down()].map(belljar_testkit::Live::wait);
        let (won, lost) = if first.code() == 0 { (first, second) } else { (second, first) };
        won.expect(0);
        lost.fails_with(2, "there is no box task");
        lab.belljar(["restore", "task"]).succeed();
        lab.belljar(["down", "task", "--discard-work"]).succeed();
    }
}

#[test]
fn start_accepts_names_in_any_order_and_refuses_duplicate_names() {
    let lab = lab();
    for name in ["b", "a"] {
        create_stopped_box(&lab, name);
    }
    let started = lab.belljar(["start", "b", "a"]).run();
    started.expect(0);
    let output = started.err();
    let at = |name: &str| output.find(&format!("box {name} is running")).expect("the box started");
    assert!(at("b") < at("a"), "boxes are reported in the given order: {output}");
    lab.belljar(["stop", "--now", "a", "b"]).succeed();
    lab.belljar(["start", "a", "a"]).run().fails_with(2, "box a is named twice");
    lab.belljar(["stop", "--now", "a"]).succeed();
}

#[test]
fn c27_diff_home_shows_planted_files_and_reset_removes_them() {
    let lab = lab();
    let poison = "test -x ~/bin/tool && ~/bin/tool; mkdir -p ~/bin; \
                  printf '#!/bin/sh\\necho POISONED\\n' > ~/bin/tool; chmod 755 ~/bin/tool; \
                  echo 'alias ls=POISONED' > ~/.bashrc; echo new > added";
    up(&lab, "task", poison);
    lab.belljar(["stop", "--now", "task"]).succeed();
    assert!(
        !box_output(&lab, "task").contains("POISONED"),
        "the first run finds no planted program"
    );
    run_again(&lab, "task");
    assert!(
        box_output(&lab, "task").contains("POISONED"),
        "control: the second run finds the planted program"
    );
    let seen = lab.belljar(["diff", "task", "--home"]).succeed();
    for line in ["A .bashrc", "A bin/tool  ! ", "executable"] {
        assert!(seen.contains(line), "{line} in {seen}");
    }
    lab.belljar(["reset", "task"]).run().fails_with(2, "--discard-work");
    lab.belljar(["reset", "task", "--keep-work"]).succeed();
    assert_eq!(lab.belljar(["diff", "task", "--home"]).succeed(), "");
    let before = box_output(&lab, "task").matches("POISONED").count();
    run_again(&lab, "task");
    let after = box_output(&lab, "task");
    // The log may lose output of earlier runs, so the count can only shrink.
    assert!(after.matches("POISONED").count() <= before, "{after}");
    assert!(lab.belljar(["diff", "task"]).succeed().contains("+new"), "the changes are kept");
}

#[test]
fn c07_programs_planted_in_the_home_of_one_box_are_absent_from_other_boxes() {
    let lab = lab();
    let plant = "mkdir -p ~/.cargo/bin ~/.local/bin ~/.cache/pip; \
                 for tool in ~/.cargo/bin/git ~/.local/bin/git; do \
                 printf '#!/bin/sh\\necho REPLACED\\n' > $tool; chmod 755 $tool; done; \
                 echo evil > ~/.cache/pip/wheel";
    let inspect = "for tool in ~/.cargo/bin/git ~/.local/bin/git; do \
                test ! -x $tool || $tool; done; cat ~/.cache/pip/wheel 2>/dev/null";
    up(&lab, "evil", &format!("{inspect}; {plant}"));
    lab.belljar(["stop", "--now", "evil"]).succeed();
    run_again(&lab, "evil");
    assert!(
        box_output(&lab, "evil").contains("REPLACED"),
        "control: the next run of the same box finds the programs"
    );
    up(&lab, "good", inspect);
    let seen = box_output(&lab, "good");
    assert!(!seen.contains("REPLACED") && !seen.contains("evil"), "{seen}");
    for path in [".cargo", ".local/bin", ".cache/pip"] {
        assert!(!lab.home().join(path).exists(), "{path} on the host");
    }
    let ran = lab.bash(inspect).run();
    assert!(!ran.out().contains("REPLACED"), "{}", ran.out());
}

#[test]
fn fork_copies_a_box_and_changes_to_the_copy_do_not_affect_the_source() {
    let lab = lab();
    create_stopped_box(&lab, "task");
    lab.belljar(["snapshot", "task", "start"]).succeed();
    let before = box_contents(&box_dir(&lab, "task"));
    lab.belljar(["fork", "task", "one", "two"]).succeed();
    lab.belljar(["fork", "task@start", "three"]).succeed();
    let mut same = before.clone();
    same.retain(|name, _| !name.starts_with("snapshots"));
    for name in ["one", "two", "three"] {
        assert_eq!(box_contents(&box_dir(&lab, name)), same, "{name}");
        assert_eq!(status(&lab, name)["name"], name);
    }
    run_again(&lab, "one");
    assert_eq!(box_contents(&box_dir(&lab, "task")), before, "the source is unchanged");
    assert_eq!(box_contents(&box_dir(&lab, "two")), same);
    lab.belljar(["apply", "two", "--yes", "--include-executable", "**"]).succeed();
    assert_eq!(fs::read_to_string(lab.workspace().join("added")).unwrap(), "new\n");
    lab.belljar(["down", "two"]).succeed();
    lab.belljar(["down", "three", "--discard-work"]).succeed();
    lab.belljar(["fork", "task", "one"]).run().fails_with(2, "already");
    lab.belljar(["fork", "task@never", "four"]).run().fails_with(2, "no snapshot never");
    lab.belljar(["fork", "task@../..", "four"]).run().fails_with(2, "snapshot tag");
    assert_eq!(lab.boxes(), ["one", "task"]);
}

#[test]
fn snapshot_of_a_running_box_is_consistent() {
    let lab = lab();
    let script = "n=0; while :; do n=$((n+1)); echo $n > t; mv t a; echo $n > t; mv t b; \
                  echo $n > ~/t; mv ~/t ~/c; test $n != 20 || echo ready; done";
    lab.belljar(["up", "task", "--", "sh", "-c", script]).succeed();
    eventually("the program counts", || box_output(&lab, "task").contains("ready"));
    let dir = box_dir(&lab, "task");
    let count = |tag: &str, name: &str| -> u64 {
        let text = fs::read_to_string(dir.join("snapshots").join(tag).join(name));
        text.unwrap().trim().parse().unwrap()
    };
    lab.belljar(["snapshot", "task", "one"]).succeed();
    let paused_at = count("one", "upper/a");
    eventually("the program continues after the snapshot", || {
        let now = fs::read_to_string(dir.join("upper/a")).unwrap();
        now.trim().parse::<u64>().is_ok_and(|now| now > paused_at)
    });
    lab.belljar(["snapshot", "task", "two"]).succeed();
    for tag in ["one", "two"] {
        let (a, b, c) = (count(tag, "upper/a"), count(tag, "upper/b"), count(tag, "home/c"));
        assert!(a >= b && b >= c && a - c <= 1, "{tag}: {a} {b} {c}");
    }
    assert_eq!(state(&lab, "task"), "running");
    lab.belljar(["reset", "task", "one"]).run().fails_with(2, "belljar stop task");
    lab.belljar(["stop", "--now", "task"]).succeed();
    lab.belljar(["reset", "task", "one", "--discard-work"]).succeed();
    let diff = lab.belljar(["diff", "task"]).succeed();
    assert!(diff.contains(&format!("+{}", count("one", "upper/a"))), "{diff}");
}

#[test]
fn gc_removes_old_boxes_but_keeps_boxes_with_unapplied_changes() {
    let lab = lab();
    for (name, script) in [("idle", "true"), ("busy", "true"), ("full", "echo new > added")] {
        up(&lab, name, script);
    }
    lab.belljar(["stop", "--now", "idle", "full"]).succeed();
    let left = lab.state().join("boxes/.new-left");
    fs::create_dir_all(left.join("home/locked")).unwrap();
    fs::set_permissions(left.join("home/locked"), fs::Permissions::from_mode(0o0)).unwrap();
    lab.belljar(["gc"]).succeed();
    assert_eq!(lab.boxes(), ["busy", "full", "idle"], "no box is old enough");
    assert!(left.exists(), "a directory of a box that may be under construction is kept");
    lab.program("touch").args(["-d", "2 hours ago"]).arg(&left).succeed();
    let dry = lab.belljar(["gc", "--dry-run", "--older-than", "0s"]).run();
    dry.expect(0);
    assert!(dry.out().contains("would remove box idle"), "{}", dry.out());
    assert!(dry.err().contains("added"), "unapplied changes are named: {}", dry.err());
    assert_eq!(lab.boxes(), ["busy", "full", "idle"], "a dry run removes nothing");
    assert!(left.exists());
    lab.belljar(["gc", "--older-than", "0s"]).succeed();
    assert_eq!(lab.boxes(), ["busy", "full"]);
    assert!(!left.exists());
    assert_eq!(trash_entries(&lab)[0]["name"], "idle");
    lab.belljar(["restore", "idle"]).succeed();
    lab.belljar(["gc", "--older-than", "0s", "--discard-work"]).succeed();
    assert_eq!(lab.boxes(), ["busy"]);
    assert_eq!(trash_entries(&lab).len(), 2, "removed boxes are kept in the trash");
    lab.belljar(["gc", "--older-than", "0s"]).succeed();
    assert_eq!(trash_entries(&lab), Vec::<Value>::new());
    lab.belljar(["restore", "full"]).run().fails_with(2, "has no entry");
    let log = lab.belljar(["ledger", "log"]).succeed();
    assert!(log.contains("trash.emptied") && log.contains("box.removed"), "{log}");
}
