//! Shows the labels of a run: where they come from, and what they removed.

use std::collections::BTreeSet;

use belljar_model::RunId;
use belljar_model::plan::Label;

use super::{Origin, Removed};
use crate::error::EngineError;
use crate::runs::machine::{FactKind, RefusedBecause, Status, TaskRef};
use crate::runs::view::Loaded;
use crate::scope::Scoped;

/// The labels of one task, or of one instance.
#[derive(Clone, Debug)]
pub struct TaskTaint {
    pub of: TaskRef,
    pub status: Status,
    /// The labels of the data that the task reads and of its box, with their sources.
    pub labels: Vec<TaintLabel>,
    /// The labels that the output does not have any more, because a person approved it.
    pub cleared: Vec<Label>,
    /// The grants that labels removed, each with the number of the attempt.
    pub removed: Vec<(u32, Removed)>,
    /// The labels that excluded a gate, as one line of text.
    pub refused: Option<String>,
}

/// A label with its sources.
#[derive(Clone, Debug)]
pub struct TaintLabel {
    pub label: Label,
    pub origins: Vec<Origin>,
}

/// Returns the labels of all tasks of a run, in the order of the plan.
pub fn run(state: &Scoped, run: RunId) -> Result<Vec<TaskTaint>, EngineError> {
    let loaded = Loaded::read(state, run)?;
    let context = loaded.context(state, run);
    let mut all = Vec::new();
    for task in loaded.submitted.plan.tasks() {
        for of in context.instances(&task.id) {
            all.push(of_task(&loaded, of));
        }
    }
    Ok(all)
}

fn of_task(loaded: &Loaded, of: TaskRef) -> TaskTaint {
    let progress = &loaded.progress;
    let output = progress.output(&of);
    // The labels of the output can be more than those of the inputs.
    let known = progress.labels(&of.task).into_iter().flatten();
    let of_output = output.into_iter().flat_map(|output| &output.labels);
    let labels: BTreeSet<&Label> = known.chain(of_output).collect();
    let is_cleared = |label: &&&Label| output.is_some_and(|it| !it.labels.contains(label));
    let cleared = labels.iter().filter(is_cleared).map(|label| (*label).clone()).collect();
    let labels = labels.into_iter().map(|label| TaintLabel {
        label: label.clone(),
        origins: progress.origins(&of.task, label),
    });
    let labels = labels.collect();
    let (mut removed, mut refused) = (Vec::new(), None);
    for fact in &loaded.facts {
        if let FactKind::GrantRemoved { of: attempt, removed: grant } = &fact.kind
            && attempt.instance() == of
        {
            let grant = (attempt.attempt, grant.clone());
            // A driver that was killed before the start of the attempt recorded it too.
            if !removed.contains(&grant) {
                removed.push(grant);
            }
        }
        if let FactKind::ApprovalRefused { of: gate, why, text, .. } = &fact.kind
            && *why == RefusedBecause::Labels
            && gate.instance() == of
        {
            refused = Some(text.clone().unwrap_or_default());
        }
    }
    let status = progress.status(&of).unwrap_or(Status::Waiting);
    TaskTaint { of, status, labels, cleared, removed, refused }
}
