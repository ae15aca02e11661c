//! The references of events to bodies, and the offsets of their salts, in bounded memory.
//!
//! A ledger can name millions of bodies, so both are rows of a temporary database, which sorts them by
//! body at the end. The database has neither contents nor salts, because a redaction could not erase a
//! salt from it.

use std::collections::HashMap;
use std::mem;

use rusqlite::{Connection, Row, Rows};

use crate::digest::Digest;

/// The maximum number of bodies in memory; they take about 13 MiB.
const LIMIT: usize = 100_000;
/// The cache of the database in KiB, which also limits the memory of a sort.
const CACHE: i64 = 16_384;

/// A body as its events reference it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) size: u64,
    pub(super) kept: bool,
    pub(super) first: u64,
    pub(super) last: u64,
    /// The latest time of an event that references the body.
    pub(super) time: u64,
    /// An event that references the body with another size.
    pub(super) contradicts: Option<u64>,
}

/// A record of the salt file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SaltAt {
    pub(super) offset: u64,
    /// Whether the record has a salt, which is neither erased nor damaged.
    pub(super) is_usable: bool,
}

/// The rows of a verification.
#[derive(Debug)]
pub(super) struct References {
    recent: HashMap<Digest, Named>,
    limit: usize,
    stored: Option<Connection>,
    /// The first error of the database. Later results are incomplete.
    failure: Option<rusqlite::Error>,
}

impl Default for References {
    fn default() -> Self {
        Self::with_limit(LIMIT)
    }
}

impl Named {
    /// Adds a later reference to the same body.
    fn merge(&mut self, later: &Self) {
        if self.size != later.size {
            self.contradicts.get_or_insert(later.first);
        }
        self.contradicts = self.contradicts.or(later.contradicts);
        self.kept |= later.kept;
        self.last = later.last;
        self.time = self.time.max(later.time);
    }
}

impl References {
    /// Returns a table with at most `limit` bodies in memory.
    pub(super) fn with_limit(limit: usize) -> Self {
        Self { recent: HashMap::new(), limit, stored: None, failure: None }
    }

    /// Adds a reference to a body.
    pub(super) fn add(&mut self, hash: Digest, named: Named) {
        if self.recent.len() >= self.limit
            && self.failure.is_none()
            && let Err(error) = self.store_recent()
        {
            self.failure = Some(error);
        }
        self.recent.entry(hash).and_modify(|known| known.merge(&named)).or_insert(named);
    }

    /// Adds records of the salt file, in their order.
    pub(super) fn add_salts(&mut self, salts: &[(Digest, SaltAt)]) -> rusqlite::Result<()> {
        let transaction = self.stored()?.unchecked_transaction()?;
        let mut insert = transaction.prepare_cached("INSERT INTO salt VALUES (?1, ?2, ?3)")?;
        for (hash, at) in salts {
            insert.execute((hash.as_bytes(), at.offset.cast_signed(), at.is_usable))?;
        }
        drop(insert);
        transaction.commit()
    }

    /// Stores the references that are still in memory. After this call, nothing is added.
    pub(super) fn finish(&mut self) -> rusqlite::Result<()> {
        match self.failure.take() {
            Some(error) => Err(error),
            None => self.store_recent(),
        }
    }

    /// Passes each body with its references and its salt to `show`, by ascending hash.
    pub(super) fn each<E: From<rusqlite::Error>>(
        &mut self,
        mut show: impl FnMut(Digest, Option<Named>, Option<SaltAt>) -> Result<(), E>,
    ) -> Result<(), E> {
        let stored = self.stored()?;
        let mut names = stored.prepare(
            "SELECT hash, size, kept, first, last, time, contradicts FROM named ORDER BY hash, rowid",
        )?;
        let mut salts =
            stored.prepare("SELECT hash, place, usable FROM salt ORDER BY hash, rowid")?;
        let mut names = Groups::new(names.query([])?, named_of, |known, more| known.merge(&more))?;
        // The last salt that is neither erased nor damaged counts.
        let mut salts = Groups::new(salts.query([])?, salt_of, |known: &mut SaltAt, more| {
            if more.is_usable {
                *known = more;
            }
        })?;
        loop {
            let hashes = [names.hash(), salts.hash()];
            let Some(hash) = hashes.into_iter().flatten().min() else { return Ok(()) };
            show(hash, names.take(hash)?, salts.take(hash)?)?;
        }
    }

    fn stored(&mut self) -> rusqlite::Result<&mut Connection> {
        match &mut self.stored {
            Some(stored) => Ok(stored),
            empty @ None => Ok(empty.insert(create()?)),
        }
    }

