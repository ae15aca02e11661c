//! Request smuggling: requests whose end two HTTP parsers could find at different bytes.
//!
//! Whatever the box sends, the server receives only complete requests that the rules allow.

use std::collections::BTreeMap;

use belljar_testkit::{Upstream, Wire};

use super::*;

/// The response of the test server to every request.
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Python functions that build HTTP/2 frames.
const FRAMES: &str = r#"
def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

def field(name, value):
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value

def h2_request(case, *fields, data=None, path=None, method=b"POST", authority=b"api.example.com"):
    """Returns the bytes of one HTTP/2 request."""
    head = b"".join(field(*it) for it in [(b":method", method), (b":scheme", b"https"), (b":authority", authority),
                                          (b":path", path or b"/ok/" + case.encode()), *fields])
    out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
    out += frame(1, 4 if data is not None else 5, 1, head)
    return out + (frame(0, 1, 1, data) if data is not None else b"")
"#;

/// Python code that sends ambiguous requests, each with a hidden request to `/admin`.
const CORPUS: &str = r#"
HIDDEN = b"GET /admin HTTP/1.1\r\nhost: api.example.com\r\nx: y\r\n\r\n"

def post(case, *headers, body=b"", line=b"\r\n"):
    head = [b"POST /ok/" + case.encode() + b" HTTP/1.1", b"host: api.example.com", *headers]
    return line.join(head) + line + line + body

CHUNKED = b"transfer-encoding: chunked"
SMALL = b"3\r\nabc\r\n0\r\n\r\n"
length = lambda body: b"content-length: " + str(len(body)).encode()

