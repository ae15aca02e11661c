//! The tasks of a plan with their edges as indices, in the form that the state machine needs.
//!
//! A graph checks nothing: its plan was checked before. References to unknown tasks are ignored, so a
//! wrong plan can stop or skip too much, but cannot cause a panic.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Index;
use std::time::Duration;

use belljar_ledger::Digest;
use belljar_model::plan::{
    Base, Edge, Executor, ForEach, Label, OnCrash, Plan, RunBudget, Source, Task, TaskId, Test,
    When,
};
use serde_json::Value as Json;

use super::taint::{self, BoxTaint, Marked, PlanTaint};

/// The maximum number of instances of all tasks of a run.
pub const MAX_INSTANCES: u32 = 10_000;

/// The index of a task in its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TaskIx(pub(crate) u32);

/// The graph of a checked plan.
#[derive(Debug, PartialEq)]
pub struct Graph {
    nodes: Vec<Node>,
    by_id: HashMap<TaskId, TaskIx>,
    answer: Option<TaskIx>,
    budget: RunBudget,
    /// The number of instances that the plan fixes.
    fixed: u32,
}

/// A task of the graph.
#[derive(Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) id: TaskId,
    /// The tasks before this task, one edge for each.
    pub(crate) inputs: Vec<Link>,
    /// The tasks after this task, one edge for each.
    pub(crate) dependents: Vec<Link>,
    /// The conditions and lists of other tasks that read the output of this task.
    pub(crate) selects: Vec<Select>,
    pub(crate) items: Items,
    pub(crate) has_when: bool,
    pub(crate) gate: Option<GateNode>,
    pub(crate) attempts: u32,
    pub(crate) tiers: u32,
    pub(crate) backoff: Duration,
    pub(crate) on_crash: OnCrash,
    pub(crate) has_checks: bool,
    /// The labels that the task has without regard to other tasks, each with its source.
    pub(crate) own: Vec<(Label, String)>,
    /// The grants of the box that labels remove.
    pub(crate) marked: Vec<Marked>,
    pub(crate) budget: RunBudget,
}

/// The properties of a task that a person carries out.
#[derive(Debug, PartialEq)]
pub(crate) struct GateNode {
    pub(crate) deadline: Duration,
    pub(crate) clears: BTreeSet<Label>,
    /// The labels of inputs with which the gate is refused.
    pub(crate) deny_when: BTreeSet<Label>,
    /// The digests of the specifications of the direct dependents, in the order of the plan.
    pub(crate) dependents: Vec<Digest>,
}

/// One end of an edge between tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    /// The task at the other end.
    pub(crate) task: TaskIx,
    pub(crate) optional: bool,
    /// Whether the dependent reads the output, so that labels flow along the edge.
    pub(crate) data: bool,
}

/// The number of instances of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Items {
    One,
    Fixed(u32),
    /// The length of a list in the output of another task.
    Output,
}

/// A value that another task needs from an output.
#[derive(Debug, PartialEq)]
pub(crate) struct Select {
    pub(crate) task: TaskIx,
    at: String,
    what: Selected,
}

#[derive(Debug, PartialEq)]
enum Selected {
    Condition(Test),
    Items { max: u32 },
}

/// The results of conditions and the lengths of lists that other tasks need from one output.
///
/// One number for each condition and list, in the order of the plan. A condition is 0 or 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selections(pub(crate) Vec<u16>);

/// The reason why a list cannot give items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemsError {
    TooMany,
    NoList,
}

const TOO_MANY: u16 = u16::MAX;
const NO_LIST: u16 = u16::MAX - 1;

impl Selections {
    /// Returns the result of the condition at a position; a missing result is false.
    pub(crate) fn condition(&self, position: usize) -> bool {
        self.0.get(position) == Some(&1)
    }

    /// Returns the number of items at a position.
    pub(crate) fn items(&self, position: usize) -> Result<u32, ItemsError> {
        match self.0.get(position) {
            Some(&TOO_MANY) => Err(ItemsError::TooMany),
            Some(&NO_LIST) | None => Err(ItemsError::NoList),
            Some(&count) => Ok(u32::from(count)),
        }
    }
}

impl Select {
    pub(crate) const fn is_condition(&self) -> bool {
        matches!(self.what, Selected::Condition(_))
    }

