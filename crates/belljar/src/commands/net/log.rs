//! `belljar net log`: every request of a run.

use belljar_engine::review;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use belljar_ledger::{Query, Reader, Row};
use belljar_model::{RunId, RunState};
use serde_json::json;

use super::which;
use crate::cli::net::LogArgs;
use crate::cli::purpose::PurposeChoice;
use crate::commands::ledger::Home;
use crate::commands::ledger::log::nobody_reads;
use crate::exit::Outcome;
use crate::print::{self, Paged};
use crate::scope::CLOCK;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::record::line::{LedgerLine, begun, with_outcome};
use belljar_engine::record::reading::{each, read};
use belljar_engine::record::runs::{KnownPurposes, Purposes};

/// A request that takes longer is shown before it is finished.
const PATIENCE: Duration = Duration::from_secs(2);
/// So often it is looked whether the followed run still lives.
const LOOK_AT_RUN: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &LogArgs) -> Outcome {
    let home = Home::open()?;
    let reader = home.reader()?;
    let purposes = PurposeChoice::chosen(&args.purposes);
    let run = match args.all {
        true => None,
        false => Some(which(&home, &reader, args.run.as_deref(), purposes.as_ref())?),
    };
    let since = args.since.map(|since| since.nanos(CLOCK.nanos()));
    let query = Query { run, since, ..Query::default() };
    // One run is shown whatever it is for; the choice was made above.
    let purposes = run.map_or_else(|| purposes.unwrap_or_default(), |_| Purposes::all());
    let mut shown = Shown::new(purposes);
    let seen = reader.size();
    let over = past(args, &reader, Query { before: Some(seen), ..query.clone() }, &mut shown)?;
    if args.follow && !(over && run.is_some()) {
        follow(args, &home, (reader, query), &mut shown)?;
    }
    if !args.json {
        shown.sum_up(args, run);
    }
    Ok(0)
}

/// What was shown so far.
#[derive(Debug)]
struct Shown {
    purposes: Purposes,
    known: KnownPurposes,
    lines: u64,
    denied: u64,
    /// Lines of runs of other purposes.
    hidden: u64,
}

impl Shown {
    fn new(purposes: Purposes) -> Self {
        Self { purposes, known: KnownPurposes::default(), lines: 0, denied: 0, hidden: 0 }
    }

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

    fn sum_up(&self, args: &LogArgs, run: Option<RunId>) {
        if self.hidden > 0 && args.purposes.is_empty() {
            print::note(&format!(
                "{} more of tool servers and clone readers; `--purpose all` shows them",
                self.hidden
            ));
        }
        match (self.lines, self.denied, run) {
            (0, _, Some(run)) => print::note(&format!("nothing to show of run {run}")),
            (0, _, None) => print::note("nothing to show"),
            (_, 0, _) | (_, _, None) => {}
            (_, denied, Some(run)) => print::note(&format!(
                "{denied} denied; `belljar net learn {run}` shows rules that would allow it"
            )),
        }
    }
}

/// Shows what happened already; whether the run is over.
fn past(
    args: &LogArgs,
    reader: &Reader,
    query: Query,
    shown: &mut Shown,
) -> Result<bool, EngineError> {
    let mut out = Paged::new(!args.follow && !args.json);
    let mut over = false;
    each(reader, query, &mut |row| {
        over |= ends_run(row);
        match begun(reader, row)? {
            Some(line) => {
                let line = with_outcome(reader, line)?;
                out.write(&shown.line(args, reader, &line)?).kind(ErrorKind::Broken)
            }
            None => Ok(true),
        }
    })?;
    out.finish().kind(ErrorKind::Broken)?;
    Ok(over)
}

/// Shows what comes, until the run is over or nobody looks any more.
fn follow(
    args: &LogArgs,
    home: &Home,
    (mut reader, mut query): (Reader, Query),
    shown: &mut Shown,
) -> Result<(), EngineError> {
    let mut seen = reader.size();
    let mut waiting: BTreeMap<u64, (Instant, LedgerLine)> = BTreeMap::new();
    let mut looked = Instant::now();
    while !nobody_reads()? {
        let mut over = false;
        // Before the ledger is read: what the run recorded last is then read, too.
        if looked.elapsed() > LOOK_AT_RUN {
            over = query.run.is_some_and(|run| !lives(home, run));
            looked = Instant::now();
        }
        let size = reader.refresh().kind(ErrorKind::Broken)?;
        query.after = seen.checked_sub(1);
        query.before = Some(size);
        each(&reader, query.clone(), &mut |row| {
            over |= query.run.is_some() && ends_run(row);
            if let Some(line) = news(&reader, row, &mut waiting)? {
                print::out(&shown.line(args, &reader, &line)?).kind(ErrorKind::Broken)?;
            }
            Ok(true)
        })?;
        seen = size;
        let late = |(since, line): &mut (Instant, LedgerLine)| {
            let late = over || since.elapsed() > PATIENCE;
            late.then(|| line.clone())
        };
        let open: Vec<LedgerLine> = waiting.values_mut().filter_map(late).collect();
        for line in open {
            waiting.remove(&line.index);
            print::out(&shown.line(args, &reader, &line)?).kind(ErrorKind::Broken)?;
        }
        if over {
            return Ok(());
        }
    }
    Ok(())
}

/// What a new event makes known. A request that goes on waits for its end.
fn news(
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

fn ends_run(row: &Row) -> bool {
    matches!(row.kind.as_str(), "run.ended" | "run.failed")
}

/// Whether somebody still watches over the run. One that was killed records no end.
fn lives(home: &Home, run: RunId) -> bool {
    let here = home.state().home();
    review::find(home.state(), here, Some(&run.to_string()))
        .is_ok_and(|run| run.record.state == RunState::Running)
}
