//! Slots: the parts of a request that can hold a secret.

use std::fmt;
use std::str::FromStr;

use super::by_text;

/// A part of a request that can hold a secret. A placeholder anywhere else stops the request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// The secret is in a header with this name, in lower case. `authorization` includes the value
    /// after `Bearer` or `token`, and the password of Basic.
    Header(String),
    /// The secret is only the user or password of `Authorization: Basic`.
    Basic,
    /// The secret is the value of one query parameter.
    Query(String),
    /// The secret is one string of a JSON body, given by a JSON pointer (RFC 6901).
    Json(String),
}

/// The reason why a text is not a valid slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    #[error("invalid slot; write `header:NAME`, `basic`, `query:NAME` or `json:/POINTER`")]
    Malformed,
    #[error("invalid header name; write for example Authorization or X-Api-Key")]
    Header,
    #[error("invalid slot: servers store, forward or log this header, so it cannot hold a secret")]
    Sink,
    #[error("invalid query parameter name; use letters, digits and - . _ ~")]
    Query,
    #[error("invalid JSON pointer; write for example /auth/token")]
    Pointer,
}

/// The headers that servers store, forward or interpret themselves, so they cannot hold a secret
/// (B03).
const SINKS: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "from",
    "host",
    "keep-alive",
    "origin",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
];

/// Returns a valid header name in lower case (RFC 9110 §5.1, a token).
pub fn header_name(text: &str) -> Result<String, SlotError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if text.is_empty() || text.len() > 64 || !text.bytes().all(legal) {
        return Err(SlotError::Header);
    }
    Ok(text.to_ascii_lowercase())
}

/// Parses a JSON pointer to a value below the root (RFC 6901 §3).
pub fn json_pointer(text: &str) -> Result<String, SlotError> {
    let escapes = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    if !text.starts_with('/') || text.len() > 256 || !escapes || text.chars().any(char::is_control)
    {
        return Err(SlotError::Pointer);
    }
    Ok(text.to_owned())
}

impl FromStr for Slot {
    type Err = SlotError;

    fn from_str(text: &str) -> Result<Self, SlotError> {
        if text == "basic" {
            return Ok(Self::Basic);
        }
        match text.split_once(':').ok_or(SlotError::Malformed)? {
            ("header", name) => {
                let name = header_name(name)?;
                if SINKS.contains(&name.as_str()) || name.starts_with("x-forwarded-") {
                    return Err(SlotError::Sink);
                }
                Ok(Self::Header(name))
            }
            ("query", name) => {
                let legal = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
                if name.is_empty() || name.len() > 64 || !name.bytes().all(legal) {
                    return Err(SlotError::Query);
                }
                Ok(Self::Query(name.to_owned()))
            }
            ("json", pointer) => json_pointer(pointer).map(Self::Json),
            _ => Err(SlotError::Malformed),
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Basic => f.write_str("basic"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
        }
    }
}

by_text!(Slot);
