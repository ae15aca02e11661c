//! Paths that mean the same to everybody.

use std::fmt;

use belljar_model::net::{Method, PathPattern, percent_decoded};

/// Longer ones are refused by many servers as well.
const MAX: usize = 8 * 1024; // bytes, as nginx

/// A path that no server can read in two ways, with its escapes in capital letters and `*` as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CanonicalPath {
    text: String,
    /// All escapes undone, one character per byte.
    decoded: String,
    /// `%2F` as a slash, where there is one.
    slashed: Option<String>,
}

/// Why a path is not clear. The answer to such a request is 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ambiguous {
    #[error("the path does not begin with `/`")]
    Relative,
    #[error("the path is longer than {MAX} bytes")]
    TooLong,
    #[error("`.` or `..` in the path, plain or escaped")]
    Dots,
    #[error("an empty segment, `//`, in the path")]
    Empty,
    #[error("a `\\` in the path, plain or escaped")]
    Backslash,
    #[error("a `;` in the path, plain or escaped")]
    Semicolon,
    #[error("a `#` in the request's target")]
    Fragment,
    #[error("a control character in the path, plain or escaped")]
    Control,
    #[error("a percent sign that begins no escape")]
    Escape,
    #[error("an escape that need not be one, such as %41 for A")]
    Needless,
    #[error("an escape of an escape, such as %252e")]
    Twice,
    #[error("a character in the path that must be escaped")]
    Character,
    #[error("a character in the query that must be escaped")]
    Query,
}

impl CanonicalPath {
    /// Splits and checks the path and query of a request's target.
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
        let text = spell(path)?;
        let slashed = text.contains("%2F").then(|| text.replace("%2F", "/"));
        for reading in [Some(&text), slashed.as_ref()].into_iter().flatten() {
            segments(reading)?;
        }
        let decoded = percent_decoded(&text);
        Ok(Self { text, decoded, slashed })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a pattern of a rule that allows matches, also if the server takes `%2F` for a slash.
    pub fn allowed_by(&self, pattern: &PathPattern) -> bool {
        pattern.matches(&self.text)
            && self.slashed.as_ref().is_none_or(|slashed| pattern.matches_slashed(slashed))
    }

    /// Whether a pattern of a rule that denies matches in any reading.
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

/// The same path with escapes in capital letters; refuses what has another spelling.
fn spell(path: &str) -> Result<String, Ambiguous> {
    let mut text = String::with_capacity(path.len());
    let mut bytes = path.as_bytes().iter().copied();
    while let Some(byte) = bytes.next() {
        if byte == b'*' {
            // Said with an escape, so that no rule made from a path that a box chose has a wildcard.
            text.push_str("%2A");
            continue;
        }
        if byte != b'%' {
            plain(byte)?;
            text.push(char::from(byte));
            continue;
        }
        let (high, low) = bytes.next().zip(bytes.next()).ok_or(Ambiguous::Escape)?;
        let mut value = [0];
        hex::decode_to_slice([high, low], &mut value).map_err(|_| Ambiguous::Escape)?;
        let value = u8::from_be_bytes(value);
        escaped(value)?;
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

/// RFC 3986 §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// What may stand in a path as it is (RFC 3986 §3.3), but `;`: servers cut a path there, or do not.
fn plain(byte: u8) -> Result<(), Ambiguous> {
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

/// What may be escaped.
fn escaped(value: u8) -> Result<(), Ambiguous> {
    match value {
        b'.' => Err(Ambiguous::Dots),
        b'\\' => Err(Ambiguous::Backslash),
        b';' => Err(Ambiguous::Semicolon),
        value if value.is_ascii_control() => Err(Ambiguous::Control),
        value if is_unreserved(value) => Err(Ambiguous::Needless),
        _ => Ok(()),
    }
}

fn segments(path: &str) -> Result<(), Ambiguous> {
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

/// A query that makes of a harmless request another one (A26).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueryOverride {
    #[error("`_method` in the query would make another method of it")]
    Method,
    #[error("a GraphQL mutation in a request whose method promises to change nothing")]
    Mutation,
}

/// Refuses queries that change what a request does behind its method's back.
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
