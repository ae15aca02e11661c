//! One open run in the memory of the driver.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use belljar_ledger::{Actor, Digest, Draft, Event, Reader, RecordError};
use belljar_model::RunId;
use belljar_model::caller::{Caller, Principal, TenantId};
use belljar_model::plan::{Executor, RunBudget, TaskId};

use super::gates::LiveGates;
use crate::approvals::gates::GateFiles;
use crate::error::EngineError;
use crate::record::LedgerHandle;
use crate::runs::budget::{Accounts, Limits, Owner};
use crate::runs::executors::Context;
use crate::runs::facts;
use crate::runs::files::{RunFiles, Submitted};
use crate::runs::graph::Graph;
use crate::runs::machine::{
    Command, Ended, Fact, FactKind, Input, InputKind, Moment, RunState, TaskRef, Try, Verdict,
    advance,
};
use crate::runs::view::Loaded;
use crate::scope::Scoped;

/// An open run: its state, and the facts and commands of the current round.
pub(super) struct Live {
    pub(super) run: RunId,
    pub(super) files: RunFiles,
    pub(super) progress: RunState,
    /// The time of the last fact that was recorded when the run was loaded.
    pub(super) last_fact: Moment,
    submitted: Submitted,
    maker: Option<Principal>,
    bound: Digest,
    graph: Arc<Graph>,
    has_tasks_without_box: bool,
    created: u64,
    sequence: u64,
    /// The box and the start of each attempt that runs.
    started: BTreeMap<Try, (Option<RunId>, Moment)>,
    /// Why the last attempt of an instance failed or was rejected, for the next attempt.
    reasons: BTreeMap<TaskRef, String>,
    /// The gates of the run, and their files.
    pub(super) gates: LiveGates,
    /// The accounts of the limited secrets that the box of a task has.
    secrets: BTreeMap<TaskId, Vec<Owner>>,
    /// Facts that are not recorded yet.
    facts: Vec<Fact>,
    /// Commands that wait until the facts are on disk.
    commands: Vec<Command>,
    /// Requests that are done when the facts are on disk.
    pub(super) requests: Vec<PathBuf>,
}

impl Live {
    /// Loads a run from the ledger and reserves its leases.
    pub(super) fn load(
        state: &Scoped,
        reader: &Reader,
        run: RunId,
        accounts: &mut Accounts,
    ) -> Result<Self, EngineError> {
        let loaded = Loaded::read_in(state, reader, run)?;
        let Loaded { submitted, maker, files, bound, graph, progress, facts, .. } = loaded;
        let (settled, created, sequence) = (loaded.settled, loaded.created, loaded.sequence);
        let has_tasks_without_box = submitted.plan.tasks().iter().any(|task| !task.has_box());
        let mut live = Self {
            run,
            files,
            progress,
            last_fact: facts.iter().map(|fact| fact.at).max().unwrap_or_default(),
            submitted,
            maker,
            bound,
            graph,
            has_tasks_without_box,
            created,
            sequence,
            started: BTreeMap::new(),
            reasons: BTreeMap::new(),
            gates: LiveGates::default(),
            secrets: BTreeMap::new(),
            facts: Vec::new(),
            commands: Vec::new(),
            requests: Vec::new(),
        };
        let tenant = &state.caller().tenant;
        accounts.open(Owner::Run(run), Limits::from(live.graph.budget()));
        for task in live.submitted.plan.tasks() {
            accounts.open(Owner::Task(run, task.id.clone()), Limits::from(&task.budget));
        }
        live.open_secrets(state, accounts);
        for fact in &facts {
            live.note(fact);
            if let FactKind::TaskStarted { of, lease, .. }
            | FactKind::BudgetLeased { of, more: lease } = &fact.kind
            {
                accounts.restore(&live.owners(tenant, &of.task), lease);
            }
        }
        live.gates.look_for_files(&GateFiles::new(state));
        for (of, settlement) in settled {
            let owners = live.owners(tenant, &of.task);
            let (of_tenant, others) = owners.split_at(1);
            accounts.settle(others, &settlement);
            // The database has the usage of all runs of the tenant.
            accounts.settle(of_tenant, &settlement.returned());
        }
        Ok(live)
    }

    /// Returns the accounts that pay for a task. The first one is that of the tenant.
    pub(super) fn owners(&self, tenant: &TenantId, task: &TaskId) -> Vec<Owner> {
        let mut owners = vec![
            Owner::Tenant(tenant.clone()),
            Owner::Run(self.run),
            Owner::Task(self.run, task.clone()),
        ];
        owners.extend(self.secrets.get(task).into_iter().flatten().cloned());
        owners
    }

    /// Opens the accounts of secrets with a limit, for the run and for its tasks.
    fn open_secrets(&mut self, state: &Scoped, accounts: &mut Accounts) {
        let plan = &self.submitted.plan;
        let is_limited = |budget: &RunBudget| !budget.secrets.is_empty();
        let any = is_limited(plan.budget()) || plan.tasks().iter().any(|it| is_limited(&it.budget));
        if !any {
            return;
        }
        let mut all = BTreeMap::new();
        for task in plan.tasks() {
            let mut owners = Vec::new();
            for name in self.context(state).secrets(task) {
                let of_run = plan.budget().secrets.get(&name);
                let of_run = of_run.map(|cap| (Owner::Secret(self.run, name.clone()), cap));
                let of_task = task.budget.secrets.get(&name);
                let id = || task.id.clone();
                let of_task = of_task.map(|cap| (Owner::TaskSecret(self.run, id(), name), cap));
                for (owner, cap) in of_run.into_iter().chain(of_task) {
                    accounts.open(owner.clone(), Limits::from(cap));
                    owners.push(owner);
                }
            }
            all.insert(task.id.clone(), owners);
        }
        self.secrets = all;
    }

