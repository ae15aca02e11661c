//! Shows runs of plans: their state now, from the ledger and the files of the run.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use belljar_ledger::{Digest, Event, LedgerPaths, Query, Reader};
use belljar_model::caller::Principal;
use belljar_model::plan::{CheckedPlan, Plan};
use belljar_model::{Purpose, RunId};

use super::budget::{Amounts, Settlement};
use super::executors;
use super::facts;
use super::files::{RunFiles, Submitted};
use super::graph::Graph;
use super::host;
use super::machine::{
    CheckResult, Command, Ended, Fact, FactKind, Moment, Outcome, Phase, RunState, Settled, Status,
    TaskRef, Try, Verdict,
};
use super::rows::{self, RunsQuery};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record::reading::{each, read};
use crate::record::runs::{self, Purposes, RecordedRun};
use crate::scope::Scoped;

/// The minimum length of a prefix of a run id.
const MIN_PREFIX: usize = 4;

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
    /// The plan as it was submitted.
    pub plan: Arc<CheckedPlan>,
    /// The directory that relative paths of the plan refer to.
    pub base: PathBuf,
    /// The number of the last driver that opened the run; 0 before the first.
    pub epoch: u64,
    /// The tasks in the order of the plan, with one entry per instance.
    pub tasks: Vec<TaskView>,
}

impl RunView {
    /// Returns the usage of all tasks.
    pub fn usage(&self) -> Amounts {
        self.tasks.iter().fold(Amounts::NONE, |sum, task| sum.plus(task.usage))
    }

    /// Returns the state of a task or of an instance.
    pub fn task(&self, of: &TaskRef) -> Option<&TaskView> {
        self.tasks.iter().find(|task| task.of == *of)
    }

    /// Returns the number of tasks and instances that are done.
    pub fn done(&self) -> usize {
        self.tasks.iter().filter(|task| task.status == Status::Done).count()
    }
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
    /// The digest of the gate with the time of its automatic refusal, once it was asked.
    pub gate: Option<(Digest, Moment)>,
    /// Why the last attempt failed or the task was stopped.
    pub reason: Option<String>,
    /// The person who answered the gate or decided about the lost attempt.
    pub by: Option<String>,
    /// The number of the tier of the last attempt, from 0.
    pub tier: u32,
    /// The usage of all attempts.
    pub usage: Amounts,
    /// The last lines of a running program.
    pub lines: Vec<String>,
    /// The labels of the output, once the task is done.
    pub labels: Vec<String>,
    /// The results of the checks of the last output that was checked.
    pub checks: Vec<CheckResult>,
}

/// Returns the runs of plans, newest first.
pub fn list(state: &Scoped) -> Result<Vec<RecordedRun>, EngineError> {
    let reader = runs::reader(state).context("cannot read the ledger").kind(ErrorKind::Broken)?;
    reader.map_or(Ok(Vec::new()), |reader| runs::list(&reader, &Purposes::of([Purpose::Plan])))
}

/// Finds the run of a plan by its id, a prefix of its id, or the name of its plan. Of several runs of a
/// plan with this name, the newest one is returned.
pub fn find(state: &Scoped, text: &str) -> Result<RunId, EngineError> {
    let missing = || {
        let text = format!("there is no run of a plan {text:?}");
        let error = EngineError::message(ErrorKind::NotFound, text);
        error.advise("`belljar runs --all` lists all runs")
    };
    let reader = runs::reader(state).context("cannot read the ledger").kind(ErrorKind::Broken)?;
    let Some(reader) = reader else { return Err(missing()) };
    let layout = state.store().layout();
    if text.len() >= MIN_PREFIX {
        let mut found = reader.find_run(text).kind(ErrorKind::Broken)?;
        found.retain(|run| RunFiles::of(layout, *run).exist());
        match found.as_slice() {
            [] => {}
            [run] => return Ok(*run),
            many => {
                let text = format!("run id prefix {text:?} is ambiguous ({} matches)", many.len());
                return Err(
                    EngineError::message(ErrorKind::Invalid, text).advise("use a longer prefix")
                );
            }
        }
    }
    let mut query = RunsQuery { name: Some(text.to_owned()), ..RunsQuery::default() };
    loop {
        let page = rows::runs(state, &query)?;
        // A run whose files were removed cannot be shown.
        if let Some(row) = page.rows.iter().find(|row| has_files(state, row.run)) {
            return Ok(row.run);
        }
        query.after = Some(page.next.ok_or_else(missing)?);
    }
}

/// Returns whether a run is the run of a plan with files here.
pub fn has_files(state: &Scoped, run: RunId) -> bool {
    RunFiles::of(state.store().layout(), run).exist()
}

/// Returns the runs of plans that have not ended, oldest first.
pub fn open(state: &Scoped) -> Result<Vec<RunId>, EngineError> {
    let reader = runs::reader(state).context("cannot read the ledger").kind(ErrorKind::Broken)?;
    let Some(reader) = reader else { return Ok(Vec::new()) };
    let layout = state.store().layout();
    let unsettled = reader.unsettled(None).kind(ErrorKind::Broken)?;
    let created = unsettled.iter().filter(|row| row.kind == "run.created");
    let mut runs: Vec<RunId> = created.filter_map(|row| row.run).collect();
    runs.retain(|run| RunFiles::of(layout, *run).exist());
    runs.sort_unstable();
    Ok(runs)
}

