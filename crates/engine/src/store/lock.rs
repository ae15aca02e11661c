//! Directories that are there for as long as a process is, and locks that say that somebody lives.
//!
//! ```text
//! <all>/<name>/lock    locked by whoever made the directory; nobody is left when it is free
//! ```

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::fs::FlockOperation;

/// Whoever only looks at a lock has it for a moment. Whoever wants it waits for that.
pub const GLANCE: Duration = Duration::from_millis(500);

/// How long a command waits for another one that changes the same box or run.
pub const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Takes the lock of a file. False if somebody has it for longer than that.
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
    let made = || -> std::io::Result<(PathBuf, File)> {
        DirBuilder::new().recursive(true).mode(0o700).create(all)?;
        let _turn = turn(all)?;
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
    let Ok(turn) = turn(all) else { return }; // there are none yet
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
    drop(turn);
    for (dir, _lock) in ended {
        remove(&dir);
    }
}

/// Only one at a time makes directories or looks for those to remove: in between a new one has no
/// lock yet, or one that nobody has.
fn turn(all: &Path) -> std::io::Result<File> {
    let dir = File::open(all)?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&dir, FlockOperation::LockExclusive))?;
    Ok(dir)
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
}
