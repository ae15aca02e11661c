//! Accepts connections, limits their number and duration, and handles their requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use belljar_model::caller::TenantId;
use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderValue, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;
use zeroize::Zeroizing;

use super::ServeLimits;
use super::access::{Act, Extent, extent};
use super::app::App;
use super::audit;
use super::body::ResponseBody;
use super::call::{
    ApiRouter, MatchedRoute, RequestContext, Running, authenticated, blocking, client_number,
};
use super::head::{self, Accepts, Entrance};
use super::headers;
use super::identity::Identity;
use super::peer;
use super::problem::{Problem, ProblemKind};
use super::rate::RateCell;
use super::stall::WriteLimit;
use crate::http::connections::{Connection, Connections};
use crate::http::gate::{self, Gate};
use crate::http::names::AllowedNames;
use crate::http::response::RefusalText;
use crate::http::{ACCEPT_RETRY_DELAY, MAX_HEAD, MAX_HEADERS};
use crate::mcp::service::Service;
use crate::tls::ReloadableTls;

/// The route of requests that match no route, in the log and the metrics.
const NO_ROUTE: MatchedRoute = MatchedRoute("none");

/// The state that all connections share.
pub(super) struct Server<S: Service> {
    app: Arc<App>,
    router: Router,
    gate: Arc<Gate<S>>,
    names: AllowedNames,
    tls: Option<ReloadableTls>,
    open: Arc<Connections>,
    limits: ServeLimits,
    stop: CancellationToken,
}

impl<S: Service> Server<S> {
    pub(super) fn new(
        app: Arc<App>,
        gate: Arc<Gate<S>>,
        names: AllowedNames,
        tls: Option<ReloadableTls>,
        limits: ServeLimits,
        stop: CancellationToken,
    ) -> Self {
        let router = super::routes::router(Arc::clone(&app));
        let open = Connections::new(limits.connections);
        Self { app, router, gate, names, tls, open, limits, stop }
    }

    /// Makes a login link for the owner of the tenant `local`.
    pub(super) fn login_link(&self) -> Option<Zeroizing<String>> {
        let link = super::routes::login::make_link(&self.app, TenantId::local(), "start");
        link.ok().map(|(url, _)| url)
    }

    /// Sends webhooks until the server stops.
    pub(super) async fn webhooks(&self) {
        super::webhooks::run(&self.app, self.limits.webhook_retry).await;
    }

    /// Records checkpoints of the ledgers until the server stops.
    pub(super) async fn witness(&self) {
        super::witness::run(&self.app, self.limits.checkpoints).await;
    }

    /// Starts the drivers of runs again until the server stops.
    pub(super) async fn keep_drivers(&self) {
        super::drivers::keep(&self.app, self.limits.drivers).await;
    }

    /// Ends the streams of revoked credentials until the server stops.
    pub(super) async fn end_revoked_streams(&self) {
        super::revocation::run(&self.app).await;
    }

    /// Reads the certificate again if its files have changed, as programs that renew certificates do.
    pub(super) fn reload_changed_tls(&self) {
        if self.tls.as_ref().is_some_and(ReloadableTls::has_changed) {
            self.reload_tls();
        }
    }

    /// Reads the certificate again. If that fails, the server keeps the old one.
    pub(super) fn reload_tls(&self) {
        match self.tls.as_ref().map(ReloadableTls::reload) {
            None => {}
            Some(Ok(())) => tracing::info!("the certificate was read again"),
            Some(Err(_)) => tracing::error!(
                "the new certificate cannot be used; the server continues with the old one"
            ),
        }
    }

    /// Serves until the server is stopped, then waits for running requests.
    pub(super) async fn run(self: &Arc<Self>, network: Vec<TcpListener>, local: UnixListener) {
        let mut tasks = JoinSet::new();
        for listener in network {
            tasks.spawn(Arc::clone(self).accept_network(listener));
        }
        tasks.spawn(Arc::clone(self).accept_local(local));
        while tasks.join_next().await.is_some() {}
        self.app.tasks.close();
        // A request that takes longer is reported as needing attention.
        let ended = tokio::time::timeout(self.limits.drain, self.app.tasks.wait()).await;
        if ended.is_err() {
            tracing::warn!("requests with idempotency keys still run");
        }
    }

