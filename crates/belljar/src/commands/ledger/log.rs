//! `belljar ledger log`: what happened, one line per event.

use std::io;
use std::os::fd::AsFd;

use belljar_ledger::{Entry, Query, Reader, Row};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{Home, each, newest, read};
use crate::cli::ledger::LogArgs;
use crate::exit::Outcome;
use crate::print::{self, Paged};
use crate::scope::CLOCK;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::record::{json, sentences};

/// So many events are shown before new ones are waited for.
const BEFORE_FOLLOWING: usize = 10;
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

pub(crate) fn run(args: &LogArgs) -> Outcome {
    let home = Home::open()?;
    let Some(mut reader) = wait_for_ledger(&home, args)? else { return Ok(0) };
    let query = query(args, &home, &reader)?;
    let mut out = Paged::new(!args.follow && !args.json);
    let seen = reader.size();
    show(args, &reader, &Query { before: Some(seen), ..query.clone() }, &mut out)?;
    out.finish().kind(ErrorKind::Broken)?;
    if args.follow {
        follow(args, &mut reader, query, seen)?;
    }
    Ok(0)
}

/// The ledger; `None` when there is nothing to show and nothing to wait for.
fn wait_for_ledger(home: &Home, args: &LogArgs) -> Result<Option<Reader>, EngineError> {
    let mut told = false;
    loop {
        if let Some(reader) = home.try_reader()? {
            return Ok(Some(reader));
        }
        if !told {
            print::note(super::NONE_YET);
            told = true;
        }
        if !args.follow || nobody_reads()? {
            return Ok(None);
        }
    }
}

fn query(args: &LogArgs, home: &Home, reader: &Reader) -> Result<Query, EngineError> {
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

fn show(
    args: &LogArgs,
    reader: &Reader,
    query: &Query,
    out: &mut Paged,
) -> Result<(), EngineError> {
    let mut one = |row: &Row| -> Result<bool, EngineError> {
        out.write(&line(args, row, &read(reader, row)?)?).kind(ErrorKind::Broken)
    };
    let limit = args.limit.or(args.follow.then_some(BEFORE_FOLLOWING));
    let Some(limit) = limit else { return each(reader, query.clone(), &mut one) };
    let Query { newest_first, limit, .. } = newest(limit);
    let mut rows =
        reader.events(&Query { newest_first, limit, ..query.clone() }).kind(ErrorKind::Broken)?;
    if !args.reverse {
        rows.reverse();
    }
    for row in &rows {
        if !one(row)? {
            break;
        }
    }
    Ok(())
}

/// Shows what comes, until nobody looks any more.
fn follow(
    args: &LogArgs,
    reader: &mut Reader,
    mut query: Query,
    mut seen: u64,
) -> Result<(), EngineError> {
    while !nobody_reads()? {
        let size = reader.refresh().kind(ErrorKind::Broken)?;
        if size == seen {
            continue;
        }
        query.after = seen.checked_sub(1);
        query.before = Some(size);
        each(reader, query.clone(), &mut |row| {
            print::out(&line(args, row, &read(reader, row)?)?).kind(ErrorKind::Broken)?;
            Ok(true)
        })?;
        seen = size;
    }
    Ok(())
}

/// Waits for a moment; whether the reader of our output is gone.
pub(crate) fn nobody_reads() -> Result<bool, EngineError> {
    let stdout = io::stdout();
    // Without any event that is asked for: what is left are an error and a closed pipe.
    let mut polled = [PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty())];
    rustix::event::poll(&mut polled, Some(&LOOK_AGAIN)).kind(ErrorKind::Broken)?;
    let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    Ok(polled.iter().any(|one| one.revents().intersects(gone)))
}

fn line(args: &LogArgs, row: &Row, entry: &Entry) -> Result<String, EngineError> {
    if args.json {
        return print::json_line(&json::event(row.index, &row.leaf, entry)).kind(ErrorKind::Broken);
    }
    Ok(one_line(row.index, entry, print::colour()))
}

/// One event for people.
pub(super) fn one_line(index: u64, entry: &Entry, colour: bool) -> String {
    let time = moment::readable(entry.moment.time);
    let run = entry.run.map_or_else(|| "-".to_owned(), |run| run.to_string());
    let (actor, kind, words) = (entry.actor, entry.kind.as_str(), sentences::words(entry));
    if !colour {
        return format!("{index:>6}  {time}  {run:<16}  {actor:<10}  {kind:<19}  {words}\n");
    }
    let (dim, plain, shade) = ("\x1b[2m", "\x1b[0m", shade(kind));
    format!(
        "{dim}{index:>6}  {time}{plain}  {run:<16}  {dim}{actor:<10}{plain}  {shade}{kind:<19}{plain}  {words}\n"
    )
}

/// Red for what needs a look, yellow for what is less than usual, else by family.
pub(super) fn shade(kind: &str) -> &'static str {
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
