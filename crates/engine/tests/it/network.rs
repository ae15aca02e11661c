//! Tests of the network of a box, with real programs in the box and real servers outside of it.

mod limits;
mod protocols;

use belljar_engine::record;
use belljar_testkit::{Authority, Reply, Upstream};
use serde_json::Value;

use crate::test_engine::{FinishedRun, TestEngine};

/// Returns an `allow` rule of the default template that sends requests for `host` to a test server.
fn allow_rule(host: &str, upstream: &Upstream, more: &str) -> String {
    let connect = upstream.address();
    format!("[[template.default.allow]]\nhost = {host:?}\nconnect = \"{connect}\"\n{more}\n")
}

/// Creates an engine whose default template allows one echo server, `api.example.com`.
fn engine_with_echo_server(more: &str) -> (TestEngine, Authority, Upstream) {
    let (engine, authority) = (TestEngine::new(), Authority::new());
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let rule = allow_rule("api.example.com", &upstream, more);
    let text = format!("[template.default]\nnet = \"restricted\"\n{rule}");
    engine.lab.configure_for(&authority, &text);
    (engine, authority, upstream)
}

#[track_caller]
fn bash(engine: &TestEngine, script: &str) -> FinishedRun {
    engine.run(serde_json::json!({}), script)
}

#[track_caller]
fn parse_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns all events of the ledger as text, one per line.
fn log(engine: &TestEngine) -> String {
    engine.events().iter().map(|event| format!("{event}\n")).collect()
}

#[test]
fn box_reaches_an_allowed_host_and_cannot_resolve_another() {
    let (engine, _, upstream) = engine_with_echo_server("");
    let response =
        parse_json(&bash(&engine, "curl -sS https://api.example.com/v1/x?y=1").succeeded());
    assert_eq!(
        (response["method"].as_str(), response["path"].as_str()),
        (Some("GET"), Some("/v1/x?y=1"))
    );
    assert_eq!(upstream.received().len(), 1);
    let other = bash(&engine, "curl -sS https://other.example.com/; echo $?");
    assert_eq!(other.succeeded(), "6", "curl cannot resolve the name: {}", other.stderr);
    let notices = engine.notices().join("\n");
    assert!(notices.contains("other.example.com") && notices.contains("--allow"), "{notices}");
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn box_sends_request_bodies_over_http_1_and_http_2() {
    let (engine, _, upstream) = engine_with_echo_server("");
    let script = "for v in --http1.1 --http2; do \
                  curl -sS $v -w '%{http_version} ' -d hello https://api.example.com/p; echo; done";
    let out = bash(&engine, script).succeeded();
    assert!(out.contains("1.1 ") && out.contains("2 "), "{out}");
    assert_eq!(upstream.received().len(), 2);
    for received in upstream.received() {
        assert_eq!((received.method.as_str(), &received.body[..]), ("POST", &b"hello"[..]));
        assert_eq!(received.sni.as_deref(), Some("api.example.com"));
    }
}

#[test]
fn denied_request_gets_a_403_response_with_the_reason() {
    let (engine, _, upstream) =
        engine_with_echo_server("methods = [\"GET\"]\npaths = [\"/public/**\"]");
    let script = "curl -sS -w '\\n%{http_code}\\n' https://api.example.com/secret; \
                  curl -sS -H 'accept: application/json' -X POST https://api.example.com/public/x";
    let out = bash(&engine, script).succeeded();
    assert!(out.contains("\n403\n"), "{out}");
    assert!(out.contains("path"), "{out}");
    assert!(out.contains("\"type\":\"method\""), "{out}");
    assert!(upstream.received().is_empty());
    let notices = engine.notices().join("\n");
    assert!(notices.contains("denied: GET https://api.example.com/secret"), "{notices}");
}

#[test]
fn denied_request_gets_its_response_while_the_body_is_still_being_sent() {
    let (engine, _, upstream) = engine_with_echo_server("methods = [\"GET\"]");
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do for size in 2 20000; do \
                  head -c $size /dev/zero | curl -sS -o /dev/null -w '%{http_version} %{http_code}\\n' \
                  --data-binary @- https://api.example.com/x; done; done";
    let ended = bash(&engine, script);
    assert_eq!(ended.succeeded(), vec!["2 403"; 20].join("\n"), "{}", ended.stderr);
    assert!(upstream.received().is_empty());
}

#[test]
fn response_of_five_megabytes_arrives_unchanged() {
    let (engine, authority) = (TestEngine::new(), Authority::new());
    let body: Vec<u8> =
        (0..5_000_000_u32).map(|index| u8::try_from(index % 251).unwrap()).collect();
    let reply = Reply::new(200, body.clone());
    let upstream = Upstream::tls(&authority, &["big.example.com"], move |_| reply.clone());
    engine.lab.configure_for(&authority, &allow_rule("big.example.com", &upstream, ""));
    let script = "curl -sS https://big.example.com/ | sha256sum";
    let hash = engine.succeed(serde_json::json!({"net": "restricted"}), script);
    let file = engine.lab.write("big", &body);
    let expect = engine.lab.program("sha256sum").arg(file).run().expect(0);
    assert_eq!(hash.split(' ').next(), expect.split(' ').next());
}

#[test]
fn ledger_has_every_request_with_its_outcome() {
    let (engine, ..) = engine_with_echo_server("");
    bash(&engine, "curl -sS https://api.example.com/a; curl -sS https://api.example.com/b");
    let events = engine.events();
    let count = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
    assert_eq!((count("request.decided"), count("request.finished")), (2, 2), "{events:?}");
    assert_eq!(count("dns.decided"), 1, "{events:?}");
    let unsettled = record::needs_attention(&engine.state, |_| false).unwrap();
    assert!(unsettled.is_empty(), "every intent has an outcome: {unsettled:?}");
}

#[test]
fn response_to_a_head_request_has_no_body_although_the_server_sends_one() {
    // This test server responds to HEAD with the same body as to GET.
    let (engine, _, upstream) = engine_with_echo_server("");
    let head = "curl -sS -I -o /dev/null -w '%{http_code} ' --http2 https://api.example.com/; ";
    let out = bash(&engine, &head.repeat(20)).succeeded();
    assert_eq!(out.split_whitespace().filter(|code| *code == "200").count(), 20, "{out}");
    assert_eq!(upstream.received().len(), 20);
    assert!(upstream.received().iter().all(|request| request.method == "HEAD"));
}
