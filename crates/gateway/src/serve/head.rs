//! Checks the head of every request before it is routed.
//!
//! The parser of hyper refuses malformed heads. It accepts several hosts, a target of another host, HTTP/1.0,
//! and a length beside `chunked`, whose length it drops. These checks refuse what two servers could read
//! differently, and what a browser can be made to send.

use std::net::IpAddr;

use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, HeaderName,
    ORIGIN, TRANSFER_ENCODING,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Version};

use super::problem::{Problem, ProblemKind};
use crate::http::MAX_HEAD;
use crate::http::names::AllowedNames;

/// The maximum length of a query in bytes.
const MAX_QUERY: usize = 4 * 1024;

/// The names of query parameters that clients use for credentials.
const CREDENTIALS: [&str; 4] = ["token", "access_token", CODE, "authorization"];
const CODE: &str = "code";

/// The path to which the identity provider sends the browser back, with a code that can be used once.
pub(crate) const CALLBACK: &str = "/auth/oidc/callback";

/// Headers that a request has at most once, because two servers could read different ones.
const SINGLE: [HeaderName; 7] =
    [HOST, ORIGIN, AUTHORIZATION, CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, COOKIE];

/// The side of the connection on which a request arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// A TCP connection to this local address, with or without TLS. On the loopback interface, the client
    /// can be a process of another user.
    Network { local: IpAddr, tls: bool, is_own_user: bool },
    /// The local socket, which only the user of the server can use.
    LocalSocket,
}

/// Checks the head of a request. Returns the length of the body that the request declares.
pub(crate) fn check(
    parts: &Parts,
    names: &AllowedNames,
    entrance: Entrance,
) -> Result<u64, Problem> {
    if matches!(entrance, Entrance::Network { is_own_user: false, .. }) {
        let detail =
            "other users of this machine cannot use this server over the loopback interface";
        return Err(Problem::new(ProblemKind::FORBIDDEN, detail).closing());
    }
    check_framing(parts)?;
    let host = check_host(parts, names, entrance)?;
    check_path(parts.uri.path())?;
    check_query(parts.uri.path(), parts.uri.query().unwrap_or_default())?;
    check_origin(&parts.headers, host, entrance)?;
    check_length(&parts.headers)
}

/// Refuses requests that another server could separate differently from the next request.
fn check_framing(parts: &Parts) -> Result<(), Problem> {
    if parts.version != Version::HTTP_11 {
        return Err(malformed("the server supports only HTTP/1.1"));
    }
    let size = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    if size.sum::<usize>() > MAX_HEAD {
        // hyper limits its buffer, which can hold more than one head.
        let detail = format!("the headers are longer than {MAX_HEAD} bytes");
        return Err(Problem::new(ProblemKind::HEAD, detail).closing());
    }
    let repeated = SINGLE.iter().find(|name| parts.headers.get_all(*name).iter().nth(1).is_some());
    if let Some(name) = repeated {
        return Err(malformed(format!("the header `{name}` occurs more than once")));
    }
    if parts.headers.contains_key(TRANSFER_ENCODING) {
        let detail = "send the body with `Content-Length` and without `Transfer-Encoding`";
        return Err(Problem::new(ProblemKind::LENGTH, detail).closing());
    }
    Ok(())
}

/// Checks that the request is for this server, and returns its host.
fn check_host<'a>(
    parts: &'a Parts,
    names: &AllowedNames,
    entrance: Entrance,
) -> Result<&'a str, Problem> {
    let host = parts.headers.get(HOST).map(HeaderValue::to_str);
    let Some(Ok(host)) = host else {
        return Err(malformed("the header `Host` is missing or invalid"));
    };
    // The target is a path, or the address of this server with a path.
    if let Some(authority) = parts.uri.authority()
        && !authority.as_str().eq_ignore_ascii_case(host)
    {
        return Err(malformed("the target of the request and the header `Host` differ"));
    }
    if !parts.uri.path().starts_with('/') || parts.method == Method::CONNECT {
        return Err(malformed("the target of the request must be a path"));
    }
    let allowed = match entrance {
        Entrance::Network { local, .. } => names.allows_host(host, local),
        // Only a process of the user can connect, and no browser does.
        Entrance::LocalSocket => host == LOCAL_HOST,
    };
    if !allowed {
        let detail = "this server does not have this name; set `host` in the section [serve]";
        return Err(Problem::new(ProblemKind::MISDIRECTED, detail).closing());
    }
    Ok(host)
}

/// The host of requests on the local socket.
pub(crate) const LOCAL_HOST: &str = "localhost";

/// Refuses paths that two programs could read differently.
fn check_path(path: &str) -> Result<(), Problem> {
    let refused = |what: &str| Err(malformed(format!("the path contains {what}")));
    if path.contains("//") {
        return refused("an empty segment");
    }
    if path.contains('\\') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return refused("a backslash or a character outside of ASCII");
    }
    for segment in path.split('/') {
        let Some(decoded) = decoded(segment) else { return refused("an invalid percent escape") };
        if decoded == b"." || decoded == b".." {
            return refused("a `.` or `..` segment");
        }
        if decoded.iter().any(|byte| matches!(byte, b'/' | b'\\' | 0..0x20 | 0x7f)) {
            return refused("an escaped slash, backslash or control character");
        }
    }
    Ok(())
}

