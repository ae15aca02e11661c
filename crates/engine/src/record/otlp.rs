//! Reads a trace of OpenTelemetry (OTLP in its JSON mapping): one object, or one per line.
//!
//! Pure, and all or nothing: the file comes from another system, so every span is checked before the
//! first is recorded. What a span says beyond its head is kept as it was written and not looked at.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

/// One span, checked.
#[derive(Debug)]
pub struct Span<'a> {
    /// 32 digits.
    pub trace: String,
    /// 16 digits.
    pub span: String,
    pub parent: Option<String>,
    pub name: String,
    pub start: u64,
    pub end: u64,
    /// `unset`, `ok`, `error`, or `error: ` and a message.
    pub status: String,
    /// The place of the parent among the spans, when it is one of them.
    pub above: Option<usize>,
    resource: &'a str,
    scope: &'a str,
    whole: &'a str,
    object: usize,
}

/// What is wrong, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    place: String,
    what: String,
}

/// Larger files are cut up by whoever wrote them.
pub const MAX_BYTES: usize = 64 << 20;
const MAX_SPANS: usize = 100_000;
/// Deeper nesting is a mistake, and would cost one wait for the disk each.
const MAX_DEPTH: usize = 1000;
/// An event is at most 64 KiB.
const MAX_NAME: usize = 4096;
const MAX_MESSAGE: usize = 1024;
/// They are repeated with every span.
const MAX_ABOUT: usize = 16 << 10;

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

/// The head of a span. Everything else in it is passed on as it is.
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

/// 64 bits are a text in OTLP, but some write a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(u64),
    Text(String),
}

/// All spans of a file, each checked.
pub fn read(text: &[u8]) -> Result<Vec<Span<'_>>, Wrong> {
    let mut spans = Vec::new();
    let objects = serde_json::Deserializer::from_slice(text).into_iter::<RawTraces<'_>>();
    let mut count = 0;
    for (object, traces) in objects.enumerate() {
        count += 1;
        let what = |error: serde_json::Error| error.to_string();
        let traces = traces.map_err(|error| Wrong::new("not OTLP as JSON", what(error)))?;
        let missing = || Wrong::new(format!("object {}", object + 1), "has no `resourceSpans`");
        for (place, resource) in traces.resources.ok_or_else(missing)?.into_iter().enumerate() {
            let place = format!("object {}, resourceSpans[{place}]", object + 1);
            read_resource(&place, resource, object, &mut spans)?;
        }
    }
    if count == 0 {
        return Err(Wrong::new("not OTLP as JSON", "the file is empty"));
    }
    connect(&mut spans)?;
    Ok(spans)
}

fn read_resource<'a>(
    place: &str,
    raw: RawResource<'a>,
    object: usize,
    spans: &mut Vec<Span<'a>>,
) -> Result<(), Wrong> {
    let resource = about(&format!("{place}.resource"), raw.resource)?;
    for (number, raw) in raw.scopes.unwrap_or_default().into_iter().enumerate() {
        let place = format!("{place}.scopeSpans[{number}]");
        let scope = about(&format!("{place}.scope"), raw.scope)?;
        for (number, raw) in raw.spans.unwrap_or_default().into_iter().enumerate() {
            let place = format!("{place}.spans[{number}]");
            if spans.len() == MAX_SPANS {
                return Err(Wrong::new(place, format!("there are more than {MAX_SPANS} spans")));
            }
            spans.push(read_span(&place, raw, resource, scope, object)?);
        }
    }
    Ok(())
}

fn read_span<'a>(
    place: &str,
    raw: &'a RawValue,
    resource: &'a str,
    scope: &'a str,
    object: usize,
) -> Result<Span<'a>, Wrong> {
    let at = |field: &str| format!("{place}.{field}");
    let head: RawSpan =
        serde_json::from_str(raw.get()).map_err(|error| Wrong::new(place, error.to_string()))?;
    let parent = head.parent_span_id.filter(|parent| !parent.is_empty());
    let parent = parent.map(|parent| digits(at("parentSpanId"), Some(parent), 16)).transpose()?;
    let name = head.name.unwrap_or_default();
    if name.len() > MAX_NAME {
        return Err(Wrong::new(at("name"), format!("is longer than {MAX_NAME} bytes")));
    }
    let start = nanos(at("startTimeUnixNano"), head.start_time_unix_nano)?;
    let start = start.ok_or_else(|| Wrong::new(at("startTimeUnixNano"), "is missing"))?;
    let end = nanos(at("endTimeUnixNano"), head.end_time_unix_nano)?.unwrap_or(start);
    Ok(Span {
        trace: digits(at("traceId"), head.trace_id, 32)?,
        span: digits(at("spanId"), head.span_id, 16)?,
        parent,
        name,
        start,
        end,
        status: status(at("status.code"), head.status)?,
        above: None,
        resource,
        scope,
        whole: raw.get(),
        object,
    })
}

