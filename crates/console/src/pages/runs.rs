//! The list of runs, and what the pages of runs have in common.

mod dag;
pub(super) mod run;
mod timeline;

use askama::Template;
use serde::Deserialize;

use super::boxes::{Choice, StateMark};
use super::html;
use crate::frame::Frame;
use crate::text::{Moment, millis, money, principal, segment, took};
use crate::{Api, List, PageRequest, Refusal, Text, path_with, read};

/// A run, as `GET /v1/runs` returns it.
#[derive(Debug, Deserialize)]
struct RunItem {
    id: String,
    state: String,
    #[serde(default)]
    reason: Option<Text>,
    name: Text,
    maker: String,
    accepted: String,
    #[serde(default)]
    ended: Option<String>,
    usage: Usage,
    #[serde(default)]
    tasks: Option<TaskCounts>,
}

/// What a run or a task used.
#[derive(Debug, Default, Deserialize)]
struct Usage {
    calls: u64,
    tokens: u64,
    money: String,
    time: u64,
    bytes: u64,
}

impl Usage {
    /// Returns the money, or a dash if none was spent.
    fn spent(&self) -> Text {
        let is_nothing = self.money.bytes().all(|it| matches!(it, b'0' | b'.'));
        if is_nothing { Text::from("–") } else { money(&self.money) }
    }
}

#[derive(Debug, Deserialize)]
struct TaskCounts {
    all: u64,
    done: u64,
}

impl StateMark {
    /// Returns the mark of the state of a run.
    fn of_run(state: &str) -> Self {
        let (word, class, icon) = match state {
            "running" => ("running", "on", "busy"),
            "waiting" => ("waits for a person", "warn", "wait"),
            "attention" => ("needs a decision", "bad", "attention"),
            "interrupted" => ("interrupted", "warn", "paused"),
            "succeeded" => ("succeeded", "ok", "ok"),
            "failed" => ("failed", "bad", "no"),
            "over_budget" => ("over budget", "bad", "no"),
            "cancelled" => ("cancelled", "off", "minus"),
            other => (other, "off", "off"),
        };
        Self { word: Text::from(word), class, icon }
    }
}

/// Returns whether a run can still change.
fn is_open(state: &str) -> bool {
    matches!(state, "running" | "waiting" | "attention" | "interrupted")
}

/// Returns the time between two times of the API, or until now.
fn time_between(from: &str, to: Option<&str>, now: u64) -> Text {
    let end = to.map_or(Some(now), millis);
    match millis(from).zip(end) {
        Some((from, end)) => Text::from(took(end.saturating_sub(from))),
        None => Text::from("–"),
    }
}

/// A row of the list.
struct RunRow {
    path: String,
    name: Text,
    id: Text,
    about: Option<Text>,
    state: StateMark,
    tasks: Text,
    maker: Text,
    spent: Text,
    took: Text,
    started: Moment,
}

impl RunRow {
    fn of(item: RunItem, now: u64) -> Self {
        let id = Text::from(item.id.as_str());
        let is_named = !item.name.as_str().is_empty();
        Self {
            path: format!("/runs/{}", segment(&item.id)),
            name: if is_named { item.name } else { id.clone() },
            id,
            about: item.reason,
            state: StateMark::of_run(&item.state),
            tasks: match item.tasks {
                Some(TaskCounts { all, done }) => Text::from(format!("{done} of {all}")),
                None => Text::from("–"),
            },
            maker: principal(&item.maker),
            spent: item.usage.spent(),
            took: time_between(&item.accepted, item.ended.as_deref(), now),
            started: Moment::of(&item.accepted, now),
        }
    }
}

const CHOICES: [(&str, &str); 6] = [
    ("All", "kind:plan"),
    ("Running", "kind:plan+state:running"),
    ("Wait for a person", "kind:plan+state:waiting"),
    ("Need a decision", "kind:plan+state:attention"),
    ("Failed", "kind:plan+state:failed"),
    ("Commands", "kind:run"),
];

/// Returns the links of filters. Their queries have `+` for a space.
pub(super) fn choices(all: &[(&'static str, &'static str)], q: &str) -> Vec<Choice> {
    let choice = |(name, query): &(&'static str, &'static str)| Choice {
        name,
        query,
        is_current: query.replace('+', " ") == q,
    };
    all.iter().map(choice).collect()
}

#[derive(Template)]
#[template(path = "runs.html")]
struct Runs {
    frame: Frame,
    rows: Vec<RunRow>,
    choices: Vec<Choice>,
    q: Text,
    next: Option<String>,
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Runs").await?;
    let is_given = request.query.iter().any(|(name, _)| name == "q");
    let q = if is_given { request.query("q") } else { "kind:plan" };
    let cursor = request.query("cursor");
    let path = path_with("/v1/runs", &[("limit", "50"), ("q", q), ("cursor", cursor)]);
    let list: List<RunItem> = read(api, &path).await?;
    let next = list.next.map(|next| path_with("/runs", &[("q", q), ("cursor", &next)]));
    let rows = list.items.into_iter().map(|item| RunRow::of(item, request.now)).collect();
    html(&Runs { frame, rows, choices: choices(&CHOICES, q), q: Text::from(q), next })
}
