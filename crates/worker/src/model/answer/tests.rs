//! Scripted streams of the three protocols, whole and split at every byte.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use ModelProtocol::{Anthropic, OpenAiChat, OpenAiResponses};

const ALL: [ModelProtocol; 3] = [Anthropic, OpenAiChat, OpenAiResponses];

/// Returns a stream of these events. The chat protocol names no events.
fn stream(protocol: ModelProtocol, events: &[Value]) -> String {
    let event = |event: &Value| match event["type"].as_str() {
        Some(name) if protocol != OpenAiChat => format!("event: {name}\ndata: {event}\n\n"),
        _ => format!("data: {event}\n\n"),
    };
    events.iter().map(event).collect()
}

fn read_parts(
    protocol: ModelProtocol,
    parts: &[&[u8]],
    limits: &Limits,
) -> Result<Answer, StreamFault> {
    let mut collector = Collector::new(protocol, limits);
    for part in parts {
        collector.push(part)?;
    }
    collector.finish()
}

fn read(protocol: ModelProtocol, text: &str) -> Result<Answer, StreamFault> {
    read_parts(protocol, &[text.as_bytes()], &Limits::default())
}

/// Returns the name of the result: `answer TEXT`, `reported MESSAGE`, `cut_off`, or a failure.
fn outcome(result: &Result<Answer, StreamFault>) -> String {
    match result {
        Ok(answer) => format!("answer {}", answer.text),
        Err(StreamFault::Reported(message)) => format!("reported {message}"),
        Err(StreamFault::CutOff) => "cut_off".to_owned(),
        Err(StreamFault::Final(failure)) => failure.kind.name().to_owned(),
    }
}

fn anthropic_text(text: &str) -> Value {
    json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
}

fn anthropic_stop(reason: &str) -> Vec<Value> {
    let delta = json!({"stop_reason": reason});
    vec![
        json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ]
}

