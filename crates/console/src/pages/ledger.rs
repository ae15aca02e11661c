//! The ledger: its events, one event with its proof, and the verification of the whole.
//!
//! The browser checks the proof: `assets/ledger.js` hashes the bytes of the event with the hashes of the proof and
//! compares the result with the signed root. This module only draws the path.

use askama::Template;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::boxes::Choice;
use super::html;
use crate::frame::Frame;
use crate::text::{Moment, number, principal, segment};
use crate::{Api, List, PageRequest, Refusal, Text, path_with, read, read_if_permitted};

const CHOICES: [(&str, &str); 5] = [
    ("All", ""),
    ("Administration", "kind:access.changed"),
    ("Denials", "kind:access.denied"),
    ("Approvals", "kind:approval"),
    ("Runs", "kind:run.created"),
];

/// An event, as `GET /v1/ledger/events` returns it.
#[derive(Debug, Deserialize)]
struct Event {
    index: u64,
    time: String,
    kind: Text,
    summary: Text,
    actor: Text,
    #[serde(default)]
    by: Option<String>,
}

/// A row of the list.
struct Row {
    shown: String,
    path: String,
    time: Moment,
    kind: Text,
    summary: Text,
    by: Text,
    is_open: bool,
}

/// One event with its fields, as `GET /v1/ledger/events/N` returns it.
#[derive(Debug, Deserialize)]
struct Detail {
    index: u64,
    time: String,
    kind: Text,
    about: Text,
    actor: Text,
    #[serde(default)]
    by: Option<String>,
    #[serde(default)]
    run: Option<Text>,
    #[serde(default, rename = "box")]
    box_name: Option<String>,
    sequence: u64,
    #[serde(default)]
    previous: Option<Text>,
    leaf: Text,
    fields: Vec<Field>,
    bodies: Vec<Body>,
    causes: Vec<u64>,
    effects: Vec<u64>,
}

#[derive(Debug, Deserialize)]
struct Field {
    name: Text,
    #[serde(rename = "type")]
    kind: String,
    value: Value,
}

