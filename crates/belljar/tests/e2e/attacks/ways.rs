//! One decision, whichever way a request takes and whomever it pretends to be for.

use belljar_testkit::{Reply, Upstream, Wire};
use serde_json::json;

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[test]
fn a10_no_detour_changes_the_decision() {
    let authority = Authority::new();
    let hosts = ["api.example.com", "other.example.com"];
    let wire = Wire::tls(&authority, &hosts, |_| OK.to_vec());
    let plain = Wire::plain(|_| OK.to_vec());
    let rules = [
        rule("api.example.com", wire.address(), ""),
        rule("plain.example.com", plain.address(), "port = 80"),
    ];
    let lab = site(&authority, &rules);
    let script = r#"
import threading

def forwarder(host, port):
    """A relay inside the box, as a program would set one up to look like somebody else."""
    listener = socket.create_server(("127.0.0.1", 0))
    def pump(a, b):
        try:
            while piece := a.recv(65536):
                b.sendall(piece)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass
    def serve():
        while True:
            inner, _ = listener.accept()
            outer = tcp(host, port)
            for pair in ((inner, outer), (outer, inner)):
                threading.Thread(target=pump, args=pair, daemon=True).start()
    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]

def through(relay, sni):
    try:
        stream = context().wrap_socket(tcp("127.0.0.1", relay), server_hostname=sni)
        return statuses(say(stream, f"GET / HTTP/1.1\r\nhost: {sni}\r\nconnection: close\r\n\r\n".encode()))
    except ssl.SSLError as error:
        return error.reason

def plainly(words):
    return statuses(say(tcp("plain.example.com", 80), words))

relay = forwarder("api.example.com", 443)
tell({
    "direct, allowed": fetch("https://api.example.com/")["status"],
    "relayed, allowed": through(relay, "api.example.com"),
    "plain, allowed": plainly(b"GET / HTTP/1.1\r\nhost: plain.example.com\r\nconnection: close\r\n\r\n"),
    "absolute, allowed": plainly(b"GET http://plain.example.com/ HTTP/1.1\r\nhost: plain.example.com\r\nconnection: close\r\n\r\n"),
    "direct": fetch("https://other.example.com/")["status"],
    "by number": fetch("https://other.example.com/", dial="203.0.113.1"),
    "relayed": through(relay, "other.example.com"),
    "origin": plainly(b"GET / HTTP/1.1\r\nhost: other.example.com\r\n\r\n"),
    "absolute": plainly(b"GET http://other.example.com/ HTTP/1.1\r\nhost: other.example.com\r\n\r\n"),
    "absolute, two hosts": plainly(b"GET http://other.example.com/ HTTP/1.1\r\nhost: plain.example.com\r\n\r\n"),
    "tunnel": plainly(b"CONNECT other.example.com:443 HTTP/1.1\r\nhost: other.example.com:443\r\n\r\n"),
    "tunnel to the allowed": plainly(b"CONNECT plain.example.com:80 HTTP/1.1\r\nhost: plain.example.com:80\r\n\r\n"),
    "tunnel within": statuses(say(tls("api.example.com"), b"CONNECT other.example.com:443 HTTP/1.1\r\nhost: other.example.com:443\r\n\r\n")),
    "socks 5": say(tcp("plain.example.com", 80), b"\x05\x01\x00" + b"\x05\x01\x00\x03\x11other.example.com\x01\xbb"),
    "socks 4a": say(tcp("api.example.com", 443), b"\x04\x01\x01\xbb\x00\x00\x00\x01x\x00other.example.com\x00"),
})
"#;
    let expect = json!({
        "direct, allowed": 200,
        "relayed, allowed": [200],
        "plain, allowed": [200],
        "absolute, allowed": [200],
        "direct": "no such name",
        "by number": {"status": "tls", "why": "TLSV1_UNRECOGNIZED_NAME"},
        "relayed": "TLSV1_UNRECOGNIZED_NAME",
        "origin": [421],
        "absolute": [421],
        "absolute, two hosts": [400],
        "tunnel": [405],
        "tunnel to the allowed": [405],
        "tunnel within": [405],
        "socks 5": "",
        "socks 4a": "",
    });
    assert_eq!(told(&lab, script), expect);
    assert_eq!((wire.requests().len(), plain.requests().len()), (2, 2));
    assert!(wire.rest().is_empty() && plain.rest().is_empty());
    on_record(&lab, "other.example.com", "no-rule");
    on_record(&lab, "other.example.com", "misdirected");
    on_record(&lab, "plain.example.com", "misdirected");
    on_record(&lab, "plain.example.com", "method");
    on_record(&lab, "api.example.com", "method");
    on_record(&lab, "plain.example.com", "no-rule"); // what SOCKS is there: bytes of no rule
}

