//! The responses protocol of OpenAI. Pure.

use belljar_wire::ModelUsage;
use serde_json::{Value, json};

use super::answer::{Collector, Stop, StreamFault, number_at, reported, text_at};
use super::request::Request;
use super::turns::Turn;

/// Returns the body of a request.
pub(super) fn body(request: &Request<'_>) -> Value {
    let question: Vec<Value> = request.question.iter().map(|part| text(part)).collect();
    let mut input = vec![json!({"role": "user", "content": question})];
    input.extend(request.turns.iter().flat_map(items));
    let mut body = json!({
        "model": request.model,
        "max_output_tokens": request.max_tokens,
        "stream": true,
        "store": false,
        "instructions": request.instructions,
        "input": input,
    });
    if !request.tools.is_empty()
        && let Some(fields) = body.as_object_mut()
    {
        let tools = request.tools.iter().map(|tool| {
            json!({
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
                "strict": false,
            })
        });
        fields.insert("tools".to_owned(), tools.collect());
    }
    body
}

fn text(text: &str) -> Value {
    json!({"type": "input_text", "text": text})
}

/// Returns the items of a turn. Calls are sent back without the ids of their items, because the server
/// does not store the items.
fn items(turn: &Turn) -> Vec<Value> {
    match turn {
        Turn::Model { text, calls } => {
            let said = (!text.is_empty()).then(|| {
                let content = json!([{"type": "output_text", "text": text}]);
                json!({"role": "assistant", "content": content})
            });
            let calls = calls.iter().map(|call| {
                json!({
                    "type": "function_call",
                    "call_id": call.id,
                    "name": call.name,
                    "arguments": call.arguments,
                })
            });
            said.into_iter().chain(calls).collect()
        }
        // The protocol has no mark for errors, so their texts say it.
        Turn::Results(results) => results
            .iter()
            .map(|result| {
                let (id, output) = (&result.id, &result.text);
                json!({"type": "function_call_output", "call_id": id, "output": output})
            })
            .collect(),
        Turn::Correction(ask) => vec![json!({"role": "user", "content": [text(ask)]})],
    }
}

/// Reads an event of an answer.
pub(super) fn event(answer: &mut Collector, event: &Value) -> Result<(), StreamFault> {
    answer.read_model(event, "/response/model");
    answer.read_usage(event, "/response/usage");
    match text_at(event, "/type").unwrap_or_default() {
        "response.output_text.delta" => answer.append(event, "/delta")?,
        "response.refusal.delta" => {
            answer.append_refusal(text_at(event, "/delta").unwrap_or_default())?;
        }
        "response.completed" => {
            let stop = output(answer, event)?;
            answer.set_stop(Some(stop));
            answer.complete();
        }
        "response.incomplete" => {
            let reason = text_at(event, "/response/incomplete_details/reason");
            let is_filtered = reason == Some("content_filter");
            answer.set_stop(Some(if is_filtered { Stop::Refused } else { Stop::TooLong }));
            answer.complete();
        }
        "response.failed" => return Err(reported(event, "/response/error")),
        "error" if event.get("error").is_some() => return Err(reported(event, "/error")),
        "error" => return Err(reported(event, "")),
        _ => {}
    }
    Ok(())
}

/// Reads the whole output in the last event. Its text counts only if the server did not stream it. Its
/// calls are complete, so their streamed parts are not read.
fn output(answer: &mut Collector, event: &Value) -> Result<Stop, StreamFault> {
    let items = event.pointer("/response/output").and_then(Value::as_array);
    let (has_text, has_refusal) = (answer.has_text(), answer.has_refusal());
    let mut stop = Stop::End;
    for (index, item) in items.into_iter().flatten().enumerate() {
        match text_at(item, "/type").unwrap_or_default() {
            "function_call" => {
                let index = index as u64;
                answer.name_call(index, text_at(item, "/call_id"), text_at(item, "/name"))?;
                answer.extend_call(index, text_at(item, "/arguments"))?;
                stop = Stop::NextTurn;
            }
            "custom_tool_call" => stop = Stop::NextTurn,
            "message" => {
                let parts = item.get("content").and_then(Value::as_array);
                for part in parts.into_iter().flatten() {
                    match text_at(part, "/type").unwrap_or_default() {
                        "output_text" if !has_text => answer.append(part, "/text")?,
                        "refusal" if !has_refusal => {
                            answer
                                .append_refusal(text_at(part, "/refusal").unwrap_or("refused"))?;
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(stop)
}

/// Returns the numbers of tokens of an event. The number of input tokens includes the cached ones.
pub(super) fn usage(usage: &Value) -> ModelUsage {
    let cache_read = number_at(usage, "/input_tokens_details/cached_tokens");
    let input = number_at(usage, "/input_tokens").saturating_sub(cache_read);
    ModelUsage { input, cache_read, cache_write: 0, output: number_at(usage, "/output_tokens") }
}
