//! Server-sent events of `belljar serve`.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;

use crate::gateway::{Login, TestGateway, problem};

/// An open stream of events.
struct Stream {
    lines: Lines<BufReader<TcpStream>>,
}

/// An event of a stream.
#[derive(Debug, PartialEq)]
struct Event {
    id: Option<u64>,
    kind: String,
    data: Value,
}

impl Stream {
    async fn open(server: &TestGateway, path: &str, headers: &[&str]) -> Self {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let host = if headers.contains("Host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", server.host())
        };
        let head = format!("GET {path} HTTP/1.1\r\n{host}{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next_line().await.unwrap().unwrap(), "HTTP/1.1 200 OK");
        while !lines.next_line().await.unwrap().unwrap().is_empty() {}
        Self { lines }
    }

    async fn of_login(server: &TestGateway, login: &Login, path: &str) -> Self {
        let (host, cookie) = (format!("Host: {}", login.host), format!("Cookie: {}", login.cookie));
        Self::open(server, path, &[&host, &cookie]).await
    }

    /// Returns the next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Event> {
        let (mut id, mut kind) = (None, String::new());
        loop {
            let line = self.lines.next_line().await.ok()??;
            if line == "0" {
                return None; // the last chunk
            }
            match line.split_once(": ") {
                Some(("id", value)) => id = value.parse().ok(),
                Some(("event", value)) => kind = value.to_owned(),
                Some(("data", value)) => {
                    return Some(Event { id, kind, data: serde_json::from_str(value).unwrap() });
                }
                _ => {} // sizes of chunks, empty lines and comments
            }
        }
    }
}

async fn make_token(server: &TestGateway, login: &Login, name: &str) {
    let new = json!({ "name": name, "kind": "service", "scopes": ["boxes:read"] });
    assert_eq!(login.post(server, "/v1/tokens", &new).await.status, 201);
}

#[tokio::test]
async fn events_are_sent_as_they_happen_and_again_after_a_reconnect() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    make_token(&server, &login, "zero").await; // the first event of a tenant creates its ledger
    let mut stream = Stream::of_login(&server, &login, "/v1/events").await;
    assert_eq!(stream.next().await.unwrap().kind, "hello");
    make_token(&server, &login, "one").await;
    let first = stream.next().await.unwrap();
    assert_eq!((first.kind.as_str(), first.data["index"].as_u64()), ("access.changed", first.id));
    make_token(&server, &login, "two").await;
    let second = stream.next().await.unwrap();
    assert_eq!(second.id, first.id.map(|id| id + 1));
    let after_first = format!("Last-Event-ID: {}", first.id.unwrap());
    let from_first = format!("/v1/events?from={}", first.id.unwrap());
    let (host, cookie) = (format!("Host: {}", login.host), format!("Cookie: {}", login.cookie));
    let mut again =
        Stream::open(&server, "/v1/events?from=0", &[&host, &cookie, &after_first]).await;
    assert_eq!(again.next().await.unwrap().kind, "hello");
    assert_eq!(again.next().await.unwrap(), second, "the header replaces the parameter");
    let mut replay = Stream::of_login(&server, &login, &from_first).await;
    assert_eq!(replay.next().await.unwrap().kind, "hello");
    assert_eq!(replay.next().await.unwrap(), first);
    assert_eq!(replay.next().await.unwrap(), second);
    make_token(&server, &login, "three").await;
    for stream in [&mut stream, &mut again, &mut replay] {
        assert_eq!(stream.next().await.unwrap().id, second.id.map(|id| id + 1));
    }
}

#[tokio::test]
async fn client_that_knows_more_events_than_the_ledger_has_is_reset() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let mut stream = Stream::of_login(&server, &login, "/v1/events?from=1000").await;
    assert_eq!(stream.next().await.unwrap().kind, "hello");
    assert_eq!(stream.next().await.unwrap().kind, "reset");
    assert_eq!(stream.next().await, None);
    let refused = server.lines(&["GET /v1/events HTTP/1.1", "Host: {host}"]).await;
    problem(&refused, 401, "unauthenticated");
}

