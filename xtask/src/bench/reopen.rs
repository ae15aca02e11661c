//! `reopen`: open a ledger of 1,000,000 events and append one.
//!
//! Goal: at most 2 × the same with 1,000 events, then 1.1 ×. What is appended is the first event of
//! a new run. One more event of an older run, which the index has to find, is shown and not judged.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::lab::Lab;
use super::ledger::{MANY, Measured, number};
use super::report::{Goal, Report, Row};

const BUDGET: Duration = Duration::from_secs(30);
const FEW: u64 = 1000;
/// One append is little work and much waiting for the disk, so it takes many to tell.
const MIN_ROUNDS: usize = 40;

pub(super) fn run(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let measured = Measured::build()?;
    let (many, few) = (measured.make(lab, MANY)?, measured.make(lab, FEW)?);
    let mut table = [
        ("1,000,000", "reopen", &many.dir),
        ("1,000", "reopen", &few.dir),
        ("resume 1M", "resume", &many.dir),
        ("resume 1k", "resume", &few.dir),
    ]
    .map(|(name, act, dir)| (name, act, dir, Vec::new()));
    let mut first_look = 0.0;
    for (name, act, dir, _) in &table {
        let answer = measured.ask(act, dir, &[])?;
        if *name == "resume 1M" {
            first_look = number(&answer, "seconds")?; // the index is made
        }
    }
    let (started, budget) = (Instant::now(), budget.unwrap_or(BUDGET));
    let mut round = 0;
    while round < MIN_ROUNDS || started.elapsed() < budget {
        let mut turns: Vec<_> = table.iter_mut().collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for (_, act, dir, samples) in turns {
            samples.push(number(&measured.ask(act, dir, &[])?, "seconds")? * 1000.0);
        }
        round += 1;
    }
    Ok(Report {
        bench: "reopen",
        what: format!("open a ledger and append one event, {round} rounds"),
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
                "resume: one more event of an older run, by way of the index; making the index took {first_look:.1} s; not judged"
            ),
        ],
        broken: Vec::new(),
    })
}
