//! Reads the events of an answer, in each of the three protocols. Pure.
//!
//! ```text
//! open ──text, usage, reason──▶ open ──end mark──▶ complete ──finish──▶ Answer, or a failure
//!   └───────error event────────────▶ reported
//!   └───────end of the stream──────▶ cut off
//! ```
//!
//! Events of unknown types are ignored, as the protocols demand. The names of the end marks and of the
//! reasons are in one `match` per protocol.

#[cfg(test)]
mod tests;

use belljar_wire::{ModelFailure, ModelFailureKind as Kind, ModelProtocol, ModelUsage};
use serde_json::Value;

use super::{Limits, excerpt, failure, json};
use crate::runtime::events::Events;

/// The maximum number of characters of the name of a model.
const MAX_MODEL_NAME: usize = 256;

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) model: Option<String>,
    pub(super) usage: ModelUsage,
    pub(super) stop: Stop,
}

/// The reason why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// The answer is finished.
    End,
    /// The limit of tokens is reached.
    TooLong,
    Refused,
    /// The model asks for a result of a tool, or for another turn.
    NextTurn,
    /// The reason is not part of the protocol.
    Unknown(String),
}

/// The reason why a stream has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StreamFault {
    /// The server reported an error in the stream.
    Reported(String),
    /// The stream ended before the end mark.
    CutOff,
    /// Another try would not help.
    Final(ModelFailure),
}

/// Collects the answer from the bytes of a stream.
#[derive(Debug)]
pub(super) struct Collector {
    protocol: ModelProtocol,
    events: Events,
    max_text: usize,
    text: String,
    refusal: String,
    model: Option<String>,
    usage: ModelUsage,
    stop: Option<Stop>,
    is_complete: bool,
}

impl Collector {
    pub(super) fn new(protocol: ModelProtocol, limits: &Limits) -> Self {
        Self {
            protocol,
            events: Events::new(limits.event),
            max_text: limits.answer,
            text: String::new(),
            refusal: String::new(),
            model: None,
            usage: ModelUsage::default(),
            stop: None,
            is_complete: false,
        }
    }

