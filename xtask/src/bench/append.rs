//! `append`: durable appends to the ledger per second, 64 writers at once, events of 256 bytes.
//!
//! Goal: at least 30 × one wait for the disk per append to a plain file, then 300 ×. The same from
//! several processes, and `SQLite`, are shown and not judged.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::lab::Lab;
use super::ledger::{self, Measured, number, parse};
use super::report::{Goal, Report, Row};

const TURN: Duration = Duration::from_secs(5);
const TURNS: usize = 5;
const WRITERS: u64 = 64;
const PROCESSES: u64 = 4;
const REFERENCE: &str = "fsync";

pub(super) fn run(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let turn = budget.unwrap_or(TURN).as_secs().max(1);
    let measured = Measured::build()?;
    let dir = ledger::place(lab).join("append");
    let mut names =
        ["belljar", "4 × 16", "batches", "sqlite", REFERENCE].map(|name| (name, Vec::new()));
    let mut bytes = 0.0;
    for round in 0..TURNS {
        // Every other round goes backwards, so that nobody always runs in the wake of the same one.
        let mut turns: Vec<_> = names.iter_mut().collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for (name, samples) in turns {
            ledger::empty(&dir)?;
            samples.push(match *name {
                "belljar" => {
                    let answer = measured.ask("append", &dir, &[turn, WRITERS])?;
                    bytes = number(&answer, "bytes")? / number(&answer, "appends")?;
                    number(&answer, "per_second")?
                }
                "4 × 16" => in_processes(&measured, &dir, turn)?,
                peer => number(&measured.ask(peer, &dir, &[turn])?, "per_second")?,
            });
        }
    }
    ledger::empty(&dir)?;
    Ok(Report {
        bench: "append",
        what: format!(
            "durable appends per second, {WRITERS} writers at once, {TURNS} turns of {turn} s"
        ),
        unit: "appends/s",
        reference: REFERENCE,
        goal: Goal::AtLeast { first: 30.0, moonshot: 300.0 },
        rows: names.into_iter().map(|(name, samples)| Row { name, samples: Ok(samples) }).collect(),
        also: &[],
        notes: vec![
            format!("events of 256 bytes; the log grew by {bytes:.0} per event"),
            "fsync: 256 bytes to a plain file and fdatasync, one after the other".to_owned(),
            format!("4 × 16: the same number of writers in {PROCESSES} processes; not judged"),
            "batches: one writer that records 64 events at once; not judged".to_owned(),
            "sqlite: the same; rows of 256 bytes, 64 a transaction, WAL, synchronous=FULL; not judged"
                .to_owned(),
        ],
        broken: Vec::new(),
    })
}

/// The writers spread over processes that share one ledger; what all of them did per second.
fn in_processes(measured: &Measured, dir: &Path, turn: u64) -> Result<f64> {
    let start = |_| {
        let mut command = measured.command("append", dir, &[turn, WRITERS / PROCESSES]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().context("start a process of writers")
    };
    let processes: Vec<_> = (0..PROCESSES).map(start).collect::<Result<_>>()?;
    let mut sum = 0.0;
    for process in processes {
        let output = process.wait_with_output().context("wait for a process of writers")?;
        ensure!(output.status.success(), "a process of writers failed: {}", output.status);
        sum += number(&parse(&String::from_utf8_lossy(&output.stdout))?, "per_second")?;
    }
    Ok(sum)
}
