//! Connections that are refused before their first request: each one has a reason and a record.

use std::io::Read as _;

use belljar_testkit::{Authority, Upstream};

use super::*;

/// Sends bytes on a raw connection and returns the answer.
fn send(live: &Live, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(live.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut seen = Vec::new();
    stream.read_to_end(&mut seen).ok(); // a reset ends the connection as well
    seen
}

/// Returns a ClientHello with this server name, or without one.
fn client_hello(name: Option<&str>) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    // A client sends no server name for an address.
    let name = name.unwrap_or("203.0.113.1").to_owned().try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

fn allowing(authority: &Authority, dialled: &str) -> Live {
    let server = Upstream::echo(authority, &[HOST]);
    let policy = Policy { allow: vec![rule(server.address(), &[])], ..policy() };
    Live::start_with(authority, policy, Vec::new(), dialled)
}

#[test]
fn a14_tls_to_an_address_is_refused_with_an_alert_and_a_record() {
    let authority = Authority::new();
    let live = allowing(&authority, "203.0.113.1:443");
    let seen = send(&live, &client_hello(None));
    assert_eq!(seen.first(), Some(&21), "a TLS alert: {seen:?}");
    let reason = live.denial();
    assert!(reason.starts_with("no-rule: tcp://203.0.113.1:443"), "{reason}");
    // Control: with the name of an allowed host, the broker answers the handshake.
    let live = allowing(&authority, "203.0.113.1:443");
    assert_eq!(send(&live, &client_hello(Some(HOST))).first(), Some(&22));
}

#[test]
fn a11_connection_to_a_port_that_no_rule_names_is_refused_with_a_record() {
    let authority = Authority::new();
    // A client of a protocol in which the server speaks first sends nothing.
    let live = allowing(&authority, "203.0.113.1:22");
    assert_eq!(send(&live, b""), b"");
    let reason = live.denial();
    assert!(reason.starts_with("no-rule: tcp://203.0.113.1:22"), "{reason}");
}

#[test]
fn a13_ambiguous_client_hello_is_refused_with_an_alert_and_a_record() {
    let authority = Authority::new();
    let live = allowing(&authority, "203.0.113.1:443");
    let mut hello = client_hello(Some(HOST));
    // The server name becomes one that two programs could read differently.
    let at = hello.windows(HOST.len()).position(|it| it == HOST.as_bytes()).unwrap();
    hello[at + 3] = 0;
    let seen = send(&live, &hello);
    assert_eq!(seen.first(), Some(&21), "a TLS alert: {seen:?}");
    let reason = live.denial();
    assert!(reason.starts_with("malformed: "), "{reason}");
}
