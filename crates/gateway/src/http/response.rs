//! Responses that the server creates itself, each with the solution to the problem, and the
//! response body that keeps its session busy.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use super::connections::RunningRequest;
use crate::mcp::slot::BusyGuard;

/// A response body that keeps its session busy until it is sent or dropped.
pub(crate) struct SessionBody {
    body: BoxBody<Bytes, Infallible>,
    priming: PrimingEvents,
    #[expect(dead_code, reason = "held until drop, which marks the session as idle")]
    busy: Option<BusyGuard>,
    /// Held until drop, which marks the connection as idle.
    request: Option<RunningRequest>,
}

/// How a priming event is sent: an event with an id and a retry time but without a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrimingEvents {
    /// With an empty `data` line, as clients since the protocol 2025-11-25 expect.
    WithEmptyData,
    /// Without a `data` line, so the client takes note of id and retry time but dispatches no event.
    /// Clients of older protocols parse the data of each event as JSON, and fail on empty data.
    WithoutData,
}

impl PrimingEvents {
    /// Returns the form for a client of this version of the protocol, if it named one.
    pub(crate) fn for_version(version: Option<&str>) -> Self {
        // Versions are dates, so they compare as text.
        match version {
            Some(version) if version >= "2025-11-25" => Self::WithEmptyData,
            _ => Self::WithoutData,
        }
    }
}

impl SessionBody {
    pub(crate) fn new(
        body: BoxBody<Bytes, Infallible>,
        priming: PrimingEvents,
        busy: Option<BusyGuard>,
    ) -> Self {
        Self { body, priming, busy, request: None }
    }

    /// Keeps the connection of the request busy until the body is sent or dropped.
    pub(crate) fn with_request(mut self, request: RunningRequest) -> Self {
        self.request = Some(request);
        self
    }
}

/// Removes an empty `data` line from a frame, which contains one whole event.
fn without_empty_data(frame: Bytes) -> Bytes {
    let is_empty_data = |line: &&[u8]| matches!(*line, b"data:" | b"data: ");
    let lines: Vec<&[u8]> = frame.split(|byte| *byte == b'\n').collect();
    if !lines.iter().any(is_empty_data) {
        return frame;
    }
    let rest: Vec<&[u8]> = lines.into_iter().filter(|line| !is_empty_data(line)).collect();
    rest.join(&b'\n').into()
}

impl Body for SessionBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match self.priming {
            PrimingEvents::WithEmptyData => polled,
            PrimingEvents::WithoutData => polled
                .map(|frame| frame.map(|frame| frame.map(|it| it.map_data(without_empty_data)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The text of a response that refuses a request, for servers that write refusals in another format.
#[derive(Debug, Clone)]
pub(crate) struct RefusalText(pub(crate) String);

/// Returns a response that refuses a request, with a text for people.
pub(crate) fn refusal(status: StatusCode, message: impl Into<String>) -> Response<SessionBody> {
    let message = message.into();
    let mut response = Response::new(full(format!("{message}\n")));
    *response.status_mut() = status;
    response.extensions_mut().insert(RefusalText(message));
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// Returns a response with status 401 for a missing or invalid token, as defined by RFC 6750.
pub(crate) fn unauthorized(problem: TokenProblem) -> Response<SessionBody> {
    let (challenge, message) = match problem {
        TokenProblem::Missing => {
            ("Bearer realm=\"belljar\"", "send a token: `Authorization: Bearer TOKEN`")
        }
        TokenProblem::Invalid => {
            ("Bearer realm=\"belljar\", error=\"invalid_token\"", "this token is invalid")
        }
    };
    let mut response = refusal(StatusCode::UNAUTHORIZED, message);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

/// The reason why a request is not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenProblem {
    Missing,
    Invalid,
}

pub(crate) fn wrong_method() -> Response<SessionBody> {
    let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "use POST, GET or DELETE");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
    response
}

/// Returns a response with status 400 for a malformed MCP message.
pub(crate) fn malformed(error: &Value) -> Response<SessionBody> {
    let mut response = Response::new(full(error.to_string()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn full(text: String) -> SessionBody {
    let body = Full::new(Bytes::from(text)).boxed();
    SessionBody { body, priming: PrimingEvents::WithEmptyData, busy: None, request: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priming_event_loses_only_its_empty_data_line() {
        let without = |text: &'static str| without_empty_data(Bytes::from(text));
        assert_eq!(without("id: 0\nretry: 3000\ndata: \n\n"), "id: 0\nretry: 3000\n\n");
        assert_eq!(without("data:\nid: 0\n\n"), "id: 0\n\n");
        for whole in ["id: 1\ndata: {}\n\n", ": keep-alive\n\n", "data: {\"a\":\"data:\"}\n\n"] {
            assert_eq!(without(whole), whole);
        }
    }

    #[test]
    fn clients_of_older_protocols_get_priming_events_without_data() {
        use PrimingEvents::{WithEmptyData, WithoutData};
        for (version, expected) in [
            (None, WithoutData),
            (Some("2025-03-26"), WithoutData),
            (Some("2025-06-18"), WithoutData),
            (Some("2025-11-25"), WithEmptyData),
            (Some("2026-07-28"), WithEmptyData),
        ] {
            assert_eq!(PrimingEvents::for_version(version), expected, "{version:?}");
        }
    }
}
