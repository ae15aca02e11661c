//! Host names and addresses in their canonical form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::by_text;

/// The host name by which a box reaches ports of the user's own machine, if a rule allows them.
pub const HOST_NAME: &str = "host.belljar.internal";

/// The maximum length of a host name, without the final dot (RFC 1035 §2.3.4).
const MAX_NAME: usize = 253;
/// The maximum length of a label of a host name (RFC 1035 §2.3.4).
const MAX_LABEL: usize = 63;

/// A host name: labels of letters, digits and hyphens, lower case, without a final dot.
///
/// No other characters are possible, so resolvers and matchers agree on its meaning (A01, A08).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hostname(String);

/// The reason why a text is not a valid host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostnameError {
    #[error("the host name is missing")]
    Empty,
    #[error("a host name can have at most 253 characters")]
    TooLong,
    #[error("a host name cannot end with a dot; remove the dot")]
    TrailingDot,
    #[error("a host name cannot start with a dot or contain `..`")]
    EmptyLabel,
    #[error("a label of a host name can have at most 63 characters")]
    LabelTooLong,
    #[error("a label of a host name cannot begin or end with a hyphen")]
    Hyphen,
    #[error("a host name must be ASCII; write the name in its `xn--` form")]
    NotAscii,
    #[error("a host name can contain only letters, digits, hyphens and dots")]
    Character,
    #[error("a host name cannot end in a number; write an address in full, for example 192.0.2.1")]
    Number,
}

impl Hostname {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the labels of the host name from left to right.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }

    /// Returns whether this host name is `parent` or a name below it. Compares whole labels (A09).
    pub fn is_within(&self, parent: &str) -> bool {
        self.0 == parent || self.is_below(parent)
    }

    /// Returns whether this host name is below `parent`, at any depth.
    pub fn is_below(&self, parent: &str) -> bool {
        self.0.strip_suffix(parent).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }
}

impl FromStr for Hostname {
    type Err = HostnameError;

    fn from_str(text: &str) -> Result<Self, HostnameError> {
        if text.is_empty() {
            return Err(HostnameError::Empty);
        }
        if text.len() > MAX_NAME {
            return Err(HostnameError::TooLong);
        }
        if !text.is_ascii() {
            return Err(HostnameError::NotAscii);
        }
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        if !text.bytes().all(legal) {
            return Err(HostnameError::Character);
        }
        let before_end = text.strip_suffix('.');
        if before_end.is_some_and(|rest| !rest.is_empty() && !rest.ends_with('.')) {
            return Err(HostnameError::TrailingDot);
        }
        for label in text.split('.') {
            match label {
                "" => return Err(HostnameError::EmptyLabel),
                label if label.len() > MAX_LABEL => return Err(HostnameError::LabelTooLong),
                label if label.starts_with('-') || label.ends_with('-') => {
                    return Err(HostnameError::Hyphen);
                }
                _ => {}
            }
        }
        let lower = text.to_ascii_lowercase();
        if lower.rsplit('.').next().is_some_and(ends_in_number) {
            return Err(HostnameError::Number);
        }
        Ok(Self(lower))
    }
}

/// Returns whether some resolvers would treat a name with this last label as an IP address: `1`,
/// `0x7f`.
///
/// See WHATWG URL, "ends in a number", and inet_aton(3).
fn ends_in_number(label: &str) -> bool {
    let digits = |text: &str, legal: fn(&u8) -> bool| text.as_bytes().iter().all(legal);
    digits(label, u8::is_ascii_digit)
        || label.strip_prefix("0x").is_some_and(|rest| digits(rest, u8::is_ascii_hexdigit))
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for Hostname {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The destination of a request: a host name or an IP address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    Name(Hostname),
    Address(IpAddr),
}

/// The reason why a text is neither a valid host name nor a valid IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error(transparent)]
    Name(HostnameError),
    #[error("invalid IP address; write its shortest form, for example 192.0.2.1 or [2001:db8::1]")]
    Address,
    #[error("invalid port; write a number from 1 to 65535")]
    Port,
}

impl Target {
    /// Returns the host name of the target, or `None` for an IP address.
    pub fn name(&self) -> Option<&Hostname> {
        match self {
            Self::Name(name) => Some(name),
            Self::Address(_) => None,
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        if let Some(inside) = text.strip_prefix('[') {
            let inside = inside.strip_suffix(']').ok_or(TargetError::Address)?;
            return parse_ipv6(inside).map(Self::Address);
        }
        if text.contains(':') {
            return parse_ipv6(text).map(Self::Address);
        }
        match text.parse::<Hostname>() {
            Ok(name) => Ok(Self::Name(name)),
            // The standard library accepts only four decimal numbers without leading zeros.
            Err(HostnameError::Number) => match text.parse::<Ipv4Addr>() {
                Ok(address) => Ok(Self::Address(address.into())),
                Err(_) => Err(TargetError::Address),
            },
            Err(error) => Err(TargetError::Name(error)),
        }
    }
}

/// Parses an IPv6 address in the form of RFC 5952 only, since other forms could be misread.
fn parse_ipv6(text: &str) -> Result<IpAddr, TargetError> {
    let address: Ipv6Addr = text.parse().map_err(|_| TargetError::Address)?;
    if address.to_string() != text.to_ascii_lowercase() {
        return Err(TargetError::Address);
    }
    Ok(address.into())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.pad(name.as_str()),
            Self::Address(IpAddr::V4(address)) => f.pad(&address.to_string()),
            Self::Address(IpAddr::V6(address)) => f.pad(&format!("[{address}]")),
        }
    }
}

/// Parses a host or IP address with an optional port, as in `Host` and `:authority`. User
/// information is refused.
pub fn authority(text: &str) -> Result<(Target, Option<u16>), TargetError> {
    let (target, port) = split_port(text).map_err(|()| TargetError::Port)?;
    // Without brackets, an IPv6 address and a port are ambiguous.
    if target.contains(':') && !target.starts_with('[') {
        return Err(TargetError::Address);
    }
    Ok((target.parse()?, port))
}

/// Splits `host:port`, `[v6]:port`, or a host without a port; an invalid port is an error.
pub(super) fn split_port(authority: &str) -> Result<(&str, Option<u16>), ()> {
    let colon = match authority.rfind(']') {
        Some(end) => authority.get(end + 1..).filter(|rest| rest.starts_with(':')).map(|_| end + 1),
        None => authority.rfind(':'),
    };
    let Some(colon) = colon else { return Ok((authority, None)) };
    let (host, port) = authority.split_at(colon);
    let port = port.strip_prefix(':').ok_or(())?;
    let plain = !port.starts_with('0') && port.bytes().all(|byte| byte.is_ascii_digit());
    if !plain {
        return Err(());
    }
    port.parse().map(|port| (host, Some(port))).map_err(|_| ())
}

impl From<Hostname> for Target {
    fn from(name: Hostname) -> Self {
        Self::Name(name)
    }
}

by_text!(Hostname, Target);
