//! P1 to P9.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use belljar_ledger::Digest;
use belljar_model::caller::PrincipalKind;
use belljar_model::plan::{Executor, Label, OnCrash, Plan, Source, TaskId};
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use super::plans::{expected, sources};
use super::sim::{RUN, Scenario, Trace, reread, simulate};
use crate::runs::graph::Graph;
use crate::runs::machine::{
    Ended, Fact, FactKind, Output, Phase, RunState, Settled, Status, TaskRef, Verdict,
};

/// Ten properties with 1,152 seeds each, 11,520 together, if `PROPTEST_CASES` is not set.
fn seeds(per_256: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: default.cases.saturating_mul(per_256) / 256,
        failure_persistence: None,
        ..default
    }
}

fn all(seed: u64, size: u64) -> Scenario {
    Scenario {
        seed,
        size,
        crash_percent: if seed.is_multiple_of(3) { 0 } else { 5 },
        limited: seed.is_multiple_of(2),
        cancels: seed.is_multiple_of(5),
        settles: true,
        ..Scenario::default()
    }
}

fn violations(trace: &Trace, property: &str) -> Vec<String> {
    let of_property = trace.violations.iter().filter(|(name, _)| *name == property);
    of_property.map(|(_, text)| text.clone()).collect()
}

/// The instances that are done, with the index of the fact that made them so.
fn done(trace: &Trace) -> BTreeMap<TaskRef, (usize, Output)> {
    let mut ended: BTreeMap<TaskRef, Output> = BTreeMap::new();
    let mut done = BTreeMap::new();
    let has_checks: BTreeSet<&TaskId> = trace
        .plan
        .tasks
        .iter()
        .filter(|task| !task.checks.is_empty())
        .map(|task| &task.id)
        .collect();
    for (index, fact) in trace.facts.iter().enumerate() {
        match &fact.kind {
            FactKind::TaskEnded { of, end: Ended::Done(output), .. } => {
                ended.insert(of.instance(), output.clone());
                if !has_checks.contains(&of.task) {
                    done.insert(of.instance(), (index, output.clone()));
                }
            }
            FactKind::TaskJudged { of, verdict: Verdict::Passed, .. } => {
                done.insert(of.instance(), (index, ended[&of.instance()].clone()));
            }
            FactKind::ApprovalGiven { of, output, .. }
            | FactKind::AttentionSettled { of, how: Settled::Done(output), .. } => {
                done.insert(of.instance(), (index, output.clone()));
            }
            _ => {}
        }
    }
    done
}

/// Compares the end of a run with the end that the plan and the behaviour of its tasks imply.
fn differs_from_expected(trace: &Trace, seed: u64) -> Option<String> {
    let expected = expected(&trace.plan, seed);
    for (task, status) in &expected.tasks {
        let found = trace.state.task_status(task);
        if found != Some(*status) {
            return Some(format!("{task} is {found:?}, expected {status:?}"));
        }
        let outputs = trace.plan.tasks.iter().find(|other| other.id == *task).map(|task| {
            let count = trace.state.instances(&task.id).unwrap_or(0);
            let items: Vec<Option<u32>> =
                if task.for_each.is_none() { vec![None] } else { (0..count).map(Some).collect() };
            let refs = items.into_iter().map(|item| TaskRef { task: task.id.clone(), item });
            refs.filter_map(|of| trace.state.output(&of)).map(|output| output.digest).collect()
        });
        let contents = &expected.outputs[task];
        let digests: Vec<Digest> =
            contents.iter().map(|content| Digest::of(&[content.to_string().as_bytes()])).collect();
        if outputs != Some(digests) {
            return Some(format!("the outputs of {task} differ"));
        }
    }
    let found = trace.state.outcome();
    (found != Some(expected.outcome)).then(|| format!("{found:?}, expected {:?}", expected.outcome))
}

/// The labels that the output of a task must have: those of the data that it reads.
fn input_labels(
    plan: &Plan,
    task: &TaskId,
    done: &BTreeMap<TaskRef, (usize, Output)>,
) -> BTreeSet<Label> {
    let task = plan.tasks.iter().find(|other| other.id == *task).unwrap();
    let mut labels = BTreeSet::new();
    for edge in &task.data {
        match &edge.from {
            Source::Input(name) => labels.extend(plan.inputs[name].labels.clone()),
            Source::Task(id) => {
                for (_, (_, output)) in done.iter().filter(|(of, _)| of.task == *id) {
                    labels.extend(output.labels.clone());
                }
            }
        }
    }
    if let Executor::Approval { clears, .. } = &task.executor {
        labels.retain(|label| !clears.contains(label));
    }
    labels
}

