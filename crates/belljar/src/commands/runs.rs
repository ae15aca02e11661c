//! `belljar runs`: what ran here, and what still waits for review.

use std::os::unix::fs::MetadataExt;

use anyhow::Context;
use belljar_model::{RunRecord, display};

use crate::cli::RunsArgs;
use crate::failure::{Code, FAILED, Outcome};
use crate::print;
use crate::state::State;

pub(crate) fn run(args: &RunsArgs) -> Outcome {
    let state = State::open()?;
    let here = std::fs::metadata(".").context("look at the current directory").code(FAILED)?;
    let here = (here.dev(), here.ino());
    let mut shown = 0;
    for run in state.runs().code(FAILED)? {
        let record = &run.record;
        let is_here = record.workspace.as_ref().is_none_or(|at| (at.dev, at.ino) == here);
        if !(args.all || is_here) || (args.pending && !record.review.waits()) {
            continue;
        }
        shown += 1;
        if args.json {
            print::json(record).code(FAILED)?;
        } else {
            print::out(&line(record)).code(FAILED)?;
        }
    }
    if shown == 0 && !args.json {
        print::note("no runs; `--all` shows those of other directories");
    }
    state.prune().code(FAILED)?;
    Ok(0)
}

/// One run for people. Everything that a box or a file name could have chosen is made safe.
fn line(record: &RunRecord) -> String {
    let name = record.name.as_ref().map_or("-", |name| name.as_str());
    let how = record.result.as_ref().map_or(record.state.name(), |result| result.reason.name());
    let review = if record.review.waits() { "waits for review" } else { record.review.name() };
    let argv: Vec<String> = record.argv.iter().map(display::safe).collect();
    let when = moment(record.created);
    format!("{}  {when}  {name:<12}  {how:<12}  {review:<16}  {}\n", record.id, argv.join(" "))
}

/// UTC, to the second. Days to date as in Howard Hinnant's `civil_from_days`.
fn moment(millis: u64) -> String {
    let seconds = millis / 1000;
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest % 3600 / 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::moment;

    #[test]
    fn moments_read_as_dates() {
        assert_eq!(moment(0), "1970-01-01 00:00:00Z");
        assert_eq!(moment(951_782_400_000), "2000-02-29 00:00:00Z");
        assert_eq!(moment(1_794_783_599_999), "2026-11-15 22:59:59Z");
    }
}
