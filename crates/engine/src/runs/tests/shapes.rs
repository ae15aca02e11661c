//! Large plans: the work for an input depends on what it changes, not on the size of the plan.

use std::sync::Arc;

use belljar_ledger::Digest;
use belljar_model::plan::{Plan, Task};
use serde_json::Value as Json;

use super::plans::{edge, output_of, plan, sources, task};
use super::sim::RUN;
use crate::runs::budget::{Amounts, Limits};
use crate::runs::graph::Graph;
use crate::runs::machine::{
    Command, End, Fact, FactKind, Grant, Input, InputKind, Moment, Outcome, RunState, advance,
};

const TASKS: usize = 10_000;

fn input(kind: InputKind) -> Input {
    Input { at: Moment(1), random: 0, kind }
}

/// Runs all tasks, each with one attempt that succeeds. Returns the facts and the order of the starts.
fn run(plan: &Plan) -> (RunState, Vec<Fact>, Vec<String>) {
    let graph = Arc::new(Graph::new(plan));
    let mut state = RunState::new(graph.clone(), RUN);
    let accepted =
        InputKind::Accepted { plan: Digest::of(&[b"plan"]), policy: Digest::of(&[b"policy"]) };
    let (mut facts, mut commands) = advance(&mut state, &input(accepted));
    let mut starts = Vec::new();
    while let Some(command) = commands.pop() {
        let kind = match command {
            Command::Reserve(of) => {
                let grant = Grant { lease: Limits::default(), box_run: None, epoch: 0 };
                InputKind::Lease(of, Ok(grant))
            }
            Command::Start(of) => {
                starts.push(of.instance().to_string());
                let output = output_of(&graph, &of.task, &Json::Null, Default::default());
                InputKind::Ended(of, End::Done(output), Some(Amounts::default()))
            }
            _ => continue,
        };
        let (new, more) = advance(&mut state, &input(kind));
        facts.extend(new);
        commands.extend(more);
    }
    (state, facts, starts)
}

fn with_needs(id: usize, needs: impl Iterator<Item = usize>) -> Task {
    let needs = needs.map(|id| edge(&format!("t{id}"))).collect();
    Task { needs, ..task(&format!("t{id}")) }
}

#[track_caller]
fn check(shape: &str, tasks: Vec<Task>) {
    let plan = plan(tasks);
    let (state, facts, starts) = run(&plan);
    assert_eq!(state.outcome(), Some(Outcome::Succeeded), "{shape}");
    let position = |id: &str| starts.iter().position(|start| start == id);
    assert_eq!(starts.len(), plan.tasks.len(), "{shape}");
    for task in &plan.tasks[plan.tasks.len() - 100..] {
        let start = position(task.id.as_str()).unwrap();
        let before = sources(task).into_iter().map(|(id, _)| position(id.as_str()).unwrap());
        assert!(before.into_iter().all(|before| before < start), "{shape}: {}", task.id);
    }
    let mut folded = RunState::new(state.graph().clone(), RUN);
    for fact in &facts {
        folded.apply(fact);
    }
    assert!(folded == state, "{shape}");
}

#[test]
fn ten_thousand_tasks_in_a_chain_run_in_order() {
    check("chain", (0..TASKS).map(|id| with_needs(id, id.checked_sub(1).into_iter())).collect());
}

#[test]
fn ten_thousand_tasks_side_by_side_run_once_each() {
    check("wide", (0..TASKS).map(|id| with_needs(id, std::iter::empty())).collect());
}

#[test]
fn hundred_layers_of_a_hundred_tasks_run_once_each() {
    // Each task needs ten tasks of the layer before.
    let needs = |id: usize| {
        let layer = (id / 100).checked_sub(1);
        layer.into_iter().flat_map(move |layer| (0..10).map(move |n| layer * 100 + (id + n) % 100))
    };
    check("layers", (0..TASKS).map(|id| with_needs(id, needs(id))).collect());
}

#[test]
fn fork_and_join_of_ten_thousand_tasks_runs_once_each() {
    let mut tasks: Vec<Task> = vec![task("t0")];
    tasks.extend((1..TASKS - 10).map(|id| with_needs(id, std::iter::once(0))));
    let joins = TASKS - 10..TASKS;
    tasks.extend(
        joins.map(|id| with_needs(id, (id - (TASKS - 11)) * 900..(id - (TASKS - 11)) * 900 + 900)),
    );
    check("fork and join", tasks);
}

#[test]
fn failure_of_the_first_of_ten_thousand_tasks_stops_the_chain() {
    let plan = plan((0..TASKS).map(|id| with_needs(id, id.checked_sub(1).into_iter())).collect());
    let graph = Arc::new(Graph::new(&plan));
    let mut state = RunState::new(graph, RUN);
    let accepted =
        InputKind::Accepted { plan: Digest::of(&[b"plan"]), policy: Digest::of(&[b"policy"]) };
    advance(&mut state, &input(accepted));
    let of = state.startable(Moment(1)).next().unwrap();
    let grant = Grant { lease: Limits::default(), box_run: None, epoch: 0 };
    advance(&mut state, &input(InputKind::Lease(of.clone(), Ok(grant))));
    let reason = crate::runs::machine::FailReason::Refused;
    let end = End::Failed { reason, text: String::new() };
    let (facts, _) = advance(&mut state, &input(InputKind::Ended(of, end, None)));
    let stopped =
        facts.iter().filter(|fact| matches!(fact.kind, FactKind::TaskStopped { .. })).count();
    assert_eq!((stopped, state.outcome()), (TASKS - 1, Some(Outcome::Failed)));
}
