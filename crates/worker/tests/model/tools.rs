//! Calls of tools, with a scripted server for each protocol and a real second worker.

use std::path::Path;

use belljar_testkit::Reply;
use belljar_wire::{InputSource, ModelInput, ModelJob, ModelProtocol, ToolJob};
use serde_json::{Value, json};

use super::server::{ALL, Asked, Server, ask_in, events, quick, stream};

/// All tools, with no rules.
fn tools(turns: u32) -> ToolJob {
    let names = ["shell", "read", "write", "edit", "glob", "grep", "fetch", "execute_code"];
    ToolJob {
        names: names.map(str::to_owned).to_vec(),
        turns,
        memory: 1 << 28,
        allow: Vec::new(),
        ask: Vec::new(),
        deny: Vec::new(),
        skips_all: true,
    }
}

/// Returns the stream of an answer with calls, each with its arguments in two parts.
fn calls(protocol: ModelProtocol, calls: &[(&str, String)]) -> String {
    let data = |events: &[Value]| -> String {
        events.iter().map(|event| format!("data: {event}\n\n")).collect()
    };
    let halves = |text: &str| {
        let (first, second) = text.split_at(text.floor_char_boundary(text.len() / 2));
        [first.to_owned(), second.to_owned()]
    };
    let mut stream = Vec::new();
    match protocol {
        ModelProtocol::Anthropic => {
            stream.push(json!({"type": "message_start", "message": {"model": "answering", "usage": {"input_tokens": 7, "output_tokens": 1}}}));
            for (index, (name, arguments)) in calls.iter().enumerate() {
                let block = json!({"type": "tool_use", "id": format!("id_{index}"), "name": name, "input": {}});
                stream.push(
                    json!({"type": "content_block_start", "index": index, "content_block": block}),
                );
                for part in halves(arguments) {
                    let delta = json!({"type": "input_json_delta", "partial_json": part});
                    stream.push(
                        json!({"type": "content_block_delta", "index": index, "delta": delta}),
                    );
                }
                stream.push(json!({"type": "content_block_stop", "index": index}));
            }
            stream.push(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}}));
            stream.push(json!({"type": "message_stop"}));
            data(&stream)
        }
        ModelProtocol::OpenAiChat => {
            let chunk = |delta: Value, reason: Option<&str>| json!({"model": "answering", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
            for (index, (name, arguments)) in calls.iter().enumerate() {
                let [first, second] = halves(arguments);
                let call = json!({"index": index, "id": format!("id_{index}"), "type": "function", "function": {"name": name, "arguments": first}});
                stream.push(chunk(json!({"tool_calls": [call]}), None));
                let more = json!({"index": index, "function": {"arguments": second}});
                stream.push(chunk(json!({"tool_calls": [more]}), None));
            }
            stream.push(chunk(json!({}), Some("tool_calls")));
            stream.push(
                json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}),
            );
            data(&stream) + "data: [DONE]\n\n"
        }
        ModelProtocol::OpenAiResponses => {
            let items: Vec<Value> = calls
                .iter()
                .enumerate()
                .map(|(index, (name, arguments))| {
                    json!({"type": "function_call", "id": "fc_1", "call_id": format!("id_{index}"), "name": name, "arguments": arguments})
                })
                .collect();
            let usage = json!({"input_tokens": 7, "output_tokens": 2});
            data(&[
                json!({"type": "response.function_call_arguments.delta", "delta": "ignored"}),
                json!({"type": "response.completed", "response": {"model": "answering", "usage": usage, "output": items}}),
            ])
        }
    }
}

fn call(protocol: ModelProtocol, name: &str, arguments: &Value) -> Reply {
    events(&calls(protocol, &[(name, arguments.to_string())]))
}

/// Returns the results of the last turn in the body of a request, with the ids of their calls.
fn results(protocol: ModelProtocol, body: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{body}")).to_owned();
    let (list, id, content) = match protocol {
        ModelProtocol::Anthropic => {
            let last = body["messages"].as_array().unwrap().last().unwrap();
            (last["content"].as_array().unwrap().clone(), "tool_use_id", "content")
        }
        ModelProtocol::OpenAiChat => {
            let messages = body["messages"].as_array().unwrap();
            let tools = messages.iter().filter(|it| it["role"] == "tool").cloned().collect();
            (tools, "tool_call_id", "content")
        }
        ModelProtocol::OpenAiResponses => {
            let items = body["input"].as_array().unwrap();
            let outputs = items.iter().filter(|it| it["type"] == "function_call_output");
            (outputs.cloned().collect(), "call_id", "output")
        }
    };
    list.iter().map(|it| (text(&it[id]), text(&it[content]))).collect()
}

