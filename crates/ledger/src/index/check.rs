//! Checks whether the index is complete: by its numbers of rows, or by a comparison with an index that is
//! built anew from the log.
//!
//! The index has no hashes of its own: whoever can write its file can remove rows and change the numbers,
//! and lists of events are then incomplete. Only the log decides.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, Transaction};

use super::query::number;
use super::reached::Reached;
use super::sql::BLOCK;
use super::{fill, schema};
use crate::log::Log;

/// The tables that are derived from the log, in the order of their keys.
const DERIVED: [&str; 7] = [
    "SELECT next, offset, tail_offset, tail_length, tail_leaf, runs, intents FROM meta",
    "SELECT * FROM name ORDER BY id",
    "SELECT * FROM run ORDER BY id",
    "SELECT * FROM event ORDER BY idx",
    "SELECT * FROM span ORDER BY block",
    "SELECT * FROM body ORDER BY hash, idx",
    "SELECT * FROM open_intent ORDER BY idx",
];

/// Returns whether the tables have as many rows as were added to them.
///
/// One statement, because other processes add rows meanwhile. Takes about 10 ms for a million events.
pub(super) fn is_complete(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT next = (SELECT count(*) FROM event)
            AND runs = (SELECT count(*) FROM run)
            AND intents = (SELECT count(*) FROM open_intent)
            AND (next + ?1 - 1) / ?1 = (SELECT count(*) FROM span)
        FROM meta WHERE id = 0";
    connection.query_row(sql, [number(BLOCK)], |row| row.get(0))
}

/// Returns whether the list of intents without an outcome has as many rows as were added and not removed.
///
/// The list is short, so the cost does not depend on the number of events.
pub(super) fn has_all_intents(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT intents = (SELECT count(*) FROM open_intent) FROM meta WHERE id = 0";
    connection.query_row(sql, [], |row| row.get(0))
}

/// Returns whether the index file contradicts the log.
///
/// A missing index, one of another version and one of a replaced log are rebuilt at their next use, so
/// they contradict nothing. The result is also `false` if the log is damaged or the index is in use.
pub(crate) fn contradicts(path: &Path, log: &Log) -> bool {
    match compare(path, log) {
        Ok(is_equal) => !is_equal,
        Err(fill::Stop::Sqlite(error)) => schema::fault_of(&error) == schema::IndexFault::Damaged,
        Err(fill::Stop::Index(_)) => false,
    }
}

fn compare(path: &Path, log: &Log) -> Result<bool, fill::Stop> {
    if !path.is_file() {
        return Ok(true);
    }
    let mut stored = schema::connect(path).map_err(fill::Stop::Sqlite)?;
    if !schema::is_ours(&stored, log.id()).map_err(fill::Stop::Sqlite)? {
        return Ok(true);
    }
    // All rows are read in one transaction, because other processes add rows meanwhile.
    let stored = stored.transaction().map_err(fill::Stop::Sqlite)?;
    let reached = Reached::read(&stored).map_err(fill::Stop::Sqlite)?;
    if !fill::fits(&reached, log)? {
        return Ok(true);
    }
    // The empty name is a temporary file that SQLite removes (sqlite3_open(3)).
    let mut fresh = Connection::open("").map_err(fill::Stop::Sqlite)?;
    schema::fill(&mut fresh, log.id()).map_err(fill::Stop::Sqlite)?;
    fill::catch_up_to(&mut fresh, log, reached.offset, &mut |_, _| {})?;
    let fresh = fresh.transaction().map_err(fill::Stop::Sqlite)?;
    let mut is_equal = is_intact(&stored).map_err(fill::Stop::Sqlite)?;
    for query in DERIVED {
        is_equal =
            is_equal && has_equal_rows(&stored, &fresh, query).map_err(fill::Stop::Sqlite)?;
    }
    Ok(is_equal)
}

/// Returns whether the database indexes match their tables.
fn is_intact(stored: &Transaction<'_>) -> rusqlite::Result<bool> {
    let result: String = stored.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    Ok(result == "ok")
}

fn has_equal_rows(
    stored: &Transaction<'_>,
    fresh: &Transaction<'_>,
    query: &str,
) -> rusqlite::Result<bool> {
    let (mut left, mut right) = (stored.prepare(query)?, fresh.prepare(query)?);
    let columns = left.column_count();
    let values = |row: &rusqlite::Row<'_>| -> rusqlite::Result<Vec<Value>> {
        (0..columns).map(|column| row.get(column)).collect()
    };
    let (mut left, mut right) = (left.query([])?, right.query([])?);
    loop {
        match (left.next()?, right.next()?) {
            (None, None) => return Ok(true),
            (Some(left), Some(right)) if values(left)? == values(right)? => {}
            _ => return Ok(false),
        }
    }
}
