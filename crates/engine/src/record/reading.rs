//! Reads events from the ledger and finds runs by id, prefix or name.

use anyhow::anyhow;
use belljar_ledger::{Entry, Event, Query, Reader, Row};
use belljar_model::RunId;

use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::store::Store;

/// Finds a run by its id, a prefix of its id, or its name. The ledger also knows runs whose directory
/// was removed. `flag` is the command-line option that errors mention.
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
        .filter(|run| run.record.name.as_ref().is_some_and(|run_name| run_name.as_str() == name))
        .map(|run| run.id())
        .collect();
    let by_prefix =
        if name.len() >= 4 { reader.find_run(name).kind(ErrorKind::Broken)? } else { Vec::new() };
    match (by_prefix.as_slice(), named.iter().max()) {
        ([run], None) => Ok(*run),
        ([], Some(newest)) => in_ledger(reader, *newest),
        ([], None) => named_in_ledger(reader, flag, name),
        ([run], Some(newest)) if run == newest || run.to_string() == name => Ok(*run),
        (many, _) => Err(invalid(format!(
            "{flag} {name:?} is ambiguous: it is a prefix of {} run ids or also a name; use a longer prefix",
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

/// Returns the newest run in the ledger with this name.
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
                "{flag} {name:?}: no such run; list the runs with `belljar ledger log --kind run.created`"
            )));
        };
        query.before = Some(last.index);
    }
}

/// The number of events that are read from the ledger at once.
const CHUNK: usize = 1024;

/// Returns a query for the newest events of the ledger, newest first.
pub fn newest(limit: usize) -> Query {
    Query { newest_first: true, limit: Some(limit), ..Query::default() }
}

/// Calls `show` for every event that matches the query, until it returns `false`. Events are read in
/// chunks, so that a large ledger does not fill the memory.
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

/// Reads the event of an index row and verifies its hash.
pub fn read(reader: &Reader, row: &Row) -> Result<Entry, EngineError> {
    reader.read(row).map_err(|error| damaged(&anyhow!(error)))
}

/// Adds the commands that help with a damaged ledger to an error.
pub fn damaged(error: &anyhow::Error) -> EngineError {
    EngineError::message(ErrorKind::Broken, format!("{error:#}")).advise(
        "run `belljar ledger verify` to see the damage, then `belljar ledger mend` to continue after it",
    )
}
