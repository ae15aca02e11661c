//! Clients as they are in the field, over HTTP.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use belljar_gateway::{Limits, TlsFiles};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::client::{Answer, Web, call, initialize, request, until};

#[tokio::test]
async fn a_client_of_2025_11_25_opens_a_session_uses_it_and_ends_it() {
    let mut web = Web::start().await;
    let session = web.session(&web.tokens[0]).await;
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(web.within(&session, &ready).send().await.status, 202);

    let tools = web.within(&session, &request(2, "tools/list", &json!({}))).send().await.rpc();
    assert_eq!(tools["result"]["tools"][0]["name"], "echo");
    assert_eq!(tools["result"]["tools"][0]["annotations"]["readOnlyHint"], true);
    assert_eq!(tools["result"].get("resultType"), None, "{tools}");
    let echo = json!({ "name": "echo", "arguments": { "text": "hi" } });
    let echoed = web.within(&session, &request(3, "tools/call", &echo)).send().await.rpc();
    assert_eq!(echoed["result"]["structuredContent"], json!({ "text": "hi" }));
    assert_eq!(echoed["result"]["content"], json!([{ "type": "text", "text": "hi" }]));
    assert_eq!(web.within(&session, &call(4, "whoami")).send().await.text(), session);
    let note = request(5, "resources/read", &json!({ "uri": "demo://note" }));
    let note = web.within(&session, &note).send().await.rpc();
    assert_eq!(note["result"]["contents"][0]["text"], "hello");
    let greet = json!({ "name": "greet", "arguments": { "who": "Ada" } });
    let greet = web.within(&session, &request(6, "prompts/get", &greet)).send().await.rpc();
    assert_eq!(greet["result"]["messages"][0]["content"]["text"], "Greet Ada.");

    let mut gone = web.ask("DELETE", "");
    gone.set("Mcp-Session-Id", &session);
    assert_eq!(gone.send().await.status, 204);
    assert_eq!(gone.send().await.status, 404);
    assert_eq!(web.within(&session, &call(7, "whoami")).send().await.status, 404);
    while web.events.recv().await.unwrap() != format!("closed {session}") {}
}

