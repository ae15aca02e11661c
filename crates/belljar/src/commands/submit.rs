//! `belljar submit`: starts the run of a plan.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::runs::driver;
use belljar_engine::runs::grants::{self, Grant};
use belljar_engine::runs::submit::{self, SubmitKey};
use belljar_engine::runs::view;
use belljar_engine::scope::Scoped;
use belljar_model::RunId;
use belljar_model::plan::{CheckedPlan, RunBudget};
use serde::Serialize;

use super::plan;
use super::runs;
use super::watch;
use crate::cli::Cli;
use crate::cli::runs::SubmitArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope::{self, host};

/// The number of tasks that a line about a destination names.
const MAX_NAMED: usize = 3;

/// Runs `belljar submit`.
pub(crate) fn run(cli: &Cli, args: &SubmitArgs) -> Outcome {
    let key = args.key.as_deref().map(SubmitKey::new).transpose()?;
    let plan = match plan::load(cli, &args.file)? {
        Ok(plan) => plan,
        Err(faults) => return plan::report(&faults, args.json),
    };
    let grants = grants::of_plan(&plan, &plan::configuration(cli)?, host())?;
    if args.dry_run {
        submit::supported(&plan)?;
        return dry_run(&plan, &grants, args.json);
    }
    let state = scope::open(cli.config.as_deref())?;
    let run = start(&state, &plan, &grants, &base(&args.file)?, key.as_ref(), args.json)?;
    if args.watch { watch::watch(&state, run, args.json) } else { Ok(0) }
}

/// Starts the run of a plan, and prints its id and what it reaches.
pub(super) fn start(
    state: &Scoped,
    plan: &CheckedPlan,
    grants: &[Grant],
    base: &Path,
    key: Option<&SubmitKey>,
    json: bool,
) -> Result<RunId, EngineError> {
    let run = submit::accept(state, plan, base, key)?;
    // The run is on disk. Its id is printed also if no driver starts.
    let woken = driver::wake(state);
    let event = view::accepted_event(state, run)?;
    // The run is accepted also if its tenant has nothing left: it can have tasks without a box.
    let used_up = match runs::used_up(state) {
        Ok(used_up) => used_up.iter().map(ToString::to_string).collect(),
        Err(error) => {
            print::error(&error);
            Vec::new()
        }
    };
    if json {
        let line = SubmitLine { run: Some(run), event, used_up, ..SubmitLine::of(plan, grants) };
        print::json(&line).kind(ErrorKind::Broken)?;
    } else {
        let event = event.map_or_else(String::new, |event| format!(", event {event}"));
        let reaches = reaches(grants);
        let then = match woken {
            Ok(()) => "continues without this terminal",
            Err(_) => "not started",
        };
        let budget = |used_up: &String| format!("  stops    tasks in boxes: {used_up}\n");
        let budget: String = used_up.iter().map(budget).collect();
        let summary = plan::summary(plan);
        let text = format!("{run} {summary}\n{reaches}{budget}accepted{event}; {then}\n");
        print::out(&text).kind(ErrorKind::Broken)?;
    }
    woken?;
    Ok(run)
}

/// Returns the directory that relative paths of a plan refer to: that of its file.
fn base(file: &Path) -> Result<PathBuf, EngineError> {
    if file.as_os_str() == "-" {
        return scope::current_dir();
    }
    let absolute = std::path::absolute(file)
        .context("cannot determine the directory of the plan")
        .kind(ErrorKind::Invalid)?;
    Ok(absolute.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned))
}

/// Shows what a submission would start.
fn dry_run(plan: &CheckedPlan, grants: &[Grant], json: bool) -> Outcome {
    if json {
        let line = SubmitLine { dry_run: true, ..SubmitLine::of(plan, grants) };
        print::json(&line).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    let shown = plan::shown(plan);
    let (first, tasks) = shown.split_once('\n').unwrap_or((&shown, ""));
    let text = format!("{first}\n{}{tasks}nothing was started\n", reaches(grants));
    print::out(&text).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// A submission, as JSON.
#[derive(Serialize)]
struct SubmitLine<'a> {
    /// The id of the run; missing with `--dry-run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
    /// The index of the event `plan.accepted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<u64>,
    dry_run: bool,
    name: &'a str,
    template: &'a str,
    tasks: usize,
    max_instances: usize,
    budget: &'a RunBudget,
    reaches: Vec<GrantLine<'a>>,
    /// The limits of the tenant that are used up, each as a sentence; tasks in boxes are stopped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    used_up: Vec<String>,
}

/// A destination of a plan, as JSON.
#[derive(Serialize)]
pub(super) struct GrantLine<'a> {
    to: &'a str,
    secrets: Vec<&'a str>,
    /// Whether a person is asked before each request.
    asked: bool,
    tasks: Vec<&'a str>,
    tiers: Vec<&'a str>,
    agents: Vec<&'a str>,
}

impl<'a> SubmitLine<'a> {
    fn of(plan: &'a CheckedPlan, grants: &'a [Grant]) -> Self {
        Self {
            run: None,
            event: None,
            dry_run: false,
            name: plan.name(),
            template: plan.template(),
            tasks: plan.tasks().len(),
            max_instances: plan.max_instances(),
            budget: plan.budget(),
            reaches: grant_lines(grants),
            used_up: Vec::new(),
        }
    }
}

/// Returns the destinations of a plan, as JSON.
pub(super) fn grant_lines(grants: &[Grant]) -> Vec<GrantLine<'_>> {
    grants.iter().map(grant_line).collect()
}

fn grant_line(grant: &Grant) -> GrantLine<'_> {
    let Grant { to, secrets, is_asked, tasks, tiers, agents } = grant;
    GrantLine {
        to,
        secrets: secrets.iter().map(|it| it.as_str()).collect(),
        asked: *is_asked,
        tasks: tasks.iter().map(|it| it.as_str()).collect(),
        tiers: tiers.iter().map(|it| it.as_str()).collect(),
        agents: agents.iter().map(String::as_str).collect(),
    }
}

/// Returns one line for each destination of a plan.
pub(super) fn reaches(grants: &[Grant]) -> String {
    let line = |grant: &Grant| {
        let Grant { to, secrets, is_asked, tasks, tiers, agents } = grant;
        let secrets = named("secret", secrets.iter().map(|it| it.as_str()));
        let with = secrets.map_or_else(String::new, |secrets| format!(" with {secrets}"));
        let asked = if *is_asked { ", each request after an approval" } else { "" };
        let by = [
            named("tier", tiers.iter().map(|it| it.as_str())),
            named("agent", agents.iter().map(String::as_str)),
            named("task", tasks.iter().map(|it| it.as_str())),
        ];
        let by: Vec<String> = by.into_iter().flatten().collect();
        format!("  reaches  {to}{with}{asked} ({})\n", by.join("; "))
    };
    grants.iter().map(line).collect()
}

/// Returns a list of names with its noun, for example `tiers cheap, capable`; `None` without names.
fn named<'a>(noun: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: BTreeSet<&str> = names.collect();
    let plural = if names.len() == 1 { "" } else { "s" };
    let first: Vec<&str> = names.iter().take(MAX_NAMED).copied().collect();
    let more = match names.len().saturating_sub(first.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| format!("{noun}{plural} {}{more}", first.join(", ")))
}
