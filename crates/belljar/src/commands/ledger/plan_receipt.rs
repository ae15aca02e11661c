//! Shows the content of a verified receipt of a plan, as text and as JSON.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use belljar_engine::moment;
use belljar_engine::record::{json, sentences};
use belljar_ledger::{Digest, Entry, Event, ProvedTask, VerifiedPlan};
use belljar_model::display;
use serde_json::{Value as Json, json};

use super::receipt::MAX_LISTED;

/// The kinds of events that the text lists, with their titles.
const LISTED: [(&str, &str); 9] = [
    ("run.weakened", "weakened"),
    ("request.decided", "request"),
    ("network.changed", "network"),
    ("approval.given", "approval"),
    ("approval.refused", "refusal"),
    ("attention.settled", "settled"),
    ("plan.cancelling", "cancelled"),
    ("alarm.raised", "ALARM"),
    ("run.limit", "limit"),
];

/// Returns the content of a verified receipt as text.
pub(super) fn as_text(verified: &VerifiedPlan) -> String {
    let mut text = String::new();
    let mut add = |name: &str, what: &str| {
        writeln!(text, "{name:<10} {what}").ok(); // writing to a String cannot fail
    };
    if let (Some(run), Some(created)) = (verified.run(), verified.created()) {
        let name =
            created.name.map_or_else(String::new, |name| format!(", {}", display::safe(name)));
        add("run", &format!("{run}{name}"));
        let began = verified.plan().first().map_or(0, |entry| entry.moment.time);
        add("began", &moment::readable(began));
        let hash = created.command.hash();
        add("plan", &output(verified, hash, created.command.size()));
        add("policy", &created.policy.to_string());
    }
    let tasks: Vec<String> = verified.tasks().iter().map(|task| of_task(verified, task)).collect();
    add_some(&mut add, "task", &tasks);
    let boxes = of_boxes(verified);
    add_some(&mut add, "box", &boxes);
    for (kind, title) in LISTED {
        let events = verified.events().filter(|entry| entry.kind == kind);
        let all: Vec<String> = events.map(sentences::words).collect();
        add_some(&mut add, title, &all);
    }
    add("models", &counted(&verified.models()));
    add("secrets", &counted(&verified.credential_uses()));
    add(
        "ended",
        &verified
            .outcome()
            .map_or("not yet when this receipt was created".to_owned(), display::safe),
    );
    let checkpoint = verified.checkpoint();
    let (events, size) = (verified.events().count(), checkpoint.size());
    let root = checkpoint.root();
    add("proof", &format!("{events} events, all in the ledger of {size} events, root hash {root}"));
    add("key", &display::safe_line(verified.key().to_string()));
    writeln!(text, "{}", valid(verified)).ok(); // writing to a String cannot fail
    text
}

/// Returns the line that summarizes a valid receipt.
fn valid(verified: &VerifiedPlan) -> String {
    let count = |number: usize, one: &str, many: &str| match number {
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
    };
    let boxes = verified.boxes().iter().filter(|(_, entries)| !entries.is_empty()).count();
    let uses: u64 = verified.credential_uses().values().sum();
    let uses = usize::try_from(uses).unwrap_or(usize::MAX);
    let parts = [
        count(verified.tasks().len(), "task", "tasks"),
        count(boxes, "box", "boxes"),
        count(verified.events().count(), "event", "events"),
        count(verified.approvals(), "approval", "approvals"),
        count(uses, "credential use", "credential uses"),
    ];
    format!("valid: plan, {}", parts.join(", "))
}

/// Adds a line for each text, up to [`MAX_LISTED`].
fn add_some(add: &mut impl FnMut(&str, &str), title: &str, all: &[String]) {
    for text in all.iter().take(MAX_LISTED) {
        add(title, text);
    }
    if all.len() > MAX_LISTED {
        add(title, &format!("and {} more", all.len() - MAX_LISTED));
    }
}

/// Describes a commitment: `12 B (0123456789ab, disclosed)`.
fn output(verified: &VerifiedPlan, hash: Digest, size: u64) -> String {
    let disclosed = if verified.content(hash).is_some() { ", disclosed" } else { "" };
    format!("{} ({}{disclosed})", sentences::size(size), sentences::brief(&hash))
}

fn of_task(verified: &VerifiedPlan, task: &ProvedTask) -> String {
    let state = task.state.as_deref().unwrap_or("not ended");
    let attempts = match task.attempts {
        1 => "1 attempt".to_owned(),
        number => format!("{number} attempts"),
    };
    let output = task.output.map_or_else(String::new, |(hash, size)| {
        format!(", output {}", output(verified, hash, size))
    });
    format!("{}: {}, {attempts}{output}", display::safe(&task.name), display::safe(state))
}

/// Describes each box: the attempt that it carried out, and its end.
fn of_boxes(verified: &VerifiedPlan) -> Vec<String> {
    let attempts: HashMap<String, String> = verified
        .plan()
        .iter()
        .filter_map(|entry| match Event::read(&entry.kind, &entry.fields) {
            Ok(Event::TaskStarted(started)) => {
                let text = format!("{} attempt {}", display::safe(&started.task), started.attempt);
                Some((started.box_run?, text))
            }
            _ => None,
        })
        .collect();
    let boxes = verified.boxes().iter().map(|(run, entries)| {
        let of = attempts.get(&run.to_string()).map_or("the plan", String::as_str);
        let is_end = |entry: &&Entry| matches!(&*entry.kind, "run.ended" | "run.failed");
        let end = match entries.iter().find(is_end) {
            Some(end) => sentences::words(end),
            None if entries.is_empty() => "never started".to_owned(),
            None => "its end is not recorded".to_owned(),
        };
        format!("{run} of {of}: {end}")
    });
    boxes.collect()
}

fn counted(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    let counts = counts.iter().map(|(name, count)| format!("{} ({count})", display::safe(name)));
    counts.collect::<Vec<_>>().join(", ")
}

/// Returns the content of a verified receipt as JSON.
pub(super) fn as_json(verified: &VerifiedPlan) -> Json {
    let checkpoint = verified.checkpoint();
    let tasks: Vec<Json> = verified
        .tasks()
        .iter()
        .map(|task| {
            json!({
                "task": task.name,
                "attempts": task.attempts,
                "state": task.state,
                "output": task.output.map(|(hash, size)| json!({ "hash": hash, "size": size })),
            })
        })
        .collect();
    let boxes: Vec<Json> = verified
        .boxes()
        .iter()
        .map(|(run, entries)| json!({ "run": run.to_string(), "events": entries.len() }))
        .collect();
    let events: Vec<Json> = verified.events().filter_map(event).collect();
    json!({
        "holds": true,
        "complete": true,
        "run": verified.run().map(|run| run.to_string()),
        "name": verified.created().and_then(|created| created.name),
        "plan": verified.accepted(),
        "policy": verified.created().map(|created| created.policy),
        "ended": verified.outcome().is_some(),
        "outcome": verified.outcome(),
        "tasks": tasks,
        "boxes": boxes,
        "approvals": verified.approvals(),
        "credential_uses": verified.credential_uses(),
        "models": verified.models(),
        "checkpoint": { "origin": checkpoint.origin(), "size": checkpoint.size(), "root": checkpoint.root() },
        "key": verified.key().to_string(),
        "events": events,
    })
}

/// Returns an event as JSON. The receipt of a plan has no index of each event.
fn event(entry: &Entry) -> Option<Json> {
    let hash = Digest::leaf(&entry.encode().ok()?);
    let mut event = json::event(0, &hash, entry);
    event.as_object_mut()?.remove("index");
    Some(event)
}
