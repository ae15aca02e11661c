//! Durations that the ledger records: starts of boxes, and requests through the broker.

use belljar_ledger::{Event, LedgerPaths, Query, Reader, ReaderError};

use super::reading::read;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;

/// The maximum number of events that are read at once. Older ones are skipped.
const MAX_EVENTS: u64 = 20_000;

/// A recorded duration in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedDuration {
    /// From the request for a box to the start of its program.
    Start(u64),
    /// From the decision about a request to its end.
    Request(u64),
}

/// Reads the durations of new events of a tenant's ledger.
#[derive(Debug, Default)]
pub struct DurationReader {
    reader: Option<Reader>,
    next: Option<u64>,
}

impl DurationReader {
    /// Returns the durations of the events since the last call. The first call returns nothing.
    pub fn read(&mut self, state: &Scoped) -> Result<Vec<RecordedDuration>, EngineError> {
        if self.reader.is_none() {
            self.reader = match Reader::open_uncounted(&LedgerPaths::under(state.home())) {
                Err(ReaderError::None { .. }) => {
                    self.next = Some(0); // all events of a new ledger are new
                    return Ok(Vec::new());
                }
                opened => Some(opened.kind(ErrorKind::Broken)?),
            };
        }
        let Some(reader) = &mut self.reader else { return Ok(Vec::new()) };
        let size = reader.refresh().kind(ErrorKind::Broken)?;
        let from = self.next.unwrap_or(size).max(size.saturating_sub(MAX_EVENTS));
        let durations = durations(reader, from, size)?;
        self.next = Some(size);
        Ok(durations)
    }
}

fn durations(reader: &Reader, from: u64, size: u64) -> Result<Vec<RecordedDuration>, EngineError> {
    let mut found = Vec::new();
    for kind in ["run.exec", "request.finished"] {
        let query = Query {
            kind: Some(kind.to_owned()),
            after: from.checked_sub(1),
            before: Some(size),
            ..Query::default()
        };
        for row in reader.events(&query).kind(ErrorKind::Broken)? {
            if kind == "run.exec" {
                let created = row.run.map(|run| reader.find(run, 0)).transpose();
                if let Some(created) = created.kind(ErrorKind::Broken)?.flatten() {
                    let nanos = row.time.saturating_sub(created.time);
                    found.push(RecordedDuration::Start(nanos / 1000));
                }
                continue;
            }
            let entry = read(reader, &row)?;
            if let Ok(Event::RequestFinished(event)) = Event::read(&entry.kind, &entry.fields) {
                found.push(RecordedDuration::Request(event.micros));
            }
        }
    }
    Ok(found)
}
