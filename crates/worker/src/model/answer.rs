//! Reads the events of an answer, in each of the three protocols. Pure.
//!
//! ```text
//! open ──text, usage, reason──▶ open ──end mark──▶ complete ──finish──▶ Answer, or a failure
//!   └───────error event────────────▶ reported
//!   └───────end of the stream──────▶ cut off
//! ```
//!
//! Events of unknown types are ignored, as the protocols demand. The module of each protocol knows the names
//! of its events and reasons.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use belljar_wire::{ModelFailure, ModelFailureKind as Kind, ModelProtocol, ModelUsage};
use serde_json::Value;

use super::turns::Call;
use super::{Limits, anthropic, excerpt, failure, json, openai_chat, openai_responses};
use crate::runtime::events::Events;

/// The maximum number of characters of the name of a model.
const MAX_MODEL_NAME: usize = 256;
/// The maximum number of calls of tools in one answer.
const MAX_CALLS: usize = 128;
/// The maximum number of bytes of the id and of the name of a call.
const MAX_CALL_NAME: usize = 256;

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) model: Option<String>,
    pub(super) usage: ModelUsage,
    pub(super) stop: Stop,
    /// The calls of tools. The next turn has their results.
    pub(super) calls: Vec<Call>,
}

/// The reason why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// The answer is finished.
    End,
    /// The limit of tokens is reached.
    TooLong,
    Refused,
    /// The model asks for a result of a tool.
    NextTurn,
    /// The model asks to continue its unfinished answer in another turn.
    Paused,
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
    /// The calls of tools by their index in the answer.
    calls: BTreeMap<u64, Call>,
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
            calls: BTreeMap::new(),
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

    /// Returns the answer of a model without tools, after the end of the stream.
    pub(super) fn finish(self) -> Result<Answer, StreamFault> {
        let answer = self.finish_turn()?;
        if matches!(answer.stop, Stop::NextTurn | Stop::Paused) {
            let message = "the model asked for a tool or another turn; this task has one turn";
            return Err(StreamFault::Final(failure(Kind::Turns, message)));
        }
        Ok(answer)
    }

    /// Returns the answer or the calls of a model with tools, after the end of the stream.
    pub(super) fn finish_turn(self) -> Result<Answer, StreamFault> {
        let Self { text, refusal, model, usage, stop, calls, is_complete, .. } = self;
        if !is_complete {
            return Err(StreamFault::CutOff);
        }
        let stop = stop.ok_or_else(|| invalid("the answer has no reason for its end"))?;
        let calls = numbered(calls);
        // Some servers name the usual end after calls.
        let is_with_calls = matches!(stop, Stop::End | Stop::Paused) && !calls.is_empty();
        let stop = if is_with_calls { Stop::NextTurn } else { stop };
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
            Stop::Unknown(reason) => Err(invalid(format!(
                "the answer ended for the unknown reason `{}`",
                excerpt(reason)
            ))),
            Stop::End if text.trim().is_empty() => Err(invalid("the answer is empty")),
            Stop::End | Stop::NextTurn | Stop::Paused => {
                Ok(Answer { text, model, usage, stop, calls })
            }
        }
    }

    fn event(&mut self, data: &str) -> Result<(), StreamFault> {
        if self.protocol == ModelProtocol::OpenAiChat && data.trim() == openai_chat::END {
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
            ModelProtocol::Anthropic => anthropic::event(self, &event),
            ModelProtocol::OpenAiChat => openai_chat::event(self, &event),
            ModelProtocol::OpenAiResponses => openai_responses::event(self, &event),
        }
    }

    /// Sets the reason of the end, if the event has one.
    pub(super) fn set_stop(&mut self, stop: Option<Stop>) {
        self.stop = stop.or(self.stop.take());
    }

    /// Records that the end mark was read.
    pub(super) const fn complete(&mut self) {
        self.is_complete = true;
    }

    pub(super) const fn has_text(&self) -> bool {
        !self.text.is_empty()
    }

    pub(super) const fn has_refusal(&self) -> bool {
        !self.refusal.is_empty()
    }

    /// Sets the id and the name of the call with an index. A missing or empty text changes nothing.
    pub(super) fn name_call(
        &mut self,
        index: u64,
        id: Option<&str>,
        name: Option<&str>,
    ) -> Result<(), StreamFault> {
        let call = self.call(index)?;
        for (field, text) in [(&mut call.id, id), (&mut call.name, name)] {
            let text = text.unwrap_or_default();
            if text.len() > MAX_CALL_NAME {
                let message =
                    format!("the id or the name of a call is longer than {MAX_CALL_NAME} bytes");
                return Err(invalid(message));
            }
            if !text.is_empty() {
                text.clone_into(field);
            }
        }
        Ok(())
    }

    /// Appends to the arguments of the call with an index.
    pub(super) fn extend_call(
        &mut self,
        index: u64,
        text: Option<&str>,
    ) -> Result<(), StreamFault> {
        let Some(text) = text else { return Ok(()) };
        let others = self.calls.values().map(|call| call.arguments.len()).sum::<usize>();
        let own = self.calls.get(&index).map_or(0, |call| call.arguments.len());
        let max = self.max_text.saturating_sub(others.saturating_sub(own));
        append(&mut self.call(index)?.arguments, text, max)
    }

    fn call(&mut self, index: u64) -> Result<&mut Call, StreamFault> {
        if self.calls.len() >= MAX_CALLS && !self.calls.contains_key(&index) {
            return Err(invalid(format!("the answer has more than {MAX_CALLS} calls of tools")));
        }
        Ok(self.calls.entry(index).or_default())
    }

    /// Appends text of the answer. A missing text or `null` is no text.
    pub(super) fn append(&mut self, event: &Value, pointer: &str) -> Result<(), StreamFault> {
        match event.pointer(pointer) {
            None | Some(Value::Null) => Ok(()),
            Some(Value::String(text)) => append(&mut self.text, text, self.max_text),
            Some(_) => Err(invalid("an event has a text that is not a string")),
        }
    }

    pub(super) fn append_refusal(&mut self, text: &str) -> Result<(), StreamFault> {
        append(&mut self.refusal, text, self.max_text)
    }

    pub(super) fn read_model(&mut self, event: &Value, pointer: &str) {
        let name = text_at(event, pointer).filter(|name| !name.is_empty());
        let name = name.map(|name| name.chars().take(MAX_MODEL_NAME).collect());
        self.model = name.or(self.model.take());
    }

    /// Reads numbers of tokens. They only grow within one answer.
    pub(super) fn read_usage(&mut self, event: &Value, pointer: &str) {
        let Some(usage) = event.pointer(pointer).filter(|usage| usage.is_object()) else { return };
        let found = match self.protocol {
            ModelProtocol::Anthropic => anthropic::usage(usage),
            ModelProtocol::OpenAiChat => openai_chat::usage(usage),
            ModelProtocol::OpenAiResponses => openai_responses::usage(usage),
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

/// Returns the text at a JSON pointer.
pub(super) fn text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

/// Returns the number at a JSON pointer, or 0.
pub(super) fn number_at(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// Returns the calls in their order. A call without an id gets one, so that its result can name it.
fn numbered(calls: BTreeMap<u64, Call>) -> Vec<Call> {
    let mut calls: Vec<Call> = calls.into_values().collect();
    for (number, call) in calls.iter_mut().enumerate() {
        if call.id.is_empty() {
            call.id = format!("call_{number}");
        }
    }
    calls
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
pub(super) fn reported(event: &Value, pointer: &str) -> StreamFault {
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
