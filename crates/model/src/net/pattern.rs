//! Patterns over names and paths.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::by_text;
use super::host::{Hostname, HostnameError, Target, TargetError};
use super::suffix::open_to_strangers;

/// One target, or all names below one: `*.example.com` is any depth below and not `example.com`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPattern(Inner);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Inner {
    Exact(Target),
    Below(Hostname),
}

/// Why a text is not a pattern of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPatternError {
    #[error(transparent)]
    Target(TargetError),
    #[error("a star may only stand for the whole beginning, as in *.example.com")]
    Star,
    #[error("*.{0} would match names of strangers: {1}; name the hosts one by one")]
    Strangers(Hostname, &'static str),
}

impl HostPattern {
    /// The same for a rule that denies, where a wildcard cannot be too wide.
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

    /// This target and no other.
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

    /// The only target, if it is no wildcard.
    pub fn target(&self) -> Option<&Target> {
        match &self.0 {
            Inner::Exact(target) => Some(target),
            Inner::Below(_) => None,
        }
    }

    /// Whether everything that `other` matches is matched by this as well.
    pub fn covers(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (_, Inner::Exact(target)) => self.matches(target),
            (Inner::Below(mine), Inner::Below(theirs)) => theirs.is_within(mine.as_str()),
            (Inner::Exact(_), Inner::Below(_)) => false,
        }
    }

    /// Whether some target is matched by both.
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

/// Takes wide wildcards too, since a rule that denies may have one; who writes a rule that allows
/// parses its text.
impl<'de> Deserialize<'de> for HostPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::for_deny(&text).map_err(serde::de::Error::custom)
    }
}

/// A pattern over canonical paths: `*` stands for anything within a segment, `**` for any number of
/// segments, none included.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathPattern(String);

/// Why a text is not a pattern of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    #[error("a path begins with `/`")]
    Relative,
    #[error("longer than 1024 characters")]
    TooLong,
    #[error("`**` stands for whole segments; write for example /repos/acme/**")]
    DoubleStar,
    #[error("more than four `**`")]
    TooManyDoubleStars,
    #[error("`//`, `/./` and `/../` are in no path that is let through")]
    Segment,
    #[error("a query is not part of a path")]
    Query,
    #[error("a character that must be percent-encoded in a path")]
    Character,
    #[error("a percent sign begins an escape such as %20, and letters and digits need none")]
    Escape,
}

impl PathPattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it matches. `path` must be canonical: begin with `/` and spell each thing one way.
    pub fn matches(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else { return false };
        let pattern: Vec<&str> = self.0.split('/').skip(1).collect();
        let path: Vec<&str> = path.split('/').collect();
        segments(&pattern, &path)
    }

    /// Whether it matches with `%2F` taken for a slash on both sides, as some servers do.
    pub fn matches_slashed(&self, slashed: &str) -> bool {
        Self(self.0.replace("%2F", "/")).matches(slashed)
    }

    /// Whether it matches with all escapes undone on both sides, one character per byte: how the most
    /// careless server would read them. For rules that deny.
    pub fn matches_decoded(&self, decoded: &str) -> bool {
        Self(percent_decoded(&self.0)).matches(decoded)
    }
}

/// A text with its escapes undone, one character per byte. What is no escape stays.
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

/// Few `**` are in a pattern and paths are bounded, so the number of ways to try is as well.
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

/// Glob with `*` only, in time linear in the product of the lengths.
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

/// The text with its escapes in capital letters, as canonical paths have them.
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

/// RFC 3986 §2.3: what must not be escaped.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn is_unreserved_char(c: char) -> bool {
    u8::try_from(c).is_ok_and(is_unreserved)
}

/// What else may stand unescaped in a segment (RFC 3986 §3.3), but `;`, which servers read in two
/// ways (A24), and `*`, which is ours.
fn is_plain(c: char) -> bool {
    matches!(c, '!' | '$' | '&' | '\'' | '(' | ')' | '+' | ',' | '=' | ':' | '@')
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

by_text!(PathPattern);
