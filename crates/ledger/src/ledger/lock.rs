//! The lock that serializes appends of several processes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::FlockOperation;

use super::RecordError;
use super::tip::doing;
use crate::paths::LedgerPaths;

/// The lock file of a ledger, and the file in whose queue the waiting processes stand.
///
/// A process that waits for the lock holds the lock of the queue. A process that just released the
/// lock must pass the queue again, so it cannot take the lock before those that waited.
#[derive(Debug)]
pub(super) struct LockFile {
    lock: Arc<File>,
    queue: Arc<File>,
    paths: LockPaths,
    /// The maximum time to wait while no other process takes the lock either.
    pub(super) timeout: Duration,
}

#[derive(Debug)]
struct LockPaths {
    lock: PathBuf,
    queue: PathBuf,
}

/// The exclusive lock of a ledger, held while the log can grow and released on drop.
#[derive(Debug)]
pub(super) struct LedgerLock(Arc<File>);

const TIMEOUT: Duration = Duration::from_secs(30);

impl LockFile {
    pub(super) fn open(paths: &LedgerPaths) -> io::Result<Self> {
        let paths = LockPaths { lock: paths.lock(), queue: paths.queue() };
        let (lock, queue) = (open(&paths.lock)?.into(), open(&paths.queue)?.into());
        Ok(Self { lock, queue, paths, timeout: TIMEOUT })
    }

    /// Waits for the lock. Fails with the holder if the lock does not change hands for the timeout.
    pub(super) fn take(&mut self) -> Result<LedgerLock, RecordError> {
        loop {
            let lock = match self.try_take() {
                Ok(Some(lock)) => lock,
                Ok(None) => self.wait()?,
                Err(error) => return Err(doing("lock the ledger")(error)),
            };
            if is_file_at(&lock.0, &self.paths.lock) {
                let pid = format!("{:<10}", std::process::id());
                lock.0.write_all_at(pid.as_bytes(), 0).ok(); // only for the message of `busy`
                return Ok(lock);
            }
            // The file was removed: a lock on it does not exclude other processes.
            drop(lock);
            self.reopen()?;
        }
    }

    /// Takes the lock if no process holds it or waits for it.
    fn try_take(&self) -> io::Result<Option<LedgerLock>> {
        if !try_flock(&self.queue)? {
            return Ok(None);
        }
        let taken = try_flock(&self.lock);
        unlock(&self.queue);
        Ok(taken?.then(|| LedgerLock(self.lock.clone())))
    }

    /// Waits for the lock in a thread, because `flock` has no timeout.
    fn wait(&mut self) -> Result<LedgerLock, RecordError> {
        let (sender, receiver) = mpsc::sync_channel(0);
        let (lock, queue) = (self.lock.clone(), self.queue.clone());
        let thread = thread::Builder::new().name("ledger-lock".to_owned());
        let waiting = thread.spawn(move || {
            let taken = flock(&queue).and_then(|()| {
                let taken = flock(&lock);
                unlock(&queue);
                taken
            });
            // A lock that nobody waits for any more is released when the message is dropped.
            sender.send(taken.map(|()| LedgerLock(lock))).ok();
        });
        waiting.map_err(doing("wait for the lock of the ledger"))?;
        let mut stall = Stall::new(self.last_change(), Instant::now());
        loop {
            let rest = self.timeout.saturating_sub(stall.duration(Instant::now()));
            match receiver.recv_timeout(rest.min(Duration::from_secs(1))) {
                Ok(taken) => return taken.map_err(doing("lock the ledger")),
                Err(RecvTimeoutError::Disconnected) => return Err(RecordError::Broken),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            stall.observe(self.last_change(), now);
            if stall.duration(now) >= self.timeout {
                let busy = self.busy();
                // The thread still waits on the old descriptors, and would lock this process out.
                self.reopen()?;
                return Err(busy);
            }
        }
    }

    /// Returns when a process last took the lock.
    fn last_change(&self) -> Option<SystemTime> {
        self.lock.metadata().and_then(|it| it.modified()).ok()
    }

    fn reopen(&mut self) -> Result<(), RecordError> {
        let reopen = |path: &Path| open(path).map(Arc::new).map_err(doing("lock the ledger"));
        self.lock = reopen(&self.paths.lock)?;
        self.queue = reopen(&self.paths.queue)?;
        Ok(())
    }

    fn busy(&self) -> RecordError {
        let mut name = [0; 10];
        let count = self.lock.read_at(&mut name, 0).unwrap_or(0);
        let name = String::from_utf8_lossy(name.get(..count).unwrap_or_default());
        let holder = format!("pid {}", name.trim());
        RecordError::Busy { holder, seconds: self.timeout.as_secs() }
    }
}

/// The time for which a lock did not change hands.
#[derive(Debug)]
struct Stall {
    last_change: Option<SystemTime>,
    since: Instant,
}

impl Stall {
    const fn new(last_change: Option<SystemTime>, now: Instant) -> Self {
        Self { last_change, since: now }
    }

