//! Tests with real hellos of a real client, split and corrupted.

use std::sync::Arc;

use belljar_model::net::Hostname;
use proptest::prelude::*;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::ServerName;

use super::{Hello, Peek};

const ECH: u16 = 0xfe0d;

fn name(text: &str) -> Hostname {
    text.parse().unwrap()
}

fn real(server: &str, alpn: &[&str]) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let server = ServerName::try_from(server.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), server).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Returns the handshake message without its TLS record header.
fn message(bytes: &[u8]) -> &[u8] {
    &bytes[5..]
}

/// Returns a handshake message, split into TLS records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in message.chunks(size) {
        bytes.extend_from_slice(&[22, 3, 1]);
        bytes.extend_from_slice(&u16::try_from(part.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Returns a minimal ClientHello with these extensions.
fn build(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, content) in extensions {
        list.extend_from_slice(&kind.to_be_bytes());
        list.extend_from_slice(&u16::try_from(content.len()).unwrap().to_be_bytes());
        list.extend_from_slice(content);
    }
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0x13, 0x01, 1, 0]);
    body.extend_from_slice(&u16::try_from(list.len()).unwrap().to_be_bytes());
    body.append(&mut list);
    let mut message = vec![1];
    message.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes()[1..]);
    message.append(&mut body);
    records(&message, 16 * 1024)
}

fn sni(names: &[&[u8]]) -> (u16, Vec<u8>) {
    let mut list = Vec::new();
    for name in names {
        list.push(0);
        list.extend_from_slice(&u16::try_from(name.len()).unwrap().to_be_bytes());
        list.extend_from_slice(name);
    }
    let mut content = u16::try_from(list.len()).unwrap().to_be_bytes().to_vec();
    content.append(&mut list);
    (0, content)
}

#[test]
fn client_hello_of_a_real_client_is_parsed() {
    let expected = Hello {
        sni: Some(name("api.example.com")),
        ech: false,
        alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    let bytes = real("api.example.com", &["h2", "http/1.1"]);
    assert_eq!(Hello::parse(&bytes), Peek::Hello(expected.clone()));
    // Bytes after the hello, such as early data, change nothing.
    let more = [bytes.as_slice(), &[20, 3, 3, 0, 1, 1]].concat();
    assert_eq!(Hello::parse(&more), Peek::Hello(expected));
}

#[test]
fn client_hello_is_parsed_the_same_for_any_split_into_records() {
    let bytes = real("api.example.com", &["h2"]);
    let whole = Hello::parse(&bytes);
    assert!(matches!(whole, Peek::Hello(_)));
    for end in 0..bytes.len() {
        assert_eq!(Hello::parse(&bytes[..end]), Peek::Incomplete, "{end}");
    }
    for size in 1..message(&bytes).len() {
        assert_eq!(Hello::parse(&records(message(&bytes), size)), whole, "{size}");
    }
}

#[test]
fn first_bytes_of_other_protocols_are_not_recognized_as_tls() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"SSH-2.0-x\r\n",
        b"\x16\x02\x00",
        b"\x80\x2e\x01\x03\x01",
        b"\x00",
    ] {
        assert_eq!(Hello::parse(bytes), Peek::NotTls, "{bytes:?}");
    }
}

#[test]
fn a14_client_hello_without_a_server_name_has_no_sni() {
    let Peek::Hello(hello) = Hello::parse(&real("192.0.2.7", &[])) else { panic!() };
    assert_eq!(hello.sni, None);
    // Control: a name is returned.
    let Peek::Hello(hello) = Hello::parse(&build(&[sni(&[b"a.example"])])) else { panic!() };
    assert_eq!(hello.sni, Some(name("a.example")));
}

#[test]
fn a14_encrypted_server_name_is_detected() {
    for kind in [ECH, 0xfe08, 0xffce] {
        let bytes = build(&[sni(&[b"front.example"]), (kind, vec![0; 60])]);
        let Peek::Hello(hello) = Hello::parse(&bytes) else { panic!() };
        assert!(hello.ech, "{kind:x}");
    }
    let Peek::Hello(hello) = Hello::parse(&build(&[sni(&[b"front.example"]), (0x0a0a, vec![])]))
    else {
        panic!()
    };
    assert!(!hello.ech, "an unknown extension does not hide a name");
}

#[test]
fn a13_ambiguous_server_name_is_refused() {
    let twice = build(&[sni(&[b"a.example"]), sni(&[b"b.example"])]);
    let two = build(&[sni(&[b"a.example", b"b.example"])]);
    let none = build(&[sni(&[])]);
    for bytes in [twice, two, none] {
        assert!(matches!(Hello::parse(&bytes), Peek::Refused(_)), "{bytes:?}");
    }
}

#[test]
fn a01_server_names_with_special_bytes_are_refused() {
    for place in 0..=b"evil.example".len() {
        for byte in 0..=255u8 {
            let mut text = b"evil.example".to_vec();
            text.insert(place, byte);
            let peek = Hello::parse(&build(&[sni(&[&text])]));
            let legal =
                std::str::from_utf8(&text).is_ok_and(|text| text.parse::<Hostname>().is_ok());
            assert_eq!(matches!(peek, Peek::Hello(_)), legal, "{text:?}");
            let plain = byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
            assert!(plain || !legal, "{text:?}");
        }
    }
}

#[test]
fn client_hello_above_the_size_limit_is_refused() {
    let mut endless = Vec::new();
    let long =
        [1, 0, 0x3f, 0xff].into_iter().chain(std::iter::repeat_n(0, 20_000)).collect::<Vec<u8>>();
    for part in long.chunks(1) {
        endless.extend_from_slice(&[22, 3, 1, 0, 1]);
        endless.extend_from_slice(part);
        if endless.len() >= Hello::LIMIT {
            break;
        }
    }
    assert_eq!(Hello::parse(&endless), Peek::Refused("the ClientHello is too long"));
    assert!(
        matches!(Hello::parse(&[22, 3, 1, 0, 4, 1, 1, 0, 0]), Peek::Refused(_)),
        "65536 bytes announced"
    );
    assert!(
        matches!(Hello::parse(&[22, 3, 1, 0, 0, 22, 3, 1]), Peek::Refused(_)),
        "a record is empty"
    );
}

proptest! {
    #[test]
    fn a33_random_bytes_do_not_crash_the_client_hello_parser(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _peek = Hello::parse(&bytes);
    }

    #[test]
    fn a33_corrupted_client_hellos_do_not_crash_the_tls_parser(place in 0usize..2000, byte: u8, cut in 0usize..2000) {
        let mut bytes = real("api.example.com", &["h2"]);
        let (place, cut) = (place % bytes.len(), cut % bytes.len());
        bytes[place] = byte;
        let _peek = Hello::parse(&bytes);
        let _peek = Hello::parse(&bytes[..cut]);
    }
}
