//! One request of the API, after its head was checked and its route was found.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, RawPathParams, Request};
use axum::response::{IntoResponse as _, Response};
use belljar_engine::scope::Scoped;
use belljar_model::caller::Principal;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, HeaderName};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use hyper::upgrade::OnUpgrade;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_service::Service as _;

use super::access::{Act, Extent, Grant, extent};
use super::app::App;
use super::audit::{self, Change};
use super::body::{self, Upload};
use super::head::{self, Accepts, Entrance};
use super::identity::{self, Authenticated, Identity};
use super::json;
use super::known::CredentialHash;
use super::page::{self, List, PageParameters, PageQuery};
use super::problem::{Problem, ProblemKind};
use super::rate::RateCell;
use super::routes::{Access, Operation};
use super::tenants::Tenant;
use crate::http::connections::{Connection, RunningRequest, network};

/// The end of the pattern of a route whose path ends with a path in a box.
const REST: &str = "/{*path}";

/// What the server knows about a request before it is routed.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    pub(crate) entrance: Entrance,
    /// The address of the client; `None` on the local socket.
    pub(crate) peer: Option<IpAddr>,
    /// The length of the body that the head declares.
    pub(crate) length: u64,
    pub(crate) connection: Arc<Connection>,
    /// The limit that the request counted against.
    pub(crate) rate: RateCell,
}

impl RequestContext {
    /// Returns the source of the request for the ledger.
    pub(crate) fn source(&self) -> String {
        self.peer.map_or_else(|| "local-socket".to_owned(), |peer| peer.to_string())
    }
}

/// The pattern of the route that handled a request, for the log and the metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchedRoute(pub(crate) &'static str);

/// Keeps the connection of an authenticated request busy until its response is sent.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    #[expect(dead_code, reason = "held until drop, which marks the connection as idle")]
    request: Arc<RunningRequest>,
}

/// The sender of a page, for the requests to the API that the page makes. No client can send this extension.
#[derive(Debug, Clone)]
struct PageSender(Arc<Identity>);

/// The routes of the server, for pages that use the API.
#[derive(Clone)]
pub(crate) struct ApiRouter(pub(crate) Router);

/// One request of the API.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    context: RequestContext,
    identity: Option<Arc<Identity>>,
    /// The pattern of the path.
    route: &'static str,
    access: Access,
    parts: Parts,
    params: Vec<(String, String)>,
    body: Bytes,
    /// The body of a route that receives it as a stream, until the handler takes it.
    upload: Mutex<Option<Upload>>,
}

/// The objects that a sender may use.
#[derive(Debug, Clone)]
pub(crate) struct Owned {
    extent: Extent,
    who: Identity,
}

impl Owned {
    pub(crate) const fn extent(&self) -> Extent {
        self.extent
    }

    /// Returns whether the sender may use an object that this principal made.
    pub(crate) fn may_use(&self, maker: &Principal) -> bool {
        match self.extent {
            Extent::All => true,
            Extent::Own => self.who.owns(maker),
            Extent::Nothing => false,
        }
    }
}

impl Owned {
    /// Returns the principals whose objects the sender may use; `None` for those of everybody.
    pub(crate) fn principals(&self) -> Option<BTreeSet<Principal>> {
        match self.extent {
            Extent::All => None,
            Extent::Own => Some(self.who.principals().cloned().collect()),
            Extent::Nothing => Some(BTreeSet::new()),
        }
    }

    /// Returns whether the sender may see an event that this principal caused. Only a sender who may see
    /// everything sees events of no known principal.
    pub(crate) fn may_see(&self, maker: Option<&Principal>) -> bool {
        self.extent == Extent::All || maker.is_some_and(|maker| self.may_use(maker))
    }
}

