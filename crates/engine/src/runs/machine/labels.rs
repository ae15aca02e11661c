//! Questions about the labels of a run.

use std::collections::BTreeSet;

use belljar_model::plan::{Label, TaskId};

use super::state::{InstanceIx, RunState, State};
use super::types::{FactKind, TaskRef, Try};
use crate::runs::graph::TaskIx;
use crate::runs::taint::{self, Marked, Origin, Removed};

impl RunState {
    /// Returns the labels of the data that a task reads, and of its own box. They are complete once its
    /// inputs are final.
    pub fn labels(&self, task: &TaskId) -> Option<&BTreeSet<Label>> {
        Some(&self.task(self.graph.find(task)?).labels)
    }

    /// Returns the sources of a label of a task; none if the task does not have the label.
    pub fn origins(&self, task: &TaskId, label: &Label) -> Vec<Origin> {
        let ix = self.graph.find(task);
        let has_label =
            |ix: &TaskIx| self.task(*ix).labels.contains(label) || self.carries(*ix, label);
        ix.filter(has_label).map(|ix| self.origins_at(ix, label)).unwrap_or_default()
    }

    /// Returns the grants that labels remove from the box of an attempt of an instance.
    pub fn removed(&self, of: &TaskRef) -> Vec<Removed> {
        let tier = self.tier(of).unwrap_or(0);
        let is_own = |it: &Marked| it.check.is_none() && it.tier.is_none_or(|only| only == tier);
        self.removed_where(of, is_own)
    }

    /// Returns the grants that labels remove from the box of a check, whose number counts from 0.
    pub fn removed_from_check(&self, of: &TaskRef, check: usize) -> Vec<Removed> {
        self.removed_where(of, |it| it.check.is_some_and(|only| only as usize == check))
    }

    fn removed_where(&self, of: &TaskRef, is_concerned: impl Fn(&Marked) -> bool) -> Vec<Removed> {
        let Some(ix) = self.instance(&of.task, of.item) else { return Vec::new() };
        let instance = self.at(ix);
        let task = instance.task;
        let mut labels = self.task(task).labels.clone();
        if let State::Judging(output) = &instance.state {
            labels.extend(output.labels.iter().cloned());
        }
        let mut removed = Vec::new();
        let marked = self.graph[task].marked.iter();
        for marked in marked.filter(|marked| is_concerned(marked)) {
            for label in marked.deny_when.intersection(&labels) {
                let (grant, label) = (marked.grant.clone(), label.clone());
                let from = self.sources_at(task, &label);
                removed.push(Removed { grant, label, from });
            }
        }
        removed
    }

    /// Returns the facts about the grants that an attempt and its checks do not get.
    pub(super) fn removals(&self, of: &Try) -> Vec<FactKind> {
        let mut removed = self.removed(&of.instance());
        for of_check in self.removed_where(&of.instance(), |it| it.check.is_some()) {
            if !removed.contains(&of_check) {
                removed.push(of_check);
            }
        }
        removed
            .into_iter()
            .map(|removed| FactKind::GrantRemoved { of: of.clone(), removed })
            .collect()
    }

    /// Returns why the labels of its inputs exclude a gate, or `None` if they do not.
    pub(super) fn exclusion(&self, ix: InstanceIx) -> Option<String> {
        let task = self.at(ix).task;
        let gate = self.graph[task].gate.as_ref()?;
        let labels = &self.task(task).labels;
        let excluded: Vec<String> = gate
            .deny_when
            .intersection(labels)
            .map(|label| taint::sentence(label, &self.sources_at(task, label)))
            .collect();
        (!excluded.is_empty()).then(|| excluded.join(", "))
    }

    fn sources_at(&self, ix: TaskIx, label: &Label) -> Vec<String> {
        let mut sources = Vec::new();
        for Origin { source, .. } in self.origins_at(ix, label) {
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        sources
    }

    fn origins_at(&self, ix: TaskIx, label: &Label) -> Vec<Origin> {
        taint::origins(&self.graph, ix, label, |ix| self.carries(ix, label))
    }

    /// Returns whether an output of a task has a label.
    fn carries(&self, ix: TaskIx, label: &Label) -> bool {
        let task = self.task(ix);
        let mut all = (task.first..task.first.saturating_add(task.count)).map(InstanceIx);
        all.any(|ix| match &self.at(ix).state {
            State::Done(output) => output.labels.contains(label),
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
            | State::Cancelled => false,
        })
    }
}
