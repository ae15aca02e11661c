//! Connections to the world: a name is resolved once, its address judged, and that address dialled.
//!
//! Idle connections are kept for a short while, by scheme, name and port. There is one broker per box,
//! so no connection is ever shared between boxes.

mod dial;
mod pool;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use belljar_model::net::Target;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

use crate::address::{Dialable, Filter, Private, Reach};
use crate::dns::{ResolveError, Resolver};
use crate::rules::{Permit, TcpPermit};
use crate::scrub::BoxError;
use crate::tls::Upstream as Tls;

pub(crate) use dial::Proxy;
use pool::{Kept, Key, Pool, Sender};

/// A body of either direction.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// How long an address may take to answer.
const DIAL: Duration = Duration::from_secs(10);
/// How many addresses of a name are tried.
const ADDRESSES: usize = 4;

/// Why a request did not reach its target.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    #[error("resolve the name")]
    Resolve(#[source] ResolveError),
    #[error("{name} leads to where this rule does not: {private}")]
    Private { name: Target, private: Private },
    #[error("nobody said yes to it")]
    Unanswered,
    #[error("connect to {address}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("connect: no answer within {} s", DIAL.as_secs())]
    Late,
    #[error("the proxy refused: {0}")]
    Proxy(String),
    #[error("verify the server: {0}")]
    Tls(#[source] io::Error),
    #[error("the server broke off")]
    Http(#[source] hyper::Error),
}

impl UpstreamError {
    /// Whether the address or the permit, not the network, is why.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Private { .. } | Self::Unanswered)
    }
}

/// The way out.
#[derive(Debug)]
pub(crate) struct Upstream {
    tls: Tls,
    resolver: Resolver,
    filter: Filter,
    proxy: Option<Proxy>,
    pool: Pool,
}

/// Where a permit leads.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    target: &'a Target,
    port: u16,
    connect: Option<SocketAddr>,
    reach: Reach,
    asks: bool,
}

impl<'a> From<&'a Permit> for Place<'a> {
    fn from(permit: &'a Permit) -> Self {
        let (port, connect, reach) = (permit.port(), permit.connect(), permit.reach());
        Self { target: permit.target(), port, connect, reach, asks: permit.asks().is_some() }
    }
}

impl<'a> From<&'a TcpPermit> for Place<'a> {
    fn from(permit: &'a TcpPermit) -> Self {
        let (port, connect, reach) = (permit.port(), permit.connect(), permit.reach());
        Self { target: permit.target(), port, connect, reach, asks: permit.asks().is_some() }
    }
}

/// A way to one target: an idle connection, or addresses that were judged.
#[derive(Debug)]
pub(crate) struct Way {
    key: Key,
    by: By,
}

#[derive(Debug)]
enum By {
    Idle(Kept),
    Addresses(Vec<SocketAddr>),
    Proxy,
}

impl Upstream {
    pub(crate) fn new(tls: Tls, resolver: Resolver, filter: Filter, proxy: Option<Proxy>) -> Self {
        Self { tls, resolver, filter, proxy, pool: Pool::default() }
    }

    /// Finds the way to where `permit` leads. Nothing of the box has left yet.
    pub(crate) async fn find(&self, permit: &Permit, fresh: bool) -> Result<Way, UpstreamError> {
        if permit.asks().is_some() {
            return Err(UpstreamError::Unanswered);
        }
        let key = Key::of(permit);
        if !fresh && let Some(sender) = self.pool.take(&key) {
            return Ok(Way { key, by: By::Idle(sender) });
        }
        Ok(Way { by: self.locate(permit).await?, key })
    }

    async fn locate(&self, permit: &Permit) -> Result<By, UpstreamError> {
        let place = Place::from(permit);
        Ok(match self.addresses(&place).await? {
            Some(addresses) => By::Addresses(addresses),
            None => By::Proxy,
        })
    }

    /// The addresses to dial, or none where a proxy resolves names by itself.
    pub(crate) async fn addresses(
        &self,
        place: &Place<'_>,
    ) -> Result<Option<Vec<SocketAddr>>, UpstreamError> {
        if place.asks {
            return Err(UpstreamError::Unanswered);
        }
        let refuse = |private| UpstreamError::Private { name: place.target.clone(), private };
        let socket = |address: Dialable| SocketAddr::new(address.ip(), place.port);
        if let Some(fixed) = place.connect {
            self.filter.fixed(fixed).map_err(refuse)?;
            return Ok(Some(vec![fixed]));
        }
        if let Target::Address(address) = place.target {
            let address = self.filter.check(*address, place.reach).map_err(refuse)?;
            return Ok((self.proxy.is_none()).then(|| vec![socket(address)]));
        }
        if self.proxy.is_some() {
            return Ok(None);
        }
        let found = match place.target {
            Target::Address(address) => vec![*address],
            Target::Name(name) => {
                self.resolver.resolve(name).await.map_err(UpstreamError::Resolve)?
            }
        };
        // One bad address condemns the name: a mixed answer is an attempt at rebinding.
        let judge = |address: IpAddr| self.filter.check(address, place.reach).map_err(refuse);
        let judged: Vec<Dialable> = found.into_iter().map(judge).collect::<Result<_, _>>()?;
        Ok(Some(judged.into_iter().take(ADDRESSES).map(socket).collect()))
    }

    /// Sends a request along a way and returns the answer's head.
    pub(crate) async fn send(
        &self,
        permit: &Permit,
        way: Way,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let Way { key, mut by } = way;
        if let By::Idle(sender) = by {
            match self.pool.send(key.clone(), sender, request).await {
                Ok(answer) => return answer.map_err(UpstreamError::Http),
                // It closed before anything was sent: one more way, from the beginning.
                Err(unsent) => request = *unsent,
            }
            by = self.locate(permit).await?;
        }
        let sender = self.connect(permit, &by, false).await?;
        match self.pool.send(key, sender.into(), request).await {
            Ok(answer) => answer.map_err(UpstreamError::Http),
            Err(_) => Err(UpstreamError::Late),
        }
    }

    /// A connection of its own for a request that will become something else.
    pub(crate) async fn send_upgrade(
        &self,
        permit: &Permit,
        way: Way,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let Way { key, by } = way;
        let by = match by {
            By::Idle(_) => self.locate(permit).await?,
            by @ (By::Addresses(_) | By::Proxy) => by,
        };
        let mut sender = self.connect(permit, &by, true).await?;
        sender.send_once(key.origin(request)).await.map_err(UpstreamError::Http)
    }

    async fn connect(
        &self,
        permit: &Permit,
        by: &By,
        only_http1: bool,
    ) -> Result<Sender, UpstreamError> {
        let stream = match by {
            By::Addresses(addresses) => dial::first(addresses).await?,
            By::Proxy | By::Idle(_) => {
                let proxy = self.proxy.as_ref().ok_or(UpstreamError::Late)?;
                proxy.tunnel(permit.target(), permit.port()).await?
            }
        };
        pool::handshake(stream, permit, &self.tls, only_http1).await
    }

    /// A bare connection for bytes that are passed on as they are.
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
