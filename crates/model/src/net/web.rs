//! HTTP methods, schemes and TLS modes in rules.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::by_text;

/// An HTTP method, always upper case.
///
/// Methods are case-sensitive (RFC 9110 §9.1). Lower-case methods are refused, since some servers would
/// read them as upper case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Method(String);

/// The reason why a text is not a valid HTTP method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    #[error("HTTP methods must be upper case, for example GET")]
    Lower,
    #[error("invalid HTTP method; write for example GET or POST")]
    Malformed,
}

impl Method {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the HTTP method is safe: requests with it change nothing on the server (RFC
    /// 9110 §9.2.1).
    pub fn is_safe(&self) -> bool {
        matches!(self.as_str(), "GET" | "HEAD" | "OPTIONS")
    }

    /// Returns whether no rule can allow the HTTP method, because it echoes headers or opens a
    /// tunnel (A26, A27).
    pub fn is_forbidden(&self) -> bool {
        matches!(self.as_str(), "TRACE" | "TRACK" | "CONNECT" | "DEBUG")
    }
}

impl FromStr for Method {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        const MAX: usize = 32; // the longest registered method has 17 letters
        if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
            return Err(MethodError::Lower);
        }
        let legal = |byte: u8| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_');
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_uppercase());
        if !first || text.len() > MAX || !text.bytes().all(legal) {
            return Err(MethodError::Malformed);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

by_text!(Method);

/// The scheme of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    Https,
    /// Plain HTTP, which never carries a secret (B13).
    Http,
}

impl Scheme {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }

    /// Returns the default port of the scheme.
    pub const fn port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

/// The reason why a text is not a valid scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown scheme; write `https` or `http`")]
pub struct SchemeError;

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Self, SchemeError> {
        [Self::Https, Self::Http].into_iter().find(|it| it.name() == text).ok_or(SchemeError)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How the broker handles the TLS of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tls {
    /// The broker terminates TLS and checks each request.
    Intercept,
    /// The broker forwards the encrypted bytes and checks only the name, for clients that pin certificates.
    Passthrough,
}

/// The reason why a text is not a valid TLS mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown TLS mode; write `intercept` or `passthrough`")]
pub struct TlsError;

impl Tls {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Intercept => "intercept",
            Self::Passthrough => "passthrough",
        }
    }
}

impl FromStr for Tls {
    type Err = TlsError;

    fn from_str(text: &str) -> Result<Self, TlsError> {
        [Self::Intercept, Self::Passthrough]
            .into_iter()
            .find(|it| it.name() == text)
            .ok_or(TlsError)
    }
}

impl fmt::Display for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