/// Returns the index of the event `plan.accepted` of a run.
pub fn accepted_event(state: &Scoped, run: RunId) -> Result<Option<u64>, EngineError> {
    let reader = runs::reader(state).context("cannot read the ledger").kind(ErrorKind::Broken)?;
    let Some(reader) = reader else { return Ok(None) };
    let query = Query {
        run: Some(run),
        kind: Some("plan.accepted".to_owned()),
        limit: Some(1),
        ..Query::default()
    };
    let rows = reader.events(&query).kind(ErrorKind::Broken)?;
    Ok(rows.first().map(|row| row.index))
}

/// Returns the state of one run.
pub fn run(state: &Scoped, run: RunId) -> Result<RunView, EngineError> {
    Ok(FollowedRun::open(state, run)?.view(state))
}

/// A run whose state is brought up to date from the new events of its chain.
pub struct FollowedRun {
    run: RunId,
    reader: Reader,
    /// The number of events of the ledger that were read.
    read: u64,
    loaded: Loaded,
    plan: Arc<CheckedPlan>,
    details: BTreeMap<TaskRef, TaskView>,
    accepted: Moment,
    ended: Option<Moment>,
}

impl std::fmt::Debug for FollowedRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FollowedRun").field("run", &self.run).finish_non_exhaustive()
    }
}

impl FollowedRun {
    /// Reads a run from the ledger and its files.
    pub fn open(state: &Scoped, run: RunId) -> Result<Self, EngineError> {
        let reader = Reader::open(&LedgerPaths::under(state.home()));
        let reader = reader.context("cannot read the ledger").kind(ErrorKind::Broken)?;
        let read = reader.size();
        let mut loaded = Loaded::read_in(state, &reader, run)?;
        let plan = Arc::new(loaded.submitted.plan.clone());
        let facts = std::mem::take(&mut loaded.facts);
        let mut followed = Self {
            run,
            reader,
            read,
            plan,
            details: BTreeMap::new(),
            accepted: facts.first().map_or(Moment::default(), |fact| fact.at),
            ended: None,
            loaded,
        };
        facts.iter().for_each(|fact| followed.note(fact));
        Ok(followed)
    }

    /// Reads the events of the run that were recorded since the last call, and returns their facts.
    pub fn refresh(&mut self) -> Result<Vec<Fact>, EngineError> {
        let size = self.reader.refresh().kind(ErrorKind::Broken)?;
        if size == self.read {
            return Ok(Vec::new());
        }
        let after = self.read.checked_sub(1);
        let query = Query { run: Some(self.run), after, before: Some(size), ..Query::default() };
        let (mut facts, mut sequence) = (Vec::new(), self.loaded.sequence);
        each(&self.reader, query, &mut |row| {
            // The index can have been ahead of the size when the run was loaded.
            if row.sequence <= sequence {
                return Ok(true);
            }
            sequence = row.sequence;
            let entry = read(&self.reader, row)?;
            if let Ok(event) = Event::read(&entry.kind, &entry.fields) {
                facts.extend(facts::fact(&event).kind(ErrorKind::Version)?);
            }
            Ok(true)
        })?;
        (self.read, self.loaded.sequence) = (size, sequence);
        for fact in &facts {
            self.loaded.progress.apply(fact);
            self.note(fact);
        }
        Ok(facts)
    }

    fn note(&mut self, fact: &Fact) {
        note(&mut self.details, fact);
        if matches!(fact.kind, FactKind::PlanEnded { .. }) {
            self.ended = Some(fact.at);
        }
    }

    /// Returns the result of the run, once it ended.
    pub const fn outcome(&self) -> Option<Outcome> {
        self.loaded.progress.outcome()
    }

    /// Returns the size of the output of a task that is done, in bytes.
    pub fn output_size(&self, of: &TaskRef) -> Option<u64> {
        self.loaded.progress.output(of).map(|output| output.size)
    }

    /// Reads the output of a task that is done.
    pub fn output(&self, of: &TaskRef) -> Result<Vec<u8>, EngineError> {
        let (run, Loaded { progress, files, .. }) = (self.run, &self.loaded);
        let not_done = || {
            let text = format!("task {of} of run {run} is not done");
            EngineError::message(ErrorKind::WrongState, text)
        };
        let bound = progress.output(of).ok_or_else(not_done)?.digest;
        let damaged = || {
            let text = format!("the output of task {of} of run {run} is missing or was changed");
            EngineError::message(ErrorKind::Damaged, text)
        };
        let path = files.checked_output(of, bound).ok_or_else(damaged)?;
        fs::read(path).kind(ErrorKind::Broken)
    }

