//! The ledger of one state directory, which a process opens once, at its first use.
//!
//! A process keeps one ledger per tenant open, for all scopes, runs and threads. A ledger that cannot record
//! any more is opened again: after an append failed, or after another process replaced the log. If the log
//! of an open ledger disappears, the process reports an error and never creates a new log.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use belljar_ledger::{
    Body, Digest, Draft, KeepError, Ledger, LedgerPaths, OpenError, Receipt, RecordError,
};

use super::lock;
use crate::notice::{Notice, Observer};

/// A handle to the open ledger of one tenant. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LedgerHandle {
    shared: Arc<SharedLedger>,
    opened: Arc<Opened>,
    observer: Arc<dyn Observer>,
}

/// The ledger of one state directory, shared by all its handles in this process.
#[derive(Debug)]
pub(crate) struct SharedLedger {
    paths: LedgerPaths,
    /// The open ledger; `None` before the first use.
    opened: Mutex<Option<Arc<Opened>>>,
}

/// The open ledger. It is replaced when the ledger is opened again.
type Opened = Mutex<Arc<Ledger>>;

/// The ledgers of this process, by the path of the state directory.
static LEDGERS: Mutex<BTreeMap<PathBuf, Weak<SharedLedger>>> = Mutex::new(BTreeMap::new());

/// Returns the shared ledger of a state directory without opening it. `home` contains no symbolic links.
pub(super) fn shared(home: &Path) -> Arc<SharedLedger> {
    let mut ledgers = LEDGERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shared) = ledgers.get(home).and_then(Weak::upgrade) {
        return shared;
    }
    ledgers.retain(|_, shared| shared.strong_count() > 0);
    let shared = SharedLedger { paths: LedgerPaths::under(home), opened: Mutex::new(None) };
    let shared = Arc::new(shared);
    ledgers.insert(home.to_owned(), Arc::downgrade(&shared));
    shared
}

impl LedgerHandle {
    /// Returns a handle to the ledger, and opens the ledger if it is not open or cannot record any more.
    pub(crate) fn open(
        shared: &Arc<SharedLedger>,
        observer: &Arc<dyn Observer>,
    ) -> Result<Self, OpenError> {
        let _entry = lock::enter_ledger(shared.paths.ledger());
        let mut current = locked(&shared.opened);
        let opened = match &*current {
            Some(opened) => Arc::clone(opened),
            None => {
                let ledger = shared.open(observer.as_ref())?;
                Arc::clone(current.insert(Arc::new(Mutex::new(ledger))))
            }
        };
        drop(current);
        let (shared, observer) = (Arc::clone(shared), Arc::clone(observer));
        let handle = Self { shared, opened, observer };
        let ledger = handle.ledger();
        if !ledger.is_current() {
            handle.reopen(&ledger)?;
        }
        Ok(handle)
    }

    /// Returns the open ledger, for operations other than recording events and storing bodies.
    pub fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&locked(&self.opened))
    }

    /// Records one event. The event is on disk when the function returns.
    pub fn record(&self, draft: Draft) -> Result<Receipt, RecordError> {
        let mut receipts = self.record_all(vec![draft])?;
        receipts.pop().ok_or(RecordError::Broken)
    }

    /// Records several events in order, all of them or none.
    pub fn record_all(&self, drafts: Vec<Draft>) -> Result<Vec<Receipt>, RecordError> {
        let _entry = lock::enter_ledger(self.shared.paths.ledger());
        let ledger = self.ledger();
        match ledger.record_all(drafts.clone()) {
            // An earlier append failed, and none of these events was written: open the ledger again.
            Err(RecordError::Broken) => {}
            result => return result,
        }
        let reopened = self.reopen(&ledger).map_err(|error| {
            tracing::error!(%error, "ledger cannot be reopened");
            RecordError::Broken
        })?;
        reopened.record_all(drafts)
    }

    /// Stores content in the ledger and returns the body for an event; see [`Ledger::keep`].
    pub fn keep(&self, scope: Digest, content: &mut dyn Read) -> Result<Body, KeepError> {
        let _entry = lock::enter_ledger(self.shared.paths.ledger());
        self.ledger().keep(scope, content)
    }

    /// Opens the ledger again, unless another thread already replaced the ledger `old`.
    fn reopen(&self, old: &Arc<Ledger>) -> Result<Arc<Ledger>, OpenError> {
        let mut opened = locked(&self.opened);
        if Arc::ptr_eq(&opened, old) {
            tracing::warn!("ledger is reopened");
            let paths = &self.shared.paths;
            let is_missing = |path: &Path| matches!(path.try_exists(), Ok(false));
            if is_missing(&paths.log()) && is_missing(paths.anchor()) {
                return Err(OpenError::Gone { path: paths.log(), events: old.events() });
            }
            *opened = self.shared.open(self.observer.as_ref())?;
        }
        Ok(Arc::clone(&opened))
    }
}

impl SharedLedger {
    /// Opens the ledger and reports repairs.
    fn open(&self, observer: &dyn Observer) -> Result<Arc<Ledger>, OpenError> {
        let ledger = Ledger::open(&self.paths)?;
        tracing::trace!("ledger is open");
        for repair in ledger.repairs() {
            let (bytes, kept) = (repair.bytes, repair.kept.clone());
            tracing::warn!(bytes, kept = %kept.display(), "ledger was repaired");
            observer.notice(&Notice::LedgerRepaired { bytes, kept });
        }
        Ok(Arc::new(ledger))
    }
}

