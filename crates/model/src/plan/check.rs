//! The check of a whole plan against its ceiling: what the operator and the tenant permit.
//!
//! Everything that can be known before the run is refused here. The grants of a task, that is the
//! template of its box, are fixed here too.

mod ceiling;
mod graph;
mod labels;
mod tasks;

pub use ceiling::{Ceiling, TierFacts};
pub(super) use graph::Graph;

use std::collections::HashMap;

use super::checked::CheckedPlan;
use super::fault::{Collector, PlanFaults};
use super::lines::{PlanLines, TaskLines};
use super::{Plan, Source, Task, TaskId};
use crate::config::nearest::nearest;
use crate::template::Template;

/// The maximum number of edges, with those of each instance of a task.
const MAX_EDGES: usize = 100_000;
/// The maximum number of tasks in a chain of dependencies.
const MAX_DEPTH: usize = 2_000;

impl Plan {
    /// Checks the references between the tasks, and all grants and budgets against the ceiling.
    ///
    /// This is the only way to a [`CheckedPlan`], except that a stored one can be read again.
    pub fn check(self, ceiling: &Ceiling) -> Result<CheckedPlan, PlanFaults> {
        let faults = Collector::new(&self.lines.file);
        let ids = self.tasks.iter().enumerate().map(|(at, task)| (&task.id, at)).collect();
        let mut checker = Checker { plan: &self, ceiling, ids, faults };
        let graph = checker.graph();
        let templates = checker.boxes();
        checker.budgets();
        checker.answer();
        checker.tasks();
        checker.labels();
        if let Some(graph) = &graph {
            checker.references(graph);
        }
        checker.faults.finish(())?;
        // Without a fault, there is a graph.
        let graph = graph.unwrap_or_default();
        Ok(CheckedPlan::new(self, &graph, templates))
    }
}

/// The state of checking one plan.
struct Checker<'p> {
    plan: &'p Plan,
    ceiling: &'p Ceiling,
    /// The positions of the tasks by their ids.
    ids: HashMap<&'p TaskId, usize>,
    faults: Collector,
}

/// A task with its lines.
#[derive(Clone, Copy)]
struct Place<'p> {
    task: &'p Task,
    lines: Option<&'p TaskLines>,
}

impl Place<'_> {
    fn line(self, key: &str) -> usize {
        self.lines.map_or(1, |lines| lines.keys.line(key))
    }
}

impl<'p> Checker<'p> {
    fn places(&self) -> impl Iterator<Item = Place<'p>> + use<'p> {
        let plan: &'p Plan = self.plan;
        let lines: &'p PlanLines = &plan.lines;
        let at = |(index, task)| Place { task, lines: lines.tasks.get(index) };
        plan.tasks.iter().enumerate().map(at)
    }

    /// Builds the graph and checks its limits. Returns `None` if an edge has no start or the graph has
    /// a cycle.
    fn graph(&mut self) -> Option<Graph> {
        self.expansion();
        let mut is_complete = true;
        for place in self.places() {
            let of = |lines: fn(&TaskLines) -> &Vec<usize>| {
                place.lines.map(lines).cloned().unwrap_or_default()
            };
            let data = place.task.data.iter().zip(of(|lines| &lines.data));
            let needs = place.task.needs.iter().zip(of(|lines| &lines.needs));
            for (edge, line) in data.chain(needs) {
                is_complete &= match &edge.from {
                    Source::Task(id) => self.task_exists(place.task, id, line),
                    Source::Input(name) => {
                        let known = self.plan.inputs.keys().map(|name| name.as_str());
                        let exists = self.plan.inputs.contains_key(name);
                        self.known(exists, line, place.task, "input", name.as_str(), known)
                    }
                };
            }
        }
        if !is_complete {
            return None;
        }
        let graph = Graph::of(&self.plan.tasks);
        let cycles = graph.cycles();
        for cycle in &cycles {
            let Some(place) = cycle.first().and_then(|first| self.places().nth(*first)) else {
                continue;
            };
            let names = graph::cycle_text(&self.plan.tasks, cycle);
            self.faults.add(place.line("needs"), || format!("the tasks form a cycle: {names}"));
        }
        if !cycles.is_empty() {
            return None;
        }
        let depth = graph.depth();
        if depth > MAX_DEPTH {
            let text =
                format!("a chain of {depth} tasks; at most {MAX_DEPTH} can depend on each other");
            self.faults.add(1, || text);
        }
        Some(graph)
    }

