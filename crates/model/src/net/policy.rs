//! The complete network policy of one box.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::by_text;
use super::host::{Target, TargetError, split_port};
use super::rule::Rule;
use super::secret::SecretDecl;
use crate::choice::Net;
use crate::time::AskTimeout;

/// The network rules of one box, with presets expanded and secrets looked up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub net: Net,
    pub allow: Vec<Rule>,
    /// The rules that refuse requests; a match overrides `allow` and `ask`.
    pub deny: Vec<Rule>,
    /// The rules for requests that need the operator's approval each time; a match overrides
    /// `allow`.
    pub ask: Vec<Rule>,
    /// How long a request waits for the operator's answer.
    pub ask_timeout: AskTimeout,
    /// The secrets for which this box gets placeholders.
    pub secrets: Vec<SecretDecl>,
    /// The network budget of the whole run.
    pub budget: Budget,
    pub proxy: Option<Proxy>,
}

/// The HTTP proxy through which the broker connects to upstream servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    pub target: Target,
    pub port: u16,
}

/// The reason why a text is not a valid proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    #[error("invalid proxy; write http://HOST:PORT")]
    Malformed,
    #[error("a proxy with a password is not supported; remove the part up to `@`")]
    Password,
    #[error(transparent)]
    Target(TargetError),
}

impl FromStr for Proxy {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Self, ProxyError> {
        let rest = text.strip_prefix("http://").ok_or(ProxyError::Malformed)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            return Err(ProxyError::Password);
        }
        let (target, port) = split_port(rest).map_err(|()| ProxyError::Malformed)?;
        let port = port.ok_or(ProxyError::Malformed)?;
        Ok(Self { target: target.parse().map_err(ProxyError::Target)?, port })
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.target, self.port)
    }
}

by_text!(Proxy);
