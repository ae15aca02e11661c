//! The queries of the index, each backed by a database index so that its cost follows its result.

use belljar_model::RunId;
use rusqlite::types::{FromSqlError, Type};
use rusqlite::{OptionalExtension as _, params_from_iter};

use super::{Index, IndexError, Query};
use crate::digest::Digest;
use crate::entry::Actor;

/// The indexed data of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub index: u64,
    /// The offset of the event's bytes in the log.
    pub offset: u64,
    pub length: usize,
    pub leaf: Digest,
    /// The run of the event; `None` for an event of the ledger itself.
    pub run: Option<RunId>,
    pub sequence: u64,
    pub kind: String,
    pub actor: Actor,
    pub cause: Option<u64>,
    pub time: u64,
}

/// The newest event of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunHead {
    pub sequence: u64,
    pub hash: Digest,
    pub index: u64,
}

/// A reference from an event to a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyReference {
    pub hash: Digest,
    pub size: u64,
    pub is_kept: bool,
    /// The index of the event.
    pub index: u64,
}

pub(super) const ROW: &str = "SELECT e.idx, e.offset, e.length, e.leaf, r.run, e.sequence, k.text, a.text, \
                   e.cause, e.time, e.run, e.family, e.kind, e.actor, e.sum";
pub(super) const NAMES: &str = "LEFT JOIN run AS r ON r.id = e.run LEFT JOIN name AS k ON k.id = e.kind \
                     LEFT JOIN name AS a ON a.id = e.actor";

impl Index {
    /// Returns the number of indexed events.
    pub(crate) fn size(&self) -> Result<u64, IndexError> {
        self.connection
            .query_row("SELECT next FROM meta WHERE id = 0", [], |row| position(row, 0))
            .map_err(self.failed("read the progress of the index"))
    }

    /// Returns the matching events, sorted by index.
    pub(crate) fn events(&self, query: &Query) -> Result<Vec<Row>, IndexError> {
        let (sql, values) = query.sql();
        let rows = self.rows("look up events", &sql, params_from_iter(values))?;
        match rows.iter().all(|row| query.fits(row)) {
            true => Ok(rows),
            false => Err(self.damaged()),
        }
    }

    pub(crate) fn event(&self, index: u64) -> Result<Option<Row>, IndexError> {
        self.row("look up an event", "e.idx = ?1", [number(index)])
    }

    /// Returns the event of a run with this sequence number.
    pub(crate) fn find(&self, run: RunId, sequence: u64) -> Result<Option<Row>, IndexError> {
        let condition = "e.run = (SELECT id FROM run WHERE run = ?1) AND e.sequence = ?2";
        self.row("look up an event of a run", condition, (run.to_string(), sequence.cast_signed()))
    }

    /// Returns the first events whose cause is the event `index`; all of them without a limit.
    pub(crate) fn effects_of(
        &self,
        index: u64,
        limit: Option<usize>,
    ) -> Result<Vec<Row>, IndexError> {
        let sql =
            format!("{ROW} FROM event AS e {NAMES} WHERE e.cause = ?1 ORDER BY e.idx LIMIT ?2");
        let limit = limit.map_or(-1, |limit| number(limit as u64));
        self.rows("look up the effects of an event", &sql, [index.cast_signed(), limit])
    }

    /// Returns the intents without an outcome, of one run or of all runs.
    pub(crate) fn unsettled(&self, run: Option<RunId>) -> Result<Vec<Row>, IndexError> {
        let condition = match run {
            Some(_) => "o.run = (SELECT id FROM run WHERE run = ?1)",
            None => "?1 IS NULL",
        };
        let sql = format!(
            "{ROW} FROM open_intent AS o CROSS JOIN event AS e ON e.idx = o.idx {NAMES}
             WHERE {condition} ORDER BY o.idx"
        );
        self.rows("look up intents without an outcome", &sql, [run.map(|run| run.to_string())])
    }

    /// Returns the newest event of a run.
    ///
    /// The index stores it twice and both must be equal, because a new event is chained to it.
    pub(crate) fn run_head(&self, run: RunId) -> Result<Option<RunHead>, IndexError> {
        let sql =
            "SELECT r.last_sequence, r.last_hash, r.last, e.idx, e.sequence, e.leaf FROM run AS r
             LEFT JOIN event AS e ON e.idx = (SELECT max(idx) FROM event WHERE run = r.id)
             WHERE r.run = ?1";
        let found = self
            .connection
            .query_row(sql, [run.to_string()], |row| {
                let head = RunHead {
                    sequence: wide(row, 0)?,
                    hash: digest(row, 1)?,
                    index: position(row, 2)?,
                };
                let newest = RunHead {
                    index: position(row, 3)?,
                    sequence: wide(row, 4)?,
                    hash: digest(row, 5)?,
                };
                Ok((head, newest))
            })
            .optional()
            .map_err(self.failed("look up the newest event of a run"))?;
        match found {
            Some((head, newest)) if head != newest => Err(self.damaged()),
            found => Ok(found.map(|(head, _)| head)),
        }
    }

