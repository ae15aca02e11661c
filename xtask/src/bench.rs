//! `cargo xtask bench`: our numbers beside those of our peers, measured in one run.
//!
//! Machines are shared and noisy, so no absolute figure is promised: contenders take turns, and the
//! promise is a ratio to the reference peer. A bench is one file that returns a [`report::Report`];
//! the goals stand there as data, as in `docs/specification.md`.

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
Our numbers beside those of our peers, measured in one run; written to bench/<date>.json.

Usage: cargo xtask bench [NAME…] [--bin FILE] [--seconds N] [--no-install] [--profile start]
       cargo xtask bench [NAME…] --compare OLD [--bin FILE] [--seconds N]

  NAME            which benches; all of them if none is given
                    start      one box for /bin/true, the whole process
                    start-net  the same with a rule for the network, the broker ready
                    warm       one more box of a running server for /bin/true, the round trip
                    code       a typed one-liner by `execute_code` over MCP, the round trip
                    creates    boxes per second on two cores, and that nothing is left behind
                    density    private memory of an idle box when there are 200
                    broker     HTTPS requests through the broker: processor time, latency, rate
                    download   1 GiB through the broker, scrubbed for 20 secrets; memory meanwhile
                    append     durable appends to the ledger per second, 64 writers at once
                    verify     verify, also deep, of a ledger of 1,000,000 events
                    reopen     open a ledger of 1,000,000 events and append one
  --bin FILE      measure this belljar instead of building one
  --seconds N     time budget of one bench (start, start-net, verify, reopen: all rounds,
                  30; creates: one turn, 10; append, broker: one turn, 5)
  --no-install    measure only against peers that are already here
  --compare OLD   measure against this older belljar instead of peers, in turns: start, start-net,
                  warm, code, creates; fails when a median is above the old 90th percentile
  --profile start do not measure; show where the time of one start goes (needs strace)

Fails when a first goal is not met, or when there is nothing to compare with.
";

/// What a bench needs: a place, the contenders and how long it may take.
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
];

pub(crate) fn main(args: &[String]) -> Result<()> {
    let Some(mut args) = Args::new(args, HELP) else { return Ok(()) };
    let budget = match args.value("--seconds")? {
        Some(text) => {
            let seconds =
                text.parse().with_context(|| format!("`{text}` is no number of seconds"))?;
            Some(Duration::from_secs(seconds))
        }
        None => None,
    };
    let binary = args.value("--bin")?.map(PathBuf::from);
    let profiled = args.value("--profile")?;
    let old = args.value("--compare")?.map(PathBuf::from);
    let install = !args.flag("--no-install");
    let names = args.words()?;
    if let Some(old) = old {
        return compare::run(&old, binary, &names, budget);
    }
    let benches = choose(&names)?;
    if profiled.as_deref().is_some_and(|name| name != "start") {
        bail!("only `start` can be profiled");
    }
    if install {
        peers::install()?;
    }
    let lab = Lab::new(binary)?;
    if profiled.is_some() {
        return profile::start(&lab);
    }
    let mut reports = Vec::new();
    for bench in benches {
        println!("\n=== {}", bench.name);
        let report =
            (bench.run)(&lab, budget).with_context(|| format!("bench `{}`", bench.name))?;
        print!("{report}");
        reports.push(report);
    }
    ledger::remove(&lab)?;
    println!("\n{}", report::save(&reports)?.display());
    let missed: Vec<&str> =
        reports.iter().filter(|it| !it.first_goal_met()).map(|it| it.bench).collect();
    if !missed.is_empty() {
        bail!("first goal not met: {}", missed.join(", "));
    }
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<&'static Bench>> {
    if names.is_empty() {
        return Ok(BENCHES.iter().collect());
    }
    let find = |name: &String| {
        let known = || BENCHES.iter().map(|bench| bench.name).collect::<Vec<_>>().join(", ");
        let found = BENCHES.iter().find(|bench| bench.name == name);
        found.with_context(|| format!("no bench `{name}`; there are {}", known()))
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_lists_what_there_is() {
        assert_eq!(choose(&[]).unwrap().len(), BENCHES.len());
        assert_eq!(choose(&["density".to_owned()]).unwrap().len(), 1);
        let error = choose(&["stat".to_owned()]).err().unwrap().to_string();
        assert_eq!(
            error,
            "no bench `stat`; there are start, start-net, warm, code, creates, density, broker, \
             download, append, verify, reopen"
        );
    }
}
