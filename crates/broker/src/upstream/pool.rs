//! Keeps idle upstream connections for later requests to the same target.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belljar_model::net::{Scheme, Target};
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{Body, DIAL_TIMEOUT, TlsFault, UpstreamError};
use crate::rules::Permit;
use crate::tls::Upstream as Tls;

/// The maximum time that a connection stays idle; short, because the address of a name can change.
const MAX_IDLE: Duration = Duration::from_secs(20);
/// The maximum age of a connection that is reused.
const MAX_AGE: Duration = Duration::from_secs(120);
/// The maximum number of idle connections that are kept per target.
const MAX_KEPT: usize = 16;

/// The target for which an idle connection can be reused. Contains the `connect` address, so that a
/// change of the rules leads to a new connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    scheme: Scheme,
    target: Target,
    port: u16,
    connect: Option<std::net::SocketAddr>,
}

impl Key {
    pub(super) fn of(permit: &Permit) -> Self {
        Self {
            scheme: permit.scheme(),
            target: permit.target().clone(),
            port: permit.port(),
            connect: permit.connect(),
        }
    }

    /// Returns the host with the port if it is not the default port.
    fn authority(&self) -> String {
        let host = match &self.target {
            Target::Name(name) => name.to_string(),
            Target::Address(IpAddr::V4(address)) => address.to_string(),
            Target::Address(IpAddr::V6(address)) => format!("[{address}]"),
        };
        match self.port {
            port if port == self.scheme.port() => host,
            port => format!("{host}:{port}"),
        }
    }

    /// Converts the request for HTTP/1: the path in the request line, the host in a header.
    pub(super) fn origin(&self, mut request: Request<Body>) -> Request<Body> {
        if let Ok(host) = HeaderValue::try_from(self.authority()) {
            request.headers_mut().insert(HOST, host);
        }
        *request.uri_mut() = path_of(&request).map_or_else(Uri::default, Uri::from);
        request
    }

    /// Converts the request for HTTP/2, with an absolute URI.
    fn absolute(&self, mut request: Request<Body>) -> Request<Body> {
        request.headers_mut().remove(HOST);
        let path = path_of(&request).unwrap_or_else(|| PathAndQuery::from_static("/"));
        let uri = Uri::builder().scheme(self.scheme.name()).authority(self.authority());
        if let Ok(uri) = uri.path_and_query(path).build() {
            *request.uri_mut() = uri;
        }
        *request.version_mut() = Version::HTTP_2;
        request
    }
}

fn path_of(request: &Request<Body>) -> Option<PathAndQuery> {
    request.uri().path_and_query().cloned()
}

/// An HTTP connection to an upstream server that is ready for requests.
#[derive(Debug)]
pub(super) enum Sender {
    One(http1::SendRequest<Body>),
    Many(http2::SendRequest<Body>),
}

/// An HTTP connection with its creation time.
#[derive(Debug)]
pub(super) struct Kept {
    created: Instant,
    sender: Sender,
}

impl From<Sender> for Kept {
    fn from(sender: Sender) -> Self {
        Self { created: Instant::now(), sender }
    }
}

impl Sender {
    fn is_usable(&self) -> bool {
        match self {
            Self::One(sender) => sender.is_ready(),
            Self::Many(sender) => !sender.is_closed(),
        }
    }

    /// Sends a request on a connection that is not reused.
    pub(super) async fn send_once(
        &mut self,
        request: Request<Body>,
    ) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::One(sender) => sender.send_request(request).await,
            Self::Many(sender) => sender.send_request(request).await,
        }
    }
}

type Waiting = HashMap<Key, Vec<Idle>>;

#[derive(Debug, Default)]
pub(super) struct Pool(Arc<Mutex<Waiting>>);

/// An idle HTTP/1 connection, or an HTTP/2 connection that is possibly in use.
#[derive(Debug)]
struct Idle {
    created: Instant,
    since: Instant,
    sender: Sender,
}

