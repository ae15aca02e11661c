//! Attacks on the gateway, each with a control request that succeeds.

use std::collections::BTreeSet;
use std::time::Duration;

use belljar_gateway::{HttpOptions, Tokens};
use belljar_model::Caller;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::client::{TestRequest, TestResponse, TestServer, call, initialize, request};
use crate::http::certificate;

/// Checks that the server still answers a valid request after an attack.
async fn control(web: &TestServer) {
    let answer = web.post(&initialize("2025-11-25")).send().await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Checks that the response has no CORS header that lets a page of another origin read it.
fn check_no_cors(answer: &TestResponse) {
    assert!(!answer.head.to_ascii_lowercase().contains("access-control"), "{answer:?}");
}

#[tokio::test]
async fn f04_request_with_a_foreign_host_name_is_refused() {
    let web = TestServer::with(|options| options.hosts = vec!["box.example".to_owned()]).await;
    for host in
        ["evil.example", "localhost.evil.example", "evil.example:80", "localhost@evil.example"]
    {
        let mut ask = web.post(&initialize("2025-11-25"));
        ask.set("Host", host);
        assert_eq!(ask.send().await.status, 403, "{host}");
        // The name in the request target is refused as well.
        let mut ask = web.post(&initialize("2025-11-25"));
        ask.start = format!("POST http://{host}/mcp HTTP/1.1");
        assert!(matches!(ask.send().await.status, 400 | 403), "{host}");
    }
    let mut two = web.post(&initialize("2025-11-25"));
    two.headers.push(("Host".to_owned(), "evil.example".to_owned()));
    assert_eq!(two.send().await.status, 400);
    let mut none = web.post(&initialize("2025-11-25"));
    none.unset("Host");
    assert_eq!(none.send().await.status, 400);
    for host in ["box.example", "127.0.0.1", "[::1]:7"] {
        let mut ask = web.post(&initialize("2025-11-25"));
        ask.set("Host", host);
        assert_eq!(ask.send().await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn f04_a_page_of_another_origin_is_refused_without_cors_headers() {
    let web =
        TestServer::with(|options| options.origins = vec!["https://app.example".to_owned()]).await;
    for origin in ["https://evil.example", "null", "http://app.example", "https://app.example:444"]
    {
        let mut ask = web.post(&initialize("2025-11-25"));
        ask.set("Origin", origin);
        let answer = ask.send().await;
        assert_eq!(answer.status, 403, "{origin}");
        check_no_cors(&answer);
        // The preflight request of a browser.
        let mut ask = web.ask("OPTIONS", "");
        ask.set("Origin", origin).set("Access-Control-Request-Method", "POST");
        ask.unset("Authorization");
        let answer = ask.send().await;
        assert_eq!(answer.status, 403, "{origin}");
        check_no_cors(&answer);
    }
    for origin in ["https://app.example", "http://localhost:3000"] {
        let mut ask = web.post(&initialize("2025-11-25"));
        ask.set("Origin", origin);
        let answer = ask.send().await;
        assert_eq!(answer.status, 200, "{origin}");
        check_no_cors(&answer);
    }
    control(&web).await;
}

#[tokio::test]
async fn f04_a_request_without_a_json_content_type_is_refused() {
    let web = TestServer::start().await;
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json", ""]
    {
        let mut ask = web.post(&initialize("2025-11-25"));
        ask.set("Content-Type", kind);
        assert_eq!(ask.send().await.status, 415, "{kind}");
    }
    let mut ask = web.post(&initialize("2025-11-25"));
    ask.unset("Content-Type");
    assert_eq!(ask.send().await.status, 415);
    let mut ask = web.post(&initialize("2025-11-25"));
    ask.set("Content-Type", "application/jsonp");
    assert_eq!(ask.send().await.status, 415);
    control(&web).await;
}

#[tokio::test]
async fn f04_a_request_without_a_token_is_refused_even_on_the_loopback() {
    let web = TestServer::start().await;
    let session = web.session(&web.tokens[0]).await;
    for method in ["POST", "GET", "DELETE"] {
        let mut ask = web.ask(method, initialize("2025-11-25").to_string());
        ask.set("Content-Type", "application/json").set("Mcp-Session-Id", &session);
        ask.unset("Authorization");
        let answer = ask.send().await;
        assert_eq!(answer.status, 401, "{method}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"belljar\""));
        assert_eq!(answer.header("mcp-session-id"), None);
    }
    control(&web).await;
}

#[tokio::test]
async fn f05_token_in_a_url_is_refused_and_not_repeated_in_the_response() {
    let web = TestServer::start().await;
    let token = web.tokens[0].expose();
    for query in ["token", "access_token", "api_key", "authorization"] {
        for with_header in [false, true] {
            let mut ask = web.post(&initialize("2025-11-25"));
            ask.start = format!("POST /mcp?{query}={token} HTTP/1.1");
            if !with_header {
                ask.unset("Authorization");
            }
            let answer = ask.send().await;
            assert_eq!(answer.status, 400, "{query}");
            assert!(answer.body.contains("Authorization: Bearer"), "{answer:?}");
            assert!(!format!("{answer:?}").contains(token), "{answer:?}");
        }
    }
    // A token in the path, a cookie, another scheme or another header is refused as well.
    let attempts: [&dyn Fn(&mut TestRequest); 4] = [
        &|ask| ask.start = format!("POST /mcp/{token} HTTP/1.1"),
        &|ask| {
            ask.set("Cookie", &format!("token={token}"));
        },
        &|ask| {
            ask.set("Authorization", &format!("Basic {token}"));
        },
        &|ask| {
            ask.set("X-Api-Key", token);
        },
    ];
    for attempt in attempts {
        let mut ask = web.post(&initialize("2025-11-25"));
        ask.unset("Authorization");
        attempt(&mut ask);
        let answer = ask.send().await;
        assert!(matches!(answer.status, 401 | 404), "{answer:?}");
        assert!(!format!("{answer:?}").contains(token), "{answer:?}");
    }
    control(&web).await;
}

#[tokio::test]
async fn f11_the_service_never_sees_a_token_and_an_invalid_one_is_refused() {
    let mut web = TestServer::start().await;
    let token = web.tokens[0].expose().to_owned();
    let foreign = belljar_gateway::Token::generate().unwrap();
    let wrong = [
        foreign.expose().to_owned(),
        token.chars().rev().collect(),
        token.to_uppercase(),
        format!("{token}0"),
        token.get(..token.len() - 1).unwrap().to_owned(),
        format!("{token},{token}"),
        String::new(),
    ];
    for shown in wrong {
        let mut ask = web.post(&initialize("2025-11-25"));
        ask.set("Authorization", &format!("Bearer {shown}"));
        let answer = ask.send().await;
        assert_eq!(answer.status, 401, "{shown}");
        assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer "));
        assert!(!format!("{answer:?}").contains(&token));
    }
    let mut twice = web.post(&initialize("2025-11-25"));
    twice.headers.push(("Authorization".to_owned(), format!("Bearer {}", foreign.expose())));
    assert_eq!(twice.send().await.status, 400);

    // The control request, and everything that the service knows about its caller.
    let session = web.session(&web.tokens[0]).await;
    assert_eq!(web.in_session(&session, &call(2, "whoami")).send().await.text(), session);
    let whoami = web.stateless("tools/call", &json!({ "name": "whoami", "arguments": {} }));
    whoami.send().await.text();
    let callers = web.demo.callers.lock().unwrap().clone();
    let callers = format!("{callers:?} {}", serde_json::to_string(&callers).unwrap());
    assert!(callers.contains(&session) && !callers.contains(&token), "{callers}");
    while let Ok(event) = web.events.try_recv() {
        assert!(!event.contains(&token));
    }
}

#[tokio::test]
async fn f08_sessions_of_one_token_have_the_client_id_of_this_token() {
    let web = TestServer::start().await;
    for token in [0, 1, 0, 1] {
        let session = web.session(&web.tokens[token]).await;
        let mut ask = web.in_session(&session, &call(2, "whoami"));
        assert_eq!(ask.token(&web.tokens[token]).send().await.text(), session);
    }
    let callers = web.demo.callers.lock().unwrap().clone();
    let sessions: std::collections::BTreeSet<_> =
        callers.iter().map(|caller| (caller.session, caller.client.clone())).collect();
    let clients: std::collections::BTreeSet<_> =
        sessions.iter().map(|(_, client)| client.clone().expect("a client id")).collect();
    assert_eq!((sessions.len(), clients.len()), (4, 2), "{callers:?}");
}

#[test]
fn f08_client_cannot_use_a_session_of_another_token() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let web = runtime.block_on(TestServer::start());
    let sessions = runtime.block_on(async {
        let mut all = Vec::new();
        for owner in [0, 1, 0, 1] {
            all.push((owner, web.session(&web.tokens[owner]).await));
        }
        all
    });
    let step = (0..2_usize, 0..4_usize, 0..4_usize);
    let steps = proptest::collection::vec(step, 1..12);
    proptest!(ProptestConfig::with_cases(24), |(steps in steps)| {
        runtime.block_on(async {
            for (token, session, method) in steps {
                let (owner, id) = &sessions[session];
                let own = *owner == token;
                let mut ask = match method {
                    0 => web.in_session(id, &call(2, "whoami")),
                    1 => web.in_session(id, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })),
                    2 => web.ask("GET", ""),
                    // Own sessions are not ended here, so that all of them stay available.
                    _ if own => continue,
                    _ => web.ask("DELETE", ""),
                };
                ask.set("Mcp-Session-Id", id).token(&web.tokens[token]);
                let mut stream = ask.open().await;
                let head = TestResponse::head(&mut stream).await;
                assert_eq!(head.status != 404, own, "{token} {session} {method}: {head:?}");
            }
        });
    });
    // The control: every owner still reaches each own session by its id.
    runtime.block_on(async {
        for (owner, id) in &sessions {
            let mut ask = web.in_session(id, &call(3, "whoami"));
            assert_eq!(ask.token(&web.tokens[*owner]).send().await.text(), *id);
        }
    });
}

