//! Checks and removes headers about framing, about single hops, and about overrides of the request.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HeaderMap, HeaderName, TE, TRANSFER_ENCODING,
};

/// Why the headers of a request are ambiguous. The response is 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    #[error("Content-Length is duplicate or is not a whole number")]
    Length,
    #[error("Transfer-Encoding must be `chunked`")]
    Coding,
    #[error("the request has both Content-Length and Transfer-Encoding")]
    LengthAndCoding,
    #[error("Connection names `{0}`, which is not a known hop-by-hop header")]
    Connection(String),
    #[error("Expect must be `100-continue`")]
    Expect,
    #[error("header `{0}` contains an underscore, which some servers read as a hyphen")]
    Underscore(HeaderName),
}

/// Hop-by-hop headers (RFC 9110 §7.6.1). The list is fixed: a request whose `Connection` names any
/// other header is refused (A25).
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Accepted options of the `Connection` header.
const OPTIONS: [&str; 8] = [
    "close",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers that make some frameworks use another path or host than the request line (A26).
const OVERRIDES: [&str; 16] = [
    "forwarded",
    "x-forwarded",
    "x-forwarded-host",
    "x-forwarded-method",
    "x-forwarded-path",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-forwarded-uri",
    "x-host",
    "x-http-host-override",
    "x-original-host",
    "x-original-url",
    "x-override-url",
    "x-rewrite-url",
];

/// Headers that make some frameworks use another method than the request line.
const METHOD_OVERRIDES: [&str; 5] = [
    "x-http-method",
    "x-http-method-override",
    "x-method",
    "x-method-override",
    "x-original-method",
];

/// Refuses headers that two programs could read differently.
pub fn headers(headers: &HeaderMap) -> Result<(), BadHeader> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    if let Some(length) = lengths.next() {
        let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        if lengths.next().is_some() || !digits(length.as_bytes()) || length.len() > 19 {
            return Err(BadHeader::Length);
        }
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(BadHeader::Coding);
        }
        if headers.contains_key(CONTENT_LENGTH) {
            return Err(BadHeader::LengthAndCoding);
        }
    }
    for value in headers.get_all(CONNECTION) {
        for option in String::from_utf8_lossy(value.as_bytes()).split(',') {
            let option = option.trim().to_ascii_lowercase();
            if !option.is_empty() && !OPTIONS.contains(&option.as_str()) {
                return Err(BadHeader::Connection(option.chars().take(64).collect()));
            }
        }
    }
    let continues = |value: &[u8]| value.eq_ignore_ascii_case(b"100-continue");
    if !headers.get_all(EXPECT).iter().all(|value| continues(value.as_bytes())) {
        return Err(BadHeader::Expect);
    }
    match headers.keys().find(|name| is_disguised(name)) {
        Some(name) => Err(BadHeader::Underscore(name.clone())),
        None => Ok(()),
    }
}

/// Returns whether a header becomes a sensitive one if its underscores are read as hyphens, as in
/// CGI.
fn is_disguised(name: &HeaderName) -> bool {
    if !name.as_str().contains('_') {
        return false;
    }
    let plain = name.as_str().replace('_', "-");
    let plain = plain.as_str();
    HOP_BY_HOP.contains(&plain)
        || OVERRIDES.contains(&plain)
        || METHOD_OVERRIDES.contains(&plain)
        || matches!(plain, "content-length" | "host" | "authorization" | "content-encoding")
}

/// Removes headers that concern only the hop from the box to the broker. Keeps `TE: trailers`,
/// which gRPC needs.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let trailers = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"trailers");
    let kept = headers.get(TE).filter(|value| trailers(value)).cloned();
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    if let Some(te) = kept {
        headers.insert(TE, te);
    }
}

/// Removes headers that override the request line and returns their names.
pub fn strip_overrides(headers: &mut HeaderMap) -> Vec<&'static str> {
    let names = OVERRIDES.into_iter().chain(METHOD_OVERRIDES);
    names.filter(|name| headers.remove(*name).is_some()).collect()
}

/// Returns whether a header overrides the method of a request.
pub fn is_method_override(name: &HeaderName) -> bool {
    METHOD_OVERRIDES.contains(&name.as_str())
}

#[cfg(test)]
mod tests;
