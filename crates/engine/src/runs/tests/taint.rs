//! P7 with boxes that earn labels, grants that labels remove and gates that labels exclude; and the rules of
//! labels one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use belljar_model::plan::{
    Check, Executor, ForEach, Label, Plan, Source, Task, TaskId, Test, Text, When,
};
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use serde_json::{Value as Json, json};

use super::plans::{Random, edge, fixed, gate, label, plan, task};
use super::rules::{Lab, attempt};
use super::sim::{RUN, Scenario, Trace, person, reread, simulate};
use crate::runs::gate::Sender;
use crate::runs::graph::Graph;
use crate::runs::machine::{
    Ended, Fact, FactKind, Output, RefusedBecause, RunState, Settled, Status, TaskRef, Verdict,
};
use crate::runs::taint::{BoxTaint, Earned, GrantName, Marked, PlanTaint};

const LABELS: [&str; 3] = ["untrusted", "network", "model"];

fn random_label(random: &mut Random) -> Label {
    label(LABELS[usize::try_from(random.below(3)).unwrap()])
}

fn secret(name: &str, deny_when: &[&str]) -> Marked {
    let grant = GrantName::Secret(name.parse().unwrap());
    let deny_when = deny_when.iter().map(|text| label(text)).collect();
    Marked { grant, deny_when, tier: None, check: None }
}

fn open_network() -> Earned {
    Earned { label: label("network"), from: "net = \"full\"".to_owned() }
}

/// Adds random labels to the tasks and gates of a plan. Returns random labels and grants of its boxes.
pub(super) fn random_taint(seed: u64, plan: &mut Plan) -> PlanTaint {
    let mut random = fixed(seed, &[6]);
    let mut all = PlanTaint::new();
    for task in &mut plan.tasks {
        if random.chance(15) {
            task.labels.push(label("untrusted"));
        }
        if let Executor::Approval { deny_when, clears, .. } = &mut task.executor {
            if random.chance(40) {
                deny_when.push(random_label(&mut random));
                clears.retain(|label| !deny_when.contains(label));
            }
            continue;
        }
        let mut taint = BoxTaint::default();
        if random.chance(20) {
            taint.earned.push(open_network());
        }
        if random.chance(60) {
            let labels = [random_label(&mut random), random_label(&mut random)];
            let names: Vec<&str> = labels.iter().map(Label::as_str).collect();
            taint.marked.push(secret("deploy", &names));
        }
        if random.chance(30) {
            let deny_when = BTreeSet::from([random_label(&mut random)]);
            let grant = GrantName::Rule("allow api.example.com".to_owned());
            let tier = Some(u32::try_from(random.below(2)).unwrap());
            taint.marked.push(Marked { grant, deny_when, tier, check: None });
        }
        for (number, _) in (0..).zip(&task.checks).filter(|(_, it)| it.tier().is_some()) {
            let deny_when = BTreeSet::from([random_label(&mut random)]);
            let grant = GrantName::Secret("judge".parse().unwrap());
            taint.marked.push(Marked { grant, deny_when, tier: None, check: Some(number) });
        }
        all.insert(task.id.clone(), taint);
    }
    all
}

/// The outputs of the instances that are done.
fn outputs(trace: &Trace) -> BTreeMap<TaskRef, Output> {
    let (mut ended, mut done) = (BTreeMap::new(), BTreeMap::new());
    let has_checks =
        |id: &TaskId| trace.plan.tasks.iter().any(|task| task.id == *id && !task.checks.is_empty());
    for fact in &trace.facts {
        match &fact.kind {
            FactKind::TaskEnded { of, end: Ended::Done(output), .. } => {
                let into = if has_checks(&of.task) { &mut ended } else { &mut done };
                into.insert(of.instance(), output.clone());
            }
            FactKind::TaskJudged { of, verdict: Verdict::Passed, .. } => {
                done.insert(of.instance(), ended[&of.instance()].clone());
            }
            FactKind::ApprovalGiven { of, output, .. }
            | FactKind::AttentionSettled { of, how: Settled::Done(output), .. } => {
                done.insert(of.instance(), output.clone());
            }
            _ => {}
        }
    }
    done
}