    /// Starts the time anew if the lock changed hands since the last observation.
    fn observe(&mut self, last_change: Option<SystemTime>, now: Instant) {
        if self.last_change != last_change {
            *self = Self::new(last_change, now);
        }
    }

    fn duration(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

impl Drop for LedgerLock {
    fn drop(&mut self) {
        unlock(&self.0);
    }
}

fn flock(file: &File) -> io::Result<()> {
    rustix::io::retry_on_intr(|| rustix::fs::flock(file, FlockOperation::LockExclusive))
        .map_err(io::Error::from)
}

/// Takes the lock of a file without waiting, and returns whether it was free.
fn try_flock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn unlock(file: &File) {
    rustix::fs::flock(file, FlockOperation::Unlock).ok(); // close does it too
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    // `O_CREAT` locks the directory, so it is used only if the file is missing.
    options.open(path).or_else(|_| options.create(true).open(path))
}

/// Returns whether the open file is the file at this path.
pub(super) fn is_file_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), path.symlink_metadata()) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tempfile::TempDir;

    use super::*;

    fn locks(home: &TempDir) -> [LockFile; 2] {
        let paths = LedgerPaths::under(home.path());
        std::fs::create_dir_all(paths.ledger()).unwrap();
        [LockFile::open(&paths).unwrap(), LockFile::open(&paths).unwrap()]
    }

    #[test]
    fn h04_timeout_starts_anew_whenever_the_lock_changes_hands() {
        let began = Instant::now();
        let second = |number| began + Duration::from_secs(number);
        let change = |number| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(number));
        let mut stall = Stall::new(change(1), began);
        stall.observe(change(1), second(20));
        assert_eq!(stall.duration(second(20)), Duration::from_secs(20));
        stall.observe(change(2), second(29));
        assert_eq!(stall.duration(second(40)), Duration::from_secs(11));
        stall.observe(change(2), second(60));
        assert_eq!(stall.duration(second(60)), Duration::from_secs(31));
    }

    /// A writer that releases the lock and takes it again at once must let a waiting writer go first.
    #[test]
    fn h04_writer_does_not_take_the_lock_again_before_a_waiting_writer() {
        let home = TempDir::new().unwrap();
        let [mut busy, mut other] = locks(&home);
        let queue = open(&busy.paths.queue).unwrap();
        let had_turn = Arc::new(AtomicBool::new(false));
        let held = busy.take().unwrap();
        let waiter = thread::spawn({
            let had_turn = Arc::clone(&had_turn);
            move || {
                // `take` would first hold the lock of the queue for a moment, without waiting.
                let _held = other.wait().unwrap();
                had_turn.store(true, Ordering::Release);
            }
        });
        // The waiter holds the lock of the queue from when it waits until it has its turn.
        while try_flock(&queue).unwrap() {
            unlock(&queue);
            thread::yield_now();
        }
        assert!(!had_turn.load(Ordering::Acquire), "control: the lock is still held");
        drop(held);
        drop(busy.take().unwrap());
        assert!(had_turn.load(Ordering::Acquire));
        waiter.join().unwrap();
    }
}