impl Call {
    /// Checks that the sender may use the operation, and reads the body.
    pub(super) async fn new(
        app: Arc<App>,
        operation: &Operation,
        request: Request,
    ) -> Result<(Self, Option<Running>), Problem> {
        let (mut parts, body) = request.into_parts();
        let context = parts.extensions.get::<RequestContext>().cloned();
        let context = context
            .ok_or_else(|| Problem::new(ProblemKind::INTERNAL, "the request has no context"))?;
        let params = params(operation, &mut parts).await?;
        let (parts, identity) = match operation.access {
            Access::Anyone => (parts, None),
            Access::LocalSocket | Access::Authenticated | Access::Page | Access::For(_) => {
                let (parts, identity) = match parts.extensions.remove::<PageSender>() {
                    // The sender of a page was authenticated and counted with the page.
                    Some(PageSender(identity)) => {
                        check_rights(operation.access, context.entrance, &identity)?;
                        (parts, identity)
                    }
                    None => {
                        let (parts, identity) = authenticated(&app, parts, &context).await?;
                        check_access(&app, operation, &parts, &context, &identity).await?;
                        (parts, identity)
                    }
                };
                (parts, Some(identity))
            }
        };
        let running = match &identity {
            None => None,
            Some(identity) => Some(running(&context, identity)?),
        };
        head::check_type(&parts, context.length, operation.accepts)?;
        let (body, upload) = match operation.accepts {
            Accepts::Bytes => {
                let upload = Upload::new(body, context.length, operation.max_body)?;
                (Bytes::new(), Some(upload))
            }
            Accepts::Nothing | Accepts::Json => {
                (body::read(body, context.length, operation.max_body).await?, None)
            }
        };
        let (route, access) = (operation.path, operation.access);
        let upload = Mutex::new(upload);
        Ok((Self { app, context, identity, route, access, parts, params, body, upload }, running))
    }

    /// Returns the body of a route that receives it as a stream. It can be taken once.
    pub(crate) fn take_upload(&self) -> Result<Upload, Problem> {
        let upload = self.upload.lock().unwrap_or_else(PoisonError::into_inner).take();
        upload.ok_or_else(|| Problem::internal("the route has no body"))
    }

    /// Returns the bytes of the path after its first `segments` segments, without a slash at the end. They
    /// need not be UTF-8. No segment is empty or has a slash; see [`head::check`].
    pub(crate) fn rest_of_path(&self, segments: usize) -> Result<Vec<u8>, Problem> {
        let parts = self.path().trim_end_matches('/').split('/').skip(segments + 1);
        let parts: Option<Vec<Vec<u8>>> = parts.map(head::decoded).collect();
        let malformed = || Problem::new(ProblemKind::BAD_REQUEST, "the path is malformed");
        Ok(parts.ok_or_else(malformed)?.join(&b'/'))
    }

