//! `kill -9` in the middle of whatever moves boxes about: there is never half of one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use belljar_testkit::Lab;

use super::changes::{dir, held, stopped};
use crate::lab;

/// Calls that change what is on disk.
const CHANGING: [&str; 13] = [
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

type Held = BTreeMap<String, String>;

/// A lab with a stopped box, of which every attempt begins anew.
struct Attempts {
    lab: Lab,
    kept: PathBuf,
}

impl Attempts {
    /// `setup` are commands that come before the copy that every attempt begins with.
    fn new(setup: &[&[&str]]) -> Self {
        let lab = lab();
        stopped(&lab, "task");
        setup.iter().for_each(|args| drop(lab.belljar(*args).succeed()));
        let kept = lab.dir().join("kept");
        fs::create_dir(&kept).unwrap();
        for name in ["boxes", "trash"] {
            if lab.state().join(name).exists() {
                // Overlayfs leaves a directory of mode 0, which a plain user could not copy.
                let open =
                    ["-type", "d", "-perm", "0", "-prune", "-exec", "chmod", "700", "{}", "+"];
                lab.program("find").arg(lab.state().join(name)).args(open).succeed();
                lab.program("cp").arg("-a").arg(lab.state().join(name)).arg(&kept).succeed();
            }
        }
        Self { lab, kept }
    }

    fn begin_anew(&self) {
        for name in ["boxes", "trash"] {
            let (now, kept) = (self.lab.state().join(name), self.kept.join(name));
            if now.exists() {
                self.lab.program("chmod").args(["-R", "u+rwX"]).arg(&now).succeed();
                self.lab.program("rm").arg("-rf").arg(&now).succeed();
            }
            if kept.exists() {
                self.lab.program("cp").arg("-a").arg(&kept).arg(self.lab.state()).succeed();
            }
        }
    }

    /// Kills the command before each of its changes, and looks at what is there then.
    fn kill_at_each(&self, args: &[&str], look: impl Fn(&Lab) -> &'static str) {
        let trace = self.lab.dir().join("trace");
        let file = trace.to_str().unwrap();
        let calls = format!("trace={}", CHANGING.join(","));
        self.lab.belljar(args).through(["strace", "-o", file, "-e", &calls]).succeed();
        let text = fs::read_to_string(&trace).unwrap();
        let names = text.lines().filter_map(|line| line.split_once('(').map(|(name, _)| name));
        let mut moments: Vec<(&str, usize)> = Vec::new();
        for name in names.filter(|name| CHANGING.contains(name)) {
            let before = moments.iter().filter(|(other, _)| *other == name).count();
            moments.push((name, before + 1));
        }
        let mut seen: BTreeMap<&'static str, usize> = BTreeMap::new();
        let step = moments.len().div_ceil(60);
        for (name, number) in moments.iter().step_by(step) {
            self.begin_anew();
            let trace = format!("trace={name}");
            let inject = format!("inject={name}:signal=KILL:when={number}");
            let strace = ["strace", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            self.lab.belljar(args).through(strace).run();
            // Whoever takes the turn of a box finishes what was begun.
            for name in self.lab.boxes() {
                self.lab.belljar(["stop", &name]).succeed();
            }
            *seen.entry(look(&self.lab)).or_default() += 1;
        }
        assert!(seen.contains_key("before"), "some were killed early: {seen:?}");
        assert!(seen.contains_key("after"), "some were killed late: {seen:?}");
        self.lab.belljar(["ledger", "verify"]).succeed();
    }
}

/// The one thing in the trash, if there is one.
fn in_trash(lab: &Lab) -> Option<PathBuf> {
    let entries = fs::read_dir(lab.state().join("trash")).ok()?;
    let mut all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    all.retain(|path| path.join("trash.json").exists());
    assert!(all.len() <= 1, "{all:?}");
    all.pop()
}

fn only(all: &Held, which: &str) -> Held {
    let mut all = all.clone();
    all.retain(|name, _| name.split('/').next() == Some(which));
    all
}

fn here(path: &Path) -> Held {
    if path.exists() { held(path) } else { Held::new() }
}

#[test]
fn killed_down_or_restore_leaves_the_box_complete_in_one_place() {
    let attempts = Attempts::new(&[]);
    let whole = held(&dir(&attempts.lab, "task"));
    attempts.kill_at_each(&["down", "--discard-work", "task"], |lab| {
        if dir(lab, "task").exists() {
            assert_eq!(held(&dir(lab, "task")), whole);
            return "before";
        }
        assert_eq!(held(&in_trash(lab).expect("in the trash")), whole);
        lab.belljar(["restore", "task"]).succeed();
        assert_eq!(held(&dir(lab, "task")), whole);
        "after"
    });
    let attempts = Attempts::new(&[&["down", "--discard-work", "task"]]);
    let whole = held(&in_trash(&attempts.lab).unwrap());
    attempts.kill_at_each(&["restore", "task", "--as", "other"], |lab| {
        if dir(lab, "other").exists() {
            assert_eq!(held(&dir(lab, "other")), whole);
            return "after";
        }
        assert_eq!(held(&in_trash(lab).expect("in the trash")), whole);
        lab.belljar(["restore", "task"]).succeed();
        assert_eq!(held(&dir(lab, "task")), whole);
        "before"
    });
}

#[test]
fn killed_discard_or_reset_is_either_complete_or_without_effect() {
    for command in ["discard", "reset"] {
        let attempts = Attempts::new(&[]);
        let whole = held(&dir(&attempts.lab, "task"));
        attempts.kill_at_each(&[command, "--discard-work", "task"], |lab| {
            let now = here(&dir(lab, "task"));
            if now == whole {
                return "before";
            }
            assert_eq!(only(&now, "upper"), Held::new(), "{command}");
            let kept = held(&in_trash(lab).expect("in the trash"));
            assert_eq!(only(&kept, "upper"), only(&whole, "upper"), "{command}");
            let home = if command == "reset" { &kept } else { &now };
            assert_eq!(only(home, "home"), only(&whole, "home"), "{command}");
            "after"
        });
    }
}

#[test]
fn killed_snapshot_or_fork_leaves_a_complete_copy_or_none() {
    let attempts = Attempts::new(&[]);
    let whole = held(&dir(&attempts.lab, "task"));
    attempts.kill_at_each(&["snapshot", "task", "tag"], |lab| {
        let mut now = held(&dir(lab, "task"));
        now.retain(|name, _| !name.starts_with("snapshots"));
        assert_eq!(now, whole);
        let snapshot = dir(lab, "task").join("snapshots/tag");
        if !snapshot.exists() {
            return "before";
        }
        assert_eq!(held(&snapshot), whole);
        "after"
    });
    let attempts = Attempts::new(&[]);
    attempts.kill_at_each(&["fork", "task", "copy"], |lab| {
        assert_eq!(held(&dir(lab, "task")), whole_of(lab));
        if !dir(lab, "copy").exists() {
            return "before";
        }
        assert_eq!(held(&dir(lab, "copy")), whole_of(lab));
        "after"
    });
}

/// What the box held when the attempts began.
fn whole_of(lab: &Lab) -> Held {
    held(&lab.dir().join("kept/boxes/task"))
}
