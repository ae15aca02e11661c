//! `belljar plan`: checks and shows plans, and lets a model write one.

mod mermaid;
mod question;
mod tree;
mod write;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::Context as _;
use belljar_engine::config;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::runs::plans;
use belljar_model::plan::{
    CheckedPlan, Executor, ForEach, InputName, PlanFault, PlanFaults, PlanInput, RunBudget, Task,
    TaskId,
};
use belljar_model::{Config, Timeout, display};
use serde::Serialize;

use crate::cli::Cli;
use crate::cli::plan::{PlanArgs, PlanCommand};
use crate::exit::{Outcome, USAGE};
use crate::print;
use crate::scope::host;

/// Runs `belljar plan`.
pub(crate) fn run(cli: &Cli, args: &PlanArgs) -> Outcome {
    let Some(command) = &args.command else { return write::run(cli, &args.write) };
    if !args.write.is_empty() {
        let error = invalid("a goal and its options cannot be combined with a subcommand");
        return Err(error.advise("write the options of `check` and `show` after their names"));
    }
    let (file, json) = match command {
        PlanCommand::Check { file, json } | PlanCommand::Show { file, json, .. } => (file, *json),
    };
    let plan = match load(cli, file)? {
        Ok(plan) => plan,
        Err(faults) => return report(&faults, json),
    };
    match command {
        PlanCommand::Check { json: true, .. } => print::json(&CheckLine::of(&plan)),
        PlanCommand::Check { .. } => print::out(&format!("{}\n", summary(&plan))),
        PlanCommand::Show { json: true, .. } => print::json(&PlanLine::of(&plan)),
        PlanCommand::Show { mermaid: true, .. } => print::out(&mermaid::flowchart(&plan)),
        PlanCommand::Show { .. } => print::out(&shown(&plan)),
    }
    .kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Returns a plan as text: its summary and its tasks as a tree.
pub(super) fn shown(plan: &CheckedPlan) -> String {
    format!("{}\n{}", summary(plan), tree::tree(plan))
}

/// Loads the configuration of the operator and of the current directory.
pub(super) fn configuration(cli: &Cli) -> Result<Config, EngineError> {
    let current_dir = std::env::current_dir().ok();
    Ok(config::load_from(host(), cli.config.as_deref(), current_dir.as_deref())?.0)
}

/// Reads and checks a plan with the configuration of the operator and of the current directory.
pub(super) fn load(cli: &Cli, file: &Path) -> Result<Result<CheckedPlan, PlanFaults>, EngineError> {
    let name = file.to_string_lossy();
    let text = if name == "-" {
        plans::read(io::stdin().lock(), &name)?
    } else {
        let opened = File::open(file).with_context(|| format!("cannot read {name}"));
        plans::read(opened.kind(ErrorKind::Invalid)?, &name)?
    };
    let ceiling = plans::ceiling(host(), &configuration(cli)?)?;
    Ok(plans::check(&text, &name, &ceiling))
}

/// The faults of a plan, as JSON.
#[derive(Serialize)]
struct FaultsLine<'a> {
    valid: bool,
    faults: &'a [PlanFault],
    more: usize,
}

/// Prints the faults of a plan and returns the exit code for an invalid file.
pub(super) fn report(faults: &PlanFaults, json: bool) -> Outcome {
    if json {
        let line = FaultsLine { valid: false, faults: faults.list(), more: faults.more() };
        print::json(&line).kind(ErrorKind::Broken)?;
        return Ok(USAGE);
    }
    for fault in faults.list() {
        print::note(&fault.to_string());
    }
    if faults.more() > 0 {
        print::note(&format!("and {} more", faults.more()));
    }
    Ok(USAGE)
}

/// The result of a check, as JSON.
#[derive(Serialize)]
struct CheckLine<'a> {
    valid: bool,
    name: &'a str,
    template: &'a str,
    tasks: usize,
    max_instances: usize,
    budget: &'a RunBudget,
}

impl<'a> CheckLine<'a> {
    fn of(plan: &'a CheckedPlan) -> Self {
        Self {
            valid: true,
            name: plan.name(),
            template: plan.template(),
            tasks: plan.tasks().len(),
            max_instances: plan.max_instances(),
            budget: plan.budget(),
        }
    }
}

/// A whole plan, as JSON.
#[derive(Serialize)]
struct PlanLine<'a> {
    name: &'a str,
    template: &'a str,
    budget: &'a RunBudget,
    inputs: &'a BTreeMap<InputName, PlanInput>,
    answer: Option<&'a TaskId>,
    tasks: &'a [Task],
}

impl<'a> PlanLine<'a> {
    fn of(plan: &'a CheckedPlan) -> Self {
        Self {
            name: plan.name(),
            template: plan.template(),
            budget: plan.budget(),
            inputs: plan.inputs(),
            answer: plan.answer(),
            tasks: plan.tasks(),
        }
    }
}

/// Returns a plan in one line: its name, its size and its budget.
pub(super) fn summary(plan: &CheckedPlan) -> String {
    let count = plan.max_instances();
    let is_open = |task: &Task| matches!(task.for_each, Some(ForEach::Output { .. }));
    let up_to = if plan.tasks().iter().any(is_open) { "up to " } else { "" };
    let plural = if count == 1 { "" } else { "s" };
    // Destructured without `..`, so that a new limit cannot be forgotten here.
    let RunBudget { calls, tokens, money, time, bytes, boxes, secrets: _ } = plan.budget();
    let parts = [
        Some(format!("{up_to}{count} task{plural}")),
        boxes.map(|boxes| format!("{boxes} box{} at once", if boxes == 1 { "" } else { "es" })),
        money.map(|money| money.to_string()),
        tokens.map(|tokens| format!("{} tokens", thousands(tokens))),
        calls.map(|calls| format!("{} calls", thousands(calls))),
        bytes.map(|bytes| bytes.to_string()),
        time.map(|time| Timeout(Some(time)).to_string()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{}: {}", display::safe(plan.name()), parts.join(", "))
}

/// Returns a number in thousands or millions if it is a whole number of them.
pub(super) fn thousands(number: u64) -> String {
    match number {
        0 => "0".to_owned(),
        number if number.is_multiple_of(1_000_000) => format!("{}M", number / 1_000_000),
        number if number.is_multiple_of(1_000) => format!("{}k", number / 1_000),
        number => number.to_string(),
    }
}

/// Returns the executor of a task in a few words.
pub(super) fn executor(task: &Task) -> String {
    match &task.executor {
        Executor::Command { argv, .. } => {
            format!("command {}", display::safe(argv.program().as_encoded_bytes()))
        }
        Executor::Code { .. } => "code".to_owned(),
        Executor::Agent { agent, .. } => format!("agent {agent}"),
        Executor::Model { tier, .. } => format!("model {tier}"),
        Executor::Approval { .. } => "approval".to_owned(),
        Executor::Stub { .. } => "stub".to_owned(),
    }
}

/// Returns the number of instances of a task, for example `×2`, or nothing for a single one.
fn instances(task: &Task) -> String {
    match &task.for_each {
        None => String::new(),
        Some(ForEach::Values(values)) => format!(" ×{}", values.len()),
        Some(ForEach::Output { max, .. }) => format!(" ×≤{max}"),
    }
}
