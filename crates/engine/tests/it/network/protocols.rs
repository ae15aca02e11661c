//! Tests of connections that are not intercepted HTTPS: raw TCP, services of the host, plain HTTP, TLS
//! passthrough, `net = "full"` and an upstream proxy.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::{Authority, Reply, TestEngine, Upstream, allow_rule, bash, log};

/// Starts a TCP server that sends a greeting and then every received byte in upper case.
fn greeting_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(b"220 hello\n").unwrap();
            let mut buffer = [0; 64];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                stream.write_all(&buffer[..length].to_ascii_uppercase()).unwrap();
            }
        }
    });
    address
}

/// Returns a bash script that sends `ping` to a [`greeting_server`] and prints its two lines.
fn ping_script(host: &str, port: u16) -> String {
    format!(
        "exec 3<>/dev/tcp/{host}/{port} || exit 7; read -r a <&3; echo ping >&3; read -r b <&3; echo \"$a $b\""
    )
}

#[test]
fn rule_for_raw_tcp_allows_only_its_port_and_host() {
    let (engine, address) = (TestEngine::new(), greeting_server());
    let tcp = format!(
        "[[template.default.allow]]\ntcp = \"db.internal:5432\"\nconnect = \"{address}\"\n"
    );
    engine.lab.configure(&format!("[template.default]\nnet = \"restricted\"\n{tcp}"));
    assert_eq!(bash(&engine, &ping_script("db.internal", 5432)).succeeded(), "220 hello PING");
    assert_eq!(bash(&engine, &ping_script("db.internal", 5433)).result.exit, Some(7));
    let log = log(&engine);
    assert!(log.contains("db.internal"), "{log}");
    assert!(!log.contains("PING"), "the ledger does not have the content of the connection: {log}");
}

#[test]
fn box_reaches_a_port_of_the_host_only_if_a_rule_allows_it() {
    let (engine, address) = (TestEngine::new(), greeting_server());
    let script = ping_script("host.belljar.internal", address.port());
    let port = format!("host-port:{}", address.port());
    let mut allowed = engine.spec(json!({"net": "restricted"}), &script);
    allowed.on.overrides.allow = vec![port.parse().unwrap()];
    assert_eq!(engine.try_run(&allowed).unwrap().succeeded(), "220 hello PING");
    let other = engine.run(json!({"net": "restricted"}), &script);
    assert_eq!(other.result.exit, Some(7));
}

#[test]
fn rule_for_port_80_allows_plain_http_and_not_https() {
    let engine = TestEngine::new();
    let upstream = Upstream::plain(|received| Reply::new(200, received.path.clone()));
    let rule = allow_rule("plain.example.com", &upstream, "port = 80");
    engine.lab.configure(&format!("[template.default]\nnet = \"restricted\"\n{rule}"));
    assert_eq!(bash(&engine, "curl -sS http://plain.example.com/x").succeeded(), "/x");
    let https = bash(&engine, "curl -sS https://plain.example.com/x");
    assert_ne!(https.result.exit, Some(0), "the rule is for port 80");
}

#[test]
fn rule_with_tls_passthrough_forwards_tls_without_intercepting_it() {
    let (engine, authority) = (TestEngine::new(), Authority::new());
    let upstream = Upstream::echo(&authority, &["pinned.example.com"]);
    let rule = allow_rule("pinned.example.com", &upstream, "tls = \"passthrough\"");
    engine.lab.configure(&format!("[template.default]\nnet = \"restricted\"\n{rule}"));
    engine.lab.write("pin.pem", authority.pem());
    let script = "curl -sS --cacert pin.pem https://pinned.example.com/deep";
    let response = bash(&engine, script).succeeded();
    assert_eq!(super::parse_json(&response)["path"], "/deep");
    let log = log(&engine);
    assert!(log.contains("\"TLS\"") && !log.contains("/deep"), "{log}");
}

#[test]
fn network_mode_full_denies_private_and_link_local_addresses() {
    // The first name does not resolve; only the codes of the two private addresses are checked.
    let engine = TestEngine::new();
    let script = "curl -sS -m 3 -o /dev/null -w '%{http_code}' https://127.0.0.1.example/; echo; \
                  curl -sS -m 3 -o /dev/null -w '%{http_code}' http://10.0.0.1/; echo; \
                  curl -sS -m 3 -o /dev/null -w '%{http_code}' http://169.254.169.254/; echo";
    let ended = engine.run(json!({"net": "full"}), script);
    let out = ended.succeeded();
    let codes: Vec<&str> = out.lines().collect();
    assert_eq!(codes.get(1..), Some(&["403", "403"][..]), "{out} {}", ended.stderr);
}

/// Starts an HTTP proxy that tunnels every connection to one server. Returns its address and the first
/// line of every request that it received.
fn tunnel_proxy(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut client = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") {
                client.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            let head = String::from_utf8(head).unwrap();
            received.lock().unwrap().push(head.lines().next().unwrap().to_owned());
            let mut upstream = TcpStream::connect(server).unwrap();
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let (mut from_upstream, mut to_client) =
                (upstream.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from_upstream, &mut to_client));
            std::thread::spawn(move || std::io::copy(&mut client, &mut upstream));
        }
    });
    (address, requests)
}

#[test]
fn broker_connects_through_the_proxy_of_the_configuration() {
    let (engine, authority) = (TestEngine::new(), Authority::new());
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let (proxy, requests) = tunnel_proxy(upstream.address());
    engine.lab.configure_for(
        &authority,
        &format!(
            "[proxy]\nurl = \"http://{proxy}\"\n[template.default]\nnet = \"restricted\"\nallow = [\"api.example.com\"]\n"
        ),
    );
    let response = bash(&engine, "curl -sS https://api.example.com/through").succeeded();
    assert_eq!(super::parse_json(&response)["path"], "/through");
    assert_eq!(*requests.lock().unwrap(), ["CONNECT api.example.com:443 HTTP/1.1"]);
    let other = bash(&engine, "curl -sS https://other.example.com/");
    assert_eq!(
        other.result.exit,
        Some(6),
        "without a rule the name does not resolve: {}",
        other.stderr
    );
    assert_eq!(requests.lock().unwrap().len(), 1);
}
