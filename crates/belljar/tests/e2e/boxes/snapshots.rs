//! Snapshots, forks, resets and the trash of boxes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use belljar_testkit::eventually;
use serde_json::Value;

use super::changes::{again, dir, held, output, stopped, trash};
use super::{state, status, up};
use crate::lab;

#[test]
fn reset_returns_a_box_to_a_snapshot_and_restore_undoes_the_reset() {
    let lab = lab();
    stopped(&lab, "task");
    let first = held(&dir(&lab, "task"));
    let diff = lab.belljar(["diff", "task"]).succeed();
    lab.belljar(["snapshot", "task", "good"]).succeed();
    lab.belljar(["snapshot", "task", "good"]).run().complains(2, "already");
    let listed = lab.belljar(["snapshot", "task", "--list"]).succeed();
    assert!(listed.contains("good"), "{listed}");
    again(&lab, "task");
    let mut second = held(&dir(&lab, "task"));
    second.retain(|name, _| !name.starts_with("snapshots"));
    assert_ne!(first, second, "it changed more");
    let refused = lab.belljar(["reset", "task", "good"]).run();
    refused.complains(2, "--discard-work");
    assert!(refused.err().contains("changed"), "{}", refused.err());
    lab.belljar(["reset", "task", "none"]).run().complains(2, "no snapshot none");

    lab.belljar(["reset", "task", "good", "--discard-work"]).succeed();
    let mut now = held(&dir(&lab, "task"));
    now.retain(|name, _| !name.starts_with("snapshots"));
    assert_eq!(now, first, "byte by byte");
    assert_eq!(lab.belljar(["diff", "task"]).succeed(), diff);
    assert_eq!(state(&lab, "task"), "stopped");
    let id = trash(&lab)[0]["id"].as_str().unwrap().to_owned();
    lab.belljar(["restore", &id]).run().complains(2, "apply or discard");
    lab.belljar(["discard", "task", "--discard-work"]).succeed();
    lab.belljar(["restore", &id]).succeed();
    let mut now = held(&dir(&lab, "task"));
    now.retain(|name, _| !name.starts_with("snapshots"));
    assert_eq!(now, second, "what the reset took is back");
    again(&lab, "task");
    let log = lab.belljar(["ledger", "log"]).succeed();
    for kind in ["box.snapshot", "box.reset", "box.discarded", "box.restored"] {
        assert!(log.contains(kind), "{kind} in {log}");
    }
    lab.belljar(["ledger", "verify"]).succeed();
}

#[test]
fn snapshot_list_reports_damaged_snapshots_and_lists_the_others() {
    let lab = lab();
    stopped(&lab, "task");
    for tag in ["good", "torn", "bare"] {
        lab.belljar(["snapshot", "task", tag]).succeed();
    }
    let list = |options: &[&str]| {
        let ended = lab.belljar(["snapshot", "task", "--list"]).args(options).run();
        (ended.expect(0), ended.err())
    };
    let (listed, said) = list(&[]);
    assert_eq!(listed.lines().count(), 3, "control: {listed}");
    assert!(!said.contains("damaged"), "control: {said}");
    let snapshots = dir(&lab, "task").join("snapshots");
    fs::write(snapshots.join("torn/snapshot.json"), "{").unwrap();
    fs::remove_file(snapshots.join("bare/snapshot.json")).unwrap();
    for options in [&[][..], &["--json"]] {
        let (listed, said) = list(options);
        assert!(listed.contains("good") && listed.lines().count() == 1, "{listed}");
        for tag in ["torn", "bare"] {
            let expected = format!("damaged snapshot {}", snapshots.join(tag).display());
            assert!(said.contains(&expected), "{said}");
        }
    }
}

#[test]
fn concurrent_down_commands_remove_a_box_exactly_once() {
    let lab = lab();
    for _ in 0..3 {
        stopped(&lab, "task");
        let down = || lab.belljar(["down", "task", "--discard-work"]).start();
        let [first, second] = [down(), down()].map(belljar_testkit::Live::wait);
        let (won, lost) = if first.code() == 0 { (first, second) } else { (second, first) };
        won.expect(0);
        lost.complains(2, "there is no box task");
        lab.belljar(["restore", "task"]).succeed();
        lab.belljar(["down", "task", "--discard-work"]).succeed();
    }
}

