//! `belljar net log`: lists the network requests of a run.

use belljar_engine::review;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use belljar_ledger::{Query, Reader, Row};
use belljar_model::{RunId, RunState};
use serde_json::json;

use super::find_run;
use crate::cli::net::LogArgs;
use crate::cli::purpose::PurposeChoice;
use crate::commands::ledger::LedgerHome;
use crate::commands::ledger::log::output_is_closed;
use crate::exit::Outcome;
use crate::print::{self, Paged};
use crate::scope::CLOCK;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::record::line::{LedgerLine, begun, with_outcome};
use belljar_engine::record::reading::{each, read};
use belljar_engine::record::runs::{KnownPurposes, Purposes};

/// The time after which an unfinished request is printed as open.
const OPEN_REQUEST_DELAY: Duration = Duration::from_secs(2);
/// The interval between checks whether the followed run is still running.
const RUN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs `belljar net log`.
pub(crate) fn run(args: &LogArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let reader = home.reader()?;
    let purposes = PurposeChoice::chosen(&args.purposes);
    let run = match args.all {
        true => None,
        false => Some(find_run(&home, &reader, args.run.as_deref(), purposes.as_ref())?),
    };
    let since = args.since.map(|since| since.nanos(CLOCK.nanos()));
    let query = Query { run, since, ..Query::default() };
    // A single run is printed whatever its purpose is: `find_run` has applied `--purpose`.
    let purposes = run.map_or_else(|| purposes.unwrap_or_default(), |_| Purposes::all());
    let mut printer = LogPrinter::new(purposes);
    let seen = reader.size();
    let has_ended =
        print_existing(args, &reader, Query { before: Some(seen), ..query.clone() }, &mut printer)?;
    if args.follow && !(has_ended && run.is_some()) {
        follow(args, &home, (reader, query), &mut printer)?;
    }
    if !args.json {
        printer.print_summary(args, run);
    }
    Ok(0)
}

/// Formats the lines of the log, and counts them for the summary.
#[derive(Debug)]
struct LogPrinter {
    purposes: Purposes,
    known: KnownPurposes,
    lines: u64,
    denied: u64,
    /// The number of lines that were left out because of the purpose of their run.
    hidden: u64,
}

impl LogPrinter {
    fn new(purposes: Purposes) -> Self {
        Self { purposes, known: KnownPurposes::default(), lines: 0, denied: 0, hidden: 0 }
    }

    /// Returns a line as text or JSON, or an empty text if the options exclude it.
    fn line(
        &mut self,
        args: &LogArgs,
        reader: &Reader,
        line: &LedgerLine,
    ) -> Result<String, EngineError> {
        if args.denied && !line.is_denied() {
            return Ok(String::new());
        }
        let purpose = line.run.map(|run| self.known.of(reader, run)).transpose()?.flatten();
        if !self.purposes.include(purpose) {
            self.hidden += 1;
            return Ok(String::new());
        }
        self.lines += 1;
        self.denied += u64::from(line.is_denied());
        if !args.json {
            return Ok(line.text(print::colour()));
        }
        let mut object = line.json();
        if let Some(object) = object.as_object_mut() {
            object.insert("purpose".to_owned(), json!(purpose));
        }
        print::json_line(&object).kind(ErrorKind::Broken)
    }

    /// Prints notes about left-out lines, denied requests and an empty result.
    fn print_summary(&self, args: &LogArgs, run: Option<RunId>) {
        if self.hidden > 0 && args.purposes.is_empty() {
            print::note(&format!(
                "{} more requests of tool servers and clone readers; `--purpose all` shows them",
                self.hidden
            ));
        }
        match (self.lines, self.denied, run) {
            (0, _, Some(run)) => print::note(&format!("run {run} has no matching requests")),
            (0, _, None) => print::note("no matching requests"),
            (_, 0, _) | (_, _, None) => {}
            (_, denied, Some(run)) => print::note(&format!(
                "{denied} denied; `belljar net learn {run}` prints rules that would allow these requests"
            )),
        }
    }
}

