//! The lock that serializes appends of several processes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use super::RecordError;
use super::tip::doing;
use crate::paths::LedgerPaths;

/// The lock file of a ledger.
#[derive(Debug)]
pub(super) struct LockFile {
    file: File,
    path: PathBuf,
    /// The maximum time to wait for the lock.
    pub(super) timeout: Duration,
}

/// The exclusive lock of a ledger, held while the log can grow and released on drop.
#[derive(Debug)]
pub(super) struct LedgerLock(File);

const TIMEOUT: Duration = Duration::from_secs(30);

impl LockFile {
    pub(super) fn open(paths: &LedgerPaths) -> io::Result<Self> {
        let path = paths.lock();
        Ok(Self { file: open(&path)?, path, timeout: TIMEOUT })
    }

    /// Waits for the lock, and reports its holder after the timeout.
    pub(super) fn take(&mut self) -> Result<LedgerLock, RecordError> {
        let began = Instant::now();
        let mut pause = Duration::from_micros(50);
        loop {
            match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_file_at(&self.file, &self.path) => return self.taken(),
                // The file was removed: a lock on it does not exclude other processes.
                Ok(()) => self.file = open(&self.path).map_err(doing("lock the ledger"))?,
                Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < self.timeout => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(2));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(self.busy()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(doing("lock the ledger")(error.into())),
            }
        }
    }

    fn taken(&self) -> Result<LedgerLock, RecordError> {
        let pid = format!("{:<10}", std::process::id());
        self.file.write_all_at(pid.as_bytes(), 0).ok(); // only for the message of `busy`
        let lock = self.file.try_clone().map(LedgerLock);
        lock.map_err(doing("use the lock of the ledger"))
    }

    fn busy(&self) -> RecordError {
        let mut name = [0; 10];
        let count = self.file.read_at(&mut name, 0).unwrap_or(0);
        let name = String::from_utf8_lossy(name.get(..count).unwrap_or_default());
        let holder = format!("pid {}", name.trim());
        RecordError::Busy { holder, seconds: self.timeout.as_secs() }
    }
}

impl Drop for LedgerLock {
    fn drop(&mut self) {
        rustix::fs::flock(&self.0, FlockOperation::Unlock).ok(); // close does it too
    }
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
