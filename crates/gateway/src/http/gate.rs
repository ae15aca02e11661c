//! What every request has to pass before the protocol sees it.
//!
//! In this order, so that what is cheap and what a browser can be made to send comes first: name, origin,
//! path, query, token, method, kind of body, length, time, syntax. Behind the gate a request has no token
//! any more and belongs to one session.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::answer::{Held, Shown, malformed, refusal, unauthorized, wrong_method};
use super::names::Names;
use super::sessions::{Sessions, Starting};
use super::{HttpOptions, Limits};
use crate::auth::token::Tokens;
use crate::error::ServeError;
use crate::mcp::handler::Handler;
use crate::mcp::message;
use crate::mcp::service::Service;
use crate::mcp::slot::{Busy, SessionSlot, Shares};

/// The one path that there is.
const PATH: &str = "/mcp";

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVERYTHING: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// The way in.
pub(super) struct Gate<S: Service> {
    tokens: Tokens,
    names: Names,
    limits: Limits,
    /// One for each token, in the same order.
    rooms: Vec<Room<S>>,
}

/// What one token leads to.
struct Room<S: Service> {
    sessions: Arc<Sessions<S>>,
    protocol: StreamableHttpService<Handler<S>, Sessions<S>>,
}

type Refused = Box<Response<Held>>;

impl<S: Service> Gate<S> {
    pub(super) fn new(
        service: &Arc<S>,
        options: &HttpOptions,
        stop: &CancellationToken,
    ) -> Result<Self, ServeError> {
        if options.tokens.is_empty() {
            return Err(ServeError::NoToken);
        }
        let names = Names::new(&options.hosts, &options.origins)?;
        let rooms = (0..options.tokens.len()).map(|_| Room::new(service, options, stop));
        let (tokens, limits) = (options.tokens.clone(), options.limits);
        Ok(Self { tokens, names, limits, rooms: rooms.collect() })
    }

    /// Ends the sessions that nothing has been heard of for too long.
    pub(super) async fn expire(&self) {
        for room in &self.rooms {
            room.sessions.expire(self.limits.idle).await;
        }
    }

    pub(super) async fn close_all(&self) {
        for room in &self.rooms {
            room.sessions.close_all().await;
        }
    }

    /// Answers one request. `local` is the address that it came to.
    pub(super) async fn answer<B>(&self, request: Request<B>, local: IpAddr) -> Response<Held>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.pass(request, local).await.unwrap_or_else(|refused| *refused)
    }

    async fn pass<B>(&self, request: Request<B>, local: IpAddr) -> Result<Response<Held>, Refused>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.check_names(&request, local)?;
        check_target(&request)?;
        let room = self.check_token(request.headers())?;
        let (mut parts, body) = request.into_parts();
        // From here on nobody needs it, so nobody has it.
        parts.headers.remove(AUTHORIZATION);
        match parts.method {
            Method::POST => {
                check_kind(&mut parts.headers)?;
                let body = self.read(&parts.headers, body).await?;
                room.post(parts, &body).await
            }
            Method::GET | Method::DELETE => room.other(parts).await,
            _ => Err(Box::new(wrong_method())),
        }
    }

    fn check_names<B>(&self, request: &Request<B>, local: IpAddr) -> Result<(), Refused> {
        let headers = request.headers();
        let host =
            only(headers, &HOST)?.ok_or_else(|| bad("say whom you mean: `Host` is missing"))?;
        let target = request.uri().authority().map(http::uri::Authority::as_str);
        if ![Some(host), target]
            .into_iter()
            .flatten()
            .all(|name| self.names.allows_host(name, local))
        {
            let words = "this server does not go by that name: see `--allow-host`";
            return Err(no(StatusCode::FORBIDDEN, words));
        }
        match only(headers, &ORIGIN)? {
            Some(origin) if !self.names.allows_origin(origin, local) => {
                let words =
                    "pages of that origin may not speak to this server: see `--allow-origin`";
                Err(no(StatusCode::FORBIDDEN, words))
            }
            _ => Ok(()),
        }
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<&Room<S>, Refused> {
        let refused = |shown| Box::new(unauthorized(shown));
        let shown = only(headers, &AUTHORIZATION)?.ok_or_else(|| refused(Shown::Nothing))?;
        let token = match shown.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => return Err(refused(Shown::Nothing)),
        };
        let found = self.tokens.find(token).and_then(|at| self.rooms.get(at));
        found.ok_or_else(|| refused(Shown::Wrong))
    }

    async fn read<B>(&self, headers: &HeaderMap, body: B) -> Result<Bytes, Refused>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let most = self.limits.body;
        let too_large =
            || no(StatusCode::PAYLOAD_TOO_LARGE, format!("a body may have at most {most} bytes"));
        let said = only(headers, &CONTENT_LENGTH)?.and_then(|text| text.parse::<usize>().ok());
        if said.is_some_and(|length| length > most) {
            return Err(too_large());
        }
        let collected = tokio::time::timeout(self.limits.read, Limited::new(body, most).collect());
        match collected.await {
            Ok(Ok(whole)) => Ok(whole.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(_)) => Err(bad("the body ended early")),
            Err(_) => Err(no(StatusCode::REQUEST_TIMEOUT, "the body took too long to come")),
        }
    }
}

