//! Patterns for host names and URL paths.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::by_text;
use super::host::{Hostname, HostnameError, Target, TargetError};
use super::suffix::open_to_strangers;

/// A host pattern: one target, or all names below a domain (`*.example.com` matches any depth, not
/// `example.com`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPattern(Inner);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Inner {
    Exact(Target),
    Below(Hostname),
}

/// The reason why a text is not a valid host pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPatternError {
    #[error(transparent)]
    Target(TargetError),
    #[error("a wildcard must be the whole first label, as in *.example.com")]
    Star,
    #[error(
        "the wildcard *.{0} would match hosts of unrelated owners: {1}; list the hosts one by one"
    )]
    Strangers(Hostname, &'static str),
}

impl HostPattern {
    /// Parses a host pattern of a `deny` rule, in which a wildcard can be arbitrarily wide.
    pub fn for_deny(text: &str) -> Result<Self, HostPatternError> {
        let Some(rest) = text.strip_prefix("*.") else {
            if text.contains('*') {
                return Err(HostPatternError::Star);
            }
            return text.parse().map(Self::exact).map_err(HostPatternError::Target);
        };
        if rest.contains('*') {
            return Err(HostPatternError::Star);
        }
        let not_a_name = |error: HostnameError| HostPatternError::Target(TargetError::Name(error));
        rest.parse().map(|name| Self(Inner::Below(name))).map_err(not_a_name)
    }

    /// Creates a host pattern that matches only this target.
    pub const fn exact(target: Target) -> Self {
        Self(Inner::Exact(target))
    }

    pub fn matches(&self, target: &Target) -> bool {
        match (&self.0, target) {
            (Inner::Exact(mine), asked) => mine == asked,
            (Inner::Below(parent), Target::Name(name)) => name.is_below(parent.as_str()),
            (Inner::Below(_), Target::Address(_)) => false,
        }
    }

    /// Returns the only target that the pattern matches, or `None` for a wildcard.
    pub fn target(&self) -> Option<&Target> {
        match &self.0 {
            Inner::Exact(target) => Some(target),
            Inner::Below(_) => None,
        }
    }

    /// Returns the domain whose names a wildcard matches; `None` for an exact pattern.
    pub fn parent(&self) -> Option<&Hostname> {
        match &self.0 {
            Inner::Exact(_) => None,
            Inner::Below(parent) => Some(parent),
        }
    }

    /// Returns whether this host pattern matches everything that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (_, Inner::Exact(target)) => self.matches(target),
            (Inner::Below(mine), Inner::Below(theirs)) => theirs.is_within(mine.as_str()),
            (Inner::Exact(_), Inner::Below(_)) => false,
        }
    }

    /// Returns whether some target matches both host patterns.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, HostPatternError> {
        let pattern = Self::for_deny(text)?;
        match &pattern.0 {
            Inner::Below(name) => match open_to_strangers(name.as_str()) {
                Some(why) => Err(HostPatternError::Strangers(name.clone(), why)),
                None => Ok(pattern),
            },
            Inner::Exact(_) => Ok(pattern),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Exact(target) => target.fmt(f),
            Inner::Below(name) => f.pad(&format!("*.{name}")),
        }
    }
}

impl Serialize for HostPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Deserializes a host pattern, wide wildcards included, since a `deny` rule can have them.
///
/// An `allow` rule is checked separately.
impl<'de> Deserialize<'de> for HostPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::for_deny(&text).map_err(serde::de::Error::custom)
    }
}

/// A pattern for URL paths: `*` matches within a segment, `**` any number of segments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathPattern(String);

/// The reason why a text is not a valid path pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    #[error("a path must begin with `/`")]
    Relative,
    #[error("a path can have at most 1024 characters")]
    TooLong,
    #[error("`**` must be a whole segment; write for example /repos/acme/**")]
    DoubleStar,
    #[error("a path pattern can have at most four `**`")]
    TooManyDoubleStars,
    #[error("a path cannot contain `//`, `/./` or `/../`")]
    Segment,
    #[error("a path cannot contain a query; remove `?` and the text after it")]
    Query,
    #[error("the path contains a character that must be percent-encoded")]
    Character,
    #[error("invalid percent escape; write for example %20, and do not escape letters and digits")]
    Escape,
}

impl PathPattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the pattern matches a canonical path, which starts with `/` and has one
    /// spelling.
    pub fn matches(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else { return false };
        let pattern: Vec<&str> = self.0.split('/').skip(1).collect();
        let path: Vec<&str> = path.split('/').collect();
        segments(&pattern, &path)
    }

    /// Returns whether the pattern matches a path if `%2F` means a slash on both sides, as for some
    /// servers.
    pub fn matches_slashed(&self, slashed: &str) -> bool {
        Self(self.0.replace("%2F", "/")).matches(slashed)
    }

    /// Returns whether the pattern matches a path with all escapes decoded on both sides, one
    /// character per byte.
    ///
    /// That is how the most lenient server would read a path. For `deny` rules.
    pub fn matches_decoded(&self, decoded: &str) -> bool {
        Self(percent_decoded(&self.0)).matches(decoded)
    }

    /// Returns whether a lenient server could serve the paths of the pattern under this path: with
    /// other letter case, escapes, parameters, or additional slashes. For tokens in responses.
    pub fn matches_leniently(&self, path: &str) -> bool {
        Self(lenient(&self.0)).matches(&lenient(path))
    }
}

