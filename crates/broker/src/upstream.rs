//! Connections to upstream servers: resolves a name once, checks the addresses, and dials a checked
//! address.
//!
//! Idle connections are reused for a short time, by scheme, name and port. Each box has its own
//! broker, so boxes never share a connection.

mod dial;
mod fault;
mod pool;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use belljar_model::net::Target;
use bytes::Bytes;
use http::header::TRANSFER_ENCODING;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::{MapErr, UnsyncBoxBody};
use hyper::body::Incoming;

use crate::address::{Dialable, Filter, Private, Reach};
use crate::dns::{ResolveError, Resolver};
use crate::rules::{Permit, TcpPermit};
use crate::scrub::BoxError;
use crate::tls::Upstream as Tls;

pub(crate) use dial::Proxy;
pub(crate) use fault::{HttpFault, TlsFault};
use pool::{Kept, Key, Pool, Sender};

/// The body of a request or response.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// The body of an upstream's response. Its errors contain no byte of the response.
pub(crate) type AnswerBody = MapErr<Incoming, fn(hyper::Error) -> HttpFault>;

/// The timeout for one connection attempt to an upstream server.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of IP addresses that are tried for a host name.
const MAX_ADDRESSES: usize = 4;

/// The reason why a request did not reach its upstream server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error("cannot resolve the host name")]
    Resolve(#[source] ResolveError),
    #[error("the host {name} resolves to an address that this rule does not allow: {private}")]
    Private { name: Target, private: Private },
    #[error("the operator has not approved the request")]
    Unanswered,
    #[error("cannot connect to {address}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("the upstream did not answer within {} s", DIAL_TIMEOUT.as_secs())]
    Late,
    #[error("the proxy refused the connection with status {0}")]
    ProxyRefused(u16),
    #[error("the proxy did not open a connection: {0}")]
    ProxyFailed(io::ErrorKind),
    #[error("cannot verify the upstream: {0}")]
    Tls(#[source] TlsFault),
    #[error(transparent)]
    Http(HttpFault),
}

impl UpstreamError {
    /// Returns whether the request did not reach the upstream at all.
    pub(crate) const fn is_unsent(&self) -> bool {
        !matches!(self, Self::Http(_))
    }

    /// Returns whether the address filter or a missing approval caused the error, and not the
    /// network.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Private { .. } | Self::Unanswered)
    }
}

/// The client side of the broker, which connects to upstream servers.
#[derive(Debug)]
pub(crate) struct Upstream {
    tls: Tls,
    resolver: Resolver,
    filter: Filter,
    proxy: Option<Proxy>,
    pool: Pool,
}

/// The host, port and fixed address that a permit allows to connect to.
#[derive(Debug)]
pub(crate) struct Destination<'a> {
    target: &'a Target,
    port: u16,
    connect: Option<SocketAddr>,
    reach: Reach,
    asks: bool,
}

impl<'a> From<&'a Permit> for Destination<'a> {
    fn from(permit: &'a Permit) -> Self {
        let (port, connect, reach) = (permit.port(), permit.connect(), permit.reach());
        Self { target: permit.target(), port, connect, reach, asks: permit.asks().is_some() }
    }
}

impl<'a> From<&'a TcpPermit> for Destination<'a> {
    fn from(permit: &'a TcpPermit) -> Self {
        let (port, connect, reach) = (permit.port(), permit.connect(), permit.reach());
        Self { target: permit.target(), port, connect, reach, asks: permit.asks().is_some() }
    }
}

/// A way to reach one target: an idle connection, checked addresses, or the proxy.
#[derive(Debug)]
pub(crate) struct Route {
    key: Key,
    by: RouteKind,
}

#[derive(Debug)]
enum RouteKind {
    Idle(Kept),
    Addresses(Vec<SocketAddr>),
    Proxy,
}

impl Upstream {
    pub(crate) fn new(tls: Tls, resolver: Resolver, filter: Filter, proxy: Option<Proxy>) -> Self {
        Self { tls, resolver, filter, proxy, pool: Pool::default() }
    }

    /// Finds a way to reach the target of `permit`; `fresh` excludes idle connections. Sends
    /// nothing of the box yet.
    pub(crate) async fn find(&self, permit: &Permit, fresh: bool) -> Result<Route, UpstreamError> {
        if permit.asks().is_some() {
            return Err(UpstreamError::Unanswered);
        }
        let key = Key::of(permit);
        if !fresh && let Some(sender) = self.pool.take(&key) {
            return Ok(Route { key, by: RouteKind::Idle(sender) });
        }
        Ok(Route { by: self.find_addresses(permit).await?, key })
    }

    async fn find_addresses(&self, permit: &Permit) -> Result<RouteKind, UpstreamError> {
        let destination = Destination::from(permit);
        Ok(match self.addresses(&destination).await? {
            Some(addresses) => RouteKind::Addresses(addresses),
            None => RouteKind::Proxy,
        })
    }

