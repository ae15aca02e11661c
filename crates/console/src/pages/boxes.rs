//! The list of boxes.

use askama::Template;
use serde::Deserialize;

use super::html;
use crate::frame::Frame;
use crate::text::{Moment, duration, principal, segment};
use crate::{Api, List, PageRequest, Refusal, Text, path_with, read};

/// A box, as `GET /v1/boxes` returns it.
#[derive(Debug, Deserialize)]
pub(super) struct BoxItem {
    pub(super) name: String,
    pub(super) state: String,
    #[serde(default)]
    pub(super) maker: Option<String>,
    #[serde(default)]
    pub(super) template: Option<Text>,
    #[serde(default)]
    pub(super) agent: Option<Text>,
    #[serde(default)]
    pub(super) workspace: Option<Workspace>,
    #[serde(default)]
    pub(super) run: Option<BoxRun>,
    #[serde(default)]
    pub(super) problem: Option<Text>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Workspace {
    pub(super) kind: Text,
    pub(super) path: Text,
}

#[derive(Debug, Deserialize)]
pub(super) struct BoxRun {
    pub(super) started: String,
    pub(super) program: Vec<Text>,
    #[serde(default)]
    pub(super) end: Option<End>,
    pub(super) pending: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct End {
    pub(super) reason: Text,
    #[serde(default)]
    exit: Option<i32>,
    #[serde(default)]
    signal: Option<i32>,
    duration: u64,
}

impl End {
    /// Returns how and after which time a program ended, for people.
    pub(super) fn text(&self) -> Text {
        let how = match (self.exit, self.signal) {
            (Some(status), _) => format!("exit status {status}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => self.reason.to_string(),
        };
        let why = match self.reason.as_str() {
            "exit" | "signal" => String::new(),
            reason => format!(" ({reason})"),
        };
        Text::from(format!("{how}{why} after {}", duration(self.duration)))
    }
}

/// A row of the list.
pub(super) struct BoxRow {
    pub(super) path: String,
    pub(super) name: Text,
    pub(super) about: Text,
    pub(super) state: StateMark,
    pub(super) maker: Text,
    pub(super) template: Text,
    pub(super) last: Text,
    pub(super) started: Option<Moment>,
    pub(super) is_pending: bool,
}

/// How a state is shown: its word, its colour and its icon. The word alone says what the state is.
pub(super) struct StateMark {
    pub(super) word: Text,
    pub(super) class: &'static str,
    pub(super) icon: &'static str,
}

impl StateMark {
    /// Returns the mark of the state of a box.
    pub(super) fn of_box(state: &str, problem: Option<&Text>) -> Self {
        let (class, icon) = match state {
            _ if problem.is_some() => ("bad", "attention"),
            "running" => ("on", "busy"),
            "paused" => ("warn", "paused"),
            _ => ("off", "off"),
        };
        Self { word: Text::from(state), class, icon }
    }
}

impl BoxRow {
    pub(super) fn of(item: BoxItem, now: u64) -> Self {
        let words: Vec<&str> = [item.agent.as_ref(), item.workspace.as_ref().map(|it| &it.path)]
            .into_iter()
            .flatten()
            .map(Text::as_str)
            .collect();
        let about = if words.is_empty() { "no workspace".to_owned() } else { words.join(" · ") };
        let last = match (&item.problem, &item.run) {
            (Some(problem), _) => problem.clone(),
            (None, Some(BoxRun { end: Some(end), .. })) => end.reason.clone(),
            (None, Some(run)) => {
                let words: Vec<&str> = run.program.iter().map(Text::as_str).collect();
                Text::from(words.join(" "))
            }
            (None, None) => Text::from("not started yet"),
        };
        Self {
            path: format!("/boxes/{}", segment(&item.name)),
            name: Text::from(item.name.as_str()),
            about: Text::from(about),
            state: StateMark::of_box(&item.state, item.problem.as_ref()),
            maker: principal(item.maker.as_deref().unwrap_or_default()),
            template: item.template.unwrap_or_default(),
            last,
            started: item.run.as_ref().map(|run| Moment::of(&run.started, now)),
            is_pending: item.run.is_some_and(|run| run.pending),
        }
    }
}

/// A filter of the list, as a link.
pub(super) struct Choice {
    pub(super) name: &'static str,
    pub(super) query: &'static str,
    pub(super) is_current: bool,
}

const CHOICES: [(&str, &str); 3] =
    [("All", ""), ("Running", "state:running"), ("Stopped", "state:stopped")];

#[derive(Template)]
#[template(path = "boxes.html")]
struct Boxes {
    frame: Frame,
    rows: Vec<BoxRow>,
    choices: Vec<Choice>,
    q: Text,
    next: Option<String>,
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Boxes").await?;
    let q = request.query("q");
    let cursor = request.query("cursor");
    let path = path_with("/v1/boxes", &[("limit", "50"), ("q", q), ("cursor", cursor)]);
    let list: List<BoxItem> = read(api, &path).await?;
    let next = list.next.map(|next| path_with("/boxes", &[("q", q), ("cursor", &next)]));
    let choices = CHOICES.into_iter();
    let choices =
        choices.map(|(name, query)| Choice { name, query, is_current: query == q }).collect();
    let rows = list.items.into_iter().map(|item| BoxRow::of(item, request.now)).collect();
    html(&Boxes { frame, rows, choices, q: Text::from(q), next })
}
