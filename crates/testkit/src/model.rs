//! A model that says what a test wrote down, for agents that are to be driven without one: Anthropic's
//! messages and OpenAI's responses, as streams.
//!
//! It calls one tool with one input after the other, keeps what it is told that came of each, and then
//! says its last words. What an agent asks beside that, such as a title for the conversation, gets the
//! last words at once.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::{Received, Reply, Upstream};

/// A scripted model on loopback.
#[derive(Debug)]
pub struct Model {
    upstream: Upstream,
    results: Arc<Mutex<Vec<String>>>,
}

/// What a model says in one turn.
enum Turn<'a> {
    Call { number: usize, input: &'a Value },
    Text(&'a str),
}

impl Model {
    /// One that calls `tool` of the MCP server `server` with each of the inputs, and then ends.
    pub fn calling(server: &str, tool: &str, inputs: Vec<Value>, last_words: &str) -> Self {
        let results = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&results);
        let (server, tool) = (server.to_owned(), tool.to_owned());
        let last_words = last_words.to_owned();
        let upstream = Upstream::plain(move |received: &Received| {
            let Ok(asked) = serde_json::from_slice::<Value>(&received.body) else {
                return Reply::new(404, "");
            };
            let is_anthropic = received.path.starts_with("/v1/messages");
            let told = if is_anthropic { told_messages(&asked) } else { told_responses(&asked) };
            if received.path.contains("count_tokens") {
                return Reply::new(200, r#"{"input_tokens":1}"#)
                    .header("content-type", "application/json");
            }
            let tools = asked.get("tools").map(Value::to_string).unwrap_or_default();
            let has_tool =
                ["\"", "__"].iter().any(|before| tools.contains(&format!("{before}{tool}\"")));
            let turn = match inputs.get(told.len()).filter(|_| has_tool) {
                Some(input) => Turn::Call { number: told.len(), input },
                None => Turn::Text(&last_words),
            };
            if has_tool {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = told;
            }
            let events = match is_anthropic {
                true => messages(&format!("mcp__{server}__{tool}"), &turn),
                false => responses(&format!("mcp__{server}"), &tool, &turn),
            };
            Reply::new(200, stream(&events)).header("content-type", "text/event-stream")
        });
        Self { upstream, results }
    }

    /// Where it is: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.upstream.address())
    }

    /// What it was told that its calls gave, in order.
    pub fn results(&self) -> Vec<String> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Every request, for a test that wonders.
    pub fn received(&self) -> Vec<Received> {
        self.upstream.received()
    }
}

fn stream(events: &[Value]) -> String {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", text(&event["type"]));
    events.iter().map(event).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The text of a result: a string, or the texts of its blocks.
fn text_of(content: &Value) -> String {
    match content.as_array() {
        Some(blocks) => blocks.iter().map(|block| text(&block["text"])).collect(),
        None => text(content),
    }
}

fn items<'a>(value: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = value.as_array().map_or(&[][..], Vec::as_slice).iter();
    all.filter(move |item| item["type"] == kind)
}

fn told_messages(asked: &Value) -> Vec<String> {
    let messages = asked["messages"].as_array().map_or(&[][..], Vec::as_slice).iter();
    let results = messages.flat_map(|message| items(&message["content"], "tool_result"));
    results.map(|result| text_of(&result["content"])).collect()
}

fn told_responses(asked: &Value) -> Vec<String> {
    items(&asked["input"], "function_call_output").map(|item| text_of(&item["output"])).collect()
}

fn messages(tool: &str, turn: &Turn<'_>) -> Vec<Value> {
    let (block, delta, stop) = match turn {
        Turn::Call { number, input } => (
            json!({"type": "tool_use", "id": format!("toolu_{number}"), "name": tool, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": input.to_string()}),
            "tool_use",
        ),
        Turn::Text(words) => (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": words}),
            "end_turn",
        ),
    };
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "scripted",
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage,
    });
    vec![
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": usage}),
        json!({"type": "message_stop"}),
    ]
}

fn responses(namespace: &str, tool: &str, turn: &Turn<'_>) -> Vec<Value> {
    let item = match turn {
        Turn::Call { number, input } => json!({
            "type": "function_call", "id": format!("fc_{number}"), "call_id": format!("call_{number}"),
            "namespace": namespace, "name": tool, "arguments": input.to_string(), "status": "completed",
        }),
        Turn::Text(words) => json!({
            "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": words, "annotations": []}],
        }),
    };
    let usage = json!({
        "input_tokens": 1, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2,
    });
    let response = json!({
        "id": "resp_1", "object": "response", "status": "completed", "output": [item], "usage": usage,
    });
    vec![
        json!({"type": "response.created", "response": {"id": "resp_1"}}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": response}),
    ]
}