/// Decodes the percent escapes of a segment. `None` if one is invalid.
pub(super) fn decoded(segment: &str) -> Option<Vec<u8>> {
    let mut bytes = segment.bytes();
    let mut decoded = Vec::with_capacity(segment.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
        decoded.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    Some(decoded)
}

/// Refuses long queries, and queries with a credential, which would end up in logs and histories.
fn check_query(path: &str, query: &str) -> Result<(), Problem> {
    if query.len() > MAX_QUERY {
        let detail = format!("the query is longer than {MAX_QUERY} bytes");
        return Err(Problem::new(ProblemKind::URI_TOO_LONG, detail));
    }
    if credentials(path, query).next().is_some() {
        let detail = "send credentials in the header `Authorization`, and replace a token that was part of an address";
        return Err(Problem::new(ProblemKind::TOKEN_IN_URL, detail));
    }
    Ok(())
}

/// Returns the values of query parameters that have the name of a credential.
pub(super) fn credentials<'q>(path: &str, query: &'q str) -> impl Iterator<Item = &'q str> {
    let is_callback = path == CALLBACK;
    query.split('&').filter_map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decoded(name).unwrap_or_default().to_ascii_lowercase();
        let is_expected = is_callback && name == CODE.as_bytes();
        let is_credential = CREDENTIALS.iter().any(|it| it.as_bytes() == name);
        (is_credential && !is_expected).then_some(value)
    })
}

/// Refuses requests of pages that this server did not send.
fn check_origin(headers: &HeaderMap, host: &str, entrance: Entrance) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let own = match entrance {
        Entrance::Network { tls: true, .. } => Some(format!("https://{host}")),
        Entrance::Network { tls: false, .. } => Some(format!("http://{host}")),
        Entrance::LocalSocket => None,
    };
    if own.is_some_and(|own| origin.as_bytes().eq_ignore_ascii_case(own.as_bytes())) {
        return Ok(());
    }
    let detail = "only pages of this server can send requests to it";
    Err(Problem::new(ProblemKind::FOREIGN_ORIGIN, detail))
}

/// Returns the length of the body that the request declares.
fn check_length(headers: &HeaderMap) -> Result<u64, Problem> {
    headers.get(CONTENT_LENGTH).map_or(Ok(0), |length| {
        let length = length.to_str().ok().and_then(|text| text.parse::<u64>().ok());
        length.ok_or_else(|| malformed("the header `Content-Length` is invalid"))
    })
}

/// The bodies that a route accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepts {
    Nothing,
    Json,
    /// Bytes that the handler receives as a stream.
    Bytes,
}

impl Accepts {
    /// Returns the media type of the body.
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Json => "application/json",
            Self::Bytes => "application/octet-stream",
        }
    }
}

/// Checks the type of a body. A page can send other types without a preflight request.
pub(crate) fn check_type(parts: &Parts, length: u64, accepts: Accepts) -> Result<(), Problem> {
    if length == 0 {
        return Ok(());
    }
    if accepts == Accepts::Nothing {
        return Err(malformed("the route accepts no body"));
    }
    let headers = &parts.headers;
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let expected = accepts.media_type();
    if !kind.eq_ignore_ascii_case(expected) || headers.contains_key(CONTENT_ENCODING) {
        let detail = format!("send `Content-Type: {expected}`, without `Content-Encoding`");
        return Err(Problem::new(ProblemKind::MEDIA_TYPE, detail));
    }
    Ok(())
}

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::BAD_REQUEST, detail).closing()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a24_paths_that_two_programs_read_differently_are_refused() {
        for path in ["/", "/v1/boxes", "/v1/boxes/a.b", "/a/..b", "/a/b..", "/%41%20b", "/a/"] {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
        for path in [
            "//",
            "/a//b",
            "/..",
            "/a/../b",
            "/a/.",
            "/%2e%2E/b",
            "/.%2e",
            "/a%2fb",
            "/a%2Fb",
            "/a%5cb",
            "/a\\b",
            "/a%00",
            "/a%0d%0a",
            "/a%7f",
            "/a%",
            "/a%4",
            "/a%zz",
            "/a%+1",
            "/\u{e9}",
        ] {
            let problem = check_path(path).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::BAD_REQUEST, "{path}");
        }
    }

    #[test]
    fn f05_query_with_the_name_of_a_credential_is_refused() {
        for query in ["", "a=b", "tokens=1", "q=token", "codec=x&limit=2"] {
            assert_eq!(check_query("/", query), Ok(()), "{query}");
        }
        assert_eq!(check_query(CALLBACK, "code=x&state=y"), Ok(()), "a provider sends a code");
        let problem = check_query(CALLBACK, "code=x&token=y").unwrap_err();
        assert_eq!(problem.kind, ProblemKind::TOKEN_IN_URL);
        for query in
            ["token=x", "a=b&access_token=x", "Code=1", "%74oken=x", "token", "authorization=x"]
        {
            let problem = check_query("/", query).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::TOKEN_IN_URL, "{query}");
        }
        assert_eq!(check_query("/", &"a".repeat(MAX_QUERY)), Ok(()));
        let problem = check_query("/", &"a".repeat(MAX_QUERY + 1)).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::URI_TOO_LONG);
    }

    proptest::proptest! {
        #[test]
        fn path_that_passes_the_check_decodes_to_the_same_segments(path in "/[ -~]{0,40}") {
            if check_path(&path).is_ok() {
                let whole = decoded(&path).unwrap();
                let segments: Vec<&[u8]> = whole.split(|byte| *byte == b'/').collect();
                proptest::prop_assert_eq!(segments.len(), path.split('/').count());
                proptest::prop_assert!(!segments.contains(&b"..".as_slice()), "{}", path);
            }
        }
    }
}
