//! The bridge from JSON-RPC lines to an MCP server over HTTP.

use std::net::{IpAddr, Ipv4Addr};

use belljar_testkit::{Received, Reply, Upstream};
use belljar_wire::HttpServerJob;
use belljar_worker::runtime::bridge;
use serde_json::{Value, json};

fn serve(
    handler: impl Fn(&Received) -> Reply + Send + Sync + 'static,
) -> (Upstream, HttpServerJob) {
    let upstream = Upstream::plain(handler);
    let url = format!("https://mcp.example.com:{}/mcp", upstream.address().port());
    let headers = vec![("authorization".to_owned(), "Bearer x".to_owned())];
    (upstream, HttpServerJob { url, headers })
}

/// Sends these messages through the bridge and returns the responses.
fn forward(bridge: &HttpServerJob, lines: &[Value]) -> Vec<Value> {
    let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    forward_text(bridge, &lines.concat())
}

fn forward_text(bridge: &HttpServerJob, input: &str) -> Vec<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut output = Vec::new();
    let door = IpAddr::V4(Ipv4Addr::LOCALHOST);
    runtime.block_on(bridge::run(door, bridge, input.as_bytes(), &mut output)).unwrap();
    let output = String::from_utf8(output).unwrap();
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn answer(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn json_reply(message: &Value) -> Reply {
    // Pretty-printed, so that a single line of it is not a message.
    Reply::new(200, serde_json::to_string_pretty(message).unwrap())
        .header("content-type", "application/json; charset=utf-8")
}

fn events(text: &str) -> Reply {
    Reply::new(200, text).header("content-type", "text/event-stream")
}

#[test]
fn bridge_keeps_and_closes_the_mcp_session() {
    let (upstream, bridge) = serve(|received| {
        let message: Value = serde_json::from_slice(&received.body).unwrap_or_default();
        match message["method"].as_str() {
            Some("initialize") => {
                json_reply(&answer(&message["id"], &json!({"protocolVersion": "2025-11-25"})))
                    .header("mcp-session-id", "s1")
            }
            Some("tools/list") => {
                let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress"});
                let last = answer(&message["id"], &json!({"tools": []}));
                events(&format!("event: message\ndata: {progress}\n\ndata: {last}\n\n"))
            }
            Some(_) => Reply { chunks: Vec::new(), ..Reply::new(202, "") },
            None if received.method == "GET" => Reply::new(405, ""),
            None => Reply::new(200, ""),
        }
    });
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let lines = [
        request(1, "initialize", &json!({"protocolVersion": "2025-11-25"})),
        initialized,
        request(2, "tools/list", &json!({})),
    ];
    // Like a client, which sends nothing before `initialize` is answered.
    let (client, server) = tokio::io::duplex(65536);
    let got = converse(&bridge, client, server, &lines);
    assert_eq!(
        got,
        [
            answer(&json!(1), &json!({"protocolVersion": "2025-11-25"})),
            json!({"jsonrpc": "2.0", "method": "notifications/progress"}),
            answer(&json!(2), &json!({"tools": []})),
        ]
    );
    let received = upstream.received();
    let methods: Vec<&str> = received.iter().map(|it| it.method.as_str()).collect();
    assert_eq!((methods.first(), methods.last()), (Some(&"POST"), Some(&"DELETE")), "{methods:?}");
    assert!(received.iter().all(|it| it.header("authorization") == Some("Bearer x")));
    assert_eq!(received[0].header("mcp-session-id"), None);
    for later in &received[1..] {
        assert_eq!(later.header("mcp-session-id"), Some("s1"), "{later:?}");
        assert_eq!(later.header("mcp-protocol-version"), Some("2025-11-25"), "{later:?}");
    }
}

/// Sends each line to the bridge after the response to the request before it.
fn converse(
    bridge: &HttpServerJob,
    client: tokio::io::DuplexStream,
    server: tokio::io::DuplexStream,
    lines: &[Value],
) -> Vec<Value> {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (input, output) = tokio::io::split(server);
    let (hear, mut say) = tokio::io::split(client);
    let mut hear = BufReader::new(hear).lines();
    runtime.block_on(async {
        let door = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let client = async {
            let mut got: Vec<Value> = Vec::new();
            for line in lines {
                say.write_all(format!("{line}\n").as_bytes()).await.unwrap();
                while line.get("id").is_some()
                    && got.last().and_then(|it| it.get("id")) != line.get("id")
                {
                    let heard = hear.next_line().await.unwrap().unwrap();
                    got.push(serde_json::from_str(&heard).unwrap());
                }
            }
            say.shutdown().await.unwrap();
            got
        };
        let (passed, got) =
            tokio::join!(bridge::run(door, bridge, BufReader::new(input), output), client);
        passed.unwrap();
        got
    })
}

#[test]
fn bridge_sends_method_and_name_headers_without_a_session() {
    let (upstream, bridge) = serve(|received| {
        let message: Value = serde_json::from_slice(&received.body).unwrap();
        json_reply(&answer(&message["id"], &json!({"resultType": "complete"})))
    });
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let lines = [
        request(1, "tools/call", &json!({"name": "add", "arguments": {}, "_meta": meta})),
        request(2, "server/discover", &json!({"_meta": meta})),
        request(3, "resources/read", &json!({"uri": "x://y", "_meta": meta})),
    ];
    let mut got = forward(&bridge, &lines);
    got.sort_by_key(|it| it["id"].as_u64());
    assert_eq!(got.len(), 3, "{got:?}");
    let mut heads: Vec<[Option<String>; 4]> = upstream
        .received()
        .iter()
        .map(|it| {
            ["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id"]
                .map(|name| it.header(name).map(str::to_owned))
        })
        .collect();
    heads.sort();
    let head = |method: &str, name: Option<&str>| {
        [Some("2026-07-28".to_owned()), Some(method.to_owned()), name.map(str::to_owned), None]
    };
    assert_eq!(
        heads,
        [
            head("resources/read", Some("x://y")),
            head("server/discover", None),
            head("tools/call", Some("add"))
        ]
    );
}

#[test]
fn bridge_answers_every_request_even_if_the_server_fails() {
    let (_upstream, bridge) = serve(|received| {
        let message: Value = serde_json::from_slice(&received.body).unwrap();
        let id = &message["id"];
        match message["method"].as_str().unwrap() {
            "gone" => Reply::new(404, "no such session"),
            "page" => Reply::new(502, "<html>").header("content-type", "text/html"),
            "wrong" => json_reply(
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "own words"}}),
            ),
            "silent" => {
                events("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n")
            }
            "refused" => {
                Reply::new(403, "belljar: no rule allows it\n").header("x-belljar", "no-rule")
            }
            "garbage" => Reply::new(200, "{").header("content-type", "application/json"),
            _ => Reply { chunks: Vec::new(), ..Reply::new(202, "") },
        }
    });
    for (method, expected) in [
        ("gone", "the server responded 404 Not Found: no such session"),
        ("page", "the server responded 502 Bad Gateway: <html>"),
        ("wrong", "own words"),
        ("silent", "the server closed its response without a result"),
        ("refused", "no rule allows it"),
        ("garbage", "the server responded 200 OK with an invalid message"),
        ("accepted", "the server closed its response without a result"),
    ] {
        let got = forward(&bridge, &[request(7, method, &json!({}))]);
        let last = got.last().unwrap();
        let message = last["error"]["message"].as_str().unwrap_or_default();
        assert!(last["id"] == 7 && message.starts_with(expected), "{method}: {got:?}");
    }
    let got =
        forward_text(&bridge, "nonsense\n\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n");
    assert_eq!(got.len(), 1, "{got:?}");
    assert_eq!(got[0]["error"]["code"], -32700);
}

#[test]
fn bridge_resumes_an_interrupted_stream() {
    let (upstream, bridge) = serve(|received| match received.header("last-event-id") {
        None => events("id: e1\nretry: 1\ndata:\n\n"),
        Some("e1") => events("id: e2\ndata:\n\n"),
        Some(_) => events(&format!("data: {}\n\n", answer(&json!(1), &json!("late")))),
    });
    let got = forward(&bridge, &[request(1, "tools/call", &json!({"name": "slow"}))]);
    assert_eq!(got, [answer(&json!(1), &json!("late"))]);
    let methods: Vec<String> = upstream.received().into_iter().map(|it| it.method).collect();
    assert_eq!(methods, ["POST", "GET", "GET"]);
}
