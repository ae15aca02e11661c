//! Answers of our own, each with words that say what to do instead; and what keeps a session busy while
//! an answer is on its way.

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

use crate::mcp::slot::Busy;

/// A body that keeps its session busy until it is sent or given up.
pub(super) struct Held {
    body: BoxBody<Bytes, Infallible>,
    #[expect(dead_code, reason = "held for its drop, which lets the session grow idle")]
    busy: Option<Busy>,
}

impl Held {
    pub(super) fn new(body: BoxBody<Bytes, Infallible>, busy: Option<Busy>) -> Self {
        Self { body, busy }
    }
}

impl Body for Held {
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

/// A request that goes no further.
pub(super) fn refusal(status: StatusCode, words: impl Into<String>) -> Response<Held> {
    let mut response = Response::new(full(format!("{}\n", words.into())));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// Whoever shows no token, or the wrong one. RFC 6750 says how to tell them.
pub(super) fn unauthorized(shown: Shown) -> Response<Held> {
    let (challenge, words) = match shown {
        Shown::Nothing => {
            ("Bearer realm=\"belljar\"", "send a token: `Authorization: Bearer TOKEN`")
        }
        Shown::Wrong => {
            ("Bearer realm=\"belljar\", error=\"invalid_token\"", "this token lets nobody in")
        }
    };
    let mut response = refusal(StatusCode::UNAUTHORIZED, words);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

/// What a request that was not let in had to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Nothing,
    Wrong,
}

pub(super) fn wrong_method() -> Response<Held> {
    let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "use POST, GET or DELETE");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
    response
}

/// A body that is no message.
pub(super) fn malformed(error: &Value) -> Response<Held> {
    let mut response = Response::new(full(error.to_string()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn full(text: String) -> Held {
    Held { body: Full::new(Bytes::from(text)).boxed(), busy: None }
}
