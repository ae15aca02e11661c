//! Many clients over HTTP: who may connect, how many, and for how long.
//!
//! A server that other machines reach speaks TLS or does not start, since its callers send tokens.
//! HTTP/1.1 only, which every client speaks: nothing of HTTP/2 can then be held against us. One permit for
//! each connection is taken before it is accepted, so that a flood waits in the kernel and not here.

mod answer;
mod gate;
mod names;
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::auth::token::Tokens;
use crate::error::ServeError;
use crate::mcp::service::Service;
use crate::tls::TlsFiles;
use gate::{Answered, Gate};

/// More headers than any client sends.
const MAX_HEADERS: usize = 64;

/// A head may have this many bytes.
const MAX_HEAD: usize = 32 * 1024;

/// How long connections may take to end once the server stops.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// After an error of `accept`, which is mostly one about too many open files.
const BREATH: Duration = Duration::from_millis(100);

/// How a server over HTTP is to be.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Who may come in. There is no way to ask for none.
    pub tokens: Tokens,
    /// Whom the sessions of all tokens belong to.
    pub owner: Caller,
    pub tls: Option<TlsFiles>,
    /// Names of this server besides those of the loopback and the address that it is reached by.
    pub hosts: Vec<String>,
    /// Origins whose pages may speak to it besides its own.
    pub origins: Vec<String>,
    pub limits: Limits,
}

impl HttpOptions {
    /// Everything else as it is good for one machine.
    pub fn new(tokens: Tokens, owner: Caller) -> Self {
        let (hosts, origins) = (Vec::new(), Vec::new());
        Self { tokens, owner, tls: None, hosts, origins, limits: Limits::default() }
    }
}

/// How much anybody may have of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time, of everybody together.
    pub connections: usize,
    /// Sessions of one token.
    pub sessions: usize,
    /// Streams that one session holds open with GET.
    pub streams: usize,
    /// Calls that one session has under way.
    pub calls: usize,
    /// Bytes of one body.
    pub body: usize,
    /// For a handshake of TLS and for a head, and so for a connection on which nothing is asked.
    pub head: Duration,
    /// For a body.
    pub read: Duration,
    /// After so long without a word a session is over.
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
            head: Duration::from_secs(30),
            read: Duration::from_secs(30),
            idle: Duration::from_secs(30 * 60),
        }
    }
}

/// Serves everybody who has a token until `stop`, then ends all sessions.
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
        return Err(ServeError::InClear(address));
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
    // What is not answered by then is cut off with its connection.
    drop(tokio::time::timeout(LAST_ANSWERS, ended).await);
    connections.shutdown().await;
    gate.close_all().await;
    Ok(())
}

/// Looks often enough that no session outlives its time by more than a quarter.
async fn expire<S: Service>(gate: &Gate<S>, idle: Duration) {
    let mut look = tokio::time::interval((idle / 4).max(Duration::from_millis(10)));
    loop {
        look.tick().await;
        gate.expire().await;
    }
}

/// What every connection needs.
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
        let room = Arc::new(Semaphore::new(self.limits.connections));
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    connections.spawn(self.clone().connection(stream, permit));
                }
                Err(_) => tokio::time::sleep(BREATH).await,
            }
        }
    }

    async fn connection(self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        let _permit = permit;
        let Ok(local) = stream.local_addr().as_ref().map(SocketAddr::ip) else { return };
        // Answers are written whole, so there is nothing to wait for.
        drop(stream.set_nodelay(true));
        match &self.tls {
            None => self.serve(stream, local).await,
            Some(tls) => {
                let handshake = tokio::time::timeout(self.limits.head, tls.accept(stream));
                if let Ok(Ok(stream)) = handshake.await {
                    self.serve(stream, local).await;
                }
            }
        }
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin, local: IpAddr) {
        let answer = service_fn(|request: http::Request<Incoming>| async move {
            Answered::Ok(self.gate.answer(request, local).await)
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD);
        let connection = http.serve_connection(TokioIo::new(stream), answer);
        let mut connection = std::pin::pin!(connection);
        // What goes wrong on one connection is its client's to notice.
        tokio::select! {
            ended = connection.as_mut() => return drop(ended),
            () = self.stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        drop(connection.await);
    }
}
