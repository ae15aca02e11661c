//! `start-net`: the same as `start` with one HTTPS rule, the broker ready before the program runs.
//!
//! Goal: at most 0.1 × srt with its proxy on, then 0.03 ×.

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
/// A slow peer takes part in every third round.
const SRT_EVERY: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    Belljar,
    WithoutNetwork,
    Srt,
}

impl Contender {
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

/// Milliseconds of one start.
pub(super) fn once(lab: &Lab) -> Result<f64> {
    timed(&mut Contender::Belljar.command(lab)?)
}

pub(super) fn run(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let contenders = [Contender::Belljar, Contender::Srt, Contender::WithoutNetwork];
    let mut table: Vec<(Contender, Result<Vec<f64>, String>)> = Vec::new();
    for contender in contenders {
        let tried = peers::try_once(contender.command(lab)?).map(|()| Vec::new());
        table.push((contender, tried));
    }
    for _ in 0..WARM_UP {
        for (contender, samples) in &table {
            if samples.is_ok() {
                timed(&mut contender.command(lab)?)?;
            }
        }
    }
    let (started, budget) = (Instant::now(), budget.unwrap_or(BUDGET));
    let mut round = 0;
    while round < MIN_ROUNDS || started.elapsed() < budget {
        for (contender, samples) in &mut table {
            let Ok(samples) = samples else { continue };
            if *contender != Contender::Srt || round % SRT_EVERY == 0 {
                samples.push(timed(&mut contender.command(lab)?)?);
            }
        }
        round += 1;
    }
    Ok(Report {
        bench: "start-net",
        what: format!(
            "one box for /bin/true with a rule for {DOMAIN}, the whole process, {round} rounds"
        ),
        unit: "ms",
        reference: Contender::Srt.name(),
        goal: Goal::AtMost { first: 0.1, moonshot: 0.03 },
        rows: table
            .into_iter()
            .map(|(contender, samples)| Row { name: contender.name(), samples })
            .collect(),
        also: &[],
        notes: vec![versions()],
        broken: Vec::new(),
    })
}