proptest! {
    #![proptest_config(seeds(1152))]

    #[test]
    fn p1_folding_any_prefix_of_the_facts_gives_the_live_state(seed in any::<u64>(), size in 1_u64..7) {
        let trace = simulate(all(seed, size));
        prop_assert_eq!(violations(&trace, "P1"), Vec::<String>::new());
        // Facts that were read back give the same states, one by one.
        let graph = Arc::new(Graph::new(&trace.plan));
        let (mut live, mut folded) = (RunState::new(graph.clone(), RUN), RunState::new(graph, RUN));
        for fact in &trace.facts {
            prop_assert_eq!(live.apply(fact), folded.apply(&reread(fact)));
            prop_assert!(live == folded, "{fact:?}");
        }
        prop_assert!(live == trace.state);
    }

    #[test]
    fn p2_start_follows_its_durable_fact_once_per_attempt(seed in any::<u64>(), size in 1_u64..7) {
        let trace = simulate(all(seed, size));
        prop_assert_eq!(violations(&trace, "P2"), Vec::<String>::new());
    }

    #[test]
    fn p3_task_starts_only_after_its_inputs_and_other_branches_go_on(seed in any::<u64>(), size in 1_u64..8) {
        let trace = simulate(all(seed, size));
        let done = done(&trace);
        for (index, fact) in trace.facts.iter().enumerate() {
            let (FactKind::TaskStarted { of, .. } | FactKind::ApprovalAsked { of, .. }) = &fact.kind else {
                continue;
            };
            let task = trace.plan.tasks.iter().find(|task| task.id == of.task).unwrap();
            let before = |id: &TaskId| {
                let count = done.iter().filter(|(of, (at, _))| of.task == *id && *at < index).count();
                u32::try_from(count).unwrap()
            };
            for (id, _) in sources(task).into_iter().filter(|(_, optional)| !optional) {
                prop_assert_eq!(Some(before(&id)), trace.state.instances(&id), "{} starts", of.task);
            }
            let optional: Vec<TaskId> =
                sources(task).into_iter().filter(|(_, optional)| *optional).map(|(id, _)| id).collect();
            prop_assert!(optional.is_empty() || optional.iter().any(|id| before(id) > 0));
        }
        // Without crashes, limits and cancels, every task ends as its inputs and its own result say.
        let plain = simulate(Scenario { seed, size, ..Scenario::default() });
        prop_assert_eq!(differs_from_expected(&plain, seed), None);
    }

    #[test]
    fn p4_final_states_never_change(seed in any::<u64>(), size in 1_u64..7) {
        let trace = simulate(all(seed, size));
        prop_assert_eq!(violations(&trace, "P4"), Vec::<String>::new());
    }

    #[test]
    fn p5_reserved_and_spent_stay_below_the_cap_and_nothing_stays_reserved(
        seed in any::<u64>(), size in 1_u64..7,
    ) {
        let trace = simulate(Scenario { limited: true, ..all(seed, size) });
        prop_assert_eq!(violations(&trace, "P5"), Vec::<String>::new());
    }

    #[test]
    fn p5_reserved_and_spent_of_a_tenant_stay_below_the_cap_of_each_day_and_follow_from_the_facts(
        seed in any::<u64>(), size in 1_u64..7,
    ) {
        let trace = simulate(Scenario { tenant: true, ..all(seed, size) });
        prop_assert_eq!(violations(&trace, "P5"), Vec::<String>::new());
        prop_assert_eq!(violations(&trace, "P9"), Vec::<String>::new());
    }

    #[test]
    fn p6_approval_needs_the_asked_digest_counts_once_and_comes_from_a_person(
        seed in any::<u64>(), size in 1_u64..7,
    ) {
        let trace = simulate(all(seed, size));
        prop_assert_eq!(violations(&trace, "P6"), Vec::<String>::new());
        let mut open: BTreeMap<Digest, TaskRef> = BTreeMap::new();
        let mut asked = BTreeSet::new();
        for fact in &trace.facts {
            match &fact.kind {
                FactKind::ApprovalAsked { of, digest, .. } => {
                    prop_assert!(asked.insert(*digest), "a digest is asked twice");
                    open.insert(*digest, of.instance());
                }
                FactKind::ApprovalGiven { of, digest, by, .. } => {
                    prop_assert_eq!(open.remove(digest), Some(of.instance()));
                    prop_assert!(matches!(by.kind(), PrincipalKind::User | PrincipalKind::Person));
                }
                FactKind::ApprovalRefused { of, digest, .. } => {
                    prop_assert_eq!(open.remove(digest), Some(of.instance()));
                }
                _ => {}
            }
        }
    }

    #[test]
    fn p7_output_has_the_labels_of_its_inputs_unless_a_gate_clears_them(
        seed in any::<u64>(), size in 1_u64..8,
    ) {
        let trace = simulate(all(seed, size));
        let done = done(&trace);
        for (of, (_, output)) in &done {
            let inputs = input_labels(&trace.plan, &of.task, &done);
            prop_assert!(output.labels.is_superset(&inputs), "{of}: {:?}", output.labels);
        }
    }

    #[test]
    fn p9_open_run_waits_for_a_host_a_timer_or_a_person(seed in any::<u64>(), size in 1_u64..8) {
        let trace = simulate(all(seed, size));
        prop_assert_eq!(violations(&trace, "P9"), Vec::<String>::new());
        prop_assert_eq!(trace.state.phase(), Phase::Ended);
        for task in &trace.plan.tasks {
            prop_assert!(trace.state.task_status(&task.id).is_some_and(Status::is_final));
        }
    }

    #[test]
    fn p8_run_with_several_crashes_ends_as_without_or_waits_for_attention(
        seed in any::<u64>(), size in 1_u64..6,
    ) {
        let trace = simulate(Scenario { seed, size, crash_percent: 1, ..Scenario::default() });
        prop_assert_eq!(check_crashed(&trace, seed), None);
    }
}