/// The labels of a task by its own definition: its data, the outputs that decide about it, its executor, its
/// files and its box.
fn labels_of(trace: &Trace, task: &Task, outputs: &BTreeMap<TaskRef, Output>) -> BTreeSet<Label> {
    let mut labels: BTreeSet<Label> = task.labels.iter().cloned().collect();
    let mut read: Vec<TaskId> = task.when.iter().map(|when| when.of.clone()).collect();
    if let Some(ForEach::Output { of, .. }) = &task.for_each {
        read.push(of.clone());
    }
    for edge in &task.data {
        match &edge.from {
            Source::Input(name) => labels.extend(trace.plan.inputs[name].labels.clone()),
            Source::Task(id) => read.push(id.clone()),
        }
    }
    for (_, output) in outputs.iter().filter(|(of, _)| read.contains(&of.task)) {
        labels.extend(output.labels.clone());
    }
    let is_told_by_a_judge =
        task.attempts > 1 && task.checks.iter().any(|it| matches!(it, Check::Model { .. }));
    if matches!(task.executor, Executor::Model { .. }) || is_told_by_a_judge {
        labels.insert(label("model"));
    }
    let earned = trace.taint.get(&task.id).into_iter().flat_map(|taint| &taint.earned);
    labels.extend(earned.map(|earned| earned.label.clone()));
    labels
}

fn tainted(seed: u64, size: u64) -> Scenario {
    Scenario {
        seed,
        size,
        crash_percent: if seed.is_multiple_of(3) { 0 } else { 5 },
        settles: true,
        tainted: true,
        ..Scenario::default()
    }
}

/// The grants that were removed from each attempt.
type RemovedFacts = BTreeMap<crate::runs::machine::Try, BTreeSet<(GrantName, Label)>>;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.saturating_mul(1152) / 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn p7_output_has_the_labels_of_its_inputs_and_of_its_box_after_crashes(
        seed in any::<u64>(), size in 1_u64..8,
    ) {
        let trace = simulate(tainted(seed, size));
        let outputs = outputs(&trace);
        for (of, output) in &outputs {
            let task = trace.plan.tasks.iter().find(|task| task.id == of.task).unwrap();
            let mut labels = labels_of(&trace, task, &outputs);
            if let Executor::Approval { clears, .. } = &task.executor {
                labels.retain(|label| !clears.contains(label));
            }
            prop_assert!(output.labels.is_superset(&labels), "{of}: {:?}", output.labels);
        }
        // The facts that were read back give the same labels.
        let graph = Arc::new(Graph::with_taint(&trace.plan, &trace.taint));
        let mut state = RunState::new(graph, RUN);
        trace.facts.iter().for_each(|fact| drop(state.apply(&reread(fact))));
        for task in &trace.plan.tasks {
            prop_assert_eq!(state.labels(&task.id), trace.state.labels(&task.id));
        }
    }

    #[test]
    fn p7_labels_remove_exactly_the_marked_grants_before_each_start(
        seed in any::<u64>(), size in 1_u64..8,
    ) {
        let trace = simulate(tainted(seed, size));
        let outputs = outputs(&trace);
        let mut removed: RemovedFacts = BTreeMap::new();
        for fact in &trace.facts {
            if let FactKind::GrantRemoved { of, removed: grant } = &fact.kind {
                prop_assert!(!grant.from.is_empty(), "{of:?} has a source");
                let of = removed.entry(of.clone()).or_default();
                of.insert((grant.grant.clone(), grant.label.clone()));
            }
            let FactKind::TaskStarted { of, tier, .. } = &fact.kind else { continue };
            let task = trace.plan.tasks.iter().find(|task| task.id == of.task).unwrap();
            let labels = labels_of(&trace, task, &outputs);
            let marked = trace.taint.get(&task.id).into_iter().flat_map(|taint| &taint.marked);
            let mut expected = BTreeSet::new();
            for marked in marked.filter(|it| it.tier.is_none_or(|only| only == *tier)) {
                let excluded = marked.deny_when.intersection(&labels);
                expected.extend(excluded.map(|label| (marked.grant.clone(), label.clone())));
            }
            prop_assert_eq!(removed.get(of).cloned().unwrap_or_default(), expected, "{:?}", of);
        }
    }

    #[test]
    fn p7_gate_is_refused_without_a_question_exactly_if_its_labels_exclude_it(
        seed in any::<u64>(), size in 1_u64..8,
    ) {
        let trace = simulate(tainted(seed, size));
        let outputs = outputs(&trace);
        for fact in &trace.facts {
            let (of, is_excluded) = match &fact.kind {
                FactKind::ApprovalAsked { of, .. } => (of, false),
                FactKind::ApprovalRefused { of, why: RefusedBecause::Labels, .. } => (of, true),
                _ => continue,
            };
            let task = trace.plan.tasks.iter().find(|task| task.id == of.task).unwrap();
            let Executor::Approval { deny_when, .. } = &task.executor else { panic!("{of:?}") };
            let labels = labels_of(&trace, task, &outputs);
            let expected = deny_when.iter().any(|label| labels.contains(label));
            prop_assert_eq!(is_excluded, expected, "{:?}", of);
        }
    }
}

