//! Asks a language model a question, inside the box, and carries out the calls of tools that it makes.
//!
//! The key is a placeholder from the environment; the broker replaces it. `request` writes requests,
//! `answer` reads the events of an answer, `retry` decides about further tries, and `context` compares a
//! question with the window of its model: all four are pure. Each protocol has a module of its own, which is
//! pure too. `client` sends the requests, and `tools` carries out calls. The text of a try that failed is
//! discarded.
//!
//! ```text
//! question ──▶ answer ──calls──▶ results ──▶ answer …, at most `turns` times
//!                 └──no call──▶ required form? ──▶ end, or one correction
//! ```

mod answer;
mod anthropic;
mod client;
mod context;
mod json;
mod openai_chat;
mod openai_responses;
mod request;
mod retry;
mod tools;
mod turns;

use std::time::Duration;

use belljar_wire::{
    ModelAnswer, ModelFailure, ModelFailureKind as Kind, ProgramError, ProgramResult,
};
use serde_json::value::RawValue;

pub use client::{Surroundings, ask};
pub use tools::ToolPlaces;

/// The maximum size of the JSON of an answer in bytes: a frame without the rest of its message.
const MAX_RESULT: usize = belljar_wire::MAX_FRAME - 1024;

/// The bounds of one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of tries of one turn.
    pub tries: u32,
    /// The maximum time without a byte from the server.
    pub silence: Duration,
    /// The maximum time of the whole question, with all tries and turns. With tools, that of each turn.
    pub deadline: Duration,
    /// The time before the second try. It doubles with each try.
    pub first_wait: Duration,
    /// The maximum of the time that doubles.
    pub max_wait: Duration,
    /// The maximum time that a server can request.
    pub max_retry_after: Duration,
    /// The maximum size of the text of an answer in bytes.
    pub answer: usize,
    /// The maximum size of one event in bytes.
    pub event: usize,
    /// The maximum size of all inputs in bytes.
    pub inputs: u64,
    /// The maximum size of a request in bytes.
    pub request: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tries: 6,
            silence: Duration::from_secs(120),
            deadline: Duration::from_secs(15 * 60),
            first_wait: Duration::from_secs(1),
            max_wait: Duration::from_secs(60),
            max_retry_after: Duration::from_secs(10 * 60),
            answer: 16 << 20,
            event: 1 << 20,
            inputs: 24 << 20,
            request: 64 << 20,
        }
    }
}

/// Returns an answer or a failure as the result of a program.
pub fn result(answer: Result<ModelAnswer, ModelFailure>) -> ProgramResult {
    let value = answer.and_then(|answer| {
        let json = serde_json::to_string(&answer).and_then(RawValue::from_string);
        let json = json.map_err(|error| {
            failure(Kind::Invalid, format!("cannot encode the answer: {error}"))
        })?;
        // An answer within its limit can be several times longer as JSON.
        if json.get().len() > MAX_RESULT {
            let message = format!("the answer is longer than {MAX_RESULT} bytes as JSON");
            return Err(failure(Kind::TooLong, message));
        }
        Ok(json)
    });
    match value {
        Ok(value) => ProgramResult { value: Some(value), trouble: None },
        Err(ModelFailure { kind, message }) => {
            let name = kind.name().to_owned();
            let error = ProgramError { name, message, stack: None, line: None, column: None };
            ProgramResult { value: None, trouble: Some(error) }
        }
    }
}

fn failure(kind: Kind, message: impl Into<String>) -> ModelFailure {
    ModelFailure { kind, message: message.into() }
}

/// Returns the first characters of a server's text, for a message.
fn excerpt(text: &str) -> String {
    const MAX: usize = 500;
    text.trim().chars().take(MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_limits_have_the_documented_values() {
        let limits = Limits::default();
        assert_eq!((limits.tries, limits.answer, limits.event), (6, 16 << 20, 1 << 20));
        assert_eq!(json::MAX_DEPTH, 64);
        let seconds = [
            (limits.silence, 120),
            (limits.deadline, 15 * 60),
            (limits.first_wait, 1),
            (limits.max_wait, 60),
            (limits.max_retry_after, 10 * 60),
        ];
        assert!(seconds.iter().all(|(limit, seconds)| limit.as_secs() == *seconds), "{limits:?}");
        assert_eq!(tools::MAX_RESULT, 64 << 10);
    }

    #[test]
    fn result_of_an_answer_fits_in_a_frame_or_is_a_named_failure() {
        let answer = |text: String| {
            let usage = belljar_wire::ModelUsage::default();
            Ok(ModelAnswer { text, model: None, usage, turns: 1 })
        };
        let done = result(answer("hello".to_owned()));
        let value: ModelAnswer = serde_json::from_str(done.value.unwrap().get()).unwrap();
        assert_eq!((value.text.as_str(), done.trouble), ("hello", None));
        // Six bytes of JSON for each byte.
        for (length, is_too_long) in [(MAX_RESULT / 6 - 100, false), (MAX_RESULT / 6, true)] {
            let done = result(answer("\u{1}".repeat(length)));
            let kind = done.trouble.as_ref().map(|error| error.name.as_str());
            assert_eq!(kind, is_too_long.then_some("too_long"));
            belljar_wire::encode(&belljar_wire::FromWorker::Done(done)).unwrap();
        }
    }
}
