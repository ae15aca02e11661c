//! Locks of the store. All locks of the engine are taken here, in one order.
//!
//! A lock is a file that a process locks with flock(2). Locks in order of acquisition:
//!
//! | rank | lock | held by | how it is taken |
//! |---|---|---|---|
//! | [`Rank::Box`] | `boxes/NAME/turn` | commands that change a box | 30 s, then `Busy`; several boxes in the order of their paths |
//! | [`Rank::Review`] | `review` of a run or box | apply, discard | 30 s, then `Busy` |
//! | none | `lock` of a run, box, session, incoming; `calls/ID` | a live process | never waited for |
//! | [`Rank::Directory`] | directories `sessions/`, `incoming/` | make, sweep | blocking |
//! | none | `apply.log`; `vault/`, `skills/`, `mcp/` | one writer | in their crates, which call nothing of the engine while they hold one |
//! | [`Rank::Ledger`] | `ledger/lock` | append | 30 s, then `Busy`; in crates/ledger |
//!
//! **Invariant:** no thread waits for a lock while it holds the same one or a later one. So nothing is
//! waited for while the ledger is held, and no two commands wait for each other. The module `order` checks
//! that in builds with debug assertions.
//!
//! Locks of live processes have no rank. Nobody waits for them, so no order of them can block:
//!
//! ```text
//! <all>/<name>/lock    locked by the maker of the directory; if it is free, the maker is gone
//! ```

mod order;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::fs::FlockOperation;

/// Whoever only looks at a lock has it for a moment. Whoever wants it waits for that.
pub const GLANCE: Duration = Duration::from_millis(500);

/// How long a command waits for another one that changes the same box or run.
pub const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Locks that are waited for, in the order in which a thread may take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    Box,
    Review,
    Directory,
    Ledger,
}

/// A lock with a rank. It is free when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Held {
    _file: File,
    _entry: order::Entry,
}

