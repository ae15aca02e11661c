//! An SQLite index that finds events by run, kind, time, cause and referenced bodies.
//!
//! The index is derived from the log and disposable: a faulty index is rebuilt, and if no file can
//! be written it is built in memory. It is never trusted for a proof: a row has the position and
//! the hash of an event, and [`read`] checks the log against both.
//!
//! **Invariant:** the rows of the first `next` events are committed together with `next`, so that
//! any number of processes can update the index at once.

use std::io;
use std::path::PathBuf;

use rusqlite::Connection;

use crate::digest::Digest;
use crate::entry::{Entry, EntryError};
use crate::log::{Log, LogError};
use crate::paths::LedgerPaths;

mod check;
mod content;
mod fill;
mod query;
mod reached;
mod schema;
mod sql;

#[cfg(test)]
mod tests;

pub(crate) use check::contradicts;
pub use query::{BodyReference, Row, RunHead};
use schema::{Identity, IndexFault};
pub use sql::Query;

/// A connection of this process to the index of one ledger.
#[derive(Debug)]
pub(crate) struct Index {
    connection: Connection,
    path: PathBuf,
    /// The open file; `None` if the index is in memory.
    identity: Option<Identity>,
}

/// A callback that receives the number of indexed bytes and the length of the log.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Why a query of the index failed.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("the events from {next} on cannot be indexed")]
    Log { next: u64, source: LogError },
    #[error("event {index} cannot be indexed")]
    Event { index: u64, source: EntryError },
    #[error("the index is damaged and was removed; its next use rebuilds it")]
    Damaged { source: Option<rusqlite::Error> },
    #[error("cannot read the salts")]
    Salts { source: io::Error },
    #[error("another process has locked the index for too long; try again")]
    Busy,
    #[error("{doing}")]
    Sqlite { doing: &'static str, source: rusqlite::Error },
}

/// Why an event of the index cannot be read from the log.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read event {index}")]
    Log { index: u64, source: LogError },
    #[error("the index or the log is damaged: event {index} is not at its indexed position")]
    Elsewhere { index: u64 },
    #[error("event {index} is not an event of this version of the format")]
    Entry { index: u64, source: EntryError },
}

impl IndexError {
    /// Returns whether the log is at fault, so that rebuilding the index does not help.
    pub const fn is_log_damage(&self) -> bool {
        matches!(self, Self::Log { .. } | Self::Event { .. })
    }
}

impl Index {
    /// Opens or creates the index; [`Index::catch_up`] then adds the missing events.
    pub(crate) fn open(paths: &LedgerPaths, log: &Log) -> Result<Self, IndexError> {
        Self::open_file(paths.index(), log)
    }

    fn open_file(path: PathBuf, log: &Log) -> Result<Self, IndexError> {
        match schema::open(&path, log.id()) {
            Ok((connection, identity)) => Ok(Self { connection, path, identity: Some(identity) }),
            Err(IndexFault::Busy) => Err(IndexError::Busy),
            Err(IndexFault::Unwritable | IndexFault::Damaged) => Self::in_memory(path, log),
        }
    }

    fn in_memory(path: PathBuf, log: &Log) -> Result<Self, IndexError> {
        let doing = "create an index in memory";
        let connection =
            schema::in_memory(log.id()).map_err(|source| IndexError::Sqlite { doing, source })?;
        Ok(Self { connection, path, identity: None })
    }

    /// Adds the newer events of the log and returns the number of events.
    ///
    /// An unfinished batch at the end of the log is ignored. Damage in the middle is an error, but
    /// the events before it are indexed.
    pub(crate) fn catch_up(&mut self, log: &Log) -> Result<u64, IndexError> {
        self.catch_up_showing(log, &mut |_, _| {})
    }

