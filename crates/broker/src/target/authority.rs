//! The host of a request: all places that name the host must agree.

use belljar_model::net::{self, Scheme, Target, TargetError};
use http::header::HOST;
use http::request::Parts;

/// Why the host of a request is unclear. The response is 400, or 421 if the request is for another
/// host than the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misdirected {
    #[error("the request has no Host header and no host in its target")]
    NoHost,
    #[error("the request has {0} Host headers")]
    ManyHosts(usize),
    #[error("the host of the request is invalid: {0}")]
    Malformed(TargetError),
    #[error("the Host header is not ASCII text")]
    NotText,
    #[error("the host contains a user name, which is not supported")]
    UserInfo,
    #[error("the scheme of the request differs from the scheme of the connection")]
    Scheme,
    #[error("the Host header is {host}, but the request target names {authority}")]
    Differs { host: Target, authority: Target },
    #[error("the request is for {request}, but the connection is for {connection}")]
    Connection { request: Target, connection: Target },
    #[error("the request is for port {request}, but the connection is for port {connection}")]
    Port { request: u16, connection: u16 },
}

impl Misdirected {
    /// Returns 421 if the connection belongs to another host (RFC 9110 §15.5.20), and 400 for
    /// malformed requests.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Connection { .. } | Self::Port { .. } => 421,
            Self::NoHost
            | Self::ManyHosts(_)
            | Self::Malformed(_)
            | Self::NotText
            | Self::UserInfo
            | Self::Scheme
            | Self::Differs { .. } => 400,
        }
    }
}

/// Returns the host of a request if the Host header, the request target and the connection agree.
/// `known` contains the name of the TLS hello and the name behind the dialled address.
pub fn authority(
    parts: &Parts,
    scheme: Scheme,
    known: &[&Target],
    port: u16,
) -> Result<Target, Misdirected> {
    let named = parts.uri.authority().map(|authority| parse(authority.as_str())).transpose()?;
    if parts.uri.scheme_str().is_some_and(|named| !named.eq_ignore_ascii_case(scheme.name())) {
        return Err(Misdirected::Scheme);
    }
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.count()) {
        (None, _) => None,
        (Some(host), 0) => Some(parse(host.to_str().map_err(|_| Misdirected::NotText)?)?),
        (Some(_), more) => return Err(Misdirected::ManyHosts(more + 1)),
    };
    let (target, named_port) = match (host, named) {
        (None, None) => return Err(Misdirected::NoHost),
        (Some(only), None) | (None, Some(only)) => only,
        (Some(host), Some(authority)) => {
            let (mine, theirs) =
                (host.1.unwrap_or(scheme.port()), authority.1.unwrap_or(scheme.port()));
            if host.0 != authority.0 || mine != theirs {
                return Err(Misdirected::Differs { host: host.0, authority: authority.0 });
            }
            host
        }
    };
    let request = named_port.unwrap_or(scheme.port());
    if request != port {
        return Err(Misdirected::Port { request, connection: port });
    }
    match known.iter().find(|known| **known != &target) {
        Some(other) => {
            Err(Misdirected::Connection { request: target, connection: (*other).clone() })
        }
        None => Ok(target),
    }
}

fn parse(text: &str) -> Result<(Target, Option<u16>), Misdirected> {
    if text.contains('@') {
        return Err(Misdirected::UserInfo);
    }
    net::authority(text).map_err(Misdirected::Malformed)
}

#[cfg(test)]
mod tests;
