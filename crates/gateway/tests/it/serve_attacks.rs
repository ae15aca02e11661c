//! Malformed, ambiguous, slow and large requests to the server of `belljar serve`, each with a control.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::TestResponse;
use crate::gateway::{TestGateway, problem};

const GET: &str = "GET /healthz HTTP/1.1";

#[track_caller]
fn is_ok(response: &TestResponse) {
    assert_eq!(response.status, 200, "control: {response:?}");
}

#[tokio::test]
async fn f04_a25_request_for_another_host_is_refused_and_closed() {
    let server = TestGateway::with(|options| options.hosts = vec!["box.example".to_owned()]).await;
    for host in ["{host}", "localhost", "LOCALHOST:1", "[::1]", "box.example"] {
        is_ok(&server.lines(&[GET, &format!("Host: {host}")]).await);
    }
    for host in ["evil.example", "localhost.evil.example", "0.0.0.0", "a@localhost", "localhost."] {
        let response = server.lines(&[GET, &format!("Host: {host}")]).await;
        problem(&response, 421, "misdirected");
        assert_eq!(response.header("connection"), Some("close"));
    }
}

#[tokio::test]
async fn a25_missing_second_or_different_hosts_are_refused() {
    let server = TestGateway::start().await;
    let own = format!("GET http://{}/healthz HTTP/1.1", server.host());
    is_ok(&server.lines(&[&own, "Host: {host}"]).await);
    for lines in [
        [GET, "X: y"],
        [GET, "Host: {host}\r\nHost: {host}"],
        [GET, "Host: {host}\r\nhost: evil.example"],
        [&own, "Host: localhost"],
        ["GET http://evil.example/healthz HTTP/1.1", "Host: {host}"],
        ["OPTIONS * HTTP/1.1", "Host: {host}"],
        ["GET /healthz HTTP/1.0", "Host: {host}"],
    ] {
        let response = server.lines(&lines).await;
        problem(&response, 400, "bad-request");
    }
    let connect = server.lines(&["CONNECT evil.example:443 HTTP/1.1", "Host: {host}"]).await;
    assert_eq!(connect.status, 400, "{connect:?}");
}

#[tokio::test]
async fn a23_ambiguous_lengths_are_refused_and_no_second_request_is_read() {
    let server = TestGateway::start().await;
    let host = server.host();
    let hidden = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let pipelined =
        server.raw(format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n{hidden}")).await;
    assert_eq!(pipelined.matches("HTTP/1.1 200").count(), 2, "control: {pipelined}");
    for framing in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 6\r\n\r\n",
        "Content-Length: +0\r\n\r\n",
        "Content-Length: 0, 0\r\n\r\n",
        "Content-Length: 0\r\n X: folded\r\n\r\n",
        "Content-Length: 6\r\n\r\nGET / ",
    ] {
        let post = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n{framing}");
        let answers = server.raw(format!("{post}{hidden}")).await;
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{framing:?}: {answers}");
        assert_eq!(answers.matches("HTTP/1.1 4").count(), 1, "{framing:?}: {answers}");
    }
    let chunked = ["POST /mcp HTTP/1.1", "Host: {host}", "Transfer-Encoding: chunked"];
    problem(&server.lines_with(&chunked, "0\r\n\r\n").await, 411, "length-required");
}

#[tokio::test]
async fn a24_ambiguous_paths_are_refused_before_routing() {
    let server = TestGateway::start().await;
    is_ok(&server.get("/healthz").await);
    problem(&server.get("/%68ealthz").await, 404, "not-found");
    for path in [
        "//healthz",
        "/x/../healthz",
        "/x/%2e%2e/healthz",
        "/healthz%00",
        "/x%2f",
        "/x%5cy",
        "/x\\y",
    ] {
        problem(&server.get(path).await, 400, "bad-request");
    }
}

#[tokio::test]
async fn f04_pages_of_other_origins_are_refused_without_cors_headers() {
    let server = TestGateway::start().await;
    is_ok(&server.lines(&[GET, "Host: {host}", "Origin: http://{host}"]).await);
    for origin in [
        "http://evil.example",
        "null",
        "https://{host}",
        "http://localhost:1",
        "http://127.0.0.1",
        "",
    ] {
        let response = server.lines(&[GET, "Host: {host}", &format!("Origin: {origin}")]).await;
        problem(&response, 403, "foreign-origin");
        assert!(!response.head.to_ascii_lowercase().contains("access-control"), "{response:?}");
    }
    let preflight = [
        "OPTIONS /mcp HTTP/1.1",
        "Host: {host}",
        "Origin: http://evil.example",
        "Access-Control-Request-Method: POST",
    ];
    problem(&server.lines(&preflight).await, 403, "foreign-origin");
}