    /// As [`Self::catch_up`], and reports the progress.
    pub(crate) fn catch_up_showing(
        &mut self,
        log: &Log,
        progress: Progress<'_>,
    ) -> Result<u64, IndexError> {
        if self.is_gone() {
            *self = Self::open_file(self.path.clone(), log)?;
        }
        let Err(fault) = self.follow(log, progress)? else { return self.size() };
        match fault {
            IndexFault::Busy => return Err(IndexError::Busy),
            IndexFault::Damaged => {
                self.remove();
                *self = Self::open_file(self.path.clone(), log)?;
            }
            IndexFault::Unwritable => *self = Self::in_memory(self.path.clone(), log)?,
        }
        if self.follow(log, progress)?.is_err() {
            *self = Self::in_memory(self.path.clone(), log)?;
            let doing = "create an index in memory";
            fill::catch_up(&mut self.connection, log, progress).map_err(|error| match error {
                fill::Stop::Index(error) => error,
                fill::Stop::Sqlite(source) => IndexError::Sqlite { doing, source },
            })?;
        }
        self.size()
    }

    /// Builds the index anew if rows are missing, and adds the newer events of the log.
    ///
    /// A query cannot notice a missing row, so a reader calls this once, when it opens the index.
    pub(crate) fn complete(&mut self, log: &Log, progress: Progress<'_>) -> Result<(), IndexError> {
        let checked = check::is_complete(&self.connection);
        if checked.map_err(self.failed("count the rows of the index"))? {
            return Ok(());
        }
        self.remove();
        *self = Self::open_file(self.path.clone(), log)?;
        self.catch_up_showing(log, progress).map(drop)
    }

    /// As [`Self::complete`], but counts only the intents without an outcome.
    pub(crate) fn complete_intents(
        &mut self,
        log: &Log,
        progress: Progress<'_>,
    ) -> Result<(), IndexError> {
        let checked = check::has_all_intents(&self.connection);
        match checked.map_err(self.failed("count the intents of the index"))? {
            true => Ok(()),
            false => self.complete(log, progress),
        }
    }

    /// Returns whether the index is a file that other processes share.
    #[cfg(test)]
    pub(crate) const fn is_on_disk(&self) -> bool {
        self.identity.is_some()
    }

    fn follow(
        &mut self,
        log: &Log,
        progress: Progress<'_>,
    ) -> Result<Result<(), IndexFault>, IndexError> {
        match fill::catch_up(&mut self.connection, log, progress) {
            Ok(()) => Ok(Ok(())),
            Err(fill::Stop::Sqlite(error)) => Ok(Err(schema::fault_of(&error))),
            Err(fill::Stop::Index(error)) => Err(error),
        }
    }

    /// Returns whether the open file was removed or replaced.
    fn is_gone(&self) -> bool {
        self.identity.is_some_and(|own| schema::identity(&self.path).ok() != Some(own))
    }

    /// Removes the file of a damaged index.
    fn remove(&self) {
        if let Some(identity) = self.identity {
            schema::remove(&self.path, identity).ok(); // if it fails, the next open does it
        }
    }

    /// Removes the index after damage that SQLite did not detect, and returns the error.
    fn damaged(&self) -> IndexError {
        self.remove();
        IndexError::Damaged { source: None }
    }

    /// Returns a function that converts an error of SQLite and removes a damaged index.
    fn failed(&self, doing: &'static str) -> impl Fn(rusqlite::Error) -> IndexError + '_ {
        move |source| match schema::fault_of(&source) {
            IndexFault::Busy => IndexError::Busy,
            IndexFault::Unwritable => IndexError::Sqlite { doing, source },
            IndexFault::Damaged => {
                self.remove();
                IndexError::Damaged { source: Some(source) }
            }
        }
    }
}

/// Reads the event of a row from the log and checks that the event matches the row.
pub(crate) fn read(log: &Log, row: &Row) -> Result<Entry, ReadError> {
    let index = row.index;
    let bytes =
        log.entry(row.offset, row.length).map_err(|source| ReadError::Log { index, source })?;
    if Digest::leaf(&bytes) != row.leaf {
        return Err(ReadError::Elsewhere { index });
    }
    let entry = Entry::decode(&bytes).map_err(|source| ReadError::Entry { index, source })?;
    // The hash authenticates only the event, not the other columns of the row.
    let is_meant = entry.run == row.run
        && entry.sequence == row.sequence
        && entry.kind == row.kind
        && entry.actor == row.actor
        && entry.cause == row.cause
        && entry.moment.time == row.time;
    match is_meant {
        true => Ok(entry),
        false => Err(ReadError::Elsewhere { index }),
    }
}
