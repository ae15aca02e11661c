//! Tests of the certificates of an authority, with the verifiers of common programs.

#![expect(clippy::disallowed_methods, reason = "tests read the clock and start real clients")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use belljar_model::net::{Budget, Policy, Rule, Target};
use belljar_model::{AskTimeout, Net};
use rustls::{ClientConnection, ServerConfig, ServerConnection, StreamOwned};

use super::{Authority, AuthorityError, MAX_LEAFS, Scope};
use crate::tls::roots::to_pem;
use crate::tls::{Roots, Upstream};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

fn authority(texts: &[&str]) -> Authority {
    let patterns = texts.iter().map(|text| text.parse().unwrap()).collect();
    Authority::new(Scope::Only(patterns), SystemTime::now()).unwrap()
}

fn trusting(authority: &Authority) -> Upstream {
    let mut roots = Roots::none();
    roots.add_pem(authority.pem().as_bytes(), "test").unwrap();
    Upstream::new(&roots).unwrap()
}

/// Runs one handshake in memory; returns the client's result and the negotiated protocol.
fn handshake(
    server: Arc<ServerConfig>,
    client: &Upstream,
    asked: &str,
) -> Result<Option<Vec<u8>>, rustls::Error> {
    let mut server = ServerConnection::new(server).unwrap();
    let name = Upstream::server_name(&target(asked)).unwrap();
    let mut client = ClientConnection::new(client.any(), name).unwrap();
    while client.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut bytes = Vec::new();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    Ok(client.alpn_protocol().map(<[u8]>::to_vec))
}

fn accepts(authority: &Authority, asked: &str) -> Option<Vec<u8>> {
    let server = authority.server_config(&target(asked), SystemTime::now()).unwrap();
    handshake(server, &trusting(authority), asked).unwrap()
}

#[test]
fn certificates_for_allowed_hosts_are_accepted_with_http2() {
    let long = format!("{0}.{0}.{0}.example.com", "a".repeat(60));
    let authority = authority(&["api.example.com", "*.example.com", "192.0.2.7", "[2001:db8::7]"]);
    for asked in ["api.example.com", "deep.below.example.com", &long, "192.0.2.7", "2001:db8::7"] {
        assert_eq!(accepts(&authority, asked).as_deref(), Some(&b"h2"[..]), "{asked}");
    }
}

#[test]
fn a35_certificate_for_a_name_outside_the_rules_is_refused() {
    let authority = authority(&["api.example.com", "*.below.example"]);
    for asked in
        ["evil.com", "example.com", "xapi.example.com", "below.example", "192.0.2.7", "2001:db8::7"]
    {
        let refused = authority.server_config(&target(asked), SystemTime::now());
        assert!(matches!(refused, Err(AuthorityError::OutOfScope(_))), "{asked}");
    }
    assert!(accepts(&authority, "api.example.com").is_some());
    assert!(accepts(&authority, "a.below.example").is_some());
}

#[test]
fn a35_scope_of_the_authority_follows_the_rules() {
    let policy = |net| Policy {
        net,
        allow: ["api.example.com", "http://plain.example", "tcp://db.example:5432"]
            .iter()
            .map(|text| Rule::allow(text).unwrap())
            .collect(),
        deny: vec![],
        ask: vec![],
        ask_timeout: AskTimeout::default(),
        secrets: vec![],
        budget: Budget::default(),
        proxy: None,
    };
    let Scope::Only(patterns) = Scope::of(&policy(Net::Restricted)) else { panic!() };
    assert_eq!(patterns, ["api.example.com".parse().unwrap()]);
    assert!(matches!(Scope::of(&policy(Net::Full)), Scope::Any));
}

/// Returns an authority that signs for any name with the key and certificate of a constrained one.
fn without_scope(mut authority: Authority) -> Authority {
    authority.scope = Scope::Any;
    authority
}

#[test]
fn a35_clients_reject_certificates_outside_the_name_constraints() {
    for names in [&["api.example.com"][..], &["192.0.2.7"], &[]] {
        let authority = without_scope(authority(names));
        for asked in ["evil.com", "198.51.100.1", "2001:db8::1"] {
            let server = authority.server_config(&target(asked), SystemTime::now()).unwrap();
            let error = handshake(server, &trusting(&authority), asked).unwrap_err();
            assert!(
                error.to_string().contains("NameConstraintViolation"),
                "{names:?} {asked}: {error}"
            );
            assert!(!openssl_verifies(&authority, asked), "{names:?} {asked}");
        }
    }
    let free = Authority::new(Scope::Any, SystemTime::now()).unwrap();
    for asked in ["evil.com", "198.51.100.1", "2001:db8::1"] {
        assert!(accepts(&free, asked).is_some(), "the control: without constraints");
        assert!(openssl_verifies(&free, asked), "the control: without constraints");
    }
}

#[test]
fn a35_certificates_of_another_box_are_rejected() {
    let (one, other) = (authority(&["api.example.com"]), authority(&["api.example.com"]));
    assert_ne!(one.der(), other.der());
    let host = target("api.example.com");
    let server = one.server_config(&host, SystemTime::now()).unwrap();
    assert!(handshake(Arc::clone(&server), &trusting(&one), "api.example.com").is_ok());
    assert!(handshake(server, &trusting(&other), "api.example.com").is_err());
}

