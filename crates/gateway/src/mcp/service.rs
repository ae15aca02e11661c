//! The interface of an MCP server, independent of the protocol revision.
//!
//! A [`Service`] gets the caller and its session, but no token, header or connection. It can
//! neither forward credentials nor decide who is allowed to connect.

use belljar_model::Caller;
use serde_json::{Map, Value};

use crate::mcp::context::{CallContext, StateLifetime};

/// The implementation of an MCP server. Every result is for one session and can differ between
/// sessions.
pub trait Service: Send + Sync + 'static {
    /// Returns the name, version and instructions of the server for this caller.
    fn about(&self, caller: &Caller) -> About;

    /// Returns the tools that this caller can use.
    fn tools(
        &self,
        caller: &Caller,
        lifetime: StateLifetime,
    ) -> impl Future<Output = Vec<ToolSpec>> + Send;

    /// Returns the name of the tool argument with which a request without a session names the state
    /// that an earlier request has kept. The transport removes this argument.
    fn state_argument(&self) -> &'static str;

    /// Calls a tool. Dropping the future or cancelling `context.cancelled` stops the call.
    fn call(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Map<String, Value>,
        context: CallContext,
    ) -> impl Future<Output = Result<CallOutcome, CallError>> + Send;

    /// Returns the resources that this caller can read.
    fn resources(&self, caller: &Caller) -> impl Future<Output = Vec<ResourceSpec>> + Send;

    /// Returns the URI templates of resources.
    fn resource_templates(&self) -> Vec<ResourceTemplateSpec>;

    /// Reads a resource.
    fn read(
        &self,
        caller: &Caller,
        uri: &str,
    ) -> impl Future<Output = Result<Vec<ResourceContents>, ReadError>> + Send;

    /// Returns the prompts that this caller can use.
    fn prompts(&self, caller: &Caller) -> impl Future<Output = Vec<PromptSpec>> + Send;

    /// Returns the prompt `name` with its arguments filled in.
    fn prompt(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Map<String, Value>,
    ) -> impl Future<Output = Result<PromptText, PromptError>> + Send;

    /// Releases the resources of a session that has ended. Its id is never used again. Does not
    /// block.
    fn closed(&self, caller: &Caller);
}

/// The name, version and instructions of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    pub name: String,
    pub version: String,
    /// The instructions that the model gets before its first tool call.
    pub instructions: String,
}

/// The definition of an MCP tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    /// The JSON Schema of the tool's arguments object.
    pub input_schema: Map<String, Value>,
    /// The JSON Schema of the tool's result object in [`CallOutcome::structured`].
    pub output_schema: Option<Map<String, Value>>,
    pub annotations: Annotations,
}

/// Hints for clients about the effects of a tool. `None` means unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Annotations {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

/// The result of a tool call, including a failure of the tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallOutcome {
    pub text: String,
    /// The result object of the call, if the tool has an output schema.
    pub structured: Option<Value>,
    /// Whether the tool failed; the text then contains the reason for the model.
    pub is_error: bool,
}

/// The reason why a tool call did not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("unknown tool")]
    UnknownTool,
    /// The arguments are invalid; the model gets this text as a failed call, so that it can retry.
    #[error("{0}")]
    InvalidArguments(String),
    #[error("{0}")]
    Internal(String),
}

/// An MCP resource that clients can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSpec {
    pub uri: String,
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub mime_type: Option<String>,
}

/// A template for the URIs of resources (RFC 6570).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceTemplateSpec {
    pub uri_template: String,
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    pub mime_type: Option<String>,
}

/// The content of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceContents {
    pub uri: String,
    pub mime_type: Option<String>,
    pub text: String,
}

/// The reason why a resource could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("unknown resource")]
    NotFound,
    #[error("{0}")]
    Internal(String),
}

/// An MCP prompt that a user can choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSpec {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    pub arguments: Vec<PromptArgument>,
}

/// A parameter of an MCP prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptArgument {
    pub name: String,
    pub description: String,
    pub required: bool,
}

/// An MCP prompt with its arguments filled in, as one message of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptText {
    pub description: Option<String>,
    pub text: String,
}

/// The reason why a prompt could not be returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    #[error("unknown prompt")]
    UnknownPrompt,
    #[error("{0}")]
    InvalidArguments(String),
    #[error("{0}")]
    Internal(String),
}
