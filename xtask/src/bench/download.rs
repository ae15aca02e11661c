//! `download`: 1 GiB over HTTPS through the broker, scrubbed for 20 secrets in all encodings.
//!
//! Goal: at least 0.5 × the rate of a direct download, later 0.8 ×. The memory grows by at most 16 MiB.

use std::time::Duration;

use anyhow::Result;

use super::lab::Lab;
use super::net::{Route, Table, TestServer};
use super::report::{Goal, Report, Row};

const TURNS: usize = 3;
const SECRETS: usize = 20;
/// The size of a download in MiB.
const MIB: u32 = 1024;
/// The size of a download through mitmproxy, which is too slow for more.
const MITMPROXY_MIB: u32 = 64;
/// The maximum growth of the resident memory during a download.
const MAX_GROWTH_KIB: u64 = 16 * 1024;

pub(super) fn run(lab: &Lab, _budget: Option<Duration>) -> Result<Report> {
    let server = TestServer::start(lab, SECRETS)?;
    let mut table: Table<Vec<f64>> = [Route::Belljar, Route::Direct, Route::Mitmproxy]
        .into_iter()
        .map(|route| {
            let size = if route == Route::Mitmproxy { MITMPROXY_MIB } else { MIB };
            let connection = server.connect(route, &format!("/big/{size}"));
            let connection = connection.map(|connection| (connection, Vec::new()));
            (route, connection.map_err(|error| format!("{error:#}")))
        })
        .collect();
    let mut growth = 0;
    for turn in 0..TURNS {
        for (route, connection) in &mut table {
            let Ok((connection, samples)) = connection else { continue };
            let before = connection.resident()?;
            let (round, peak) = connection.round_with_peak_memory(1, 0)?;
            samples.push(round.mib / round.seconds);
            // The first turn also allocates memory only once: certificate, connection, code pages.
            if *route == Route::Belljar && turn > 0 {
                growth = growth.max(peak.saturating_sub(before));
            }
        }
    }
    server.check_running()?;
    let message =
        format!("maximum growth of resident memory: {growth} KiB (goal: ≤ {MAX_GROWTH_KIB})");
    let (notes, failures) = if growth <= MAX_GROWTH_KIB {
        (vec![message], Vec::new())
    } else {
        (Vec::new(), vec![message])
    };
    Ok(Report {
        bench: "download",
        description: format!(
            "{MIB} MiB of HTTPS body, scrubbed for {SECRETS} secrets, {TURNS} turns"
        ),
        unit: "MiB/s",
        reference: Route::Direct.name(),
        goal: Goal::AtLeast { first: 0.5, moonshot: 0.8 },
        rows: table
            .into_iter()
            .map(|(route, connection)| Row {
                name: route.name(),
                samples: connection.map(|(_, samples)| samples),
            })
            .collect(),
        also: &[],
        notes,
        failures,
    })
}
