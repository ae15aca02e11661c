//! Converts the events of a run to an OpenTelemetry trace, in the JSON encoding of OTLP.
//!
//! The module does no I/O. The run is the root span. An intent and its outcome are a child span of the
//! root. Every other event becomes a span event of the span that its cause belongs to, or of the root.
//! Spans that were imported from another system are exported with their original ids.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_ledger::{Digest, Entry, Event, TraceSpan, Value, closes, opens};
use serde_json::{Value as Json, json};

/// A ledger event with its index and hash.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub index: u64,
    pub hash: Digest,
    pub entry: Entry,
}

/// A span that is being built from the events of a run.
#[derive(Debug)]
struct Span<'a> {
    begin: &'a Recorded,
    end: Option<&'a Recorded>,
    events: Vec<Json>,
}

// Constants of opentelemetry/proto/trace/v1/trace.proto.
const KIND_INTERNAL: u32 = 1;
const KIND_CLIENT: u32 = 3;
const STATUS_OK: u32 = 1;
const STATUS_ERROR: u32 = 2;

/// Returns the OTLP trace of one run, or of imported spans without a run. `None` if there is no span.
pub fn trace(events: &[Recorded]) -> Option<Json> {
    let mut spans: Vec<Json> = events.iter().filter_map(imported_span).collect();
    if let Some(run) = events.first().and_then(|first| first.entry.run) {
        let trace: String = hex::encode(Digest::of(&[run.to_string().as_bytes()]).as_bytes());
        let trace = trace.get(..32).unwrap_or_default();
        spans.splice(0..0, run_spans(trace, events));
    }
    if spans.is_empty() {
        return None;
    }
    let version = env!("CARGO_PKG_VERSION");
    let resource = json!({ "attributes": [
        attribute("service.name", &string("belljar")),
        attribute("service.version", &string(version)),
    ]});
    let scope = json!({ "name": "belljar.ledger", "version": version });
    Some(json!({ "resourceSpans": [
        { "resource": resource, "scopeSpans": [{ "scope": scope, "spans": spans }] }
    ]}))
}

/// Returns the spans that Belljar recorded for a run, the root span first.
fn run_spans(trace: &str, events: &[Recorded]) -> Vec<Json> {
    let mut spans: Vec<Span<'_>> = Vec::new();
    // Maps the index of an event to the position of its span.
    let mut positions: HashMap<u64, usize> = HashMap::new();
    for event in events {
        let is_first = spans.is_empty();
        let cause = event.entry.cause.and_then(|cause| positions.get(&cause)).copied();
        let position = cause.unwrap_or(0);
        if is_first || opens_span(event) {
            positions.insert(event.index, spans.len());
            spans.push(Span { begin: event, end: None, events: Vec::new() });
            continue;
        }
        positions.insert(event.index, position);
        let Some(span) = spans.get_mut(position) else { continue };
        let is_cause = event.entry.cause == Some(span.begin.index) || position == 0;
        if is_cause && span.end.is_none() && closes(&event.entry.kind, &span.begin.entry.kind) {
            span.end = Some(event);
        } else if event.entry.kind != "trace.span" {
            span.events.push(span_event(event));
        }
    }
    let root = spans.first().map(|span| span_id(span.begin)).unwrap_or_default();
    let last = events.iter().map(|event| event.entry.moment.time).max().unwrap_or(0);
    let is_root = |position: usize| position == 0;
    spans
        .into_iter()
        .enumerate()
        .map(|(position, span)| {
            let parent = if is_root(position) { "" } else { root.as_str() };
            let unfinished = if is_root(position) { last } else { span.begin.entry.moment.time };
            span_json(trace, parent, span, unfinished)
        })
        .collect()
}

/// Whether an event is an intent, which starts a new span.
fn opens_span(event: &Recorded) -> bool {
    let verdict = match event.entry.fields.get("verdict") {
        Some(Value::Text(verdict)) => Some(verdict.as_str()),
        _ => None,
    };
    opens(&event.entry.kind, verdict)
}

/// Returns a span as JSON. `unfinished` is its end time if no outcome was recorded.
fn span_json(trace: &str, parent: &str, span: Span<'_>, unfinished: u64) -> Json {
    let Span { begin, end, events } = span;
    let start = begin.entry.moment.time;
    let stop = end.map_or(unfinished, |end| end.entry.moment.time).max(start);
    let mut attributes = attributes(begin);
    if let Some(end) = end {
        attributes.extend(self::attributes(end));
    }
    attributes.extend(conventions(begin, end));
    let kind = if begin.entry.kind == "request.decided" { KIND_CLIENT } else { KIND_INTERNAL };
    let mut json = json!({
        "traceId": trace,
        "spanId": span_id(begin),
        "name": name(begin),
        "kind": kind,
        "startTimeUnixNano": start.to_string(),
        "endTimeUnixNano": stop.to_string(),
        "attributes": attributes,
        "events": events,
        "status": status(end),
    });
    if let (false, Some(fields)) = (parent.is_empty(), json.as_object_mut()) {
        fields.insert("parentSpanId".to_owned(), json!(parent));
    }
    json
}

