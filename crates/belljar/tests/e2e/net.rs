//! The network of a box, with real programs inside and real servers outside.

mod limits;
mod secrets;
mod ways;

use belljar_testkit::{Authority, Lab, Reply, Upstream};
use serde_json::Value;

use crate::lab;

/// The rules of the default template for one server under this name.
fn rule(host: &str, upstream: &Upstream, more: &str) -> String {
    let connect = upstream.address();
    format!("[[template.default.allow]]\nhost = {host:?}\nconnect = \"{connect}\"\n{more}\n")
}

/// A lab whose default template reaches one echoing server, `api.example.com`.
fn site(more: &str) -> (Lab, Authority, Upstream) {
    let (lab, authority) = (lab(), Authority::new());
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let rule = rule("api.example.com", &upstream, more);
    lab.configure_for(&authority, &format!("[template.default]\nnet = \"restricted\"\n{rule}"));
    (lab, authority, upstream)
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn an_allowed_host_is_reached_and_another_is_not() {
    let (lab, _, upstream) = site("");
    let got = lab.bash("curl -sS https://api.example.com/v1/x?y=1").run().expect(0);
    let got = json(&got);
    assert_eq!((got["method"].as_str(), got["path"].as_str()), (Some("GET"), Some("/v1/x?y=1")));
    assert_eq!(upstream.received().len(), 1);
    let other = lab.bash("curl -sS https://other.example.com/; echo $?").run();
    assert_eq!(other.expect(0).trim(), "6", "it has no address: {}", other.err());
    assert!(other.err().contains("other.example.com"), "{}", other.err());
    assert!(other.err().contains("--allow"), "{}", other.err());
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn http2_and_http1_both_work_with_bodies_and_trailers() {
    let (lab, _, upstream) = site("");
    let script = "for v in --http1.1 --http2; do \
                  curl -sS $v -w '%{http_version} ' -d hello https://api.example.com/p; echo; done";
    let got = lab.bash(script).run().expect(0);
    assert!(got.contains("1.1 ") && got.contains("2 "), "{got}");
    for received in upstream.received() {
        assert_eq!((received.method.as_str(), &received.body[..]), ("POST", &b"hello"[..]));
        assert_eq!(received.sni.as_deref(), Some("api.example.com"));
    }
}

#[test]
fn a_refusal_says_why_and_how_to_allow_it() {
    let (lab, _, upstream) = site("methods = [\"GET\"]\npaths = [\"/public/**\"]");
    let script = "curl -sS -w '\\n%{http_code}\\n' https://api.example.com/secret; \
                  curl -sS -H 'accept: application/json' -X POST https://api.example.com/public/x";
    let ended = lab.bash(script).run();
    let out = ended.expect(0);
    assert!(out.contains("\n403\n"), "{out}");
    assert!(out.contains("path"), "{out}");
    assert!(out.contains("\"type\":\"method\""), "{out}");
    assert!(upstream.received().is_empty());
    assert!(ended.err().contains("denied: GET https://api.example.com/secret"), "{}", ended.err());
}

#[test]
fn a_refusal_is_heard_although_a_body_was_on_its_way() {
    let (lab, _, upstream) = site("methods = [\"GET\"]");
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do for size in 2 20000; do \
                  head -c $size /dev/zero | curl -sS -o /dev/null -w '%{http_version} %{http_code}\\n' \
                  --data-binary @- https://api.example.com/x; done; done";
    let ended = lab.bash(script).run();
    assert_eq!(ended.expect(0), vec!["2 403"; 20].join("\n"), "{}", ended.err());
    assert!(upstream.received().is_empty());
}

#[test]
fn a_big_answer_comes_whole() {
    let (lab, authority) = (lab(), Authority::new());
    let body: Vec<u8> = (0..5_000_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let reply = Reply::new(200, body.clone());
    let upstream = Upstream::tls(&authority, &["big.example.com"], move |_| reply.clone());
    let rule = rule("big.example.com", &upstream, "");
    lab.configure_for(&authority, &rule);
    let script = "curl -sS https://big.example.com/ | sha256sum";
    let run = lab.belljar(["run", "--net", "restricted", "--", "bash", "-c", script]);
    let got = run.run().expect(0);
    let file = lab.write("big", &body);
    let expect = lab.program("sha256sum").arg(file).run().expect(0);
    assert_eq!(got.split(' ').next(), expect.split(' ').next());
}

#[test]
fn every_request_is_on_record_with_its_outcome() {
    let (lab, ..) = site("");
    lab.bash("curl -sS https://api.example.com/a; curl -sS https://api.example.com/b").run();
    let log = lab.belljar(["ledger", "log", "--json"]).run().expect(0);
    let kinds: Vec<String> =
        log.lines().map(|line| json(line)["kind"].as_str().unwrap().to_owned()).collect();
    let count = |kind: &str| kinds.iter().filter(|known| *known == kind).count();
    assert_eq!((count("request.decided"), count("request.finished")), (2, 2), "{log}");
    assert_eq!(count("dns.decided"), 1, "{log}");
    let runs = lab.belljar(["runs"]).run();
    assert!(!runs.out().contains("attention"), "{}", runs.out());
}

#[test]
fn a_signal_to_the_whole_group_leaves_the_network_to_the_end() {
    let (lab, _, upstream) = site("");
    lab.write(
        "late.sh",
        "trap 'curl -sS https://api.example.com/late; exit 7' TERM; echo ready; sleep 60 & wait",
    );
    let script = r#"trap : TERM
"$BELLJAR" run -- bash late.sh > "$HOME/out" &
until grep -q ready "$HOME/out"; do sleep 0.01; done
kill -TERM 0
wait $!"#;
    let ended = lab.program("setsid").args(["--wait", "bash", "-c", script]).run();
    ended.expect(7);
    let paths: Vec<String> = upstream.received().into_iter().map(|it| it.path).collect();
    assert_eq!(paths, ["/late"], "{}", ended.err());
    assert!(!ended.err().contains("broker ended"), "{}", ended.err());
}

#[test]
fn an_answer_to_head_has_no_body_whatever_the_server_sends() {
    // The server of this test sends what it would send for GET.
    let (lab, _, upstream) = site("");
    let head = "curl -sS -I -o /dev/null -w '%{http_code} ' --http2 https://api.example.com/; ";
    let out = lab.bash(&head.repeat(20)).run().expect(0);
    assert_eq!(out.split_whitespace().filter(|code| *code == "200").count(), 20, "{out}");
    assert!(upstream.received().iter().all(|request| request.method == "HEAD"));
}
