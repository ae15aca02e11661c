//! One run: its plan as a picture and as a table, the gates that wait, budgets, times and the record.

use askama::Template;
use serde::Deserialize;

use super::super::approvals::{Approval, Detail};
use super::super::boxes::StateMark;
use super::super::html;
use super::dag::{self, Edge};
use super::timeline::{self, Span, Timeline};
use super::{Usage, is_open, time_between};
use crate::frame::Frame;
use crate::text::{Moment, bytes, millis, money, number, principal, segment, took};
use crate::{Api, PageRequest, Refusal, Text, read, read_if_permitted};

/// The number of rows of the table. The tasks that need attention are the first of more tasks.
const MAX_ROWS: usize = 200;
/// The number of characters of an output on the page.
const MAX_OUTPUT: usize = 20_000;

/// A run, as `GET /v1/runs/{run}` returns it.
#[derive(Debug, Deserialize)]
struct RunDetail {
    id: String,
    kind: Text,
    state: String,
    #[serde(default)]
    reason: Option<Text>,
    name: Text,
    maker: String,
    template: Text,
    #[serde(default)]
    directory: Option<Text>,
    accepted: String,
    #[serde(default)]
    ended: Option<String>,
    usage: Usage,
    event: u64,
    #[serde(default)]
    plan: Option<Plan>,
}

