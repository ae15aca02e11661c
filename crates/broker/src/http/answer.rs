//! Responses to refused requests.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::json;

use crate::meter::Spent;
use crate::record::Unrecorded;
use crate::rules::Denial;
use crate::upstream::{Body, UpstreamError};

/// The reason why a request is refused, for the client and the ledger.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// The reason code of the refusal, which programs can evaluate.
    pub(crate) code: &'static str,
    pub(crate) what: String,
    /// A hint how the user can allow the request.
    pub(crate) hint: String,
    pub(crate) rule: Option<String>,
    /// The time after which a retry can succeed, if any.
    pub(crate) retry_after: Option<Duration>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, what: impl Into<String>) -> Self {
        Self { status, code, what: what.into(), hint: String::new(), rule: None, retry_after: None }
    }

    /// Returns the refusal as one line for the ledger, which starts with the reason code.
    pub(crate) fn on_record(&self) -> String {
        format!("{}: {}", self.code, self.reason())
    }

    /// Returns a text for the client: the refused request and how to allow it.
    fn reason(&self) -> String {
        match self.hint.as_str() {
            "" => self.what.clone(),
            hint => format!("{}; {hint}", self.what),
        }
    }

    /// Returns the HTTP response of a refusal: JSON if the request mentions JSON in `Accept` or
    /// `Content-Type`, otherwise text.
    pub(crate) fn answer(&self, request: &HeaderMap) -> Response<Body> {
        let wants_json =
            request.get_all(http::header::ACCEPT).iter().chain(request.get_all(CONTENT_TYPE)).any(
                |value| value.as_bytes().windows(4).any(|word| word.eq_ignore_ascii_case(b"json")),
            );
        let (kind, text) = if wants_json {
            let error = json!({
                "type": self.code,
                "message": self.reason(),
                "rule": self.rule,
            });
            ("application/json", format!("{}\n", json!({ "error": error, "by": "belljar" })))
        } else {
            ("text/plain; charset=utf-8", format!("belljar: {}\n", self.reason()))
        };
        let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
        let mut answer = Response::new(body);
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(wait) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().saturating_add(1)));
        }
        headers.insert("x-belljar", HeaderValue::from_static(self.code));
        answer
    }
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        Self {
            status: StatusCode::from_u16(denial.code.status()).unwrap_or(StatusCode::FORBIDDEN),
            code: denial.code.name(),
            what: denial.to_string(),
            hint: denial.hint,
            rule: denial.rule,
            retry_after: None,
        }
    }
}

impl From<Spent> for Refusal {
    fn from(spent: Spent) -> Self {
        let retry_after = spent.retry_after();
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, spent.code(), spent.to_string());
        Self { retry_after, ..refusal }
    }
}

impl From<UpstreamError> for Refusal {
    fn from(error: UpstreamError) -> Self {
        let (status, code) = match &error {
            UpstreamError::Private { .. } => (StatusCode::FORBIDDEN, "private-address"),
            UpstreamError::Unanswered => (StatusCode::FORBIDDEN, "ask-refused"),
            UpstreamError::Late => (StatusCode::GATEWAY_TIMEOUT, "upstream-late"),
            UpstreamError::Tls(_) => (StatusCode::BAD_GATEWAY, "upstream-tls"),
            UpstreamError::Resolve(_)
            | UpstreamError::Connect { .. }
            | UpstreamError::ProxyRefused(_)
            | UpstreamError::ProxyFailed(_)
            | UpstreamError::Http(_) => (StatusCode::BAD_GATEWAY, "upstream"),
        };
        Self::new(status, code, chain(&error))
    }
}

impl From<Unrecorded> for Refusal {
    fn from(error: Unrecorded) -> Self {
        let what = format!("the request could not be recorded and was not sent: {error}");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unrecorded", what)
    }
}

/// Returns an error and its causes as one line of text.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
