//! `broker`: HTTPS requests through the broker, with a rule, a secret, scrubbing and ledger events.
//!
//! Goals: at most 0.05 × the CPU time of mitmproxy with an equivalent addon, later 0.02 ×. On one
//! connection, the broker adds at most 10 × the median time of a direct request, later 3 ×.

use std::time::Duration;

use anyhow::Result;

use super::lab::Lab;
use super::net::{Route, Table, TestServer};
use super::report::{Goal, Report, Row};
use super::stats::Stats;

const TURNS: usize = 3;
const TURN: Duration = Duration::from_secs(5);
const CONNECTIONS: u32 = 16;
/// The first goal and the moonshot for the time that the broker adds to a request.
const ADDED: (f64, f64) = (10.0, 3.0);

/// The samples of one route.
#[derive(Default)]
struct Samples {
    cpu_per_request: Vec<f64>,
    p50: Vec<f64>,
    per_second: Vec<f64>,
}

impl Samples {
    fn median(samples: &[f64]) -> f64 {
        Stats::of(samples).map_or(f64::NAN, |stats| stats.median)
    }
}

pub(super) fn run(lab: &Lab, budget: Option<Duration>) -> Result<Report> {
    let seconds = budget.unwrap_or(TURN).as_secs().max(1);
    let server = TestServer::start(lab, 1)?;
    let mut table: Table<Samples> = [Route::Belljar, Route::Mitmproxy, Route::Direct]
        .into_iter()
        .map(|route| {
            let connection = server.connect(route, "/small").and_then(|mut connection| {
                connection.round(1, 1)?;
                Ok((connection, Samples::default()))
            });
            (route, connection.map_err(|error| format!("{error:#}")))
        })
        .collect();
    for _ in 0..TURNS {
        for (_, connection) in &mut table {
            let Ok((connection, samples)) = connection else { continue };
            samples.p50.push(connection.round(1, seconds)?.p50_micros);
            let before = connection.cpu()?;
            let round = connection.round(CONNECTIONS, seconds)?;
            samples.cpu_per_request.push((connection.cpu()? - before) / round.requests);
            samples.per_second.push(round.requests / round.seconds);
        }
    }
    let table = table
        .into_iter()
        .map(|(route, connection)| (route, connection.map(|(_, samples)| samples)))
        .collect();
    server.check_running()?;
    Ok(report(table))
}

fn report(table: Vec<(Route, Result<Samples, String>)>) -> Report {
    let mut notes = Vec::new();
    let mut p50 = Vec::new();
    for (route, samples) in &table {
        let Ok(samples) = samples else { continue };
        let median = Samples::median(&samples.p50);
        p50.push((*route, median));
        let per_second = Samples::median(&samples.per_second);
        notes.push(format!(
            "{}: p50 {median:.0} µs on one connection, {per_second:.0} requests/s on {CONNECTIONS}",
            route.name()
        ));
    }
    let median_of =
        |route: Route| p50.iter().find(|(other, _)| *other == route).map(|(_, median)| *median);
    let mut failures = Vec::new();
    match median_of(Route::Belljar).zip(median_of(Route::Direct)) {
        Some((broker, direct)) => {
            let added = (broker - direct) / direct;
            let verdict = |bound: f64| if added <= bound { "PASS" } else { "FAIL" };
            let text = format!(
                "time added to the median request: {added:.2} × direct (≤ {}: {}; moonshot ≤ {}: {})",
                ADDED.0,
                verdict(ADDED.0),
                ADDED.1,
                verdict(ADDED.1)
            );
            if added > ADDED.0 { failures.push(text) } else { notes.push(text) }
        }
        None => {
            failures.push("cannot measure the time added to a request: a route failed".to_owned());
        }
    }
    let rows = table
        .into_iter()
        .filter(|(route, _)| *route != Route::Direct)
        .map(|(route, samples)| Row {
            name: route.name(),
            samples: samples.map(|samples| samples.cpu_per_request),
        })
        .collect();
    Report {
        bench: "broker",
        description: format!(
            "CPU time of an HTTPS request with rule, secret, scrubbing and durable ledger events, \
             {CONNECTIONS} connections, {TURNS} turns"
        ),
        unit: "µs",
        reference: Route::Mitmproxy.name(),
        goal: Goal::AtMost { first: 0.05, moonshot: 0.02 },
        rows,
        also: &[],
        notes,
        failures,
    }
}
