//! Requests through relays and proxies, in different HTTP forms, with false hosts and credentials.

use belljar_testkit::{Reply, Upstream, Wire};
use serde_json::json;

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[test]
fn a10_broker_denies_a_host_also_through_relays_proxies_and_tunnels() {
    let authority = Authority::new();
    let hosts = ["api.example.com", "other.example.com"];
    let wire = Wire::tls(&authority, &hosts, |_| OK.to_vec());
    let plain = Wire::plain(|_| OK.to_vec());
    let rules = [
        rule("api.example.com", wire.address(), ""),
        rule("plain.example.com", plain.address(), "port = 80"),
    ];
    let lab = lab_with_rules(&authority, &rules);
    let script = r#"
import threading

def forwarder(host, port):
    """Starts a TCP relay inside the box and returns its port."""
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
        return statuses(exchange(stream, f"GET / HTTP/1.1\r\nhost: {sni}\r\nconnection: close\r\n\r\n".encode()))
    except ssl.SSLError as error:
        return error.reason

def plain_http(request):
    return statuses(exchange(tcp("plain.example.com", 80), request))

relay = forwarder("api.example.com", 443)
print_json({
    "direct, allowed": fetch("https://api.example.com/")["status"],
    "relayed, allowed": through(relay, "api.example.com"),
    "plain, allowed": plain_http(b"GET / HTTP/1.1\r\nhost: plain.example.com\r\nconnection: close\r\n\r\n"),
    "absolute, allowed": plain_http(b"GET http://plain.example.com/ HTTP/1.1\r\nhost: plain.example.com\r\nconnection: close\r\n\r\n"),
    "direct": fetch("https://other.example.com/")["status"],
    "by number": fetch("https://other.example.com/", dial="203.0.113.1"),
    "relayed": through(relay, "other.example.com"),
    "origin": plain_http(b"GET / HTTP/1.1\r\nhost: other.example.com\r\n\r\n"),
    "absolute": plain_http(b"GET http://other.example.com/ HTTP/1.1\r\nhost: other.example.com\r\n\r\n"),
    "absolute, two hosts": plain_http(b"GET http://other.example.com/ HTTP/1.1\r\nhost: plain.example.com\r\n\r\n"),
    "tunnel": plain_http(b"CONNECT other.example.com:443 HTTP/1.1\r\nhost: other.example.com:443\r\n\r\n"),
    "tunnel to the allowed": plain_http(b"CONNECT plain.example.com:80 HTTP/1.1\r\nhost: plain.example.com:80\r\n\r\n"),
    "tunnel within": statuses(exchange(tls("api.example.com"), b"CONNECT other.example.com:443 HTTP/1.1\r\nhost: other.example.com:443\r\n\r\n")),
    "socks 5": exchange(tcp("plain.example.com", 80), b"\x05\x01\x00" + b"\x05\x01\x00\x03\x11other.example.com\x01\xbb"),
    "socks 4a": exchange(tcp("api.example.com", 443), b"\x04\x01\x01\xbb\x00\x00\x00\x01x\x00other.example.com\x00"),
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
    assert_eq!(run_script(&lab, script), expect);
    assert_eq!((wire.requests().len(), plain.requests().len()), (2, 2));
    assert!(wire.incomplete_requests().is_empty() && plain.incomplete_requests().is_empty());
    assert_denied(&lab, "other.example.com", "no-rule");
    assert_denied(&lab, "other.example.com", "misdirected");
    assert_denied(&lab, "plain.example.com", "misdirected");
    assert_denied(&lab, "plain.example.com", "method");
    assert_denied(&lab, "api.example.com", "method");
    assert_denied(&lab, "plain.example.com", "no-rule"); // SOCKS bytes match no rule
}

#[test]
fn a12_broker_applies_a_rule_alike_to_http1_http2_and_absolute_form() {
    let authority = Authority::new();
    let wire = Upstream::echo(&authority, &["both.example.com"]);
    let plain = Upstream::plain(|_| Reply::new(200, "ok"));
    let narrow = "methods = [\"GET\"]\npaths = [\"/public/**\"]";
    let rules = [
        rule("both.example.com", wire.address(), narrow),
        rule("both.example.com", plain.address(), &format!("port = 80\n{narrow}")),
    ];
    let lab = lab_with_rules(&authority, &rules);
    let script = r#"
def request(form, method, path, host):
    if form == "h2":
        import subprocess
        command = ["curl", "-sS", "--http2", "--path-as-is", "-o", "/dev/null", "-w", "%{http_version} %{http_code}", "-X", method]
        if host != "both.example.com":
            command += ["-H", f"host: {host}"]
        output = subprocess.run(command + [f"https://both.example.com{path}"], capture_output=True, text=True).stdout
        assert output.startswith("2 "), output
        return [int(output[2:])]
    stream = tls("both.example.com") if form == "https" else tcp("both.example.com", 443 if form == "clear" else 80)
    target = {"absolute": f"http://{host}{path}", "clear": f"https://{host}{path}"}.get(form, path)
    return statuses(exchange(stream, f"{method} {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode()))

cases = [("GET", "/public/x", "both.example.com"), ("GET", "/private", "both.example.com"), ("POST", "/public/x", "both.example.com"),
         ("GET", "/public/../private", "both.example.com"), ("GET", "/public/%2e%2e/private", "both.example.com"),
         ("GET", "/public/x", "other.example.com"), ("TRACE", "/public/x", "both.example.com")]
print_json({form: in_parallel(lambda case: request(form, *case)[0], cases) for form in ("https", "h2", "plain", "absolute", "clear")})
"#;
    let expect = json!([200, 403, 403, 400, 400, 421, 405]);
    let results = run_script(&lab, script);
    for form in ["https", "h2", "plain", "absolute", "clear"] {
        assert_eq!(results[form], expect, "{form}: {results}");
    }
    assert_eq!((wire.received().len(), plain.received().len()), (3, 2));
    let decided = ledger_events(&lab, "request.decided");
    for scheme in ["http", "https"] {
        for code in ["path:", "method:", "ambiguous-path:", "misdirected:"] {
            let has_code = |it: &&Value| {
                it["scheme"] == scheme && it["reason"].as_str().unwrap().starts_with(code)
            };
            assert!(decided.iter().filter(has_code).count() >= 2, "{scheme} {code} {decided:#?}");
        }
    }
}

#[test]
fn a12_broker_applies_the_same_rules_when_it_adds_tls_for_a_client() {
    let authority = Authority::new();
    let wire = Upstream::echo(&authority, &["api.example.com"]);
    let plain = Upstream::plain(|_| Reply::new(200, "ok"));
    let rules = [
        rule("api.example.com", wire.address(), "paths = [\"/public/**\"]"),
        rule("plain.example.com", plain.address(), "port = 80"),
    ];
    let lab = lab_with_rules(&authority, &rules);
    let script = r#"
def proxy(port, *lines):
    head = lambda target, host: f"GET {target} HTTP/1.1\r\nhost: {host}\r\n"
    requests = "\r\n".join(head(*line) for line in lines) + "connection: close\r\n\r\n"
    return statuses(exchange(tcp("192.0.2.1", port), requests.encode()))

api, plain = "api.example.com", "plain.example.com"
print_json({
    "https": proxy(443, (f"https://{api}/public/a", api)),
    "http": proxy(80, (f"http://{plain}/b", plain)),
    "twice": proxy(443, (f"https://{api}/public/c", api), (f"https://{api}/public/d", api)),
    "origin form afterwards": proxy(443, (f"https://{api}/public/e", api), ("/public/f", api)),
    "no rule": proxy(443, ("https://other.example.com/", "other.example.com")),
    "no path": proxy(443, (f"https://{api}/private", api)),
    "no such scheme": proxy(80, (f"http://{api}/public/x", api)),
    "another port": proxy(80, (f"https://{api}/public/x", api)),
    "another port in the target": proxy(443, (f"https://{api}:8443/public/x", f"{api}:8443")),
    "two hosts": proxy(443, (f"https://{api}/public/x", plain)),
    "an address": proxy(443, ("https://169.254.169.254/", "169.254.169.254")),
    "another host afterwards": proxy(443, (f"https://{api}/public/g", api), (f"https://{plain}/", plain)),
    "https after http": proxy(80, (f"http://{plain}/h", plain), (f"https://{plain}/", plain)),
    "http after https": proxy(443, (f"https://{api}/public/i", api), (f"http://{api}/public/x", api)),
    "origin form": proxy(443, ("/public/x", api)),
    "another address": statuses(exchange(tcp("203.0.113.1", 443), f"GET https://{api}/public/x HTTP/1.1\r\nhost: {api}\r\nconnection: close\r\n\r\n".encode())),
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
        "another port in the target": [421],
        "two hosts": [400],
        "an address": [403],
        "another host afterwards": [200, 421],
        "https after http": [200, 400],
        "http after https": [200, 400],
        "origin form": [421],
        "another address": [421],
    });
    assert_eq!(run_script(&lab, script), expect);
    let paths = |upstream: &Upstream| -> Vec<String> {
        upstream.received().into_iter().map(|it| it.path).collect()
    };
    let reached: Vec<String> = "acdefgi".chars().map(|it| format!("/public/{it}")).collect();
    assert_eq!((paths(&wire), paths(&plain)), (reached, vec!["/b".to_owned(), "/h".to_owned()]));
    assert_denied(&lab, "other.example.com", "no-rule");
    assert_denied(&lab, "api.example.com", "misdirected");
}

#[test]
fn a13_broker_refuses_requests_whose_host_header_differs_from_the_tls_name() {
    let authority = Authority::new();
    let a = Upstream::echo(&authority, &["a.example.com"]);
    let b = Upstream::echo(&authority, &["b.example.com"]);
    let rules = [rule("a.example.com", a.address(), ""), rule("b.example.com", b.address(), "")];
    let lab = lab_with_rules(&authority, &rules);
    // Both hosts are allowed, so only the difference of the names can be the reason.
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
    let decided = ledger_events(&lab, "request.decided");
    let is_misdirected = |it: &&Value| it["reason"].as_str().unwrap().starts_with("misdirected:");
    assert_eq!(decided.iter().filter(is_misdirected).count(), 8, "{decided:#?}");
}

#[test]
fn a20_broker_refuses_foreign_credentials_for_a_host_that_has_a_secret() {
    let authority = Authority::new();
    let api = Upstream::echo(&authority, &["api.example.com"]);
    let free = Upstream::echo(&authority, &["free.example.com"]);
    let rules = [
        rule("api.example.com", api.address(), "secrets = [\"token\"]"),
        rule("free.example.com", free.address(), "methods = [\"GET\"]"),
    ];
    let lab = lab_with_secret(&authority, &rules, &token_section("\"api.example.com\"", ""));
    let script = r#"
foreign = "Bearer sk-of-the-attackers-own-account-0123456789"
placeholder = {"authorization": "Bearer " + os.environ["TOKEN"]}
def ask(case):
    url, headers = case
    got = fetch(url, headers=headers)
    return [got["status"], got["belljar"]]
api = "https://api.example.com/upload"
print_json(in_parallel(ask, [
    (api, placeholder),
    ("https://free.example.com/", {"authorization": foreign}),
    (api, {"authorization": foreign}),
    (api, {"x-api-key": foreign, **placeholder}),
    (api, {"x-api-key": foreign}),
    (api, {"proxy-authorization": foreign, **placeholder}),
    (api + "?api_key=sk-of-the-attackers-own", placeholder),
    (api + "?access_token=sk-of-the-attackers-own", {}),
    (api, {"authorization": "Basic YXR0YWNrZXI6c2VjcmV0"}),
    (api, {"cookie": "session=of-the-attackers-own", **placeholder}),
]))
"#;
    let results = run_script(&lab, script);
    let foreign = json!([403, "foreign-credential"]);
    assert_eq!((&results[0][0], &results[1][0]), (&json!(200), &json!(200)), "{results}");
    for at in [2, 3, 4, 6, 7, 8] {
        assert_eq!(results[at], foreign, "case {at}: {results}");
    }
    // The broker removes hop-by-hop headers.
    for received in api.received() {
        assert_eq!(
            received.header("authorization"),
            Some(format!("Bearer {SECRET_VALUE}").as_str())
        );
        assert_eq!(received.header("proxy-authorization"), None);
        assert_eq!(received.path, "/upload");
    }
    assert_alarm(&lab, "foreign-credential");
    assert_denied(&lab, "api.example.com", "foreign-credential");
}

#[test]
fn a21_broker_returns_redirects_and_refuses_the_placeholder_at_their_target() {
    let authority = Authority::new();
    let host_service = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    host_service.set_nonblocking(true).unwrap();
    let loopback = format!("http://{}/latest", host_service.local_addr().unwrap());
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
    let lab = lab_with_secret(&authority, &rules, &token_section("\"api.example.com\"", ""));
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
        // curl follows the redirect with the placeholder, which the broker refuses for that host.
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
    assert_eq!(
        paths,
        ["/control", "/collect"],
        "the last redirect was followed without a credential"
    );
    assert!(other.received().iter().all(|it| it.header("authorization").is_none()));
    assert_eq!(
        host_service.accept().expect_err("no connection").kind(),
        std::io::ErrorKind::WouldBlock
    );
    assert_denied(&lab, "other.example.com", "placeholder-to-other-host");
    assert_alarm(&lab, "placeholder-to-other-host");
}

#[test]
fn a22_path_rule_denies_proxy_endpoints_of_an_allowed_host() {
    let authority = Authority::new();
    let docs = Upstream::echo(&authority, &["docs.example.com"]);
    let lab = lab_with_rules(
        &authority,
        &[rule("docs.example.com", docs.address(), "paths = [\"/docs/**\"]\nmethods = [\"GET\"]")],
    );
    let script = r#"
paths = ["/docs/page", "/translate?u=https://evil.example", "/proxy/https/evil.example", "/docs/../translate?u=x", "/docs/%2e%2e/translate"]
print_json(in_parallel(lambda path: [(got := fetch("https://docs.example.com" + path))["status"], got["belljar"]], paths))
"#;
    let expect = json!([
        [200, null],
        [403, "path"],
        [403, "path"],
        [400, "ambiguous-path"],
        [400, "ambiguous-path"],
    ]);
    assert_eq!(run_script(&lab, script), expect);
    assert_eq!(docs.received().len(), 1);
    assert_denied(&lab, "docs.example.com", "path");
}
