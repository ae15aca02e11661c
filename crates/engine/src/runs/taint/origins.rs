//! Finds the sources of a label.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use belljar_model::plan::Label;

use super::Origin;
use crate::runs::graph::{Graph, TaskIx};

/// The maximum number of sources that are named.
const MAX_ORIGINS: usize = 8;

/// Returns the sources of a label of a task, those with the shortest paths first.
///
/// `carries` tells whether an output of a task has the label. The search follows data edges back, through
/// outputs with the label only, so it does not pass a gate that cleared the label.
pub(crate) fn origins(
    graph: &Graph,
    of: TaskIx,
    label: &Label,
    carries: impl Fn(TaskIx) -> bool,
) -> Vec<Origin> {
    let mut found = Vec::new();
    // The task that reads the output of a task, on the way to `of`.
    let mut next: BTreeMap<TaskIx, TaskIx> = BTreeMap::new();
    let mut seen = BTreeSet::from([of]);
    let mut queue = VecDeque::from([of]);
    while let Some(at) = queue.pop_front()
        && found.len() < MAX_ORIGINS
    {
        let node = &graph[at];
        let own = node.own.iter().filter(|(own, _)| own == label);
        let mut sources: Vec<String> = own.map(|(_, source)| source.clone()).collect();
        let mut has_input = false;
        for link in node.inputs.iter().filter(|link| link.data && carries(link.task)) {
            has_input = true;
            if seen.insert(link.task) {
                next.insert(link.task, at);
                queue.push_back(link.task);
            }
        }
        if sources.is_empty() && !has_input {
            // The executor gave the label to the output.
            sources.push(format!("output of {}", node.id));
        }
        let path = std::iter::successors(Some(at), |at| next.get(at).copied());
        let path: Vec<_> = path.map(|at| graph[at].id.clone()).collect();
        let rest = MAX_ORIGINS.saturating_sub(found.len());
        let origins = sources.into_iter().take(rest);
        found.extend(origins.map(|source| Origin { source, path: path.clone() }));
    }
    found
}
