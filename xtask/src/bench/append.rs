//! `append`: durable appends of 256-byte events to the ledger per second, with 64 concurrent writers.
//!
//! Goal: at least 30 × the rate of a plain file with one `fdatasync` per append, later 300 ×. Writers in
//! several processes and `SQLite` are shown, but are not part of the goal.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::lab::Lab;
use super::ledger::{self, LedgerTool, number, parse};
use super::report::{Goal, Report, Row};

const TURN: Duration = Duration::from_secs(5);
const TURNS: usize = 5;
const WRITERS: u64 = 64;
const PROCESSES: u64 = 4;
const REFERENCE: &str = "fsync";

pub(super) fn run(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let turn = budget.unwrap_or(TURN).as_secs().max(1);
    let tool = LedgerTool::build()?;
    let dir = ledger::ledgers_dir(lab).join("append");
    let mut table =
        ["belljar", "4 × 16", "batches", "sqlite", REFERENCE].map(|name| (name, Vec::new()));
    let mut bytes = 0.0;
    for round in 0..TURNS {
        // Reverse the order in every other round, so that no tool always runs after the same other tool.
        let mut turns: Vec<_> = table.iter_mut().collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for (name, samples) in turns {
            ledger::remove_dir(&dir)?;
            samples.push(match *name {
                "belljar" => {
                    let result = tool.run("append", &dir, &[turn, WRITERS])?;
                    bytes = number(&result, "bytes")? / number(&result, "appends")?;
                    number(&result, "per_second")?
                }
                "4 × 16" => in_processes(&tool, &dir, turn)?,
                peer => number(&tool.run(peer, &dir, &[turn])?, "per_second")?,
            });
        }
    }
    ledger::remove_dir(&dir)?;
    Ok(Report {
        bench: "append",
        description: format!(
            "durable appends per second, {WRITERS} concurrent writers, {TURNS} turns of {turn} s"
        ),
        unit: "appends/s",
        reference: REFERENCE,
        goal: Goal::AtLeast { first: 30.0, moonshot: 300.0 },
        rows: table.into_iter().map(|(name, samples)| Row { name, samples: Ok(samples) }).collect(),
        also: &[],
        notes: vec![
            format!("events of 256 bytes; the log grew by {bytes:.0} bytes per event"),
            "fsync: appends of 256 bytes to a plain file, each with fdatasync".to_owned(),
            format!("4 × 16: {WRITERS} writers in {PROCESSES} processes; not part of the goal"),
            "batches: one writer that appends 64 events at once; not part of the goal".to_owned(),
            "sqlite: rows of 256 bytes, 64 per transaction, WAL, synchronous=FULL; not part of the goal"
                .to_owned(),
        ],
        failures: Vec::new(),
    })
}

/// Runs the writers in several processes that share one ledger. Returns all appends per second.
fn in_processes(tool: &LedgerTool, dir: &Path, turn: u64) -> Result<f64> {
    let start = |_| {
        let mut command = tool.command("append", dir, &[turn, WRITERS / PROCESSES]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().context("cannot start a process of writers")
    };
    let processes: Vec<_> = (0..PROCESSES).map(start).collect::<Result<_>>()?;
    let mut sum = 0.0;
    for process in processes {
        let output = process.wait_with_output().context("cannot wait for a process of writers")?;
        ensure!(output.status.success(), "a process of writers failed: {}", output.status);
        sum += number(&parse(&String::from_utf8_lossy(&output.stdout))?, "per_second")?;
    }
    Ok(sum)
}
