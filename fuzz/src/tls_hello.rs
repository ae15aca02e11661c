//! Checks the parser of TLS ClientHello messages: no bytes make it panic, the division into records does not
//! change its result, and a TLS library finds the same server name.

use belljar_broker::tls::{Hello, Peek};
use rustls::server::Acceptor;

pub fn check(bytes: &[u8]) {
    let peek = Hello::parse(bytes);
    if bytes.len() < Hello::LIMIT {
        let half = Hello::parse(&bytes[..bytes.len() / 2]);
        // A complete result does not change when more bytes arrive.
        assert!(half == Peek::Incomplete || half == peek, "{half:?} {peek:?}");
    }
    let Peek::Hello(hello) = peek else { return };
    compare(bytes, &hello);
    if let Some(length) = one_record(bytes) {
        let cut = records(&bytes[5..length], usize::from(bytes[bytes.len() - 1]) + 1);
        if cut.len() < Hello::LIMIT {
            assert_eq!(Hello::parse(&cut), Peek::Hello(hello));
        }
    }
}

/// Asserts that rustls reads the same server name and ALPN protocols, if it accepts the message.
fn compare(bytes: &[u8], hello: &Hello) {
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest).is_err() {
            return;
        }
        match acceptor.accept() {
            Err(_) => return,
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let parsed = accepted.client_hello();
                let name = parsed.server_name().map(str::to_ascii_lowercase);
                let expected = hello.sni.as_ref().map(ToString::to_string);
                assert_eq!(name, expected);
                let protocols: Vec<Vec<u8>> =
                    parsed.alpn().into_iter().flatten().map(<[u8]>::to_vec).collect();
                assert_eq!(protocols, hello.alpn);
                return;
            }
        }
    }
}

/// Returns the end of the ClientHello if the first record contains all of it.
fn one_record(bytes: &[u8]) -> Option<usize> {
    let length = usize::from(u16::from_be_bytes([*bytes.get(3)?, *bytes.get(4)?]));
    let message = u32::from_be_bytes([0, *bytes.get(6)?, *bytes.get(7)?, *bytes.get(8)?]);
    (usize::try_from(message).ok()? + 4 == length).then_some(5 + length)
}

/// Splits a message into TLS records of this size.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in message.chunks(size) {
        bytes.extend_from_slice(&[22, 3, 1]);
        bytes.extend_from_slice(
            &u16::try_from(part.len()).expect("a record has at most 256 bytes").to_be_bytes(),
        );
        bytes.extend_from_slice(part);
    }
    bytes
}
