//! The JSON of runs and their tasks.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_engine::runs::budget::{Amounts, Unit};
use belljar_engine::runs::index::{RunKind, RunSummary};
use belljar_engine::runs::machine::Status;
use belljar_engine::runs::usage::Observed;
use belljar_engine::runs::view::{self as runs, TaskView as EngineTask};
use belljar_engine::scope::Scoped;
use belljar_model::display;
use belljar_model::net::MicroUsd;
use belljar_model::plan::{CheckedPlan, Executor, RunBudget};
use schemars::JsonSchema;
use serde::Serialize;

use crate::serve::problem::Problem;
use crate::serve::routes::account::time;

/// The maximum length of the output of a task in a response, in bytes.
const MAX_OUTPUT: usize = 1024 * 1024;

/// A run in a list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Run")]
pub(in crate::serve::routes) struct RunView {
    id: String,
    /// `plan`, `run` for a single command, `call` for a program of a model, or `box` for the start of a box.
    kind: &'static str,
    /// `running`, `waiting`, `attention`, `interrupted`, `succeeded`, `failed`, `over_budget` or `cancelled`.
    state: &'static str,
    /// Why a run that is not of a plan ended, such as `exited` or `timeout`.
    reason: Option<String>,
    /// The name of the plan, the box or the run; can be empty.
    name: String,
    /// The principal that started the run.
    maker: String,
    template: String,
    directory: Option<String>,
    accepted: String,
    ended: Option<String>,
    usage: UsageView,
    /// The tasks of the run of a plan that has ended.
    tasks: Option<TaskCountsView>,
    /// The index of the first event of the run in the ledger.
    event: u64,
}

/// The numbers of tasks and instances.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskCounts")]
struct TaskCountsView {
    all: u64,
    done: u64,
}

/// What boxes used, as their brokers and supervisors observed it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Usage")]
pub(in crate::serve::routes) struct UsageView {
    calls: u64,
    tokens: u64,
    /// US dollars as a decimal number.
    money: String,
    /// The time of boxes in milliseconds.
    time: u64,
    /// The bytes that passed the brokers.
    bytes: u64,
}

impl UsageView {
    pub(in crate::serve::routes) fn of(amounts: &Amounts) -> Self {
        Self {
            calls: amounts.get(Unit::Calls),
            tokens: amounts.get(Unit::Tokens),
            money: decimal(MicroUsd(amounts.get(Unit::Money))),
            time: amounts.get(Unit::Seconds).saturating_mul(1000),
            bytes: amounts.get(Unit::Bytes),
        }
    }

    pub(in crate::serve::routes) fn of_observed(observed: &Observed) -> Self {
        let Observed { calls, tokens, money, micros, bytes } = *observed;
        Self { calls, tokens, money: decimal(MicroUsd(money)), time: micros / 1000, bytes }
    }
}

/// Returns an amount of money as a decimal number with at least two digits after the point.
fn decimal(MicroUsd(micros): MicroUsd) -> String {
    const UNIT: u64 = 1_000_000;
    let fraction = format!("{:06}", micros % UNIT);
    let needed = fraction.trim_end_matches('0').len().max(2);
    format!("{}.{}", micros / UNIT, fraction.get(..needed).unwrap_or_default())
}

impl RunView {
    pub(in crate::serve::routes) fn of(summary: &RunSummary) -> Self {
        let directory = summary.directory.as_ref().map(|path| path.as_os_str().as_encoded_bytes());
        let tasks = summary.tasks.map(|it| TaskCountsView { all: it.all, done: it.done });
        Self {
            id: summary.run.to_string(),
            kind: summary.kind.name(),
            state: summary.state.name(),
            reason: summary.reason.clone(),
            name: display::safe_line(&summary.name),
            maker: summary.maker.clone(),
            template: summary.template.clone(),
            directory: directory.map(|path| display::safe(path).to_string()),
            accepted: time(summary.accepted.0),
            ended: summary.ended.map(|ended| time(ended.0)),
            usage: UsageView::of(&summary.spent),
            tasks,
            event: summary.sequence,
        }
    }