    /// Reads bytes of the stream, which can be split anywhere. Bytes after the end mark are ignored.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), StreamFault> {
        if self.is_complete {
            return Ok(());
        }
        let events = self.events.push(bytes).map_err(|error| invalid(error.to_string()))?;
        for data in events {
            self.event(&data)?;
            if self.is_complete {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether the end mark was read.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the answer after the end of the stream.
    pub(super) fn finish(self) -> Result<Answer, StreamFault> {
        let Self { text, refusal, model, usage, stop, is_complete, .. } = self;
        if !is_complete {
            return Err(StreamFault::CutOff);
        }
        let stop = stop.ok_or_else(|| invalid("the answer has no reason for its end"))?;
        let fail = |kind, message: String| Err(StreamFault::Final(failure(kind, message)));
        match &stop {
            Stop::Refused => {
                let said = if refusal.trim().is_empty() { &text } else { &refusal };
                fail(Kind::Refused, refused(said))
            }
            Stop::End if !refusal.trim().is_empty() => fail(Kind::Refused, refused(&refusal)),
            Stop::TooLong => {
                let message =
                    "the answer reached the limit of tokens; raise the limit or ask for less";
                fail(Kind::TooLong, message.to_owned())
            }
            Stop::NextTurn => {
                let message = "the model asked for a tool or another turn; this task has one turn";
                fail(Kind::Turns, message.to_owned())
            }
            Stop::Unknown(reason) => Err(invalid(format!(
                "the answer ended for the unknown reason `{}`",
                excerpt(reason)
            ))),
            Stop::End if text.trim().is_empty() => Err(invalid("the answer is empty")),
            Stop::End => Ok(Answer { text, model, usage, stop }),
        }
    }

    fn event(&mut self, data: &str) -> Result<(), StreamFault> {
        if self.protocol == ModelProtocol::OpenAiChat && data.trim() == "[DONE]" {
            // Without a reason, the answer has not ended.
            self.is_complete = self.stop.is_some();
            return if self.is_complete { Ok(()) } else { Err(StreamFault::CutOff) };
        }
        let event = json::parse(data)
            .map_err(|reason| invalid(format!("an event is not valid JSON: {reason}")))?;
        if !event.is_object() {
            return Err(invalid("an event is not a JSON object"));
        }
        match self.protocol {
            ModelProtocol::Anthropic => self.anthropic(&event),
            ModelProtocol::OpenAiChat => self.openai_chat(&event),
            ModelProtocol::OpenAiResponses => self.openai_responses(&event),
        }
    }

    fn anthropic(&mut self, event: &Value) -> Result<(), StreamFault> {
        match text_at(event, "/type").unwrap_or_default() {
            "message_start" => {
                self.read_model(event, "/message/model");
                self.read_usage(event, "/message/usage");
            }
            "content_block_start" if text_at(event, "/content_block/type") == Some("text") => {
                self.append(event, "/content_block/text")?;
            }
            "content_block_delta" if text_at(event, "/delta/type") == Some("text_delta") => {
                self.append(event, "/delta/text")?;
            }
            "message_delta" => {
                self.read_usage(event, "/usage");
                let stop = text_at(event, "/delta/stop_reason").map(|reason| match reason {
                    "end_turn" | "stop_sequence" => Stop::End,
                    "max_tokens" | "model_context_window_exceeded" => Stop::TooLong,
                    "refusal" => Stop::Refused,
                    "tool_use" | "pause_turn" => Stop::NextTurn,
                    other => Stop::Unknown(other.to_owned()),
                });
                self.stop = stop.or(self.stop.take());
            }
            "message_stop" => self.is_complete = true,
            "error" => return Err(reported(event, "/error")),
            _ => {}
        }
        Ok(())
    }

    fn openai_chat(&mut self, event: &Value) -> Result<(), StreamFault> {
        if event.get("error").is_some_and(|error| !error.is_null()) {
            return Err(reported(event, "/error"));
        }
        self.read_model(event, "/model");
        self.read_usage(event, "/usage");
        let choices = event.get("choices").and_then(Value::as_array);
        let is_first = |choice: &&Value| choice.get("index").is_none_or(|index| index == 0);
        let Some(choice) = choices.and_then(|choices| choices.iter().find(is_first)) else {
            return Ok(());
        };
        self.append(choice, "/delta/content")?;
        if let Some(refusal) = text_at(choice, "/delta/refusal") {
            self.append_refusal(refusal)?;
        }
        let stop = text_at(choice, "/finish_reason").map(|reason| match reason {
            "stop" => Stop::End,
            "length" => Stop::TooLong,
            "content_filter" | "refusal" => Stop::Refused,
            "tool_calls" | "function_call" => Stop::NextTurn,
            other => Stop::Unknown(other.to_owned()),
        });
        self.stop = stop.or(self.stop.take());
        Ok(())
    }

    fn openai_responses(&mut self, event: &Value) -> Result<(), StreamFault> {
        self.read_model(event, "/response/model");
        self.read_usage(event, "/response/usage");
        match text_at(event, "/type").unwrap_or_default() {
            "response.output_text.delta" => self.append(event, "/delta")?,
            "response.refusal.delta" => {
                self.append_refusal(text_at(event, "/delta").unwrap_or_default())?;
            }
            "response.completed" => {
                self.stop = Some(self.read_output(event)?);
                self.is_complete = true;
            }
            "response.incomplete" => {
                let reason = text_at(event, "/response/incomplete_details/reason");
                let is_filtered = reason == Some("content_filter");
                self.stop = Some(if is_filtered { Stop::Refused } else { Stop::TooLong });
                self.is_complete = true;
            }
            "response.failed" => return Err(reported(event, "/response/error")),
            "error" if event.get("error").is_some() => return Err(reported(event, "/error")),
            "error" => return Err(reported(event, "")),
            _ => {}
        }
        Ok(())
    }

    /// Reads the whole output in the last event of the responses protocol. Its text counts only if
    /// the server did not stream it.
    fn read_output(&mut self, event: &Value) -> Result<Stop, StreamFault> {
        let items = event.pointer("/response/output").and_then(Value::as_array);
        let items = items.map(Vec::as_slice).unwrap_or_default();
        let (has_text, has_refusal) = (!self.text.is_empty(), !self.refusal.is_empty());
        let mut stop = Stop::End;
        for item in items {
            match text_at(item, "/type").unwrap_or_default() {
                "function_call" | "custom_tool_call" => stop = Stop::NextTurn,
                "message" => {
                    let parts = item.get("content").and_then(Value::as_array);
                    for part in parts.map(Vec::as_slice).unwrap_or_default() {
                        match text_at(part, "/type").unwrap_or_default() {
                            "output_text" if !has_text => self.append(part, "/text")?,
                            "refusal" if !has_refusal => {
                                self.append_refusal(
                                    text_at(part, "/refusal").unwrap_or("refused"),
                                )?;
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

    /// Appends text of the answer. A missing text or `null` is no text.
    fn append(&mut self, event: &Value, pointer: &str) -> Result<(), StreamFault> {
        match event.pointer(pointer) {
            None | Some(Value::Null) => Ok(()),
            Some(Value::String(text)) => append(&mut self.text, text, self.max_text),
            Some(_) => Err(invalid("an event has a text that is not a string")),
        }
    }

    fn append_refusal(&mut self, text: &str) -> Result<(), StreamFault> {
        append(&mut self.refusal, text, self.max_text)
    }

    fn read_model(&mut self, event: &Value, pointer: &str) {
        let name = text_at(event, pointer).filter(|name| !name.is_empty());
        let name = name.map(|name| name.chars().take(MAX_MODEL_NAME).collect());
        self.model = name.or(self.model.take());
    }

    /// Reads numbers of tokens. They only grow within one answer.
    fn read_usage(&mut self, event: &Value, pointer: &str) {
        let Some(usage) = event.pointer(pointer).filter(|usage| usage.is_object()) else { return };
        let number = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let found = match self.protocol {
            ModelProtocol::Anthropic => ModelUsage {
                input: number("/input_tokens"),
                cache_read: number("/cache_read_input_tokens"),
                cache_write: number("/cache_creation_input_tokens"),
                output: number("/output_tokens"),
            },
            // The number of input tokens of OpenAI includes the cached ones.
            ModelProtocol::OpenAiChat => {
                let cache_read = number("/prompt_tokens_details/cached_tokens");
                let input = number("/prompt_tokens").saturating_sub(cache_read);
                ModelUsage {
                    input,
                    cache_read,
                    cache_write: 0,
                    output: number("/completion_tokens"),
                }
            }
            ModelProtocol::OpenAiResponses => {
                let cache_read = number("/input_tokens_details/cached_tokens");
                let input = number("/input_tokens").saturating_sub(cache_read);
                ModelUsage { input, cache_read, cache_write: 0, output: number("/output_tokens") }
            }
        };
        self.usage = ModelUsage {
            input: found.input.max(self.usage.input),
            cache_read: found.cache_read.max(self.usage.cache_read),
            cache_write: found.cache_write.max(self.usage.cache_write),
            output: found.output.max(self.usage.output),
        };
    }
}

fn append(to: &mut String, text: &str, max: usize) -> Result<(), StreamFault> {
    if to.len().saturating_add(text.len()) > max {
        let message = format!("the answer is longer than {max} bytes");
        return Err(StreamFault::Final(failure(Kind::TooLong, message)));
    }
    to.push_str(text);
    Ok(())
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

fn invalid(message: impl Into<String>) -> StreamFault {
    StreamFault::Final(failure(Kind::Invalid, message))
}

fn refused(said: &str) -> String {
    match excerpt(said).as_str() {
        "" => "the model refused to answer".to_owned(),
        said => format!("the model refused to answer: {said}"),
    }
}

/// Returns the fault for an error event. The error is an object with a message, or a text.
fn reported(event: &Value, pointer: &str) -> StreamFault {
    let error = event.pointer(pointer).unwrap_or(&Value::Null);
    let kind = ["/type", "/code"].into_iter().find_map(|at| text_at(error, at));
    let message = text_at(error, "/message").or(error.as_str());
    let text = match (kind, message) {
        (Some(kind), Some(message)) => format!("{kind}: {message}"),
        (Some(text), None) | (None, Some(text)) => text.to_owned(),
        (None, None) => "no details".to_owned(),
    };
    StreamFault::Reported(excerpt(&text))
}
