//! `start-net`: the time of `belljar run` for `/bin/true` with one HTTPS rule and a running broker.
//!
//! Goal: at most 0.1 × the time of srt with its proxy, later 0.03 ×.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::lab::{Lab, timed};
use super::peers::{self, Peer, versions};
use super::report::{Goal, Report, Row};

const DOMAIN: &str = "api.example.com";
const BUDGET: Duration = Duration::from_secs(30);
const WARM_UP: usize = 2;
const MIN_ROUNDS: usize = 10;
/// srt is slow, so it takes part only in every third round.
const SRT_EVERY: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Belljar,
    WithoutNetwork,
    Srt,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Belljar => Peer::Belljar.name(),
            Self::WithoutNetwork => "net none",
            Self::Srt => Peer::Srt.name(),
        }
    }

    fn command(self, lab: &Lab) -> Result<Command> {
        match self {
            Self::Belljar => Ok(lab.box_with(&["--allow", DOMAIN], &["/bin/true"])),
            Self::WithoutNetwork => Ok(lab.box_for(&["/bin/true"])),
            Self::Srt => peers::srt(lab, &["/bin/true"], &[DOMAIN]),
        }
    }
}

/// Starts one box with a network rule and returns the time in milliseconds.
pub(super) fn once(lab: &Lab) -> Result<f64> {
    timed(&mut Tool::Belljar.command(lab)?)
}

pub(super) fn run(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let tools = [Tool::Belljar, Tool::Srt, Tool::WithoutNetwork];
    let mut table: Vec<(Tool, Result<Vec<f64>, String>)> = Vec::new();
    for tool in tools {
        let samples = peers::try_once(tool.command(lab)?).map(|()| Vec::new());
        table.push((tool, samples));
    }
    for _ in 0..WARM_UP {
        for (tool, samples) in &table {
            if samples.is_ok() {
                timed(&mut tool.command(lab)?)?;
            }
        }
    }
    let (started, budget) = (Instant::now(), budget.unwrap_or(BUDGET));
    let mut round = 0;
    while round < MIN_ROUNDS || started.elapsed() < budget {
        for (tool, samples) in &mut table {
            let Ok(samples) = samples else { continue };
            if *tool != Tool::Srt || round % SRT_EVERY == 0 {
                samples.push(timed(&mut tool.command(lab)?)?);
            }
        }
        round += 1;
    }
    Ok(Report {
        bench: "start-net",
        description: format!(
            "time of `belljar run` for /bin/true with a rule for {DOMAIN}, {round} rounds"
        ),
        unit: "ms",
        reference: Tool::Srt.name(),
        goal: Goal::AtMost { first: 0.1, moonshot: 0.03 },
        rows: table.into_iter().map(|(tool, samples)| Row { name: tool.name(), samples }).collect(),
        also: &[],
        notes: vec![versions()],
        failures: Vec::new(),
    })
}
