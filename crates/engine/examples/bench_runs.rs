//! The measured part of `cargo xtask bench dag dag-box dag-open`: does one action and prints its cost as JSON.
//!
//! The engine starts this program again under another name, as driver and as host of boxes. The files that it
//! creates are not removed.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    reason = "the program, not the engine, reads the environment and the clock"
)]

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use belljar_engine::clock::Clock;
use belljar_engine::host::HostEnv;
use belljar_engine::notice::Silent;
use belljar_engine::roles::Role;
use belljar_engine::runs::fence::DriverLock;
use belljar_engine::runs::rows::{self, RunStatus, RunsQuery};
use belljar_engine::runs::{driver, plans, submit};
use belljar_engine::scope::{Engine, EngineConfig, Scoped, local_caller};
use belljar_ledger::{
    Actor, Body, Digest, DnsDecided, Draft, Ledger, LedgerPaths, PlanAccepted, PlanEnded, Query,
    Reader, RunCreated,
};
use belljar_model::RunId;
use serde_json::{Value, json};

type Answer = Result<Value, Box<dyn Error>>;

const USAGE: &str = "plan HOME wide|layers|chain|boxes TASKS | write HOME EVENTS TOGETHER | \
                     history HOME RUNS | open HOME | many HOME RUNS";

/// The number of runs that are recorded at once.
const AT_ONCE: u64 = 300;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os();
    let host = HostEnv::new(std::env::vars_os(), std::env::current_exe()?);
    let clock = Clock::new(SystemTime::now);
    if let Some(role) = args.next().and_then(|name| Role::parse(&name)) {
        return Ok(role.run(host, clock, Arc::new(Silent))?);
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let open = |home: &str| -> Result<Scoped, Box<dyn Error>> {
        let config = EngineConfig { home: home.into(), config_file: None, host: host.clone() };
        Ok(Engine::open(config, clock, Arc::new(Silent))?.of(&local_caller())?)
    };
    let answer = match args.as_slice() {
        ["plan", home, shape, tasks] => plan(&open(home)?, shape, tasks.parse()?),
        ["write", home, events, together] => {
            write(Path::new(home), events.parse()?, together.parse()?)
        }
        ["history", home, runs] => history(&open(home)?, runs.parse()?),
        ["open", home] => reopen(&open(home)?),
        ["many", home, runs] => many(&open(home)?, runs.parse()?),
        _ => Err(USAGE.into()),
    }?;
    Ok(writeln!(std::io::stdout(), "{answer}")?)
}

/// Returns the text of a plan.
fn text(shape: &str, tasks: usize) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    for id in 0..tasks {
        let work = if shape == "boxes" { "command = ['/bin/true']" } else { "stub = ''" };
        writeln!(text, "[task.t{id}]\ndo = {{ {work} }}")?;
        let needs: Vec<String> = match shape {
            "chain" => id.checked_sub(1).into_iter().map(|id| format!("'t{id}'")).collect(),
            // Each task needs ten tasks of the layer before.
            "layers" => (id / 100)
                .checked_sub(1)
                .into_iter()
                .flat_map(|layer| {
                    (0..10).map(move |n| format!("'t{}'", layer * 100 + (id + n) % 100))
                })
                .collect(),
            "wide" | "boxes" => Vec::new(),
            _ => return Err(USAGE.into()),
        };
        if !needs.is_empty() {
            writeln!(text, "needs = [{}]", needs.join(", "))?;
        }
    }
    Ok(text)
}

fn submit_plan(state: &Scoped, text: &str) -> Result<RunId, Box<dyn Error>> {
    let (config, _) = state.load_config(None)?;
    let ceiling = plans::ceiling(state.host(), &config)?;
    let plan = plans::check(text, "plan.toml", &ceiling).map_err(|faults| faults.to_string())?;
    Ok(submit::submit(state, &plan, state.home(), None)?)
}

/// Measures the time from the end of a submission to the end of its run.
fn plan(state: &Scoped, shape: &str, tasks: usize) -> Answer {
    let text = text(shape, tasks)?;
    let before = Instant::now();
    let run = submit_plan(state, &text)?;
    let submitted = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let submit_time = before.elapsed();
    let mut peak = 0;
    // The end is read from the ledger afterwards, so that the wait takes no time from the driver.
    while DriverLock::is_held(state.store()) || !has_ended(state, run)? {
        peak = peak.max(driver_memory(state)?);
        std::thread::sleep(Duration::from_millis(20));
    }
    let reader = Reader::open(&LedgerPaths::under(state.home()))?;
    let query = Query { run: Some(run), ..Query::default() };
    let events = reader.events(&query)?;
    let end = events.last().ok_or("the run has no events")?;
    let took = Duration::from_nanos(end.time).saturating_sub(submitted);
    Ok(json!({
        "seconds": took.as_secs_f64(), "events": events.len(), "end": end.kind,
        "submit": submit_time.as_secs_f64(), "peak": peak,
    }))
}

/// Returns whether a run has ended, without a look at the ledger while the driver runs.
fn has_ended(state: &Scoped, run: RunId) -> Result<bool, Box<dyn Error>> {
    if DriverLock::is_held(state.store()) {
        return Ok(false);
    }
    let page = rows::runs(state, &RunsQuery::default())?;
    let row = page.rows.iter().find(|row| row.run == run);
    Ok(row.is_some_and(|row| matches!(row.status, RunStatus::Ended(_))))
}

