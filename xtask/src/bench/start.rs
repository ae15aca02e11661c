//! `start`: the time of `belljar run --net none -- /bin/true` with all layers.
//!
//! Goal: at most 1.5 × the time of bubblewrap with the same file system view, later 1.0 ×.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::lab::{Lab, timed};
use super::peers::{Peer, versions};
use super::report::{Goal, Report, Row};

const PAYLOAD: [&str; 1] = ["/bin/true"];
const BUDGET: Duration = Duration::from_secs(30);
const WARM_UP: usize = 3;
/// The minimum number of rounds for a useful median.
const MIN_ROUNDS: usize = 20;
/// The slow peers take part only in every fifth round, because they would use up the time.
const OTHERS_EVERY: usize = 5;

/// Starts one box and returns the time in milliseconds.
pub(super) fn once(lab: &Lab) -> Result<f64> {
    timed(&mut lab.box_for(&PAYLOAD))
}

pub(super) fn run(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let pair = [Peer::Belljar, Peer::Bwrap];
    let others = [Peer::BwrapShort, Peer::Runc, Peer::Firejail, Peer::Codex, Peer::Srt];
    let mut table: Vec<(Peer, Result<Vec<f64>, String>)> = pair
        .into_iter()
        .chain(others)
        .map(|peer| (peer, peer.try_out(lab).map(|()| Vec::new())))
        .collect();
    for _ in 0..WARM_UP {
        for (peer, samples) in &table {
            if samples.is_ok() {
                timed(&mut peer.command(lab, &PAYLOAD)?)?;
            }
        }
    }
    let (started, budget) = (Instant::now(), budget.unwrap_or(BUDGET));
    let mut round = 0;
    while round < MIN_ROUNDS || started.elapsed() < budget {
        // Reverse the order in every other round, so that no tool always runs after the same other tool.
        let mut turns: Vec<_> = table.iter_mut().collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for (peer, samples) in turns {
            let Ok(samples) = samples else { continue };
            if pair.contains(peer) || round % OTHERS_EVERY == 0 {
                samples.push(timed(&mut peer.command(lab, &PAYLOAD)?)?);
            }
        }
        round += 1;
    }
    Ok(Report {
        bench: "start",
        description: format!("time of `belljar run` for {}, {round} rounds", PAYLOAD.join(" ")),
        unit: "ms",
        reference: Peer::Bwrap.name(),
        goal: Goal::AtMost { first: 1.5, moonshot: 1.0 },
        rows: table.into_iter().map(|(peer, samples)| Row { name: peer.name(), samples }).collect(),
        also: &[],
        notes: vec![
            format!(
                "{} bind mounts, {} of them in /etc",
                lab.view.binds.len() + lab.view.etc.len(),
                lab.view.etc.len()
            ),
            versions(),
        ],
        failures: Vec::new(),
    })
}