    /// Returns the path of the run.
    pub(in crate::serve::routes) fn path(&self) -> String {
        format!("/v1/runs/{}", self.id)
    }
}

/// A run with its plan and its tasks.
#[derive(Serialize, JsonSchema)]
pub(super) struct RunDetail {
    #[serde(flatten)]
    run: RunView,
    /// Null for a run that is not of a plan, and for one whose files were removed.
    plan: Option<PlanView>,
}

/// The plan of a run with the state of its tasks.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RunPlan")]
struct PlanView {
    budget: BudgetView,
    /// The task whose output is the answer of the run; null if all tasks without dependents are.
    answer: Option<String>,
    /// The tasks in the order of the plan, with one entry for each instance.
    tasks: Vec<TaskView>,
}

/// The limits of a run; null means no limit.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Budget")]
pub(in crate::serve::routes) struct BudgetView {
    calls: Option<u64>,
    tokens: Option<u64>,
    /// US dollars as a decimal number.
    money: Option<String>,
    /// In milliseconds.
    time: Option<u64>,
    bytes: Option<u64>,
    /// Boxes at the same time.
    boxes: Option<u32>,
}

impl BudgetView {
    pub(in crate::serve::routes) fn of(budget: &RunBudget) -> Self {
        // Destructured without `..`, so that a new limit cannot be forgotten here.
        let RunBudget { calls, tokens, money, time, bytes, boxes, secrets: _ } = budget;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            calls: *calls,
            tokens: *tokens,
            money: money.map(decimal),
            time: time.map(millis),
            bytes: bytes.map(belljar_model::ByteSize::as_u64),
            boxes: *boxes,
        }
    }
}

/// The state of a task, or of an instance of a task.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Task")]
struct TaskView {
    /// The name of the task, with the number of the instance such as `fix[0]`.
    id: String,
    /// `command`, `code`, `agent`, `model`, `approval` or `stub`.
    executor: &'static str,
    /// `waiting`, `ready`, `running`, `judging`, `backoff`, `gated`, `attention`, `done`, `failed`, `skipped`,
    /// `stopped` or `cancelled`.
    state: &'static str,
    /// The tasks that must be done before this one.
    after: Vec<String>,
    /// The number of the last attempt; 0 before the first.
    attempt: u32,
    /// The number of the tier of the last attempt, from 0.
    tier: u32,
    started: Option<String>,
    ended: Option<String>,
    /// Why the last attempt failed or the task was stopped.
    reason: Option<String>,
    /// The person who answered the gate or decided about the lost attempt.
    by: Option<String>,
    /// The run of the box of the last attempt.
    box_run: Option<String>,
    /// The attempt that waits for the decision of a person.
    lost: Option<u32>,
    /// The gate of an approval that was asked.
    gate: Option<GateView>,
    usage: UsageView,
    /// The labels of the output.
    labels: Vec<String>,
    checks: Vec<CheckView>,
    /// The last lines of a program that runs.
    lines: Vec<String>,
}

/// The gate of a task.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskGate")]
struct GateView {
    /// The id of the approval.
    approval: String,
    /// The time of the automatic denial.
    deadline: String,
}

/// The result of a check of an output.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskCheck")]
struct CheckView {
    /// The number of the check in the plan, from 0.
    check: u32,
    kind: &'static str,
    outcome: &'static str,
    /// The model that judged.
    model: Option<String>,
}