http1 = {
    "control-length": post("control-length", b"content-length: 3", body=b"abc"),
    "control-chunked": post("control-chunked", CHUNKED, body=SMALL),
    "control-pipeline": post("control-pipeline", b"content-length: 3", body=b"abc") + post("control-second", CHUNKED, body=SMALL),
    "length-then-coding": post("length-then-coding", b"content-length: 4", CHUNKED, body=b"0\r\n\r\n" + HIDDEN),
    "coding-then-length": post("coding-then-length", CHUNKED, b"content-length: 4", body=b"0\r\n\r\n" + HIDDEN),
    "length-covers-hidden": post("length-covers-hidden", length(b"0\r\n\r\n" + HIDDEN), CHUNKED, body=b"0\r\n\r\n" + HIDDEN),
    "two-lengths": post("two-lengths", b"content-length: 0", length(HIDDEN), body=HIDDEN),
    "two-lengths-turned": post("two-lengths-turned", length(HIDDEN), b"content-length: 0", body=HIDDEN),
    "same-length-twice": post("same-length-twice", b"content-length: 3", b"content-length: 3", body=b"abc" + HIDDEN),
    "length-list": post("length-list", b"content-length: 3, 3", body=b"abc" + HIDDEN),
    "length-plus": post("length-plus", b"content-length: +3", body=b"abc" + HIDDEN),
    "length-minus": post("length-minus", b"content-length: -3", body=b"abc" + HIDDEN),
    "length-hex": post("length-hex", b"content-length: 0x3", body=b"abc" + HIDDEN),
    "length-space": post("length-space", b"content-length : 3", body=b"abc" + HIDDEN),
    "length-huge": post("length-huge", b"content-length: 18446744073709551619", body=b"abc" + HIDDEN),
    "length-disguised": post("length-disguised", b"content_length: 3", body=b"abc" + HIDDEN),
    "coding-x": post("coding-x", b"transfer-encoding: xchunked", body=SMALL + HIDDEN),
    "coding-space": post("coding-space", b"transfer-encoding : chunked", body=SMALL + HIDDEN),
    "coding-tab": post("coding-tab", b"transfer-encoding:\tchunked", body=SMALL + HIDDEN),
    "coding-vertical": post("coding-vertical", b"transfer-encoding:\x0bchunked", body=SMALL + HIDDEN),
    "coding-fold": post("coding-fold", b"transfer-encoding:\r\n chunked", body=SMALL + HIDDEN),
    "coding-twice": post("coding-twice", CHUNKED, b"transfer-encoding: identity", body=SMALL + HIDDEN),
    "coding-identity": post("coding-identity", b"transfer-encoding: identity", b"content-length: 3", body=b"abc" + HIDDEN),
    "coding-list": post("coding-list", b"transfer-encoding: identity, chunked", body=SMALL + HIDDEN),
    "coding-after": post("coding-after", b"transfer-encoding: chunked, identity", body=SMALL + HIDDEN),
    "coding-quoted": post("coding-quoted", b'transfer-encoding: "chunked"', body=SMALL + HIDDEN),
    "coding-nul": post("coding-nul", b"transfer-encoding: chunked\0", body=SMALL + HIDDEN),
    "coding-leading": post("coding-leading", b" transfer-encoding: chunked", body=SMALL + HIDDEN),
    "coding-in-value": post("coding-in-value", b"x: y\rtransfer-encoding: chunked", body=SMALL + HIDDEN),
    "coding-old": (b"POST /ok/coding-old HTTP/1.0\r\nhost: api.example.com\r\n" + CHUNKED + b"\r\n\r\n" + SMALL + HIDDEN),
    "bare-lf": post("bare-lf", b"content-length: 3", body=b"abc" + HIDDEN, line=b"\n"),
    "lf-in-head": post("lf-in-head", b"x: y\ntransfer-encoding: chunked", b"content-length: 3", body=b"abc" + HIDDEN),
    "chunk-negative": post("chunk-negative", CHUNKED, body=b"-3\r\nabc\r\n0\r\n\r\n" + HIDDEN),
    "chunk-plus": post("chunk-plus", CHUNKED, body=b"+3\r\nabc\r\n0\r\n\r\n" + HIDDEN),
    "chunk-prefix": post("chunk-prefix", CHUNKED, body=b"0x3\r\nabc\r\n0\r\n\r\n" + HIDDEN),
    "chunk-huge": post("chunk-huge", CHUNKED, body=b"10000000000000003\r\nabc\r\n0\r\n\r\n" + HIDDEN),
    "chunk-bare-lf": post("chunk-bare-lf", CHUNKED, body=b"3\nabc\n0\n\n" + HIDDEN),
    "chunk-extension-lf": post("chunk-extension-lf", CHUNKED, body=b"3;x\nabc\r\n0\r\n\r\n" + HIDDEN),
    "chunk-extension": post("chunk-extension", CHUNKED, body=b"3;a=b\r\nabc\r\n0\r\n\r\n" + HIDDEN),
    "chunk-no-end": post("chunk-no-end", CHUNKED, body=b"3\r\nabcXX0\r\n\r\n" + HIDDEN),
    "chunk-trailers": post("chunk-trailers", CHUNKED, body=b"3\r\nabc\r\n0\r\ncontent-length: 50\r\nhost: other.example.com\r\n\r\n" + HIDDEN),
    "get-with-body": b"GET /ok/get-with-body HTTP/1.1\r\nhost: api.example.com\r\ncontent-length: 4\r\n\r\nGET " + HIDDEN,
    "delete-chunked": b"DELETE /ok/delete-chunked HTTP/1.1\r\nhost: api.example.com\r\n" + CHUNKED + b"\r\n\r\n" + SMALL + HIDDEN,
    "line-spaces": b"GET /ok/line-spaces HTTP/1.1 HTTP/1.1\r\nhost: api.example.com\r\n\r\n",
    "line-crlf-first": b"\r\n" + post("line-crlf-first", b"content-length: 0"),
    "version-nine": b"GET /ok/version-nine\r\n\r\n" + HIDDEN,
    "version-next": b"GET /ok/version-next HTTP/1.2\r\nhost: api.example.com\r\n\r\n" + HIDDEN,
    "upgrade-h2c": b"GET /ok/upgrade-h2c HTTP/1.1\r\nhost: api.example.com\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n" + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "expect": post("expect", b"expect: 100-continue", b"content-length: 3", body=b"abc" + HIDDEN),
    "connection-length": post("connection-length", b"connection: content-length", b"content-length: 3", body=b"abc" + HIDDEN),
}

