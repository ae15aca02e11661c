//! Tests of an apply while a process on the host changes the workspace.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use belljar_workspace::{ApplySession, Choice, Pick, plan_apply};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::fixture::{Run, all, snapshot};

/// Runs an apply repeatedly while `disturb` runs in another thread. Conflicts and skipped changes
/// are allowed.
fn apply_while(run: &Run, rounds: u64, disturb: impl Fn(u64) + Sync) {
    let (layers, changes) = (run.layers(), run.seal());
    let choice = Choice { theirs: Pick::All, ..all() };
    let done = AtomicBool::new(false);
    let turns = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let disturber = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                disturb(turns.fetch_add(1, Ordering::Relaxed));
            }
        });
        // The guard also stops the thread if an assertion fails, because the scope waits for it.
        let _stop = SetOnDrop(&done);
        let (mut round, mut applied) = (0, 0);
        while !disturber.is_finished() && (round < rounds || turns.load(Ordering::Relaxed) < 10_000)
        {
            round += 1;
            let mut session = ApplySession::begin(&layers).unwrap();
            let Ok(observed) = session.observe(&changes) else { continue };
            let Ok(plan) = plan_apply(&observed, &choice).settle() else { continue };
            session.apply(plan, &mut |_| {}).unwrap();
            applied += 1;
        }
        assert!(applied > 0, "none of {round} rounds reached an apply");
    });
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn c11_apply_never_writes_outside_when_a_directory_is_swapped_for_a_link() {
    let outside = tempfile::tempdir().unwrap();
    for name in ["b", "c"] {
        fs::write(outside.path().join(name), "precious").unwrap();
    }
    let before = snapshot(outside.path());
    let run = Run::new("mkdir d; echo b > d/b; echo c > d/c");
    run.in_box("echo evil > d/b; rm d/c; echo evil > d/n; mkdir -p d/s; echo evil > d/s/t");
    let (dir, link) = (run.lower().join("d"), run.lower().join("link"));
    symlink(outside.path(), &link).unwrap();
    apply_while(&run, 100, |turn| {
        // The directory and the link exchange names, then the files are restored.
        renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
        if turn % 2 == 1 {
            fs::write(dir.join("b"), "b\n").unwrap();
            fs::write(dir.join("c"), "c\n").unwrap();
            drop(fs::remove_file(dir.join("n")));
        }
    });
    assert_eq!(snapshot(outside.path()), before);
    check_no_leftovers(&run);
}

#[test]
fn c11_apply_never_writes_through_a_link_swapped_for_a_file() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("target");
    fs::write(&target, "precious").unwrap();
    let run = Run::new("echo a > a; echo b > b");
    run.in_box("echo evil > a; rm b; echo evil > n");
    let (lower, link) = (run.lower(), run.lower().join("link"));
    symlink(&target, &link).unwrap();
    apply_while(&run, 100, |turn| {
        let name = lower.join(["a", "b", "n"][usize::try_from(turn % 3).unwrap()]);
        if renameat_with(CWD, &name, CWD, &link, RenameFlags::EXCHANGE).is_err() {
            // `create_new` never follows the link, which the apply can be moving back at this
            // moment.
            drop(fs::File::create_new(&name));
        }
        if fs::symlink_metadata(&link).is_ok_and(|meta| !meta.is_symlink()) && turn % 5 == 0 {
            drop(fs::remove_file(&link));
            symlink(&target, &link).unwrap();
        }
    });
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    check_no_leftovers(&run);
}

#[test]
fn c11_apply_never_loses_a_file_that_the_host_writes_at_the_same_time() {
    let run = Run::new("echo 0 > a");
    run.in_box("echo box > a");
    let (file, next) = (run.lower().join("a"), run.lower().join("a.next"));
    let last = AtomicU64::new(0);
    apply_while(&run, 100, |turn| {
        // As editors do: a new file is renamed over the old one.
        fs::write(&next, format!("host {turn}\n")).unwrap();
        fs::rename(&next, &file).unwrap();
        last.store(turn, Ordering::Relaxed);
    });
    // Each version was replaced by the host itself or moved to the trash by the apply.
    let newest = format!("host {}\n", last.load(Ordering::Relaxed));
    let kept = fs::read_dir(run.run_dir().join("trash")).unwrap();
    let mut found: Vec<String> =
        kept.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    found.push(fs::read_to_string(&file).unwrap());
    assert!(found.contains(&newest), "{newest} is lost");
    assert!(
        found
            .iter()
            .all(|text| text.starts_with("host ") || matches!(text.as_str(), "0\n" | "box\n"))
    );
    check_no_leftovers(&run);
}

/// Checks that no temporary file of an apply is left after the next apply has begun.
#[track_caller]
fn check_no_leftovers(run: &Run) {
    drop(ApplySession::begin(&run.layers()).unwrap());
    let names = snapshot(&run.lower());
    let ours = |name: &Vec<u8>| name.windows(9).any(|part| part == b".belljar-");
    assert!(!names.keys().any(ours), "{names:?}");
}