    async fn accept_network(self: Arc<Self>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) if self.is_source_full(peer.ip()) => {
                    self.app.metrics.refused_connections.inc();
                    drop(stream);
                }
                Ok((stream, peer)) => {
                    let connection = tokio::select! {
                        connection = self.open.open(peer.ip()) => connection,
                        () = self.stop.cancelled() => break,
                    };
                    while connections.try_join_next().is_some() {}
                    let serving = Arc::clone(&self).network_connection(stream, peer, connection);
                    connections.spawn(serving);
                }
                // Usually too many open files.
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            }
        }
        drop(listener);
        drain(connections, self.limits.drain).await;
    }

    /// Every process of this machine is on the loopback interface, so it is not one source.
    fn is_source_full(&self, peer: IpAddr) -> bool {
        !peer.to_canonical().is_loopback() && self.open.of_source(peer) >= self.limits.per_source
    }

    async fn accept_local(self: Arc<Self>, listener: UnixListener) {
        /// Connections on the local socket are no client of the network, and are counted apart.
        const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
        let open = Connections::new(self.limits.connections);
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, _)) if !is_own_user(&stream) => {
                    tracing::warn!("a connection of another user on the local socket is refused");
                    self.app.metrics.refused_connections.inc();
                }
                Ok((stream, _)) => {
                    let connection = open.open(SOURCE).await;
                    while connections.try_join_next().is_some() {}
                    let server = Arc::clone(&self);
                    connections.spawn(async move {
                        server.serve(stream, Entrance::LocalSocket, None, connection).await;
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            }
        }
        drop(listener);
        drain(connections, self.limits.drain).await;
    }

    async fn network_connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        connection: Connection,
    ) {
        let Ok(local) = stream.local_addr() else { return };
        // Responses are written completely, so delaying packets has no benefit.
        stream.set_nodelay(true).ok();
        let is_own_user = peer::is_own_user(peer, local).await;
        if !is_own_user {
            tracing::warn!("a connection of another user of this machine is refused");
            self.app.metrics.refused_connections.inc();
        }
        let entrance = |tls| Entrance::Network { local: local.ip(), tls, is_own_user };
        match &self.tls {
            None => self.serve(stream, entrance(false), Some(peer.ip()), connection).await,
            Some(tls) => {
                let handshake = tls.acceptor().accept(stream);
                let timeout = tokio::time::timeout(self.limits.head, handshake);
                let encrypted = tokio::select! {
                    encrypted = timeout => encrypted,
                    () = connection.evicted.cancelled() => return,
                };
                if let Ok(Ok(stream)) = encrypted {
                    self.serve(stream, entrance(true), Some(peer.ip()), connection).await;
                }
            }
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        entrance: Entrance,
        peer: Option<IpAddr>,
        connection: Connection,
    ) {
        self.app.metrics.connections.inc();
        let connection = Arc::new(connection);
        let stream = WriteLimit::new(stream, self.limits.write);
        let evicted = connection.evicted.clone();
        let client = &connection;
        let handle = service_fn(move |request: Request<Incoming>| async move {
            Ok::<_, std::convert::Infallible>(self.handle(request, entrance, peer, client).await)
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD);
        let serving = http.serve_connection(TokioIo::new(stream), handle).with_upgrades();
        let mut serving = std::pin::pin!(serving);
        // An error on one connection only concerns its client.
        tokio::select! {
            ended = serving.as_mut() => drop(ended),
            () = evicted.cancelled() => {}
            () = self.stop.cancelled() => {
                serving.as_mut().graceful_shutdown();
                drop(serving.await);
            }
        }
        self.app.metrics.connections.dec();
    }

    async fn handle(
        &self,
        request: Request<Incoming>,
        entrance: Entrance,
        peer: Option<IpAddr>,
        connection: &Arc<Connection>,
    ) -> http::Response<ResponseBody> {
        let start = Instant::now();
        let (parts, body) = request.into_parts();
        let method = parts.method.clone();
        let (id, rate) = (request_id(), RateCell::default());
        let response = match head::check(&parts, &self.names, entrance) {
            Err(problem) => {
                if problem.kind == ProblemKind::TOKEN_IN_URL {
                    self.revoke_leaked(&parts, peer).await;
                }
                problem.into_response()
            }
            Ok(length) => {
                let connection = Arc::clone(connection);
                let rate = Arc::clone(&rate);
                let context = RequestContext { entrance, peer, length, connection, rate };
                self.dispatch(parts, Body::new(body), context).await
            }
        };
        let mut response = with_request_id(response, &id);
        headers::secure(response.headers_mut(), entrance);
        if let Some(state) = rate.get() {
            state.add_to(response.headers_mut());
        }
        let route = response.extensions().get::<MatchedRoute>().copied().unwrap_or(NO_ROUTE).0;
        let (status, time) = (response.status(), start.elapsed());
        self.app.metrics.handled(route, &method, status, time);
        // The path and the query are not logged: they can contain names and credentials.
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let status = status.as_u16();
        tracing::info!(request = %id, method = %short(&method), route, status, millis, "request handled");
        let running = response.extensions_mut().remove::<Running>();
        response.map(|body| ResponseBody::new(body, running))
    }

    /// Revokes tokens that were part of an address, because logs and histories contain them now.
    async fn revoke_leaked(&self, parts: &Parts, peer: Option<IpAddr>) {
        let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
        let shown: Vec<String> = head::credentials(path, query).map(str::to_owned).collect();
        let (app, from) =
            (Arc::clone(&self.app), peer.map(|it| it.to_string()).unwrap_or_default());
        let revoke =
            move || shown.iter().try_for_each(|text| audit::revoke_leaked(&app, text, &from));
        if blocking(&self.app, revoke).await.is_err() {
            tracing::error!("a token that was part of an address cannot be revoked");
        }
    }

    /// Sends a request to MCP or to its route.
    async fn dispatch(&self, mut parts: Parts, body: Body, context: RequestContext) -> Response {
        if parts.uri.path() == gate::PATH {
            let response = match self.mcp(parts, body, &context).await {
                Ok(response) => mcp_response(response),
                Err(problem) => problem.into_response(),
            };
            return with_route(response, gate::PATH);
        }
        parts.extensions.insert(context);
        parts.extensions.insert(ApiRouter(self.router.clone()));
        match self.router.clone().call(Request::from_parts(parts, body)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Records that a request to MCP was denied.
    async fn denied(
        &self,
        parts: &Parts,
        context: &RequestContext,
        identity: &Identity,
        problem: Problem,
    ) -> Problem {
        let (app, method, from) = (Arc::clone(&self.app), parts.method.clone(), context.source());
        let identity = identity.clone();
        let reason = problem.kind.name;
        let record =
            move || audit::record_denial(&app, &identity, (&method, gate::PATH), reason, &from);
        blocking(&self.app, record).await.err().unwrap_or(problem)
    }

    /// Sends a request to MCP, for the holder of a token of the API or of a token of the token file.
    async fn mcp(
        &self,
        parts: Parts,
        body: Body,
        context: &RequestContext,
    ) -> Result<Response, Problem> {
        head::check_type(&parts, context.length, Accepts::Json)?;
        if !gate::has_api_token(&parts.headers) {
            let request = Request::from_parts(parts, body);
            let response = self.gate.handle_named(request, &context.connection).await;
            return Ok(response.map(Body::new));
        }
        let (parts, identity) = authenticated(&self.app, parts, context).await?;
        self.app.check_rate(&identity, &parts.method, &context.rate)?;
        if let Err(problem) = identity.check_network(context.peer) {
            return Err(self.denied(&parts, context, &identity, problem).await);
        }
        let may_use = extent(Act::UseMcp, identity.role, &identity.grant) > Extent::Nothing;
        if !may_use {
            let problem = Problem::new(ProblemKind::FORBIDDEN, "the token needs the scope `mcp`");
            return Err(self.denied(&parts, context, &identity, problem).await);
        }
        let number = client_number(&identity);
        let request = Request::from_parts(parts, body);
        let caller = identity.caller.clone();
        let response = self.gate.handle_caller(request, caller, number, &context.connection).await;
        Ok(response.map(Body::new))
    }
}

/// Waits until all connections have ended. Connections that take too long are cut off.
async fn drain(mut connections: JoinSet<()>, time: Duration) {
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(time, ended).await.is_err() {
        tracing::warn!("some requests did not end in time and are cut off");
    }
    connections.shutdown().await;
}

/// Returns whether the client on the local socket is the user that runs the server.
fn is_own_user(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own)
}

/// Writes the refusals of the MCP endpoint as problems.
fn mcp_response(mut response: Response) -> Response {
    let status = response.status();
    if let Some(RefusalText(detail)) = response.extensions_mut().remove::<RefusalText>() {
        let kind = ProblemKind::for_status(status);
        let mut refused = Problem::new(kind, detail).into_response();
        for (name, value) in response.headers() {
            if name != http::header::CONTENT_TYPE {
                refused.headers_mut().insert(name, value.clone());
            }
        }
        response = refused;
    }
    response
}

fn with_route(mut response: Response, route: &'static str) -> Response {
    response.extensions_mut().insert(MatchedRoute(route));
    response
}

/// Adds the id of the request to its response.
fn with_request_id(mut response: Response, id: &str) -> Response {
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let mut complete = problem.respond(id);
        if let Some(route) = response.extensions().get::<MatchedRoute>() {
            complete.extensions_mut().insert(*route);
        }
        if let Some(running) = response.extensions_mut().remove::<Running>() {
            complete.extensions_mut().insert(running);
        }
        if let Some(methods) = response.headers().get(ALLOW) {
            complete.headers_mut().insert(ALLOW, methods.clone());
        }
        response = complete;
    }
    if let Ok(value) = HeaderValue::from_str(id) {
        response.headers_mut().insert(headers::REQUEST_ID, value);
    }
    response
}

/// Returns a new random id of a request. Without random bytes the id is zero.
fn request_id() -> String {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).ok(); // only tells requests apart
    hex::encode(bytes)
}

/// Returns the name of the method, or `other`, because clients can choose any text.
fn short(method: &http::Method) -> &str {
    if method.as_str().len() <= "OPTIONS".len() { method.as_str() } else { "other" }
}