LENGTH = b"content-length"
http2 = {
    "h2-control": h2_request("h2-control", (LENGTH, b"3"), data=b"abc"),
    "h2-longer": h2_request("h2-longer", (LENGTH, b"3"), data=b"abc" + HIDDEN),
    "h2-shorter": h2_request("h2-shorter", (LENGTH, b"90"), data=b"abc"),
    "h2-zero": h2_request("h2-zero", (LENGTH, b"0"), data=HIDDEN),
    "h2-two-lengths": h2_request("h2-two-lengths", (LENGTH, b"3"), (LENGTH, b"55"), data=b"abc"),
    "h2-coding": h2_request("h2-coding", (b"transfer-encoding", b"chunked"), data=b"0\r\n\r\n" + HIDDEN),
    "h2-crlf-value": h2_request("h2-crlf-value", (b"x", b"y\r\ntransfer-encoding: chunked"), data=b"0\r\n\r\n" + HIDDEN),
    "h2-crlf-name": h2_request("h2-crlf-name", (b"x: y\r\ntransfer-encoding", b"chunked"), data=b"0\r\n\r\n" + HIDDEN),
    "h2-colon-name": h2_request("h2-colon-name", (b"transfer-encoding: chunked", b""), data=b"0\r\n\r\n" + HIDDEN),
    "h2-crlf-path": h2_request("h2-crlf-path", path=b"/ok/x HTTP/1.1\r\nhost: api.example.com\r\n\r\nGET /admin", method=b"GET"),
    "h2-space-path": h2_request("h2-space-path", path=b"/ok/x HTTP/1.1", method=b"GET"),
    "h2-crlf-method": h2_request("h2-crlf-method", method=b"GET /admin HTTP/1.1\r\nx: "),
    "h2-two-hosts": h2_request("h2-two-hosts", (b"host", b"other.example.com"), method=b"GET"),
    "h2-two-authorities": h2_request("h2-two-authorities", (b":authority", b"other.example.com"), method=b"GET"),
    "h2-connection": h2_request("h2-connection", (b"connection", b"close"), method=b"GET"),
    "h2-upper": h2_request("h2-upper", (b"Transfer-Encoding", b"chunked"), data=b"0\r\n\r\n" + HIDDEN),
}

def send(case):
    name, request = case
    alpn = "h2" if name.startswith("h2-") else "http/1.1"
    response = exchange(tls("api.example.com", alpn=(alpn,)), request, timeout=3.0)
    return name, statuses(response)

print_json(dict(in_parallel(send, [*http1.items(), *http2.items()], threads=70)))
"#;

/// The cases whose request arrives at the server exactly once. All other cases never arrive.
const FORWARDED: [&str; 17] = [
    "control-length",
    "control-chunked",
    "control-pipeline",
    "control-second",
    "h2-control",
    "same-length-twice",
    "coding-tab",
    "chunk-extension",
    "get-with-body",
    "delete-chunked",
    "line-crlf-first",
    "upgrade-h2c",
    "expect",
    "bare-lf",
    // The broker reads these as chunked, as RFC 9112 says, and removes their content length.
    "length-then-coding",
    "coding-then-length",
    "length-covers-hidden",
];