#[tokio::test]
async fn f08_another_token_cannot_cancel_a_call_by_its_number() {
    let mut web = TestServer::start().await;
    let (mine, theirs) = (web.session(&web.tokens[0]).await, web.session(&web.tokens[1]).await);
    let held = web.in_session(&mine, &call(2, "wait")).open().await;
    while web.events.recv().await.unwrap() != format!("called {mine} wait") {}
    let cancel = json!({ "requestId": 2 });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel });
    let mut ask = web.in_session(&theirs, &cancel);
    assert_eq!(ask.token(&web.tokens[1]).send().await.status, 202);
    let mut ask = web.in_session(&mine, &cancel);
    assert_eq!(ask.token(&web.tokens[1]).send().await.status, 404);
    web.demo.open.send_replace(true);
    assert_eq!(TestResponse::whole(held).await.text(), "waited");
}

#[tokio::test]
async fn f08_requests_without_a_session_share_no_state() {
    let mut web = TestServer::start().await;
    let ask = |tool: &str, arguments: Value| {
        web.stateless("tools/call", &json!({ "name": tool, "arguments": arguments }))
    };
    let whoami = ask("whoami", json!({}));
    let (first, second) = (whoami.send().await.text(), whoami.send().await.text());
    assert_ne!(first, second);
    // The state of an ended request cannot be named, not even with its id.
    for id in [first.as_str(), second.as_str(), "", "00000000000000000000000000000000"] {
        let refused = ask("whoami", json!({ "state": id })).send().await.rpc();
        assert_eq!(refused["result"]["isError"], true, "{refused}");
        assert!(refused.to_string().contains("`state` is unknown"), "{refused}");
    }

    // The control: a request that keeps its state gets an id, and only this id finds the state.
    let kept = ask("keep", json!({})).send().await.text();
    let own = ask("whoami", json!({ "state": kept }));
    assert_eq!(own.send().await.text(), kept);
    assert_eq!(own.send().await.text(), kept);
    assert_ne!(whoami.send().await.text(), kept);
    let mut stolen = own.clone();
    let refused = stolen.token(&web.tokens[1]).send().await.rpc();
    assert_eq!(refused["result"]["isError"], true, "another token: {refused}");
    assert_eq!(web.in_session(&kept, &call(2, "whoami")).send().await.status, 404);
    // The control: the calls of a session share its state.
    let session = web.session(&web.tokens[0]).await;
    for id in 2..4 {
        assert_eq!(web.in_session(&session, &call(id, "whoami")).send().await.text(), session);
    }
    // The service is told that the requests have ended, so that it can remove their state.
    let mut closed = BTreeSet::from([format!("closed {first}"), format!("closed {second}")]);
    while !closed.is_empty() {
        closed.remove(&web.events.recv().await.unwrap());
    }
}