impl Field {
    /// Returns the value as text.
    fn text(&self) -> Text {
        match self.value.as_str() {
            // Bytes are paths and arguments, which are text in most cases.
            Some(text) if self.kind == "bytes" => match BASE64_STANDARD.decode(text) {
                Ok(bytes) => Text::of_bytes(&bytes),
                Err(_) => Text::from(text),
            },
            Some(text) => Text::from(text),
            None => Text::from(self.value.to_string()),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Body {
    hash: Text,
    size: u64,
    state: Text,
}

/// An inclusion proof, as `GET /v1/ledger/events/N/proof` returns it.
#[derive(Debug, Deserialize)]
struct Signed {
    size: u64,
    root: Text,
    proof: Inclusion,
}

#[derive(Debug, Deserialize)]
struct Inclusion {
    index: u64,
    proof: Vec<Text>,
}

/// The picture of the path from an event to the root.
struct Drawing {
    height: u64,
    steps: Vec<Step>,
    root_y: u64,
    leaf_y: u64,
}

/// A hash of the proof beside the path.
struct Step {
    hash: String,
    x: u64,
    y: u64,
    path_y: u64,
    parent_y: u64,
}

/// The horizontal positions of the hashes on the left and right of the path, which is at 300.
const LEFT_X: u64 = 140;
const RIGHT_X: u64 = 460;
const LEVEL: u64 = 38;
const TOP: u64 = 24;

impl Drawing {
    fn of(signed: &Signed) -> Self {
        let hashes = &signed.proof.proof;
        let levels = u64::try_from(hashes.len()).unwrap_or(0);
        let at = |level: u64| TOP + (levels - level.min(levels)) * LEVEL;
        let sides = sides(signed.proof.index, signed.size, hashes.len());
        let steps = hashes.iter().zip(sides).zip(0_u64..);
        let steps = steps.map(|((hash, is_left), level)| Step {
            hash: hash.as_str().chars().take(8).collect(),
            x: if is_left { LEFT_X } else { RIGHT_X },
            y: at(level),
            path_y: at(level),
            parent_y: at(level + 1),
        });
        let steps = steps.collect();
        Self { height: at(0) + TOP, steps, root_y: at(levels), leaf_y: at(0) }
    }
}

/// Returns for each hash of an inclusion proof whether it is on the left of the path (RFC 9162, section 2.1.3.2).
fn sides(index: u64, size: u64, count: usize) -> Vec<bool> {
    let (mut node, mut last) = (index, size.saturating_sub(1));
    let mut sides = Vec::with_capacity(count);
    for _ in 0..count {
        let is_left = node % 2 == 1 || node == last;
        while is_left && node.is_multiple_of(2) && node != 0 {
            node >>= 1;
            last >>= 1;
        }
        sides.push(is_left);
        node >>= 1;
        last >>= 1;
    }
    sides
}

/// The last verification, as `GET /v1/ledger/verify` returns it.
#[derive(Debug, Deserialize)]
struct Job {
    state: Text,
    #[serde(default)]
    ended: Option<String>,
    #[serde(default)]
    report: Option<Report>,
    #[serde(default)]
    failure: Option<Text>,
}

#[derive(Debug, Deserialize)]
struct Report {
    sound: bool,
    events: u64,
    #[serde(default)]
    anchored: Option<u64>,
    findings: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    severity: Text,
    at: Text,
    text: Text,
}

/// The keys of the ledger, as `GET /v1/ledger/key` returns them.
#[derive(Debug, Deserialize)]
struct Keys {
    keys: Vec<Text>,
    /// The key of new checkpoints; null while this server has signed none.
    #[serde(default)]
    signs: Option<Text>,
}

/// The open event with everything about it.
struct Open {
    event: Detail,
    shown: String,
    time: Moment,
    by: Text,
    run_path: Option<String>,
    box_path: Option<String>,
    proof: Option<Drawing>,
    size: String,
    root: Text,
}

#[derive(Template)]
#[template(path = "ledger.html")]
struct Ledger {
    frame: Frame,
    rows: Vec<Row>,
    choices: Vec<Choice>,
    q: Text,
    next: Option<String>,
    open: Option<Open>,
    job: Option<Job>,
    ended: Option<Moment>,
    key: Option<Text>,
    may_verify: bool,
}

pub(super) async fn page(api: &impl Api, request: &PageRequest) -> Result<String, Refusal> {
    let frame = Frame::read(api, request, "Ledger").await?;
    let (q, cursor) = (request.query("q"), request.query("cursor"));
    let path = path_with("/v1/ledger/events", &[("limit", "30"), ("q", q), ("cursor", cursor)]);
    let list: List<Event> = read(api, &path).await?;
    let wanted = match request.query("event") {
        "" => list.items.first().map(|event| event.index),
        text => text.parse().ok(),
    };
    let keys: Option<Keys> = read_if_permitted(api, "/v1/ledger/key").await?;
    let key = keys.and_then(|mut keys| keys.signs.or_else(|| keys.keys.pop()));
    let mut open = match wanted {
        Some(index) => open(api, index, request.now).await?,
        None => None,
    };
    // A new ledger has a proof before its key can be read, and a proof without a key proves nothing.
    if let Some(open) = open.as_mut().filter(|_| key.is_none()) {
        open.proof = None;
    }
    let job: Option<Job> = read_if_permitted(api, "/v1/ledger/verify").await?;
    let ended = job.as_ref().and_then(|job| job.ended.as_deref());
    let ended = ended.map(|ended| Moment::of(ended, request.now));
    let row = |event: Event| Row {
        shown: number(event.index),
        path: path_with(
            "/ledger",
            &[("q", q), ("cursor", cursor), ("event", &event.index.to_string())],
        ),
        time: Moment::of(&event.time, request.now),
        kind: event.kind,
        summary: event.summary,
        by: event.by.as_deref().map_or(event.actor, principal),
        is_open: wanted == Some(event.index),
    };
    let choices = CHOICES.into_iter();
    let choices =
        choices.map(|(name, query)| Choice { name, query, is_current: query == q }).collect();
    let may_verify = frame.me.is_any(&["owner", "admin", "operator", "auditor"]);
    html(&Ledger {
        frame,
        rows: list.items.into_iter().map(row).collect(),
        choices,
        q: Text::from(q),
        next: list.next.map(|next| path_with("/ledger", &[("q", q), ("cursor", &next)])),
        open,
        job,
        ended,
        key,
        may_verify,
    })
}

async fn open(api: &impl Api, index: u64, now: u64) -> Result<Option<Open>, Refusal> {
    let path = format!("/v1/ledger/events/{index}");
    let Some(event) = read_if_permitted::<Detail>(api, &path).await? else { return Ok(None) };
    // The newest events have no proof until the next checkpoint is signed.
    let signed: Option<Signed> = read(api, &format!("{path}/proof")).await.ok();
    let size = signed.as_ref().map_or_else(String::new, |signed| number(signed.size));
    let root = signed.as_ref().map_or_else(Text::default, |signed| signed.root.clone());
    Ok(Some(Open {
        shown: number(event.index),
        time: Moment::of(&event.time, now),
        by: event.by.as_deref().map_or_else(|| event.actor.clone(), principal),
        run_path: event.run.as_ref().map(|run| {
            let run = run.as_str();
            path_with("/ledger", &[("q", &format!("run:{run}"))])
        }),
        box_path: event.box_name.as_deref().map(|name| format!("/boxes/{}", segment(name))),
        proof: signed.as_ref().map(Drawing::of),
        size,
        root,
        event,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_of_a_proof_follow_the_tree() {
        // A tree of 8 leaves is complete: the bits of the index are the sides.
        assert_eq!(sides(0, 8, 3), [false, false, false]);
        assert_eq!(sides(5, 8, 3), [true, false, true]);
        // The last leaf of 7 has no neighbour in its own row.
        assert_eq!(sides(6, 7, 2), [true, true]);
        assert_eq!(sides(4, 7, 3), [false, false, true]);
        assert_eq!(sides(0, 1, 0), [false; 0]);
    }

    #[test]
    fn drawing_has_a_level_for_each_hash() {
        let hash = || Text::from("ab".repeat(32));
        let proof = Inclusion { index: 5, proof: vec![hash(), hash(), hash()] };
        let drawing = Drawing::of(&Signed { size: 8, root: hash(), proof });
        let places: Vec<(u64, u64)> = drawing.steps.iter().map(|step| (step.x, step.y)).collect();
        assert_eq!(places, [(LEFT_X, 138), (RIGHT_X, 100), (LEFT_X, 62)]);
        assert_eq!((drawing.root_y, drawing.leaf_y, drawing.height), (24, 138, 162));
    }
}
