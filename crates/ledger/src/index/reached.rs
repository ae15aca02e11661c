//! How far the index is, and whether that is still true of the log.

use rusqlite::{Connection, Transaction};

use super::query::{digest, number, place};
use crate::digest::Digest;
use crate::frame::HEADER;
use crate::log::{Log, LogError};

/// How far the index is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached {
    pub(super) next: u64,
    pub(super) offset: u64,
    /// The last event: where it is and what its hash is.
    pub(super) tail: Option<(u64, usize, Digest)>,
    /// Whether the events that are there are as many as that.
    pub(super) is_sound: bool,
}

impl Reached {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let sql = "SELECT next, offset, tail_offset, tail_length, tail_leaf,
            coalesce((SELECT max(idx) + 1 FROM event), 0) FROM meta WHERE id = 0";
        connection.query_row(sql, [], |row| {
            let next = place(row, 0)?;
            let tail = match next {
                0 => None,
                _ => Some((place(row, 2)?, row.get::<_, u16>(3)?.into(), digest(row, 4)?)),
            };
            Ok(Self { next, offset: place(row, 1)?, tail, is_sound: next == place(row, 5)? })
        })
    }

    pub(super) fn write(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let (offset, length, leaf) = match self.tail {
            Some((offset, length, leaf)) => (offset, length, leaf.as_bytes().to_vec()),
            None => (0, 0, Vec::new()),
        };
        let sql = "UPDATE meta SET next = ?1, offset = ?2, tail_offset = ?3, tail_length = ?4,
            tail_leaf = ?5 WHERE id = 0";
        let changed = transaction.execute(
            sql,
            (number(self.next), number(self.offset), number(offset), number(length as u64), leaf),
        )?;
        match changed {
            1 => Ok(()),
            _ => Err(rusqlite::Error::QueryReturnedNoRows),
        }
    }

    /// Whether the log still has what was indexed: it is as long, and the last event is there.
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
