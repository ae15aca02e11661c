//! The checks of single tasks: earlier, output types, tiers, agents and boxes.

use std::time::Duration;

use super::super::read::MAX_TIMEOUT;
use super::super::{Base, Check, Executor, ForEach, OutputKind, Source, Task, TaskId, TierName};
use super::graph::Ancestors;
use super::{Checker, Graph, Place};
use crate::agent::AgentName;
use crate::choice::Mode;
use crate::config::tighten::{self, Loosening};
use crate::limits::Limits;
use crate::template::Template;

/// The tasks that are done before a task starts.
struct Earlier<'g> {
    graph: &'g Graph,
    /// Built when a task refers to another one that it does not directly depend on.
    ancestors: Option<Ancestors>,
}

impl Earlier<'_> {
    fn has(&mut self, task: usize, of: usize) -> bool {
        let graph = self.graph;
        graph.requires(task, of)
            || self.ancestors.get_or_insert_with(|| Ancestors::of(graph)).has(task, of)
    }
}

impl<'p> Checker<'p> {
    /// Checks each task by itself.
    pub(super) fn tasks(&mut self) {
        for place in self.places() {
            self.output(place);
            self.executor(place);
        }
    }

    /// Checks the references of tasks to other tasks, beside their edges.
    pub(super) fn references(&mut self, graph: &Graph) {
        let mut earlier = Earlier { graph, ancestors: None };
        for place in self.places() {
            self.data_references(place, &mut earlier);
            self.branches(place, &mut earlier);
        }
    }

    fn add(&mut self, place: Place<'p>, key: &str, reason: &str) {
        self.faults.add(place.line(key), || format!("task `{}`: {reason}", place.task.id));
    }