impl Idle {
    /// Returns whether the connection is still open and recent; an old one can lead to an outdated
    /// address.
    fn is_usable(&self) -> bool {
        self.since.elapsed() < MAX_IDLE
            && self.created.elapsed() < MAX_AGE
            && self.sender.is_usable()
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes an idle connection to the target from the pool. An HTTP/2 connection also stays in
    /// the pool.
    pub(super) fn take(&self, key: &Key) -> Option<Kept> {
        let mut pool = self.lock();
        let waiting = pool.get_mut(key)?;
        waiting.retain(Idle::is_usable);
        let Idle { created, sender, .. } = waiting.pop()?;
        if let Sender::Many(many) = &sender {
            let since = Instant::now();
            waiting.push(Idle { created, since, sender: Sender::Many(many.clone()) });
        }
        Some(Kept { created, sender })
    }

    /// Sends a request and returns the connection to the pool for reuse. Returns the request if no
    /// byte of it was sent.
    pub(super) async fn send(
        &self,
        key: Key,
        Kept { created, sender }: Kept,
        request: Request<Body>,
    ) -> Result<hyper::Result<Response<Incoming>>, Box<Request<Body>>> {
        match sender {
            Sender::One(mut sender) => match sender.try_send_request(key.origin(request)).await {
                Ok(answer) => {
                    let pool = Self(Arc::clone(&self.0));
                    // The connection is ready again after the response body was read.
                    tokio::spawn(async move {
                        if sender.ready().await.is_ok() {
                            pool.keep(key, created, Sender::One(sender));
                        }
                    });
                    Ok(Ok(answer))
                }
                Err(mut error) => match error.take_message() {
                    Some(request) => Err(Box::new(request)),
                    None => Ok(Err(error.into_error())),
                },
            },
            Sender::Many(mut sender) => {
                self.keep(key.clone(), created, Sender::Many(sender.clone()));
                match sender.try_send_request(key.absolute(request)).await {
                    Ok(answer) => Ok(Ok(answer)),
                    Err(mut error) => match error.take_message() {
                        Some(request) => Err(Box::new(request)),
                        None => Ok(Err(error.into_error())),
                    },
                }
            }
        }
    }

    fn keep(&self, key: Key, created: Instant, sender: Sender) {
        let mut pool = self.lock();
        let waiting = pool.entry(key).or_default();
        waiting.retain(Idle::is_usable);
        if matches!(sender, Sender::Many(_)) {
            waiting.retain(|idle| !matches!(idle.sender, Sender::Many(_)));
        }
        if waiting.len() < MAX_KEPT {
            waiting.push(Idle { created, since: Instant::now(), sender });
        }
    }
}

/// Performs the TLS and HTTP handshakes on a new connection; the certificate must match the target.
pub(super) async fn handshake(
    stream: TcpStream,
    permit: &Permit,
    tls: &Tls,
    only_http1: bool,
) -> Result<Sender, UpstreamError> {
    match permit.scheme() {
        Scheme::Http => handshake_http1(TokioIo::new(stream)).await,
        Scheme::Https => {
            let name = Tls::server_name(permit.target())
                .map_err(|_| UpstreamError::Tls(TlsFault::Failed))?;
            let connector = TlsConnector::from(if only_http1 { tls.http1() } else { tls.any() });
            let fault = |error: std::io::Error| UpstreamError::Tls(error.into());
            let handshake = timeout(DIAL_TIMEOUT, connector.connect(name, stream)).await;
            let stream = handshake.map_err(|_| UpstreamError::Late)?.map_err(fault)?;
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let stream = TokioIo::new(stream);
            if !is_http2 {
                return handshake_http1(stream).await;
            }
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(4 << 20)
                .max_header_list_size(64 * 1024);
            let (sender, connection) = builder.handshake(stream).await.map_err(failed)?;
            tokio::spawn(connection);
            Ok(Sender::Many(sender))
        }
    }
}

async fn handshake_http1<S>(stream: S) -> Result<Sender, UpstreamError>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(256 * 1024);
    let (sender, connection) = builder.handshake(stream).await.map_err(failed)?;
    tokio::spawn(connection.with_upgrades());
    Ok(Sender::One(sender))
}

fn failed(error: hyper::Error) -> UpstreamError {
    UpstreamError::Http(error.into())
}

#[cfg(test)]
mod tests;