    fn store_recent(&mut self) -> rusqlite::Result<()> {
        let recent = mem::take(&mut self.recent);
        let transaction = self.stored()?.unchecked_transaction()?;
        let mut insert =
            transaction.prepare_cached("INSERT INTO named VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
        for (hash, named) in recent {
            insert.execute((
                hash.as_bytes(),
                named.size.cast_signed(),
                named.kept,
                named.first.cast_signed(),
                named.last.cast_signed(),
                named.time.cast_signed(),
                named.contradicts.map(u64::cast_signed),
            ))?;
        }
        drop(insert);
        transaction.commit()
    }
}

/// Rows that are sorted by hash. The rows of one hash are merged to one value.
struct Groups<'r, T, R, M> {
    rows: Rows<'r>,
    next: Option<(Digest, T)>,
    read: R,
    merge: M,
}

impl<'r, T, R, M> Groups<'r, T, R, M>
where
    R: Fn(&Row<'_>) -> rusqlite::Result<T>,
    M: Fn(&mut T, T),
{
    fn new(rows: Rows<'r>, read: R, merge: M) -> rusqlite::Result<Self> {
        let mut groups = Self { rows, next: None, read, merge };
        groups.next = groups.read_row()?;
        Ok(groups)
    }

    fn hash(&self) -> Option<Digest> {
        self.next.as_ref().map(|(hash, _)| *hash)
    }

    /// Returns the value of a hash, if the next rows have this hash.
    fn take(&mut self, hash: Digest) -> rusqlite::Result<Option<T>> {
        let mut taken: Option<T> = None;
        while let Some((_, value)) = self.next.take_if(|(next, _)| *next == hash) {
            match &mut taken {
                Some(known) => (self.merge)(known, value),
                None => taken = Some(value),
            }
            self.next = self.read_row()?;
        }
        Ok(taken)
    }

    fn read_row(&mut self) -> rusqlite::Result<Option<(Digest, T)>> {
        let Some(row) = self.rows.next()? else { return Ok(None) };
        Ok(Some((Digest::new(row.get(0)?), (self.read)(row)?)))
    }
}

fn create() -> rusqlite::Result<Connection> {
    // The empty name is a temporary file that SQLite removes (sqlite3_open(3)).
    let stored = Connection::open("")?;
    stored.pragma_update(None, "journal_mode", "off")?;
    stored.pragma_update(None, "synchronous", "off")?;
    stored.pragma_update(None, "cache_size", -CACHE)?;
    stored.execute_batch(
        "CREATE TABLE named (
            hash BLOB NOT NULL, size INTEGER NOT NULL, kept INTEGER NOT NULL, first INTEGER NOT NULL,
            last INTEGER NOT NULL, time INTEGER NOT NULL, contradicts INTEGER
        );
        CREATE TABLE salt (hash BLOB NOT NULL, place INTEGER NOT NULL, usable INTEGER NOT NULL);",
    )?;
    Ok(stored)
}

fn named_of(row: &Row<'_>) -> rusqlite::Result<Named> {
    let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    Ok(Named {
        size: number(1)?,
        kept: row.get(2)?,
        first: number(3)?,
        last: number(4)?,
        time: number(5)?,
        contradicts: row.get::<_, Option<i64>>(6)?.map(i64::cast_unsigned),
    })
}

fn salt_of(row: &Row<'_>) -> rusqlite::Result<SaltAt> {
    Ok(SaltAt { offset: row.get::<_, i64>(1)?.cast_unsigned(), is_usable: row.get(2)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(index: u64, size: u64, kept: bool) -> Named {
        Named { size, kept, first: index, last: index, time: 1000 - index, contradicts: None }
    }

    #[test]
    fn references_that_exceed_the_memory_are_merged_and_sorted_by_body() {
        let hash = |number: u64| Digest::leaf(&number.to_be_bytes());
        let collect = |limit| {
            let mut references = References::with_limit(limit);
            for index in 0..300 {
                references.add(hash(index % 30), named(index, index / 290, index == 100));
            }
            let salts: Vec<_> = (0..90)
                .map(|place| (hash(place % 45), SaltAt { offset: place, is_usable: place < 50 }))
                .collect();
            salts.chunks(7).for_each(|some| references.add_salts(some).unwrap());
            references.finish().unwrap();
            let mut all = Vec::new();
            let each = references.each(|hash, named, salt| {
                all.push((hash, named, salt));
                Ok::<(), rusqlite::Error>(())
            });
            each.unwrap();
            all
        };
        let all = collect(4);
        assert_eq!(all, collect(1000));
        assert_eq!(all.len(), 45);
        assert!(all.is_sorted_by_key(|(hash, ..)| *hash));
        let of = |number| *all.iter().find(|(found, ..)| *found == hash(number)).unwrap();
        let (_, first, salt) = of(10);
        let first = first.unwrap();
        assert_eq!((first.kept, first.first, first.last, first.time), (true, 10, 280, 990));
        assert_eq!(first.contradicts, None);
        assert_eq!(salt, Some(SaltAt { offset: 10, is_usable: true }));
        let (_, last, _) = of(25);
        assert_eq!(last.unwrap().contradicts, Some(295));
        let (_, unnamed, salt) = of(44);
        assert_eq!((unnamed, salt.unwrap().offset), (None, 44));
    }
}