    fn evaluate(&self, output: &Json) -> u16 {
        let found = output.pointer(&self.at);
        match &self.what {
            Selected::Condition(test) => u16::from(holds(test, found)),
            Selected::Items { max } => match found.and_then(Json::as_array) {
                None => NO_LIST,
                Some(list) if list.len() > *max as usize => TOO_MANY,
                Some(list) => {
                    u16::try_from(list.len()).ok().filter(|n| *n < NO_LIST).unwrap_or(TOO_MANY)
                }
            },
        }
    }
}

fn holds(test: &Test, found: Option<&Json>) -> bool {
    match test {
        Test::Equals(value) => found == Some(value),
        Test::In(values) => found.is_some_and(|found| values.contains(found)),
        Test::Exists(wanted) => found.is_some() == *wanted,
    }
}

impl Graph {
    /// Builds the graph of a plan that was checked, and whose boxes earn and lose nothing by labels.
    pub fn new(plan: &Plan) -> Self {
        Self::with_taint(plan, &PlanTaint::new())
    }

    /// Builds the graph of a plan that was checked.
    pub fn with_taint(plan: &Plan, taint: &PlanTaint) -> Self {
        let ids = plan.tasks.iter().zip(0..);
        let by_id: HashMap<_, _> = ids.map(|(task, ix)| (task.id.clone(), TaskIx(ix))).collect();
        let answer = plan.answer.as_ref().and_then(|id| by_id.get(id).copied());
        let node = |task: &Task| node(task, plan, &by_id, taint.get(&task.id));
        let mut nodes: Vec<Node> = plan.tasks.iter().map(node).collect();
        for (ix, task) in (0..).map(TaskIx).zip(&plan.tasks) {
            for link in inputs(task, &by_id) {
                if let Some(before) = nodes.get_mut(link.task.0 as usize) {
                    before.dependents.push(Link { task: ix, ..link });
                }
            }
            for (of, select) in selects(task, ix) {
                if let Some(TaskIx(of)) = by_id.get(of)
                    && let Some(before) = nodes.get_mut(*of as usize)
                {
                    before.selects.push(select);
                }
            }
        }
        for node in &mut nodes {
            if let Some(gate) = &mut node.gate {
                let after = node.dependents.iter();
                let after = after.filter_map(|link| plan.tasks.get(link.task.0 as usize));
                gate.dependents = after.map(spec_digest).collect();
            }
        }
        let fixed = nodes.iter().fold(0_u32, |sum, node| match node.items {
            Items::One => sum.saturating_add(1),
            Items::Fixed(count) => sum.saturating_add(count),
            Items::Output => sum,
        });
        Self { nodes, by_id, answer, budget: plan.budget.clone(), fixed }
    }

    /// Evaluates the conditions and lists of other tasks that read this output of `task`.
    ///
    /// The result is part of the fact that makes the output known, so loading a run reads no outputs.
    pub fn select(&self, task: &TaskId, output: &Json) -> Selections {
        let selects = self.find(task).map_or(&[][..], |ix| &self[ix].selects);
        Selections(selects.iter().map(|select| select.evaluate(output)).collect())
    }

    /// The budget of the whole run.
    pub const fn budget(&self) -> &RunBudget {
        &self.budget
    }

    /// The budget of one task, for all its instances and attempts.
    pub fn task_budget(&self, task: &TaskId) -> Option<&RunBudget> {
        self.find(task).map(|ix| &self[ix].budget)
    }

    pub(crate) fn find(&self, id: &TaskId) -> Option<TaskIx> {
        self.by_id.get(id).copied()
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = (TaskIx, &Node)> {
        (0..).map(TaskIx).zip(&self.nodes)
    }

    pub(crate) const fn fixed_instances(&self) -> u32 {
        self.fixed
    }

    pub(crate) const fn answer(&self) -> Option<TaskIx> {
        self.answer
    }
}

impl Index<TaskIx> for Graph {
    type Output = Node;

