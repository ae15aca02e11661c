//! Index data that is not in the log: positions of salts, and contents that are already stored.
//!
//! Both only save time. A salt is read from its file at every use, and a content that is not found
//! here is stored once more.

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior};

use super::query::{digest, number, position};
use super::{Index, IndexError};
use crate::digest::Digest;
use crate::salts::{Kept, RECORD, Reading};

impl Index {
    /// Returns the secret that makes the content ids of this index useless elsewhere.
    pub(crate) fn secret(&self) -> Result<[u8; 32], IndexError> {
        self.connection
            .query_row("SELECT secret FROM meta WHERE id = 0", [], |row| row.get(0))
            .map_err(self.failed("read the secret of the index"))
    }

    /// Returns the commitment and size under which a content is stored for this scope.
    pub(crate) fn content(
        &self,
        scope: Digest,
        id: Digest,
    ) -> Result<Option<(Digest, u64)>, IndexError> {
        let sql = "SELECT hash, size FROM content WHERE scope = ?1 AND id = ?2";
        self.connection
            .query_row(sql, (scope.as_bytes(), id.as_bytes()), |row| {
                Ok((digest(row, 0)?, position(row, 1)?))
            })
            .optional()
            .map_err(self.failed("look up stored content"))
    }

    pub(crate) fn remember_content(
        &self,
        scope: Digest,
        id: Digest,
        kept: (Digest, u64),
    ) -> Result<(), IndexError> {
        let (hash, size) = kept;
        let sql = "INSERT OR REPLACE INTO content VALUES (?1, ?2, ?3, ?4)";
        self.connection
            .execute(sql, (scope.as_bytes(), id.as_bytes(), hash.as_bytes(), number(size)))
            .map(drop)
            .map_err(self.failed("save stored content"))
    }

    /// Removes contents, so that no new event references a body that is about to be dropped.
    pub(crate) fn forget_contents(&self, hashes: &[Digest]) -> Result<(), IndexError> {
        let forget = || -> rusqlite::Result<()> {
            let transaction =
                Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
            let mut delete = transaction.prepare_cached("DELETE FROM content WHERE hash = ?1")?;
            for hash in hashes {
                delete.execute([hash.as_bytes()])?;
            }
            drop(delete);
            transaction.commit()
        };
        forget().map_err(self.failed("remove stored contents"))
    }

    /// Returns the record of a commitment in the salt file, or `None` if there is none.
    pub(crate) fn salt(&self, file: &Reading, hash: Digest) -> Result<Option<Kept>, IndexError> {
        let broken = |source| IndexError::Salts { source };
        self.catch_up_salts(file)?;
        let mut known = None;
        for place in self.salt_positions(hash)? {
            match file.at(place).map_err(broken)? {
                Some((found, kept)) if found == hash => known = kept.or(known),
                Some(_) | None => {}
            }
        }
        match known {
            Some(kept) => Ok(Some(kept)),
            // This case is rare, and the file decides: it can have been restored from a copy.
            None => file.find(hash).map_err(broken),
        }
    }

    fn salt_positions(&self, hash: Digest) -> Result<Vec<u64>, IndexError> {
        let failed = self.failed("look up a salt");
        let sql = "SELECT place FROM salt WHERE hash = ?1 ORDER BY place";
        let mut statement = self.connection.prepare_cached(sql).map_err(&failed)?;
        let found = statement.query_map([hash.as_bytes()], |row| position(row, 0));
        found.and_then(Iterator::collect).map_err(&failed)
    }

    /// Adds the newer records of the salt file to the index.
    fn catch_up_salts(&self, file: &Reading) -> Result<(), IndexError> {
        let failed = self.failed("index the salts");
        loop {
            let next = salts_next(&self.connection).map_err(&failed)?;
            let records = file.hashes(next).map_err(|source| IndexError::Salts { source })?;
            let Some((last, _)) = records.last() else { return Ok(()) };
            add_salts(&self.connection, next, last + RECORD as u64, &records).map_err(&failed)?;
        }
    }
}

fn salts_next(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row("SELECT salts FROM meta WHERE id = 0", [], |row| position(row, 0))
}

fn add_salts(
    connection: &Connection,
    from: u64,
    to: u64,
    records: &[(u64, Digest)],
) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    if salts_next(&transaction)? != from {
        return Ok(()); // another process added them
    }
    let mut insert = transaction.prepare_cached("INSERT OR IGNORE INTO salt VALUES (?1, ?2)")?;
    for (place, hash) in records {
        insert.execute((hash.as_bytes(), number(*place)))?;
    }
    drop(insert);
    transaction.execute("UPDATE meta SET salts = ?1 WHERE id = 0", [number(to)])?;
    transaction.commit()
}
