//! The state of a run, and questions about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use belljar_ledger::Digest;
use belljar_model::RunId;
use belljar_model::plan::{Label, TaskId};

use super::types::{Command, Moment, Outcome, Output, Phase, Status, StopReason, TaskRef, Try};
use crate::runs::budget::Limits;
use crate::runs::graph::{Graph, Items, ItemsError, MAX_INSTANCES, TaskIx};

/// The longest pause between two attempts.
const MAX_BACKOFF: Duration = Duration::from_mins(5);

/// The state of one run. Only [`apply`](Self::apply) changes it.
///
/// Each fact costs work in proportion to the tasks that it changes, not to the size of the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct RunState {
    pub(super) graph: Arc<Graph>,
    pub(super) run: RunId,
    /// The digests of the plan and of the policy, once the plan is accepted.
    pub(super) accepted: Option<(Digest, Digest)>,
    pub(super) epoch: u64,
    /// The time of the last fact.
    pub(super) clock: Moment,
    pub(super) tasks: Vec<TaskState>,
    pub(super) instances: Vec<Instance>,
    /// The number of instances whose number came from an output.
    pub(super) dynamic: u32,
    pub(super) open_tasks: u32,
    pub(super) ready: BTreeSet<InstanceIx>,
    pub(super) running: BTreeSet<InstanceIx>,
    pub(super) judging: BTreeSet<InstanceIx>,
    pub(super) attention: BTreeSet<InstanceIx>,
    pub(super) gates: BTreeMap<Digest, InstanceIx>,
    /// The due times of attempts and the deadlines of gates.
    pub(super) timers: BTreeSet<(Moment, InstanceIx)>,
    /// Facts that follow from earlier facts and are not recorded yet.
    pub(super) pending: BTreeSet<Pending>,
    pub(super) cancelling: bool,
    pub(super) over_budget: bool,
    pub(super) outcome: Option<Outcome>,
}

/// The index of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct InstanceIx(pub(super) u32);

/// A fact that follows from earlier facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pending {
    /// The task ends without an instance.
    Stop(TaskIx),
    Cancel(InstanceIx),
    Retry(InstanceIx),
    Ask(InstanceIx),
    End,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TaskState {
    pub(super) progress: Progress,
    pub(super) inputs: Inputs,
    /// The result of the task's condition, once known.
    pub(super) condition: bool,
    /// The number of items, once known from an output.
    pub(super) items: Option<Result<u32, ItemsError>>,
    /// The labels of the outputs and inputs that the task reads, and of its own box.
    pub(super) labels: BTreeSet<Label>,
    /// The digest of the outputs that the task reads, once its instances exist.
    pub(super) digest: Option<Digest>,
    pub(super) cancelling: bool,
    /// The first instance and the number of instances.
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) open: u32,
    pub(super) done: u32,
    /// The status of the first instance that ended badly.
    pub(super) worst: Option<Status>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    /// The instances exist.
    Open,
    Final(Status),
}

/// What is known about the inputs of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Inputs {
    /// The number of tasks before this task that are not final.
    pub(super) open: u32,
    /// An input without `?` failed, or was stopped or cancelled.
    pub(super) failed: bool,
    /// An input without `?` was skipped.
    pub(super) skipped: bool,
    pub(super) has_optional: bool,
    /// An instance of an input with `?` is done.
    pub(super) optional_done: bool,
    pub(super) optional_failed: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Instance {
    pub(super) task: TaskIx,
    pub(super) item: Option<u32>,
    /// The number of the last attempt, 0 before the first.
    pub(super) attempt: u32,
    pub(super) tier: u32,
    /// The number of attempts in this tier that count.
    pub(super) used: u32,
    /// The number of lost attempts that were repeated.
    pub(super) lost: u32,
    pub(super) cancelling: bool,
    /// The reserved amounts of a running or judged attempt.
    pub(super) lease: Option<Box<Limits>>,
    pub(super) state: State,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    Ready,
    Running,
    Judging(Box<Output>),
    /// The attempt failed, and the time of the next one is not recorded yet.
    Retrying,
    Backoff {
        due: Moment,
    },
    /// The gate can be asked, and the question is not recorded yet.
    Asking,
    Gated {
        digest: Digest,
        deadline: Moment,
    },
    Attention {
        attempt: u32,
    },
    Done(Box<Output>),
    Failed,
    Stopped,
    Cancelled,
}

/// What the inputs of a waiting task mean for the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resolution {
    Wait,
    Stop(StopReason),
    Release(u32),
}