impl<S: Service> Room<S> {
    fn new(service: &Arc<S>, options: &HttpOptions, stop: &CancellationToken) -> Self {
        let HttpOptions { owner, limits, .. } = options;
        let shares = Shares { calls: limits.calls, streams: limits.streams };
        let sessions =
            Arc::new(Sessions::new(Arc::clone(service), owner.clone(), shares, limits.sessions));
        let config = StreamableHttpServerConfig::default()
            // Checked before, by stricter rules.
            .disable_allowed_hosts()
            .with_json_response(true)
            .with_max_request_body_bytes(limits.body)
            .with_cancellation_token(stop.child_token());
        let service = Arc::clone(service);
        let handler = move || Ok(Handler::of_requests(Arc::clone(&service)));
        let protocol = StreamableHttpService::new(handler, Arc::clone(&sessions), config);
        Self { sessions, protocol }
    }

    async fn post(
        &self,
        parts: http::request::Parts,
        body: &[u8],
    ) -> Result<Response<Held>, Refused> {
        let message =
            message::read(body).map_err(|error| Box::new(malformed(&error.into_json())))?;
        let named = only(&parts.headers, &SESSION)?;
        let _starting = match named {
            None if message.is_initialize() => Some(self.room_for_session()?),
            _ => None,
        };
        let slot = match named.and_then(|id| self.sessions.find(id)) {
            Some(found) => Some(found),
            None if message.is_initialize() => None,
            None => Some(self.stateless()?),
        };
        // Written anew, so that the protocol reads what was looked at here and no second meaning of it.
        let body = Full::new(Bytes::from(message.json.to_string()));
        Ok(self.hand_on(parts, body, slot).await)
    }

    async fn other(&self, parts: http::request::Parts) -> Result<Response<Held>, Refused> {
        let slot = match only(&parts.headers, &SESSION)? {
            None => None,
            Some(id) => Some(self.sessions.find(id).ok_or_else(unknown_session)?),
        };
        let slot = match slot {
            Some((slot, _busy)) if parts.method == Method::GET => {
                let stream = slot.stream().ok_or_else(|| {
                    let words = "this session has as many streams open as it may: close one first";
                    no(StatusCode::TOO_MANY_REQUESTS, words)
                })?;
                Some((slot, stream))
            }
            other => other,
        };
        let delete = parts.method == Method::DELETE;
        let mut response = self.hand_on(parts, Full::default(), slot).await;
        if delete && response.status() == StatusCode::ACCEPTED {
            // It is done, not only taken note of, and clients ask for one of the two words for that.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        Ok(response)
    }

    async fn hand_on(
        &self,
        mut parts: http::request::Parts,
        body: Full<Bytes>,
        slot: Option<(Arc<SessionSlot>, Busy)>,
    ) -> Response<Held> {
        let (slot, busy) = slot.unzip();
        if let Some(slot) = slot {
            parts.extensions.insert(slot);
        }
        let response = self.protocol.handle(Request::from_parts(parts, body)).await;
        response.map(|body| Held::new(body, busy))
    }

    fn stateless(&self) -> Result<(Arc<SessionSlot>, Busy), Refused> {
        let failed = |_| no(StatusCode::SERVICE_UNAVAILABLE, "the kernel gave no random bytes");
        self.sessions.stateless().map_err(failed)
    }

    fn room_for_session(&self) -> Result<Starting<'_, S>, Refused> {
        self.sessions.begin().ok_or_else(|| {
            let words = "this token has as many sessions open as it may: end one with DELETE, or wait \
                         until one has been idle for long enough";
            no(StatusCode::TOO_MANY_REQUESTS, words)
        })
    }
}

fn check_target<B>(request: &Request<B>) -> Result<(), Refused> {
    if request.uri().path() != PATH {
        return Err(no(StatusCode::NOT_FOUND, format!("there is nothing here: use {PATH}")));
    }
    if request.uri().query().is_some() {
        // A token here would stand in logs and histories, so that it must not even work.
        let words = "this server takes nothing from the query. A token belongs into the header \
                     `Authorization: Bearer TOKEN`; one that stood in an address should be replaced";
        return Err(bad(words));
    }
    Ok(())
}

/// A body of JSON, and nothing that a page could send without asking first; and an answer of either
/// kind, since clients that say nothing about it read both.
fn check_kind(headers: &mut HeaderMap) -> Result<(), Refused> {
    let kind = only(headers, &CONTENT_TYPE)?.unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let words = "send `Content-Type: application/json`";
        return Err(no(StatusCode::UNSUPPORTED_MEDIA_TYPE, words));
    }
    headers.insert(CONTENT_TYPE, JSON);
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accepted = accepted.collect::<Vec<_>>().join(",").to_ascii_lowercase();
    if accepted.is_empty() || accepted.contains("*/*") {
        headers.insert(ACCEPT, EVERYTHING);
    }
    Ok(())
}

/// The one value of a header. Two are one too many: somebody before us may have read the other.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refused> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    match (first.map(HeaderValue::to_str).transpose(), second) {
        (Ok(value), None) => Ok(value),
        (Ok(_), Some(_)) => Err(bad(format!("`{name}` is there more than once"))),
        (Err(_), _) => Err(bad(format!("`{name}` is not readable"))),
    }
}

fn unknown_session() -> Refused {
    no(StatusCode::NOT_FOUND, "there is no such session: begin one with `initialize`")
}

fn bad(words: impl Into<String>) -> Refused {
    no(StatusCode::BAD_REQUEST, words)
}

fn no(status: StatusCode, words: impl Into<String>) -> Refused {
    Box::new(refusal(status, words))
}

/// As hyper wants its answers.
pub(super) type Answered = Result<Response<Held>, Infallible>;