#[tokio::test]
async fn f04_body_that_is_not_declared_as_json_is_refused() {
    let server = TestGateway::start().await;
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/jsonx",
        "",
    ] {
        let lines = [
            "POST /mcp HTTP/1.1",
            "Host: {host}",
            "Content-Length: 2",
            &format!("Content-Type: {kind}"),
        ];
        problem(&server.lines_with(&lines, "{}").await, 415, "media-type");
    }
    let encoded = [
        "POST /mcp HTTP/1.1",
        "Host: {host}",
        "Content-Length: 2",
        "Content-Type: application/json",
        "Content-Encoding: gzip",
    ];
    problem(&server.lines_with(&encoded, "{}").await, 415, "media-type");
    let json = [
        "POST /mcp HTTP/1.1",
        "Host: {host}",
        "Content-Length: 2",
        "Content-Type: application/json; charset=utf-8",
    ];
    // Control: the next check refuses the missing token.
    problem(&server.lines_with(&json, "{}").await, 401, "unauthenticated");
}

#[tokio::test]
async fn f05_credential_in_a_query_is_refused_and_not_repeated() {
    let server = TestGateway::start().await;
    is_ok(&server.get("/healthz?verbose=1").await);
    let token = server.token.expose();
    for query in ["token", "access_token", "code", "Authorization"] {
        let response = server.get(&format!("/healthz?a=1&{query}={token}")).await;
        problem(&response, 400, "token-in-url");
        assert!(!format!("{response:?}").contains(token), "{response:?}");
    }
    let long = server.get(&format!("/healthz?a={}", "b".repeat(4096))).await;
    problem(&long, 414, "uri-too-long");
}

#[tokio::test]
async fn f14_too_many_headers_and_large_heads_and_bodies_are_refused() {
    let server = TestGateway::start().await;
    let headers = |count: usize| format!("Host: {{host}}{}", "\r\nX: y".repeat(count));
    is_ok(&server.lines(&[GET, &headers(60)]).await);
    let response = server.lines(&[GET, &headers(64)]).await;
    assert_eq!(response.status, 431, "{response:?}");
    let large = |length: usize| format!("X: {}", "y".repeat(length));
    is_ok(&server.lines(&[GET, "Host: {host}", &large(31 * 1024)]).await);
    let response = server.lines(&[GET, "Host: {host}", &large(33 * 1024)]).await;
    problem(&response, 431, "head-too-large");
    let response = server.lines(&[GET, "Host: {host}", &large(200 * 1024)]).await;
    assert_eq!(response.status, 431, "{response:?}");
    let large = ["GET /healthz HTTP/1.1", "Host: {host}", "Content-Length: 1"];
    problem(&server.lines_with(&large, "x").await, 400, "bad-request");
}

#[tokio::test]
async fn f14_silent_and_slow_heads_are_cut_off_and_others_are_served() {
    let server =
        TestGateway::with(|options| options.limits.head = Duration::from_millis(200)).await;
    let mut silent = TcpStream::connect(server.addr).await.unwrap();
    let mut slow = TcpStream::connect(server.addr).await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: local").await.unwrap();
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).await.ok();
    slow.read_to_end(&mut rest).await.ok();
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    is_ok(&server.get("/healthz").await);
}

#[tokio::test]
async fn f14_new_connection_takes_the_place_of_an_unauthenticated_one() {
    let server = TestGateway::with(|options| options.limits.connections = 4).await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(server.addr).await.unwrap());
    }
    is_ok(&server.get("/healthz").await);
    let mut oldest = silent.remove(0);
    assert_eq!(oldest.read(&mut [0]).await.unwrap_or(0), 0, "the oldest connection is closed");
}

#[tokio::test]
async fn f14_malformed_bytes_do_not_affect_other_requests() {
    let server = TestGateway::start().await;
    for garbage in [
        b"\x16\x03\x01\x02\x00\x01\x00".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n bad: folded\r\n\r\n".to_vec(),
        b"GET /healthz HTTP/1.1\r\nHost: local\0host\r\n\r\n".to_vec(),
        vec![b'\r'; 100_000],
        vec![0; 100_000],
    ] {
        let answer = server.raw(&garbage).await;
        assert!(!answer.contains("HTTP/1.1 200"), "{answer}");
        is_ok(&server.get("/healthz").await);
    }
}
