//! The HTTP server: accepts connections and limits their number and duration.
//!
//! A server that other machines can reach must use TLS, because clients send tokens. Only HTTP/1.1
//! is served: every client supports it, and attacks on HTTP/2 do not apply. If there are too many
//! connections, a new one takes the place of one that has sent no token or is idle.

pub(crate) mod connections;
pub(crate) mod gate;
pub(crate) mod names;
pub(crate) mod response;
mod sessions;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use belljar_model::Caller;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::auth::token::Tokens;
use crate::error::ServeError;
use crate::mcp::service::Service;
use crate::tls::TlsFiles;
use connections::{Connection, Connections};
use gate::{Gate, GateResult};

/// The maximum number of headers of a request, more than any client sends.
pub(crate) const MAX_HEADERS: usize = 64;

/// The maximum size of a request head in bytes.
pub(crate) const MAX_HEAD: usize = 32 * 1024;

/// The timeout for open connections after the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The delay after an error of `accept`, usually too many open files.
pub(crate) const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The configuration of an MCP server over HTTP.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// The accepted tokens. A server without tokens is refused.
    pub tokens: Tokens,
    /// The caller that owns the sessions of all tokens.
    pub owner: Caller,
    pub tls: Option<TlsFiles>,
    /// The host names of this server in addition to the loopback names and its own address.
    pub hosts: Vec<String>,
    /// The origins whose web pages can call this server, in addition to its own.
    pub origins: Vec<String>,
    pub limits: Limits,
}

impl HttpOptions {
    /// Creates the configuration of an HTTP server on the local machine, with default limits.
    pub fn new(tokens: Tokens, owner: Caller) -> Self {
        let (hosts, origins) = (Vec::new(), Vec::new());
        Self { tokens, owner, tls: None, hosts, origins, limits: Limits::default() }
    }
}

/// The limits of an MCP server over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of open connections of all clients.
    pub connections: usize,
    /// The maximum number of sessions per token.
    pub sessions: usize,
    /// The maximum number of event streams that a session holds open with GET.
    pub streams: usize,
    /// The maximum number of running tool calls per session.
    pub calls: usize,
    /// The maximum size of a request body in bytes.
    pub body: usize,
    /// The time until a new connection must have sent a request head with a valid token.
    pub first_token: Duration,
    /// The timeout of a request head, and so of an idle connection.
    pub head: Duration,
    /// The timeout of reading a request body.
    pub read: Duration,
    /// The idle time after which a session ends.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            sessions: 32,
            streams: 4,
            calls: 32,
            body: 4 * 1024 * 1024,
            first_token: Duration::from_secs(5),
            head: Duration::from_secs(30),
            read: Duration::from_secs(30),
            idle: Duration::from_secs(30 * 60),
        }
    }
}

/// Serves MCP over HTTP to clients with a token until `stop`, then ends all sessions.
pub async fn http<S: Service>(
    service: Arc<S>,
    listener: std::net::TcpListener,
    options: HttpOptions,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let gate = Arc::new(Gate::new(&service, &options, &stop)?);
    let tls = options.tls.as_ref().map(TlsFiles::acceptor).transpose()?;
    let address = listener.local_addr().map_err(ServeError::Listen)?;
    if tls.is_none() && !address.ip().to_canonical().is_loopback() {
        return Err(ServeError::TlsRequired(address));
    }
    listener.set_nonblocking(true).map_err(ServeError::Listen)?;
    let listener = TcpListener::from_std(listener).map_err(ServeError::Listen)?;
    let server = Server { gate: Arc::clone(&gate), tls, limits: options.limits, stop };
    let mut connections = JoinSet::new();
    tokio::select! {
        () = server.accept(&listener, &mut connections) => {}
        () = expire(&gate, options.limits.idle) => {}
        () = server.stop.cancelled() => {}
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // Unfinished responses are cut off with their connection.
    drop(tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await);
    connections.shutdown().await;
    gate.close_all().await;
    Ok(())
}

/// Ends idle sessions. The check runs often enough that no session exceeds its idle time by more
/// than a quarter.
pub(crate) async fn expire<S: Service>(gate: &Gate<S>, idle: Duration) {
    let mut ticks = tokio::time::interval((idle / 4).max(Duration::from_millis(10)));
    loop {
        ticks.tick().await;
        gate.expire().await;
    }
}

/// The state that all connections of the HTTP server share.
struct Server<S: Service> {
    gate: Arc<Gate<S>>,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    stop: CancellationToken,
}

impl<S: Service> Clone for Server<S> {
    fn clone(&self) -> Self {
        let (gate, stop) = (Arc::clone(&self.gate), self.stop.clone());
        Self { gate, tls: self.tls.clone(), limits: self.limits, stop }
    }
}

impl<S: Service> Server<S> {
    async fn accept(&self, listener: &TcpListener, connections: &mut JoinSet<()>) {
        let open = Connections::new(self.limits.connections);
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let connection = open.open(peer.ip()).await;
                    while connections.try_join_next().is_some() {}
                    connections.spawn(self.clone().connection(stream, connection));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            }
        }
    }

    /// Serves a connection until it ends, is evicted, or sends no valid token in time.
    async fn connection(self, stream: TcpStream, connection: Connection) {
        let no_token = async {
            tokio::time::sleep(self.limits.first_token).await;
            if connection.is_authenticated() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.handshake_and_serve(stream, &connection) => {}
            () = connection.evicted.cancelled() => {}
            () = no_token => {}
        }
    }

    async fn handshake_and_serve(&self, stream: TcpStream, connection: &Connection) {
        let Ok(local) = stream.local_addr().as_ref().map(SocketAddr::ip) else { return };
        // Responses are written completely, so delaying packets has no benefit.
        drop(stream.set_nodelay(true));
        match &self.tls {
            None => self.serve(stream, local, connection).await,
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    self.serve(stream, local, connection).await;
                }
            }
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        local: IpAddr,
        client: &Connection,
    ) {
        let handle = service_fn(|request: http::Request<Incoming>| async move {
            GateResult::Ok(self.gate.handle(request, local, client).await)
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD);
        let connection = http.serve_connection(TokioIo::new(stream), handle);
        let mut connection = std::pin::pin!(connection);
        // An error on one connection only concerns its client.
        tokio::select! {
            ended = connection.as_mut() => return drop(ended),
            () = self.stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        drop(connection.await);
    }
}