#[test]
fn simulation_removes_grants_and_excludes_gates_and_crashes() {
    let (mut removed, mut excluded, mut crashes) = (0, 0, 0);
    for seed in 0..300 {
        let trace = simulate(tainted(seed, 6));
        let count =
            |is: fn(&FactKind) -> bool| trace.facts.iter().filter(|fact| is(&fact.kind)).count();
        removed += count(|fact| matches!(fact, FactKind::GrantRemoved { .. }));
        excluded += count(|fact| {
            matches!(fact, FactKind::ApprovalRefused { why: RefusedBecause::Labels, .. })
        });
        crashes += trace.crashes;
    }
    assert!(removed > 100 && excluded > 20 && crashes > 100, "{removed} {excluded} {crashes}");
}

fn reads(id: &str, edges: &[&str]) -> Task {
    Task { data: edges.iter().map(|text| edge(text)).collect(), ..task(id) }
}

fn model(id: &str, edges: &[&str]) -> Task {
    let executor = Executor::Model {
        tier: "cheap".parse().unwrap(),
        escalate: vec!["capable".parse().unwrap()],
        prompt: Text::Inline("x".to_owned()),
        max_tokens: None,
        overflow: Default::default(),
        tools: None,
    };
    Task { executor, ..reads(id, edges) }
}

/// Gives a task a box with these earned labels and marked grants.
fn boxed(id: &str, earned: Vec<Earned>, marked: Vec<Marked>) -> (TaskId, BoxTaint) {
    (id.parse().unwrap(), BoxTaint { earned, marked })
}

fn removed(facts: &[Fact]) -> Vec<String> {
    let texts = facts.iter().filter_map(|fact| match &fact.kind {
        FactKind::GrantRemoved { of, removed } => {
            let crate::runs::taint::Removed { grant, label, from } = removed;
            Some(format!("{} {grant} {label} from {}", of.instance(), from.join(", ")))
        }
        _ => None,
    });
    texts.collect()
}

#[test]
fn h18_label_of_an_input_removes_a_secret_of_a_later_task_and_the_fact_names_its_source() {
    let tasks = vec![model("triage", &["input.issue"]), reads("deploy", &["triage"])];
    let taint = [boxed("deploy", Vec::new(), vec![secret("token", &["untrusted"])])].into();
    let mut lab = Lab::tainted(&plan(tasks.clone()), &taint);
    assert_eq!(removed(&lab.start("triage", 1)), [""; 0]);
    lab.done("triage", 1, &json!("print the token"));
    let facts = lab.start("deploy", 1);
    assert_eq!(removed(&facts), ["deploy secret token untrusted from input.issue"]);
    assert!(matches!(facts.last().unwrap().kind, FactKind::TaskStarted { .. }));
    let origins = lab.state.origins(&"deploy".parse().unwrap(), &label("untrusted"));
    let texts: Vec<String> = origins.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["input.issue > triage > deploy"]);
    // Control: without the label, the task has the secret.
    let mut trusted = plan(tasks);
    trusted.inputs.values_mut().for_each(|input| input.labels.clear());
    let mut lab = Lab::tainted(&trusted, &taint);
    lab.start("triage", 1);
    lab.done("triage", 1, &json!("print the token"));
    assert_eq!(removed(&lab.start("deploy", 1)), [""; 0]);
}

#[test]
fn h18_labels_follow_conditions_and_lists_but_not_order_edges() {
    let when = |of: &str| {
        let test = Test::Exists(true);
        Some(When { of: of.parse().unwrap(), at: "/go".to_owned(), test })
    };
    let items = ForEach::Output { of: "a".parse().unwrap(), at: "/list".to_owned(), max: 3 };
    let needs = |id: &str| Task { needs: vec![edge("a")], ..task(id) };
    let mut lab = Lab::new(vec![
        reads("a", &["input.issue"]),
        needs("order"),
        Task { when: when("a"), ..needs("condition") },
        Task { for_each: Some(items), ..needs("list") },
    ]);
    lab.start("a", 1);
    lab.done("a", 1, &json!({ "go": true, "list": [1] }));
    let labels = |name: &str| lab.state.labels(&name.parse().unwrap()).unwrap().len();
    assert_eq!((labels("order"), labels("condition"), labels("list")), (0, 1, 1));
}

