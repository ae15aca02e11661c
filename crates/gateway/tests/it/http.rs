//! Tests of the HTTP transport with the requests of real clients.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use belljar_gateway::{Limits, TlsFiles};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::client::{TestResponse, TestServer, call, initialize, request, until};

#[tokio::test]
async fn a_client_of_2025_11_25_opens_uses_and_ends_a_session() {
    let mut web = TestServer::start().await;
    let session = web.session(&web.tokens[0]).await;
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(web.in_session(&session, &ready).send().await.status, 202);

    let tools = web.in_session(&session, &request(2, "tools/list", &json!({}))).send().await.rpc();
    assert_eq!(tools["result"]["tools"][0]["name"], "echo");
    assert_eq!(tools["result"]["tools"][0]["annotations"]["readOnlyHint"], true);
    assert_eq!(tools["result"].get("resultType"), None, "{tools}");
    let echo = json!({ "name": "echo", "arguments": { "text": "hi" } });
    let echoed = web.in_session(&session, &request(3, "tools/call", &echo)).send().await.rpc();
    assert_eq!(echoed["result"]["structuredContent"], json!({ "text": "hi" }));
    assert_eq!(echoed["result"]["content"], json!([{ "type": "text", "text": "hi" }]));
    assert_eq!(web.in_session(&session, &call(4, "whoami")).send().await.text(), session);
    let note = request(5, "resources/read", &json!({ "uri": "demo://note" }));
    let note = web.in_session(&session, &note).send().await.rpc();
    assert_eq!(note["result"]["contents"][0]["text"], "hello");
    let greet = json!({ "name": "greet", "arguments": { "who": "Ada" } });
    let greet = web.in_session(&session, &request(6, "prompts/get", &greet)).send().await.rpc();
    assert_eq!(greet["result"]["messages"][0]["content"]["text"], "Greet Ada.");

    let mut gone = web.ask("DELETE", "");
    gone.set("Mcp-Session-Id", &session);
    assert_eq!(gone.send().await.status, 204);
    assert_eq!(gone.send().await.status, 404);
    assert_eq!(web.in_session(&session, &call(7, "whoami")).send().await.status, 404);
    while web.events.recv().await.unwrap() != format!("closed {session}") {}
}

