//! `belljar ledger replay`: prints the events of a run in their order and optionally at their speed.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

use belljar_ledger::{Entry, Moment, Query, Row};

use super::{LedgerHome, each, log, read};
use crate::cli::ledger::ReplayArgs;
use crate::exit::Outcome;
use crate::print::{self, Paged};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::record::{json, sentences};

/// Runs `belljar ledger replay`.
pub(crate) fn run(args: &ReplayArgs) -> Outcome {
    let home = LedgerHome::open()?;
    let reader = home.reader()?;
    let run = home.run(&reader, "RUN", &args.run)?;
    if args.step && !io::stdin().is_terminal() {
        return Err(invalid(
            "--step needs a terminal as standard input, to wait for the Enter key",
        ));
    }
    let at_once = !args.step && args.speed.is_none();
    let mut out = Paged::new(at_once && !args.json);
    let mut timeline = Timeline::default();
    let query = Query { run: Some(run), before: Some(reader.size()), ..Query::default() };
    each(&reader, query, &mut |row| {
        let entry = read(&reader, row)?;
        let step = timeline.next(row, &entry);
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

/// The time of an event within its run, and its depth in the chain of causes.
#[derive(Debug, PartialEq, Eq)]
struct EventTiming {
    /// Nanoseconds since the start of the run.
    offset: u64,
    /// Nanoseconds since the previous event.
    waited: u64,
    /// The number of causes of the event within the run.
    depth: usize,
}

/// Computes the timing of successive events of a run.
#[derive(Debug, Default)]
struct Timeline {
    first: Option<Moment>,
    last: u64,
    depths: HashMap<u64, usize>,
}

impl Timeline {
    /// Returns the timing of the next event.
    fn next(&mut self, row: &Row, entry: &Entry) -> EventTiming {
        let first = *self.first.get_or_insert(entry.moment);
        let offset = elapsed(first, entry.moment);
        let waited = offset.saturating_sub(self.last);
        self.last = offset.max(self.last);
        let cause_depth = entry.cause.and_then(|cause| self.depths.get(&cause));
        let depth = cause_depth.map_or(0, |depth| depth + 1);
        self.depths.insert(row.index, depth);
        EventTiming { offset, waited, depth }
    }
}

/// Returns the nanoseconds between two moments.
///
/// The monotonic clock is used, except if the host was restarted between the moments.
fn elapsed(first: Moment, now: Moment) -> u64 {
    match first.boot == now.boot {
        true => now.uptime.saturating_sub(first.uptime),
        false => now.time.saturating_sub(first.time),
    }
}

/// Returns an event as a line of text or JSON.
fn line(
    args: &ReplayArgs,
    row: &Row,
    entry: &Entry,
    step: &EventTiming,
) -> Result<String, EngineError> {
    if args.json {
        let mut object = json::event(row.index, &row.leaf, entry);
        if let Some(object) = object.as_object_mut() {
            object.insert("offset_nano".to_owned(), step.offset.to_string().into());
            object.insert("depth".to_owned(), step.depth.into());
        }
        return print::json_line(&object).kind(ErrorKind::Broken);
    }
    let offset = format!("+{}", moment::duration(step.offset / 1000));
    let indent = "  ".repeat(step.depth.min(8));
    let (kind, words) = (&entry.kind, sentences::words(entry));
    if !print::colour() {
        return Ok(format!("{offset:>12}  {indent}{kind}  {words}\n"));
    }
    let kind_colour = log::kind_colour(kind);
    Ok(format!("\x1b[2m{offset:>12}\x1b[0m  {indent}{kind_colour}{kind}\x1b[0m  {words}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_uses_the_monotonic_clock_unless_the_host_was_restarted() {
        let at = |time, uptime, boot| Moment { time, uptime, boot: [boot; 16] };
        assert_eq!(elapsed(at(100, 10, 1), at(50, 15, 1)), 5);
        assert_eq!(elapsed(at(100, 10, 1), at(150, 1, 2)), 50);
        assert_eq!(elapsed(at(100, 10, 1), at(50, 1, 2)), 0, "the wall clock was set back");
    }
}