fn anthropic(text: &str, reason: &str) -> String {
    let usage = json!({"input_tokens": 5, "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 2, "output_tokens": 1});
    let mut events = vec![
        json!({"type": "message_start", "message": {"model": "claude-x", "usage": usage}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "ping"}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
    ];
    events.extend(text.split_inclusive(' ').map(anthropic_text));
    events.push(json!({"type": "content_block_stop", "index": 0}));
    events.extend(anthropic_stop(reason));
    stream(Anthropic, &events)
}

fn chat_chunk(delta: &Value, reason: Option<&str>) -> Value {
    json!({"object": "chat.completion.chunk", "model": "gpt-x",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
}

fn chat_events(text: &str, reason: &str) -> Vec<Value> {
    let mut events = vec![chat_chunk(&json!({"role": "assistant", "content": ""}), None)];
    let chunk = |part: &str| chat_chunk(&json!({"content": part}), None);
    events.extend(text.split_inclusive(' ').map(chunk));
    events.push(chat_chunk(&json!({}), Some(reason)));
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 3}});
    events.push(json!({"model": "gpt-x", "choices": [], "usage": usage}));
    events
}

fn chat(text: &str, reason: &str) -> String {
    stream(OpenAiChat, &chat_events(text, reason)) + "data: [DONE]\n\n"
}

fn responses_end(kind: &str, more: &Value) -> Value {
    let mut response = json!({"model": "gpt-y", "usage": {"input_tokens": 10, "output_tokens": 9,
        "input_tokens_details": {"cached_tokens": 3}}});
    for (name, value) in more.as_object().unwrap() {
        response[name.as_str()] = value.clone();
    }
    json!({"type": kind, "response": response})
}

fn responses(text: &str, end: &Value) -> String {
    let mut events = vec![
        json!({"type": "response.created", "response": {"model": "gpt-y", "usage": null}}),
        json!({"type": "response.output_item.added", "item": {"type": "message"}}),
    ];
    let delta = |part: &str| json!({"type": "response.output_text.delta", "delta": part});
    events.extend(text.split_inclusive(' ').map(delta));
    events.push(json!({"type": "response.output_text.done", "text": text}));
    events.push(end.clone());
    stream(OpenAiResponses, &events)
}

fn message(part: &Value) -> Value {
    json!({"output": [{"type": "reasoning"}, {"type": "message", "content": [part]}]})
}

/// Returns a complete answer of a protocol.
fn complete(protocol: ModelProtocol, text: &str) -> String {
    let part = message(&json!({"type": "output_text", "text": text}));
    match protocol {
        Anthropic => anthropic(text, "end_turn"),
        OpenAiChat => chat(text, "stop"),
        OpenAiResponses => responses(text, &responses_end("response.completed", &part)),
    }
}

#[test]
fn complete_answer_has_text_model_usage_and_stop() {
    for (protocol, model, cache_write, input) in [
        (Anthropic, "claude-x", 2, 5),
        (OpenAiChat, "gpt-x", 0, 7),
        (OpenAiResponses, "gpt-y", 0, 7),
    ] {
        let answer = read(protocol, &complete(protocol, "one two \u{fc}\u{1f980}")).unwrap();
        let usage = ModelUsage { input, cache_read: 3, cache_write, output: 9 };
        assert_eq!(
            answer,
            Answer {
                text: "one two \u{fc}\u{1f980}".to_owned(),
                model: Some(model.to_owned()),
                usage,
                calls: Vec::new(),
                stop: Stop::End
            }
        );
    }
}

/// Every row of the table of protocols, and malformed streams.
fn scripts() -> Vec<(ModelProtocol, String, &'static str)> {
    let error = |kind: &str| json!({"type": kind, "message": "busy"});
    let failed = json!({"error": {"code": "server_error", "message": "busy"}});
    let refusal_part = message(&json!({"type": "refusal", "refusal": "no"}));
    let call = json!({"output": [{"type": "function_call", "name": "f"}]});
    let incomplete = |reason: &str| {
        responses_end("response.incomplete", &json!({"incomplete_details": {"reason": reason}}))
    };
    let end = |more: &Value| responses_end("response.completed", more);
    let start = |protocol, text: &str| {
        let whole = complete(protocol, text);
        whole[..whole.len() / 2].to_owned()
    };
    let refusing = |text: &str| {
        let refusal = chat_chunk(&json!({"refusal": text}), None);
        stream(OpenAiChat, &[refusal]) + &chat("", "stop")
    };
    let mut scripts = vec![
        (Anthropic, anthropic("a b", "end_turn"), "answer a b"),
        (Anthropic, anthropic("a b", "stop_sequence"), "answer a b"),
        (Anthropic, anthropic("a b", "refusal"), "refused"),
        (Anthropic, anthropic("", "refusal"), "refused"),
        (Anthropic, anthropic("a b", "max_tokens"), "too_long"),
        (Anthropic, anthropic("a b", "model_context_window_exceeded"), "too_long"),
        (Anthropic, anthropic("a b", "tool_use"), "turns"),
        (Anthropic, anthropic("a b", "pause_turn"), "turns"),
        (Anthropic, anthropic("a b", "new_reason"), "invalid"),
        (Anthropic, anthropic(" ", "end_turn"), "invalid"),
        (Anthropic, stream(Anthropic, &[json!({"type": "message_stop"})]), "invalid"),
        (
            Anthropic,
            stream(Anthropic, &[json!({"type": "error", "error": error("overloaded_error")})]),
            "reported overloaded_error: busy",
        ),
        (Anthropic, stream(Anthropic, &[json!({"type": "error"})]), "reported no details"),
        (
            Anthropic,
            stream(
                Anthropic,
                &[
                    json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": 5}}),
                ],
            ),
            "invalid",
        ),
        (OpenAiChat, chat("a b", "stop"), "answer a b"),
        (OpenAiChat, chat("a b", "content_filter"), "refused"),
        (OpenAiChat, chat("a b", "refusal"), "refused"),
        (OpenAiChat, refusing("no"), "refused"),
        (OpenAiChat, chat("a b", "length"), "too_long"),
        (OpenAiChat, chat("", "tool_calls"), "turns"),
        (OpenAiChat, chat("", "function_call"), "turns"),
        (OpenAiChat, chat("a b", "other"), "invalid"),
        (OpenAiChat, chat("", "stop"), "invalid"),
        (OpenAiChat, stream(OpenAiChat, &chat_events("a b", "stop")), "cut_off"),
        (OpenAiChat, "data: [DONE]\n\n".to_owned(), "cut_off"),
        (
            OpenAiChat,
            stream(OpenAiChat, &[json!({"error": {"code": "x", "message": "busy"}})]),
            "reported x: busy",
        ),
        (OpenAiChat, "data: {\"error\":\"busy\"}\n\n".to_owned(), "reported busy"),
        (OpenAiResponses, responses("a b", &end(&json!({}))), "answer a b"),
        (
            OpenAiResponses,
            responses("", &end(&message(&json!({"type": "output_text", "text": "late"})))),
            "answer late",
        ),
        (OpenAiResponses, responses("", &end(&refusal_part)), "refused"),
        (OpenAiResponses, responses("a", &incomplete("content_filter")), "refused"),
        (OpenAiResponses, responses("a", &incomplete("max_output_tokens")), "too_long"),
        (OpenAiResponses, responses("a", &end(&call)), "turns"),
        (OpenAiResponses, responses("", &end(&json!({}))), "invalid"),
        (
            OpenAiResponses,
            responses("a", &responses_end("response.failed", &failed)),
            "reported server_error: busy",
        ),
        (
            OpenAiResponses,
            stream(OpenAiResponses, &[json!({"type": "error", "code": "x", "message": "busy"})]),
            "reported error: busy",
        ),
    ];
    for protocol in ALL {
        scripts.extend([
            (protocol, String::new(), "cut_off"),
            (protocol, start(protocol, "a b"), "cut_off"),
            (protocol, ": only a comment\n\n".to_owned(), "cut_off"),
            (protocol, "data: {\"type\":\n\n".to_owned(), "invalid"),
            (protocol, "data: 5\n\n".to_owned(), "invalid"),
            (protocol, complete(protocol, "a") + "data: nonsense\n\n", "answer a"),
            (protocol, complete(protocol, "a b").replace('\n', "\r\n"), "answer a b"),
        ]);
    }
    scripts
}

#[test]
fn every_script_has_its_outcome_wherever_the_stream_is_split() {
    let limits = Limits::default();
    for (protocol, script, expected) in scripts() {
        let whole = read(protocol, &script);
        assert_eq!(outcome(&whole), expected, "{protocol:?}: {script}");
        let bytes = script.as_bytes();
        for at in 0..=bytes.len() {
            let got = read_parts(protocol, &[&bytes[..at], &bytes[at..]], &limits);
            assert_eq!(got, whole, "{protocol:?}, split at {at}: {script}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        let got = read_parts(protocol, &single, &limits);
        assert_eq!(got, whole, "{protocol:?}, single bytes: {script}");
    }
}

#[test]
fn answer_that_ends_at_any_byte_before_its_end_mark_is_cut_off() {
    for protocol in ALL {
        let script = complete(protocol, "one two");
        // The last byte is the empty line that completes the last event.
        for end in 0..script.len() {
            assert_eq!(outcome(&read(protocol, &script[..end])), "cut_off", "{protocol:?} {end}");
        }
    }
}

#[test]
fn answer_event_and_depth_are_bounded() {
    let limits = Limits { answer: 8, event: 4096, ..Limits::default() };
    let read = |protocol, text: &str| outcome(&read_parts(protocol, &[text.as_bytes()], &limits));
    for protocol in ALL {
        assert_eq!(read(protocol, &complete(protocol, "abcd 678")), "answer abcd 678");
        assert_eq!(read(protocol, &complete(protocol, "abcd 6789")), "too_long");
        assert_eq!(read(protocol, &format!("data: {}", "x".repeat(4096))), "invalid");
        assert_eq!(read(protocol, &"data:x\n".repeat(4096)), "invalid");
        let deep = format!("data: {{\"a\":{}{}}}\n\n", "[".repeat(64), "]".repeat(64));
        assert_eq!(read(protocol, &deep), "invalid");
    }
}

#[test]
fn event_at_its_real_limit_is_read_and_a_longer_one_is_not() {
    // An event of an unknown type is ignored, whatever it contains.
    let event = |length: usize| {
        let empty = format!("data: {}", json!({"type": "ping", "padding": ""})).len();
        let padding = "x".repeat(length - empty);
        format!("data: {}\n\n", json!({"type": "ping", "padding": padding}))
    };
    for protocol in ALL {
        let after =
            |length: usize| outcome(&read(protocol, &(event(length) + &complete(protocol, "a"))));
        assert_eq!(after(1 << 20), "answer a");
        assert_eq!(after((1 << 20) + 1), "invalid");
    }
}

#[test]
fn name_of_the_model_is_bounded() {
    let script = complete(OpenAiChat, "a").replace("gpt-x", &"x".repeat(1000));
    assert_eq!(read(OpenAiChat, &script).unwrap().model.unwrap().len(), MAX_MODEL_NAME);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        for protocol in ALL {
            read_parts(protocol, &[&bytes], &Limits::default()).ok();
        }
    }

    #[test]
    fn arbitrary_changes_of_a_stream_never_panic_and_are_read_the_same_in_parts(
        at in any::<prop::sample::Index>(),
        split in any::<prop::sample::Index>(),
        with in any::<u8>(),
        protocol in 0..3_usize,
    ) {
        let protocol = ALL[protocol];
        let mut bytes = complete(protocol, "one two").into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = with;
        let (first, second) = bytes.split_at(split.index(bytes.len()));
        let whole = outcome(&read_parts(protocol, &[&bytes], &Limits::default()));
        let parts = outcome(&read_parts(protocol, &[first, second], &Limits::default()));
        prop_assert_eq!(whole, parts);
    }
}

/// Returns the stream of an answer with a text and two calls, and the calls.
fn with_calls(protocol: ModelProtocol) -> (String, Vec<Call>) {
    let call = |id: &str, name: &str, arguments: &str| Call {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    let calls = vec![
        call("call_a", "read", "{\"path\": \"gr\u{fc}n\"}"),
        call("call_b", "shell", "{\"command\": \"ls\"}"),
    ];
    let text = match protocol {
        Anthropic => {
            let mut events = vec![anthropic_text("I look.")];
            for (at, call) in calls.iter().enumerate() {
                let index = at + 1;
                let block =
                    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
                events.push(
                    json!({"type": "content_block_start", "index": index, "content_block": block}),
                );
                for part in call.arguments.split_inclusive(' ') {
                    let delta = json!({"type": "input_json_delta", "partial_json": part});
                    events.push(
                        json!({"type": "content_block_delta", "index": index, "delta": delta}),
                    );
                }
            }
            events.extend(anthropic_stop("tool_use"));
            stream(Anthropic, &events)
        }
        OpenAiChat => {
            let mut events = vec![chat_chunk(&json!({"content": "I look."}), None)];
            for (index, call) in calls.iter().enumerate() {
                let function = json!({"name": call.name, "arguments": ""});
                let first = json!({"index": index, "id": call.id, "function": function});
                events.push(chat_chunk(&json!({"tool_calls": [first]}), None));
                for part in call.arguments.split_inclusive(' ') {
                    let next = json!({"index": index, "function": {"arguments": part}});
                    events.push(chat_chunk(&json!({"tool_calls": [next]}), None));
                }
            }
            events.push(chat_chunk(&json!({}), Some("tool_calls")));
            stream(OpenAiChat, &events) + "data: [DONE]\n\n"
        }
        OpenAiResponses => {
            let item = |call: &Call| json!({"type": "function_call", "id": "fc", "call_id": call.id, "name": call.name, "arguments": call.arguments});
            let output: Vec<Value> = calls.iter().map(item).collect();
            responses("I look.", &responses_end("response.completed", &json!({"output": output})))
        }
    };
    (text, calls)
}

#[test]
fn calls_of_tools_are_read_wherever_the_stream_is_split() {
    for protocol in ALL {
        let (text, calls) = with_calls(protocol);
        for at in 0..=text.len() {
            let (first, second) = text.as_bytes().split_at(at);
            let mut collector = Collector::new(protocol, &Limits::default());
            collector.push(first).unwrap();
            collector.push(second).unwrap();
            let answer = collector.finish_turn().unwrap();
            assert_eq!((answer.text.as_str(), &answer.stop), ("I look.", &Stop::NextTurn));
            assert_eq!(answer.calls, calls, "{protocol:?}, split at {at}");
        }
        assert_eq!(outcome(&read(protocol, &text)), "turns", "a task without tools has one turn");
    }
}

#[test]
fn calls_of_servers_that_differ_from_the_protocol_are_read() {
    // Whole calls without an index or an id, and the usual reason of the end.
    let call = json!({"function": {"name": "glob", "arguments": "{}"}});
    let events =
        [chat_chunk(&json!({"tool_calls": [call]}), None), chat_chunk(&json!({}), Some("stop"))];
    let text = stream(OpenAiChat, &events) + "data: [DONE]\n\n";
    let mut collector = Collector::new(OpenAiChat, &Limits::default());
    collector.push(text.as_bytes()).unwrap();
    let answer = collector.finish_turn().unwrap();
    assert_eq!(answer.stop, Stop::NextTurn);
    assert_eq!((answer.calls[0].id.as_str(), answer.calls[0].name.as_str()), ("call_0", "glob"));
}

#[test]
fn arguments_and_names_of_calls_are_bounded() {
    let limits = Limits { answer: 10, ..Limits::default() };
    let of = |call: Value| {
        let text = stream(OpenAiChat, &[chat_chunk(&json!({"tool_calls": [call]}), None)]);
        outcome(&read_parts(OpenAiChat, &[text.as_bytes()], &limits))
    };
    assert_eq!(of(json!({"function": {"name": "x", "arguments": "1234567890"}})), "cut_off");
    assert_eq!(of(json!({"function": {"name": "x", "arguments": "12345678901"}})), "too_long");
    assert_eq!(of(json!({"function": {"name": "x".repeat(257), "arguments": ""}})), "invalid");
    assert_eq!(of(json!({"id": "x".repeat(257)})), "invalid");
}
