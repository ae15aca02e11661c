//! Checks every HTTP request before the protocol handles it.
//!
//! Cheap checks and checks of values that a browser can be made to send come first: host, origin,
//! path, query, token, method, content type, length, time, syntax. A forwarded request contains no
//! token and belongs to one session.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_model::caller::Caller;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::connections::{Connection, RunningRequest};
use super::names::AllowedNames;
use super::response::{
    PrimingEvents, SessionBody, TokenProblem, malformed, refusal, unauthorized, wrong_method,
};
use super::sessions::{SessionReservation, Sessions};
use super::{HttpOptions, Limits};
use crate::auth::api_token;
use crate::auth::token::Tokens;
use crate::error::ServeError;
use crate::mcp::handler::Handler;
use crate::mcp::message;
use crate::mcp::service::Service;
use crate::mcp::slot::{BusyGuard, KeptSessions, RequestSession, SessionLimits};

/// The URL path of MCP.
pub(crate) const PATH: &str = "/mcp";

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVERYTHING: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Checks HTTP requests and forwards them to the sessions of their token.
pub(crate) struct Gate<S: Service> {
    tokens: Tokens,
    names: AllowedNames,
    limits: Limits,
    /// The endpoints of the tokens, one for each token in the same order.
    endpoints: Vec<Arc<TokenEndpoint<S>>>,
    /// The endpoints of callers that the server authenticated itself.
    callers: Mutex<HashMap<Caller, Arc<TokenEndpoint<S>>>>,
    service: Arc<S>,
    stop: CancellationToken,
}

/// The sessions and the protocol handler of one token.
struct TokenEndpoint<S: Service> {
    sessions: Arc<Sessions<S>>,
    protocol: StreamableHttpService<Handler<S>, Sessions<S>>,
}

type Refused = Box<Response<SessionBody>>;

impl<S: Service> Gate<S> {
    pub(crate) fn new(
        service: &Arc<S>,
        options: &HttpOptions,
        stop: &CancellationToken,
    ) -> Result<Self, ServeError> {
        if options.tokens.is_empty() {
            return Err(ServeError::NoToken);
        }
        let names = AllowedNames::new(&options.hosts, &options.origins)?;
        let clients = options.tokens.clients();
        let endpoints = clients.enumerate().map(|(number, client)| {
            let owner = Caller { client: Some(client), ..options.owner.clone() };
            Arc::new(TokenEndpoint::new(service, owner, number, &options.limits, stop))
        });
        let (tokens, limits) = (options.tokens.clone(), options.limits);
        let (service, stop) = (Arc::clone(service), stop.clone());
        let (endpoints, callers) = (endpoints.collect(), Mutex::default());
        Ok(Self { tokens, names, limits, endpoints, callers, service, stop })
    }

    /// Ends sessions that were idle for too long.
    pub(crate) async fn expire(&self) {
        for endpoint in self.all() {
            endpoint.sessions.expire(self.limits.idle).await;
        }
    }

    /// Ends all sessions.
    pub(crate) async fn close_all(&self) {
        for endpoint in self.all() {
            endpoint.sessions.close_all().await;
        }
    }

    fn all(&self) -> Vec<Arc<TokenEndpoint<S>>> {
        let callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        self.endpoints.iter().chain(callers.values()).map(Arc::clone).collect()
    }

