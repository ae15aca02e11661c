//! Random plans, the behaviour of their tasks, and the expected end of a run, computed without the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use belljar_ledger::Digest;
use belljar_model::answer::AnswerTerms;
use belljar_model::plan::{
    Check, Edge, Executor, ForEach, Label, OnCrash, OutputKind, OutputSpec, Plan, PlanInput,
    RunBudget, Source, Task, TaskId, Test, Text, When,
};
use belljar_model::spec::Argv;
use belljar_model::{ByteSize, Overrides};
use serde_json::{Value as Json, json};

use crate::runs::graph::Graph;
use crate::runs::machine::{FailReason, Outcome, Output, Status};

/// A small generator of random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// True in `percent` of 100 cases.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A random number that depends on its arguments only.
pub(super) fn fixed(seed: u64, parts: &[u64]) -> Random {
    let mut random = Random(seed);
    for part in parts {
        random.0 ^= part.wrapping_mul(0xff51_afd7_ed55_8ccd);
        random.next();
    }
    random
}

pub(super) fn task_id(number: u64) -> TaskId {
    format!("t{number}").parse().unwrap()
}

fn number_of(task: &TaskId) -> u64 {
    task.as_str()[1..].parse().unwrap()
}

pub(super) fn label(text: &str) -> Label {
    text.parse().unwrap()
}

/// A task without edges.
pub(super) fn task(id: &str) -> Task {
    Task {
        id: id.parse().unwrap(),
        executor: Executor::Stub { output: Json::Null, delay: Duration::ZERO, fail: None },
        data: Vec::new(),
        needs: Vec::new(),
        output: OutputSpec { kind: OutputKind::Json, schema: None, max: ByteSize::mib(1) },
        when: None,
        for_each: None,
        attempts: 1,
        backoff: Duration::from_secs(2),
        on_crash: OnCrash::Evidence,
        done: Vec::new(),
        checks: Vec::new(),
        overrides: Overrides::default(),
        budget: RunBudget::default(),
        labels: Vec::new(),
    }
}

/// A gate without edges.
pub(super) fn gate(id: &str) -> Task {
    let executor = Executor::Approval {
        question: "Go on?".to_owned(),
        apply: None,
        deadline: Duration::from_mins(2),
        clears: Vec::new(),
        deny_when: Vec::new(),
        answers: AnswerTerms::default(),
    };
    Task { executor, ..task(id) }
}

/// An edge, written `id` or `id?` or `input.name`.
pub(super) fn edge(text: &str) -> Edge {
    let (name, optional) = text.strip_suffix('?').map_or((text, false), |name| (name, true));
    let from = match name.strip_prefix("input.") {
        Some(input) => Source::Input(input.parse().unwrap()),
        None => Source::Task(name.parse().unwrap()),
    };
    Edge { from, optional }
}

pub(super) fn plan(tasks: Vec<Task>) -> Plan {
    let content = Text::Inline("text".to_owned());
    let input = PlanInput { content, labels: vec![label("untrusted")] };
    let mut plan = Plan::default();
    (plan.name, plan.template) = ("test".to_owned(), "default".to_owned());
    (plan.inputs, plan.tasks) = (BTreeMap::from([("issue".parse().unwrap(), input)]), tasks);
    plan
}

/// Returns a random plan with `size` tasks.
pub(super) fn random_plan(seed: u64, size: u64) -> Plan {
    let mut random = fixed(seed, &[1]);
    let mut tasks: Vec<Task> = Vec::new();
    for number in 0..size {
        tasks.push(random_task(&mut random, number));
    }
    let mut plan = plan(tasks);
    if random.chance(50) {
        plan.answer = Some(task_id(random.below(size)));
    }
    plan
}