/// Locks a mutex, also after a panic of another thread.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Barrier;

    use belljar_ledger::{Mended, TrashEmptied, VerifyOptions, mend, verify};

    use super::*;
    use crate::notice::Silent;
    use crate::store::Store;

    fn event() -> Draft {
        Draft::new(TrashEmptied { trash: vec!["a".repeat(500)] })
    }

    fn open(shared: &Arc<SharedLedger>) -> Result<LedgerHandle, OpenError> {
        let silent: Arc<dyn Observer> = Arc::new(Silent);
        LedgerHandle::open(shared, &silent)
    }

    fn check_valid(home: &Path, events: u64) {
        let report = verify(&LedgerPaths::under(home), VerifyOptions::default()).unwrap();
        assert!(report.is_sound(), "{report:?}");
        assert_eq!(report.signed, Some(events));
    }

    #[test]
    fn ledger_is_opened_at_first_use_and_once_for_all_stores_of_a_directory() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let stores = [home.path(), home.path(), other.path()].map(|dir| Store::open(dir).unwrap());
        assert!(!home.path().join("ledger").exists(), "nothing was recorded yet");
        let barrier = Barrier::new(stores.len());
        let ledgers = std::thread::scope(|scope| {
            let open = |store: &Store| {
                barrier.wait();
                open(store.ledger()).unwrap().ledger()
            };
            let opening = stores.each_ref().map(|store| scope.spawn(move || open(store)));
            opening.map(|opening| opening.join().unwrap())
        });
        assert!(Arc::ptr_eq(&ledgers[0], &ledgers[1]));
        assert!(!Arc::ptr_eq(&ledgers[0], &ledgers[2]), "control: another state directory");
    }

    #[test]
    fn ledger_is_closed_when_the_last_store_of_its_directory_is_dropped() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let first = Arc::downgrade(&open(store.ledger()).unwrap().ledger());
        assert!(first.upgrade().is_some(), "control: the store keeps it open");
        drop(store);
        assert!(first.upgrade().is_none());
    }

    #[test]
    fn ledger_is_reopened_after_another_process_replaced_it() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let handle = open(store.ledger()).unwrap();
        handle.record(event()).map(drop).unwrap();
        let paths = LedgerPaths::under(home.path());
        let mut log = fs::read(paths.log()).unwrap();
        log[40] ^= 1;
        fs::write(paths.log(), &log).unwrap();
        assert!(matches!(mend(&paths, "rot").unwrap(), Mended::SetAside { .. }));
        handle.record(event()).map(drop).unwrap_err();
        open(store.ledger()).unwrap().record(event()).map(drop).unwrap();
        handle.record(event()).map(drop).unwrap();
        check_valid(home.path(), 4); // created, repaired, and two
    }

    #[test]
    fn broken_ledger_is_reopened_and_the_event_is_recorded_once() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let handle = open(store.ledger()).unwrap();
        let paths = LedgerPaths::under(home.path());
        let cut = fs::metadata(paths.log()).unwrap().len();
        handle.record(event()).map(drop).unwrap();
        // The log loses an event, and other events make it longer than before. That breaks the open ledger.
        let log = fs::File::options().write(true).open(paths.log()).unwrap();
        log.set_len(cut).unwrap();
        mend(&paths, "cut").unwrap();
        let other = Ledger::open(&paths).unwrap();
        other.record_all(vec![event(), event(), event()]).map(drop).unwrap();
        let broken = handle.ledger();
        assert!(matches!(handle.record(event()), Err(RecordError::Changed(_))));
        assert!(matches!(broken.record(event()), Err(RecordError::Broken)), "control");
        handle.record(event()).map(drop).unwrap();
        check_valid(home.path(), 6); // created, repaired, three and one
    }

    #[test]
    fn truncated_ledger_is_refused_by_open_and_by_an_open_handle() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let handle = open(store.ledger()).unwrap();
        handle.record(event()).map(drop).unwrap();
        let log =
            fs::File::options().write(true).open(LedgerPaths::under(home.path()).log()).unwrap();
        log.set_len(100).unwrap();
        assert!(matches!(open(store.ledger()), Err(OpenError::CutShort { .. })));
        assert!(matches!(handle.record(event()), Err(RecordError::Changed(_))));
    }

    #[test]
    fn removed_ledger_is_not_created_again_while_the_process_lives() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        open(store.ledger()).unwrap().record(event()).map(drop).unwrap();
        fs::remove_dir_all(home.path().join("ledger")).unwrap();
        fs::remove_dir_all(home.path().join("anchor")).unwrap();
        assert!(matches!(open(store.ledger()), Err(OpenError::Gone { events: 2, .. })));
        assert!(!home.path().join("ledger").exists());
    }

    #[test]
    fn ledger_continues_after_events_and_key_rotations_of_another_process() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let handle = open(store.ledger()).unwrap();
        let other = Ledger::open(&LedgerPaths::under(home.path())).unwrap();
        let before = handle.ledger();
        for _ in 0..3 {
            other.record(event()).map(drop).unwrap();
            other.rotate_key().unwrap();
            handle.record(event()).map(drop).unwrap();
        }
        let after = open(store.ledger()).unwrap().ledger();
        assert!(Arc::ptr_eq(&before, &after), "the ledger was not reopened");
        check_valid(home.path(), 10);
    }
}
