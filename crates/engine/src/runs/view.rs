//! Shows runs of plans: their state now, from the ledger and the files of the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use belljar_ledger::{Digest, Event, LedgerPaths, Query, Reader};
use belljar_model::plan::{CheckedPlan, Plan};
use belljar_model::{Purpose, RunId};

use super::budget::{Amounts, Settlement};
use super::facts;
use super::files::{RunFiles, Submitted};
use super::graph::Graph;
use super::host;
use super::machine::{
    Command, Ended, Fact, FactKind, Moment, Outcome, Phase, RunState, Status, TaskRef, Try, Verdict,
};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record::reading::{each, read};
use crate::record::runs::{self, Purposes, RecordedRun};
use crate::scope::Scoped;

/// The number of lines of a running program that a view contains.
const LAST_LINES: usize = 3;

/// The state of one run.
#[derive(Clone, Debug)]
pub struct RunView {
    pub run: RunId,
    pub name: String,
    pub phase: Phase,
    pub outcome: Option<Outcome>,
    pub accepted: Moment,
    pub ended: Option<Moment>,
    /// The tasks in the order of the plan, with one entry per instance.
    pub tasks: Vec<TaskView>,
}

/// The state of one task, or of one instance.
#[derive(Clone, Debug)]
pub struct TaskView {
    pub of: TaskRef,
    pub status: Status,
    /// The number of the last attempt, 0 before the first.
    pub attempt: u32,
    pub started: Option<Moment>,
    pub ended: Option<Moment>,
    /// The box run of the last attempt.
    pub box_run: Option<RunId>,
    /// The attempt that waits for the decision of a person.
    pub lost: Option<u32>,
    /// Why the last attempt failed or the task was stopped.
    pub reason: Option<String>,
    /// The usage of all attempts.
    pub usage: Amounts,
    /// The last lines of a running program.
    pub lines: Vec<String>,
}

/// Returns the runs of plans, newest first.
pub fn list(state: &Scoped) -> Result<Vec<RecordedRun>, EngineError> {
    let reader = runs::reader(state).context("cannot read the ledger").kind(ErrorKind::Broken)?;
    reader.map_or(Ok(Vec::new()), |reader| runs::list(&reader, &Purposes::of([Purpose::Plan])))
}

/// Returns the state of one run.
pub fn run(state: &Scoped, run: RunId) -> Result<RunView, EngineError> {
    let loaded = Loaded::read(state, run)?;
    let Loaded { submitted, progress, facts, .. } = &loaded;
    let mut details: BTreeMap<TaskRef, TaskView> = BTreeMap::new();
    for fact in facts {
        note(&mut details, fact);
    }
    let mut tasks = Vec::new();
    for task in submitted.plan.tasks() {
        let count = progress.instances(&task.id).filter(|_| task.for_each.is_some());
        let all: Vec<Option<u32>> = match count {
            Some(count) if count > 0 => (0..count).map(Some).collect(),
            _ => vec![None],
        };
        for item in all {
            let of = TaskRef { task: task.id.clone(), item };
            let mut view = details.remove(&of).unwrap_or_else(|| TaskView::new(of.clone()));
            view.status = progress.status(&of).unwrap_or(Status::Waiting);
            if let (Status::Running, Some(box_run)) = (view.status, view.box_run) {
                view.lines = host::tail(state, box_run, LAST_LINES);
            }
            tasks.push(view);
        }
    }
    for Try { task, item, attempt } in progress.attention() {
        let of = TaskRef { task, item };
        if let Some(view) = tasks.iter_mut().find(|view| view.of == of) {
            view.lost = Some(attempt);
        }
    }
    let end = facts.iter().find(|fact| matches!(fact.kind, FactKind::PlanEnded { .. }));
    Ok(RunView {
        run,
        name: submitted.plan.name().to_owned(),
        phase: progress.phase(),
        outcome: progress.outcome(),
        accepted: facts.first().map_or(Moment::default(), |fact| fact.at),
        ended: end.map(|fact| fact.at),
        tasks,
    })
}

/// Reads the output of a task that is done.
pub fn output(state: &Scoped, run: RunId, of: &TaskRef) -> Result<Vec<u8>, EngineError> {
    let Loaded { progress, files, .. } = Loaded::read(state, run)?;
    let not_done = || {
        EngineError::message(ErrorKind::WrongState, format!("task {of} of run {run} is not done"))
    };
    let bound = progress.output(of).ok_or_else(not_done)?.digest;
    let damaged = || {
        let text = format!("the output of task {of} of run {run} is missing or was changed");
        EngineError::message(ErrorKind::Damaged, text)
    };
    let path = files.checked_output(of, bound).ok_or_else(damaged)?;
    std::fs::read(path).kind(ErrorKind::Broken)
}

impl TaskView {
    const fn new(of: TaskRef) -> Self {
        Self {
            of,
            status: Status::Waiting,
            attempt: 0,
            started: None,
            ended: None,
            box_run: None,
            lost: None,
            reason: None,
            usage: Amounts::NONE,
            lines: Vec::new(),
        }
    }
}

