//! Tests of one client on a pair of streams.

use std::sync::Arc;

use belljar_gateway::ServeError;
use belljar_model::Caller;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::task::JoinHandle;

use crate::client::{call, initialize, request, stateless};
use crate::server::{DemoService, Events};

/// An MCP client and a server, connected by in-memory streams.
struct Pipe {
    input: WriteHalf<DuplexStream>,
    output: BufReader<ReadHalf<DuplexStream>>,
    demo: Arc<DemoService>,
    events: Events,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Pipe {
    fn start() -> Self {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (read, write) = tokio::io::split(theirs);
        let (demo, events) = DemoService::new();
        let task = tokio::spawn({
            let demo = Arc::clone(&demo);
            async move { belljar_gateway::streams(demo, &Caller::local(1000), read, write).await }
        });
        let (output, input) = tokio::io::split(ours);
        Self { input, output: BufReader::new(output), demo, events, task }
    }

    async fn send_line(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string()).await;
    }

    async fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
    }

    async fn request(&mut self, message: &Value) -> Value {
        self.send(message).await;
        self.receive().await
    }
}

#[tokio::test]
async fn a_client_of_any_supported_revision_is_served_on_streams() {
    for version in ["2025-06-18", "2025-11-25"] {
        let mut pipe = Pipe::start();
        let hello = pipe.request(&initialize(version)).await;
        assert_eq!(hello["result"]["protocolVersion"], version);
        assert_eq!(hello["result"]["instructions"], "Call echo.");
        pipe.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        let tools = pipe.request(&request(2, "tools/list", &json!({}))).await;
        assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 7);
        assert_eq!(tools["result"].get("ttlMs"), None, "{tools}");
        assert_eq!(pipe.request(&request(3, "ping", &json!({}))).await["result"], json!({}));
    }
    let mut pipe = Pipe::start();
    let found = pipe.request(&stateless("server/discover", json!({}))).await;
    assert_eq!(found["result"]["resultType"], "complete", "{found}");
    let tools = pipe.request(&stateless("tools/list", json!({}))).await;
    assert_eq!(tools["result"]["cacheScope"], "private", "{tools}");
}

#[tokio::test]
async fn f14_no_malformed_line_ends_the_server() {
    let mut pipe = Pipe::start();
    // Once before the first request and once after it.
    for round in [1, 2] {
        for (line, code) in [
            ("{", -32700),
            ("\u{1b}[2J", -32700),
            ("[]", -32600),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
            ("null", -32600),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":5}"#, -32600),
        ] {
            pipe.send_line(line).await;
            assert_eq!(pipe.receive().await["error"]["code"], code, "{line}");
        }
        pipe.send_line(&"[".repeat(1_000_000)).await;
        assert_eq!(pipe.receive().await["error"]["code"], -32700);
        pipe.send_line(&format!("\"{}\"", "x".repeat(4 * 1024 * 1024))).await;
        assert_eq!(pipe.receive().await["error"]["code"], -32600);
        pipe.input.write_all(b"\xff\xfe\x00\n\n  \n").await.unwrap();
        assert_eq!(pipe.receive().await["error"]["code"], -32700);
        // Notifications without effect, and responses without a request.
        pipe.send_line(r#"{"jsonrpc":"2.0","method":"notifications/of/tomorrow"}"#).await;
        pipe.send_line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}"#).await;
        pipe.send_line(r#"{"jsonrpc":"2.0","id":77,"result":{}}"#).await;
        pipe.send_line(r#"{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"x"}}"#).await;
        // The control: the server still answers.
        let hello = pipe.request(&initialize("2025-11-25")).await;
        assert_eq!(hello["result"]["serverInfo"]["name"], "demo", "{round}");
    }
}

#[tokio::test]
async fn a_long_call_does_not_block_others_and_can_be_cancelled() {
    let mut pipe = Pipe::start();
    pipe.request(&initialize("2025-11-25")).await;
    pipe.send(&call(2, "wait")).await;
    while !pipe.events.recv().await.unwrap().ends_with("wait") {}
    assert_eq!(pipe.request(&request(3, "ping", &json!({}))).await["id"], 3);
    assert_eq!(pipe.request(&call(4, "whoami")).await["id"], 4);
    let cancel = json!({ "requestId": 2 });
    pipe.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel }))
        .await;
    while !pipe.events.recv().await.unwrap().starts_with("cancelled") {}
    // A cancelled call gets no response.
    assert_eq!(pipe.request(&request(5, "ping", &json!({}))).await["id"], 5);

    pipe.send(&call(6, "wait")).await;
    pipe.demo.open.send_replace(true);
    assert_eq!(pipe.receive().await["result"]["content"][0]["text"], "waited");
}