#[tokio::test]
async fn f14_kept_state_of_requests_without_a_session_is_limited_per_token() {
    let web = TestServer::with(|options| options.limits.sessions = 2).await;
    let keep = web.stateless("tools/call", &json!({ "name": "keep", "arguments": {} }));
    let is_known = async |id: &str| {
        let arguments = json!({ "state": id });
        let ask = json!({ "name": "whoami", "arguments": arguments });
        let answer = web.stateless("tools/call", &ask).send().await;
        answer.rpc()["result"]["isError"] != true
    };
    let first = keep.send().await.text();
    let second = keep.send().await.text();
    assert!(is_known(&first).await && is_known(&second).await, "control: two are within the limit");
    let third = keep.send().await.text();
    // The state ends after the response was sent.
    while is_known(&first).await && is_known(&second).await {}
    assert!(is_known(&third).await);
}

#[tokio::test]
async fn f14_running_calls_without_a_session_are_limited_per_token() {
    let mut web = TestServer::with(|options| options.limits.calls = 1).await;
    let wait = web.stateless("tools/call", &json!({ "name": "wait", "arguments": {} }));
    let held = wait.open().await;
    while !web.events.recv().await.unwrap().ends_with("wait") {}
    let refused = wait.send().await.rpc();
    assert!(refused["error"]["message"].as_str().unwrap().contains("too many calls"), "{refused}");
    let mut other = wait.clone();
    let other = other.token(&web.tokens[1]).open().await;
    while !web.events.recv().await.unwrap().ends_with("wait") {}
    web.demo.open.send_replace(true);
    assert_eq!(TestResponse::whole(held).await.text(), "waited");
    assert_eq!(TestResponse::whole(other).await.text(), "waited");
}

