//! Translates tasks to the work of hosts, and the results of hosts to ends of attempts.

mod agent;
pub(super) mod checks;
mod code;
mod judge;
mod model;
mod taint;
mod tools;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_ledger::{Digest, LedgerPaths, Reader, ReaderError};
use belljar_model::plan::{CheckedPlan, Executor, ForEach, OutputKind, Source, Task};
use belljar_model::{RunId, Template};
use serde_json::Value as Json;

use self::agent::AgentTask;
use super::budget::{Amounts, Limits, Unit};
use super::evidence::{self, ModelHost};
use super::files::RunFiles;
use super::graph::{Graph, Selections};
use super::host::{
    self, InputFile, TaskInputs, TaskOutcome, TaskOutput, TaskResult, TaskRunSpec,
    TaskRunWorkspace, TaskWork,
};
use super::machine::{End, Evidence, FailReason, InputKind, Output, RunState, TaskRef, Try};
use super::stubs;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::scope::Scoped;

pub(super) use code::start;
pub(super) use taint::read as read_taint;

/// The number of lines of a failed program that its reason contains.
const REASON_LINES: usize = 3;

/// A run with everything that its tasks need.
pub(super) struct Context<'a> {
    pub(super) state: &'a Scoped,
    pub(super) run: RunId,
    pub(super) plan: &'a CheckedPlan,
    pub(super) graph: &'a Graph,
    /// The digest that binds the files of the submission.
    pub(super) bound: Digest,
    pub(super) base: &'a PathBuf,
    pub(super) files: &'a RunFiles,
    pub(super) progress: &'a RunState,
    /// Why the last attempt of an instance failed or was rejected.
    pub(super) reasons: &'a BTreeMap<TaskRef, String>,
}

/// Returns the files that are fixed when a plan is submitted, by name.
pub(super) fn fixed_files(
    state: &Scoped,
    plan: &CheckedPlan,
    base: &Path,
) -> Result<BTreeMap<String, Vec<u8>>, EngineError> {
    let mut fixed = model::fixed_tiers(state, plan)?;
    fixed.extend(agent::fixed_files(state, plan, base)?);
    fixed.extend(taint::fixed_file(state, plan)?);
    Ok(fixed)
}

/// Returns the further files of a submission: the commits that agents start from. They grant nothing, so
/// they are no part of the policy.
pub(super) fn resolved_files(
    state: &Scoped,
    plan: &CheckedPlan,
    base: &Path,
) -> Result<BTreeMap<String, Vec<u8>>, EngineError> {
    agent::resolved_files(state, plan, base)
}

