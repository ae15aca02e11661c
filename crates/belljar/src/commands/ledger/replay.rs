//! `belljar ledger replay`: a run as it unfolded.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

use belljar_ledger::{Entry, Moment, Query, Row};

use super::{Home, each, log, read};
use crate::cli::ledger::ReplayArgs;
use crate::exit::Outcome;
use crate::print::{self, Paged};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::record::{json, sentences};

pub(crate) fn run(args: &ReplayArgs) -> Outcome {
    let home = Home::open()?;
    let reader = home.reader()?;
    let run = home.run(&reader, "RUN", &args.run)?;
    if args.step && !io::stdin().is_terminal() {
        return Err(invalid("--step: there is no terminal to wait for the return key on"));
    }
    let at_once = !args.step && args.speed.is_none();
    let mut out = Paged::new(at_once && !args.json);
    let mut steps = Steps::default();
    let query = Query { run: Some(run), before: Some(reader.size()), ..Query::default() };
    each(&reader, query, &mut |row| {
        let entry = read(&reader, row)?;
        let step = steps.next(row, &entry);
        if let Some(speed) = args.speed {
            std::thread::sleep(Duration::from_nanos(step.waited).div_f64(speed));
        }
        let line = line(args, row, &entry, &step)?;
        if at_once {
            return out.write(&line).kind(ErrorKind::Broken);
        }
        print::out(&line).kind(ErrorKind::Broken)?;
        Ok(!args.step || print::pause().kind(ErrorKind::Broken)?)
    })?;
    out.finish().kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Where in the run an event is.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    /// Nanoseconds since the run began, and since the event before.
    offset: u64,
    waited: u64,
    /// How many causes are above it in this run.
    depth: usize,
}

#[derive(Debug, Default)]
struct Steps {
    first: Option<Moment>,
    last: u64,
    depths: HashMap<u64, usize>,
}

impl Steps {
    fn next(&mut self, row: &Row, entry: &Entry) -> Step {
        let first = *self.first.get_or_insert(entry.moment);
        let offset = since(first, entry.moment);
        let waited = offset.saturating_sub(self.last);
        self.last = offset.max(self.last);
        let above = entry.cause.and_then(|cause| self.depths.get(&cause));
        let depth = above.map_or(0, |depth| depth + 1);
        self.depths.insert(row.index, depth);
        Step { offset, waited, depth }
    }
}

/// By the clock that nobody sets, if the host was not started anew in between.
fn since(first: Moment, now: Moment) -> u64 {
    match first.boot == now.boot {
        true => now.uptime.saturating_sub(first.uptime),
        false => now.time.saturating_sub(first.time),
    }
}

fn line(args: &ReplayArgs, row: &Row, entry: &Entry, step: &Step) -> Result<String, EngineError> {
    if args.json {
        let mut told = json::event(row.index, &row.leaf, entry);
        if let Some(told) = told.as_object_mut() {
            told.insert("offset_nano".to_owned(), step.offset.to_string().into());
            told.insert("depth".to_owned(), step.depth.into());
        }
        return print::json_line(&told).kind(ErrorKind::Broken);
    }
    let offset = format!("+{}", moment::duration(step.offset / 1000));
    let indent = "  ".repeat(step.depth.min(8));
    let (kind, words) = (&entry.kind, sentences::words(entry));
    if !print::colour() {
        return Ok(format!("{offset:>12}  {indent}{kind}  {words}\n"));
    }
    let shade = log::shade(kind);
    Ok(format!("\x1b[2m{offset:>12}\x1b[0m  {indent}{shade}{kind}\x1b[0m  {words}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_told_by_the_clock_that_nobody_sets() {
        let at = |time, uptime, boot| Moment { time, uptime, boot: [boot; 16] };
        assert_eq!(since(at(100, 10, 1), at(50, 15, 1)), 5);
        assert_eq!(since(at(100, 10, 1), at(150, 1, 2)), 50);
        assert_eq!(since(at(100, 10, 1), at(50, 1, 2)), 0, "clocks go backwards");
    }
}
