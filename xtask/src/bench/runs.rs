//! The benchmarks of runs of plans: `dag`, `dag-chain`, `dag-box` and `dag-open`.
//!
//! xtask does not link Belljar, so the measured program is an example of `belljar-engine`. It submits plans,
//! acts as their driver and host, and prints its result as one line of JSON. Each plan has a new state
//! directory, so the start of the driver counts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::lab::{Lab, timed};
use super::ledger::{number, parse, remove_dir};
use super::report::{Goal, Report, Row};
use crate::dist;
use crate::shell::{as_from_a_shell, read};

const TASKS: u64 = 1000;
/// The number of rounds, in which the shapes and their references take turns.
const ROUNDS: usize = 9;
const BOXES: u64 = 200;
const BOX_ROUNDS: usize = 3;
/// The numbers of finished runs of `dag-open`.
const MANY: u64 = 1_000_000;
const FEW: u64 = 10;
const OPEN_ROUNDS: usize = 21;
const OPEN_RUNS: u64 = 1000;
const LARGE_PLAN: u64 = 10_000;
const MAX_MEMORY: f64 = 256.0 * 1024.0 * 1024.0;

/// The measured program.
#[derive(Debug)]
pub(super) struct RunsTool {
    program: PathBuf,
    dir: PathBuf,
}

impl RunsTool {
    pub(super) fn build(lab: &Lab) -> Result<Self> {
        dist::build(&["--package", "belljar-engine", "--example", "bench_runs"])?;
        let program = dist::output_dir()?.join("examples/bench_runs");
        Ok(Self { program, dir: lab.scratch.join("runs") })
    }

    fn command(&self, action: &str, home: &Path, args: &[&str]) -> Command {
        let mut command = as_from_a_shell(&self.program);
        command.arg(action).arg(home).args(args).env("BELLJAR_HOME", home);
        command
    }

    pub(super) fn run(&self, action: &str, home: &Path, args: &[&str]) -> Result<Value> {
        parse(&read(&mut self.command(action, home, args))?)
    }

    /// Runs an action in a new state directory, which is removed afterwards.
    fn run_new(&self, action: &str, args: &[&str]) -> Result<Value> {
        remove_dir(&self.dir)?;
        std::fs::create_dir_all(&self.dir)?;
        let result = self.run(action, &self.dir, args)?;
        remove_dir(&self.dir)?;
        Ok(result)
    }

    /// Carries out a plan. Returns its result.
    fn plan(&self, shape: &str, tasks: u64) -> Result<Value> {
        let result = self.run_new("plan", &[shape, &tasks.to_string()])?;
        let end = result.get("end").and_then(Value::as_str);
        ensure!(end == Some("plan.ended"), "the run did not end: {result}");
        Ok(result)
    }

    /// Records events with a number of asynchronous writers. Returns the milliseconds.
    fn write(&self, events: f64, together: u64) -> Result<f64> {
        let result = self.run_new("write", &[&format!("{events:.0}"), &together.to_string()])?;
        Ok(number(&result, "seconds")? * 1000.0)
    }
}

/// `dag`: a plan without edges and one in layers, compared with 64 writers that record as many events.
pub(super) fn dag(lab: &Lab, _: Option<Duration>) -> Result<Report> {
    let tool = RunsTool::build(lab)?;
    let (mut wide, mut layers, mut writers) = (Vec::new(), Vec::new(), Vec::new());
    let mut events = 0.0;
    for _ in 0..ROUNDS {
        let result = tool.plan("wide", TASKS)?;
        events = number(&result, "events")?;
        wide.push(number(&result, "seconds")? * 1000.0);
        writers.push(tool.write(events, 64)?);
        layers.push(number(&tool.plan("layers", TASKS)?, "seconds")? * 1000.0);
    }
    Ok(Report {
        bench: "dag",
        description: format!("time of a plan of {TASKS} stubs, {ROUNDS} rounds"),
        unit: "ms",
        reference: "64 writers",
        goal: Goal::AtMost { first: 3.0, moonshot: 1.3 },
        rows: vec![
            Row { name: "wide", samples: Ok(wide) },
            Row { name: "100 x 10", samples: Ok(layers) },
            Row { name: "64 writers", samples: Ok(writers) },
        ],
        also: &["100 x 10"],
        notes: vec![
            "from the end of the submission to the time of plan.ended, with the start of the driver"
                .to_owned(),
            format!("64 writers: {events:.0} events of 256 bytes, 64 per append"),
        ],
        failures: Vec::new(),
    })
}