/// Prints the recorded requests; returns whether the run has ended.
fn print_existing(
    args: &LogArgs,
    reader: &Reader,
    query: Query,
    printer: &mut LogPrinter,
) -> Result<bool, EngineError> {
    let mut out = Paged::new(!args.follow && !args.json);
    let mut has_ended = false;
    each(reader, query, &mut |row| {
        has_ended |= ends_run(row);
        match begun(reader, row)? {
            Some(line) => {
                let line = with_outcome(reader, line)?;
                out.write(&printer.line(args, reader, &line)?).kind(ErrorKind::Broken)
            }
            None => Ok(true),
        }
    })?;
    out.finish().kind(ErrorKind::Broken)?;
    Ok(has_ended)
}

/// Prints new requests until the run ends or standard output is closed.
fn follow(
    args: &LogArgs,
    home: &LedgerHome,
    (mut reader, mut query): (Reader, Query),
    printer: &mut LogPrinter,
) -> Result<(), EngineError> {
    let mut seen = reader.size();
    let mut waiting: BTreeMap<u64, (Instant, LedgerLine)> = BTreeMap::new();
    let mut last_check = Instant::now();
    while !output_is_closed()? {
        let mut has_ended = false;
        // Checked before the ledger is read, so that the last events of the run are read too.
        if last_check.elapsed() > RUN_CHECK_INTERVAL {
            has_ended = query.run.is_some_and(|run| !is_running(home, run));
            last_check = Instant::now();
        }
        let size = reader.refresh().kind(ErrorKind::Broken)?;
        query.after = seen.checked_sub(1);
        query.before = Some(size);
        each(&reader, query.clone(), &mut |row| {
            has_ended |= query.run.is_some() && ends_run(row);
            if let Some(line) = finished_line(&reader, row, &mut waiting)? {
                print::out(&printer.line(args, &reader, &line)?).kind(ErrorKind::Broken)?;
            }
            Ok(true)
        })?;
        seen = size;
        let is_due = |(since, line): &mut (Instant, LedgerLine)| {
            let is_due = has_ended || since.elapsed() > OPEN_REQUEST_DELAY;
            is_due.then(|| line.clone())
        };
        let open: Vec<LedgerLine> = waiting.values_mut().filter_map(is_due).collect();
        for line in open {
            waiting.remove(&line.index);
            print::out(&printer.line(args, &reader, &line)?).kind(ErrorKind::Broken)?;
        }
        if has_ended {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the line that a new event completes, if any.
///
/// A request that is not finished is put into `waiting`.
fn finished_line(
    reader: &Reader,
    row: &Row,
    waiting: &mut BTreeMap<u64, (Instant, LedgerLine)>,
) -> Result<Option<LedgerLine>, EngineError> {
    if row.kind == "request.finished" {
        let Some(cause) = row.cause else { return Ok(None) };
        waiting.remove(&cause);
        let Some(decided) = reader.event(cause).kind(ErrorKind::Broken)? else { return Ok(None) };
        let outcome = read(reader, row)?;
        return Ok(begun(reader, &decided)?.map(|line| line.finished(&outcome)));
    }
    let Some(line) = begun(reader, row)? else { return Ok(None) };
    if line.is_open() {
        waiting.insert(line.index, (Instant::now(), line));
        return Ok(None);
    }
    Ok(Some(line))
}

/// Returns whether an event marks the end of a run.
fn ends_run(row: &Row) -> bool {
    matches!(row.kind.as_str(), "run.ended" | "run.failed")
}

/// Returns whether the supervisor of a run is still alive; a killed supervisor records no end.
fn is_running(home: &LedgerHome, run: RunId) -> bool {
    let state_dir = home.state().home();
    review::find(home.state(), state_dir, Some(&run.to_string()))
        .is_ok_and(|run| run.record.state == RunState::Running)
}
