//! `cargo xtask bench`: measures Belljar and comparable tools (peers) in one run.
//!
//! Machines are shared and noisy, so the goals are not absolute numbers: the tools take turns, and a
//! goal is a ratio to one of them, the reference. Each benchmark has its own file and returns a
//! [`report::Report`] with its goals, which are the same as in `docs/specification.md`.

mod api;
mod append;
mod broker;
mod code;
mod compare;
mod creates;
mod density;
mod download;
mod lab;
mod ledger;
mod net;
mod peers;
mod procs;
mod profile;
mod reopen;
mod report;
mod runs;
mod start;
mod start_net;
mod stats;
mod verify;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::shell::Args;
use lab::Lab;
use report::Report;

const HELP: &str = "\
Measure Belljar and comparable tools in one run, and write the results to bench/<date>.json.

Usage: cargo xtask bench [NAME…] [--bin FILE] [--seconds N] [--no-install] [--profile start]
       cargo xtask bench [NAME…] --compare OLD [--bin FILE] [--seconds N]

  NAME            the benchmarks to run (default: all)
                    start      time of `belljar run` for /bin/true
                    start-net  the same with a network rule and a running broker
                    warm       round trip of /bin/true in a new box of a running server
                    code       round trip of a typed one-line program with `execute_code` over MCP
                    creates    boxes per second on two cores, with a check that nothing is left behind
                    density    private memory of one of 200 idle boxes
                    broker     HTTPS requests through the broker: CPU time, latency, rate
                    download   1 GiB through the broker, scrubbed for 20 secrets: rate and memory
                    append     durable appends to the ledger per second, with 64 writers
                    verify     time to verify a ledger of 1,000,000 events, also with --deep
                    reopen     time to open a ledger of 1,000,000 events and append one event
                    dag        time of a plan of 1,000 stubs, without edges and in layers
                    dag-chain  time of a plan of 1,000 stubs in a chain
                    dag-box    time of a plan of 200 programs in boxes
                    dag-open   time to open a driver beside 1,000,000 finished runs, and its memory
                    api        requests for a list to `belljar serve` at 64 connections: rate
                    api-latency    the same: 99th percentile of the time
                    api-run    a box, /bin/true and its result in one request
                    api-events     memory of the server for each of 1,000 listeners of events
                    api-terminals  memory of the server for each of 200 attached terminals
                    api-boxes  a page of 10,000 boxes beside a page of 100
                    api-runs   a page of 100,000 runs beside a page of 100
  --bin FILE      measure this belljar instead of building one
  --seconds N     time budget (start, start-net, verify, reopen: all rounds, default 30;
                  creates: one turn, default 10; append, broker: one turn, default 5)
  --no-install    measure only tools that are already installed
  --compare OLD   compare with this older belljar instead of other tools: start, start-net, warm,
                  code, creates; fails if a median is above the 90th percentile of the old one
  --profile start show the time of each system call of one start instead (needs strace)

Fails if a first goal is not met, or if the reference tool is missing.
";

/// A benchmark: its name and the function that runs it with a time budget.
struct Bench {
    name: &'static str,
    run: fn(&Lab, Option<Duration>) -> Result<Report>,
}

const BENCHES: &[Bench] = &[
    Bench { name: "start", run: start::run },
    Bench { name: "start-net", run: start_net::run },
    Bench { name: "warm", run: code::warm },
    Bench { name: "code", run: code::code },
    Bench { name: "creates", run: creates::run },
    Bench { name: "density", run: density::run },
    Bench { name: "broker", run: broker::run },
    Bench { name: "download", run: download::run },
    Bench { name: "append", run: append::run },
    Bench { name: "verify", run: verify::run },
    Bench { name: "reopen", run: reopen::run },
    Bench { name: "dag", run: runs::dag },
    Bench { name: "dag-chain", run: runs::chain },
    Bench { name: "dag-box", run: runs::boxes },
    Bench { name: "dag-open", run: runs::open },
    Bench { name: "api", run: api::rate },
    Bench { name: "api-latency", run: api::latency },
    Bench { name: "api-run", run: api::run },
    Bench { name: "api-events", run: api::events },
    Bench { name: "api-terminals", run: api::terminals },
    Bench { name: "api-boxes", run: api::boxes },
    Bench { name: "api-runs", run: api::runs },
];

pub(crate) fn main(args: &[String]) -> Result<()> {
    let Some(mut args) = Args::new(args, HELP) else { return Ok(()) };
    let budget = match args.value("--seconds")? {
        Some(text) => {
            let seconds =
                text.parse().with_context(|| format!("`{text}` is not a number of seconds"))?;
            Some(Duration::from_secs(seconds))
        }
        None => None,
    };
    let binary = args.value("--bin")?.map(PathBuf::from);
    let profile = args.value("--profile")?;
    let old = args.value("--compare")?.map(PathBuf::from);
    let install = !args.flag("--no-install");
    let names = args.positionals()?;
    if let Some(old) = old {
        return compare::run(&old, binary, &names, budget);
    }
    let benches = choose(&names)?;
    if profile.as_deref().is_some_and(|name| name != "start") {
        bail!("cannot profile this benchmark; only `--profile start` is supported");
    }
    if install {
        peers::install()?;
    }
    let lab = Lab::new(binary)?;
    if profile.is_some() {
        return profile::start(&lab);
    }
    let mut reports = Vec::new();
    for bench in benches {
        println!("\n=== {}", bench.name);
        let report = (bench.run)(&lab, budget)
            .with_context(|| format!("benchmark `{}` failed", bench.name))?;
        print!("{report}");
        reports.push(report);
    }
    ledger::remove(&lab)?;
    println!("\n{}", report::save(&reports)?.display());
    let missed: Vec<&str> = reports
        .iter()
        .filter(|report| !report.first_goal_met())
        .map(|report| report.bench)
        .collect();
    if !missed.is_empty() {
        bail!("these benchmarks do not meet their first goal: {}", missed.join(", "));
    }
    Ok(())
}

/// Returns the benchmarks with these names, or all benchmarks if there are no names.
fn choose(names: &[String]) -> Result<Vec<&'static Bench>> {
    if names.is_empty() {
        return Ok(BENCHES.iter().collect());
    }
    let find = |name: &String| {
        let known = || BENCHES.iter().map(|bench| bench.name).collect::<Vec<_>>().join(", ");
        let found = BENCHES.iter().find(|bench| bench.name == name);
        found.with_context(|| format!("unknown benchmark `{name}`; the benchmarks are {}", known()))
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choose_rejects_an_unknown_name_and_lists_all_benchmarks() {
        assert_eq!(choose(&[]).unwrap().len(), BENCHES.len());
        assert_eq!(choose(&["density".to_owned()]).unwrap().len(), 1);
        let error = choose(&["stat".to_owned()]).err().unwrap().to_string();
        assert_eq!(
            error,
            "unknown benchmark `stat`; the benchmarks are start, start-net, warm, code, creates, \
             density, broker, download, append, verify, reopen, dag, dag-chain, dag-box, dag-open, api, \
             api-latency, api-run, api-events, api-terminals, api-boxes, api-runs"
        );
    }
}