/// Asks with tools in a directory, and returns the results that the server got in its last request.
fn used(
    dir: &Path,
    protocol: ModelProtocol,
    replies: Vec<Reply>,
    tools: ToolJob,
) -> (Asked, Vec<(String, String)>) {
    let server = Server::new(replies);
    let job = ModelJob { tools: Some(tools), ..server.job(protocol) };
    let asked = ask_in(dir, &job, &quick());
    let received = server.upstream.received();
    let body: Value = serde_json::from_slice(&received.last().unwrap().body).unwrap();
    let results = results(protocol, &body);
    (asked, results)
}

/// Carries out one call and returns its result.
#[track_caller]
fn one(dir: &Path, name: &str, arguments: &Value) -> String {
    with_rules(dir, name, arguments, tools(50))
}

#[track_caller]
fn with_rules(dir: &Path, name: &str, arguments: &Value, tools: ToolJob) -> String {
    let protocol = ModelProtocol::Anthropic;
    let replies = vec![call(protocol, name, arguments), events(&stream(protocol, "done"))];
    let (asked, mut results) = used(dir, protocol, replies, tools);
    assert_eq!(asked.text(), "done");
    assert_eq!(results.len(), 1);
    results.remove(0).1
}

#[test]
fn calls_and_results_have_the_form_of_each_protocol() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "content of a").unwrap();
    for protocol in ALL {
        let read = ("read", json!({"path": "a"}).to_string());
        let shell = ("shell", json!({"command": "echo gr\u{fc}n"}).to_string());
        let replies =
            vec![events(&calls(protocol, &[read, shell])), events(&stream(protocol, "done"))];
        let (asked, results) = used(dir.path(), protocol, replies, tools(50));
        assert_eq!(asked.text(), "done");
        let expected = [("id_0", "content of a"), ("id_1", "exit status 0\ngr\u{fc}n\n")];
        let expected = expected.map(|(id, text)| (id.to_owned(), text.to_owned()));
        assert_eq!(results, expected, "{protocol:?}");
        let answer = asked.result.as_ref().unwrap();
        assert_eq!((answer.turns, answer.usage.input, answer.usage.output), (2, 14, 4));
        assert!(asked.lines[1].starts_with("turn 1: shell {\"command\":"), "{:?}", asked.lines);
    }
}

#[test]
fn call_is_sent_back_to_the_server_as_the_model_made_it() {
    let dir = tempfile::tempdir().unwrap();
    for protocol in ALL {
        let arguments = json!({"pattern": "*"});
        let server = Server::new(vec![
            call(protocol, "glob", &arguments),
            events(&stream(protocol, "done")),
        ]);
        let job = ModelJob { tools: Some(tools(50)), ..server.job(protocol) };
        ask_in(dir.path(), &job, &quick());
        let received = server.upstream.received();
        let [first, second]: [Value; 2] =
            [0, 1].map(|at| serde_json::from_slice(&received[at].body).unwrap());
        assert_eq!(first["tools"], second["tools"]);
        let (name, back) = match protocol {
            ModelProtocol::Anthropic => {
                let used = &second["messages"][1]["content"][0];
                assert_eq!((&used["type"], &used["id"]), (&json!("tool_use"), &json!("id_0")));
                assert_eq!(used["input"], arguments);
                (&first["tools"][0]["name"], &used["name"])
            }
            ModelProtocol::OpenAiChat => {
                let message = &second["messages"][2];
                assert_eq!(
                    (&message["role"], &message["content"]),
                    (&json!("assistant"), &Value::Null)
                );
                let used = &message["tool_calls"][0];
                assert_eq!(used["function"]["arguments"], arguments.to_string());
                (&first["tools"][0]["function"]["name"], &used["function"]["name"])
            }
            ModelProtocol::OpenAiResponses => {
                let used = &second["input"][1];
                assert_eq!(used["arguments"], arguments.to_string());
                assert_eq!((&used["call_id"], used.get("id")), (&json!("id_0"), None));
                (&first["tools"][0]["name"], &used["name"])
            }
        };
        assert_eq!((name, back), (&json!("shell"), &json!("glob")));
    }
}

