//! Ways out that are not HTTPS requests: raw TCP, the host's own services, plain HTTP, TLS that is not
//! opened, WebSockets, every port, a proxy.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::{Authority, Bench, Reply, Upstream, bash, log, rule};

/// A service that greets first and then says back what it hears, in upper case.
fn greeter() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(b"220 hello\n").unwrap();
            let mut said = [0; 64];
            while let Ok(length @ 1..) = stream.read(&mut said) {
                stream.write_all(&said[..length].to_ascii_uppercase()).unwrap();
            }
        }
    });
    address
}

/// Talks to a greeter at this name and port with bash alone.
fn talk(host: &str, port: u16) -> String {
    format!(
        "exec 3<>/dev/tcp/{host}/{port} || exit 7; read -r a <&3; echo ping >&3; read -r b <&3; echo \"$a $b\""
    )
}

#[test]
fn a_rule_for_raw_tcp_lets_that_port_of_that_name_through() {
    let (bench, address) = (Bench::new(), greeter());
    let tcp = format!(
        "[[template.default.allow]]\ntcp = \"db.internal:5432\"\nconnect = \"{address}\"\n"
    );
    bench.lab.configure(&format!("[template.default]\nnet = \"restricted\"\n{tcp}"));
    assert_eq!(bash(&bench, &talk("db.internal", 5432)).succeeded(), "220 hello PING");
    assert_eq!(bash(&bench, &talk("db.internal", 5433)).result.exit, Some(7));
    let log = log(&bench);
    assert!(log.contains("db.internal"), "{log}");
    assert!(!log.contains("PING"), "what is said there is nobody's business: {log}");
}

#[test]
fn a_service_of_the_host_is_reached_only_when_a_rule_opens_its_port() {
    let (bench, address) = (Bench::new(), greeter());
    let script = talk("host.belljar.internal", address.port());
    let port = format!("host-port:{}", address.port());
    let mut allowed = bench.spec(json!({"net": "restricted"}), &script);
    allowed.on.overrides.allow = vec![port.parse().unwrap()];
    assert_eq!(bench.try_run(&allowed).unwrap().succeeded(), "220 hello PING");
    let other = bench.run(json!({"net": "restricted"}), &script);
    assert_eq!(other.result.exit, Some(7));
}

#[test]
fn plain_http_works_where_a_rule_says_so() {
    let bench = Bench::new();
    let upstream = Upstream::plain(|received| Reply::new(200, received.path.clone()));
    let rule = rule("plain.example.com", &upstream, "port = 80");
    bench.lab.configure(&format!("[template.default]\nnet = \"restricted\"\n{rule}"));
    assert_eq!(bash(&bench, "curl -sS http://plain.example.com/x").succeeded(), "/x");
    let https = bash(&bench, "curl -sS https://plain.example.com/x");
    assert_ne!(https.result.exit, Some(0), "the rule is for port 80");
}

#[test]
fn tls_is_passed_on_unopened_where_a_rule_says_so() {
    let (bench, authority) = (Bench::new(), Authority::new());
    let upstream = Upstream::echo(&authority, &["pinned.example.com"]);
    let rule = rule("pinned.example.com", &upstream, "tls = \"passthrough\"");
    bench.lab.configure(&format!("[template.default]\nnet = \"restricted\"\n{rule}"));
    bench.lab.write("pin.pem", authority.pem());
    let script = "curl -sS --cacert pin.pem https://pinned.example.com/deep";
    let got = bash(&bench, script).succeeded();
    assert_eq!(super::json(&got)["path"], "/deep");
    let log = log(&bench);
    assert!(log.contains("\"TLS\"") && !log.contains("/deep"), "{log}");
}

#[test]
fn full_reaches_every_public_name_and_no_private_one() {
    // 192.0.2.1 is nobody's: the dial fails, but it is not refused. A name server says where names are.
    let bench = Bench::new();
    let script = "curl -sS -m 3 -o /dev/null -w '%{http_code}' https://127.0.0.1.example/; echo; \
                  curl -sS -m 3 -o /dev/null -w '%{http_code}' http://10.0.0.1/; echo; \
                  curl -sS -m 3 -o /dev/null -w '%{http_code}' http://169.254.169.254/; echo";
    let ended = bench.run(json!({"net": "full"}), script);
    let out = ended.succeeded();
    let codes: Vec<&str> = out.lines().collect();
    assert_eq!(codes.get(1..), Some(&["403", "403"][..]), "{out} {}", ended.err);
}

/// A proxy as companies have them: tunnels to one server whatever is asked for. Keeps who was asked for.
fn proxy(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut inner = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") {
                inner.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            let head = String::from_utf8(head).unwrap();
            kept.lock().unwrap().push(head.lines().next().unwrap().to_owned());
            let mut outer = TcpStream::connect(to).unwrap();
            inner.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let (mut back, mut forth) = (outer.try_clone().unwrap(), inner.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut back, &mut forth));
            std::thread::spawn(move || std::io::copy(&mut inner, &mut outer));
        }
    });
    (address, asked)
}

#[test]
fn everything_goes_through_the_proxy_that_the_operator_names() {
    let (bench, authority) = (Bench::new(), Authority::new());
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let (proxy, asked) = proxy(upstream.address());
    bench.lab.configure_for(
        &authority,
        &format!(
            "[proxy]\nurl = \"http://{proxy}\"\n[template.default]\nnet = \"restricted\"\nallow = [\"api.example.com\"]\n"
        ),
    );
    let got = bash(&bench, "curl -sS https://api.example.com/through").succeeded();
    assert_eq!(super::json(&got)["path"], "/through");
    assert_eq!(*asked.lock().unwrap(), ["CONNECT api.example.com:443 HTTP/1.1"]);
    let other = bash(&bench, "curl -sS https://other.example.com/");
    assert_eq!(other.result.exit, Some(6), "no rule, no name: {}", other.err);
    assert_eq!(asked.lock().unwrap().len(), 1);
}
