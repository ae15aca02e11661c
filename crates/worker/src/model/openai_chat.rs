//! The chat protocol of OpenAI, which most other servers use too. Pure.

use belljar_wire::ModelUsage;
use serde_json::{Map, Value, json};
use url::Url;

use super::answer::{Collector, Stop, StreamFault, number_at, reported, text_at};
use super::request::Request;
use super::turns::{Call, Turn};

/// The end mark of an answer.
pub(super) const END: &str = "[DONE]";

/// Returns the body of a request to a URL.
pub(super) fn body(request: &Request<'_>, url: &Url) -> Value {
    // Not all servers accept a list of parts.
    let mut messages = vec![
        json!({"role": "system", "content": request.instructions}),
        json!({"role": "user", "content": request.question.join("\n\n")}),
    ];
    messages.extend(request.turns.iter().flat_map(messages_of));
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(request.model));
    body.insert(max_tokens_key(url).to_owned(), json!(request.max_tokens));
    body.insert("stream".to_owned(), json!(true));
    body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    body.insert("messages".to_owned(), json!(messages));
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let function =
                json!({"name": tool.name, "description": tool.description, "parameters": tool.schema});
            json!({"type": "function", "function": function})
        });
        body.insert("tools".to_owned(), tools.collect());
    }
    Value::Object(body)
}

/// Returns the name of the limit of output tokens. New models of OpenAI refuse the name that all
/// other servers know.
fn max_tokens_key(url: &Url) -> &'static str {
    let host = url.host_str().unwrap_or_default();
    if host == "api.openai.com" || host.ends_with(".openai.azure.com") {
        "max_completion_tokens"
    } else {
        "max_tokens"
    }
}

fn messages_of(turn: &Turn) -> Vec<Value> {
    match turn {
        Turn::Model { text, calls } if calls.is_empty() => {
            vec![json!({"role": "assistant", "content": text})]
        }
        Turn::Model { text, calls } => {
            let calls: Vec<Value> = calls.iter().map(tool_call).collect();
            let content = Some(text).filter(|text| !text.is_empty());
            vec![json!({"role": "assistant", "content": content, "tool_calls": calls})]
        }
        // The protocol has no mark for errors, so their texts say it.
        Turn::Results(results) => results
            .iter()
            .map(
                |result| json!({"role": "tool", "tool_call_id": result.id, "content": result.text}),
            )
            .collect(),
        Turn::Correction(ask) => vec![json!({"role": "user", "content": ask})],
    }
}

fn tool_call(call: &Call) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"id": call.id, "type": "function", "function": function})
}

/// Reads an event of an answer.
pub(super) fn event(answer: &mut Collector, event: &Value) -> Result<(), StreamFault> {
    if event.get("error").is_some_and(|error| !error.is_null()) {
        return Err(reported(event, "/error"));
    }
    answer.read_model(event, "/model");
    answer.read_usage(event, "/usage");
    let choices = event.get("choices").and_then(Value::as_array);
    let is_first = |choice: &&Value| choice.get("index").is_none_or(|index| index == 0);
    let Some(choice) = choices.and_then(|choices| choices.iter().find(is_first)) else {
        return Ok(());
    };
    answer.append(choice, "/delta/content")?;
    answer.append_refusal(text_at(choice, "/delta/refusal").unwrap_or_default())?;
    let calls = choice.pointer("/delta/tool_calls").and_then(Value::as_array);
    for (position, call) in calls.into_iter().flatten().enumerate() {
        // Some servers send whole calls without an index.
        let index = call.get("index").and_then(Value::as_u64).unwrap_or(position as u64);
        answer.name_call(index, text_at(call, "/id"), text_at(call, "/function/name"))?;
        answer.extend_call(index, text_at(call, "/function/arguments"))?;
    }
    answer.set_stop(text_at(choice, "/finish_reason").map(|reason| match reason {
        "stop" => Stop::End,
        "length" => Stop::TooLong,
        "content_filter" | "refusal" => Stop::Refused,
        "tool_calls" | "function_call" => Stop::NextTurn,
        other => Stop::Unknown(other.to_owned()),
    }));
    Ok(())
}

/// Returns the numbers of tokens of an event. The number of input tokens includes the cached ones.
pub(super) fn usage(usage: &Value) -> ModelUsage {
    let cache_read = number_at(usage, "/prompt_tokens_details/cached_tokens");
    let input = number_at(usage, "/prompt_tokens").saturating_sub(cache_read);
    ModelUsage { input, cache_read, cache_write: 0, output: number_at(usage, "/completion_tokens") }
}