#[test]
fn every_tool_works() {
    let dir = tempfile::tempdir().unwrap();
    let one = |name: &str, arguments: Value| one(dir.path(), name, &arguments);
    assert_eq!(
        one("write", json!({"path": "src/a.txt", "content": "one\ntwo\n"})),
        "wrote 8 bytes"
    );
    assert_eq!(
        one("edit", json!({"path": "src/a.txt", "old": "two", "new": "2"})),
        "replaced 1 times"
    );
    assert_eq!(one("read", json!({"path": "src/a.txt"})), "one\n2\n");
    assert_eq!(one("glob", json!({"pattern": "**/*.txt"})), "src/a.txt");
    assert!(
        one("grep", json!({"pattern": "^O", "ignore_case": true})).ends_with("src/a.txt:1:one\n")
    );
    assert_eq!(one("grep", json!({"pattern": "^O"})), "no line matches");
    assert_eq!(
        one("shell", json!({"command": "cat src/a.txt; exit 4"})),
        "exit status 4\none\n2\n"
    );
    let code = "const n: number = 6; console.log('printed'); export default { n: n * 7 };";
    assert_eq!(one("execute_code", json!({ "code": code })), "printed\nresult: {\"n\":42}");
    let upstream = belljar_testkit::Upstream::plain(|_| Reply::new(200, "a page"));
    let url = format!("http://page.example.com:{}/x", upstream.address().port());
    assert_eq!(one("fetch", json!({ "url": url })), "status 200 OK\na page");
}

#[test]
fn bad_call_returns_an_error_to_the_model_and_the_task_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    for (name, arguments, expected) in [
        ("delete_everything", "{}", "there is no tool `delete_everything`; the tools are shell,"),
        ("read", "{\"path\": ", "the arguments are not valid JSON"),
        ("read", "[]", "the arguments are not valid"),
        ("read", "", "the arguments are not valid"),
        ("read", "{\"path\": 7}", "the arguments are not valid"),
        ("read", "{\"path\": \"a\", \"x\": 1}", "the arguments are not valid"),
        ("shell", "{\"command\": \"true\", \"timeout\": 100000}", "the arguments are not valid"),
        ("read", "{\"path\": \"none\"}", "cannot open"),
        ("grep", "{\"pattern\": \"(\"}", "error: "),
        ("fetch", "{\"url\": \"nonsense\"}", "the URL is not valid"),
        ("fetch", "{\"url\": \"file:///etc/passwd\"}", "only http: and https:"),
        ("execute_code", "{\"code\": \"throw new TypeError('no')\"}", "TypeError: no"),
        ("execute_code", "{\"code\": \"for (;;) {}\", \"timeout\": 1}", "killed after 1 s"),
    ] {
        for protocol in ALL {
            let replies = vec![
                events(&calls(protocol, &[(name, arguments.to_owned())])),
                events(&stream(protocol, "done")),
            ];
            let (asked, results) = used(dir.path(), protocol, replies, tools(50));
            assert_eq!(asked.text(), "done");
            let (_, text) = &results[0];
            assert!(text.starts_with("error: ") && text.contains(expected), "{name}: {text}");
        }
    }
}

#[test]
fn calls_in_single_bytes_are_read_from_a_real_connection() {
    let dir = tempfile::tempdir().unwrap();
    for protocol in ALL {
        let text = calls(protocol, &[("shell", json!({"command": "echo gr\u{fc}n"}).to_string())]);
        let mut reply = events("");
        reply.chunks = text.bytes().map(|byte| vec![byte]).collect();
        let replies = vec![reply, events(&stream(protocol, "done"))];
        let (asked, results) = used(dir.path(), protocol, replies, tools(50));
        assert_eq!(asked.text(), "done");
        assert_eq!(results, [("id_0".to_owned(), "exit status 0\ngr\u{fc}n\n".to_owned())]);
    }
}