#[derive(Debug, Deserialize)]
struct Plan {
    budget: Budget,
    tasks: Vec<Task>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Budget {
    calls: Option<u64>,
    tokens: Option<u64>,
    money: Option<String>,
    time: Option<u64>,
    bytes: Option<u64>,
    boxes: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Task {
    id: String,
    executor: Text,
    state: String,
    after: Vec<String>,
    attempt: u32,
    #[serde(default)]
    started: Option<String>,
    #[serde(default)]
    ended: Option<String>,
    #[serde(default)]
    reason: Option<Text>,
    #[serde(default)]
    by: Option<String>,
    #[serde(default)]
    box_run: Option<Text>,
    #[serde(default)]
    lost: Option<u32>,
    #[serde(default)]
    gate: Option<TaskGate>,
    usage: Usage,
    labels: Vec<Text>,
    checks: Vec<Check>,
    lines: Vec<Text>,
    #[serde(default)]
    output: Option<Output>,
}

#[derive(Debug, Deserialize)]
struct TaskGate {
    approval: String,
}

#[derive(Debug, Deserialize)]
struct Check {
    check: u32,
    kind: Text,
    outcome: Text,
    #[serde(default)]
    model: Option<Text>,
}

#[derive(Debug, Deserialize)]
struct Output {
    size: u64,
    #[serde(default)]
    text: Option<String>,
}

/// How the state of a task is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) word: &'static str,
    class: &'static str,
    icon: &'static str,
    /// The class of the task in the picture.
    node: &'static str,
    /// The class of the task in the timeline.
    pub(super) bar: &'static str,
    /// The lowest needs the person first.
    rank: u8,
}

impl Mark {
    /// Returns the mark of the state of a task.
    pub(super) fn of(state: &str) -> Self {
        let (word, class, icon, node, bar, rank) = match state {
            "attention" => ("needs a decision", "bad", "attention", "att", "retry", 0),
            "gated" => ("waits for a person", "warn", "wait", "wait", "wait", 1),
            "failed" => ("failed", "bad", "no", "bad", "retry", 2),
            "running" => ("running", "on", "busy", "run", "done", 3),
            "judging" => ("judging", "on", "eye", "run", "done", 3),
            "backoff" => ("tries again", "warn", "clock", "run", "retry", 3),
            "ready" => ("ready", "off", "clock", "idle", "done", 4),
            "waiting" => ("not started", "off", "off", "idle", "done", 5),
            "done" => ("done", "ok", "ok", "done", "done", 6),
            "skipped" => ("skipped", "off", "minus", "idle", "done", 7),
            "stopped" => ("stopped", "warn", "paused", "idle", "retry", 7),
            "cancelled" => ("cancelled", "off", "minus", "idle", "retry", 7),
            _ => ("unknown", "off", "off", "idle", "done", 7),
        };
        Self { word, class, icon, node, bar, rank }
    }
}

/// A task of the picture. The instances of a task are one node.
struct Node {
    name: Text,
    short: Text,
    about: Text,
    href: String,
    mark: Mark,
    x: usize,
    y: usize,
}

struct Graph {
    width: usize,
    height: usize,
    nodes: Vec<Node>,
    edges: Vec<(Edge, bool)>,
}

/// A row of the table.
struct Row {
    id: Text,
    anchor: String,
    path: String,
    mark: Mark,
    executor: Text,
    attempt: u32,
    took: Text,
    spent: Text,
    about: Text,
    labels: Vec<Text>,
    is_open: bool,
}

/// A limit of the run and what is used of it.
struct Meter {
    name: &'static str,
    percent: Option<u64>,
    text: Text,
}

/// A gate that waits.
struct Gate {
    path: String,
    detail: Detail,
}

/// A lost attempt that waits for a decision.
struct Lost {
    id: Text,
    key: String,
    attempt: u32,
}

/// The task that the person opened.
struct Open {
    id: Text,
    mark: Mark,
    task: Task,
    started: Option<Moment>,
    took: Text,
    by: Option<Text>,
    output: Option<Shown>,
}

struct Shown {
    text: Option<Text>,
    size: String,
    is_cut: bool,
}

#[derive(Template)]
#[template(path = "run.html")]
struct Run {
    frame: Frame,
    id: Text,
    path: String,
    run: RunDetail,
    state: StateMark,
    is_open: bool,
    maker: Text,
    started: Moment,
    took: Text,
    event: String,
    graph: Option<Graph>,
    rows: Vec<Row>,
    hidden: usize,
    names: Vec<String>,
    gates: Vec<Gate>,
    lost: Vec<Lost>,
    meters: Vec<Meter>,
    timeline: Option<Timeline>,
    open: Option<Open>,
}

pub(in crate::pages) async fn page(
    api: &impl Api,
    request: &PageRequest,
) -> Result<String, Refusal> {
    let path = format!("/v1/runs/{}", segment(request.param("run")));
    let mut run: RunDetail = read(api, &path).await?;
    let id = Text::from(run.id.as_str());
    let title = if run.name.as_str().is_empty() { id.clone() } else { run.name.clone() };
    let frame = Frame::read(api, request, title).await?;
    let now = request.now;
    let tasks = run.plan.as_mut().map(|plan| std::mem::take(&mut plan.tasks)).unwrap_or_default();
    let open = open_task(api, &path, request).await?;
    let gates = waiting(api, &tasks).await?;
    let names = names(&tasks);
    let (rows, hidden) = rows(&tasks, &run.id, request.query("task"), now);
    html(&Run {
        frame,
        path,
        state: StateMark::of_run(&run.state),
        is_open: is_open(&run.state),
        maker: principal(&run.maker),
        started: Moment::of(&run.accepted, now),
        took: time_between(&run.accepted, run.ended.as_deref(), now),
        event: number(run.event),
        graph: graph(&tasks, &names),
        rows,
        hidden,
        names,
        gates,
        lost: tasks.iter().filter_map(lost).collect(),
        meters: run.plan.as_ref().map_or_else(Vec::new, |it| meters(&it.budget, &run.usage)),
        timeline: timeline::draw(tasks.iter().filter_map(|task| span(task, now)).collect()),
        open,
        id,
        run,
    })
}

/// Returns the name of a task without the number of the instance.
fn base(id: &str) -> &str {
    id.split_once('[').map_or(id, |(name, _)| name)
}

/// Returns the names of the tasks of the plan, in its order.
fn names(tasks: &[Task]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for task in tasks {
        let name = base(&task.id);
        if names.iter().rev().all(|known| known != name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn graph(tasks: &[Task], names: &[String]) -> Option<Graph> {
    let of_name = |name: &String| -> Vec<&Task> {
        tasks.iter().filter(|task| base(&task.id) == name).collect()
    };
    let groups: Vec<Vec<&Task>> = names.iter().map(of_name).collect();
    let before = |group: &Vec<&Task>| -> Vec<usize> {
        let after = group.first().map(|task| task.after.as_slice()).unwrap_or_default();
        let position = |wanted: &String| names.iter().position(|name| name == base(wanted));
        after.iter().filter_map(position).collect()
    };
    let picture = dag::draw(&groups.iter().map(before).collect::<Vec<_>>())?;
    let nodes = names.iter().zip(&groups).zip(&picture.places);
    let nodes: Vec<Node> = nodes
        .filter_map(|((name, group), place)| {
            let mark = group.iter().map(|task| Mark::of(&task.state)).min_by_key(|it| it.rank)?;
            let first = group.first()?;
            let about = match group.len() {
                1 => format!("{} · {}", mark.word, first.executor),
                all => {
                    let done = group.iter().filter(|task| task.state == "done").count();
                    format!("{} · {done} of {all} done", mark.word)
                }
            };
            Some(Node {
                name: Text::from(name.as_str()),
                short: Text::from(name.as_str()).cut(20),
                about: Text::from(about),
                href: format!("#row-{}", segment(&first.id)),
                mark,
                x: place.x,
                y: place.y,
            })
        })
        .collect();
    let is_hot = |edge: &Edge| {
        nodes.get(edge.to).is_some_and(|node| matches!(node.mark.node, "run" | "wait" | "att"))
    };
    let edges = picture.edges.into_iter().map(|edge| {
        let is_hot = is_hot(&edge);
        (edge, is_hot)
    });
    let edges = edges.collect();
    Some(Graph { width: picture.width, height: picture.height, nodes, edges })
}

/// Returns the rows of the table, and the number of tasks that have none.
fn rows(tasks: &[Task], run: &str, open: &str, now: u64) -> (Vec<Row>, usize) {
    let mut shown: Vec<&Task> = tasks.iter().collect();
    if shown.len() > MAX_ROWS {
        shown.sort_by_key(|task| Mark::of(&task.state).rank);
    }
    let hidden = shown.len().saturating_sub(MAX_ROWS);
    let rows = shown.into_iter().take(MAX_ROWS).map(|task| Row {
        id: Text::from(task.id.as_str()),
        anchor: format!("row-{}", task.id),
        path: format!("/runs/{}?task={}#task", segment(run), segment(&task.id)),
        mark: Mark::of(&task.state),
        executor: task.executor.clone(),
        attempt: task.attempt,
        took: time_of(task, now),
        spent: task.usage.spent(),
        about: about(task),
        labels: task.labels.clone(),
        is_open: task.id == open,
    });
    (rows.collect(), hidden)
}

fn time_of(task: &Task, now: u64) -> Text {
    match &task.started {
        Some(started) => time_between(started, task.ended.as_deref(), now),
        None => Text::from("–"),
    }
}

/// Says what came out of a task, or why nothing did.
fn about(task: &Task) -> Text {
    if let Some(lost) = task.lost {
        return Text::from(format!("the outcome of attempt {lost} is unknown"));
    }
    if let Some(reason) = &task.reason {
        return reason.clone();
    }
    let passed = task.checks.iter().filter(|it| it.outcome.as_str() == "passed").count();
    match (&*task.state, task.lines.last(), &task.by) {
        ("running", Some(line), _) => line.clone(),
        (_, _, Some(by)) => Text::from(format!("by {}", principal(by))),
        ("done", ..) if !task.checks.is_empty() => {
            Text::from(format!("{passed} of {} checks passed", task.checks.len()))
        }
        ("done", ..) => Text::from("has an output"),
        ("waiting", ..) if !task.after.is_empty() => {
            Text::from(format!("after {}", task.after.join(", ")))
        }
        _ => Text::default(),
    }
}

fn lost(task: &Task) -> Option<Lost> {
    let attempt = task.lost?;
    Some(Lost { id: Text::from(task.id.as_str()), key: segment(&task.id), attempt })
}

fn span(task: &Task, now: u64) -> Option<Span> {
    let from = millis(task.started.as_ref()?)?;
    let to = task.ended.as_deref().map_or(Some(now), millis)?;
    let name = Text::from(task.id.as_str());
    Some(Span { name, from, to: to.max(from), mark: Mark::of(&task.state) })
}

/// Reads the approvals of the gates that wait.
async fn waiting(api: &impl Api, tasks: &[Task]) -> Result<Vec<Gate>, Refusal> {
    let mut gates = Vec::new();
    for task in tasks.iter().filter(|task| task.state == "gated").take(5) {
        let Some(gate) = &task.gate else { continue };
        let id = segment(&gate.approval);
        let approval: Option<Approval> =
            read_if_permitted(api, &format!("/v1/approvals/{id}")).await?;
        gates.extend(
            approval.map(|it| Gate { path: format!("/approvals/{id}"), detail: it.into() }),
        );
    }
    Ok(gates)
}

async fn open_task(
    api: &impl Api,
    run: &str,
    request: &PageRequest,
) -> Result<Option<Open>, Refusal> {
    let name = request.query("task");
    if name.is_empty() {
        return Ok(None);
    }
    let path = format!("{run}/tasks/{}", segment(name));
    let Some(mut task) = read_if_permitted::<Task>(api, &path).await? else { return Ok(None) };
    let output = task.output.take().map(|output| Shown {
        is_cut: output.text.as_ref().is_some_and(|text| text.chars().count() > MAX_OUTPUT),
        text: output.text.as_deref().map(|text| Text::block(text).cut(MAX_OUTPUT)),
        size: bytes(output.size),
    });
    Ok(Some(Open {
        id: Text::from(task.id.as_str()),
        mark: Mark::of(&task.state),
        started: task.started.as_deref().map(|it| Moment::of(it, request.now)),
        took: time_of(&task, request.now),
        by: task.by.as_deref().map(principal),
        output,
        task,
    }))
}

/// Reads a decimal number of US dollars in millionths.
fn micros(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction)
}

/// Returns what a run used, with the limits that it has.
fn meters(budget: &Budget, usage: &Usage) -> Vec<Meter> {
    let meter = |name, used: u64, max: Option<u64>, text: String, limit: Option<String>| Meter {
        name,
        percent: max.map(|max| percent(used, max)),
        text: Text::from(match limit {
            Some(limit) => format!("{text} of {limit}"),
            None => text,
        }),
    };
    let most = budget.money.as_deref().and_then(micros);
    let spent = micros(&usage.money).unwrap_or_default();
    let limit = budget.money.as_deref().map(|it| money(it).to_string());
    let mut meters = vec![
        meter("Money", spent, most, money(&usage.money).to_string(), limit),
        meter("Box time", usage.time, budget.time, took(usage.time), budget.time.map(took)),
        meter(
            "Tokens",
            usage.tokens,
            budget.tokens,
            number(usage.tokens),
            budget.tokens.map(number),
        ),
        meter("Calls", usage.calls, budget.calls, number(usage.calls), budget.calls.map(number)),
        meter("Traffic", usage.bytes, budget.bytes, bytes(usage.bytes), budget.bytes.map(bytes)),
    ];
    if let Some(boxes) = budget.boxes {
        let text = format!("at most {boxes} at the same time");
        meters.push(Meter { name: "Boxes", percent: None, text: Text::from(text) });
    }
    meters
}

fn percent(used: u64, max: u64) -> u64 {
    used.saturating_mul(100).checked_div(max).unwrap_or(100).min(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, state: &str, after: &[&str]) -> Task {
        serde_json::from_value(serde_json::json!({
            "id": id, "executor": "stub", "state": state, "after": after, "attempt": 0,
            "usage": { "calls": 0, "tokens": 0, "money": "0.00", "time": 0, "bytes": 0 },
            "labels": [], "checks": [], "lines": [],
        }))
        .unwrap()
    }

    /// An API with one run that has a lost attempt and a gate.
    struct Fake(&'static str);

    impl Api for Fake {
        async fn get(&self, path: &str) -> Result<serde_json::Value, Refusal> {
            use serde_json::json;
            let usage =
                json!({ "calls": 1, "tokens": 5, "money": "0.42", "time": 2000, "bytes": 9 });
            let task = |id: &str, state: &str| {
                json!({
                    "id": id, "executor": "command", "state": state, "after": [], "attempt": 1,
                    "usage": usage, "labels": ["<b>"], "checks": [], "lines": [],
                })
            };
            let mut lost = task("fix[0]", "attention");
            lost["lost"] = json!(1);
            let mut gate = task("gate", "gated");
            gate["gate"] = json!({ "approval": "gate:0", "deadline": "2026-01-01T00:00:00Z" });
            match path {
                "/v1/me" => Ok(json!({ "principal": "user:0", "tenant": "t", "role": self.0 })),
                "/v1/runs/r" => Ok(json!({
                    "id": "r", "kind": "plan", "state": "attention", "name": "<img src=x>\u{202e}",
                    "maker": "user:0", "template": "default", "accepted": "2026-01-01T00:00:00Z",
                    "usage": usage, "event": 7,
                    "plan": { "budget": { "money": "1" }, "tasks": [lost, gate] },
                })),
                "/v1/approvals/gate%3A0" => Ok(json!({
                    "id": "gate:0", "kind": "gate", "state": "open", "asker": "p/gate", "text": "Go on?",
                    "digest": "00", "secrets": [],
                    "answers": { "approver": "operator", "two_people": true, "refusal": "not you" },
                })),
                _ if path.starts_with("/v1/approvals?") => Ok(json!({ "items": [], "next": null })),
                _ => Err(Refusal { status: 404, title: String::new(), detail: String::new() }),
            }
        }
    }

    async fn shown(role: &'static str, pattern: &'static str, name: &str, value: &str) -> String {
        let params = vec![(name.to_owned(), value.to_owned())];
        let request = PageRequest { pattern, params, ..PageRequest::default() };
        crate::render(&Fake(role), &request).await.unwrap()
    }

    #[tokio::test]
    async fn lost_attempt_has_a_form_for_those_who_may_decide() {
        let page = shown("operator", "/runs/{run}", "run", "r").await;
        assert!(page.contains("data-api=\"POST /v1/runs/r/tasks/fix%5B0%5D/settle\""), "{page}");
        assert!(page.contains("$0.42 of $1") && page.contains("42 percent"), "{page}");
        assert!(page.contains("You cannot answer: not you.") && !page.contains("<img"), "{page}");
        let page = shown("auditor", "/runs/{run}", "run", "r").await;
        assert!(
            page.contains("Auditors cannot decide") && !page.contains("data-dialog=\"cancel\"")
        );
    }

    #[tokio::test]
    async fn person_without_the_right_to_answer_sees_disabled_buttons_with_the_reason() {
        let page = shown("member", "/approvals/{approval}", "approval", "gate:0").await;
        let disabled = page.matches("disabled title=\"not you\"").count();
        assert_eq!(disabled, 2, "{page}");
        assert!(!page.contains("data-key=") && page.contains("not the person who started it"));
    }

    #[test]
    fn instances_of_a_task_are_one_node_with_the_state_that_matters_most() {
        let tasks = [
            task("a", "done", &[]),
            task("b[0]", "done", &["a"]),
            task("b[1]", "attention", &["a"]),
            task("c", "waiting", &["b"]),
        ];
        let names = names(&tasks);
        assert_eq!(names, ["a", "b", "c"]);
        let graph = graph(&tasks, &names).unwrap();
        let about: Vec<&str> = graph.nodes.iter().map(|node| node.about.as_str()).collect();
        assert_eq!(about, ["done · stub", "needs a decision · 1 of 2 done", "not started · stub"]);
        assert_eq!(graph.nodes[1].href, "#row-b%5B0%5D");
        assert_eq!(
            graph.edges.iter().map(|(_, is_hot)| *is_hot).collect::<Vec<_>>(),
            [true, false]
        );
    }

    #[test]
    fn table_of_many_tasks_begins_with_those_that_need_somebody() {
        let mut tasks: Vec<Task> =
            (0..MAX_ROWS).map(|at| task(&format!("t[{at}]"), "done", &[])).collect();
        tasks.push(task("last", "attention", &[]));
        let (rows, hidden) = rows(&tasks, "r", "", 0);
        assert_eq!((rows[0].id.as_str(), rows.len(), hidden), ("last", MAX_ROWS, 1));
    }

    #[test]
    fn money_is_read_in_millionths() {
        assert_eq!(
            [micros("0.42"), micros("3"), micros("0.000001")],
            [Some(420_000), Some(3_000_000), Some(1)]
        );
        assert_eq!([micros("x"), micros("-1"), micros("")], [None, None, None]);
        assert_eq!([percent(1, 0), percent(1, 4), percent(9, 3)], [100, 25, 100]);
    }
}
