//! The lock of the driver: at most one driver carries out the runs of a state directory.
//!
//! The kernel releases the lock when the driver exits. Each start of a driver has a higher [`Epoch`], which
//! is on disk before the driver does anything. A driver that was stopped and continues later is fenced by
//! the ledger: its events name the sequence number that they follow; see [`belljar_ledger::Draft::after`].

use std::fmt;
use std::fs::{self, File};
use std::io;

use anyhow::Context as _;

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::store::layout::Layout;
use crate::store::{Store, durable, lock};

/// The number of a driver's start, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

impl Epoch {
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The lock of the driver. Dropping the value releases it.
#[derive(Debug)]
#[must_use]
pub struct DriverLock {
    _file: File,
}

impl DriverLock {
    /// Takes the lock of the driver, or returns `None` if another driver holds it.
    ///
    /// The epoch is higher than that of every earlier start and higher than `recorded`, the last epoch in
    /// the ledger: the file of the counter can be lost with the other derived data.
    pub fn acquire(store: &Store, recorded: u64) -> Result<Option<(Self, Epoch)>, EngineError> {
        let layout = store.layout();
        let path = layout.driver_lock();
        let file = File::options().create(true).truncate(false).write(true).open(path);
        let file = file.context("cannot open the lock of the driver").kind(ErrorKind::Broken)?;
        // Other processes only test the lock, for a moment.
        if !lock::try_acquire(&file, lock::PROBE_TIMEOUT) {
            return Ok(None);
        }
        let epoch = Epoch(last_epoch(layout)?.max(recorded).saturating_add(1));
        let text = format!("{epoch}\n");
        durable::write(layout.home(), Layout::driver_epoch(), text.as_bytes())
            .context("cannot write the epoch of the driver")
            .kind(ErrorKind::Broken)?;
        tracing::info!(epoch = epoch.0, "driver holds its lock");
        Ok(Some((Self { _file: file }, epoch)))
    }

    /// Returns whether a driver is running.
    pub fn is_held(store: &Store) -> bool {
        lock::is_held(&store.layout().driver_lock())
    }

    /// Waits until no driver is running. Blocks for as long as a driver has work.
    pub fn wait_until_released(store: &Store) -> Result<(), EngineError> {
        lock::wait_until_released(&store.layout().driver_lock())
            .context("cannot wait for the end of the driver")
            .kind(ErrorKind::Broken)
    }

    /// Returns the number of the newest start of a driver, from its file; 0 if there is none. A change shows
    /// that a driver was started.
    pub fn newest_epoch(store: &Store) -> u64 {
        last_epoch(store.layout()).unwrap_or(0)
    }
}

/// Reads the epoch of the last start, or 0 if no driver was started yet.
fn last_epoch(layout: &Layout) -> Result<u64, EngineError> {
    let path = layout.home().join(Layout::driver_epoch());
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        read => read.with_context(|| format!("cannot read {}", path.display())),
    };
    let number = text.kind(ErrorKind::Broken)?.trim().parse();
    let number = number.with_context(|| format!("{} contains no number", path.display()));
    number.map_err(|error| {
        let error = EngineError::new(ErrorKind::Damaged, error);
        error.advise("remove the file; the ledger has the number as well")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        (dir, store)
    }

    #[test]
    fn h15_second_driver_gets_no_lock_and_the_next_one_a_higher_epoch() {
        let (_dir, store) = store();
        let (lock, first) = DriverLock::acquire(&store, 0).unwrap().unwrap();
        assert_eq!(first.number(), 1);
        assert!(DriverLock::is_held(&store));
        assert!(DriverLock::acquire(&store, 0).unwrap().is_none());
        drop(lock);
        assert!(!DriverLock::is_held(&store));
        let (_lock, second) = DriverLock::acquire(&store, 0).unwrap().unwrap();
        assert_eq!(second.number(), 2, "the refused driver used no epoch");
    }

    #[test]
    fn wait_for_the_end_of_a_driver_ends_when_its_lock_is_released() {
        let (_dir, store) = store();
        DriverLock::wait_until_released(&store).unwrap(); // there was no driver yet
        let (lock, epoch) = DriverLock::acquire(&store, 0).unwrap().unwrap();
        assert_eq!(DriverLock::newest_epoch(&store), epoch.number());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (waited, ended) = (sender.clone(), &store);
            scope.spawn(move || {
                DriverLock::wait_until_released(ended).unwrap();
                waited.send("released").unwrap();
            });
            sender.send("held").unwrap();
            assert_eq!(receiver.recv(), Ok("held"));
            drop(lock);
            assert_eq!(receiver.recv(), Ok("released"));
        });
        assert!(!DriverLock::is_held(&store));
    }

    #[test]
    fn epoch_is_higher_than_that_of_the_ledger_when_its_file_is_lost() {
        let (dir, store) = store();
        drop(DriverLock::acquire(&store, 0).unwrap().unwrap());
        fs::remove_file(dir.path().join(Layout::driver_epoch())).unwrap();
        let (_lock, epoch) = DriverLock::acquire(&store, 7).unwrap().unwrap();
        assert_eq!(epoch.number(), 8);
    }

    #[test]
    fn damaged_epoch_file_is_an_error_with_advice() {
        let (dir, store) = store();
        fs::write(dir.path().join(Layout::driver_epoch()), "twelve").unwrap();
        let error = DriverLock::acquire(&store, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert!(format!("{error:#}").contains("remove the file"), "{error:#}");
    }
}