/// Returns the peak memory of the driver in bytes; 0 if none is running.
fn driver_memory(state: &Scoped) -> Result<u64, Box<dyn Error>> {
    let lock = state.home().join("driver.lock");
    for process in std::fs::read_dir("/proc")?.flatten() {
        let dir = process.path();
        let name = std::fs::read(dir.join("cmdline")).unwrap_or_default();
        if !name.starts_with(driver::ROLE.as_bytes()) {
            continue;
        }
        let open = std::fs::read_dir(dir.join("fd")).into_iter().flatten().flatten();
        if !open.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|path| path == lock) {
            continue;
        }
        let status = std::fs::read_to_string(dir.join("status")).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = peak.and_then(|text| text.trim().strip_suffix(" kB")?.parse().ok());
        return Ok(1024 * kilobytes.unwrap_or(0_u64));
    }
    Ok(0)
}

/// Measures a plain writer that records as many events at once as there are asynchronous writers.
fn write(home: &Path, events: u64, together: u64) -> Answer {
    let ledger = Ledger::open(&LedgerPaths::under(home))?;
    let run = RunId::new(millis()?, std::process::id());
    drop(ledger.record(Draft::new(created()?).of_run(run))?);
    let started = Instant::now();
    let mut rest = events;
    while rest > 0 {
        let count = rest.min(together);
        drop(ledger.record_all((0..count).map(|_| event(run)).collect())?);
        rest -= count;
    }
    Ok(json!({ "seconds": started.elapsed().as_secs_f64(), "events": events }))
}

/// Creates a history of runs that have ended.
fn history(state: &Scoped, runs: u64) -> Answer {
    let started = Instant::now();
    let ledger = Ledger::open(&LedgerPaths::under(state.home()))?;
    let (start, mut made) = (millis()?, 0);
    while made < runs {
        let ids: Vec<RunId> =
            (made..runs.min(made + AT_ONCE)).map(|n| RunId::new(start - runs + n, 0)).collect();
        let mut drafts = Vec::new();
        for run in &ids {
            drafts.push(Draft::new(created()?).of_run(*run));
        }
        let first = ledger.record_all(drafts)?;
        let mut drafts = Vec::new();
        for created in &first {
            let (plan, at) = (Digest::of(&[b"plan"]), start);
            let accepted = PlanAccepted { plan, policy: plan, at };
            drafts.push(Draft::new(accepted).of_run(created.run()).by(Actor::Driver));
            let ended = PlanEnded { outcome: "succeeded".to_owned(), at };
            drafts.push(
                Draft::new(ended).of_run(created.run()).by(Actor::Driver).because_of(created),
            );
        }
        drop(ledger.record_all(drafts)?);
        made += ids.len() as u64;
    }
    let recorded = started.elapsed();
    drop(Reader::open(&LedgerPaths::under(state.home()))?);
    let indexed = started.elapsed();
    let page = rows::runs(state, &RunsQuery { limit: Some(10), ..RunsQuery::default() })?;
    Ok(json!({
        "runs": runs, "recorded": recorded.as_secs_f64(), "indexed": indexed.as_secs_f64(),
        "rows": started.elapsed().as_secs_f64(), "listed": page.rows.len(),
    }))
}

/// Measures the opening of a driver that has nothing to do, and the first page of a list.
fn reopen(state: &Scoped) -> Answer {
    let started = Instant::now();
    driver::run(state)?;
    let opened = started.elapsed();
    let listed = Instant::now();
    let page = rows::runs(state, &RunsQuery { limit: Some(10), ..RunsQuery::default() })?;
    Ok(json!({
        "seconds": opened.as_secs_f64(), "list": listed.elapsed().as_secs_f64(),
        "rows": page.rows.len(),
    }))
}

/// Submits runs that stay open, and measures the memory of their driver. Then cancels them.
fn many(state: &Scoped, runs: usize) -> Answer {
    let text = "[task.a]\ndo = { stub = '', delay = '1h' }";
    let started = Instant::now();
    let mut ids = Vec::new();
    for _ in 0..runs {
        ids.push(submit_plan(state, text)?);
    }
    let submitted = started.elapsed();
    let is_started = |run: &RunId| -> Result<bool, Box<dyn Error>> {
        let reader = Reader::open(&LedgerPaths::under(state.home()))?;
        let query = Query { run: Some(*run), ..Query::default() };
        Ok(reader.events(&query)?.iter().any(|row| row.kind == "task.started"))
    };
    for run in ids.iter().rev().take(3) {
        while !is_started(run)? {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let peak = driver_memory(state)?;
    let cancelling = Instant::now();
    for run in &ids {
        belljar_engine::runs::control::cancel(state, *run, None)?;
    }
    while DriverLock::is_held(state.store()) {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(json!({
        "peak": peak, "submitted": submitted.as_secs_f64(),
        "cancelled": cancelling.elapsed().as_secs_f64(),
    }))
}

fn millis() -> Result<u64, Box<dyn Error>> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// Returns the first event of a run of a plan.
fn created() -> Result<RunCreated, Box<dyn Error>> {
    Ok(RunCreated {
        name: Some("bench".to_owned()),
        template: "default".to_owned(),
        mode: "read-only".to_owned(),
        net: "none".to_owned(),
        policy: Digest::of(&[b"bench"]),
        workspace: None,
        record: "hashes".to_owned(),
        command: Body::committed(Digest::of(&[b"plan"]), 4, belljar_ledger::Salt::random()?),
        environment: Vec::new(),
        limits: Vec::new(),
        purpose: Some("plan".to_owned()),
        principal: Some("user:0".to_owned()),
        tenant: Some("local".to_owned()),
        session: None,
        writable: None,
    })
}

/// Returns an event of 256 bytes, the size of a typical event of a task.
fn event(run: RunId) -> Draft {
    let event = DnsDecided {
        name: format!("{}.example.com", "x".repeat(41)),
        query: "A".to_owned(),
        verdict: "allow".to_owned(),
        rule: None,
        reason: "a rule of the template allows this one".to_owned(),
    };
    Draft::new(event).of_run(run).by(Actor::Broker)
}
