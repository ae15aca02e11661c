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

use crate::mcp::slot::BusyGuard;

/// A response body that keeps its session busy until it is sent or dropped.
pub(super) struct SessionBody {
    body: BoxBody<Bytes, Infallible>,
    #[expect(dead_code, reason = "held until drop, which marks the session as idle")]
    busy: Option<BusyGuard>,
}

impl SessionBody {
    pub(super) fn new(body: BoxBody<Bytes, Infallible>, busy: Option<BusyGuard>) -> Self {
        Self { body, busy }
    }
}

impl Body for SessionBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns a response that refuses a request, with a text for people.
pub(super) fn refusal(status: StatusCode, message: impl Into<String>) -> Response<SessionBody> {
    let mut response = Response::new(full(format!("{}\n", message.into())));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// Returns a 401 response for a missing or invalid token, as defined by RFC 6750.
pub(super) fn unauthorized(problem: TokenProblem) -> Response<SessionBody> {
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

/// Why a request is not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenProblem {
    Missing,
    Invalid,
}

pub(super) fn wrong_method() -> Response<SessionBody> {
    let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "use POST, GET or DELETE");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
    response
}

/// Returns a 400 response for a malformed message.
pub(super) fn malformed(error: &Value) -> Response<SessionBody> {
    let mut response = Response::new(full(error.to_string()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn full(text: String) -> SessionBody {
    SessionBody { body: Full::new(Bytes::from(text)).boxed(), busy: None }
}