#[test]
fn a35_public_output_contains_no_private_key() {
    let authority = authority(&["api.example.com"]);
    let key = authority.issuer.key().key.to_pkcs8v1().unwrap();
    let shown = format!("{authority:?}{}", authority.pem());
    assert!(!shown.contains("PRIVATE") && !shown.contains("Ecdsa"), "{shown}");
    // The private number is in bytes 36..68 of this format.
    let number = &key.as_ref()[36..68];
    for bytes in [authority.der().to_vec(), authority.jks(), shown.into_bytes()] {
        assert!(!bytes.windows(32).any(|window| window == number));
    }
}

#[test]
fn leaf_certificates_are_cached_renewed_and_bounded() {
    let authority = Authority::new(Scope::Any, SystemTime::now()).unwrap();
    let now = SystemTime::now();
    let host = target("api.example.com");
    let first = authority.server_config(&host, now).unwrap();
    assert!(Arc::ptr_eq(&first, &authority.server_config(&host, now + DAY).unwrap()));
    assert!(!Arc::ptr_eq(&first, &authority.server_config(&host, now + 6 * DAY).unwrap()));
    for number in 0..600 {
        let host = target(&format!("host{number}.example"));
        let at = now + Duration::from_secs(number);
        drop(authority.server_config(&host, at).unwrap());
    }
    assert_eq!(authority.leafs.cached.lock().unwrap().len(), MAX_LEAFS);
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn openssl_verifies(authority: &Authority, asked: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let (ca, leaf) = (dir.path().join("ca.pem"), dir.path().join("leaf.pem"));
    std::fs::write(&ca, authority.pem()).unwrap();
    let der = authority.leaf(&target(asked), SystemTime::now()).unwrap();
    std::fs::write(&leaf, to_pem(&der)).unwrap();
    let kind =
        if asked.parse::<std::net::IpAddr>().is_ok() { "-verify_ip" } else { "-verify_hostname" };
    let (ca, leaf) = (ca.to_str().unwrap(), leaf.to_str().unwrap());
    let output = run(
        "openssl",
        &["verify", "-x509_strict", "-purpose", "sslserver", kind, asked, "-CAfile", ca, leaf],
    );
    output.status.success()
}

#[test]
fn openssl_in_strict_mode_accepts_the_certificates() {
    let authority =
        authority(&["api.example.com", "*.below.example", "192.0.2.7", "[2001:db8::7]"]);
    for asked in ["api.example.com", "x.below.example", "192.0.2.7", "2001:db8::7"] {
        assert!(openssl_verifies(&authority, asked), "{asked}");
    }
    let free = Authority::new(Scope::Any, SystemTime::now()).unwrap();
    assert!(openssl_verifies(&free, "anything.example"));
}

/// Serves connections with the authority's certificate for `localhost`.
fn serve(authority: &Authority) -> u16 {
    let config = authority.server_config(&target("localhost"), SystemTime::now()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, &config);
        }
    });
    port
}

fn answer(stream: TcpStream, config: &Arc<ServerConfig>) {
    let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), stream);
    let mut head = [0; 1024];
    if stream.read(&mut head).is_ok() {
        // The client can have closed the connection.
        drop(
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"),
        );
        stream.conn.send_close_notify();
        drop(stream.flush());
    }
}

const PYTHON: &str = "
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile=sys.argv[1])
context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
sys.stdout.write(urllib.request.urlopen(sys.argv[2], context=context).read().decode())
";

const NODE: &str = "
require('https').get(process.argv[1], {ca: require('fs').readFileSync(process.argv[2])}, r => r.pipe(process.stdout))
";

const JAVA: &str = "
public class Get { public static void main(String[] a) throws Exception {
  System.out.write(new java.net.URL(a[0]).openStream().readAllBytes()); System.out.flush(); } }
";

#[test]
fn python_node_java_and_curl_accept_the_certificates() {
    let authority = authority(&["localhost"]);
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let ca = file("ca.pem", authority.pem().as_bytes());
    let store = file("trust.jks", &authority.jks());
    let source = file("Get.java", JAVA.as_bytes());
    let url = format!("https://localhost:{}/", serve(&authority));
    let trust = format!("-Djavax.net.ssl.trustStore={store}");
    let clients: [(&str, Vec<&str>); 4] = [
        ("python3", vec!["-c", PYTHON, &ca, &url]),
        ("node", vec!["-e", NODE, &url, &ca]),
        ("curl", vec!["-sS", "--http1.1", "--cacert", &ca, &url]),
        ("java", vec![&trust, &source, &url]),
    ];
    for (program, arguments) in clients {
        let output = run(program, &arguments);
        assert_eq!(output.stdout, b"hi", "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // Control: without the root, the certificate is refused.
    let output = run("curl", &["-sS", "--http1.1", &url]);
    assert_eq!(output.status.code(), Some(60), "{output:?}");
}

#[test]
fn keytool_reads_the_trust_store() {
    let authority = authority(&["api.example.com"]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trust.jks");
    let list = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let path = path.to_str().unwrap();
        run("keytool", &["-list", "-v", "-keystore", path, "-storepass", "changeit"])
    };
    let output = list(&authority.jks());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("trustedCertEntry"), "{text}");
    assert!(text.contains("CN=Belljar box"), "{text}");
    // Control: the hash at the end is verified.
    let mut corrupted = authority.jks();
    corrupted[40] ^= 1;
    assert!(!list(&corrupted).status.success());
}