impl State {
    pub(super) const fn status(&self) -> Status {
        match self {
            Self::Ready => Status::Ready,
            Self::Running => Status::Running,
            Self::Judging(_) => Status::Judging,
            Self::Retrying | Self::Backoff { .. } => Status::Backoff,
            Self::Asking => Status::Waiting,
            Self::Gated { .. } => Status::Gated,
            Self::Attention { .. } => Status::Attention,
            Self::Done(_) => Status::Done,
            Self::Failed => Status::Failed,
            Self::Stopped => Status::Stopped,
            Self::Cancelled => Status::Cancelled,
        }
    }
}

impl RunState {
    /// Creates the state of a run before its first fact.
    pub fn new(graph: Arc<Graph>, run: RunId) -> Self {
        let tasks: Vec<TaskState> = graph
            .tasks()
            .map(|(_, node)| TaskState {
                progress: Progress::Waiting,
                inputs: Inputs {
                    open: u32::try_from(node.inputs.len()).unwrap_or(u32::MAX),
                    has_optional: node.inputs.iter().any(|link| link.optional),
                    ..Inputs::default()
                },
                condition: false,
                items: None,
                labels: node.own.iter().map(|(label, _)| label.clone()).collect(),
                digest: None,
                cancelling: false,
                first: 0,
                count: 0,
                open: 0,
                done: 0,
                worst: None,
            })
            .collect();
        Self {
            graph,
            run,
            accepted: None,
            epoch: 0,
            clock: Moment::default(),
            open_tasks: u32::try_from(tasks.len()).unwrap_or(u32::MAX),
            tasks,
            instances: Vec::new(),
            dynamic: 0,
            ready: BTreeSet::new(),
            running: BTreeSet::new(),
            judging: BTreeSet::new(),
            attention: BTreeSet::new(),
            gates: BTreeMap::new(),
            timers: BTreeSet::new(),
            pending: BTreeSet::new(),
            cancelling: false,
            over_budget: false,
            outcome: None,
        }
    }

    /// The id of the run.
    pub const fn run(&self) -> RunId {
        self.run
    }

    /// The graph of the plan.
    pub const fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// The result of the run, once it ended.
    pub const fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// The number of the last driver that opened the run.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the state of the run as a whole.
    pub fn phase(&self) -> Phase {
        let has_backoff = self.timers.len() > self.gates.len();
        if self.outcome.is_some() {
            Phase::Ended
        } else if !self.attention.is_empty() {
            Phase::Attention
        } else if self.ready.is_empty()
            && self.running.is_empty()
            && self.judging.is_empty()
            && !has_backoff
            && !self.gates.is_empty()
        {
            Phase::Waiting
        } else {
            Phase::Running
        }
    }

    /// Returns the state of a task. With instances, it is the state of the task as a whole: `running`
    /// until all instances are final.
    pub fn task_status(&self, task: &TaskId) -> Option<Status> {
        let task = self.task(self.graph.find(task)?);
        Some(match (task.progress, task.count) {
            (Progress::Waiting, _) => Status::Waiting,
            (Progress::Open, 1) => self.at(InstanceIx(task.first)).state.status(),
            (Progress::Open, _) => Status::Running,
            (Progress::Final(status), _) => status,
        })
    }

    /// Returns the state of an instance, or of its task before its instances exist.
    pub fn status(&self, of: &TaskRef) -> Option<Status> {
        match self.instance(&of.task, of.item) {
            Some(ix) => Some(self.at(ix).state.status()),
            None => self.task_status(&of.task),
        }
    }

    /// Returns the number of instances of a task; `None` before they exist.
    pub fn instances(&self, task: &TaskId) -> Option<u32> {
        let task = self.task(self.graph.find(task)?);
        (task.progress != Progress::Waiting).then_some(task.count)
    }

    /// Returns the output of an instance that is done.
    pub fn output(&self, of: &TaskRef) -> Option<&Output> {
        match &self.at(self.instance(&of.task, of.item)?).state {
            State::Done(output) => Some(output),
            State::Ready
            | State::Running
            | State::Judging(_)
            | State::Retrying
            | State::Backoff { .. }
            | State::Asking
            | State::Gated { .. }
            | State::Attention { .. }
            | State::Failed
            | State::Stopped
            | State::Cancelled => None,
        }
    }

    /// Returns the number of the tier of an instance, from 0.
    pub fn tier(&self, of: &TaskRef) -> Option<u32> {
        Some(self.at(self.instance(&of.task, of.item)?).tier)
    }

    /// Returns the output of an instance that is being checked.
    pub fn judged_output(&self, of: &TaskRef) -> Option<&Output> {
        let state = &self.at(self.instance(&of.task, of.item)?).state;
        if let State::Judging(output) = state { Some(output) } else { None }
    }