#[test]
fn paused_answer_is_continued_in_the_next_turn() {
    let dir = tempfile::tempdir().unwrap();
    let protocol = ModelProtocol::Anthropic;
    let paused = |text: &str| events(&stream(protocol, text).replace("end_turn", "pause_turn"));
    let server =
        Server::new(vec![paused("one "), paused(" two"), events(&stream(protocol, " three"))]);
    let job = ModelJob { tools: Some(tools(50)), ..server.job(protocol) };
    let asked = ask_in(dir.path(), &job, &quick());
    assert_eq!(asked.text(), "one two three");
    let answer = asked.result.unwrap();
    assert_eq!((answer.turns, answer.usage.output), (3, 6));
    let last: Value = serde_json::from_slice(&server.upstream.received()[2].body).unwrap();
    let said: Vec<&str> = last["messages"].as_array().unwrap()[1..]
        .iter()
        .filter(|message| message["role"] == "assistant")
        .filter_map(|message| message["content"][0]["text"].as_str())
        .collect();
    assert_eq!(said, ["one", " two"]);
    // A pause without a text cannot be continued, and endless pauses stop at the last turn.
    for (reply, turns, kind, requests) in
        [(paused(""), 50, "invalid", 1), (paused("again"), 4, "turns", 4)]
    {
        let server = Server::new(vec![reply]);
        let job = ModelJob { tools: Some(tools(turns)), ..server.job(protocol) };
        assert_eq!(ask_in(dir.path(), &job, &quick()).failure().0, kind);
        assert_eq!(server.requests(), requests);
    }
}

#[test]
fn model_that_always_calls_a_tool_gets_fifty_turns() {
    let dir = tempfile::tempdir().unwrap();
    for protocol in ALL {
        let server = Server::new(vec![call(protocol, "glob", &json!({"pattern": "*"}))]);
        let job = ModelJob { tools: Some(tools(50)), ..server.job(protocol) };
        let asked = ask_in(dir.path(), &job, &quick());
        let (kind, message) = asked.failure();
        assert!(kind == "turns" && message.contains("after 50 turns"), "{message}");
        assert_eq!(server.requests(), 50);
    }
}

#[test]
fn endless_calls_stop_at_the_last_turn_with_a_named_failure() {
    let dir = tempfile::tempdir().unwrap();
    for protocol in ALL {
        let append = json!({"command": "echo x >> log"});
        let server = Server::new(vec![call(protocol, "shell", &append)]);
        let job = ModelJob { tools: Some(tools(3)), ..server.job(protocol) };
        let asked = ask_in(dir.path(), &job, &quick());
        assert_eq!(asked.failure().0, "turns");
        assert_eq!(server.requests(), 3);
    }
    // The calls of the last turn are not carried out.
    assert_eq!(std::fs::read_to_string(dir.path().join("log")).unwrap(), "x\n".repeat(6));
}

#[test]
fn flood_of_calls_and_of_output_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let protocol = ModelProtocol::Anthropic;
    let many: Vec<(&str, String)> =
        (0..40).map(|_| ("shell", json!({"command": "echo x >> log"}).to_string())).collect();
    let replies = vec![events(&calls(protocol, &many)), events(&stream(protocol, "done"))];
    let (asked, results) = used(dir.path(), protocol, replies, tools(50));
    assert_eq!((asked.text(), results.len()), ("done", 40));
    assert!(results[16].1.contains("only the first 16 calls"), "{:?}", results[16]);
    assert_eq!(std::fs::read_to_string(dir.path().join("log")).unwrap(), "x\n".repeat(16));
    std::fs::write(dir.path().join("long"), "y".repeat(1 << 20)).unwrap();
    let text = one(dir.path(), "read", &json!({"path": "long"}));
    assert!(text.len() <= 64 << 10 && text.contains("bytes are left out here"), "{}", text.len());
    let server = Server::new(vec![events(&calls(protocol, &vec![many[0].clone(); 200]))]);
    let job = ModelJob { tools: Some(tools(50)), ..server.job(protocol) };
    assert_eq!(ask_in(dir.path(), &job, &quick()).failure().0, "invalid");
}

