//! The progress of the index, and whether the log still matches it.

use rusqlite::{Connection, Transaction};

use super::query::{digest, number, position};
use crate::digest::Digest;
use crate::frame::HEADER;
use crate::log::{Log, LogError};

/// The position up to which the log is indexed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached {
    pub(super) next: u64,
    pub(super) offset: u64,
    /// The offset, length and hash of the last indexed event.
    pub(super) tail: Option<(u64, usize, Digest)>,
    /// The number of rows of `run`.
    pub(super) runs: u64,
    /// The number of rows of `open_intent`.
    pub(super) intents: u64,
    /// Whether the last row of `event` belongs to the last event that was indexed.
    pub(super) is_sound: bool,
}

impl Reached {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let sql = "SELECT next, offset, tail_offset, tail_length, tail_leaf,
            coalesce((SELECT max(idx) + 1 FROM event), 0), runs, intents FROM meta WHERE id = 0";
        connection.query_row(sql, [], |row| {
            let next = position(row, 0)?;
            let tail = match next {
                0 => None,
                _ => Some((position(row, 2)?, row.get::<_, u16>(3)?.into(), digest(row, 4)?)),
            };
            Ok(Self {
                next,
                offset: position(row, 1)?,
                tail,
                runs: position(row, 6)?,
                intents: position(row, 7)?,
                is_sound: next == position(row, 5)?,
            })
        })
    }

    pub(super) fn write(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let (offset, length, leaf) = match self.tail {
            Some((offset, length, leaf)) => (offset, length, leaf.as_bytes().to_vec()),
            None => (0, 0, Vec::new()),
        };
        let sql = "UPDATE meta SET next = ?1, offset = ?2, tail_offset = ?3, tail_length = ?4,
            tail_leaf = ?5, runs = ?6, intents = ?7 WHERE id = 0";
        let changed = transaction.execute(
            sql,
            (
                number(self.next),
                number(self.offset),
                number(offset),
                number(length as u64),
                leaf,
                number(self.runs),
                number(self.intents),
            ),
        )?;
        match changed {
            1 => Ok(()),
            _ => Err(rusqlite::Error::QueryReturnedNoRows),
        }
    }

    /// Returns whether the log still has the indexed events: it is long enough and has the last
    /// one.
    pub(super) fn fits(&self, log: &Log) -> Result<bool, LogError> {
        let length = log.length()?;
        let Some((offset, size, leaf)) = self.tail else {
            return Ok(self.is_sound && self.offset == HEADER as u64);
        };
        let is_there = self.is_sound
            && length >= self.offset
            && offset < self.offset
            && log.entry(offset, size).is_ok_and(|bytes| Digest::leaf(&bytes) == leaf);
        Ok(is_there)
    }
}
