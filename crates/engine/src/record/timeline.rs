//! The newest events of one run, each with a description.

use anyhow::Context as _;
use belljar_ledger::{Query, RunEnded};
use belljar_model::RunId;

use super::reading::{newest, read};
use super::{runs, sentences};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineEvent {
    /// The position in the ledger.
    pub index: u64,
    /// The time in nanoseconds since 1970.
    pub time: u64,
    pub kind: String,
    /// A description on one line, safe to print to a terminal.
    pub text: String,
}

/// The newest events of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The events, oldest first.
    pub events: Vec<TimelineEvent>,
    /// Whether the run has older events.
    pub has_more: bool,
    /// The end of the program of a single run.
    pub ended: Option<RunEnded>,
}

/// Returns the newest events of a run, at most `limit`.
pub fn of_run(state: &Scoped, run: RunId, limit: usize) -> Result<Timeline, EngineError> {
    let reader = runs::reader(state).context("cannot read the ledger").kind(ErrorKind::Broken)?;
    let Some(reader) = reader else { return Ok(Timeline::default()) };
    // One more event tells whether there are older ones.
    let query = Query { run: Some(run), ..newest(limit.saturating_add(1)) };
    let mut rows = reader.events(&query).kind(ErrorKind::Broken)?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    rows.reverse();
    let mut events = Vec::with_capacity(rows.len());
    for row in &rows {
        let text = sentences::words(&read(&reader, row)?);
        events.push(TimelineEvent {
            index: row.index,
            time: row.time,
            kind: row.kind.clone(),
            text,
        });
    }
    Ok(Timeline { events, has_more, ended: runs::ended(&reader, run)? })
}