    /// Returns the endpoint of an authenticated caller, which is created for its first request.
    fn endpoint(&self, caller: Caller, number: usize) -> Arc<TokenEndpoint<S>> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let create = |caller: &Caller| {
            let owner = caller.clone();
            TokenEndpoint::new(&self.service, owner, number, &self.limits, &self.stop)
        };
        let entry = callers.entry(caller);
        Arc::clone(entry.or_insert_with_key(|caller| Arc::new(create(caller))))
    }

    /// Handles one request of a caller that the server authenticated itself.
    pub(crate) async fn handle_caller<B>(
        &self,
        request: Request<B>,
        caller: Caller,
        number: usize,
        connection: &Connection,
    ) -> Response<SessionBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let running = match check_target(&request).and_then(|()| begin(connection, number)) {
            Ok(running) => running,
            Err(refused) => return *refused,
        };
        let endpoint = self.endpoint(caller, number);
        let answer = self.check_and_forward(request, &endpoint).await;
        let answer = answer.unwrap_or_else(|refused| *refused);
        answer.map(|body| body.with_request(running))
    }

    /// Handles one request. `local` is the local address of the connection.
    pub(crate) async fn handle<B>(
        &self,
        request: Request<B>,
        local: IpAddr,
        connection: &Connection,
    ) -> Response<SessionBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if let Err(refused) = self.check_names(&request, local) {
            return *refused;
        }
        self.handle_named(request, connection).await
    }

    /// Handles one request whose host and origin are already checked.
    pub(crate) async fn handle_named<B>(
        &self,
        request: Request<B>,
        connection: &Connection,
    ) -> Response<SessionBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (endpoint, running) = match self.check_client(&request, connection) {
            Ok(checked) => checked,
            Err(refused) => return *refused,
        };
        let answer = self.check_and_forward(request, endpoint).await;
        let answer = answer.unwrap_or_else(|refused| *refused);
        answer.map(|body| body.with_request(running))
    }

    /// Checks path and token, and records that the request of the token runs.
    fn check_client<B>(
        &self,
        request: &Request<B>,
        connection: &Connection,
    ) -> Result<(&TokenEndpoint<S>, RunningRequest), Refused> {
        check_target(request)?;
        let (token, endpoint) = self.check_token(request.headers())?;
        Ok((endpoint, begin(connection, token)?))
    }

    async fn check_and_forward<B>(
        &self,
        request: Request<B>,
        endpoint: &TokenEndpoint<S>,
    ) -> Result<Response<SessionBody>, Refused>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut parts, body) = request.into_parts();
        // No later code needs the token, so it is removed here.
        parts.headers.remove(AUTHORIZATION);
        match parts.method {
            Method::POST => {
                check_content_type(&mut parts.headers)?;
                let body = self.read(&parts.headers, body).await?;
                endpoint.post(parts, &body).await
            }
            Method::GET | Method::DELETE => endpoint.get_or_delete(parts).await,
            _ => Err(Box::new(wrong_method())),
        }
    }

    fn check_names<B>(&self, request: &Request<B>, local: IpAddr) -> Result<(), Refused> {
        let headers = request.headers();
        let host = single_header(headers, &HOST)?
            .ok_or_else(|| bad_request("the header `Host` is missing"))?;
        let target = request.uri().authority().map(http::uri::Authority::as_str);
        if ![Some(host), target]
            .into_iter()
            .flatten()
            .all(|name| self.names.allows_host(name, local))
        {
            let message = "this host name is not allowed; allow it with `--allow-host`";
            return Err(refuse(StatusCode::FORBIDDEN, message));
        }
        match single_header(headers, &ORIGIN)? {
            Some(origin) if !self.names.allows_origin(origin, local) => {
                let message = "this origin is not allowed; allow it with `--allow-origin`";
                Err(refuse(StatusCode::FORBIDDEN, message))
            }
            _ => Ok(()),
        }
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(usize, &TokenEndpoint<S>), Refused> {
        let refused = |shown| Box::new(unauthorized(shown));
        let shown = single_header(headers, &AUTHORIZATION)?
            .ok_or_else(|| refused(TokenProblem::Missing))?;
        let token = match shown.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => return Err(refused(TokenProblem::Missing)),
        };
        let found = self.tokens.find(token);
        let found = found.and_then(|at| Some((at, self.endpoints.get(at)?.as_ref())));
        found.ok_or_else(|| refused(TokenProblem::Invalid))
    }

    async fn read<B>(&self, headers: &HeaderMap, body: B) -> Result<Bytes, Refused>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let most = self.limits.body;
        let too_large = || {
            refuse(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {most} bytes"))
        };
        let declared =
            single_header(headers, &CONTENT_LENGTH)?.and_then(|text| text.parse::<usize>().ok());
        if declared.is_some_and(|length| length > most) {
            return Err(too_large());
        }
        let collected = tokio::time::timeout(self.limits.read, Limited::new(body, most).collect());
        match collected.await {
            Ok(Ok(whole)) => Ok(whole.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(_)) => Err(bad_request("the body is incomplete")),
            Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "the body was not received in time")),
        }
    }
}