    fn find(&self, id: &TaskId) -> Option<&'p Task> {
        self.plan.tasks.get(*self.ids.get(id)?)
    }

    /// Checks the type of the output.
    fn output(&mut self, place: Place<'p>) {
        let task = place.task;
        let is_agent = matches!(task.executor, Executor::Agent { .. });
        match task.output.kind {
            OutputKind::Branch if !is_agent => {
                self.add(place, "output", "only an agent makes a branch");
            }
            OutputKind::Choice
                if !task.data.iter().any(|it| matches!(it.from, Source::Task(_))) =>
            {
                let reason =
                    "a choice is the id of one input; name the tasks to choose from in `data`";
                self.add(place, "output", reason);
            }
            OutputKind::Text | OutputKind::Json | OutputKind::Bytes | OutputKind::Choice
                if is_agent =>
            {
                let reason =
                    "the output of an agent is its branch; remove `output` or write \"branch\"";
                self.add(place, "output", reason);
            }
            OutputKind::Text
            | OutputKind::Json
            | OutputKind::Bytes
            | OutputKind::Branch
            | OutputKind::Choice => {}
        }
        let is_json = task.output.kind == OutputKind::Json;
        for (index, check) in task.checks.iter().enumerate() {
            if matches!(check, Check::Schema(_)) && !is_json {
                let line = self.check_line(place, index);
                self.faults.add(line, || {
                    format!(
                        "task `{}`: a check by a schema needs an output of type `json`",
                        task.id
                    )
                });
            }
        }
    }

    fn check_line(&self, place: Place<'_>, index: usize) -> usize {
        let lines = place.lines.and_then(|lines| lines.checks.get(index).copied());
        lines.unwrap_or_else(|| place.line("check"))
    }

    /// Checks `when` and `for_each`, which read the output of another task.
    fn data_references(&mut self, place: Place<'p>, earlier: &mut Earlier<'_>) {
        if let Some(when) = &place.task.when {
            self.reads_json(place, earlier, "when", &when.of);
        }
        if let Some(ForEach::Output { of, .. }) = &place.task.for_each {
            self.reads_json(place, earlier, "for_each", of);
        }
    }

    fn reads_json(
        &mut self,
        place: Place<'p>,
        earlier: &mut Earlier<'_>,
        key: &'static str,
        of: &TaskId,
    ) {
        if !self.is_earlier(place, earlier, key, of) {
            return;
        }
        let Some(source) = self.find(of) else { return };
        if source.output.kind != OutputKind::Json {
            let reason =
                format!("`{key}` reads the output of `{of}`, which must be of type `json`");
            self.add(place, key, &reason);
        }
        if source.for_each.is_some() {
            let reason = format!("`{key}` cannot read the output of `{of}`, which has `for_each`");
            self.add(place, key, &reason);
        }
    }

    /// Checks that a task exists and is done before this one starts.
    fn is_earlier(
        &mut self,
        place: Place<'p>,
        earlier: &mut Earlier<'_>,
        key: &'static str,
        of: &TaskId,
    ) -> bool {
        if !self.task_exists(place.task, of, place.line(key)) {
            return false;
        }
        let position = |id: &TaskId| self.ids.get(id).copied();
        let (own, other) = (position(&place.task.id), position(of));
        let is_input = own.zip(other).is_some_and(|(own, other)| earlier.has(own, other));
        if !is_input {
            let reason = format!(
                "`{key}` names `{of}`, which is no input; add `{of}` to `needs`, without `?`"
            );
            self.add(place, key, &reason);
        }
        is_input
    }

    /// Checks `base` and `apply`, which need the branch of another task.
    fn branches(&mut self, place: Place<'p>, earlier: &mut Earlier<'_>) {
        let (key, of) = match &place.task.executor {
            Executor::Agent { base: Base::Task(of), .. } => ("base", of),
            Executor::Approval { apply: Some(of), .. } => ("apply", of),
            Executor::Agent { .. }
            | Executor::Approval { .. }
            | Executor::Command { .. }
            | Executor::Code { .. }
            | Executor::Model { .. }
            | Executor::Stub { .. } => return,
        };
        if !self.is_earlier(place, earlier, key, of) {
            return;
        }
        let Some(source) = self.find(of) else { return };
        if !self.has_branch(source) {
            let reason = format!(
                "`{key}` names `{of}`, which must be an agent task or a choice between agent tasks"
            );
            self.add(place, key, &reason);
        } else if source.for_each.is_some() {
            let reason = format!(
                "`{key}` names `{of}`, which has `for_each` and so several branches; name a task that chooses one of them"
            );
            self.add(place, key, &reason);
        }
    }

    fn has_branch(&self, task: &Task) -> bool {
        let is_agent = |task: &Task| matches!(task.executor, Executor::Agent { .. });
        let chooses = task.output.kind == OutputKind::Choice;
        is_agent(task)
            || (chooses
                && task.data.iter().all(|edge| match &edge.from {
                    Source::Task(id) => self.find(id).is_some_and(is_agent),
                    Source::Input(_) => true,
                }))
    }

    /// Checks the tiers and the agent that a task names.
    fn executor(&mut self, place: Place<'p>) {
        match &place.task.executor {
            Executor::Agent { agent, .. } => {
                let exists = self.ceiling.agents.contains(agent);
                let known = self.ceiling.agents.iter().map(AgentName::as_str);
                let line = place.line("agent");
                self.known(exists, line, place.task, "agent", agent.as_str(), known);
            }
            Executor::Model { tier, escalate, .. } => {
                self.tier(place, place.line("model"), tier);
                for tier in escalate {
                    self.tier(place, place.line("escalate"), tier);
                }
            }
            Executor::Command { .. }
            | Executor::Code { .. }
            | Executor::Approval { .. }
            | Executor::Stub { .. } => {}
        }
        for (index, check) in place.task.checks.iter().enumerate() {
            if let Some(tier) = check.tier() {
                self.tier(place, self.check_line(place, index), tier);
            }
        }
    }

    fn tier(&mut self, place: Place<'p>, line: usize, tier: &TierName) {
        let ceiling = self.ceiling;
        let facts = ceiling.tiers.get(tier);
        let known = ceiling.tiers.keys().map(TierName::as_str);
        if !self.known(facts.is_some(), line, place.task, "tier", tier.as_str(), known) {
            return;
        }
        let budgets = [&place.task.budget, &self.plan.budget, &ceiling.budget];
        let is_capped = budgets.iter().any(|budget| budget.money.is_some());
        if is_capped && !facts.is_some_and(|facts| facts.is_priced) {
            self.faults.add(line, || {
                format!(
                    "task `{}`: the budget limits money, but the price of tier `{tier}` is unknown; set `price` in `[tier.{tier}]`",
                    place.task.id
                )
            });
        }
    }

    /// Returns the template of the box of a task, if it has a box.
    pub(super) fn one_box(&mut self, base: &Template, place: Place<'p>) -> Option<Template> {
        let task = place.task;
        let overrides = place.lines.map(|lines| &lines.overrides);
        if !task.has_box() {
            if place.lines.is_some_and(|lines| lines.keys.has("box")) {
                self.add(place, "box", "an approval or a stub has no box; remove `box`");
            }
            return None;
        }
        let line = |key: &str| {
            let own = overrides.filter(|lines| lines.has(key)).map(|lines| lines.line(key));
            own.unwrap_or_else(|| place.line("box"))
        };
        let is_set = |key: &str| overrides.is_some_and(|lines| lines.has(key));
        let template = match tighten::template(base.clone(), &task.overrides, is_set) {
            Ok(template) => template,
            Err(Loosening { key, project, operator }) => {
                self.faults.add(line(key), || {
                    format!(
                        "task `{}`: `{key}` of `box`: {project}, but the template has {operator}; a task may only tighten",
                        task.id
                    )
                });
                return None;
            }
        };
        if let Err(error) = template.check() {
            let key = error.key();
            self.faults.add(line(key), || format!("task `{}`: `{key}` of `box`: {error}", task.id));
            return None;
        }
        if template.mode == Mode::Direct {
            self.faults.add(line("mode"), || {
                format!(
                    "task `{}`: a task cannot write directly to the workspace (mode `direct`); write `box = {{ mode = \"overlay\" }}` or use another template",
                    task.id
                )
            });
        }
        let longest = template.limits.timeout.unwrap_or(Duration::MAX).min(MAX_TIMEOUT);
        let limits = Limits { timeout: Some(longest), ..template.limits };
        Some(Template { limits, ..template })
    }
}
