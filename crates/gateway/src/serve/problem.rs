//! Errors of the API as `application/problem+json` (RFC 9457).
//!
//! Every error response of the server is a [`Problem`]. Its `detail` is for people, its `type` for programs.
//! Neither contains a header, a query or a body of the request.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use belljar_engine::error::{EngineError, ErrorKind};
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

/// A kind of problem: the last part of its `type`, the status and the title.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ProblemKind {
    pub(crate) name: &'static str,
    pub(crate) status: StatusCode,
    pub(crate) title: &'static str,
}

macro_rules! kinds {
    ($( $constant:ident $name:literal $status:ident $title:literal )+) => {
        impl ProblemKind {
            $( pub(crate) const $constant: Self =
                Self { name: $name, status: StatusCode::$status, title: $title }; )+

            /// All kinds of problems.
            pub(crate) const ALL: &[Self] = &[$( Self::$constant ),+];
        }
    };
}

kinds! {
    BAD_REQUEST "bad-request" BAD_REQUEST "The request is malformed"
    INVALID "invalid" BAD_REQUEST "A value of the request is invalid"
    TOKEN_IN_URL "token-in-url" BAD_REQUEST "The address contains a credential"
    FOREIGN_ORIGIN "foreign-origin" FORBIDDEN "Pages of other origins cannot use this server"
    FORBIDDEN "forbidden" FORBIDDEN "The request is not permitted"
    FORGED "forged-request" FORBIDDEN "A page of this server must send the request"
    LOGIN_REFUSED "login-refused" FORBIDDEN "The login was refused"
    LOGIN_AGE "login-too-old" FORBIDDEN "The operation needs a recent login"
    NOT_FOUND "not-found" NOT_FOUND "The object does not exist"
    METHOD "method-not-allowed" METHOD_NOT_ALLOWED "The path does not have this method"
    EXISTS "exists" CONFLICT "The object already exists"
    WRONG_STATE "wrong-state" CONFLICT "The state of the object does not allow the operation"
    BUSY "busy" CONFLICT "Another operation uses the object"
    LAST_OWNER "last-owner" CONFLICT "A tenant needs an owner"
    KEY_REUSED "key-reused" CONFLICT "The idempotency key belongs to another request"
    NEEDS_ATTENTION "needs-attention" CONFLICT "The result of an earlier request is unknown"
    SHOWN_ONCE "shown-once" CONFLICT "The response was shown once and is not kept"
    HOLDS_WORK "holds-work" CONFLICT "The box has unapplied work"
    CHANGED "changed" CONFLICT "The box has other changes than those that were reviewed"
    MARKED "marked" CONFLICT "A marked change must be named"
    CONFLICT "conflict" CONFLICT "The object has changed"
    TEST_FAILED "test-failed" CONFLICT "A test of the policy failed"
    VERSION "version" CONFLICT "The object belongs to another version of Belljar"
    GONE "gone" GONE "The object is no longer valid"
    STALE "stale" PRECONDITION_FAILED "The object has another version"
    NO_VERSION "version-required" PRECONDITION_REQUIRED "A change needs the version of the object"
    PENDING "authorization-pending" PRECONDITION_REQUIRED "The login has no answer yet"
    RANGE "range" RANGE_NOT_SATISFIABLE "The file does not have the range"
    LENGTH "length-required" LENGTH_REQUIRED "A body needs a Content-Length"
    TOO_LARGE "too-large" PAYLOAD_TOO_LARGE "The body is too large"
    HEAD "head-too-large" REQUEST_HEADER_FIELDS_TOO_LARGE "The headers are too large"
    URI_TOO_LONG "uri-too-long" URI_TOO_LONG "The query is too long"
    MEDIA_TYPE "media-type" UNSUPPORTED_MEDIA_TYPE "The body has another type"
    UPGRADE "upgrade-required" UPGRADE_REQUIRED "The route is a WebSocket"
    MISDIRECTED "misdirected" MISDIRECTED_REQUEST "This server does not have this name"
    TIMEOUT "timeout" REQUEST_TIMEOUT "The body did not arrive in time"
    TOO_MANY "too-many-requests" TOO_MANY_REQUESTS "Too many requests"
    LIMIT "limit-reached" TOO_MANY_REQUESTS "A limit of the sender or of the tenant is reached"
    UNAUTHENTICATED "unauthenticated" UNAUTHORIZED "The request needs a valid credential"
    DAMAGED "damaged" INTERNAL_SERVER_ERROR "A record cannot be read"
    INTERNAL "internal" INTERNAL_SERVER_ERROR "The server could not complete the operation"
    PROVIDER "identity-provider" BAD_GATEWAY "The identity provider did not answer as expected"
    UNRECORDED "unrecorded" SERVICE_UNAVAILABLE "The ledger cannot be written"
    CANNOT_START "cannot-start" SERVICE_UNAVAILABLE "The box cannot start"
    UNAVAILABLE "unavailable" SERVICE_UNAVAILABLE "The server is not ready"
}

