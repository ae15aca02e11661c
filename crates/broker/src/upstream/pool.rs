//! Connections that wait for another request to the same place.

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

use super::{Body, DIAL, UpstreamError};
use crate::rules::Permit;
use crate::tls::Upstream as Tls;

/// How long an idle connection is kept. Short: a name's address may change meanwhile.
const IDLE: Duration = Duration::from_secs(20);
/// How long a busy one is.
const AGE: Duration = Duration::from_secs(120);
/// How many idle connections are kept per place.
const KEPT: usize = 16;

/// What connections are kept by. A fixed address is part of it, so that a change of rules is a change
/// of place.
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

    /// Host and, if it is not the usual one, port.
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

    /// The request as HTTP/1 has it: the path in the first line, the host in a header.
    pub(super) fn origin(&self, mut request: Request<Body>) -> Request<Body> {
        if let Ok(host) = HeaderValue::try_from(self.authority()) {
            request.headers_mut().insert(HOST, host);
        }
        *request.uri_mut() = path_of(&request).map_or_else(Uri::default, Uri::from);
        request
    }

    /// The request as HTTP/2 has it: all of it in the target.
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

/// One connection, ready for requests.
#[derive(Debug)]
pub(super) enum Sender {
    One(http1::SendRequest<Body>),
    Many(http2::SendRequest<Body>),
}

/// A connection with the time it was made.
#[derive(Debug)]
pub(super) struct Kept {
    made: Instant,
    sender: Sender,
}

impl From<Sender> for Kept {
    fn from(sender: Sender) -> Self {
        Self { made: Instant::now(), sender }
    }
}

impl Sender {
    fn is_usable(&self) -> bool {
        match self {
            Self::One(sender) => sender.is_ready(),
            Self::Many(sender) => !sender.is_closed(),
        }
    }

    /// Sends on a connection that is not kept.
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

/// A connection that waits, or takes several requests at once.
#[derive(Debug)]
struct Idle {
    made: Instant,
    since: Instant,
    sender: Sender,
}

impl Idle {
    /// Whether it may carry one more request: where a name leads may have changed meanwhile.
    fn is_usable(&self) -> bool {
        self.since.elapsed() < IDLE && self.made.elapsed() < AGE && self.sender.is_usable()
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An idle connection to that place. One that takes many requests at once stays where it is.
    pub(super) fn take(&self, key: &Key) -> Option<Kept> {
        let mut pool = self.lock();
        let waiting = pool.get_mut(key)?;
        waiting.retain(Idle::is_usable);
        let Idle { made, sender, .. } = waiting.pop()?;
        if let Sender::Many(many) = &sender {
            let since = Instant::now();
            waiting.push(Idle { made, since, sender: Sender::Many(many.clone()) });
        }
        Some(Kept { made, sender })
    }

    /// Sends a request and keeps the connection for the next. Gives the request back if not a byte of
    /// it was sent.
    pub(super) async fn send(
        &self,
        key: Key,
        Kept { made, sender }: Kept,
        request: Request<Body>,
    ) -> Result<hyper::Result<Response<Incoming>>, Box<Request<Body>>> {
        match sender {
            Sender::One(mut sender) => match sender.try_send_request(key.origin(request)).await {
                Ok(answer) => {
                    let pool = Self(Arc::clone(&self.0));
                    // Ready again once the answer's body was read to its end.
                    tokio::spawn(async move {
                        if sender.ready().await.is_ok() {
                            pool.keep(key, made, Sender::One(sender));
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
                self.keep(key.clone(), made, Sender::Many(sender.clone()));
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

    fn keep(&self, key: Key, made: Instant, sender: Sender) {
        let mut pool = self.lock();
        let waiting = pool.entry(key).or_default();
        waiting.retain(Idle::is_usable);
        if matches!(sender, Sender::Many(_)) {
            waiting.retain(|idle| !matches!(idle.sender, Sender::Many(_)));
        }
        if waiting.len() < KEPT {
            waiting.push(Idle { made, since: Instant::now(), sender });
        }
    }
}

/// Makes a connection ready for requests: TLS, verified for the name of the target, and HTTP.
pub(super) async fn handshake(
    stream: TcpStream,
    permit: &Permit,
    tls: &Tls,
    only_http1: bool,
) -> Result<Sender, UpstreamError> {
    match permit.scheme() {
        Scheme::Http => one(TokioIo::new(stream)).await,
        Scheme::Https => {
            let name = Tls::server_name(permit.target())
                .map_err(|error| UpstreamError::Tls(std::io::Error::other(error)))?;
            let connector = TlsConnector::from(if only_http1 { tls.http1() } else { tls.any() });
            let shaken = timeout(DIAL, connector.connect(name, stream)).await;
            let stream = shaken.map_err(|_| UpstreamError::Late)?.map_err(UpstreamError::Tls)?;
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let stream = TokioIo::new(stream);
            if !is_http2 {
                return one(stream).await;
            }
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(4 << 20)
                .max_header_list_size(64 * 1024);
            let (sender, connection) =
                builder.handshake(stream).await.map_err(UpstreamError::Http)?;
            tokio::spawn(connection);
            Ok(Sender::Many(sender))
        }
    }
}

async fn one<S>(stream: S) -> Result<Sender, UpstreamError>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(256 * 1024);
    let (sender, connection) = builder.handshake(stream).await.map_err(UpstreamError::Http)?;
    tokio::spawn(connection.with_upgrades());
    Ok(Sender::One(sender))
}

#[cfg(test)]
mod tests;
