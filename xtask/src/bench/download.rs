//! `download`: 1 GiB over HTTPS through the broker, scrubbed for 20 secrets in all their encodings.
//!
//! Goal: at least 0.5 × the direct way, then 0.8 ×, and no more than 16 MiB of memory on top.

use std::time::Duration;

use anyhow::Result;

use super::lab::Lab;
use super::net::{Stage, Table, Way};
use super::report::{Goal, Report, Row};

const TURNS: usize = 3;
const SECRETS: usize = 20;
const MIB: u32 = 1024;
/// mitmproxy gets less, or it would take all day; the figure is per second anyway.
const MIB_OF_MITMPROXY: u32 = 64;
const MAX_GROWTH_KIB: u64 = 16 * 1024;

pub(super) fn run(lab: &Lab, _budget: Option<Duration>) -> Result<Report> {
    let stage = Stage::new(lab, SECRETS)?;
    let mut table: Table<Vec<f64>> = [Way::Belljar, Way::Direct, Way::Mitmproxy]
        .into_iter()
        .map(|way| {
            let size = if way == Way::Mitmproxy { MIB_OF_MITMPROXY } else { MIB };
            let open = stage.open(way, &format!("/big/{size}"));
            (way, open.map(|open| (open, Vec::new())).map_err(|error| format!("{error:#}")))
        })
        .collect();
    let mut growth = 0;
    for turn in 0..TURNS {
        for (way, open) in &mut table {
            let Ok((open, samples)) = open else { continue };
            let before = open.resident()?;
            let (round, most) = open.round_watched(1, 0)?;
            samples.push(round.mib / round.seconds);
            // The first turn also counts what is made once: certificate, connection, code pages.
            if *way == Way::Belljar && turn > 0 {
                growth = growth.max(most.saturating_sub(before));
            }
        }
    }
    stage.end()?;
    let grown = format!("resident memory grew by {growth} KiB at most (≤ {MAX_GROWTH_KIB})");
    let (notes, broken) = if growth <= MAX_GROWTH_KIB {
        (vec![grown], Vec::new())
    } else {
        (Vec::new(), vec![grown])
    };
    Ok(Report {
        bench: "download",
        what: format!("{MIB} MiB of HTTPS body, scrubbed for {SECRETS} secrets, {TURNS} turns"),
        unit: "MiB/s",
        reference: Way::Direct.name(),
        goal: Goal::AtLeast { first: 0.5, moonshot: 0.8 },
        rows: table
            .into_iter()
            .map(|(way, open)| Row { name: way.name(), samples: open.map(|(_, samples)| samples) })
            .collect(),
        also: &[],
        notes,
        broken,
    })
}
