//! Questions that wait for a person: the list, and the page of one with everything that an answer carries out.

use askama::Template;
use serde::Deserialize;

use super::boxes::{Choice, StateMark};
use super::html;
use super::runs::choices;
use crate::frame::Frame;
use crate::text::{Moment, Part, bytes, principal, segment};
use crate::{Api, List, PageRequest, Refusal, Text, path_with, read};

/// The number of characters of a content on the page.
const MAX_CONTENT: usize = 60_000;

/// An approval, as `GET /v1/approvals/{approval}` returns it. A list has no `digest` and what follows.
#[derive(Debug, Deserialize)]
pub(super) struct Approval {
    id: String,
    kind: String,
    state: String,
    asker: Text,
    #[serde(default, rename = "box")]
    box_name: Option<String>,
    #[serde(default)]
    run: Option<String>,
    text: Text,
    #[serde(default)]
    asked: Option<String>,
    #[serde(default)]
    deadline: Option<String>,
    #[serde(default)]
    by: Option<String>,
    #[serde(default)]
    answered: Option<String>,
    #[serde(default)]
    digest: Text,
    #[serde(default)]
    secrets: Vec<Text>,
    #[serde(default)]
    answers: Answers,
    #[serde(default)]
    gate: Option<Gate>,
}

/// Who may answer.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Answers {
    pub(super) approver: String,
    pub(super) two_people: bool,
    #[serde(default)]
    requester: Option<String>,
    #[serde(default)]
    pub(super) refusal: Option<Text>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Gate {
    pub(super) task: Text,
    #[serde(default)]
    pub(super) apply: Option<Branch>,
    pub(super) inputs: Vec<Input>,
    pub(super) then: Vec<Dependent>,
    pub(super) taint: Vec<Text>,
    pub(super) clears: Vec<Text>,
    #[serde(default)]
    pub(super) obstacle: Option<Text>,
    #[serde(default)]
    content: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Branch {
    of: Text,
    pub(super) branch: Text,
    pub(super) commit: Text,
    base: Text,
    pub(super) files: u64,
    pub(super) added_lines: u64,
    pub(super) removed_lines: u64,
    pub(super) executes: Vec<Text>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Input {
    pub(super) name: Text,
    size: u64,
    digest: Text,
    labels: Vec<Text>,
    #[serde(default)]
    preview: Option<String>,
}

impl Input {
    pub(super) fn size(&self) -> String {
        bytes(self.size)
    }

    fn preview(&self) -> Vec<Part> {
        self.preview.as_deref().map(|it| Text::block(it).parts()).unwrap_or_default()
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Dependent {
    pub(super) task: Text,
    pub(super) does: Text,
}

/// What a page of an approval shows.
pub(super) struct Detail {
    pub(super) digest: Text,
    pub(super) text: Vec<Part>,
    pub(super) deadline: Option<String>,
    pub(super) answers: Answers,
    pub(super) gate: Option<Gate>,
    requester: Option<Text>,
    secrets: Vec<Text>,
    content: Option<Content>,
    /// The number of escapes in everything that is shown.
    escapes: usize,
}

struct Content {
    parts: Vec<Part>,
    is_cut: bool,
}

impl From<Approval> for Detail {
    fn from(approval: Approval) -> Self {
        let gate = approval.gate;
        let content =
            gate.as_ref().and_then(|gate| gate.content.as_deref()).map(|content| Content {
                parts: Text::block(content).cut(MAX_CONTENT).parts(),
                is_cut: content.chars().count() > MAX_CONTENT,
            });
        let text = approval.text.parts();
        let mut escapes = count(&text) + content.as_ref().map_or(0, |it| count(&it.parts));
        if let Some(gate) = &gate {
            let lines = gate.then.iter().flat_map(|it| [&it.task, &it.does]);
            let lines = lines.chain(gate.inputs.iter().map(|it| &it.name)).chain(&gate.taint);
            escapes += lines.map(|line| count(&line.parts())).sum::<usize>();
            if content.is_none() {
                escapes += gate.inputs.iter().map(|it| count(&it.preview())).sum::<usize>();
            }
        }
        Self {
            digest: approval.digest,
            text,
            deadline: approval.deadline,
            requester: approval.answers.requester.as_deref().map(principal),
            answers: approval.answers,
            gate,
            secrets: approval.secrets,
            content,
            escapes,
        }
    }
}

fn count(parts: &[Part]) -> usize {
    parts.iter().filter(|part| part.is_escape).count()
}

impl StateMark {
    /// Returns the mark of the state of an approval.
    fn of_approval(state: &str) -> Self {
        let (word, class, icon) = match state {
            "open" => ("waits", "warn", "wait"),
            "claimed" => ("is carried out", "on", "busy"),
            "allowed" => ("approved", "ok", "ok"),
            "edited" => ("approved with changes", "ok", "ok"),
            "denied" => ("denied", "bad", "no"),
            "expired" => ("expired", "off", "clock"),
            "withdrawn" => ("withdrawn", "off", "minus"),
            "rules-changed" => ("closed: the rules changed", "off", "minus"),
            "gone" => ("gone", "off", "minus"),
            "damaged" | "unrecorded" => (state, "bad", "attention"),
            other => (other, "off", "off"),
        };
        Self { word: Text::from(word), class, icon }
    }
}

/// A row of the list.
struct ApprovalRow {
    path: String,
    title: Text,
    text: Text,
    state: StateMark,
    is_open: bool,
    deadline: Option<String>,
    by: Text,
    time: Option<Moment>,
}

fn title(kind: &str, asker: &Text) -> Text {
    match kind {
        "gate" => Text::from(format!("Gate {asker}")),
        "skill" => Text::from(format!("Skill {asker}")),
        _ => Text::from(format!("Request by {asker}")),
    }
}

impl ApprovalRow {
    fn of(item: Approval, now: u64) -> Self {
        let time = item.answered.as_deref().or(item.asked.as_deref());
        Self {
            path: format!("/approvals/{}", segment(&item.id)),
            title: title(&item.kind, &item.asker),
            text: item.text,
            is_open: matches!(&*item.state, "open" | "claimed"),
            state: StateMark::of_approval(&item.state),
            deadline: item.deadline,
            by: item.by.as_deref().map(principal).unwrap_or_default(),
            time: time.map(|time| Moment::of(time, now)),
        }
    }
}

const CHOICES: [(&str, &str); 5] = [
    ("All", ""),
    ("Open", "state:open"),
    ("Requests", "kind:request"),
    ("Gates", "kind:gate"),
    ("Skills", "kind:skill"),
];

#[derive(Template)]
#[template(path = "approvals.html")]
struct Approvals {
    frame: Frame,
    open: Vec<ApprovalRow>,
    answered: Vec<ApprovalRow>,
    choices: Vec<Choice>,
    q: Text,
    next: Option<String>,
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Approvals").await?;
    let q = request.query("q");
    let cursor = request.query("cursor");
    let path = path_with("/v1/approvals", &[("limit", "50"), ("q", q), ("cursor", cursor)]);
    let list: List<Approval> = read(api, &path).await?;
    let next = list.next.map(|next| path_with("/approvals", &[("q", q), ("cursor", &next)]));
    let rows = list.items.into_iter().map(|item| ApprovalRow::of(item, request.now));
    let (open, answered) = rows.partition(|row: &ApprovalRow| row.is_open);
    let choices = choices(&CHOICES, q);
    html(&Approvals { frame, open, answered, choices, q: Text::from(q), next })
}

#[derive(Template)]
#[template(path = "approval.html")]
struct One {
    frame: Frame,
    id: Text,
    path: String,
    kind: String,
    asker: Text,
    box_name: Option<(Text, String)>,
    run: Option<(Text, String)>,
    state: StateMark,
    is_open: bool,
    is_answered: bool,
    asked: Option<Moment>,
    by: Option<Text>,
    answered: Option<Moment>,
    /// Why the person cannot approve.
    no_approval: Option<Text>,
    detail: Detail,
}

pub(super) async fn one(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let path = format!("/v1/approvals/{}", segment(request.param("approval")));
    let approval: Approval = read(api, &path).await?;
    let frame = Frame::read(api, request, title(&approval.kind, &approval.asker)).await?;
    let now = request.now;
    let linked = |place: &str, name: &String| {
        (Text::from(name.as_str()), format!("/{place}/{}", segment(name)))
    };
    let obstacle = approval.gate.as_ref().and_then(|gate| gate.obstacle.clone());
    html(&One {
        frame,
        path,
        id: Text::from(approval.id.as_str()),
        kind: approval.kind.clone(),
        asker: approval.asker.clone(),
        box_name: approval.box_name.as_ref().map(|name| linked("boxes", name)),
        run: approval.run.as_ref().map(|run| linked("runs", run)),
        is_open: approval.state == "open",
        is_answered: !matches!(&*approval.state, "open" | "claimed"),
        state: StateMark::of_approval(&approval.state),
        asked: approval.asked.as_deref().map(|it| Moment::of(it, now)),
        by: approval.by.as_deref().map(principal),
        answered: approval.answered.as_deref().map(|it| Moment::of(it, now)),
        no_approval: approval.answers.refusal.clone().or(obstacle),
        detail: approval.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g02_hidden_characters_are_counted_wherever_they_are() {
        let approval: Approval = serde_json::from_value(serde_json::json!({
            "id": "gate:1", "kind": "gate", "state": "open", "asker": "p/t", "text": "Send\u{202e}?",
            "gate": {
                "plan": "p", "task": "t", "then": [{ "task": "x", "does": "cat \u{1b}" }],
                "inputs": [{ "name": "a", "size": 3, "digest": "", "labels": [], "preview": "\u{200b}" }],
                "taint": [], "clears": [],
            },
        }))
        .unwrap();
        assert_eq!(Detail::from(approval).escapes, 3);
    }
}
