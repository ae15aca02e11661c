//! Reads OpenTelemetry traces in the JSON encoding of OTLP: one object, or one object per line.
//!
//! The module does no I/O. The file comes from another system, so every span is validated before the
//! first span is recorded. The attributes of a span are kept unparsed.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A validated span of an OTLP file.
#[derive(Debug)]
pub struct Span<'a> {
    /// The trace id: 32 hexadecimal digits.
    pub trace: String,
    /// The span id: 16 hexadecimal digits.
    pub span: String,
    pub parent: Option<String>,
    pub name: String,
    pub start: u64,
    pub end: u64,
    /// The status: `unset`, `ok`, `error`, or `error: ` followed by a message.
    pub status: String,
    /// The position of the parent span in the list, if the file contains the parent.
    pub parent_index: Option<usize>,
    resource: &'a str,
    scope: &'a str,
    json: &'a str,
    object: usize,
}

/// An error in an OTLP file: the location in the file and the problem.
#[derive(Debug, PartialEq, Eq)]
pub struct OtlpError {
    location: String,
    problem: String,
}

/// The maximum size of an OTLP file, in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// The maximum number of spans in an OTLP file.
const MAX_SPANS: usize = 100_000;
/// The maximum nesting depth of spans. Each level costs one flush of the ledger to disk.
const MAX_DEPTH: usize = 1000;
/// The maximum length of a span name, in bytes. A ledger event is at most 64 KiB.
const MAX_NAME: usize = 4096;
/// The maximum length of a status message, in bytes. The rest is cut off.
const MAX_MESSAGE: usize = 1024;
/// The maximum length of a `resource` or `scope` object, in bytes. It is stored again with every span.
const MAX_SHARED_OBJECT: usize = 16 << 10;

#[derive(Deserialize)]
struct RawTraces<'a> {
    #[serde(borrow, rename = "resourceSpans", alias = "resource_spans")]
    resources: Option<Vec<RawResource<'a>>>,
}

#[derive(Deserialize)]
struct RawResource<'a> {
    #[serde(borrow)]
    resource: Option<&'a RawValue>,
    #[serde(
        borrow,
        rename = "scopeSpans",
        alias = "scope_spans",
        alias = "instrumentationLibrarySpans"
    )]
    scopes: Option<Vec<RawScope<'a>>>,
}

#[derive(Deserialize)]
struct RawScope<'a> {
    #[serde(borrow)]
    scope: Option<&'a RawValue>,
    #[serde(borrow)]
    spans: Option<Vec<&'a RawValue>>,
}

/// The fields of a span that are parsed. All other fields are kept unparsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpan {
    #[serde(alias = "trace_id")]
    trace_id: Option<String>,
    #[serde(alias = "span_id")]
    span_id: Option<String>,
    #[serde(alias = "parent_span_id")]
    parent_span_id: Option<String>,
    name: Option<String>,
    #[serde(alias = "start_time_unix_nano")]
    start_time_unix_nano: Option<Number>,
    #[serde(alias = "end_time_unix_nano")]
    end_time_unix_nano: Option<Number>,
    status: Option<RawStatus>,
}

#[derive(Deserialize)]
struct RawStatus {
    code: Option<Number>,
    message: Option<String>,
}

/// A 64-bit number: a string in OTLP, but some programs write a JSON number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(u64),
    Text(String),
}

/// Reads and validates all spans of an OTLP file.
pub fn read(text: &[u8]) -> Result<Vec<Span<'_>>, OtlpError> {
    let mut spans = Vec::new();
    let objects = serde_json::Deserializer::from_slice(text).into_iter::<RawTraces<'_>>();
    let mut count = 0;
    for (object, traces) in objects.enumerate() {
        count += 1;
        let traces = traces
            .map_err(|error| OtlpError::new("cannot parse as OTLP in JSON", error.to_string()))?;
        let missing = || OtlpError::new(format!("object {}", object + 1), "has no `resourceSpans`");
        for (number, resource) in traces.resources.ok_or_else(missing)?.into_iter().enumerate() {
            let location = format!("object {}, resourceSpans[{number}]", object + 1);
            read_resource(&location, resource, object, &mut spans)?;
        }
    }
    if count == 0 {
        return Err(OtlpError::new("cannot parse as OTLP in JSON", "the file is empty"));
    }
    connect(&mut spans)?;
    Ok(spans)
}

