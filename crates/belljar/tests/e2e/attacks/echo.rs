//! Servers that echo the secret that they received, in every part and encoding of a response.

use std::io::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_testkit::{Reply, Upstream, Wire};

use super::*;

/// Python code that builds the headers of a request with the placeholder.
const AUTH_HEADERS: &str = "headers = {'authorization': 'Bearer ' + os.environ['TOKEN']}\n";

/// Returns the secret in all encodings that a text response could contain.
fn encoded_secrets() -> Vec<String> {
    let hex: String = SECRET_VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = SECRET_VALUE.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let json: String = SECRET_VALUE.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    let html: String = SECRET_VALUE.bytes().map(|byte| format!("&#{byte};")).collect();
    let mut encoded =
        vec![SECRET_VALUE.to_owned(), hex.to_ascii_uppercase(), hex, percent, json, html];
    encoded
        .extend(["", "a", "ab"].map(|before| STANDARD.encode(format!("{before}{SECRET_VALUE}-"))));
    encoded
}

/// Asserts that a text contains the secret in no encoding.
#[track_caller]
fn assert_scrubbed(seen: &str) {
    // Only the middle is compared: the ends of base64 depend on the neighbouring bytes.
    for encoded in encoded_secrets() {
        let middle = &encoded[8..encoded.len() - 8];
        assert!(!seen.contains(middle), "{middle:?} is in {seen:?}");
    }
}

/// Returns the bearer token of a raw HTTP request.
fn bearer_token(request: &[u8]) -> String {
    let text = String::from_utf8_lossy(request);
    let found = text.lines().find_map(|line| line.strip_prefix("authorization: Bearer "));
    found.expect("a bearer token").to_owned()
}

#[test]
fn b04_broker_scrubs_an_echoed_secret_from_every_part_of_a_response() {
    let authority = Authority::new();
    let wire = Wire::tls(&authority, &["api.example.com"], |request| {
        let value = bearer_token(request);
        format!(
            "HTTP/1.1 200 {value}\r\nx-echo: {value}\r\nx-{value}: named\r\n\
             set-cookie: session={value}; Path=/\r\nlocation: https://x.example/?t={value}\r\n\
             www-authenticate: Bearer realm=\"{value}\"\r\netag: \"{value}\"\r\n\
             transfer-encoding: chunked\r\ntrailer: x-trail\r\n\r\n\
             {:x}\r\nbody {value}\r\n0\r\nx-trail: {value}\r\n\r\n",
            5 + value.len()
        )
        .into_bytes()
    });
    let rules = [rule("api.example.com", wire.address(), "secrets = [\"token\"]")];
    let lab = lab_with_secret(&authority, &rules, &token_section("\"api.example.com\"", ""));
    let script = format!(
        "{AUTH_HEADERS}request = f\"GET / HTTP/1.1\\r\\nhost: api.example.com\\r\\nte: trailers\\r\\nauthorization: {{headers['authorization']}}\\r\\n\\r\\n\"\n\
         print(exchange(tls('api.example.com'), request.encode()))"
    );
    let seen = python_in_box(&lab, &script).run().expect(0);
    assert_eq!(wire.requests().len(), 1);
    assert!(wire.requests()[0].contains(SECRET_VALUE), "control: the server received the secret");
    assert_scrubbed(&seen);
    assert!(seen.starts_with("HTTP/1.1 200 OK"), "{seen}");
    for header in ["x-echo: ", "session=", "?t=", "realm=\"", "body "] {
        assert!(seen.contains(&format!("{header}[belljar:token]")), "{header}: {seen}");
    }
    assert!(!seen.contains("named"), "a header whose name contains the secret is removed: {seen}");
    let log = lab.belljar(["ledger", "log", "--json", "--limit", "100000"]).succeed();
    assert_scrubbed(&log);
    assert_eq!(ledger_events(&lab, "secret.used").len(), 1);
}

/// Compresses a body with one content coding.
fn compress(coding: &str, body: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::default();
    match coding {
        "gzip" => {
            let mut coder = flate2::write::GzEncoder::new(Vec::new(), level);
            coder.write_all(body).unwrap();
            coder.finish().unwrap()
        }
        "deflate" => {
            let mut coder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            coder.write_all(body).unwrap();
            coder.finish().unwrap()
        }
        "br" => {
            let mut coder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 20);
            coder.write_all(body).unwrap();
            coder.into_inner()
        }
        "zstd" => zstd::encode_all(body, 3).unwrap(),
        _ => body.to_vec(),
    }
}