    #[expect(clippy::indexing_slicing, reason = "only this graph creates its indices")]
    fn index(&self, TaskIx(ix): TaskIx) -> &Node {
        &self.nodes[ix as usize]
    }
}

fn node(
    task: &Task,
    plan: &Plan,
    by_id: &HashMap<TaskId, TaskIx>,
    taint: Option<&BoxTaint>,
) -> Node {
    let escalate = match &task.executor {
        Executor::Model { escalate, .. } => escalate.len(),
        Executor::Command { .. }
        | Executor::Code { .. }
        | Executor::Agent { .. }
        | Executor::Approval { .. }
        | Executor::Stub { .. } => 0,
    };
    let gate = match &task.executor {
        Executor::Approval { deadline, clears, deny_when, .. } => Some(GateNode {
            deadline: *deadline,
            clears: clears.iter().cloned().collect(),
            deny_when: deny_when.iter().cloned().collect(),
            dependents: Vec::new(),
        }),
        Executor::Command { .. }
        | Executor::Code { .. }
        | Executor::Agent { .. }
        | Executor::Model { .. }
        | Executor::Stub { .. } => None,
    };
    Node {
        id: task.id.clone(),
        inputs: inputs(task, by_id),
        dependents: Vec::new(),
        selects: Vec::new(),
        items: match &task.for_each {
            None => Items::One,
            Some(ForEach::Values(values)) => {
                Items::Fixed(u32::try_from(values.len()).unwrap_or(u32::MAX))
            }
            Some(ForEach::Output { .. }) => Items::Output,
        },
        has_when: task.when.is_some(),
        gate,
        attempts: task.attempts,
        tiers: u32::try_from(escalate).unwrap_or(u32::MAX).saturating_add(1),
        backoff: task.backoff,
        on_crash: task.on_crash,
        has_checks: !task.checks.is_empty(),
        own: taint::own(task, plan, taint),
        marked: taint.map(|taint| taint.marked.clone()).unwrap_or_default(),
        budget: task.budget.clone(),
    }
}

/// Returns one edge for each task that must end before `task`.
///
/// An edge without `?` is stronger than one with `?`. References in conditions, lists, bases and
/// approvals are edges too; with `?` only if the plan names the same task with `?`.
fn inputs(task: &Task, by_id: &HashMap<TaskId, TaskIx>) -> Vec<Link> {
    let mut found: BTreeMap<TaskIx, Link> = BTreeMap::new();
    for (edges, data) in [(&task.data, true), (&task.needs, false)] {
        for Edge { from, optional } in edges {
            let Source::Task(id) = from else { continue };
            let Some(&ix) = by_id.get(id) else { continue };
            let link = found.entry(ix).or_insert(Link { task: ix, optional: true, data: false });
            link.optional &= optional;
            link.data |= data;
        }
    }
    for id in implied(task) {
        let Some(&ix) = by_id.get(id) else { continue };
        let link = found.entry(ix).or_insert(Link { task: ix, optional: false, data: true });
        link.data = true;
    }
    found.into_values().collect()
}

/// Returns the tasks whose output a task reads without a data edge.
fn implied(task: &Task) -> impl Iterator<Item = &TaskId> {
    let when = task.when.as_ref().map(|when| &when.of);
    let list = match &task.for_each {
        Some(ForEach::Output { of, .. }) => Some(of),
        Some(ForEach::Values(_)) | None => None,
    };
    let branch = match &task.executor {
        Executor::Agent { base: Base::Task(id), .. } => Some(id),
        Executor::Approval { apply, .. } => apply.as_ref(),
        Executor::Agent { base: Base::Revision(_), .. }
        | Executor::Command { .. }
        | Executor::Code { .. }
        | Executor::Model { .. }
        | Executor::Stub { .. } => None,
    };
    [when, list, branch].into_iter().flatten()
}

/// Returns the values that a task needs from outputs, each with the task of the output.
fn selects(task: &Task, ix: TaskIx) -> impl Iterator<Item = (&TaskId, Select)> {
    let when = task.when.as_ref().map(|When { of, at, test }| {
        (of, Select { task: ix, at: at.clone(), what: Selected::Condition(test.clone()) })
    });
    let list = match &task.for_each {
        Some(ForEach::Output { of, at, max }) => {
            Some((of, Select { task: ix, at: at.clone(), what: Selected::Items { max: *max } }))
        }
        Some(ForEach::Values(_)) | None => None,
    };
    [when, list].into_iter().flatten()
}

/// Returns the digest of everything that the plan says about a task.
fn spec_digest(task: &Task) -> Digest {
    // A task contains no map with keys other than text, so it always has a JSON form.
    let text = serde_json::to_vec(task).unwrap_or_default();
    Digest::of(&[b"belljar task 1\0", &text])
}
