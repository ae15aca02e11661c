//! The route of the log of a box.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use belljar_engine::boxes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::with_box;
use crate::serve::access::Act;
use crate::serve::call::Call;
use crate::serve::problem::Problem;
use crate::serve::routes::{Access, Operation, Routes};

/// The maximum length of a response in bytes.
const MAX: usize = 1024 * 1024;
/// The maximum number of lines that a request can ask for.
const MAX_LINES: usize = 100_000;
/// The maximum position, which every client of JSON can represent.
const MAX_POSITION: u64 = (1 << 53) - 1;
const TEXT: &str = "text/plain; charset=utf-8";
/// The position after the returned text, for the next request.
const NEXT: HeaderName = HeaderName::from_static("x-belljar-next");

pub(super) fn add(routes: Routes) -> Routes {
    routes.add(
        Operation::get("/v1/boxes/{box}/log", Access::For(Act::UseBoxes))
            .about("Returns the output of a box as text, at most 1 MiB; the newest part by default")
            .query::<LogParameters>()
            .returns_bytes(StatusCode::OK, TEXT),
        log,
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogParameters {
    /// The position of the first byte. The header `X-Belljar-Next` of a response has the next one.
    #[schemars(range(max = MAX_POSITION))]
    from: Option<u64>,
    /// Only this many lines from the end.
    #[schemars(range(min = 1, max = 100_000))]
    tail: Option<usize>,
}

async fn log(call: Call) -> Result<Response, Problem> {
    let LogParameters { from, tail } = call.query()?;
    if from.is_some_and(|from| from > MAX_POSITION) {
        let detail = format!("`from` must be at most {MAX_POSITION}");
        return Err(Problem::invalid(detail).field("/from"));
    }
    if tail.is_some_and(|lines| !(1..=MAX_LINES).contains(&lines)) {
        let detail = format!("`tail` must be from 1 to {MAX_LINES} lines");
        return Err(Problem::invalid(detail).field("/tail"));
    }
    let text = with_box(&call, |state, found| Ok(boxes::log::text(state, &found)?)).await?;
    let (start, end) = range(&text, from, tail);
    let part = text.get(start..end).unwrap_or_default();
    let mut response = Body::from(String::from_utf8_lossy(part).into_owned()).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    headers.insert(NEXT, HeaderValue::from(u64::try_from(end).unwrap_or(u64::MAX)));
    Ok(response)
}

/// Returns the part of a log that a request asks for. Both ends are at characters of the text.
fn range(text: &[u8], from: Option<u64>, tail: Option<usize>) -> (usize, usize) {
    let newest = text.len().saturating_sub(MAX);
    let start = match (from, tail) {
        (Some(from), _) => usize::try_from(from).unwrap_or(usize::MAX).min(text.len()),
        (None, Some(lines)) => tail_offset(text, lines).max(newest),
        (None, None) => newest,
    };
    let end = start.saturating_add(MAX).min(text.len());
    (character(text, start), character(text, end))
}

/// Returns the start of the character at a position of a UTF-8 text.
fn character(text: &[u8], at: usize) -> usize {
    let is_inside = |at: &usize| text.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (at.saturating_sub(3)..=at).rev().find(|at| !is_inside(at)).unwrap_or(at)
}

/// Returns the offset at which the last `lines` lines of a text start.
fn tail_offset(text: &[u8], lines: usize) -> usize {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    ends.map(|(index, _)| index + 1).nth(lines.saturating_sub(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, from: Option<u64>, tail: Option<usize>, expect: &str) {
        let (start, end) = range(text.as_bytes(), from, tail);
        assert_eq!(&text[start..end], expect, "{text:?} {from:?} {tail:?}");
    }

    #[test]
    fn part_of_a_log_starts_at_a_position_or_at_a_line_and_never_inside_a_character() {
        check("a\nb\nc\n", None, None, "a\nb\nc\n");
        check("a\nb\nc\n", None, Some(2), "b\nc\n");
        check("a\nb\nc", None, Some(9), "a\nb\nc");
        check("a\nb\nc\n", Some(4), None, "c\n");
        check("a\nb\nc\n", Some(99), None, "");
        check("é\u{1f600}x", Some(1), None, "é\u{1f600}x");
        check("é\u{1f600}x", Some(4), None, "\u{1f600}x");
        let long = "0123456789".repeat(MAX / 10 + 1);
        let (start, end) = range(long.as_bytes(), None, None);
        assert_eq!((end - start, end), (MAX, long.len()), "the newest part");
        let (start, end) = range(long.as_bytes(), Some(0), None);
        assert_eq!((start, end), (0, MAX));
    }
}
