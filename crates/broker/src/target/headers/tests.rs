//! Tests of ambiguous, hop-by-hop and overriding headers.

use http::HeaderValue;

use super::*;

fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    let mut headers = HeaderMap::new();
    for (name, value) in lines.iter().map(pair) {
        headers.append(name, value);
    }
    headers
}

#[test]
fn a25_ambiguous_headers_are_refused() {
    for (lines, expect) in [
        (&[("content-length", "1"), ("content-length", "1")][..], BadHeader::Length),
        (&[("content-length", "1"), ("content-length", "2")], BadHeader::Length),
        (&[("content-length", "1, 1")], BadHeader::Length),
        (&[("content-length", "+1")], BadHeader::Length),
        (&[("content-length", "-1")], BadHeader::Length),
        (&[("content-length", "0x1")], BadHeader::Length),
        (&[("content-length", "")], BadHeader::Length),
        (&[("content-length", "99999999999999999999")], BadHeader::Length),
        (&[("transfer-encoding", "gzip, chunked")], BadHeader::Coding),
        (&[("transfer-encoding", "identity")], BadHeader::Coding),
        (&[("transfer-encoding", "xchunked")], BadHeader::Coding),
        (&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], BadHeader::Coding),
        (&[("transfer-encoding", "chunked"), ("content-length", "1")], BadHeader::LengthAndCoding),
        (&[("connection", "authorization")], BadHeader::Connection("authorization".into())),
        (&[("connection", "close, X-Secret")], BadHeader::Connection("x-secret".into())),
        (
            &[("connection", "keep-alive"), ("connection", "host")],
            BadHeader::Connection("host".into()),
        ),
        (&[("expect", "200-ok")], BadHeader::Expect),
        (&[("content_length", "1")], BadHeader::Underscore("content_length".parse().unwrap())),
        (
            &[("x_http-method_override", "PUT")],
            BadHeader::Underscore("x_http-method_override".parse().unwrap()),
        ),
    ] {
        assert_eq!(headers(&map(lines)), Err(expect), "{lines:?}");
    }
    for lines in [
        &[][..],
        &[("content-length", "0")],
        &[("transfer-encoding", "Chunked")],
        &[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")],
        &[("connection", "Upgrade, HTTP2-Settings")],
        &[("connection", "close, TE"), ("te", "trailers")],
        &[("expect", "100-continue")],
        &[("x_custom", "1")],
    ] {
        assert_eq!(headers(&map(lines)), Ok(()), "{lines:?}");
    }
}

#[test]
fn a25_only_known_hop_by_hop_headers_are_removed() {
    let mut headers = map(&[
        ("connection", "close, te"),
        ("keep-alive", "1"),
        ("proxy-authorization", "x"),
        ("te", "gzip"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("authorization", "Bearer x"),
        ("accept", "a"),
    ]);
    strip_hop_by_hop(&mut headers);
    let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["accept", "authorization"]);
    let mut grpc = map(&[("te", "trailers"), ("connection", "te")]);
    strip_hop_by_hop(&mut grpc);
    assert_eq!(grpc.get(TE).unwrap(), "trailers");
}

#[test]
fn a26_headers_that_override_method_path_or_host_are_removed() {
    for name in ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"] {
        let name: HeaderName = name.parse().unwrap();
        assert!(is_method_override(&name));
        let mut headers =
            map(&[(name.as_str(), "DELETE"), (name.as_str(), "PUT"), ("accept", "a")]);
        assert_eq!(strip_overrides(&mut headers), [name.as_str()]);
        assert_eq!(headers.len(), 1);
    }
    for name in ["x-original-url", "x-rewrite-url", "x-forwarded-host", "forwarded"] {
        let mut headers = map(&[(name, "/admin")]);
        assert_eq!(strip_overrides(&mut headers), [name]);
        assert!(headers.is_empty());
    }
    // Control: other headers are kept.
    let mut headers = map(&[("accept", "a"), ("x-request-id", "1"), ("authorization", "x")]);
    assert!(strip_overrides(&mut headers).is_empty());
    assert_eq!(headers.len(), 3);
}