    /// Returns the attempts whose hosts run, or ran before a crash, with their leases.
    pub fn running(&self) -> impl Iterator<Item = (Try, &Limits)> {
        self.running
            .iter()
            .filter_map(|ix| Some((self.current(*ix), self.at(*ix).lease.as_deref()?)))
    }

    /// Returns the attempts whose output is being checked, with the rest of their leases.
    pub fn judging(&self) -> impl Iterator<Item = (Try, &Limits)> {
        self.judging
            .iter()
            .filter_map(|ix| Some((self.current(*ix), self.at(*ix).lease.as_deref()?)))
    }

    /// Returns the lost attempts that wait for the decision of a person.
    pub fn attention(&self) -> impl Iterator<Item = Try> {
        self.attention.iter().filter_map(|ix| {
            let State::Attention { attempt } = self.at(*ix).state else { return None };
            Some(Try { attempt, ..self.current(*ix) })
        })
    }

    /// Returns the digests of the open gates.
    pub fn gates(&self) -> impl Iterator<Item = &Digest> {
        self.gates.keys()
    }

    /// Returns the attempts that need a lease at this time: ready tasks, and retries that are due.
    pub fn startable(&self, now: Moment) -> impl Iterator<Item = Try> {
        let ready = self.ready.iter().copied();
        ready.chain(self.due_retries(now)).map(|ix| self.next(ix))
    }

    /// Returns whether something follows from the state at this time: a consequence of earlier facts, a
    /// task that can start, or a retry or deadline that is due.
    pub fn has_work(&self, now: Moment) -> bool {
        let is_due = self.timers.first().is_some_and(|(due, _)| *due <= now);
        !self.pending.is_empty() || !self.ready.is_empty() || is_due
    }

    /// Returns the time of the next retry or deadline after `now`.
    pub fn next_wake(&self, now: Moment) -> Option<Moment> {
        let later = (now.after(1), InstanceIx(0));
        self.timers.range(later..).next().map(|(due, _)| *due)
    }

    /// Returns the commands that a new driver repeats. It looks at the hosts of [`running`] attempts
    /// itself, and reports what it found.
    ///
    /// [`running`]: Self::running
    pub fn resume(&self, now: Moment) -> Vec<Command> {
        let mut commands: Vec<Command> = self.startable(now).map(Command::Reserve).collect();
        for ix in &self.running {
            if self.at(*ix).cancelling {
                commands.push(Command::Kill(self.current(*ix)));
            }
        }
        for ix in &self.judging {
            let current = self.current(*ix);
            let cancelling = self.at(*ix).cancelling;
            commands.push(if cancelling {
                Command::Kill(current)
            } else {
                Command::Judge(current)
            });
        }
        commands.extend(self.gates.keys().copied().map(Command::Notify));
        commands.extend(self.next_wake(now).map(Command::Wake));
        commands
    }

    /// Returns the retries that are due.
    fn due_retries(&self, now: Moment) -> impl Iterator<Item = InstanceIx> {
        let due = self.timers.range(..=(now, InstanceIx(u32::MAX)));
        let is_retry = |ix: &InstanceIx| matches!(self.at(*ix).state, State::Backoff { .. });
        due.map(|(_, ix)| *ix).filter(is_retry)
    }

    /// Returns the gates whose deadline has passed.
    pub(super) fn expired(&self, now: Moment) -> impl Iterator<Item = InstanceIx> {
        let due = self.timers.range(..=(now, InstanceIx(u32::MAX)));
        let is_gate = |ix: &InstanceIx| matches!(self.at(*ix).state, State::Gated { .. });
        due.map(|(_, ix)| *ix).filter(is_gate)
    }

