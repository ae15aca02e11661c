//! The job to ask a language model a question, with or without tools, and its result.
//!
//! The host names the protocol and the environment variable with the placeholder of the key. It knows
//! neither the key nor the format of requests. Everything in the result comes from a server and is
//! untrusted.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A question to a language model that has one answer. With tools, the answer can follow after several turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelJob {
    pub protocol: ModelProtocol,
    /// The base URL of the server, such as `http://localhost:11434/v1`. `None` for the provider's own
    /// server.
    pub url: Option<String>,
    /// The name of the model as the server knows it.
    pub model: String,
    /// The environment variable of the box with the placeholder of the key. `None` for a server that
    /// needs no key.
    pub key_variable: Option<String>,
    /// The instructions of the operator, in addition to those about inputs and output.
    pub system: Option<String>,
    pub prompt: String,
    /// The inputs of the task. The model is told that they are data.
    pub inputs: Vec<ModelInput>,
    pub output: ModelOutput,
    /// The maximum number of tokens of one answer.
    pub max_tokens: u64,
    /// The context window of the model in tokens, if it is known.
    #[serde(default)]
    pub window: Option<u64>,
    /// Whether a question that is longer than the window is cut. Otherwise it is refused.
    #[serde(default)]
    pub cuts: bool,
    /// The tools that the model can call, or none.
    #[serde(default)]
    pub tools: Option<ToolJob>,
}

/// The tools of a question. The worker runs them in its own box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolJob {
    /// The names of the tools.
    pub names: Vec<String>,
    /// The maximum number of requests to the model.
    pub turns: u32,
    /// The heap limit of a program that the model runs in the worker, in bytes.
    pub memory: u64,
    /// The permission rules, in the syntax of `belljar.toml`.
    pub allow: Vec<String>,
    pub ask: Vec<String>,
    pub deny: Vec<String>,
    /// Whether a call that no rule concerns is allowed.
    pub skips_all: bool,
}

/// The protocol of a model server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelProtocol {
    /// The Messages protocol of Anthropic.
    #[serde(rename = "anthropic")]
    Anthropic,
    /// The chat protocol of OpenAI, which most other servers use too.
    #[serde(rename = "openai-chat")]
    OpenAiChat,
    /// The responses protocol of OpenAI.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
}

/// An input of a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInput {
    /// The name of the input in the prompt.
    pub name: String,
    pub source: InputSource,
}

/// The place of an input's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputSource {
    Text(String),
    /// The absolute path of a file in the box.
    File(String),
}

/// The required form of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelOutput {
    Text,
    /// One JSON value. If there is a schema, the value must match it.
    Json {
        schema: Option<String>,
    },
    /// One of these texts.
    Choice(Vec<String>),
}

/// The answer of a model: the value of [`ProgramResult`](crate::ProgramResult) for a
/// [`ModelJob`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelAnswer {
    /// The text of the answer, or the JSON text of its value.
    pub text: String,
    /// The model that answered, as the server named it.
    pub model: Option<String>,
    /// The tokens of all turns, as the server reported them.
    pub usage: ModelUsage,
    /// The number of turns. Each request to the model, a repair included, is a turn.
    pub turns: u32,
}

/// The numbers of used tokens by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// Input tokens that were not cached.
    pub input: u64,
    /// Input tokens that were read from a cache.
    pub cache_read: u64,
    /// Input tokens that were written to a cache.
    pub cache_write: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
}

/// The reason why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFailure {
    pub kind: ModelFailureKind,
    /// What failed, and what to do.
    pub message: String,
}

/// The kind of a [`ModelFailure`]. Its name is the `name` of the
/// [`ProgramError`](crate::ProgramError).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelFailureKind {
    /// The model or a filter of its server refused to answer.
    Refused,
    /// The answer is empty, malformed, or not of the required form.
    Invalid,
    /// The answer ended before its end mark.
    CutOff,
    /// The server did not answer after all tries.
    Unavailable,
    /// The question or the answer is longer than the limit of tokens or bytes.
    TooLong,
    /// The model asked for another turn after the last one.
    Turns,
    /// The server did not accept the key.
    BadKey,
    /// A budget of the box is used up.
    OverBudget,
    /// The request cannot be made, or the server rejected it.
    CannotStart,
}

impl ModelFailureKind {
    /// All kinds of failures.
    pub const ALL: [Self; 9] = [
        Self::Refused,
        Self::Invalid,
        Self::CutOff,
        Self::Unavailable,
        Self::TooLong,
        Self::Turns,
        Self::BadKey,
        Self::OverBudget,
        Self::CannotStart,
    ];

    /// Returns the name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Invalid => "invalid",
            Self::CutOff => "cut_off",
            Self::Unavailable => "unavailable",
            Self::TooLong => "too_long",
            Self::Turns => "turns",
            Self::BadKey => "bad_key",
            Self::OverBudget => "over_budget",
            Self::CannotStart => "cannot_start",
        }
    }

    /// Returns the kind with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl ModelUsage {
    /// Returns the tokens of this usage and another one.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            output: self.output.saturating_add(other.output),
        }
    }
}

impl fmt::Display for ModelFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)
    }
}

impl std::error::Error for ModelFailure {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FrameDecoder, Job, encode};

    #[test]
    fn model_job_is_the_same_after_a_frame() {
        let input = |source| ModelInput { name: "issue".to_owned(), source };
        let job = Job::Model(ModelJob {
            protocol: ModelProtocol::OpenAiChat,
            url: Some("http://localhost:11434/v1".to_owned()),
            model: "qwen3:8b".to_owned(),
            key_variable: Some("OPENAI_API_KEY".to_owned()),
            system: None,
            prompt: "Name the area.".to_owned(),
            inputs: vec![
                input(InputSource::Text("text".to_owned())),
                input(InputSource::File("/run/task/in/issue".to_owned())),
            ],
            output: ModelOutput::Json { schema: None },
            max_tokens: 4096,
            window: Some(200_000),
            cuts: false,
            tools: Some(ToolJob {
                names: vec!["shell".to_owned()],
                turns: 50,
                memory: 1 << 26,
                allow: Vec::new(),
                ask: Vec::new(),
                deny: vec!["Bash(rm:*)".to_owned()],
                skips_all: true,
            }),
        });
        let bytes = encode(&job).unwrap();
        let text = String::from_utf8_lossy(&bytes[4..]).into_owned();
        assert!(text.starts_with(r#"{"model":{"protocol":"openai-chat","url":"#), "{text}");
        let mut decoder = FrameDecoder::default();
        decoder.push(&bytes);
        assert_eq!(decoder.take::<Job>().unwrap(), Some(job));
    }

    #[test]
    fn every_kind_of_failure_is_found_by_its_name() {
        for kind in ModelFailureKind::ALL {
            assert_eq!(ModelFailureKind::named(kind.name()), Some(kind));
        }
        assert_eq!(ModelFailureKind::named("other"), None);
    }
}
