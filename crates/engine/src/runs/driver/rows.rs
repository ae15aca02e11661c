//! Keeps the database of runs up to date while the driver waits.
//!
//! The database is derived, so nothing here can fail a run: an error is reported once, and a later update
//! tries again.

use std::time::{Duration, Instant};

use belljar_ledger::{LedgerPaths, Reader};

use crate::runs::store::StoreError;
use crate::runs::store::sqlite::RunDb;
use crate::scope::Scoped;

/// The time between two updates. A list applies newer events itself.
const PAUSE: Duration = Duration::from_millis(500);
/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(10);
/// The maximum time of the last update.
const MAX_FINISH: Duration = Duration::from_secs(1);
/// The number of events of one update; the driver does other work before the next one.
const CHUNK: u64 = 2048;

/// Updates the database of runs.
#[derive(Debug, Default)]
pub(super) struct RowsUpdate {
    database: Option<RunDb>,
    /// When the next update is due; `None` if nothing was recorded since the last one.
    due: Option<Instant>,
    has_failed: bool,
}

impl RowsUpdate {
    /// Notes that events were recorded.
    pub(super) fn note(&mut self) {
        self.due.get_or_insert_with(|| Instant::now() + PAUSE);
    }

    /// Returns the time until the next update; `None` if none is necessary.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Applies a limited number of events, if an update is due.
    pub(super) fn run_if_due(&mut self, state: &Scoped, reader: &mut Reader) {
        if self.timeout().is_some_and(|timeout| timeout.is_zero()) {
            self.run(state, reader);
        }
    }

    /// Applies a limited number of events.
    pub(super) fn run(&mut self, state: &Scoped, reader: &mut Reader) {
        self.due = match self.update(state, reader) {
            Ok(true) => None,
            Ok(false) => Some(Instant::now()),
            Err(error) => {
                self.database = None;
                if let StoreError::Gap { .. } = error
                    && let Ok(counted) = Reader::open(&LedgerPaths::under(state.home()))
                {
                    *reader = counted; // the index was rebuilt
                } else if !self.has_failed {
                    let error = anyhow::Error::new(error);
                    state.failed(&error.context("the list of runs is not up to date"));
                    self.has_failed = true;
                }
                Some(Instant::now() + RETRY)
            }
        };
    }

    /// Applies all events before the driver exits, but for at most [`MAX_FINISH`].
    pub(super) fn finish(&mut self, state: &Scoped, reader: &mut Reader) {
        let started = Instant::now();
        while self.due.is_some() && !self.has_failed && started.elapsed() < MAX_FINISH {
            self.run(state, reader);
        }
    }

    /// Returns whether all events are applied.
    fn update(&mut self, state: &Scoped, reader: &mut Reader) -> Result<bool, StoreError> {
        reader.refresh().map_err(|error| StoreError::Ledger(error.into()))?;
        let database = match &mut self.database {
            Some(database) => database,
            None => {
                let opened = RunDb::open(state.store().layout(), reader.id())?;
                self.database.insert(opened)
            }
        };
        let is_complete = database.catch_up(reader, CHUNK)?.is_complete;
        if !database.is_on_disk() {
            // Tables in the memory of the driver help nobody.
            return Err(StoreError::Unwritable(None));
        }
        self.has_failed = false;
        Ok(is_complete)
    }
}