impl ProblemKind {
    /// Returns the first kind with a status.
    pub(crate) fn for_status(status: StatusCode) -> Self {
        Self::ALL.iter().find(|kind| kind.status == status).copied().unwrap_or(Self::INTERNAL)
    }

    /// Returns the kind for an error of the engine.
    const fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid | ErrorKind::NotExecutable | ErrorKind::ProgramNotFound => {
                Self::INVALID
            }
            ErrorKind::NotFound => Self::NOT_FOUND,
            ErrorKind::AlreadyExists => Self::EXISTS,
            ErrorKind::WrongState => Self::WRONG_STATE,
            ErrorKind::Refused => Self::FORBIDDEN,
            ErrorKind::LimitReached => Self::LIMIT,
            ErrorKind::Busy => Self::BUSY,
            ErrorKind::Conflict => Self::CONFLICT,
            ErrorKind::Damaged => Self::DAMAGED,
            ErrorKind::Version => Self::VERSION,
            ErrorKind::Broken => Self::INTERNAL,
            ErrorKind::Unrecorded => Self::UNRECORDED,
            ErrorKind::CannotStart => Self::CANNOT_START,
        }
    }
}

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) kind: ProblemKind,
    detail: String,
    /// Seconds after which the client can try again.
    retry_after: Option<u64>,
    /// The JSON pointer of the invalid field.
    field: Option<String>,
    /// What only problems of some routes have.
    more: Option<Box<ProblemDetails>>,
    /// Whether the server closes the connection, because its next bytes cannot be trusted.
    close: bool,
}

/// What only problems of some routes have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub(crate) struct ProblemDetails {
    /// The line at fault in a text of the request, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
    /// The key at fault in a text of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// The tests of a policy that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) failed_tests: Vec<FailedTest>,
}

/// A test of a policy that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub(crate) struct FailedTest {
    pub(crate) line: usize,
    pub(crate) template: String,
    pub(crate) request: String,
    pub(crate) expected: &'static str,
    /// Null if the policy has no such template.
    pub(crate) actual: Option<&'static str>,
    /// The rule or the reason of the actual verdict.
    pub(crate) why: String,
}

/// The JSON form of a problem.
#[derive(Serialize, schemars::JsonSchema)]
#[schemars(rename = "Problem")]
pub(super) struct ProblemBody<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    #[serde(flatten)]
    more: Option<&'a ProblemDetails>,
}

/// Stands for the id of the request until the server knows it; see [`Problem::respond`].
const NO_REQUEST: &str = "";