    /// Checks the number of tasks and edges after the expansion of `for_each`.
    fn expansion(&mut self) {
        let (mut tasks, mut edges) = (0_usize, 0_usize);
        for task in &self.plan.tasks {
            let instances = task.max_instances();
            tasks = tasks.saturating_add(instances);
            let of_one = task.data.len() + task.needs.len();
            edges = edges.saturating_add(of_one.saturating_mul(instances));
        }
        if tasks > super::read::MAX_TASKS {
            let max = super::read::MAX_TASKS;
            self.faults.add(1, || {
                format!(
                    "{tasks} tasks with all instances of `for_each`; at most {max} are possible, so use fewer values or a lower `max`"
                )
            });
        }
        if edges > MAX_EDGES {
            self.faults.add(1, || {
                format!("{edges} edges with all instances of `for_each`; at most {MAX_EDGES} are possible")
            });
        }
    }

    fn answer(&mut self) {
        let Some(answer) = &self.plan.answer else { return };
        if !self.ids.contains_key(answer) {
            let line = self.plan.lines.run.line("answer");
            let known: Vec<&str> = self.plan.tasks.iter().map(|task| task.id.as_str()).collect();
            self.faults.add(line, || {
                format!(
                    "`answer` names the unknown task `{answer}`{}",
                    hint(answer.as_str(), &known)
                )
            });
        }
    }

    fn task_exists(&mut self, task: &Task, id: &TaskId, line: usize) -> bool {
        let exists = self.ids.contains_key(id);
        let known = self.plan.tasks.iter().map(|task| task.id.as_str());
        self.known(exists, line, task, "task", id.as_str(), known)
    }

    /// Records a fault with a suggestion if a name is unknown. Returns whether it is known.
    fn known<'k>(
        &mut self,
        exists: bool,
        line: usize,
        task: &Task,
        what: &str,
        name: &str,
        known: impl Iterator<Item = &'k str>,
    ) -> bool {
        if !exists {
            self.faults.add(line, || {
                let known: Vec<&str> = known.collect();
                format!("task `{}`: unknown {what} `{name}`{}", task.id, hint(name, &known))
            });
        }
        exists
    }

    /// Returns the template of each box, tightened by its task, or `None` for tasks without a box.
    fn boxes(&mut self) -> Vec<Option<Template>> {
        let Some(base) = self.ceiling.templates.get(&self.plan.template) else {
            let known: Vec<&str> = self.ceiling.templates.keys().map(String::as_str).collect();
            let (line, name) = (self.plan.lines.run.line("template"), &self.plan.template);
            let name = super::fault::quote(name);
            let hint = hint(&name, &known);
            self.faults.add(line, || format!("unknown template `{name}`{hint}"));
            return Vec::new();
        };
        self.places().map(|place| self.one_box(base, place)).collect()
    }
}

/// Returns the end of a message about an unknown name: a similar name, or all names.
fn hint(name: &str, known: &[&str]) -> String {
    const MAX_LISTED: usize = 20;
    match nearest(name, known) {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None if known.is_empty() => "; there are none".to_owned(),
        None => {
            let more = if known.len() > MAX_LISTED { ", …" } else { "" };
            let listed: Vec<&str> = known.iter().take(MAX_LISTED).copied().collect();
            format!("; known: {}{more}", listed.join(", "))
        }
    }
}
