//! `belljar runs show --taint`: the labels of a run, their sources, and the grants that they removed.

use std::fmt::Write as _;

use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::runs::control;
use belljar_engine::runs::taint::view::{self as taint, TaskTaint};
use belljar_engine::runs::taint::{Origin, sentence};
use belljar_engine::runs::view;
use belljar_model::{RunId, display};
use serde_json::{Value as Json, json};

use crate::cli::runs::RunTarget;
use crate::exit::Outcome;
use crate::print;
use crate::scope;

/// Runs `belljar runs show --taint`.
pub(super) fn show(target: &RunTarget, as_json: bool) -> Outcome {
    let state = scope::open(None)?;
    let run = view::find(&state, &target.run)?;
    let mut tasks = taint::run(&state, run)?;
    if let Some(of) = &target.task {
        tasks.retain(|task| task.of == *of);
        if tasks.is_empty() {
            return Err(control::no_task(run, of));
        }
    }
    if as_json {
        print::json(&to_json(run, &tasks)).kind(ErrorKind::Broken)?;
    } else {
        let text: String = tasks.iter().map(text).collect();
        print::out(&text).kind(ErrorKind::Broken)?;
    }
    Ok(0)
}

/// Describes the labels of one task. Texts of rules are escaped.
fn text(task: &TaskTaint) -> String {
    let none = if task.labels.is_empty() { ", no labels" } else { "" };
    let mut text = format!("{}  {}{none}\n", task.of, task.status.name());
    let mut row = |name: &str, value: String| {
        let value = display::safe_line(value);
        writeln!(text, "  {name:<9}  {value}").ok(); // writing to a string does not fail
    };
    for label in &task.labels {
        for origin in &label.origins {
            row(label.label.as_str(), origin.to_string());
        }
    }
    for label in &task.cleared {
        row("cleared", label.to_string());
    }
    for (attempt, removed) in &task.removed {
        let by = sentence(&removed.label, &removed.from);
        row("removed", format!("{} in attempt {attempt}, because of {by}", removed.grant));
    }
    if let Some(labels) = &task.refused {
        row("refused", format!("because of {labels}"));
    }
    text
}

fn to_json(run: RunId, tasks: &[TaskTaint]) -> Json {
    let origin = |origin: &Origin| {
        let path: Vec<&str> = origin.path.iter().map(|task| task.as_str()).collect();
        json!({ "source": origin.source, "path": path })
    };
    let task = |task: &TaskTaint| {
        let labels = task.labels.iter().map(|label| {
            let origins: Vec<Json> = label.origins.iter().map(origin).collect();
            json!({ "label": label.label, "origins": origins })
        });
        let removed = task.removed.iter().map(|(attempt, it)| {
            json!({ "attempt": attempt, "grant": it.grant.to_string(), "label": it.label, "from": it.from })
        });
        json!({
            "task": task.of.to_string(),
            "state": task.status.name(),
            "labels": labels.collect::<Vec<_>>(),
            "cleared": task.cleared,
            "removed": removed.collect::<Vec<_>>(),
            "refused": task.refused,
        })
    };
    json!({ "run": run, "tasks": tasks.iter().map(task).collect::<Vec<_>>() })
}
