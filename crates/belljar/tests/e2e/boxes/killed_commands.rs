//! `kill -9` of commands that move or copy boxes never leaves an incomplete box.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use belljar_testkit::Lab;

use super::changes::{box_contents, box_dir, create_stopped_box};
use crate::lab;

/// The system calls that change files.
const WRITING_CALLS: [&str; 13] = [
    "fchmod",
    "chmod",
    "fchown",
    "fsync",
    "linkat",
    "mkdir",
    "mkdirat",
    "rename",
    "renameat2",
    "symlinkat",
    "unlink",
    "unlinkat",
    "write",
];

/// The paths below the directory of a box, each with its mode, owner and content.
type Contents = BTreeMap<String, String>;

/// A lab with a stopped box and a backup of its state, from which every attempt starts.
struct Attempts {
    lab: Lab,
    backup: PathBuf,
}

impl Attempts {
    /// Creates a lab with a stopped box, runs the commands `setup`, and makes a backup of the state.
    fn new(setup: &[&[&str]]) -> Self {
        let lab = lab();
        create_stopped_box(&lab, "task");
        setup.iter().for_each(|args| drop(lab.belljar(*args).succeed()));
        let backup = lab.dir().join("backup");
        fs::create_dir(&backup).unwrap();
        for name in ["boxes", "trash"] {
            if lab.state().join(name).exists() {
                // Overlayfs leaves a directory of mode 0, which an unprivileged user cannot copy.
                let open =
                    ["-type", "d", "-perm", "0", "-prune", "-exec", "chmod", "700", "{}", "+"];
                lab.program("find").arg(lab.state().join(name)).args(open).succeed();
                lab.program("cp").arg("-a").arg(lab.state().join(name)).arg(&backup).succeed();
            }
        }
        Self { lab, backup }
    }

    /// Replaces the state of the lab by the backup.
    fn restore_backup(&self) {
        for name in ["boxes", "trash"] {
            let (now, backup) = (self.lab.state().join(name), self.backup.join(name));
            if now.exists() {
                self.lab.program("chmod").args(["-R", "u+rwX"]).arg(&now).succeed();
                self.lab.program("rm").arg("-rf").arg(&now).succeed();
            }
            if backup.exists() {
                self.lab.program("cp").arg("-a").arg(&backup).arg(self.lab.state()).succeed();
            }
        }
    }