impl Context<'_> {
    /// Returns the inputs of a task, or `None` if one of them is missing or was changed.
    pub(super) fn inputs(&self, of: &TaskRef) -> Option<TaskInputs> {
        let task = self.plan.task(&of.task)?;
        let mut inputs = TaskInputs::default();
        for edge in &task.data {
            match &edge.from {
                Source::Input(name) => inputs.files.push(InputFile {
                    name: format!("input.{name}"),
                    content: self.files.input(self.bound, name)?,
                    labels: self
                        .plan
                        .inputs()
                        .get(name)?
                        .labels
                        .iter()
                        .map(ToString::to_string)
                        .collect(),
                }),
                Source::Task(id) => {
                    for of in self.instances(id) {
                        let Some(output) = self.progress.output(&of) else { continue };
                        inputs.files.push(InputFile {
                            name: of.to_string(),
                            content: self.checked_output(&of, output.digest)?,
                            labels: output.labels.iter().map(ToString::to_string).collect(),
                        });
                    }
                }
            }
        }
        inputs.reason = self.reasons.get(of).cloned();
        inputs.item = match of.item {
            Some(item) => Some(self.item(task, item)?),
            None => None,
        };
        Some(inputs)
    }

    /// Returns the file with an output, or `None` if it is not the one with this commitment.
    fn checked_output(&self, of: &TaskRef, bound: Digest) -> Option<PathBuf> {
        let stored = self.files.stored_output(of, bound);
        stored.or_else(|| self.files.write_stub_output(self.plan, of, bound))
    }

    pub(super) fn instances(&self, task: &belljar_model::plan::TaskId) -> Vec<TaskRef> {
        let single = TaskRef { task: task.clone(), item: None };
        if self.plan.task(task).is_none_or(|task| task.for_each.is_none()) {
            return vec![single];
        }
        let count = self.progress.instances(task).unwrap_or(0);
        (0..count).map(|item| TaskRef { item: Some(item), ..single.clone() }).collect()
    }

    /// Returns the JSON text of an item.
    fn item(&self, task: &Task, item: u32) -> Option<String> {
        let item = usize::try_from(item).ok()?;
        match task.for_each.as_ref()? {
            ForEach::Values(values) => values.get(item).map(Json::to_string),
            ForEach::Output { of, at, .. } => {
                let of = TaskRef { task: of.clone(), item: None };
                let bound = self.progress.output(&of)?.digest;
                let text = fs::read(self.checked_output(&of, bound)?).ok()?;
                let list: Json = serde_json::from_slice(&text).ok()?;
                list.pointer(at)?.get(item).map(Json::to_string)
            }
        }
    }

    /// Returns the work of a host for one attempt of a task with a box.
    pub(super) fn spec(
        &self,
        of: &Try,
        box_run: RunId,
        lease: &Limits,
    ) -> Result<TaskRunSpec, EngineError> {
        let missing = || invalid(format!("the plan has no box for the task {}", of.instance()));
        let position = self.plan.index(&of.task).ok_or_else(missing)?;
        let task = self.plan.tasks().get(position).ok_or_else(missing)?;
        let template = self.plan.box_template(position).ok_or_else(missing)?;
        if let Some(why) = self.excluded_check(&of.instance()) {
            return Err(EngineError::message(ErrorKind::Refused, why));
        }
        if let Executor::Agent { agent, repo, base, prompt } = &task.executor {
            let work = AgentTask { task, agent, repo, base, prompt };
            return self.agent_spec(&work, of, box_run, &with_timeout(template, lease), lease);
        }
        let (own, mut tier) = match &task.executor {
            Executor::Model { tools, .. } => {
                let tier = self.tier(task, &of.instance())?;
                let template = match tools {
                    Some(_) => tier.template_with_tools(template),
                    None => tier.template(template),
                };
                (Some(template), Some(tier))
            }
            Executor::Command { .. }
            | Executor::Code { .. }
            | Executor::Agent { .. }
            | Executor::Approval { .. }
            | Executor::Stub { .. } => (None, None),
        };
        let template = own.as_ref().unwrap_or(template);
        let workspace = match task.executor.workspace() {
            Some(at) if at.overlay => TaskRunWorkspace::Overlay(self.base.join(&at.directory)),
            Some(at) => TaskRunWorkspace::ReadOnly(self.base.join(&at.directory)),
            None => TaskRunWorkspace::None,
        };
        let (mut rules, masks) =
            host::resolve_fixed(self.state, template, workspace.path(), self.base)?;
        let masks = self.masks_with_tools(&task.executor, workspace.path(), masks)?;
        rules.template = with_timeout(&rules.template, lease);
        if let Some(network) = &mut rules.network {
            network.remove(&self.removed(&of.instance()));
        }
        let inputs = self.inputs(&of.instance());
        let inputs = inputs.ok_or_else(|| invalid("an input of the task is missing"))?;
        let work = match &task.executor {
            Executor::Command { argv, .. } => TaskWork::Command(argv.clone()),
            Executor::Code { source } => self.code(task, source, &inputs, &rules)?,
            Executor::Model { tools, .. } => {
                let tier = tier.take().ok_or_else(missing)?;
                let removed = tier.secret().and_then(|it| self.without_secret(&of.instance(), it));
                if let Some(why) = removed {
                    return Err(EngineError::message(ErrorKind::Refused, why));
                }
                match tools {
                    Some(_) => tier.grant_with_tools(&mut rules),
                    None => tier.grant(&mut rules),
                }
                self.model(task, of, &tier, &inputs, (&rules, lease))?
            }
            Executor::Agent { .. } | Executor::Approval { .. } | Executor::Stub { .. } => {
                return Err(missing());
            }
        };
        if let Some(network) = &mut rules.network {
            network.limit(lease.network());
        }
        let dir = self.files.work(box_run);
        let stdin = inputs.write(&dir).kind(ErrorKind::CannotStart)?;
        Ok(TaskRunSpec {
            run: box_run,
            plan_run: self.run,
            task: of.instance().to_string(),
            attempt: of.attempt,
            idempotency_key: format!("{}/{}", self.run, of.instance()),
            rules,
            masks,
            work,
            workspace,
            inputs: Some(dir),
            stdin: Some(stdin),
            max_output: task.output.max.as_u64(),
            lease: lease.network(),
        })
    }

    /// Returns the end of an attempt whose host has ended.
    pub(super) fn ended(&self, of: &Try, box_run: RunId) -> Result<InputKind, EngineError> {
        let result = match host::result(self.state, box_run) {
            // A file that cannot be read shows nothing, so the ledger decides.
            Err(error) if error.kind() == ErrorKind::Damaged => None,
            result => result?,
        };
        let Some(result) = result else {
            return Ok(InputKind::Lost(of.clone(), self.lost(of, box_run)?));
        };
        let usage = Some(usage(&result));
        let reason = match &result.outcome {
            TaskOutcome::Exited { status: 0 } => {
                let end = self.taken(of, box_run, result.output.as_ref())?;
                return Ok(InputKind::Ended(of.clone(), end, usage));
            }
            // The program may have run, so the ledger decides.
            TaskOutcome::Failed { .. } => {
                return Ok(InputKind::Lost(of.clone(), self.lost(of, box_run)?));
            }
            TaskOutcome::Exited { .. } => FailReason::Exit,
            TaskOutcome::Signaled { .. } | TaskOutcome::Killed => FailReason::Signal,
            TaskOutcome::Timeout => FailReason::Timeout,
            TaskOutcome::Limit { .. } => FailReason::Limit,
            TaskOutcome::TooLarge => FailReason::TooLarge,
            TaskOutcome::Threw { .. } => FailReason::Throw,
            TaskOutcome::NoAnswer { kind, .. } => model::reason(kind),
            TaskOutcome::NoChange => FailReason::NoChange,
            TaskOutcome::Unavailable { .. } => FailReason::Unavailable,
            TaskOutcome::Invalid { .. } => FailReason::Invalid,
            TaskOutcome::CannotStart { .. } => FailReason::CannotStart,
        };
        let reason = if self.is_over_budget(of, &result) { FailReason::OverBudget } else { reason };
        let text = self.reason(&result, box_run);
        Ok(InputKind::Ended(of.clone(), End::Failed { reason, text }, usage))
    }

    /// Returns whether an attempt failed after the broker enforced its lease.
    fn is_over_budget(&self, of: &Try, result: &TaskResult) -> bool {
        let lease = self.progress.running().find(|(running, _)| running == of);
        let bytes = lease.and_then(|(_, lease)| lease.get(Unit::Bytes));
        let used = result.usage.sent_bytes.saturating_add(result.usage.received_bytes);
        result.usage.over_budget > 0 || bytes.is_some_and(|lease| used >= lease)
    }

    /// Describes a failure, with the last lines of the program.
    fn reason(&self, result: &TaskResult, box_run: RunId) -> String {
        self.reason_with(result, box_run, REASON_LINES)
    }

    fn reason_with(&self, result: &TaskResult, box_run: RunId, lines: usize) -> String {
        let what = match &result.outcome {
            TaskOutcome::Exited { status } => format!("exit status {status}"),
            TaskOutcome::Signaled { signal } => format!("killed by signal {signal}"),
            TaskOutcome::Killed => "the box was killed".to_owned(),
            TaskOutcome::Timeout => "the time limit was exceeded".to_owned(),
            TaskOutcome::Limit { limit } => limit.sentence().to_owned(),
            TaskOutcome::TooLarge => "the output is larger than its limit".to_owned(),
            TaskOutcome::NoChange => "the agent made no commit and changed no file".to_owned(),
            TaskOutcome::Threw { error }
            | TaskOutcome::NoAnswer { error, .. }
            | TaskOutcome::Unavailable { error }
            | TaskOutcome::Invalid { error }
            | TaskOutcome::CannotStart { error }
            | TaskOutcome::Failed { error } => error.clone(),
        };
        let kept = result.kept.as_ref();
        let kept = kept.map_or_else(String::new, |at| format!("; its commits are at {at}"));
        let what = format!("{what}{kept}");
        let lines = host::tail(self.state, box_run, lines);
        if lines.is_empty() { what } else { format!("{what}: {}", lines.join("\n")) }
    }

    /// Takes the output of a program that ended well.
    fn taken(
        &self,
        of: &Try,
        box_run: RunId,
        stored: Option<&TaskOutput>,
    ) -> Result<End, EngineError> {
        let Some(stored) = stored else { return Ok(failed("the output is missing")) };
        match self.files.take_output(self.state, box_run, &of.instance(), stored) {
            Err(error) if error.kind() == ErrorKind::Damaged => {
                return Ok(failed(format!("{error:#}")));
            }
            taken => taken?,
        }
        self.output(&of.instance(), stored)
    }

    /// Returns the end of an attempt whose output is at its place in the run.
    pub(super) fn output(&self, of: &TaskRef, stored: &TaskOutput) -> Result<End, EngineError> {
        let content = fs::read(self.files.output(of)).kind(ErrorKind::Broken)?;
        Ok(self.end_with(of, stored, &content))
    }

    /// Returns the end of an attempt with an output of this content.
    fn end_with(&self, of: &TaskRef, stored: &TaskOutput, content: &[u8]) -> End {
        match self.selections(of, content) {
            Ok(selections) => {
                let labels = self.own_labels(of);
                End::Done(Output { labels, ..output_of(stored, selections) })
            }
            Err(text) => failed(text),
        }
    }

    /// Checks the type of a content, and returns what other tasks need from it. The error is a sentence.
    pub(super) fn selections(&self, of: &TaskRef, content: &[u8]) -> Result<Selections, String> {
        let kind = self.plan.task(&of.task).map_or(OutputKind::Bytes, |task| task.output.kind);
        if matches!(kind, OutputKind::Bytes | OutputKind::Branch) {
            return Ok(Selections::default());
        }
        let text = std::str::from_utf8(content);
        let text = text.map_err(|_| "the output is not UTF-8 text".to_owned())?;
        if kind == OutputKind::Json {
            let value = serde_json::from_str(text);
            let value = value.map_err(|error| format!("the output is not JSON: {error}"))?;
            self.check_schema(&of.task, &value)?;
            return Ok(self.graph.select(&of.task, &value));
        }
        if kind == OutputKind::Choice && !self.is_choice(of, text.trim()) {
            return Err("the output is not the id of an input of the task".to_owned());
        }
        Ok(Selections::default())
    }

    fn is_choice(&self, of: &TaskRef, text: &str) -> bool {
        let inputs = self.inputs(of).unwrap_or_default();
        inputs.files.iter().any(|input| input.name == text)
    }

    /// Returns the end of a stub. Its output is part of the plan, so nothing is stored.
    pub(super) fn stub(&self, of: &Try) -> Result<InputKind, EngineError> {
        let usage = Some(Amounts::default());
        let instance = of.instance();
        let task = self.plan.task(&of.task);
        let end = match task.map(|task| (&task.executor, task.output.max.as_u64())) {
            Some((Executor::Stub { fail: Some(text), .. }, _)) => {
                End::Failed { reason: FailReason::Stub, text: text.clone() }
            }
            Some((Executor::Stub { .. }, max)) => {
                let content = stubs::content(self.plan, &instance).unwrap_or_default();
                if content.len() as u64 > max {
                    let text = "the output is larger than its limit".to_owned();
                    End::Failed { reason: FailReason::TooLarge, text }
                } else {
                    let stored = self.files.commit_stub(&instance, content.as_bytes());
                    let stored =
                        stored.ok_or_else(|| invalid("the manifest of the run is missing"))?;
                    self.end_with(&instance, &stored, content.as_bytes())
                }
            }
            _ => End::Failed { reason: FailReason::CannotStart, text: "not a stub".to_owned() },
        };
        Ok(InputKind::Ended(of.clone(), end, usage))
    }
}