#[test]
fn flood_by_any_tool_is_cut_to_the_size_of_a_result() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (0..40_000).map(|number| format!("line {number}\n")).collect();
    std::fs::write(dir.path().join("lines"), &lines).unwrap();
    for number in 0..1500 {
        let name = format!("{number}-{}", "n".repeat(60));
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    // An endless response: the tool reads its beginning.
    let upstream = belljar_testkit::Upstream::plain(|_| {
        let mut reply = Reply::new(200, "");
        reply.chunks = vec![vec![b'z'; 1 << 16]; 10_000];
        reply
    });
    let url = format!("http://page.example.com:{}/x", upstream.address().port());
    for (name, arguments, mark) in [
        ("shell", json!({"command": "cat lines"}), "bytes are left out here"),
        ("read", json!({"path": "lines", "limit": 40_000}), "read on with offset"),
        ("glob", json!({"pattern": "*"}), "bytes are left out here"),
        ("grep", json!({"pattern": "line", "path": "lines"}), "only the first 2000 lines"),
        ("fetch", json!({ "url": url }), "bytes are left out here"),
        (
            "execute_code",
            json!({"code": "for (let n = 0; n < 50000; n++) console.log('out', n);"}),
            "bytes are left out here",
        ),
        (
            "execute_code",
            json!({"code": "export default 'v'.repeat(1000000);"}),
            "bytes are left out here",
        ),
    ] {
        let text = one(dir.path(), name, &arguments);
        assert!(text.len() <= 64 << 10, "{name}: {}", text.len());
        assert!(text.contains(mark), "{name}: {text}");
    }
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn recursion_by_any_tool_ends_with_a_result() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(".", dir.path().join("loop")).unwrap();
    let mut deep = dir.path().to_owned();
    for _ in 0..60 {
        deep.push("a");
    }
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("needle"), "found it\n").unwrap();
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let again = "const again = (n: number): number => again(n + 1) + 1; export default again(0);";
    for (name, arguments, expected) in [
        ("glob", json!({"pattern": "**/needle"}).to_string(), "/needle"),
        // Without a memory of what was searched, each of these takes longer than the time of a call.
        ("glob", json!({"pattern": "**/".repeat(20) + "none"}).to_string(), "no file matches"),
        ("glob", json!({"pattern": "**/a/".repeat(12) + "none"}).to_string(), "no file matches"),
        ("grep", json!({"pattern": "found"}).to_string(), "needle:1:found it"),
        ("read", json!({"path": "loop/loop/loop/none"}).to_string(), "error: cannot open"),
        ("execute_code", json!({ "code": again }).to_string(), "error: "),
        ("shell", format!("{{\"command\": {}}}", nested(64)), "nested deeper than 64 levels"),
        ("shell", format!("{{\"command\": {}}}", nested(63)), "error: the arguments are not valid"),
    ] {
        let protocol = ModelProtocol::OpenAiChat;
        let replies = vec![
            events(&calls(protocol, &[(name, arguments.clone())])),
            events(&stream(protocol, "done")),
        ];
        let (asked, results) = used(dir.path(), protocol, replies, tools(50));
        assert_eq!(asked.text(), "done");
        assert!(results[0].1.contains(expected), "{name} {arguments}: {}", results[0].1);
    }
}

#[test]
fn denied_call_is_refused_and_an_allowed_one_works() {
    let dir = tempfile::tempdir().unwrap();
    let rules = |deny: &str| ToolJob { deny: vec![deny.to_owned()], ..tools(50) };
    let write = json!({"path": "ci/new", "content": "x"});
    let text = with_rules(dir.path(), "write", &write, rules("Edit(ci/**)"));
    assert!(text.contains("denied by the rule `Edit(ci/**)`"), "{text}");
    assert!(!dir.path().join("ci").exists());
    assert_eq!(one(dir.path(), "write", &write), "wrote 1 bytes", "control");
    let command = json!({"command": "true; rm ci/new"});
    let text = with_rules(dir.path(), "shell", &command, rules("Bash(rm:*)"));
    assert!(text.contains("denied by the rule `Bash(rm:*)`"), "{text}");
    assert_eq!(one(dir.path(), "shell", &command), "exit status 0\n", "control");
}

#[test]
fn question_over_the_window_is_refused_or_cut_with_a_line_in_the_log() {
    let protocol = ModelProtocol::OpenAiChat;
    let server = Server::new(vec![events(&stream(protocol, "done"))]);
    let source = InputSource::Text("z".repeat(40_000));
    let inputs = vec![ModelInput { name: "large".to_owned(), source }];
    let job = ModelJob { inputs, window: Some(5_000), ..server.job(protocol) };
    let dir = Path::new("/nonexistent");
    let asked = ask_in(dir, &job, &quick());
    let (kind, message) = asked.failure();
    assert!(kind == "too_long" && message.contains("`large` with 40000 bytes"), "{message}");
    assert_eq!(server.requests(), 0);
    let asked = ask_in(dir, &ModelJob { cuts: true, ..job.clone() }, &quick());
    assert_eq!(asked.text(), "done");
    assert!(asked.lines[0].contains("`large` was cut from 40000 to"), "{:?}", asked.lines);
    let body = String::from_utf8(server.upstream.received()[0].body.clone()).unwrap();
    assert!(body.len() < 22_000 && body.contains("bytes are left out here"), "{}", body.len());
    // Control: a larger window takes it whole.
    let asked = ask_in(dir, &ModelJob { window: Some(20_000), ..job }, &quick());
    assert!(asked.text() == "done" && asked.lines.is_empty());
}
