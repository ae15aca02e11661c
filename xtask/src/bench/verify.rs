//! `verify`: verify, also deep, of a ledger of 1,000,000 events of 256 bytes.
//!
//! Goal: each at most 4 × one pass of SHA-256 over the log, by the same code in the same build, then
//! 1.5 ×. All find the log in memory.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::lab::Lab;
use super::ledger::{MANY, Measured, number};
use super::report::{Goal, Report, Row};
use super::stats::Stats;

const BUDGET: Duration = Duration::from_secs(30);
/// Below this a median says little, whatever the budget.
const MIN_ROUNDS: usize = 7;

pub(super) fn run(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let measured = Measured::build()?;
    let made = measured.make(lab, MANY)?;
    let names = ["verify", "deep", "sha256"];
    let place = |name| if name == "sha256" { &made.log } else { &made.dir };
    for name in names {
        measured.ask(name, place(name), &[])?; // so that the log is in memory
    }
    let mut table = names.map(|name| (name, Vec::new(), Vec::new()));
    let (started, budget) = (Instant::now(), budget.unwrap_or(BUDGET));
    let (mut round, mut kept) = (0, 0.0);
    while round < MIN_ROUNDS || started.elapsed() < budget {
        let mut turns: Vec<_> = table.iter_mut().collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for (name, samples, cpu) in turns {
            let answer = measured.ask(name, place(name), &[])?;
            samples.push(number(&answer, "seconds")? * 1000.0);
            cpu.push(number(&answer, "cpu")? * 1000.0);
            if *name == "deep" {
                kept = number(&answer, "kept_bodies")?;
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
        what: format!("verify a ledger of {MANY} events, and deep, {round} rounds"),
        unit: "ms",
        reference: "sha256",
        goal: Goal::AtMost { first: 4.0, moonshot: 1.5 },
        rows: table
            .into_iter()
            .map(|(name, samples, _)| Row { name, samples: Ok(samples) })
            .collect(),
        also: &["deep"],
        notes: vec![
            made.note,
            format!(
                "every hundredth event names a body; deep also read {kept:.0} kept ones of 4 KiB"
            ),
            format!(
                "time of processors: {}; verify has two threads, sha256 has one",
                cpu.join(", ")
            ),
        ],
        broken: Vec::new(),
    })
}
