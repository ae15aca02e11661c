//! Lists the runs of the ledger, including runs whose directory was removed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use belljar_ledger::{Event, LedgerPaths, Query, Reader, ReaderError, Row, RunCreated, RunEnded};
use belljar_model::{Purpose, RunId};

use super::reading::{each, read};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;

/// The purposes of the runs that a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purposes(Vec<Purpose>);

impl Purposes {
    pub fn of(purposes: impl IntoIterator<Item = Purpose>) -> Self {
        Self(purposes.into_iter().collect())
    }

    pub fn all() -> Self {
        Self::of(Purpose::ALL)
    }

    /// Whether a run with this purpose is shown. Runs of version 0.1 have no purpose and count as `run`.
    pub fn include(&self, purpose: Option<Purpose>) -> bool {
        self.0.contains(&purpose.unwrap_or(Purpose::Run))
    }
}

/// The purposes of runs that a user started. Runs that Belljar starts for its own work are left out.
impl Default for Purposes {
    fn default() -> Self {
        Self::of(Purpose::ALL.into_iter().filter(|purpose| purpose.is_started_by_user()))
    }
}

/// A run as recorded in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRun {
    pub id: RunId,
    pub name: Option<String>,
    /// The time of creation, in nanoseconds since 1970.
    pub created: u64,
    /// The purpose of the run; `None` for runs of version 0.1.
    pub purpose: Option<Purpose>,
    pub template: String,
    pub mode: String,
    pub workspace: Option<PathBuf>,
    /// The reason why the run ended, or `failed` if it did not start; `None` if no end is recorded.
    pub end: Option<String>,
}

/// Opens the ledger for reading; `None` if the ledger does not exist yet.
pub fn reader(state: &Scoped) -> Result<Option<Reader>, ReaderError> {
    match Reader::open(&LedgerPaths::under(state.home())) {
        Err(ReaderError::None { .. }) => Ok(None),
        opened => opened.map(Some),
    }
}

/// Returns the runs in the ledger that have one of these purposes, newest first.
pub fn list(reader: &Reader, purposes: &Purposes) -> Result<Vec<RecordedRun>, EngineError> {
    let mut all = Vec::new();
    each_before(reader, purposes, None, &mut |_, run| {
        all.push(run);
        true
    })?;
    Ok(all)
}

/// Calls `show` for every run that has one of these purposes and was recorded before the event with the
/// index `before`, newest first, until it returns `false`. The number is the index of the first event.
pub fn each_before(
    reader: &Reader,
    purposes: &Purposes,
    before: Option<u64>,
    show: &mut dyn FnMut(u64, RecordedRun) -> bool,
) -> Result<(), EngineError> {
    let query = Query { newest_first: true, before, ..created_events() };
    each(reader, query, &mut |row| {
        if let (Some(id), Some((created, time))) = (row.run, created(reader, row)?)
            && purposes.include(purpose(&created))
        {
            return Ok(show(row.index, recorded(reader, id, created, time)?));
        }
        Ok(true)
    })
}

/// Returns a run as recorded in the ledger; `None` if the ledger has no record of it.
pub fn find(reader: &Reader, id: RunId) -> Result<Option<RecordedRun>, EngineError> {
    let first = reader.find(id, 0).kind(ErrorKind::Broken)?;
    let created = first.map(|row| created(reader, &row)).transpose()?.flatten();
    created.map(|(created, time)| recorded(reader, id, created, time)).transpose()
}

/// Returns the event that created a run; `None` if the ledger does not have the run.
pub(super) fn created_of(reader: &Reader, id: RunId) -> Result<Option<RunCreated>, EngineError> {
    let first = reader.find(id, 0).kind(ErrorKind::Broken)?;
    let created = first.map(|row| created(reader, &row)).transpose()?.flatten();
    Ok(created.map(|(created, _)| created))
}

fn recorded(
    reader: &Reader,
    id: RunId,
    created: RunCreated,
    time: u64,
) -> Result<RecordedRun, EngineError> {
    Ok(RecordedRun {
        id,
        purpose: purpose(&created),
        name: created.name,
        created: time,
        template: created.template,
        mode: created.mode,
        workspace: created.workspace.map(|path| OsString::from_vec(path).into()),
        end: end(reader, id)?,
    })
}