    /// Returns the pattern of the path.
    pub(crate) const fn route(&self) -> &'static str {
        self.route
    }

    /// Returns the variable parts of the path with their names.
    pub(crate) fn params(&self) -> &[(String, String)] {
        &self.params
    }

    /// Sends a GET request to the API of this server, with the rights of the sender.
    pub(crate) async fn get(&self, path: &str) -> Result<Response, Problem> {
        let malformed = || Problem::internal("a page has a malformed path");
        let mut request = Request::get(path).body(Body::empty()).map_err(|_| malformed())?;
        let router = self.parts.extensions.get::<ApiRouter>().cloned().ok_or_else(malformed)?;
        let context =
            RequestContext { length: 0, rate: RateCell::default(), ..self.context.clone() };
        request.extensions_mut().insert(context);
        request
            .extensions_mut()
            .insert(PageSender(self.identity.clone().ok_or_else(unauthenticated)?));
        let Ok(response) = router.0.clone().call(request).await;
        Ok(response)
    }

    /// Returns the sender. Routes for everyone have none.
    pub(crate) fn who(&self) -> Result<&Identity, Problem> {
        self.identity.as_deref().ok_or_else(unauthenticated)
    }

    /// Returns a part of the path by its name.
    pub(crate) fn param(&self, name: &str) -> Result<&str, Problem> {
        let found = self.params.iter().find(|(known, _)| known == name);
        let missing = || Problem::new(ProblemKind::INTERNAL, "the route has no such part");
        found.map(|(_, value)| value.as_str()).ok_or_else(missing)
    }

    /// Returns the value of a header that is valid text.
    pub(crate) fn header(&self, name: &HeaderName) -> Option<String> {
        self.parts.headers.get(name)?.to_str().ok().map(str::to_owned)
    }

    /// Returns the value of a cookie that occurs once.
    pub(crate) fn cookie(&self, name: &str) -> Option<&str> {
        identity::single_cookie(&self.parts.headers, name)
    }

    /// Returns the scope of the engine for the tenant and the principal of the sender. Runs that are submitted
    /// with it have the limits of the sender.
    pub(crate) fn scope(&self) -> Result<Scoped, Problem> {
        let who = self.who()?;
        let limits = self.app.quotas.run_limits(&self.app.state, who);
        Ok(self.app.engine.of(&who.caller)?.with_run_limits(limits))
    }

    /// Returns the objects that the sender may use with this route.
    pub(crate) fn extent(&self) -> Result<Extent, Problem> {
        let who = self.who()?;
        Ok(match self.access {
            Access::For(act) => extent(act, who.role, &who.grant),
            Access::Anyone | Access::Authenticated | Access::Page | Access::LocalSocket => {
                Extent::Own
            }
        })
    }

    /// Returns the objects that the sender may use with this route, for a function on another thread.
    pub(crate) fn owned(&self) -> Result<Owned, Problem> {
        Ok(Owned { extent: self.extent()?, who: self.who()?.clone() })
    }

    /// Returns the objects that the sender may use with another act than that of this route.
    pub(crate) fn owned_for(&self, act: Act) -> Result<Owned, Problem> {
        let who = self.who()?.clone();
        Ok(Owned { extent: extent(act, who.role, &who.grant), who })
    }

    /// Returns the state of the sender's tenant.
    pub(crate) fn tenant(&self) -> Result<Arc<Tenant>, Problem> {
        self.app.tenants.of(&self.app.engine, self.who()?)
    }

    /// Returns the cursor after the item with this key.
    pub(crate) fn cursor(&self, list: &str, last: &str) -> Result<String, Problem> {
        Ok(page::cursor(&self.app.key, self.who()?.tenant(), list, last))
    }

    /// Parses the body as JSON. A request without a body has the default value.
    pub(crate) fn optional_json<T: DeserializeOwned + Default>(&self) -> Result<T, Problem> {
        if self.body.is_empty() { Ok(T::default()) } else { self.json() }
    }

    /// Parses the parameters of the query. Unknown parameters are errors.
    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let parsed = axum::extract::Query::<T>::try_from_uri(&self.parts.uri);
        let invalid = |error: axum::extract::rejection::QueryRejection| {
            Problem::invalid(format!("invalid query: {}", error.body_text()))
        };
        parsed.map(|query| query.0).map_err(invalid)
    }

    /// Returns the page of a list that the query requests.
    pub(crate) fn page(&self, list: &str) -> Result<PageQuery, Problem> {
        self.page_of(list, self.query()?)
    }

    /// Returns the page of a list. Routes with further parameters pass those of the page.
    pub(crate) fn page_of(
        &self,
        list: &str,
        parameters: PageParameters,
    ) -> Result<PageQuery, Problem> {
        PageQuery::new(&self.app.key, self.who()?.tenant(), list, parameters)
    }

    /// Returns a page of a list. `last` is the key of the last item if there are more.
    pub(crate) fn list<T: Serialize>(
        &self,
        list: &str,
        items: Vec<T>,
        last: Option<&str>,
    ) -> Result<Response, Problem> {
        let next = last.map(|last| self.cursor(list, last)).transpose()?;
        json_response(StatusCode::OK, &List { items, next })
    }

    /// Returns the path of the request.
    pub(crate) fn path(&self) -> &str {
        self.parts.uri.path()
    }

    /// Returns the query of the request as the client sent it.
    pub(crate) fn raw_query(&self) -> &str {
        self.parts.uri.query().unwrap_or_default()
    }

    /// Returns the bytes of the body.
    pub(crate) const fn raw_body(&self) -> &Bytes {
        &self.body
    }

    /// Parses the body as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        json::parse(&self.body)
    }

    /// Parses the body as JSON. Errors contain nothing of the body, because it has a secret. `fields` are the
    /// names of its fields.
    pub(crate) fn secret_json<T: DeserializeOwned>(&self, fields: &[&str]) -> Result<T, Problem> {
        json::parse_secret(&self.body, fields)
    }

    /// Returns the connection of the request, for a protocol that replaces HTTP on it.
    pub(crate) fn upgrade(&self) -> Option<OnUpgrade> {
        self.parts.extensions.get::<OnUpgrade>().cloned()
    }

    /// Returns the place of the connection in the table of connections.
    pub(crate) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.context.connection)
    }

    /// Returns the source of the request for the ledger.
    pub(crate) fn from(&self) -> String {
        self.context.source()
    }

    /// Returns the record of an act of the sender that is about to happen.
    pub(crate) fn change(&self, act: &'static str, subject: &str) -> Result<Change, Problem> {
        let who = self.who()?;
        Ok(Change::new(act, subject, &who.caller.principal, who.tenant(), &self.from()))
    }

    /// Counts a failed login, and returns its problem or that of too many failed logins.
    pub(crate) fn failed_login(&self, problem: impl FnOnce() -> Problem) -> Problem {
        failed_login(&self.app, &self.context, problem)
    }
}