/// Returns a path as the most lenient server would read it: escapes decoded, in lower case, without
/// parameters and empty segments.
fn lenient(path: &str) -> String {
    let decoded = percent_decoded(path).to_lowercase();
    let segments = decoded.split('/').map(|it| it.split(';').next().unwrap_or_default());
    let segments: Vec<&str> = segments.filter(|it| !it.is_empty()).collect();
    format!("/{}", segments.join("/"))
}

/// Decodes the percent escapes of a text, one character per byte. Invalid escapes stay unchanged.
pub fn percent_decoded(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let escape = rest.strip_prefix('%').and_then(|after| after.get(..2));
        let plain = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let byte = escape.filter(plain).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => decoded.push(char::from(byte)),
            None => decoded.push(first),
        }
        let taken = if byte.is_some() { 3 } else { first.len_utf8() };
        rest = rest.get(taken..).unwrap_or_default();
    }
    decoded
}

/// Matches path segments by backtracking, which is bounded by the limits on `**` and on path
/// lengths.
fn segments(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**"], _) => true,
        (["**", rest @ ..], _) => {
            (0..=path.len()).any(|skip| path.get(skip..).is_some_and(|path| segments(rest, path)))
        }
        ([first, rest @ ..], [segment, path @ ..]) => {
            within(first.as_bytes(), segment.as_bytes()) && segments(rest, path)
        }
        ([_, ..], []) | ([], [_, ..]) => false,
    }
}

/// Matches one path segment with `*`, in time linear in the product of the lengths.
fn within(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(byte) = text.get(from) {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(wanted) if wanted == byte => {
                at += 1;
                from += 1;
            }
            Some(_) | None => match star {
                Some((place, taken)) => {
                    star = Some((place, taken + 1));
                    at = place + 1;
                    from = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|byte| *byte == b'*')
}

impl FromStr for PathPattern {
    type Err = PathPatternError;

    fn from_str(text: &str) -> Result<Self, PathPatternError> {
        if !text.starts_with('/') {
            return Err(PathPatternError::Relative);
        }
        if text.len() > 1024 {
            return Err(PathPatternError::TooLong);
        }
        if text.contains(['?', '#']) {
            return Err(PathPatternError::Query);
        }
        let segments: Vec<&str> = text.split('/').skip(1).collect();
        for (index, segment) in segments.iter().enumerate() {
            let last = index + 1 == segments.len();
            match *segment {
                "" if !last => return Err(PathPatternError::Segment),
                "." | ".." => return Err(PathPatternError::Segment),
                "**" => {}
                segment if segment.contains("**") => return Err(PathPatternError::DoubleStar),
                _ => {}
            }
        }
        if segments.iter().filter(|segment| **segment == "**").count() > 4 {
            return Err(PathPatternError::TooManyDoubleStars);
        }
        escapes_upper(text).map(Self)
    }
}

/// Returns the path pattern with upper-case escapes, as in canonical paths.
fn escapes_upper(text: &str) -> Result<String, PathPatternError> {
    let mut upper = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if first == '%' {
            let escape = rest.get(..3).ok_or(PathPatternError::Escape)?;
            let digits = escape.get(1..).unwrap_or_default();
            let byte = u8::from_str_radix(digits, 16).map_err(|_| PathPatternError::Escape)?;
            if digits.starts_with('+') || is_unreserved(byte) || byte.is_ascii_control() {
                return Err(PathPatternError::Escape);
            }
            upper.push_str(&escape.to_ascii_uppercase());
            rest = rest.get(3..).unwrap_or_default();
            continue;
        }
        let legal = is_unreserved_char(first) || matches!(first, '/' | '*') || is_plain(first);
        if !legal {
            return Err(PathPatternError::Character);
        }
        upper.push(first);
        rest = rest.get(first.len_utf8()..).unwrap_or_default();
    }
    Ok(upper)
}

/// Returns whether a byte must not be percent-encoded (RFC 3986 §2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn is_unreserved_char(c: char) -> bool {
    u8::try_from(c).is_ok_and(is_unreserved)
}

/// Returns whether a reserved character can be unescaped in a path segment (RFC 3986 §3.3).
///
/// Excludes `;`, which servers read in two ways (A24), and `*`, which is our wildcard.
fn is_plain(c: char) -> bool {
    matches!(c, '!' | '$' | '&' | '\'' | '(' | ')' | '+' | ',' | '=' | ':' | '@')
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

by_text!(PathPattern);