fn random_task(random: &mut Random, number: u64) -> Task {
    let mut made = task(task_id(number).as_str());
    let mut earlier: Vec<u64> = Vec::new();
    for before in 0..number {
        if random.chance(35) {
            earlier.push(before);
            let from = Source::Task(task_id(before));
            let optional = random.chance(35);
            let edges = if random.chance(70) { &mut made.data } else { &mut made.needs };
            edges.push(Edge { from, optional });
        }
    }
    if random.chance(25) {
        made.data.push(edge("input.issue"));
    }
    if !earlier.is_empty() && random.chance(25) {
        let of = earlier[usize::try_from(random.below(earlier.len() as u64)).unwrap()];
        let test = match random.below(3) {
            0 => Test::Equals(json!(true)),
            1 => Test::In(vec![json!(true), json!(7)]),
            _ => Test::Exists(true),
        };
        made.when = Some(When { of: task_id(of), at: "/go".to_owned(), test });
    }
    made.for_each = match random.below(10) {
        0 | 1 => Some(ForEach::Values(vec![json!(1); usize::try_from(random.below(4)).unwrap()])),
        2 | 3 if !earlier.is_empty() => {
            let of = earlier[usize::try_from(random.below(earlier.len() as u64)).unwrap()];
            Some(ForEach::Output { of: task_id(of), at: "/list".to_owned(), max: 3 })
        }
        _ => None,
    };
    made.attempts = 1 + u32::try_from(random.below(3)).unwrap();
    made.backoff = Duration::from_millis(random.below(10_000));
    made.on_crash = [OnCrash::Evidence, OnCrash::Evidence, OnCrash::Rerun, OnCrash::Ask]
        [usize::try_from(random.below(4)).unwrap()];
    if random.chance(25) {
        made.checks.push(Check::Schema("schema.json".into()));
    }
    if random.chance(25) {
        let (tier, prompt) = ("judge".parse().unwrap(), Text::Inline("Judge it.".to_owned()));
        made.checks.push(Check::Model { tier, prompt });
    }
    if random.chance(15) {
        made.checks.push(Check::Verify(Argv::new(["prove"]).unwrap()));
    }
    match random.below(10) {
        0 | 1 => {
            let clears = if random.chance(50) { vec![label("untrusted")] } else { Vec::new() };
            made.executor = Executor::Approval {
                question: "Go on?".to_owned(),
                apply: None,
                deadline: Duration::from_mins(2),
                clears,
                deny_when: Vec::new(),
                answers: AnswerTerms::default(),
            };
            made.checks.clear();
        }
        2 => {
            made.executor = Executor::Model {
                tier: "cheap".parse().unwrap(),
                escalate: vec!["capable".parse().unwrap()],
                prompt: Text::Inline("Name one.".to_owned()),
                max_tokens: None,
                overflow: Default::default(),
                tools: None,
            };
        }
        _ => {}
    }
    made
}

/// What the counted attempt `n` of an instance does, independent of all timing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Behaviour {
    pub(super) result: Result<Json, FailReason>,
    /// Whether the checks accept the output.
    pub(super) accepted: bool,
    pub(super) millis: u64,
    /// Whether the attempt has an effect that must not be repeated.
    pub(super) effect: bool,
    pub(super) labels: BTreeSet<Label>,
}

pub(super) fn behaviour(seed: u64, task: &TaskId, item: Option<u32>, n: u64) -> Behaviour {
    let item = item.map_or(0, |item| u64::from(item) + 1);
    let mut random = fixed(seed, &[2, number_of(task), item, n]);
    let list: Vec<u64> = (0..random.below(5)).collect();
    let output = json!({ "go": random.chance(60), "list": list, "by": [task.as_str(), item, n] });
    let result = match random.below(100) {
        0..15 => Err(FailReason::Exit),
        15..20 => Err(FailReason::Refused),
        20..23 => Ok(json!("no object")),
        _ => Ok(output),
    };
    let labels =
        if random.chance(20) { BTreeSet::from([label("network")]) } else { BTreeSet::new() };
    Behaviour {
        result,
        accepted: random.chance(75),
        millis: random.below(20_000),
        effect: random.chance(50),
        labels,
    }
}

/// The decision of the person about a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Approve,
    Edit,
    Reject,
    /// The person never answers.
    Silence,
}

pub(super) fn decision(seed: u64, task: &TaskId, item: Option<u32>) -> Decision {
    let item = item.map_or(0, |item| u64::from(item) + 1);
    match fixed(seed, &[3, number_of(task), item]).below(8) {
        0 => Decision::Reject,
        1 => Decision::Silence,
        2 => Decision::Edit,
        _ => Decision::Approve,
    }
}

/// Returns the output with a content.
pub(super) fn output_of(
    graph: &Graph,
    task: &TaskId,
    content: &Json,
    labels: BTreeSet<Label>,
) -> Output {
    let text = content.to_string();
    Output {
        digest: Digest::of(&[text.as_bytes()]),
        size: text.len() as u64,
        labels,
        selections: graph.select(task, content),
    }
}

/// The expected final states of all tasks, and the expected outcome, without crashes, limits and cancels.
#[derive(Debug, PartialEq)]
pub(super) struct Expected {
    pub(super) tasks: BTreeMap<TaskId, Status>,
    /// The contents of the instances that are done.
    pub(super) outputs: BTreeMap<TaskId, Vec<Json>>,
    pub(super) outcome: Outcome,
}