/// Returns the parts of the path by their names. The rest of a path can have bytes that are not UTF-8, so it is
/// not among them; see [`Call::rest_of_path`].
async fn params(
    operation: &Operation,
    parts: &mut Parts,
) -> Result<Vec<(String, String)>, Problem> {
    let not_text = || Problem::new(ProblemKind::BAD_REQUEST, "a part of the path is not UTF-8");
    if operation.path.ends_with(REST) {
        let named = operation.path.split('/').zip(parts.uri.path().split('/'));
        let named = named.filter_map(|(name, value)| {
            let name = name.strip_prefix('{')?.strip_suffix('}')?;
            (!name.starts_with('*')).then_some((name, value))
        });
        return named
            .map(|(name, value)| {
                let value = head::decoded(value).and_then(|bytes| String::from_utf8(bytes).ok());
                Ok((name.to_owned(), value.ok_or_else(not_text)?))
            })
            .collect();
    }
    let params = RawPathParams::from_request_parts(parts, &()).await.map_err(|_| not_text())?;
    Ok(params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn failed_login(app: &App, context: &RequestContext, problem: impl FnOnce() -> Problem) -> Problem {
    let counted = context.peer.map_or(Ok(()), |peer| app.count_failed_login(network(peer)));
    counted.map_or_else(|too_many| too_many, |()| problem())
}

fn unauthenticated() -> Problem {
    let detail = "send a token: `Authorization: Bearer TOKEN`, or log in with `belljar login-link`";
    Problem::new(ProblemKind::UNAUTHENTICATED, detail)
}

/// Finds the sender of a request.
pub(super) async fn authenticated(
    app: &Arc<App>,
    parts: Parts,
    context: &RequestContext,
) -> Result<(Parts, Arc<Identity>), Problem> {
    let (shared, entrance) = (Arc::clone(app), context.entrance);
    let hash = CredentialHash::of(&parts.headers).filter(|_| entrance != Entrance::LocalSocket);
    // The number is read first, so that a change during the authentication is noticed.
    let changes = hash.map(|hash| (hash, app.store.changes()));
    if let Some((hash, changes)) = changes
        && let Some(known) = app.known.find(hash, changes, app.now())
    {
        return Ok((parts, known));
    }
    let (parts, found) = blocking(app, move || {
        let found = identity::authenticate(&shared, &parts, entrance)?;
        Ok((parts, found))
    })
    .await?;
    match found {
        Authenticated::Yes(identity) => {
            let identity = Arc::from(identity);
            if let Some((hash, changes)) = changes {
                app.known.add(hash, changes, Arc::clone(&identity));
            }
            Ok((parts, identity))
        }
        Authenticated::No => Err(unauthenticated()),
        Authenticated::Invalid => Err(failed_login(app, context, || {
            let detail = "the credential is unknown, has expired or was revoked";
            Problem::new(ProblemKind::UNAUTHENTICATED, detail)
        })),
    }
}

/// Checks rate, forgery and rights. A denial is recorded.
async fn check_access(
    app: &Arc<App>,
    operation: &Operation,
    parts: &Parts,
    context: &RequestContext,
    identity: &Identity,
) -> Result<(), Problem> {
    app.check_rate(identity, &parts.method, &context.rate)?;
    let checked = identity
        .check_network(context.peer)
        .and_then(|()| identity::check_forgery(parts, identity))
        .and_then(|()| check_rights(operation.access, context.entrance, identity));
    let Err(problem) = checked else { return Ok(()) };
    let (shared, identity) = (Arc::clone(app), identity.clone());
    let (method, route, from) = (parts.method.clone(), operation.path, context.source());
    let reason = problem.kind.name;
    blocking(app, move || {
        audit::record_denial(&shared, &identity, (&method, route), reason, &from)
    })
    .await?;
    Err(problem)
}

fn check_rights(access: Access, entrance: Entrance, identity: &Identity) -> Result<(), Problem> {
    let detail = match access {
        Access::Anyone | Access::Authenticated => return Ok(()),
        Access::Page if identity.grant == Grant::Person => return Ok(()),
        Access::Page => "pages are for people; a program uses the API",
        Access::LocalSocket if entrance == Entrance::LocalSocket => return Ok(()),
        Access::LocalSocket => "this route is available on the local socket only",
        Access::For(act) if extent(act, identity.role, &identity.grant) > Extent::Nothing => {
            return Ok(());
        }
        Access::For(_) => "your role or the scopes of your token do not allow this",
    };
    Err(Problem::new(ProblemKind::FORBIDDEN, detail))
}

/// Marks the connection of a request as authenticated and busy.
fn running(context: &RequestContext, identity: &Identity) -> Result<Running, Problem> {
    let begun = context.connection.begin(client_number(identity));
    let too_many = || {
        let detail = "too many of your requests are running; wait until one ends";
        Problem::new(ProblemKind::TOO_MANY, detail).retry_after(1)
    };
    Ok(Running { request: Arc::new(begun.ok_or_else(too_many)?) })
}

/// Returns a number for the sender, for the table of connections.
pub(super) fn client_number(identity: &Identity) -> usize {
    let mut hasher = DefaultHasher::new();
    (&identity.caller.tenant, &identity.caller.principal).hash(&mut hasher);
    // The numbers of the tokens of the MCP token file are small.
    usize::try_from(hasher.finish() >> 1).unwrap_or(usize::MAX) | (1 << (usize::BITS - 1))
}

/// Checks that the sender has seen the current version of an object. `shown` is the header `If-Match`.
pub(crate) fn check_version(shown: Option<&str>, current: &str) -> Result<(), Problem> {
    match shown {
        Some(shown)
            if shown.strip_prefix('"').and_then(|it| it.strip_suffix('"')) == Some(current) =>
        {
            Ok(())
        }
        Some(_) => {
            let detail = "the object has another version; read it again";
            Err(Problem::new(ProblemKind::STALE, detail))
        }
        None => {
            let detail = "send the version of the object in the header `If-Match`, in quotes";
            Err(Problem::new(ProblemKind::NO_VERSION, detail))
        }
    }
}

/// Returns a response with a JSON body and the version of the object.
pub(crate) fn versioned_response(
    status: StatusCode,
    version: &str,
    value: &impl Serialize,
) -> Result<Response, Problem> {
    let mut response = json_response(status, value)?;
    if let Ok(tag) = HeaderValue::try_from(format!("\"{version}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

/// Returns a response with a JSON body.
pub(crate) fn json_response(
    status: StatusCode,
    value: &impl Serialize,
) -> Result<Response, Problem> {
    let text = serde_json::to_vec(value)
        .map_err(|_| Problem::new(ProblemKind::INTERNAL, "cannot write the response as JSON"))?;
    let mut response = (status, Body::from(text)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Returns a response without a body, with the status 204.
pub(crate) fn empty_response() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Calls a blocking function on another thread.
pub(crate) async fn blocking<T: Send + 'static>(
    app: &App,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    /// The maximum time that a request waits for a free thread.
    const QUEUE_TIME: Duration = Duration::from_secs(10);
    let waiting = Arc::clone(&app.blocking).acquire_owned();
    let Ok(Ok(permit)) = tokio::time::timeout(QUEUE_TIME, waiting).await else {
        let problem = Problem::new(ProblemKind::UNAVAILABLE, "too many operations are running");
        return Err(problem.retry_after(5));
    };
    let span = tracing::Span::current();
    let done = tokio::task::spawn_blocking(move || {
        let result = span.in_scope(work);
        drop(permit);
        result
    });
    done.await.unwrap_or_else(|_| Err(Problem::new(ProblemKind::INTERNAL, "the operation failed")))
}
