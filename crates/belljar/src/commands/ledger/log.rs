//! `belljar ledger log`: lists events, one line per event.

use std::io;
use std::os::fd::AsFd;

use belljar_ledger::{Entry, Query, Reader, Row};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{LedgerHome, each, newest, read};
use crate::cli::ledger::LogArgs;
use crate::exit::Outcome;
use crate::print::{self, Paged};
use crate::scope::CLOCK;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::record::{json, sentences};

/// The default number of events that `--follow` prints before it waits for new events.
const FOLLOW_DEFAULT_LIMIT: usize = 10;
/// The interval between two reads of the ledger with `--follow`.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Runs `belljar ledger log`.
pub(crate) fn run(args: &LogArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let Some(mut reader) = wait_for_ledger(&home, args)? else { return Ok(0) };
    let query = query(args, &home, &reader)?;
    let mut out = Paged::new(!args.follow && !args.json);
    let printed = reader.size();
    show(args, &reader, &Query { before: Some(printed), ..query.clone() }, &mut out)?;
    out.finish().kind(ErrorKind::Broken)?;
    if args.follow {
        follow(args, &mut reader, query, printed)?;
    }
    Ok(0)
}

/// Opens the ledger, and with `--follow` waits until it exists; returns `None` if there is no ledger.
fn wait_for_ledger(home: &LedgerHome, args: &LogArgs) -> Result<Option<Reader>, EngineError> {
    let mut is_noted = false;
    loop {
        if let Some(reader) = home.try_reader()? {
            return Ok(Some(reader));
        }
        if !is_noted {
            print::note(super::NO_LEDGER);
            is_noted = true;
        }
        if !args.follow || output_is_closed()? {
            return Ok(None);
        }
    }
}

/// Converts the options into a query.
fn query(args: &LogArgs, home: &LedgerHome, reader: &Reader) -> Result<Query, EngineError> {
    let now = CLOCK.nanos();
    let run = args.run.as_deref().map(|run| home.run(reader, "--run", run)).transpose()?;
    Ok(Query {
        run,
        kind: args.kind.clone(),
        since: args.since.map(|since| since.nanos(now)),
        until: args.until.map(|until| until.nanos(now)),
        newest_first: args.reverse,
        ..Query::default()
    })
}

/// Prints the recorded events that match the query.
fn show(
    args: &LogArgs,
    reader: &Reader,
    query: &Query,
    out: &mut Paged,
) -> Result<(), EngineError> {
    let mut print_row = |row: &Row| -> Result<bool, EngineError> {
        out.write(&line(args, row, &read(reader, row)?)?).kind(ErrorKind::Broken)
    };
    let limit = args.limit.or(args.follow.then_some(FOLLOW_DEFAULT_LIMIT));
    let Some(limit) = limit else { return each(reader, query.clone(), &mut print_row) };
    let Query { newest_first, limit, .. } = newest(limit);
    let mut rows =
        reader.events(&Query { newest_first, limit, ..query.clone() }).kind(ErrorKind::Broken)?;
    if !args.reverse {
        rows.reverse();
    }
    for row in &rows {
        if !print_row(row)? {
            break;
        }
    }
    Ok(())
}

/// Prints new events until standard output is closed.
fn follow(
    args: &LogArgs,
    reader: &mut Reader,
    mut query: Query,
    mut printed: u64,
) -> Result<(), EngineError> {
    while !output_is_closed()? {
        let size = reader.refresh().kind(ErrorKind::Broken)?;
        if size == printed {
            continue;
        }
        query.after = printed.checked_sub(1);
        query.before = Some(size);
        each(reader, query.clone(), &mut |row| {
            print::out(&line(args, row, &read(reader, row)?)?).kind(ErrorKind::Broken)?;
            Ok(true)
        })?;
        printed = size;
    }
    Ok(())
}

/// Waits for one poll interval, and returns whether standard output was closed.
pub(crate) fn output_is_closed() -> Result<bool, EngineError> {
    let stdout = io::stdout();
    // No event is requested, so poll reports only errors and a closed pipe.
    let mut polled = [PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty())];
    rustix::event::poll(&mut polled, Some(&POLL_INTERVAL)).kind(ErrorKind::Broken)?;
    let closed = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    Ok(polled.iter().any(|output| output.revents().intersects(closed)))
}

/// Returns an event as a line of text or JSON.
fn line(args: &LogArgs, row: &Row, entry: &Entry) -> Result<String, EngineError> {
    if args.json {
        return print::json_line(&json::event(row.index, &row.leaf, entry)).kind(ErrorKind::Broken);
    }
    Ok(event_line(row.index, entry, print::colour()))
}

/// Returns an event as a line of text.
pub(super) fn event_line(index: u64, entry: &Entry, colour: bool) -> String {
    let time = moment::readable(entry.moment.time);
    let run = entry.run.map_or_else(|| "-".to_owned(), |run| run.to_string());
    let (actor, kind, words) = (entry.actor, entry.kind.as_str(), sentences::words(entry));
    if !colour {
        return format!("{index:>6}  {time}  {run:<16}  {actor:<10}  {kind:<19}  {words}\n");
    }
    let (dim, plain, kind_colour) = ("\x1b[2m", "\x1b[0m", kind_colour(kind));
    format!(
        "{dim}{index:>6}  {time}{plain}  {run:<16}  {dim}{actor:<10}{plain}  {kind_colour}{kind:<19}{plain}  {words}\n"
    )
}

/// Returns the colour code for a kind of event: red for failures, yellow for reductions, else by family.
pub(super) fn kind_colour(kind: &str) -> &'static str {
    match kind {
        "run.failed" | "run.limit" | "alarm.raised" => "\x1b[1;31m",
        "run.weakened" | "ledger.repaired" | "ledger.redacted" | "ledger.pruned" => "\x1b[33m",
        "attention.settled" | "approval.asked" | "approval.given" | "approval.refused" => {
            "\x1b[35m"
        }
        _ if kind.starts_with("run.") => "\x1b[32m",
        _ if kind.starts_with("workspace.") => "\x1b[36m",
        _ => "\x1b[34m",
    }
}
