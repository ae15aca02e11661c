//! Reads events of the ledger, and finds runs in it.

use anyhow::anyhow;
use belljar_ledger::{Entry, Event, Query, Reader, Row};
use belljar_model::RunId;

use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::store::Store;

/// The run of this id, beginning of an id, or name. The ledger remembers runs whose own directory is
/// long gone. `flag` is what errors call the name.
pub fn find_run(
    store: &Store,
    reader: &Reader,
    flag: &str,
    name: &str,
) -> Result<RunId, EngineError> {
    let named: Vec<RunId> = store
        .runs()
        .kind(ErrorKind::Broken)?
        .iter()
        .filter(|run| run.record.name.as_ref().is_some_and(|own| own.as_str() == name))
        .map(|run| run.id())
        .collect();
    let begun =
        if name.len() >= 4 { reader.find_run(name).kind(ErrorKind::Broken)? } else { Vec::new() };
    match (begun.as_slice(), named.iter().max()) {
        ([run], None) => Ok(*run),
        ([], Some(newest)) => in_ledger(reader, *newest),
        ([], None) => named_in_ledger(reader, flag, name),
        ([run], Some(newest)) if run == newest || run.to_string() == name => Ok(*run),
        (many, _) => Err(invalid(format!(
            "{flag} {name:?}: this is the beginning of {} run ids or a name; write more of it",
            many.len()
        ))),
    }
}

fn in_ledger(reader: &Reader, run: RunId) -> Result<RunId, EngineError> {
    match reader.find(run, 0).kind(ErrorKind::Broken)? {
        Some(_) => Ok(run),
        None => Err(invalid(format!("run {run} is not in the ledger"))),
    }
}

/// The newest run of this name that the ledger knows.
fn named_in_ledger(reader: &Reader, flag: &str, name: &str) -> Result<RunId, EngineError> {
    let mut query = Query { kind: Some("run.created".to_owned()), ..newest(CHUNK) };
    loop {
        let rows = reader.events(&query).kind(ErrorKind::Broken)?;
        for row in &rows {
            let entry = read(reader, row)?;
            if let (Ok(Event::RunCreated(created)), Some(run)) =
                (Event::read(&entry.kind, &entry.fields), row.run)
                && created.name.as_deref() == Some(name)
            {
                return Ok(run);
            }
        }
        let Some(last) = rows.last() else {
            return Err(invalid(format!(
                "{flag} {name:?}: there is no such run; `belljar ledger log --kind run.created` lists them"
            )));
        };
        query.before = Some(last.index);
    }
}

/// So many events are asked for at once.
const CHUNK: usize = 1024;

/// The newest events.
pub fn newest(limit: usize) -> Query {
    Query { newest_first: true, limit: Some(limit), ..Query::default() }
}

/// Shows every event that fits, in its order, without holding all of them.
pub fn each(
    reader: &Reader,
    mut query: Query,
    show: &mut dyn FnMut(&Row) -> Result<bool, EngineError>,
) -> Result<(), EngineError> {
    query.limit = Some(CHUNK);
    loop {
        let rows = reader.events(&query).kind(ErrorKind::Broken)?;
        for row in &rows {
            if !show(row)? {
                return Ok(());
            }
        }
        let Some(last) = rows.last() else { return Ok(()) };
        if query.newest_first {
            query.before = Some(last.index);
        } else {
            query.after = Some(last.index);
        }
    }
}

/// The event of a row, checked.
pub fn read(reader: &Reader, row: &Row) -> Result<Entry, EngineError> {
    reader.read(row).map_err(|error| damaged(&anyhow!(error)))
}

/// An error that says what helps against a damaged ledger.
pub fn damaged(error: &anyhow::Error) -> EngineError {
    let error = anyhow!(
        "{error:#}; `belljar ledger verify` says what is wrong, `belljar ledger mend` goes on after it"
    );
    EngineError::new(ErrorKind::Broken, error)
}
