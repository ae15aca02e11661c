//! What a server must be able to answer, in plain types that no revision of the protocol shows in.
//!
//! Nothing here knows of tokens, headers or connections: a [`Service`] learns who asks in which session and
//! no more, so that it can neither forward a caller's credential nor decide who may come in.

use belljar_model::Caller;
use serde_json::{Map, Value};

use crate::mcp::context::CallContext;

/// What stands behind the protocol. Every answer is for one session and may differ between two.
pub trait Service: Send + Sync + 'static {
    /// Who this is, for the first answer that a client gets.
    fn about(&self) -> About;

    /// The tools that this caller may use.
    fn tools(&self, caller: &Caller) -> impl Future<Output = Vec<ToolSpec>> + Send;

    /// Does it. Dropping the future or cancelling `context.cancelled` ends the work.
    fn call(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Map<String, Value>,
        context: CallContext,
    ) -> impl Future<Output = Result<Outcome, CallError>> + Send;

    fn resources(&self, caller: &Caller) -> impl Future<Output = Vec<ResourceSpec>> + Send;

    fn resource_templates(&self) -> Vec<ResourceTemplateSpec>;

    fn read(
        &self,
        caller: &Caller,
        uri: &str,
    ) -> impl Future<Output = Result<Vec<ResourceContents>, ReadError>> + Send;

    fn prompts(&self, caller: &Caller) -> impl Future<Output = Vec<PromptSpec>> + Send;

    fn prompt(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Map<String, Value>,
    ) -> impl Future<Output = Result<PromptText, PromptError>> + Send;

    /// The session is over and its id will not come back: free what it had. Does not block.
    fn closed(&self, caller: &Caller);
}

/// Who this server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    pub name: String,
    pub version: String,
    /// What a model should know before it uses any tool.
    pub instructions: String,
}

/// One tool, as a client's model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    /// JSON Schema of an object.
    pub input_schema: Map<String, Value>,
    /// JSON Schema of an object, which every [`Outcome::structured`] then follows.
    pub output_schema: Option<Map<String, Value>>,
    pub annotations: Annotations,
}

/// Hints on what a tool does. What is not said is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Annotations {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

/// What a call came to, also when the tool itself failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    pub text: String,
    /// An object, if the tool has an output schema.
    pub structured: Option<Value>,
    /// The tool ran and failed; the text says why, for the model to read.
    pub is_error: bool,
}

/// A call that came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("there is no such tool")]
    UnknownTool,
    /// Told to the model as a failed call, so that it can try again.
    #[error("{0}")]
    InvalidArguments(String),
    #[error("{0}")]
    Internal(String),
}

/// One thing to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSpec {
    pub uri: String,
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub mime_type: Option<String>,
}

/// A family of things to read, by RFC 6570 template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceTemplateSpec {
    pub uri_template: String,
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub mime_type: Option<String>,
}

/// What a resource holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceContents {
    pub uri: String,
    pub mime_type: Option<String>,
    pub text: String,
}

/// A resource that was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("there is no such resource")]
    NotFound,
    #[error("{0}")]
    Internal(String),
}

/// One prompt that a user may pick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSpec {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    pub arguments: Vec<PromptArgument>,
}

/// One blank of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptArgument {
    pub name: String,
    pub description: String,
    pub required: bool,
}

/// A prompt with its blanks filled: one message of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptText {
    pub description: Option<String>,
    pub text: String,
}

/// A prompt that was not given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    #[error("there is no such prompt")]
    UnknownPrompt,
    #[error("{0}")]
    InvalidArguments(String),
    #[error("{0}")]
    Internal(String),
}
