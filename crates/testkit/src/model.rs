//! A scripted model server for tests of agents. It streams the formats of Anthropic (messages), OpenAI
//! (responses) and Gemini (contents).
//!
//! The model calls one tool after the other, records their results, and then sends a final text. Requests
//! without these tools, such as for a title of the conversation, get the final text at once.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::{Authority, Received, Reply, Upstream};

/// A server on loopback that plays a language model by a fixed script.
#[derive(Debug)]
pub struct Model {
    upstream: Upstream,
    results: Arc<Mutex<Vec<String>>>,
}

/// The response of the scripted model to one request: a tool call or a text.
enum Turn<'a> {
    Call { number: usize, call: &'a Call },
    Text(&'a str),
}

/// One tool call that the scripted model requests.
struct Call {
    /// The name of the MCP server that has the tool. `None` for a built-in tool of the agent.
    server: Option<String>,
    tool: String,
    input: Value,
}

/// The API of a model provider: Anthropic, OpenAI or Gemini.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Api {
    Messages,
    Responses,
    Contents,
}

impl Model {
    /// Starts a scripted model that calls an MCP tool once per input and then sends `final_text`.
    pub fn calling(server: &str, tool: &str, inputs: Vec<Value>, final_text: &str) -> Self {
        let call = |input| Call { server: Some(server.to_owned()), tool: tool.to_owned(), input };
        let (results, handler) = Self::script(inputs.into_iter().map(call).collect(), final_text);
        Self { upstream: Upstream::plain(handler), results }
    }

    /// Starts a scripted model with TLS that calls built-in tools of the agent and then sends
    /// `final_text`.
    pub fn answering(
        authority: &Authority,
        hosts: &[&str],
        calls: Vec<(&str, Value)>,
        final_text: &str,
    ) -> Self {
        let call =
            |(tool, input): (&str, Value)| Call { server: None, tool: tool.to_owned(), input };
        let (results, handler) = Self::script(calls.into_iter().map(call).collect(), final_text);
        Self { upstream: Upstream::tls(authority, hosts, handler), results }
    }

    /// Returns a list that collects the results of the tool calls, and the handler of HTTP
    /// requests.
    fn script(
        calls: Vec<Call>,
        final_text: &str,
    ) -> (Arc<Mutex<Vec<String>>>, impl Fn(&Received) -> Reply + Send + Sync + 'static) {
        let results = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&results);
        let final_text = final_text.to_owned();
        let handler = move |received: &Received| {
            let Ok(request) = serde_json::from_slice::<Value>(&received.body) else {
                return Reply::new(404, "");
            };
            let path = &received.path;
            if path.contains("count_tokens") || path.contains("countTokens") {
                return Reply::new(200, r#"{"input_tokens":1,"totalTokens":1}"#)
                    .header("content-type", "application/json");
            }
            let api = match path {
                path if path.starts_with("/v1/messages") => Api::Messages,
                path if path.contains("enerateContent") => Api::Contents,
                _ => Api::Responses,
            };
            let so_far = api.tool_results(&request);
            let tools = request.get("tools").map(Value::to_string).unwrap_or_default();
            let has = |call: &Call| {
                ["\"", "__"].iter().any(|it| tools.contains(&format!("{it}{}\"", call.tool)))
            };
            let has_tools = calls.iter().any(has);
            let turn = match calls.get(so_far.len()).filter(|_| has_tools) {
                Some(call) => Turn::Call { number: so_far.len(), call },
                None => Turn::Text(&final_text),
            };
            if has_tools {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = so_far;
            }
            Reply::new(200, api.encode(&turn)).header("content-type", "text/event-stream")
        };
        (results, handler)
    }

    /// Returns the URL of the scripted model: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.upstream.address())
    }

    /// Returns the results of the tool calls that the model requested, in order.
    pub fn results(&self) -> Vec<String> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the address of the scripted model, for the setting `connect =`.
    pub fn address(&self) -> std::net::SocketAddr {
        self.upstream.address()
    }

    /// Returns every request that the scripted model received so far.
    pub fn received(&self) -> Vec<Received> {
        self.upstream.received()
    }
}

impl Api {
    /// Returns the results of tool calls that a request to the model contains.
    fn tool_results(self, request: &Value) -> Vec<String> {
        match self {
            Self::Messages => results_of_messages(request),
            Self::Responses => results_of_responses(request),
            Self::Contents => results_of_contents(request),
        }
    }

    /// Encodes a response of the scripted model as a stream of server-sent events.
    fn encode(self, turn: &Turn<'_>) -> String {
        match self {
            Self::Messages => stream(&messages(turn)),
            Self::Responses => stream(&responses(turn)),
            Self::Contents => format!("data: {}\n\n", contents(turn)),
        }
    }
}

fn stream(events: &[Value]) -> String {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", text(&event["type"]));
    events.iter().map(event).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the text of a tool result, which is a JSON string or a list of text blocks.
fn text_of(content: &Value) -> String {
    match content.as_array() {
        Some(blocks) => blocks.iter().map(|block| text(&block["text"])).collect(),
        None => text(content),
    }
}

/// Returns the items of a JSON array whose field `type` is `kind`.
fn items<'a>(value: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = value.as_array().map_or(&[][..], Vec::as_slice).iter();
    all.filter(move |item| item["type"] == kind)
}

fn results_of_messages(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice).iter();
    let results = messages.flat_map(|message| items(&message["content"], "tool_result"));
    results.map(|result| text_of(&result["content"])).collect()
}

fn results_of_responses(request: &Value) -> Vec<String> {
    items(&request["input"], "function_call_output").map(|item| text_of(&item["output"])).collect()
}

fn results_of_contents(request: &Value) -> Vec<String> {
    let contents = request["contents"].as_array().map_or(&[][..], Vec::as_slice).iter();
    let parts = contents.filter_map(|content| content["parts"].as_array()).flatten();
    parts.filter_map(|part| part.get("functionResponse")).map(Value::to_string).collect()
}

fn contents(turn: &Turn<'_>) -> Value {
    let part = match turn {
        Turn::Call { call, .. } => json!({"functionCall": {"name": call.tool, "args": call.input}}),
        Turn::Text(words) => json!({"text": words}),
    };
    json!({
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": "scripted",
    })
}

fn messages(turn: &Turn<'_>) -> Vec<Value> {
    let (block, delta, stop) = match turn {
        Turn::Call { number, call: Call { server, tool, input } } => (
            json!({
                "type": "tool_use", "id": format!("toolu_{number}"), "input": {},
                "name": server.as_ref().map_or(tool.clone(), |it| format!("mcp__{it}__{tool}")),
            }),
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

fn responses(turn: &Turn<'_>) -> Vec<Value> {
    let item = match turn {
        Turn::Call { number, call: Call { server, tool, input } } => {
            let mut item = json!({
                "type": "function_call", "id": format!("fc_{number}"), "call_id": format!("call_{number}"),
                "name": tool, "arguments": input.to_string(), "status": "completed",
            });
            let namespace = server.as_ref().map(|server| json!(format!("mcp__{server}")));
            if let (Some(item), Some(namespace)) = (item.as_object_mut(), namespace) {
                item.insert("namespace".to_owned(), namespace);
            }
            item
        }
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