#[test]
fn b05_broker_scrubs_an_echoed_secret_in_every_encoding_and_compression() {
    let authority = Authority::new();
    let api = Upstream::tls(&authority, &["api.example.com"], |received| {
        let value = received.header("authorization").unwrap_or_default().replace("Bearer ", "");
        let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        let percent: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let json: String = value.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
        let html: String = value.bytes().map(|byte| format!("&#{byte};")).collect();
        let base: Vec<String> =
            ["", "a", "ab"].map(|before| STANDARD.encode(format!("{before}{value}-"))).to_vec();
        let body = format!("plain {value} {hex} {percent} {json} {html} {} end", base.join(" "));
        let codings = received.path.trim_start_matches('/').replace('+', ", ");
        let compressed =
            codings.split(", ").fold(body.into_bytes(), |body, it| compress(it, &body));
        let reply = Reply::new(200, compressed);
        if codings == "identity" { reply } else { reply.header("content-encoding", &codings) }
    });
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let lab = lab_with_secret(&authority, &rules, &token_section("\"api.example.com\"", ""));
    let codings =
        ["identity", "gzip", "deflate", "br", "zstd", "gzip+gzip", "br+zstd", "compress", "rot13"];
    let script = format!(
        "{AUTH_HEADERS}headers['accept-encoding'] = 'gzip, br, zstd, deflate'\n\
         print_json([fetch('https://api.example.com/' + it, headers=headers) for it in {codings:?}])"
    );
    let ended = python_in_box(&lab, &script).run();
    let got = parse_output(&ended);
    for (at, coding) in codings.iter().enumerate() {
        let (status, body) = (&got[at]["status"], got[at]["body"].as_str().unwrap());
        assert_scrubbed(body);
        if ["compress", "rot13"].contains(coding) {
            assert_eq!((status, &got[at]["belljar"]), (&502.into(), &"unsearchable".into()));
        } else {
            assert_eq!(status, 200, "{coding}: {got}");
            assert!(body.starts_with("plain [belljar:token]") && body.ends_with(" end"), "{body}");
        }
    }
    let received = api.received();
    assert_eq!(received.len(), codings.len());
    assert!(received.iter().all(|it| it.header("accept-encoding") == Some("identity")));
    assert_eq!(ledger_events(&lab, "secret.used").len(), codings.len());
}

#[test]
fn b06_broker_scrubs_a_secret_split_across_chunks_and_refuses_partial_responses() {
    let authority = Authority::new();
    let api = Upstream::tls(&authority, &["api.example.com"], |received| {
        let value = received.header("authorization").unwrap_or_default().replace("Bearer ", "");
        if received.path == "/part" {
            // The server does not send the bytes around the range that the broker asks for.
            return Reply::new(206, value[..20].to_owned())
                .header("content-range", "bytes 0-19/40");
        }
        let mut reply = Reply::new(200, "begin ");
        for at in 1..value.len() {
            let (left, right) = value.split_at(at);
            reply.chunks.extend([left.into(), right.into(), b" ".to_vec()]);
        }
        // The secret once more, in chunks of one byte.
        reply.chunks.extend(value.bytes().map(|byte| vec![byte]));
        reply
    });
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let lab = lab_with_secret(&authority, &rules, &token_section("\"api.example.com\"", ""));
    let script = format!(
        "{AUTH_HEADERS}print_json([fetch('https://api.example.com/whole', headers=headers),\n\
         fetch('https://api.example.com/other', headers={{'range': 'bytes=6-20', **headers}}),\n\
         fetch('https://api.example.com/part', headers={{'range': 'bytes=0-19', **headers}})])"
    );
    let got = parse_output(&python_in_box(&lab, &script).run());
    for at in 0..2 {
        let body = got[at]["body"].as_str().unwrap();
        assert_scrubbed(body);
        assert_eq!(body.matches("[belljar:token]").count(), SECRET_VALUE.len(), "{body}");
    }
    assert_eq!((&got[2]["status"], &got[2]["belljar"]), (&502.into(), &"unsearchable".into()));
    let ranges: Vec<_> =
        api.received().iter().map(|it| it.header("range").map(str::to_owned)).collect();
    assert!(
        !ranges.contains(&Some("bytes=6-20".to_owned())),
        "the broker asks for more: {ranges:?}"
    );
    assert_eq!(ledger_events(&lab, "request.finished").len(), 3);
}

#[test]
fn b08_broker_forwards_events_without_delay_and_downloads_unchanged() {
    const MIB: usize = 1 << 20;
    let authority = Authority::new();
    let api = Upstream::tls(&authority, &["api.example.com"], |received| {
        if received.path == "/events" {
            let mut reply = Reply::new(200, "").header("content-type", "text/event-stream");
            reply.chunks = (0..5).map(|at| format!("data: {at}\n\n").into_bytes()).collect();
            reply.pause = Duration::from_millis(400);
            return reply;
        }
        let mut reply = Reply::new(200, "");
        let piece: Vec<u8> = (0..MIB).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect();
        reply.chunks = vec![piece; 100];
        reply.header("content-length", &(100 * MIB).to_string()).header("content-md5", "of-it")
    });
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let lab = lab_with_secret(&authority, &rules, &token_section("\"api.example.com\"", ""));
    let script = format!(
        r#"{AUTH_HEADERS}
import hashlib
stream = tls("api.example.com")
stream.sendall(f"GET /events HTTP/1.1\r\nhost: api.example.com\r\nauthorization: {{headers['authorization']}}\r\n\r\n".encode())
arrived, received = {{}}, b""
while len(arrived) < 5:
    received += stream.recv(65536)
    for at in range(5):
        if f"data: {{at}}\n\n".encode() in received:
            arrived.setdefault(at, time.monotonic())
gaps = [arrived[at + 1] - arrived[at] for at in range(4)]
connection = http.client.HTTPSConnection("api.example.com")
connection.request("GET", "/big", headers=headers)
answer = connection.getresponse()
digest, size = hashlib.sha256(), 0
while piece := answer.read(1 << 18):
    digest.update(piece)
    size += len(piece)
same = hashlib.sha256(bytes(at * 31 % 251 for at in range(1 << 20)) * 100)
print_json([sum(gap > 0.1 for gap in gaps), size, digest.hexdigest() == same.hexdigest(), answer.headers.get("content-md5")])
"#
    );
    let got = parse_output(&python_in_box(&lab, &script).run());
    assert_eq!(got, serde_json::json!([4, 100 * MIB, true, null]));
    assert!(
        api.received().iter().all(|it| it.header("authorization").unwrap().contains(SECRET_VALUE))
    );
    let finished = ledger_events(&lab, "request.finished");
    assert!(finished.iter().any(|it| it["received_bytes"] == 100 * MIB), "{finished:#?}");
}