impl<S: Service> TokenEndpoint<S> {
    /// Creates the endpoint of one client, which has a number and owns its sessions.
    fn new(
        service: &Arc<S>,
        owner: Caller,
        number: usize,
        limits: &Limits,
        stop: &CancellationToken,
    ) -> Self {
        let described_to = owner.clone();
        let limits_per_session = SessionLimits { calls: limits.calls, streams: limits.streams };
        let sessions = Arc::new(Sessions::new(
            Arc::clone(service),
            owner,
            number,
            limits_per_session,
            limits.sessions,
        ));
        let config = StreamableHttpServerConfig::default()
            // The gate has already checked the host by stricter rules.
            .disable_allowed_hosts()
            .with_json_response(true)
            .with_max_request_body_bytes(limits.body)
            .with_cancellation_token(stop.child_token());
        let service = Arc::clone(service);
        let handler = move || Ok(Handler::per_request(Arc::clone(&service), described_to.clone()));
        let protocol = StreamableHttpService::new(handler, Arc::clone(&sessions), config);
        Self { sessions, protocol }
    }

    async fn post(
        &self,
        parts: http::request::Parts,
        body: &[u8],
    ) -> Result<Response<SessionBody>, Refused> {
        let message =
            message::parse(body).map_err(|error| Box::new(malformed(&error.into_json())))?;
        let named = single_header(&parts.headers, &SESSION)?;
        let _starting = match named {
            None if message.is_initialize() => Some(self.reserve_session()?),
            _ => None,
        };
        let session = match named.and_then(|id| self.sessions.find(id)) {
            Some((slot, busy)) => Some((RequestSession { slot, kept: None, busy: None }, busy)),
            None if message.is_initialize() => None,
            None => Some(self.stateless()?),
        };
        // The body is serialized again, so that the protocol parses exactly the message that was
        // checked here.
        let body = Full::new(Bytes::from(message.json.to_string()));
        let version = match message.initialize_version() {
            Some(version) => Some(version),
            None => single_header(&parts.headers, &VERSION)?,
        };
        let priming = PrimingEvents::for_version(version);
        Ok(self.forward(parts, body, session, priming).await)
    }

    async fn get_or_delete(
        &self,
        parts: http::request::Parts,
    ) -> Result<Response<SessionBody>, Refused> {
        let slot = match single_header(&parts.headers, &SESSION)? {
            None => None,
            Some(id) => Some(self.sessions.find(id).ok_or_else(unknown_session)?),
        };
        let session = match slot {
            Some((slot, _busy)) if parts.method == Method::GET => {
                let stream = slot.stream().ok_or_else(|| {
                    let message = "this session has too many open streams; close one first";
                    refuse(StatusCode::TOO_MANY_REQUESTS, message)
                })?;
                Some((slot, stream))
            }
            other => other,
        };
        let session =
            session.map(|(slot, busy)| (RequestSession { slot, kept: None, busy: None }, busy));
        let delete = parts.method == Method::DELETE;
        let priming = PrimingEvents::for_version(single_header(&parts.headers, &VERSION)?);
        let mut response = self.forward(parts, Full::default(), session, priming).await;
        if delete && response.status() == StatusCode::ACCEPTED {
            // The deletion is complete, and clients expect 200 or 204 for that.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        Ok(response)
    }

    async fn forward(
        &self,
        mut parts: http::request::Parts,
        body: Full<Bytes>,
        session: Option<(RequestSession, BusyGuard)>,
        priming: PrimingEvents,
    ) -> Response<SessionBody> {
        let (session, busy) = session.unzip();
        if let Some(session) = session {
            parts.extensions.insert(session);
        }
        let response = self.protocol.handle(Request::from_parts(parts, body)).await;
        response.map(|body| SessionBody::new(body, priming, busy))
    }

    fn stateless(&self) -> Result<(RequestSession, BusyGuard), Refused> {
        let failed =
            |_| refuse(StatusCode::SERVICE_UNAVAILABLE, "the kernel returned no random bytes");
        let (slot, busy) = self.sessions.stateless().map_err(failed)?;
        // The session lasts until both the handler and the response have ended.
        let handler_busy = Some(Arc::new(slot.busy()));
        let kept: Arc<dyn KeptSessions> = Arc::<Sessions<S>>::clone(&self.sessions);
        Ok((RequestSession { slot, kept: Some(kept), busy: handler_busy }, busy))
    }

    fn reserve_session(&self) -> Result<SessionReservation<'_, S>, Refused> {
        self.sessions.reserve().ok_or_else(|| {
            let message = "all sessions of this token are in use; end one with DELETE, or wait \
                         until one is idle";
            refuse(StatusCode::TOO_MANY_REQUESTS, message)
        })
    }
}

