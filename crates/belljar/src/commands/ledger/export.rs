//! `belljar ledger export`: the events for other tools.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use belljar_ledger::{Query, Reader, Row};
use belljar_model::{RunId, display};

use super::{Home, each, read};
use crate::cli::ledger::ExportArgs;
use crate::exit::Outcome;
use crate::print;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::record::json;
use belljar_engine::record::otel::{self, Recorded};

pub(crate) fn run(args: &ExportArgs) -> Outcome {
    let home = Home::open()?;
    let reader = home.reader()?;
    if let Some(dir) = &args.tiles {
        let checkpoint = reader
            .export_tiles(dir)
            .with_context(|| format!("--tiles {}", display::safe(dir.as_os_str().as_bytes())))
            .kind(ErrorKind::Broken)?;
        print::note(&format!("{} events, root {}", checkpoint.size(), checkpoint.root()));
        return Ok(0);
    }
    let run = args.run.as_deref().map(|run| home.run(&reader, "--run", run)).transpose()?;
    let mut out = Lines::open(args.output.as_deref())?;
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

/// What is recorded while we write is left to the next time.
fn up_to_now(reader: &Reader) -> Query {
    Query { before: Some(reader.size()), ..Query::default() }
}

/// One line per run, and one for all spans that were brought in and belong to none.
fn export_otel(reader: &Reader, run: Option<RunId>, out: &mut Lines) -> Result<(), EngineError> {
    if let Some(run) = run {
        return export_run(reader, run, out).map(drop);
    }
    let created = Query { kind: Some("run.created".to_owned()), ..up_to_now(reader) };
    each(reader, created, &mut |row| match row.run {
        Some(run) => export_run(reader, run, out),
        None => Ok(true),
    })?;
    let mut alone = Vec::new();
    let spans = Query { kind: Some("trace.span".to_owned()), ..up_to_now(reader) };
    each(reader, spans, &mut |row| {
        if row.run.is_none() {
            alone.push(recorded(reader, row)?);
        }
        Ok(true)
    })?;
    match otel::trace(&alone) {
        Some(trace) => out.write(&trace).map(drop),
        None => Ok(()),
    }
}

fn export_run(reader: &Reader, run: RunId, out: &mut Lines) -> Result<bool, EngineError> {
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

fn recorded(reader: &Reader, row: &Row) -> Result<Recorded, EngineError> {
    let entry = read(reader, row)?;
    Ok(Recorded { index: row.index, hash: row.leaf, entry })
}

/// Lines of JSON, to a file or to standard output.
struct Lines {
    out: BufWriter<Box<dyn Write>>,
    name: String,
    gone: bool,
}

impl Lines {
    fn open(output: Option<&Path>) -> Result<Self, EngineError> {
        let (out, name): (Box<dyn Write>, String) = match output {
            Some(path) => {
                let name = format!("-o {}", display::safe(path.as_os_str().as_bytes()));
                (
                    Box::new(
                        File::create(path).with_context(|| name.clone()).kind(ErrorKind::Broken)?,
                    ),
                    name,
                )
            }
            None => (Box::new(io::stdout()), "write to standard output".to_owned()),
        };
        Ok(Self { out: BufWriter::new(out), name, gone: false })
    }

    /// Writes one; false when nobody reads any more.
    fn write(&mut self, value: &serde_json::Value) -> Result<bool, EngineError> {
        let line = print::json_line(value).kind(ErrorKind::Broken)?;
        let written = self.out.write_all(line.as_bytes());
        self.noted(written)?;
        Ok(!self.gone)
    }

    fn finish(mut self) -> Result<(), EngineError> {
        let flushed = self.out.flush();
        self.noted(flushed)
    }

    fn noted(&mut self, written: io::Result<()>) -> Result<(), EngineError> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(())
            }
            other => other.with_context(|| self.name.clone()).kind(ErrorKind::Broken),
        }
    }
}