#[tokio::test]
async fn f08_stream_has_only_events_of_the_own_tenant_and_of_own_objects() {
    let server = TestGateway::start().await;
    let new = json!({ "name": "team-7", "issuer": "https://id.example", "subject": "ada" });
    assert_eq!(server.local_post("/local/tenants", &new).await.status, 201);
    let (local, team) = (server.login("local").await, server.login("team-7").await);
    let new = json!({ "name": "robot", "kind": "agent", "scopes": ["boxes:read"] });
    let created = local.post(&server, "/v1/tokens", &new).await;
    let created: Value = serde_json::from_str(&created.body).unwrap();
    let token = format!("Authorization: Bearer {}", created["token"].as_str().unwrap());
    let mut of_team = Stream::of_login(&server, &team, "/v1/events?from=0").await;
    let mut of_agent = Stream::open(&server, "/v1/events?from=0", &[&token]).await;
    let mut of_owner = Stream::of_login(&server, &local, "/v1/events?from=0").await;
    make_token(&server, &local, "canary").await;
    make_token(&server, &team, "theirs").await;
    assert_eq!(of_team.next().await.unwrap().kind, "hello");
    for kind in ["ledger.created", "access.changed"] {
        assert_eq!(of_team.next().await.unwrap().kind, kind);
    }
    // The agent is denied, which is the first event that it made.
    assert_eq!(of_agent.next().await.unwrap().kind, "hello");
    let denied = server.post_to(&server.host(), "/v1/tokens", &json!({}), &[&token]).await;
    problem(&denied, 403, "forbidden");
    let seen = of_agent.next().await.unwrap();
    assert_eq!(seen.kind, "access.denied");
    let mut owner_kinds = Vec::new();
    loop {
        let event = of_owner.next().await.unwrap();
        if event.id == seen.id {
            break;
        }
        owner_kinds.push(event.kind);
    }
    assert!(owner_kinds.len() > 2, "control: the owner sees all events: {owner_kinds:?}");
}

#[tokio::test]
async fn f14_ninth_stream_of_a_principal_is_refused_until_one_is_closed() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(Stream::of_login(&server, &login, "/v1/events").await);
    }
    problem(&login.request(&server, "GET", "/v1/events").await, 429, "too-many-requests");
    open.pop();
    loop {
        // The server notices the closed connection after a moment.
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        let head = format!(
            "GET /v1/events HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n\r\n",
            login.host, login.cookie
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let status = BufReader::new(stream).lines().next_line().await.unwrap().unwrap();
        if status == "HTTP/1.1 200 OK" {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn stop_of_the_server_ends_streams() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    let mut stream = Stream::of_login(&server, &login, "/v1/events").await;
    assert_eq!(stream.next().await.unwrap().kind, "hello");
    server.control.stop.cancel();
    assert_eq!(stream.next().await, None);
    server.ended().await;
}

#[tokio::test]
async fn f17_events_end_when_the_session_of_the_client_ends() {
    let server = TestGateway::start().await;
    let login = server.login("local").await;
    make_token(&server, &login, "zero").await;
    let other = server.login("local").await;
    let mut kept = Stream::of_login(&server, &other, "/v1/events").await;
    let mut stream = Stream::of_login(&server, &login, "/v1/events").await;
    for stream in [&mut kept, &mut stream] {
        assert_eq!(stream.next().await.unwrap().kind, "hello");
    }
    let logged_out = login.post(&server, "/auth/logout", &json!({})).await;
    assert_eq!(logged_out.status, 204, "{logged_out:?}");
    while stream.next().await.is_some() {}
    make_token(&server, &other, "control").await;
    while kept.next().await.unwrap().kind != "access.changed" {}
}
