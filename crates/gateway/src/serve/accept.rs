//! Accepts connections, limits their number and duration, and handles their requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
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

use super::ServeLimits;
use super::app::App;
use super::body::ResponseBody;
use super::call::{MatchedRoute, RequestContext};
use super::head::{self, Entrance};
use super::headers;
use super::problem::{Problem, ProblemKind};
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
                    connections.spawn(Arc::clone(&self).network_connection(stream, connection));
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
                        server.serve(stream, Entrance::LocalSocket, connection).await;
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            }
        }
        drop(listener);
        drain(connections, self.limits.drain).await;
    }

    async fn network_connection(self: Arc<Self>, stream: TcpStream, connection: Connection) {
        let Ok(local) = stream.local_addr().as_ref().map(SocketAddr::ip) else { return };
        // Responses are written completely, so delaying packets has no benefit.
        stream.set_nodelay(true).ok();
        match &self.tls {
            None => self.serve(stream, Entrance::Network { local, tls: false }, connection).await,
            Some(tls) => {
                let handshake = tls.acceptor().accept(stream);
                let timeout = tokio::time::timeout(self.limits.head, handshake);
                let encrypted = tokio::select! {
                    encrypted = timeout => encrypted,
                    () = connection.evicted.cancelled() => return,
                };
                if let Ok(Ok(stream)) = encrypted {
                    self.serve(stream, Entrance::Network { local, tls: true }, connection).await;
                }
            }
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        entrance: Entrance,
        connection: Connection,
    ) {
        self.app.metrics.connections.inc();
        let stream = WriteLimit::new(stream, self.limits.write);
        let evicted = connection.evicted.clone();
        let client = &connection;
        let handle = service_fn(move |request: Request<Incoming>| async move {
            Ok::<_, std::convert::Infallible>(self.handle(request, entrance, client).await)
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD);
        let mut serving = std::pin::pin!(http.serve_connection(TokioIo::new(stream), handle));
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
        connection: &Connection,
    ) -> http::Response<ResponseBody> {
        let start = Instant::now();
        let (parts, body) = request.into_parts();
        let method = parts.method.clone();
        let id = request_id();
        let response = match head::check(&parts, &self.names, entrance) {
            Err(problem) => problem.into_response(),
            Ok(length) => {
                let context = RequestContext { entrance, length };
                self.dispatch(parts, Body::new(body), context, connection).await
            }
        };
        let mut response = with_request_id(response, &id);
        headers::secure(response.headers_mut(), entrance);
        let route = response.extensions().get::<MatchedRoute>().copied().unwrap_or(NO_ROUTE).0;
        let (status, time) = (response.status(), start.elapsed());
        self.app.metrics.handled(route, &method, status, time);
        // The path and the query are not logged: they can contain names and credentials.
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let status = status.as_u16();
        tracing::info!(request = %id, method = %short(&method), route, status, millis, "request handled");
        response.map(|body| ResponseBody::new(body, None))
    }

    /// Sends a request to MCP or to its route.
    async fn dispatch(
        &self,
        mut parts: Parts,
        body: Body,
        context: RequestContext,
        connection: &Connection,
    ) -> Response {
        if parts.uri.path() == gate::PATH {
            let request = Request::from_parts(parts, body);
            let response = self.gate.handle_named(request, connection).await.map(Body::new);
            return mcp_response(response);
        }
        parts.extensions.insert(context);
        match self.router.clone().call(Request::from_parts(parts, body)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
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
    response.extensions_mut().insert(MatchedRoute(gate::PATH));
    response
}

/// Adds the id of the request to its response.
fn with_request_id(mut response: Response, id: &str) -> Response {
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let mut complete = problem.respond(id);
        if let Some(route) = response.extensions().get::<MatchedRoute>() {
            complete.extensions_mut().insert(*route);
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