#[test]
fn start_accepts_names_in_any_order_and_refuses_duplicate_names() {
    let lab = lab();
    for name in ["b", "a"] {
        stopped(&lab, name);
    }
    let started = lab.belljar(["start", "b", "a"]).run();
    started.expect(0);
    let said = started.err();
    let at = |name: &str| said.find(&format!("box {name} is up")).expect("it started");
    assert!(at("b") < at("a"), "reported as asked: {said}");
    lab.belljar(["stop", "--now", "a", "b"]).succeed();
    lab.belljar(["start", "a", "a"]).run().complains(2, "box a is named twice");
    lab.belljar(["stop", "--now", "a"]).succeed();
}

/// A hostile program leaves things in the home that the next program would run.
#[test]
fn c27_diff_home_shows_planted_files_and_reset_removes_them() {
    let lab = lab();
    let poison = "test -x ~/bin/tool && ~/bin/tool; mkdir -p ~/bin; \
                  printf '#!/bin/sh\\necho POISONED\\n' > ~/bin/tool; chmod 755 ~/bin/tool; \
                  echo 'alias ls=POISONED' > ~/.bashrc; echo new > added";
    up(&lab, "task", poison);
    lab.belljar(["stop", "--now", "task"]).succeed();
    assert!(!output(&lab, "task").contains("POISONED"), "nothing at first");
    again(&lab, "task");
    assert!(output(&lab, "task").contains("POISONED"), "the control: a home that stays keeps it");
    let seen = lab.belljar(["diff", "task", "--home"]).succeed();
    for line in ["A .bashrc", "A bin/tool  ! ", "a program"] {
        assert!(seen.contains(line), "{line} in {seen}");
    }
    lab.belljar(["reset", "task"]).run().complains(2, "--discard-work");
    lab.belljar(["reset", "task", "--keep-work"]).succeed();
    assert_eq!(lab.belljar(["diff", "task", "--home"]).succeed(), "");
    let before = output(&lab, "task").matches("POISONED").count();
    again(&lab, "task");
    let after = output(&lab, "task");
    // The log of the runs before is bounded, so only what is new counts.
    assert!(after.matches("POISONED").count() <= before, "{after}");
    assert!(lab.belljar(["diff", "task"]).succeed().contains("+new"), "the work stayed");
}

/// What one box puts where programs are looked for is not there for another one, nor for the host.
#[test]
fn c07_programs_planted_in_the_home_of_one_box_are_absent_from_other_boxes() {
    let lab = lab();
    let plant = "mkdir -p ~/.cargo/bin ~/.local/bin ~/.cache/pip; \
                 for tool in ~/.cargo/bin/git ~/.local/bin/git; do \
                 printf '#!/bin/sh\\necho REPLACED\\n' > $tool; chmod 755 $tool; done; \
                 echo evil > ~/.cache/pip/wheel";
    let look = "for tool in ~/.cargo/bin/git ~/.local/bin/git; do \
                test ! -x $tool || $tool; done; cat ~/.cache/pip/wheel 2>/dev/null";
    up(&lab, "evil", &format!("{look}; {plant}"));
    lab.belljar(["stop", "--now", "evil"]).succeed();
    again(&lab, "evil");
    assert!(output(&lab, "evil").contains("REPLACED"), "the control: its own next run finds them");
    up(&lab, "good", look);
    let seen = output(&lab, "good");
    assert!(!seen.contains("REPLACED") && !seen.contains("evil"), "{seen}");
    for path in [".cargo", ".local/bin", ".cache/pip"] {
        assert!(!lab.home().join(path).exists(), "{path} on the host");
    }
    let ran = lab.bash(look).run();
    assert!(!ran.out().contains("REPLACED"), "{}", ran.out());
}