#[tokio::test]
async fn a_client_that_names_no_version_after_the_first_request_is_served() {
    let web = Web::start().await;
    let answer = web.post(&initialize("2025-06-18")).send().await;
    assert_eq!(answer.rpc()["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answer.rpc()["result"]["serverInfo"]["name"], "demo");
    let session = answer.header("mcp-session-id").unwrap().to_owned();
    let mut ask = web.within(&session, &call(2, "whoami"));
    ask.unset("MCP-Protocol-Version");
    assert_eq!(ask.send().await.text(), session);
}

#[tokio::test]
async fn a_client_of_2026_07_28_needs_no_session() {
    let web = Web::start().await;
    let found = web.stateless("server/discover", &json!({})).send().await;
    assert_eq!(found.header("content-type"), Some("application/json"), "{found:?}");
    let versions = found.rpc()["result"]["supportedVersions"].clone();
    assert_eq!(versions, json!(["2025-06-18", "2025-11-25", "2026-07-28"]));
    let tools = web.stateless("tools/list", &json!({})).send().await.rpc();
    assert_eq!(tools["result"]["resultType"], "complete");
    assert_eq!(tools["result"]["cacheScope"], "private");
    assert!(tools["result"]["ttlMs"].is_u64(), "{tools}");

    // All requests of one token are one caller, and those of another are another.
    let whoami = web.stateless("tools/call", &json!({ "name": "whoami", "arguments": {} }));
    let (first, second) = (whoami.send().await, whoami.send().await);
    assert_eq!(first.header("mcp-session-id"), None);
    assert_eq!(first.text(), second.text());
    let mut other = whoami.clone();
    other.token(&web.tokens[1]);
    assert_ne!(other.send().await.text(), first.text());

    let mut mismatched = whoami;
    mismatched.set("Mcp-Name", "echo");
    assert_eq!(mismatched.send().await.status, 400);
    let ping = web.stateless("ping", &json!({})).send().await;
    assert_eq!((ping.status, ping.rpc()["error"]["code"].clone()), (404, json!(-32601)));
}

#[tokio::test]
async fn a_revision_that_we_do_not_speak_is_answered_with_one_that_we_do() {
    let web = Web::start().await;
    for (asked, agreed) in [
        ("2099-01-01", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
    ] {
        let answer = web.post(&initialize(asked)).send().await.rpc();
        assert_eq!(answer["result"]["protocolVersion"], agreed, "{asked}");
    }
    let mut future = web.stateless("tools/list", &json!({}));
    let body = String::from_utf8(future.body.clone()).unwrap();
    future.body = body.replace("2026-07-28", "2099-01-01").into_bytes();
    future.set("MCP-Protocol-Version", "2099-01-01");
    let answer = future.send().await;
    assert_eq!((answer.status, answer.rpc()["error"]["code"].clone()), (400, json!(-32022)));
}

#[tokio::test]
async fn mistakes_are_told_apart() {
    let web = Web::start().await;
    let session = web.session(&web.tokens[0]).await;
    let ask = async |body: Value| web.within(&session, &body).send().await.rpc();
    let code = async |method: &str, params: Value| {
        ask(request(9, method, &params)).await["error"]["code"].clone()
    };
    assert_eq!(code("tools/call", json!({ "name": "none" })).await, -32602);
    assert_eq!(code("tools/call", json!({ "arguments": {} })).await, -32602);
    assert_eq!(code("tools/call", json!({ "name": "break" })).await, -32603);
    assert_eq!(code("tools/list", json!({ "cursor": "2" })).await, -32602);
    assert_eq!(code("resources/read", json!({ "uri": "demo://none" })).await, -32002);
    assert_eq!(code("prompts/get", json!({ "name": "none" })).await, -32602);
    assert_eq!(code("prompts/get", json!({ "name": "greet" })).await, -32602);
    assert_eq!(code("of/tomorrow", json!({})).await, -32601);
    assert_eq!(code("completion/complete", json!({})).await, -32601);
    // What a model can mend is told to the model.
    for (tool, words) in [("fail", "it did not work"), ("echo", "`text` is missing")] {
        let failed = ask(call(10, tool)).await;
        assert_eq!(failed["result"]["isError"], true, "{failed}");
        assert_eq!(failed["result"]["content"][0]["text"], words);
    }
    let other = web.stateless("resources/read", &json!({ "uri": "demo://none" })).send().await;
    assert_eq!(other.rpc()["error"]["code"], -32602, "as the newest revision has it");
}

#[tokio::test]
async fn a_long_call_blocks_neither_a_ping_nor_another_call() {
    let mut web = Web::start().await;
    let session = web.session(&web.tokens[0]).await;
    let long = web.within(&session, &call(2, "wait")).open().await;
    while web.events.recv().await.unwrap() != format!("called {session} wait") {}
    let ping = web.within(&session, &request(3, "ping", &json!({}))).send().await.rpc();
    assert_eq!(ping["result"], json!({}));
    assert_eq!(web.within(&session, &call(4, "whoami")).send().await.text(), session);
    web.demo.open.send_replace(true);
    assert_eq!(Answer::whole(long).await.text(), "waited");
}

#[tokio::test]
async fn cancelling_a_call_hanging_up_and_ending_the_session_all_reach_it() {
    let mut web = Web::start().await;
    let session = web.session(&web.tokens[0]).await;
    let waits = format!("called {session} wait");
    let cancelled = format!("cancelled {session}");

    let held = web.within(&session, &call(2, "wait")).open().await;
    while web.events.recv().await.unwrap() != waits {}
    let cancel = json!({ "requestId": 2, "reason": "no longer" });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel });
    assert_eq!(web.within(&session, &cancel).send().await.status, 202);
    while web.events.recv().await.unwrap() != cancelled {}
    assert!(Answer::whole(held).await.messages().is_empty());

    let _held = web.within(&session, &call(3, "wait")).open().await;
    while web.events.recv().await.unwrap() != waits {}
    let mut gone = web.ask("DELETE", "");
    gone.set("Mcp-Session-Id", &session);
    assert_eq!(gone.send().await.status, 204);
    while web.events.recv().await.unwrap() != cancelled {}
    while web.events.recv().await.unwrap() != format!("closed {session}") {}

    // The newest revision has no message for it: whoever hangs up does not want the answer.
    let held =
        web.stateless("tools/call", &json!({ "name": "wait", "arguments": {} })).open().await;
    let waits = web.events.recv().await.unwrap();
    let caller = waits.split(' ').nth(1).unwrap().to_owned();
    drop(held);
    while web.events.recv().await.unwrap() != format!("cancelled {caller}") {}
}

#[tokio::test]
async fn progress_is_told_to_those_who_asked_and_only_upwards() {
    let web = Web::start().await;
    let session = web.session(&web.tokens[0]).await;
    let mut asks = call(2, "count");
    asks["params"]["_meta"] = json!({ "progressToken": "t" });
    let stateful = web.within(&session, &asks).send().await;
    let mut stateless = web.stateless("tools/call", &json!({ "name": "count", "arguments": {} }));
    let mut body: Value = serde_json::from_slice(&stateless.body).unwrap();
    body["params"]["_meta"]["progressToken"] = json!("t");
    stateless.body = body.to_string().into_bytes();

    for answer in [stateful, stateless.send().await] {
        assert_eq!(answer.text(), "counted");
        let mut told = answer.messages();
        told.pop();
        let said: Vec<_> = told.iter().map(|told| told["params"]["message"].clone()).collect();
        assert_eq!(said, ["one", "two", "three"], "{answer:?}");
        assert!(told.iter().all(|told| told["params"]["progressToken"] == "t"));
    }
    let silent = web.within(&session, &call(3, "count")).send().await;
    assert_eq!(silent.messages().len(), 1);
}

#[tokio::test]
async fn a_session_that_nothing_is_heard_of_ends_and_one_that_is_busy_does_not() {
    let mut web = Web::with(|options| options.limits.idle = std::time::Duration::ZERO).await;
    let session = web.session(&web.tokens[0]).await;
    while web.events.recv().await.unwrap() != format!("closed {session}") {}
    assert_eq!(web.within(&session, &call(2, "whoami")).send().await.status, 404);

    // Its own call keeps a session alive, however long it takes.
    let whoami = web.stateless("tools/call", &json!({ "name": "whoami", "arguments": {} }));
    let first = whoami.send().await.text();
    while web.events.recv().await.unwrap() != format!("closed {first}") {}
    assert_ne!(whoami.send().await.text(), first);
    let long =
        web.stateless("tools/call", &json!({ "name": "wait", "arguments": {} })).open().await;
    while !web.events.recv().await.unwrap().ends_with("wait") {}
    web.demo.open.send_replace(true);
    assert_eq!(Answer::whole(long).await.text(), "waited");
}

#[test]
fn the_limits_are_what_the_documentation_promises() {
    let limits = Limits::default();
    assert_eq!((limits.connections, limits.sessions), (256, 32));
    assert_eq!((limits.calls, limits.streams, limits.body), (32, 4, 4 << 20));
    assert_eq!((limits.head.as_secs(), limits.read.as_secs()), (30, 30));
    assert_eq!(limits.idle.as_secs(), 30 * 60);
}

#[tokio::test]
async fn stopping_ends_open_streams_running_calls_and_every_session() {
    let mut web = Web::start().await;
    let session = web.session(&web.tokens[0]).await;
    let mut stream = web.ask("GET", "");
    stream.set("Mcp-Session-Id", &session).set("MCP-Protocol-Version", "2025-11-25");
    let mut stream = stream.open().await;
    assert_eq!(Answer::head(&mut stream).await.status, 200);
    let held = web.within(&session, &call(2, "wait")).open().await;
    while web.events.recv().await.unwrap() != format!("called {session} wait") {}
    let mut events = web.stop().await;
    Answer::whole(stream).await;
    Answer::whole(held).await;
    let mut rest = Vec::new();
    while let Some(event) = events.recv().await {
        rest.push(event);
    }
    assert!(rest.contains(&format!("cancelled {session}")), "{rest:?}");
    assert_eq!(rest.iter().filter(|event| event.starts_with("closed")).count(), 1, "{rest:?}");
}

#[tokio::test]
async fn clients_that_say_little_about_what_they_read_are_served() {
    let web = Web::start().await;
    for accept in [None, Some("*/*"), Some("application/json, */*;q=0.1")] {
        let mut ask = web.post(&initialize("2025-11-25"));
        ask.unset("Accept").set("Content-Type", "Application/JSON; charset=utf-8");
        if let Some(accept) = accept {
            ask.set("Accept", accept);
        }
        assert_eq!(ask.send().await.status, 200, "{accept:?}");
    }
    let mut picky = web.post(&initialize("2025-11-25"));
    picky.set("Accept", "text/html");
    assert_eq!(picky.send().await.status, 406);
}

pub(crate) fn certificate(dir: &Path) -> (rcgen::CertifiedKey<rcgen::KeyPair>, TlsFiles) {
    let (certificate, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, pem("CERTIFICATE", made.cert.der())).unwrap();
    std::fs::write(&key, pem("PRIVATE KEY", &made.signing_key.serialize_der())).unwrap();
    (made, TlsFiles { certificate, key })
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

#[tokio::test]
async fn a_certificate_and_a_key_make_it_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (made, files) = certificate(dir.path());
    let web = Web::with(|options| options.tls = Some(files)).await;

    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(web.addr).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = tls.connect(name, stream).await.unwrap();
    stream.write_all(&web.post(&initialize("2025-11-25")).bytes()).await.unwrap();
    assert_eq!(Answer::whole(stream).await.status, 200);

    // And nothing else: who speaks plainly is not understood.
    let mut plain = web.post(&initialize("2025-11-25")).open().await;
    drop(plain.shutdown().await);
    assert_ne!(Answer::whole(plain).await.status, 200);
}

#[tokio::test]
async fn a_stream_that_is_asked_for_stays_open() {
    let web = Web::start().await;
    let session = web.session(&web.tokens[0]).await;
    let mut stream = web.ask("GET", "");
    stream.set("Mcp-Session-Id", &session).set("MCP-Protocol-Version", "2025-06-18");
    let mut stream = stream.open().await;
    let head = Answer::head(&mut stream).await;
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    until(&mut stream, "retry").await;
    let mut modern = web.ask("GET", "");
    modern.set("MCP-Protocol-Version", "2026-07-28");
    assert_eq!(modern.send().await.status, 405);
}
