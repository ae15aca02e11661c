//! The Messages protocol of Anthropic. Pure.

use belljar_wire::ModelUsage;
use serde_json::{Value, json};

use super::answer::{Collector, Stop, StreamFault, number_at, reported, text_at};
use super::request::Request;
use super::turns::{Call, Turn};

/// The version of the protocol.
pub(super) const VERSION: &str = "2023-06-01";

/// Returns the body of a request.
pub(super) fn body(request: &Request<'_>) -> Value {
    let question: Vec<Value> = request.question.iter().map(|part| text(part)).collect();
    let mut messages = vec![json!({"role": "user", "content": question})];
    messages.extend(request.turns.iter().map(message));
    let mut body = json!({
        "model": request.model,
        "max_tokens": request.max_tokens,
        "stream": true,
        "system": request.instructions,
        "messages": messages,
    });
    if !request.tools.is_empty()
        && let Some(fields) = body.as_object_mut()
    {
        let tools = request.tools.iter().map(|tool| {
            json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema})
        });
        fields.insert("tools".to_owned(), tools.collect());
    }
    body
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn message(turn: &Turn) -> Value {
    match turn {
        Turn::Model { text: said, calls } => {
            // The protocol refuses empty texts, and texts with spaces at the end.
            let said = Some(said.trim_end()).filter(|said| !said.is_empty());
            let content: Vec<Value> =
                said.into_iter().map(text).chain(calls.iter().map(tool_use)).collect();
            json!({"role": "assistant", "content": content})
        }
        Turn::Results(results) => {
            let content: Vec<Value> = results
                .iter()
                .map(|result| {
                    json!({
                        "type": "tool_result",
                        "tool_use_id": result.id,
                        "content": result.text,
                        "is_error": result.is_error,
                    })
                })
                .collect();
            json!({"role": "user", "content": content})
        }
        Turn::Correction(ask) => json!({"role": "user", "content": [text(ask)]}),
    }
}

/// Returns a call as the model made it. Arguments that are not an object cannot be sent back.
fn tool_use(call: &Call) -> Value {
    let input = super::json::parse(&call.arguments).ok().filter(Value::is_object);
    let input = input.unwrap_or_else(|| json!({}));
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
}

/// Reads an event of an answer.
pub(super) fn event(answer: &mut Collector, event: &Value) -> Result<(), StreamFault> {
    let index = || number_at(event, "/index");
    match text_at(event, "/type").unwrap_or_default() {
        "message_start" => {
            answer.read_model(event, "/message/model");
            answer.read_usage(event, "/message/usage");
        }
        "content_block_start" => match text_at(event, "/content_block/type") {
            Some("text") => answer.append(event, "/content_block/text")?,
            Some("tool_use") => {
                let id = text_at(event, "/content_block/id");
                let name = text_at(event, "/content_block/name");
                answer.name_call(index(), id, name)?;
            }
            _ => {}
        },
        "content_block_delta" => match text_at(event, "/delta/type") {
            Some("text_delta") => answer.append(event, "/delta/text")?,
            Some("input_json_delta") => {
                answer.extend_call(index(), text_at(event, "/delta/partial_json"))?;
            }
            _ => {}
        },
        "message_delta" => {
            answer.read_usage(event, "/usage");
            answer.set_stop(text_at(event, "/delta/stop_reason").map(|reason| match reason {
                "end_turn" | "stop_sequence" => Stop::End,
                "max_tokens" | "model_context_window_exceeded" => Stop::TooLong,
                "refusal" => Stop::Refused,
                "tool_use" => Stop::NextTurn,
                "pause_turn" => Stop::Paused,
                other => Stop::Unknown(other.to_owned()),
            }));
        }
        "message_stop" => answer.complete(),
        "error" => return Err(reported(event, "/error")),
        _ => {}
    }
    Ok(())
}

/// Returns the numbers of tokens of an event.
pub(super) fn usage(usage: &Value) -> ModelUsage {
    ModelUsage {
        input: number_at(usage, "/input_tokens"),
        cache_read: number_at(usage, "/cache_read_input_tokens"),
        cache_write: number_at(usage, "/cache_creation_input_tokens"),
        output: number_at(usage, "/output_tokens"),
    }
}
