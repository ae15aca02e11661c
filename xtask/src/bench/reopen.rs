//! `reopen`: opens a ledger of 1,000,000 events and appends one event.
//!
//! Goal: at most 2 × the time with a ledger of 1,000 events, later 1.1 ×. The event is the first event
//! of a new run. Appending an event to an older run, which needs the index, is shown but is not part of
//! the goal.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::lab::Lab;
use super::ledger::{LedgerTool, MANY, number};
use super::report::{Goal, Report, Row};

const BUDGET: Duration = Duration::from_secs(30);
const FEW: u64 = 1000;
/// The minimum number of rounds. One append is mostly waiting for the disk, so its time varies.
const MIN_ROUNDS: usize = 40;

pub(super) fn run(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let tool = LedgerTool::build()?;
    let (many, few) = (tool.test_ledger(lab, MANY)?, tool.test_ledger(lab, FEW)?);
    let mut table = [
        ("1,000,000", "reopen", &many.dir),
        ("1,000", "reopen", &few.dir),
        ("resume 1M", "resume", &many.dir),
        ("resume 1k", "resume", &few.dir),
    ]
    .map(|(name, action, dir)| (name, action, dir, Vec::new()));
    let mut index_seconds = 0.0;
    for (name, action, dir, _) in &table {
        let result = tool.run(action, dir, &[])?;
        if *name == "resume 1M" {
            index_seconds = number(&result, "seconds")?; // the first run creates the index
        }
    }
    let (started, budget) = (Instant::now(), budget.unwrap_or(BUDGET));
    let mut round = 0;
    while round < MIN_ROUNDS || started.elapsed() < budget {
        let mut turns: Vec<_> = table.iter_mut().collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for (_, action, dir, samples) in turns {
            samples.push(number(&tool.run(action, dir, &[])?, "seconds")? * 1000.0);
        }
        round += 1;
    }
    Ok(Report {
        bench: "reopen",
        description: format!("time to open a ledger and append one event, {round} rounds"),
        unit: "ms",
        reference: "1,000",
        goal: Goal::AtMost { first: 2.0, moonshot: 1.1 },
        rows: table
            .into_iter()
            .map(|(name, _, _, samples)| Row { name, samples: Ok(samples) })
            .collect(),
        also: &[],
        notes: vec![
            many.note,
            format!(
                "resume: appends an event to an older run, using the index; creating the index took {index_seconds:.1} s; not part of the goal"
            ),
        ],
        failures: Vec::new(),
    })
}