impl TaskView {
    fn of(plan: &CheckedPlan, task: &EngineTask, has_contents: bool) -> Self {
        let position = plan.index(&task.of.task);
        let before = position.into_iter().flat_map(|at| plan.dependencies(at));
        let before = before.filter_map(|at| plan.tasks().get(at));
        let executor = plan.task(&task.of.task).map(|task| executor_name(&task.executor));
        let gate = task.gate.map(|(digest, deadline)| GateView {
            approval: format!("gate:{digest}"),
            deadline: time(deadline.0),
        });
        let checks = task.checks.iter().map(|check| CheckView {
            check: check.check,
            kind: check.kind.name(),
            outcome: check.outcome.name(),
            model: check.model.as_ref().map(display::safe_line),
        });
        let lines = task.lines.iter().filter(|_| has_contents);
        Self {
            id: task.of.to_string(),
            executor: executor.unwrap_or_default(),
            state: task.status.name(),
            after: before.map(|task| task.id.to_string()).collect(),
            attempt: task.attempt,
            tier: task.tier,
            started: task.started.map(|at| time(at.0)),
            ended: task.ended.map(|at| time(at.0)),
            reason: task.reason.as_ref().map(display::safe_line),
            by: task.by.clone(),
            box_run: task.box_run.map(|run| run.to_string()),
            lost: task.lost,
            gate,
            usage: UsageView::of(&task.usage),
            labels: task.labels.clone(),
            checks: checks.collect(),
            lines: lines.map(display::safe_line).collect(),
        }
    }
}

const fn executor_name(executor: &Executor) -> &'static str {
    match executor {
        Executor::Command { .. } => "command",
        Executor::Code { .. } => "code",
        Executor::Agent { .. } => "agent",
        Executor::Model { .. } => "model",
        Executor::Approval { .. } => "approval",
        Executor::Stub { .. } => "stub",
    }
}

impl RunDetail {
    /// Reads the tasks of a run. Blocks.
    pub(super) fn read(
        state: &Scoped,
        summary: &RunSummary,
        has_contents: bool,
    ) -> Result<Self, Problem> {
        let run = RunView::of(summary);
        if summary.kind != RunKind::Plan || !runs::has_files(state, summary.run) {
            return Ok(Self { run, plan: None });
        }
        let view = runs::run(state, summary.run)?;
        let tasks = view.tasks.iter().map(|task| TaskView::of(&view.plan, task, has_contents));
        let plan = PlanView {
            budget: BudgetView::of(view.plan.budget()),
            answer: view.plan.answer().map(ToString::to_string),
            tasks: tasks.collect(),
        };
        Ok(Self { run, plan: Some(plan) })
    }
}

/// A task with its output.
#[derive(Serialize, JsonSchema)]
pub(super) struct TaskDetail {
    #[serde(flatten)]
    task: TaskView,
    /// The output of a task that is done; null for senders who may not see contents.
    output: Option<OutputView>,
}

/// The output of a task.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskOutput")]
struct OutputView {
    /// The length of the whole output in bytes.
    size: u64,
    /// The output, if it is UTF-8 text of at most 1 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Another output of at most 1 MiB in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl OutputView {
    fn of(content: Vec<u8>) -> Self {
        let size = u64::try_from(content.len()).unwrap_or(u64::MAX);
        if content.len() > MAX_OUTPUT {
            return Self { size, text: None, base64: None };
        }
        match String::from_utf8(content) {
            Ok(text) => Self { size, text: Some(text), base64: None },
            Err(other) => {
                Self { size, text: None, base64: Some(STANDARD.encode(other.as_bytes())) }
            }
        }
    }
}

impl TaskDetail {
    /// Reads the output of a task. Blocks.
    pub(super) fn read(
        state: &Scoped,
        view: &runs::RunView,
        task: &EngineTask,
        has_contents: bool,
    ) -> Result<Self, Problem> {
        let has_output = has_contents && task.status == Status::Done;
        let output = has_output.then(|| runs::output(state, view.run, &task.of)).transpose()?;
        let output = output.map(OutputView::of);
        Ok(Self { task: TaskView::of(&view.plan, task, has_contents), output })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_a_decimal_number_with_at_least_two_digits_after_the_point() {
        for (micros, expect) in
            [(0, "0.00"), (5_000_000, "5.00"), (1_310_000, "1.31"), (1_000_001, "1.000001")]
        {
            assert_eq!(decimal(MicroUsd(micros)), expect);
        }
    }
}