#[test]
fn a23_broker_forwards_no_smuggled_request_for_ambiguous_framing() {
    let authority = Authority::new();
    let wire = Wire::tls(&authority, &["api.example.com"], |_| OK.to_vec());
    let lab = lab_with_rules(
        &authority,
        &[rule("api.example.com", wire.address(), "paths = [\"/ok/**\"]")],
    );
    let results = run_script(&lab, &format!("{FRAMES}{CORPUS}"));
    let results = results.as_object().unwrap();
    assert!(results.len() > 60, "{results:?}");
    assert_eq!(results["control-pipeline"], serde_json::json!([200, 200]));
    let mut arrived: BTreeMap<String, usize> = BTreeMap::new();
    for request in wire.requests() {
        let line = request.lines().next().unwrap();
        let case = line.split(' ').nth(1).unwrap().strip_prefix("/ok/");
        let case = case.unwrap_or_else(|| panic!("{line} was never allowed: {request:?}"));
        *arrived.entry(case.to_owned()).or_default() += 1;
        let host = request.matches("\r\nhost: api.example.com\r\n").count();
        assert_eq!(host, 1, "{request:?}");
        let head = request.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
        let framing =
            head.matches("content-length:").count() + head.matches("transfer-encoding:").count();
        assert!(framing <= 1, "at most one field gives the length: {request:?}");
        assert!(!request.contains("/admin"), "{request:?}");
    }
    let expect: BTreeMap<String, usize> =
        FORWARDED.iter().map(|case| ((*case).to_owned(), 1)).collect();
    assert_eq!(arrived, expect, "{results:#?}");
    for rest in wire.incomplete_requests() {
        // The broker stops a body with a wrong length and does not reuse the connection.
        assert!(rest.starts_with("POST /ok/") && !rest.contains("/admin"), "{rest:?}");
    }
    for (case, got) in results {
        let got: Vec<u64> = got.as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        let is_expected = match case.as_str() {
            case if case.starts_with("h2-") => got.is_empty(), // HTTP/2 frames have no status line
            "control-pipeline" => got == [200, 200],
            case if FORWARDED.contains(&case) => {
                let got = got.strip_prefix(&[100]).unwrap_or(&got);
                got == [200] || got == [200, 403]
            }
            _ => matches!(got.first(), Some(400 | 413)),
        };
        assert!(is_expected, "{case}: {got:?}");
    }
    assert_denied(&lab, "api.example.com", "malformed");
    assert_denied(&lab, "api.example.com", "header");
    // A hidden request that the broker could parse was denied by its path.
    assert_denied(&lab, "api.example.com", "path");
}

#[test]
fn a25_broker_refuses_credentials_and_framing_fields_in_trailers() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let lab = lab_with_secret(&authority, &rules, &token_section("\"api.example.com\"", ""));
    let script = r#"
def with_trailers(case, *fields):
    request = h2_request(case, data=b"abc")
    assert request[-12:-3] == frame(0, 1, 1, b"abc")[:9]
    trailers = b"".join(field(*it) for it in fields)
    request = request[:-12] + frame(0, 0, 1, b"abc") + frame(1, 5, 1, trailers)
    exchange(tls("api.example.com", alpn=("h2",)), request, timeout=2.0)
    return case

own = b"Bearer of-the-attackers-own-account"
print_json(in_parallel(lambda it: with_trailers(*it), [
    ("control", (b"x-sum", b"1")),
    ("credential", (b"authorization", own)),
    ("key", (b"x-api-key", own)),
    ("host", (b"host", b"other.example.com")),
    ("length", (b"content-length", b"90")),
    ("coding", (b"transfer-encoding", b"chunked")),
    ("method", (b"x-http-method-override", b"DELETE")),
    ("placeholder", (b"x-sum", os.environ["TOKEN"].encode())),
]))
"#;
    run_script(&lab, &format!("{FRAMES}{script}"));
    let received = api.received();
    let with_trailers: Vec<&str> =
        received.iter().filter(|it| !it.trailers.is_empty()).map(|it| it.path.as_str()).collect();
    assert_eq!(with_trailers, ["/ok/control"], "{received:?}");
    assert_alarm(&lab, "placeholder-elsewhere");
    let finished = ledger_events(&lab, "request.finished");
    let is_refused_trailer =
        |it: &&Value| it["error"].as_str().is_some_and(|it| it.contains("as a trailer"));
    assert!(finished.iter().filter(is_refused_trailer).count() >= 4, "{finished:#?}");
}