    /// Returns the state of the run.
    pub fn view(&self, state: &Scoped) -> RunView {
        let Loaded { submitted, progress, .. } = &self.loaded;
        let mut tasks = Vec::new();
        for task in self.plan.tasks() {
            let count = progress.instances(&task.id).filter(|_| task.for_each.is_some());
            let all: Vec<Option<u32>> = match count {
                Some(count) if count > 0 => (0..count).map(Some).collect(),
                _ => vec![None],
            };
            for item in all {
                let of = TaskRef { task: task.id.clone(), item };
                let known = self.details.get(&of).cloned();
                let mut view = known.unwrap_or_else(|| TaskView::new(of.clone()));
                view.status = progress.status(&of).unwrap_or(Status::Waiting);
                let labels = progress.output(&of).into_iter().flat_map(|output| &output.labels);
                view.labels = labels.map(ToString::to_string).collect();
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
        RunView {
            run: self.run,
            name: self.plan.name().to_owned(),
            phase: progress.phase(),
            outcome: progress.outcome(),
            accepted: self.accepted,
            ended: self.ended,
            plan: Arc::clone(&self.plan),
            base: submitted.base.clone(),
            epoch: progress.epoch(),
            tasks,
        }
    }
}

/// Reads the output of a task that is done.
pub fn output(state: &Scoped, run: RunId, of: &TaskRef) -> Result<Vec<u8>, EngineError> {
    FollowedRun::open(state, run)?.output(of)
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
            gate: None,
            reason: None,
            by: None,
            tier: 0,
            usage: Amounts::NONE,
            lines: Vec::new(),
            labels: Vec::new(),
            checks: Vec::new(),
        }
    }
}

fn note(details: &mut BTreeMap<TaskRef, TaskView>, fact: &Fact) {
    let mut change = |of: TaskRef, change: &dyn Fn(&mut TaskView)| {
        change(details.entry(of.clone()).or_insert_with(|| TaskView::new(of)));
    };
    match &fact.kind {
        FactKind::TaskStarted { of, box_run, tier, .. } => change(of.instance(), &|view| {
            (view.attempt, view.box_run, view.tier) = (of.attempt, *box_run, *tier);
            (view.started, view.ended, view.reason) = (Some(fact.at), None, None);
            view.checks.clear();
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
        FactKind::TaskJudged { of, verdict, usage, checks } => change(of.instance(), &|view| {
            view.usage = view.usage.plus(usage.unwrap_or_default());
            view.checks.clone_from(&checks.results);
            if let Verdict::Rejected { check, text } = verdict {
                view.reason = Some(format!("rejected by check {check}: {text}"));
            }
        }),
        FactKind::TaskLost { of, evidence } => change(of.instance(), &|view| {
            view.reason = Some(format!("lost: {}", evidence.name()));
        }),
        FactKind::TaskStopped { of, reason, usage, used_up, .. } => change(of.clone(), &|view| {
            let used_up = used_up.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
            view.usage = view.usage.plus(usage.unwrap_or_default());
            (view.ended, view.reason) =
                (Some(fact.at), Some(format!("{}{used_up}", reason.name())));
        }),
        FactKind::ApprovalAsked { of, digest, deadline } => change(of.instance(), &|view| {
            (view.attempt, view.started) = (of.attempt, Some(fact.at));
            view.gate = Some((*digest, *deadline));
        }),
        FactKind::ApprovalGiven { of, by, .. } => change(of.instance(), &|view| {
            (view.ended, view.by) = (Some(fact.at), Some(by.to_string()));
        }),
        FactKind::ApprovalRefused { of, why, by, text, .. } => change(of.instance(), &|view| {
            let text = text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            view.ended = Some(fact.at);
            view.by = by.as_ref().map(ToString::to_string);
            view.reason = Some(format!("{}{text}", why.name()));
        }),
        FactKind::AttentionSettled { of, how, by } => change(of.instance(), &|view| {
            view.by = Some(by.to_string());
            view.reason = match how {
                Settled::Rerun => None,
                Settled::Done(_) if view.attempt == 0 => {
                    Some("output of an earlier run".to_owned())
                }
                Settled::Done(_) => Some("output given by a person".to_owned()),
                Settled::Failed => Some("settled as failed".to_owned()),
            };
            if !matches!(how, Settled::Rerun) {
                view.ended = Some(fact.at);
            }
        }),
        FactKind::PlanAccepted { .. }
        | FactKind::DriverOpened { .. }
        | FactKind::GrantRemoved { .. }
        | FactKind::TaskRetrying { .. }
        | FactKind::BudgetLeased { .. }
        | FactKind::PlanCancelling { .. }
        | FactKind::PlanEnded { .. } => {}
    }
}

/// A run as the ledger and its files describe it.
pub(super) struct Loaded {
    pub(super) submitted: Submitted,
    /// The principal that submitted the plan; `None` in ledgers of older versions.
    pub(super) maker: Option<Principal>,
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
        let (mut expected, mut maker) = (0, None);
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
                if let Event::RunCreated(created) = event {
                    maker = created.principal.and_then(|text| text.parse().ok());
                }
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
        let taint = executors::read_taint(&files, bound)?;
        let graph = Arc::new(Graph::with_taint(&plan_of(&submitted.plan), &taint));
        let progress = RunState::new(Arc::clone(&graph), run);
        let mut loaded = Self {
            submitted,
            maker,
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