impl Span<'_> {
    /// Everything that was said of the span, as it was written.
    pub fn content(&self) -> String {
        let Self { resource, scope, whole, .. } = self;
        format!("{{\"resource\":{resource},\"scope\":{scope},\"span\":{whole}}}")
    }
}

/// The spans in an order in which each comes after its parent: those without one first, and so on.
pub fn levels(spans: &[Span<'_>]) -> Result<Vec<Vec<usize>>, Wrong> {
    let mut below: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut level = Vec::new();
    for (place, span) in spans.iter().enumerate() {
        match span.above {
            Some(above) => below.entry(above).or_default().push(place),
            None => level.push(place),
        }
    }
    let mut levels = Vec::new();
    let mut reached = 0;
    while !level.is_empty() {
        reached += level.len();
        let next = level.iter().filter_map(|place| below.remove(place)).flatten().collect();
        levels.push(std::mem::replace(&mut level, next));
        if levels.len() > MAX_DEPTH {
            let what = format!("spans are nested more than {MAX_DEPTH} deep");
            return Err(Wrong::new("parentSpanId", what));
        }
    }
    if reached < spans.len() {
        let span = below.into_values().flatten().min().and_then(|place| spans.get(place));
        let span = span.map_or("a span", |span| span.span.as_str());
        return Err(Wrong::new("parentSpanId", format!("span {span} is above itself")));
    }
    Ok(levels)
}

/// Finds the parent of each span.
fn connect(spans: &mut [Span<'_>]) -> Result<(), Wrong> {
    let mut places: HashMap<(String, String), usize> = HashMap::with_capacity(spans.len());
    for (place, span) in spans.iter().enumerate() {
        let key = (span.trace.clone(), span.span.clone());
        if places.insert(key, place).is_some() {
            let at = format!("object {}", span.object + 1);
            return Err(Wrong::new(at, format!("span {} is there twice", span.span)));
        }
    }
    for span in spans.iter_mut() {
        let Some(parent) = &span.parent else { continue };
        span.above = places.get(&(span.trace.clone(), parent.clone())).copied();
    }
    Ok(())
}

/// What is said of all spans of a group.
fn about<'a>(place: &str, raw: Option<&'a RawValue>) -> Result<&'a str, Wrong> {
    let text = raw.map_or("null", RawValue::get);
    if text.len() > MAX_ABOUT {
        return Err(Wrong::new(place, format!("is longer than {MAX_ABOUT} bytes")));
    }
    Ok(text)
}

/// An id: so many hexadecimal digits, not all of them 0.
fn digits(place: String, text: Option<String>, count: usize) -> Result<String, Wrong> {
    let text = text.unwrap_or_default();
    let is_hex = text.len() == count && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex || text.bytes().all(|byte| byte == b'0') {
        let what = format!("is not {count} hexadecimal digits that are not all 0");
        return Err(Wrong::new(place, what));
    }
    Ok(text.to_ascii_lowercase())
}

fn nanos(place: String, number: Option<Number>) -> Result<Option<u64>, Wrong> {
    match number {
        None => Ok(None),
        Some(Number::Number(number)) => Ok(Some(number)),
        Some(Number::Text(text)) => {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| plain);
            let what = || Wrong::new(place, "is not a number of nanoseconds of 64 bits");
            number.map(Some).ok_or_else(what)
        }
    }
}

fn status(place: String, status: Option<RawStatus>) -> Result<String, Wrong> {
    let Some(RawStatus { code, message }) = status else { return Ok("unset".to_owned()) };
    let name = match &code {
        None | Some(Number::Number(0)) => "unset",
        Some(Number::Number(1)) => "ok",
        Some(Number::Number(2)) => "error",
        Some(Number::Text(text)) => match text.as_str() {
            "STATUS_CODE_UNSET" => "unset",
            "STATUS_CODE_OK" => "ok",
            "STATUS_CODE_ERROR" => "error",
            _ => return Err(Wrong::new(place, "is not a status code")),
        },
        Some(Number::Number(_)) => return Err(Wrong::new(place, "is not a status code")),
    };
    let message = message.unwrap_or_default();
    let kept: String = message
        .char_indices()
        .take_while(|(place, _)| *place < MAX_MESSAGE)
        .map(|(_, character)| character)
        .collect();
    Ok(if kept.is_empty() { name.to_owned() } else { format!("{name}: {kept}") })
}

impl Wrong {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl std::error::Error for Wrong {}

#[cfg(test)]
mod tests;