/// Computes the expected end from the rules for edges, one task after the other.
pub(super) fn expected(plan: &Plan, seed: u64) -> Expected {
    let mut tasks: BTreeMap<TaskId, Status> = BTreeMap::new();
    let mut outputs: BTreeMap<TaskId, Vec<Json>> = BTreeMap::new();
    for task in &plan.tasks {
        let (status, contents) = expected_task(task, plan, seed, &tasks, &outputs);
        tasks.insert(task.id.clone(), status);
        outputs.insert(task.id.clone(), contents);
    }
    let is_sink = |task: &&Task| {
        plan.tasks.iter().all(|other| sources(other).iter().all(|(id, _)| *id != task.id))
    };
    let succeeded = match &plan.answer {
        Some(answer) => tasks[answer] == Status::Done,
        None => plan
            .tasks
            .iter()
            .filter(is_sink)
            .all(|task| matches!(tasks[&task.id], Status::Done | Status::Skipped)),
    };
    let outcome = if succeeded { Outcome::Succeeded } else { Outcome::Failed };
    Expected { tasks, outputs, outcome }
}

/// Returns the tasks before a task, each with whether the edge has `?`.
pub(super) fn sources(task: &Task) -> Vec<(TaskId, bool)> {
    let edges = task.data.iter().chain(&task.needs);
    edges
        .filter_map(|edge| match &edge.from {
            Source::Task(id) => Some((id.clone(), edge.optional)),
            Source::Input(_) => None,
        })
        .collect()
}

fn expected_task(
    task: &Task,
    plan: &Plan,
    seed: u64,
    tasks: &BTreeMap<TaskId, Status>,
    outputs: &BTreeMap<TaskId, Vec<Json>>,
) -> (Status, Vec<Json>) {
    let bad = [Status::Failed, Status::Stopped, Status::Cancelled];
    let sources = sources(task);
    let required = || sources.iter().filter(|(_, optional)| !optional);
    let optional = || sources.iter().filter(|(_, optional)| *optional);
    if required().any(|(id, _)| bad.contains(&tasks[id])) {
        return (Status::Stopped, Vec::new());
    }
    if optional().next().is_some() && optional().all(|(id, _)| outputs[id].is_empty()) {
        let failed = optional().any(|(id, _)| bad.contains(&tasks[id]));
        return (if failed { Status::Stopped } else { Status::Skipped }, Vec::new());
    }
    if required().any(|(id, _)| tasks[id] == Status::Skipped) {
        return (Status::Skipped, Vec::new());
    }
    if let Some(When { of, at, test }) = &task.when {
        let holds = |content: &Json| match (test, content.pointer(at)) {
            (Test::Equals(value), found) => found == Some(value),
            (Test::In(values), found) => found.is_some_and(|found| values.contains(found)),
            (Test::Exists(wanted), found) => found.is_some() == *wanted,
        };
        if !outputs[of].iter().any(holds) {
            return (Status::Skipped, Vec::new());
        }
    }
    let items: Vec<Option<u32>> = match &task.for_each {
        None => vec![None],
        Some(ForEach::Values(values)) => {
            (0..u32::try_from(values.len()).unwrap()).map(Some).collect()
        }
        Some(ForEach::Output { of, at, max }) => {
            let is_single =
                plan.tasks.iter().any(|other| other.id == *of && other.for_each.is_none());
            match outputs[of].first() {
                None => return (Status::Skipped, Vec::new()),
                Some(_) if !is_single => return (Status::Skipped, Vec::new()),
                Some(content) => match content.pointer(at).and_then(Json::as_array) {
                    Some(list) if list.len() <= *max as usize => {
                        (0..u32::try_from(list.len()).unwrap()).map(Some).collect()
                    }
                    _ => return (Status::Failed, Vec::new()),
                },
            }
        }
    };
    let contents: Vec<Option<Json>> =
        items.iter().map(|item| expected_instance(task, *item, seed)).collect();
    let all_done = contents.iter().all(Option::is_some);
    let status = if all_done { Status::Done } else { Status::Failed };
    (status, contents.into_iter().flatten().collect())
}

fn expected_instance(task: &Task, item: Option<u32>, seed: u64) -> Option<Json> {
    let tiers = match &task.executor {
        Executor::Approval { .. } => {
            let first = behaviour(seed, &task.id, item, 0).result.unwrap_or(Json::Null);
            return match decision(seed, &task.id, item) {
                Decision::Approve => Some(first),
                Decision::Edit => Some(json!({ "edited": first })),
                Decision::Reject | Decision::Silence => None,
            };
        }
        Executor::Model { escalate, .. } => 1 + escalate.len(),
        _ => 1,
    };
    for n in 0..u64::from(task.attempts) * tiers as u64 {
        let behaviour = behaviour(seed, &task.id, item, n);
        match behaviour.result {
            Ok(content) if task.checks.is_empty() || behaviour.accepted => return Some(content),
            Err(reason) if !reason.is_retried() => return None,
            Ok(_) | Err(_) => {}
        }
    }
    None
}