fn read_resource<'a>(
    location: &str,
    raw: RawResource<'a>,
    object: usize,
    spans: &mut Vec<Span<'a>>,
) -> Result<(), OtlpError> {
    let resource = shared_object(&format!("{location}.resource"), raw.resource)?;
    for (number, raw) in raw.scopes.unwrap_or_default().into_iter().enumerate() {
        let location = format!("{location}.scopeSpans[{number}]");
        let scope = shared_object(&format!("{location}.scope"), raw.scope)?;
        for (number, raw) in raw.spans.unwrap_or_default().into_iter().enumerate() {
            let location = format!("{location}.spans[{number}]");
            if spans.len() == MAX_SPANS {
                let problem = format!("the file has more than {MAX_SPANS} spans");
                return Err(OtlpError::new(location, problem));
            }
            spans.push(read_span(&location, raw, resource, scope, object)?);
        }
    }
    Ok(())
}

fn read_span<'a>(
    location: &str,
    raw: &'a RawValue,
    resource: &'a str,
    scope: &'a str,
    object: usize,
) -> Result<Span<'a>, OtlpError> {
    let at = |field: &str| format!("{location}.{field}");
    let head: RawSpan = serde_json::from_str(raw.get())
        .map_err(|error| OtlpError::new(location, error.to_string()))?;
    let parent = head.parent_span_id.filter(|parent| !parent.is_empty());
    let parent = parent.map(|parent| hex_id(at("parentSpanId"), Some(parent), 16)).transpose()?;
    let name = head.name.unwrap_or_default();
    if name.len() > MAX_NAME {
        return Err(OtlpError::new(at("name"), format!("is longer than {MAX_NAME} bytes")));
    }
    let start = nanos(at("startTimeUnixNano"), head.start_time_unix_nano)?;
    let start = start.ok_or_else(|| OtlpError::new(at("startTimeUnixNano"), "is missing"))?;
    let end = nanos(at("endTimeUnixNano"), head.end_time_unix_nano)?.unwrap_or(start);
    Ok(Span {
        trace: hex_id(at("traceId"), head.trace_id, 32)?,
        span: hex_id(at("spanId"), head.span_id, 16)?,
        parent,
        name,
        start,
        end,
        status: status(at("status.code"), head.status)?,
        parent_index: None,
        resource,
        scope,
        json: raw.get(),
        object,
    })
}

impl Span<'_> {
    /// Returns the span with its resource and scope as one JSON object, as the file has them.
    pub fn content(&self) -> String {
        let Self { resource, scope, json, .. } = self;
        format!("{{\"resource\":{resource},\"scope\":{scope},\"span\":{json}}}")
    }
}

