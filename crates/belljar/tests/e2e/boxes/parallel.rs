//! Twenty boxes at once with clones of one repository: up, commit, diff, apply, stop and down.

use std::io::Write as _;
use std::time::Instant;

use belljar_testkit::{Lab, eventually};

use super::state;
use crate::lab;

const BOXES: usize = 20;

/// Runs git in the user's checkout and returns its output.
#[track_caller]
fn git(lab: &Lab, args: &[&str]) -> String {
    lab.program("git").args(args).succeed()
}

/// Creates a repository with one commit in the workspace.
fn create_repository(lab: &Lab) {
    git(lab, &["init", "--quiet", "--initial-branch=main"]);
    git(lab, &["config", "user.name", "Operator"]);
    git(lab, &["config", "user.email", "operator@example.org"]);
    for at in 0..50 {
        lab.write(&format!("src/part-{at}.txt"), format!("part {at}\n").repeat(50));
    }
    git(lab, &["add", "."]);
    git(lab, &["commit", "--quiet", "-m", "begin"]);
}

#[test]
fn twenty_boxes_commit_to_clones_of_one_repository_at_once() {
    let lab = lab();
    create_repository(&lab);
    let before = git(&lab, &["rev-parse", "HEAD"]);
    let names: Vec<String> = (0..BOXES).map(|at| format!("task-{at:02}")).collect();
    let mut times = Vec::new();
    let mut clock = Instant::now();
    let mut lap = |step: &str| {
        times.push(format!("{step} {:?}", clock.elapsed()));
        clock = Instant::now();
    };
    let work = "echo \"$BELLJAR_RUN\" > mine; echo more >> src/part-0.txt; \
                git add .; git commit -qm \"work of $BELLJAR_RUN\"; echo ready; exec sleep 1000";
    lab.belljar(["up"]).args(&names).args(["--repo", ".", "--", "sh", "-c", work]).succeed();
    lap("up");
    for name in &names {
        assert_eq!(state(&lab, name), "running");
        let log = lab.state().join("boxes").join(name).join("output.log");
        eventually("the box has committed", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("ready"))
        });
    }
    lap("work");
    for name in &names {
        let diff = lab.belljar(["diff", name]).succeed();
        assert!(diff.contains("+more") && diff.contains("mine"), "{name}: {diff}");
        assert_eq!(
            diff.matches("+more").count(),
            1,
            "diff shows only the changes of its own box: {diff}"
        );
    }
    lap("diff");
    let applied = ["task-03", "task-07", "task-19"];
    for name in applied {
        lab.belljar(["apply", name, "--branch", &format!("from-{name}"), "--yes"]).succeed();
    }
    lap("apply of three");
    let branches = git(&lab, &["branch", "--format=%(refname:short)"]);
    assert_eq!(
        branches.lines().collect::<Vec<_>>(),
        ["from-task-03", "from-task-07", "from-task-19", "main"]
    );
    assert_eq!(git(&lab, &["rev-parse", "HEAD"]), before, "the checked-out branch is unchanged");
    assert_eq!(git(&lab, &["status", "--porcelain"]), "");
    lab.belljar(["stop", "--now"]).args(&names).succeed();
    lap("stop");
    for name in &names {
        let down = lab.belljar(["down", name]).run();
        if applied.contains(&name.as_str()) {
            down.expect(0);
        } else {
            down.fails_with(2, "--discard-work");
            lab.belljar(["down", "--discard-work", name]).succeed();
        }
    }
    lap("down");
    assert_eq!(lab.boxes(), Vec::<String>::new());
    lab.belljar(["ledger", "verify"]).succeed();
    writeln!(std::io::stderr(), "{BOXES} boxes: {}", times.join(", ")).expect("standard error");
}