impl Problem {
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { kind, detail, field: None, retry_after: None, more: None, close: false }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::INVALID, detail)
    }

    /// Returns the description of the problem for people.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the line of the invalid text in the field.
    pub(crate) fn line_number(&self) -> Option<usize> {
        self.more.as_ref().and_then(|more| more.line)
    }

    /// Returns the JSON pointer of the invalid field.
    pub(crate) fn pointer(&self) -> Option<&str> {
        self.field.as_deref()
    }

    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::INTERNAL, detail)
    }

    /// Returns the problem with another kind.
    #[must_use]
    pub(crate) fn with_kind(self, kind: ProblemKind) -> Self {
        Self { kind, ..self }
    }

    #[must_use]
    pub(crate) fn field(mut self, pointer: impl Into<String>) -> Self {
        self.field = Some(pointer.into());
        self
    }

    /// Adds the line of the invalid text in the field, from 1.
    #[must_use]
    pub(crate) fn line(mut self, line: usize) -> Self {
        self.more.get_or_insert_default().line = Some(line);
        self
    }

    /// Adds what only problems of some routes have.
    #[must_use]
    pub(crate) fn more(mut self, more: ProblemDetails) -> Self {
        self.more = Some(Box::new(more));
        self
    }

    #[must_use]
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    #[must_use]
    pub(crate) fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    /// Returns the response for the request with this id.
    pub(crate) fn respond(&self, request_id: &str) -> Response {
        let body = ProblemBody {
            r#type: format!("/problems/{}", self.kind.name),
            title: self.kind.title,
            status: self.kind.status.as_u16(),
            detail: &self.detail,
            field: self.field.as_deref(),
            request_id,
            retry_after: self.retry_after,
            more: self.more.as_deref(),
        };
        let text = serde_json::to_string(&body).unwrap_or_default(); // texts and numbers only
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.kind.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.kind == ProblemKind::UNAUTHENTICATED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"belljar\""));
        }
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Returns a response without an id. The server replaces it by one with the id of the request.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.respond(NO_REQUEST);
        response.extensions_mut().insert(self);
        response
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let problem = Self::new(ProblemKind::of(error.kind()), format!("{error:#}"));
        match error.kind() {
            ErrorKind::Busy | ErrorKind::Unrecorded => problem.retry_after(5),
            ErrorKind::LimitReached => problem.retry_after(60),
            ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::WrongState
            | ErrorKind::Refused
            | ErrorKind::Conflict
            | ErrorKind::Damaged
            | ErrorKind::Version
            | ErrorKind::Broken
            | ErrorKind::CannotStart
            | ErrorKind::NotExecutable
            | ErrorKind::ProgramNotFound => problem,
        }
    }
}

/// Returns the problem of an operation whose values have a valid form. What the engine calls invalid then
/// depends on the state: an unknown template, for example.
pub(crate) fn of_state(error: EngineError) -> Problem {
    let is_invalid = error.kind() == ErrorKind::Invalid;
    let problem = Problem::from(error);
    if is_invalid { Problem { kind: ProblemKind::WRONG_STATE, ..problem } } else { problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_problems_have_unique_names_and_error_statuses() {
        let names: std::collections::BTreeSet<&str> =
            ProblemKind::ALL.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), ProblemKind::ALL.len());
        for kind in ProblemKind::ALL {
            assert!(kind.status.is_client_error() || kind.status.is_server_error(), "{kind:?}");
            assert_ne!(kind.status, StatusCode::UNPROCESSABLE_ENTITY);
        }
    }

    #[test]
    fn errors_of_the_engine_have_the_status_of_their_kind() {
        for (kind, status) in [
            (ErrorKind::Invalid, 400),
            (ErrorKind::NotFound, 404),
            (ErrorKind::AlreadyExists, 409),
            (ErrorKind::WrongState, 409),
            (ErrorKind::Refused, 403),
            (ErrorKind::LimitReached, 429),
            (ErrorKind::Busy, 409),
            (ErrorKind::Conflict, 409),
            (ErrorKind::Damaged, 500),
            (ErrorKind::Version, 409),
            (ErrorKind::Broken, 500),
            (ErrorKind::Unrecorded, 503),
            (ErrorKind::CannotStart, 503),
            (ErrorKind::NotExecutable, 400),
            (ErrorKind::ProgramNotFound, 400),
        ] {
            let problem = Problem::from(EngineError::message(kind, "x"));
            assert_eq!(problem.kind.status.as_u16(), status, "{kind:?}");
        }
    }
}
