//! The graph of a plan's tasks: order, cycles, depth and reachability.
//!
//! Nothing here is recursive, and all costs are linear in the edges, except those of [`Ancestors`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::super::{Source, Task, TaskId};

/// The maximum number of tasks of a cycle that a message names.
const MAX_NAMED: usize = 100;

/// The dependencies between tasks, by the positions of the tasks in their list.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Graph {
    /// The tasks that each task waits for, each once, in the order of its edges.
    dependencies: Vec<Vec<Dependency>>,
    dependents: Vec<Vec<usize>>,
}

#[derive(Debug, Clone, Copy)]
struct Dependency {
    on: usize,
    /// Whether the task needs a result: the edge has no `?`.
    is_required: bool,
}

impl Graph {
    /// Builds the graph; edges from unknown tasks are ignored.
    pub(in super::super) fn of(tasks: &[Task]) -> Self {
        let index: HashMap<&TaskId, usize> =
            tasks.iter().enumerate().map(|(at, task)| (&task.id, at)).collect();
        let mut graph = Self {
            dependencies: Vec::with_capacity(tasks.len()),
            dependents: vec![Vec::new(); tasks.len()],
        };
        for (at, task) in tasks.iter().enumerate() {
            let mut of_task: Vec<Dependency> = Vec::new();
            let mut seen: HashMap<usize, usize> = HashMap::new();
            for edge in task.data.iter().chain(&task.needs) {
                let Source::Task(id) = &edge.from else { continue };
                let Some(on) = index.get(id).copied() else { continue };
                let is_required = !edge.optional;
                match seen.get(&on).and_then(|place| of_task.get_mut(*place)) {
                    Some(known) => known.is_required |= is_required,
                    None => {
                        seen.insert(on, of_task.len());
                        of_task.push(Dependency { on, is_required });
                        graph.dependents.get_mut(on).into_iter().for_each(|it| it.push(at));
                    }
                }
            }
            graph.dependencies.push(of_task);
        }
        graph
    }

    pub(in super::super) fn dependencies(&self, task: usize) -> impl Iterator<Item = usize> {
        self.dependencies.get(task).into_iter().flatten().map(|dependency| dependency.on)
    }

    /// Returns whether a task depends directly, without `?`, on another.
    pub(super) fn requires(&self, task: usize, on: usize) -> bool {
        let of_task = self.dependencies.get(task);
        of_task.into_iter().flatten().any(|it| it.on == on && it.is_required)
    }

    pub(in super::super) fn dependents(&self, task: usize) -> &[usize] {
        self.dependents.get(task).map_or(&[], Vec::as_slice)
    }

    /// Sorts the tasks topologically: each task comes after its dependencies. Independent tasks keep the
    /// order of the file. Tasks on a cycle and their dependents are left out.
    pub(in super::super) fn order(&self) -> Vec<usize> {
        let mut waits: Vec<usize> = self.dependencies.iter().map(Vec::len).collect();
        let free = waits.iter().enumerate().filter(|(_, count)| **count == 0);
        let mut ready: BinaryHeap<Reverse<usize>> = free.map(|(task, _)| Reverse(task)).collect();
        let mut order = Vec::with_capacity(waits.len());
        while let Some(Reverse(task)) = ready.pop() {
            order.push(task);
            for dependent in self.dependents(task) {
                let Some(count) = waits.get_mut(*dependent) else { continue };
                *count -= 1;
                if *count == 0 {
                    ready.push(Reverse(*dependent));
                }
            }
        }
        order
    }

    /// Returns the number of tasks of the longest chain.
    pub(super) fn depth(&self) -> usize {
        let mut depths = vec![0_usize; self.dependencies.len()];
        for task in self.order() {
            let before = self.dependencies(task).filter_map(|on| depths.get(on).copied()).max();
            if let Some(depth) = depths.get_mut(task) {
                *depth = before.unwrap_or_default() + 1;
            }
        }
        depths.into_iter().max().unwrap_or_default()
    }

    /// Returns cycles that have no task in common, each in the order in which the tasks need each
    /// other, beginning with the first task of the file.
    pub(super) fn cycles(&self) -> Vec<Vec<usize>> {
        let mut is_left = vec![true; self.dependencies.len()];
        for task in self.order() {
            is_left.get_mut(task).into_iter().for_each(|it| *it = false);
        }
        let left = |task: usize| is_left.get(task).copied().unwrap_or_default();
        // Each task that is left depends on another one that is left, so each walk meets a visited task.
        let mut walk_of: Vec<Option<usize>> = vec![None; is_left.len()];
        let mut cycles = Vec::new();
        for start in (0..is_left.len()).filter(|task| left(*task)) {
            let (mut path, mut next) = (Vec::new(), Some(start));
            while let Some(task) = next {
                match walk_of.get(task).copied().flatten() {
                    Some(walk) if walk == start => {
                        let from = path.iter().position(|it| *it == task).unwrap_or_default();
                        let mut cycle = path.split_off(from);
                        let first = cycle.iter().enumerate().min_by_key(|(_, task)| **task);
                        let first = first.map_or(0, |(at, _)| at);
                        cycle.rotate_left(first);
                        cycles.push(cycle);
                        next = None;
                    }
                    Some(_) => next = None,
                    None => {
                        walk_of.get_mut(task).into_iter().for_each(|it| *it = Some(start));
                        path.push(task);
                        next = self.dependencies(task).find(|on| left(*on));
                    }
                }
            }
        }
        cycles
    }
}

/// Returns a cycle as text, `a -> b -> a`: each task needs the next one.
pub(super) fn cycle_text(tasks: &[Task], cycle: &[usize]) -> String {
    let name = |at: &usize| tasks.get(*at).map_or("", |task| task.id.as_str());
    let mut names: Vec<&str> = cycle.iter().map(name).collect();
    let more = names.len().saturating_sub(MAX_NAMED);
    names.truncate(MAX_NAMED);
    let more = match more {
        0 => String::new(),
        more => format!(" -> … {more} more …"),
    };
    let first = names.first().copied().unwrap_or_default();
    format!("{}{more} -> {first}", names.join(" -> "))
}

/// The tasks that each task needs, directly or through other tasks, over edges without `?`.
///
/// A bit per pair of tasks: 12 MB for 10,000 tasks.
pub(super) struct Ancestors {
    words: usize,
    bits: Vec<u64>,
}

impl Ancestors {
    pub(super) fn of(graph: &Graph) -> Self {
        let count = graph.dependencies.len();
        let words = count.div_ceil(64);
        let mut all = Self { words, bits: vec![0; words * count] };
        for task in graph.order() {
            let mut own = vec![0_u64; words];
            for on in graph.dependencies.get(task).into_iter().flatten() {
                if !on.is_required {
                    continue;
                }
                for (word, inherited) in own.iter_mut().zip(all.row(on.on)) {
                    *word |= inherited;
                }
                own.get_mut(on.on / 64).into_iter().for_each(|word| *word |= 1 << (on.on % 64));
            }
            if let Some(row) = all.bits.get_mut(task * words..(task + 1) * words) {
                row.copy_from_slice(&own);
            }
        }
        all
    }

    fn row(&self, task: usize) -> &[u64] {
        self.bits.get(task * self.words..(task + 1) * self.words).unwrap_or_default()
    }

    pub(super) fn has(&self, task: usize, ancestor: usize) -> bool {
        self.row(task).get(ancestor / 64).is_some_and(|word| word >> (ancestor % 64) & 1 == 1)
    }
}
