//! `broker`: HTTPS requests through the broker, with rule, credential swap, scrubbing and record.
//!
//! Goal: at most 0.05 × the processor time of mitmproxy with an equal addon, then 0.02 ×; and at most
//! 10 × (3 ×) the time of a direct request added to the median request on one connection.

use std::time::Duration;

use anyhow::Result;

use super::lab::Lab;
use super::net::{Stage, Table, Way};
use super::report::{Goal, Report, Row};
use super::stats::Stats;

const TURNS: usize = 3;
const TURN: Duration = Duration::from_secs(5);
const CONNECTIONS: u32 = 16;
const ADDED: (f64, f64) = (10.0, 3.0);

/// What was measured on one way.
#[derive(Default)]
struct Figures {
    cpu_per_request: Vec<f64>,
    p50: Vec<f64>,
    per_second: Vec<f64>,
}

impl Figures {
    fn median(samples: &[f64]) -> f64 {
        Stats::of(samples).map_or(f64::NAN, |stats| stats.median)
    }
}

pub(super) fn run(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let seconds = budget.unwrap_or(TURN).as_secs().max(1);
    let stage = Stage::new(lab, 1)?;
    let mut table: Table<Figures> = [Way::Belljar, Way::Mitmproxy, Way::Direct]
        .into_iter()
        .map(|way| {
            let open = stage.open(way, "/small").and_then(|mut open| {
                open.round(1, 1)?;
                Ok((open, Figures::default()))
            });
            (way, open.map_err(|error| format!("{error:#}")))
        })
        .collect();
    for _ in 0..TURNS {
        for (_, open) in &mut table {
            let Ok((open, figures)) = open else { continue };
            figures.p50.push(open.round(1, seconds)?.p50_micros);
            let before = open.cpu()?;
            let round = open.round(CONNECTIONS, seconds)?;
            figures.cpu_per_request.push((open.cpu()? - before) / round.requests);
            figures.per_second.push(round.requests / round.seconds);
        }
    }
    let figures: Vec<(Way, Result<Figures, String>)> =
        table.into_iter().map(|(way, open)| (way, open.map(|(_, figures)| figures))).collect();
    stage.end()?;
    Ok(report(figures))
}

fn report(table: Vec<(Way, Result<Figures, String>)>) -> Report {
    let mut notes = Vec::new();
    let mut p50 = Vec::new();
    for (way, figures) in &table {
        let Ok(figures) = figures else { continue };
        let median = Figures::median(&figures.p50);
        p50.push((*way, median));
        let per_second = Figures::median(&figures.per_second);
        notes.push(format!(
            "{}: p50 {median:.0} µs on one connection, {per_second:.0} requests/s on {CONNECTIONS}",
            way.name()
        ));
    }
    let of = |way: Way| p50.iter().find(|(other, _)| *other == way).map(|(_, median)| *median);
    let mut broken = Vec::new();
    match of(Way::Belljar).zip(of(Way::Direct)) {
        Some((ours, direct)) => {
            let added = (ours - direct) / direct;
            let verdict = |bound: f64| if added <= bound { "PASS" } else { "FAIL" };
            let text = format!(
                "added to the median request: {added:.2} × direct (≤ {}: {}; moonshot ≤ {}: {})",
                ADDED.0,
                verdict(ADDED.0),
                ADDED.1,
                verdict(ADDED.1)
            );
            if added > ADDED.0 { broken.push(text) } else { notes.push(text) }
        }
        None => broken.push("the time added to a request could not be measured".to_owned()),
    }
    let rows = table
        .into_iter()
        .filter(|(way, _)| *way != Way::Direct)
        .map(|(way, figures)| Row {
            name: way.name(),
            samples: figures.map(|figures| figures.cpu_per_request),
        })
        .collect();
    Report {
        bench: "broker",
        what: format!(
            "processor time of an HTTPS request with rule, swap, scrubbing and durable record, \
             {CONNECTIONS} connections, {TURNS} turns"
        ),
        unit: "µs",
        reference: Way::Mitmproxy.name(),
        goal: Goal::AtMost { first: 0.05, moonshot: 0.02 },
        rows,
        also: &[],
        notes,
        broken,
    }
}