    /// Returns the tier and the pause in milliseconds of the next attempt after a failure.
    pub(super) fn retry(&self, ix: InstanceIx) -> Option<(u32, u64)> {
        let instance = self.at(ix);
        let node = &self.graph[instance.task];
        let (tier, failures) = if instance.used < node.attempts {
            (instance.tier, instance.used)
        } else if instance.tier.saturating_add(1) < node.tiers {
            (instance.tier.saturating_add(1), 1)
        } else {
            return None;
        };
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let pause = node.backoff.saturating_mul(doubled).min(MAX_BACKOFF);
        Some((tier, u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns what the inputs of a waiting task mean for it. The answer does not depend on the order
    /// in which the inputs ended.
    pub(super) fn resolve(&self, ix: TaskIx) -> Resolution {
        let (task, node) = (self.task(ix), &self.graph[ix]);
        let inputs = task.inputs;
        if self.cancelling || task.cancelling {
            return Resolution::Stop(StopReason::Cancelled);
        }
        if inputs.failed {
            return Resolution::Stop(StopReason::InputFailed);
        }
        if inputs.open > 0 {
            return Resolution::Wait;
        }
        let none_done = inputs.has_optional && !inputs.optional_done;
        if none_done && inputs.optional_failed {
            return Resolution::Stop(StopReason::InputFailed);
        }
        if none_done || inputs.skipped {
            return Resolution::Stop(StopReason::InputSkipped);
        }
        if node.has_when && !task.condition {
            return Resolution::Stop(StopReason::Condition);
        }
        match (node.items, task.items) {
            (Items::One, _) => Resolution::Release(1),
            (Items::Fixed(count), _) => Resolution::Release(count),
            (Items::Output, Some(Ok(count))) if self.fits(count) => Resolution::Release(count),
            (Items::Output, Some(Ok(_) | Err(ItemsError::TooMany))) => {
                Resolution::Stop(StopReason::TooLarge)
            }
            (Items::Output, Some(Err(ItemsError::NoList))) => Resolution::Stop(StopReason::NoList),
            // The task with the list is not done, and the plan accepts that with `?`.
            (Items::Output, None) => Resolution::Stop(StopReason::InputSkipped),
        }
    }

    fn fits(&self, count: u32) -> bool {
        let all = self.graph.fixed_instances().saturating_add(self.dynamic).saturating_add(count);
        all <= MAX_INSTANCES
    }

    /// Returns the run's result when all tasks are final.
    pub(super) fn result(&self) -> Outcome {
        let status = |ix| match self.task(ix).progress {
            Progress::Final(status) => status,
            Progress::Waiting | Progress::Open => Status::Waiting,
        };
        let succeeded = match self.graph.answer() {
            Some(answer) => status(answer) == Status::Done,
            None => {
                let mut sinks = self.graph.tasks().filter(|(_, node)| node.dependents.is_empty());
                sinks.all(|(ix, _)| matches!(status(ix), Status::Done | Status::Skipped))
            }
        };
        if self.cancelling {
            Outcome::Cancelled
        } else if succeeded {
            Outcome::Succeeded
        } else if self.over_budget {
            Outcome::OverBudget
        } else {
            Outcome::Failed
        }
    }

    /// Returns an instance of a task whose instances exist.
    pub(super) fn instance(&self, task: &TaskId, item: Option<u32>) -> Option<InstanceIx> {
        let ix = self.graph.find(task)?;
        let task = self.task(ix);
        let is_single = self.graph[ix].items == Items::One;
        let offset = match (is_single, item) {
            (true, None) => 0,
            (false, Some(item)) => item,
            (true, Some(_)) | (false, None) => return None,
        };
        (offset < task.count).then(|| InstanceIx(task.first.saturating_add(offset)))
    }

    /// Returns an instance whose last attempt is this attempt.
    pub(super) fn attempt(&self, of: &Try) -> Option<InstanceIx> {
        let ix = self.instance(&of.task, of.item)?;
        (self.at(ix).attempt == of.attempt).then_some(ix)
    }

    /// Returns an instance whose next attempt is this attempt.
    pub(super) fn next_attempt(&self, of: &Try) -> Option<InstanceIx> {
        let ix = self.instance(&of.task, of.item)?;
        (self.at(ix).attempt.saturating_add(1) == of.attempt).then_some(ix)
    }

    /// Returns the newest attempt of an instance: the one that runs, or the one that ended last.
    pub(super) fn current(&self, ix: InstanceIx) -> Try {
        let Instance { task, item, attempt, .. } = self.at(ix);
        Try { task: self.graph[*task].id.clone(), item: *item, attempt: *attempt }
    }

    /// Returns the next attempt of an instance.
    pub(super) fn next(&self, ix: InstanceIx) -> Try {
        let current = self.current(ix);
        Try { attempt: current.attempt.saturating_add(1), ..current }
    }

    #[expect(clippy::indexing_slicing, reason = "only this state creates its indices")]
    pub(super) fn at(&self, InstanceIx(ix): InstanceIx) -> &Instance {
        &self.instances[ix as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "only this state creates its indices")]
    pub(super) fn at_mut(&mut self, InstanceIx(ix): InstanceIx) -> &mut Instance {
        &mut self.instances[ix as usize]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the state has one entry for each task of the graph"
    )]
    pub(super) fn task(&self, TaskIx(ix): TaskIx) -> &TaskState {
        &self.tasks[ix as usize]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the state has one entry for each task of the graph"
    )]
    pub(super) fn task_mut(&mut self, TaskIx(ix): TaskIx) -> &mut TaskState {
        &mut self.tasks[ix as usize]
    }
}