    /// Returns the checked IP addresses to dial, or `None` if the proxy resolves the name.
    pub(crate) async fn addresses(
        &self,
        destination: &Destination<'_>,
    ) -> Result<Option<Vec<SocketAddr>>, UpstreamError> {
        if destination.asks {
            return Err(UpstreamError::Unanswered);
        }
        let refuse = |private| UpstreamError::Private { name: destination.target.clone(), private };
        let socket = |address: Dialable| SocketAddr::new(address.ip(), destination.port);
        if let Some(fixed) = destination.connect {
            self.filter.check_connect(fixed).map_err(refuse)?;
            return Ok(Some(vec![fixed]));
        }
        if let Target::Address(address) = destination.target {
            let address = self.filter.check(*address, destination.reach).map_err(refuse)?;
            return Ok((self.proxy.is_none()).then(|| vec![socket(address)]));
        }
        if self.proxy.is_some() {
            return Ok(None);
        }
        let found = match destination.target {
            Target::Address(address) => vec![*address],
            Target::Name(name) => {
                self.resolver.resolve(name).await.map_err(UpstreamError::Resolve)?
            }
        };
        // One forbidden address makes the name forbidden: a mixed answer is an attempt at DNS
        // rebinding.
        let check = |address: IpAddr| self.filter.check(address, destination.reach).map_err(refuse);
        let checked: Vec<Dialable> = found.into_iter().map(check).collect::<Result<_, _>>()?;
        Ok(Some(checked.into_iter().take(MAX_ADDRESSES).map(socket).collect()))
    }

    /// Sends a request over a found route and returns the head of the response.
    pub(crate) async fn send(
        &self,
        permit: &Permit,
        route: Route,
        mut request: Request<Body>,
    ) -> Result<Response<AnswerBody>, UpstreamError> {
        let Route { key, mut by } = route;
        if let RouteKind::Idle(sender) = by {
            match self.pool.send(key.clone(), sender, request).await {
                Ok(answer) => return without_texts(answer),
                // The idle connection closed before a byte was sent, so a new one is opened.
                Err(unsent) => request = *unsent,
            }
            by = self.find_addresses(permit).await?;
        }
        let sender = self.connect(permit, &by, false).await?;
        match self.pool.send(key, sender.into(), request).await {
            Ok(answer) => without_texts(answer),
            Err(_) => Err(UpstreamError::Late),
        }
    }

    /// Sends an upgrade request on a new connection.
    pub(crate) async fn send_upgrade(
        &self,
        permit: &Permit,
        route: Route,
        request: Request<Body>,
    ) -> Result<Response<AnswerBody>, UpstreamError> {
        let Route { key, by } = route;
        let by = match by {
            RouteKind::Idle(_) => self.find_addresses(permit).await?,
            by @ (RouteKind::Addresses(_) | RouteKind::Proxy) => by,
        };
        let mut sender = self.connect(permit, &by, true).await?;
        without_texts(sender.send_once(key.origin(request)).await)
    }

    async fn connect(
        &self,
        permit: &Permit,
        by: &RouteKind,
        only_http1: bool,
    ) -> Result<Sender, UpstreamError> {
        let stream = match by {
            RouteKind::Addresses(addresses) => dial::first(addresses).await?,
            RouteKind::Proxy | RouteKind::Idle(_) => {
                let proxy = self.proxy.as_ref().ok_or(UpstreamError::Late)?;
                proxy.tunnel(permit.target(), permit.port()).await?
            }
        };
        pool::handshake(stream, permit, &self.tls, only_http1).await
    }

    /// Opens a raw TCP connection to the target of a permit.
    pub(crate) async fn raw(
        &self,
        addresses: Option<&[SocketAddr]>,
        target: &Target,
        port: u16,
    ) -> Result<tokio::net::TcpStream, UpstreamError> {
        match (addresses, &self.proxy) {
            (Some(addresses), _) => dial::first(addresses).await,
            (None, Some(proxy)) => proxy.tunnel(target, port).await,
            (None, None) => Err(UpstreamError::Late),
        }
    }
}

/// Returns a response whose errors, now and later, contain no byte that the upstream sent.
fn without_texts(
    answer: hyper::Result<Response<Incoming>>,
) -> Result<Response<AnswerBody>, UpstreamError> {
    let fault: fn(hyper::Error) -> HttpFault = HttpFault::from;
    let answer = answer.map_err(|error| UpstreamError::Http(fault(error)))?;
    // hyper decodes `chunked` only. Another coding, which the broker did not ask for, would stay in
    // the body and hide a secret (B05).
    let mut codings = answer.headers().get_all(TRANSFER_ENCODING).iter();
    if !codings.all(|coding| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")) {
        return Err(UpstreamError::Http(HttpFault::TransferCoding));
    }
    Ok(answer.map(|body| body.map_err(fault)))
}
