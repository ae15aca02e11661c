//! `belljar ledger export`: exports events as JSON lines, OpenTelemetry traces or tiles.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use belljar_ledger::{Query, Reader, Row};
use belljar_model::{RunId, display};

use super::{LedgerHome, each, read};
use crate::cli::ledger::ExportArgs;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::record::json;
use belljar_engine::record::otel::{self, Recorded};

/// Runs `belljar ledger export`.
pub(crate) fn run(args: &ExportArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let reader = home.reader()?;
    if let Some(dir) = &args.tiles {
        let checkpoint = reader
            .export_tiles(dir)
            .with_context(|| {
                format!("--tiles: cannot export to {}", display::safe(dir.as_os_str().as_bytes()))
            })
            .kind(ErrorKind::Broken)?;
        print::note(&format!(
            "exported {} events, root hash {}",
            checkpoint.size(),
            checkpoint.root()
        ));
        return Ok(0);
    }
    let run = args.run.as_deref().map(|run| home.run(&reader, "--run", run)).transpose()?;
    let mut out = JsonLinesWriter::open(args.output.as_deref())?;
    if args.otel {
        export_otel(&reader, run, &mut out)?;
    } else {
        each(&reader, Query { run, ..up_to_now(&reader) }, &mut |row| {
            let entry = read(&reader, row)?;
            out.write(&json::event(row.index, &row.leaf, &entry))
        })?;
    }
    out.finish()?;
    Ok(0)
}

/// Returns a query for all events up to now; events that are recorded later are not exported.
fn up_to_now(reader: &Reader) -> Query {
    Query { before: Some(reader.size()), ..Query::default() }
}

/// Writes one trace per run, and one trace with all imported spans that belong to no run.
fn export_otel(
    reader: &Reader,
    run: Option<RunId>,
    out: &mut JsonLinesWriter,
) -> Result<(), EngineError> {
    if let Some(run) = run {
        return export_run(reader, run, out).map(drop);
    }
    let created = Query { kind: Some("run.created".to_owned()), ..up_to_now(reader) };
    each(reader, created, &mut |row| match row.run {
        Some(run) => export_run(reader, run, out),
        None => Ok(true),
    })?;
    let mut spans_without_run = Vec::new();
    let spans = Query { kind: Some("trace.span".to_owned()), ..up_to_now(reader) };
    each(reader, spans, &mut |row| {
        if row.run.is_none() {
            spans_without_run.push(recorded(reader, row)?);
        }
        Ok(true)
    })?;
    match otel::trace(&spans_without_run) {
        Some(trace) => out.write(&trace).map(drop),
        None => Ok(()),
    }
}

/// Writes the trace of a run; returns whether the output is still open.
fn export_run(reader: &Reader, run: RunId, out: &mut JsonLinesWriter) -> Result<bool, EngineError> {
    let mut events = Vec::new();
    each(reader, Query { run: Some(run), ..up_to_now(reader) }, &mut |row| {
        events.push(recorded(reader, row)?);
        Ok(true)
    })?;
    match otel::trace(&events) {
        Some(trace) => out.write(&trace),
        None => Ok(true),
    }
}

/// Reads an event for the trace export.
fn recorded(reader: &Reader, row: &Row) -> Result<Recorded, EngineError> {
    let entry = read(reader, row)?;
    Ok(Recorded { index: row.index, hash: row.leaf, entry })
}

/// A writer of JSON lines to a file or to standard output.
struct JsonLinesWriter {
    out: BufWriter<Box<dyn Write>>,
    failure: String,
    is_closed: bool,
}

impl JsonLinesWriter {
    /// Opens the file of `-o`, or standard output.
    fn open(output: Option<&Path>) -> Result<Self, EngineError> {
        let (out, failure): (Box<dyn Write>, String) = match output {
            Some(path) => {
                let failure =
                    format!("-o: cannot write {}", display::safe(path.as_os_str().as_bytes()));
                (
                    Box::new(
                        File::create(path)
                            .with_context(|| failure.clone())
                            .kind(ErrorKind::Broken)?,
                    ),
                    failure,
                )
            }
            None => (Box::new(io::stdout()), "cannot write to standard output".to_owned()),
        };
        Ok(Self { out: BufWriter::new(out), failure, is_closed: false })
    }

    /// Writes one value; returns false if the output was closed.
    fn write(&mut self, value: &serde_json::Value) -> Result<bool, EngineError> {
        let line = print::json_line(value).kind(ErrorKind::Broken)?;
        let written = self.out.write_all(line.as_bytes());
        self.check(written)?;
        Ok(!self.is_closed)
    }

    /// Writes the buffered lines.
    fn finish(mut self) -> Result<(), EngineError> {
        let flushed = self.out.flush();
        self.check(flushed)
    }

    /// Remembers a closed output, which is not an error.
    fn check(&mut self, written: io::Result<()>) -> Result<(), EngineError> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            other => other.with_context(|| self.failure.clone()).kind(ErrorKind::Broken),
        }
    }
}