/// Checks the end of a run with crashes, and that no effect happened twice.
fn check_crashed(trace: &Trace, seed: u64) -> Option<String> {
    let repeats = |id: &TaskId| {
        trace.plan.tasks.iter().any(|task| task.id == *id && task.on_crash == OnCrash::Rerun)
    };
    let twice = trace.effects.iter().find(|((of, _), count)| **count > 1 && !repeats(&of.task));
    if let Some(((of, _), count)) = twice {
        return Some(format!("{of} had {count} effects"));
    }
    if trace.state.phase() == Phase::Attention {
        return None;
    }
    differs_from_expected(trace, seed)
}

proptest! {
    #![proptest_config(seeds(64))]

    #[test]
    fn p8_run_with_a_crash_at_any_step_ends_as_without_or_waits_for_attention(
        seed in any::<u64>(), size in 1_u64..6,
    ) {
        let whole = simulate(Scenario { seed, size, ..Scenario::default() });
        prop_assert_eq!(differs_from_expected(&whole, seed), None);
        for step in 1..=whole.steps {
            let crash_at = Some(step);
            let trace = simulate(Scenario { seed, size, crash_at, ..Scenario::default() });
            prop_assert_eq!(check_crashed(&trace, seed), None, "crash at step {}", step);
        }
    }
}

/// The simulation reaches the situations that the properties are about.
#[test]
fn simulation_crashes_repeats_asks_stops_and_needs_attention() {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let mut count = |name| *counts.entry(name).or_default() += 1;
    for seed in 0..300 {
        let trace = simulate(all(seed, 6));
        for fact in &trace.facts {
            count(name_of(fact));
        }
        if trace.crashes > 0 {
            count("crash");
        }
        if trace.effects.values().any(|effects| *effects > 1) {
            count("duplicate with rerun");
        }
        if trace.state.outcome() == Some(crate::runs::machine::Outcome::OverBudget) {
            count("over budget");
        }
        let trace = simulate(Scenario { tenant: true, limited: false, ..all(seed, 6) });
        if trace.renewals > 0 {
            count("new period");
        }
        let of_tenant = |fact: &&Fact| {
            let FactKind::TaskStopped { used_up: Some(used_up), .. } = &fact.kind else {
                return false;
            };
            used_up.budget == "tenant local"
        };
        if trace.facts.iter().any(|fact| of_tenant(&fact)) {
            count("tenant over budget");
        }
    }
    for name in [
        "crash",
        "duplicate with rerun",
        "over budget",
        "new period",
        "tenant over budget",
        "started",
        "done",
        "failed",
        "lost",
        "passed",
        "rejected",
        "retrying",
        "attention",
        "stopped",
        "asked",
        "given",
        "refused",
        "settled",
        "leased",
        "cancelling",
    ] {
        assert!(counts.get(name).is_some_and(|count| *count > 10), "{name}: {counts:?}");
    }
}

fn name_of(fact: &Fact) -> &'static str {
    match &fact.kind {
        FactKind::PlanAccepted { .. } => "accepted",
        FactKind::DriverOpened { .. } => "opened",
        FactKind::TaskStarted { .. } => "started",
        FactKind::GrantRemoved { .. } => "removed",
        FactKind::TaskEnded { end: Ended::Done(_), .. } => "done",
        FactKind::TaskEnded { end: Ended::Failed { .. }, .. } => "failed",
        FactKind::TaskEnded { end: Ended::Lost(_), .. } => "lost",
        FactKind::TaskJudged { verdict: Verdict::Passed, .. } => "passed",
        FactKind::TaskJudged { .. } => "rejected",
        FactKind::TaskRetrying { .. } => "retrying",
        FactKind::TaskLost { .. } => "attention",
        FactKind::TaskStopped { .. } => "stopped",
        FactKind::ApprovalAsked { .. } => "asked",
        FactKind::ApprovalGiven { .. } => "given",
        FactKind::ApprovalRefused { .. } => "refused",
        FactKind::AttentionSettled { .. } => "settled",
        FactKind::BudgetLeased { .. } => "leased",
        FactKind::PlanCancelling { .. } => "cancelling",
        FactKind::PlanEnded { .. } => "ended",
    }
}

#[test]
fn p9_cancelled_task_stops_its_dependents_if_nothing_else_runs() {
    let trace = simulate(all(1_496_598_211_592_469_040, 3));
    assert_eq!(violations(&trace, "P9"), Vec::<String>::new());
    assert_eq!(trace.state.phase(), Phase::Ended);
}