#[tokio::test]
async fn f17_a_server_that_other_machines_can_reach_refuses_to_start_without_tls() {
    let dir = tempfile::tempdir().unwrap();
    let serve = async |address: &str, tls: bool| {
        let token = belljar_gateway::Token::generate().unwrap();
        let mut options = HttpOptions::new(Tokens::new([&token]), Caller::local(1000));
        options.tls = tls.then(|| certificate(dir.path()).1);
        let listener = std::net::TcpListener::bind(address).unwrap();
        // Stopped before it starts: the test only checks whether it starts.
        let stop = CancellationToken::new();
        stop.cancel();
        belljar_gateway::http(crate::server::DemoService::new().0, listener, options, stop).await
    };
    let refused = serve("0.0.0.0:0", false).await.unwrap_err();
    assert!(refused.to_string().contains("unencrypted"), "{refused}");
    serve("0.0.0.0:0", true).await.unwrap();
    serve("127.0.0.1:0", false).await.unwrap();
}

#[tokio::test]
async fn f17_a_session_id_chosen_by_a_client_is_refused() {
    let web = TestServer::start().await;
    let chosen = "00000000000000000000000000000000";
    let mut ask = web.post(&initialize("2025-11-25"));
    ask.set("Mcp-Session-Id", chosen);
    let answer = ask.send().await;
    assert_eq!(answer.status, 404, "{answer:?}");
    assert_eq!(answer.header("mcp-session-id"), None);
    assert_eq!(web.in_session(chosen, &call(2, "whoami")).send().await.status, 404);
    let mut seen = BTreeSet::new();
    for _ in 0..8 {
        let id = web.session(&web.tokens[0]).await;
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert!(seen.insert(id));
    }
}

