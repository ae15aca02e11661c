//! Headers that say how a message is cut, who may drop what, and what a request pretends to be.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HeaderMap, HeaderName, TE, TRANSFER_ENCODING,
};

/// Why the headers of a request are not clear. The answer is 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    #[error("Content-Length is given more than once, or is not one whole number")]
    Length,
    #[error("Transfer-Encoding is other than `chunked`")]
    Coding,
    #[error("both Content-Length and Transfer-Encoding")]
    LengthAndCoding,
    #[error("Connection names `{0}`, which would be dropped on the way")]
    Connection(String),
    #[error("Expect is other than `100-continue`")]
    Expect,
    #[error("`{0}`: some servers read the underscore as a hyphen")]
    Underscore(HeaderName),
}

/// The headers between two hops (RFC 9110 §7.6.1), a fixed list: what else `Connection` names is not
/// dropped but refused (A25).
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

/// What `Connection` may name.
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

/// Headers by which frameworks take another method, path or host than the request's own (A26).
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

/// Those that change the method.
const METHOD_OVERRIDES: [&str; 5] = [
    "x-http-method",
    "x-http-method-override",
    "x-method",
    "x-method-override",
    "x-original-method",
];

/// Refuses what two programs could read differently.
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

/// Whether a header would mean something to us if its underscores were hyphens, as CGI has them.
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

/// Takes away what is between the box and us only. `TE: trailers` stays, which gRPC needs.
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

/// Takes away headers by which a server would do something else than the request says; their names.
pub fn strip_overrides(headers: &mut HeaderMap) -> Vec<&'static str> {
    let names = OVERRIDES.into_iter().chain(METHOD_OVERRIDES);
    names.filter(|name| headers.remove(*name).is_some()).collect()
}

/// Whether a header changes the method of a request.
pub fn is_method_override(name: &HeaderName) -> bool {
    METHOD_OVERRIDES.contains(&name.as_str())
}

#[cfg(test)]
mod tests;
