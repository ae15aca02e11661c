//! Asks a language model one question, inside the box.
//!
//! The key is a placeholder from the environment; the broker replaces it. [`request`] writes requests,
//! [`answer`] reads the events of an answer, and [`retry`] decides about further tries: all three are
//! pure. [`client`] does the I/O. The text of a try that failed is discarded.
//!
//! **Not here:** tools, and turns other than one repair of JSON.

mod answer;
mod client;
mod json;
mod request;
mod retry;

use std::time::Duration;

use belljar_wire::{
    ModelAnswer, ModelFailure, ModelFailureKind as Kind, ProgramError, ProgramResult,
};
use serde_json::value::RawValue;

pub use client::ask;

/// The bounds of one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of tries of one turn.
    pub tries: u32,
    /// The maximum time without a byte from the server.
    pub silence: Duration,
    /// The maximum time of the whole question, with all tries and turns.
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
        }
    }
}

/// Returns an answer or a failure as the result of a program.
pub fn result(answer: Result<ModelAnswer, ModelFailure>) -> ProgramResult {
    let value = answer.and_then(|answer| {
        let json = serde_json::to_string(&answer).and_then(RawValue::from_string);
        json.map_err(|error| failure(Kind::Invalid, format!("cannot encode the answer: {error}")))
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
