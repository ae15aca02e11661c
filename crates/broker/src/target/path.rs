//! Paths with only one possible reading.

use std::fmt;

use belljar_model::net::{Method, PathPattern, percent_decoded};

/// Longest accepted path; many servers refuse longer ones too.
const MAX: usize = 8 * 1024; // bytes, as nginx

/// A path with only one possible reading: escapes are in capital letters, and `*` is escaped.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CanonicalPath {
    text: String,
    /// The path with all escapes decoded, one character per byte.
    decoded: String,
    /// The path with `%2F` replaced by a slash, if it contains `%2F`.
    slashed: Option<String>,
}

/// Why a path is ambiguous. The response is 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ambiguous {
    #[error("the path does not start with `/`")]
    Relative,
    #[error("the path is longer than {MAX} bytes")]
    TooLong,
    #[error("the path contains `.` or `..`, plain or escaped")]
    Dots,
    #[error("the path contains an empty segment (`//`)")]
    Empty,
    #[error("the path contains a `\\`, plain or escaped")]
    Backslash,
    #[error("the path contains a `;`, plain or escaped")]
    Semicolon,
    #[error("the request target contains a `#`")]
    Fragment,
    #[error("the path contains a control character, plain or escaped")]
    Control,
    #[error("the path contains a percent sign that does not start an escape")]
    Escape,
    #[error("the path contains a needless escape, such as %41 for A")]
    Needless,
    #[error("the path contains a double escape, such as %252e")]
    Twice,
    #[error("the path contains a character that must be escaped")]
    Character,
    #[error("the query contains a character that must be escaped")]
    Query,
}

impl CanonicalPath {
    /// Splits a request target into path and query, and checks both.
    pub fn parse(target: &str) -> Result<(Self, Option<String>), Ambiguous> {
        if target.contains('#') {
            return Err(Ambiguous::Fragment);
        }
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let query_ok = |byte: u8| byte.is_ascii_graphic() && !b"\"<>`\\".contains(&byte);
        if query.is_some_and(|query| !query.bytes().all(query_ok)) {
            return Err(Ambiguous::Query);
        }
        Ok((Self::path(path)?, query.map(str::to_owned)))
    }

    fn path(path: &str) -> Result<Self, Ambiguous> {
        if !path.starts_with('/') {
            return Err(Ambiguous::Relative);
        }
        if path.len() > MAX {
            return Err(Ambiguous::TooLong);
        }
        let text = canonical(path)?;
        let slashed = text.contains("%2F").then(|| text.replace("%2F", "/"));
        for reading in [Some(&text), slashed.as_ref()].into_iter().flatten() {
            check_segments(reading)?;
        }
        let decoded = percent_decoded(&text);
        Ok(Self { text, decoded, slashed })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the pattern of an allow rule matches, also if the server reads `%2F` as a
    /// slash.
    pub fn allowed_by(&self, pattern: &PathPattern) -> bool {
        pattern.matches(&self.text)
            && self.slashed.as_ref().is_none_or(|slashed| pattern.matches_slashed(slashed))
    }

    /// Returns whether the pattern of a deny rule matches any reading of the path.
    pub fn denied_by(&self, pattern: &PathPattern) -> bool {
        pattern.matches(&self.text)
            || self.slashed.as_ref().is_some_and(|slashed| pattern.matches(slashed))
            || pattern.matches_decoded(&self.decoded)
    }
}

impl fmt::Display for CanonicalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// Returns the path with escapes in capital letters; refuses ambiguous spellings.
fn canonical(path: &str) -> Result<String, Ambiguous> {
    let mut text = String::with_capacity(path.len());
    let mut bytes = path.as_bytes().iter().copied();
    while let Some(byte) = bytes.next() {
        if byte == b'*' {
            // Escaped, so that a rule made from a path of the box contains no wildcard.
            text.push_str("%2A");
            continue;
        }
        if byte != b'%' {
            check_plain(byte)?;
            text.push(char::from(byte));
            continue;
        }
        let (high, low) = bytes.next().zip(bytes.next()).ok_or(Ambiguous::Escape)?;
        let mut value = [0];
        hex::decode_to_slice([high, low], &mut value).map_err(|_| Ambiguous::Escape)?;
        let value = u8::from_be_bytes(value);
        check_escaped(value)?;
        let escape = bytes.clone().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
        if value == b'%' && escape {
            return Err(Ambiguous::Twice);
        }
        text.push('%');
        text.push(char::from(high.to_ascii_uppercase()));
        text.push(char::from(low.to_ascii_uppercase()));
    }
    Ok(text)
}

/// Returns whether a byte is unreserved (RFC 3986 §2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Checks a byte that is not escaped (RFC 3986 §3.3). Refuses `;`, because only some servers end
/// the path there.
fn check_plain(byte: u8) -> Result<(), Ambiguous> {
    match byte {
        b'/' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'+' | b',' | b'=' | b':' | b'@' => {
            Ok(())
        }
        byte if is_unreserved(byte) => Ok(()),
        b'\\' => Err(Ambiguous::Backslash),
        b';' => Err(Ambiguous::Semicolon),
        byte if byte.is_ascii_control() => Err(Ambiguous::Control),
        _ => Err(Ambiguous::Character),
    }
}

/// Checks the decoded value of an escape.
fn check_escaped(value: u8) -> Result<(), Ambiguous> {
    match value {
        b'.' => Err(Ambiguous::Dots),
        b'\\' => Err(Ambiguous::Backslash),
        b';' => Err(Ambiguous::Semicolon),
        value if value.is_ascii_control() => Err(Ambiguous::Control),
        value if is_unreserved(value) => Err(Ambiguous::Needless),
        _ => Ok(()),
    }
}

fn check_segments(path: &str) -> Result<(), Ambiguous> {
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "." | ".." => return Err(Ambiguous::Dots),
            "" if segments.peek().is_some() => return Err(Ambiguous::Empty),
            _ => {}
        }
    }
    Ok(())
}

/// Why a query is refused: the query changes what the request does (A26).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueryOverride {
    #[error("the query contains `_method`, which overrides the method")]
    Method,
    #[error("the query contains a GraphQL mutation, but the method is a safe one")]
    Mutation,
}

/// Refuses queries that override the method of the request or hide a mutation.
pub fn query_override(
    method: &Method,
    path: &CanonicalPath,
    query: Option<&str>,
) -> Result<(), QueryOverride> {
    let Some(query) = query else { return Ok(()) };
    let decoded = |text: &str| percent_decoded(text).replace('+', " ").to_ascii_lowercase();
    let pairs = || query.split(['&', ';']).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    if pairs().any(|(name, _)| matches!(decoded(name).as_str(), "_method" | "x-http-method")) {
        return Err(QueryOverride::Method);
    }
    let graphql = path.decoded.to_ascii_lowercase().contains("graphql");
    let mutates = |(name, value): (&str, &str)| {
        decoded(name) == "query" && decoded(value).contains("mutation")
    };
    if method.is_safe() && graphql && pairs().any(mutates) {
        return Err(QueryOverride::Mutation);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
