//! `start`: `belljar run --net none -- /bin/true`, the whole process, all layers on.
//!
//! Goal: at most 1.5 × bubblewrap with an equal view of the system, then 1.0 ×.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::lab::{Lab, timed};
use super::peers::{Peer, versions};
use super::report::{Goal, Report, Row};

const PAYLOAD: [&str; 1] = ["/bin/true"];
const BUDGET: Duration = Duration::from_secs(30);
const WARM_UP: usize = 3;
/// Below this a median says little, whatever the budget.
const MIN_ROUNDS: usize = 20;
/// The slow peers take part in every fifth round, or they would use up the time.
const OTHERS_EVERY: usize = 5;

/// Milliseconds of one start.
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
        // Every other round goes backwards, so that nobody always runs in the wake of the same one.
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
        what: format!("one box for {}, the whole process, {round} rounds", PAYLOAD.join(" ")),
        unit: "ms",
        reference: Peer::Bwrap.name(),
        goal: Goal::AtMost { first: 1.5, moonshot: 1.0 },
        rows: table.into_iter().map(|(peer, samples)| Row { name: peer.name(), samples }).collect(),
        also: &[],
        notes: vec![
            format!(
                "{} binds, {} of them of /etc",
                lab.view.binds.len() + lab.view.etc.len(),
                lab.view.etc.len()
            ),
            versions(),
        ],
        broken: Vec::new(),
    })
}