/// Returns whether a request has a token of the API, which the token file does not contain.
pub(crate) fn has_api_token(headers: &HeaderMap) -> bool {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = shown.and_then(|value| value.split_once(' ')).map(|(_, token)| token.trim());
    token.is_some_and(|token| token.starts_with(api_token::PREFIX))
}

/// Records that a request of a client runs.
fn begin(connection: &Connection, number: usize) -> Result<RunningRequest, Refused> {
    connection.begin(number).ok_or_else(|| {
        let message = "too many requests of this token are running; wait until one ends";
        refuse(StatusCode::TOO_MANY_REQUESTS, message)
    })
}

fn check_target<B>(request: &Request<B>) -> Result<(), Refused> {
    if request.uri().path() != PATH {
        return Err(refuse(StatusCode::NOT_FOUND, format!("path not found; use {PATH}")));
    }
    if request.uri().query().is_some() {
        // A token in the query would appear in logs and histories, so it must never work.
        let message = "query parameters are not accepted. Send the token in the header \
                     `Authorization: Bearer TOKEN`, and replace a token that was part of an address";
        return Err(bad_request(message));
    }
    Ok(())
}

/// Refuses a request without a JSON body, because a web page can send other bodies without a
/// preflight request. Also sets `Accept` for clients that do not restrict it, because they read
/// both response types.
fn check_content_type(headers: &mut HeaderMap) -> Result<(), Refused> {
    let kind = single_header(headers, &CONTENT_TYPE)?.unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = "send `Content-Type: application/json`";
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    headers.insert(CONTENT_TYPE, JSON);
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accepted = accepted.collect::<Vec<_>>().join(",").to_ascii_lowercase();
    if accepted.is_empty() || accepted.contains("*/*") {
        headers.insert(ACCEPT, EVERYTHING);
    }
    Ok(())
}

/// Returns the value of a header, or an error if the header occurs more than once. Duplicates are
/// refused, because a proxy can have read the other value.
fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, Refused> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    match (first.map(HeaderValue::to_str).transpose(), second) {
        (Ok(value), None) => Ok(value),
        (Ok(_), Some(_)) => Err(bad_request(format!("the header `{name}` occurs more than once"))),
        (Err(_), _) => Err(bad_request(format!("the header `{name}` is not valid text"))),
    }
}

fn unknown_session() -> Refused {
    refuse(StatusCode::NOT_FOUND, "unknown session; start one with `initialize`")
}

fn bad_request(message: impl Into<String>) -> Refused {
    refuse(StatusCode::BAD_REQUEST, message)
}

fn refuse(status: StatusCode, message: impl Into<String>) -> Refused {
    Box::new(refusal(status, message))
}

/// The result type of the HTTP handler that hyper requires; it is never an error.
pub(crate) type GateResult = Result<Response<SessionBody>, Infallible>;