    /// Returns the runs whose id starts with this text.
    pub(crate) fn find_run(&self, prefix: &str) -> Result<Vec<RunId>, IndexError> {
        let failed = self.failed("look up a run");
        // `~` sorts after all characters of an id; the events of the ledger itself have an empty
        // id.
        let sql =
            "SELECT run FROM run WHERE run >= ?1 AND run < ?1 || '~' AND run != '' ORDER BY run";
        let mut statement = self.connection.prepare_cached(sql).map_err(&failed)?;
        let found = statement.query_map([prefix], |row| run_id(row, 0)).map_err(&failed)?;
        found.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(&failed)
    }

    /// Returns the bodies whose hash starts with these hexadecimal digits, with the events that
    /// reference them.
    pub(crate) fn find_bodies(&self, prefix: &str) -> Result<Vec<BodyReference>, IndexError> {
        let failed = self.failed("look up a body");
        let ends =
            |fill: &str| format!("{prefix}{}", fill.repeat(64_usize.saturating_sub(prefix.len())));
        let (Ok(low), Ok(high)) = (ends("0").parse::<Digest>(), ends("f").parse::<Digest>()) else {
            return Ok(Vec::new());
        };
        let sql = "SELECT hash, size, kept, idx FROM body WHERE hash BETWEEN ?1 AND ?2 ORDER BY hash, idx";
        let mut statement = self.connection.prepare_cached(sql).map_err(&failed)?;
        let found = statement.query_map((low.as_bytes(), high.as_bytes()), |row| {
            Ok(BodyReference {
                hash: digest(row, 0)?,
                size: wide(row, 1)?,
                is_kept: row.get(2)?,
                index: position(row, 3)?,
            })
        });
        found.and_then(Iterator::collect).map_err(&failed)
    }

    fn row(
        &self,
        doing: &'static str,
        condition: &str,
        values: impl rusqlite::Params,
    ) -> Result<Option<Row>, IndexError> {
        let sql = format!("{ROW} FROM event AS e {NAMES} WHERE {condition} ORDER BY e.idx LIMIT 1");
        Ok(self.rows(doing, &sql, values)?.pop())
    }

    fn rows(
        &self,
        doing: &'static str,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<Row>, IndexError> {
        let failed = self.failed(doing);
        let mut statement = self.connection.prepare_cached(sql).map_err(&failed)?;
        let found = statement.query_map(values, Row::read);
        found.and_then(Iterator::collect).map_err(&failed)
    }
}

impl Row {
    fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let mut numbers = [0; NUMBERS.len()];
        for (number, column) in numbers.iter_mut().zip(NUMBERS) {
            *number = row.get(column)?;
        }
        let cause: Option<i64> = row.get(8)?;
        let leaf = digest(row, 3)?;
        if sum(numbers, cause, &leaf) != row.get::<_, i64>(14)? {
            return Err(invalid_value(14));
        }
        Ok(Self {
            index: position(row, 0)?,
            offset: position(row, 1)?,
            length: row.get::<_, u16>(2)?.into(),
            leaf,
            run: run_id(row, 4)?,
            sequence: wide(row, 5)?,
            kind: row.get(6)?,
            actor: text(row, 7)?.parse().map_err(|_| invalid_value(7))?,
            cause: cause.map(i64::cast_unsigned),
            time: in_order(row.get(9)?),
        })
    }
}

/// The columns of [`ROW`] with the numbers for [`sum`].
const NUMBERS: [usize; 9] = [0, 1, 2, 10, 5, 11, 12, 13, 9];

/// Returns a checksum of a row, because SQLite has none: it detects a flipped bit in any column.
pub(super) fn sum(numbers: [i64; NUMBERS.len()], cause: Option<i64>, leaf: &Digest) -> i64 {
    let mut bytes = [0; 8 * (NUMBERS.len() + 2)];
    let all = numbers.into_iter().chain([i64::from(cause.is_some()), cause.unwrap_or(0)]);
    for (position, number) in bytes.chunks_exact_mut(8).zip(all) {
        position.copy_from_slice(&number.to_be_bytes());
    }
    let [a, b, c, d, e, f, g, h, ..] = *Digest::of(&[&bytes, leaf.as_bytes()]).as_bytes();
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Converts a position or count, which is below 2^63 like every file size.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn position(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    u64::try_from(row.get::<_, i64>(column)?).map_err(|_| invalid_value(column))
}

/// Reads any 64-bit number from a column where only equality matters.
fn wide(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

/// Maps any 64-bit number to a signed one with the same order.
pub(super) const fn ordered(value: u64) -> i64 {
    (value ^ (1 << 63)).cast_signed()
}

const fn in_order(value: i64) -> u64 {
    value.cast_unsigned() ^ (1 << 63)
}

pub(super) fn digest(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Digest> {
    row.get(column).map(Digest::new)
}

fn text(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<String> {
    row.get(column)
}

fn run_id(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<RunId>> {
    let text = text(row, column)?;
    (!text.is_empty()).then(|| text.parse().map_err(|_| invalid_value(column))).transpose()
}

fn invalid_value(column: usize) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(
        column,
        Type::Null,
        Box::new(FromSqlError::InvalidType),
    )
}