/// Returns the recorded end of the program of a run; `None` if the program did not start or has not ended.
pub fn ended(reader: &Reader, run: RunId) -> Result<Option<RunEnded>, EngineError> {
    let kind = Some("run.ended".to_owned());
    let query = Query { run: Some(run), kind, limit: Some(1), ..Query::default() };
    let rows = reader.events(&query).kind(ErrorKind::Broken)?;
    let Some(row) = rows.first() else { return Ok(None) };
    let entry = read(reader, row)?;
    Ok(match Event::read(&entry.kind, &entry.fields) {
        Ok(Event::RunEnded(ended)) => Some(ended),
        _ => None,
    })
}

/// Returns the newest run in the ledger that has one of these purposes.
pub fn newest(reader: &Reader, purposes: &Purposes) -> Result<Option<RunId>, EngineError> {
    let mut found = None;
    let query = Query { newest_first: true, ..created_events() };
    each(reader, query, &mut |row| {
        let created = created(reader, row)?;
        if purposes.include(created.and_then(|(created, _)| purpose(&created))) {
            found = row.run;
        }
        Ok(found.is_none())
    })?;
    Ok(found)
}

/// Returns the index of the first event of a run in the ledger, and its purpose if that is recorded.
/// Returns `None` if the ledger does not have the run.
pub fn position(
    reader: &Reader,
    run: RunId,
) -> Result<Option<(u64, Option<Purpose>)>, EngineError> {
    let Some(row) = reader.find(run, 0).kind(ErrorKind::Broken)? else { return Ok(None) };
    let created = created(reader, &row)?;
    Ok(Some((row.index, created.and_then(|(created, _)| purpose(&created)))))
}

/// A cache of the purposes of runs, each read from the ledger once.
#[derive(Debug, Default)]
pub struct KnownPurposes(BTreeMap<RunId, Option<Purpose>>);

impl KnownPurposes {
    /// Returns the purpose of a run; `None` if the ledger does not record it.
    pub fn of(&mut self, reader: &Reader, run: RunId) -> Result<Option<Purpose>, EngineError> {
        if let Some(known) = self.0.get(&run) {
            return Ok(*known);
        }
        let purpose = position(reader, run)?.and_then(|(_, purpose)| purpose);
        self.0.insert(run, purpose);
        Ok(purpose)
    }
}

fn created_events() -> Query {
    Query { kind: Some("run.created".to_owned()), ..Query::default() }
}

/// Reads the `run.created` event of a row, with its time; `None` for events of other kinds.
fn created(reader: &Reader, row: &Row) -> Result<Option<(RunCreated, u64)>, EngineError> {
    let entry = read(reader, row)?;
    Ok(match Event::read(&entry.kind, &entry.fields) {
        Ok(Event::RunCreated(created)) => Some((created, entry.moment.time)),
        _ => None,
    })
}

fn purpose(created: &RunCreated) -> Option<Purpose> {
    created.purpose.as_deref()?.parse().ok()
}

fn end(reader: &Reader, run: RunId) -> Result<Option<String>, EngineError> {
    for kind in ["run.ended", "run.failed", "plan.ended"] {
        let query = Query {
            run: Some(run),
            kind: Some(kind.to_owned()),
            limit: Some(1),
            ..Query::default()
        };
        let rows = reader.events(&query).kind(ErrorKind::Broken)?;
        let Some(row) = rows.first() else { continue };
        let entry = read(reader, row)?;
        return Ok(Some(match Event::read(&entry.kind, &entry.fields) {
            Ok(Event::RunEnded(ended)) => ended.reason,
            Ok(Event::PlanEnded(ended)) => ended.outcome,
            _ => "failed".to_owned(),
        }));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_purposes_are_those_of_users_and_a_missing_purpose_counts_as_run() {
        let shown = |purposes: &Purposes| -> Vec<Purpose> {
            Purpose::ALL.into_iter().filter(|purpose| purposes.include(Some(*purpose))).collect()
        };
        let default = Purposes::default();
        assert_eq!(shown(&default), [Purpose::Run, Purpose::Call, Purpose::Box, Purpose::Plan]);
        assert_eq!(shown(&Purposes::all()), Purpose::ALL);
        let reader = Purposes::of([Purpose::CloneReader]);
        assert_eq!(shown(&reader), [Purpose::CloneReader]);
        assert!(default.include(None) && !reader.include(None));
    }
}
