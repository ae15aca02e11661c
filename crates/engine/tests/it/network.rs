//! The network of a box, with real programs inside, real servers outside, and a broker between them.

mod limits;
mod ways;

use belljar_engine::record;
use belljar_testkit::{Authority, Reply, Upstream};
use serde_json::Value;

use crate::bench::{Bench, Ended};

/// The rules of the default template for one server under this name.
fn rule(host: &str, upstream: &Upstream, more: &str) -> String {
    let connect = upstream.address();
    format!("[[template.default.allow]]\nhost = {host:?}\nconnect = \"{connect}\"\n{more}\n")
}

/// An engine whose default template reaches one echoing server, `api.example.com`.
fn site(more: &str) -> (Bench, Authority, Upstream) {
    let (bench, authority) = (Bench::new(), Authority::new());
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let rule = rule("api.example.com", &upstream, more);
    let text = format!("[template.default]\nnet = \"restricted\"\n{rule}");
    bench.lab.configure_for(&authority, &text);
    (bench, authority, upstream)
}

#[track_caller]
fn bash(bench: &Bench, script: &str) -> Ended {
    bench.run(serde_json::json!({}), script)
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Everything on record, as text.
fn log(bench: &Bench) -> String {
    bench.events().iter().map(|event| format!("{event}\n")).collect()
}

#[test]
fn an_allowed_host_is_reached_and_another_is_not() {
    let (bench, _, upstream) = site("");
    let got = json(&bash(&bench, "curl -sS https://api.example.com/v1/x?y=1").succeeded());
    assert_eq!((got["method"].as_str(), got["path"].as_str()), (Some("GET"), Some("/v1/x?y=1")));
    assert_eq!(upstream.received().len(), 1);
    let other = bash(&bench, "curl -sS https://other.example.com/; echo $?");
    assert_eq!(other.succeeded(), "6", "it has no address: {}", other.err);
    let told = bench.notices().join("\n");
    assert!(told.contains("other.example.com") && told.contains("--allow"), "{told}");
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn http2_and_http1_both_work_with_bodies_and_trailers() {
    let (bench, _, upstream) = site("");
    let script = "for v in --http1.1 --http2; do \
                  curl -sS $v -w '%{http_version} ' -d hello https://api.example.com/p; echo; done";
    let got = bash(&bench, script).succeeded();
    assert!(got.contains("1.1 ") && got.contains("2 "), "{got}");
    assert_eq!(upstream.received().len(), 2);
    for received in upstream.received() {
        assert_eq!((received.method.as_str(), &received.body[..]), ("POST", &b"hello"[..]));
        assert_eq!(received.sni.as_deref(), Some("api.example.com"));
    }
}

#[test]
fn a_refusal_says_why_and_how_to_allow_it() {
    let (bench, _, upstream) = site("methods = [\"GET\"]\npaths = [\"/public/**\"]");
    let script = "curl -sS -w '\\n%{http_code}\\n' https://api.example.com/secret; \
                  curl -sS -H 'accept: application/json' -X POST https://api.example.com/public/x";
    let out = bash(&bench, script).succeeded();
    assert!(out.contains("\n403\n"), "{out}");
    assert!(out.contains("path"), "{out}");
    assert!(out.contains("\"type\":\"method\""), "{out}");
    assert!(upstream.received().is_empty());
    let told = bench.notices().join("\n");
    assert!(told.contains("denied: GET https://api.example.com/secret"), "{told}");
}

#[test]
fn a_refusal_is_heard_although_a_body_was_on_its_way() {
    let (bench, _, upstream) = site("methods = [\"GET\"]");
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do for size in 2 20000; do \
                  head -c $size /dev/zero | curl -sS -o /dev/null -w '%{http_version} %{http_code}\\n' \
                  --data-binary @- https://api.example.com/x; done; done";
    let ended = bash(&bench, script);
    assert_eq!(ended.succeeded(), vec!["2 403"; 20].join("\n"), "{}", ended.err);
    assert!(upstream.received().is_empty());
}

#[test]
fn a_big_answer_comes_whole() {
    let (bench, authority) = (Bench::new(), Authority::new());
    let body: Vec<u8> = (0..5_000_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let reply = Reply::new(200, body.clone());
    let upstream = Upstream::tls(&authority, &["big.example.com"], move |_| reply.clone());
    bench.lab.configure_for(&authority, &rule("big.example.com", &upstream, ""));
    let script = "curl -sS https://big.example.com/ | sha256sum";
    let got = bench.succeed(serde_json::json!({"net": "restricted"}), script);
    let file = bench.lab.write("big", &body);
    let expect = bench.lab.program("sha256sum").arg(file).run().expect(0);
    assert_eq!(got.split(' ').next(), expect.split(' ').next());
}

#[test]
fn every_request_is_on_record_with_its_outcome() {
    let (bench, ..) = site("");
    bash(&bench, "curl -sS https://api.example.com/a; curl -sS https://api.example.com/b");
    let events = bench.events();
    let count = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
    assert_eq!((count("request.decided"), count("request.finished")), (2, 2), "{events:?}");
    assert_eq!(count("dns.decided"), 1, "{events:?}");
    let open = record::needs_attention(&bench.state, |_| false).unwrap();
    assert!(open.is_empty(), "nothing is left for a person to settle: {open:?}");
}

#[test]
fn an_answer_to_head_has_no_body_whatever_the_server_sends() {
    // The server of this test sends what it would send for GET.
    let (bench, _, upstream) = site("");
    let head = "curl -sS -I -o /dev/null -w '%{http_code} ' --http2 https://api.example.com/; ";
    let out = bash(&bench, &head.repeat(20)).succeeded();
    assert_eq!(out.split_whitespace().filter(|code| *code == "200").count(), 20, "{out}");
    assert_eq!(upstream.received().len(), 20);
    assert!(upstream.received().iter().all(|request| request.method == "HEAD"));
}
