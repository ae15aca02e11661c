//! Responses of upstream servers: what reaches the box and the ledger.

use belljar_model::net::{ClientAuth, Grant, SecretKind, TokenBody};
use belljar_testkit::{Authority, Reply, Upstream, Wire};

use super::*;

/// A text of a server that must not be in any message or record of the broker.
const CANARY: &str = "canary-of-the-server-0123456789";

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
    live.error(); // the request has failed
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
    let named = format!("{CANARY}.example.com");
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

/// Returns a server that sends a text at `/`, and at `/events` one line at a time.
fn sending(authority: &Authority, text: &str) -> Upstream {
    let text = text.to_owned();
    Upstream::tls(authority, &[HOST], move |_| Reply::new(200, text.clone()))
}

#[test]
fn b04_secret_is_scrubbed_in_a_run_that_has_not_used_it() {
    let authority = Authority::new();
    let echoed = format!("an earlier run sent {SECRET}");
    let server = sending(&authority, &echoed);
    let live = Live::start(&authority, token_policy(server.address()));
    let seen = live.request("GET /", &[], "");
    assert!(seen.contains("an earlier run sent [belljar:token]"), "{seen}");
    // Control: without a secret for the host, the text arrives.
    let bare = Policy { allow: vec![rule(server.address(), &[])], ..policy() };
    let seen = Live::start(&authority, bare).request("GET /", &[], "");
    assert!(seen.contains(SECRET), "{seen}");
}

#[test]
fn b04_response_and_websocket_that_began_before_the_first_use_are_scrubbed() {
    let authority = Authority::new();
    let live =
        Live::start(&authority, token_policy(Upstream::websocket(&authority, &[HOST]).address()));
    let mut socket = live.connect_to(HOST);
    let head = "GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    write!(socket, "{head}host: {HOST}\r\n\r\n").unwrap();
    // The server echoes messages. This one contains the value although the box never used it.
    let message = format!("guess {SECRET}");
    let mut frame = vec![0x81, 0x80 | u8::try_from(message.len()).unwrap(), 0, 0, 0, 0];
    frame.extend(message.as_bytes());
    socket.write_all(&frame).unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"]") {
        let mut byte = [0];
        std::io::Read::read_exact(&mut socket, &mut byte).unwrap();
        seen.extend(byte);
    }
    let seen = String::from_utf8_lossy(&seen).into_owned();
    assert!(seen.ends_with("guess [belljar:token]") && !seen.contains(SECRET), "{seen}");
}

#[test]
fn b04_refresh_tokens_are_scrubbed_from_responses_of_the_token_server() {
    const ROTATED: &str = "rotated-refresh-token-0123456789";
    let login = "login.example.com";
    let authority = Authority::new();
    let server = Upstream::tls(&authority, &[HOST, login], |received| {
        match (received.method.as_str(), received.path.as_str()) {
            ("POST", "/token") => {
                let tokens = serde_json::json!({
                    "access_token": "access-token-0123456789",
                    "refresh_token": ROTATED,
                });
                Reply::new(200, tokens.to_string())
            }
            _ => Reply::new(
                200,
                format!("{SECRET} {ROTATED} access-token-0123456789 client-secret-1 end"),
            ),
        }
    });
    let kind = SecretKind::OAuth2 {
        token_url: format!("https://{login}/token").parse().unwrap(),
        grant: Grant::RefreshToken,
        client_id: Some("id".to_owned()),
        client_secret: Some("client".parse().unwrap()),
        auth: ClientAuth::Body,
        body: TokenBody::Form,
        scope: None,
    };
    let mut policy = Policy {
        allow: vec![rule(server.address(), &["token"]), rule_for(login, server.address(), &[])],
        secrets: vec![SecretDecl { kind, ..token() }],
        ..policy()
    };
    let values = vec![
        ("token".to_owned(), SECRET.to_owned()),
        ("client".to_owned(), "client-secret-1".to_owned()),
    ];
    let live = Live::start_with(&authority, policy.clone(), values, "203.0.113.1:443");
    // Before and after the first use of the secret, from both servers.
    let before = live.request_to(login, "GET /", &[], "");
    assert!(before.contains("[belljar:token] rotated"), "{before}");
    for seen in [live.get("/", &[]), live.request_to(login, "GET /", &[], "")] {
        let clean = "[belljar:token] ".repeat(4);
        assert!(seen.contains(&format!("{clean}end")), "{seen}");
    }
    assert!(server.received().iter().any(|it| it.path == "/token"), "control: a token was fetched");
    // Control: without the secret, the texts arrive.
    policy.secrets.clear();
    policy.allow = vec![rule_for(login, server.address(), &[])];
    let seen = Live::start(&authority, policy).request_to(login, "GET /", &[], "");
    assert!(seen.contains(ROTATED), "{seen}");
}