fn status(end: Option<&Recorded>) -> Json {
    let error = |message: &str| json!({ "code": STATUS_ERROR, "message": message });
    let Some(end) = end else { return error("the outcome is not recorded") };
    match Event::read(&end.entry.kind, &end.entry.fields) {
        Ok(Event::RunEnded(run)) if run.exit == Some(0) => json!({ "code": STATUS_OK }),
        Ok(Event::RunEnded(run)) => error(&run.reason),
        Ok(Event::RunFailed(failed)) => error(&failed.error),
        Ok(Event::WorkspaceApplied(applied)) => {
            applied.error.map_or_else(|| json!({ "code": STATUS_OK }), |text| error(&text))
        }
        Ok(Event::RequestFinished(request)) => match (request.error, request.status) {
            (Some(text), _) => error(&text),
            (None, Some(400..)) => json!({ "code": STATUS_ERROR }),
            (None, _) => json!({}),
        },
        _ => json!({}),
    }
}

fn name(begin: &Recorded) -> String {
    match Event::read(&begin.entry.kind, &begin.entry.fields) {
        Ok(Event::RunCreated(run)) => {
            run.name.map_or("run".to_owned(), |name| format!("run {name}"))
        }
        Ok(Event::RequestDecided(request)) => format!("{} {}", request.method, request.host),
        _ => begin.entry.kind.clone(),
    }
}

/// Returns the attributes of a request under the names of the OpenTelemetry semantic conventions.
fn conventions(begin: &Recorded, end: Option<&Recorded>) -> Vec<Json> {
    let Ok(Event::RequestDecided(request)) = Event::read(&begin.entry.kind, &begin.entry.fields)
    else {
        return Vec::new();
    };
    let mut all = vec![
        attribute("http.request.method", &string(&request.method)),
        attribute("url.scheme", &string(&request.scheme)),
        attribute("server.address", &string(&request.host)),
        attribute("server.port", &integer(request.port)),
        attribute("url.path", &string(&request.path)),
    ];
    if let Some(Value::Number(status)) = end.and_then(|end| end.entry.fields.get("status")) {
        all.push(attribute("http.response.status_code", &integer(*status)));
    }
    all
}

fn span_event(event: &Recorded) -> Json {
    json!({
        "timeUnixNano": event.entry.moment.time.to_string(),
        "name": event.entry.kind,
        "attributes": attributes(event),
    })
}

/// Returns the span id of an event: the first eight bytes of its hash, the same in every export.
fn span_id(begin: &Recorded) -> String {
    hex::encode(begin.hash.as_bytes().get(..8).unwrap_or_default())
}

fn attributes(event: &Recorded) -> Vec<Json> {
    let kind = event.entry.kind.as_str();
    let key = |name: &str| format!("belljar.{kind}.{name}");
    let mut all = vec![
        attribute(&key("index"), &integer(event.index)),
        attribute(&key("actor"), &string(event.entry.actor.name())),
    ];
    for (name, value) in event.entry.fields.iter() {
        all.push(attribute(&key(name), &any_value(value)));
        if let Value::Body(body) = value {
            all.push(attribute(&key(&format!("{name}.size")), &integer(body.size())));
        }
    }
    all
}

/// Returns a span that was imported from another system with its original ids, or `None` for
/// other events.
fn imported_span(event: &Recorded) -> Option<Json> {
    let Ok(Event::TraceSpan(span)) = Event::read(&event.entry.kind, &event.entry.fields) else {
        return None;
    };
    let TraceSpan { trace, span, parent, name, start, end, status, attributes: _ } = span;
    let code = match status.split(':').next() {
        Some("ok") => STATUS_OK,
        Some("error") => STATUS_ERROR,
        _ => 0,
    };
    let message = status.split_once(": ").map_or("", |(_, message)| message);
    let mut json = json!({
        "traceId": trace,
        "spanId": span,
        "name": name,
        "kind": KIND_INTERNAL,
        "startTimeUnixNano": start.to_string(),
        "endTimeUnixNano": end.max(start).to_string(),
        "attributes": attributes(event),
        "status": { "code": code, "message": message },
    });
    if let (Some(parent), Some(fields)) = (parent, json.as_object_mut()) {
        fields.insert("parentSpanId".to_owned(), json!(parent));
    }
    Some(json)
}

fn attribute(key: &str, value: &Json) -> Json {
    json!({ "key": key, "value": value })
}

fn any_value(value: &Value) -> Json {
    match value {
        Value::Text(text) => string(text),
        Value::Bytes(bytes) => json!({ "bytesValue": STANDARD.encode(bytes) }),
        Value::Number(number) => integer(*number),
        Value::Truth(truth) => json!({ "boolValue": truth }),
        Value::List(items) => {
            let values: Vec<Json> = items.iter().map(|item| item_of(item)).collect();
            json!({ "arrayValue": { "values": values } })
        }
        Value::Hash(hash) => string(&hash.to_string()),
        Value::Body(body) => string(&body.hash().to_string()),
    }
}

fn item_of(item: &[u8]) -> Json {
    let bytes = |_| json!({ "bytesValue": STANDARD.encode(item) });
    std::str::from_utf8(item).map_or_else(bytes, string)
}

fn string(text: &str) -> Json {
    json!({ "stringValue": text })
}

/// Returns a number as an OTLP value. OTLP integers are signed, so a larger number becomes a string.
fn integer(number: u64) -> Json {
    match i64::try_from(number) {
        Ok(number) => json!({ "intValue": number.to_string() }),
        Err(_) => string(&number.to_string()),
    }
}

#[cfg(test)]
mod tests;
