//! Reads and writes the conversation of a scripted model, in each of the three protocols.

use std::collections::BTreeMap;

use belljar_testkit::Reply;
use serde_json::{Value, json};

/// The protocol of a model server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Anthropic,
    Chat,
    Responses,
}

/// A call that the model made, with its result.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) name: String,
    pub(super) arguments: Value,
    pub(super) result: String,
}

/// What the model does next.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Call(&'static str, Value),
    Say(&'static str),
}

impl Protocol {
    pub(super) const ALL: [Self; 3] = [Self::Anthropic, Self::Chat, Self::Responses];

    /// Returns the name of the provider, which is also the name of its tier.
    pub(super) const fn provider(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Chat => "openai-chat",
            Self::Responses => "openai-responses",
        }
    }

    /// Returns the calls of a conversation with their results, in their order.
    pub(super) fn history(self, body: &Value) -> Vec<Done> {
        let (mut calls, mut results) = (Vec::new(), BTreeMap::new());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let parsed = |value: &Value| serde_json::from_str(&text(value)).unwrap_or(Value::Null);
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        match self {
            Self::Anthropic => {
                let messages = list(&body["messages"]);
                for block in messages.iter().flat_map(|message| list(&message["content"])) {
                    if block["type"] == "tool_use" {
                        calls.push((
                            text(&block["id"]),
                            text(&block["name"]),
                            block["input"].clone(),
                        ));
                    } else if block["type"] == "tool_result" {
                        results.insert(text(&block["tool_use_id"]), text(&block["content"]));
                    }
                }
            }
            Self::Chat => {
                for message in list(&body["messages"]) {
                    for call in list(&message["tool_calls"]) {
                        let function = &call["function"];
                        let arguments = parsed(&function["arguments"]);
                        calls.push((text(&call["id"]), text(&function["name"]), arguments));
                    }
                    if message["role"] == "tool" {
                        results.insert(text(&message["tool_call_id"]), text(&message["content"]));
                    }
                }
            }
            Self::Responses => {
                for item in list(&body["input"]) {
                    let id = text(&item["call_id"]);
                    if item["type"] == "function_call" {
                        calls.push((id, text(&item["name"]), parsed(&item["arguments"])));
                    } else if item["type"] == "function_call_output" {
                        results.insert(id, text(&item["output"]));
                    }
                }
            }
        }
        let done = |(id, name, arguments): (String, String, Value)| {
            let result = results.remove(&id).unwrap_or_else(|| panic!("call {id} has a result"));
            Done { name, arguments, result }
        };
        calls.into_iter().map(done).collect()
    }

    /// Returns the stream of an answer. `number` is the number of calls before it.
    pub(super) fn answer(self, step: &Step, number: usize) -> Reply {
        let id = format!("call_{number}");
        let (events, end) = match self {
            Self::Anthropic => (messages(step, &id), ""),
            Self::Chat => (chat(step, &id), "data: [DONE]\n\n"),
            Self::Responses => (responses(step, &id), ""),
        };
        let text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        Reply::new(200, text + end).header("content-type", "text/event-stream")
    }
}

fn messages(step: &Step, id: &str) -> Vec<Value> {
    let usage = json!({"input_tokens": 7, "output_tokens": 2});
    let (block, delta, stop) = match step {
        Step::Call(name, arguments) => (
            json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": arguments.to_string()}),
            "tool_use",
        ),
        Step::Say(text) => (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": text}),
            "end_turn",
        ),
    };
    vec![
        json!({"type": "message_start", "message": {"model": "scripted", "usage": usage}}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage}),
        json!({"type": "message_stop"}),
    ]
}

fn chat(step: &Step, id: &str) -> Vec<Value> {
    let (delta, stop) = match step {
        Step::Call(name, arguments) => {
            let function = json!({"name": name, "arguments": arguments.to_string()});
            (json!({"tool_calls": [{"index": 0, "id": id, "function": function}]}), "tool_calls")
        }
        Step::Say(text) => (json!({ "content": text }), "stop"),
    };
    let chunk = |delta: Value, stop: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": stop});
        json!({"model": "scripted", "choices": [choice]})
    };
    let usage = json!({"prompt_tokens": 7, "completion_tokens": 2});
    vec![
        chunk(delta, None),
        chunk(json!({}), Some(stop)),
        json!({"model": "scripted", "choices": [], "usage": usage}),
    ]
}

fn responses(step: &Step, id: &str) -> Vec<Value> {
    let item = match step {
        Step::Call(name, arguments) => {
            let arguments = arguments.to_string();
            json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
        }
        Step::Say(text) => {
            json!({"type": "message", "content": [{"type": "output_text", "text": text}]})
        }
    };
    let usage = json!({"input_tokens": 7, "output_tokens": 2});
    let response = json!({"model": "scripted", "usage": usage, "output": [item]});
    vec![
        json!({"type": "response.created", "response": {"model": "scripted", "usage": null}}),
        json!({"type": "response.completed", "response": response}),
    ]
}
