//! Locks of the state directory. The engine acquires all its locks here, in one order.
//!
//! A lock is a file that a process locks with flock(2). Locks in order of acquisition:
//!
//! | rank | lock | held by | how it is acquired |
//! |---|---|---|---|
//! | [`Rank::Box`] | `boxes/NAME/turn` | commands that change a box | 30 s, then `Busy`; several boxes in the order of their paths |
//! | [`Rank::Review`] | `review` of a run or box | apply, discard | 30 s, then `Busy` |
//! | none | `lock` of a run, box, session, incoming; `calls/ID`; `driver.lock`; `server/lock` | a live process | never waited for, but the server waits for the end of a driver |
//! | [`Rank::Directory`] | directories `sessions/`, `incoming/` | create, remove abandoned | blocking |
//! | [`Rank::Directory`] | `plans/keys/lock` | submissions with a key | 30 s, then `Busy` |
//! | [`Rank::Directory`] | `schedules/lock` | changes of stored schedules | 30 s, then `Busy` |
//! | [`Rank::Directory`] | `plans/limits.lock` | submissions of callers with limits | 30 s, then `Busy` |
//! | [`Rank::Directory`] | `plans/runs.lock` | opening and removing `runs.db` | 5 s, then `Busy` |
//! | none | `apply.log`; `vault/`, `skills/`, `mcp/` | one writer | in their crates, which never call the engine while they hold it |
//! | [`Rank::Ledger`] | `ledger/lock` | append | 30 s, then `Busy`; in crates/ledger |
//!
//! **Invariant:** no thread waits for a lock while it holds the same lock or a later one. So no thread waits
//! for a lock while it holds the ledger, and commands cannot deadlock. The module `order` checks this in
//! builds with debug assertions.
//!
//! Locks of live processes have no rank. No thread waits for them, so they cannot cause a deadlock:
//!
//! ```text
//! <parent>/<name>/lock    held by the creator of the directory; if it is free, the creator has exited
//! ```

mod order;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::fs::FlockOperation;

/// The maximum time to wait for a lock that other processes only check with [`is_held`].
pub const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// The maximum time that a command waits for another command that changes the same box or run.
pub const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The ranks of locks, in the order in which a thread may acquire them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    Box,
    Review,
    Directory,
    Ledger,
}

/// A lock with a rank that is held. Dropping the value releases the lock.
#[derive(Debug)]
#[must_use]
pub struct LockGuard {
    _file: File,
    _entry: order::HeldEntry,
}

/// Waits for the lock of a file, and creates the file if it is missing. Returns `None` after the timeout.
pub fn acquire(path: &Path, rank: Rank, timeout: Duration) -> io::Result<Option<LockGuard>> {
    let entry = order::enter(rank, path);
    let deadline = Instant::now() + timeout;
    loop {
        let file = File::create(path)?;
        if !try_acquire(&file, deadline.saturating_duration_since(Instant::now())) {
            return Ok(None);
        }
        // The directory may have been renamed in the meantime. Then other processes lock another file.
        if is_at(&file, path) {
            return Ok(Some(LockGuard { _file: file, _entry: entry }));
        }
    }
}

/// Checks whether a path still leads to the open file.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(current)) = (file.metadata(), path.symlink_metadata()) else { return false };
    (open.dev(), open.ino()) == (current.dev(), current.ino())
}

/// Registers that this thread uses the ledger, which has its own lock, until the returned value is dropped.
pub(super) fn enter_ledger(dir: &Path) -> impl Sized {
    order::enter(Rank::Ledger, dir)
}