#[tokio::test]
async fn a_client_without_the_version_header_is_served() {
    let web = TestServer::start().await;
    let answer = web.post(&initialize("2025-06-18")).send().await;
    assert_eq!(answer.rpc()["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answer.rpc()["result"]["serverInfo"]["name"], "demo");
    let session = answer.header("mcp-session-id").unwrap().to_owned();
    let mut ask = web.in_session(&session, &call(2, "whoami"));
    ask.unset("MCP-Protocol-Version");
    assert_eq!(ask.send().await.text(), session);
}

#[tokio::test]
async fn a_client_of_2026_07_28_is_served_without_a_session() {
    let web = TestServer::start().await;
    let found = web.stateless("server/discover", &json!({})).send().await;
    assert_eq!(found.header("content-type"), Some("application/json"), "{found:?}");
    let versions = found.rpc()["result"]["supportedVersions"].clone();
    assert_eq!(versions, json!(["2025-06-18", "2025-11-25", "2026-07-28"]));
    let tools = web.stateless("tools/list", &json!({})).send().await.rpc();
    assert_eq!(tools["result"]["resultType"], "complete");
    assert_eq!(tools["result"]["cacheScope"], "private");
    assert!(tools["result"]["ttlMs"].is_u64(), "{tools}");

    let whoami = web.stateless("tools/call", &json!({ "name": "whoami", "arguments": {} }));
    let first = whoami.send().await;
    assert_eq!(first.header("mcp-session-id"), None);
    assert_eq!(first.text().len(), 32);

    let mut mismatched = whoami;
    mismatched.set("Mcp-Name", "echo");
    assert_eq!(mismatched.send().await.status, 400);
    let ping = web.stateless("ping", &json!({})).send().await;
    assert_eq!((ping.status, ping.rpc()["error"]["code"].clone()), (404, json!(-32601)));
}

#[tokio::test]
async fn initialize_with_an_unsupported_revision_is_answered_with_a_supported_one() {
    let web = TestServer::start().await;
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
async fn each_invalid_request_gets_its_own_error_code() {
    let web = TestServer::start().await;
    let session = web.session(&web.tokens[0]).await;
    let ask = async |body: Value| web.in_session(&session, &body).send().await.rpc();
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
    // Errors that the model can correct are returned as a failed call.
    for (tool, text) in [("fail", "it did not work"), ("echo", "`text` is missing")] {
        let failed = ask(call(10, tool)).await;
        assert_eq!(failed["result"]["isError"], true, "{failed}");
        assert_eq!(failed["result"]["content"][0]["text"], text);
    }
    let other = web.stateless("resources/read", &json!({ "uri": "demo://none" })).send().await;
    assert_eq!(other.rpc()["error"]["code"], -32602, "the code of the newest revision");
}

#[tokio::test]
async fn a_long_call_does_not_block_a_ping_or_another_call() {
    let mut web = TestServer::start().await;
    let session = web.session(&web.tokens[0]).await;
    let long = web.in_session(&session, &call(2, "wait")).open().await;
    while web.events.recv().await.unwrap() != format!("called {session} wait") {}
    let ping = web.in_session(&session, &request(3, "ping", &json!({}))).send().await.rpc();
    assert_eq!(ping["result"], json!({}));
    assert_eq!(web.in_session(&session, &call(4, "whoami")).send().await.text(), session);
    web.demo.open.send_replace(true);
    assert_eq!(TestResponse::whole(long).await.text(), "waited");
}

#[tokio::test]
async fn a_call_is_cancelled_by_a_message_a_disconnect_or_the_end_of_its_session() {
    let mut web = TestServer::start().await;
    let session = web.session(&web.tokens[0]).await;
    let waits = format!("called {session} wait");
    let cancelled = format!("cancelled {session}");

    let held = web.in_session(&session, &call(2, "wait")).open().await;
    while web.events.recv().await.unwrap() != waits {}
    let cancel = json!({ "requestId": 2, "reason": "no longer" });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel });
    assert_eq!(web.in_session(&session, &cancel).send().await.status, 202);
    while web.events.recv().await.unwrap() != cancelled {}
    assert!(TestResponse::whole(held).await.messages().is_empty());

    let _held = web.in_session(&session, &call(3, "wait")).open().await;
    while web.events.recv().await.unwrap() != waits {}
    let mut gone = web.ask("DELETE", "");
    gone.set("Mcp-Session-Id", &session);
    assert_eq!(gone.send().await.status, 204);
    while web.events.recv().await.unwrap() != cancelled {}
    while web.events.recv().await.unwrap() != format!("closed {session}") {}

    // The newest revision has no message for cancellation: a disconnect cancels the call.
    let held =
        web.stateless("tools/call", &json!({ "name": "wait", "arguments": {} })).open().await;
    let waits = web.events.recv().await.unwrap();
    let caller = waits.split(' ').nth(1).unwrap().to_owned();
    drop(held);
    while web.events.recv().await.unwrap() != format!("cancelled {caller}") {}
}

#[tokio::test]
async fn progress_is_sent_on_request_and_only_increases() {
    let web = TestServer::start().await;
    let session = web.session(&web.tokens[0]).await;
    let mut asks = call(2, "count");
    asks["params"]["_meta"] = json!({ "progressToken": "t" });
    let stateful = web.in_session(&session, &asks).send().await;
    let mut stateless = web.stateless("tools/call", &json!({ "name": "count", "arguments": {} }));
    let mut body: Value = serde_json::from_slice(&stateless.body).unwrap();
    body["params"]["_meta"]["progressToken"] = json!("t");
    stateless.body = body.to_string().into_bytes();

    for answer in [stateful, stateless.send().await] {
        assert_eq!(answer.text(), "counted");
        let mut reports = answer.messages();
        reports.pop();
        let texts: Vec<_> =
            reports.iter().map(|report| report["params"]["message"].clone()).collect();
        assert_eq!(texts, ["one", "two", "three"], "{answer:?}");
        assert!(reports.iter().all(|report| report["params"]["progressToken"] == "t"));
    }
    let silent = web.in_session(&session, &call(3, "count")).send().await;
    assert_eq!(silent.messages().len(), 1);
}

#[tokio::test]
async fn an_idle_session_ends_and_a_busy_one_does_not() {
    let mut web = TestServer::with(|options| options.limits.idle = std::time::Duration::ZERO).await;
    let session = web.session(&web.tokens[0]).await;
    while web.events.recv().await.unwrap() != format!("closed {session}") {}
    assert_eq!(web.in_session(&session, &call(2, "whoami")).send().await.status, 404);

    // A running call keeps its session alive.
    let keep = web.stateless("tools/call", &json!({ "name": "keep", "arguments": {} }));
    let kept = keep.send().await.text();
    while web.events.recv().await.unwrap() != format!("closed {kept}") {}
    let long =
        web.stateless("tools/call", &json!({ "name": "wait", "arguments": {} })).open().await;
    while !web.events.recv().await.unwrap().ends_with("wait") {}
    web.demo.open.send_replace(true);
    assert_eq!(TestResponse::whole(long).await.text(), "waited");
}

#[test]
fn default_limits_of_the_http_server_equal_the_documented_ones() {
    let limits = Limits::default();
    assert_eq!((limits.connections, limits.sessions), (256, 32));
    assert_eq!((limits.calls, limits.streams, limits.body), (32, 4, 4 << 20));
    assert_eq!((limits.head.as_secs(), limits.read.as_secs()), (30, 30));
    assert_eq!(limits.first_token.as_secs(), 5);
    assert_eq!(limits.idle.as_secs(), 30 * 60);
}

#[tokio::test]
async fn stopping_the_server_ends_open_streams_running_calls_and_all_sessions() {
    let mut web = TestServer::start().await;
    let session = web.session(&web.tokens[0]).await;
    let mut stream = web.ask("GET", "");
    stream.set("Mcp-Session-Id", &session).set("MCP-Protocol-Version", "2025-11-25");
    let mut stream = stream.open().await;
    assert_eq!(TestResponse::head(&mut stream).await.status, 200);
    let held = web.in_session(&session, &call(2, "wait")).open().await;
    while web.events.recv().await.unwrap() != format!("called {session} wait") {}
    let mut events = web.stop().await;
    TestResponse::whole(stream).await;
    TestResponse::whole(held).await;
    let mut rest = Vec::new();
    while let Some(event) = events.recv().await {
        rest.push(event);
    }
    assert!(rest.contains(&format!("cancelled {session}")), "{rest:?}");
    assert_eq!(rest.iter().filter(|event| event.starts_with("closed")).count(), 1, "{rest:?}");
}

#[tokio::test]
async fn clients_without_a_specific_accept_header_are_served() {
    let web = TestServer::start().await;
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
async fn a_server_with_a_certificate_serves_only_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (made, files) = certificate(dir.path());
    let web = TestServer::with(|options| options.tls = Some(files)).await;

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
    assert_eq!(TestResponse::whole(stream).await.status, 200);

    // A request without TLS is refused.
    let mut plain = web.post(&initialize("2025-11-25")).open().await;
    drop(plain.shutdown().await);
    assert_ne!(TestResponse::whole(plain).await.status, 200);
}

#[tokio::test]
async fn event_stream_opened_with_get_stays_open() {
    let web = TestServer::start().await;
    let session = web.session(&web.tokens[0]).await;
    let mut stream = web.ask("GET", "");
    stream.set("Mcp-Session-Id", &session).set("MCP-Protocol-Version", "2025-06-18");
    let mut stream = stream.open().await;
    let head = TestResponse::head(&mut stream).await;
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    until(&mut stream, "retry").await;
    let mut modern = web.ask("GET", "");
    modern.set("MCP-Protocol-Version", "2026-07-28");
    assert_eq!(modern.send().await.status, 405);
}

/// Clients of 2025-06-18, such as Gemini CLI, parse the data of each event as JSON.
#[tokio::test]
async fn event_streams_send_no_empty_data_to_clients_of_older_protocols() {
    let web = TestServer::start().await;
    for (version, has_data) in [("2025-06-18", false), ("2025-11-25", true)] {
        let started = web.post(&initialize(version)).send().await;
        let session = started.header("mcp-session-id").unwrap().to_owned();
        assert!(!started.body.lines().any(|line| line.trim() == "data:") || has_data);
        let mut stream = web.ask("GET", "");
        stream.set("Mcp-Session-Id", &session).set("MCP-Protocol-Version", version);
        let mut stream = stream.open().await;
        TestResponse::head(&mut stream).await;
        let event = until(&mut stream, "\n\n").await;
        assert!(event.contains("id:") && event.contains("retry:"), "{version}: {event:?}");
        assert_eq!(event.contains("data:"), has_data, "{version}: {event:?}");
    }
}
