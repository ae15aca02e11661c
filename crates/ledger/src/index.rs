//! Finds events: by run, kind, time, cause and the bodies that they name.
//!
//! Made from the log and disposable: whatever is wrong with it, it is made anew, and where no file
//! can be written it is made in memory. It is never trusted for a proof: a row says where an event
//! is and what its hash must be, and [`read`] holds the log to both.
//!
//! **Invariant:** what the index says of the first `next` events is committed together with `next`,
//! so that any number of processes can bring it up to date at once.

use std::io;
use std::path::PathBuf;

use rusqlite::Connection;

use crate::digest::Digest;
use crate::entry::{Entry, EntryError};
use crate::log::{Log, LogError};
use crate::paths::LedgerPaths;

mod ask;
mod content;
mod fill;
mod query;
mod reached;
mod schema;

#[cfg(test)]
mod tests;

pub use ask::Query;
pub use query::{BodyReference, Row, RunHead};
use schema::{Identity, Trouble};

/// The index of one ledger; each process has its own connection to it.
#[derive(Debug)]
pub(crate) struct Index {
    connection: Connection,
    path: PathBuf,
    /// The file that is open; `None` when the index is in memory.
    identity: Option<Identity>,
}

/// Why the index gives no answer.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("the events from {next} on cannot be indexed")]
    Log { next: u64, source: LogError },
    #[error("the event {index} cannot be indexed")]
    Event { index: u64, source: EntryError },
    #[error("the index is damaged and was removed; it is made anew when it is next used")]
    Damaged { source: Option<rusqlite::Error> },
    #[error("read the salts")]
    Salts { source: io::Error },
    #[error("another process has been writing the index for too long")]
    Busy,
    #[error("{doing}")]
    Sqlite { doing: &'static str, source: rusqlite::Error },
}

/// Why an event that the index knows cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("read event {index}")]
    Log { index: u64, source: LogError },
    #[error("the index or the log is damaged: event {index} is not where the index says")]
    Elsewhere { index: u64 },
    #[error("the event {index} is not one of this version")]
    Entry { index: u64, source: EntryError },
}

impl Index {
    /// Opens the index, or makes an empty one. [`Index::catch_up`] brings it up to date.
    pub(crate) fn open(paths: &LedgerPaths, log: &Log) -> Result<Self, IndexError> {
        Self::open_file(paths.index(), log)
    }

    fn open_file(path: PathBuf, log: &Log) -> Result<Self, IndexError> {
        match schema::open(&path, log.id()) {
            Ok((connection, identity)) => Ok(Self { connection, path, identity: Some(identity) }),
            Err(Trouble::Busy) => Err(IndexError::Busy),
            Err(Trouble::Unwritable | Trouble::Damaged) => Self::in_memory(path, log),
        }
    }

    fn in_memory(path: PathBuf, log: &Log) -> Result<Self, IndexError> {
        let doing = "make an index in memory";
        let connection =
            schema::in_memory(log.id()).map_err(|source| IndexError::Sqlite { doing, source })?;
        Ok(Self { connection, path, identity: None })
    }

    /// Adds what the log has more than the index; how many events there are.
    ///
    /// An unfinished batch at the end of the log is not there yet. Damage in the middle is an error;
    /// the events before it are indexed nevertheless.
    pub(crate) fn catch_up(&mut self, log: &Log) -> Result<u64, IndexError> {
        if self.is_gone() {
            *self = Self::open_file(self.path.clone(), log)?;
        }
        let Err(trouble) = self.follow(log)? else { return self.size() };
        match trouble {
            Trouble::Busy => return Err(IndexError::Busy),
            Trouble::Damaged => {
                self.remove();
                *self = Self::open_file(self.path.clone(), log)?;
            }
            Trouble::Unwritable => *self = Self::in_memory(self.path.clone(), log)?,
        }
        if self.follow(log)?.is_err() {
            *self = Self::in_memory(self.path.clone(), log)?;
            let doing = "make an index in memory";
            fill::catch_up(&mut self.connection, log).map_err(|error| match error {
                fill::Stop::Index(error) => error,
                fill::Stop::Sqlite(source) => IndexError::Sqlite { doing, source },
            })?;
        }
        self.size()
    }

    /// Whether the index is a file that others share.
    #[cfg(test)]
    pub(crate) const fn is_on_disk(&self) -> bool {
        self.identity.is_some()
    }

    fn follow(&mut self, log: &Log) -> Result<Result<(), Trouble>, IndexError> {
        match fill::catch_up(&mut self.connection, log) {
            Ok(()) => Ok(Ok(())),
            Err(fill::Stop::Sqlite(error)) => Ok(Err(schema::trouble(&error))),
            Err(fill::Stop::Index(error)) => Err(error),
        }
    }

    /// Whether somebody removed the file that is open here, or put another in its place.
    fn is_gone(&self) -> bool {
        self.identity.is_some_and(|own| schema::identity(&self.path).ok() != Some(own))
    }

    /// A damaged index is of no use to anybody.
    fn remove(&self) {
        if let Some(identity) = self.identity {
            schema::remove(&self.path, identity).ok(); // else the next who opens it does it
        }
    }

    /// For what SQLite itself does not find wrong.
    fn damaged(&self) -> IndexError {
        self.remove();
        IndexError::Damaged { source: None }
    }

    /// What a failed question means to who asked it.
    fn failed(&self, doing: &'static str) -> impl Fn(rusqlite::Error) -> IndexError + '_ {
        move |source| match schema::trouble(&source) {
            Trouble::Busy => IndexError::Busy,
            Trouble::Unwritable => IndexError::Sqlite { doing, source },
            Trouble::Damaged => {
                self.remove();
                IndexError::Damaged { source: Some(source) }
            }
        }
    }
}

/// Reads the event of a row from the log, and checks that it is the one that the row means.
pub(crate) fn read(log: &Log, row: &Row) -> Result<Entry, ReadError> {
    let index = row.index;
    let bytes =
        log.entry(row.offset, row.length).map_err(|source| ReadError::Log { index, source })?;
    if Digest::leaf(&bytes) != row.leaf {
        return Err(ReadError::Elsewhere { index });
    }
    let entry = Entry::decode(&bytes).map_err(|source| ReadError::Entry { index, source })?;
    // The hash vouches for the event, not for what else the index says of it.
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