#[tokio::test]
async fn f14_bodies_that_are_too_large_too_deep_or_not_json_are_refused() {
    let web = TestServer::start().await;
    let post = |body: Vec<u8>| {
        let mut ask = web.post(&json!({}));
        ask.body = body;
        ask
    };
    let huge = post(vec![b' '; 4 * 1024 * 1024 + 1]);
    assert_eq!(huge.send().await.status, 413);
    // A false length is refused as well.
    let mut stream = TcpStream::connect(web.addr).await.unwrap();
    let head = format!("{}Content-Length: 99999999999\r\n\r\n", huge.head());
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(TestResponse::head(&mut stream).await.status, 413);
    let mut stream = TcpStream::connect(web.addr).await.unwrap();
    let head = format!("{}Transfer-Encoding: chunked\r\n\r\n", huge.head());
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("100000\r\n{}\r\n", " ".repeat(0x10_0000));
    for _ in 0..5 {
        drop(stream.write_all(chunk.as_bytes()).await);
    }
    assert_eq!(TestResponse::head(&mut stream).await.status, 413);

    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let inside = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{nested}}}"#);
    for body in [nested, inside, "{".to_owned(), String::new(), "\u{0}".to_owned()] {
        let answer = post(body.into_bytes()).send().await;
        assert_eq!((answer.status, answer.rpc()["error"]["code"].clone()), (400, json!(-32700)));
    }
    // A compressed body is not decompressed.
    let mut packed = post(b"\x1f\x8b\x08\x00\x00\x00\x00\x00".to_vec());
    assert_eq!(packed.set("Content-Encoding", "gzip").send().await.status, 400);
    let batch = format!("[{},{}]", call(1, "whoami"), call(2, "whoami"));
    let answer = post(batch.into_bytes()).send().await;
    assert_eq!((answer.status, answer.rpc()["error"]["code"].clone()), (400, json!(-32600)));
    control(&web).await;
}

#[tokio::test]
async fn f14_a_slow_request_times_out() {
    let soon = Duration::from_millis(200);
    let web = TestServer::with(|options| {
        options.limits.read = soon;
        options.limits.head = soon;
    })
    .await;
    let ask = web.post(&initialize("2025-11-25"));
    let mut body = TcpStream::connect(web.addr).await.unwrap();
    let head = format!("{}Content-Length: 500\r\n\r\n{{", ask.head());
    body.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(TestResponse::head(&mut body).await.status, 408);

    let mut head = TcpStream::connect(web.addr).await.unwrap();
    head.write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
    let mut rest = Vec::new();
    drop(head.read_to_end(&mut rest).await);
    assert!(!String::from_utf8_lossy(&rest).contains("200"), "{rest:?}");
    control(&web).await;
}