/// Groups the positions of spans by depth: first the spans without a parent in the file, then their
/// children, and so on.
pub fn levels(spans: &[Span<'_>]) -> Result<Vec<Vec<usize>>, OtlpError> {
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut level = Vec::new();
    for (index, span) in spans.iter().enumerate() {
        match span.parent_index {
            Some(parent) => children.entry(parent).or_default().push(index),
            None => level.push(index),
        }
    }
    let mut levels = Vec::new();
    let mut visited = 0;
    while !level.is_empty() {
        visited += level.len();
        let next = level.iter().filter_map(|index| children.remove(index)).flatten().collect();
        levels.push(std::mem::replace(&mut level, next));
        if levels.len() > MAX_DEPTH {
            let problem = format!("spans are nested more than {MAX_DEPTH} levels deep");
            return Err(OtlpError::new("parentSpanId", problem));
        }
    }
    if visited < spans.len() {
        let span = children.into_values().flatten().min().and_then(|index| spans.get(index));
        let span = span.map_or("a span", |span| span.span.as_str());
        return Err(OtlpError::new("parentSpanId", format!("span {span} is its own ancestor")));
    }
    Ok(levels)
}

/// Sets `parent_index` of each span whose parent is in the file.
fn connect(spans: &mut [Span<'_>]) -> Result<(), OtlpError> {
    let mut indices: HashMap<(String, String), usize> = HashMap::with_capacity(spans.len());
    for (index, span) in spans.iter().enumerate() {
        let key = (span.trace.clone(), span.span.clone());
        if indices.insert(key, index).is_some() {
            let location = format!("object {}", span.object + 1);
            let problem = format!("span {} is in the file twice", span.span);
            return Err(OtlpError::new(location, problem));
        }
    }
    for span in spans.iter_mut() {
        let Some(parent) = &span.parent else { continue };
        span.parent_index = indices.get(&(span.trace.clone(), parent.clone())).copied();
    }
    Ok(())
}

/// Returns a `resource` or `scope` object, which describes all spans of its group.
fn shared_object<'a>(location: &str, raw: Option<&'a RawValue>) -> Result<&'a str, OtlpError> {
    let text = raw.map_or("null", RawValue::get);
    if text.len() > MAX_SHARED_OBJECT {
        return Err(OtlpError::new(location, format!("is longer than {MAX_SHARED_OBJECT} bytes")));
    }
    Ok(text)
}

/// Validates a trace or span id: exactly `count` hexadecimal digits, not all of them 0.
fn hex_id(location: String, text: Option<String>, count: usize) -> Result<String, OtlpError> {
    let text = text.unwrap_or_default();
    let is_hex = text.len() == count && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex || text.bytes().all(|byte| byte == b'0') {
        let problem = format!("is not {count} hexadecimal digits with at least one other than 0");
        return Err(OtlpError::new(location, problem));
    }
    Ok(text.to_ascii_lowercase())
}

/// Parses a time in nanoseconds.
fn nanos(location: String, number: Option<Number>) -> Result<Option<u64>, OtlpError> {
    match number {
        None => Ok(None),
        Some(Number::Number(number)) => Ok(Some(number)),
        Some(Number::Text(text)) => {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| plain);
            let error = || OtlpError::new(location, "is not a 64-bit number of nanoseconds");
            number.map(Some).ok_or_else(error)
        }
    }
}

/// Returns the status of a span as the ledger stores it: a name and, if there is one, a message.
fn status(location: String, status: Option<RawStatus>) -> Result<String, OtlpError> {
    let Some(RawStatus { code, message }) = status else { return Ok("unset".to_owned()) };
    let name = match &code {
        None | Some(Number::Number(0)) => "unset",
        Some(Number::Number(1)) => "ok",
        Some(Number::Number(2)) => "error",
        Some(Number::Text(text)) => match text.as_str() {
            "STATUS_CODE_UNSET" => "unset",
            "STATUS_CODE_OK" => "ok",
            "STATUS_CODE_ERROR" => "error",
            _ => return Err(OtlpError::new(location, "is not a status code")),
        },
        Some(Number::Number(_)) => return Err(OtlpError::new(location, "is not a status code")),
    };
    let message = message.unwrap_or_default();
    let kept: String = message
        .char_indices()
        .take_while(|(offset, _)| *offset < MAX_MESSAGE)
        .map(|(_, character)| character)
        .collect();
    Ok(if kept.is_empty() { name.to_owned() } else { format!("{name}: {kept}") })
}

impl OtlpError {
    fn new(location: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { location: location.into(), problem: problem.into() }
    }
}

impl fmt::Display for OtlpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.problem)
    }
}

impl std::error::Error for OtlpError {}

#[cfg(test)]
mod tests;
