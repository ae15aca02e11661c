//! Whom a request is for: told once, or told the same each time.

use belljar_model::net::{self, Scheme, Target, TargetError};
use http::header::HOST;
use http::request::Parts;

/// Why it is not clear whom a request is for. The answer is 400, or 421 where somebody else is meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misdirected {
    #[error("the request does not say for which host it is")]
    NoHost,
    #[error("the request has {0} Host headers")]
    ManyHosts(usize),
    #[error("the host of the request is not one: {0}")]
    Malformed(TargetError),
    #[error("the host of the request is not text")]
    NotText,
    #[error("a user's name before the host")]
    UserInfo,
    #[error("the scheme of the request is not that of the connection")]
    Scheme,
    #[error("Host says {host} and the request's target {authority}")]
    Differs { host: Target, authority: Target },
    #[error("the request is for {request} and the connection for {connection}")]
    Connection { request: Target, connection: Target },
    #[error("the request is for port {request} and the connection for {connection}")]
    Port { request: u16, connection: u16 },
}

impl Misdirected {
    /// 421 where the connection is for somebody else (RFC 9110 §15.5.20), 400 for what is malformed.
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

/// Whom a request is for, if its Host header, its target and all that is known of the connection say
/// the same: `known` holds the name in the TLS hello and the one behind the address that was dialled.
pub fn authority(
    parts: &Parts,
    scheme: Scheme,
    known: &[&Target],
    port: u16,
) -> Result<Target, Misdirected> {
    let said = parts.uri.authority().map(|authority| parse(authority.as_str())).transpose()?;
    if parts.uri.scheme_str().is_some_and(|said| !said.eq_ignore_ascii_case(scheme.name())) {
        return Err(Misdirected::Scheme);
    }
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.count()) {
        (None, _) => None,
        (Some(host), 0) => Some(parse(host.to_str().map_err(|_| Misdirected::NotText)?)?),
        (Some(_), more) => return Err(Misdirected::ManyHosts(more + 1)),
    };
    let (target, said_port) = match (host, said) {
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
    let request = said_port.unwrap_or(scheme.port());
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
