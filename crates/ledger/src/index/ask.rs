//! Which events are asked for, as SQL that follows one of the index's orders.

use belljar_model::RunId;
use rusqlite::types::Value;

use super::query::{NAMES, ROW, Row, number, ordered};

/// Which events are asked for. Without any condition: all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    pub run: Option<RunId>,
    /// A kind, such as `request.decided`, or a family of kinds, such as `request`.
    pub kind: Option<String>,
    /// Not before this time; nanoseconds since 1970.
    pub since: Option<u64>,
    /// Before this time.
    pub until: Option<u64>,
    /// Behind the event with this index.
    pub after: Option<u64>,
    /// Before the event with this index.
    pub before: Option<u64>,
    pub newest_first: bool,
    pub limit: Option<usize>,
}

/// A question in SQL with its values.
#[derive(Debug, Default)]
struct Asking {
    conditions: Vec<&'static str>,
    values: Vec<Value>,
}

/// Events per row of `span`, which knows the earliest and the latest time among them.
pub(super) const BLOCK: u64 = 1024;

/// In the order of the blocks and of the events in each.
const BY_BLOCK: &str = "span AS s CROSS JOIN event AS e \
                        ON e.idx BETWEEN s.block * 1024 AND s.block * 1024 + 1023";

impl Query {
    pub(super) fn sql(&self) -> (String, Vec<Value>) {
        let mut asking = Asking::default();
        let by_block = self.is_of_time_alone();
        let from = match (self.run, &self.kind) {
            (Some(_), _) => "event AS e INDEXED BY event_of_run",
            (None, Some(kind)) if is_family(kind) => "event AS e INDEXED BY event_of_family",
            (None, Some(_)) => "event AS e INDEXED BY event_of_kind",
            (None, None) if by_block => BY_BLOCK,
            (None, None) => "event AS e",
        };
        if by_block {
            self.ask_blocks(&mut asking);
        }
        self.ask_events(&mut asking);
        let conditions = match asking.conditions.is_empty() {
            true => "1".to_owned(),
            false => asking.conditions.join(" AND "),
        };
        let direction = if self.newest_first { "DESC" } else { "ASC" };
        let order = match by_block {
            true => format!("s.block {direction}, e.idx {direction}"),
            false => format!("e.idx {direction}"),
        };
        asking.values.push(self.limit.map_or(-1, |limit| number(limit as u64)).into());
        let sql = format!("{ROW} FROM {from} {NAMES} WHERE {conditions} ORDER BY {order} LIMIT ?");
        (sql, asking.values)
    }

    /// SQLite believes its indices; a damaged one leads to rows that nobody asked for.
    pub(super) fn fits(&self, row: &Row) -> bool {
        let kind = self.kind.as_ref().is_none_or(|kind| match is_family(kind) {
            true => family(&row.kind) == kind,
            false => row.kind == *kind,
        });
        kind && self.run.is_none_or(|run| row.run == Some(run))
    }

    /// Clocks go backwards, so times have no order of their own here: blocks of events that have
    /// none of the asked time are passed over.
    fn is_of_time_alone(&self) -> bool {
        let has_time = self.since.is_some() || self.until.is_some();
        has_time && self.run.is_none() && self.kind.is_none()
    }

    fn ask_blocks(&self, asking: &mut Asking) {
        asking.ask("s.latest >= ?", self.since.map(ordered));
        asking.ask("s.earliest < ?", self.until.map(ordered));
        asking.ask("s.block >= ?", self.after.map(|after| number(after / BLOCK)));
        asking.ask("s.block <= ?", self.before.map(|before| number(before / BLOCK)));
    }

    fn ask_events(&self, asking: &mut Asking) {
        let run = "e.run = (SELECT id FROM run WHERE run = ?)";
        asking.ask(run, self.run.map(|run| run.to_string()));
        let kind = match self.kind.as_deref().is_some_and(is_family) {
            true => "e.family = (SELECT id FROM name WHERE text = ?)",
            false => "e.kind = (SELECT id FROM name WHERE text = ?)",
        };
        asking.ask(kind, self.kind.clone());
        asking.ask("e.time >= ?", self.since.map(ordered));
        asking.ask("e.time < ?", self.until.map(ordered));
        asking.ask("e.idx > ?", self.after.map(number));
        asking.ask("e.idx < ?", self.before.map(number));
    }
}

impl Asking {
    fn ask(&mut self, condition: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.conditions.push(condition);
            self.values.push(value.into());
        }
    }
}

/// What stands before the first dot of a kind.
pub(super) fn family(kind: &str) -> &str {
    kind.split_once('.').map_or(kind, |(family, _)| family)
}

fn is_family(kind: &str) -> bool {
    !kind.contains('.')
}
