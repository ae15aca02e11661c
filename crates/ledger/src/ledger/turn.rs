//! Whose turn it is to append: processes lock a file, one after the other.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use super::RecordError;
use super::tip::doing;
use crate::paths::LedgerPaths;

/// The file that is locked.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
    /// How long to wait for a turn.
    pub(super) patience: Duration,
}

/// Held while the log may grow; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Turn(File);

const PATIENCE: Duration = Duration::from_secs(30);

impl Lock {
    pub(super) fn open(paths: &LedgerPaths) -> io::Result<Self> {
        let path = paths.lock();
        Ok(Self { file: open(&path)?, path, patience: PATIENCE })
    }

    /// Waits for the lock, and says who has it when that takes too long.
    pub(super) fn take(&mut self) -> Result<Turn, RecordError> {
        let began = Instant::now();
        let mut pause = Duration::from_micros(50);
        loop {
            match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_at(&self.file, &self.path) => return self.taken(),
                // Somebody removed the file: a lock on it keeps nobody out.
                Ok(()) => self.file = open(&self.path).map_err(doing("lock the ledger"))?,
                Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < self.patience => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(2));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(self.busy()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(doing("lock the ledger")(error.into())),
            }
        }
    }

    fn taken(&self) -> Result<Turn, RecordError> {
        let name = format!("{:<10}", std::process::id());
        self.file.write_all_at(name.as_bytes(), 0).ok(); // only for the message below
        let turn = self.file.try_clone().map(Turn);
        turn.map_err(doing("use the lock of the ledger"))
    }

    fn busy(&self) -> RecordError {
        let mut name = [0; 10];
        let count = self.file.read_at(&mut name, 0).unwrap_or(0);
        let name = String::from_utf8_lossy(name.get(..count).unwrap_or_default());
        let holder = format!("pid {}", name.trim());
        RecordError::Busy { holder, seconds: self.patience.as_secs() }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        rustix::fs::flock(&self.0, FlockOperation::Unlock).ok(); // closing it would do the same
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    // To be ready to make it, the file system locks the directory: only when it must.
    options.open(path).or_else(|_| options.create(true).open(path))
}

/// Whether the open file is the one that the path leads to.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), path.symlink_metadata()) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}