/// Acquires the lock of a live process. Returns `false` if another process holds it until the timeout.
pub fn try_acquire(file: &File, timeout: Duration) -> bool {
    let start = Instant::now();
    let waited = || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let deadline = start + timeout;
    let mut has_waited = false;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                if has_waited {
                    tracing::debug!(waited_millis = waited(), "lock acquired after waiting");
                }
                return true;
            }
            Err(_) if Instant::now() > deadline => {
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

/// Waits until no process holds the lock of this file. The kernel ends the wait, also if the holder was killed.
///
/// The calling thread must hold no lock, because the holder can wait for one.
pub fn wait_until_released(file: &Path) -> io::Result<()> {
    let lock = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    loop {
        match rustix::fs::flock(&lock, FlockOperation::LockShared) {
            Err(rustix::io::Errno::INTR) => {}
            waited => return Ok(waited?),
        }
    }
}

/// Checks whether a process holds the lock of this file.
///
/// Concurrent checks do not disturb each other, because they use a shared lock.
pub fn is_held(file: &Path) -> bool {
    let Ok(lock) = File::open(file) else { return false };
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
}

/// Creates the directory `name` in `parent` for this process, with a lock that this process holds.
pub fn create_locked_dir(parent: &Path, name: &str) -> anyhow::Result<(PathBuf, File)> {
    let create = || -> io::Result<(PathBuf, File)> {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        let _guard = lock_directory(parent)?;
        let dir = parent.join(name);
        DirBuilder::new().mode(0o700).create(&dir)?;
        let lock = File::create(dir.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok((dir, lock))
    };
    create().with_context(|| format!("cannot create a directory in {}", parent.display()))
}

/// Removes the directories in `parent` whose creators have exited.
pub fn remove_abandoned_dirs(parent: &Path, remove: impl Fn(&Path)) {
    let Ok(guard) = lock_directory(parent) else { return }; // the parent directory does not exist yet
    let abandoned: Vec<(PathBuf, Option<File>)> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let dir = entry.ok()?.path();
            // Without a lock file, the process that created or removed the directory was killed.
            let Ok(lock) = File::open(dir.join("lock")) else { return Some((dir, None)) };
            let free = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
            free.then_some((dir, Some(lock)))
        })
        .collect();
    // This process holds the locks of these directories now. Removing them may take long, so release the
    // lock of the parent first.
    drop(guard);
    for (dir, _lock) in abandoned {
        remove(&dir);
    }
}

/// Locks a parent directory while a process creates directories in it or searches for abandoned ones.
///
/// Without this lock, a directory that is just being created would look abandoned.
fn lock_directory(parent: &Path) -> io::Result<LockGuard> {
    let entry = order::enter(Rank::Directory, parent);
    let file = File::open(parent)?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
    Ok(LockGuard { _file: file, _entry: entry })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn remove_abandoned_dirs_never_removes_a_directory_that_is_being_created() {
        let dir = tempfile::tempdir().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sweeper = || {
                while !done.load(Ordering::Relaxed) {
                    remove_abandoned_dirs(dir.path(), |dir| drop(fs::remove_dir_all(dir)));
                }
            };
            scope.spawn(sweeper);
            scope.spawn(sweeper);
            let created: Vec<_> =
                (0..500).map(|n| create_locked_dir(dir.path(), &n.to_string())).collect();
            done.store(true, Ordering::Relaxed);
            for created in created {
                assert!(created.unwrap().0.join("lock").exists());
            }
        });
        // Control: directories with a free lock or without a lock file are removed.
        fs::create_dir(dir.path().join("bare")).unwrap();
        remove_abandoned_dirs(dir.path(), |dir| drop(fs::remove_dir_all(dir)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn is_held_ignores_concurrent_checks_and_does_not_block_try_acquire() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = File::create(&path).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let check = || (0..1000).for_each(|_| assert!(!is_held(&path)));
            let checks = [scope.spawn(check), scope.spawn(check)];
            assert!(checks.into_iter().all(|check| check.join().is_ok()));
        });
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    is_held(&path);
                }
            });
            let acquired = (0..200).filter(|_| {
                let acquired = try_acquire(&file, PROBE_TIMEOUT) && is_held(&path);
                acquired && rustix::fs::flock(&file, FlockOperation::Unlock).is_ok()
            });
            let acquired = acquired.count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(acquired, 200);
        });
        assert!(try_acquire(&file, PROBE_TIMEOUT));
        assert!(!try_acquire(&File::open(&path).unwrap(), PROBE_TIMEOUT), "the lock is held");
    }

    #[test]
    fn acquire_fails_when_the_directory_of_the_lock_was_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let (home, away) = (dir.path().join("box"), dir.path().join("away"));
        fs::create_dir(&home).unwrap();
        let path = home.join("turn");
        let held = acquire(&path, Rank::Box, PROBE_TIMEOUT).unwrap().unwrap();
        let waiting = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| acquire(&path, Rank::Box, CHANGE_TIMEOUT));
            // The other thread has opened the file when this process has two descriptors of it.
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
        assert!(
            acquire(&away.join("turn"), Rank::Box, PROBE_TIMEOUT).unwrap().is_some(),
            "the lock is free"
        );
    }

    #[test]
    fn acquire_gives_up_after_the_timeout_and_succeeds_after_the_guard_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("turn");
        let timeout = Duration::from_millis(50);
        let held = acquire(&path, Rank::Box, timeout).unwrap().unwrap();
        let start = Instant::now();
        let second = std::thread::scope(|scope| {
            scope.spawn(|| acquire(&path, Rank::Box, timeout).unwrap().is_some()).join().unwrap()
        });
        assert!(!second && start.elapsed() >= timeout, "{:?}", start.elapsed());
        drop(held);
        assert!(acquire(&path, Rank::Box, timeout).unwrap().is_some(), "control");
    }
}