#[test]
fn a12_every_form_of_a_request_is_judged_alike() {
    let authority = Authority::new();
    let wire = Upstream::echo(&authority, &["both.example.com"]);
    let plain = Upstream::plain(|_| Reply::new(200, "ok"));
    let narrow = "methods = [\"GET\"]\npaths = [\"/public/**\"]";
    let rules = [
        rule("both.example.com", wire.address(), narrow),
        rule("both.example.com", plain.address(), &format!("port = 80\n{narrow}")),
    ];
    let lab = site(&authority, &rules);
    let script = r#"
def one(form, method, path, host):
    if form == "h2":
        import subprocess
        words = ["curl", "-sS", "--http2", "--path-as-is", "-o", "/dev/null", "-w", "%{http_version} %{http_code}", "-X", method]
        if host != "both.example.com":
            words += ["-H", f"host: {host}"]
        said = subprocess.run(words + [f"https://both.example.com{path}"], capture_output=True, text=True).stdout
        assert said.startswith("2 "), said
        return [int(said[2:])]
    stream = tls("both.example.com") if form == "https" else tcp("both.example.com", 443 if form == "clear" else 80)
    target = {"absolute": f"http://{host}{path}", "clear": f"https://{host}{path}"}.get(form, path)
    return statuses(say(stream, f"{method} {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode()))

cases = [("GET", "/public/x", "both.example.com"), ("GET", "/private", "both.example.com"), ("POST", "/public/x", "both.example.com"),
         ("GET", "/public/../private", "both.example.com"), ("GET", "/public/%2e%2e/private", "both.example.com"),
         ("GET", "/public/x", "other.example.com"), ("TRACE", "/public/x", "both.example.com")]
tell({form: at_once(lambda case: one(form, *case)[0], cases) for form in ("https", "h2", "plain", "absolute", "clear")})
"#;
    let expect = json!([200, 403, 403, 400, 400, 421, 405]);
    let told = told(&lab, script);
    for form in ["https", "h2", "plain", "absolute", "clear"] {
        assert_eq!(told[form], expect, "{form}: {told}");
    }
    assert_eq!((wire.received().len(), plain.received().len()), (3, 2));
    let decided = record(&lab, "request.decided");
    for scheme in ["http", "https"] {
        for code in ["path:", "method:", "ambiguous-path:", "misdirected:"] {
            let is = |it: &&Value| {
                it["scheme"] == scheme && it["reason"].as_str().unwrap().starts_with(code)
            };
            assert!(decided.iter().filter(is).count() >= 2, "{scheme} {code} {decided:#?}");
        }
    }
}

#[test]
fn a12_what_leaves_tls_to_the_broker_is_judged_as_what_does_not() {
    let authority = Authority::new();
    let wire = Upstream::echo(&authority, &["api.example.com"]);
    let plain = Upstream::plain(|_| Reply::new(200, "ok"));
    let rules = [
        rule("api.example.com", wire.address(), "paths = [\"/public/**\"]"),
        rule("plain.example.com", plain.address(), "port = 80"),
    ];
    let lab = site(&authority, &rules);
    let script = r#"
def door(port, *lines):
    head = lambda target, host: f"GET {target} HTTP/1.1\r\nhost: {host}\r\n"
    requests = "\r\n".join(head(*line) for line in lines) + "connection: close\r\n\r\n"
    return statuses(say(tcp("192.0.2.1", port), requests.encode()))

api, plain = "api.example.com", "plain.example.com"
tell({
    "https": door(443, (f"https://{api}/public/a", api)),
    "http": door(80, (f"http://{plain}/b", plain)),
    "twice": door(443, (f"https://{api}/public/c", api), (f"https://{api}/public/d", api)),
    "origin form afterwards": door(443, (f"https://{api}/public/e", api), ("/public/f", api)),
    "no rule": door(443, ("https://other.example.com/", "other.example.com")),
    "no path": door(443, (f"https://{api}/private", api)),
    "no such scheme": door(80, (f"http://{api}/public/x", api)),
    "another port": door(80, (f"https://{api}/public/x", api)),
    "another port, said": door(443, (f"https://{api}:8443/public/x", f"{api}:8443")),
    "two hosts": door(443, (f"https://{api}/public/x", plain)),
    "an address": door(443, ("https://169.254.169.254/", "169.254.169.254")),
    "another host afterwards": door(443, (f"https://{api}/public/g", api), (f"https://{plain}/", plain)),
    "https after http": door(80, (f"http://{plain}/h", plain), (f"https://{plain}/", plain)),
    "http after https": door(443, (f"https://{api}/public/i", api), (f"http://{api}/public/x", api)),
    "origin form": door(443, ("/public/x", api)),
    "elsewhere": statuses(say(tcp("203.0.113.1", 443), f"GET https://{api}/public/x HTTP/1.1\r\nhost: {api}\r\nconnection: close\r\n\r\n".encode())),
})
"#;
    let expect = json!({
        "https": [200],
        "http": [200],
        "twice": [200, 200],
        "origin form afterwards": [200, 200],
        "no rule": [403],
        "no path": [403],
        "no such scheme": [403],
        "another port": [421],
        "another port, said": [421],
        "two hosts": [400],
        "an address": [403],
        "another host afterwards": [200, 421],
        "https after http": [200, 400],
        "http after https": [200, 400],
        "origin form": [421],
        "elsewhere": [421],
    });
    assert_eq!(told(&lab, script), expect);
    let paths = |upstream: &Upstream| -> Vec<String> {
        upstream.received().into_iter().map(|it| it.path).collect()
    };
    let reached: Vec<String> = "acdefgi".chars().map(|it| format!("/public/{it}")).collect();
    assert_eq!((paths(&wire), paths(&plain)), (reached, vec!["/b".to_owned(), "/h".to_owned()]));
    on_record(&lab, "other.example.com", "no-rule");
    on_record(&lab, "api.example.com", "misdirected");
}

#[test]
fn a13_a_front_is_no_way_to_another_host() {
    let authority = Authority::new();
    let a = Upstream::echo(&authority, &["a.example.com"]);
    let b = Upstream::echo(&authority, &["b.example.com"]);
    let rules = [rule("a.example.com", a.address(), ""), rule("b.example.com", b.address(), "")];
    let lab = site(&authority, &rules);
    // Both are allowed, so that nothing but the disagreement can be why.
    let script = r#"
curl() { command curl -sS -o /dev/null -w '%{http_code}\n' "$@"; }
curl https://a.example.com/; curl https://b.example.com/
for v in --http1.1 --http2; do
  curl $v -H 'host: b.example.com' https://a.example.com/fronted
  curl $v -H 'host: other.example.com' https://a.example.com/fronted
  curl $v -H 'host: a.example.com:8443' https://a.example.com/fronted
done
curl --connect-to a.example.com:443:b.example.com:443 https://a.example.com/fronted 2>/dev/null; echo "exit $?"
printf 'GET /fronted HTTP/1.1\r\nhost: b.example.com\r\nconnection: close\r\n\r\n' |
  openssl s_client -quiet -verify_quiet -servername a.example.com -connect a.example.com:443 2>/dev/null | head -n 1
"#;
    let ended = lab.bash(script).run();
    let got: Vec<String> = ended.expect(0).lines().map(|it| it.trim().to_owned()).collect();
    let mut expect = vec!["200", "200"];
    expect.extend(["421"; 6]);
    expect.extend(["000", "exit 35", "HTTP/1.1 421 Misdirected Request"]);
    assert_eq!(got, expect, "{}", ended.err());
    for upstream in [&a, &b] {
        let received = upstream.received();
        assert!(received.len() == 1 && received[0].path == "/", "{received:?}");
    }
    let decided = record(&lab, "request.decided");
    let is = |it: &&Value| it["reason"].as_str().unwrap().starts_with("misdirected:");
    assert_eq!(decided.iter().filter(is).count(), 8, "{decided:#?}");
}

#[test]
fn a20_a_host_with_our_secret_takes_no_key_of_the_agents_own() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let free = Upstream::echo(&authority, &["free.example.com"]);
    let rules = [
        rule("api.example.com", api.address(), "secrets = [\"token\"]"),
        rule("free.example.com", free.address(), "methods = [\"GET\"]"),
    ];
    let lab = with_secret(&authority, &rules, &secret("\"api.example.com\"", ""));
    let script = r#"
own = "Bearer sk-of-the-attackers-own-account-0123456789"
ours = {"authorization": "Bearer " + os.environ["TOKEN"]}
def ask(case):
    url, headers = case
    got = fetch(url, headers=headers)
    return [got["status"], got["belljar"]]
api = "https://api.example.com/upload"
tell(at_once(ask, [
    (api, ours),
    ("https://free.example.com/", {"authorization": own}),
    (api, {"authorization": own}),
    (api, {"x-api-key": own, **ours}),
    (api, {"x-api-key": own}),
    (api, {"proxy-authorization": own, **ours}),
    (api + "?api_key=sk-of-the-attackers-own", ours),
    (api + "?access_token=sk-of-the-attackers-own", {}),
    (api, {"authorization": "Basic YXR0YWNrZXI6c2VjcmV0"}),
    (api, {"cookie": "session=of-the-attackers-own", **ours}),
]))
"#;
    let told = told(&lab, script);
    let foreign = json!([403, "foreign-credential"]);
    assert_eq!((&told[0][0], &told[1][0]), (&json!(200), &json!(200)), "{told}");
    for at in [2, 3, 4, 6, 7, 8] {
        assert_eq!(told[at], foreign, "case {at}: {told}");
    }
    // What is between two hops only is taken away.
    for received in api.received() {
        assert_eq!(received.header("authorization"), Some(format!("Bearer {REAL}").as_str()));
        assert_eq!(received.header("proxy-authorization"), None);
        assert_eq!(received.path, "/upload");
    }
    alarmed(&lab, "foreign-credential");
    on_record(&lab, "api.example.com", "foreign-credential");
}

#[test]
fn a21_a_redirect_is_handed_back_and_takes_no_credential_along() {
    let authority = Authority::new();
    let inside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let loopback = format!("http://{}/latest", inside.local_addr().unwrap());
    let to = loopback.clone();
    let api = Upstream::tls(&authority, &["api.example.com"], move |received| {
        let location = match received.path.as_str() {
            "/to/other" => "https://other.example.com/collect",
            "/to/stranger" => "https://stranger.example.com/collect",
            _ => &to,
        };
        Reply::new(302, "moved").header("location", location)
    });
    let other = Upstream::echo(&authority, &["other.example.com"]);
    let rules = [
        rule("api.example.com", api.address(), "secrets = [\"token\"]"),
        rule("other.example.com", other.address(), ""),
    ];
    let lab = with_secret(&authority, &rules, &secret("\"api.example.com\"", ""));
    let script = r#"
curl() { command curl -sS -o /dev/null -w '%{http_code} %{redirect_url}\n' -H "authorization: Bearer $TOKEN" "$@" 2>/dev/null; echo "exit $?"; }
command curl -sS -o /dev/null -w '%{http_code}\n' https://other.example.com/control
for to in other stranger loopback; do curl https://api.example.com/to/$to; done
for to in other stranger loopback; do curl --location-trusted https://api.example.com/to/$to; done
command curl -sS -L -o /dev/null -w '%{http_code}\n' https://api.example.com/to/other
"#;
    let ended = lab.bash(script).run();
    let got: Vec<String> = ended.expect(0).lines().map(|it| it.trim().to_owned()).collect();
    let expect = [
        "200",
        "302 https://other.example.com/collect",
        "exit 0",
        "302 https://stranger.example.com/collect",
        "exit 0",
        &format!("302 {loopback}"),
        "exit 0",
        // Followed by the client with its credential: allowed for that host, but not with it.
        "403",
        "exit 0",
        "302",
        "exit 6",
        "302",
        "exit 7",
        "200",
    ];
    assert_eq!(got, expect, "{}", ended.err());
    let paths: Vec<String> = other.received().into_iter().map(|it| it.path).collect();
    assert_eq!(paths, ["/control", "/collect"], "the last one followed without the credential");
    assert!(other.received().iter().all(|it| it.header("authorization").is_none()));
    assert_eq!(inside.accept().expect_err("nobody came").kind(), std::io::ErrorKind::WouldBlock);
    on_record(&lab, "other.example.com", "placeholder-to-other-host");
    alarmed(&lab, "placeholder-to-other-host");
}

#[test]
fn a22_a_fetcher_on_an_allowed_host_is_kept_out_by_paths() {
    let authority = Authority::new();
    let docs = Upstream::echo(&authority, &["docs.example.com"]);
    let lab = site(
        &authority,
        &[rule("docs.example.com", docs.address(), "paths = [\"/docs/**\"]\nmethods = [\"GET\"]")],
    );
    let script = r#"
paths = ["/docs/page", "/translate?u=https://evil.example", "/proxy/https/evil.example", "/docs/../translate?u=x", "/docs/%2e%2e/translate"]
tell(at_once(lambda path: [(got := fetch("https://docs.example.com" + path))["status"], got["belljar"]], paths))
"#;
    let expect = json!([
        [200, null],
        [403, "path"],
        [403, "path"],
        [400, "ambiguous-path"],
        [400, "ambiguous-path"],
    ]);
    assert_eq!(told(&lab, script), expect);
    assert_eq!(docs.received().len(), 1);
    on_record(&lab, "docs.example.com", "path");
}
