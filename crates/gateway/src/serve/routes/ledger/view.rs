//! The JSON form of events.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_engine::moment;
use belljar_engine::record::bodies::BodyState;
use belljar_engine::record::browse::{BodyDetail, EventDetail, EventSummary, FieldValue};
use schemars::JsonSchema;
use serde::Serialize;

/// An event in a list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Event")]
pub(super) struct EventView {
    index: u64,
    time: String,
    kind: String,
    /// The process that recorded the event.
    actor: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "box")]
    box_name: Option<String>,
    /// The principal that caused the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// The event in one line.
    summary: String,
    /// The leaf hash in hexadecimal.
    leaf: String,
}

impl EventView {
    pub(super) fn of(event: &EventSummary) -> Self {
        Self {
            index: event.index,
            time: moment::rfc3339(event.time),
            kind: event.kind.clone(),
            actor: event.actor,
            run: event.run.map(|run| run.to_string()),
            box_name: event.owner.box_name.clone(),
            by: event.owner.maker.as_ref().map(ToString::to_string),
            summary: event.words.clone(),
            leaf: event.hash.clone(),
        }
    }
}

/// An event with all its data.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EventDetail")]
pub(super) struct EventDetailView {
    #[serde(flatten)]
    event: EventView,
    /// The description of this kind of event.
    about: &'static str,
    /// The position of the event in its run.
    sequence: u64,
    /// The leaf hash of the previous event of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    /// The encoded event in base64. The leaf hash is that of a zero byte and these bytes.
    bytes: String,
    fields: Vec<FieldView>,
    bodies: Vec<BodyView>,
    /// The events that led to this event, the nearest first.
    causes: Vec<u64>,
    /// The first events that this event led to.
    effects: Vec<u64>,
}

/// A field of an event.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EventField")]
struct FieldView {
    name: String,
    #[serde(flatten)]
    value: ValueView,
}

/// The value of a field. Control characters in texts are escaped; `bytes` of the event is exact.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EventValue")]
#[serde(tag = "type", rename_all = "lowercase")]
enum ValueView {
    Text {
        value: String,
    },
    /// Bytes in base64.
    Bytes {
        value: String,
    },
    /// A number in decimal digits.
    Number {
        value: String,
    },
    Truth {
        value: bool,
    },
    List {
        value: Vec<String>,
    },
    /// A hash in hexadecimal.
    Hash {
        value: String,
    },
    /// The hash of a body of the event.
    Body {
        value: String,
    },
}

/// A body that an event references.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EventBody")]
struct BodyView {
    hash: String,
    size: u64,
    /// `kept`, `hash only`, `redacted`, `pruned` or `lost`.
    state: &'static str,
    /// The event that removed the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed_by: Option<u64>,
    /// The content in base64, if it is available, has at most 64 KiB, and the sender may read contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

impl EventDetailView {
    pub(super) fn of(detail: &EventDetail) -> Self {
        let field = |(name, value): &(String, FieldValue)| FieldView {
            name: name.clone(),
            value: ValueView::of(value),
        };
        Self {
            event: EventView::of(&detail.summary),
            about: detail.about,
            sequence: detail.sequence,
            previous: detail.previous.clone(),
            bytes: STANDARD.encode(&detail.bytes),
            fields: detail.fields.iter().map(field).collect(),
            bodies: detail.bodies.iter().map(BodyView::of).collect(),
            causes: detail.causes.clone(),
            effects: detail.effects.clone(),
        }
    }
}

impl ValueView {
    fn of(value: &FieldValue) -> Self {
        match value {
            FieldValue::Text(text) => Self::Text { value: text.clone() },
            FieldValue::Bytes(bytes) => Self::Bytes { value: STANDARD.encode(bytes) },
            FieldValue::Number(number) => Self::Number { value: number.to_string() },
            FieldValue::Truth(truth) => Self::Truth { value: *truth },
            FieldValue::List(items) => Self::List { value: items.clone() },
            FieldValue::Hash(hash) => Self::Hash { value: hash.clone() },
            FieldValue::Body(hash) => Self::Body { value: hash.clone() },
        }
    }
}

impl BodyView {
    fn of(body: &BodyDetail) -> Self {
        let removed_by = match &body.state {
            BodyState::Redacted { by } | BodyState::Pruned { by } => Some(*by),
            BodyState::Kept | BodyState::HashOnly | BodyState::Lost { .. } => None,
        };
        Self {
            hash: body.hash.clone(),
            size: body.size,
            state: body.state.name(),
            removed_by,
            content: body.content.as_ref().map(|content| STANDARD.encode(content)),
        }
    }
}