#[test]
fn h18_own_network_of_a_box_removes_its_own_secret() {
    let taint = |earned| [boxed("a", earned, vec![secret("token", &["network"])])].into();
    let mut lab = Lab::tainted(&plan(vec![task("a")]), &taint(vec![open_network()]));
    let facts = lab.start("a", 1);
    assert_eq!(removed(&facts), ["a secret token network from net = \"full\" of a"]);
    lab.done("a", 1, &Json::Null);
    let of: TaskRef = "a".parse().unwrap();
    assert!(lab.state.output(&of).unwrap().labels.contains(&label("network")));
    let mut lab = Lab::tainted(&plan(vec![task("a")]), &taint(Vec::new()));
    assert_eq!(removed(&lab.start("a", 1)), [""; 0], "control");
}

#[test]
fn grant_of_a_tier_is_removed_from_attempts_of_this_tier_only() {
    let marked = Marked { tier: Some(1), ..secret("key", &["untrusted"]) };
    let taint = [boxed("a", Vec::new(), vec![marked])].into();
    let mut lab = Lab::tainted(&plan(vec![model("a", &["input.issue"])]), &taint);
    assert_eq!(removed(&lab.start("a", 1)), [""; 0]);
    lab.fail("a", 1, crate::runs::machine::FailReason::Invalid);
    lab.wait(10_000);
    assert_eq!(removed(&lab.start("a", 2)), ["a secret key untrusted from input.issue"]);
}

/// A gate that reads `a`, which reads an input, and a task after the gate.
fn gated(deny_when: &[&str], clears: &[&str]) -> Vec<Task> {
    let mut asked = Task { data: vec![edge("a")], ..gate("gate") };
    if let Executor::Approval { deny_when: denied, clears: cleared, .. } = &mut asked.executor {
        denied.extend(deny_when.iter().map(|text| label(text)));
        cleared.extend(clears.iter().map(|text| label(text)));
    }
    vec![reads("a", &["input.issue"]), asked, reads("b", &["gate"])]
}

#[test]
fn g03_gate_whose_inputs_have_an_excluded_label_is_refused_before_anybody_is_asked() {
    let mut lab = Lab::new(gated(&["untrusted"], &[]));
    lab.start("a", 1);
    let facts = lab.done("a", 1, &json!("approve me"));
    let refused = facts.iter().find_map(|fact| match &fact.kind {
        FactKind::ApprovalRefused { why, by, text, .. } => Some((*why, by.clone(), text.clone())),
        _ => None,
    });
    let text = Some("untrusted (input.issue)".to_owned());
    assert_eq!(refused, Some((RefusedBecause::Labels, None, text)));
    assert!(!facts.iter().any(|fact| matches!(fact.kind, FactKind::ApprovalAsked { .. })));
    assert_eq!((lab.status("gate"), lab.status("b")), ("failed", "stopped"));
    assert_eq!(lab.state.gates().count(), 0);
    // Control: another label does not exclude the gate.
    let mut lab = Lab::new(gated(&["network"], &[]));
    lab.start("a", 1);
    lab.done("a", 1, &json!("approve me"));
    assert_eq!(lab.status("gate"), "gated");
}

#[test]
fn origins_end_at_a_gate_that_cleared_the_label() {
    let taint: PlanTaint = [boxed("b", Vec::new(), vec![secret("token", &["untrusted"])])].into();
    for (clears, expected) in [(&["untrusted"][..], 0), (&[], 1)] {
        let mut lab = Lab::tainted(&plan(gated(&[], clears)), &taint);
        lab.start("a", 1);
        lab.done("a", 1, &json!("x"));
        lab.answer(lab.digest(), Sender::outside(person()));
        assert_eq!(removed(&lab.start("b", 1)).len(), expected, "{clears:?}");
        let origins = lab.state.origins(&"b".parse().unwrap(), &label("untrusted"));
        let texts: Vec<String> = origins.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["input.issue > a > gate > b"][..expected]);
    }
    let of = attempt("b", 1).instance();
    assert_eq!(Lab::new(gated(&[], &[])).state.status(&of), Some(Status::Waiting));
}

#[test]
fn label_of_a_task_is_that_of_its_files() {
    let own = Task { labels: vec![label("untrusted")], ..task("a") };
    let mut lab = Lab::new(vec![own, reads("b", &["a"])]);
    lab.start("a", 1);
    lab.done("a", 1, &Json::Null);
    let origins = lab.state.origins(&"b".parse().unwrap(), &label("untrusted"));
    assert_eq!(origins[0].to_string(), "files of a > a > b");
}
