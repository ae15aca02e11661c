//! Words of HTTP that rules speak.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::by_text;

/// A method as it stands in a request. Methods are case-sensitive (RFC 9110 §9.1); one with small
/// letters is none that any rule could mean, and some server would read it as another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Method(String);

/// Why a text is not a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    #[error("methods are written in capital letters, for example GET")]
    Lower,
    #[error("not a method; write for example GET or POST")]
    Malformed,
}

impl Method {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a server promises to change nothing (RFC 9110 §9.2.1).
    pub fn is_safe(&self) -> bool {
        matches!(self.as_str(), "GET" | "HEAD" | "OPTIONS")
    }

    /// Whether no rule may allow it: these echo headers, or leave HTTP for a tunnel (A26, A27).
    pub fn is_forbidden(&self) -> bool {
        matches!(self.as_str(), "TRACE" | "TRACK" | "CONNECT" | "DEBUG")
    }
}

impl FromStr for Method {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        const MAX: usize = 32; // the longest registered one has 17
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

/// How a request travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    Https,
    /// In the clear; never with a secret (B13).
    Http,
}

impl Scheme {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }

    /// The port that is meant when none is given.
    pub const fn port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

/// Why a text is not a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such scheme; write `https` or `http`")]
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

/// What the broker does with the TLS of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tls {
    /// Ends it and looks at each request.
    Intercept,
    /// Carries it unseen, for clients that pin certificates; only the name is checked.
    Passthrough,
}

/// Why a text does not say what to do with TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such handling of TLS; write `intercept` or `passthrough`")]
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