#[test]
fn b10_captured_token_is_kept_from_the_box_in_every_spelling_of_its_path() {
    let authority = Authority::new();
    let server = Upstream::tls(&authority, &[HOST], |received| {
        let number = received.header("x-number").unwrap_or("0000");
        if received.path == "/echo" {
            return Reply::new(200, format!("issued-token-number-{number}"));
        }
        let tokens = serde_json::json!({ "access_token": format!("issued-token-number-{number}") });
        Reply::new(200, tokens.to_string())
    });
    let captures = vec!["/oauth/token json:/access_token".parse().unwrap()];
    let mut policy = token_policy(server.address());
    policy.secrets = vec![SecretDecl { captures, ..token() }];
    let live = Live::start(&authority, policy);
    for path in
        ["/oauth/token", "/oauth/token/", "/oauth/Token", "/OAUTH/TOKEN/", "/oauth/token;x=1"]
    {
        let seen = live.request(&format!("POST {path}"), &[], "{}");
        assert!(!seen.contains("issued-token"), "{path}: {seen}");
        let is_refused = seen.contains("x-belljar: ambiguous-path");
        assert!(is_refused || seen.contains("\"access_token\":\"bj_"), "{path}: {seen}");
    }
    // Many newer tokens do not make the broker forget an older one.
    for number in 1..40 {
        let seen =
            live.request("POST /oauth/token", &[("x-number", &format!("{number:04}"))], "{}");
        assert!(seen.contains("\"access_token\":\"bj_"), "{seen}");
    }
    for number in ["0001", "0020", "0039"] {
        let seen = live.request("GET /echo", &[("x-number", number)], "");
        assert!(seen.contains("[belljar:token]") && !seen.contains("issued-token"), "{seen}");
    }
    // Control: a token that was never captured is an ordinary text.
    assert!(
        live.request("GET /echo", &[("x-number", "9999")], "").contains("issued-token-number-9999")
    );
}

#[test]
fn b09_program_that_sees_many_replaced_secrets_is_stopped() {
    let authority = Authority::new();
    let server = sending(&authority, SECRET);
    let other = sending(&authority, "ordinary");
    let mut policy = token_policy(server.address());
    policy.allow.push(rule_for("other.example.com", other.address(), &[]));
    let live = Live::start(&authority, policy);
    // On a slow machine, a minute can end before the limit is reached.
    let mut replaced = 0;
    let refused = (0..2000).find_map(|_| {
        let answer = live.request("GET /", &[], "");
        assert!(!answer.contains(SECRET), "{answer}");
        replaced += usize::from(answer.contains("[belljar:token]"));
        answer.contains("x-belljar: secret-guessing").then_some(answer)
    });
    let refused = refused.expect("a refusal");
    assert!(replaced >= 60, "control: {replaced} were replaced before");
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("retry-after: "), "{refused}");
    live.wait(|event| {
        let BrokerEvent::Alarm { alarm, .. } = event else { return None };
        (alarm == "secret-guessing").then_some(())
    });
}

#[test]
fn a27_websocket_client_can_send_everything_before_it_reads() {
    const LENGTH: usize = 24 << 20; // more than the buffers of all sockets
    let authority = Authority::new();
    let server = Upstream::websocket_both_ways(&authority, &[HOST], LENGTH);
    let live = Live::start(&authority, token_policy(server.address()));
    let mut socket = live.connect_to(HOST);
    let head = "GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    write!(socket, "{head}host: {HOST}\r\n\r\n").unwrap();
    // One binary message, masked with zeros.
    let size = u64::try_from(LENGTH - 14).unwrap().to_be_bytes();
    socket.sock.set_write_timeout(Some(DEADLINE)).unwrap();
    socket.write_all(&[&[0x82, 0xff], size.as_slice(), &[0; 4]].concat()).unwrap();
    socket.write_all(&vec![b'y'; LENGTH - 14]).unwrap();
    socket.flush().unwrap();
    let (mut seen, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    while !seen.ends_with(b"end") {
        let length = std::io::Read::read(&mut socket, &mut piece).unwrap();
        seen.extend_from_slice(&piece[..length]);
    }
    assert!(seen.iter().filter(|byte| **byte == b'x').count() >= LENGTH);
}
