//! Servers that say back what they were sent, in every way that a server has.

use std::io::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_testkit::{Reply, Upstream, Wire};

use super::*;

/// What the box asks with.
const ASK: &str = "headers = {'authorization': 'Bearer ' + os.environ['TOKEN']}\n";

/// All forms in which the value could be told in text; none may be in what the box got.
fn forms() -> Vec<String> {
    let hex: String = REAL.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = REAL.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let json: String = REAL.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    let html: String = REAL.bytes().map(|byte| format!("&#{byte};")).collect();
    let mut forms = vec![REAL.to_owned(), hex.to_ascii_uppercase(), hex, percent, json, html];
    forms.extend(["", "a", "ab"].map(|before| STANDARD.encode(format!("{before}{REAL}-"))));
    forms
}

/// Insists that nothing of the value is in what the box saw, in any form.
#[track_caller]
fn is_clean(seen: &str) {
    // The middle of each: how base64 begins and ends depends on what is around it.
    for form in forms() {
        let middle = &form[8..form.len() - 8];
        assert!(!seen.contains(middle), "{middle:?} is in {seen:?}");
    }
}

fn credential(request: &[u8]) -> String {
    let text = String::from_utf8_lossy(request);
    let found = text.lines().find_map(|line| line.strip_prefix("authorization: Bearer "));
    found.expect("a credential").to_owned()
}

#[test]
fn b04_an_echo_in_any_part_of_an_answer_is_scrubbed() {
    let authority = Authority::new();
    let wire = Wire::tls(&authority, &["api.example.com"], |request| {
        let value = credential(request);
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
    let lab = with_secret(&authority, &rules, &secret("\"api.example.com\"", ""));
    let script = format!(
        "{ASK}words = f\"GET / HTTP/1.1\\r\\nhost: api.example.com\\r\\nte: trailers\\r\\nauthorization: {{headers['authorization']}}\\r\\n\\r\\n\"\n\
         print(say(tls('api.example.com'), words.encode()))"
    );
    let seen = python(&lab, &script).run().expect(0);
    assert_eq!(wire.requests().len(), 1);
    assert!(wire.requests()[0].contains(REAL), "control: the server has it");
    is_clean(&seen);
    assert!(seen.starts_with("HTTP/1.1 200 OK"), "{seen}");
    for header in ["x-echo: ", "session=", "?t=", "realm=\"", "body "] {
        assert!(seen.contains(&format!("{header}[belljar:token]")), "{header}: {seen}");
    }
    assert!(!seen.contains("named"), "a name that tells it is left out: {seen}");
    let log = lab.belljar(["ledger", "log", "--json", "--limit", "100000"]).succeed();
    is_clean(&log);
    assert_eq!(record(&lab, "secret.used").len(), 1);
}

/// A body under one coding.
fn coded(coding: &str, body: &[u8]) -> Vec<u8> {
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
fn b05_no_coding_or_spelling_hides_an_echo() {
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
        let coded = codings.split(", ").fold(body.into_bytes(), |body, it| coded(it, &body));
        let reply = Reply::new(200, coded);
        if codings == "identity" { reply } else { reply.header("content-encoding", &codings) }
    });
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let lab = with_secret(&authority, &rules, &secret("\"api.example.com\"", ""));
    let codings =
        ["identity", "gzip", "deflate", "br", "zstd", "gzip+gzip", "br+zstd", "compress", "rot13"];
    let script = format!(
        "{ASK}headers['accept-encoding'] = 'gzip, br, zstd, deflate'\n\
         tell([fetch('https://api.example.com/' + it, headers=headers) for it in {codings:?}])"
    );
    let ended = python(&lab, &script).run();
    let got = read(&ended);
    for (at, coding) in codings.iter().enumerate() {
        let (status, body) = (&got[at]["status"], got[at]["body"].as_str().unwrap());
        is_clean(body);
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
    assert_eq!(record(&lab, "secret.used").len(), codings.len());
}

#[test]
fn b06_an_echo_in_pieces_or_parts_is_found() {
    let authority = Authority::new();
    let api = Upstream::tls(&authority, &["api.example.com"], |received| {
        let value = received.header("authorization").unwrap_or_default().replace("Bearer ", "");
        if received.path == "/part" {
            // A server that answers in parts although nobody asked.
            return Reply::new(206, value[..20].to_owned())
                .header("content-range", "bytes 0-19/40");
        }
        let mut reply = Reply::new(200, "begin ");
        for at in 1..value.len() {
            let (left, right) = value.split_at(at);
            reply.chunks.extend([left.into(), right.into(), b" ".to_vec()]);
        }
        // And letter by letter.
        reply.chunks.extend(value.bytes().map(|byte| vec![byte]));
        reply
    });
    let rules = [rule("api.example.com", api.address(), "secrets = [\"token\"]")];
    let lab = with_secret(&authority, &rules, &secret("\"api.example.com\"", ""));
    let script = format!(
        "{ASK}tell([fetch('https://api.example.com/whole', headers=headers),\n\
         fetch('https://api.example.com/whole', headers={{'range': 'bytes=6-20', **headers}}),\n\
         fetch('https://api.example.com/part', headers={{'range': 'bytes=0-19', **headers}})])"
    );
    let got = read(&python(&lab, &script).run());
    for at in 0..2 {
        let body = got[at]["body"].as_str().unwrap();
        is_clean(body);
        assert_eq!(body.matches("[belljar:token]").count(), REAL.len(), "{body}");
    }
    assert_eq!((&got[2]["status"], &got[2]["belljar"]), (&502.into(), &"unsearchable".into()));
    assert!(api.received().iter().all(|it| it.header("range").is_none()), "{:?}", api.received());
    assert_eq!(record(&lab, "request.finished").len(), 3);
}

#[test]
fn b08_events_come_at_once_and_downloads_come_whole() {
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
    let lab = with_secret(&authority, &rules, &secret("\"api.example.com\"", ""));
    let script = format!(
        r#"{ASK}
import hashlib
stream = tls("api.example.com")
stream.sendall(f"GET /events HTTP/1.1\r\nhost: api.example.com\r\nauthorization: {{headers['authorization']}}\r\n\r\n".encode())
arrived, heard = {{}}, b""
while len(arrived) < 5:
    heard += stream.recv(65536)
    for at in range(5):
        if f"data: {{at}}\n\n".encode() in heard:
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
tell([sum(gap > 0.1 for gap in gaps), size, digest.hexdigest() == same.hexdigest(), answer.headers.get("content-md5")])
"#
    );
    let got = read(&python(&lab, &script).run());
    assert_eq!(got, serde_json::json!([4, 100 * MIB, true, null]));
    assert!(api.received().iter().all(|it| it.header("authorization").unwrap().contains(REAL)));
    let finished = record(&lab, "request.finished");
    assert!(finished.iter().any(|it| it["received_bytes"] == 100 * MIB), "{finished:#?}");
}
