//! Translates a query into SQL that uses one of the database indexes.

use belljar_model::RunId;
use rusqlite::types::Value;

use super::query::{NAMES, ROW, Row, number, ordered};

/// The conditions that events must match; without conditions all events match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    pub run: Option<RunId>,
    /// A kind, such as `request.decided`, or a family of kinds, such as `request`.
    pub kind: Option<String>,
    /// The earliest time, in nanoseconds since 1970.
    pub since: Option<u64>,
    /// The time that events must precede.
    pub until: Option<u64>,
    /// The index that events must follow.
    pub after: Option<u64>,
    /// The index that events must precede.
    pub before: Option<u64>,
    pub newest_first: bool,
    pub limit: Option<usize>,
}

/// An SQL query with its parameters.
#[derive(Debug, Default)]
struct SqlQuery {
    conditions: Vec<&'static str>,
    values: Vec<Value>,
}

/// The number of events per row of `span`, which has their earliest and latest time.
pub(super) const BLOCK: u64 = 1024;

/// Joins the blocks and the events of each block in order.
const BY_BLOCK: &str = "span AS s CROSS JOIN event AS e \
                        ON e.idx BETWEEN s.block * 1024 AND s.block * 1024 + 1023";

impl Query {
    pub(super) fn sql(&self) -> (String, Vec<Value>) {
        let mut query = SqlQuery::default();
        let by_block = self.is_of_time_alone();
        let from = match (self.run, &self.kind) {
            (Some(_), _) => "event AS e INDEXED BY event_of_run",
            (None, Some(kind)) if is_family(kind) => "event AS e INDEXED BY event_of_family",
            (None, Some(_)) => "event AS e INDEXED BY event_of_kind",
            (None, None) if by_block => BY_BLOCK,
            (None, None) => "event AS e",
        };
        if by_block {
            self.add_block_conditions(&mut query);
        }
        self.add_event_conditions(&mut query);
        let conditions = match query.conditions.is_empty() {
            true => "1".to_owned(),
            false => query.conditions.join(" AND "),
        };
        let direction = if self.newest_first { "DESC" } else { "ASC" };
        let order = match by_block {
            true => format!("s.block {direction}, e.idx {direction}"),
            false => format!("e.idx {direction}"),
        };
        query.values.push(self.limit.map_or(-1, |limit| number(limit as u64)).into());
        let sql = format!("{ROW} FROM {from} {NAMES} WHERE {conditions} ORDER BY {order} LIMIT ?");
        (sql, query.values)
    }

    /// Checks a row again, because a damaged index of SQLite can return rows that do not match the
    /// query.
    pub(super) fn fits(&self, row: &Row) -> bool {
        let kind = self.kind.as_ref().is_none_or(|kind| match is_family(kind) {
            true => family(&row.kind) == kind,
            false => row.kind == *kind,
        });
        kind && self.run.is_none_or(|run| row.run == Some(run))
    }

    /// Returns whether only times are given.
    ///
    /// Clocks go backwards, so events are not sorted by time: the query skips blocks without an
    /// event in the time range.
    fn is_of_time_alone(&self) -> bool {
        let has_time = self.since.is_some() || self.until.is_some();
        has_time && self.run.is_none() && self.kind.is_none()
    }

    fn add_block_conditions(&self, query: &mut SqlQuery) {
        query.add("s.latest >= ?", self.since.map(ordered));
        query.add("s.earliest < ?", self.until.map(ordered));
        query.add("s.block >= ?", self.after.map(|after| number(after / BLOCK)));
        query.add("s.block <= ?", self.before.map(|before| number(before / BLOCK)));
    }

    fn add_event_conditions(&self, query: &mut SqlQuery) {
        let run = "e.run = (SELECT id FROM run WHERE run = ?)";
        query.add(run, self.run.map(|run| run.to_string()));
        let kind = match self.kind.as_deref().is_some_and(is_family) {
            true => "e.family = (SELECT id FROM name WHERE text = ?)",
            false => "e.kind = (SELECT id FROM name WHERE text = ?)",
        };
        query.add(kind, self.kind.clone());
        query.add("e.time >= ?", self.since.map(ordered));
        query.add("e.time < ?", self.until.map(ordered));
        query.add("e.idx > ?", self.after.map(number));
        query.add("e.idx < ?", self.before.map(number));
    }
}

impl SqlQuery {
    fn add(&mut self, condition: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.conditions.push(condition);
            self.values.push(value.into());
        }
    }
}

/// Returns the part of a kind before its first dot.
pub(super) fn family(kind: &str) -> &str {
    kind.split_once('.').map_or(kind, |(family, _)| family)
}

fn is_family(kind: &str) -> bool {
    !kind.contains('.')
}
