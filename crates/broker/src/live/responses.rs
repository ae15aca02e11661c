//! Responses of upstream servers: what reaches the box and the ledger.

use belljar_testkit::{Authority, Upstream, Wire};

use super::*;

/// A text of a server that must not be in any message or record of the broker.
const CANARY: &str = "canaryOfTheServer0123456789";

/// An HTTP/2 connection preface and a `GOAWAY` frame with debug data.
fn goaway(debug: &str) -> Vec<u8> {
    let length = u8::try_from(8 + debug.len()).unwrap();
    let mut bytes = vec![0, 0, 0, 4, 0, 0, 0, 0, 0]; // SETTINGS
    bytes.extend([0, 0, length, 7, 0, 0, 0, 0, 0]); // GOAWAY
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 2]); // no stream was processed; INTERNAL_ERROR
    bytes.extend(debug.as_bytes());
    bytes
}

/// Returns the messages of the broker for a request to this server: the refusal, if any, and the
/// records.
fn messages(authority: &Authority, server: SocketAddr) -> (String, String) {
    let live = Live::start(authority, token_policy(server));
    let seen = live.get("/", &[]);
    let error = live.wait(|event| match event {
        BrokerEvent::Finished(finished) => Some(finished.error.clone()),
        _ => None,
    });
    assert!(error.is_some(), "the request failed: {seen}");
    (seen, format!("{:?}", live.events()))
}

#[test]
fn b04_messages_and_records_contain_no_byte_of_an_answer() {
    let authority = Authority::new();
    let answers = [
        format!("HTTP/1.1 200 OK\r\ncontent-encoding: {CANARY}\r\ncontent-length: 0\r\n\r\n"),
        format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip, {CANARY}\r\ncontent-length: 0\r\n\r\n"),
        format!("HTTP/1.1 200 OK\r\n{CANARY} : x\r\n\r\n"),
        format!("{CANARY} 200 OK\r\n\r\n"),
        format!("HTTP/1.1 200 OK\r\ncontent-length: {CANARY}\r\n\r\n"),
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {CANARY}, chunked\r\n\r\n0\r\n\r\n"),
        format!("HTTP/1.1 206 {CANARY}\r\ncontent-range: {CANARY}\r\ncontent-length: 0\r\n\r\n"),
    ];
    for answer in answers {
        let bytes = answer.clone().into_bytes();
        let server = Wire::tls(&authority, &[HOST], move |_| bytes.clone());
        let (seen, records) = messages(&authority, server.address());
        assert!(!seen.contains(CANARY), "{answer:?}: {seen}");
        assert!(!records.contains(CANARY), "{answer:?}: {records}");
    }
    let closed = Wire::tls_bytes(&authority, &[HOST], "h2", &goaway(CANARY));
    let named = format!("{}.example.com", CANARY.to_ascii_lowercase());
    let other = Upstream::echo(&authority, &[&named]);
    for server in [closed.address(), other.address()] {
        let (seen, records) = messages(&authority, server);
        assert!(!seen.contains(CANARY) && !seen.contains(&named), "{seen}");
        assert!(!records.contains(CANARY) && !records.contains(&named), "{records}");
    }
    // Control: the box gets the text in a response that is valid.
    let valid = format!("HTTP/1.1 200 OK\r\nx-text: {CANARY}\r\ncontent-length: 0\r\n\r\n");
    let server = Wire::tls(&authority, &[HOST], move |_| valid.clone().into_bytes());
    let live = Live::start(&authority, token_policy(server.address()));
    assert!(live.get("/", &[]).contains(CANARY));
}
