//! `verify`: verifies a ledger of 1,000,000 events of 256 bytes, with and without `--deep`.
//!
//! Goal: each takes at most 4 × the time of one SHA-256 pass over the log with the same code, later
//! 1.5 ×. The log is in the page cache.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::lab::Lab;
use super::ledger::{LedgerTool, MANY, number};
use super::report::{Goal, Report, Row};
use super::stats::Stats;

const BUDGET: Duration = Duration::from_secs(30);
/// The minimum number of rounds for a useful median.
const MIN_ROUNDS: usize = 7;

pub(super) fn run(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let tool = LedgerTool::build()?;
    let ledger = tool.test_ledger(lab, MANY)?;
    let names = ["verify", "deep", "sha256"];
    let path = |name| if name == "sha256" { &ledger.log } else { &ledger.dir };
    for name in names {
        tool.run(name, path(name), &[])?; // reads the log into the page cache
    }
    let mut table = names.map(|name| (name, Vec::new(), Vec::new()));
    let (started, budget) = (Instant::now(), budget.unwrap_or(BUDGET));
    let (mut round, mut kept_bodies) = (0, 0.0);
    while round < MIN_ROUNDS || started.elapsed() < budget {
        let mut turns: Vec<_> = table.iter_mut().collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for (name, samples, cpu) in turns {
            let result = tool.run(name, path(name), &[])?;
            samples.push(number(&result, "seconds")? * 1000.0);
            cpu.push(number(&result, "cpu")? * 1000.0);
            if *name == "deep" {
                kept_bodies = number(&result, "kept_bodies")?;
            }
        }
        round += 1;
    }
    let cpu: Vec<String> = table
        .iter()
        .filter_map(|(name, _, cpu)| Some(format!("{name} {:.0} ms", Stats::of(cpu)?.median)))
        .collect();
    Ok(Report {
        bench: "verify",
        description: format!(
            "time to verify a ledger of {MANY} events, also with --deep, {round} rounds"
        ),
        unit: "ms",
        reference: "sha256",
        goal: Goal::AtMost { first: 4.0, moonshot: 1.5 },
        rows: table
            .into_iter()
            .map(|(name, samples, _)| Row { name, samples: Ok(samples) })
            .collect(),
        also: &["deep"],
        notes: vec![
            ledger.note,
            format!(
                "every hundredth event has a body; deep also read {kept_bodies:.0} stored bodies of 4 KiB"
            ),
            format!("CPU time: {}; verify has two threads, sha256 has one", cpu.join(", ")),
        ],
        failures: Vec::new(),
    })
}