    /// Kills a command before each of its writing system calls and checks the state each time.
    ///
    /// `check` returns `before` if the command had no effect, and `after` if it was complete.
    fn kill_at_each(&self, args: &[&str], check: impl Fn(&Lab) -> &'static str) {
        let trace = self.lab.dir().join("trace");
        let file = trace.to_str().unwrap();
        let calls = format!("trace={}", WRITING_CALLS.join(","));
        self.lab.belljar(args).through(["strace", "-o", file, "-e", &calls]).succeed();
        let text = fs::read_to_string(&trace).unwrap();
        let names = text.lines().filter_map(|line| line.split_once('(').map(|(name, _)| name));
        let mut moments: Vec<(&str, usize)> = Vec::new();
        for name in names.filter(|name| WRITING_CALLS.contains(name)) {
            let before = moments.iter().filter(|(other, _)| *other == name).count();
            moments.push((name, before + 1));
        }
        let mut seen: BTreeMap<&'static str, usize> = BTreeMap::new();
        let step = moments.len().div_ceil(60);
        for (name, number) in moments.iter().step_by(step) {
            self.restore_backup();
            let trace = format!("trace={name}");
            let inject = format!("inject={name}:signal=KILL:when={number}");
            let strace = ["strace", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            self.lab.belljar(args).through(strace).run();
            // The next command that locks a box completes the interrupted operation.
            for name in self.lab.boxes() {
                self.lab.belljar(["stop", &name]).succeed();
            }
            *seen.entry(check(&self.lab)).or_default() += 1;
        }
        assert!(seen.contains_key("before"), "no attempt was killed before the effect: {seen:?}");
        assert!(seen.contains_key("after"), "no attempt was killed after the effect: {seen:?}");
        self.lab.belljar(["ledger", "verify"]).succeed();
    }
}

/// Returns the only entry of the trash, if any.
fn trash_entry(lab: &Lab) -> Option<PathBuf> {
    let entries = fs::read_dir(lab.state().join("trash")).ok()?;
    let mut all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    all.retain(|path| path.join("trash.json").exists());
    assert!(all.len() <= 1, "{all:?}");
    all.pop()
}

/// Returns the paths below one subdirectory of a box.
fn only(all: &Contents, which: &str) -> Contents {
    let mut all = all.clone();
    all.retain(|name, _| name.split('/').next() == Some(which));
    all
}

/// Returns the contents of a box directory, which are empty if it is missing.
fn contents_if_present(path: &Path) -> Contents {
    if path.exists() { box_contents(path) } else { Contents::new() }
}

#[test]
fn killed_down_or_restore_leaves_the_box_complete_in_one_place() {
    let attempts = Attempts::new(&[]);
    let original = box_contents(&box_dir(&attempts.lab, "task"));
    attempts.kill_at_each(&["down", "--discard-work", "task"], |lab| {
        if box_dir(lab, "task").exists() {
            assert_eq!(box_contents(&box_dir(lab, "task")), original);
            return "before";
        }
        assert_eq!(box_contents(&trash_entry(lab).expect("in the trash")), original);
        lab.belljar(["restore", "task"]).succeed();
        assert_eq!(box_contents(&box_dir(lab, "task")), original);
        "after"
    });
    let attempts = Attempts::new(&[&["down", "--discard-work", "task"]]);
    let original = box_contents(&trash_entry(&attempts.lab).unwrap());
    attempts.kill_at_each(&["restore", "task", "--as", "other"], |lab| {
        if box_dir(lab, "other").exists() {
            assert_eq!(box_contents(&box_dir(lab, "other")), original);
            return "after";
        }
        assert_eq!(box_contents(&trash_entry(lab).expect("in the trash")), original);
        lab.belljar(["restore", "task"]).succeed();
        assert_eq!(box_contents(&box_dir(lab, "task")), original);
        "before"
    });
}

#[test]
fn killed_discard_or_reset_is_either_complete_or_without_effect() {
    for command in ["discard", "reset"] {
        let attempts = Attempts::new(&[]);
        let original = box_contents(&box_dir(&attempts.lab, "task"));
        attempts.kill_at_each(&[command, "--discard-work", "task"], |lab| {
            let now = contents_if_present(&box_dir(lab, "task"));
            if now == original {
                return "before";
            }
            assert_eq!(only(&now, "upper"), Contents::new(), "{command}");
            let kept = box_contents(&trash_entry(lab).expect("in the trash"));
            assert_eq!(only(&kept, "upper"), only(&original, "upper"), "{command}");
            let home = if command == "reset" { &kept } else { &now };
            assert_eq!(only(home, "home"), only(&original, "home"), "{command}");
            "after"
        });
    }
}

#[test]
fn killed_snapshot_or_fork_leaves_a_complete_copy_or_none() {
    let attempts = Attempts::new(&[]);
    let original = box_contents(&box_dir(&attempts.lab, "task"));
    attempts.kill_at_each(&["snapshot", "task", "tag"], |lab| {
        let mut now = box_contents(&box_dir(lab, "task"));
        now.retain(|name, _| !name.starts_with("snapshots"));
        assert_eq!(now, original);
        let snapshot = box_dir(lab, "task").join("snapshots/tag");
        if !snapshot.exists() {
            return "before";
        }
        assert_eq!(box_contents(&snapshot), original);
        "after"
    });
    let attempts = Attempts::new(&[]);
    attempts.kill_at_each(&["fork", "task", "copy"], |lab| {
        assert_eq!(box_contents(&box_dir(lab, "task")), backup_contents(lab));
        if !box_dir(lab, "copy").exists() {
            return "before";
        }
        assert_eq!(box_contents(&box_dir(lab, "copy")), backup_contents(lab));
        "after"
    });
}

/// Returns the contents of the box in the backup.
fn backup_contents(lab: &Lab) -> Contents {
    box_contents(&lab.dir().join("backup/boxes/task"))
}