fn note(details: &mut BTreeMap<TaskRef, TaskView>, fact: &Fact) {
    let mut change = |of: TaskRef, change: &dyn Fn(&mut TaskView)| {
        change(details.entry(of.clone()).or_insert_with(|| TaskView::new(of)));
    };
    match &fact.kind {
        FactKind::TaskStarted { of, box_run, .. } => change(of.instance(), &|view| {
            (view.attempt, view.box_run) = (of.attempt, *box_run);
            (view.started, view.ended, view.reason) = (Some(fact.at), None, None);
        }),
        FactKind::TaskEnded { of, end, usage } => change(of.instance(), &|view| {
            view.ended = Some(fact.at);
            view.usage = view.usage.plus(usage.unwrap_or_default());
            view.reason = match end {
                Ended::Done(_) => None,
                Ended::Failed { reason, text } => Some(format!("{}: {text}", reason.name())),
                Ended::Lost(evidence) => Some(format!("lost: {}", evidence.name())),
            };
        }),
        FactKind::TaskJudged { of, verdict, usage } => change(of.instance(), &|view| {
            view.usage = view.usage.plus(usage.unwrap_or_default());
            if let Verdict::Rejected { check, text } = verdict {
                view.reason = Some(format!("rejected by check {check}: {text}"));
            }
        }),
        FactKind::TaskLost { of, evidence } => change(of.instance(), &|view| {
            view.reason = Some(format!("lost: {}", evidence.name()));
        }),
        FactKind::TaskStopped { of, reason, .. } => change(of.clone(), &|view| {
            (view.ended, view.reason) = (Some(fact.at), Some(reason.name().to_owned()));
        }),
        FactKind::ApprovalAsked { of, .. } => change(of.instance(), &|view| {
            (view.attempt, view.started) = (of.attempt, Some(fact.at));
        }),
        FactKind::ApprovalGiven { of, .. } => change(of.instance(), &|view| {
            view.ended = Some(fact.at);
        }),
        FactKind::ApprovalRefused { of, why, by, text, .. } => change(of.instance(), &|view| {
            let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            let text = text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            let reason = format!("{}{by}{text}", why.name());
            (view.ended, view.reason) = (Some(fact.at), Some(reason));
        }),
        FactKind::PlanAccepted { .. }
        | FactKind::DriverOpened { .. }
        | FactKind::TaskRetrying { .. }
        | FactKind::AttentionSettled { .. }
        | FactKind::BudgetLeased { .. }
        | FactKind::PlanCancelling { .. }
        | FactKind::PlanEnded { .. } => {}
    }
}

/// A run as the ledger and its files describe it.
pub(super) struct Loaded {
    pub(super) submitted: Submitted,
    pub(super) files: RunFiles,
    /// The digest that binds the files.
    pub(super) bound: Digest,
    pub(super) graph: Arc<Graph>,
    pub(super) progress: RunState,
    pub(super) facts: Vec<Fact>,
    /// The leases that were settled, in whole or in part.
    pub(super) settled: Vec<(Try, Settlement)>,
    /// The index of `run.created`.
    pub(super) created: u64,
    /// The sequence number of the last event of the run.
    pub(super) sequence: u64,
}

impl Loaded {
    pub(super) fn read(state: &Scoped, run: RunId) -> Result<Self, EngineError> {
        let reader = Reader::open(&LedgerPaths::under(state.home()));
        let reader = reader.context("cannot read the ledger").kind(ErrorKind::Broken)?;
        Self::read_in(state, &reader, run)
    }

    pub(super) fn read_in(
        state: &Scoped,
        reader: &Reader,
        run: RunId,
    ) -> Result<Self, EngineError> {
        let (mut facts, mut created, mut sequence) = (Vec::new(), None, 0);
        let query = Query { run: Some(run), ..Query::default() };
        let mut expected = 0;
        each(reader, query, &mut |row| {
            if row.sequence != expected {
                let text = format!("the index of the ledger has no event {expected} of run {run}");
                return Err(EngineError::message(ErrorKind::Damaged, text));
            }
            expected += 1;
            created.get_or_insert(row.index);
            sequence = row.sequence;
            let entry = read(reader, row)?;
            if let Ok(event) = Event::read(&entry.kind, &entry.fields) {
                facts.extend(facts::fact(&event).kind(ErrorKind::Version)?);
            }
            Ok(true)
        })?;
        let bound = facts.iter().find_map(|fact: &Fact| {
            let FactKind::PlanAccepted { plan, .. } = fact.kind else { return None };
            Some(plan)
        });
        let (Some(created), Some(bound)) = (created, bound) else {
            let text = format!("the ledger has no run of a plan with the id {run}");
            return Err(EngineError::message(ErrorKind::NotFound, text));
        };
        let files = RunFiles::of(state.store().layout(), run);
        let submitted = files.read(bound)?;
        let graph = Arc::new(Graph::new(&plan_of(&submitted.plan)));
        let progress = RunState::new(Arc::clone(&graph), run);
        let mut loaded = Self {
            submitted,
            files,
            bound,
            graph,
            progress,
            facts,
            settled: Vec::new(),
            created,
            sequence,
        };
        for fact in &loaded.facts {
            let commands = loaded.progress.apply(fact).into_iter();
            loaded.settled.extend(commands.filter_map(|command| {
                let Command::Settle(of, settlement) = command else { return None };
                Some((of, settlement))
            }));
        }
        Ok(loaded)
    }
}

/// Returns the parts of a checked plan that its graph needs.
fn plan_of(checked: &CheckedPlan) -> Plan {
    let mut plan = Plan::default();
    plan.budget = checked.budget().clone();
    plan.inputs = checked.inputs().clone();
    plan.answer = checked.answer().cloned();
    plan.tasks = checked.tasks().to_vec();
    plan
}