    pub(super) fn context<'a>(&'a self, state: &'a Scoped) -> Context<'a> {
        Context {
            state,
            run: self.run,
            plan: &self.submitted.plan,
            graph: &self.graph,
            bound: self.bound,
            base: &self.submitted.base,
            files: &self.files,
            progress: &self.progress,
            reasons: &self.reasons,
        }
    }

    /// Returns the scope of the principal that submitted the plan. The boxes of the run belong to it, whoever
    /// started the driver.
    pub(super) fn scope_of_maker(&self, state: &Scoped) -> Result<Scoped, EngineError> {
        let Some(principal) = self.maker.clone() else { return Ok(state.clone()) };
        let tenant = state.caller().tenant.clone();
        state.for_caller(Caller { principal, tenant, session: None, client: None })
    }

    pub(super) fn plan_name(&self) -> &str {
        self.submitted.plan.name()
    }

    /// Returns the question of a gate.
    pub(super) fn question(&self, of: &TaskRef) -> &str {
        match self.submitted.plan.task(&of.task).map(|task| &task.executor) {
            Some(Executor::Approval { question, .. }) => question,
            _ => "",
        }
    }

    /// Returns whether a task runs in a box.
    pub(super) fn has_box(&self, task: &TaskId) -> bool {
        self.submitted.plan.task(task).is_some_and(belljar_model::plan::Task::has_box)
    }

    /// Returns whether the plan has tasks that run without a box.
    pub(super) const fn has_tasks_without_box(&self) -> bool {
        self.has_tasks_without_box
    }

    /// Returns the budget of a task.
    pub(super) fn cap(&self, task: &TaskId) -> Limits {
        self.graph.task_budget(task).map(Limits::from).unwrap_or_default()
    }

    /// Returns the time at which the stub of an attempt ends.
    pub(super) fn stub_end(&self, of: &Try) -> Moment {
        let started = self.started.get(of).map_or(Moment::default(), |(_, at)| *at);
        match self.submitted.plan.task(&of.task).map(|task| &task.executor) {
            Some(Executor::Stub { delay, .. }) => {
                started.after(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
            }
            _ => started,
        }
    }

    /// Returns the box of an attempt that runs.
    pub(super) fn box_of(&self, of: &Try) -> Option<RunId> {
        self.started.get(of)?.0
    }

    /// Decides and applies an input with its consequences. Returns the new facts.
    pub(super) fn give(&mut self, at: Moment, random: u32, kind: InputKind) -> &[Fact] {
        let (facts, commands) = advance(&mut self.progress, &Input { at, random, kind });
        facts.iter().for_each(|fact| self.note(fact));
        let first = self.facts.len();
        self.facts.extend(facts);
        self.commands.extend(commands);
        self.facts.get(first..).unwrap_or_default()
    }

    fn note(&mut self, fact: &Fact) {
        self.gates.note(fact);
        if let FactKind::TaskEnded { of, end: Ended::Failed { reason, text }, .. } = &fact.kind {
            self.reasons.insert(of.instance(), format!("{}: {text}", reason.name()));
        }
        if let FactKind::TaskJudged { of, verdict: Verdict::Rejected { check, text }, .. } =
            &fact.kind
        {
            let text = format!("rejected by check {check}: {text}");
            self.reasons.insert(of.instance(), text);
        }
        if let FactKind::TaskStarted { of, box_run, .. } = &fact.kind {
            self.started.insert(of.clone(), (*box_run, fact.at));
        }
        if let FactKind::TaskEnded { of, .. } | FactKind::TaskLost { of, .. } = &fact.kind {
            self.started.remove(of);
        }
    }

    /// Adds commands that do not follow from a fact.
    pub(super) fn repeat(&mut self, commands: Vec<Command>) {
        self.commands.extend(commands);
    }

    /// Takes the commands that need no fact on disk: changes of the accounts.
    pub(super) fn settlements(&mut self) -> Vec<Command> {
        let is_settlement = |command: &mut Command| matches!(command, Command::Settle(..));
        self.commands.extract_if(.., is_settlement).collect()
    }

    /// Returns the events of the facts that are not recorded yet.
    pub(super) fn drafts(&self) -> Vec<Draft> {
        let mut drafts: Vec<Draft> = Vec::with_capacity(self.facts.len());
        for fact in &self.facts {
            let draft = Draft::new(facts::event(fact)).of_run(self.run).by(Actor::Driver);
            let is_end = matches!(fact.kind, FactKind::PlanEnded { .. });
            let draft = draft.because_of_index(is_end.then_some(self.created));
            drafts.push(if drafts.is_empty() { draft.after(self.sequence) } else { draft });
        }
        drafts
    }

    /// Records one event of the run at once, before the facts that are not recorded yet. Returns its index.
    pub(super) fn record(
        &mut self,
        ledger: &LedgerHandle,
        event: impl Into<Event>,
        cause: Option<u64>,
    ) -> Result<u64, RecordError> {
        let draft = Draft::new(event).of_run(self.run).by(Actor::Driver);
        let receipt = ledger.record(draft.because_of_index(cause).after(self.sequence))?;
        self.sequence = self.sequence.saturating_add(1);
        Ok(receipt.index())
    }

    /// Notes that all facts are on disk. Returns the commands that can be carried out now.
    pub(super) fn recorded(&mut self) -> Vec<Command> {
        let count = u64::try_from(self.facts.len()).unwrap_or(u64::MAX);
        self.sequence = self.sequence.saturating_add(count);
        self.facts.clear();
        std::mem::take(&mut self.commands)
    }
}