/// Returns the body of a response on a connection that stays open.
async fn body_of(stream: &mut TcpStream) -> String {
    let head = TestResponse::head(stream).await;
    assert_eq!(head.status, 200, "{head:?}");
    let mut body = vec![0; head.header("content-length").unwrap().parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    String::from_utf8(body).unwrap()
}

/// Waits until the server closes a connection without a response.
async fn is_closed_silently(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    // A reset connection is closed as well.
    drop(stream.read_to_end(&mut rest).await);
    rest.is_empty()
}

#[tokio::test]
async fn f14_a_connection_above_the_limit_waits_until_another_closes() {
    let mut web = TestServer::with(|options| options.limits.connections = 2).await;
    let wait = web.stateless("tools/call", &json!({ "name": "wait", "arguments": {} }));
    let mut other = wait.clone();
    other.token(&web.tokens[1]);
    // A request runs on each of the two connections.
    let (first, second) = (wait.open().await, other.open().await);
    for _ in 0..2 {
        while !web.events.recv().await.unwrap().ends_with("wait") {}
    }
    let mut third = web.stateless("tools/list", &json!({}));
    let mut third = third.token(&web.tokens[1]).open().await;
    drop(second);
    while !web.events.recv().await.unwrap().starts_with("cancelled") {}
    assert_eq!(TestResponse::head(&mut third).await.status, 200);
    web.demo.open.send_replace(true);
    assert_eq!(TestResponse::whole(first).await.text(), "waited", "a busy connection is kept");
}

#[tokio::test]
async fn f14_silent_connections_do_not_keep_a_client_with_a_token_out() {
    let hour = Duration::from_secs(3600);
    let web = TestServer::with(|options| {
        options.limits.connections = 8;
        // No timeout helps: only the eviction of silent connections does.
        options.limits.first_token = hour;
        options.limits.head = hour;
    })
    .await;
    let mut list = web.stateless("tools/list", &json!({}));
    list.set("Connection", "keep-alive");
    let mut client = list.open().await;
    body_of(&mut client).await;
    let mut silent = Vec::new();
    for number in 0..40 {
        let mut stream = TcpStream::connect(web.addr).await.unwrap();
        if number % 2 == 0 {
            drop(stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n").await);
        }
        silent.push(stream);
    }
    // A new client is served at once, and the connection of the first one is still open.
    control(&web).await;
    client.write_all(&list.bytes()).await.unwrap();
    body_of(&mut client).await;
    assert!(is_closed_silently(&mut silent[0]).await, "the oldest silent connection is closed");
}

#[tokio::test]
async fn f14_a_connection_without_a_valid_token_is_closed_early() {
    let web = TestServer::with(|options| {
        options.limits.first_token = Duration::from_millis(300);
        options.limits.head = Duration::from_secs(3600);
    })
    .await;
    let mut list = web.stateless("tools/list", &json!({}));
    list.set("Connection", "keep-alive");
    let mut client = list.open().await;
    body_of(&mut client).await;
    let mut silent = TcpStream::connect(web.addr).await.unwrap();
    let mut wrong = list.clone();
    let mut wrong = wrong.token(&belljar_gateway::Token::generate().unwrap()).open().await;
    assert_eq!(TestResponse::head(&mut wrong).await.status, 401);
    assert!(is_closed_silently(&mut silent).await);
    let mut rest = Vec::new();
    drop(wrong.read_to_end(&mut rest).await);
    // The control: a connection with a valid token stays open beyond that time.
    client.write_all(&list.bytes()).await.unwrap();
    body_of(&mut client).await;
}

#[tokio::test]
async fn f14_running_requests_of_one_token_do_not_keep_another_token_out() {
    let mut web = TestServer::with(|options| {
        options.limits.connections = 8;
        options.limits.calls = 100;
    })
    .await;
    let wait = web.stateless("tools/call", &json!({ "name": "wait", "arguments": {} }));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(wait.open().await);
        while !web.events.recv().await.unwrap().ends_with("wait") {}
    }
    let refused = wait.send().await;
    assert_eq!(refused.status, 429, "{refused:?}");
    let mut other = web.stateless("tools/list", &json!({}));
    assert_eq!(other.token(&web.tokens[1]).send().await.status, 200);
    web.demo.open.send_replace(true);
    for stream in held {
        assert_eq!(TestResponse::whole(stream).await.text(), "waited");
    }
    assert_eq!(wait.send().await.text(), "waited", "control: an ended request makes room");
}

#[tokio::test]
async fn f14_a_new_session_ends_the_longest_idle_session_of_its_token() {
    let mut web = TestServer::with(|options| options.limits.sessions = 2).await;
    let other = web.session(&web.tokens[1]).await;
    let (first, second) = (web.session(&web.tokens[0]).await, web.session(&web.tokens[0]).await);
    let is_open = async |web: &TestServer, id: &str| {
        web.in_session(id, &call(2, "whoami")).send().await.status == 200
    };
    // The first session is used later than the second one.
    assert!(is_open(&web, &first).await);
    let third = web.session(&web.tokens[0]).await;
    while web.events.recv().await.unwrap() != format!("closed {second}") {}
    assert!(!is_open(&web, &second).await);
    assert!(is_open(&web, &first).await && is_open(&web, &third).await);
    let mut ask = web.in_session(&other, &call(2, "whoami"));
    assert_eq!(ask.token(&web.tokens[1]).send().await.text(), other, "the control: another token");
}

#[tokio::test]
async fn f14_sessions_streams_and_calls_of_one_token_are_limited() {
    let mut web = TestServer::with(|options| {
        options.limits.sessions = 2;
        options.limits.streams = 1;
        options.limits.calls = 1;
    })
    .await;
    let (first, second) = (web.session(&web.tokens[0]).await, web.session(&web.tokens[0]).await);
    // Sessions with an open stream are busy, so none of them ends for a new one.
    let stream_of = |id: &str| {
        let mut stream = web.ask("GET", "");
        stream.set("Mcp-Session-Id", id);
        stream
    };
    let (mut busy, mut also_busy) =
        (stream_of(&first).open().await, stream_of(&second).open().await);
    assert_eq!(TestResponse::head(&mut busy).await.status, 200);
    assert_eq!(TestResponse::head(&mut also_busy).await.status, 200);
    let third = web.post(&initialize("2025-11-25")).send().await;
    assert_eq!(third.status, 429);
    assert!(third.body.contains("DELETE"), "{third:?}");
    // Another token has its own limit.
    web.session(&web.tokens[1]).await;
    let mut gone = web.ask("DELETE", "");
    assert_eq!(gone.set("Mcp-Session-Id", &second).send().await.status, 204);
    web.session(&web.tokens[0]).await;
    drop(busy);

    let mut stream = web.ask("GET", "");
    stream.set("Mcp-Session-Id", &first);
    // The server notices the closed stream after a while.
    let open = loop {
        let mut open = stream.open().await;
        if TestResponse::head(&mut open).await.status == 200 {
            break open;
        }
    };
    assert_eq!(stream.send().await.status, 429);
    drop(open);
    loop {
        let mut again = stream.open().await;
        if TestResponse::head(&mut again).await.status == 200 {
            break;
        }
    }

    let held = web.in_session(&first, &call(2, "wait")).open().await;
    while web.events.recv().await.unwrap() != format!("called {first} wait") {}
    let refused = web.in_session(&first, &call(3, "wait")).send().await.rpc();
    assert!(refused["error"]["message"].as_str().unwrap().contains("too many calls"), "{refused}");
    web.demo.open.send_replace(true);
    assert_eq!(TestResponse::whole(held).await.text(), "waited");
}

#[tokio::test]
async fn f14_malformed_bytes_on_one_connection_do_not_affect_others() {
    let web = TestServer::start().await;
    let mut good = web.post(&initialize("2025-11-25"));
    good.set("Connection", "keep-alive");
    for garbage in [
        b"\x16\x03\x01\x02\x00\x01\x00".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n bad: folded\r\n\r\n".to_vec(),
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"
            .to_vec(),
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_vec(),
        format!("GET /mcp HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(10_000)).into_bytes(),
        format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(100_000)).into_bytes(),
        vec![0; 100_000],
    ] {
        // The garbage follows a valid request, whose response comes first.
        let mut stream = TcpStream::connect(web.addr).await.unwrap();
        stream.write_all(&good.bytes()).await.unwrap();
        drop(stream.write_all(&garbage).await);
        drop(stream.shutdown().await);
        let mut all = Vec::new();
        drop(stream.read_to_end(&mut all).await);
        let all = String::from_utf8_lossy(&all);
        assert_eq!(all.matches("HTTP/1.1 200").count(), 1, "{all}");
    }
    control(&web).await;
    let session = web.session(&web.tokens[0]).await;
    let ping = web.in_session(&session, &request(2, "ping", &json!({}))).send().await;
    assert_eq!(ping.rpc()["result"], json!({}));
}
