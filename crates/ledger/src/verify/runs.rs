//! The last event of every run, in bounded memory.
//!
//! Runs that were not used for a while are stored in a temporary database, because a ledger can have
//! millions of runs. The database has ids and hashes of the log and no contents.

use std::collections::HashMap;
use std::mem;

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::chains::{Link, Missing};
use crate::digest::Digest;

/// The maximum number of runs in memory; they take about 10 MiB.
const LIMIT: usize = 100_000;
/// The cache of the database in KiB.
const CACHE: i64 = 16_384;

/// The last event of every run.
#[derive(Debug)]
pub(super) struct Runs {
    recent: HashMap<u128, Link>,
    limit: usize,
    stored: Option<Connection>,
    count: u64,
    /// The first error of the database. Later results are incomplete.
    failure: Option<rusqlite::Error>,
}

impl Default for Runs {
    fn default() -> Self {
        Self::with_limit(LIMIT)
    }
}

impl Runs {
    /// Returns a table with at most `limit` runs in memory.
    pub(super) fn with_limit(limit: usize) -> Self {
        Self { recent: HashMap::new(), limit, stored: None, count: 0, failure: None }
    }

    /// Returns the number of runs.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the last event of a run.
    pub(super) fn get(&mut self, run: u128) -> Option<&mut Link> {
        if self.stored.is_some() && !self.recent.contains_key(&run) {
            let link = self.load(run)?;
            self.make_room();
            self.recent.insert(run, link);
        }
        self.recent.get_mut(&run)
    }

    /// Adds a run that the table does not have.
    pub(super) fn add(&mut self, run: u128, link: Link) {
        self.make_room();
        self.count += 1;
        self.recent.insert(run, link);
    }

    /// Returns the error of the database, if one occurred.
    pub(super) const fn take_failure(&mut self) -> Option<rusqlite::Error> {
        self.failure.take()
    }

    fn load(&mut self, run: u128) -> Option<Link> {
        let stored = self.stored.as_ref()?;
        let found = stored
            .prepare_cached(
                "SELECT next, leaf, breaks, since, until, finding FROM run WHERE id = ?1",
            )
            .and_then(|mut query| query.query_row([key(run)], link_of).optional());
        self.note(found).flatten()
    }

    /// Moves all runs from the memory to the database if the memory is full.
    fn make_room(&mut self) {
        if self.recent.len() < self.limit || self.failure.is_some() {
            return;
        }
        let recent = mem::take(&mut self.recent);
        let stored = self.stored.take().map_or_else(create, Ok);
        let stored = stored.and_then(|mut stored| store(&mut stored, recent).map(|()| stored));
        self.stored = self.note(stored);
    }

    fn note<T>(&mut self, result: rusqlite::Result<T>) -> Option<T> {
        result.map_err(|error| self.failure.get_or_insert(error)).ok()
    }
}

fn create() -> rusqlite::Result<Connection> {
    // The empty name is a temporary file that SQLite removes (sqlite3_open(3)).
    let stored = Connection::open("")?;
    stored.pragma_update(None, "journal_mode", "off")?;
    stored.pragma_update(None, "synchronous", "off")?;
    stored.pragma_update(None, "cache_size", -CACHE)?;
    stored.execute_batch(
        "CREATE TABLE run (
            id BLOB PRIMARY KEY, next INTEGER NOT NULL, leaf BLOB NOT NULL, breaks INTEGER NOT NULL,
            since INTEGER, until INTEGER, finding INTEGER
        ) WITHOUT ROWID;",
    )?;
    Ok(stored)
}

fn store(stored: &mut Connection, recent: HashMap<u128, Link>) -> rusqlite::Result<()> {
    let mut runs: Vec<(u128, Link)> = recent.into_iter().collect();
    // Neighbours in the database are written one after the other.
    runs.sort_unstable_by_key(|(run, _)| key(*run));
    let transaction = stored.transaction()?;
    let mut insert =
        transaction.prepare("INSERT OR REPLACE INTO run VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    for (run, link) in runs {
        let missing = link.missing.as_deref();
        insert.execute((
            key(run),
            link.next.cast_signed(),
            link.leaf.as_bytes(),
            link.breaks,
            missing.map(|gap| gap.from.cast_signed()),
            missing.map(|gap| gap.to.cast_signed()),
            missing.map(|gap| (gap.finding as u64).cast_signed()),
        ))?;
    }
    drop(insert);
    transaction.commit()
}

fn link_of(row: &Row<'_>) -> rusqlite::Result<Link> {
    let number = |column| row.get::<_, Option<i64>>(column).map(|it| it.map(i64::cast_unsigned));
    let missing = match (number(3)?, number(4)?, number(5)?) {
        (Some(from), Some(to), Some(finding)) => {
            let finding = usize::try_from(finding).unwrap_or(usize::MAX);
            Some(Box::new(Missing { from, to, finding }))
        }
        _ => None,
    };
    Ok(Link {
        next: row.get::<_, i64>(0)?.cast_unsigned(),
        leaf: Digest::new(row.get(1)?),
        breaks: row.get(2)?,
        missing,
    })
}

/// Returns the key of a run in the database, which sorts run ids by their time.
const fn key(run: u128) -> [u8; 16] {
    run.to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(next: u64) -> Link {
        let missing = next
            .is_multiple_of(3)
            .then(|| Box::new(Missing { from: next, to: u64::MAX, finding: 7 }));
        Link { next, leaf: Digest::leaf(&next.to_be_bytes()), breaks: 2, missing }
    }

    #[test]
    fn runs_that_exceed_the_memory_are_found_again_with_their_newest_event() {
        let mut runs = Runs::with_limit(3);
        for run in 0..100 {
            assert!(runs.get(run).is_none());
            runs.add(run, link(u64::try_from(run).unwrap()));
        }
        for run in (0..100).rev() {
            *runs.get(run).unwrap() = link(u64::try_from(run).unwrap() + 1000);
            assert!(runs.recent.len() <= 3, "{}", runs.recent.len());
        }
        for run in 0..100 {
            let expected = link(u64::try_from(run).unwrap() + 1000);
            assert_eq!(format!("{:?}", runs.get(run).unwrap()), format!("{expected:?}"));
        }
        assert_eq!((runs.count(), runs.take_failure()), (100, None));
        assert!(runs.stored.is_some(), "control: the database was used");
    }
}