/// Waits for the lock of a file, which is made if it is missing. `None`: another process had it all the
/// time.
pub fn wait(path: &Path, rank: Rank, timeout: Duration) -> io::Result<Option<Held>> {
    let entry = order::enter(rank, path);
    let until = Instant::now() + timeout;
    loop {
        let file = File::create(path)?;
        if !take(&file, until.saturating_duration_since(Instant::now())) {
            return Ok(None);
        }
        // What it belongs to may have been moved away meanwhile: then this lock keeps nobody out.
        if is_at(&file, path) {
            return Ok(Some(Held { _file: file, _entry: entry }));
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), path.symlink_metadata()) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Says that this thread is about to use the ledger, which locks it, until the value is dropped.
pub(super) fn ledger(dir: &Path) -> impl Sized {
    order::enter(Rank::Ledger, dir)
}

/// Takes the lock of a live process. False if another process has it for longer than that.
pub fn take(file: &File, patience: Duration) -> bool {
    let began = Instant::now();
    let waited = || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let until = began + patience;
    let mut has_waited = false;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                if has_waited {
                    tracing::debug!(waited_millis = waited(), "lock was waited for");
                }
                return true;
            }
            Err(_) if Instant::now() > until => {
                tracing::debug!(waited_millis = waited(), "lock is held by another process");
                return false;
            }
            Err(_) => {
                has_waited = true;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Whether somebody has the lock of this file. Any number can look at once without seeing each other.
pub fn is_held(file: &Path) -> bool {
    let Ok(lock) = File::open(file) else { return false };
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
}

/// Makes a directory of one's own in `all`, and its lock.
pub fn make(all: &Path, name: &str) -> anyhow::Result<(PathBuf, File)> {
    let made = || -> io::Result<(PathBuf, File)> {
        DirBuilder::new().recursive(true).mode(0o700).create(all)?;
        let _held = hold_directory(all)?;
        let dir = all.join(name);
        DirBuilder::new().mode(0o700).create(&dir)?;
        let lock = File::create(dir.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok((dir, lock))
    };
    made().with_context(|| format!("make a directory in {}", all.display()))
}

/// Removes the directories in `all` whose makers are gone.
pub fn sweep(all: &Path, remove: impl Fn(&Path)) {
    let Ok(held) = hold_directory(all) else { return }; // there are none yet
    let ended: Vec<(PathBuf, Option<File>)> = fs::read_dir(all)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let dir = entry.ok()?.path();
            // Without a lock it was about to be made, or removed, by somebody who was killed.
            let Ok(lock) = File::open(dir.join("lock")) else { return Some((dir, None)) };
            let free = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
            free.then_some((dir, Some(lock)))
        })
        .collect();
    // They are ours now, and what they hold can be much.
    drop(held);
    for (dir, _lock) in ended {
        remove(&dir);
    }
}

/// Only one at a time makes directories or looks for those to remove: in between a new one has no
/// lock yet, or one that nobody has.
fn hold_directory(all: &Path) -> io::Result<Held> {
    let entry = order::enter(Rank::Directory, all);
    let file = File::open(all)?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
    Ok(Held { _file: file, _entry: entry })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_is_just_being_made_is_never_swept() {
        let dir = tempfile::tempdir().unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sweeper = || {
                while !over.load(Ordering::Relaxed) {
                    sweep(dir.path(), |dir| drop(fs::remove_dir_all(dir)));
                }
            };
            scope.spawn(sweeper);
            scope.spawn(sweeper);
            let made: Vec<_> = (0..500).map(|n| make(dir.path(), &n.to_string())).collect();
            over.store(true, Ordering::Relaxed);
            for made in made {
                assert!(made.unwrap().0.join("lock").exists());
            }
        });
        // Control: they go once nobody holds them, with or without a lock.
        fs::create_dir(dir.path().join("bare")).unwrap();
        sweep(dir.path(), |dir| drop(fs::remove_dir_all(dir)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn those_who_look_neither_see_each_other_nor_keep_anybody_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = File::create(&path).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looks = || (0..1000).for_each(|_| assert!(!is_held(&path)));
            let lookers = [scope.spawn(looks), scope.spawn(looks)];
            assert!(lookers.into_iter().all(|looker| looker.join().is_ok()));
        });
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    is_held(&path);
                }
            });
            let taken = (0..200).filter(|_| {
                let taken = take(&file, GLANCE) && is_held(&path);
                taken && rustix::fs::flock(&file, FlockOperation::Unlock).is_ok()
            });
            let taken = taken.count();
            over.store(true, Ordering::Relaxed);
            assert_eq!(taken, 200);
        });
        assert!(take(&file, GLANCE));
        assert!(!take(&File::open(&path).unwrap(), GLANCE), "somebody has it");
    }

    #[test]
    fn lock_of_a_directory_that_was_moved_away_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (home, away) = (dir.path().join("box"), dir.path().join("away"));
        fs::create_dir(&home).unwrap();
        let path = home.join("turn");
        let held = wait(&path, Rank::Box, GLANCE).unwrap().unwrap();
        let waiting = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(&path, Rank::Box, CHANGE_TIMEOUT));
            // It has the file open: it is in the list of this process's descriptors twice.
            let has_opened = || {
                let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
                open.filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == path)).count() == 2
            };
            belljar_testkit::eventually("the other thread waits", has_opened);
            fs::rename(&home, &away).unwrap();
            drop(held);
            waiting.join().unwrap()
        });
        assert_eq!(waiting.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(wait(&away.join("turn"), Rank::Box, GLANCE).unwrap().is_some(), "it is free");
    }

    #[test]
    fn lock_that_is_held_is_given_up_after_the_timeout_and_free_after_the_drop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("turn");
        let timeout = Duration::from_millis(50);
        let held = wait(&path, Rank::Box, timeout).unwrap().unwrap();
        let began = Instant::now();
        let second = std::thread::scope(|scope| {
            scope.spawn(|| wait(&path, Rank::Box, timeout).unwrap().is_some()).join().unwrap()
        });
        assert!(!second && began.elapsed() >= timeout, "{:?}", began.elapsed());
        drop(held);
        assert!(wait(&path, Rank::Box, timeout).unwrap().is_some(), "control");
    }
}