#[test]
fn fork_copies_a_box_and_changes_to_the_copy_do_not_affect_the_source() {
    let lab = lab();
    stopped(&lab, "task");
    lab.belljar(["snapshot", "task", "start"]).succeed();
    let before = held(&dir(&lab, "task"));
    lab.belljar(["fork", "task", "one", "two"]).succeed();
    lab.belljar(["fork", "task@start", "three"]).succeed();
    let mut same = before.clone();
    same.retain(|name, _| !name.starts_with("snapshots"));
    for name in ["one", "two", "three"] {
        assert_eq!(held(&dir(&lab, name)), same, "{name}");
        assert_eq!(status(&lab, name)["name"], name);
    }
    again(&lab, "one");
    assert_eq!(held(&dir(&lab, "task")), before, "the first one is as it was");
    assert_eq!(held(&dir(&lab, "two")), same);
    lab.belljar(["apply", "two", "--yes", "--include-executable", "**"]).succeed();
    assert_eq!(fs::read_to_string(lab.workspace().join("added")).unwrap(), "new\n");
    lab.belljar(["down", "two"]).succeed();
    lab.belljar(["down", "three", "--discard-work"]).succeed();
    lab.belljar(["fork", "task", "one"]).run().complains(2, "already");
    lab.belljar(["fork", "task@never", "four"]).run().complains(2, "no snapshot never");
    lab.belljar(["fork", "task@../..", "four"]).run().complains(2, "the snapshot");
    assert_eq!(lab.boxes(), ["one", "task"]);
}

/// A box that is at work is kept still for the moment of a copy, and goes on after it.
#[test]
fn snapshot_of_a_running_box_is_consistent() {
    let lab = lab();
    let script = "n=0; while :; do n=$((n+1)); echo $n > t; mv t a; echo $n > t; mv t b; \
                  echo $n > ~/t; mv ~/t ~/c; test $n != 20 || echo ready; done";
    lab.belljar(["up", "task", "--", "sh", "-c", script]).succeed();
    eventually("it counts", || output(&lab, "task").contains("ready"));
    for tag in ["one", "two"] {
        lab.belljar(["snapshot", "task", tag]).succeed();
    }
    let count = |tag: &str, name: &str| -> u64 {
        let text = fs::read_to_string(dir(&lab, "task").join("snapshots").join(tag).join(name));
        text.unwrap().trim().parse().unwrap()
    };
    for tag in ["one", "two"] {
        let (a, b, c) = (count(tag, "upper/a"), count(tag, "upper/b"), count(tag, "home/c"));
        assert!(a >= b && b >= c && a - c <= 1, "{tag}: {a} {b} {c}");
    }
    assert!(count("two", "upper/a") > count("one", "upper/a"), "it went on in between");
    assert_eq!(state(&lab, "task"), "running");
    lab.belljar(["reset", "task", "one"]).run().complains(2, "belljar stop task");
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
    assert_eq!(lab.boxes(), ["busy", "full", "idle"], "nothing is old");
    assert!(left.exists(), "nor is a box that may just be made");
    lab.program("touch").args(["-d", "2 hours ago"]).arg(&left).succeed();
    let dry = lab.belljar(["gc", "--dry-run", "--older-than", "0s"]).run();
    dry.expect(0);
    assert!(dry.out().contains("would remove box idle"), "{}", dry.out());
    assert!(dry.err().contains("added"), "work is said: {}", dry.err());
    assert_eq!(lab.boxes(), ["busy", "full", "idle"], "it only said so");
    assert!(left.exists());
    lab.belljar(["gc", "--older-than", "0s"]).succeed();
    assert_eq!(lab.boxes(), ["busy", "full"]);
    assert!(!left.exists());
    assert_eq!(trash(&lab)[0]["name"], "idle");
    lab.belljar(["restore", "idle"]).succeed();
    lab.belljar(["gc", "--older-than", "0s", "--discard-work"]).succeed();
    assert_eq!(lab.boxes(), ["busy"]);
    assert_eq!(trash(&lab).len(), 2, "two weeks to think again");
    lab.belljar(["gc", "--older-than", "0s"]).succeed();
    assert_eq!(trash(&lab), Vec::<Value>::new());
    lab.belljar(["restore", "full"]).run().complains(2, "holds no");
    let log = lab.belljar(["ledger", "log"]).succeed();
    assert!(log.contains("trash.emptied") && log.contains("box.removed"), "{log}");
}