#[tokio::test]
async fn progress_of_a_call_is_sent_before_its_response() {
    let mut pipe = Pipe::start();
    pipe.request(&initialize("2025-11-25")).await;
    let mut count = call(2, "count");
    count["params"]["_meta"] = json!({ "progressToken": 9 });
    pipe.send(&count).await;
    for word in ["one", "two", "three"] {
        let progress = pipe.receive().await;
        assert_eq!(progress["method"], "notifications/progress");
        assert_eq!(progress["params"]["message"], word);
        assert_eq!(progress["params"]["progressToken"], 9);
    }
    assert_eq!(pipe.receive().await["id"], 2);
}

#[tokio::test(start_paused = true)]
async fn calls_can_finish_after_the_end_of_the_input_and_then_are_cancelled() {
    let mut pipe = Pipe::start();
    pipe.send(&initialize("2025-11-25")).await;
    pipe.send(&call(2, "whoami")).await;
    pipe.input.shutdown().await.unwrap();
    assert_eq!(pipe.receive().await["id"], 1);
    let session = pipe.receive().await["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    pipe.task.await.unwrap().unwrap();
    let mut events = Vec::new();
    drop(pipe.demo);
    while let Some(event) = pipe.events.recv().await {
        events.push(event);
    }
    assert_eq!(events.last().unwrap(), &format!("closed {session}"));

    let mut pipe = Pipe::start();
    pipe.send(&call(2, "wait")).await;
    pipe.input.shutdown().await.unwrap();
    pipe.task.await.unwrap().unwrap();
    drop(pipe.demo);
    let mut events = Vec::new();
    while let Some(event) = pipe.events.recv().await {
        events.push(event.split(' ').next().unwrap().to_owned());
    }
    assert_eq!(events, ["called", "cancelled", "closed"]);
}

#[tokio::test]
async fn f14_a_call_above_the_limit_of_running_calls_is_refused() {
    let mut pipe = Pipe::start();
    pipe.request(&initialize("2025-11-25")).await;
    for id in 10..42 {
        pipe.send(&call(id, "wait")).await;
    }
    for _ in 10..42 {
        pipe.events.recv().await.unwrap();
    }
    let refused = pipe.request(&call(99, "wait")).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("too many calls"), "{refused}");
    pipe.demo.open.send_replace(true);
    for _ in 10..42 {
        assert_eq!(pipe.receive().await["result"]["content"][0]["text"], "waited");
    }
    assert_eq!(pipe.request(&call(100, "wait")).await["id"], 100);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]
    #[test]
    fn f14_a_ping_is_answered_after_any_input_lines(lines in proptest::collection::vec(line(), 0..8)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut pipe = Pipe::start();
            for line in &lines {
                pipe.input.write_all(line).await.unwrap();
                pipe.input.write_all(b"\n").await.unwrap();
            }
            pipe.send(&request(987_654, "ping", &json!({}))).await;
            while pipe.receive().await["id"] != 987_654 {}
        });
    }
}

/// Generates random bytes or an almost valid message.
fn line() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::prelude::*;
    let id =
        prop_oneof![Just("1"), Just("\"a\""), Just("null"), Just("1.5"), Just("{}"), Just("[]")];
    let method = prop_oneof![
        Just("initialize"),
        Just("tools/call"),
        Just("tools/list"),
        Just("server/discover"),
        Just("notifications/cancelled"),
        Just("notifications/initialized"),
        Just("subscriptions/listen"),
        Just("tasks/get"),
        Just("completion/complete"),
        Just("logging/setLevel"),
    ];
    let params = prop_oneof![
        Just("{}"),
        Just("[]"),
        Just("null"),
        Just("7"),
        Just(r#"{"name":"count","_meta":{"progressToken":1}}"#),
        Just(r#"{"name":"break","arguments":[]}"#),
        Just(r#"{"requestId":1,"_meta":7}"#),
        Just(r#"{"protocolVersion":"x","capabilities":{},"clientInfo":{"name":"","version":""}}"#),
        Just(r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#),
    ];
    let nearly = (id, method, params).prop_map(|(id, method, params)| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
            .into_bytes()
    });
    prop_oneof![proptest::collection::vec(proptest::num::u8::ANY, 0..60), nearly]
}
