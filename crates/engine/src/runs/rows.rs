//! Lists runs of plans from the database of runs.

use anyhow::Context as _;
use belljar_ledger::{LedgerPaths, Reader, ReaderError};

use super::store::StoreError;
use super::store::sqlite::RunDb;
pub use super::store::{
    Cursor, CursorError, Page, RunRow, RunStatus, RunsQuery, SingleStatus, TaskCounts,
};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;

/// The number of events that are applied in one transaction.
const CHUNK: u64 = 8192;

/// Returns a page of the runs of the caller's tenant, newest first.
///
/// The database is brought up to date first. A deleted, damaged or foreign database is rebuilt from the
/// ledger, which takes time in proportion to the history.
pub fn runs(state: &Scoped, query: &RunsQuery) -> Result<Page<RunRow>, EngineError> {
    let found = up_to_date(state, &|database| database.page(&state.caller().tenant, query))?;
    Ok(found.unwrap_or(Page { rows: Vec::new(), next: None }))
}

/// Reads from the database after all events were applied; `None` without a ledger.
pub(super) fn up_to_date<T>(
    state: &Scoped,
    find: &dyn Fn(&RunDb) -> Result<T, StoreError>,
) -> Result<Option<T>, EngineError> {
    let paths = LedgerPaths::under(state.home());
    let reader = match Reader::open_uncounted(&paths) {
        Err(ReaderError::None { .. }) => return Ok(None),
        opened => opened.context("cannot read the ledger").kind(ErrorKind::Broken)?,
    };
    let found = match apply_and_find(state, &reader, find) {
        Err(StoreError::Gap { index }) => {
            tracing::warn!(index, "the index of the ledger has a gap; it is rebuilt");
            let reader = Reader::open(&paths);
            let reader = reader.context("cannot read the ledger").kind(ErrorKind::Broken)?;
            apply_and_find(state, &reader, find)?
        }
        // The damaged file was removed.
        Err(StoreError::Damaged(_)) => apply_and_find(state, &reader, find)?,
        found => found?,
    };
    Ok(Some(found))
}

fn apply_and_find<T>(
    state: &Scoped,
    reader: &Reader,
    find: &dyn Fn(&RunDb) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut database = RunDb::open(state.store().layout(), reader.id())?;
    while !database.catch_up(reader, CHUNK)?.is_complete {}
    find(&database)
}