/// `dag-chain`: a chain of stubs, compared with one durable append per task.
pub(super) fn chain(lab: &Lab, _: Option<Duration>) -> Result<Report> {
    let tool = RunsTool::build(lab)?;
    let (mut chain, mut writer) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        chain.push(number(&tool.plan("chain", TASKS)?, "seconds")? * 1000.0);
        writer.push(tool.write(f64::from(u32::try_from(TASKS)?), 1)?);
    }
    Ok(Report {
        bench: "dag-chain",
        description: format!("time of a plan of {TASKS} stubs in a chain, {ROUNDS} rounds"),
        unit: "ms",
        reference: "1 writer",
        goal: Goal::AtMost { first: 1.5, moonshot: 1.1 },
        rows: vec![
            Row { name: "chain", samples: Ok(chain) },
            Row { name: "1 writer", samples: Ok(writer) },
        ],
        also: &[],
        notes: vec!["1 writer: one durable append of 256 bytes per task".to_owned()],
        failures: Vec::new(),
    })
}

/// `dag-box`: a plan of programs in boxes, compared with a shell loop of `belljar run`.
pub(super) fn boxes(lab: &Lab, _: Option<Duration>) -> Result<Report> {
    let tool = RunsTool::build(lab)?;
    let (mut plan, mut shell) = (Vec::new(), Vec::new());
    for _ in 0..BOX_ROUNDS {
        plan.push(number(&tool.plan("boxes", BOXES)?, "seconds")? * 1000.0);
        let mut command = as_from_a_shell("sh");
        let script =
            format!("for i in $(seq {BOXES}); do \"$0\" run --net none -- /bin/true; done");
        command.arg("-c").arg(script).arg(&lab.belljar);
        command.env("BELLJAR_HOME", &lab.state).current_dir(&lab.workspace);
        shell.push(timed(&mut command)?);
    }
    Ok(Report {
        bench: "dag-box",
        description: format!("time of {BOXES} × /bin/true in boxes, {BOX_ROUNDS} rounds"),
        unit: "ms",
        reference: "shell loop",
        goal: Goal::AtMost { first: 1.5, moonshot: 1.0 },
        rows: vec![
            Row { name: "plan", samples: Ok(plan) },
            Row { name: "shell loop", samples: Ok(shell) },
        ],
        also: &[],
        notes: vec![
            "shell loop: `belljar run --net none -- /bin/true`, one after the other".to_owned(),
        ],
        failures: Vec::new(),
    })
}

/// `dag-open`: opens a driver beside many finished runs, and measures the memory of many open runs.
pub(super) fn open(lab: &Lab, _: Option<Duration>) -> Result<Report> {
    let tool = RunsTool::build(lab)?;
    let mut notes = Vec::new();
    let mut table = [("1,000,000", MANY), ("10", FEW)].map(|(name, runs)| (name, runs, Vec::new()));
    let home = |runs: u64| lab.scratch.join(format!("history-{runs}"));
    for (name, runs, _) in &table {
        std::fs::create_dir_all(home(*runs))?;
        let made = tool.run("history", &home(*runs), &[&runs.to_string()])?;
        notes.push(format!("the history of {name} runs: {made}"));
        tool.run("open", &home(*runs), &[])?;
    }
    for _ in 0..OPEN_ROUNDS {
        for (_, runs, samples) in &mut table {
            let result = tool.run("open", &home(*runs), &[])?;
            samples.push(number(&result, "seconds")? * 1000.0);
        }
    }
    for (_, runs, _) in &table {
        remove_dir(&home(*runs))?;
    }
    let mut failures = Vec::new();
    let memory = [
        ("1,000 open runs", tool.run_new("many", &[&OPEN_RUNS.to_string()])?),
        ("a plan of 10,000 tasks", tool.plan("wide", LARGE_PLAN)?),
    ];
    for (name, result) in memory {
        let peak = number(&result, "peak")?;
        notes.push(format!("peak memory of the driver with {name}: {:.1} MiB", peak / 1048576.0));
        if peak > MAX_MEMORY {
            failures.push(format!("the driver with {name} used more than 256 MiB"));
        }
    }
    Ok(Report {
        bench: "dag-open",
        description: format!("time to open a driver beside finished runs, {OPEN_ROUNDS} rounds"),
        unit: "ms",
        reference: "10",
        goal: Goal::AtMost { first: 1.2, moonshot: 1.05 },
        rows: table
            .into_iter()
            .map(|(name, _, samples)| Row { name, samples: Ok(samples) })
            .collect(),
        also: &[],
        notes,
        failures,
    })
}