/// Returns the output whose content is stored.
pub(super) fn output_of(stored: &TaskOutput, selections: Selections) -> Output {
    let (digest, size) = (stored.hash(), stored.size());
    Output { digest, size, labels: Default::default(), selections }
}

/// Returns a template whose timeout is not longer than the time of the lease.
fn with_timeout(template: &Template, lease: &Limits) -> Template {
    let mut template = template.clone();
    if let Some(seconds) = lease.get(Unit::Seconds).map(Duration::from_secs) {
        let timeout = &mut template.limits.timeout;
        *timeout = Some(timeout.map_or(seconds, |timeout| timeout.min(seconds)));
    }
    template
}

fn failed(text: impl Into<String>) -> End {
    End::Failed { reason: FailReason::Invalid, text: text.into() }
}

/// Returns what the ledger shows about an attempt without a result.
fn lost(state: &Scoped, box_run: RunId, models: &[ModelHost]) -> Result<Evidence, EngineError> {
    let reader = match Reader::open(&LedgerPaths::under(state.home())) {
        Err(ReaderError::None { .. }) => return Ok(Evidence::NotStarted),
        opened => opened.kind(ErrorKind::Broken)?,
    };
    if reader.find(box_run, 0).kind(ErrorKind::Broken)?.is_none() {
        return Ok(Evidence::NotStarted);
    }
    Ok(match evidence::of_run(state, box_run, models)? {
        evidence::Evidence::NoEffect => Evidence::NoEffect,
        evidence::Evidence::MaybeEffect { .. } => Evidence::MayHaveEffect,
    })
}

fn usage(result: &TaskResult) -> Amounts {
    let network = &result.usage;
    Amounts::default()
        .with(Unit::Calls, network.requests)
        .with(Unit::Tokens, network.tokens)
        .with(Unit::Money, network.money.0)
        .with(Unit::Seconds, result.wall_micros.div_ceil(1_000_000))
        .with(Unit::Bytes, network.sent_bytes.saturating_add(network.received_bytes))
}
